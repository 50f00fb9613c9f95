"""What a computation costs, in seconds: one model for every question whether something is worth it.

A computation is so many multiply-adds in large products and so many calls from Python.  The two rates are
those of one core of a common server (``benchmarks/fit_cost.py`` measures them); only ratios matter, so a
machine that is twice as fast decides alike.
"""

from __future__ import annotations

import math
import os
from typing import NamedTuple

import numpy as np

from onefit._typing import Index

PER_FLOP = 1.3e-10  # seconds a multiply-add in a product of matrices
PER_CALL = 1e-6  # seconds a call of NumPy on a small array
IN_A_SOLVER = 500.0  # calls of a step of a solver, however small the problem
PER_FUNCTION = 5.7e-9  # seconds an exponential or logarithm
PRODUCTS = 25  # with K that a fit takes, about, when it starts from its neighbour's
TALL = 10.0  # rows a column from which sums over the rows make a lasso path take half the time or less
IN_A_PATH = 0.06  # seconds that five folds of a lasso path take on a small table: rows are solved anew
IN_A_RACE = 0.7  # seconds that strengths of a lasso take to be told apart by samples, on 800 rows of 200
ROW_OF_A_PATH = 2e-5  # seconds of a row at a strength of a lasso path in memory, on 20,000 rows of dummies
NEAR = 0.25  # share of the strengths of a path that may be its choice, about
# Seconds that nobody notices, so that they are always worth it: rows may be bounded better than asked for, a
# sample may have more of them, a path may go on to its end.
UNNOTICED = 0.02
# Seconds that nobody minds, however short the fit: all rows may be made exact, and with fewer the choices of
# a race on small tables hang on the rows' order.
UNMINDED = 1.0


def memory() -> float:
    """Bytes of memory that the machine has; infinite where the system does not tell."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on Windows
        return math.inf


class Work(NamedTuple):
    """A computation."""

    flops: float = 0.0
    calls: float = 0.0
    functions: float = 0.0

    @property
    def seconds(self) -> float:
        """About how long it takes."""
        return PER_FLOP * self.flops + PER_CALL * self.calls + PER_FUNCTION * self.functions

    def times(self, count: float) -> Work:
        """Return it done so often."""
        return Work(*(count * part for part in self))

    def plus(self, other: Work) -> Work:
        """Return both."""
        return Work(*(a + b for a, b in zip(self, other, strict=True)))


def gradient(n: int, p: int) -> Work:
    """Sum a loss and its gradient over the rows."""
    return Work(2.0 * n * p, functions=3.0 * n)


def gram(n: int, p: int) -> Work:
    """Sum a curvature over the rows."""
    return Work(0.5 * n * float(p) ** 2)


def product_with_curvature(n: int, stored: float, outputs: int) -> Work:
    """K times a direction: two products with X and the curvature of each row."""
    return Work(4.0 * stored * outputs, 20.0, 3.0 * n * outputs)


def newton_step(n: int, p: int, k: int, coupled: int = 1) -> Work:
    """Factor K, solve with it, and look at all columns.

    Parameters
    ----------
    n, p, k : int
        Rows, columns, and coefficients, of all outputs that are coupled.
    coupled : int, default 1
        Outputs of a row that the loss couples: K has rank n times as many.

    With more coefficients than rows K is told by the inner products of the rows, which all fits share.
    """
    k = min(k, n * coupled)
    summed = float(k) ** 2 if coupled == 1 and k == n else 0.5 * float(n) * k * k
    return Work(summed + k**3 / 6.0 + 4.0 * n * p * coupled, 60.0, 3.0 * n * coupled)


def steps(n: int, stored: float, factored: int, outputs: int) -> Work:
    """A step with a factor that is at hand, downdated by a set of rows, one of many.

    Two products with X and a solve, or where X is wider than tall a product with the matrix that these make,
    and a loss with its derivative for all rows; what is done besides with every row (differences, masks,
    sums, mixing with steps before) takes about as long as some functions (``benchmarks/chord_cost.py``).

    Parameters
    ----------
    n : int
        Rows.
    stored : float
        Numbers that X holds.
    factored : int
        Size of the factor.
    outputs : int
    """
    products = float(n) ** 2 if factored >= n else 2.0 * stored + 2.0 * float(factored) ** 2
    calls = 5.0 if outputs == 1 else 20.0 * outputs  # for a row, of the few that a sample solves together
    return Work(products * outputs, calls, 5.0 * n * outputs)


def passes(n: int, stored: float, factored: int, outputs: int) -> Work:
    """A step in the coefficients with a factor that is at hand, downdated by a set of rows, one of many.

    Two products with X, two solves, a share of the forms of the rows that leave, and the slopes of the loss;
    all of it in blocks that stay in the cache (``benchmarks/chord_cost.py``).
    """
    products = 2.0 * stored * outputs + (2.0 + outputs / 4.0) * float(factored) ** 2
    return Work(products, 30.0, 1.2 * n * outputs)


def forms(b: int, k: int) -> Work:
    """H_GG of a set of so many rows, all outputs that are coupled counted, from a factor of size k.

    Its largest eigenvalue and its inverse take longer (150 rows of ten classes in five folds).
    """
    return Work(2.0 * b * k * (b + k) + 12.0 * float(b) ** 3, 60.0)


def fit(n: int, p: int, k: int, coupled: int = 1, *, quadratic: bool) -> Work:
    """Solve a problem from a point near its solution."""
    step = newton_step(n, p, k, coupled)
    return step._replace(calls=step.calls + IN_A_SOLVER).times(2 if quadratic else 5)


def pivots_of_a_row(n: int, k: int) -> float:
    """Changes of the pattern of a lasso without one of its rows, about.

    Hardly any with few columns a row, some forty where the support is as large as the sample
    (``benchmarks/follow_cost.py``).
    """
    return 0.1 + 40.0 * min(1.0, k / n) ** 2


def patterns(n: int, p: int, strengths: float) -> Work:
    """Look at the patterns without each row at so many strengths, and solve for those that change.

    More change, and in more steps, the more columns there are a row.
    """
    return Work(strengths * float(p) ** 3, functions=17.0 * n * p * strengths * (1.0 + 10.0 * (p / n) ** 2))


def elimination(p: int) -> Work:
    """Eliminate the support of a lasso among p columns, and tell which rows it hangs on."""
    return Work(5.0 * float(p) ** 3)


def spectrum(n: int, p: int) -> Work:
    """Diagonalise the smaller Gram matrix of so many rows, and form it."""
    small, large = sorted((float(n), float(p)))
    return Work(0.5 * large * small**2 + 10.0 * small**3, 100.0)


def residuals_of_sets(sizes: Index, rank: int) -> Work:
    """Residuals without sets of rows of these sizes, by the formula for several, with so many directions.

    The smallest eigenvalue tells their rounding, and takes longer than the residuals.
    """
    return Work(float(np.sum(sizes**2.0 * rank + 4.0 * sizes**3.0)), 30.0, float(np.sum(sizes)))


def is_tall(n: int, p: int) -> bool:
    """Whether passes over the rows are what takes time, beside what is done with sums over them."""
    return n >= TALL * p
