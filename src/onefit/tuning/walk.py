"""The walk along a path of strengths, from the strongest penalty on, which judges each while it is solved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from onefit import _linalg
from onefit.curvature import Curvature
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.leave_out.leads import Leads
from onefit.leave_out.loose import with_middle_intercept
from onefit.problem import Problem
from onefit.solvers.newton import Solution
from onefit.solvers.solve import solve, solve_path
from onefit.tuning.contest import OUT_OF_REACH
from onefit.tuning.grid import APART, Grid
from onefit.tuning.looks import Looks
from onefit.tuning.path import SearchResult, of_verdicts
from onefit.tuning.path_end import PathEnd
from onefit.tuning.paths_without import PathsWithout
from onefit.tuning.sample import Verdict, beside, halfway, judged
from onefit.tuning.seen_path import SeenPath
from onefit.tuning.selection import Selection

NUMBERS = 10  # that are known of a row, about


def search_path(
    grid: Grid,
    problem_at: Callable[[float], Problem],
    looks: Looks,
    *,
    selection: Selection = "min",
    early_stopping: bool = True,
) -> SearchResult:
    """Solve problems along a path and judge each by what leaves it out, as well as that costs little.

    Where steps from the fit tell little, since rows change its pattern as they leave, some strengths are
    judged by a sample of rows, three or so a decade, and those between them by their neighbours.

    Parameters
    ----------
    grid : Grid
        From the strongest penalty to the weakest, and on at either end while the risk falls there.
    problem_at : callable
        The problem at a strength.
    looks : Looks
        How left-out predictors are judged.
    selection : "bagged_se", "bagged", "min" or "1se"
        How the strength is chosen: ``tuning.selection``.
    early_stopping : bool, default True
        Stop once the risk is clearly past its minimum: at least 5 strengths or a decade beyond the best so
        far, and worse than it by two standard errors of the paired difference, with more strengths to come
        than that and a cost that is worth saving.  And pass over strengths between those that are ``apart``
        by what the grid says, but for those beside the smallest risk.
    """
    grid = grid if early_stopping else replace(grid, apart=0.0)
    walk = Walk(grid, looks, problem_at, selection)
    walk.go_down(early_stopping=early_stopping)
    walk.go_up()
    walk.look_beside()
    seen = walk.seen
    known = of_verdicts(
        np.array(seen.strengths), seen.verdicts, looks.judgement, *seen.coefficients, selection
    )
    return replace(known, solved=walk.kept.at(seen.fits), last=walk.kept.last)


def _has_own_factor(fit: Fit) -> bool:
    """Whether the curvature of a solution is its own: others are valid until the path goes on."""
    return fit.is_smooth and not fit.problem.loss.is_quadratic


def _in_the_middle(solution: Solution) -> Solution:
    """Of several intercepts that are as good the middle one, which rounding does not choose."""
    fit, room = with_middle_intercept(solution.fit)
    return solution if room is None else Solution.of(fit)


@dataclass
class KeptSolutions:
    """Solutions whose factors serve again: of the smallest risk, and all that are small beside the rows.

    Attributes
    ----------
    strengths : int
        Of the grid: those that are small fill a block together, or as much as the rows do.
    last : Curvature, optional
        Of the last solution, by which others are soon found.
    """

    strengths: int
    lowest: Solution | None = None
    small: list[Solution] = field(default_factory=list)
    last: Curvature | None = None

    def keep(self, solution: Solution, *, is_lowest: bool) -> None:
        """Keep a solution, if it may be."""
        fit, own = solution.fit, _has_own_factor(solution.fit)
        if is_lowest:
            self.lowest = solution if own else None
        n, p = fit.problem.X.shape
        size = min(n * fit.problem.n_coupled, fit.tangent.size)
        if own and self.is_small(size**2, n * p):
            self.small.append(solution)

    def is_small(self, numbers: int, stored: int = 0) -> bool:
        """Whether so many numbers may be kept of every strength, beside so many that are stored anyway."""
        return numbers * self.strengths <= max(_linalg.BLOCK_SIZE, stored)

    def at(self, fits: list[Fit | None]) -> dict[int, Solution]:
        """Those of some fits, by place."""
        kept = {id(one.fit): one for one in (*self.small, self.lowest) if one is not None}
        return {j: kept[id(fit)] for j, fit in enumerate(fits) if id(fit) in kept}


@dataclass(eq=False)
class Walk:
    """The way along a path: which strengths are visited, and by what each is judged."""

    grid: Grid
    looks: Looks
    problem_at: Callable[[float], Problem]
    selection: Selection = "min"
    leads: Leads | None = None  # of rows that were solved without themselves

    @cached_property
    def seen(self) -> SeenPath:
        """What was found so far."""
        return SeenPath(self.looks, selection=self.selection)

    @cached_property
    def end(self) -> PathEnd:
        """Whether that is enough."""
        return PathEnd(self.grid, self.seen, self._judge_bracketed)

    @cached_property
    def kept(self) -> KeptSolutions:
        """Solutions from which others may go on."""
        return KeptSolutions(len(self.grid.values))

    @cached_property
    def _without(self) -> PathsWithout:
        """Paths without each of the sets that are judged."""
        return PathsWithout(self.looks.judgement)

    # --- to weaker strengths -----------------------------------------------------------------------------

    def go_down(self, *, early_stopping: bool = True) -> None:
        """Go to the end of the grid, on while the risk falls; or stop past its minimum."""
        with self._or_end():
            for solution in map(_in_the_middle, solve_path(self._problems(), self.looks.asks_little)):
                self._take(solution)
                if self.end.is_past_minimum() and early_stopping:
                    break
        while self.seen.verdicts[-1] is None:  # the last that was visited is judged, whatever others say
            last = self.seen.fits[-1]
            if last is None:
                self.seen.drop()
                continue
            with self._or_end():
                self.seen.learn(len(self.seen.fits) - 1, self._first(solve(last)))
        self._judge_what_is_open()

    @contextmanager
    def _or_end(self) -> Iterator[None]:
        """A path ends before a strength that has no solution if nobody asked for it: it was added."""
        try:
            yield
        except SolverError:
            if len(self.seen.strengths) <= len(self.grid.values):
                raise
            self.seen.drop()

    def _problems(self) -> Iterator[Problem]:
        """At strengths of the grid, then weaker ones while there is more to find: those that are due."""
        for strength in self.grid.values.tolist():
            yield from self._due(strength)
        self._judge_what_is_open()
        for strength in self.grid.weaker.tolist():
            if self.end.is_at():
                return
            yield from self._due(strength)

    def _due(self, strength: float) -> Iterator[Problem]:
        """Go on to a strength, and visit it unless it is too near to the last."""
        self.seen.strengths.append(strength)
        if self._is_due(self.end.apart):
            yield self.problem_at(strength)
        else:
            self.seen.add(None, None)

    def _is_due(self, apart: float) -> bool:
        """Whether the last strength is so many decades from the last that was judged, or ends the grid."""
        ends = len(self.seen.strengths) == len(self.grid.values)
        return ends or self.seen.decades_since_judged() >= apart - 1e-9

    def _take(self, solution: Solution) -> None:
        """Take in the next strength, judged if it is not too near to the last that was."""
        near = self.looks.takes_more(solution.fit) and not self._is_due(APART)
        between = None if near else self.looks.bracket(solution)
        place = len(self.seen.fits)
        self.seen.add(solution.fit, between or (None if near else self._first(solution)))
        if between is not None:
            self.seen.bracketed[place] = solution
        self._keep(place, solution)

    # --- to stronger ones, and between ------------------------------------------------------------------

    def go_up(self) -> None:
        """Go to strengths stronger than those of the grid, while the risk falls there."""
        if self.grid.falls_above(np.array(self.seen.risks)):  # solvers want a first strength
            for solution in map(_in_the_middle, solve_path(self._stronger())):
                self.seen.add(solution.fit, self._first(solution), strongest=True)
                self._keep(0, solution)

    def _stronger(self) -> Iterator[Problem]:
        for strength in self.grid.stronger.tolist():
            if not self.grid.falls_above(np.array(self.seen.risks)):
                return
            self.seen.strengths.insert(0, strength)
            yield self.problem_at(strength)

    def look_beside(self) -> None:
        """Visit what was passed over beside the smallest risk, until nothing was."""
        seen = self.seen
        while passed := [j for j in halfway(seen.verdicts, seen.least) if seen.fits[j] is None]:
            for j in passed:
                self._visit(j)

    def _visit(self, place: int) -> None:
        """Solve and judge a strength that was passed over, from half-way between its neighbours."""
        ends = [self.seen.fit(j) for j in beside(self.seen.verdicts, place)]
        coef = np.mean([fit.coef for fit in ends], axis=0)
        level = np.mean([fit.intercept for fit in ends], axis=0)
        known = self.kept.at(self.seen.fits).items()
        near = min(known, key=lambda one: abs(one[0] - place), default=None)
        serving = self.kept.last if near is None else near[1].curvature
        problem = self.problem_at(self.seen.strengths[place])
        try:
            found = solve(Fit(problem, coef, level), serving, self.looks.asks_little)
        except SolverError:  # from the stronger one, as paths go
            start = Fit(problem, ends[0].coef, ends[0].intercept)
            found = solve(start, serving, self.looks.asks_little)
        solution = _in_the_middle(found)
        self.seen.fits[place] = solution.fit
        self._judge(place, solution)

    # --- judging ----------------------------------------------------------------------------------------

    def _first(self, solution: Solution) -> Verdict:
        """What is known of a strength at little cost."""
        return self._without.verdict(solution.fit) or self.looks.first(solution, self.leads)

    def _judge(self, place: int, solution: Solution) -> None:
        self.seen.learn(place, self._first(solution))
        self._keep(place, solution)

    def _judge_bracketed(self, places: list[int]) -> None:
        """Judge strengths of which nothing but bounds is known."""
        for place in places:
            self._judge(place, self.seen.bracketed.pop(place))

    def _judge_what_is_open(self) -> None:
        """Judge by more than bounds what these leave within reach of the smallest risk."""
        while is_open := [j for j in self.seen.bracketed if self._is_within_reach(j)]:
            self._judge_bracketed([j for j in is_open if j == self.seen.least] or is_open)

    def _is_within_reach(self, place: int) -> bool:
        """Whether a strength may be the best, wherever between its bounds its risk is."""
        best, verdict = self.seen.least, self.seen.verdicts[place]
        if verdict is None or best == place:
            return True
        losses, off = verdict.at_least
        rise, error, miss = self.seen.rise(best, place, losses)
        return not rise - off > OUT_OF_REACH * np.hypot(error, miss)

    def _keep(self, place: int, solution: Solution) -> None:
        """Keep what others may go on from: a solution, and what is known of its rows."""
        lowest, verdict = self.seen.least_but_bounds, self.seen.verdicts[place]
        self.kept.last = solution.curvature
        if not self.looks.asks_little(solution.fit):
            self.kept.keep(solution, is_lowest=lowest == place)
        if verdict is None or verdict.leads is None:
            return
        self.leads, self.seen.verdicts[place] = verdict.leads, verdict._replace(leads=None)
        if not self.kept.is_small(NUMBERS * solution.fit.problem.n):
            for j, one in judged(self.seen.verdicts).items():
                self.seen.verdicts[j] = one if j == lowest else one._replace(begun=None)
