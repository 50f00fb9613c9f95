"""What is done with X as users give it: an array, a sparse matrix, or a Gram matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from onefit._linalg.blas import mirrored
from onefit._linalg.columns import DenseColumns, SparseColumns, as_columns
from onefit._linalg.design import Design
from onefit._typing import Array, Index


def as_design(X: Any) -> Design:
    """Say what can be done with an array, a sparse matrix, or a design."""
    return X if isinstance(X, Design) else as_columns(X)


def has_columns(X: Any) -> bool:
    """Whether coefficients are those of columns; for a kernel model they are dual ones, of rows."""
    return as_design(X).has_columns


def is_full(X: Any) -> bool:
    """Whether every entry of X is stored."""
    return as_design(X).is_full


def times(X: Any, coef: Array) -> Array:
    """X @ coef: (n,), (n, c) or (n, c, r)."""
    if coef.ndim == 3:
        product = times(X, coef.reshape(len(coef), -1))
        return product.reshape(len(product), *coef.shape[1:])
    return as_design(X).times(coef)


def transposed_times(X: Any, rows: Array) -> Array:
    """Xᵀ @ rows: (p,), (p, c) or (p, c, r); in the dual coordinates of a RowGram it is ``rows`` itself."""
    if rows.ndim == 3:
        product = transposed_times(X, rows.reshape(len(rows), -1))
        return product.reshape(len(product), *rows.shape[1:])
    return as_design(X).transposed_times(rows)


def pairings(X: Any, gradients: Array, coefs: Array) -> Array:
    """Inner products of gradients and directions (see ``Design.pairing``) along their last axes: (f,)."""
    metric = coefs if has_columns(X) else times(X, coefs)
    return np.asarray((gradients * metric).reshape(-1, coefs.shape[-1]).sum(axis=0))


def column_means(X: Any, weights: Array) -> Array:
    """Weighted mean of each column: (p,).  Weights may be of either sign but not sum to zero."""
    return transposed_times(X, weights) / weights.sum()


def column_norms(X: Any, weights: Array, *, centred: bool) -> Array:
    """√(Σ_i w_i (x_ij − x̄_j)²) of each column, or without the mean: (p,)."""
    means = column_means(X, weights) if centred else None
    return np.sqrt(as_columns(X).column_squares(weights, means))


def active_columns(X: Any, support: Index | None) -> Any:
    """X[:, support], or X itself for all columns; a dense copy keeps the memory order of X."""
    return X if support is None else as_columns(X).columns(support)


def is_same(one: Any, other: Any) -> bool:
    """Whether two designs have the same entries."""
    return one is other or as_design(one).same_as(as_design(other))


def some_rows(X: Any, rows: Index) -> Any:
    """X[rows]; of a kernel model the Gram matrix of these rows."""
    own = as_design(X).some_rows(rows)
    return own.X if isinstance(own, DenseColumns | SparseColumns) else own


def densified(X: Any, most: int) -> Any:
    """X, dense if it has at most so many entries."""
    n, p = X.shape
    return as_columns(X).dense() if n * p <= most else X


def full_gram(X: Any, means: Array | None, d: Array) -> Array:
    """(X − 1 meansᵀ)ᵀ diag(d) (X − 1 meansᵀ), both triangles of it: (k, k)."""
    return mirrored(as_columns(X).weighted_gram(means, d))


def stacked(parts: list[Any]) -> Any:
    """Designs with columns below each other, sparse if one of them is."""
    if any(isinstance(as_design(part), SparseColumns) for part in parts):
        return sp.vstack([sp.csr_array(part) for part in parts], format="csr")
    return np.vstack(parts)


def with_axes(values: Any, like: Array) -> Any:
    """Values with axes of length one behind their own, as many as another array has more."""
    return values.reshape(values.shape + (1,) * (like.ndim - values.ndim))
