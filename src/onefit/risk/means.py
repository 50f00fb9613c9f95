"""Weighted means of losses, and how far they and the differences between them may be off by chance.

A weighted mean of l has the variance Σ w² (l − mean)² n/(n − 1) / (Σ w)²; only rows with weight count.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onefit._typing import Array


def clustered(losses: Array, weights: Array, clusters: Any) -> tuple[Array, Array]:
    """Mean loss and total weight of each cluster, in ascending order of clusters."""
    each, numbers = np.unique(clusters, return_inverse=True)
    if len(numbers) == len(each):
        order = np.argsort(numbers)
        return losses[order], weights[order]
    totals = np.bincount(numbers, weights).astype(np.float64)
    sums = np.bincount(numbers, np.where(weights > 0, weights * losses, 0.0))
    return np.divide(sums, totals, out=np.zeros_like(sums), where=totals > 0), totals


def mean_and_error(losses: Array, weights: Array) -> tuple[float, float]:
    """Weighted mean over rows and its standard error, √(Σ w² (l − mean)² n/(n − 1)) / Σ w.

    NaN for the error of one row, or of a loss without bound.
    """
    held = weights > 0
    n, total = int(held.sum()), weights.sum()
    mean = float(weights[held] @ losses[held] / total)
    if n < 2 or not np.isfinite(mean):
        return mean, float("nan")
    with np.errstate(over="ignore"):  # of losses beyond 1e154
        spread = np.sum((weights[held] * (losses[held] - mean)) ** 2) * n / (n - 1)
    return mean, float(np.sqrt(spread) / total)


# --- at several strengths ------------------------------------------------------------------------------


def means_and_errors(losses: Array, weights: Array) -> tuple[Array, Array]:
    """The same of each column of (n, J) losses: (J,) each."""
    losses, weights = held(losses, weights)
    n, total = len(weights), weights.sum()
    with np.errstate(over="ignore", invalid="ignore"):  # of losses without bound
        middle = weights @ losses / total
        if n < 2:
            return middle, np.full(len(middle), np.nan)
        off = weights[:, None] * (losses - middle)
        errors = np.sqrt(np.einsum("nj,nj->j", off, off) * n / (n - 1)) / total
    return middle, np.where(np.isfinite(middle), errors, np.nan)


def paired_errors(losses: Array, weights: Array, best: int) -> Array:
    """Standard errors of the differences between each risk and that at ``best``: (J,), 0 at ``best``.

    Parameters
    ----------
    losses : (n, J) array
    weights : (n,) array
        Rows without weight do not count.
    best : int
    """
    losses, weights = held(losses, weights)
    along = losses.T[None]
    differences = along - along[:, [best]]
    return errors_of_means(differences, weights, means(differences, weights))[0]


def covariance_of_means(values: Array, weights: Array) -> Array:
    """Covariance of the weighted means of J columns, each with the error of ``mean_and_error``: (J, J).

    Parameters
    ----------
    values : (n, J) array
        For risks their rows' losses, less those at one of them: differences between two strengths
        stay the same, and rounding stays out of them.
    weights : (n,) array
    """
    values, weights = held(values, weights)
    along = values.T[None]
    return covariances_of_means(along, weights, means(along, weights))[0]


def means(values: Array, weights: Array) -> Array:
    """Weighted means over the last axis, of (t, J, n) values: (t, J)."""
    return np.matmul(values, weights) / weights.sum()


def errors_of_means(values: Array, weights: Array, middle: Array) -> Array:
    """Standard errors of weighted means over the last axis, of (t, J, n) values with these means: (t, J).

    By sums of squares, which loses digits where the means are many standard deviations from zero.
    """
    weighted, second = _weighted(values, weights, middle)
    total = np.einsum("tjn,tjn->tj", weighted, weighted) - 2.0 * middle * second
    total += middle**2 * (weights @ weights)
    return np.sqrt(np.maximum(total, 0.0) * _spread_of_mean(weights))


def covariances_of_means(values: Array, weights: Array, middle: Array) -> Array:
    """The covariance of such errors over the second axis: (t, J, J)."""
    weighted, second = _weighted(values, weights, middle)
    cross = middle[..., :, None] * second[..., None, :]
    total = np.matmul(weighted, weighted.transpose(0, 2, 1)) - cross - cross.transpose(0, 2, 1)
    total += middle[..., :, None] * middle[..., None, :] * (weights @ weights)
    return total * _spread_of_mean(weights)


def _weighted(values: Array, weights: Array, middle: Array) -> tuple[Array, Array]:
    """Values times w, and Σ w² v."""
    if np.all(weights == 1.0):
        return values, middle * len(weights)
    weighted = values * weights
    return weighted, np.matmul(weighted, weights)


def held(losses: Array, weights: Array) -> tuple[Array, Array]:
    """Rows that have weight."""
    held = weights > 0
    return (losses, weights) if held.all() else (losses[held], weights[held])


def _spread_of_mean(weights: Array) -> float:
    """From Σ w² (l − mean)² to the variance of the weighted mean; not known for a single row."""
    n = len(weights)
    return float(n / (n - 1) / weights.sum() ** 2) if n > 1 else float("nan")
