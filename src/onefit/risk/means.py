"""Weighted means of losses, and how far they may be off by chance."""

from __future__ import annotations

from typing import Any

import numpy as np

from onefit._typing import Array


def clustered(losses: Array, weights: Array, clusters: Any) -> tuple[Array, Array]:
    """Mean loss and total weight of each cluster."""
    _, numbers = np.unique(clusters, return_inverse=True)
    if len(numbers) == numbers.max(initial=-1) + 1:
        return losses, weights
    totals = np.bincount(numbers, weights).astype(np.float64)
    sums = np.bincount(numbers, np.where(weights > 0, weights * losses, 0.0))
    return np.divide(sums, totals, out=np.zeros_like(sums), where=totals > 0), totals


def mean_and_error(losses: Array, weights: Array) -> tuple[float, float]:
    """Weighted mean over rows and its standard error, √(Σ w² (l − mean)² n/(n − 1)) / Σ w."""
    held = weights > 0
    n, total = int(held.sum()), weights.sum()
    mean = float(weights[held] @ losses[held] / total)
    if n < 2:
        return mean, float("nan")
    spread = np.sum((weights[held] * (losses[held] - mean)) ** 2) * n / (n - 1)
    return mean, float(np.sqrt(spread) / total)
