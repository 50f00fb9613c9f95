"""Sequences of fits from the strongest to the weakest penalty, each started from the last."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from onefit import _linalg, cost
from onefit._linalg import Factorization
from onefit._typing import Array
from onefit.curvature import Curvature, OfFactor, factor
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.penalties import Box, Polyhedral, SeparablePenalty
from onefit.penalties.programs import DENSE
from onefit.penalties.separable import broadcast
from onefit.problem import Problem
from onefit.solvers import by_column, coordinate_descent, newton, on_pattern, quadratic_program, truncated
from onefit.solvers.active_set import ActiveSet
from onefit.solvers.far_columns import near_zero

FEWEST_OF_JUMPS = 5  # steps of Newton's method, which near the optimum do
STEPS_OF_JUMPS, MOST_OF_JUMPS = 20, 300  # of them: from there on another way is surer
HIGHEST = 3  # differences of fits that tell where the next one is
SWEEPS = 100, 1000  # at most, in each step that goes near


def newton_path(
    problems: Iterable[Problem], enough: Callable[[Fit], bool] | None = None
) -> Iterator[newton.Solution]:
    """Solve problems that differ in their penalty, by Newton's method on the pattern.

    ``enough`` says of which fits no more is asked than an objective known to a millionth.
    """
    return from_the_last(problems, _FromNeighbours(enough))


@dataclass
class _FromNeighbours:
    """Fits along a path, each by what served the last."""

    enough: Callable[[Fit], bool] | None
    by_average: bool = True  # whether the average curvature of the rows does
    serving: truncated.ServingFactor | None = None

    def __call__(self, start: Fit, last: Curvature | None) -> newton.Solution:
        own = self.serving = self._factor_for(start, last)
        at_hand = None if own is None else own.at(start)
        asked = _near(start, truncated.SHORT, self.enough)
        near = approached(start, at_hand, asked, by_average=self.by_average)
        self.by_average &= not near.is_spent
        if own is not None and own.curvature.is_factored:
            own.products.append(near.products)
        solution = _ended(start, near, self.enough, at_hand)
        if own is not None:
            solution = solution._replace(curvature=own.curvature.lend_to(solution.curvature))
        return solution

    def _factor_for(self, start: Fit, last: Curvature | None) -> truncated.ServingFactor | None:
        """The factor of a fit before while it pays; that of the last one, which may have to be made."""
        at_hand = last is not None and last.is_factored
        if self.serving is not None and not at_hand and self.serving.pays(truncated.Seconds.of(start)):
            return self.serving
        if last is None:  # the first: its own, where it starts
            return None if start.is_kinked else truncated.ServingFactor(factor(start))
        return truncated.ServingFactor(last.without_loan)


def from_the_last(
    problems: Iterable[Problem], solve: Callable[[Fit, Curvature | None], newton.Solution]
) -> Iterator[newton.Solution]:
    """Solve problems that differ in their penalty, each from the solution of the last and its curvature."""
    last: newton.Solution | None = None
    moves = Moves()
    for problem in problems:
        start = Fit.at_start(problem) if last is None else moves.ahead(problem)
        last = solve(start, None if last is None else last.curvature)
        moves.take(last.fit)
        yield last


@dataclass
class Moves:
    """How fits move along a path: the last one, its difference to the one before, and differences of these.

    Attributes
    ----------
    differences : list of (coef, intercept, eta)
    """

    differences: list[tuple[Array, Array, Array]] = field(default_factory=list)

    def take(self, fit: Fit) -> None:
        """Take in the next fit."""
        new = [(fit.coef, fit.intercept, fit.eta)]
        if fit.is_smooth:
            for before in self.differences[:HIGHEST]:
                (coef, level, eta), (own, levels, etas) = new[-1], before
                new.append((coef - own, level - levels, eta - etas))
        self.differences = new

    def ahead(self, problem: Problem) -> Fit:
        """Where the next fit is, about: by more and more differences, while the objective falls with them.

        Between strengths of the same ratio smooth fits move by about the same, and change how they do.
        """
        coef, level, eta = self.differences[0]
        found = Fit(problem, coef, level).known(eta=eta)
        with np.errstate(over="ignore", invalid="ignore"):
            for move in self.differences[1:]:
                coef, level, eta = coef + move[0], level + move[1], eta + move[2]
                farther = Fit(problem, coef, level).known(eta=eta)
                if not farther.objective < found.objective:
                    break
                found = farther
        return found


def solved(
    start: Fit,
    last: Curvature | None = None,
    near: float = truncated.NEAR,
    enough: Callable[[Fit], bool] | None = None,
) -> newton.Solution:
    """Minimise by Newton's method; K is factored only when somebody asks, where steps without do.

    Parameters
    ----------
    start : Fit
    last : Curvature, optional
        Of a problem like this one.
    near : float
        Of steps without a factor, as ``truncated.approach`` takes it.
    enough : callable, optional
        Whether a fit near the optimum will do.
    """
    return _ended(start, approached(start, last, _near(start, near, enough)), enough, last)


def _near(start: Fit, near: float, enough: Callable[[Fit], bool] | None) -> float:
    """How near to the optimum steps without a factor go."""
    return near if enough is None or not enough(start) else truncated.ROUGH


def _ended(
    start: Fit,
    near: truncated.Approach,
    enough: Callable[[Fit], bool] | None,
    last: Curvature | None,
) -> newton.Solution:
    """End at the optimum by Newton's method, where steps have not led there."""
    fit, swept = near.fit, coordinate_descent.applies(start)
    if near.is_there or (swept and enough is not None and enough(fit)):
        return newton.Solution.of(fit)
    if on_pattern.serves(last, fit):
        fit = on_pattern.approach(fit, last, truncated.NEAR).fit
    return newton.solve(fit) if fit.problem.loss.is_smooth else _across_jumps(fit)


def _across_jumps(start: Fit) -> newton.Solution:
    """Minimise where second derivatives jump, by Newton's method while it settles soon.

    Where it goes from one pattern of rows and columns to the next, coordinate descent finds the columns for
    each pattern of rows, and Newton's method ends there.  Where that does not help, or the strengths make no
    weighted lasso, there are many steps, or a quadratic program where that takes less or these do not settle.
    """
    fit, by_program = start, _seconds_of_program(start) / _seconds_of_a_step(start)
    steps = int(np.clip(by_program, FEWEST_OF_JUMPS, STEPS_OF_JUMPS))
    has_columns_to_find = coordinate_descent.leads_near(start)
    for sweeps in SWEEPS if has_columns_to_find else ():
        with suppress(SolverError):
            return newton.solve(fit, max_steps=steps)
        if by_program < 2 * STEPS_OF_JUMPS:  # to go near, and to end there
            break
        fit = coordinate_descent.approach(fit, sweeps)
    if by_program == np.inf:
        return newton.solve(fit)
    if by_program > MOST_OF_JUMPS or not has_columns_to_find:
        with suppress(SolverError):
            return newton.solve(fit, max_steps=MOST_OF_JUMPS)
    return newton.Solution.of(near_zero(fit, quadratic_program.solve))


def _seconds_of_a_step(start: Fit) -> float:
    n, p = start.problem.X.shape
    step = cost.newton_step(n, p, p)
    return step._replace(calls=step.calls + cost.IN_A_SOLVER).seconds


def _seconds_of_program(start: Fit) -> float:
    """About what a quadratic program takes; infinite where it cannot hold rows and penalty densely."""
    X, rest = start.problem.X, start.problem.penalty.without_ridge()
    small = _linalg.has_columns(X) and X.shape[0] * max(X.shape) <= DENSE
    possible = small and start.problem.has_one_output and isinstance(rest, Polyhedral)
    return quadratic_program.work(*X.shape).seconds if possible else np.inf


def approached(
    start: Fit, last: Curvature | None = None, near: float = truncated.NEAR, *, by_average: bool = True
) -> truncated.Approach:
    """Go near the optimum, where getting there without factors of one's own is cheaper.

    Parameters
    ----------
    start : Fit
    last : Curvature, optional
        Of a problem like this one.
    near : float
        Of steps without a factor, as ``truncated.approach`` takes it.
    by_average : bool, default True
        Whether the average curvature of the rows may serve.
    """
    if coordinate_descent.applies(start):
        to_pattern = on_pattern.serves(last, start)  # which goes on from there
        return truncated.Approach(coordinate_descent.approach(start, to_pattern=to_pattern), False)
    found = truncated.Approach(start, False)
    if by_average and (most := truncated.most_products_by_average(start, last)):
        found = truncated.approach(start, truncated.WithoutFactor(start), near, most)
    approximately = None if found.is_there else truncated.preconditioner(found.fit, last)
    if approximately is None:
        return found
    return truncated.approach(found.fit, approximately, near)._replace(is_spent=found.is_spent)


@dataclass(frozen=True)
class ActiveSetCurvature(OfFactor):
    """The curvature that an active set keeps up to date along a path; valid until the set moves on."""

    active: ActiveSet

    @cached_property
    def _means(self) -> Array | None:
        return self.active.means if self.intercept else None

    @cached_property
    def _factored(self) -> Factorization:
        L = np.asfortranarray(self.active.factor.upper.T)
        return Factorization(L, True, _linalg.condition(L))

    def quadratic_forms(self) -> Array:
        return self.active.quadratic_forms()


class LeastSquaresPath:
    """Least-squares problems that differ in their penalty, solved one after the other.

    Exactly, by active sets or by column, but where ``enough`` says that no more is asked of a fit than
    coordinate descent leaves.
    """

    def __init__(self, start: Fit | None = None, enough: Callable[[Fit], bool] | None = None) -> None:
        self._active: ActiveSet | None = None
        self._columns: by_column.SomeColumns | None = None
        self._last, self._enough = start, enough

    def next(self, problem: Problem) -> newton.Solution:
        """The solution of one more, from the last; its curvature is valid until the next is asked for."""
        last = self._last
        start = last and Fit(problem, last.coef, last.intercept)
        by_columns = self._by_column(start) if start is not None and by_column.pays(start) else None
        if by_columns is not None:
            self._last = by_columns
            return newton.Solution.of(by_columns)
        return self._by_active_set(problem)

    def _by_column(self, start: Fit) -> Fit | None:
        if self._columns is None:
            self._columns = by_column.SomeColumns.of(start.problem.X)
        if self._enough is None:
            return by_column.solve(start, self._columns)
        near = by_column.approach(start, coordinate_descent.is_near, self._columns)
        return near if near is None or self._enough(near) else by_column.solve(near, self._columns)

    def _by_active_set(self, problem: Problem) -> newton.Solution:
        intercept = bool(problem.intercept)
        if self._active is None:
            rows = problem.X, problem.y, problem.weights
            nonnegative = not isinstance(problem.penalty, SeparablePenalty)
            self._active = ActiveSet(*rows, fit_intercept=intercept, nonnegative=nonnegative)
            if self._last is not None:
                self._active.start_at(self._last.coef, _strengths(problem)[0])
        active = self._active
        l1, l2 = _strengths(problem)
        fixed = np.isinf(l2)  # at zero, by either strength
        is_there = active.solve(np.where(fixed, np.inf, l1), np.where(fixed, 0.0, l2))
        self._last = Fit(problem, active.coef, np.asarray(active.intercept)).known(eta=active.eta)
        if not is_there and (found := self._by_newton(active, self._last)) is not None:
            return found
        X, own = problem.X, active.support.copy()
        curved = (X, own, X.shape[1], l2[own], problem.weights, intercept)
        return newton.Solution(self._last, ActiveSetCurvature(*curved, active))

    def _by_newton(self, active: ActiveSet, fit: Fit) -> newton.Solution | None:
        """The optimum from where rounding stopped the active set, which begins anew then."""
        with suppress(SolverError):
            if isinstance(fit.problem.penalty, SeparablePenalty):
                found = newton.solve(fit)
                self._active, self._last = None, found.fit
                return found
        active.warn()
        return None


class ApartPath:
    """The same of several outputs that nothing ties together, each on a path of its own, all exactly."""

    def __init__(self, start: Fit | None = None) -> None:
        self._start = start
        self._paths: list[LeastSquaresPath] = []

    def next(self, problem: Problem) -> newton.Solution:
        """The solution of one more, from the last."""
        if not self._paths:
            starts = [None] * problem.n_outputs if self._start is None else self._start.apart
            self._paths = [LeastSquaresPath(own if own and np.any(own.coef) else None) for own in starts]
        fits = [path.next(problem.of_output(k)).fit for k, path in enumerate(self._paths)]
        coef, eta = (np.stack(own, axis=1) for own in ([fit.coef for fit in fits], [fit.eta for fit in fits]))
        levels = np.array([float(fit.intercept) for fit in fits])
        return newton.Solution.of(Fit(problem, coef, levels).known(eta=eta))


def are_apart_squares(fit: Fit) -> bool:
    """Whether the problem is several lassos or elastic nets that nothing ties together."""
    return fit.problem.is_apart and fit.problem.loss.is_quadratic and fit.is_kinked


def _strengths(problem: Problem) -> tuple[Array, Array]:
    """Those of the ℓ1 and the ℓ2 part of every column, signed or not."""
    shape, bounded = (problem.X.shape[1],), problem.penalty.without_ridge()
    if isinstance(bounded, Box):
        return broadcast(bounded.l1, shape), problem.penalty.ridge(shape)
    return problem.separable.strengths(shape)


def goes_through(fit: Fit) -> bool:
    """Whether a path goes on from a fit of least squares with kinks through all strengths.

    From one to the next little changes, and no strength takes long, but where columns move one at a time.
    """
    return fit.problem.loss.is_quadratic and fit.is_kinked and not by_column.pays(fit)


def are_nonnegative_squares(problem: Problem) -> bool:
    """Whether a problem is one of least squares with coefficients not below zero.

    And whether all columns may be held densely, with their products.
    """
    bounded, (n, p) = problem.penalty.without_ridge(), problem.X.shape
    squares = problem.loss.is_quadratic and not problem.loss.is_kinked and problem.has_one_output
    if not squares or not isinstance(bounded, Box) or not _linalg.has_columns(problem.X):
        return False
    lower, upper = bounded.bounds((p,))
    return bool(max(n, p) * p <= DENSE and np.all((lower == 0) & (upper == np.inf)))


def least_squares_path(
    problems: Iterable[Problem], enough: Callable[[Fit], bool] | None = None
) -> Iterator[newton.Solution]:
    """Solve least-squares problems of one output that differ in their penalty: by active sets, or by column.

    ``enough`` says of which fits no more is asked than coordinate descent leaves; others are exact.
    """
    return map(LeastSquaresPath(enough=enough).next, problems)
