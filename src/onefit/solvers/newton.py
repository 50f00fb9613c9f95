"""Newton's method on the active pattern: any loss with two derivatives, any separable penalty.

In the orthant of the current signs the objective is smooth.  A Newton step on the free coordinates,
followed back into the orthant, either stays on the pattern (and then converges quadratically) or drops
coordinates that reach zero; coordinates at zero whose optimality condition fails enter.  Each step needs
the factor of the curvature that leave-one-out needs at the end, so a solution comes with its factor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from onefit import _linalg, cost
from onefit._typing import Array, Mask
from onefit.curvature import Curvature, Direction, factor
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.numerics import EPS, ON_BOUND, TINY, rounding_of_slack
from onefit.penalties import Tangent
from onefit.solvers.line_search import DECREASE, ROUNDING, backtrack, to_first_zero
from onefit.solvers.one_output import shifted

By: TypeAlias = Callable[[Fit, Tangent], Curvature]
IN_BALANCE = 1e-3 * ON_BOUND  # of a coefficient's gradient, relative to its bound
UNBALANCED = 1e-4  # sum of the rows' gradients, relative to their sizes, that is none
FARTHEST = 1e6  # times their size that linear predictors may move in a step
FIRST = 8  # rows that are looked at before all of them
SLOWEST = 0.05  # of a decrement that is left after a step with an old factor, which else is given up
STRAIGHT = 0.9  # decrease of a step, in decrements, from which nothing curves along it: a parabola has half


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
    scale = max(Fit.at_start(start.problem).objective, np.finfo(float).tiny)
    fit, step, enough = start, None, tol**2 * scale
    last = fresh = np.inf  # decrements of the last step, and of the last with a factor of its own
    max_steps = (1000 if fit.is_kinked else 100) if max_steps is None else max_steps
    for _ in range(max_steps):
        step = newton_step(fit, step, enough, tol * scale)
        before = fresh if step.is_fresh else last
        settled = step.decrement <= enough or step.decrement > 0.25 * before or _is_rounding(fit)
        done = step.holds and settled and step.is_fresh and _is_stationary(fit, step)
        if done and not _is_between_copies(fit, step, ROUNDING * scale):
            fit = fit.moved(fit.coef, fit.intercept)  # rows without weight may have been far away in between
            return Solution(fit, step.curvature)  # there, or as near as rounding lets us come
        if not np.isfinite(step.decrement):
            break
        if settled and not step.is_fresh:  # perhaps only the stale factor had come to its end
            step, last = None, np.inf
            continue
        if settled and (slid := _slide(fit, step)) is not None:
            fit, step, last, fresh = slid, None, np.inf, np.inf
            continue
        small = step.decrement <= 1e-9 * scale
        certain = step.holds and (small or fit.problem.loss.is_quadratic)  # that the next one is smaller
        moved, last = move(fit, step, small, ROUNDING * scale), step.decrement if certain else np.inf
        fresh = last if step.is_fresh else fresh
        if not small and fit.objective - moved.objective > STRAIGHT * step.decrement:
            slid = _slide(fit, step) if step.is_fresh else None
            moved, step = min(moved, slid or moved, key=lambda one: one.objective), None
            last = fresh = np.inf
        fit = moved
    raise SolverError(
        f"Newton's method did not settle in {max_steps} steps (objective "
        f"{fit.objective:.6g}): the problem may have no finite minimum, as with perfectly separable "
        "classes and no penalty, or leave the range of its loss; add a penalty"
    )


class _Step(NamedTuple):
    """A Newton step on a smooth piece."""

    orthant: Array  # signs to stay in, 0 where there is no kink
    tangent: Tangent
    bend: Array  # second derivatives of the rows
    curvature: Curvature
    gradient: Direction
    direction: Direction
    decrement: float
    holds: bool  # whether it stays on the pattern of the coefficients
    is_fresh: bool  # whether the curvature is that of the fit
    contracts: bool  # whether a factor from elsewhere still brings the next step close


def newton_step(
    fit: Fit, last: _Step | None = None, enough: float = TINY, near: float = 0.0, by: By = factor
) -> _Step:
    """Newton step on the piece of the current signs and of the coordinates that enter.

    Entering coordinates that the step would push out of their orthant at once are held at zero.  ``by`` makes
    the curvature of a piece where that of the ``last`` step does not serve.
    """
    penalty = fit.problem.separable
    orthant = _with_room(fit, penalty.orthant(fit.coef, fit.loss_gradient, slack=1e-9))
    while True:
        tangent = penalty.piece(fit.coef, orthant)
        curvature, is_fresh = _curvature(fit, tangent, last) or (by(fit, tangent), True)
        if not curvature.is_definite and (idle := _idle(fit, orthant)).any():
            orthant = np.where(idle, 0.0, orthant)
            continue
        gradient = Direction(
            np.where(tangent.support, fit.loss_gradient + tangent.gradient, 0.0),
            fit.intercept_gradient,
        )
        direction = Direction(*(-part for part in curvature.solve(gradient)))
        wrong = (fit.coef == 0) & (orthant != 0) & (np.sign(direction.coef) == -orthant)
        if not wrong.any():
            break
        orthant = np.where(wrong, 0.0, orthant)
    decrement = -direction.inner(fit.problem.X, gradient)
    if not 0 <= decrement < np.inf:  # not convex here, or straight: minus the gradient still descends
        direction = Direction(-gradient.coef, -gradient.intercept)
        decrement = gradient.inner(fit.problem.X, gradient)
    kinked = orthant != 0
    stays = np.sign(fit.coef + direction.coef)[kinked] == orthant[kinked]
    holds = bool(np.all(stays & (fit.coef != 0)[kinked]))
    contracts = decrement > near or not fit.problem.loss.is_smooth  # else this step ends at the optimum
    if not is_fresh:
        contracts = last is not None and _pays(fit, tangent, decrement, last.decrement, enough)
    bend = fit.hessian if is_fresh or last is None else last.bend
    how = holds, is_fresh, contracts
    return _Step(orthant, tangent, bend, curvature, gradient, direction, decrement, *how)


def _pays(fit: Fit, tangent: Tangent, decrement: float, before: float, enough: float) -> bool:
    """Whether steps with an old factor, by which decrements fall so, end sooner than two with their own.

    Where the next one ends it has a factor of its own, too: that is what is asked for there.  The first step
    with an old factor falls by the square of what the last one left, the others by twice that.
    """
    if not decrement < SLOWEST * before:
        return False
    (n, p), k, coupled = fit.problem.X.shape, max(1, tangent.size), fit.problem.n_coupled
    steps = np.ceil(np.log(max(decrement, TINY) / enough) / np.log(before / (4.0 * max(decrement, TINY))))
    each = cost.Work(4.0 * n * p * coupled + 2.0 * float(k) ** 2, cost.IN_A_SOLVER).seconds
    return bool(steps > 1.0 and steps * each <= 2.0 * (each + cost.newton_step(n, 0, k, coupled).seconds))


def _with_room(fit: Fit, orthant: Array) -> Array:
    """Let in only the largest violators where all together would leave K without full rank."""
    if not orthant.any():
        return orthant
    entering = np.flatnonzero((orthant != 0) & (fit.coef == 0))
    room = max(10, (fit.problem.n - int(np.count_nonzero(fit.coef))) // 2)
    if entering.size <= room:
        return orthant
    correlation = np.abs(fit.loss_gradient).ravel()[entering]
    allowed = orthant.ravel().copy()
    allowed[entering[np.argsort(-correlation)[room:]]] = 0.0
    return allowed.reshape(orthant.shape)


def _idle(fit: Fit, orthant: Array) -> Mask:
    """Entering coordinates that pull no more than those inside, which are not yet in balance either.

    Copies of columns inside are such: without them K may have full rank.
    """
    l1, _ = fit.strengths
    pull, inside = np.abs(fit.loss_gradient), (orthant != 0) & (fit.coef != 0)
    unbalanced = np.max(np.abs(pull - l1), where=inside, initial=0.0)
    return (orthant != 0) & (fit.coef == 0) & (pull - l1 <= unbalanced)


def _curvature(fit: Fit, tangent: Tangent, last: _Step | None) -> tuple[Curvature, bool] | None:
    """That of the last step while it serves (Shamanskii's chord method), and whether it is the fit's own.

    For a quadratic loss, and where second derivatives jump, it is the same as long as these and the pattern
    are: rows that come onto another piece pull back what a factor without them does.  Else it is taken over
    as long as it makes the decrement fall fast, since an old factor costs two products with X and no new one.
    """
    loss = fit.problem.loss
    if (
        last is not None
        and (last.contracts or loss.is_quadratic)
        and np.array_equal(last.tangent.support, tangent.support)
        and np.array_equal(last.tangent.hessian, tangent.hessian)
        and not (loss.jumps and not np.array_equal(last.bend, fit.hessian))
    ):
        return last.curvature, loss.is_quadratic or loss.jumps
    return None


def _is_stationary(fit: Fit, step: _Step) -> bool:
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
    if np.any(left > rounding * l1) and np.any(left > np.maximum(rounding * l1, _rounding(fit).coef)):
        return False
    return fit.problem.loss.is_quadratic or (
        is_short(fit, step.curvature.predict(step.direction)) and _is_balanced(fit, step)
    )


def _rounding(fit: Fit) -> Direction:
    """What rounding leaves of Xᵀ g and Σ g: all that is left beside strengths far smaller than the weights."""
    moved = _linalg.row_times(np.abs(fit.hessian), 1.0 + np.abs(fit.eta))
    sizes = rounding_of_slack(1.0) * (np.linalg.norm(fit.gradient, axis=0) + np.linalg.norm(moved, axis=0))
    columns = _linalg.column_lengths(fit.problem.X)
    of_columns = np.asarray(np.multiply.outer(columns, sizes)).reshape(fit.coef.shape)
    return Direction(of_columns, np.asarray(np.sqrt(fit.problem.n) * sizes))


def _is_balanced(fit: Fit, step: _Step) -> bool:
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


def is_short(fit: Fit, change: Array) -> bool:
    """Whether a Newton step hardly changes the linear predictors; with separable classes it always does.

    What all outputs change by together counts for nothing where no loss depends on it: there rounding,
    divided by a weak penalty, may take long steps.
    """
    if fit.problem.loss.ignores_shifts:
        change = change - change.mean(axis=1, keepdims=True)
    return bool(np.max(np.abs(change), initial=0.0) < 1e-6 * (1.0 + np.max(np.abs(fit.eta), initial=0.0)))


def move(fit: Fit, step: _Step, small: bool, rounding: float) -> Fit:
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


def _slide(fit: Fit, step: _Step) -> Fit | None:
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
    until = _until_zero(fit, step, down)
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
            if best is fit and length == limit and _is_as_low(moved, fit):
                best = moved  # a coefficient that is only rounding is done with
    return None if best is fit else best


def _is_as_low(moved: Fit, fit: Fit) -> bool:
    """Whether its objective is not above that of a fit, but for rounding."""
    return moved.objective <= fit.objective + ROUNDING * abs(fit.objective)


def _is_between_copies(fit: Fit, step: _Step, rounding: float) -> bool:
    """Whether the coefficient of a column had better go to one that is almost the same and pulls more.

    Between such columns K is singular but for rounding, and both may stay in the support with a gradient left
    that another row, or one row less, turns round.
    """
    kinked = step.orthant != 0
    l1, _ = fit.strengths
    if step.curvature.is_definite or np.all(np.abs(step.gradient.coef[kinked]) <= IN_BALANCE * l1[kinked]):
        return False
    slid = _slide(fit, step)
    return slid is not None and slid.objective < fit.objective - rounding


def _until_zero(fit: Fit, step: _Step, change: Array) -> Array:
    """Lengths of a change of the coefficients at which those with kinks are zero."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where((step.orthant != 0) & (fit.coef * change < 0), -fit.coef / change, np.inf)


def _unremoved(fit: Fit, step: _Step) -> Direction:
    """The part of the gradient that no step removes, but for rounding: it lies where K is singular."""
    removed, (coef, level) = _curved(fit, step, step.direction), _rounding(fit)
    left = step.gradient.coef + removed.coef, step.gradient.intercept + removed.intercept
    return Direction(
        np.where(np.abs(left[0]) > coef, left[0], 0.0), np.where(np.abs(left[1]) > level, left[1], 0.0)
    )


def _flattened(fit: Fit, step: _Step, down: Direction) -> Direction | None:
    """Less what K takes it for, d − K⁻ K d: nothing curves along it, and it goes down by d² as d does.

    Of columns that depend on each other one alone may have all that is left of the gradient, and all levels
    of a factor together are a constant: the others, or the intercept, make up for it.
    """
    X, taken = fit.problem.X, step.curvature.solve(_curved(fit, step, down))
    flat = Direction(down.coef - taken.coef, down.intercept - taken.intercept)
    return flat if -flat.inner(X, step.gradient) >= 0.5 * down.inner(X, down) else None


def _curved(fit: Fit, step: _Step, along: Direction) -> Direction:
    """K times a direction, of a step with a factor of its own."""
    coef, level = fit.problem.gradient_of(fit.bent(step.curvature.predict(along)))
    return Direction(np.where(step.tangent.support, coef + step.tangent.curve(along.coef), 0.0), level)


def _orthant_step(fit: Fit, step: _Step, change: Array, length: float = 1.0) -> Fit:
    """Move, and stop coordinates at zero instead of letting them cross it."""
    coef = fit.coef + length * step.direction.coef
    crossed = (step.orthant != 0) & (np.sign(coef) == -step.orthant)
    level = fit.intercept + length * step.direction.intercept
    if crossed.any():
        return fit.moved(np.where(crossed, 0.0, coef), level)
    return fit.moved(coef, level).known(eta=fit.eta + length * change)


def _line_search(fit: Fit, step: _Step, change: Array) -> Fit:
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
    until = _until_zero(fit, step, step.direction.coef)
    has_zero = np.isfinite(until.min(initial=np.inf))
    first = to_first_zero(fit, step.direction, until) if has_zero else fit
    return first if first.objective <= found.objective * (1.0 + ROUNDING) else found
