"""The columns of X that a path has used: centred, with their inner products, growing as it goes."""

from __future__ import annotations

from typing import final

import numpy as np
from scipy.linalg import blas

from onefit import _linalg
from onefit._typing import Array, Design, Index, Mask

# A column shorter than this after centring, relative to its length before, is constant.
_CONSTANT = 1e-13


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

    def __init__(self, X: Design, response: Array, weights: Array, *, centre: bool) -> None:
        n, p = X.shape
        self._X = X
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
        """``A_slots v``, shape (n,) or (n, r)."""
        if slots.size == 0:
            return np.zeros((self._response.size, *v.shape[1:]))
        # Zeros for the stored but idle columns cost less than gathering the others.
        scattered = np.zeros((self.count, *v.shape[1:]))
        scattered[slots] = v
        return _linalg.product(self.matrix, scattered)

    def correlations(self, weighted_residual: Array) -> Array:
        """Correlations ``A' (W r)`` of the stored columns, shape (m,)."""
        if self.count == 0:
            return np.zeros(0)
        return blas.dgemv(1.0, self.matrix, weighted_residual, trans=1)

    def constant(self, slots: Index) -> Mask:
        """Whether centring left nothing of a column."""
        scale = self.gram[slots, slots]
        return scale <= _CONSTANT**2 * (scale + self._weights.sum() * self.means[slots] ** 2)

    def _store(self, new: Index) -> None:
        start, stop = self.count, self.count + new.size
        self._reserve(stop)
        fresh = self._columns[start:stop]
        fresh[:] = _linalg.as_columns(self._X).columns_as_rows(new)
        if self._centre:
            shares = self._weights / self._weights.sum()
            self.means[start:stop] = blas.dgemv(1.0, fresh.T, shares, trans=1)
            fresh -= self.means[start:stop, None]
        self.owner[start:stop] = new
        self._slot_of[new] = np.arange(start, stop)
        self.count = stop
        weighted = fresh * self._weights
        products = blas.dgemm(1.0, self.matrix, weighted.T, trans_a=1)
        self.gram[start:stop, :stop] = products.T
        self.gram[:start, start:stop] = products[:start]
        self.targets[start:stop] = blas.dgemv(1.0, weighted.T, self._response, trans=1)

    def _reserve(self, size: int) -> None:
        capacity = self.owner.size
        if size > capacity:
            more = min(max(2 * capacity, size), self._slot_of.size) - capacity
            self._columns = np.pad(self._columns, ((0, more), (0, 0)))
            self.owner = np.pad(self.owner, (0, more))
            self.gram, self.means, self.targets = (
                np.pad(one, (0, more)) for one in (self.gram, self.means, self.targets)
            )
