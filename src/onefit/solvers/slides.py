"""Ways down where nothing curves: along what K, which is singular there, takes for no gradient.

Newton's steps end without them where columns depend on each other, or where all rows of one are straight.
"""

from __future__ import annotations

import numpy as np

from onefit._typing import Array
from onefit.curvature import Direction
from onefit.fit import Fit
from onefit.numerics import ON_BOUND
from onefit.solvers.line_search import as_low_as
from onefit.solvers.one_output import shifted
from onefit.solvers.pattern_step import PatternStep, rounding_of_gradient

IN_BALANCE = 1e-3 * ON_BOUND  # of a coefficient's gradient, relative to its bound


def slide(fit: Fit, step: PatternStep) -> Fit | None:
    """Go down where nothing curves, at most until a coefficient is zero; None where there is no way.

    Columns that depend on each other, such as copies with opposite signs, leave a gradient that K, which is
    singular along it, takes for none; so do columns all of whose rows are where the loss is straight.  What
    all outputs of a column share is straight but for kinks, each at its own length.
    """
    if fit.problem.is_coupled and (shared := shifted(fit)).objective < fit.objective:
        return shared
    left, is_smooth = _unremoved(fit, step), fit.problem.loss.is_smooth
    down = np.where(step.orthant != 0 if is_smooth else step.tangent.support, -left.coef, 0.0)
    if not np.any(down) and (is_smooth or not np.any(left.intercept)):
        return None
    flat = _flattened(fit, step, Direction(down, -left.intercept))
    if flat is None:
        return None
    down, level = flat
    until = until_zero(fit, step, down)
    limit = until.min(initial=np.inf)
    change, best = fit.problem.linear_predictor(down, level), fit
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        reach = (1.0 + np.abs(fit.eta).max()) / max(np.abs(down).max(initial=0.0), np.abs(level).max())
        for length in (*(reach * 2.0**k for k in range(-20, 21)), limit):
            if length > limit or not np.isfinite(length):
                continue
            coef = np.where((until == limit) & (length == limit), 0.0, fit.coef + length * down)
            moved = fit.moved(coef, fit.intercept + length * level).known(eta=fit.eta + length * change)
            best = moved if moved.objective < best.objective else best
            if best is fit and length == limit and moved.objective <= as_low_as(fit):
                best = moved  # a coefficient that is only rounding is done with
    return None if best is fit else best


def is_between_copies(fit: Fit, step: PatternStep, rounding: float) -> bool:
    """Whether the coefficient of a column had better go to one that is almost the same and pulls more.

    Between such columns K is singular but for rounding, and both may stay in the support with a gradient left
    that another row, or one row less, turns round.
    """
    kinked = step.orthant != 0
    l1, _ = fit.strengths
    if step.curvature.is_definite or np.all(np.abs(step.gradient.coef[kinked]) <= IN_BALANCE * l1[kinked]):
        return False
    slid = slide(fit, step)
    return slid is not None and slid.objective < fit.objective - rounding


def until_zero(fit: Fit, step: PatternStep, change: Array) -> Array:
    """Lengths of a change of the coefficients at which those with kinks are zero."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where((step.orthant != 0) & (fit.coef * change < 0), -fit.coef / change, np.inf)


def _unremoved(fit: Fit, step: PatternStep) -> Direction:
    """The part of the gradient that no step removes, but for rounding: it lies where K is singular."""
    removed, (coef, level) = _curved(fit, step, step.direction), rounding_of_gradient(fit)
    left = step.gradient.coef + removed.coef, step.gradient.intercept + removed.intercept
    return Direction(
        np.where(np.abs(left[0]) > coef, left[0], 0.0), np.where(np.abs(left[1]) > level, left[1], 0.0)
    )


def _flattened(fit: Fit, step: PatternStep, down: Direction) -> Direction | None:
    """Less what K takes it for, d − K⁻ K d: nothing curves along it, and it goes down by d² as d does.

    Of columns that depend on each other one alone may have all that is left of the gradient, and all levels
    of a factor together are a constant: the others, or the intercept, make up for it.
    """
    problem, taken = fit.problem, step.curvature.solve(_curved(fit, step, down))
    flat = Direction(down.coef - taken.coef, down.intercept - taken.intercept)
    return flat if -flat.inner(problem, step.gradient) >= 0.5 * down.inner(problem, down) else None


def _curved(fit: Fit, step: PatternStep, along: Direction) -> Direction:
    """K times a direction, of a step with a factor of its own."""
    coef, level = fit.problem.gradient_of(fit.bent(step.curvature.predict(along)))
    return Direction(np.where(step.tangent.support, coef + step.tangent.curve(along.coef), 0.0), level)
