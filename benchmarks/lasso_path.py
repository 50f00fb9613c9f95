"""Time of a lasso path: exact active sets with leverages at every strength, against adelie.

The setting is that of Table 1 of "Approximate leave-one-out for fast parameter tuning in high
dimensions" (2018): Toeplitz columns, fifty strengths down to a hundredth of the largest.  Run it in
an environment that has adelie::

    PYTHONPATH=src python benchmarks/lasso_path.py
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import adelie
import numpy as np

from onefit._typing import Array
from onefit.solvers.active_set import ActiveSet

SIZES = ((800, 200), (800, 800), (800, 1600), (1600, 800))
CORRELATION = 0.8


def toeplitz_problem(n: int, p: int, nonzero: int, seed: int) -> tuple[Array, Array]:
    """Rows N(0, S) with S_ij = 0.8^|i - j|, coefficients +-1 on a random support, unit noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(p, n)).T
    for j in range(1, p):
        X[:, j] = CORRELATION * X[:, j - 1] + np.sqrt(1 - CORRELATION**2) * X[:, j]
    beta = np.zeros(p)
    beta[rng.choice(p, nonzero, replace=False)] = rng.choice([-1.0, 1.0], nonzero)
    return X, X @ beta + rng.normal(size=n)


def strengths(X: Array, y: Array) -> Array:
    """Fifty strengths from the smallest that empties the support to a hundredth of it."""
    largest = np.abs(X.T @ (y - y.mean())).max()
    return np.geomspace(largest, 0.01 * largest, 50)


def our_path(X: Array, y: Array, path: Array, *, leverages: bool = True) -> Array:
    """Coefficients at every strength; the leverages are computed too."""
    solver = ActiveSet(X, y)
    coefs = np.empty((path.size, X.shape[1]))
    for i, l1 in enumerate(path):
        solver.solve(l1)
        coefs[i] = solver.coef
        if leverages:
            solver.quadratic_forms()
    return coefs


def adelie_path(X: Array, y: Array, path: Array, *, tol: float = 1e-12) -> Any:
    """The same path by adelie, whose loss is a mean."""
    return adelie.grpnet(
        X,
        adelie.glm.gaussian(y),
        lmda_path=path / y.size,
        alpha=1,
        intercept=True,
        tol=tol,
        early_exit=False,
        progress_bar=False,
        n_threads=2,
    )


def worst_gap(X: Array, y: Array, path: Array) -> float:
    """Largest relative duality gap of ours on the path."""
    solver = ActiveSet(X, y)
    gaps = []
    for l1 in path:
        solver.solve(l1)
        gaps.append(solver.relative_gap())
    return max(gaps)


def interleaved(calls: list[Callable[[], Any]], repetitions: int) -> list[float]:
    """Median time of each call; one repetition runs them all, so all see the same machine."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(repetitions):
        for call, spent in zip(calls, times, strict=True):
            time.sleep(0.1)  # idle BLAS threads spin for a while and would slow the next call
            start = time.perf_counter()
            call()
            spent.append(time.perf_counter() - start)
    return [median(spent) for spent in times]


def report(n: int, p: int, nonzero: int, repetitions: int) -> str:
    """One line of the table."""
    X, y = toeplitz_problem(n, p, nonzero, seed=0)
    path = strengths(X, y)
    difference = np.abs(our_path(X, y, path) - adelie_path(X, y, path).betas.toarray()).max()
    # The tolerance of adelie is not the cause if a thousandth of it shrinks the difference.
    tighter = adelie_path(X, y, path, tol=1e-15).betas.toarray()
    closest = np.abs(our_path(X, y, path) - tighter).max()
    ours, bare, theirs = interleaved(
        [
            lambda: our_path(X, y, path),
            lambda: our_path(X, y, path, leverages=False),
            lambda: adelie_path(X, y, path),
        ],
        repetitions,
    )
    return (
        f"{n:>5} {p:>5} {nonzero:>4} {1e3 * ours:>8.1f} {1e3 * bare:>8.1f} {1e3 * theirs:>8.1f} "
        f"{ours / theirs:>6.2f} {worst_gap(X, y, path):>9.1e} {difference:>9.1e} {closest:>9.1e}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--dense", action="store_true", help="half of all coefficients non-zero")
    options = parser.parse_args()
    print("times in ms; differences to adelie at tol 1e-12 and at 1e-15")
    print("    n     p    k     ours  no lev.   adelie  ratio       gap      diff    closer")
    for n, p in SIZES:
        nonzero = min(n, p) // 2 if options.dense else 50
        print(report(n, p, nonzero, options.repetitions), flush=True)


if __name__ == "__main__":
    main()
