"""Scores of left-out predictions with their standard errors.

Every score T is a function of the weights of the rows.  With its derivatives T_i = ∂T/∂w_i,

    se² = C/(C − 1) Σ_c (Σ_{i in c} w_i T_i)²

over C rows, or groups of rows that are not independent: the infinitesimal jackknife (Jaeckel 1972; Efron
1982, chapter 6).  For a mean it is the usual error, for the area under the ROC curve that of DeLong et al.
(1988) but for (n − 1)/n.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from onefit._typing import Array, Index

Derived = tuple[float, Array]  # a score and its derivative in the weight of each row


class Score(NamedTuple):
    """A score and its standard error."""

    name: str
    value: float
    std_error: float


@dataclass(frozen=True, eq=False)
class Judging:
    """What scores are computed from.

    Attributes
    ----------
    y : (n,) array
        Numbers, or class numbers.
    predictions : (n,) or (n, c) array
        Numbers, or probabilities of the classes.
    weights : (n,) array
    """

    y: Array
    predictions: Array
    weights: Array


def scores(judging: Judging, wanted: dict[str, Callable[[Judging], Derived]], clusters: Any) -> list[Score]:
    """Scores with their standard errors.

    Parameters
    ----------
    judging : Judging
    wanted : dict of str to function
        One of ``NUMBERS``, ``BINARY`` and ``CLASSES``.
    clusters : (n,) int array or None
        Rows that are not independent of each other.
    """
    found = []
    for name, function in wanted.items():
        value, derivative = function(judging)
        found.append(Score(name, value, standard_error(judging.weights * derivative, clusters)))
    return found


def standard_error(parts: Array, clusters: Index | None) -> float:
    """√(C/(C − 1) Σ_c (Σ parts)²), nan for a single row or cluster."""
    sums = parts[parts != 0] if clusters is None else np.bincount(clusters, parts)
    count = len(parts) if clusters is None else len(np.unique(clusters))
    return float(np.sqrt(count / (count - 1) * np.sum(sums**2))) if count > 1 else float("nan")


def mean(losses: Array, weights: Array) -> Derived:
    """Weighted mean and its derivative."""
    total = weights.sum()
    value = float(weights @ losses / total)
    return value, (losses - value) / total


# --- numbers ---------------------------------------------------------------------------------------


def rmse(one: Judging) -> Derived:
    """Root of the mean squared error, in units of the target."""
    value, derivative = mean((one.y - one.predictions) ** 2, one.weights)
    root = float(np.sqrt(value))
    return root, derivative / (2.0 * max(root, np.finfo(float).tiny))


def mae(one: Judging) -> Derived:
    """Mean absolute error, in units of the target."""
    return mean(np.abs(one.y - one.predictions), one.weights)


def r2(one: Judging) -> Derived:
    """1 − Σ w (y − ŷ)² / Σ w (y − ȳ)²."""
    around = (one.y - mean(one.y, one.weights)[0]) ** 2
    total = max(float(one.weights @ around), np.finfo(float).tiny)
    squares = (one.y - one.predictions) ** 2
    left = float(one.weights @ squares) / total
    return 1.0 - left, (left * around - squares) / total


# --- classes ---------------------------------------------------------------------------------------


def accuracy(one: Judging) -> Derived:
    """Share of rows whose likeliest class is their own."""
    return mean((one.predictions.argmax(axis=1) == one.y).astype(np.float64), one.weights)


def log_loss(one: Judging) -> Derived:
    """Mean of −log of the probability of the own class."""
    own = one.predictions[np.arange(len(one.y)), one.y.astype(np.intp)]
    return mean(-np.log(np.maximum(own, np.finfo(float).tiny)), one.weights)


def brier(one: Judging) -> Derived:
    """Mean squared error of the probabilities: of the second of two classes, or summed over several."""
    c = one.predictions.shape[1]
    errors = (np.eye(c)[one.y.astype(np.intp)] - one.predictions) ** 2
    return mean(errors[:, 1] if c == 2 else errors.sum(axis=1), one.weights)


def auc(one: Judging) -> Derived:
    """Area under the ROC curve; of several classes the mean over one against the rest."""
    return _one_against_rest(one, _auc)


def average_precision(one: Judging) -> Derived:
    """Area under the precision-recall curve; of several classes the mean over one against the rest."""
    return _one_against_rest(one, _average_precision)


def _one_against_rest(one: Judging, area: Callable[[Any, Array, Array], Derived]) -> Derived:
    c = one.predictions.shape[1]
    parts = [area(one.y == k, one.predictions[:, k], one.weights) for k in ([1] if c == 2 else range(c))]
    return float(np.mean([value for value, _ in parts])), np.mean([part for _, part in parts], axis=0)


def _auc(positive: Any, scores_: Array, w: Array) -> Derived:
    """Weighted share of pairs in the right order, ties half: the mean placement of each row."""
    placement = np.where(positive, _below(scores_, scores_[~positive], w[~positive]), 0.0)
    placement += np.where(positive, 0.0, 1.0 - _below(scores_, scores_[positive], w[positive]))
    p, q = w[positive].sum(), w[~positive].sum()
    if not (p > 0 and q > 0):
        return float("nan"), np.zeros(len(w))
    value = float(w[positive] @ placement[positive] / p)
    return value, (placement - value) / np.where(positive, p, q)


def _below(scores_: Array, others: Array, w: Array) -> Array:
    """Weighted share of others below each score, ties half."""
    order = np.argsort(others, kind="stable")
    cumulated = np.concatenate([[0.0], np.cumsum(w[order])])
    left, right = (np.searchsorted(others[order], scores_, side) for side in ("left", "right"))
    return 0.5 * (cumulated[left] + cumulated[right]) / max(cumulated[-1], np.finfo(float).tiny)


def _average_precision(positive: Any, scores_: Array, w: Array) -> Derived:
    """Σ_k (p_k/P) TP_k/N_k over distinct thresholds k, p_k being the positive weight at k.

    In the weight of a row of block b and label l its derivative is
    l TP_b/(N_b P) + Σ_{k ≥ b} p_k (l − TP_k/N_k)/(N_k P) − l T/P.
    """
    distinct, block = np.unique(-scores_, return_inverse=True)
    at = np.bincount(block, w * positive, len(distinct))
    total = at.sum()
    true, all_ = np.cumsum(at), np.cumsum(np.bincount(block, w, len(distinct)))
    if not total > 0:
        return float("nan"), np.zeros(len(w))
    precision = np.divide(true, all_, out=np.zeros_like(true), where=all_ > 0)
    each = np.divide(at, all_, out=np.zeros_like(at), where=all_ > 0)
    value = float(at @ precision / total)
    later, later_precise = (np.cumsum(part[::-1])[::-1] for part in (each, each * precision))
    derivative = positive * (precision[block] + later[block] - value) - later_precise[block]
    return value, derivative / total


NUMBERS: dict[str, Callable[[Judging], Derived]] = {"R²": r2, "RMSE": rmse, "MAE": mae}
CLASSES: dict[str, Callable[[Judging], Derived]] = {
    "log-loss": log_loss,
    "AUC": auc,
    "average precision": average_precision,
    "Brier": brier,
    "accuracy": accuracy,
}
