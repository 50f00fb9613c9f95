"""Left-out predictions of some rows of a table, whichever way they were left out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit, softmax, xlogy

from onefit._typing import Array, Index
from onefit.cli.table import Table
from onefit.risk.estimate import RiskEstimate

LEAST = np.finfo(float).tiny


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
    clusters: Index | None = None
    together: bool = False


def one_by_one(est: RiskEstimate, table: Table) -> LeftOutTable:
    """Every row left out by itself."""
    everything = np.arange(len(table.y))
    baseline = constant_losses(table, est.loss_name)
    return LeftOutTable(everything, est.predictions, est.losses, baseline, est.loss_name)


def class_numbers(y: Any) -> Index:
    """Number of the class of each row, in sorted order."""
    return np.unique(y, return_inverse=True)[1]


def response(table: Table) -> Array:
    """Numbers, or class numbers as floats: (n,)."""
    return np.asarray(class_numbers(table.y) if table.is_classification else table.y, dtype=np.float64)


def from_predictor(eta: Array, loss_name: str) -> Array:
    """From linear predictors to numbers or probabilities: (m,) or (m, c)."""
    if loss_name == "log-loss":
        return softmax(eta, axis=1) if eta.ndim == 2 else np.stack([expit(-eta), expit(eta)], axis=1)
    return np.exp(eta) if loss_name == "deviance" else eta


def losses_of(loss_name: str, y: Array, predictions: Array) -> Array:
    """Loss of each prediction: (m,); ``y`` holds class numbers for the log-loss."""
    if loss_name == "log-loss":
        return -np.log(np.maximum(predictions[np.arange(len(y)), y.astype(np.intp)], LEAST))
    if loss_name == "deviance":
        mean = np.maximum(predictions, LEAST)
        return 2.0 * (xlogy(y, y / mean) - y + mean)
    return (y - predictions) ** 2


def constant_losses(table: Table, loss_name: str) -> Array:
    """Losses of the constant that the other rows suggest: their mean, or their class frequencies.

    With S = Σ w y, row i is predicted by (S − w_i y_i) / (Σ w − w_i).  Where all other counts are zero, half
    a count is put among them, since a Poisson mean of zero would make the deviance infinite.
    """
    w = np.ones(len(table.y)) if table.weights is None else table.weights
    others = np.maximum(w.sum() - w, LEAST)
    if loss_name == "log-loss":
        numbers = class_numbers(table.y)
        share = (np.bincount(numbers, w)[numbers] - w) / others
        return -np.log(np.maximum(share, LEAST))
    mean = (w @ table.y - w * table.y) / others
    if loss_name == "deviance":
        mean = np.maximum(mean, 0.5 / others)
    return losses_of(loss_name, table.y, mean)


def constant(loss_name: str, y: Array, w: Array, n_classes: int) -> Array:
    """Prediction without features from training rows: a number, or the frequencies of the classes."""
    if loss_name == "log-loss":
        return np.bincount(y.astype(np.intp), w, n_classes) / w.sum()
    mean = np.average(y, weights=w)
    return np.asarray(max(mean, 0.5 / w.sum()) if loss_name == "deviance" else mean)


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
