"""K of one output on the side of the coefficients, k × k."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from onefit import _linalg
from onefit._linalg import Factorization, OfRows
from onefit._typing import Array, Design, Index
from onefit.curvature.base import Borrower, Direction, OfColumns, Sandwich, total_curvature
from onefit.problem import Moments

CONDITION_OF_WIDE = 1e11  # of the directions that a generalised inverse of few rows keeps, at worst


@dataclass(frozen=True)
class OfFactor(OfColumns):
    """k × k, in terms of a factor and of what its columns were centred by.

    Several right-hand sides are columns of the direction.
    """

    @cached_property
    def _active(self) -> Design:
        return _linalg.active_columns(self.X, self.support)

    @property
    @abstractmethod
    def _means(self) -> Array | None:
        """What was taken off the columns: (k,)."""

    def _blocks(self) -> Iterator[tuple[slice, Array]]:
        """Its centred columns, some rows at a time, and which these are."""
        return _linalg.as_columns(self._active).blocks(self._means)

    @property
    @abstractmethod
    def _factored(self) -> Factorization:
        """K, factored."""

    @property
    def is_factored(self) -> bool:
        return "_factored" in self.__dict__

    @property
    def _centre(self) -> Array:
        """What was taken off the columns, zeros where nothing was: (k,)."""
        return np.zeros(len(self.hessian)) if self._means is None else self._means

    @property
    def is_definite(self) -> bool:
        return self._factored.is_definite and (not self.intercept or self._means is not None)

    @property
    def condition(self) -> float:
        return self._factored.condition

    def quadratic_forms(self) -> Array:
        return self._forms

    @cached_property
    def _forms(self) -> Array:
        return self._factored.row_forms(self._active, self._means) + self._offset

    def solve(self, gradient: Direction) -> Direction:
        rhs = self._restrict(gradient.coef)
        free = self._factored.solve(rhs - np.multiply.outer(self._centre, gradient.intercept))
        return Direction(self._spread(free), gradient.intercept / self._total - self._centre @ free)

    def predict(self, direction: Direction) -> Array:
        return _linalg.times(self._active, self._restrict(direction.coef)) + direction.intercept

    def hat(self, rows: Array) -> Array:
        total = rows.sum(axis=0)
        gradient = _linalg.transposed_times(self._active, rows)
        free = self._factored.solve(gradient - np.outer(self._centre, total))
        return _linalg.times(self._active, free) - self._centre @ free + total * self._offset

    @property
    def _half(self) -> Array:
        """Rows whose inner products are those of the centred rows in K⁻¹: (n, k)."""
        Z = np.vstack([block for _, block in self._blocks()])
        return self._factored.half(Z)

    def hat_matrix(self) -> Array:
        half = self._half
        return _linalg.product(half, half.T) + self._offset

    def hat_blocks(self, rows: Index | None = None) -> Iterator[tuple[slice, Array]]:
        half = self._half
        some = half if rows is None else half[rows]
        for columns in self._some_of(len(some)):
            block = _linalg.product(half, some[columns].T)
            block += self._offset
            yield columns, block

    def sandwich(self, middle: Array) -> Sandwich:
        offset, k, factored = self._offset, len(self.hessian), self._factored
        inner = np.zeros((k, k))
        for rows, block in self._blocks():
            inner += _linalg.product(block.T, block * middle[rows, None])
        Q = factored.solve(factored.solve(inner).T)
        side = factored.solve(_linalg.transposed_times(self._active, middle) - middle.sum() * self._centre)
        forms = np.empty(self.n)
        for rows, block in self._blocks():
            along = _linalg.product(block, Q) + 2.0 * offset * side
            forms[rows] = np.einsum("ij,ij->i", along, block)
        return Sandwich(
            forms + offset**2 * middle.sum(),
            Q if self.hessian.ndim == 2 else self._spread(Q.diagonal().copy()),
        )

    def cross(self, new: Design) -> Array:
        columns = _linalg.as_design(new).basis_of_rows()
        return self.respond(Direction(columns, np.ones(columns.shape[1]))).T

    def responses(self) -> Direction:
        free = np.hstack([self._factored.solve(block.T) for _, block in self._blocks()])
        return Direction(free, self._offset - self._centre @ free)


@dataclass(frozen=True)
class Primal(OfFactor, Borrower[Moments]):
    """k × k: Cholesky, or a generalised inverse where K has no factor."""

    moments: Moments | None = None  # with which K need not be summed over the rows

    @property
    def for_steps(self) -> Primal:
        return self if self.is_factored or self.lent is None else self._by_loan

    @cached_property
    def _by_loan(self) -> Primal:
        """K if the rows were curved as they are there, but for how much they are in all."""
        assert self.lent is not None
        share = float(self.d.sum() / self.lent.weights.sum())
        return replace(self, moments=replace(self.lent, gram=share * self.lent.gram), lent=None)

    def _has_rows_of(self, other: Primal) -> bool:
        whole = self.support is None and other.support is None and other.hessian.ndim == 1
        return whole and self.X is other.X and self.is_factored and float(self.d.sum()) > 0

    @cached_property
    def _of_rows(self) -> Moments:
        gram = self._gram.copy()
        inside = np.einsum("kk->k", gram)
        inside -= self.hessian
        return Moments(self.X, self.d, self._centre, gram)

    @cached_property
    def _means(self) -> Array | None:
        if not self.intercept or not np.isfinite(total_curvature(self.d, True)):
            return None
        if self.moments is not None:
            return self.moments.means if self.support is None else self.moments.means[self.support]
        return _linalg.column_means(self._active, self.d)

    @cached_property
    def _gram(self) -> Array:
        if self.moments is not None:
            gram = self.moments.gram
            K = gram.copy() if self.support is None else gram[np.ix_(self.support, self.support)]
        else:
            K = _linalg.as_columns(self._active).weighted_gram(self._means, self.d)
        if self._means is not None:  # a constant column says nothing beside an intercept: only rounding
            rounding = _linalg.as_columns(self._active).centring_error * np.abs(self.d.sum()) * self._means**2
            constant = K.diagonal() <= rounding
            K[constant], K[:, constant] = 0.0, 0.0
        if self.hessian.ndim == 2:
            return K + self.hessian
        diagonal = np.einsum("kk->k", K)  # a view
        diagonal += self.hessian
        return K

    @property
    def _is_wide(self) -> bool:
        """Whether more columns than rows, without curvature of the penalty, make K singular for sure."""
        return len(self.hessian) > self.X.shape[0] and not np.any(self.hessian)

    @cached_property
    def _factored(self) -> Factorization:
        if self._is_wide:
            root = _linalg.wide_pseudo_factor(self._active, self._means, self.d)
            return Factorization(root, False, CONDITION_OF_WIDE)
        return Factorization.of(self._gram, OfRows(self._curved_rows, lambda: self.hessian))

    def _curved_rows(self) -> Iterator[Array]:
        """Centred rows, times the roots of how much they are curved."""
        for rows, block in self._blocks():
            yield np.sqrt(np.maximum(self.d[rows], 0.0))[:, None] * block
