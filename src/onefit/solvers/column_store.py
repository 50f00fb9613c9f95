"""The columns of X that a path has used: centred, with their inner products, growing as it goes."""

from __future__ import annotations

from typing import Any, Protocol, final

import numpy as np
import scipy.sparse as sp
from scipy.linalg import blas

from onefit._linalg import product
from onefit._typing import Array, Index, Mask

# A column shorter than this after centring, relative to its length before, is constant.
_CONSTANT = 1e-13


def read_design(X: Any) -> Design:
    """What the active-set method asks of X, dense or sparse."""
    return _SparseDesign(X) if sp.issparse(X) else _DenseDesign(X)


class Design(Protocol):
    """What the method asks of ``X``: a product with every column, and a few columns."""

    shape: tuple[int, int]

    def correlations(self, v: Array) -> Array:
        """``X' v``, shape (p,)."""

    def columns(self, which: Index) -> Array:
        """Columns of ``X`` as rows, shape (len(which), n)."""

    def lengths(self) -> Array:
        """Euclidean length of each column, shape (p,)."""


@final
class _DenseDesign:
    def __init__(self, X: Array) -> None:
        X = np.asarray(X, dtype=np.float64)
        contiguous = X.flags.f_contiguous or X.flags.c_contiguous
        self._X = X if contiguous else np.asfortranarray(X)
        self.shape = X.shape

    def correlations(self, v: Array) -> Array:
        return product(self._X.T, v)

    def columns(self, which: Index) -> Array:
        return self._X.T[which]

    def lengths(self) -> Array:
        return np.sqrt(np.einsum("ij,ij->j", self._X, self._X))


@final
class _SparseDesign:
    def __init__(self, X: Any) -> None:
        self._X = sp.csc_array(X, dtype=np.float64)
        self._rows_by_column = self._X.T
        self.shape = self._X.shape

    def correlations(self, v: Array) -> Array:
        return self._rows_by_column @ v

    def columns(self, which: Index) -> Array:
        return self._rows_by_column[which].toarray()

    def lengths(self) -> Array:
        return np.sqrt(np.asarray(self._X.power(2).sum(axis=0)).ravel())


@final
class ColumnStore:
    """Every column that was ever active, centred, with its inner products.

    A stored column has a *slot*, its place in the growable buffers; slots never move.

    Attributes
    ----------
    count : int
        Number ``m`` of stored columns.
    owner : array, shape (m or more,)
        Column of ``X`` in each slot.
    means : array, shape (m or more,)
        Weighted means that the centring took off.
    gram : array, shape (m or more, m or more)
        ``A' W A``.
    targets : array, shape (m or more,)
        ``A' W y`` for the centred response ``y``.
    """

    def __init__(self, design: Design, response: Array, weights: Array | None, *, centre: bool) -> None:
        n, p = design.shape
        self._design = design
        self._response = response
        self._weights = weights
        self._centre = centre
        self._slot_of = np.full(p, -1, dtype=np.intp)
        self.count = 0
        capacity = min(p, 32)
        self._columns: Array = np.empty((capacity, n))
        self.gram: Array = np.zeros((capacity, capacity))
        self.owner: Index = np.empty(capacity, dtype=np.intp)
        self.means: Array = np.zeros(capacity)
        self.targets: Array = np.zeros(capacity)

    @property
    def matrix(self) -> Array:
        """``A``, shape (n, m), Fortran-ordered."""
        return self._columns[: self.count].T

    def slots(self, columns: Index) -> Index:
        """Slots of the given columns of ``X``, storing those that are new."""
        new = columns[self._slot_of[columns] < 0]
        if new.size:
            self._store(new)
        return self._slot_of[columns]

    def times(self, slots: Index, v: Array) -> Array:
        """``A_slots v``, shape (n,)."""
        if slots.size == 0:
            return np.zeros(self._response.size)
        # Zeros for the stored but idle columns cost less than gathering the others.
        scattered = np.zeros(self.count)
        scattered[slots] = v
        return blas.dgemv(1.0, self.matrix, scattered)

    def correlations(self, weighted_residual: Array) -> Array:
        """Correlations ``A' (W r)`` of the stored columns, shape (m,)."""
        if self.count == 0:
            return np.zeros(0)
        return blas.dgemv(1.0, self.matrix, weighted_residual, trans=1)

    def constant(self, slots: Index) -> Mask:
        """Whether centring left nothing of a column."""
        scale = self.gram[slots, slots]
        mass = self._response.size if self._weights is None else self._weights.sum()
        return scale <= _CONSTANT**2 * (scale + mass * self.means[slots] ** 2)

    def _store(self, new: Index) -> None:
        start, stop = self.count, self.count + new.size
        self._reserve(stop)
        fresh = self._columns[start:stop]
        fresh[:] = self._design.columns(new)
        if self._centre:
            self.means[start:stop] = _weighted_means(fresh, self._weights)
            fresh -= self.means[start:stop, None]
        self.owner[start:stop] = new
        self._slot_of[new] = np.arange(start, stop)
        self.count = stop
        weighted = fresh if self._weights is None else fresh * self._weights
        products = blas.dgemm(1.0, self.matrix, weighted.T, trans_a=1)
        self.gram[start:stop, :stop] = products.T
        self.gram[:start, start:stop] = products[:start]
        self.targets[start:stop] = blas.dgemv(1.0, weighted.T, self._response, trans=1)

    def _reserve(self, size: int) -> None:
        capacity = self.owner.size
        if size <= capacity:
            return
        capacity = min(max(2 * capacity, size), self._slot_of.size)
        m = self.count
        columns, gram = self._columns, self.gram
        self._columns = np.empty((capacity, columns.shape[1]))
        self._columns[:m] = columns[:m]
        self.gram = np.zeros((capacity, capacity))
        self.gram[:m, :m] = gram[:m, :m]
        self.owner = np.resize(self.owner, capacity)
        self.means = np.concatenate([self.means, np.zeros(capacity - self.means.size)])
        self.targets = np.concatenate([self.targets, np.zeros(capacity - self.targets.size)])


def _weighted_means(rows: Array, weights: Array | None) -> Array:
    """Weighted mean of each row."""
    if weights is None:
        return rows.mean(axis=1)
    return blas.dgemv(1.0 / weights.sum(), rows.T, weights, trans=1)
