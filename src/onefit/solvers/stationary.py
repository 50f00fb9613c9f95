"""Whether a fit is at its optimum, column by column."""

from __future__ import annotations

import numpy as np

from onefit import _linalg
from onefit._typing import Array
from onefit.fit import Fit
from onefit.problem import Problem

ROUNDING = 1e-3  # size of the terms of a gradient that counts as one, relative to their norm


def is_stationary(fit: Fit) -> bool:
    """Whether minus the gradient of the loss is a subgradient of the penalty, in columns of any size."""
    gradient, steepest = fit.loss_gradient[:, None], np.array([np.linalg.norm(fit.gradient)])
    size = sizes_of_gradients(fit.problem, gradient, steepest)
    return bool(fit.problem.penalty.is_stationary(fit.coef[:, None], gradient, size=size)[0])


def sizes_of_gradients(problem: Problem, gradient: Array, steepest: Array) -> Array:
    """What errors of the gradient of each column are relative to: (p, r).

    The largest of them, but no more than rows of norm ``steepest``, (r,), can make in the column: a small one
    would be overlooked.  Where no kink holds anything gradients are but rounding: then it is the terms of
    their sums.
    """
    norms = _linalg.column_norms(problem.X, np.ones(problem.n), centred=False)
    terms = np.multiply.outer(norms, steepest)
    largest = np.abs(gradient).max(axis=0, initial=0.0)
    return np.asarray(np.clip(largest, ROUNDING * terms, terms))
