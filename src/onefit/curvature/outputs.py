"""K of several outputs: independent ones, and ones that the loss ties together.

With z_ia the row of the design on the free columns S_a of output a (the intercept is a last column of ones),
two products make a curvature K of coupled outputs and read the leverages off its inverse:

    Zᵀ E Z = Σ_i E_i,ab z_ia z_ibᵀ              for symmetric E_i (c × c),
    F_i,ab = z_iaᵀ Q_ab z_ib                    for symmetric Q over all free coordinates.

Both are symmetric in (a, b), and in the columns where all outputs share them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from onefit import _linalg
from onefit._linalg import Factorization
from onefit._typing import Array, Design, Index, Mask
from onefit.curvature.base import Curvature, Direction, Sandwich
from onefit.fit import Fit
from onefit.penalties import Tangent
from onefit.problem import Problem

WIDTH = 64  # columns of a product of matrices from which on it is as fast as it gets
ROWS = 512  # that are in the cache together
SHORT = 1e6  # multiplications of a product that takes no longer than the calls around it


def row_products(X: Design, means: Array | None, free: Sequence[Index]) -> RowProducts:
    """Return whichever way takes fewer multiplications.

    Parameters
    ----------
    X : (n, p) design
    means : (p,) array or None
        Taken off the columns.
    free : sequence of int arrays
        Free columns of each output, ascending; number p is the intercept.
    """
    sizes = np.array([len(own) for own in free], dtype=float)
    shared = np.unique(np.concatenate([*free, np.empty(0, dtype=np.intp)])).astype(np.intp)
    pairs = 0.5 * len(sizes) * (len(sizes) + 1)
    each = 0.5 * (sizes.sum() ** 2 + np.sum(sizes**2))
    if 0.5 * pairs * len(shared) ** 2 <= each:
        return SharedColumns(X, means, free, shared)
    return OwnColumns(X, means, free)


@dataclass(frozen=True, eq=False)
class RowProducts(ABC):
    """The rows of a design, with free columns for each output."""

    X: Design
    means: Array | None
    free: Sequence[Index]

    @abstractmethod
    def weighted(self, middle: Array) -> Array:
        """Zᵀ E Z for E (n, c, c): square, its blocks on and below the diagonal valid, Fortran order."""

    @abstractmethod
    def forms(self, Q: Array) -> Array:
        """F (n, c, c) for a symmetric Q."""

    @property
    def ends(self) -> Index:
        """Where the coordinates of each output begin and end in a matrix over all of them: (c + 1,)."""
        return np.concatenate([[0], np.cumsum([len(own) for own in self.free])])

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Rows, and their dense centred columns with a last one of ones."""
        for rows, block in _linalg.as_columns(self.X).blocks(self.means):
            for start in range(0, len(block), ROWS):
                part = block[start : start + ROWS]
                first = rows.start + start
                yield slice(first, first + len(part)), np.hstack([part, np.ones((len(part), 1))])


class OwnColumns(RowProducts):
    """Outputs with different columns: one product a pair of outputs."""

    def weighted(self, middle: Array) -> Array:
        ends, free = self.ends, self.free
        K = np.zeros((ends[-1], ends[-1]), order="F")
        for rows, Z in self.blocks():
            for a in range(len(free)):
                Za = Z[:, free[a]].T
                for b in range(a + 1):
                    Zb = Z[:, free[b]] * middle[rows, a, b][:, None]
                    K[ends[a] : ends[a + 1], ends[b] : ends[b + 1]] += _linalg.product(Za, Zb)
        return K

    def forms(self, Q: Array) -> Array:
        ends, free = self.ends, self.free
        found = np.empty((self.X.shape[0], len(free), len(free)))
        for rows, Z in self.blocks():
            for a in range(len(free)):
                along = _linalg.product(Z[:, free[a]], Q[ends[a] : ends[a + 1], : ends[a + 1]])
                for b in range(a + 1):
                    own = np.einsum("ij,ij->i", along[:, ends[b] : ends[b + 1]], Z[:, free[b]])
                    found[rows, a, b] = found[rows, b, a] = own
        return found


@dataclass(frozen=True, eq=False)
class SharedColumns(RowProducts):
    """Outputs with much the same columns: pairs of outputs stand side by side in products of few columns."""

    shared: Index

    @cached_property
    def _chunks(self) -> list[slice]:
        """Columns of the shared ones that are taken together."""
        pairs, u = max(1, len(self._pairs[0])), len(self.shared)
        width = max(1, WIDTH // pairs, int(SHORT / (max(1, self.X.shape[0] * u) * pairs)))
        return [slice(j, min(j + width, u)) for j in range(0, u, width)]

    @cached_property
    def _pairs(self) -> tuple[Index, Index]:
        """Outputs a ≥ b."""
        return np.tril_indices(len(self.free))

    def weighted(self, middle: Array) -> Array:
        left, right = self._pairs
        u, pairs = len(self.shared), len(left)
        sums = np.zeros((u, u, pairs))  # of columns k ≥ j
        for rows, block in self.blocks():
            Z = np.ascontiguousarray(block[:, self.shared].T)
            E = np.ascontiguousarray(middle[rows][:, left, right].T)
            for chunk in self._chunks:
                scaled = (Z[chunk, None] * E).reshape(-1, len(block))
                below = _linalg.product(Z[chunk.start :], scaled.T)
                sums[chunk.start :, chunk] += below.reshape(u - chunk.start, -1, pairs)
        own = np.where(np.tri(u, dtype=bool)[:, :, None], sums, sums.transpose(1, 0, 2))
        if all(len(columns) == u for columns in self.free):
            whole = np.empty((len(self.free), u, len(self.free), u))
            whole[left, :, right] = whole[right, :, left] = own.transpose(2, 0, 1)
            return whole.reshape(2 * (u * len(self.free),)).T
        places, ends = [np.searchsorted(self.shared, columns) for columns in self.free], self.ends
        K = np.zeros((ends[-1], ends[-1]), order="F")
        for t, (a, b) in enumerate(zip(left, right, strict=True)):
            K[ends[a] : ends[a + 1], ends[b] : ends[b + 1]] = own[:, :, t][np.ix_(places[a], places[b])]
        return K

    def forms(self, Q: Array) -> Array:
        left, right = self._pairs
        by_column = self._spread(Q)
        found = np.zeros((self.X.shape[0], len(self.free), len(self.free)))
        for rows, block in self.blocks():
            Z, total = np.ascontiguousarray(block[:, self.shared].T), np.zeros((len(left), len(block)))
            for chunk in self._chunks:
                inner = by_column[chunk.start :, chunk].reshape(len(Z) - chunk.start, -1)
                along = _linalg.product(inner.T, Z[chunk.start :]).reshape(-1, *total.shape)
                for own, column in zip(along, Z[chunk], strict=True):
                    total += np.multiply(own, column, out=own)
            found[rows, left, right] = found[rows, right, left] = total.T
        return found

    def _spread(self, Q: Array) -> Array:
        """Q by shared columns (k, j) and pairs of outputs, below a chunk with what belongs to (j, k)."""
        left, right = self._pairs
        places, ends = [np.searchsorted(self.shared, own) for own in self.free], self.ends
        by_column = np.zeros((len(self.shared), len(self.shared), len(left)))
        for t, (a, b) in enumerate(zip(left, right, strict=True)):
            own = Q[ends[a] : ends[a + 1], ends[b] : ends[b + 1]]
            by_column[places[a][:, None], places[b], t] = own
        for chunk in self._chunks:
            by_column[chunk.stop :, chunk] += by_column[chunk, chunk.stop :].transpose(1, 0, 2)
        return by_column


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


def ignores_shifts(d: Array) -> bool:
    """Whether second derivatives (n, c, c) say that a constant added to all outputs changes no loss."""
    return bool(np.abs(d.sum(axis=2)).max() <= 1e-10 * np.abs(d).max())


@dataclass(frozen=True)
class CoupledBlock(Curvature):
    """Outputs tied together by the loss: one matrix over all free coordinates of all outputs.

    Output a has its own free columns S_a and perhaps an intercept.  Where adding a constant to all
    outputs changes neither loss nor penalty (symmetric multinomial models), K is singular in a direction
    that no prediction depends on; it is made definite there, which changes nothing that is read.
    """

    fit: Fit
    tangent: Tangent

    @property
    def problem(self) -> Problem:
        """That of the fit."""
        return self.fit.problem

    @property
    def d(self) -> Array:
        """Second derivatives of the rows: (n, c, c)."""
        return self.fit.hessian

    @cached_property
    def _means(self) -> Array | None:
        """Plain centring, for conditioning; allowed where every output has an intercept."""
        if not _linalg.has_columns(self.problem.X) or not np.all(self.problem.intercept):
            return None
        return _linalg.column_means(self.problem.X, self.problem.weights)

    @cached_property
    def _is_free(self) -> Mask:
        """Free coordinates among the p columns and, as number p, the intercept: (p + 1, c)."""
        return np.vstack([self.tangent.support, self.problem.intercept[None]])

    @cached_property
    def _free(self) -> tuple[Index, Index]:
        """Coordinates and outputs of what is free, in the order of K: one output after the other."""
        outputs, coordinates = np.nonzero(self._is_free.T)
        return coordinates, outputs

    @cached_property
    def _rows(self) -> RowProducts:
        free = [np.flatnonzero(column) for column in self._is_free.T]
        return row_products(self.problem.X, self._means, free)

    @cached_property
    def _gram(self) -> Array:
        K = self._rows.weighted(self.d)
        curved = np.vstack([self.tangent.hessian, np.zeros((1, self.d.shape[1]))])
        K[np.diag_indices_from(K)] += curved[self._free]
        return self._pinned(K)

    def _pinned(self, K: Array) -> Array:
        """Add curvature along shifts common to all outputs where there is none."""
        if not ignores_shifts(self.d):
            return K
        position = np.full(self._is_free.shape, -1)
        position[self._free] = np.arange(len(K))
        flat = np.append(self.tangent.hessian.max(axis=1) == 0, True)
        for common in position[flat & (position >= 0).all(axis=1)]:
            K[np.ix_(common, common)] += K[common, common].mean() + np.finfo(float).tiny
        return K

    @cached_property
    def _factored(self) -> Factorization:
        return Factorization.of(self._gram)

    @property
    def is_factored(self) -> bool:
        return "_factored" in self.__dict__

    @property
    def is_definite(self) -> bool:
        return self._factored.is_definite

    @property
    def condition(self) -> float:
        return self._factored.condition

    def quadratic_forms(self) -> Array:
        return self._forms

    @cached_property
    def _forms(self) -> Array:
        return self._rows.forms(self._factored.inverse())

    def forms_of(self, rows: Index) -> Array:
        """Forms of some rows: (r, c, c)."""
        some = replace(self._rows, X=_linalg.some_rows(self.problem.X, rows))
        return some.forms(self._factored.inverse())

    def sandwich(self, middle: Array) -> Sandwich:
        inner = _linalg.mirrored(self._rows.weighted(middle))
        Q = self._factored.solve(self._factored.solve(inner).T)
        free = np.zeros(self._is_free.shape)
        free[self._free] = Q.diagonal()
        return Sandwich(self._rows.forms(Q), free[:-1])

    def _inverse_times(self, rhs: Array) -> Array:
        """K⁻¹ rhs, both with p + 1 rows, one column an output, and perhaps a third axis."""
        full = np.zeros_like(rhs)
        full[self._free] = self._factored.solve(rhs[self._free])
        return full

    def solve(self, gradient: Direction) -> Direction:
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
        gradient = Direction(_linalg.transposed_times(self.problem.X, rows), rows.sum(axis=0))
        return self.predict(self.solve(gradient))

    def hat_columns(self, rows: Index) -> Array:
        unit = np.zeros((*self.d.shape[:2], len(rows)))
        unit[rows, :, np.arange(len(rows))] = 1.0
        return self.hat(unit)
