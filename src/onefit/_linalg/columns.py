"""Designs with columns, arrays and sparse matrices, and what is done with X as users give it."""

from __future__ import annotations

from typing import Any, ClassVar, final

import numpy as np
import scipy.sparse as sp

from onefit._linalg.blas import centred_kernel, less_outer_products, mirrored, product
from onefit._linalg.design import Columns, Design
from onefit._typing import Array, Index, Mask, Sparse
from onefit.numerics import EPS, TINY

ROUNDING = 8.0 * EPS  # of a mean, relatively

NARROW = 20  # columns up to which a reduction of rows takes longer than one of each column
NEARLY_FULL = 0.08  # share of stored entries from which products of dense columns take less


@final
class DenseColumns(Columns):
    """An array (n, p)."""

    is_full: ClassVar[bool] = True

    def row_gram(self, column_weights: Array) -> Array:
        scaled = self.X if np.all(column_weights == 1.0) else self.X * np.sqrt(column_weights)
        return product(scaled, scaled.T)

    def centred_gram_with(self, new: Any, column_weights: Array, share: Array) -> Array:
        near, means = self.near_zero(share @ self.X)
        return near.gram_with(as_columns(new).dense() - means, column_weights)

    def near_zero(self, means: Array) -> tuple[DenseColumns, Array]:
        return (DenseColumns(self.X - means) if means.any() else self), means

    def gram_with(self, new: Any, column_weights: Array) -> Array:
        return as_columns(new).times((self.X * column_weights).T)

    def same_as(self, other: Design) -> bool:
        if not isinstance(other, DenseColumns):
            return isinstance(other, SparseColumns) and other.same_as(self)
        same_shape = self.X.shape == other.X.shape
        return same_shape and bool(np.shares_memory(self.X, other.X) or np.array_equal(self.X, other.X))

    def columns(self, support: Index) -> Array:
        tall = self.X.strides[0] < self.X.strides[1]
        return np.take(self.X.T, support, axis=0).T if tall else np.take(self.X, support, axis=1)

    def scaled_columns(self, which: Index, factors: Array) -> Array:
        return np.ascontiguousarray(self.X if len(which) == self.X.shape[1] else self.X[:, which]) * factors

    def by_column(self) -> Array:
        dense = np.asarray(self.X, dtype=np.float64)
        return dense if dense.flags.c_contiguous else np.asfortranarray(dense)

    def column_squares(self, weights: Array, means: Array | None) -> Array:
        total, left = np.zeros(self.X.shape[1]), np.zeros(self.X.shape[1])
        for rows, block in self.blocks(means):
            total += np.einsum("i,ij,ij->j", weights[rows], block, block)
            if means is not None:
                left += product(block.T, weights[rows])
        return total if means is None else beyond_rounding(total, left, means, float(weights.sum()))

    def column_sizes(self) -> Array:
        if self.X.shape[1] <= NARROW:
            ends = [(x.max(initial=0.0), -x.min(initial=0.0)) for x in self.X.T]
            return np.max(ends, axis=1) if ends else np.empty(0)
        return np.maximum(self.X.max(axis=0, initial=0.0), -self.X.min(axis=0, initial=0.0))

    def row_squares(self, weights: Array | None = None) -> Array:
        scaled = self.X if weights is None else self.X * weights
        return np.einsum("ij,ij->i", scaled, self.X)

    def cross(self, columns: Index, support: Mask, d: Array) -> tuple[Array, Array]:
        left = self.X[:, columns]
        return product((left * d[:, None]).T, self.X[:, support]), left.T @ d

    def centred_cross(
        self, columns: Index, support: Mask, d: Array
    ) -> tuple[Array, Array, tuple[Array, Array]]:
        left, right = self.X[:, columns], self.X[:, support]
        means = (d @ left / d.sum(), d @ right / d.sum())
        left, right = left - means[0], right - means[1]
        return product((left * d[:, None]).T, right), d @ left, means

    def with_column(self, value: float) -> Array:
        return np.hstack([self.X, np.full((self.X.shape[0], 1), value)])

    @property
    def n_stored(self) -> int:
        return int(np.prod(self.X.shape))

    @property
    def is_nearly_full(self) -> bool:
        return True

    @property
    def centring_error(self) -> float:
        return 1e-28  # columns are centred before they are squared


@final
class SparseColumns(Columns):
    """A SciPy sparse matrix or array (n, p)."""

    is_full: ClassVar[bool] = False

    def row_gram(self, column_weights: Array) -> Array:
        return np.asarray((self.X @ sp.diags_array(column_weights) @ self.X.T).toarray())

    def centred_gram_with(self, new: Any, column_weights: Array, share: Array) -> Array:
        near, shift = self.near_zero(self.transposed_times(share))
        kernel = near.gram_with(new, column_weights) - near.times(shift * column_weights)
        return centred_kernel(kernel, near.row_gram(column_weights), share)

    def near_zero(self, means: Array) -> tuple[SparseColumns, Array]:
        shift = np.where(self._stored == self.X.shape[0], means, 0.0) if means.any() else np.zeros_like(means)
        if not shift.any():
            return self, shift
        near = self.X.copy()
        by_column = near.format == "csc"
        near.data = near.data - (np.repeat(shift, np.diff(near.indptr)) if by_column else shift[near.indices])
        return SparseColumns(near), shift

    @property
    def _stored(self) -> Index:
        """Entries of each column."""
        if self.X.format == "csc":
            return np.asarray(np.diff(self.X.indptr))
        return np.bincount(self.X.indices, minlength=self.X.shape[1])

    def gram_with(self, new: Any, column_weights: Array) -> Array:
        scaled = self.X @ sp.diags_array(column_weights)
        new = as_columns(new)
        if isinstance(new, SparseColumns):
            return np.asarray((new.X @ scaled.T).toarray())
        return new.times(np.asarray(scaled.T.toarray()))

    def same_as(self, other: Design) -> bool:
        if not isinstance(other, DenseColumns | SparseColumns) or other.shape != self.shape:
            return False
        return bool((sp.csr_array(self.X) != sp.csr_array(other.X)).nnz == 0)

    def columns(self, support: Index) -> Sparse:
        return self.X[:, support]

    def scaled_columns(self, which: Index, factors: Array) -> Sparse:
        own = self.X[:, which]
        by_column = own.format == "csc"
        own.data = own.data * (np.repeat(factors, np.diff(own.indptr)) if by_column else factors[own.indices])
        return own

    def by_column(self) -> Sparse:
        stored = sp.csc_array(self.X, dtype=np.float64)
        if stored.nnz <= np.iinfo(np.int32).max and max(stored.shape) <= np.iinfo(np.int32).max:
            stored.indices = stored.indices.astype(np.int32, copy=False)  # scikit-learn takes no others
            stored.indptr = stored.indptr.astype(np.int32, copy=False)
        return stored

    def column_squares(self, weights: Array, means: Array | None) -> Array:
        near = self if means is None else self.near_zero(means)[0]
        second = np.asarray(near.X.power(2).T @ weights)
        if means is None:
            return second
        return beyond_rounding(second, np.asarray(near.X.T @ weights), means, float(weights.sum()))

    def column_sizes(self) -> Array:
        return np.ravel(abs(self.X).max(axis=0).toarray())

    def row_squares(self, weights: Array | None = None) -> Array:
        squares = self.X.multiply(self.X).tocsr()
        return np.ravel(squares.sum(axis=1) if weights is None else squares @ weights)

    def cross(self, columns: Index, support: Mask, d: Array) -> tuple[Array, Array]:
        left = self.X[:, columns]
        right = sp.diags_array(d) @ self.X[:, np.flatnonzero(support)]
        return np.asarray((left.T @ right).toarray()), np.asarray(left.T @ d)

    def centred_cross(
        self, columns: Index, support: Mask, d: Array
    ) -> tuple[Array, Array, tuple[Array, Array]]:
        return *self.cross(columns, support, d), (np.zeros(len(columns)), np.zeros(int(support.sum())))

    def weighted_gram(self, means: Array | None, d: Array) -> Array:
        if self.is_nearly_full:
            doubles = SparseColumns(self.X.astype(np.float64, copy=False))  # blocks have the dtype of X
            return super(SparseColumns, doubles).weighted_gram(means, d)
        near, shift = (self, 0.0) if means is None else self.near_zero(means)
        gram = np.asarray((near.X.T @ sp.diags_array(d) @ near.X).toarray().T)  # in the order of Fortran
        if means is None or not means.size:
            return gram
        left = means - shift
        return less_outer_products(gram, left, near.transposed_times(d) - 0.5 * d.sum() * left)

    def with_column(self, value: float) -> Sparse:
        own, n = self.by_column(), self.X.shape[0]
        data, rows = np.append(own.data, np.full(n, value)), np.append(own.indices, np.arange(n))
        ends = np.append(own.indptr, own.nnz + n)
        return sp.csc_array((data, rows, ends), shape=(n, self.X.shape[1] + 1))

    @property
    def n_stored(self) -> int:
        return int(self.X.nnz)

    @property
    def centring_error(self) -> float:
        return 1e-28 if self.is_nearly_full else 1e-13  # others are squared before they are centred

    @property
    def is_nearly_full(self) -> bool:
        return self.n_stored > NEARLY_FULL * np.prod(self.X.shape)


def as_columns(X: Any) -> Columns:
    """Say what can be done with an array, a sparse matrix, or a design with columns.

    Raises
    ------
    TypeError
        For a kernel model, and for what is no matrix.
    """
    if isinstance(X, np.ndarray):
        return DenseColumns(X)
    if isinstance(X, Columns):
        return X
    if isinstance(X, Design):
        raise TypeError("a kernel model has no columns of its own")
    if sp.issparse(X):
        return SparseColumns(X)
    raise TypeError(f"a design is an array, a SciPy sparse matrix or array, or a RowGram, not {X!r}")


def as_design(X: Any) -> Design:
    """Say what can be done with an array, a sparse matrix, or a design."""
    return X if not isinstance(X, np.ndarray) and isinstance(X, Design) else as_columns(X)


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


def beyond_rounding(squares: Array, sums: Array, means: Array, weight: Array | float) -> Array:
    """Σ_i w_i (x_ij − x̄_j)² of columns, with 0 for what rounding makes of a constant: (p,) or (p, k).

    Parameters
    ----------
    squares, sums : (p,) or (p, k) array
        Σ w c² and Σ w c of columns c that were taken near zero, by their means or nearly so: rounding of a
        mean grows with the rows that it is of, and is in both.
    means : (p,) or (p, 1) array
        Of the columns themselves.
    weight : float or (k,) array
        Σ w.
    """
    common = sums**2 / np.maximum(weight, TINY)
    least = np.maximum(ROUNDING * common, weight * (ROUNDING * means) ** 2)
    return np.where(squares - common > least, squares - common, 0.0)


def column_norms(X: Any, weights: Array, *, centred: bool) -> Array:
    """√(Σ_i w_i (x_ij − x̄_j)²) of each column, or without the mean: (p,)."""
    means = column_means(X, weights) if centred else None
    return np.sqrt(as_columns(X).column_squares(weights, means))


def column_lengths(X: Any) -> Array:
    """‖x_j‖ of each column: (p,)."""
    return column_norms(X, np.ones(X.shape[0]), centred=False)


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


def thin_product(A: Array, B: Array) -> Array:
    """A @ B for a dense A in C order of which most entries are zero."""
    (n, k), at = A.shape, np.flatnonzero(A)
    if at.size > NEARLY_FULL * A.size:
        used = np.flatnonzero(A.any(axis=0))
        return product(A[:, used], B[used])
    ends = np.searchsorted(at, k * np.arange(n + 1))
    return np.asarray(sp.csr_array((A.ravel()[at], at % k, ends), shape=(n, k)) @ B)


def full_gram(X: Any, means: Array | None, d: Array) -> Array:
    """(X − 1 meansᵀ)ᵀ diag(d) (X − 1 meansᵀ), both triangles of it: (k, k)."""
    return mirrored(as_columns(X).weighted_gram(means, d))


def stacked(parts: list[Any]) -> Any:
    """Designs with columns below each other, sparse if one of them is."""
    if any(isinstance(as_design(part), SparseColumns) for part in parts):
        return sp.vstack([sp.csr_array(part) for part in parts], format="csr")
    return np.vstack(parts)
