"""Whether left-out parameters solve the problem without their row, for any polyhedral penalty and kinks.

The parameters θ̃⁽ⁱ⁾ = θ + K⁻¹ z_i c_i are the refit if the conditions of optimality hold there, without row i:

* rows on a piece of the loss are still on it, and the duals of those on a kink still between the
  slopes of the adjoining pieces;
* minus the gradient of the loss is still a subgradient of the penalty.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.curvature import Curvature, Direction, Pinned
from onefit.fit import Fit
from onefit.leave_out.loose import ends_of_pieces, interval_of_duals, is_straight, strictly_held
from onefit.leave_out.rescaling import Rescaling, curvature_of_refits, rescaling
from onefit.losses import PiecewiseLinear
from onefit.numerics import ON_BOUND
from onefit.solvers.kinks import size_of_duals
from onefit.solvers.stationary import sizes_of_gradients


class _Moved(NamedTuple):
    """The fit without each of some rows, which are along the last axis."""

    rows: Index
    coef: Array  # (p, r)
    eta: Array  # (n, r)
    gradient: Array  # (n, r), zero for the row that left
    share: Array  # (r,), of the penalty that left with the row


def solves_without(fit: Fit, eta: Array) -> Mask:
    """Rows whose left-out fit, one step away, is optimal without them: (n,).

    Parameters
    ----------
    fit : Fit
        Of a loss with quadratic pieces and a polyhedral penalty; one output.
    eta : (n,) array
        Left-out linear predictors.
    """
    problem = fit.problem
    curvature = curvature_of_refits(fit)
    rescaled = rescaling(fit, curvature)
    slopes = fit.gradient * (1.0 + rescaled.own_growth()) + fit.hessian * (eta - fit.eta)
    solves = np.zeros(problem.n, dtype=bool)
    rows = np.flatnonzero(np.isfinite(eta))
    size = max(1, _linalg.BLOCK_SIZE // max(problem.n, len(fit.coef)))
    for first in range(0, rows.size, size):
        some = rows[first : first + size]
        moved = _moved(fit, curvature, rescaled, some, slopes[some])
        solves[some] = _rows_stay(fit, moved) & _penalty_stays(fit, moved)
    return solves


def _moved(fit: Fit, curvature: Curvature, rescaled: Rescaling, rows: Index, slopes: Array) -> _Moved:
    columns = _linalg.as_design(fit.problem.X).basis_of_rows(rows)
    coef, level = curvature.leave(rows, Direction(columns * slopes, slopes))
    for direction, amount in zip(rescaled.directions, rescaled.amounts, strict=True):
        coef = coef + np.outer(direction.coef, amount[rows])
        level = level + direction.intercept * amount[rows]
    change = curvature.predict(Direction(coef, level))
    slope = fit.gradient[:, None] + fit.hessian[:, None] * change
    share = fit.problem.lost_shares(rows)
    if isinstance(curvature, Pinned):
        slope[curvature.pins] += curvature.duals(rows, slopes)
        if np.any(share):
            gradient = Direction(fit.tangent.gradient, np.zeros_like(fit.intercept))
            slope[curvature.pins] += np.outer(curvature.hold(gradient), share)
    slope[rows, np.arange(len(rows))] = 0.0
    return _Moved(rows, fit.coef[:, None] + coef, fit.eta[:, None] + change, slope, share)


def _rows_stay(fit: Fit, moved: _Moved) -> Mask:
    """Whether all rows but the one that left are still on their piece, or on their kink."""
    problem = fit.problem
    if not problem.loss.is_kinked:
        return np.ones(len(moved.rows), dtype=bool)
    assert isinstance(problem.loss, PiecewiseLinear)
    kinks = problem.loss.kinks(problem.y)
    low, high = ends_of_pieces(fit)
    tie = ON_BOUND * (1.0 + np.abs(kinks).max())
    on_piece = (moved.eta >= low[:, None] - tie) & (moved.eta <= high[:, None] + tie)
    least, most = interval_of_duals(fit)
    tie = ON_BOUND * size_of_duals(fit)
    held = (moved.gradient >= least[:, None] - tie) & (moved.gradient <= most[:, None] + tie)
    stays = np.where(fit.pinned[:, None], held, on_piece | (problem.weights == 0)[:, None])
    own = moved.rows, np.arange(len(moved.rows))
    if is_straight(fit):  # each is needed to hold what nothing curves
        inside = (moved.gradient > least[:, None] + tie) & (moved.gradient < most[:, None] - tie)
        stays &= inside | ~fit.pinned[:, None]
    stays[own] = True
    if not np.any(problem.intercept):
        return np.asarray(stays.all(axis=0))
    dual = moved.gradient.copy()
    dual[own] = np.inf  # a row that left holds nothing
    return stays.all(axis=0) & strictly_held(dual, least[:, None], most[:, None], fit.pinned[:, None], tie)


def _penalty_stays(fit: Fit, moved: _Moved) -> Mask:
    """Whether minus the gradient of the loss is a subgradient of the penalty, as weak as it then is."""
    if not fit.is_kinked:
        return np.ones(len(moved.rows), dtype=bool)
    gradient = _linalg.transposed_times(fit.problem.X, moved.gradient) / (1.0 - moved.share)
    size = sizes_of_gradients(fit.problem, gradient, np.linalg.norm(moved.gradient, axis=0))
    return fit.problem.penalty.is_stationary(moved.coef, gradient, size=size)
