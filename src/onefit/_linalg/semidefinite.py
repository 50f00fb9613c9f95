"""Positive semi-definite matrices that may be singular: factors with pivots, roots of inverses, spectra."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
from scipy.linalg import blas, lapack

from onefit._linalg.blas import eigh, product
from onefit._linalg.columns import as_columns
from onefit._typing import Array, Index
from onefit.numerics import EPS

RANK = 1e-11  # smallest pivot of a matrix with ones on its diagonal that counts
GRADED = 1e6  # ratio of squared lengths from which on ``eigh`` leaves ten digits of the smaller
FAINT = 1e-26  # eigenvalues beside the largest that no vector is known of
ROW_AND_COLUMN_SCALED = 2  # which LAPACK's dgejsv calls "F"


class Pivoted(NamedTuple):
    """A positive semi-definite K, scaled to a unit diagonal and factored with pivots.

    Attributes
    ----------
    diagonal : (k,) array
        Of K.
    factor : (k, k) array
        [L; M], of which the first ``rank`` columns count.
    order : (k,) int array
        Which columns its rows are of.
    rank : int
    """

    diagonal: Array
    factor: Array
    order: Index
    rank: int

    @classmethod
    def of(cls, K: Array, rtol: float = RANK) -> Self:
        diagonal = K.diagonal().copy()
        root = np.sqrt(np.maximum(diagonal, 0.0))
        inverse_scale = np.divide(1.0, root, out=np.zeros_like(root), where=root > 0)
        with np.errstate(invalid="ignore"):  # of a K that is not finite
            scaled = np.asfortranarray(K * np.outer(inverse_scale, inverse_scale))
        factor, order, rank, _ = lapack.dpstrf(scaled, lower=1, tol=rtol)
        return cls(diagonal, np.tril(factor), order - 1, int(rank))

    @property
    def root(self) -> Array:
        """Of the diagonal: (k,)."""
        return np.sqrt(np.maximum(self.diagonal, 0.0))

    @property
    def lower(self) -> Array:
        """B with B Bᵀ = K: (k, r)."""
        B = np.empty((len(self.diagonal), self.rank), order="F")
        B[self.order] = self.factor[:, : self.rank]
        B *= self.root[:, None]
        return B

    def pseudo_factor(self) -> Array:
        if not np.all(np.isfinite(self.diagonal)):
            return np.full((len(self.diagonal), 1), np.nan)
        if self.rank < len(self.diagonal):
            return inverse_root(self.lower)
        root = np.empty_like(self.factor)
        root[self.order] = lapack.dtrtri(self.factor, lower=1)[0].T
        root /= self.root[:, None]
        return root

    def null_space(self) -> Array:
        free, left, root = self.order[: self.rank], self.order[self.rank :], self.root[:, None]
        basis = np.zeros((len(root), len(left)))
        if basis.size:
            below = self.factor[self.rank :, : self.rank].T
            L = self.factor[: self.rank, : self.rank]
            basis[free] = blas.dtrsm(1.0, L, below, lower=1, trans_a=1)
            basis[left] = -np.eye(len(left))
        return np.divide(basis, root, out=basis, where=root > 0)

    def eigenpairs(self) -> tuple[Array, Array]:
        """Eigenvalues and vectors, (r,) and (k, r), of columns in very different units.

        Beside the largest eigenvalue ``eigh`` takes the smaller ones for rounding.  They are the squares of
        the singular values of B (Demmel and Veselić 1992; Drmač and Veselić 2008).
        """
        return graded_singular_vectors(self.lower)[:2]


def graded_singular_vectors(A: Array) -> tuple[Array, Array, Array]:
    """Squares of singular values (r,), ascending, and left and right vectors, of A (k, m) with k >= m.

    By one-sided Jacobi rotations: those of rows and columns in very different units are told to as many
    digits as the condition of A in units of their own lets.  Values that no vector is known of are left out.
    """
    sizes, left, right, work, _, failed = lapack.dgejsv(A, joba=ROW_AND_COLUMN_SCALED, jobu=0, jobv=0)
    if failed:
        raise np.linalg.LinAlgError("the singular values of a matrix did not settle")
    values = (sizes * (work[0] / work[1])) ** 2
    keep = np.flatnonzero(values > FAINT * values.max(initial=0.0))[::-1]
    return values[keep], left[:, keep], right[:, keep]


def pseudo_factor(K: Array, rtol: float = RANK) -> Array:
    """W (k, r) with W Wᵀ = K⁺, for a positive semi-definite K (lower triangle read).

    The rank is judged after scaling K to a unit diagonal, so that units of measurement do not matter, by a
    Cholesky factor with pivoting (Higham 2002, section 10.3): K = B Bᵀ with B (k, r), and with B = Q R,
    K⁺ = Q (R Rᵀ)⁻¹ Qᵀ.
    """
    return Pivoted.of(K, rtol).pseudo_factor()


def inverse_root(B: Array) -> Array:
    """W with W Wᵀ = (B Bᵀ)⁺, for B (k, r) of full rank."""
    Q, R = np.linalg.qr(B)
    return blas.dtrsm(1.0, R, Q, side=1, trans_a=1) if R.size else B


def null_space(K: Array, rtol: float = RANK) -> Array:
    """A basis (k, k − r) of what a positive semi-definite K takes to zero, one dependent column a vector.

    The rank is judged as by ``pseudo_factor``: with pivots K = [L; M] [L; M]ᵀ, and K [L⁻ᵀ Mᵀ; −I] = 0.
    """
    return Pivoted.of(K, rtol).null_space()


def wide_pseudo_factor(X: Any, means: Array | None, d: Array) -> Array:
    """W (k, r) with W Wᵀ = (Zᵀ diag(d) Z)⁺ for the centred rows Z, from their n × n Gram matrix."""
    root = np.sqrt(np.maximum(d, 0.0))[:, None]
    Z = np.vstack([block for _, block in as_columns(X).blocks(means)]) * root
    values, vectors = eigh(product(Z, Z.T))
    keep = values > RANK * max(float(values.max(initial=0.0)), 1e-300)
    return product(Z.T, vectors[:, keep] / values[keep])


def low_rank_roots(K: Array, rtol: float) -> Array:
    """B (t, k, r) with B Bᵀ = K but for this share of the largest element, of t semi-definite matrices K.

    By pivoted Cholesky, a pivot of all of them at a time; columns of B beyond the rank of its K are zero.
    Not scaled to a unit diagonal, where all pivots would be equal and rounding say which is first.
    """
    numbers, (count, size) = np.arange(len(K)), K.shape[:2]
    left = np.diagonal(K, axis1=1, axis2=2).copy()
    least = rtol * left.max(axis=1, initial=0.0)
    B = np.zeros((count, size, size))
    for r in range(size):
        pivot = left.argmax(axis=1)
        largest = left[numbers, pivot]
        is_left = largest > least
        if not is_left.any():
            return B[:, :, :r]
        column = K[numbers, :, pivot] - np.einsum("tkr,tr->tk", B[:, :, :r], B[numbers, pivot, :r])
        column *= (is_left / np.sqrt(np.where(is_left, largest, 1.0)))[:, None]
        B[:, :, r] = column
        left -= column**2
        left[numbers[is_left], pivot[is_left]] = 0.0
    return B


def positive_eigenpairs(A: Array) -> tuple[Array, Array]:
    """Those of a positive semi-definite matrix whose eigenvalues are above rounding: (r,) and (k, r)."""
    if is_graded(A.diagonal()):
        return Pivoted.of(A, len(A) * EPS).eigenpairs()
    values, vectors = eigh(A)
    keep = values > len(values) * EPS * max(float(values.max(initial=0.0)), 1e-300)
    return values[keep], vectors[:, keep]


def is_graded(diagonal: Array, ratio: float = GRADED) -> bool:
    """Whether columns with these squared lengths are in units too different, by default for ``eigh``."""
    largest, least = diagonal.max(initial=0.0), diagonal.min(initial=np.inf, where=diagonal > 0)
    return bool(least * ratio < largest < np.inf)


def eigenpairs_beside(K: Array, null: Array) -> tuple[Array, Array]:
    """Positive eigenvalues of a semi-definite K, and their vectors, with K u = 0 for a unit vector u.

    In the coordinates of a reflection that takes u to the first axis, which is left out: rounding would mix
    it with directions of small eigenvalues.
    """
    v, scale = _reflection(null)
    along = scale * (K @ v)
    along -= 0.5 * scale * (v @ along) * v
    reflected = K - np.outer(v, along)
    reflected -= np.outer(along, v)
    s, inner = positive_eigenpairs(np.ascontiguousarray(reflected[1:, 1:]))
    return s, _reflected_back(inner, v, scale)


def _reflection(unit: Array) -> tuple[Array, float]:
    """Reflection I − c v vᵀ, by v and c, that takes a unit vector to the first axis, or its opposite."""
    v = unit.copy()
    v[0] += np.copysign(1.0, v[0])
    return v, 2.0 / float(v @ v)


def _reflected_back(inner: Array, v: Array, scale: float) -> Array:
    """Vectors without the first axis, (n − 1, r), in the coordinates from before: (n, r)."""
    Q = np.outer(-scale * v, v[1:] @ inner)
    Q[1:] += inner
    return Q


def graded_rows(Z: Array, null: Array | None) -> tuple[Array, Array, Array]:
    """Squares of singular values (r,), left (n, r) and right vectors (p, r), of Z (n, p) with p >= n.

    Of columns in very different units.  With Zᵀu = 0 for a unit vector, if one is given, as above.
    """
    if null is None:
        values, right, left = graded_singular_vectors(Z.T)
        return values, left, right
    v, scale = _reflection(null)
    values, right, inner = graded_singular_vectors((Z - np.outer(scale * v, v @ Z))[1:].T)
    return values, _reflected_back(inner, v, scale), right
