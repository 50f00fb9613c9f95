"""K of one output on the side of the rows, n × n, for more free columns than rows (Woodbury)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Design, Index, Mask
from onefit.curvature.base import Direction, OfColumns, Sandwich
from onefit.exceptions import SolverError
from onefit.inner_products import InnerProducts
from onefit.numerics import EPS

FLAT = 1e-4  # a leverage this faint is lost in the 1 it is taken off, but for twelve digits


@dataclass(frozen=True, eq=False)
class RowKernel:
    """G = X C⁻¹ Xᵀ, centred, and the rows that bend, whatever the precision of a factor.

    Attributes
    ----------
    X : Design
    support : (k,) int array or None
    hessian : (k,) array
        C.
    d : (n,) array
    total : float
        By what the intercept is curved.
    known : InnerProducts or None
        Of the rows, if somebody has them.
    """

    X: Design
    support: Index | None
    hessian: Array
    d: Array
    total: float
    known: InnerProducts | None

    @cached_property
    def bent(self) -> Index | slice:
        """Rows with d > 0: the others have no part in M."""
        return slice(None) if self.d.min() > 0 else np.flatnonzero(self.d > 0)

    @cached_property
    def well(self) -> Mask:
        """Rows whose leverage d h tells their form: d is not faint beside the largest, nor beside 1 / G."""
        return (self.d > FLAT * self.d.max()) & (self.d * self.diagonal > FLAT)

    @cached_property
    def flat(self) -> Index:
        """Rows whose leverage is too faint to tell their form by."""
        return np.flatnonzero(~self.well)

    @cached_property
    def root(self) -> Array:
        """√d of the rows that bend."""
        return np.sqrt(self.d[self.bent])

    @cached_property
    def share(self) -> Array:
        """Weights of the centring: d / Σd, or zeros."""
        return self.d / self.total

    @cached_property
    def plain(self) -> Array | None:
        """Inner products, if somebody has them and G is these over a number, but for the centre."""
        if self.known is None or self.support is not None or np.ptp(self.hessian) > 0:
            return None
        return self.known.about_mean if self.share.any() else self.known.gram

    @cached_property
    def gram(self) -> Array:
        """G: (n, n)."""
        if self.plain is not None:
            return _linalg.centred_gram(self.plain / self.hessian[0], self.share)
        own = _linalg.as_design(_linalg.active_columns(self.X, self.support))
        return own.centred_row_gram(1.0 / self.hessian, self.share)

    @property
    def diagonal(self) -> Array:
        """Of G: (n,)."""
        if self.plain is None or "gram" in self.__dict__:
            return self.gram.diagonal()
        own = self.plain.diagonal() - 2.0 * self._along + self.share @ self._along
        return np.asarray(own / self.hessian[0])

    @cached_property
    def flat_columns(self) -> Array:
        """G of the rows whose leverage is too faint, which every product with H takes: (n, r)."""
        return self.columns(self.flat)

    def columns(self, rows: Index) -> Array:
        """Some columns of G: (n, r)."""
        if self.plain is None or "gram" in self.__dict__:
            return self.gram[rows].T  # of a symmetric matrix: rows are had at once
        centre = self._along - self.share @ self._along
        own: Array = self.plain[rows].T
        own -= self._along[rows] + centre[:, None]
        own /= self.hessian[0]
        return own

    @cached_property
    def _along(self) -> Array:
        """Inner products of the rows with their mean: (n,)."""
        assert self.plain is not None
        return self.plain @ self.share

    def weighted(self) -> Array:
        """D^½ G D^½ of the rows that bend, in the order that factors take."""
        own = self.gram if isinstance(self.bent, slice) else self.gram[np.ix_(self.bent, self.bent)]
        return _linalg.scaled_gram(own, self.root).T

    def weighted_in_single(self) -> Array:
        """D^½ G D^½ of the rows that bend, in single precision: the lower triangle counts."""
        known, bent = self.known, self.bent
        if self.plain is None or known is None or not isinstance(bent, slice):
            return self.weighted().astype(np.float32)
        root = self.root / np.sqrt(self.hessian[0])
        if not self.share.any():
            return _linalg.scaled_gram(self.plain.astype(np.float32), root.astype(np.float32)).T
        along, G = self._along, _linalg.scaled_gram(known.single, root.astype(np.float32))
        return _linalg.less_outer_products(G.T, root, root * (along - 0.5 * (self.share @ along)))

    @cached_property
    def bent_gram(self) -> Array:
        """Its columns of the rows that bend."""
        return self.gram[:, self.bent]


@dataclass(frozen=True)
class Dual(OfColumns):
    """n × n, for more free columns than rows: M = I + D^½ G D^½ with G = X C⁻¹ Xᵀ, centred.

    h = G − G D^½ M⁻¹ D^½ G and, where d > 0, d h = 1 − diag M⁻¹ (Woodbury).
    """

    known: InnerProducts | None = None  # X Xᵀ, if somebody has it
    kernel: RowKernel | None = None  # if somebody has it
    factor: Array | None = None  # of M, in any precision, if somebody has it

    @cached_property
    def _rows(self) -> RowKernel:
        if self.kernel is not None:
            return self.kernel
        return RowKernel(self.X, self.support, self.hessian, self.d, self._total, self.known)

    def _factored(self, precision: type[np.floating[Any]]) -> tuple[Array | None, float]:
        """The factor of M, if it has one in this precision, and its largest diagonal element."""
        M = self._rows.weighted() if precision is np.float64 else self._rows.weighted_in_single()
        M[np.diag_indices_from(M)] += 1.0
        largest = float(M.diagonal().max(initial=1.0))
        return _linalg.cholesky(M, in_place=True), largest

    @cached_property
    def _cholesky(self) -> Array:
        if self.factor is not None:
            return self.factor
        L, largest = self._factored(np.float64)
        if L is None:  # M ≥ I but for rounding, which is relative to its largest entries
            least = largest * len(self._rows.root) * EPS
            raise SolverError(
                f"the penalty is so weak beside the rows, by a factor of {largest:.1g}, that rounding "
                f"decides what is fitted: make it at least {least:.1g} times as strong"
            )
        return L

    @property
    def is_factored(self) -> bool:
        return self.factor is not None or "_cholesky" in self.__dict__

    @property
    def is_definite(self) -> bool:
        return not self.intercept or bool(self.d.sum() > 0)

    @property
    def condition(self) -> float:
        own = _linalg.condition(self._cholesky)
        return own * float(np.finfo(self._cholesky.dtype).eps) / EPS

    def quadratic_forms(self) -> Array:
        return self._forms

    @cached_property
    def _forms(self) -> Array:
        """Forms by the factor of M, in any precision."""
        L = self._cholesky
        forms, well, flat = self._rows.diagonal.copy(), self._rows.well, self._rows.flat
        if well.any():  # accurate also where the leverage is nearly 1
            explained = np.zeros(self.n)
            explained[self._rows.bent] = 1.0 - _linalg.inverse_diagonal(L).astype(np.float64, copy=False)
            forms[well] = explained[well] / self.d[well]
        if flat.size:
            across = np.ascontiguousarray(self._rows.flat_columns.T[:, self._rows.bent] * self._rows.root)
            half = _linalg.half_solve(L, across.astype(L.dtype, copy=False))
            forms[flat] -= np.einsum("ij,ij->i", half, half, dtype=np.float64)
        return forms + self._offset

    @cached_property
    def in_single(self) -> Dual | None:
        """The same with a factor in single precision, in half the time, where there is one.

        Its condition is in units of the rounding of double precision.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # of what single precision does not hold
            L, _ = self._factored(np.float32)
        if L is None:
            return None
        return replace(self, kernel=self._rows, factor=L)

    def solve(self, gradient: Direction) -> Direction:
        profiled = gradient.coef - np.multiply.outer(self._gradient_of_share, gradient.intercept)
        rows = _linalg.times(self.X, self._scaled(profiled))
        dual = self._explained(rows - self._rows.share @ rows)
        coef = self._scaled(
            profiled - self._transposed(dual - np.multiply.outer(self._rows.share, dual.sum(axis=0)))
        )
        return Direction(coef, gradient.intercept / self._total - self._means @ coef)

    @cached_property
    def _gradient_of_share(self) -> Array:
        """Xᵀ times what the rows are centred by: (p,)."""
        return self._transposed(self._rows.share)

    @cached_property
    def _means(self) -> Array:
        """By which coefficients move the mean of the predictors: (p,)."""
        return _linalg.as_design(self.X).sum_of_rows(self._rows.share)

    def cross(self, new: Design) -> Array:
        """G̃ − G̃ D^½ M⁻¹ D^½ G for the kernel G̃ of the new rows with the old ones, centred as those are."""
        inverse = self._spread(1.0 / self.hessian)
        kernel = _linalg.as_design(self.X).centred_gram_with(new, inverse, self._rows.share)
        return kernel - self._fitted(kernel.T).T + self._offset

    def hat(self, rows: Array) -> Array:
        """D^½ H v = v₁ − M⁻¹ (v₁ − D^½ G v₀), with v₁ = D^-½ v but for v₀, the values of faint rows."""
        flat, v = self._rows.flat, rows.reshape(self.n, -1)
        with np.errstate(divide="ignore", invalid="ignore"):
            inverse = np.where(self._rows.well, 1.0 / self.d, 0.0)[:, None]
        across = self._rows.flat_columns
        inside = inverse * v - _linalg.product(across, v[flat])
        explained = (inverse > 0) * v - self._explained(inside)
        found = inverse * explained
        found[flat] = _linalg.product(across.T, v - explained)
        return found.reshape(rows.shape) + rows.sum(axis=0) / self._total

    def sandwich(self, middle: Array) -> Sandwich:
        free = self.responses().coef ** 2 @ middle
        return Sandwich(self.hat_matrix() ** 2 @ middle, self._spread(free))

    def hat_matrix(self) -> Array:
        found = np.empty((self.n, self.n), order="F")
        for columns, block in self.hat_blocks():
            found[:, columns] = block
        return found

    def hat_blocks(self, rows: Index | None = None) -> Iterator[tuple[slice, Array]]:
        return self._all_blocks() if rows is None else super().hat_blocks(rows)

    def _all_blocks(self) -> Iterator[tuple[slice, Array]]:
        """D^-½ (I − M⁻¹) D^-½, half the time of solving for all columns of G; those of faint d are."""
        inverse, flat, scale = _linalg.factor_inverse(self._cholesky), self._rows.flat, np.zeros(self.n)
        precision, rows = inverse.dtype, np.arange(self.n)
        if not isinstance(self._rows.bent, slice):
            spread = np.zeros((self.n, self.n), dtype=precision, order="F")
            spread[np.ix_(self._rows.bent, self._rows.bent)] = inverse
            inverse = spread
        scale[self._rows.bent] = 1.0 / self._rows.root
        scale, of_flat = scale.astype(precision), self._answer(self._rows.flat_columns).astype(precision)
        for columns in self._some_of(self.n):
            own = rows[columns]
            block = inverse[:, columns] * -scale[:, None]
            block *= scale[columns]
            block[own, rows[: len(own)]] += scale[columns] ** 2
            block[flat] = of_flat[columns].T
            inside = (flat >= own[0]) & (flat <= own[-1])
            block[:, flat[inside] - own[0]] = of_flat[:, inside]
            block += self._offset
            yield columns, block

    def hat_columns(self, rows: Index) -> Array:
        return self._answer(self._rows.columns(rows)) + self._offset

    def _answer(self, along: Array) -> Array:
        """H v given G v, (n, r): D^-½ M⁻¹ D^½ G v, and where d is faint G v − G D^½ M⁻¹ D^½ G v."""
        explained, flat = self._explained(along), self._rows.flat
        with np.errstate(divide="ignore", invalid="ignore"):
            found = explained / self.d[:, None]
        found[flat] = along[flat] - _linalg.product(self._rows.flat_columns.T, explained)
        return found

    def responses(self) -> Direction:
        dual = np.eye(len(self.d)) - self._explained(self._rows.gram)  # C⁻¹ X̃ᵀ times this is K⁻¹ Zᵀ
        centred = dual - np.outer(self._rows.share, dual.sum(axis=0))
        rows = self._transposed(centred)
        free = self._restrict(rows) / self.hessian[:, None]
        return Direction(free, self._offset - self._restrict(self._means) @ free)

    def _explained(self, rows: Array) -> Array:
        """D^½ M⁻¹ D^½ times values of the rows, (n,) or (n, r)."""
        bent = np.asfortranarray((self._rows.root * rows[self._rows.bent].T).T)
        explained = np.zeros_like(rows)
        explained[self._rows.bent] = (self._rows.root * _linalg.factor_solve(self._cholesky, bent).T).T
        return explained

    def _fitted(self, rows: Array) -> Array:
        """G D^½ M⁻¹ D^½ times values of the rows: (n, r)."""
        return _linalg.product(self._rows.bent_gram, self._explained(rows)[self._rows.bent])

    def _transposed(self, rows: Array) -> Array:
        return _linalg.transposed_times(self.X, rows)

    def _scaled(self, coef: Array) -> Array:
        """C⁻¹ times coefficients, zero off the support."""
        return self._spread((self._restrict(coef).T / self.hessian).T)
