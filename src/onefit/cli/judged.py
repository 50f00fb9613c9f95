"""Left-out predictions of some rows of a table, whichever way they were left out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onefit._typing import Array, Index
from onefit.cli.table import Table
from onefit.losses import Tweedie
from onefit.metrics import Deviance, LinearMetric, LogLoss, SquaredError
from onefit.risk.estimate import RiskEstimate
from onefit.risk.means import clustered, mean_and_error

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
    together : bool
        Whether rows left together, not one by one.
    """

    rows: Index
    predictions: Array
    losses: Array
    baseline: Array
    loss_name: str
    weights: Array
    clusters: Index | None = None
    together: bool = False

    def risk(self, losses: Array) -> tuple[float, float]:
        """Mean of some losses of the rows, and its standard error."""
        if self.clusters is None:
            return mean_and_error(losses, self.weights)
        return mean_and_error(*clustered(losses, self.weights, self.clusters))


def one_by_one(est: RiskEstimate, table: Table) -> LeftOutTable:
    """Every row left out by itself."""
    baseline = constant_losses(table, est.loss_name)
    rows = np.arange(len(table.y))
    return LeftOutTable(rows, est.predictions, est.losses, baseline, est.loss_name, table.row_weights)


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
    return [
        one
        if one.loss_name == "squared error"
        else replace(
            one,
            losses=(table.y[one.rows] - one.predictions) ** 2,
            loss_name="squared error",
            baseline=next(other.baseline for other in judged if other.loss_name == "squared error"),
        )
        for one in judged
    ]
