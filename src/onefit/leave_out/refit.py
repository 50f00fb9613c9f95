"""Left-out values by solving the problem without the rows, and a check that it is solved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from joblib import Parallel, delayed

from onefit import _linalg, cost
from onefit._typing import Array, Index
from onefit.cost import Work
from onefit.curvature import Curvature, Direction
from onefit.exceptions import SolverError
from onefit.fit import Fit, once
from onefit.leave_out import batched
from onefit.leave_out.loose import open_faces, with_middle_intercept
from onefit.leave_out.prove import bound_at, rounding_of_predictors
from onefit.leave_out.result import LeftOut, SolvedWithoutSet
from onefit.penalties import SeparablePenalty
from onefit.solvers import on_pattern
from onefit.solvers.newton import Solution
from onefit.solvers.solve import solve

Progress: TypeAlias = Callable[[int, int], None]  # how many are done, of how many

# Times as long as columns that come and go once, where the support is as large as the sample: rows go round,
# hardly below nine tenths of it (60 to 400 rows, 200 to 3000 columns).
GOING_ROUND, GOING_ROUND_CURVED, NEAR_THE_SAMPLE = 25.0, 7.0, 30.0
PATTERNS_OF_OUTPUTS = 3.0  # times as long alone, where outputs are coupled (150 to 1000 rows, 3 to 8 classes)
EXCHANGES = 200.0  # calls that a solver makes in which rows or columns change places one by one
# The same in which rows come onto kinks of the loss and leave them, where a linear program may be begun with;
# multiplications for each pair of rows of a kernel, and of such a program for each number and row or column
# (100 to 2000 rows, 10 to 400 columns).
IN_KINKS, OF_A_KERNEL, OF_A_PROGRAM = 1e4, 200.0, 15.0


def solution_without(
    fit: Fit,
    rows: int | Index,
    *,
    warm: bool = True,
    start: Direction | None = None,
    curvature: Curvature | None = None,
) -> Solution:
    """Refit without a row, or a set of them.

    It starts from ``start``, or else from the fit; where a direction has no penalty it starts from the
    constant model, so that what the other rows do not determine is zero.  Should no minimum be found from
    there it starts from the fit after all, and the minimum found must be the only one.  The ``curvature`` of
    the fit may serve on the way.
    """
    left = fit.problem.without(rows)
    if not warm:
        return solve(Fit.at_start(left))
    if not fit.has_free_directions:
        here = replace(fit, problem=left)
        there = here if start is None else Fit(left, *start)
        return solve(there if there.objective <= here.objective else here, curvature)
    try:
        return solve(Fit.at_start(left))
    except SolverError:
        found = solve(replace(fit, problem=left))
        if not found.curvature.is_definite:
            raise
        return found


@once
def refit_cost(fit: Fit) -> Work:
    """What a refit takes, about."""
    alone, together = _cost_alone(fit), batched.cost(fit) if batched.applies(fit) else None
    one = alone if together is None else min(alone, together, key=lambda work: work.seconds)
    if not fit.is_kinked or fit.problem.loss.is_kinked:
        return one
    going_round = GOING_ROUND if fit.problem.loss.is_quadratic else GOING_ROUND_CURVED
    return one.times(1.0 + going_round * fit.saturation**NEAR_THE_SAMPLE)


def _cost_alone(fit: Fit) -> Work:
    """What a problem that is solved alone takes, about."""
    n, p = fit.problem.X.shape
    if fit.problem.loss.is_kinked:
        return _cost_in_kinks(fit)
    k = max(1, fit.tangent.size)
    quadratic = fit.problem.loss.is_quadratic and not fit.is_kinked
    one = cost.fit(n, p, k, fit.problem.n_coupled, quadratic=quadratic)
    if on_pattern.pays(fit):  # and one factor, where it ends
        by_neighbour = on_pattern.cost_of_steps(fit).plus(cost.newton_step(n, p, k, fit.problem.n_coupled))
        one = min(one, by_neighbour, key=lambda work: work.seconds)
    if fit.is_kinked and fit.problem.is_coupled:
        one = one.times(PATTERNS_OF_OUTPUTS)
    alone = isinstance(fit.problem.penalty, SeparablePenalty)
    exchanging = fit.is_kinked and not alone
    if fit.is_kinked and alone and fit.problem.loss.is_quadratic:  # columns come and go one by one, too
        pivots = cost.pivots_of_a_row(n, k)
        changes = Work(pivots * (4.0 * n * p + 2.0 * k * k), pivots * EXCHANGES)
        one = one.plus(changes)
    return one._replace(calls=one.calls + 100.0 + EXCHANGES * exchanging)


def _cost_in_kinks(fit: Fit) -> Work:
    """The same of a loss with kinks: steps with a factor of the rows on these, all of which may change."""
    (n, p), penalty = fit.problem.X.shape, fit.problem.penalty
    on_kinks = max(1, min(fit.tangent.size, int(np.count_nonzero(fit.pinned))))
    one = cost.fit(n, p, on_kinks, quadratic=False).plus(Work(0.0, IN_KINKS))
    if not _linalg.has_columns(fit.problem.X):
        return one.plus(Work(OF_A_KERNEL * float(n) ** 2))
    if penalty.is_ridge(fit.coef.shape):
        return one
    return one.plus(Work(OF_A_PROGRAM * float(n) * p * (n + p)))


def refit_sets(
    fit: Fit,
    removed: Mapping[int, Index],
    judged: Mapping[int, Index],
    starts: Mapping[int, Direction] | None = None,
    progress: Progress | None = None,
    curvature: Curvature | None = None,
) -> dict[int, SolvedWithoutSet]:
    """Refits without each of some sets, by their numbers; the curvature of the fit may serve on the way.

    A set without which the problem has no minimum is left out of the answer.  Refits run in parallel where
    ``joblib.parallel_config`` asks for it.
    """
    starts = {} if starts is None else starts
    removed = _with_minimum(fit, removed)
    found = _solve_together(fit, removed, judged, starts)
    if progress is not None:
        for done in range(len(found)):
            progress(done + 1, len(removed))
    rest = [k for k in removed if k not in found]
    tasks = (delayed(_solve)(fit, removed[k], judged[k], starts.get(k), curvature) for k in rest)
    with closing(Parallel(return_as="generator")(tasks)) as refits:
        for done, (k, one) in enumerate(zip(rest, refits, strict=True), start=len(removed) - len(rest) + 1):
            if one is not None:
                found[k] = one
            if progress is not None:
                progress(done, len(removed))
    return found


def _with_minimum(fit: Fit, removed: Mapping[int, Index]) -> dict[int, Index]:
    """Those sets without which an intercept has a finite optimum: not without all rows of a class."""
    problem, sets = fit.problem, list(removed.values())
    if not sets or not np.any(problem.intercept):
        return dict(removed)
    attained = problem.attains_levels(problem.weights_without(sets))
    return {k: rows for (k, rows), attains in zip(removed.items(), attained, strict=True) if attains}


def _solve_together(
    fit: Fit, removed: Mapping[int, Index], judged: Mapping[int, Index], starts: Mapping[int, Direction]
) -> dict[int, SolvedWithoutSet]:
    """Those that are solved all at once, where that is quicker than one by one."""
    if not removed or not batched.applies(fit) or batched.cost(fit).seconds >= _cost_alone(fit).seconds:
        return {}
    ends = batched.solve_without(fit, list(removed.values()), [starts.get(k) for k in removed])
    return {k: end.of_rows(judged[k]) for k, end in zip(removed, ends, strict=True) if end is not None}


def _solve(
    fit: Fit, removed: Index, judged: Index, start: Direction | None, curvature: Curvature | None
) -> SolvedWithoutSet | None:
    found = None
    for solution in _solutions_from(fit, removed, start, curvature):
        found = judged_at(solution, judged)
        if np.isfinite(found.bounds).all():
            break
    return found


def without_nothing(found: LeftOut, rows: Index) -> tuple[LeftOut, Array]:
    """Values and bounds of rows whose refit is the fit: of several optima a refit takes its own."""
    fit = found.fit
    if not rows.size or not fit.problem.loss.is_kinked:
        return found, np.full(len(rows), rounding_of_predictors(fit))
    anew, eta = judged_at(Solution.of(fit), rows), found.eta.copy()
    eta[rows] = anew.eta
    return replace(found, eta=eta), anew.bounds


def judged_at(solution: Solution, judged: Index) -> SolvedWithoutSet:
    """Predictors of some rows where a solver came to, and how far they may be off."""
    refit, room = with_middle_intercept(solution.fit)
    faces = open_faces(refit, is_definite=solution.curvature.is_definite)
    if room == 0.0:  # the model's own solver takes the middle
        faces = [one for one in faces if not one.is_of_intercept]
    bounds = bound_at(solution._replace(fit=refit), judged, faces, room)
    return SolvedWithoutSet(refit.eta[judged], bounds, refit.coef, refit.intercept, bool(room or faces))


def _solutions_from(
    fit: Fit, removed: Index, start: Direction | None, curvature: Curvature | None
) -> Iterator[Solution]:
    """Refits from a start that is thought to be near, from the fit, and from the constant model.

    Where a direction has no penalty all of them start there.
    """
    attempts: list[dict[str, Any]] = [{"start": start}, {"start": None}, {"warm": False}]
    first = int(start is None)
    for attempt in attempts[first : first + 1 if fit.has_free_directions else None]:
        with suppress(SolverError):
            yield solution_without(fit, removed, curvature=curvature, **attempt)
