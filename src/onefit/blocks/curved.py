"""Models with a curved loss, solved, judged and chosen in passes over the rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple, final

import numpy as np

from onefit._typing import Array
from onefit.blocks.newton import Models, Points, Quadratic, Solved, check_rows, null_points, solve_all
from onefit.blocks.rows import Rows
from onefit.blocks.step import ChosenStep, StepPath
from onefit.blocks.summary import Summary
from onefit.blocks.tuning import TunedPath, chosen_of, longer, visited
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.penalties import SeparablePenalty
from onefit.problem import Problem
from onefit.solvers.newton import solve
from onefit.tuning.grid import Grid
from onefit.tuning.selection import Selection


class Found(NamedTuple):
    """Solution of one strength."""

    coef: Array
    level: float
    quadratic: Quadratic


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
    ) -> tuple[TunedPath, ChosenStep]:
        """Judge the strengths of a grid, and more at an end where the risk falls, and choose."""
        strengths = grid.values
        while True:
            path = self.path(strengths)
            judged = self.rows.total(path.judge)
            check_rows(judged.rows, self.summary.rows)
            more = longer(grid, strengths, judged.losses.risks)
            if len(more) == len(strengths):
                break
            strengths = more
        solved = path.points.coefs, path.points.intercepts
        seen = visited(grid, strengths, judged.losses, early_stopping)
        (found,) = chosen_of(strengths, solved, judged.losses, [seen], selection)
        best = int(seen[found.best])
        return found, self.chosen(path, best, float(strengths[best]), judged.widest)

    def path(self, strengths: Array, start: Points | None = None) -> StepPath:
        """Solve some strengths, those that are new, and factor their curvature.

        Parameters
        ----------
        strengths : (J,) array
        start : Points, optional
            Of the new ones; by default the solutions on the sample.
        """
        own = [float(strength) for strength in strengths]
        if new := [strength for strength in own if strength not in self._known]:
            models = self._models(new)
            start = started(models, self.summary) if start is None else start
            solved = solve_all(self.rows, models, start, n=self.summary.rows)
            levels = solved.points.levels.tolist()
            found = map(Found, solved.points.coefs, levels, solved.quadratics)
            self._known.update(zip(new, found, strict=True))
        coefs, levels, quadratics = zip(*(self._known[strength] for strength in own), strict=True)
        points = Points(np.stack(coefs), np.array(levels), centre_of(self.models, self.summary))
        return StepPath.of(self._models(own), Solved(points, quadratics), self.summary)

    def chosen(self, path: StepPath, j: int, strength: float, widest: Array) -> ChosenStep:
        """What tells single rows apart at one strength."""
        chosen = path.at(j, float(widest[j]), self._known[strength].quadratic)
        if chosen.pattern is None:
            return chosen
        return replace(chosen, widest=self.rows.total(chosen.widest_over_all).value)

    def _models(self, strengths: list[float]) -> Models:
        return replace(self.models, penalties=tuple(self.penalty_at(strength) for strength in strengths))


def centre_of(models: Models, summary: Summary) -> Array:
    """What is taken off the columns: their means where there is an intercept to make up for it."""
    return summary.means if models.intercept else np.zeros_like(summary.means)


def started(models: Models, summary: Summary) -> Points:
    """Solutions on the sample of rows, in which each counts for as many as it stands for.

    Where a sample has no solution (its classes may be separable), those of the last strength that has one.
    """
    sample, centre = summary.sample, centre_of(models, summary)
    target = np.asarray(models.metric.target(sample.y), dtype=np.float64)
    weights = sample.weights * (summary.weight / max(float(sample.weights.sum()), np.finfo(float).tiny))
    points = null_points(models, centre, 0.0)
    X, intercept = sample.X - centre, np.array(models.intercept)
    last: Fit | None = None
    for j, penalty in enumerate(models.penalties):
        problem = Problem(models.loss, penalty, X, target, weights, intercept, models.mean_scaled)
        start = Fit.at_start(problem) if last is None else Fit(problem, last.coef, last.intercept)
        try:
            last = solve(start).fit
        except SolverError:
            last = start
        points.coefs[j], points.levels[j] = last.coef, last.intercept
    return points
