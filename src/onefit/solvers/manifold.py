"""Smooth losses with any penalty that has a proximal operator: Newton steps on the active manifold.

A proximal Newton step finds the pattern (which groups, clusters or singular values are active), since its
outcome lies on a smooth piece of the penalty exactly.  On that piece the objective is smooth, and a Newton
step with the curvature of the tangent converges quadratically; a proximal gradient step brings it back
onto the piece (Bareilles, Iutzeler and Malick 2022).  Both end at the same point only where it is optimal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit.curvature import Direction, curved_along, factor
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.numerics import EPS, TINY
from onefit.solvers.line_search import ROUNDING, falls_along
from onefit.solvers.newton import Solution, is_short
from onefit.solvers.proximal_newton import Damping, ModelMinimum, bend, model_minimum
from onefit.solvers.truncated import Approach

ROUNDS = 300  # Newton steps on a piece, and proximal ones to the next
DECREASE = 1e-3  # share of what the model promises that a step must bring
POOR = 0.1  # the same below which the piece was left, or the model is wrong: a parabola has half
GOOD = 0.5  # the same from which on the model may be trusted further
HALVINGS = 6  # of a Newton step along which the objective does not fall
DAMPING = 1e-2  # of the first proximal Newton step, relative to the curvature of the loss
EASIER, HARDER = 0.1, 10.0  # what the damping is multiplied with after a model that was right, or wrong
CAREFUL = 1.2  # times what the model promises from which on fewer rows bend than it has it
LEAST_OF_ROWS = 1e-12  # their damping: where all are straight the intercept would be free
QUICK = 8  # steps for a minimum of the model from which on with less damping it would take many
SETTLED = 1e-11  # Newton decrement, relative to the root of the objective, at which to stop
SMALL = 1e-9  # squared decrement, relative to the objective, that the objective no longer tells
TERMS = 1e-5  # size of the terms of a gradient, relative to their norm, of which STATIONARY is rounding
STATIONARY = 1e-9  # error of the subgradient, relative to that of the constant model, that is none
STATIONARY_ENOUGH = 1e-6  # the same where rounding lets us come no further
WIDE = 2  # free directions, in rows, from which on a Newton step is not worth its price


class _Metric(NamedTuple):
    """Step sizes of coefficients and intercept."""

    coef: float
    intercept: float


class _Point(NamedTuple):
    """A fit, and the gradient of the smooth part there: the loss and the ℓ2 part of the penalty."""

    fit: Fit
    gradient: Direction

    @classmethod
    def at(cls, fit: Fit) -> _Point:
        ridge = fit.problem.penalty.ridge(fit.coef.shape)
        return cls(fit, Direction(fit.loss_gradient + ridge * fit.coef, fit.intercept_gradient))


def solve(start: Fit) -> Solution:
    """Minimise the objective of ``start.problem`` to machine precision.

    Parameters
    ----------
    start : Fit
        Of one output, a loss with two derivatives and a penalty with a proximal operator.

    Raises
    ------
    SolverError
        If no optimum is reached.
    """
    near = approach(start)
    if near.is_there:
        return Solution.of(near.fit)
    raise SolverError(
        f"no optimum reached (objective {near.fit.objective:.6g}): the problem may have no finite "
        "minimum, or columns of very different size; scale them, or penalise more"
    )


def approach(start: Fit, beside: Fit | None = None) -> Approach:
    """Go as near to the optimum as these steps lead.

    Errors are relative to the constant model, or to what they are ``beside``: where classes are all but
    separated, the objective and its gradients are nothing beside those of the constant model.
    """
    constant = Fit.at_start(start.problem) if beside is None else beside
    scale = max(constant.objective, TINY)
    metric, at, here = _metric(start), _Point.at(constant), _Point.at(start)
    # how large subgradients are at the constant model; gradients where that is the optimum, or their terms
    size = max(_subgradient_error(at, metric), float(np.linalg.norm(at.gradient.coef)), TINY)
    norms = _linalg.column_lengths(start.problem.X)
    size = max(size, TERMS * float(np.linalg.norm(constant.gradient) * np.linalg.norm(norms)))
    damping, settled = Damping(DAMPING / metric.coef), max(SETTLED**2 * scale, _rounding(constant))
    for _ in range(ROUNDS):
        error = _subgradient_error(here, metric) / size
        step, decrement = _newton_step(here, size)
        if step is not None and decrement <= settled and error <= STATIONARY:
            change = here.fit.problem.linear_predictor(*step)
            return Approach(here.fit, here.fit.problem.loss.is_quadratic or is_short(here.fit, change))
        is_spent = decrement <= settled  # what is left is not on this piece
        moved = None if step is None or is_spent else _along(here, step, decrement, metric)
        if moved is None or here.fit.objective - moved.fit.objective < POOR * decrement - SMALL * scale:
            found = _by_model(here if moved is None else moved, damping)
            if found is None:
                return Approach(here.fit, error <= STATIONARY_ENOUGH)
            moved, damping = found
            if np.isinf(damping.coef):  # no model is right there, as where classes are separable
                return Approach(here.fit, False)
            metric = _metric(moved.fit)
        here = moved
    return Approach(here.fit, False)


def _rounding(fit: Fit) -> float:
    """Squared decrement that rounding of linear predictors makes: where they are large, far from none."""
    moved = 4.0 * EPS * np.abs(fit.eta)
    return float(np.sum(moved * _linalg.row_times(np.abs(fit.hessian), moved)))


# --- Newton steps on the piece ---------------------------------------------------------------------


def _newton_step(here: _Point, size: float) -> tuple[Direction | None, float]:
    """Newton step on the smooth piece through the point, and its squared decrement.

    None on a wide piece, and on one that has no minimum: it falls along a line on which nothing curves.
    """
    fit = here.fit
    if fit.tangent.size > WIDE * fit.problem.n and not fit.tangent.is_curved:
        return None, np.inf
    gradient = Direction(fit.loss_gradient + fit.tangent.gradient, here.gradient.intercept)
    curvature = factor(fit)
    step = curvature.solve(Direction(-gradient.coef, -gradient.intercept))
    decrement = -float(gradient.coef @ step.coef + gradient.intercept * step.intercept)
    if not curvature.is_definite:  # a step by a generalised inverse may leave a part of the gradient
        left = fit.tangent.part_along(gradient.coef + curved_along(fit, step).coef)
        decrement = np.inf if float(np.linalg.norm(left)) > STATIONARY * size else decrement
    return (step, decrement) if 0 <= decrement < np.inf else (None, np.inf)


def _along(here: _Point, step: Direction, decrement: float, metric: _Metric) -> _Point | None:
    """Where the step and a proximal one after it lead; None if the objective does not fall on the way."""
    fit = here.fit

    def at(length: float) -> Fit:
        ahead = fit.moved(fit.coef + length * step.coef, fit.intercept + length * step.intercept)
        return _proximal_step(_Point.at(ahead), metric)

    found = falls_along(fit, at, decrement, share=DECREASE, halvings=HALVINGS)
    if found is not None:
        return _Point.at(found)
    return None if decrement > SMALL * abs(fit.objective) else _nearer(here, _Point.at(at(1.0)), metric)


def _nearer(here: _Point, ahead: _Point, metric: _Metric) -> _Point | None:
    """The point ahead, if its subgradient is smaller: rounding may hide from objectives that it is nearer."""
    with np.errstate(over="ignore", invalid="ignore"):
        is_nearer = _subgradient_error(ahead, metric) < _subgradient_error(here, metric)
    return ahead if is_nearer else None


# --- proximal Newton steps from piece to piece -----------------------------------------------------


def _by_model(here: _Point, damping: Damping) -> tuple[_Point, Damping] | None:
    """Where a proximal Newton step leads, and damping for the next; None where rounding hides it.

    The damping is infinite where no step serves, however short.
    """
    fit = here.fit
    while np.isfinite(damping.coef):
        with np.errstate(over="ignore", invalid="ignore"):
            found = model_minimum(fit, damping)
            gained = fit.objective - found.fit.objective
        rounding = ROUNDING * abs(fit.objective)
        if found.is_there and abs(found.promised) <= rounding:
            return None
        serves = found.promised > rounding and gained >= POOR * found.promised
        if serves and found.is_there:
            return _Point.at(found.fit), _eased(damping, found, gained)
        damping = damping.times(HARDER)
        if serves:  # on the way to the minimum of the model
            return _Point.at(found.fit), damping
    return here, damping


def _eased(damping: Damping, found: ModelMinimum, gained: float) -> Damping:
    """Less damping for the next model: of rows where this one was too careful."""
    is_easy = gained >= GOOD * found.promised and found.steps <= QUICK
    rows = max(LEAST_OF_ROWS, EASIER * damping.rows) if gained > CAREFUL * found.promised else damping.rows
    return Damping(damping.coef * (EASIER if is_easy else 1.0), rows)


# --- proximal gradient steps -----------------------------------------------------------------------


def _proximal_step(at: _Point, metric: _Metric) -> Fit:
    """Forward along minus the gradient, and back by the proximal operator."""
    fit = at.fit
    kinked = fit.problem.penalty.without_ridge()
    coef = kinked.prox(fit.coef - metric.coef * at.gradient.coef, metric.coef)
    return fit.moved(coef, fit.intercept - metric.intercept * at.gradient.intercept)


def _subgradient_error(at: _Point, metric: _Metric) -> float:
    """Size of a gradient step that the proximal operator does not undo: (‖Δβ‖ + |Δb|) by their step sizes."""
    back = _proximal_step(at, metric)
    moved = np.linalg.norm(back.coef - at.fit.coef) / metric.coef
    # an intercept has the units of y, its gradient those of a column of ones
    return float(moved + np.abs(at.gradient.intercept) * np.sqrt(metric.intercept / metric.coef))


def _metric(fit: Fit) -> _Metric:
    """One over the largest curvature at a fit, by a few power iterations."""
    problem, bent = fit.problem, bend(fit)
    direction = np.ones(fit.coef.shape)
    curvature = 1.0
    for _ in range(8):
        direction = direction / max(float(np.linalg.norm(direction)), np.finfo(float).tiny)
        direction = _linalg.transposed_times(problem.X, bent * _linalg.times(problem.X, direction))
        curvature = float(np.linalg.norm(direction))
    curvature += float(problem.penalty.ridge(fit.coef.shape).max(initial=0.0))
    total = max(float(bent.sum()), np.finfo(float).tiny)
    # with an intercept both share the curvature
    halves = 2.0 if problem.intercept else 1.0
    curvature = max(curvature, np.finfo(float).tiny)
    return _Metric(1.0 / (halves * curvature), 1.0 / (halves * total))
