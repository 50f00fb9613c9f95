"""What can be asked of X, whether dense, sparse, or known only through its Gram matrix.

Rows are visited in blocks of dense, centred columns, so no centred copy of X is ever made and a sparse X is
never densified as a whole.  What is done with all rows is a sum over blocks or a judgement of each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp

from onefit._linalg.blas import add_gram, centred_gram, centred_kernel, few_times, product
from onefit._typing import Array, Index, Mask

BLOCK_SIZE = 2**20  # numbers in a block of rows: 8 MiB
LARGEST_IN_SINGLE = 1e30  # entries of which sums over many rows are finite in single precision, too
OF_ROWS = 2**18  # of rows that are scaled, centred or turned as they pass: what a cache holds


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
        """Inner product of a gradient and a direction: aᵀ b, or aᵀ G b in dual coordinates."""

    @abstractmethod
    def sum_of_rows(self, weights: Array) -> Array:
        """Σ_i w_i x_i, by which coefficients are multiplied: (p,)."""

    @abstractmethod
    def some_rows(self, which: Index) -> Design:
        """Return the design of some rows."""

    @abstractmethod
    def dense_rows(self, which: Index | slice = slice(None)) -> Array:
        """η of some rows is these times the coefficients, rows of a Gram matrix for a kernel: (r, p)."""

    @abstractmethod
    def basis_of_rows(self, which: Index | slice = slice(None)) -> Array:
        """Gradients of some linear predictors in the coordinates of ``transposed_times``: (p, r)."""

    @abstractmethod
    def squared_lengths(self, which: Index) -> Array:
        """‖x_i‖² of some rows, in feature space for a Gram matrix: (r,)."""

    @abstractmethod
    def row_gram(self, column_weights: Array) -> Array:
        """X diag(column_weights) Xᵀ: (n, n), full."""

    def centred_row_gram(self, column_weights: Array, share: Array) -> Array:
        """The same of rows less their mean with weights ``share``, which may all be zero."""
        return centred_gram(self.row_gram(column_weights), share)

    @abstractmethod
    def gram_with(self, new: Any, column_weights: Array) -> Array:
        """X̃ diag(column_weights) Xᵀ for new rows X̃, for a RowGram ``new`` is X̃ Xᵀ itself: (m, n)."""

    def centred_gram_with(self, new: Any, column_weights: Array, share: Array) -> Array:
        """The same of rows, old and new, less the mean of the old ones with weights ``share``."""
        return centred_kernel(self.gram_with(new, column_weights), self.row_gram(column_weights), share)

    @abstractmethod
    def same_as(self, other: Design) -> bool:
        """Whether the entries are the same."""


@dataclass(frozen=True)
class Columns(Design):
    """A design with columns of its own: an array or a sparse matrix X."""

    X: Any
    has_columns: ClassVar[bool] = True

    @property
    def shape(self) -> tuple[int, int]:
        n, p = self.X.shape
        return int(n), int(p)

    @property
    def by_row(self) -> Any:
        """X, stored so that single rows are had without looking."""
        return self.X.tocsr() if sp.issparse(self.X) else self.X

    def times(self, coef: Array) -> Array:
        return _dense_product(self.X, coef)

    def transposed_times(self, rows: Array) -> Array:
        return _dense_product(self._across, rows)

    @cached_property
    def _across(self) -> Any:
        """Xᵀ, of which a sparse one takes as long to make as a product with it."""
        return self.X.T

    def centred_row_gram(self, column_weights: Array, share: Array) -> Array:
        near, _ = self.near_zero(self.transposed_times(share))
        return centred_gram(near.row_gram(column_weights), share)

    def some_rows(self, which: Index) -> Self:
        return type(self)(self.by_row[which])

    def dense_rows(self, which: Index | slice = slice(None)) -> Array:
        return dense(self.by_row[which])

    def basis_of_rows(self, which: Index | slice = slice(None)) -> Array:
        return self.dense_rows(which).T

    def blocks(self, means: Array | None) -> Iterator[tuple[slice, Array]]:
        """Yield (rows, dense block of X[rows] − means), in the memory order of X; None centres nothing.

        A block is the caller's, who may overwrite it.
        """
        n, p = self.shape
        size, source = max(64, OF_ROWS // max(p, 1)), self.by_row
        for start in range(0, n, size):
            rows = slice(start, min(start + size, n))
            block = dense(source[rows])
            block = block.copy(order="K") if means is None else np.subtract(block, means, dtype=block.dtype)
            yield rows, block

    def dense(self) -> Array:
        """X, dense: (n, p)."""
        return dense(self.X)

    def columns_as_rows(self, which: Index) -> Array:
        """Some columns, dense, one a row: (len(which), n)."""
        return dense(self.X.T[which])

    def among(self, left: Index, right: Index) -> Array:
        """X[left] X[right]ᵀ: (l, r)."""
        rows = self.by_row
        return _dense_product(rows[left], rows[right].T)

    def along(self, basis: Any) -> Array:
        """X B for the columns of a basis, dense: (n, k)."""
        return _dense_product(self.X, basis)

    @abstractmethod
    def columns(self, support: Index) -> Any:
        """X[:, support], in the memory order of X."""

    @abstractmethod
    def scaled_columns(self, which: Index, factors: Array) -> Any:
        """Some columns, each times a factor; sparse ones in the format of X."""

    @abstractmethod
    def by_column(self) -> Any:
        """X in float64, stored so that single columns are had without looking; not copied if it is."""

    @abstractmethod
    def column_squares(self, weights: Array, means: Array | None) -> Array:
        """Σ_i w_i (x_ij − m_j)² of each column: (p,).  ``means`` are the weighted ones, or None."""

    @abstractmethod
    def column_sizes(self) -> Array:
        """Largest absolute value of each column: (p,)."""

    @abstractmethod
    def row_squares(self, weights: Array | None = None) -> Array:
        """Σ_j w_j x_ij² of each row, with weights 1 by default: (n,)."""

    @abstractmethod
    def cross(self, columns: Index, support: Mask, d: Array) -> tuple[Array, Array]:
        """X_Lᵀ diag(d) X_S and X_Lᵀ d, for some columns L and a support S."""

    @abstractmethod
    def centred_cross(
        self, columns: Index, support: Mask, d: Array
    ) -> tuple[Array, Array, tuple[Array, Array]]:
        """``cross`` of columns less their weighted means, which dense ones far from zero need, and those.

        They are zero where nothing is taken off.
        """

    def weighted_gram(self, means: Array | None, d: Array) -> Array:
        """(X − 1 meansᵀ)ᵀ diag(d) (X − 1 meansᵀ): (p, p), lower triangle valid, Fortran order."""
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

    @property
    @abstractmethod
    def n_stored(self) -> int:
        """Numbers that one product with X takes."""

    @property
    @abstractmethod
    def is_nearly_full(self) -> bool:
        """Whether what is not stored is so little that it may be taken for stored."""

    @property
    @abstractmethod
    def centring_error(self) -> float:
        """Rounding in the centred sum of squares of a column, relative to n times its squared mean.

        Dense and nearly full sparse columns are centred before they are squared, other sparse ones after.
        """

    @abstractmethod
    def near_zero(self, means: Array) -> tuple[Columns, Array]:
        """Less the means of the columns, which products would lose digits to, and these means.

        Of a sparse X that is for those that are stored in full, and 0 for others: these are no farther from
        zero than their spread, as far as rounding is concerned.
        """

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


@dataclass(frozen=True, eq=False)
class RowsInSingle:
    """Rough products of a dense X with arrays in double: less than half as much is fetched."""

    X: Array

    @classmethod
    def of(cls, X: Design) -> RowsInSingle | None:
        """Where X is dense, and no entry is too large."""
        rows = X.X if isinstance(X, Columns) else X
        if not isinstance(rows, np.ndarray) or np.abs(rows).max(initial=0.0) > LARGEST_IN_SINGLE:
            return None
        return cls(rows.astype(np.float32))

    def times(self, coef: Array) -> Array:
        """X @ coef."""
        return np.asarray(few_times(coef.astype(np.float32), self.X.T), dtype=np.float64)

    def transposed_times(self, rows: Array) -> Array:
        """Xᵀ @ rows."""
        return np.asarray(few_times(rows.astype(np.float32), self.X), dtype=np.float64)


def dense(A: Any) -> Array:
    """An array or a sparse matrix, dense."""
    return np.asarray(A.toarray() if sp.issparse(A) else A)


def _dense_product(A: Any, B: Any) -> Array:
    """A @ B, dense, for arrays and sparse matrices."""
    if isinstance(A, np.ndarray) and isinstance(B, np.ndarray):
        return product(A, B)
    return dense(A @ B)


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

    def dense_rows(self, which: Index | slice = slice(None)) -> Array:
        return self.gram[which]

    def basis_of_rows(self, which: Index | slice = slice(None)) -> Array:
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
