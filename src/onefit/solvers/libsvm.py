"""libsvm, which is compiled: support vector machines near their minimum, and its rule for their intercept."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC, SVR

from onefit import _linalg
from onefit._typing import Index
from onefit.fit import Fit
from onefit.losses import EpsilonInsensitive, Hinge
from onefit.problem import Problem

STEPS = 100  # of two rows at a time, for each row: what they leave is done by pivots
PATIENCE = 10_000  # the same, until nothing is known of where it ends
TOL = 1e-8  # at which machines are the optimum
MIDDLE = 0.01  # of the way to an end of the intercepts that are as good, which that leaves open


def solves(problem: Problem) -> bool:
    """Whether it is a support vector machine with a kernel and an intercept."""
    loss, y = problem.loss, problem.y[problem.weights > 0]
    if _linalg.has_columns(problem.X) or not problem.intercept:
        return False
    strengths = problem.penalty.ridge(problem.coef_shape)
    if not 0 < strengths.min() == strengths.max() < np.inf:
        return False
    return isinstance(loss, EpsilonInsensitive) or (isinstance(loss, Hinge) and len(np.unique(y)) == 2)


def near_minimum(problem: Problem) -> Fit:
    """What libsvm makes of a problem that it ``solves``, to its usual tolerance."""
    rows = np.flatnonzero(problem.weights > 0)
    machine, _ = _trained(problem, rows, max_iter=STEPS * len(rows))
    coef = np.zeros(problem.n)
    coef[rows[machine.support_]] = machine.dual_coef_[0]
    return Fit(problem, coef, np.asarray(machine.intercept_[0]))


def takes_middle(problem: Problem, middle: float, reach: float) -> bool:
    """Whether libsvm, too, ends with no row inside its box: there it takes the middle, else a mean.

    Rounding may leave some inside; where weights differ it is that of their sums, of which nothing is known.
    """
    rows = np.flatnonzero(problem.weights > 0)
    if np.ptp(problem.weights[rows]) > 0:
        return False
    machine, shift = _trained(problem, rows, tol=TOL, max_iter=PATIENCE * len(rows))
    ended = machine.fit_status_ == 0
    return bool(ended and abs(machine.intercept_[0] - shift - middle) <= MIDDLE * reach)


def _trained(problem: Problem, rows: Index, **settings: Any) -> tuple[SVC | SVR, float]:
    """The support vector machine of a hinge or an ε-insensitive loss, on some rows.

    Columns are taken near zero, or libsvm may not end; by so much its intercept is larger than that of the
    columns as they are.
    """
    loss, X, means = problem.loss, _linalg.as_design(_linalg.some_rows(problem.X, rows)), np.zeros(0)
    if _linalg.has_columns(X):
        X, means = _linalg.as_columns(X).near_zero(_linalg.column_means(X, problem.weights[rows]))
    settings |= {"kernel": "precomputed", "C": 1.0 / float(problem.penalty.ridge(problem.coef_shape).max())}
    machine = (
        SVR(epsilon=loss.epsilon, **settings) if isinstance(loss, EpsilonInsensitive) else SVC(**settings)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        machine.fit(X.row_gram(np.ones(problem.X.shape[1])), problem.y[rows], problem.weights[rows])
    if not means.any():
        return machine, 0.0
    duals = np.zeros(len(rows))
    duals[machine.support_] = machine.dual_coef_[0]
    return machine, float(means @ X.transposed_times(duals))
