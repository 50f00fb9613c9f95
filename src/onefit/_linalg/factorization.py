"""Factors of symmetric matrices, and what is read from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.linalg
from scipy.linalg import blas, lapack

from onefit._linalg.blas import mirrored, product, times_upper
from onefit._linalg.columns import as_columns
from onefit._linalg.semidefinite import RANK, Pivoted, inverse_root, positive_eigenpairs
from onefit._typing import Array, Mask
from onefit.numerics import EPS, NOISE

ALONE = 30  # columns from which on systems are solved one by one, by a Cholesky factor each
REPAID = 2  # rows a column from which on a triangle is inverted rather than solved with
ALIKE = 1e-9  # share of a column that others do not tell: of one that they do, rounding leaves less
# Smallest pivot, of a matrix with ones on its diagonal, that tells without an order that it is definite: of
# columns that depend on each other, and but for δ do so without one of them, that one is left EPS/δ by
# rounding.  The smaller of the two pivots is √EPS at most, and a few times that.
UNSURE = 1e-6


def cholesky(K: Array, *, in_place: bool = False) -> Array | None:
    """Lower Cholesky factor of a symmetric matrix (lower triangle read), or None if it has none.

    A factor whose smallest squared pivot is below rounding, relative to the diagonal it came from,
    counts as none: what is read from it would be noise.  In single precision, if K is, and ``in_place`` of it
    where it is in the order of Fortran: new memory takes about as long as a third of the factor.
    """
    if K.shape[0] == 0:
        return K
    diagonal = K.diagonal().copy()
    factor, failed = _lapack("potrf", K)(K, lower=1, clean=1, overwrite_a=in_place)
    if failed != 0 or not np.all(factor.diagonal() ** 2 > NOISE * np.finfo(K.dtype).eps * diagonal):
        return None
    return factor


def _lapack(name: str, A: Array) -> Any:
    """A function of LAPACK in the precision of a matrix."""
    return getattr(lapack, ("s" if A.dtype == np.float32 else "d") + name)


def condition(L: Array) -> float:
    """Condition of L Lᵀ once scaled to a unit diagonal, about: its largest variance inflation."""
    if L.shape[0] == 0:
        return 1.0
    diagonal = np.einsum("ij,ij->i", L, L)
    return float(np.max(diagonal / np.maximum(L.diagonal() ** 2, np.finfo(float).tiny)))


def factor_solve(L: Array, rhs: Array) -> Array:
    """(L Lᵀ)⁻¹ rhs, in the precision of the factor and then in that of the right side.

    LAPACK takes one vector as a matrix of one column, which takes three to seven times as long.
    """
    if L.shape[0] == 0:
        return rhs.copy()
    own = rhs.astype(L.dtype, copy=False)
    if rhs.size == L.shape[0]:
        trsv = blas.strsv if L.dtype == np.float32 else blas.dtrsv
        solved = trsv(L, trsv(L, own.reshape(-1), lower=1), lower=1, trans=1, overwrite_x=1)
    else:
        solved = _lapack("potrs", L)(L, own, lower=1)[0]
    return np.asarray(solved, dtype=rhs.dtype).reshape(rhs.shape)


def factor_inverse(L: Array) -> Array:
    """(L Lᵀ)⁻¹, full."""
    if L.shape[0] == 0:
        return L
    return mirrored(_lapack("potri", L)(L, lower=1)[0])


def inverse_diagonal(L: Array) -> Array:
    """Diagonal of (L Lᵀ)⁻¹."""
    if L.shape[0] == 0:
        return np.empty(0)
    inverse = triangular_inverse(L)
    return np.einsum("ij,ij->j", inverse, inverse)


def triangular_inverse(L: Array) -> Array:
    """L⁻¹ of a lower triangle."""
    return np.asarray(_lapack("trtri", L)(L, lower=1)[0]) if L.shape[0] else L


def half_solve(L: Array, block: Array) -> Array:
    """Block @ L⁻ᵀ for a block of rows (r, k), in the block's memory order; the block is overwritten."""
    if block.size == 0:
        return block
    trsm = blas.strsm if L.dtype == block.dtype == np.float32 else blas.dtrsm
    if block.flags.c_contiguous:
        return trsm(1.0, L, block.T, side=0, lower=1, overwrite_b=1).T
    return trsm(1.0, L, block, side=1, lower=1, trans_a=1, overwrite_b=1)


class OfRows(NamedTuple):
    """What a matrix K = Σ Bᵀ B + H is the sum of.

    Attributes
    ----------
    blocks : callable
        The B, each with a column for each of K.
    rest : callable
        H, positive semi-definite: its diagonal (k,), or (k, k) with its lower triangle.
    """

    blocks: Callable[[], Iterable[Array]]
    rest: Callable[[], Array]

    def are_lost_in(self, K: Pivoted) -> bool:
        """Whether the rows have a share in what rounding in K leaves no pivot of.

        A column less those that K says it depends on is zero in each row, too, where it does depend on them:
        copies, levels that sum to one.  Where columns are nearly alike, or far from zero beside their spread,
        it is not.
        """
        null = K.null_space()
        null = null[:, null.T @ K.diagonal != 0]
        left = np.zeros(null.shape[1])
        for block in self.blocks():
            left += np.sum(product(block, null) ** 2, axis=0)
        return bool(np.any(left > ALIKE**2))

    def triangle(self, scale: Array) -> Array:
        """R (k, k) with Rᵀ R = S K S for S = diag(``scale``)."""
        H = self.rest()
        if H.ndim == 1:
            rest = np.diag(np.sqrt(H))
        else:
            values, vectors = positive_eigenpairs(H)
            rest = (vectors * np.sqrt(values)).T
        R: Array = np.zeros((0, len(scale)))
        for block in chain(self.blocks(), [rest]):
            R = np.asarray(np.linalg.qr(np.vstack([R, block * scale]), mode="r"))
        return R


@dataclass(frozen=True, eq=False)
class Factorization:
    """A positive semi-definite K, ready to be solved with, by its generalised inverse where it has no other.

    Attributes
    ----------
    factor : array
        L of K = L Lᵀ, or W of K⁺ = W Wᵀ.
    is_definite : bool
        Whether it is the first.
    condition : float
        Of K scaled to a unit diagonal, about.
    """

    factor: Array
    is_definite: bool
    condition: float

    @classmethod
    def of(cls, K: Array, of_rows: OfRows | None = None) -> Self:
        """Factor K, of which the lower triangle is read, or what it is the sum of where K has lost that."""
        definite = cls.of_definite(K)
        if definite is not None and definite.condition * UNSURE <= 1.0:
            return definite
        pivoted = Pivoted.of(K)
        if definite is not None and pivoted.rank == len(K):
            return definite
        if of_rows is not None and of_rows.are_lost_in(pivoted):
            return cls._of_rows(of_rows, pivoted.root)
        W = pivoted.pseudo_factor()
        return cls(W, False, float(np.sum((pivoted.root[:, None] * W) ** 2)))

    @classmethod
    def _of_rows(cls, of_rows: OfRows, root: Array) -> Self:
        """The same of roots of the diagonal of K: as well as the root of its condition lets.

        With R the triangle of all rows scaled to unit columns, K = Rᵀ R, by Householder reflections (Higham
        2002, Theorem 19.4); none of what tells columns apart is squared.
        """
        R = of_rows.triangle(np.divide(1.0, root, out=np.zeros_like(root), where=root > 0))
        pivoted, order = scipy.linalg.qr(R, mode="r", pivoting=True)
        pivots = np.abs(pivoted.diagonal())
        rank = int(np.sum(pivots > NOISE * EPS * pivots.max(initial=0.0)))
        if rank == len(root):
            L = R.T * np.sign(R.diagonal())
            return cls(root[:, None] * L, True, condition(L))
        B = np.empty((len(root), rank))
        B[order] = pivoted[:rank].T
        W = inverse_root(root[:, None] * B)
        return cls(W, False, float(np.sum((root[:, None] * W) ** 2)))

    @classmethod
    def of_definite(cls, K: Array) -> Self | None:
        """The same in the precision of K, or None if it has no Cholesky factor."""
        L = cholesky(K)
        return None if L is None else cls(L, True, condition(L))

    def solve(self, rhs: Array) -> Array:
        """K⁻¹ ``rhs``."""
        if self.is_definite:
            return factor_solve(self.factor, rhs)
        return np.asarray(self.factor @ (self.factor.T @ rhs))

    def inverse(self) -> Array:
        """K⁻¹, full."""
        return factor_inverse(self.factor) if self.is_definite else product(self.factor, self.factor.T)

    @cached_property
    def inverse_root(self) -> Array:
        """W with W Wᵀ = K⁻¹, upper triangular where K is definite."""
        return triangular_inverse(self.factor).T if self.is_definite else self.factor

    def half(self, rows: Array) -> Array:
        """Rows whose inner products are those of ``rows`` in K⁻¹; these may be overwritten."""
        return half_solve(self.factor, rows) if self.is_definite else rows @ self.factor

    def row_forms(self, X: Any, means: Array | None) -> Array:
        """z_iᵀ K⁻¹ z_i for the centred rows z_i = X[i] − means: (n,).

        Products with a triangle take a third to two thirds of the time of solving with one, so that an
        inverse pays from ``REPAID`` rows a column.
        """
        forms, repaid = np.empty(X.shape[0]), self.is_definite and X.shape[0] >= REPAID * X.shape[1]
        for rows, block in as_columns(X).blocks(means):
            half = times_upper(block, self.inverse_root) if repaid else self.half(block)
            forms[rows] = np.einsum("ij,ij->i", half, half)
        return forms


def solve_or_fit(system: Array, rhs: Array) -> Array:
    """Solve a system; by least squares where it is singular."""
    try:
        return np.asarray(np.linalg.solve(system, rhs), dtype=np.float64)
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.lstsq(system, rhs, rcond=None)[0], dtype=np.float64)


def solve_each(systems: Array, rhs: Array) -> Array:
    """Solve many small systems; NaN where one is singular."""
    try:
        return np.asarray(np.linalg.solve(systems, rhs), dtype=np.float64)
    except np.linalg.LinAlgError:
        if len(systems) == 1:
            return np.full_like(rhs, np.nan)
        half = len(systems) // 2
        return np.concatenate(
            [solve_each(systems[:half], rhs[:half]), solve_each(systems[half:], rhs[half:])]
        )


def solve_inside(K: Array, right: Array, on: Mask) -> tuple[Array, Mask]:
    """Solve each system in the coordinates that are on, 0 elsewhere; and whether it is definite."""
    inside = np.where(on[:, :, None] & on[:, None, :], K, 0.0)
    diagonal = np.einsum("mqq->mq", inside)
    diagonal += ~on
    scale = 1.0 / np.sqrt(np.maximum(diagonal, np.finfo(float).tiny))
    inside *= scale[:, :, None] * scale[:, None, :]
    solve = _solve_alone if K.shape[1] >= ALONE else _solve_together
    value, sure = solve(inside, scale * right)
    return scale * value, sure


def _solve_alone(systems: Array, rhs: Array) -> tuple[Array, Mask]:
    """Solutions of large systems, one after the other; and which have no pivot that is none."""
    value, sure = np.full_like(rhs, np.nan), np.zeros(len(systems), dtype=bool)
    for k, system in enumerate(systems):
        L = cholesky(system.T)  # the same, in the order of Fortran
        if L is not None:
            value[k], sure[k] = factor_solve(L, rhs[k]), L.diagonal().min() ** 2 > RANK
    return value, sure


def _solve_together(systems: Array, rhs: Array) -> tuple[Array, Mask]:
    """The same of small ones."""
    try:
        pivots = np.einsum("mqq->mq", np.linalg.cholesky(systems))
        value: Array = np.linalg.solve(systems, rhs[..., None])[..., 0].astype(np.float64, copy=False)
        sure: Mask = np.asarray(pivots.min(axis=1, initial=1.0) ** 2 > RANK)
    except np.linalg.LinAlgError:  # one of them is singular
        if len(systems) == 1:
            return np.full_like(rhs, np.nan), np.zeros(1, dtype=bool)
        halves = np.array_split(np.arange(len(systems)), 2)
        parts = [_solve_together(systems[half], rhs[half]) for half in halves]
        value, sure = (np.concatenate(both) for both in zip(*parts, strict=True))
    return value, sure
