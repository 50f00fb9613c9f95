"""The rows of a problem as its dual sees them: their Gram matrix, and the directions that are free.

``kinks`` has the mathematics.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg
from scipy.optimize import linprog

from onefit import _linalg
from onefit._typing import Array, Design, Index
from onefit.exceptions import SolverError
from onefit.numerics import EPS


@dataclass(frozen=True, eq=False)
class WeightedRows:
    """The rows that have a weight: G, and the free directions.

    Attributes
    ----------
    design : (n, p) array, sparse array, or RowGram
        X.
    inverse : (p,) array
        1 / l2, and 0 for the columns that are free or fixed at zero.
    gram : (n, n) array or None
        G, where it is known, or no larger than X of columns in about the same units.
    scaled : (n, p') array or sparse array
        X Λ^(−½) over the penalised columns: G is its row Gram matrix.
    free : (n, f) array
        Q.
    columns : int array
        Columns of [X, extra] that span the free directions.
    to_columns : (f, f) array
        Upper triangular R with Q R the columns.
    bend : (n,) array
        What is added to the diagonal of G: 0, or 1 / w for a row with the loss ½ w (y − η)².
    """

    design: Design
    inverse: Array
    gram: Array | None
    scaled: Design
    free: Array
    columns: Index
    to_columns: Array
    hessian: Array

    @classmethod
    def of(cls, X: Design, l2: Array, extra: Array, bend: Array | None = None) -> WeightedRows:
        """Scale the columns and tell the free directions from the penalised.

        Parameters
        ----------
        X : (n, p) array, sparse array, or RowGram
        l2 : (p,) array
            Strengths; 0 is free, infinity fixed at zero.
        extra : (n, e) array
            More columns without a penalty, such as that of the intercept.
        bend : (n,) array, optional
        """
        bend = np.zeros(X.shape[0]) if bend is None else bend
        last = len(l2) + np.arange(extra.shape[1])
        inverse = np.divide(1.0, l2, out=np.zeros(len(l2)), where=l2 > 0)
        if not _linalg.has_columns(X):
            if not np.all(l2 > 0):
                raise SolverError("a kernel model needs a penalty: give it a positive strength")
            gram = _linalg.as_design(X).row_gram(inverse)
            return cls(X, inverse[: len(gram)], gram, gram, *_orthonormal(extra, last), bend)
        flat, curved = np.flatnonzero(l2 == 0), np.flatnonzero(inverse)
        free = np.hstack([_linalg.as_columns(X).columns_as_rows(flat).T, extra])
        scaled = _linalg.as_columns(X).scaled_columns(curved, np.sqrt(inverse[curved]))
        lengths = _linalg.column_norms(scaled, np.ones(X.shape[0]), centred=False) ** 2
        small = len(curved) >= X.shape[0] and not _linalg.is_graded(lengths)  # products would lose digits
        known = _linalg.as_design(scaled).row_gram(np.ones(len(curved))) if small else None
        return cls(X, inverse, known, scaled, *_orthonormal(free, np.append(flat, last)), bend)

    @cached_property
    def squared_norms(self) -> Array:
        """Diagonal of the matrix that is factored."""
        return self._diagonal + self.tau * np.sum(self.free**2, axis=1)

    @cached_property
    def tau(self) -> float:
        """Curvature given to the free directions: about that of the others."""
        return float(self._diagonal.sum()) / max(self.free.shape[1], 1) or 1.0

    @cached_property
    def _diagonal(self) -> Array:
        if self.gram is not None:
            return self.gram.diagonal() + self.hessian
        return _linalg.as_columns(self.scaled).row_squares() + self.hessian

    def coefficients(self, duals: Array) -> Array:
        """−Λ^(−½) Xᵀ g, those of the scaled columns; of no use where G is known, and none there: (p',)."""
        return np.empty(0) if self.gram is not None else -_linalg.transposed_times(self.scaled, duals)

    def pull(self, duals: Array, own: Array) -> Array:
        """G g, by the coefficients that go with the duals: (n,)."""
        if self.gram is not None:
            return _linalg.product(self.gram, duals) + self.hessian * duals
        return self.hessian * duals - _linalg.times(self.scaled, own)

    def moved(self, pull: Array, own: Array, step: Array, duals: Array) -> tuple[Array, Array]:
        """G g and the coefficients after a step to these duals.

        Of far or large columns duals have not the digits that coefficients need: these are moved along, and
        G g is of them.
        """
        own = own + self.coefficients(step)
        return (pull + self.pull(step, own) if self.gram is not None else self.pull(duals, own)), own

    def rounding(self, duals: Array, own: Array) -> float:
        """What rounding leaves of G g, about."""
        longest = float(self.squared_norms.max(initial=0.0))
        if self.gram is not None:
            return EPS * float(np.abs(duals).sum()) * longest
        return EPS * float(np.sqrt(longest) * np.linalg.norm(own))

    def among(self, left: Index, right: Index) -> Array:
        """Entries of G + τ Q Qᵀ, in Fortran order."""
        if self.gram is not None:
            block = self.gram[np.ix_(left, right)]
        else:
            block = _linalg.as_columns(self.scaled).among(left, right)
        if left is right:
            block = block + np.diag(self.hessian[left])
        return np.asfortranarray(block + self.tau * self.free[left] @ self.free[right].T)

    def primal(self, duals: Array, own: Array, free: Array) -> tuple[Array, Array]:
        """β, and the coefficients of the extra columns.

        On the penalised columns it is −Λ⁻¹ Xᵀ g: by ``own`` coefficients of the scaled columns, where they
        were kept while the duals moved, since they have digits that the duals have not.
        """
        p = len(self.inverse)
        if self.gram is None:
            coef = np.zeros(p)
            coef[np.flatnonzero(self.inverse)] = np.sqrt(self.inverse[self.inverse > 0]) * own
        else:
            coef = -self.inverse * _linalg.transposed_times(self.design, duals)
        directions = scipy.linalg.solve_triangular(self.to_columns, free)
        mine = self.columns < p
        coef[self.columns[mine]] = directions[mine]
        extra = np.zeros(max(int(self.columns.max(initial=p - 1)) + 1 - p, 0))
        extra[self.columns[~mine] - p] = directions[~mine]
        return coef, extra


def _orthonormal(free: Array, columns: Index) -> tuple[Array, Index, Array]:
    """Q, independent columns, and R of these."""
    if free.shape[1] == 0:
        return free, columns, np.empty((0, 0))
    norms = np.maximum(np.linalg.norm(free, axis=0), np.finfo(float).tiny)
    Q, R, order = scipy.linalg.qr(free / norms, mode="economic", pivoting=True)
    rank = int(np.count_nonzero(np.abs(R.diagonal()) > 1e-11))
    return Q[:, :rank], columns[order[:rank]], R[:rank, :rank] * norms[order[:rank]]


def into_box(g: Array, ends: Array, free: Array) -> Array:
    """Duals with Qᵀ g = 0 between the outer ends of their intervals, nearest to some in ℓ1 distance.

    Linear programs are solved to absolute tolerances: this one in units of what is missing.
    """
    excess = free.T @ g
    if free.shape[1] == 1:
        return _filled(g, ends, free[:, 0], -float(excess[0]))
    if np.abs(excess).max(initial=0.0) <= 1e-12 * np.abs(g).max(initial=0.0):
        return g
    missing = float(np.abs(excess).max())
    room = np.concatenate([ends[:, -1] - g, g - ends[:, 0]]) / missing
    bounds = np.column_stack([np.zeros(len(room)), room])
    program = linprog(
        np.ones(len(room)), A_eq=np.hstack([free.T, -free.T]), b_eq=-excess / missing, bounds=bounds
    )
    if program.status != 0:
        raise SolverError(
            "there are no duals that balance the directions without a penalty: the problem has no finite "
            "minimum; give every column a penalty"
        )
    return np.clip(g + missing * (program.x[: len(g)] - program.x[len(g) :]), ends[:, 0], ends[:, -1])


def _filled(g: Array, ends: Array, along: Array, missing: float) -> Array:
    """The same for one direction, row after row: first those that are not at an end."""
    low, high = ends[:, 0] - g, ends[:, -1] - g
    up = along * missing > 0
    reach = np.where(along == 0, 0.0, np.abs(np.where(up, high, low)))
    room = np.minimum(reach * np.abs(along), abs(missing))
    at_end = np.abs(g[:, None] - ends).min(axis=1) <= 1e-9 * np.abs(g)
    order = np.lexsort([-np.abs(along), at_end])
    before = np.cumsum(room[order]) - room[order]
    filled = np.empty(len(g))
    filled[order] = np.clip(abs(missing) - before, 0.0, room[order])
    share = np.divide(filled, along * np.sign(missing), out=np.zeros(len(g)), where=filled > 0)
    return np.clip(g + share, ends[:, 0], ends[:, -1])
