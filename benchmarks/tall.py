"""Many rows: us beside cross-validation at 100,000 x 100, and time and memory as the rows grow.

Writes ``RESULTS.md`` beside this file, and the plot that the page on large tables shows.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegressionCV, PoissonRegressor
from sklearn.model_selection import GridSearchCV
from threadpoolctl import threadpool_limits

import onefit
from matrix_glm import predictors
from run import Row, toeplitz
from squared_loss import compared, seconds
from streams import apart

HERE = Path(__file__).parent
PLOT = HERE.parent / "docs" / "_static" / "tall.png"
PACKAGES = ("onefit", "scikit-learn", "numpy", "scipy", "pyarrow")
GOALS = {"RidgeLOO": ">= 3", "LassoLOO": ">= 3", "ElasticNetLOO": ">= 2"}
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


def curved(n: int, p: int) -> Iterator[Row]:
    """Logistic and Poisson regression over the same ten strengths as their peers."""
    rng = np.random.default_rng(0)
    X, eta = predictors(n, p, rng)
    y = (eta + rng.logistic(size=n) > 0).astype(int)
    counts = rng.poisson(np.exp(0.5 * eta)).astype(float)
    Cs, alphas = np.logspace(-4, 4, 10), np.logspace(2, -4, 10)
    classes = LogisticRegressionCV(
        Cs=Cs, cv=5, l1_ratios=(0.0,), scoring="neg_log_loss", max_iter=1000, use_legacy_attributes=False
    )
    grid = GridSearchCV(PoissonRegressor(max_iter=1000), {"alpha": alphas}, cv=5)
    sides: list[tuple[str, Any, Any, np.ndarray, str]] = [
        ("LogisticLOO / LogisticRegressionCV(cv=5)", onefit.LogisticLOO(Cs=Cs), classes, y, ">= 3"),
        ("PoissonLOO / GridSearchCV(cv=5)", onefit.PoissonLOO(alphas=alphas), grid, counts, ">= 4"),
    ]
    for what, ours, theirs, target, goal in sides:
        own = seconds(_fit(ours, X, target))
        other = seconds(_fit(theirs, X, target))
        note = f"{ours.loo_.guarantee}, ± {ours.loo_.approx_error / ours.loo_.value:.0e}"
        yield Row(f"{what} {n} x {p}", own, other, goal, note)


def _fit(model: Any, X: np.ndarray, y: np.ndarray) -> Callable[[], object]:
    return lambda: model.fit(X, y)


def tall(quick: bool) -> Iterator[Row]:
    """100,000 rows and 100 columns beside the peers, on one thread; then more and more rows."""
    n, p = (10_000, 50) if quick else (100_000, 100)
    rows: list[Row] = []
    # first, as a process starts with the peak memory of the one that started it
    found = [grown(kind, sizes[:2] if quick else sizes) for kind, sizes in SIZES.items()]
    with threadpool_limits(1):
        for row in compared(f"{n} x {p}", *toeplitz(n, p, p // 2), GOALS, 1 if quick else 2):
            rows.append(row)
            yield row
        for row in curved(n, p):
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
