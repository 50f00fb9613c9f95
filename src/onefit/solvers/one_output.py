"""Coupled outputs, one at a time: in each the loss is about a weighted square.

With the other outputs held, what the loss has of one output's linear predictors is near ½ Σ d_i (η_i − z_i)²,
where d is its own second derivative and z = η − g / d.  Outputs in turn lead to the optimum (Friedman, Hastie
and Tibshirani 2010, section 4.1), except along what they share: where the loss ignores a constant added to
all outputs, one output alone hardly moves that way.  There a column's best shift is known, since only the
penalty depends on it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onefit import _linalg
from onefit._typing import Array
from onefit.fit import Fit
from onefit.losses import Squared
from onefit.penalties import Strengths

LEAST_CURVATURE = 1e-9  # of the largest: rows with less are taken to have it


def curved(hessian: Array) -> Array:
    """Curvature of the rows, (n,), at least next to nothing."""
    return np.maximum(hessian, LEAST_CURVATURE * (hessian.max() or 1.0))


def model_of(fit: Fit, k: int) -> Fit:
    """The weighted least squares that one output is about while the others stay, at its coefficients."""
    problem, own = fit.problem, np.zeros(fit.eta.shape)
    own[:, k] = 1.0
    bending = fit.bending
    assert bending is not None
    d = curved(bending(own)[:, k])
    l1, l2 = fit.strengths
    model = replace(
        problem,
        loss=Squared(),
        penalty=Strengths(l1=l1[:, k], l2=l2[:, k]),
        y=fit.eta[:, k] - fit.gradient[:, k] / d,
        weights=d,
        intercept=problem.intercept[k],
    )
    level = np.asarray(fit.intercept[k])
    return Fit(model, np.ascontiguousarray(fit.coef[:, k]), level).known(eta=fit.eta[:, k], hessian=d)


def with_output(fit: Fit, k: int, own: Fit) -> Fit:
    """The fit with other coefficients of one output."""
    coef, level, eta = fit.coef.copy(), fit.intercept.copy(), fit.eta.copy()
    coef[:, k], level[k], eta[:, k] = own.coef, own.intercept, own.eta
    return fit.moved(coef, level).known(eta=eta)


def shifted(fit: Fit) -> Fit:
    """What is shared by all outputs where the penalty has it least; the same where the loss asks for it."""
    l1, l2 = fit.strengths
    alike = bool(np.all(l1 == l1[:, :1]) and np.all(l2 == l2[:, :1]))
    if not alike or not fit.problem.loss.ignores_shifts:
        return fit
    inside = np.flatnonzero(fit.coef.any(axis=1))
    shift = best_shift(fit.coef[inside], l1[inside, 0], l2[inside, 0])
    if not shift.any():
        return fit
    coef, change = fit.coef.copy(), np.zeros(len(fit.coef))
    coef[inside] -= shift[:, None]
    change[inside] = shift
    eta = fit.eta - _linalg.times(fit.problem.X, change)[:, None]
    return fit.moved(coef, fit.intercept).known(eta=eta)


def best_shift(coef: Array, l1: Array, l2: Array) -> Array:
    """s_j that minimises Σ_k l1_j |β_jk − s_j| + ½ l2_j (β_jk − s_j)², the nearest to none: (r,).

    The slope is a staircase of the sorted coefficients with steps of 2 l1 on a line through their mean, so
    that s is the median of these and of c + 1 points of that line (Li and Osher 2009).

    Parameters
    ----------
    coef : (r, c) array
    l1, l2 : (r,) array
    """
    c, ordered = coef.shape[1], np.sort(coef, axis=1)
    low, high = ordered[:, (c - 1) // 2], ordered[:, c // 2]
    middle = np.clip(0.0, low, high)
    ratio = np.divide(l1, l2, out=np.zeros_like(l1), where=l2 > 0)
    line = coef.mean(axis=1)[:, None] + ratio[:, None] * (c - 2.0 * np.arange(c + 1)) / c
    return np.where(l2 > 0, np.median(np.hstack([ordered, line]), axis=1), middle)
