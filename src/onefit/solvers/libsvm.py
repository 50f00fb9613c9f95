"""libsvm, which is compiled, brings kernel machines near their minimum."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC, SVR

from onefit import _linalg
from onefit.fit import Fit
from onefit.losses import EpsilonInsensitive, Hinge
from onefit.problem import Problem

STEPS = 100  # of two rows at a time, for each row: what they leave is done by pivots


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
    loss, rows = problem.loss, np.flatnonzero(problem.weights > 0)
    C = 1.0 / float(problem.penalty.ridge(problem.coef_shape)[0])
    settings = {"kernel": "precomputed", "C": C, "max_iter": STEPS * len(rows)}
    machine = (
        SVR(epsilon=loss.epsilon, **settings) if isinstance(loss, EpsilonInsensitive) else SVC(**settings)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        machine.fit(_linalg.some_rows(problem.X, rows).gram, problem.y[rows], problem.weights[rows])
    coef = np.zeros(problem.n)
    coef[rows[machine.support_]] = machine.dual_coef_[0]
    return Fit(problem, coef, np.asarray(machine.intercept_[0]))
