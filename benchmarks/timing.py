"""Two sides timed in turns, a line of the table of it, and rows to time them on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Row:
    """One line of the table: what, ours and theirs in seconds, and what the ratio should be."""

    what: str
    ours: float
    theirs: float
    goal: str
    note: str = ""

    def __str__(self) -> str:
        ratio = self.theirs / self.ours
        return f"{self.what:<58}{self.ours:>9.4f}{self.theirs:>9.4f}{ratio:>8.2f}  {self.goal:<9}{self.note}"


def paired(ours: Callable[[], object], theirs: Callable[[], object], repeats: int = 5) -> tuple[float, float]:
    """Median seconds of both, taken in turns; a pause lets idle BLAS threads go to sleep."""
    times = np.empty((2, repeats))
    for run in (ours, theirs):
        run()
    for r in range(repeats):
        for i, run in enumerate((ours, theirs)):
            time.sleep(0.05)
            start = time.perf_counter()
            run()
            times[i, r] = time.perf_counter() - start
    ours_median, theirs_median = np.median(times, axis=1)
    return float(ours_median), float(theirs_median)


def toeplitz(n: int, p: int, k: int | None = None, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows N(0, Σ) with Σ_ij = 0.8^|i−j|, k = min(n, p)/2 coefficients ±1, unit noise (ALO, F.1.5)."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, p))
    X = np.empty((n, p), order="F")
    X[:, 0] = Z[:, 0]
    for j in range(1, p):
        X[:, j] = 0.8 * X[:, j - 1] + 0.6 * Z[:, j]
    beta = np.zeros(p)
    k = min(n, p) // 2 if k is None else k
    beta[rng.choice(p, k, replace=False)] = rng.choice([-1.0, 1.0], k)
    return X, X @ beta + rng.normal(size=n)
