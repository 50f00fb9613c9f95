"""Fewer coordinates than columns: those of the rows' span, or columns that are no copies of others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg as sla

from onefit._linalg.blas import product
from onefit._linalg.columns import as_columns
from onefit._typing import Array, Design, Index, Sparse

FAINT = 1e-13  # of the largest squared length, that keeps dependent rows apart: less than rounding matters


class FewerColumns(ABC):
    """Coordinates that tell all that a fit in the columns does.

    Attributes
    ----------
    X : (n, r) design
        The rows in them.
    kept : int array or None
        The columns that they are coefficients of; None where they are those of several.
    """

    X: Design
    kept: Index | None

    @abstractmethod
    def coefficients(self, own: Array) -> Array:
        """Those of the columns: (r, …) to (p, …)."""


@dataclass(frozen=True, eq=False)
class SomeOfThem(FewerColumns):
    """Columns beside which others, of ``p`` in all, are not needed: their coefficients are zero."""

    X: Design
    kept: Index
    p: int

    @classmethod
    def of(cls, X: Design, kept: Index) -> SomeOfThem:
        """Those columns of X."""
        return cls(as_columns(X).columns(kept), kept, X.shape[1])

    def coefficients(self, own: Array) -> Array:
        coef = np.zeros((self.p, *own.shape[1:]))
        coef[self.kept] = own
        return coef


class RowSpan(FewerColumns):
    """X = T Qᵀ with orthonormal columns Q: a coefficient for each row tells all that X sees.

    Attributes
    ----------
    X : (n, n) array
        T.
    """

    X: Array
    kept: None = None

    @abstractmethod
    def coordinates(self, coef: Array) -> Array:
        """Qᵀ times coefficients: (p, …) to (n, …)."""


@dataclass(frozen=True, eq=False)
class ByBasis(RowSpan):
    """Of a dense X, whose Q is at hand: (p, n)."""

    X: Array
    basis: Array

    def coefficients(self, own: Array) -> Array:
        return _of_matrices(lambda flat: product(self.basis, flat), own)

    def coordinates(self, coef: Array) -> Array:
        return _of_matrices(lambda flat: product(self.basis.T, flat), coef)


@dataclass(frozen=True, eq=False)
class ByRows(RowSpan):
    """Of a sparse X, with Q = Xᵀ T⁻ᵀ for the Cholesky factor T of X Xᵀ: nothing of n x p is dense."""

    X: Array
    rows: Sparse

    def coefficients(self, own: Array) -> Array:
        return _of_matrices(lambda flat: as_columns(self.rows).transposed_times(self._solve(flat, 1)), own)

    def coordinates(self, coef: Array) -> Array:
        return _of_matrices(lambda flat: self._solve(as_columns(self.rows).times(flat), 0), coef)

    def _solve(self, rhs: Array, trans: int) -> Array:
        return np.asarray(sla.solve_triangular(self.X, rhs, trans=trans, lower=True, check_finite=False))


def row_span(X: Any) -> RowSpan:
    """The span of the rows of an array, or of a sparse matrix."""
    if isinstance(X, np.ndarray):
        Q, R = sla.qr(X.T, mode="economic", check_finite=False)
        return ByBasis(np.ascontiguousarray(R.T), Q)
    gram = as_columns(X).row_gram(np.ones(X.shape[1]))
    gram[np.diag_indices_from(gram)] += FAINT * gram.diagonal().max(initial=0.0) + np.finfo(float).tiny
    return ByRows(np.asfortranarray(np.linalg.cholesky(gram)), X)


def _of_matrices(function: Any, values: Array) -> Array:
    """What a function of matrices makes of values with any axes after the first."""
    found = function(values.reshape(len(values), -1))
    return np.asarray(found).reshape(-1, *values.shape[1:])
