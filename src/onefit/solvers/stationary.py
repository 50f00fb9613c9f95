"""Whether a fit is at its optimum, column by column."""

from __future__ import annotations

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Mask
from onefit.fit import Fit
from onefit.numerics import INSIDE, TINY, rounding_of_slack
from onefit.penalties import SeparablePenalty
from onefit.penalties.programs import Coordinatewise
from onefit.problem import Problem

ROUNDING = 1e-3  # size of the terms of a gradient that counts as one, relative to their norm
STATIONARY = 1e-7  # excess of a gradient, relative to its size, that is none


def is_stationary(fit: Fit) -> bool:
    """Whether minus the gradient of the loss is a subgradient of the penalty, in columns of any size."""
    gradient = fit.loss_gradient[:, None]
    size = sizes_at(fit, gradient)
    return bool(fit.problem.penalty.is_stationary(fit.coef[:, None], gradient, STATIONARY, size)[0])


def holds_strictly(fit: Fit, coef: Array, gradient: Array, size: Array) -> Mask:
    """Whether kinks hold strictly what is not free in a fit: (r,).

    What they only just hold may be as good elsewhere where columns depend on each other: nothing pulls at
    the bound of a coefficient whose column is zero in all rows.  Subgradients of a penalty whose kinks have
    finite slopes are strictly inside if they stay subgradients a little farther from the middle, the
    gradient of its smooth piece; bounds hold if gradients may be off by twice what is none.  Penalties of one
    kink at zero a coefficient are not asked.

    Parameters
    ----------
    coef, gradient, size : (p, r) arrays
        Of r problems with the penalty and the pattern of the fit, and minus subgradients there.
    """
    penalty, tangent = fit.problem.penalty, fit.tangent
    if isinstance(penalty, SeparablePenalty):
        return np.ones(coef.shape[1], dtype=bool)
    ridge = penalty.ridge(fit.coef.shape)[:, None]
    if isinstance(penalty.without_ridge(), Coordinatewise):
        room = np.where(~tangent.support[:, None] & (ridge == 0), 2.0 * STATIONARY * size + TINY, 0.0)
        ends = (gradient - room, gradient + room)
        return np.all([penalty.is_stationary(coef, end, STATIONARY, size) for end in ends], axis=0)
    middle = tangent.gradient[:, None] + ridge * (coef - fit.coef[:, None])
    return penalty.is_stationary(coef, gradient + INSIDE * (gradient + middle), STATIONARY, size)


def sizes_at(fit: Fit, gradient: Array) -> Array:
    """Sizes of a gradient (p, 1) at a fit, of which rounding and what solvers leave are shares: (p, 1)."""
    steepest = np.array([np.linalg.norm(fit.gradient)])
    return np.maximum(sizes_of_gradients(fit.problem, gradient, steepest), least_sizes(fit)[:, None])


def least_sizes(fit: Fit) -> Array:
    """Sizes of gradients of which rounding of the linear predictors is a share of ``STATIONARY``: (p,).

    Where rows are all but interpolated nothing else is left of them.
    """
    norms = _linalg.column_lengths(fit.problem.X)
    steepest = float(np.max(np.abs(fit.hessian), initial=0.0)) * float(np.linalg.norm(fit.eta))
    return np.asarray(rounding_of_slack(1.0) / STATIONARY * steepest * norms)


def sizes_of_gradients(problem: Problem, gradient: Array, steepest: Array) -> Array:
    """What errors of the gradient of each column are relative to: (p, r).

    The largest of them, but no more than rows of norm ``steepest``, (r,), can make in the column: a small one
    would be overlooked.  Where no kink holds anything gradients are but rounding: then it is the terms of
    their sums.
    """
    norms = _linalg.column_lengths(problem.X)
    terms = np.multiply.outer(norms, steepest)
    largest = np.abs(gradient).max(axis=0, initial=0.0)
    return np.asarray(np.clip(largest, ROUNDING * terms, terms))
