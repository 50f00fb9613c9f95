"""Table 2: MNIST, one hidden layer of 100, one and two strengths; and PVM as it is printed."""

from __future__ import annotations

import numpy as np
import results
import settings
import tables
from contest import NAMES, OURS, End, end
from settings import Case

PAPER = {  # validation loss, test loss, ξ, solves
    ((1000, 1), "Bayesian"): ("0.2692", "0.3431", "-6.16", "50"),
    ((1000, 1), "grid"): ("0.2628", "0.3579", "-7.17", "100"),
    ((1000, 1), OURS): ("0.0180", "0.3260", "-6.75", "10 (+4)"),
    ((5000, 1), "Bayesian"): ("0.2420", "0.1841", "-7.37", "100"),
    ((5000, 1), "grid"): ("0.2440", "0.1806", "-6.97", "100"),
    ((5000, 1), OURS): ("0.0119", "0.1494", "-7.05", "10 (+4)"),
    ((1000, 2), "Bayesian"): ("0.2654", "0.3436", "-6.88 -5.13", "1000"),
    ((1000, 2), "grid"): ("0.2536", "0.3333", "-5.56 -6.67", "1000"),
    ((1000, 2), OURS): ("0.0310", "0.3207", "-3.56 -8.69", "50 (+4)"),
    ((10000, 1), "Bayesian"): ("0.1420", "0.1425", "-7.68", "100"),
    ((10000, 1), "grid"): ("0.1375", "0.1252", "-7.68", "100"),
    ((10000, 1), OURS): ("0.0150", "0.1117", "-7.03", "10 (+4)"),
    ((5000, 2), "Bayesian"): ("0.2292", "0.1803", "-6.89 -7.2", "1000"),
    ((5000, 2), "grid"): ("0.2086", "0.1852", "-6.67 -7.78", "1000"),
    ((5000, 2), OURS): ("0.0119", "0.1609", "-6.76 -6.70", "50 (+4)"),
    ((10000, 2), "Bayesian"): ("0.1418", "0.1316", "-9.99 -6.37", "1000"),
    ((10000, 2), "grid"): ("0.1340", "0.1309", "-7.78 -6.67", "1000"),
    ((10000, 2), OURS): ("0.0156", "0.1112", "-6.74 -6.70", "50 (+4)"),
}


def cells(kind: tuple[int, int], name: str, ends: list[End], reference: list[End]) -> tuple[str, ...]:
    """One row."""
    column = {field: [getattr(one, field) for one in ends] for field in End._fields}
    counts = sorted({one.solves for one in ends})
    solves = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    middle = " ".join(f"{xi:.2f}" for xi in np.mean(column["at"], axis=0))
    losses = [tables.mean_and_error(column[key], 3) for key in ("validation", "test")]
    less = [one.test - other.test for one, other in zip(ends, reference, strict=True)]
    joint = tables.mean_and_error(column["joint"], 3) if name.startswith("PVM") else ""
    others = [tables.mean_and_error(column[key], 3) for key in ("afresh", "all_rows")]
    paper = PAPER.get((kind, name), ("", "", "", ""))
    more = [tables.mean_and_error(less, 3), *others, joint, f"{paper[1]} ({paper[3]})" if paper[1] else ""]
    return f"{kind[0]} rows, {kind[1]} HP", name, solves, middle, *losses, *more


def compared(label: str, ends: list[End], reference: list[End]) -> dict[str, float]:
    """Test losses less those of the grid: of the weights that are left, trained afresh, and joint."""
    pairs = list(zip(ends, reference, strict=True))
    return {
        f"{label}: solves": float(np.mean([one.solves for one in ends])),
        f"{label}: test less grid's": float(np.mean([one.test - other.test for one, other in pairs])),
        f"{label}: afresh less grid's": float(np.mean([one.afresh - other.test for one, other in pairs])),
        f"{label}: joint less grid's": float(np.mean([one.joint - other.test for one, other in pairs])),
        f"{label}: joint less grid's on all rows": float(
            np.mean([one.joint - o.all_rows for one, o in pairs])
        ),
        f"{label}: first ξ": float(np.mean([one.at[0] for one in ends])),
    }


def main() -> None:
    """One row a case and search."""
    rows, numbers = [], dict[str, float]()
    for kind, size in settings.SIZES.items():
        cases = [Case(*kind, seed) for seed in range(size.seeds)]
        reference = [end(case, "grid") for case in cases]
        for name in NAMES:
            ends = [end(case, name) for case in cases]
            rows.append(cells(kind, name, ends, reference))
            numbers |= compared(f"{kind[0]} rows, {kind[1]} HP, {name}", ends, reference)
            print(*rows[-1], flush=True)
    head = (
        "case", "search", "inner solves", "mean ξ", "validation", "test", "test less grid's",
        "test, trained afresh", "test, on all rows", "test, joint weights", "paper's test (solves)",
    )  # fmt: skip
    caption = "Table 2: MNIST, one hidden layer of 100; means over seeds with standard errors."
    results.save(settings.FOLDER, "table_2", head, rows, caption=caption, seeds="from 0", numbers=numbers)


if __name__ == "__main__":
    main()
