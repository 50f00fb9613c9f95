"""Table 1: seconds of one lasso path, of leave-one-out beside it, and of leave-one-out by refits."""

from __future__ import annotations

import csv
import time
import warnings
from collections.abc import Callable

import numpy as np
import plain
import settings
from curves import markdown
from sklearn.linear_model import lasso_path

import onefit
from onefit.penalties import L1

Array = np.ndarray
SIZES = [*((800, p) for p in (200, 400, 800, 1600)), *((n, 800) for n in (200, 400, 1600))]
STRENGTHS, SHARE = 50, 0.01  # from the smallest that leaves no column, down to so much of it
SEEDS, TIGHT = 3, 1e-8
ROWS_LEFT_OUT = 2  # refits that are timed; their mean times n is the price of all

HEAD = (
    "n × p", "single path, scikit-learn", "plain ALO, besides", "ours: path and its risks",
    "ours / single path", "refits (LOOCV)", "refits / ours", "active at the end",
)  # fmt: skip


def seconds(run: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def strengths(X: Array, y: Array) -> Array:
    """Fifty alphas in scikit-learn's scaling."""
    top = np.abs(X.T @ y).max() / len(y)
    return np.geomspace(top, SHARE * top, STRENGTHS)


def single(X: Array, y: Array, alphas: Array) -> Array:
    """scikit-learn's coordinate descent along the path: (p, J)."""
    return lasso_path(X, y, alphas=alphas, tol=TIGHT, max_iter=100_000)[1]


def formula(X: Array, y: Array, alphas: Array, coefs: Array) -> None:
    """Apply the paper's formula to every fit of a path."""
    for alpha, coef in zip(alphas[1:], coefs.T[1:], strict=True):
        model = onefit.GeneralizedLinear("squared", L1(alpha * len(y)), fit_intercept=False)
        model.coef_, model.intercept_ = coef, 0.0
        plain.smooth_loss(model, X, y)


def measure(n: int, p: int, seed: int) -> tuple[float, float, float, float, float]:
    """Seconds of the path, the formula, ours and all refits, and how many columns are active at the end."""
    sample = settings.timing(n, p, seed)
    X, y = np.asfortranarray(sample.X), sample.y
    alphas = strengths(X, y)
    path = seconds(lambda: single(X, y, alphas))
    step = seconds(lambda: formula(X, y, alphas, single(X, y, alphas))) - path
    model = onefit.LassoLOO(alphas=alphas, fit_intercept=False, early_stopping=False)
    ours = seconds(lambda: model.fit(X, y))
    rest = np.asfortranarray(np.delete(X, 0, axis=0)), np.delete(y, 0)
    refit = np.mean([seconds(lambda: single(*rest, alphas)) for _ in range(ROWS_LEFT_OUT)])
    return path, step, ours, n * float(refit), float(np.count_nonzero(model.coef_path_[-1]))


def main() -> None:
    """Print the table, and write it beside the pictures."""
    warnings.simplefilter("ignore", onefit.UnreliableWarning)  # of dense fits; it is time that counts
    rows = []
    for n, p in SIZES:
        path, step, ours, all_refits, active = np.mean([measure(n, p, seed) for seed in range(SEEDS)], axis=0)
        cells = (f"{path:.2f}", f"{step:.2f}", f"{ours:.2f}", f"{ours / path:.2f}", f"{all_refits:.0f}")
        rows.append((f"{n} × {p}", *cells, f"{all_refits / ours:.0f}", f"{active:.0f}"))
        print(*rows[-1], flush=True)
    print(markdown(HEAD, rows))
    with (settings.FIGURES / "table_1.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([HEAD, *rows])


if __name__ == "__main__":
    main()
