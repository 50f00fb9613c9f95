"""The nuclear norm of coefficients that form a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from onefit._typing import Array, Index
from onefit.penalties._checks import check_matrix, check_matrix_size, check_strength
from onefit.penalties.base import ZERO, OfOneStrength
from onefit.penalties.cones import Conic, ConicForm, nuclear_norm
from onefit.pieces import Pieces, Subspace


@dataclass(frozen=True)
class NuclearNorm(OfOneStrength, Conic):
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

    shape: Any
    alpha: float = 1.0
    pieces = Pieces.TURNING

    def __post_init__(self) -> None:
        check_strength("alpha", self.alpha)
        check_matrix("shape", self.shape)

    def conic_form(self, p: int) -> ConicForm:
        rows, columns = self.shape
        return nuclear_norm(rows, columns, self.alpha)

    def third(self, coef: Array, owed: Array) -> Array:
        raise TypeError("the free directions of NuclearNorm turn with the coefficients")

    def _matrix(self, coef: Array) -> Array:
        return coef.reshape(*self.shape)

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

    def has_kinks(self, shape: tuple[int, ...]) -> bool:
        return self.alpha > 0

    def has_free_directions(self, shape: tuple[int, ...]) -> bool:
        return self.alpha == 0

    def check(self, shape: tuple[int, ...]) -> None:
        check_matrix_size(self, shape, self.shape)


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
