"""How the models of a path are judged: which rows leave together, and by what loss or score."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from onefit._typing import Array, Index
from onefit.leave_out import LeftOut, leave_out
from onefit.leave_out.engine import in_passing
from onefit.leave_out.follow import has_paths
from onefit.leave_out.sets import Folds
from onefit.leave_out.yardstick import Yardstick
from onefit.metrics import LinearMetric, SquaredError
from onefit.risk.judging import yardstick
from onefit.risk.means import clustered
from onefit.solvers.newton import Solution

Score: TypeAlias = Callable[[Index, Array], Array]  # of judged rows and their linear predictors: losses


@dataclass(frozen=True, eq=False)
class Judgement:
    """What left-out predictions are held against.

    Attributes
    ----------
    metric : LinearMetric
        The loss that leaving out is done for: its error bounds say when it is exact enough.
    target : array
        The response in the terms of ``metric``.
    weights : (n,) array
        Of the rows in the mean.
    sets : Folds or None
        Rows that leave together; None where every row leaves alone.
    clusters : (n,) int array or None
        Rows that count as one, as those of a group do; by default every row counts.
    score : callable or None
        Losses of rows from their left-out linear predictors, in place of those of ``metric``.
    """

    metric: LinearMetric
    target: Array
    weights: Array
    sets: Folds | None = None
    clusters: Index | None = None
    score: Score | None = None

    @cached_property
    def yardstick(self) -> Yardstick:
        """By which the engine says what is exact enough."""
        return yardstick(self.metric, self.target, self.weights)

    @property
    def is_of_squares(self) -> bool:
        """Whether it is single rows that are judged, by their squared errors."""
        return self.sets is None and self.score is None and isinstance(self.metric, SquaredError)

    @cached_property
    def unit_weights(self) -> Array:
        """Weights of what counts as one: (u,)."""
        if self.sets is None and self.clusters is None:
            return self.weights
        rows = self._rows
        return clustered(np.zeros(len(rows)), self.weights[rows], self._units)[1]

    @property
    def _rows(self) -> Index:
        return np.arange(len(self.weights)) if self.sets is None else self.sets.rows

    @cached_property
    def _units(self) -> Index:
        """What each judged value counts towards, in ascending order of rows: (t,)."""
        rows = self._rows
        own = rows if self.clusters is None else self.clusters[rows]
        return np.unique(own, return_inverse=True)[1]

    def losses(self, left_out: LeftOut) -> Array:
        """Loss of what counts as one, a row or a group: (u,)."""
        rows, eta = left_out.rows, left_out.eta
        own = self.metric.losses(self.target[rows], eta) if self.score is None else self.score(rows, eta)
        if self.sets is None and self.clusters is None:
            return own
        order = np.argsort(self._units, kind="stable")
        return clustered(own[order], self.weights[rows[order]], self._units[order])[0]

    def roughly(self, solution: Solution) -> LeftOut:
        """Left-out predictors that are good enough to tell strengths apart."""
        return in_passing(*solution, self.yardstick) if self.sets is None else self.thoroughly(solution)

    def thoroughly(self, solution: Solution) -> LeftOut:
        """Left-out predictors to a fraction of the standard error of the risk."""
        fit, curvature = solution
        return leave_out(fit, self.sets, curvature=curvature, yardstick=self.yardstick)

    def is_rough_on(self, solution: Solution) -> bool:
        """Whether rows can be followed further than ``roughly`` does."""
        return self.sets is None and has_paths(solution.fit)
