"""Designs with columns: arrays and sparse matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self, final

import numpy as np
import scipy.sparse as sp

from onefit._linalg.blas import add_gram, product
from onefit._linalg.design import Columns, Design
from onefit._typing import Array, Index, Mask, Sparse


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

    def dense_rows(self, which: Index | slice = slice(None)) -> Array:
        return self.X[which]

    def basis_of_rows(self, which: Index | slice = slice(None)) -> Array:
        return self.X[which].T

    def row_gram(self, column_weights: Array) -> Array:
        scaled = self.X * np.sqrt(column_weights)
        return product(scaled, scaled.T)

    def gram_with(self, new: Any, column_weights: Array) -> Array:
        return as_columns(new).times((self.X * column_weights).T)

    def same_as(self, other: Design) -> bool:
        if not isinstance(other, DenseColumns):
            return isinstance(other, SparseColumns) and other.same_as(self)
        same_shape = self.X.shape == other.X.shape
        return same_shape and bool(np.shares_memory(self.X, other.X) or np.array_equal(self.X, other.X))

    def in_rows(self) -> Self:
        return self

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

    def dense_rows(self, which: Index | slice = slice(None)) -> Array:
        return np.asarray(self.X.tocsr()[which].toarray())

    def basis_of_rows(self, which: Index | slice = slice(None)) -> Array:
        return self.dense_rows(which).T

    def row_gram(self, column_weights: Array) -> Array:
        return np.asarray((self.X @ sp.diags_array(column_weights) @ self.X.T).toarray())

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

    def in_rows(self) -> Self:
        return type(self)(self.X.tocsr())

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
