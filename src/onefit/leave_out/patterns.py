"""Proof, row by row, that a left-out value equals the refit.

For a quadratic loss with an ℓ2, ℓ1 or elastic-net penalty the Newton step lands on the refit as long as
the active pattern stays: the signs on the support, and |x_lᵀ g| ≤ l1_l for every coordinate l off it, at
the left-out residual.  With c_i = g_i + d_i (η̃_i − η_i), f_i = w_i/Σw for penalties that shrink with the
rows (else 0), u_i = K⁻¹ z_i and v = K⁻¹ ∇P:

    left-out coefficients:  β̃ = β + c_i u_i + f_i v
    left-out correlations:  x_lᵀ g̃ = x_lᵀ g + c_i (x_lᵀ D Z u_i − x_li) + f_i x_lᵀ D Z v

The second costs a product over all rows and columns, so it is bounded first: the norm of
D^½ Z u_i − e_i/√d_i is at most √(1/d_i − h_i), which clears most coordinates for all rows at once.

For any polyhedral penalty, and a loss with kinks, θ̃⁽ⁱ⁾ = θ + K⁻¹ z_i c_i is the refit if the conditions of
optimality hold there, without row i:

* rows on a piece of the loss are still on it, and the duals of those on a kink still between the
  slopes of the adjoining pieces;
* minus the gradient of the loss is still a subgradient of the penalty.

Rounding leaves more of both than none: rows beside their kinks, and a gradient along the free directions,
where columns are far from zero or of very different size.  What that makes of the predictor is its bound.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.cost import Work, newton_step
from onefit.curvature import Curvature, Direction, Dual, Pinned, Primal, ScalarCurvature, factor_scalar
from onefit.fit import Fit
from onefit.leave_out.loose import is_determined, is_straight, room_of_intercept
from onefit.leave_out.rescaling import Rescaling, curvature_of_refits, rescaling
from onefit.leave_out.straight_rows import ends_of_pieces, interval_of_duals, strictly_held
from onefit.leave_out.vertex import held_up_to
from onefit.losses import PiecewiseLinear
from onefit.numerics import LEAST_SLACK, ON_BOUND, ROUNDED, size_of_kinks
from onefit.penalties import SeparablePenalty
from onefit.solvers.kinks import size_of_duals
from onefit.solvers.stationary import holds_strictly, sizes_of_gradients

MARGIN = 1e-12  # relative room that a sign must have, against rounding


def leaves_nothing(fit: Fit) -> Mask:
    """Rows without weight, or without a slope in a loss that has kinks, whose refit is the fit: (n,)."""
    problem = fit.problem
    gone = problem.never_counts
    if not problem.loss.is_kinked or not problem.refits_keep_the_rest:
        return gone
    if any(room_of_intercept(fit)) or not is_determined(fit):  # without the row it may have more
        return gone
    idle = (fit.gradient == 0) & ~fit.pinned
    if isinstance(problem.loss, PiecewiseLinear):  # at a kink it may hold the intercept
        tie = ON_BOUND * size_of_kinks(fit.kinks)
        idle &= np.all(np.abs(fit.kinks - fit.eta[:, None]) > tie, axis=1)
    return gone | idle


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


def cost_of_patterns(fit: Fit) -> Work:
    """What ``bound_of_patterns`` takes, about: a factor, and what it answers to every row."""
    (n, p), k = fit.problem.X.shape, fit.tangent.size
    return newton_step(n, p, k).plus(Work(float(n) * k * min(n, k)))


def bound_of_patterns(fit: Fit, eta: Array, curvature: Curvature | None = None) -> Array:
    """How far left-out values may be off where the pattern stays, infinite where it does not: (n,).

    0 for all rows where there is no pattern, or where the loss is not quadratic and nothing can be said.
    Nothing is said of rows whose value is missing (NaN).  ``curvature`` is that of refits, if it is at hand.
    """
    problem = fit.problem
    if not is_patterned(fit):
        return np.zeros(problem.n)
    if problem.is_apart:
        return np.max([bound_of_patterns(one, eta[:, k]) for k, one in enumerate(fit.apart)], axis=0)
    if problem.has_one_output and (
        problem.loss.is_kinked or not isinstance(problem.penalty, SeparablePenalty)
    ):
        idle = leaves_nothing(fit)
        found = bound_without(fit, np.where(idle, np.nan, eta)) if is_determined(fit) else np.inf
        return np.where(idle, 0.0, found)
    return np.where(_pattern_stays(fit, eta, curvature), 0.0, np.inf)


def _pattern_stays(fit: Fit, eta: Array, curvature: Curvature | None) -> Mask:
    """Rows without which signs and correlations are those of the same pattern: (n,)."""
    problem = fit.problem
    if not problem.has_one_output:
        return problem.weights == 0
    eta = np.where(np.isnan(eta), fit.eta, eta)  # all rows together cost little more than one
    l1, _ = fit.strengths
    shrink = problem.lost_shares()  # f_i
    if not isinstance(curvature, Primal | Dual):  # others may order the free coordinates differently
        curvature = factor_scalar(fit, fit.tangent, problem.usual_shrink)
    residual = fit.gradient + fit.hessian * (eta - fit.eta)  # c_i, the slope at the left-out solution
    drift = curvature.solve(Direction(fit.tangent.gradient, np.zeros(())))
    steps = curvature.responses()  # u_i in columns
    kept = _signs_kept(fit, l1, residual * steps.coef + np.outer(_free(fit, drift.coef), shrink))
    kept &= problem.weights > 0
    kept &= _correlations_kept(fit, l1, residual, shrink, drift, curvature, steps, kept)
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
    asked: Mask,
) -> Mask:
    """Whether no coordinate off the support would enter without some rows, which are asked for."""
    problem, d = fit.problem, fit.hessian
    off = np.flatnonzero(~fit.tangent.support & np.isfinite(l1))
    if off.size == 0:
        return np.ones(problem.n, dtype=bool)
    drifted = _linalg.transposed_times(problem.X, d * problem.linear_predictor(*drift))
    room = (l1 - np.abs(fit.loss_gradient))[off]
    room -= shrink.max() * (l1 + np.abs(drifted))[off]  # what is left after the shrinking
    norms = _linalg.column_norms(problem.X, d, centred=bool(problem.intercept))[off]
    h = curvature.quadratic_forms()
    with np.errstate(divide="ignore"):
        reach = np.abs(residual) * np.sqrt(np.maximum(np.where(d > 0, 1.0 / d, 0.0) - h, 0.0))
    reach = np.where(asked, reach, 0.0)
    near = norms * reach.max(initial=0.0) >= room * (1.0 - 1e-9)
    rows = np.flatnonzero(asked & (reach >= np.min(room[near] / norms[near], initial=np.inf)))
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


class _Moved(NamedTuple):
    """The fit without each of some rows, which are along the last axis."""

    rows: Index
    coef: Array  # (p, r)
    eta: Array  # (n, r)
    gradient: Array  # (n, r), zero for the row that left
    share: Array  # (r,), of the penalty that left with the row

    def of(self, which: Index) -> _Moved:
        """Without some of the rows."""
        coef, eta, gradient = (part[:, which] for part in (self.coef, self.eta, self.gradient))
        return _Moved(self.rows[which], coef, eta, gradient, self.share[which])


def bound_without(fit: Fit, eta: Array) -> Array:
    """How far left-out values may be off by rounding where one step is optimal, infinite elsewhere: (n,).

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
    bounds, rows = np.full(problem.n, np.inf), np.flatnonzero(np.isfinite(eta))
    rounding = _Rounding.of(fit, curvature)
    size = max(1, _linalg.BLOCK_SIZE // max(problem.n, len(fit.coef)))
    for first in range(0, rows.size, size):
        some = rows[first : first + size]
        moved = _moved(fit, curvature, rescaled, some, slopes[some])
        solves = _rows_stay(fit, moved) & _penalty_stays(fit, moved)
        if is_straight(fit) and not isinstance(problem.penalty, SeparablePenalty):
            solves = _determined(fit, moved, solves)
        solved = np.flatnonzero(solves)
        bounds[some[solved]] = rounding.left(eta, moved.of(solved))
    return bounds


class _Rounding(NamedTuple):
    """How far one step may be off by rounding, by what K says of the conditions of optimality."""

    fit: Fit
    curvature: Curvature
    beside: Array  # (n,), linear predictors less those that pins hold
    forms: Array  # (n,), z_iᵀ K⁻¹ z_i, of pins none

    @classmethod
    def of(cls, fit: Fit, curvature: Curvature) -> _Rounding:
        beside = fit.problem.linear_predictor(fit.coef, fit.intercept) - fit.eta
        return cls(fit, curvature, beside, np.where(fit.hessian > 0, curvature.quadratic_forms(), 0.0))

    def left(self, eta: Array, moved: _Moved) -> Array:
        """How far the predictors of rows that left are off: (r,).

        None where it is beside the largest predictor as rounding is.
        """
        fit, problem, curvature = self.fit, self.fit.problem, self.curvature
        rows, own = moved.rows, (moved.rows, np.arange(len(moved.rows)))
        off, left = np.zeros(len(rows)), None
        if _linalg.has_columns(problem.X):  # duals are the coefficients of a kernel
            coef, level = problem.gradient_of(moved.gradient)
            penalty = fit.tangent.gradient[:, None] + fit.tangent.curve(moved.coef - fit.coef[:, None])
            left = Direction(fit.tangent.part_along(coef + (1.0 - moved.share) * penalty), level)
            off += np.abs(curvature.predict(curvature.solve(left))[own])
        if isinstance(curvature, Pinned):
            beside = moved.eta - fit.eta[:, None] + self.beside[:, None]
            beside[own] = 0.0
            off += curvature.amiss(rows, left, np.abs(beside[curvature.pins]))
        off /= np.maximum(1.0 - (fit.hessian * self.forms)[rows], LEAST_SLACK)
        off += np.abs(moved.eta[own] - eta[rows])
        return np.where(off > ROUNDED * np.abs(fit.eta).max(initial=0.0), off, 0.0)


def _determined(fit: Fit, moved: _Moved, asked: Mask) -> Mask:
    """Which of the solutions that are asked for are the only ones, by what holds them strictly."""
    found = asked.copy()
    for k in np.flatnonzero(asked):
        i = moved.rows[k]
        own = Fit(fit.problem.without(i), moved.coef[:, k], fit.intercept)
        pinned = fit.pinned & (np.arange(fit.problem.n) != i)
        own.known(eta=moved.eta[:, k], gradient=moved.gradient[:, k], pinned=pinned)
        found[k] = is_determined(own)
    return found


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
    low, high = ends_of_pieces(fit)
    tie = ON_BOUND * size_of_kinks(fit.kinks)
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
    holds = np.repeat(fit.pinned[:, None], len(moved.rows), axis=1)
    holds[own] = False  # a row that left holds nothing
    return stays.all(axis=0) & strictly_held(moved.gradient, least[:, None], most[:, None], holds, tie)


def _penalty_stays(fit: Fit, moved: _Moved) -> Mask:
    """Whether minus the gradient of the loss is a subgradient of the penalty, as weak as it then is."""
    if not fit.is_kinked:
        return np.ones(len(moved.rows), dtype=bool)
    gradient = _linalg.transposed_times(fit.problem.X, moved.gradient) / (1.0 - moved.share)
    size = sizes_of_gradients(fit.problem, gradient, np.linalg.norm(moved.gradient, axis=0))
    stays = fit.problem.penalty.is_stationary(moved.coef, gradient, size=size)
    return stays & (is_straight(fit) | holds_strictly(fit, moved.coef, gradient, size))
