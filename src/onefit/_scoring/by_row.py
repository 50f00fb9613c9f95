"""Values of single rows whose mean is minus a score, or a loss, and whose spread is its error."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import xlogy

from onefit._scoring.pooled import Pooled, decided
from onefit._typing import Array, Mask

TINY = float(np.finfo(np.float64).tiny)


def squared(pooled: Pooled) -> Array:
    """Squared error."""
    return np.asarray((pooled.y - pooled.predictions) ** 2)


def absolute(pooled: Pooled) -> Array:
    """Absolute error."""
    return np.abs(pooled.y - pooled.predictions)


def root(pooled: Pooled) -> Array:
    """Root of the mean squared error."""
    squares = squared(pooled)
    mean = float(pooled.shares @ squares)
    size = np.sqrt(mean)
    return size + (squares - mean) / (2.0 * size) if size > 0 else squares


def unexplained(pooled: Pooled) -> Array:
    """Minus R²: with the variance V of the response, e²/V − (1 − R²) (y − ȳ)²/V − R²."""
    shares, y = pooled.shares, np.asarray(pooled.y, dtype=np.float64)
    apart, squares = (y - shares @ y) ** 2, squared(pooled)
    variance = max(float(shares @ apart), TINY)
    ratio = float(shares @ squares) / variance
    return ratio - 1.0 + (squares - ratio * apart) / variance


def _own_probability(pooled: Pooled) -> Array:
    return np.take_along_axis(pooled.predictions, pooled.number[:, None], axis=1)[:, 0]


def _log_loss(pooled: Pooled) -> Array:
    eps = float(np.finfo(pooled.predictions.dtype).eps)
    return -np.log(np.clip(_own_probability(pooled), eps, 1.0))


def brier(pooled: Pooled) -> Array:
    """Squared error of the probability of the second of two classes, or summed over those of several."""
    if pooled.predictions.shape[1] == 2:
        return (1.0 - _own_probability(pooled)) ** 2
    own = np.eye(pooled.predictions.shape[1])[pooled.number]
    return np.sum((pooled.predictions - own) ** 2, axis=1)


def _poisson(pooled: Pooled) -> Array:
    y, mean = np.asarray(pooled.y, dtype=np.float64), _positive(pooled.predictions)
    return 2.0 * (xlogy(y, y / mean) - y + mean)


def _gamma(pooled: Pooled) -> Array:
    y, mean = np.asarray(pooled.y, dtype=np.float64), _positive(pooled.predictions)
    return 2.0 * (np.log(mean / y) + y / mean - 1.0)


def _positive(predictions: Array) -> Array:
    if np.any(predictions <= 0):
        raise ValueError("a deviance needs positive predictions, and some are not: take 'mse' or 'mae'")
    return predictions


def missed(pooled: Pooled) -> Array:
    """Minus whether the likeliest class of each row is its own."""
    return -(decided(pooled.ranked) == pooled.number).astype(np.float64)


def area(pooled: Pooled) -> Array:
    """Minus the area under the ROC curve; of several classes the mean over one against the rest."""
    return _one_against_rest(pooled, _placements)


def precision(pooled: Pooled) -> Array:
    """Minus the average precision; of several classes the mean over one against the rest."""
    return _one_against_rest(pooled, _average_precision)


def _one_against_rest(pooled: Pooled, of_one: Callable[[Mask, Array, Array], Array]) -> Array:
    decision, number = pooled.ranked, pooled.number
    if decision.ndim == 1:
        return of_one(number == 1, decision, pooled.shares)
    c = decision.shape[1]
    each = [of_one(number == k, decision[:, k], pooled.shares) for k in ([1] if c == 2 else range(c))]
    return np.asarray(np.mean(each, axis=0))


def _placements(positive: Mask, decision: Array, shares: Array) -> Array:
    """Minus the area under the ROC curve, by the placements of DeLong et al. (1988), with weights."""
    totals = [float(shares[side].sum()) for side in (~positive, positive)]
    if not min(totals) > 0:
        return np.full(len(shares), np.nan)
    placed = np.zeros(len(shares))
    placed[positive] = _share_below(decision[positive], decision[~positive], shares[~positive])
    placed[~positive] = 1.0 - _share_below(decision[~positive], decision[positive], shares[positive])
    whole = float(shares[positive] @ placed[positive]) / totals[1]
    return -whole - (placed - whole) / np.where(positive, totals[1], totals[0])


def _share_below(at: Array, values: Array, weights: Array) -> Array:
    """Share of the weight of ``values`` below each of ``at``, ties by half."""
    order = np.argsort(values, kind="stable")
    total = np.concatenate([[0.0], np.cumsum(weights[order])])
    below, upto = (np.searchsorted(values[order], at, side=side) for side in ("left", "right"))
    return (total[below] + total[upto]) / (2.0 * total[-1])


def _average_precision(positive: Mask, decision: Array, shares: Array) -> Array:
    """Minus T = Σ_k (p_k/P) TP_k/N_k over distinct thresholds k, p_k being the positive weight at k.

    In the weight of a row of block b and label l its derivative is
    l TP_b/(N_b P) + Σ_{k ≥ b} p_k (l − TP_k/N_k)/(N_k P) − l T/P.
    """
    distinct, block = np.unique(-decision, return_inverse=True)
    at = np.bincount(block, shares * positive, len(distinct))
    total = at.sum()
    if not total > 0:
        return np.full(len(shares), np.nan)
    true, called = np.cumsum(at), np.maximum(np.cumsum(np.bincount(block, shares, len(distinct))), TINY)
    precise, each = true / called, at / called
    whole = float(at @ precise / total)
    later, later_precise = (np.cumsum(part[::-1])[::-1] for part in (each, each * precise))
    moved = positive * (precise[block] + later[block] - whole) - later_precise[block]
    return -whole - moved / total


BY_ROW: dict[str, Callable[[Pooled], Array]] = {
    "neg_mean_squared_error": squared,
    "neg_mean_absolute_error": absolute,
    "neg_root_mean_squared_error": root,
    "r2": unexplained,
    "neg_log_loss": _log_loss,
    "neg_brier_score": brier,
    "neg_mean_poisson_deviance": _poisson,
    "neg_mean_gamma_deviance": _gamma,
    "accuracy": missed,
    "roc_auc": area,
}
