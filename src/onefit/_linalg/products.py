"""Every product with X as users give it: an array, a sparse matrix, or a Gram matrix."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from onefit._linalg.columns import DenseColumns, SparseColumns, as_columns
from onefit._linalg.design import Design
from onefit._typing import Array, Index, Mask


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
        return times(X, coef.reshape(len(coef), -1)).reshape(-1, *coef.shape[1:])
    return as_design(X).times(coef)


def transposed_times(X: Any, rows: Array) -> Array:
    """Xᵀ @ rows: (p,), (p, c) or (p, c, r); in the dual coordinates of a RowGram it is ``rows`` itself."""
    if rows.ndim == 3:
        return transposed_times(X, rows.reshape(len(rows), -1)).reshape(-1, *rows.shape[1:])
    return as_design(X).transposed_times(rows)


def pairing(X: Any, gradient: Array, coef: Array) -> float:
    """Inner product of a gradient and a direction: aᵀ b, or aᵀ G b in the dual coordinates of a RowGram."""
    return as_design(X).pairing(gradient, coef)


def pairings(X: Any, gradients: Array, coefs: Array) -> Array:
    """The same for several gradients and directions, along the last axis of both: (f,)."""
    metric = coefs if has_columns(X) else times(X, coefs)
    return np.asarray((gradients * metric).reshape(-1, coefs.shape[-1]).sum(axis=0))


def column_means(X: Any, weights: Array) -> Array:
    """Weighted mean of each column: (p,).  Weights may be of either sign but not sum to zero."""
    return transposed_times(X, weights) / weights.sum()


def sum_of_rows(X: Any, weights: Array) -> Array:
    """Σ_i w_i x_i, by which coefficients are multiplied, also those of a RowGram: (p,)."""
    return as_design(X).sum_of_rows(weights)


def column_norms(X: Any, weights: Array, *, centred: bool) -> Array:
    """√(Σ_i w_i (x_ij − x̄_j)²) of each column, or without the mean: (p,)."""
    means = column_means(X, weights) if centred else None
    return np.sqrt(as_columns(X).column_squares(weights, means))


def weighted_cross(X: Any, columns: Index, support: Mask, d: Array) -> tuple[Array, Array]:
    """X_Lᵀ diag(d) X_S and X_Lᵀ d, for some columns L and a support S."""
    return as_columns(X).cross(columns, support, d)


def centred_cross(
    X: Any, columns: Index, support: Mask, d: Array
) -> tuple[Array, Array, tuple[Array, Array]]:
    """Those of columns less their weighted means, which dense ones far from zero need, and the means."""
    return as_columns(X).centred_cross(columns, support, d)


def centred_blocks(X: Any, means: Array | None) -> Iterator[tuple[slice, Array]]:
    """Yield (rows, dense block of X[rows] − means), each in the memory order of X; None centres nothing."""
    return as_columns(X).blocks(means)


def active_columns(X: Any, support: Index | None) -> Any:
    """X[:, support], or X itself for all columns; a dense copy keeps the memory order of X."""
    return X if support is None else as_columns(X).columns(support)


def scaled_columns(X: Any, which: Index, factors: Array) -> Any:
    """Some columns of X, each times a factor."""
    return as_columns(X).scaled_columns(which, factors)


def with_column(X: Any, value: float) -> Any:
    """X with a last column of one value."""
    return as_columns(X).with_column(value)


def by_column(X: Any) -> Any:
    """X in float64, stored so that single columns are had without looking for them; not copied if it is."""
    return as_columns(X).by_column()


def dense(X: Any) -> Array:
    """X, dense: (n, p)."""
    return as_columns(X).dense()


def n_stored(X: Any) -> int:
    """Numbers that one product with X takes."""
    return as_columns(X).n_stored


def is_same(one: Any, other: Any) -> bool:
    """Whether two designs have the same entries."""
    return one is other or as_design(one).same_as(as_design(other))


def project(X: Any, basis: Any) -> Array:
    """X B for the columns of a basis, dense: (n, k)."""
    return as_columns(X).along(basis)


def some_rows(X: Any, rows: Index) -> Any:
    """X[rows]; of a kernel model the Gram matrix of these rows."""
    own = as_design(X).some_rows(rows)
    return own.X if isinstance(own, DenseColumns | SparseColumns) else own


def columns_as_rows(X: Any, which: Index) -> Array:
    """Some columns of X, dense, one a row: (len(which), n)."""
    return as_columns(X).columns_as_rows(which)


def rows_as_columns(X: Any, which: Index | slice = slice(None)) -> Array:
    """Some rows of X, dense, one a column: (p, r); unit vectors in the dual coordinates of a RowGram."""
    return as_design(X).basis_of_rows(which)


def dense_rows(X: Any, which: Index | slice = slice(None)) -> Array:
    """Some rows of X, dense, of a kernel model those of its Gram matrix: (r, p)."""
    return as_design(X).dense_rows(which)


def own_products(X: Any, rows: Index, coef: Array) -> Array:
    """x_iᵀ β⁽ⁱ⁾ for some rows i, each with coefficients of its own, (r, p): (r,)."""
    return as_columns(X).own_products(rows, coef)


def column_sizes(X: Any) -> Array:
    """Largest absolute value of each column: (p,)."""
    return as_columns(X).column_sizes()


def densified(X: Any, most: int) -> Any:
    """X, dense if it has at most so many entries."""
    n, p = X.shape
    return dense(X) if n * p <= most else X


def squared_lengths(X: Any, rows: Index) -> Array:
    """‖x_i‖² of some rows, in feature space for a Gram matrix: (r,)."""
    return as_design(X).squared_lengths(rows)


def row_squares(X: Any) -> Array:
    """Σ_j x_ij² of each row: (n,)."""
    return as_columns(X).row_squares()


def among_rows(X: Any, left: Index, right: Index) -> Array:
    """X[left] X[right]ᵀ: (l, r)."""
    return as_columns(X).among(left, right)


def centring_error(X: Any) -> float:
    """Rounding in the centred sum of squares of a column, relative to n times its squared mean.

    Dense columns are centred before they are squared, sparse ones after.
    """
    return as_columns(X).centring_error


def weighted_gram(X: Any, means: Array | None, d: Array) -> Array:
    """(X − 1 meansᵀ)ᵀ diag(d) (X − 1 meansᵀ): (k, k), lower triangle valid, Fortran order."""
    return as_columns(X).weighted_gram(means, d)


def full_gram(X: Any, means: Array | None, d: Array) -> Array:
    """Return the same with both triangles."""
    lower = np.tril(weighted_gram(X, means, d))
    return lower + np.tril(lower, -1).T


def row_gram(X: Any, column_weights: Array) -> Array:
    """X diag(column_weights) Xᵀ: (n, n), full."""
    return as_design(X).row_gram(column_weights)


def cross_gram(new: Any, X: Any, column_weights: Array) -> Array:
    """X̃ diag(column_weights) Xᵀ: (m, n); for a RowGram X, ``new`` is X̃ Xᵀ itself, or a RowGram too."""
    return as_design(X).gram_with(new, column_weights)


def stacked(parts: list[Any]) -> Any:
    """Designs with columns below each other, sparse if one of them is."""
    if any(isinstance(as_design(part), SparseColumns) for part in parts):
        return sp.vstack([sp.csr_array(part) for part in parts], format="csr")
    return np.vstack(parts)
