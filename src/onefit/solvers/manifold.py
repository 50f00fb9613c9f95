"""Smooth losses with any penalty that has a proximal operator: Newton steps on the active manifold.

A proximal gradient step finds the pattern (which groups, clusters or singular values are active), since its
outcome lies on a smooth piece of the penalty exactly.  On that piece the objective is smooth, and a Newton
step with the curvature of the tangent converges quadratically; another proximal step brings it back
onto the piece (Bareilles, Iutzeler and Malick 2022).  Both end at the same point only where it is optimal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit.curvature import Direction, factor
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.solvers.line_search import backtrack
from onefit.solvers.newton import Solution, is_short

ROUNDS = 300  # Newton steps, and bursts of proximal steps
FIRST_BURST, LONGEST_BURST = 10, 500  # proximal steps between two Newton steps
DECREASE = 1e-3  # share of what the model promises that a step must bring
POOR = 0.1  # the same below which the piece was left, and proximal steps find the next: a parabola has half
HALVINGS = 6  # of a Newton step along which the objective does not fall
SETTLED = 1e-11  # Newton decrement, relative to the root of the objective, at which to stop
SMALL = 1e-9  # squared decrement, relative to the objective, that the objective no longer tells
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


class Approach(NamedTuple):
    """Where the steps led, and whether that is an optimum."""

    fit: Fit
    is_there: bool


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
    fit, is_there = approach(start)
    if is_there:
        return Solution(fit, factor(fit))
    raise SolverError(
        f"no optimum reached (objective {fit.objective:.6g}): the problem may have no finite "
        "minimum, or columns of very different size; scale them, or penalise more"
    )


def approach(start: Fit, patience: float = np.inf) -> Approach:
    """Go as near to the optimum as these steps lead.

    Parameters
    ----------
    start : Fit
    patience : float, optional
        Steps after which it gives up: where columns are nearly dependent the pattern takes as many as their
        condition number to find, and somebody may know a shorter way.
    """
    constant = Fit.at_start(start.problem)
    scale = max(constant.objective, np.finfo(float).tiny)
    metric = _first_metric(start)
    size = _size_of_gradients(constant, metric)
    here, burst, taken = _Point.at(_proximal_step(_Point.at(start), metric)), FIRST_BURST, 0
    for _ in range(ROUNDS):
        error = _subgradient_error(here, metric) / size
        step, decrement = _newton_step(here)
        if step is not None and decrement <= SETTLED**2 * scale and error <= STATIONARY:
            change = here.fit.problem.linear_predictor(*step)
            return Approach(here.fit, here.fit.problem.loss.is_quadratic or is_short(here.fit, change))
        small = decrement <= SMALL * scale
        moved = None if step is None else _along(here, step, decrement, metric, small=small)
        if moved is None and burst > LONGEST_BURST and error <= STATIONARY_ENOUGH:
            return Approach(here.fit, True)
        is_poor = moved is not None and here.fit.objective - moved.fit.objective < POOR * decrement
        if moved is None or (is_poor and not small and burst <= 4 * LONGEST_BURST):
            taken += burst
            if taken > patience:
                break
            moved, metric = _accelerated(here if moved is None else moved, metric, burst)
            burst *= 2
        here, taken = moved, taken + 1
        if taken > patience:
            break
    return Approach(here.fit, False)


def _size_of_gradients(constant: Fit, metric: _Metric) -> float:
    """How large subgradients are at the constant model; gradients where that is the optimum."""
    at = _Point.at(constant)
    error = max(_subgradient_error(at, metric), float(np.linalg.norm(at.gradient.coef)))
    return max(error, np.finfo(float).tiny)


# --- Newton steps on the piece ---------------------------------------------------------------------


def _newton_step(here: _Point) -> tuple[Direction | None, float]:
    """Newton step on the smooth piece through the point, and its squared decrement; None on a wide one."""
    fit = here.fit
    if fit.tangent.size > WIDE * fit.problem.n and not fit.tangent.is_curved:
        return None, np.inf
    gradient = Direction(fit.loss_gradient + fit.tangent.gradient, here.gradient.intercept)
    step = factor(fit).solve(Direction(-gradient.coef, -gradient.intercept))
    decrement = -float(gradient.coef @ step.coef + gradient.intercept * step.intercept)
    return (step, decrement) if decrement >= 0 and np.isfinite(decrement) else (None, np.inf)


def _along(here: _Point, step: Direction, decrement: float, metric: _Metric, *, small: bool) -> _Point | None:
    """Where the step and a proximal one after it lead; None if the objective does not fall on the way."""
    fit = here.fit

    def at(length: float) -> Fit:
        ahead = fit.moved(fit.coef + length * step.coef, fit.intercept + length * step.intercept)
        return _proximal_step(_Point.at(ahead), metric)

    def falls(moved: Fit, length: float) -> bool:
        return small or moved.objective <= fit.objective - DECREASE * length * decrement

    found = backtrack(at, falls, halvings=HALVINGS)
    return None if found is None else _Point.at(found)


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


def _accelerated(start: _Point, metric: _Metric, steps: int) -> tuple[_Point, _Metric]:
    """Accelerated proximal gradient steps, restarted when the objective rises (Beck and Teboulle 2009)."""
    here, momentum = start, 1.0
    ahead = start
    for _ in range(steps):
        moved = _proximal_step(ahead, metric)
        while not _is_majorised(ahead, moved, metric):
            metric = _Metric(0.5 * metric.coef, 0.5 * metric.intercept)
            moved = _proximal_step(ahead, metric)
        if moved.objective > here.fit.objective and ahead is not here:
            ahead, momentum = here, 1.0
            continue
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        share, momentum = (momentum - 1.0) / following, following
        last, here = here.fit, _Point.at(moved)
        ahead = _Point.at(_beyond(last, moved, share)) if share > 0 else here
    return here, metric


def _beyond(last: Fit, here: Fit, share: float) -> Fit:
    """On from the last point through this one."""
    coef, level = here.coef - last.coef, here.intercept - last.intercept
    ahead = here.moved(here.coef + share * coef, here.intercept + share * level)
    return ahead.known(eta=here.eta + share * (here.eta - last.eta))


def _smooth(fit: Fit) -> float:
    """Value of the loss and of the ℓ2 part of the penalty."""
    ridge = fit.problem.penalty.ridge(fit.coef.shape)
    losses = fit.problem.loss.value(fit.problem.y, fit.eta)
    return float(fit.problem.weights @ losses + 0.5 * np.sum(ridge * fit.coef**2))


def _is_majorised(at: _Point, moved: Fit, metric: _Metric) -> bool:
    """Whether the smooth part lies below the parabola that the step sizes stand for."""
    coef, level = moved.coef - at.fit.coef, moved.intercept - at.fit.intercept
    parabola = 0.5 * float(coef @ coef / metric.coef + level**2 / metric.intercept)
    along = float(at.gradient.coef @ coef + at.gradient.intercept * level)
    base = _smooth(at.fit)
    with np.errstate(over="ignore", invalid="ignore"):
        return _smooth(moved) <= base + along + parabola + 1e-12 * abs(base)


def _first_metric(start: Fit) -> _Metric:
    """One over the largest curvature at the start, by a few power iterations."""
    problem = start.problem
    bend = np.maximum(start.hessian, problem.weights * (0.0 if problem.loss.is_smooth else 2.0))
    direction = np.ones(start.coef.shape)
    curvature = 1.0
    for _ in range(8):
        direction = direction / max(float(np.linalg.norm(direction)), np.finfo(float).tiny)
        direction = _linalg.transposed_times(problem.X, bend * _linalg.times(problem.X, direction))
        curvature = float(np.linalg.norm(direction))
    curvature += float(problem.penalty.ridge(start.coef.shape).max(initial=0.0))
    total = max(float(bend.sum()), np.finfo(float).tiny)
    # with an intercept both share the curvature
    halves = 2.0 if problem.intercept else 1.0
    curvature = max(curvature, np.finfo(float).tiny)
    return _Metric(1.0 / (halves * curvature), 1.0 / (halves * total))
