"""Smooth functions of the singular values of coefficients that form a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from onefit._typing import Array
from onefit.penalties._checks import check_matrix, check_matrix_size, check_positive, check_strength
from onefit.penalties.base import ROUNDING, OfOneStrength
from onefit.pieces import Pieces, Subspace, third_by_differences

MOST_STEPS = 100  # of Newton's method in the proximal operator, which rises to the solution


@dataclass(frozen=True)
class SmoothNuclearNorm(OfOneStrength):
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

    shape: Any
    alpha: float = 1.0
    smoothing: float = 0.1
    pieces = Pieces.SMOOTH

    def __post_init__(self) -> None:
        check_strength("alpha", self.alpha)
        check_positive("smoothing", self.smoothing)
        check_matrix("shape", self.shape)

    def value(self, coef: Array) -> float:
        sizes = np.linalg.svd(coef.reshape(*self.shape), compute_uv=False)
        return float(self.alpha * np.sum(sizes**2 / (np.hypot(sizes, self.smoothing) + self.smoothing)))

    def prox(self, coef: Array, step: float) -> Array:
        """Shrink the singular values: z + step · alpha z / √(z² + ε²) = σ.

        The left side rises and is concave for z > 0: Newton's method rises to the solution from below.
        """
        U, sizes, Vt = np.linalg.svd(coef.reshape(*self.shape), full_matrices=False)
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
        W = coef.reshape(*self.shape)
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

    def has_free_directions(self, shape: tuple[int, ...]) -> bool:
        return self.alpha == 0

    def check(self, shape: tuple[int, ...]) -> None:
        check_matrix_size(self, shape, self.shape)


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
