"""Functions of the singular values of coefficients that form a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from onefit._typing import Array, Index
from onefit.penalties.base import ROUNDING, ZERO, OfOneStrength
from onefit.penalties.programs import Cone, Conic, ConicForm
from onefit.pieces import Pieces, Subspace, third_by_differences
from onefit.validation import check_positive

MOST_STEPS = 100  # of Newton's method in the proximal operator, which rises to the solution


@dataclass(frozen=True)
class OfMatrix(OfOneStrength):
    """A penalty on coefficients that are the entries of a matrix, in C order."""

    shape: Any
    alpha: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes = np.asarray(self.shape)
        if sizes.shape != (2,) or sizes.dtype.kind not in "iu" or np.any(sizes < 1):
            raise ValueError(f"shape must be two positive whole numbers, got {self.shape!r}")

    def _matrix(self, coef: Array) -> Array:
        return coef.reshape(*self.shape)

    def has_free_directions(self, shape: tuple[int, ...]) -> bool:
        return self.alpha == 0

    def check(self, shape: tuple[int, ...]) -> None:
        super().check(shape)
        rows, columns = self.shape
        if shape[0] != rows * columns:
            raise ValueError(
                f"shape {(rows, columns)} has {rows * columns} entries, got {shape[0]} coefficients"
            )


@dataclass(frozen=True)
class NuclearNorm(OfMatrix, Conic):
    """alpha ‖W‖_*, the sum of the singular values of the coefficients as a matrix: few of them stay.

    Parameters
    ----------
    shape : pair of int
        Rows p₁ and columns p₂ of W, which is the coefficients in C order; p = p₁ p₂.
    alpha : float, default 1.0
        Strength.

    References
    ----------
    Wang, Zhou, Lu, Maleki and Mirrokni (2018), Approximate leave-one-out for fast parameter tuning in
    high dimensions, section on the nuclear norm.

    Examples
    --------
    >>> import numpy as np
    >>> NuclearNorm((2, 2)).value(np.array([3.0, 0.0, 0.0, -4.0]))
    7.0
    """

    pieces = Pieces.TURNING

    def conic_form(self, p: int) -> ConicForm:
        """Half of tr U + tr V, least with [[U, W], [Wᵀ, V]] positive semidefinite."""
        rows, columns = self.shape
        column, row = np.tril_indices(rows + columns)  # the upper triangle by columns
        scale = np.where(row == column, 1.0, np.sqrt(2.0))
        in_W = (row < rows) & (column >= rows)
        place, own = np.flatnonzero(in_W), np.flatnonzero(~in_W)
        number = row[in_W] * columns + column[in_W] - rows
        A = sp.csr_array((scale[in_W], (place, number)), shape=(len(row), rows * columns))
        E = sp.csr_array((scale[own], (own, np.arange(len(own)))), shape=(len(row), len(own)))
        cost = np.where(row == column, 0.5 * self.alpha, 0.0)[own]
        return ConicForm(A, E, cost, [(Cone.SEMIDEFINITE, rows + columns)])

    def third(self, coef: Array, owed: Array) -> Array:
        raise TypeError("the free directions of NuclearNorm turn with the coefficients")

    def value(self, coef: Array) -> float:
        return float(self.alpha * np.linalg.svd(self._matrix(coef), compute_uv=False).sum())

    def prox(self, coef: Array, step: float) -> Array:
        """Shrink the singular values."""
        U, sizes, Vt = np.linalg.svd(self._matrix(coef), full_matrices=False)
        return ((U * np.maximum(sizes - step * self.alpha, 0.0)) @ Vt).ravel()

    def tangent(self, coef: Array, loss_gradient: Array | None = None) -> Subspace:
        """Matrices u_k v_lᵀ with k ≤ r or l ≤ r, at W = U Σ Vᵀ of rank r.

        The second derivative of ‖W‖_* along them, with c = 1/(σ_k + σ_l) and s_k = 1/σ_k:

        * k < l ≤ r: [[c, −c], [−c, c]] in the coordinates (k, l), (l, k);
        * k ≤ r < l, and l ≤ r < k: s_k and s_l;
        * (a, k) with (k, b), a and b > r: −M_ab s_k, where M = Uᵀ S V and S is the subgradient, which
          is −∇loss / alpha at a solution.  It is how the rotation of the r directions is held back.
        """
        U, sizes, Vt = np.linalg.svd(self._matrix(coef), full_matrices=True)
        r = int(np.count_nonzero(sizes > ZERO * sizes.max()))
        r = r if self.alpha > 0 else min(self.shape)
        k, l = _directions(r, *self.shape)  # noqa: E741
        basis = (U[:, None, k] * Vt.T[None, :, l]).reshape(len(coef), len(k))
        gradient = self.alpha * (U[:, :r] @ Vt[:r]).ravel()
        M = np.zeros(self.shape)
        if loss_gradient is not None and self.alpha > 0:
            M = -U.T @ self._matrix(loss_gradient) @ Vt.T / self.alpha
        return Subspace.along(
            basis, gradient, self.alpha * _curvature(sizes[:r], M) if self.alpha > 0 else None
        )


def _directions(r: int, rows: int, columns: int) -> tuple[Index, Index]:
    """Pairs (k, l) with k < r or l < r, in the order of _curvature."""
    k, l = np.nonzero((np.arange(rows)[:, None] < r) | (np.arange(columns) < r))  # noqa: E741
    return k, l


def _curvature(sizes: Array, M: Array) -> Array:
    """Second derivative of the sum of singular values, in the coordinates of _directions."""
    r = len(sizes)
    k, l = _directions(r, *M.shape)  # noqa: E741
    number = np.full(M.shape, -1)
    number[k, l] = np.arange(len(k))
    C = np.zeros((len(k), len(k)))
    first, second = np.triu_indices(r, 1)
    one, other, c = number[first, second], number[second, first], 1.0 / (sizes[first] + sizes[second])
    C[one, one] = C[other, other] = c
    C[one, other] = C[other, one] = -c
    below, right = number[r:, :r], number[:r, r:]  # (a, k) and (k, b)
    C[below, below] = 1.0 / sizes
    C[right, right] = (1.0 / sizes)[:, None]
    for j, size in enumerate(sizes):
        C[np.ix_(below[:, j], right[j])] = -M[r:, r:] / size
        C[np.ix_(right[j], below[:, j])] = -M[r:, r:].T / size
    return C


@dataclass(frozen=True)
class SmoothNuclearNorm(OfMatrix):
    """alpha Σ_k (√(σ_k² + ε²) − ε), the nuclear norm with a round tip: σ_k are shrunk, and none is zero.

    It is ridge of strength alpha / ε where the singular values are far below ε, and the nuclear norm where
    they are far above.

    Parameters
    ----------
    shape : pair of int
        Rows p₁ and columns p₂ of W, which is the coefficients in C order; p = p₁ p₂.
    alpha : float, default 1.0
        Strength.
    smoothing : float, default 0.1
        ε, in the units of the singular values.

    Raises
    ------
    ValueError
        If alpha is negative, smoothing is not positive, or the shape is not two whole numbers.

    References
    ----------
    Wang, Zhou, Lu, Maleki and Mirrokni (2018), Approximate leave-one-out for fast parameter tuning in
    high dimensions, appendix E.2: smooth unitarily invariant penalties.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.penalties import NuclearNorm, SmoothNuclearNorm
    >>> coef = np.array([3.0, 0.0, 0.0, -4.0])
    >>> sharp, round_ = NuclearNorm((2, 2)), SmoothNuclearNorm((2, 2), smoothing=1e-6)
    >>> bool(abs(sharp.value(coef) - round_.value(coef)) < 1e-5)
    True
    """

    smoothing: float = 0.1
    pieces = Pieces.SMOOTH

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("smoothing", self.smoothing)

    def value(self, coef: Array) -> float:
        sizes = np.linalg.svd(self._matrix(coef), compute_uv=False)
        return float(self.alpha * np.sum(sizes**2 / (np.hypot(sizes, self.smoothing) + self.smoothing)))

    def prox(self, coef: Array, step: float) -> Array:
        """Shrink the singular values: z + step · alpha z / √(z² + ε²) = σ.

        The left side rises and is concave for z > 0: Newton's method rises to the solution from below.
        """
        U, sizes, Vt = np.linalg.svd(self._matrix(coef), full_matrices=False)
        a = step * self.alpha
        z = np.maximum(sizes - a, 0.0)
        for _ in range(MOST_STEPS):
            r = np.hypot(z, self.smoothing)
            move = (sizes - z - a * z / r) / (1.0 + a * (self.smoothing / r) ** 2 / r)
            z = z + move
            if np.all(np.abs(move) <= ROUNDING * sizes):
                break
        return ((U * z) @ Vt).ravel()

    def tangent(self, coef: Array, loss_gradient: Array | None = None) -> Subspace:
        """All directions are free.

        At W = U Σ Vᵀ and with r = √(σ² + ε²) the gradient is U (σ / r) Vᵀ.  The second derivative along
        u_k v_lᵀ and u_l v_kᵀ is ½ [[a + b, a − b], [a − b, a + b]] with the divided differences
        a = (σ_k / r_k − σ_l / r_l) / (σ_k − σ_l) and b = (σ_k / r_k + σ_l / r_l) / (σ_k + σ_l), and 1 / r_k
        along u_k v_lᵀ where there is no σ_l (Lewis and Sendov 2001).
        """
        W = self._matrix(coef)
        U, sizes, Vt = np.linalg.svd(W, full_matrices=True)
        r = np.hypot(sizes, self.smoothing)
        q = len(sizes)
        gradient = self.alpha * ((U[:, :q] * (sizes / r)) @ Vt[:q]).ravel()
        a, b = _differences(sizes, r, self.smoothing)
        same, across = np.zeros(W.shape), np.zeros(W.shape)
        same[:q, :q], across[:q, :q] = (a + b) / 2.0, (a - b) / 2.0
        same[q:, :q], same[:q, q:] = 1.0 / r, (1.0 / r)[:, None]
        # row (k, l) of this is the direction u_k v_lᵀ; with k and l exchanged it is that of (l, k)
        basis = np.einsum("ik,lj->klij", U, Vt)
        turned = np.zeros_like(basis)
        turned[:q, :q] = basis[:q, :q].swapaxes(0, 1)
        flat, other = basis.reshape(-1, len(coef)), turned.reshape(-1, len(coef))
        C = flat.T @ (same.ravel()[:, None] * flat + across.ravel()[:, None] * other)
        return Subspace.along(np.eye(len(coef)), gradient, self.alpha * C)

    def third(self, coef: Array, owed: Array) -> Array:
        return third_by_differences(self.tangent, coef, owed)

    def has_kinks(self, shape: tuple[int, ...]) -> bool:
        return False


def _differences(sizes: Array, r: Array, smoothing: float) -> tuple[Array, Array]:
    """Divided differences a and b of ``tangent``, without their cancellation: (q, q) each.

    With m = (σ_k + σ_l) / (σ_k r_l + σ_l r_k), which is 1 / ε where both are zero, b = 1 / (m r_k r_l) and
    a = ε² m / (r_k r_l).
    """
    weighted = np.multiply.outer(sizes, r)
    below = weighted + weighted.T
    tiny = np.finfo(float).tiny
    m = np.where(below > tiny, np.add.outer(sizes, sizes) / np.maximum(below, tiny), 1.0 / smoothing)
    product = np.multiply.outer(r, r)
    return smoothing**2 * m / product, 1.0 / (m * product)
