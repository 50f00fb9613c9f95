"""Table 1: each leave-one-out estimator against the permuted procedure of its kind."""

from __future__ import annotations

import contest
import numpy as np
import results
import settings
from figure_4 import SOURCES
from scipy.stats import mannwhitneyu

PAIRS = (("RidgeLOO", "BKK"), ("LassoLOO", "SBKK"), ("ElasticNetLOO", "ABKK"))
HEAD = (
    "setting", "pair", "R²", "R² permuted", "difference", "better in", "test", "ms", "ms permuted",
)  # fmt: skip


def compare(runs: list[contest.Run], setting: str, ours: str, theirs: str) -> tuple[str, ...]:
    """Scores draw by draw, what the Mann–Whitney test says of them, and median milliseconds."""
    r2, seconds = contest.values(runs, setting, "r2"), contest.values(runs, setting, "seconds")
    above = r2[ours] - r2[theirs]
    error = above.std(ddof=1) / np.sqrt(len(above))
    verdict = "even"
    if mannwhitneyu(r2[ours], r2[theirs]).pvalue <= contest.LEVEL:
        verdict = "better" if above.mean() > 0 else "worse"
    return (
        setting,
        f"{ours}, {theirs}",
        f"{r2[ours].mean():.3f}",
        f"{r2[theirs].mean():.3f}",
        f"{above.mean():+.3f} ± {error:.3f}",
        f"{np.count_nonzero(above > 0)} of {len(above)}",
        verdict,
        contest.milliseconds(seconds[ours]),
        contest.milliseconds(seconds[theirs]),
    )


def main() -> None:
    """Write all comparisons; print how many go which way, and those that the test tells apart."""
    rows, counts = [], []
    for source, file in SOURCES.items():
        runs = contest.load(file)
        for ours, theirs in PAIRS:
            found = [compare(runs, setting, ours, theirs) for setting in contest.settings_of(runs)]
            verdicts = [row[6] for row in found]
            tally = (str(verdicts.count(one)) for one in ("better", "even", "worse"))
            counts.append((source, ours, theirs, *tally))
            rows += found
    head = ("data", "leave-one-out", "permuted", "better", "even", "worse")
    counted = "In how many settings a Mann–Whitney test at 5 % finds leave-one-out better, neither, or worse."
    results.save(settings.FOLDER, "table_1", head, counts, caption=counted)
    every = "All comparisons of leave-one-out with the permuted procedure of its kind."
    results.save(settings.FOLDER, "table_1_rows", HEAD, rows, caption=every, shown=False)


if __name__ == "__main__":
    main()
