"""What belongs to rows: a number (n,), one an output (n, c), or a matrix of coupled outputs (n, c, c)."""

from __future__ import annotations

from typing import Any

import numpy as np

from onefit._typing import Array, Mask


def with_axes(values: Any, like: Array, last: int = 0) -> Any:
    """Values with as many axes as another array, those of length one before so many of the last."""
    own = values.ndim - last
    return values.reshape((*values.shape[:own], *(1,) * (like.ndim - values.ndim), *values.shape[own:]))


def row_sums(values: Array) -> Array:
    """Sums over outputs, the second axis, which stays: (n, 1), and perhaps more axes.

    Of an axis that is short and the last one NumPy makes a loop a row, which takes five times a product.
    """
    if values.ndim > 2:
        return np.asarray(values.sum(axis=1, keepdims=True))
    return np.asarray(values @ np.ones((values.shape[1], 1), dtype=values.dtype))


def row_means(values: Array) -> Array:
    """Means over outputs, the second axis, which stays."""
    return row_sums(values) / values.shape[1]


def row_times(matrices: Array | Mask, change: Array) -> Array:
    """The matrix of each row, diagonal if it is (n,) or (n, c), times the row of an array with any axes."""
    if matrices.ndim == 3:
        flat = change.reshape(*change.shape[:2], -1)
        return np.asarray(matrices @ flat).reshape(change.shape)
    return np.asarray(with_axes(matrices, change) * change)


def weighted_rows(weights: Array, values: Array) -> Array:
    """Weights (n,) times values whose first axis is the rows: 0 times what is infinite is 0."""
    with np.errstate(invalid="ignore"):
        weighted = row_times(weights, values)
        overflows = np.isnan(weighted.sum())
    if overflows:
        weighted[weights == 0] = 0.0
    return weighted


def row_diagonals(matrices: Array) -> Array:
    """Diagonals of the matrices of the rows: (n,) or (n, c)."""
    return np.einsum("naa->na", matrices) if matrices.ndim == 3 else matrices


def row_matrices(values: Array, c: int) -> Array:
    """One matrix a row, (n, c, c): diagonal where the outputs do not depend on each other."""
    if values.size == len(values) * c * c:
        return values.reshape(-1, c, c)
    return np.broadcast_to(values.reshape(len(values), -1), (len(values), c))[:, :, None] * np.eye(c)
