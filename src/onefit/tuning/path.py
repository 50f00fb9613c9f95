"""The risk along a path of strengths, judged while the path is solved."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from onefit._linalg import one_thread_if_small
from onefit._typing import Array, Index
from onefit.fit import Fit
from onefit.leave_out import LeftOut
from onefit.problem import Problem
from onefit.risk.means import mean_and_error
from onefit.solvers.solve import solve, solve_path
from onefit.tuning.grid import CLEARLY_WORSE, PATIENCE, Grid
from onefit.tuning.judgement import Judgement
from onefit.tuning.selection import Contest, Selection, choose_strength, paired_errors, smallest

MOST_JUDGED = 6  # strengths that are judged again, at most, before the choice stands
CHEAP = 3e5  # n p min(n, p) up to which all of them may be


@dataclass(frozen=True)
class SearchResult:
    """A path of fits and their leave-one-out risks, from the strongest penalty to the weakest.

    Attributes
    ----------
    strengths : (J,) array
        Those that were visited.
    losses : (n, J) array
        Left-out loss of each row at each strength.
    risks, std_errors : (J,) arrays
    paired_errors : (J,) array
        Standard errors of the differences to the smallest risk.
    coefs : (J, p) or (J, p, c) array
    levels : (J,) or (J, c) array
    best : int
        Position of the strength that was chosen.
    thorough : (t,) int array
        Positions that were judged with the rows that no step reaches solved anew.
    misjudged : bool
        Whether one of them had seemed past the minimum, and was not.
    contest : Contest or None
        In which a bagged choice was made.
    """

    strengths: Array
    losses: Array
    risks: Array
    std_errors: Array
    paired_errors: Array
    coefs: Array
    levels: Array
    best: int
    thorough: Index = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    misjudged: bool = False
    contest: Contest | None = None

    def corrected(self, j: int, losses: Array, weights: Array, selection: Selection) -> SearchResult:
        """Exchange the losses at one strength for thorough ones, and choose anew."""
        risks, errors = self.risks.copy(), self.std_errors.copy()
        all_losses = self.losses.copy()
        all_losses[:, j] = losses
        risks[j], errors[j] = mean_and_error(losses, weights)
        paired = paired_errors(all_losses, weights, smallest(risks))
        best, contest = choose_strength(all_losses, weights, risks, paired, selection)
        return replace(
            self,
            losses=all_losses,
            risks=risks,
            std_errors=errors,
            paired_errors=paired,
            best=best,
            contest=contest,
            thorough=np.union1d(self.thorough, [j]),
        )


def judged(
    strengths: Array,
    losses: Array,
    weights: Array,
    coefs: Array,
    levels: Array,
    selection: Selection,
) -> SearchResult:
    """Risks of a solved path from the losses (n, J) of its rows, and the choice."""
    risks, errors = np.array([mean_and_error(column, weights) for column in losses.T]).T
    paired = paired_errors(losses, weights, smallest(risks))
    best, contest = choose_strength(losses, weights, risks, paired, selection)
    return SearchResult(strengths, losses, risks, errors, paired, coefs, levels, best, contest=contest)


def search_path(
    grid: Grid,
    problem_at: Callable[[float], Problem],
    judgement: Judgement,
    *,
    selection: Selection = "min",
    early_stopping: bool = True,
) -> SearchResult:
    """Solve problems along a path and judge each by what leaves it out.

    Parameters
    ----------
    grid : Grid
        From the strongest penalty to the weakest, and on at either end while the risk falls there.
    problem_at : callable
        The problem at a strength.
    judgement : Judgement
        How left-out predictors are judged.
    selection : "bagged", "min" or "1se"
        The mean position of the smallest risk over resampled rows, the smallest risk, or the strongest
        penalty whose risk exceeds it by at most one standard error of the paired difference.
    early_stopping : bool, default True
        Stop once the risk is clearly past its minimum: at least 5 strengths beyond the best so far and
        worse than it by two standard errors of the paired difference.  Where rows can be followed the last
        one, and the end of the path, is judged thoroughly before: those whose pattern changes are taken too
        far by a step, and the more so the weaker the penalty, so that a rise may be theirs alone.
    """
    walked, weights = Walk(grid), judgement.unit_weights
    for solution in solve_path(problem_at(strength) for strength in walked.onwards()):
        walked.add(solution.fit, judgement.losses(judgement.roughly(solution)), weights)
        if walked.seems_past_minimum(weights) or (walked.is_at_end and not walked.past):
            if judgement.is_rough_on(solution):
                walked.correct(judgement.losses(judgement.thoroughly(solution)), weights)
            walked.past = walked.rises(weights)
            if early_stopping and walked.past:
                break
    if grid.falls_above(np.array(walked.risks)):  # solvers want a first strength
        for solution in solve_path(problem_at(strength) for strength in walked.upwards()):
            walked.add_above(solution.fit, judgement.losses(judgement.roughly(solution)), weights)
    found = judged(
        np.array(walked.strengths),
        np.stack(walked.losses).T,
        weights,
        np.stack([fit.coef for fit in walked.fits]),
        np.stack([fit.intercept for fit in walked.fits]),
        selection,
    )
    return replace(found, thorough=np.array(walked.thorough, dtype=np.intp), misjudged=walked.misjudged)


@dataclass
class Walk:
    """What a path has seen so far."""

    grid: Grid
    strengths: list[float] = field(default_factory=list)
    fits: list[Fit] = field(default_factory=list)
    losses: list[Array] = field(default_factory=list)
    risks: list[float] = field(default_factory=list)
    thorough: list[int] = field(default_factory=list)
    misjudged: bool = False
    past: bool = False

    def onwards(self) -> Iterator[float]:
        """Strengths of the grid, then weaker ones while the risk falls."""
        for strength in self.grid.values.tolist():
            self.strengths.append(strength)
            yield strength
        for strength in self.grid.below(self.grid.room_below).tolist():
            if not self._falls_below:
                return
            self.strengths.append(strength)
            yield strength

    def upwards(self) -> Iterator[float]:
        """Strengths stronger than those of the grid, while the risk falls."""
        for strength in self.grid.above(self.grid.room_above).tolist():
            if not self.grid.falls_above(np.array(self.risks)):
                return
            self.strengths.insert(0, strength)
            yield strength

    @property
    def _falls_below(self) -> bool:
        return not self.past and self.grid.falls_below(np.array(self.risks))

    @property
    def is_at_end(self) -> bool:
        """Whether no weaker strength will come, unless the last one was judged too harshly."""
        visited = len(self.risks)
        whole = len(self.grid.values)
        return visited == whole + self.grid.room_below or (visited >= whole and not self._falls_below)

    def add(self, fit: Fit, losses: Array, weights: Array) -> None:
        """Take in the next strength."""
        self.fits.append(fit)
        self.losses.append(losses)
        self.risks.append(mean_and_error(losses, weights)[0])

    def add_above(self, fit: Fit, losses: Array, weights: Array) -> None:
        """Take in a strength that is stronger than all before."""
        self.fits.insert(0, fit)
        self.losses.insert(0, losses)
        self.risks.insert(0, mean_and_error(losses, weights)[0])
        self.thorough = [j + 1 for j in self.thorough]

    def correct(self, losses: Array, weights: Array) -> None:
        """Exchange the losses at the last strength for thorough ones."""
        rose = self.rises(weights)
        self.losses[-1], self.risks[-1] = losses, mean_and_error(losses, weights)[0]
        self.thorough.append(len(self.risks) - 1)
        self.misjudged |= rose and not self.rises(weights)

    def seems_past_minimum(self, weights: Array) -> bool:
        """Whether the last risk is clearly above the smallest one, and that is news."""
        since = max(smallest(np.array(self.risks)), *self.thorough[-1:], 0)
        return not self.past and len(self.risks) - 1 >= since + PATIENCE and self.rises(weights)

    def rises(self, weights: Array) -> bool:
        """Whether the last risk is worse than the smallest one beyond chance."""
        best = smallest(np.array(self.risks))
        rise, error = mean_and_error(self.losses[-1] - self.losses[best], weights)
        return rise > CLEARLY_WORSE * error


def settle(
    result: SearchResult,
    problem_at: Callable[[float], Problem],
    judgement: Judgement,
    selection: Selection,
) -> tuple[SearchResult, Fit, LeftOut]:
    """Judge the chosen strength thoroughly, and choose again, until the choice stands or enough were judged.

    Along the path, rows that no step from the fit reaches are not solved anew.  Where that matters the
    risks are corrected, best first, so that the chosen one is not the smallest by mistake.

    Returns
    -------
    result : SearchResult
        With the risks of the strengths that were judged again.
    fit, left_out
        At the chosen strength.
    """
    judged: dict[int, tuple[Fit, LeftOut]] = {}
    weights = judgement.unit_weights
    rough = judgement.sets is None and _is_rough(problem_at, result)
    shape = problem_at(float(result.strengths[0])).X.shape
    most = len(result.strengths) if float(np.prod(shape)) * min(shape) <= CHEAP else MOST_JUDGED
    while len(judged) < most:
        probing = rough or result.misjudged
        j = _next_to_judge(
            result, judged, probing=probing, choice_alone=selection == "bagged" and not probing
        )
        if j is None:
            break
        judged[j] = at(problem_at(float(result.strengths[j])), result, j, judgement)
        result = result.corrected(j, judgement.losses(judged[j][1]), weights, selection)
    if result.best not in judged and judged and selection == "min":  # those that were not judged are guesses
        result = replace(result, best=min(judged, key=lambda j: result.risks[j]))
    if result.best not in judged:
        judged[result.best] = at(
            problem_at(float(result.strengths[result.best])), result, result.best, judgement
        )
    return result, *judged[result.best]


def _next_to_judge(
    result: SearchResult, judged: Collection[int], *, probing: bool, choice_alone: bool
) -> int | None:
    """The choice and the smallest risk; then, on a rough path, half-way towards what was judged beyond.

    A bagged choice does not hang on the smallest risk.
    """
    if np.all(np.isnan(result.risks)):
        return None
    least = smallest(result.risks)
    for j in (result.best,) if choice_alone else (least, result.best):
        if j not in judged:
            return j
    beyond = int(min(result.thorough[result.thorough > least], default=len(result.risks)))
    halfway = (least + beyond) // 2
    return halfway if probing and halfway > least else None


def _is_rough(problem_at: Callable[[float], Problem], result: SearchResult) -> bool:
    """Whether the risks of the path are too large where penalties are weak.

    With a curved loss and an ℓ1 part the rows that matter most change the pattern when they leave; steps
    on the pattern of the fit take them too far, and the more so the weaker the penalty is.
    """
    first = Fit(problem_at(float(result.strengths[0])), result.coefs[0], result.levels[0])
    problem = first.problem
    return first.is_kinked and not problem.has_flat_pieces


def at(problem: Problem, result: SearchResult, j: int, judgement: Judgement) -> tuple[Fit, LeftOut]:
    """Fit and leave-one-out, to a fraction of its standard error, at a strength of the path."""
    with one_thread_if_small(problem.X):
        solution = solve(Fit(problem, result.coefs[j], result.levels[j]))
        return solution.fit, judgement.thoroughly(solution)
