"""Newton's method on the active pattern: any loss with two derivatives, any separable penalty.

In the orthant of the current signs the objective is smooth.  A Newton step on the free coordinates,
followed back into the orthant, either stays on the pattern (and then converges quadratically) or drops
coordinates that reach zero; coordinates at zero whose optimality condition fails enter.  A step may go by the
factor of one before; the last has its own, which leave-one-out needs, so that a solution comes with it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array
from onefit.curvature import Curvature, Direction, factor
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.numerics import EPS, TINY
from onefit.solvers.line_search import DECREASE, ROUNDING, backtrack, to_first_zero
from onefit.solvers.pattern_step import PatternStep, newton_step, rounding_of_gradient
from onefit.solvers.slides import is_between_copies, slide, until_zero

UNBALANCED = 1e-4  # sum of the rows' gradients, relative to their sizes, that is none
# Objective, relative to that of the constant model, below which nothing is left to find: it goes on falling
# for ever, as that of separable classes without a penalty does.
VANISHED = 1e-44
FARTHEST = 1e6  # times their size that linear predictors may move in a step
FIRST = 8  # rows that are looked at before all of them
STRAIGHT = 0.9  # decrease of a step, in decrements, from which nothing curves along it: a parabola has half
SHORT = 1e-6  # change of linear predictors, beside their size, that is hardly one


class Solution(NamedTuple):
    """A fit at its optimum and the curvature there."""

    fit: Fit
    curvature: Curvature

    @classmethod
    def of(cls, fit: Fit) -> Solution:
        """Factor the curvature of an optimum that was found without it."""
        return cls(fit, factor(fit))


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # of steps that leave the range of the loss
def solve(start: Fit, *, tol: float = 1e-11, max_steps: int | None = None) -> Solution:
    """Minimise the objective of ``start.problem`` from ``start``.

    Parameters
    ----------
    start : Fit
        Any point with a finite objective; its zeros are tried as the inactive coordinates.
    tol : float, default 1e-11
        Bound on the Newton decrement, relative to the objective of the constant model: about the
        relative error of the coefficients, whose square is that of the objective.
    max_steps : int, optional
        100, and ten times as many where the penalty has kinks, whose patterns are gone through one by one.

    Raises
    ------
    SolverError
        If the steps do not become small: the problem has no finite minimum (perfectly separable
        classes without a penalty), or is not convex.
    """
    scale = _size(start)
    fit, step, enough = start, None, tol**2 * scale
    last = fresh = np.inf  # decrements of the last step, and of the last with a factor of its own
    max_steps = (1000 if fit.is_kinked else 100) if max_steps is None else max_steps
    for steps in range(1, max_steps + 1):
        came, step = step, newton_step(fit, step, enough, tol * scale)
        before = fresh if step.is_fresh else last
        settled = step.decrement <= enough or step.decrement > 0.25 * before or _is_rounding(fit)
        done = step.holds and settled and step.is_fresh and _is_stationary(fit, step)
        lost = done and _has_lost(fit, step, came)
        if done and not lost and not is_between_copies(fit, step, ROUNDING * scale):
            fit = fit.moved(fit.coef, fit.intercept)  # rows without weight may have been far away in between
            return Solution(fit, step.curvature)  # there, or as near as rounding lets us come
        if lost or not np.isfinite(step.decrement) or 0 < fit.objective < VANISHED * scale:
            raise _unsettled(fit, steps)
        if settled and not step.is_fresh:  # perhaps only the stale factor had come to its end
            step, last = None, np.inf
            continue
        if settled and (slid := slide(fit, step)) is not None:
            fit, step, last, fresh = slid, None, np.inf, np.inf
            continue
        small = step.decrement <= 1e-9 * scale
        certain = step.holds and (small or fit.problem.loss.is_quadratic)  # that the next one is smaller
        moved, last = move(fit, step, small, ROUNDING * scale), step.decrement if certain else np.inf
        fresh = last if step.is_fresh else fresh
        if not small and fit.objective - moved.objective > STRAIGHT * step.decrement:
            slid = slide(fit, step) if step.is_fresh else None
            moved, step = min(moved, slid or moved, key=lambda one: one.objective), None
            last = fresh = np.inf
        fit = moved
    raise _unsettled(fit, max_steps)


def _size(start: Fit) -> float:
    """Objective of the constant model, beside which others are small."""
    constant = Fit.at_start(start.problem).objective  # infinite where means are linear and no level is there
    return max(constant if np.isfinite(constant) else abs(start.objective), TINY)


def _unsettled(fit: Fit, steps: int) -> SolverError:
    return SolverError(
        f"Newton's method did not settle in {steps} steps (objective {fit.objective:.6g}): "
        + fit.problem.loss.if_endless
    )


def _is_stationary(fit: Fit, step: PatternStep) -> bool:
    """Whether a vanishing decrement means that this is the minimum.

    It does not where the minimum lies at infinity: the objective flattens out while the steps stay as long
    as ever; nor where K is singular on a pattern that is none of a solution: then no step removes the
    gradient, however small that is.
    """
    kinked = step.orthant != 0
    l1, _ = fit.strengths
    stays = fit.problem.loss.is_quadratic or not step.curvature.is_definite
    rounding = 1e-7 if stays else 1e-3
    left = np.where(kinked, np.abs(step.gradient.coef), 0.0)
    if np.any(left > rounding * l1) and np.any(
        left > np.maximum(rounding * l1, rounding_of_gradient(fit).coef)
    ):
        return False
    return fit.problem.loss.is_quadratic or (
        is_short(fit, step.curvature.predict(step.direction)) and _is_balanced(fit, step)
    )


def _is_balanced(fit: Fit, step: PatternStep) -> bool:
    """Whether the gradients of the rows add up to nothing, relative to their sizes.

    Where a scale runs to zero, steps are short since the objective bends without bound, minimum or not.
    """
    rows = fit.gradient.reshape(fit.problem.n, -1)
    sizes = np.sqrt(np.sum(rows**2, axis=0)).reshape(fit.intercept.shape)
    if isinstance(fit.problem.X, _linalg.RowGram) or _is_rounding(fit):  # dual coordinates; nothing pulls
        return True
    columns = _linalg.column_lengths(fit.problem.X)
    allowed = UNBALANCED * np.multiply.outer(columns, sizes)
    levels = UNBALANCED * np.sqrt(fit.problem.n) * sizes
    small = np.abs(step.gradient.coef) <= allowed.reshape(fit.coef.shape)
    small[columns == 0] = True  # rows pull at none of these, a ridge may at what rounding left
    return bool(
        np.all(small | (step.gradient.coef == 0)) and np.all(np.abs(step.gradient.intercept) <= levels)
    )


def _is_rounding(fit: Fit) -> bool:
    """Whether the gradients of the rows are no more than rounding of linear predictors makes of them."""
    for rows in (slice(FIRST), slice(None)):  # mostly the first few tell
        moved = 8.0 * EPS * (1.0 + np.abs(fit.eta[rows]))
        if not np.all(np.abs(fit.gradient[rows]) <= _linalg.row_times(np.abs(fit.hessian[rows]), moved)):
            return False
    return True


def _has_lost(fit: Fit, step: PatternStep, last: PatternStep | None) -> bool:
    """Whether K no longer sees where the fit was on its way to: the minimum lies at infinity.

    Rows that hardly curve any more pull as little, so that a step along the last direction alone is as long
    as ever.  Near a minimum it has become short, or was so before: there nothing is but rounding.
    """
    if last is None or step.curvature.is_definite or not last.curvature.is_definite:
        return False
    if not fit.problem.self_concordance():
        return False
    change = last.curvature.predict(last.direction)
    if is_short(fit, change):
        return False
    bend = np.sum(change * fit.bent(change)) + np.sum(step.tangent.hessian * last.direction.coef**2)
    length = abs(last.direction.inner(fit.problem, step.gradient)) / max(float(bend), TINY)
    return not is_short(fit, length * change)


def is_short(fit: Fit, change: Array) -> bool:
    """Whether a Newton step hardly changes the linear predictors; with separable classes it always does.

    What all outputs change by together counts for nothing where no loss depends on it: there rounding,
    divided by a weak penalty, may take long steps.
    """
    if fit.problem.loss.ignores_shifts:
        change = change - _linalg.row_means(change)
    return bool(np.max(np.abs(change), initial=0.0) < SHORT * (1.0 + np.max(np.abs(fit.eta), initial=0.0)))


def move(fit: Fit, step: PatternStep, small: bool, rounding: float) -> Fit:
    """Take the step: whole where it is too small for the objective to tell, else by a line search.

    It may tell all the same: a fit without losses has hardly any rows that bend, and the next one may lose
    a million times as much.  By no more than ``rounding`` an objective rises without a reason.
    """
    change = step.curvature.predict(step.direction)
    if small:
        whole = _orthant_step(fit, step, change)
        if not whole.objective - fit.objective > max(step.decrement, rounding):
            return whole
    return _line_search(fit, step, change)


def _orthant_step(fit: Fit, step: PatternStep, change: Array, length: float = 1.0) -> Fit:
    """Move, and stop coefficients of columns less their means at zero instead of letting them cross it."""
    coef = fit.coef + length * step.direction.coef
    crossed = (step.orthant != 0) & (np.sign(coef) == -step.orthant)
    there = Direction(coef, fit.intercept + length * step.direction.intercept)
    if not crossed.any():
        return fit.moved(*there).known(eta=fit.eta + length * change)
    stopped = there.at_centre(fit.problem)._replace(coef=np.where(crossed, 0.0, coef))
    return fit.moved(*stopped.at_centre(fit.problem, -1.0))


def _line_search(fit: Fit, step: PatternStep, change: Array) -> Fit:
    """Halve the step until the objective falls by a share of what the model promises.

    Where coefficients are so near to zero that every length stops them there, the first of them goes to zero.
    A column that only saturated rows have makes steps without end: halving begins where these still matter.
    """
    size = float(np.abs(fit.eta).max()) + fit.problem.unit
    saturates = bool(fit.problem.self_concordance())
    longest = min(1.0, FARTHEST * size / max(float(np.abs(change).max()), TINY)) if saturates else 1.0

    def at(length: float) -> Fit:
        return _orthant_step(fit, step, change, longest * length)

    def falls(moved: Fit, length: float) -> bool:
        return moved.objective <= fit.objective - DECREASE * longest * length * step.decrement

    found = backtrack(at, falls) or fit
    if found.objective < fit.objective * (1.0 - ROUNDING):
        return found
    until = until_zero(fit, step, step.direction.coef)
    has_zero = np.isfinite(until.min(initial=np.inf))
    first = to_first_zero(fit, step.direction, until) if has_zero else fit
    return first if first.objective <= found.objective * (1.0 + ROUNDING) else found
