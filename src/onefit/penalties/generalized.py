"""Penalties α‖Dβ‖₁ on linear functions of the coefficients: fused lasso, trend filtering, graphs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.optimize import linprog, lsq_linear
from scipy.sparse.csgraph import connected_components

from onefit import _linalg
from onefit._typing import Array, Mask
from onefit.penalties.base import ZERO, OfOneStrength, largest_gradient
from onefit.penalties.programs import PiecewiseRows, Polyhedral, absolute
from onefit.penalties.separable import L1
from onefit.pieces import Subspace

DEPENDENT = 1e-10  # diagonal of a triangular factor, relative to its largest, that is zero
ROUNDING = 1e-12  # of a row of Dβ, relative to the largest that it could be
T = TypeVar("T")


class AnalysisPenalty(OfOneStrength, Polyhedral):
    """alpha ‖Dβ‖₁ for some matrix D (m, p).

    With independent rows, D has a right inverse, and the penalty is a lasso in other coordinates
    (Tibshirani and Taylor 2011, section 3): see ``lasso_coordinates``.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.penalties import FusedLasso
    >>> FusedLasso(alpha=2.0).value(np.array([1.0, 1.0, 4.0]))  # D takes differences of neighbours
    6.0
    """

    def matrix(self, p: int) -> sp.csr_array:
        """Return D for p features: (m, p)."""
        return self._once(f"D {p}", lambda: self._matrix(p))

    def rows(self, p: int) -> PiecewiseRows:
        D = self.matrix(p)
        return absolute(D, np.full(D.shape[0], self.alpha))

    def lasso_coordinates(self, p: int) -> Array | None:
        """Return T (p, p) with D T = [I, 0], or None if D has dependent rows.

        With β = T θ the penalty is alpha Σ_{j<m} |θ_j|; the other θ are free, and their columns of T are
        an orthonormal basis of the null space of D.  The first m columns are orthogonal to it.
        """
        return self._once(f"T {p}", lambda: self._coordinates(p))

    @abstractmethod
    def _matrix(self, p: int) -> sp.csr_array:
        """D for p features."""

    def _coordinates(self, p: int) -> Array | None:
        """T = [D⁺, null(D)] through Dᵀ = Q R: D⁺ = Q₁ R⁻ᵀ."""
        D = self.matrix(p).toarray()
        if len(D) > p:
            return None
        Q, R, pivots = scipy.linalg.qr(D.T, pivoting=True)
        if _rank(R) < len(D):
            return None
        m = len(D)
        inverse = np.empty((p, m))
        inverse[:, pivots] = scipy.linalg.solve_triangular(R[:m], Q[:, :m].T).T
        return np.hstack([inverse, Q[:, m:]])

    def _null_space(self, p: int, active: Mask) -> Any:
        """Orthonormal basis of the null space of the inactive rows of D."""
        T = self.lasso_coordinates(p)
        if T is not None:
            held = np.append(active, np.ones(p - len(active), dtype=bool))
            return scipy.linalg.qr(T[:, held], mode="economic")[0]
        Q, R, _ = scipy.linalg.qr(self.matrix(p)[~active].toarray().T, pivoting=True)
        return Q[:, _rank(R) :]

    @cached_property
    def _known(self) -> dict[str, Any]:
        """What follows from D alone; strengths share it."""
        return {}

    def _once(self, name: str, compute: Callable[[], T]) -> T:
        if name not in self._known:
            self._known[name] = compute()
        return self._known[name]

    def scaled(self, factor: float) -> Self:
        stronger = super().scaled(factor)
        stronger.__dict__["_known"] = self._known
        return stronger

    def value(self, coef: Array) -> float:
        return float(self.alpha * np.abs(self.matrix(len(coef)) @ coef).sum())

    def signs(self, coef: Array) -> Array:
        """Return the signs of Dβ, 0 where it is zero but for rounding: (m,), or (m, r) for (p, r)."""
        D = self.matrix(len(coef))
        rows = D @ coef
        extent = np.broadcast_to(np.abs(coef).max(axis=0, initial=0.0), coef.shape)
        noise = np.maximum(ZERO * np.abs(rows).max(axis=0, initial=0.0), ROUNDING * (abs(D) @ extent))
        return np.where(np.abs(rows) > noise, np.sign(rows), 0.0)

    def tangent(self, coef: Array, loss_gradient: Array | None = None) -> Subspace:
        return self.piece(coef, self.signs(coef))

    def piece(self, coef: Array, signs: Array) -> Subspace:
        """Smooth piece through ``coef`` on which the rows of Dβ keep the signs, and stay zero where 0."""
        p = len(coef)
        gradient = self.alpha * (self.matrix(p).T @ signs)
        active = (signs != 0) if self.alpha > 0 else np.ones(len(signs), dtype=bool)
        return Subspace.along(self._null_space(p, active), gradient)

    def prox(self, coef: Array, step: float) -> Array:
        """Solve the dual, min over −1 ≤ u ≤ 1 of ½‖coef − step·alpha·Dᵀu‖², by active sets: for small p."""
        if step * self.alpha == 0:
            return coef.copy()
        A = step * self.alpha * self.matrix(len(coef)).toarray().T
        u = lsq_linear(A, coef, bounds=(-1, 1), method="bvls", tol=1e-14).x
        at_bound = np.abs(u) > 1.0 - ZERO
        basis = self._null_space(len(coef), at_bound)  # all other rows of Dβ are zero, to the last digit
        return basis @ (basis.T @ (coef - A @ np.where(at_bound, np.sign(u), 0.0)))

    def has_free_directions(self, shape: tuple[int, ...]) -> bool:
        if self.alpha == 0:
            return True
        D, T = self.matrix(shape[0]), self.lasso_coordinates(shape[0])
        if T is not None:
            return D.shape[0] < shape[0]
        return self._once(f"free {shape[0]}", lambda: bool(np.linalg.matrix_rank(D.toarray()) < shape[0]))

    def check(self, shape: tuple[int, ...]) -> None:
        super().check(shape)
        self.matrix(shape[0])

    def is_stationary(
        self, coef: Array, loss_gradient: Array, rtol: float = 1e-7, size: Array | None = None
    ) -> Mask:
        T, signs = self.lasso_coordinates(len(coef)), self.signs(coef)
        if T is not None:  # the lasso with coefficients Dβ
            strengths = np.where(np.arange(len(coef)) < len(signs), self.alpha, 0.0)
            theta = np.vstack([signs, np.zeros((len(coef) - len(signs), coef.shape[1]))])
            return L1(strengths).is_stationary(theta, _linalg.product(T.T, loss_gradient), rtol, size)
        found = np.zeros(coef.shape[1], dtype=bool)
        allowed = rtol * largest_gradient(loss_gradient, size)
        patterns, which = np.unique(signs, axis=1, return_inverse=True)
        for j, pattern in enumerate(patterns.T):
            own = np.ravel(which) == j
            found[own] = self._balances(pattern, loss_gradient[:, own], allowed[own])
        return found

    def _balances(self, signs: Array, loss_gradient: Array, allowed: Array) -> Mask:
        """Whether −∇loss = alpha Dᵀu for some u in [−1, 1] that keeps the signs: (r,).

        The least-norm u is tried first; where it leaves the box, a linear program tells whether another
        one, which differs by a null vector of the inactive rows of Dᵀ, does not.
        """
        D = self.matrix(len(loss_gradient))
        rest = -loss_gradient - self.alpha * (D.T @ signs)[:, None]
        inactive = D[signs == 0]
        if not inactive.shape[0]:
            return np.all(np.abs(rest) <= allowed, axis=0)
        U, sizes, Vt = np.linalg.svd(inactive.toarray().T, full_matrices=False)
        rank = int(np.count_nonzero(sizes > DEPENDENT * sizes.max(initial=0.0)))
        along = U[:, :rank].T @ rest
        holds = np.all(np.abs(rest - U[:, :rank] @ along) <= allowed, axis=0)
        least = np.abs(Vt[:rank].T @ (along / sizes[:rank, None])).max(axis=0)
        inside = least <= self.alpha + allowed
        for j in np.flatnonzero(holds & ~inside) if rank < inactive.shape[0] else ():
            inside[j] = _has_dual(inactive, rest[:, j], self.alpha + allowed[j])
        return holds & inside


@dataclass(frozen=True, eq=False)
class GeneralizedLasso(AnalysisPenalty):
    """alpha ‖Dβ‖₁: generalised lasso.

    Parameters
    ----------
    D : (m, p) array, sparse matrix or sparse array
        Any rows but zero ones; they may be dependent.
    alpha : float, default 1.0
        Strength.

    References
    ----------
    Tibshirani and Taylor (2011), The solution path of the generalized lasso.

    Examples
    --------
    >>> import numpy as np
    >>> GeneralizedLasso([[1.0, -1.0, 0.0], [0.0, 0.0, 2.0]]).value(np.array([3.0, 1.0, 1.0]))
    4.0
    """

    D: Any
    alpha: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        D = self._rows
        if not np.all(np.isfinite(D.data)):
            raise ValueError("D has NaN or infinite entries")
        zero = np.flatnonzero(np.asarray(abs(D).sum(axis=1)).ravel() == 0)
        if zero.size:
            raise ValueError(f"row {zero[0]} of D is zero and penalises nothing: leave it out")

    @cached_property
    def _rows(self) -> sp.csr_array:
        given = self.D if sp.issparse(self.D) else np.asarray(self.D)
        if given.ndim != 2 or given.dtype.kind not in "fiu" or 0 in given.shape:
            raise ValueError(f"D must be a matrix of numbers (m, p), got {self.D!r}")
        return sp.csr_array(given, dtype=np.float64)

    def _matrix(self, p: int) -> sp.csr_array:
        if self._rows.shape[1] != p:
            raise ValueError(f"D has {self._rows.shape[1]} columns, but the coefficients are {p}")
        return self._rows


@dataclass(frozen=True, eq=False)
class FusedLasso(AnalysisPenalty):
    """alpha Σ |β_i − β_j| over neighbours i, j: fused lasso, on a chain or on a graph.

    Parameters
    ----------
    alpha : float, default 1.0
        Strength.
    edges : (m, 2) int array, optional
        Pairs of neighbouring columns, each pair once; by default every column and the next.

    References
    ----------
    Tibshirani, Saunders, Rosset, Zhu and Knight (2005), Sparsity and smoothness via the fused lasso.

    Examples
    --------
    >>> import numpy as np
    >>> FusedLasso(2.0).value(np.array([1.0, 1.0, 4.0]))
    6.0
    >>> FusedLasso(2.0, edges=[(0, 2)]).tangent(np.array([1.0, 5.0, 1.0])).size
    2
    """

    alpha: float = 1.0
    edges: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.edges is not None:
            _check_edges(self.edges)

    def _matrix(self, p: int) -> sp.csr_array:
        if self.edges is None:
            return differences(1, p)
        edges = np.asarray(self.edges)
        if edges.max() >= p:
            raise ValueError(f"edges name column {edges.max()}, but the coefficients are {p}, from 0")
        rows = np.arange(len(edges)).repeat(2)
        entries = np.tile([-1.0, 1.0], len(edges))
        return sp.csr_array((entries, (rows, edges.ravel())), shape=(len(edges), p))

    def _coordinates(self, p: int) -> Array | None:
        if self.edges is None:
            return _cumulative(1, p)
        D = self.matrix(p)
        pieces = connected_components(abs(D).T @ abs(D), directed=False)[0]
        return super()._coordinates(p) if D.shape[0] + pieces == p else None  # a forest

    def _null_space(self, p: int, active: Mask) -> sp.csc_array:
        """Constants on what the inactive edges connect."""
        joined = abs(self.matrix(p)[~active])
        count, label = connected_components(joined.T @ joined, directed=False)
        entries = 1.0 / np.sqrt(np.bincount(label))[label]
        return sp.csc_array((entries, (np.arange(p), label)), shape=(p, count))

    def has_free_directions(self, shape: tuple[int, ...]) -> bool:
        return True  # constants


@dataclass(frozen=True)
class TrendFilter(AnalysisPenalty):
    """alpha Σ |differences of order + 1| along the columns: trend filtering.

    Order 0 fits piecewise constants (the fused lasso on a chain), 1 piecewise lines, 2 piecewise
    parabolas.

    Parameters
    ----------
    order : int
        Degree of the pieces, at least 0; it takes more than order + 1 columns.
    alpha : float, default 1.0
        Strength.

    References
    ----------
    Kim, Koh, Boyd and Gorinevsky (2009), ℓ1 trend filtering; Tibshirani (2014), Adaptive piecewise
    polynomial estimation via trend filtering.

    Examples
    --------
    >>> import numpy as np
    >>> TrendFilter(1).value(np.array([0.0, 1.0, 2.0, 0.0]))
    3.0
    """

    order: int
    alpha: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if np.asarray(self.order).dtype.kind not in "iu" or np.ndim(self.order) or self.order < 0:
            raise ValueError(f"order must be a whole number that is at least 0, got {self.order!r}")

    def _matrix(self, p: int) -> sp.csr_array:
        return differences(self.order + 1, p)

    def _coordinates(self, p: int) -> Array:
        return _cumulative(self.order + 1, p)


def differences(times: int, p: int) -> sp.csr_array:
    """Matrix of ``times``-fold differences of p neighbouring coefficients: (p − times, p)."""
    if p <= times:
        raise ValueError(f"differences of {times + 1} neighbours need more than {times} features, got {p}")
    D = sp.csr_array(sp.eye_array(p))
    for _ in range(times):
        D = sp.csr_array(D[1:] - D[:-1])
    return D


def _cumulative(times: int, p: int) -> Array:
    """Lasso coordinates of differences: their right inverse is as many cumulative sums.

    Its columns are made orthogonal to the polynomials, which are the null space.
    """
    inverse = np.eye(p - times)
    for _ in range(times):
        inverse = np.cumsum(np.vstack([np.zeros((1, p - times)), inverse]), axis=0)
    powers = np.polynomial.legendre.legvander(np.linspace(-1.0, 1.0, p), times - 1)
    null = scipy.linalg.qr(powers, mode="economic")[0]
    inverse -= null @ (null.T @ inverse)
    return np.hstack([inverse, null])


def _rank(R: Array) -> int:
    sizes = np.abs(np.diag(R))
    return int(np.count_nonzero(sizes > DEPENDENT * sizes.max(initial=0.0)))


def _has_dual(D: sp.csr_array, rest: Array, bound: float) -> bool:
    """Whether Dᵀ u = rest for some u between −bound and bound."""
    if bound == 0:
        return not np.any(rest)
    found = linprog(np.zeros(D.shape[0]), A_eq=sp.csc_array(D.T), b_eq=rest / bound, bounds=(-1, 1))
    return bool(found.success)


def _check_edges(given: Any) -> None:
    edges = np.asarray(given)
    if edges.ndim != 2 or edges.shape[1] != 2 or len(edges) == 0 or edges.dtype.kind not in "iu":
        raise ValueError(f"edges must be pairs of column numbers, (m, 2), got {given!r}")
    if np.any(edges < 0):
        raise ValueError(f"edges[{np.argwhere(edges < 0)[0][0]}] names a negative column: they count from 0")
    loops = np.flatnonzero(edges[:, 0] == edges[:, 1])
    if loops.size:
        raise ValueError(f"edges[{loops[0]}] joins column {edges[loops[0], 0]} to itself")
    first = np.unique(np.sort(edges, axis=1), axis=0, return_index=True)[1]
    if len(first) < len(edges):
        again = np.setdiff1d(np.arange(len(edges)), first)[0]
        raise ValueError(f"edges[{again}] = {edges[again].tolist()} is given twice")
