"""Every product with X.  Dense, sparse, or known only through its Gram matrix: decided here and nowhere else.

A ``Design`` says what can be done with X; the functions below take X as users give it.  Rows are visited in
blocks of dense, centred columns, so no centred copy of X is ever made and a sparse X is never densified as
a whole.  What is done with all rows is a sum over blocks or a judgement of each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self, final

import numpy as np
import scipy.sparse as sp

from onefit._typing import Array, Index, Mask, Sparse
from onefit.blas import add_gram, product

BLOCK_SIZE = 2**20  # numbers in a block of rows: 8 MiB


class Design(ABC):
    """The matrix X of η = X β.

    Attributes
    ----------
    has_columns : bool
        Whether the coefficients are those of columns; else they are dual ones, of rows.
    is_full : bool
        Whether every entry of X is stored.
    """

    has_columns: ClassVar[bool]
    is_full: ClassVar[bool]

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Rows and coefficients."""

    @abstractmethod
    def times(self, coef: Array) -> Array:
        """X @ coef: (n,) or (n, c)."""

    @abstractmethod
    def transposed_times(self, rows: Array) -> Array:
        """Xᵀ @ rows, in the coordinates of the coefficients: (p,) or (p, c)."""

    @abstractmethod
    def pairing(self, gradient: Array, coef: Array) -> float:
        """Inner product of a gradient and a direction."""

    @abstractmethod
    def sum_of_rows(self, weights: Array) -> Array:
        """Σ_i w_i x_i, by which coefficients are multiplied: (p,)."""

    @abstractmethod
    def some_rows(self, which: Index) -> Design:
        """Return the design of some rows."""

    @abstractmethod
    def dense_rows(self, which: Index | slice) -> Array:
        """η of some rows is these times the coefficients: (r, p)."""

    @abstractmethod
    def basis_of_rows(self, which: Index | slice) -> Array:
        """Gradients of some linear predictors in the coordinates of ``transposed_times``: (p, r)."""

    @abstractmethod
    def squared_lengths(self, which: Index) -> Array:
        """‖x_i‖² of some rows: (r,)."""

    @abstractmethod
    def row_gram(self, column_weights: Array) -> Array:
        """X diag(column_weights) Xᵀ: (n, n), full."""

    @abstractmethod
    def gram_with(self, new: Any, column_weights: Array) -> Array:
        """X̃ diag(column_weights) Xᵀ for new rows X̃: (m, n)."""

    @abstractmethod
    def same_as(self, other: Design) -> bool:
        """Whether the entries are the same."""


class Columns(Design):
    """A design with columns of its own."""

    has_columns = True

    @abstractmethod
    def blocks(self, means: Array | None) -> Iterator[tuple[slice, Array]]:
        """Yield (rows, dense block of X[rows] − means), each in the memory order of X."""

    @abstractmethod
    def dense(self) -> Array:
        """X, dense: (n, p)."""

    @abstractmethod
    def columns(self, support: Index) -> Any:
        """X[:, support], in the memory order of X."""

    @abstractmethod
    def columns_as_rows(self, which: Index) -> Array:
        """Some columns, dense, one a row: (len(which), n)."""

    @abstractmethod
    def scaled_columns(self, which: Index, factors: Array) -> Any:
        """Some columns, each times a factor."""

    @abstractmethod
    def by_column(self) -> Any:
        """X in float64, stored so that single columns are had without looking for them."""

    @abstractmethod
    def column_squares(self, weights: Array, means: Array | None) -> Array:
        """Σ_i w_i (x_ij − m_j)² of each column: (p,).  ``means`` are the weighted ones, or None."""

    @abstractmethod
    def column_sizes(self) -> Array:
        """Largest absolute value of each column: (p,)."""

    @abstractmethod
    def row_squares(self) -> Array:
        """Σ_j x_ij² of each row: (n,)."""

    @abstractmethod
    def cross(self, columns: Index, support: Mask, d: Array) -> tuple[Array, Array]:
        """X_Lᵀ diag(d) X_S and X_Lᵀ d, for some columns L and a support S."""

    @abstractmethod
    def centred_cross(
        self, columns: Index, support: Mask, d: Array
    ) -> tuple[Array, Array, tuple[Array, Array]]:
        """``cross`` of columns less their weighted means, and those: zero where nothing is taken off."""

    @abstractmethod
    def weighted_gram(self, means: Array | None, d: Array) -> Array:
        """(X − 1 meansᵀ)ᵀ diag(d) (X − 1 meansᵀ): (p, p), lower triangle valid, Fortran order."""

    @abstractmethod
    def among(self, left: Index, right: Index) -> Array:
        """X[left] X[right]ᵀ: (l, r)."""

    @abstractmethod
    def own_products(self, rows: Index, coef: Array) -> Array:
        """x_iᵀ β⁽ⁱ⁾ for some rows i, each with coefficients of its own, (r, p): (r,)."""

    @abstractmethod
    def along(self, basis: Any) -> Array:
        """X B for the columns of a basis, dense: (n, k)."""

    @property
    @abstractmethod
    def n_stored(self) -> int:
        """Numbers that one product with X takes."""

    @property
    @abstractmethod
    def centring_error(self) -> float:
        """Rounding in the centred sum of squares of a column, relative to n times its squared mean."""

    @abstractmethod
    def with_column(self, value: float) -> Any:
        """X with a last column of one value."""

    def pairing(self, gradient: Array, coef: Array) -> float:
        return float(np.sum(gradient * coef))

    def squared_lengths(self, which: Index) -> Array:
        rows = self.dense_rows(which)
        return np.einsum("ij,ij->i", rows, rows)

    def sum_of_rows(self, weights: Array) -> Array:
        return self.transposed_times(weights)


def _block_length(p: int) -> int:
    return max(64, BLOCK_SIZE // max(p, 1))


@final
@dataclass(frozen=True, slots=True)
class DenseColumns(Columns):
    """An array (n, p)."""

    X: Array
    is_full: ClassVar[bool] = True

    @property
    def shape(self) -> tuple[int, int]:
        n, p = self.X.shape
        return n, p

    def times(self, coef: Array) -> Array:
        return product(self.X, coef)

    def transposed_times(self, rows: Array) -> Array:
        return product(self.X.T, rows)

    def some_rows(self, which: Index) -> Self:
        return type(self)(self.X[which])

    def dense_rows(self, which: Index | slice) -> Array:
        return self.X[which]

    def basis_of_rows(self, which: Index | slice) -> Array:
        return self.X[which].T

    def row_gram(self, column_weights: Array) -> Array:
        scaled = self.X * np.sqrt(column_weights)
        return product(scaled, scaled.T)

    def gram_with(self, new: Any, column_weights: Array) -> Array:
        return as_design(new).times((self.X * column_weights).T)

    def same_as(self, other: Design) -> bool:
        if not isinstance(other, DenseColumns):
            return isinstance(other, SparseColumns) and other.same_as(self)
        same_shape = self.X.shape == other.X.shape
        return same_shape and bool(np.shares_memory(self.X, other.X) or np.array_equal(self.X, other.X))

    def blocks(self, means: Array | None) -> Iterator[tuple[slice, Array]]:
        n, p = self.X.shape
        size = _block_length(p)
        for start in range(0, n, size):
            rows = slice(start, min(start + size, n))
            block = self.X[rows].copy(order="K")
            if means is not None:
                block -= means
            yield rows, block

    def dense(self) -> Array:
        return self.X

    def columns(self, support: Index) -> Array:
        tall = self.X.strides[0] < self.X.strides[1]
        return np.take(self.X.T, support, axis=0).T if tall else np.take(self.X, support, axis=1)

    def columns_as_rows(self, which: Index) -> Array:
        return self.X.T[which]

    def scaled_columns(self, which: Index, factors: Array) -> Array:
        return np.ascontiguousarray(self.X if len(which) == self.X.shape[1] else self.X[:, which]) * factors

    def by_column(self) -> Array:
        dense = np.asarray(self.X, dtype=np.float64)
        return dense if dense.flags.c_contiguous else np.asfortranarray(dense)

    def column_squares(self, weights: Array, means: Array | None) -> Array:
        total = np.zeros(self.X.shape[1])
        for rows, block in self.blocks(means):
            total += np.einsum("i,ij,ij->j", weights[rows], block, block)
        return total

    def column_sizes(self) -> Array:
        return np.maximum(self.X.max(axis=0, initial=0.0), -self.X.min(axis=0, initial=0.0))

    def row_squares(self) -> Array:
        return np.einsum("ij,ij->i", self.X, self.X)

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

    def weighted_gram(self, means: Array | None, d: Array) -> Array:
        k = self.X.shape[1]
        gram = np.zeros((k, k), order="F")
        if k == 0:
            return gram
        root = np.sqrt(d) if d.min() >= 0 else None
        unit = root is not None and bool(np.all(d == 1.0))
        for rows, block in self.blocks(means):
            if root is None:  # a loss that is not convex in eta: the observed curvature may be negative
                gram += product(block.T, block * d[rows, None])
                continue
            if not unit:
                block *= root[rows, None]
            gram = add_gram(gram, block)
        return gram

    def among(self, left: Index, right: Index) -> Array:
        return product(self.X[left], self.X[right].T)

    def own_products(self, rows: Index, coef: Array) -> Array:
        return np.einsum("ij,ij->i", self.X[rows], coef)

    def along(self, basis: Any) -> Array:
        return np.asarray(self.X @ basis) if sp.issparse(basis) else product(self.X, basis)

    def with_column(self, value: float) -> Array:
        return np.hstack([self.X, np.full((self.X.shape[0], 1), value)])

    @property
    def n_stored(self) -> int:
        return int(np.prod(self.X.shape))

    @property
    def centring_error(self) -> float:
        return 1e-28  # columns are centred before they are squared


@final
@dataclass(frozen=True, slots=True)
class SparseColumns(Columns):
    """A SciPy sparse matrix or array (n, p)."""

    X: Sparse
    is_full: ClassVar[bool] = False

    @property
    def shape(self) -> tuple[int, int]:
        n, p = self.X.shape
        return int(n), int(p)

    def times(self, coef: Array) -> Array:
        return np.asarray(self.X @ coef)

    def transposed_times(self, rows: Array) -> Array:
        return np.asarray(self.X.T @ rows)

    def some_rows(self, which: Index) -> Self:
        return type(self)(self.X.tocsr()[which])

    def dense_rows(self, which: Index | slice) -> Array:
        return np.asarray(self.X.tocsr()[which].toarray())

    def basis_of_rows(self, which: Index | slice) -> Array:
        return self.dense_rows(which).T

    def row_gram(self, column_weights: Array) -> Array:
        return np.asarray((self.X @ sp.diags_array(column_weights) @ self.X.T).toarray())

    def gram_with(self, new: Any, column_weights: Array) -> Array:
        scaled = self.X @ sp.diags_array(column_weights)
        new = as_design(new)
        if isinstance(new, SparseColumns):
            return np.asarray((new.X @ scaled.T).toarray())
        return new.times(np.asarray(scaled.T.toarray()))

    def same_as(self, other: Design) -> bool:
        if not isinstance(other, DenseColumns | SparseColumns) or other.shape != self.shape:
            return False
        return bool((sp.csr_array(self.X) != sp.csr_array(other.X)).nnz == 0)

    def blocks(self, means: Array | None) -> Iterator[tuple[slice, Array]]:
        n, p = self.shape
        size, source = _block_length(p), self.X.tocsr()
        for start in range(0, n, size):
            rows = slice(start, min(start + size, n))
            block = source[rows].toarray()
            if means is not None:
                block -= means
            yield rows, block

    def dense(self) -> Array:
        return np.asarray(self.X.toarray())

    def columns(self, support: Index) -> Sparse:
        return self.X[:, support]

    def columns_as_rows(self, which: Index) -> Array:
        return np.asarray(self.X.T[which].toarray())

    def scaled_columns(self, which: Index, factors: Array) -> Sparse:
        return self.X[:, which].multiply(factors).tocsr()

    def by_column(self) -> Sparse:
        return sp.csc_array(self.X, dtype=np.float64)

    def column_squares(self, weights: Array, means: Array | None) -> Array:
        squares = self.X.copy()
        squares.data = squares.data**2
        second = np.asarray(squares.T @ weights)
        if means is not None:
            second = second - weights.sum() * means**2
        return np.maximum(second, 0.0)

    def column_sizes(self) -> Array:
        return np.ravel(abs(self.X).max(axis=0).toarray())

    def row_squares(self) -> Array:
        return np.asarray(self.X.multiply(self.X).sum(axis=1)).ravel()

    def cross(self, columns: Index, support: Mask, d: Array) -> tuple[Array, Array]:
        left = self.X[:, columns]
        right = sp.diags_array(d) @ self.X[:, np.flatnonzero(support)]
        return np.asarray((left.T @ right).toarray()), np.asarray(left.T @ d)

    def centred_cross(
        self, columns: Index, support: Mask, d: Array
    ) -> tuple[Array, Array, tuple[Array, Array]]:
        return *self.cross(columns, support, d), (np.zeros(len(columns)), np.zeros(int(support.sum())))

    def weighted_gram(self, means: Array | None, d: Array) -> Array:
        gram = np.asarray((self.X.T @ sp.diags_array(d) @ self.X).toarray(), order="F")
        if means is not None:
            cross = np.outer(means, self.transposed_times(d))
            gram += d.sum() * np.outer(means, means) - cross - cross.T
        return gram

    def among(self, left: Index, right: Index) -> Array:
        rows = self.X.tocsr()
        return np.asarray((rows[left] @ rows[right].T).toarray())

    def own_products(self, rows: Index, coef: Array) -> Array:
        return np.asarray(self.X.tocsr()[rows].multiply(coef).sum(axis=1)).ravel()

    def along(self, basis: Any) -> Array:
        along = self.X @ basis
        return np.asarray(along.toarray() if sp.issparse(along) else along)

    def with_column(self, value: float) -> Sparse:
        return sp.hstack([self.X, np.full((self.X.shape[0], 1), value)], format="csr")

    @property
    def n_stored(self) -> int:
        return int(self.X.nnz)

    @property
    def centring_error(self) -> float:
        return 1e-13  # columns are squared before they are centred


@dataclass(frozen=True)
class RowGram(Design):
    """A design known only through G = X Xᵀ (n, n): a kernel model.

    Its coefficients are the dual ones, a (n,), with η = G a and ‖β‖² = aᵀ G a; a gradient is held as the
    rows c of Xᵀ c.
    """

    gram: Array

    has_columns = False
    is_full = False

    @property
    def shape(self) -> tuple[int, int]:
        return self.gram.shape[0], self.gram.shape[0]

    def times(self, coef: Array) -> Array:
        return product(self.gram, coef)

    def transposed_times(self, rows: Array) -> Array:
        return rows

    def sum_of_rows(self, weights: Array) -> Array:
        return product(self.gram, weights)

    def pairing(self, gradient: Array, coef: Array) -> float:
        return float(np.sum(gradient * product(self.gram, coef)))

    def some_rows(self, which: Index) -> RowGram:
        return RowGram(self.gram[np.ix_(which, which)])

    def dense_rows(self, which: Index | slice) -> Array:
        return self.gram[which]

    def basis_of_rows(self, which: Index | slice) -> Array:
        return np.eye(self.shape[0])[:, which]

    def squared_lengths(self, which: Index) -> Array:
        return self.gram.diagonal()[which]

    def row_gram(self, column_weights: Array) -> Array:
        return self.gram * column_weights[0]

    def gram_with(self, new: Any, column_weights: Array) -> Array:
        """``new`` is X̃ Xᵀ itself, or a RowGram too."""
        return (new.gram if isinstance(new, RowGram) else np.asarray(new)) * column_weights[0]

    def same_as(self, other: Design) -> bool:
        return isinstance(other, RowGram) and bool(np.array_equal(self.gram, other.gram))


def as_design(X: Any) -> Design:
    """Say what can be done with an array, a sparse matrix, or a design."""
    if isinstance(X, np.ndarray):
        return DenseColumns(X)
    if isinstance(X, Design):
        return X
    if sp.issparse(X):
        return SparseColumns(X)
    raise TypeError(f"a design is an array, a SciPy sparse matrix or array, or a RowGram, not {X!r}")


def columns_of(X: Any) -> Columns:
    """Return the design, which must have columns.

    Raises
    ------
    TypeError
        For a kernel model.
    """
    design = as_design(X)
    if not isinstance(design, Columns):
        raise TypeError("a kernel model has no columns of its own")
    return design


# Functions of X as users give it


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
    return np.sqrt(columns_of(X).column_squares(weights, means))


def weighted_cross(X: Any, columns: Index, support: Mask, d: Array) -> tuple[Array, Array]:
    """X_Lᵀ diag(d) X_S and X_Lᵀ d, for some columns L and a support S."""
    return columns_of(X).cross(columns, support, d)


def centred_cross(
    X: Any, columns: Index, support: Mask, d: Array
) -> tuple[Array, Array, tuple[Array, Array]]:
    """Those of columns less their weighted means, which dense ones far from zero need, and the means."""
    return columns_of(X).centred_cross(columns, support, d)


def centred_blocks(X: Any, means: Array | None) -> Iterator[tuple[slice, Array]]:
    """Yield (rows, dense block of X[rows] − means), each in the memory order of X; None centres nothing."""
    return columns_of(X).blocks(means)


def active_columns(X: Any, support: Index | None) -> Any:
    """X[:, support], or X itself for all columns; a dense copy keeps the memory order of X."""
    return X if support is None else columns_of(X).columns(support)


def scaled_columns(X: Any, which: Index, factors: Array) -> Any:
    """Some columns of X, each times a factor."""
    return columns_of(X).scaled_columns(which, factors)


def with_column(X: Any, value: float) -> Any:
    """X with a last column of one value."""
    return columns_of(X).with_column(value)


def by_column(X: Any) -> Any:
    """X in float64, stored so that single columns are had without looking for them; not copied if it is."""
    return columns_of(X).by_column()


def dense(X: Any) -> Array:
    """X, dense: (n, p)."""
    return columns_of(X).dense()


def n_stored(X: Any) -> int:
    """Numbers that one product with X takes."""
    return columns_of(X).n_stored


def is_same(one: Any, other: Any) -> bool:
    """Whether two designs have the same entries."""
    return one is other or as_design(one).same_as(as_design(other))


def project(X: Any, basis: Any) -> Array:
    """X B for the columns of a basis, dense: (n, k)."""
    return columns_of(X).along(basis)


def some_rows(X: Any, rows: Index) -> Any:
    """X[rows]; of a kernel model the Gram matrix of these rows."""
    own = as_design(X).some_rows(rows)
    return own.X if isinstance(own, DenseColumns | SparseColumns) else own


def columns_as_rows(X: Any, which: Index) -> Array:
    """Some columns of X, dense, one a row: (len(which), n)."""
    return columns_of(X).columns_as_rows(which)


def rows_as_columns(X: Any, which: Index | slice = slice(None)) -> Array:
    """Some rows of X, dense, one a column: (p, r); unit vectors in the dual coordinates of a RowGram."""
    return as_design(X).basis_of_rows(which)


def dense_rows(X: Any, which: Index | slice = slice(None)) -> Array:
    """Some rows of X, dense, of a kernel model those of its Gram matrix: (r, p)."""
    return as_design(X).dense_rows(which)


def own_products(X: Any, rows: Index, coef: Array) -> Array:
    """x_iᵀ β⁽ⁱ⁾ for some rows i, each with coefficients of its own, (r, p): (r,)."""
    return columns_of(X).own_products(rows, coef)


def column_sizes(X: Any) -> Array:
    """Largest absolute value of each column: (p,)."""
    return columns_of(X).column_sizes()


def densified(X: Any, most: int) -> Any:
    """X, dense if it has at most so many entries."""
    n, p = X.shape
    return dense(X) if n * p <= most else X


def squared_lengths(X: Any, rows: Index) -> Array:
    """‖x_i‖² of some rows, in feature space for a Gram matrix: (r,)."""
    return as_design(X).squared_lengths(rows)


def row_squares(X: Any) -> Array:
    """Σ_j x_ij² of each row: (n,)."""
    return columns_of(X).row_squares()


def among_rows(X: Any, left: Index, right: Index) -> Array:
    """X[left] X[right]ᵀ: (l, r)."""
    return columns_of(X).among(left, right)


def centring_error(X: Any) -> float:
    """Rounding in the centred sum of squares of a column, relative to n times its squared mean.

    Dense columns are centred before they are squared, sparse ones after.
    """
    return columns_of(X).centring_error


def weighted_gram(X: Any, means: Array | None, d: Array) -> Array:
    """(X − 1 meansᵀ)ᵀ diag(d) (X − 1 meansᵀ): (k, k), lower triangle valid, Fortran order."""
    return columns_of(X).weighted_gram(means, d)


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
