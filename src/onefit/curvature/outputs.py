"""K of several outputs: independent ones, and ones that the loss ties together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._linalg import Factorization, OfRows
from onefit._typing import Array, Design, Index
from onefit.curvature.base import Borrower, Curvature, Direction, Sandwich
from onefit.curvature.reduction import Reduction
from onefit.curvature.row_products import RowProducts, row_products
from onefit.fit import Fit
from onefit.numerics import EPS, EPS_SINGLE
from onefit.penalties import Tangent
from onefit.problem import Problem

FAINT = EPS_SINGLE**3  # of the largest second derivative: far below what single precision rounds off of sums


@dataclass(frozen=True)
class Independent(Curvature):
    """Several outputs, each with a curvature of its own; ``group[j]`` is that of output j."""

    factors: Sequence[Curvature]
    group: Index

    def of_output(self, j: int) -> Curvature:
        """Curvature of one output alone."""
        return self.factors[self.group[j]]

    @property
    def is_factored(self) -> bool:
        return all(K.is_factored for K in self.factors)

    @property
    def is_definite(self) -> bool:
        return all(K.is_definite for K in self.factors)

    @property
    def condition(self) -> float:
        return max(K.condition for K in self.factors)

    def quadratic_forms(self) -> Array:
        forms = [K.quadratic_forms() for K in self.factors]
        return forms[0] if len(forms) == 1 else np.stack(forms, axis=1)[:, self.group]

    def solve(self, gradient: Direction) -> Direction:
        coef, intercept = np.zeros_like(gradient.coef), np.zeros_like(gradient.intercept)
        for which, K in enumerate(self.factors):
            own = self.group == which
            solved = K.solve(self._of_group(which, gradient))
            coef[:, own] = solved.coef.reshape(len(coef), -1, *coef.shape[2:])
            intercept[own] = solved.intercept.reshape(-1, *coef.shape[2:])
        return Direction(coef, intercept)

    def _of_group(self, which: int, direction: Direction) -> Direction:
        """Outputs with the same factor, side by side."""
        own = self.group == which
        coef = direction.coef[:, own]
        return Direction(coef.reshape(len(coef), -1), direction.intercept[own].ravel())

    def predict(self, direction: Direction) -> Array:
        parts = [K.predict(self._of_group(which, direction)) for which, K in enumerate(self.factors)]
        found = np.empty((len(parts[0]), *direction.coef.shape[1:]))
        for which, rows in enumerate(parts):
            found[:, self.group == which] = rows.reshape(len(rows), -1, *direction.coef.shape[2:])
        return found

    def carry(self, new: Design, slopes: Array) -> Array:
        columns = [self.factors[which].carry(new, slopes[:, j]) for j, which in enumerate(self.group)]
        return np.stack(columns, axis=-1)

    def hat(self, rows: Array) -> Array:
        columns = [self.factors[which].hat(rows[:, j]) for j, which in enumerate(self.group)]
        return np.stack(columns, axis=1)

    def hat_columns(self, rows: Index) -> Array:
        return np.stack([self.factors[which].hat_columns(rows) for which in self.group], axis=1)

    def sandwich(self, middle: Array) -> Sandwich:
        parts = [self.factors[which].sandwich(middle[:, j]) for j, which in enumerate(self.group)]
        return Sandwich(*(np.stack(part, axis=1) for part in zip(*parts, strict=True)))


class SummedRows(NamedTuple):
    """What K has of the rows, in single precision."""

    gram: Array
    own: Reduction  # its coordinates
    curved: float  # Σ tr D_i


@dataclass(frozen=True)
class CoupledBlock(Borrower[SummedRows]):
    """Outputs tied together by the loss: one matrix over all free coordinates of all outputs.

    Output a has its own free columns S_a and perhaps an intercept.  Coordinates that the penalty alone
    curves are left out (``Reduction``): of what is read of the rows they change at most what all outputs
    share.  Where outputs have different columns and adding a constant to all of them changes neither loss
    nor penalty, K is singular in a direction that no prediction depends on; it is made definite there, which
    changes nothing that is read.

    Attributes
    ----------
    fit : Fit
    tangent : Tangent
    factor : Factorization, optional
        Of K, in any precision, if somebody has it.
    reduction : Reduction, optional
        The coordinates of K, if somebody has them.
    """

    fit: Fit
    tangent: Tangent
    factor: Factorization | None = None
    reduction: Reduction | None = None

    @property
    def problem(self) -> Problem:
        """That of the fit."""
        return self.fit.problem

    @property
    def d(self) -> Array:
        """Second derivatives of the rows: (n, c, c)."""
        return self.fit.hessian

    @cached_property
    def own(self) -> Reduction:
        """The coordinates of K."""
        return self.reduction or Reduction.of(self.fit, self.tangent)

    @cached_property
    def _means(self) -> Array | None:
        """Plain centring, for conditioning; allowed where every output has an intercept."""
        if not _linalg.has_columns(self.problem.X) or not np.all(self.problem.intercept):
            return None
        return _linalg.column_means(self.own.X, self.problem.weights)

    @cached_property
    def _free(self) -> tuple[Index, Index]:
        """Coordinates and outputs of what is free, in the order of K: one output after the other."""
        outputs, coordinates = np.nonzero(self.own.free.T)
        return coordinates, outputs

    @cached_property
    def _rows(self) -> RowProducts:
        free = [np.flatnonzero(column) for column in self.own.free.T]
        return row_products(self.own.X, self._means, free)

    def _some_rows(self, rows: Index) -> RowProducts:
        return replace(self._rows, X=_linalg.some_rows(self.own.X, rows))

    @property
    def is_in_single(self) -> bool:
        """Whether the factor is in single precision."""
        return self.factor is not None and self.factor.factor.dtype == np.float32

    @property
    def _bends_in_single(self) -> Array:
        """Second derivatives in single precision, those that are lost beside the largest as zeros.

        Products of numbers that it holds with fewer digits, below 1e-38, take far longer.
        """
        bends = self.own.curved(self.d)
        sizes = np.abs(bends)
        return np.where(sizes < FAINT * sizes.max(initial=0.0), 0.0, bends).astype(np.float32)

    def _penalised(self, K: Array, sizes: Array | None = None) -> Array:
        """With what the penalty adds to the sum over the rows, of such a diagonal, in place."""
        sizes = K.diagonal().copy() if sizes is None else sizes
        ridge = np.vstack([self.own.ridge, np.zeros((1, self.own.ridge.shape[1]))])
        K[np.diag_indices_from(K)] += ridge[self._free]
        return self._pinned(K, sizes) if self.own.kept is None else self._less_mean(K, ridge)

    def _less_mean(self, K: Array, ridge: Array) -> Array:
        """With (I − 11ᵀ/c) ⊗ Λ where K has I ⊗ Λ, on the diagonals of its blocks."""
        free, (_, outputs) = np.flatnonzero(self.own.free[:, 0]), self.own.free.shape
        place, shared = np.arange(len(free)), ridge[free, 0] / self.own.outputs
        for a in range(outputs):
            for b in range(a + 1):
                K[a * len(free) + place, b * len(free) + place] -= shared
        return K

    def _pinned(self, K: Array, sizes: Array) -> Array:
        """Add curvature along shifts common to all outputs where there is none."""
        if not self.problem.loss.ignores_shifts:
            return K
        position = np.full(self.own.free.shape, -1)
        position[self._free] = np.arange(len(K))
        flat = np.append(self.own.ridge.max(axis=1) == 0, True)
        for common in position[flat & (position >= 0).all(axis=1)]:
            K[np.ix_(common, common)] += sizes[common].mean() + np.finfo(float).tiny
        return K

    @cached_property
    def _factored(self) -> Factorization:
        if self.factor is not None:
            return self.factor
        bends = self.own.curved(self.d)
        K = self._penalised(self._rows.weighted(bends))
        rest = partial(self._penalised, np.zeros_like(K), K.diagonal())
        return Factorization.of(K, OfRows(partial(self._rows.roots, bends), rest))

    @property
    def is_factored(self) -> bool:
        known = self.__dict__
        return self.factor is not None or "_factored" in known or known.get("in_single") is not None

    @cached_property
    def in_single(self) -> CoupledBlock | None:
        """The same with a factor in single precision, in half the time, where there is one."""
        with np.errstate(over="ignore", invalid="ignore"):  # of what single precision does not hold
            found = Factorization.of_definite(self._penalised(self._rows_in_single.copy()))
        return None if found is None else replace(self, factor=found, reduction=self.own, lent=None)

    @cached_property
    def _rows_in_single(self) -> Array:
        """What K has of the rows, for itself and for other fits."""
        return self._rows.weighted(self._bends_in_single)

    @property
    def roughly(self) -> CoupledBlock:
        if self.factor is not None or ("_factored" in self.__dict__ and "in_single" not in self.__dict__):
            return self  # at hand
        return self.in_single or self

    @property
    def for_steps(self) -> CoupledBlock:
        by_loan = None if self.lent is None or self.is_factored else self._by_loan
        return by_loan or self.roughly

    @cached_property
    def _by_loan(self) -> CoupledBlock | None:
        """K if the rows were curved as they are there, but for how much they are in all."""
        assert self.lent is not None
        own = self.lent.own.at(self.tangent)
        share = np.float32(np.einsum("naa->", self.d) / self.lent.curved)
        K = replace(self, reduction=own, lent=None)
        found = Factorization.of_definite(K._penalised(share * self.lent.gram))
        return None if found is None else replace(K, factor=found)

    @property
    def _of_rows(self) -> SummedRows:
        return SummedRows(self._rows_in_single, self.own, float(np.einsum("naa->", self.d)))

    def _has_rows_of(self, other: CoupledBlock) -> bool:
        known = self.__dict__.get("in_single") is not None and self.problem.X is other.problem.X
        return known and np.array_equal(self.tangent.support, other.tangent.support) and bool(self.d.any())

    @property
    def is_definite(self) -> bool:
        return self._factored.is_definite

    @property
    def condition(self) -> float:
        """In units of the rounding of double precision, as bounds take it."""
        return self._factored.condition * (EPS_SINGLE / EPS if self.is_in_single else 1.0)

    def quadratic_forms(self) -> Array:
        return self._forms

    @cached_property
    def _forms(self) -> Array:
        return self.own.matrices(self._rows.forms(self._inverse))

    @property
    def _inverse(self) -> Array:
        return self._kept_inverse if self.is_in_single else self._factored.inverse()

    @cached_property
    def _kept_inverse(self) -> Array:
        """In single precision, to solve with: both take the place of a factor in double precision."""
        return self._factored.inverse()

    def forms_of(self, rows: Index) -> Array:
        """Forms of some rows: (r, c, c)."""
        known = self.__dict__.keys() & {"_kept_inverse", "_forms"}
        if (
            not known
            and len(rows) * self.own.free.shape[1] < len(self._free[0])
            and self._factored.is_definite
        ):
            return self.own.matrices(self._forms_by_halves(rows))
        return self.own.matrices(self._some_rows(rows).forms(self._inverse))

    def _forms_by_halves(self, rows: Index) -> Array:
        """The same in the outputs of K, from L⁻¹ z, which is zero before the coordinates of z."""
        L, ends, free = self._factored.factor, self._rows.ends, self._rows.free
        Z = np.concatenate([block for _, block in self._some_rows(rows).blocks(L.dtype)])
        halves, found = list[Array](), np.empty((len(rows), len(free), len(free)))
        for a, own in enumerate(free):
            rest = np.zeros((len(rows), len(L) - ends[a]), dtype=L.dtype)
            rest[:, : len(own)] = Z[:, own]
            halves.append(_linalg.half_solve(L[ends[a] :, ends[a] :], rest))
            for b, other in enumerate(halves):
                shared = other[:, ends[a] - ends[b] :]
                found[:, a, b] = found[:, b, a] = np.einsum("ij,ij->i", halves[a], shared)
        return found

    def sandwich(self, middle: Array) -> Sandwich:
        inner = _linalg.mirrored(self._rows.weighted(self.own.weighted(middle)))
        Q = self._factored.solve(self._factored.solve(inner).T)
        return Sandwich(self.own.matrices(self._rows.forms(Q)), self._diagonal(Q))

    def _diagonal(self, Q: Array) -> Array:
        """Diagonal of a matrix over all free coordinates, of the coefficients: (p, c)."""
        if self.own.is_smaller:
            return self.own.diagonal(Q)
        free = np.zeros(self.own.free.shape)
        free[self._free] = Q.diagonal()
        return free[:-1]

    def _inverse_times(self, rhs: Array) -> Array:
        """K⁻¹ rhs, both with a row a coordinate and one of levels, and perhaps a third axis."""
        full, own = np.zeros_like(rhs), rhs[self._free]
        full[self._free] = self._about(own) if self.is_in_single else self._factored.solve(own)
        return full

    def _about(self, rhs: Array) -> Array:
        """The same in single precision, which holds no small numbers; by the inverse where it is at hand."""
        size = np.abs(rhs).max(initial=0.0) or 1.0
        own: Array = (rhs / size).astype(np.float32)
        by_inverse = "_kept_inverse" in self.__dict__
        return size * (_linalg.product(self._inverse, own) if by_inverse else self._factored.solve(own))

    def solve(self, gradient: Direction) -> Direction:
        inside = self.own.direction(self._solve(self.own.gradient(gradient)))
        coef = self.own.outside(gradient.as_gradient_at_centre(self.problem).coef)
        outside = Direction(coef, np.zeros_like(inside.intercept)).at_centre(self.problem, -1.0)
        return Direction(inside.coef + outside.coef, inside.intercept + outside.intercept)

    def _solve(self, gradient: Direction) -> Direction:
        """The same in the coordinates of K."""
        means = np.zeros(len(gradient.coef)) if self._means is None else self._means
        profiled = gradient.coef - np.multiply.outer(means, gradient.intercept)
        step = self._inverse_times(np.concatenate([profiled, gradient.intercept[None]]))
        return Direction(step[:-1], step[-1] - np.tensordot(means, step[:-1], 1))

    def predict(self, direction: Direction) -> Array:
        return self.problem.linear_predictor(*direction)

    def carry(self, new: Design, slopes: Array) -> Array:
        columns = _linalg.as_design(new).basis_of_rows()
        n_outputs = slopes.shape[1]
        carried = np.empty((columns.shape[1], *slopes.shape))
        for a in range(n_outputs):
            coef = np.zeros((len(columns), n_outputs, columns.shape[1]))
            intercept = np.zeros(coef.shape[1:])
            coef[:, a], intercept[a] = columns, 1.0
            carried[:, :, a] = np.einsum("nbm,nb->mn", self.respond(Direction(coef, intercept)), slopes)
        return carried

    def hat(self, rows: Array) -> Array:
        own = self.own.rows(rows)
        told = self._solve(Direction(_linalg.transposed_times(self.own.X, own), own.sum(axis=0)))
        return self.own.spread(_linalg.times(self.own.X, told.coef) + told.intercept)

    def hat_columns(self, rows: Index) -> Array:
        unit = np.zeros((*self.d.shape[:2], len(rows)))
        unit[rows, :, np.arange(len(rows))] = 1.0
        return self.hat(unit)
