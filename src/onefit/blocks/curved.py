"""Models with a curved loss, solved, judged and chosen in passes over the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, final

import numpy as np

from onefit._linalg import cholesky, condition
from onefit._typing import Array
from onefit.blocks.chosen import ChosenStrength
from onefit.blocks.models import Knots, Models, Points, Quadratic, null_points, summed
from onefit.blocks.newton import (
    ALIKE,
    FARTHEST,
    MOST_PASSES,
    SETTLED,
    SolvedStrengths,
    Start,
    check_rows,
    solve_all,
)
from onefit.blocks.rows import Block, Rows, Summary
from onefit.blocks.step import StepPath
from onefit.blocks.tuning import TunedPath, chosen_of, longer, visited
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.numerics import EPS_SINGLE
from onefit.penalties import SeparablePenalty
from onefit.problem import Problem
from onefit.solvers.newton import solve
from onefit.tuning.grid import Grid
from onefit.tuning.pulls import held, in_errors, largest_by_chance, usual_by_chance
from onefit.tuning.selection import Selection

ROUGH = 1e-3  # of h, by which strengths are compared: how far it may be off
RACED = 1e-14  # Newton decrement, relative to the loss, with which strengths are compared: 1e-7 of a risk
SAMPLED = 1e-2  # relative error of solutions on the sample, which are off by some hundredths as it is
ALONE = 0.05  # leverage of a row, by one column, from which on h of few strengths tells nothing of others
MEASURED = 1000  # rows of the sample, about, whose h tells what few strengths are enough
LARGE_SQUARE = 1e18  # of numbers whose squares, a million of them summed, stay within single precision


class Found(NamedTuple):
    """Solution of one strength."""

    coef: Array
    level: float
    quadratic: Quadratic
    single: bool  # whether its curvature comes from products in single precision
    shares: dict[float, float]  # of knots, in its h


@final
@dataclass
class CurvedSolver:
    """Solves strengths in passes over the rows, and remembers them.

    Attributes
    ----------
    rows : Rows
    summary : Summary
        Of a first pass.
    models : Models
        Its penalties are not looked at.
    penalty_at : callable
        Penalty of a strength.
    """

    rows: Rows
    summary: Summary
    models: Models
    penalty_at: Callable[[float], SeparablePenalty]
    _known: dict[float, Found] = field(default_factory=dict)

    def tuned(
        self, grid: Grid, selection: Selection, *, early_stopping: bool
    ) -> tuple[TunedPath, ChosenStrength]:
        """Judge the strengths of a grid, and more at an end where the risk falls, and choose."""
        strengths, p = grid.values, len(self.summary.means)
        while True:
            path = self.path(strengths)
            losses = self.rows.total(path.judge)
            check_rows(losses.count, self.summary.count)
            pulls = self._pulls(strengths, losses.square_weight / losses.weight)
            pulled = pulls > usual_by_chance(p)
            more = longer(grid, strengths, losses.risks, pulled)
            if len(more) == len(strengths):
                break
            strengths = more
        solved = path.points.coefs, path.points.intercepts
        may_end = (pulls <= largest_by_chance(p)) & early_stopping
        seen = visited(grid, strengths, losses, may_end, pulled)
        (found,) = chosen_of(strengths, solved, losses, [seen], selection)
        best = int(seen[found.best])
        return found, self.chosen(float(strengths[best]))

    def _pulls(self, strengths: Array, mean_weight: float) -> Array:
        """How hard a column pulls at each strength, in standard errors, as ``tuning.pulls`` tells: (J,).

        The variance of a row's gradient is taken to be its curvature, as it is where the model is right.
        """
        known = [self._known[strength] for strength in strengths.tolist()]
        penalties = [self.penalty_at(strength) for strength in strengths.tolist()]
        pulls = [held(one.quadratic.slope, one.coef, p) for one, p in zip(known, penalties, strict=True)]
        squares = mean_weight * np.stack([one.quadratic.gram.diagonal() for one in known])
        return np.asarray(in_errors(np.stack(pulls), squares).max(axis=1, initial=0.0))

    def path(self, strengths: Array) -> StepPath:
        """Solve some strengths, those that are new from the solutions on the sample, and factor K."""
        own = [float(strength) for strength in strengths]
        if new := [strength for strength in own if strength not in self._known]:
            models = self._models(new)
            start = prepared(models, started(models, self.summary), self.summary)
            self.solve(new, start, settled=RACED)
        return self.known(own)

    def solve(self, strengths: list[float], start: Start, *, settled: float = SETTLED) -> None:
        """Solve some strengths from where they are said to start."""
        models, n = self._models(strengths), self.summary.rows
        solved, last = solve_all(self.rows, models, start, n=n, settled=settled)
        if unsettled := int(np.count_nonzero(np.isinf(last))):
            raise SolverError(
                f"Newton's method did not settle in {MOST_PASSES} passes for {unsettled} strengths: "
                "the problem may have no finite minimum, as with separable classes and hardly a penalty"
            )
        knots = [strengths[j] for j in start.knots.at]
        for j, strength in enumerate(strengths):
            coef, level, found = solved.points.coefs[j], float(solved.points.levels[j]), solved.quadratics[j]
            shares = dict(zip(knots, start.knots.shares[j].tolist(), strict=True))
            self._known[strength] = Found(coef, level, found, start.single, shares)

    def known(self, strengths: list[float]) -> StepPath:
        """Factor K at strengths that are solved."""
        coefs, levels, quadratics, single, of_knots = zip(
            *(self._known[own] for own in strengths), strict=True
        )
        at = np.flatnonzero([shares.get(own) == 1.0 for own, shares in zip(strengths, of_knots, strict=True)])
        shares = np.array([[own.get(strengths[k], 0.0) for k in at] for own in of_knots])
        knots = Knots(at, shares, at)
        points = Points(np.stack(coefs), np.array(levels), centre_of(self.models, self.summary))
        solved = SolvedStrengths(points, quadratics)
        return StepPath.of(self._models(strengths), solved, knots, self.summary, single=all(single))

    def chosen(self, strength: float) -> ChosenStrength:
        """What tells single rows apart at one strength: its curvature is summed anew, at its solution."""
        coef, level, *_ = self._known[strength]
        centre = centre_of(self.models, self.summary)
        self.solve([strength], Start.at(Points(coef[None], np.array([level]), centre)))
        chosen = ChosenStrength.of(self.known([strength]), self._known[strength].quadratic)
        return replace(chosen, widest=self.rows.total(chosen.widest_of).value)

    def _models(self, strengths: list[float]) -> Models:
        return replace(self.models, penalties=tuple(self.penalty_at(strength) for strength in strengths))


def centre_of(models: Models, summary: Summary) -> Array:
    """What is taken off the columns: their means where there is an intercept to make up for it."""
    return summary.means if models.intercept else np.zeros_like(summary.means)


def prepared(models: Models, start: Start, summary: Summary) -> Start:
    """How little of the curvature is enough, by what is known of it on the sample."""
    shape, single = summary.means.shape, in_single(models, start, summary)
    if any(penalty.has_kinks(shape) for penalty in models.penalties):  # leverages jump with the support
        return start._replace(single=single)
    solved = SolvedStrengths(start.points, tuple(found for found in start.quadratics if found is not None))
    path = StepPath.of(models, solved, start.knots, summary)
    if _holds_one_row(path, solved.quadratics, start.points.centre, summary):
        return start._replace(single=single)
    sample = summary.sample.rows.X
    sample = sample[:: max(1, len(sample) // MEASURED)]
    forms = path.forms(sample - start.points.centre).T
    tolerance = min(ALIKE * summary.count / len(summary.means), FARTHEST)
    return start._replace(knots=Knots.of(forms, tolerance), single=single)


def _holds_one_row(path: StepPath, quadratics: Sequence[Quadratic], centre: Array, summary: Summary) -> bool:
    """Whether a column may stand for a few rows alone, as a rare level does, at some strength.

    Of such rows, which a sample need not hold, h goes as one over the strength.
    """
    models, sample = path.models, summary.sample.rows
    target = models.metric.target(sample.y)
    curved = models.loss.hessian(target, path.points.predictors(sample.X - centre)).mean(
        axis=1, keepdims=True
    )
    farthest = np.maximum(summary.highest - centre, centre - summary.lowest)
    K = [
        found.gram.diagonal() + penalty.strengths(farthest.shape)[1]
        for found, penalty in zip(quadratics, models.penalties, strict=True)
    ]
    return bool(np.any(summary.heaviest * curved * farthest**2 > ALONE * np.stack(K)))


def in_single(models: Models, start: Start, summary: Summary) -> bool:
    """Whether single precision is enough for the curvature by which strengths are compared.

    An entry of the curvature is off by a few roundings, relative to the diagonal, and h by as many as its
    condition makes of √p of them.  Of the risk h makes up about p/n.
    """
    n, p = summary.count, len(summary.means)
    worst = 1.0
    for found, penalty in zip(start.quadratics, models.penalties, strict=True):
        if found is None or not np.all(found.gram.diagonal() > summary.weight / LARGE_SQUARE):
            return False
        factor = cholesky(found.gram + np.diag(penalty.strengths(summary.means.shape)[1]))
        worst = np.inf if factor is None else max(worst, condition(factor))
    off = 4.0 * EPS_SINGLE * np.sqrt(p) * worst
    in_range = float(summary.sizes.max(initial=0.0)) ** 2 < LARGE_SQUARE and summary.heaviest < LARGE_SQUARE
    return bool(in_range and off <= ROUGH and p / n * off <= ALIKE)


def started(models: Models, summary: Summary) -> Start:
    """Solutions on the sample of rows, in which each counts for as many as it stands for.

    Where a sample has no solution (its classes may be separable), those of the last strength that has one.
    """
    sample, centre = summary.sample.rows, centre_of(models, summary)
    target = models.metric.target(sample.y)
    weights = sample.weights * (summary.weight / max(float(sample.weights.sum()), np.finfo(float).tiny))
    points = null_points(models, centre, 0.0)
    X, intercept = sample.X - centre, np.array(models.intercept)
    last: Fit | None = None
    for j, penalty in enumerate(models.penalties):
        problem = Problem(models.loss, penalty, X, target, weights, intercept, models.mean_scaled)
        start = Fit.at_start(problem) if last is None else Fit(problem, last.coef, last.intercept)
        try:
            last = solve(start, tol=SAMPLED).fit
        except SolverError:
            last = start
        points.coefs[j], points.levels[j] = last.coef, last.intercept
    every = np.arange(len(models.penalties))
    sums = summed(Block(sample.X, sample.y, weights), models, points, every)
    found = tuple(Quadratic.of(sums, j, j, intercept=models.intercept) for j in every.tolist())
    return Start(points, found, Knots.all(len(every)))
