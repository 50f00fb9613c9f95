"""Derivatives of a held-out risk in the data: what learned features need."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index
from onefit.fit import Fit
from onefit.gradients.adjoint import stencil
from onefit.gradients.solution import answer_to_held_out
from onefit.metrics import LinearMetric


class DataGradient(NamedTuple):
    """Derivatives of a risk in the data."""

    X: Array  # (n, p)
    y: Array  # (n,)


def held_out_in_data(fit: Fit, tested: Index, metric: LinearMetric, weights: Array) -> DataGradient:
    """Derivative of a held-out risk in X and y, of training and test rows (Wang et al. 2019, section 3).

    Parameters
    ----------
    fit : Fit
        Of the training rows, of one output; the others have no weight.
    tested : (t,) int array
    metric : LinearMetric
        How the tested rows are judged.
    weights : (t,) array
        Share of each in the risk.
    """
    problem = fit.problem
    if fit.pinned.any() or not _linalg.has_columns(problem.X):
        raise TypeError("derivatives in the data are for smooth losses and explicit columns")
    y, eta = problem.y[tested], fit.eta[tested]
    by_row = weights * metric.slopes(y, eta)
    u = answer_to_held_out(fit, tested, by_row, None).u
    along = problem.linear_predictor(*u)
    X = -np.outer(fit.gradient, u.coef) - np.outer(fit.hessian * along, fit.coef)
    X[tested] += np.outer(by_row, fit.coef)
    mixed = problem.per_row(_difference(lambda t: problem.loss.gradient(problem.y + t, fit.eta)))
    by_y = -mixed * along
    by_y[tested] += weights * _difference(lambda t: metric.losses(y + t, eta))
    return DataGradient(X, by_y)


def _difference(function: Callable[[float], Array]) -> Array:
    """Derivative at 0 by five points."""
    places, weights = stencil()
    return np.tensordot(weights, np.stack([function(place) for place in places]), axes=1)
