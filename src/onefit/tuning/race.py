"""The race between the strengths of a path: only those are judged better that can still change the choice.

Every strength begins with what is known of it at little cost.  The choice, the smallest risk and whatever
cannot be told from it are then judged by more rows, twice as many each time, in paired differences on the
same rows, until the error of a difference that comes from the sample is within one that comes from the data,
or from all rows (Maron and Moore 1994, "Hoeffding races"; math: how it works, "Racing").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from onefit._linalg import one_thread_if_small
from onefit._typing import Array, Index, Mask
from onefit.cost import UNMINDED
from onefit.curvature.iterated import cost_along_path
from onefit.fit import Fit
from onefit.leave_out import LeftOut
from onefit.leave_out.engine import cost_of_some
from onefit.leave_out.leads import Leads
from onefit.leave_out.rows_alone import RowsAlone
from onefit.numerics import KNOWN
from onefit.problem import Problem
from onefit.risk.means import mean_and_error
from onefit.solvers.newton import Solution
from onefit.solvers.solve import solve
from onefit.tuning.contest import IN_REACH
from onefit.tuning.looks import FIRST_ROWS, Looks
from onefit.tuning.path import SearchResult, of_verdicts
from onefit.tuning.sample import Stepped, Verdict, beside, halfway, judged
from onefit.tuning.selection import Selection, smallest
from onefit.tuning.shifts import Shifts

REPORTED = 0.3  # standard errors within which all rows tell a risk: with them it is known 4 % worse
FITS = 10.0  # times the fits of the path that a race may cost, as much as ten folds


def race(
    result: SearchResult,
    problem_at: Callable[[float], Problem],
    looks: Looks,
    selection: Selection,
) -> tuple[SearchResult, LeftOut]:
    """Judge strengths better until the choice stands.

    Returns
    -------
    result : SearchResult
        With what came to be known on the way.
    left_out : LeftOut
        Of the fit at the chosen strength, which is judged thoroughly.
    """
    entrants: list[_Entrant] = []
    entrants += [_Entrant(j, result, problem_at, looks, entrants) for j in range(len(result.verdicts))]
    running = _Race(result, looks, selection, list(result.verdicts), entrants)
    with one_thread_if_small(problem_at(float(result.strengths[0])).X):
        running.run()
        left_out = running.finish()
    return running.result, left_out


def _with_end(result: SearchResult, place: int, fit: Fit) -> SearchResult:
    """The path with the optimum at a strength, where it went near to it."""
    coefs, levels = result.coefs.copy(), result.levels.copy()
    coefs[place], levels[place] = fit.coef, fit.intercept
    return replace(result, coefs=coefs, levels=levels)


@dataclass(eq=False)
class _Entrant:
    """A strength as the path left it, and what is computed of it once, when it is asked for."""

    place: int
    path: SearchResult
    problem_at: Callable[[float], Problem]
    looks: Looks
    others: list[_Entrant] = field(default_factory=list)

    @cached_property
    def _nearest(self) -> Fit:
        """The strength at the parameters that the path found there, or at the nearest that it visited."""
        visited = np.flatnonzero(self.path.is_visited)
        near = visited[np.abs(visited - self.place).argmin()]
        problem = self.problem_at(float(self.path.strengths[self.place]))
        return Fit(problem, self.path.coefs[near], self.path.levels[near])

    @cached_property
    def fit(self) -> Fit:
        """The fit as the path found it, or anew where it was passed over."""
        known = self.place in self.path.solved or not self.path.is_visited[self.place]
        return self.solution.fit if known else self._nearest

    @cached_property
    def solution(self) -> Solution:
        """The fit with its curvature."""
        known = self.path.solved.get(self.place)
        return solve(self._nearest, self.path.last) if known is None else known

    @cached_property
    def is_sampled(self) -> bool:
        """Whether some of the rows tell it from others."""
        return self.looks.is_sampled(self.fit)

    @cached_property
    def stepped(self) -> Stepped:
        """What single rows are left out from, as they are at the nearest strength where they were."""
        others = [one for one in self.others if "stepped" in one.__dict__]
        near = min(others, key=lambda one: abs(one.place - self.place), default=None)
        begun = None if near is None else near.stepped.state
        leads = None if begun is None else Leads.of(begun.found, begun.leads)
        found = self._stepped_before or self.looks.stepped(self.solution, leads)
        found.state.leads = leads or found.state.leads
        return found

    @property
    def _stepped_before(self) -> Stepped | None:
        """What the path has left of that, if it was kept, and is of the same solution."""
        verdict, own = self.path.verdicts[self.place], self.solution
        begun = None if verdict is None else verdict.begun
        if begun is None or begun.state.fit is not own.fit or begun.state.curvature is not own.curvature:
            return None
        return begun

    @cached_property
    def seconds(self) -> float:
        """What the fit takes from its neighbour."""
        before = np.flatnonzero(self.path.is_visited[: self.place])
        return cost_along_path(self.fit, self.path.coefs[before.max(initial=0)]).seconds


@dataclass(eq=False)
class _Race:
    """Strengths, what is known of them, and what it took."""

    result: SearchResult
    looks: Looks
    selection: Selection
    verdicts: list[Verdict | None]
    entrants: list[_Entrant]
    spent: float = 0.0
    finished: dict[int, LeftOut] = field(default_factory=dict)

    @cached_property
    def shifts(self) -> Shifts:
        """How far those shifted that were judged thoroughly."""
        return Shifts(self.looks.judgement)

    def run(self) -> None:
        """Judge better what may be the choice, until that stands or the race has cost enough."""
        while self._gets_on() or self._judges_alike():
            self._choose()

    def _gets_on(self) -> bool:
        """Judge what is next by more rows, if there is anything that the race can afford."""
        which = self._next()
        seconds = sum(self._seconds(j, count) for j, count in which)
        if not which or (not self._affords(seconds) and all(self._is_judged(j) for j, _ in which)):
            return False
        self.spent += seconds
        alike = any(rival.seen for rival in self._rivals.values())
        for j, count in which:  # rows on their own tell more, where they are not dear
            self._judge(j, count, by_tenths=alike and cost_of_some(self.entrants[j].fit, count) > UNMINDED)
        return True

    def _judges_alike(self) -> bool:
        """Judge the best by tenths by all rows, where others near it are: the two miss different things."""
        n = self.looks.n
        seen = [j for j, rival in self._rivals.items() if rival.seen and self.entrants[j].is_sampled]
        if not seen or self._rivals_are_alike:
            return False
        one = self.entrants[min(seen, key=lambda j: float(self.result.criterion[j]))]
        seconds = cost_of_some(one.fit, n)
        if not self._affords(seconds):
            return False
        self.spent += seconds
        self.verdicts[one.place] = self.looks.sample(one.solution, n, stepped=one.stepped)
        return True

    def finish(self) -> LeftOut:
        """Judge the choice thoroughly, and what is beside it, and choose again, until that stands."""
        best = self.result.best
        while best not in self.finished or (beside := self._unbounded_beside(best)):
            if best in self.finished:
                best = [self._looked_at(j) for j in beside][-1]
                continue
            if self.verdicts[best] is None:  # between two that were judged
                best = self._looked_at(best)
                continue
            self._judge_thoroughly(best)
            if self._affords(0.0) or not self._is_as_good(best):
                best = self.result.best
        self.result = replace(_with_end(self.result, best, self.finished[best].fit), best=best)
        return self.finished[best]

    def _looked_at(self, j: int) -> int:
        """Judge a strength as the smallest risk was, which it is held against; returns the choice then."""
        others = judged(self.verdicts)
        count, held = max(known.left_out for known in others.values()), smallest(self.result.criterion)
        by_tenths = any(known.seen for known in ([others[held]] if held in others else others.values()))
        if by_tenths or count < self.looks.n:
            self._judge(j, count, by_tenths=by_tenths)
        else:
            self.verdicts[j] = self._thorough(j)
        self._choose()
        return self.result.best

    def _judge_thoroughly(self, j: int) -> None:
        """Take over what all rows say of a strength, unless what is known tells it from others better."""
        known, thorough = self.verdicts[j], self._thorough(j)
        well = KNOWN * float(self.result.std_errors[j])
        if known is not None and known.seen and self._rivals_are_alike:  # the two miss different things
            return
        if known is None or not known.solved or thorough.error <= max(known.error, well):
            self._take_over(j, thorough)
            self._choose()

    def _take_over(self, j: int, thorough: Verdict) -> None:
        """Replace what is known of a strength by what all rows say."""
        known, self.verdicts[j] = self.verdicts[j], thorough
        if known is not None and self._is_rough(known, j):
            self.shifts.add(j, self.entrants[j].fit, known, thorough)

    def _is_rough(self, known: Verdict, j: int) -> bool:
        """Whether others tell how far what is known of a strength may be off."""
        return not (known.settled or known.solved or known.error <= KNOWN * float(self.result.std_errors[j]))

    @property
    def _rivals_are_alike(self) -> bool:
        """Whether all that is near the smallest risk was judged by tenths."""
        return all(rival.seen for rival in self._rivals.values())

    def _is_as_good(self, j: int) -> bool:
        """Whether a strength can hardly be told from the choice."""
        rise, error = mean_and_error(
            self.result.losses[:, j] - self.result.losses[:, self.result.best],
            self.looks.judgement.unit_weights,
        )
        return bool(abs(rise) <= KNOWN * error)

    def _next(self) -> list[tuple[int, int]]:
        """Strengths to judge next, and by how many rows; none where the choice stands."""
        result, n = self.result, self.looks.n
        if np.all(np.isnan(result.risks)):
            return []
        least = smallest(result.criterion)
        counts = np.array([self._count(j) for j in range(len(self.verdicts))])
        near = self._near
        near[self._unbounded_beside(least)] = True
        near &= counts >= 0
        open_ones = np.flatnonzero(near & (counts < n))
        if open_ones.size == near.sum() == 1 and self.selection != "min":  # nothing to tell it from
            return []
        open_ones = open_ones[[not self._stands(j) for j in open_ones.tolist()]]
        whole = [j for j in open_ones.tolist() if not self._is_in_part(j)]
        if whole:  # how far one shifts tells of the others
            return [(min(whole, key=lambda j: abs(j - least)), n)]
        seen = max(known.seen for known in judged(self.verdicts).values())
        level = max(FIRST_ROWS, seen, int(counts[open_ones].max(initial=0)))
        behind = open_ones[counts[open_ones] < level]
        if behind.size:
            return [(int(j), min(level, max(FIRST_ROWS, 2 * int(counts[j])))) for j in behind]
        if open_ones.size and self._blur(np.flatnonzero(near), least).max() > KNOWN:
            return [(int(j), 2 * level) for j in open_ones]
        return [(j, level) for j in halfway(self.verdicts, least)] if self.selection == "min" else []

    def _stands(self, j: int) -> bool:
        """Whether what a strength began with, shifted as others did, tells it from the smallest risk."""
        known = self.verdicts[j]
        if known is None or known.left_out or self._is_in_part(j):
            return False
        doubt = self.shifts.doubt(j, self.entrants[j].fit, known)
        return doubt <= KNOWN * float(self.result.paired_errors[j])

    @property
    def _near(self) -> Mask:
        """Strengths that can hardly be told from the smallest risk: (J,)."""
        criterion = self.result.criterion
        least = criterion[smallest(criterion)]
        return np.asarray(criterion <= least + IN_REACH * self.result.paired_errors)

    @property
    def _rivals(self) -> dict[int, Verdict]:
        """What is known of those that were judged."""
        known = judged(self.verdicts)
        return {j: known[j] for j in np.flatnonzero(self._near).tolist() if j in known}

    def _unbounded_beside(self, j: int) -> list[int]:
        """Those of them where nothing bounds the risk, no row was left out, and some rows tell."""
        known = judged(self.verdicts)
        rough = [k for k in beside(self.verdicts, j) if not (known[k].settled or known[k].left_out)]
        return [k for k in rough if self.entrants[k].is_sampled and not np.isfinite(known[k].error)]

    def _count(self, j: int) -> int:
        """Rows that a strength was judged by, all where it is known well without, −1 where it was not."""
        verdict = self.verdicts[j]
        if verdict is None:
            return -1
        well = verdict.settled or verdict.error <= KNOWN * self.result.std_errors[j]
        return self.looks.n if well and not verdict.solved else verdict.left_out

    def _blur(self, which: Index, least: int) -> Array:
        """Errors of differences to the smallest risk that samples leave, in units of the whole error."""
        known, errors = judged(self.verdicts), self.result.paired_errors[which]
        own = np.array([np.linalg.norm(known[j].misses - known[least].misses) for j in which])
        return np.divide(own, errors, out=np.zeros_like(own), where=errors > 0)

    def _is_judged(self, j: int) -> bool:
        verdict = self.verdicts[j]
        return verdict is not None and verdict.left_out > 0

    def _judge(self, j: int, count: int, *, by_tenths: bool = False) -> None:
        if self._is_in_part(j):
            one, known = self.entrants[j], self.verdicts[j]
            self.verdicts[j] = self.looks.better(
                one.fit, count, known, lambda: one.solution, lambda: one.stepped, by_tenths=by_tenths
            )
        else:
            self._take_over(j, self._thorough(j))

    def _is_in_part(self, j: int) -> bool:
        """Whether a strength is judged by some of the rows."""
        known = self.verdicts[j]
        by_tenths = known is not None and known.seen > 0
        return by_tenths or self.entrants[j].is_sampled or self.looks.leave_together(self.entrants[j].fit)

    def _seconds(self, j: int, count: int) -> float:
        if not self._is_in_part(j):
            return 0.0
        return self.looks.seconds(self.entrants[j].fit, count, self.verdicts[j])

    def _choose(self) -> None:
        held, judgement = self.result, self.looks.judgement
        for j in np.flatnonzero(~held.is_visited).tolist():
            if self.verdicts[j] is not None:
                held = _with_end(held, j, self.entrants[j].fit)
        known = [self._as_others_shifted(j) for j in range(len(self.verdicts))]
        self.result = of_verdicts(held.strengths, known, judgement, held.coefs, held.levels, self.selection)

    def _as_others_shifted(self, j: int) -> Verdict | None:
        known = self.verdicts[j]
        if known is None or not self.shifts.known or j in self.shifts.known or not self._is_rough(known, j):
            return known
        return self.shifts.of(j, self.entrants[j].fit, known)

    def _thorough(self, j: int) -> Verdict:
        solution, known = self.entrants[j].solution, self.verdicts[j]
        apart = None if known is None else known.apart
        by_factor = self.looks.judgement.sets is None and RowsAlone.where_they_pay(solution.fit) is None
        begun = self.entrants[j].stepped.state if by_factor else None
        left_out = self.finished[j] = self.looks.judgement.thoroughly(solution, REPORTED, apart, begun)
        if self.entrants[j].is_sampled:
            self.spent += self.looks.seconds(solution.fit, self.looks.n)
        return self.looks.judgement.verdict(left_out, self.looks.n)

    def _affords(self, more: float) -> bool:
        """Whether the race may take so many seconds more."""
        seconds = self.spent + more
        return seconds <= UNMINDED or seconds <= FITS * self._seconds_of_fits

    @cached_property
    def _seconds_of_fits(self) -> float:
        visited = self.entrants[0].path.is_visited
        return sum(self.entrants[j].seconds for j in np.flatnonzero(visited)) / float(visited.mean())
