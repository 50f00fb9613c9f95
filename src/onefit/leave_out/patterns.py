"""Proof, row by row, that a left-out value equals the refit.

For a quadratic loss with an ℓ2, ℓ1 or elastic-net penalty the Newton step lands on the refit as long as
the active pattern stays: the signs on the support, and |x_lᵀ g| ≤ l1_l for every coordinate l off it, at
the left-out residual (``optimality`` has the other polyhedral penalties, and kinks of the
loss).  With c_i = g_i + d_i (η̃_i − η_i), f_i = w_i/Σw for penalties that shrink with the rows (else 0),
u_i = K⁻¹ z_i and v = K⁻¹ ∇P:

    left-out coefficients:  β̃ = β + c_i u_i + f_i v
    left-out correlations:  x_lᵀ g̃ = x_lᵀ g + c_i (x_lᵀ D Z u_i − x_li) + f_i x_lᵀ D Z v

The second costs a product over all rows and columns, so it is bounded first: the norm of
D^½ Z u_i − e_i/√d_i is at most √(1/d_i − h_i), which clears most coordinates for all rows at once.
"""

from __future__ import annotations

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.curvature import Curvature, Direction, Dual, Primal, ScalarCurvature, factor_scalar
from onefit.fit import Fit
from onefit.leave_out.loose import is_determined, room_of_intercept
from onefit.leave_out.optimality import solves_without
from onefit.leave_out.vertex import held_up_to
from onefit.penalties import SeparablePenalty

MARGIN = 1e-12  # relative room that a sign must have, against rounding


def leaves_nothing(fit: Fit) -> Mask:
    """Rows without weight, or without a slope in a loss that has kinks, whose refit is the fit: (n,)."""
    problem = fit.problem
    gone = problem.never_counts
    if not problem.loss.is_kinked or not problem.refits_keep_the_rest:
        return gone
    if any(room_of_intercept(fit)) or not is_determined(fit):  # without the row it may have more
        return gone
    return gone | ((fit.gradient == 0) & ~fit.pinned)


def step_is_exact(fit: Fit) -> bool:
    """Whether the Newton step is the refit as long as the pattern stays."""
    problem = fit.problem
    if not problem.has_flat_pieces or problem.is_balanced:
        return False
    # a curved penalty that shrinks differently with each row is only followed to first order
    lost = problem.lost_shares()[problem.weights > 0]
    return not (fit.tangent.is_curved and np.ptp(lost) > 1e-12 * lost.max())


def is_patterned(fit: Fit) -> bool:
    """Whether patterns can be told: quadratic pieces of loss and penalty, with kinks between them."""
    problem = fit.problem
    kinked = fit.is_kinked or problem.loss.is_kinked
    return problem.has_flat_pieces and kinked


def pattern_stays(fit: Fit, eta: Array, curvature: Curvature | None = None) -> Mask:
    """Rows without which signs and correlations are those of the same pattern: (n,).

    All rows where there is no pattern, or where the loss is not quadratic and nothing can be said.  Nothing
    is said of rows whose value is missing (NaN).  ``curvature`` is that of refits, if it is at hand.
    """
    problem = fit.problem
    if not is_patterned(fit):
        return np.ones(problem.n, dtype=bool)
    if fit.coef.ndim == 2:
        return problem.weights == 0
    if problem.loss.is_kinked or not isinstance(problem.penalty, SeparablePenalty):
        eta = np.where(leaves_nothing(fit), np.nan, eta)
        return (is_determined(fit) & solves_without(fit, eta)) | leaves_nothing(fit)
    eta = np.where(np.isnan(eta), fit.eta, eta)  # all rows together cost little more than one
    l1, _ = problem.separable.strengths(fit.coef.shape)
    shrink = problem.lost_shares()  # f_i
    if not isinstance(curvature, Primal | Dual):  # others may order the free coordinates differently
        curvature = factor_scalar(fit, fit.tangent, problem.usual_shrink)
    residual = fit.gradient + fit.hessian * (eta - fit.eta)  # c_i, the slope at the left-out solution
    drift = curvature.solve(Direction(fit.tangent.gradient, np.zeros(())))
    steps = curvature.responses()  # u_i in columns
    kept = _signs_kept(fit, l1, residual * steps.coef + np.outer(_free(fit, drift.coef), shrink))
    kept &= _correlations_kept(fit, l1, residual, shrink, drift, curvature, steps)
    return kept | (problem.weights == 0)


def _free(fit: Fit, coef: Array) -> Array:
    return coef[fit.tangent.support]


def _signs_kept(fit: Fit, l1: Array, change: Array) -> Mask:
    """Whether β + change (k, n) keeps the signs of β wherever there is a kink at zero."""
    beta = _free(fit, fit.coef)
    kinked = _free(fit, l1) > 0
    towards_zero = -np.sign(beta[kinked])[:, None] * change[kinked]
    return np.all(towards_zero < np.abs(beta[kinked])[:, None] * (1.0 - MARGIN), axis=0)


def _correlations_kept(
    fit: Fit,
    l1: Array,
    residual: Array,
    shrink: Array,
    drift: Direction,
    curvature: ScalarCurvature,
    steps: Direction,
) -> Mask:
    """Whether no coordinate off the support would enter."""
    problem, d = fit.problem, fit.hessian
    off = np.flatnonzero(~fit.tangent.support & np.isfinite(l1))
    if off.size == 0:
        return np.ones(problem.n, dtype=bool)
    drifted = _linalg.transposed_times(problem.X, d * problem.linear_predictor(*drift))
    room = l1 - np.abs(fit.loss_gradient)
    room = (room - shrink.max() * (l1 + np.abs(drifted)))[off]  # what is left after the shrinking
    norms = _linalg.column_norms(problem.X, d, centred=bool(problem.intercept))[off]
    h = curvature.quadratic_forms()
    with np.errstate(divide="ignore"):
        reach = np.abs(residual) * np.sqrt(np.maximum(np.where(d > 0, 1.0 / d, 0.0) - h, 0.0))
    near = norms * reach.max() >= room * (1.0 - 1e-9)
    rows = np.flatnonzero(reach >= np.min(room[near] / norms[near], initial=np.inf))
    passed = np.ones(problem.n, dtype=bool)
    if rows.size == 0 or not near.any():
        return passed
    columns = off[near]
    moved = _left_out_correlations(fit, columns, rows, residual, steps)
    moved += np.outer(drifted[columns], shrink[rows])
    bound = np.outer((l1 * held_up_to(fit))[columns], 1.0 - shrink[rows])
    passed[rows] = np.all(np.abs(moved) <= bound, axis=0)
    return passed


def _left_out_correlations(fit: Fit, columns: Index, rows: Index, residual: Array, steps: Direction) -> Array:
    """x_lᵀ g + c_i (x_lᵀ D Z u_i − x_li) for some columns l and rows i: (columns, rows)."""
    problem = fit.problem
    cross, level, means = _cross(fit, columns)
    own = _linalg.as_columns(problem.X).columns_as_rows(columns)[:, rows] - means[0][:, None]
    free = steps.coef[:, rows]
    along = cross @ free + np.outer(level, steps.intercept[rows] + means[1] @ free)
    return fit.loss_gradient[columns][:, None] + residual[rows] * (along - own)


def _cross(fit: Fit, columns: Index) -> tuple[Array, Array, tuple[Array, Array]]:
    """X_Lᵀ D X_S, X_Lᵀ d, and the means taken off both, which dense columns far from zero need."""
    problem, d, support = fit.problem, fit.hessian, fit.tangent.support
    if not problem.intercept:
        nothing = (np.zeros(len(columns)), np.zeros(int(support.sum())))
        return *_linalg.as_columns(problem.X).cross(columns, support, d), nothing
    return _linalg.as_columns(problem.X).centred_cross(columns, support, d)
