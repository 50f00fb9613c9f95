"""Many rows: us beside cross-validation at 100,000 x 100, and time and memory as the rows grow.

Writes ``RESULTS.md`` beside this file, and the plot that the page on large tables shows.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.linear_model import RidgeCV
from threadpoolctl import threadpool_limits

from matrix import elastic_net, in_turns, lasso, logistic, poisson, predictors, ridge
from streams import apart
from timing import Row, toeplitz

HERE = Path(__file__).parent
PLOT = HERE.parent / "docs" / "_static" / "tall.png"
PACKAGES = ("onefit", "scikit-learn", "numpy", "scipy", "pyarrow")
SIZES = {
    "ridge": (10**4, 10**5, 10**6),
    "lasso": (10**4, 10**5, 10**6, 10**7),
    "logistic": (10**4, 10**5, 10**6),
}


class Growth(NamedTuple):
    """One model on more and more rows of 50 columns."""

    kind: str
    rows: tuple[int, ...]
    seconds: list[float]  # of the processor
    peaks: list[float]  # MiB

    @property
    def slope(self) -> float:
        """Of log seconds against log rows."""
        return float(np.polyfit(np.log(self.rows), np.log(self.seconds), 1)[0])


def compared(n: int, p: int, repeats: int) -> Iterator[Row]:
    """Each model and what cross-validates it over the same strengths, and our risk beside its error."""
    X, y = toeplitz(n, p, p // 2)
    rng = np.random.default_rng(0)
    Z, eta = predictors(n, p, rng)
    labels = (eta + rng.logistic(size=n) > 0).astype(int)
    counts = rng.poisson(np.exp(0.5 * eta)).astype(float)
    sides = ridge(X, y)
    yield _row("RidgeLOO / RidgeCV(cv=5)", X, y, sides, ">= 3", repeats)
    yield _row("RidgeLOO / RidgeCV()", X, y, (sides[0], RidgeCV(sides[0].alphas)), ">= 3", repeats)
    yield _row("LassoLOO / LassoCV(cv=5)", X, y, lasso(X, y), ">= 3", repeats)
    yield _row("ElasticNetLOO / ElasticNetCV(cv=5)", X, y, elastic_net(X, y), ">= 2", repeats)
    yield _row("LogisticLOO / LogisticRegressionCV(cv=5)", Z, labels, logistic(0.0, Z, labels), ">= 3", 1)
    yield _row("PoissonLOO / GridSearchCV(cv=5)", Z, counts, poisson(Z, counts), ">= 4", 1)


def _row(what: str, X: np.ndarray, y: np.ndarray, sides: tuple[Any, Any], goal: str, repeats: int) -> Row:
    ours, theirs = sides
    times = in_turns(lambda: ours.fit(X, y), lambda: theirs.fit(X, y), repeats)
    note = f"{ours.loo_.guarantee}, ± {ours.loo_.approx_error / ours.loo_.value:.0e}"
    return Row(f"{what} {X.shape[0]} x {X.shape[1]}", *times, goal, note)


def tall(quick: bool) -> Iterator[Row]:
    """100,000 rows and 100 columns beside the peers, on one thread; then more and more rows."""
    n, p = (10_000, 50) if quick else (100_000, 100)
    rows: list[Row] = []
    # first, as a process starts with the peak memory of the one that started it
    found = [grown(kind, sizes[:2] if quick else sizes) for kind, sizes in SIZES.items()]
    with threadpool_limits(1):
        for row in compared(n, p, 1 if quick else 2):
            rows.append(row)
            yield row
    if not quick:
        draw(found, PLOT)
        (HERE / "RESULTS.md").write_text(results(rows, found), encoding="utf-8")


def grown(kind: str, sizes: tuple[int, ...]) -> Growth:
    """Each size in a process of its own."""
    runs = [apart(kind, n, "generated") for n in sizes]
    return Growth(kind, sizes, [run["seconds"] for run in runs], [run["peak"] for run in runs])


def results(rows: list[Row], found: list[Growth]) -> str:
    """The page."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    versions = ", ".join(f"{package} {version(package)}" for package in PACKAGES)
    lines = [
        "# Many rows",
        "",
        f"Written by `python benchmarks/run.py --part tall`: {versions}, Python {platform.python_version()}, "
        f"{platform.machine()}, {os.cpu_count()} cores, one thread, load {load:.1f} at the end. Seconds are "
        "those of the processor, of both sides in one process and in turns, the least of two runs (one for "
        "logistic and Poisson); on a busy machine ratios tell more than seconds.",
        "",
        "## Beside cross-validation, the same strengths",
        "",
        "| | ours, s | theirs, s | ratio | goal | |",
        "|---|---:|---:|---:|---|---|",
        *map(_line, rows),
        "",
        "## More and more rows of 50 columns, made block by block",
        "",
        "Ridge 100 strengths, lasso 50, logistic 10. The peak is that of the process; the slope that of log "
        "seconds against log rows.",
        "",
        "| | rows | seconds | peak, MiB |",
        "|---|---:|---:|---:|",
    ]
    for one in found:
        for n, taken, peak in zip(one.rows, one.seconds, one.peaks, strict=True):
            lines.append(f"| {one.kind} | {n:,} | {taken:.2f} | {peak:.0f} |")
    lines += ["", *(f"- {one.kind}: slope {one.slope:.2f}{_flat(one)}" for one in found), ""]
    lines += ["![Time and peak memory against the number of rows](../docs/_static/tall.png)", ""]
    return "\n".join(lines)


def _line(row: Row) -> str:
    ratio = row.theirs / row.ours
    return f"| {row.what} | {row.ours:.2f} | {row.theirs:.2f} | {ratio:.1f} | {row.goal} | {row.note} |"


def _flat(one: Growth) -> str:
    if one.rows[-1] < 10**7:
        return ""
    return f"; peak memory from 10⁶ to 10⁷ rows × {one.peaks[-1] / one.peaks[-2]:.2f}"


def draw(found: list[Growth], path: Path) -> None:
    """Time and peak memory against the number of rows."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    for one in found:
        left.loglog(one.rows, one.seconds, "o-", label=f"{one.kind}, slope {one.slope:.2f}")
        right.semilogx(one.rows, one.peaks, "o-", label=one.kind)
    left.set(xlabel="rows", ylabel="seconds")
    right.set(xlabel="rows", ylabel="peak memory, MiB", ylim=(0, None))
    left.legend(frameon=False)
    figure.savefig(path, dpi=120)
