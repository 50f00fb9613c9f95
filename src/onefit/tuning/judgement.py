"""What the models of a path are judged by: which rows leave together, and by what loss or score."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from onefit._typing import Array, Index
from onefit.fit import Fit
from onefit.leave_out import LeftOut, leave_out
from onefit.leave_out.engine import cost_of_telling
from onefit.leave_out.sets import Folds
from onefit.leave_out.stages import State
from onefit.leave_out.yardstick import Yardstick
from onefit.metrics import LinearMetric, SquaredError
from onefit.numerics import EXACT, KNOWN
from onefit.risk.judging import yardstick
from onefit.risk.means import clustered, means
from onefit.solvers.newton import Solution
from onefit.tuning.sample import Verdict

LEAST_TOLD = 1e-3  # share of what a row has on average in a mean loss, below which its own is not told


class ScoredLosses(NamedTuple):
    """Losses by a score, from judged rows and their linear predictors.

    Attributes
    ----------
    losses : callable
        Of each row: (t,).
    mean : callable
        Their mean, for what one score takes, where losses of rows may take many.
    """

    losses: Callable[[Index, Array], Array]
    mean: Callable[[Index, Array], float]


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
    score : ScoredLosses or None
        What rows lose by their left-out linear predictors, in place of the losses of ``metric``.
    """

    metric: LinearMetric
    target: Array
    weights: Array
    sets: Folds | None = None
    clusters: Index | None = None
    score: ScoredLosses | None = None

    @cached_property
    def yardstick(self) -> Yardstick:
        """By which the engine says what is exact enough."""
        return yardstick(self.metric, self.target, self.weights)

    @property
    def is_of_squares(self) -> bool:
        """Whether it is single rows that are judged, by their squared errors."""
        return self.sets is None and self.score is None and isinstance(self.metric, SquaredError)

    @property
    def is_by_row(self) -> bool:
        """Whether it is single rows that are judged, each for itself."""
        return self.sets is None and self.clusters is None and self.score is None

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
        return self.losses_of(left_out.rows, left_out.eta)

    def losses_in(self, fit: Fit) -> Array:
        """The same in a fit with all rows: (u,)."""
        return self.losses_of(self._rows, fit.eta[self._rows])

    def mean_in(self, fit: Fit) -> float:
        """Their mean."""
        if self.score is not None:
            return self.score.mean(self._rows, fit.eta[self._rows])
        return float(means(self.losses_in(fit), self.unit_weights))

    def losses_of(self, rows: Index, eta: Array) -> Array:
        """The same, from the left-out predictors of all judged rows."""
        if self.score is None:
            own = self.metric.losses(self.target[rows], eta)
        else:
            own = self.score.losses(rows, eta)
        if self.sets is None and self.clusters is None:
            return own
        return clustered(own, self.weights[rows], self._units)[0]

    def unseen(self, losses: Array) -> Array:
        """What a label that none of these rows has may add to the risks of models: (u, J) losses give (J,).

        Of n rows that are all told right nothing says that the next one is: by Laplace's rule of succession
        it has another label with a chance of about 1/n.  Where rows are few and classes all but separated
        their losses fall without end as the penalty does, and this rises.  A row that is told wrong adds
        nothing: it has been seen.  Losses that a sample completes may be below zero: none counts as less than
        a thousandth of what a row has on average in the mean.
        """
        weights = self.unit_weights
        n = np.count_nonzero(weights > 0)
        with np.errstate(invalid="ignore"):  # of rows that are lost anyway
            least = LEAST_TOLD * means(losses.T, weights) / n
            told = np.maximum(losses, np.where(np.isfinite(least), least, 0.0))
            other = None if self.score is not None else self.metric.contradicted(told)
            if other is None:
                return np.zeros(losses.shape[1])
            rises = np.where(np.isfinite(told), np.maximum(other - told, 0.0), 0.0)
        return np.asarray(means(rises.T, weights) / n)

    def thoroughly(
        self,
        solution: Solution,
        max_error: float = KNOWN,
        apart: Array | None = None,
        begun: State | None = None,
    ) -> LeftOut:
        """Left-out predictors to a fraction of the standard error of the risk.

        ``apart`` are those of a verdict by tenths, ``begun`` what samples have left.
        """
        fit, curvature = solution
        return leave_out(
            fit,
            self.sets,
            max_error,
            curvature=curvature,
            yardstick=self.yardstick,
            for_bounds=cost_of_telling(fit, self.sets),
            apart=apart,
            begun=begun,
        )

    def verdict(self, left_out: LeftOut, count: int = 0, losses: Array | None = None) -> Verdict:
        """What left-out predictors of all rows, and their ``losses``, say, and how far that may be off."""
        losses = self.losses(left_out) if losses is None else losses
        off = self.spread(left_out.rows, left_out.eta, left_out.bounds)
        if left_out.correction is not None and self.score is None:
            losses, off = losses + left_out.correction.difference, left_out.correction.error
        off = off if np.isfinite(off) else np.inf
        proven = off < np.inf and left_out.correction is None
        return Verdict(losses, np.zeros(len(losses)), off, count, proven=proven)

    def spread(self, rows: Index, eta: Array, bounds: Array) -> float:
        """How far the risk may be off where left-out predictors are by no more than bounds."""
        weights, target = self.weights[rows], self.target[rows]
        held = weights > 0
        off = float(weights[held] @ self.metric.spread(target[held], eta[held], bounds[held]) / weights.sum())
        if self.score is not None:  # known where the values themselves are, whatever the loss
            risk = float(weights @ self.metric.losses(target, eta) / weights.sum())
            off = 0.0 if off <= EXACT * abs(risk) else np.inf
        return off
