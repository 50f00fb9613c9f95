"""A Newton step on the smooth piece of a pattern: of the current signs and of the coordinates that enter."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from onefit import _linalg, cost
from onefit._typing import Array, Mask
from onefit.curvature import Curvature, Direction, factor
from onefit.fit import Fit
from onefit.numerics import TINY, rounding_of_slack
from onefit.penalties import Tangent

By: TypeAlias = Callable[[Fit, Tangent], Curvature]
SLOWEST = 0.05  # of a decrement that is left after a step with an old factor, which else is given up


class PatternStep(NamedTuple):
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
    fit: Fit, last: PatternStep | None = None, enough: float = TINY, near: float = 0.0, by: By = factor
) -> PatternStep:
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
    decrement = -direction.inner(fit.problem, gradient)
    if decrement < 0 and -decrement <= _rounding_along(fit, direction):
        decrement = 0.0
    if not 0 <= decrement < np.inf:  # not convex here, or straight: minus the gradient still descends
        direction = Direction(-gradient.coef, -gradient.intercept)
        decrement = gradient.inner(fit.problem, gradient)
    kinked = orthant != 0
    stays = np.sign(fit.coef + direction.coef)[kinked] == orthant[kinked]
    holds = bool(np.all(stays & (fit.coef != 0)[kinked]))
    contracts = decrement > near or not fit.problem.loss.is_smooth  # else this step ends at the optimum
    if not is_fresh:
        contracts = last is not None and _pays(fit, tangent, decrement, last.decrement, enough)
    bend = fit.hessian if is_fresh or last is None else last.bend
    how = holds, is_fresh, contracts
    return PatternStep(orthant, tangent, bend, curvature, gradient, direction, decrement, *how)


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


def _curvature(fit: Fit, tangent: Tangent, last: PatternStep | None) -> tuple[Curvature, bool] | None:
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


def rounding_of_gradient(fit: Fit) -> Direction:
    """What rounding leaves of Xᵀ g and Σ g: all that is left beside a penalty far weaker than the rows."""
    moved = _linalg.row_times(np.abs(fit.hessian), 1.0 + np.abs(fit.eta))
    sizes = rounding_of_slack(1.0) * (np.linalg.norm(fit.gradient, axis=0) + np.linalg.norm(moved, axis=0))
    X = fit.problem.X  # dual coordinates have the gradients of the rows themselves
    columns = _linalg.column_lengths(X) if _linalg.has_columns(X) else np.ones(X.shape[1])
    of_columns = np.asarray(np.multiply.outer(columns, sizes)).reshape(fit.coef.shape)
    return Direction(of_columns, np.asarray(np.sqrt(fit.problem.n) * sizes))


def _rounding_along(fit: Fit, direction: Direction) -> float:
    """The same of its product with a direction, whose parts make up for each other beside large columns."""
    coef, level = rounding_of_gradient(fit)
    return float(np.sum(coef * np.abs(direction.coef)) + np.sum(level * np.abs(direction.intercept)))
