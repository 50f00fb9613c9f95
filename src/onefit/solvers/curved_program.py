"""Losses with kinks and curved penalties: quadratic programs on the smooth piece of the penalty.

On its tangent B at a point the penalty is P + gᵀz + ½ zᵀCz + O(z³), and with the eigenvectors of C as
coordinates, z = V u, a step of Newton's method is a quadratic program with diagonal curvature, which the
active-set method of ``kinks`` solves exactly: the rows of the loss, and a straight row for each gᵀV u.  The
rows that sit on kinks, and their duals, come out of it.  A penalty with kinks of its own needs its pattern
first: that of the start is tried, then that of the conic program.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np

from onefit import _linalg
from onefit._typing import Array
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.losses import PiecewiseLinear
from onefit.losses.rounded import RoundedKinks
from onefit.penalties import Conic, Coordinates, PiecewiseRows, Tangent
from onefit.problem import Problem
from onefit.solvers import conic
from onefit.solvers.kinks import on_kinks
from onefit.solvers.line_search import toward
from onefit.solvers.quadratic_program import minimum, rows_of_loss
from onefit.solvers.stationary import is_stationary

STEPS, FEW_STEPS = 60, 10  # of Newton's method; from a start that may have the pattern already
SETTLED = 1e-11  # change of the linear predictors in a step, relative to 1 + |η|, at which to stop
ROUNDING = 1e-8  # the same, up to which a change that no longer falls is rounding
FLAT = 1e-12  # curvature, relative to the largest, that is none


def applies(problem: Problem) -> bool:
    """Whether a loss with rounded kinks is a conic program with its penalty."""
    return isinstance(problem.loss, RoundedKinks) and isinstance(problem.penalty.without_ridge(), Conic)


def solve(start: Fit) -> Fit:
    """Minimise the objective of ``start.problem`` to machine precision.

    Parameters
    ----------
    start : Fit
        Of one output, a loss of straight pieces, with or without rounded kinks, and a penalty that is smooth
        or has a conic form.

    Raises
    ------
    ImportError
        If Clarabel is needed and not installed.
    SolverError
        If the steps do not settle.
    TypeError
        For a penalty with kinks that has no conic form.
    """
    if not start.is_kinked:
        return _descend(start)
    if np.any(start.coef) and start.at_hand("gradient"):
        with suppress(SolverError):  # not near after all
            return _descend(start, FEW_STEPS)
    near = conic.solve(start.problem)
    return _descend(_back_on_piece(near, _widest(near)))


def _checked(fit: Fit) -> Fit:
    """Refuse a point that is optimal on its piece and nowhere else."""
    if is_stationary(fit):
        return fit
    raise SolverError(
        "the active pattern of the penalty did not settle: the columns of X are of very different size, or "
        "nearly dependent; standardise them, or give a stronger penalty"
    )


def _held(target: Fit, last: Fit) -> tuple[Fit, bool]:
    """Where a step leads, with the duals of the last point if they hold the penalty and its own do not.

    Where rows on kinks outnumber the directions of the piece many duals balance it, and those that a program
    on the piece finds need not be among the ones that balance the penalty as well.  The second value says
    whether the point is known to be optimal; on a smooth piece that is all there is it is where steps end.
    """
    straight = isinstance(target.problem.loss, PiecewiseLinear)
    if not target.is_kinked or not straight or not last.at_hand("gradient"):
        return target, not target.is_kinked
    if is_stationary(target):
        return target, True
    other = _with_duals(target, last.gradient)
    return (other, True) if is_stationary(other) else (target, False)


def _with_duals(fit: Fit, duals: Array) -> Fit:
    """The same point, whose rows on kinks have other duals, as far as the slopes beside these let them."""
    problem = fit.problem
    slopes = fit.slopes
    every, kink = np.arange(problem.n), np.abs(fit.kinks - fit.eta[:, None]).argmin(axis=1)
    held = np.clip(duals, slopes[every, kink], slopes[every, kink + 1])
    on = Fit(problem, fit.coef, fit.intercept).pinned  # all rows there, not only independent ones
    own = np.where(on, held, fit.gradient)
    return Fit(problem, fit.coef, fit.intercept).known(eta=fit.eta, gradient=own, pinned=fit.pinned)


def _descend(start: Fit, steps: int = STEPS) -> Fit:
    """Newton's method, with a proximal step after each where the penalty has kinks.

    Such a step may move off by its rounding what a step of Newton's method puts back: then these settle.
    """
    fit, last, widest, before = start, np.inf, _widest(start), start
    for _ in range(steps):
        target, is_optimal = _held(_step(fit), fit)
        change = _change(fit, target)
        if change <= SETTLED or last <= change <= ROUNDING:
            return target if is_optimal else _checked(target)
        if _change(before, target) <= SETTLED and is_stationary(target):
            return target
        last, before = change, target
        fit = toward(fit, target).known(gradient=target.gradient)
        fit = _back_on_piece(fit, widest) if fit.is_kinked else fit
    raise SolverError(
        f"Newton's method did not settle in {steps} steps: the problem may have no finite minimum; give it a "
        "stronger penalty"
    )


def _change(fit: Fit, target: Fit) -> float:
    """Of the linear predictors in a step, relative to 1 + |η|."""
    change = float(np.abs(target.eta - fit.eta).max(initial=0.0))
    return change / fit.size_of_predictors


def _widest(fit: Fit) -> float:
    """Largest norm of a column over the rows that count."""
    rows = np.where(fit.problem.weights > 0, 1.0, 0.0)
    return float(_linalg.column_norms(fit.problem.X, rows, centred=False).max(initial=0.0))


def _back_on_piece(fit: Fit, widest: float) -> Fit:
    """Take a proximal step: its outcome lies on a smooth piece of the penalty exactly.

    A minimum stays where it is by a step of any length.  A short one does not take back to their kink what
    rounding has moved off it, as where all coefficients are zero: it reaches as far as the largest of them,
    and as far as what moves linear predictors by their own size in the ``widest`` column.
    """
    penalty, gradient = fit.problem.penalty, fit.loss_gradient
    gradient = gradient + penalty.ridge(fit.coef.shape) * fit.coef
    moving = fit.size_of_predictors / widest if widest > 0 else 0.0
    extent, force = max(np.abs(fit.coef).max(initial=0.0), moving), np.abs(gradient).max(initial=0.0)
    step = float(extent / force) if extent > 0 and force > 0 else 1.0
    coef = penalty.without_ridge().prox(fit.coef - step * gradient, step)
    return fit.moved(coef, fit.intercept).known(gradient=fit.gradient)


def _step(fit: Fit) -> Fit:
    """Minimise the loss plus the quadratic model of the penalty around a point."""
    problem, rows = fit.problem, np.flatnonzero(fit.problem.weights > 0)
    basis, slopes, curvature = _coordinates(fit.tangent)
    own = rows_of_loss(problem, rows)
    offset = _linalg.times(own.X, fit.coef)
    moved = replace(own, X=_linalg.as_columns(own.X).along(basis), kinks=own.kinks - offset[:, None])
    level = np.atleast_1d(fit.intercept)[: own.extra.shape[1]]
    known = np.concatenate([fit.gradient[rows], slopes]) if fit.at_hand("gradient") else None
    k = len(slopes)  # linear terms are rows that have no kink
    straight = PiecewiseRows.of(np.eye(k), np.full((k, 1), np.inf), np.column_stack([slopes, slopes]))
    dual = minimum(moved + straight, curvature, np.zeros(k), level, known)
    u, extra = dual.primal()
    found = fit.moved(fit.coef + basis @ u, np.asarray(extra[0] if level.size and len(extra) else 0.0))
    return on_kinks(found, dual, rows) if problem.loss.is_kinked else found


def _coordinates(tangent: Tangent) -> tuple[Array, Array, Array]:
    """Directions in which the curvature is diagonal, the gradient along them, and the curvature."""
    B = np.reshape([*tangent.directions], (-1, len(tangent.support))).T
    curved = tangent.hessian[tangent.support] if isinstance(tangent, Coordinates) else tangent.hessian
    if curved.ndim == 2:
        curved, V = np.linalg.eigh(0.5 * (curved + curved.T))
        B = B @ V
    least = FLAT * np.abs(curved).max(initial=0.0)
    return B, B.T @ tangent.gradient, np.where(curved > least, curved, 0.0)
