"""The chooser: which solver a problem goes to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, tee
from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit.curvature import Curvature
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.penalties import AnalysisPenalty, Polyhedral, SeparablePenalty, Slope
from onefit.problem import Problem
from onefit.solvers import curved_program, kinks, manifold, quadratic_program, sorted_faces
from onefit.solvers.far_columns import near_zero
from onefit.solvers.lasso_coordinates import LassoCoordinates
from onefit.solvers.newton import Solution
from onefit.solvers.path import (
    ApartPath,
    LeastSquaresPath,
    are_apart_squares,
    are_nonnegative_squares,
    from_the_last,
    least_squares_path,
    newton_path,
    solved,
)
from onefit.solvers.stationary import is_stationary
from onefit.solvers.units import of_weights


class SelfSolved(ABC):
    """A loss whose problems have a solver of their own."""

    @abstractmethod
    def minimise(self, start: Fit) -> Solution:
        """Minimise the objective of ``start.problem``."""


def solve(start: Fit, last: Curvature | None = None, enough: Callable[[Fit], bool] | None = None) -> Solution:
    """Minimise the objective of ``start.problem`` to machine precision.

    The curvature of a problem like this one, if there is a ``last``, serves penalties on single coefficients.
    ``enough`` says of which of these fits no more is asked than an objective known to a millionth.

    * Losses of straight pieces: an active-set method on the dual where the penalty is ridge, a quadratic
      program where it is polyhedral, and a sequence of quadratic programs on its smooth piece for any other.
    * Losses of curved pieces with kinks: a sequence of quadratic programs that keep the kinks.
    * Penalties on single coefficients: Newton's method on the pattern of ``start``; least squares with an ℓ1
      part go to the exact active-set method when ``start`` has no pattern yet, or turns out to be far away,
      as does each of several outputs that nothing ties together, and losses whose second derivatives jump
      to coordinate descent when the steps do not settle soon, and to
      a quadratic program when they never do.
    * The generalised lasso: the same in lasso coordinates, or a quadratic program where D has dependent rows.
    * Others: Newton steps on the active manifold, or an exact program, where these lead nowhere.

    Raises
    ------
    SolverError
        If the problem has no finite minimum.
    """
    problem = start.problem
    if isinstance(problem.loss, SelfSolved):
        return problem.loss.minimise(start)
    if not problem.loss.has_kinks:
        if isinstance(problem.penalty, SeparablePenalty):
            return _solve_separable(start, last, enough)
        coordinates = LassoCoordinates.of(problem)
        if coordinates is not None:
            return coordinates.solution(problem, _solve_separable(coordinates.restate(start)))
    return Solution.of(near_zero(start, _minimised))


def _minimised(start: Fit) -> Fit:
    """The minimum where curvature alone does not tell it."""
    if start.problem.loss.has_kinks:
        return of_weights(start, _solve_with_kinks)
    penalty = start.problem.penalty.without_ridge()
    if isinstance(penalty, AnalysisPenalty):
        return quadratic_program.solve(start)
    if are_nonnegative_squares(start.problem):
        found = LeastSquaresPath(start).next(start.problem).fit
        if is_stationary(found):
            return found
    return (_by_steps_or_faces if isinstance(penalty, Polyhedral) else _by_steps_or_cones)(start)


def _by_steps_or_faces(start: Fit) -> Fit:
    """Newton steps on the manifold, and an exact program from where they lead."""
    near = manifold.approach(start)
    if near.is_there and not is_stationary(near.fit):
        near = manifold.approach(near.fit, beside=near.fit)
    if near.is_there and is_stationary(near.fit):
        return near.fit
    exact = sorted_faces if isinstance(start.problem.penalty.without_ridge(), Slope) else quadratic_program
    return exact.solve(near.fit)


def _by_steps_or_cones(start: Fit) -> Fit:
    """Newton steps on the manifold, and a conic program where they lead nowhere and there is one."""
    try:
        return manifold.solve(start).fit
    except SolverError as jammed:
        if not curved_program.applies(start.problem):
            raise
        try:
            return curved_program.solve(start)
        except ImportError as missing:
            raise SolverError(f"{jammed}; {missing}") from missing


def _solve_with_kinks(start: Fit) -> Fit:
    penalty = start.problem.penalty
    if penalty.is_ridge(start.coef.shape) and start.problem.loss.is_kinked:
        return kinks.solve(start)
    if not _linalg.has_columns(start.problem.X):
        raise TypeError("a kernel model has no coefficients of its own to penalise one by one: give it L2")
    if isinstance(penalty.without_ridge(), Polyhedral):
        return quadratic_program.solve(start)
    if not start.problem.loss.is_kinked:
        raise TypeError(
            f"{type(start.problem.loss).__name__} with a part that has kinks takes ridge and polyhedral "
            f"penalties (L1, FusedLasso, Slope, Box ...), not {type(penalty).__name__}: take SmoothedHinge() "
            "or Huber() for that part, or write the model in cvxpy and read it with onefit.from_cvxpy"
        )
    return curved_program.solve(start)


def _solve_separable(
    start: Fit, last: Curvature | None = None, enough: Callable[[Fit], bool] | None = None
) -> Solution:
    if are_apart_squares(start):
        return ApartPath(start).next(start.problem)
    if not start.problem.loss.is_quadratic or not start.problem.has_one_output or not start.is_kinked:
        return solved(start, last, enough=enough)
    return LeastSquaresPath(start if np.any(start.coef) else None, enough).next(start.problem)


def solve_path(
    problems: Iterable[Problem], enough: Callable[[Fit], bool] | None = None
) -> Iterator[Solution]:
    """Solve problems that differ in their penalty, each from the last.

    A solution's curvature is valid until the next one is asked for.  ``enough`` says of which fits no
    more is asked than an objective known to a millionth.
    """
    problems = iter(problems)
    first = next(problems)
    coordinates, problems = LassoCoordinates.of(first), chain([first], problems)
    stacked = coordinates is not None and coordinates.is_stacked  # rows that belong to one strength
    if coordinates is not None and not stacked and not first.loss.has_kinks:
        return _path_in_lasso_coordinates(coordinates, problems)
    if first.loss.has_kinks or not isinstance(first.penalty, SeparablePenalty):
        return from_the_last(problems, lambda start, _: solve(start))
    if are_apart_squares(Fit.at_start(first)):
        return map(ApartPath().next, problems)
    of_one = first.loss.is_quadratic and first.has_one_output
    return (least_squares_path if of_one else newton_path)(problems, enough)


def _path_in_lasso_coordinates(
    coordinates: LassoCoordinates, problems: Iterable[Problem]
) -> Iterator[Solution]:
    own, restated = tee(problems)  # the next strength may depend on what came of the last
    follow = least_squares_path if coordinates.problem.loss.is_quadratic else newton_path
    found = follow(coordinates.restated(problem) for problem in restated)
    for problem, solution in zip(own, found, strict=True):
        yield coordinates.solution(problem, solution)


class Polished(NamedTuple):
    """A solution and how far the coefficients that were given are from it.

    Attributes
    ----------
    solution : Solution
    missed : float
        Share of the achievable decrease of the objective, from the constant model to the optimum (taken
        as at least a tenth of the former), that the given coefficients miss.
    moved : float
        ‖Δβ‖ / ‖β‖.
    achievable : float
        The achievable decrease itself.
    """

    solution: Solution
    missed: float
    moved: float
    achievable: float


def polish(fit: Fit) -> Polished:
    """Solve to machine precision from ``fit``, or from the constant model where that is better.

    Another solver may have ended where it began, from where Newton's method finds no way either.
    """
    constant = Fit.at_start(fit.problem)
    solution = solve(fit if fit.objective <= constant.objective else constant)
    start, best = constant.objective, solution.fit.objective
    achievable = max(start - best, 0.1 * abs(start), np.finfo(float).tiny)
    excess = max(fit.objective - best, 0.0) if np.isfinite(fit.objective) else np.inf
    size = max(float(np.linalg.norm(solution.fit.coef)), np.finfo(float).tiny)
    moved = float(np.linalg.norm(solution.fit.coef - fit.coef)) / size
    return Polished(solution, excess / achievable, moved, achievable)
