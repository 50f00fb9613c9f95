"""Left-out predictions of some rows of a table, whichever way they were left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onefit._scoring import Pooled
from onefit._scoring.by_row import squared
from onefit._typing import Array, Index
from onefit.cli.table import Table
from onefit.losses import Tweedie
from onefit.metrics import Deviance, LinearMetric, LogLoss, SquaredError
from onefit.risk.estimate import RiskEstimate
from onefit.risk.means import clustered, mean_and_error
from onefit.risk.sampled import SampledPredictions

LEAST = np.finfo(float).tiny
# how models are judged, by the name of the loss; the response is numbers, or class numbers
METRICS: dict[str, LinearMetric] = {
    one.loss_name: one for one in (SquaredError(), Deviance(Tweedie(1.0)), LogLoss(None))
}


@dataclass(frozen=True, eq=False)
class LeftOutTable:
    """Left-out predictions and their losses.

    Attributes
    ----------
    rows : (m,) int array
        Which rows of the table were judged.
    predictions : (m,) or (m, c) array
        Numbers, or probabilities of the classes.
    losses : (m,) array
    baseline : (m,) array
        Losses of the constant that the other rows suggest: their mean, or their class frequencies.
    loss_name : str
    weights : (m,) array
    clusters : (m,) int array or None
        Rows that are not independent of each other.
    parts : (m,) int array or None
        Which of these rows left together, where they are several groups.
    together : bool
        Whether rows left together, not one by one.
    sampled : SampledPredictions or None
        Which rows a mean rests on that is known from a sample of them.
    difference : float
        By how much the rows of a sample raise the mean of ``losses``.
    """

    rows: Index
    predictions: Array
    losses: Array
    baseline: Array
    loss_name: str
    weights: Array
    clusters: Index | None = None
    parts: Index | None = None
    together: bool = False
    sampled: SampledPredictions | None = None
    difference: float = 0.0

    @property
    def own_risk(self) -> tuple[float, float]:
        """Mean loss, corrected by a sample where there is one, and its standard error."""
        mean, error = self.risk(self.losses)
        return mean + self.difference, error

    @property
    def constant(self) -> LeftOutTable:
        """The same rows as the constant predicts them."""
        return replace(self, losses=self.baseline, sampled=None, difference=0.0)

    def mirrored(self) -> LeftOutTable:
        """The same where the two classes change places."""
        sampled = None if self.sampled is None else _by(self.sampled, self.sampled.predictions[:, ::-1])
        return replace(self, predictions=self.predictions[:, ::-1], sampled=sampled)

    def above(self, other: LeftOutTable) -> tuple[float, float]:
        """By how much the mean loss is above that of another model, and the paired standard error."""
        mean, error = self.risk(self.losses - other.losses)
        return mean + (self.difference - other.difference), error

    def value(self, of_rows: Callable[[Pooled], Array], pooled: Pooled) -> float:
        """Mean of what is said of each row, corrected by a sample where there is one."""

        def mean(known: Pooled) -> float:
            return self.risk(of_rows(known))[0]

        return mean(pooled) if self.sampled is None else self.sampled.corrected(mean, pooled)[0]

    def risk(self, losses: Array) -> tuple[float, float]:
        """Mean of some losses of the rows, and its standard error."""
        if self.clusters is None:
            return mean_and_error(losses, self.weights)
        return mean_and_error(*clustered(losses, self.weights, self.clusters))


def one_by_one(est: RiskEstimate, table: Table) -> LeftOutTable:
    """Every row left out by itself."""
    baseline = constant_losses(table, est.loss_name)
    rows, weights = np.arange(len(table.y)), table.row_weights
    found = LeftOutTable(rows, est.predictions, est.losses, baseline, est.loss_name, weights)
    sampled = None if est.sampled is None else _by(est.sampled, est.sampled.predictions)
    return replace(found, sampled=sampled, difference=est.value - found.own_risk[0])


def _by(sampled: SampledPredictions, predictions: Array) -> SampledPredictions:
    """Rows of a sample by their predictions alone."""
    return replace(sampled, predictions=predictions, decision=predictions)


def class_numbers(y: Any) -> Index:
    """Number of the class of each row, in sorted order."""
    return np.unique(y, return_inverse=True)[1]


def response(table: Table) -> Array:
    """Numbers, or class numbers as floats: (n,)."""
    return np.asarray(class_numbers(table.y) if table.is_classification else table.y, dtype=np.float64)


def constant_losses(table: Table, loss_name: str, split: tuple[Index, Index] | None = None) -> Array:
    """Losses of the constant that the other rows suggest: their mean, or their class frequencies.

    With S = Σ w y over the rows that are known, row i is predicted by (S − w_i y_i) / (Σ w − w_i) if it is
    one of these, else by S / Σ w.  Where all other counts are zero, half a count is put among them, since a
    Poisson mean of zero would make the deviance infinite.

    Parameters
    ----------
    table : Table
    loss_name : str
    split : tuple of (train, test), optional
        Rows that are known, and rows to judge; every row by all others if missing.
    """
    y, w, everything = response(table), table.row_weights, np.arange(len(table.y))
    known, rows = (everything, everything) if split is None else split
    several = loss_name == "log-loss"
    values = np.eye(int(y.max()) + 1)[y.astype(np.intp)] if several else y[:, None]
    own = (w[rows] * (split is None))[:, None]
    others = np.maximum(w[known].sum() - own, LEAST)
    means = (w[known] @ values[known] - own * values[rows]) / others
    means = np.maximum(means, 0.5 / others) if loss_name == "deviance" else means
    return METRICS[loss_name].of_predictions(y[rows], means if several else means[:, 0])


def with_common_loss(judged: list[LeftOutTable], table: Table) -> list[LeftOutTable]:
    """Losses that may be compared: their own if all have the same, else squared errors."""
    if len({one.loss_name for one in judged}) <= 1:
        return judged
    baseline = next(one.baseline for one in judged if one.loss_name == "squared error")
    return [one if one.loss_name == "squared error" else _by_squares(one, table, baseline) for one in judged]


def _by_squares(judged: LeftOutTable, table: Table, baseline: Array) -> LeftOutTable:
    """The same predictions by their squared errors."""
    pooled = Pooled(table.y[judged.rows], judged.predictions, judged.predictions, "", None, judged.weights)
    losses = squared(pooled)
    found = replace(judged, losses=losses, loss_name="squared error", baseline=baseline, difference=0.0)
    return replace(found, difference=found.value(squared, pooled) - found.own_risk[0])
