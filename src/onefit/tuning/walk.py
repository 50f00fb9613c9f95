"""The walk along a path of strengths, from the strongest penalty on, which judges each while it is solved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from onefit import _linalg
from onefit._typing import Array
from onefit.curvature.iterated import cost_along_path
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.leave_out.leads import Leads
from onefit.leave_out.loose import with_middle_intercept
from onefit.problem import Problem
from onefit.risk.means import mean_and_error
from onefit.solvers.newton import Solution
from onefit.solvers.solve import solve, solve_path
from onefit.tuning.contest import OUT_OF_REACH
from onefit.tuning.grid import APART, CLEARLY_WORSE, DECADES, PATIENCE, WORTH_STOPPING, Grid
from onefit.tuning.judgement import FIRST, LITTLE, Judgement
from onefit.tuning.path import SearchResult, of_verdicts
from onefit.tuning.paths_without import PathsWithout
from onefit.tuning.sample import Verdict, beside, halfway, judged
from onefit.tuning.selection import Selection, smallest

NUMBERS = 10  # that are known of a row, about


def search_path(
    grid: Grid,
    problem_at: Callable[[float], Problem],
    judgement: Judgement,
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
    judgement : Judgement
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
    walked = Walk(grid, judgement)
    for solution in walked.solutions(problem_at):
        if not walked.takes(solution) or (walked.is_past_minimum() and early_stopping):
            break
    walked.end()
    walked.judge_what_is_open()
    if grid.falls_above(np.array(walked.risks)):  # solvers want a first strength
        for solution in map(_in_the_middle, solve_path(problem_at(one) for one in walked.upwards())):
            walked.add(solution.fit, walked.first(solution), strongest=True)
    walked.look_beside(problem_at)
    known = of_verdicts(
        np.array(walked.strengths),
        walked.verdicts,
        walked.weights,
        *walked.coefficients,
        selection,
    )
    return replace(known, solved=walked.solved)


def _has_own_factor(fit: Fit) -> bool:
    """Whether the curvature of a solution is its own: others are valid until the path goes on."""
    return fit.problem.loss.is_smooth and not fit.problem.loss.is_quadratic and not fit.is_kinked


def _in_the_middle(solution: Solution) -> Solution:
    """Of several intercepts that are as good the middle one, which rounding does not choose."""
    fit, room = with_middle_intercept(solution.fit)
    return solution if room is None else Solution.of(fit)


@dataclass
class Walk:
    """What a path has seen so far."""

    grid: Grid
    judgement: Judgement
    strengths: list[float] = field(default_factory=list)
    fits: list[Fit | None] = field(default_factory=list)  # of strengths that were visited
    verdicts: list[Verdict | None] = field(default_factory=list)
    risks: list[float] = field(default_factory=list)  # of the last strength that was judged, where none was
    bracketed: dict[int, Solution] = field(default_factory=dict)  # of which no more is known than bounds
    past: bool = False
    lowest: Solution | None = None  # of the smallest risk so far, if its factor may be kept
    kept: list[Solution] = field(default_factory=list)  # whose factors are small beside the rows
    leads: Leads | None = None  # of rows that were solved without themselves

    @cached_property
    def without(self) -> PathsWithout:
        """Paths without each of the sets that are judged."""
        return PathsWithout(self.judgement)

    @property
    def weights(self) -> Array:
        """Of what counts in a risk."""
        return self.judgement.unit_weights

    @property
    def coefficients(self) -> tuple[Array, Array]:
        """Coefficients and intercepts of all strengths, (J, p) or (J, p, c) and (J,) or (J, c)."""
        one = self._visited[0]
        missing = np.full(one.coef.shape, np.nan), np.full(np.shape(one.intercept), np.nan)
        known = [missing if fit is None else (fit.coef, fit.intercept) for fit in self.fits]
        coefs, levels = (np.stack(each) for each in zip(*known, strict=True))
        return coefs, levels

    @property
    def _visited(self) -> list[Fit]:
        return [fit for fit in self.fits if fit is not None]

    def _fit(self, place: int) -> Fit:
        """That of a strength that was visited."""
        fit = self.fits[place]
        assert fit is not None
        return fit

    def onwards(self) -> Iterator[float]:
        """Strengths of the grid, then weaker ones while the risk falls; those that are due."""
        for strength in self.grid.values.tolist():
            yield from self._due(strength)
        self.judge_what_is_open()
        for strength in self.grid.weaker.tolist():
            if self.past or not self.grid.falls_below(np.array(self.risks)):
                return
            yield from self._due(strength)

    def _due(self, strength: float) -> Iterator[float]:
        """Go on to a strength, and visit it unless it is too near to the last."""
        self.strengths.append(strength)
        if self._is_due(self.grid.apart):
            yield strength
        else:
            self.add(None, None)

    def end(self) -> None:
        """End at the last strength that was visited and can be judged, whatever others say of it."""
        while self.verdicts[-1] is None:
            last = self.fits[-1]
            with suppress(SolverError) if self._is_beyond_grid else nullcontext():
                self.verdicts[-1] = None if last is None else self.first(solve(last))
            if self.verdicts[-1] is None:
                for of_each in (self.strengths, self.fits, self.verdicts, self.risks):
                    of_each.pop()

    def solutions(self, problem_at: Callable[[float], Problem]) -> Iterator[Solution]:
        """Their solutions; the first that is added beyond the grid and has none ends the path."""
        try:
            problems = (problem_at(strength) for strength in self.onwards())
            yield from map(_in_the_middle, solve_path(problems, self.judgement.asks_little))
        except SolverError:
            if not self._is_beyond_grid:
                raise
            self.strengths.pop()

    def upwards(self) -> Iterator[float]:
        """Strengths stronger than those of the grid, while the risk falls."""
        for strength in self.grid.stronger.tolist():
            if not self.grid.falls_above(np.array(self.risks)):
                return
            self.strengths.insert(0, strength)
            yield strength

    def takes(self, solution: Solution) -> bool:
        """Take in the next strength, unless some rows leave a problem without a solution there."""
        try:
            self.take(solution)
        except SolverError:
            if not self._is_beyond_grid:
                raise
            self.strengths.pop()
            return False
        return True

    @property
    def _is_beyond_grid(self) -> bool:
        """Whether the last strength was added, and is none that anybody asked for."""
        return len(self.strengths) > len(self.grid.values)

    def take(self, solution: Solution) -> None:
        """Take in the next strength, judged if it is not too near to the last that was."""
        near = self.judgement.takes_more(solution.fit) and not self._is_due(APART)
        between = None if near else self.judgement.bracket(solution)
        if between is not None:
            self.bracketed[len(self.fits)] = solution
        self.add(solution.fit, between or (None if near else self.first(solution, self.leads)))
        self._keep(len(self.fits) - 1, solution)

    def first(self, solution: Solution, leads: Leads | None = None) -> Verdict:
        """What is known of a strength at little cost."""
        return self.without.verdict(solution.fit) or self.judgement.first(solution, leads)

    def _keep(self, place: int, solution: Solution) -> None:
        """Keep a solution, if its factor may be, that is small, or whose risk is the smallest so far."""
        own, (n, p) = _has_own_factor(solution.fit), solution.fit.problem.X.shape
        risks = np.array(self.risks)
        risks[list(self.bracketed)] = np.inf  # which may be anywhere
        if (lowest := smallest(risks)) == place:
            self.lowest = solution if own else None
        each = _linalg.BLOCK_SIZE / len(self.grid.values)
        if own and min(n, solution.fit.tangent.size) ** 2 <= max(n * p / len(self.grid.values), each):
            self.kept.append(solution)
        verdict = self.verdicts[place]
        if verdict is not None and verdict.begun is not None:
            self.leads = Leads.of(verdict.begun.found, self.leads)
            for j, one in judged(self.verdicts).items() if NUMBERS * n > each else ():
                self.verdicts[j] = one if j == lowest else one._replace(begun=None)

    def judge_what_is_open(self) -> None:
        """Judge by more than bounds what these leave within reach of the smallest risk."""
        while is_open := [j for j in self.bracketed if self._is_within_reach(j)]:
            self._judge([j for j in is_open if j == smallest(np.array(self.risks))] or is_open)

    def _is_within_reach(self, place: int) -> bool:
        """Whether a strength may be the best, wherever between its bounds its risk is."""
        best, verdict = smallest(np.array(self.risks)), self.verdicts[place]
        if verdict is None or best == place:
            return True
        losses, off = verdict.at_least
        rise, error, miss = self._rise(best, place, losses)
        return not rise - off > OUT_OF_REACH * np.hypot(error, miss)

    def _judge(self, places: list[int]) -> None:
        """Judge strengths of which nothing but bounds is known."""
        for place in places:
            solution = self.bracketed.pop(place)
            self._judged(place, self.first(solution))
            self._keep(place, solution)

    @property
    def solved(self) -> dict[int, Solution]:
        """The solutions that were kept, by their places."""
        kept = {id(one.fit): one for one in (*self.kept, self.lowest) if one is not None}
        return {j: kept[id(fit)] for j, fit in enumerate(self.fits) if id(fit) in kept}

    def add(self, fit: Fit | None, verdict: Verdict | None, *, strongest: bool = False) -> None:
        """Take in the weakest strength so far, or the strongest."""
        place = 0 if strongest else len(self.fits)
        self.bracketed = {j + strongest: solution for j, solution in self.bracketed.items()}
        self.fits.insert(place, fit)
        self.verdicts.insert(place, verdict)
        self.risks.insert(place, self.risks[-1] if verdict is None else self._risk(verdict))

    def _risk(self, verdict: Verdict) -> float:
        return mean_and_error(verdict.losses, self.weights)[0]

    def look_beside(self, problem_at: Callable[[float], Problem]) -> None:
        """Visit what was passed over beside the smallest risk, until nothing was."""
        while passed := [j for j in halfway(self.verdicts, self._least) if self.fits[j] is None]:
            for j in passed:
                self._visit(j, problem_at(self.strengths[j]))

    @property
    def _least(self) -> int:
        return smallest(np.array(self.risks))

    def _visit(self, place: int, problem: Problem) -> None:
        """Solve and judge a strength that was passed over, from half-way between its neighbours."""
        ends = [self._fit(j) for j in beside(self.verdicts, place)]
        coef = np.mean([fit.coef for fit in ends], axis=0)
        level = np.mean([fit.intercept for fit in ends], axis=0)
        near = min(self.solved.items(), key=lambda one: abs(one[0] - place), default=None)
        serving = None if near is None else near[1].curvature
        solution = _in_the_middle(solve(Fit(problem, coef, level), serving))
        self.fits[place] = solution.fit
        self._judged(place, self.first(solution))
        self._keep(place, solution)

    def _judged(self, place: int, verdict: Verdict) -> None:
        """Take in what is known of a strength, and of those that it speaks for."""
        self.verdicts[place] = verdict
        stop = min((j for j in judged(self.verdicts) if j > place), default=len(self.risks))
        self.risks[place:stop] = [self._risk(verdict)] * (stop - place)

    def _is_due(self, apart: float) -> bool:
        """Whether the last strength is so many decades from the last that was judged, or ends the grid."""
        places = list(judged(self.verdicts))
        is_end = not places or len(self.strengths) == len(self.grid.values)
        return is_end or abs(float(np.log10(self.strengths[-1] / self.strengths[places[-1]]))) >= apart - 1e-9

    def is_past_minimum(self) -> bool:
        """Whether the last risk is clearly above the smallest one."""
        best, last = smallest(np.array(self.risks)), len(self.risks) - 1
        decades = abs(float(np.log10(self.strengths[last] / self.strengths[best])))
        far = (last >= best + PATIENCE or decades >= DECADES) and not self._is_nearly_through(last - best)
        if far and (loose := [j for j in (best, last) if j in self.bracketed]):
            self._judge(loose)
            return self.is_past_minimum()
        if self.verdicts[last] is not None and not self.past and far:
            rise, error, miss = self._rise(best, last)
            is_clear = bool(rise > CLEARLY_WORSE * np.hypot(error, miss))
            wanting = [j for j in (best, last) if self._is_wanting(j, is_clear=is_clear)]
            if rise > CLEARLY_WORSE * error and wanting:
                return self._closer(wanting) and self.is_past_minimum()
            self.past = is_clear and self._matters(best, rise)
        return self.past

    def _is_nearly_through(self, waited: int) -> bool:
        """Whether the rest of the grid is no more than what was waited past the best, or next to nothing.

        A risk may fall again, as past the strength at which there are as many parameters as rows.
        """
        rest = len(self.grid.values) - len(self.fits)
        return rest > 0 and (rest <= waited or self._cost_of_the_rest() <= LITTLE)

    def _matters(self, best: int, rise: float) -> bool:
        """Whether something better than the strongest penalty was found, or the risk rose by a share of it.

        Near the constant model all strengths predict alike, and a rise is certain long before it matters:
        columns of smaller size may have all of their say yet.
        """
        gain, error, miss = self._rise(best, 0)
        return gain > CLEARLY_WORSE * np.hypot(error, miss) or rise > WORTH_STOPPING * self.risks[best]

    def _rise(self, best: int, last: int, losses: Array | None = None) -> tuple[float, float, float]:
        """How far a risk, or that of other losses, is above another, its error, and that of rows not seen."""
        known = judged(self.verdicts)  # the first of several that share a risk is
        held, other = known[best], known[last]
        own = other.losses if losses is None else losses
        rise, error = mean_and_error(own - held.losses, self.weights)
        return rise, error, float(np.linalg.norm(other.misses - held.misses))

    def _cost_of_the_rest(self) -> float:
        """Seconds that the strengths of the grid take that are still to come, and judging them, about."""
        before, fit = ([*self._visited[:1], *self._visited])[-2:]
        rest = self.grid.values[len(self.fits) :]
        decades = abs(float(np.log10(rest[-1] / self.strengths[-1]))) if rest.size else 0.0
        judging = min(rest.size, np.ceil(decades / max(APART, self.grid.apart)))
        visits = min(rest.size, np.ceil(decades / self.grid.apart)) if self.grid.apart else rest.size
        fits = cost_along_path(fit, before.coef).times(visits).seconds
        return fits + judging * self.judgement.seconds_at_first(fit)

    def _is_wanting(self, place: int, *, is_clear: bool) -> bool:
        """Whether a strength is to be judged better before a path ends by it, even if a rise seems clear.

        What a step alone tells, of which nothing is known, ends no path where some rows tell.
        """
        known = self.verdicts[place]
        if known is None:
            return False
        if known.left_out:
            return not is_clear and 0 < known.seen < len(known.losses)
        return not np.isfinite(known.error) and self.judgement.is_sampled(self._fit(place))

    def _closer(self, places: list[int]) -> bool:
        """Judge strengths better, where that takes less than the rest of the path; whether it did."""
        if sum(map(self._unseen_cost, places)) >= self._cost_of_the_rest():
            return False
        for place in places:
            self._see_more(place)
        return True

    def _unseen_cost(self, place: int) -> float:
        """Seconds that the rows take which were not left out in tenths, or those of a sample."""
        known, fit = self.verdicts[place], self._fit(place)
        if known is None or not known.seen:
            return self.judgement.seconds(fit, FIRST)
        return self.judgement.seconds_by_tenths(fit, known)

    def _see_more(self, place: int) -> None:
        """Leave out what is left of the rows, where they leave in tenths; else a sample."""
        known, fit = self.verdicts[place], self._fit(place)
        if known is not None and known.seen:
            closer = self.judgement.by_tenths(fit, None, len(known.losses), known)
        else:
            closer = self.judgement.sample(solve(fit), FIRST)
        self._judged(place, closer)
