"""The ℓ∞ norm, the largest coefficient."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onefit._typing import Array, Mask
from onefit.penalties._checks import check_one_output, check_strength
from onefit.penalties.base import OfOneStrength
from onefit.penalties.polyhedral import PiecewiseRows, Polyhedral
from onefit.penalties.slope import Slope
from onefit.pieces import Subspace


@dataclass(frozen=True, eq=False)
class LInfinity(OfOneStrength, Polyhedral):
    """alpha max_j |β_j|, the ℓ∞ norm: the largest coefficients are equal but for their sign.

    It is the sorted ℓ1 norm with the weights 1, 0, …, 0, and shares the pattern of ``Slope``.

    Parameters
    ----------
    alpha : float, default 1.0
        Strength.

    References
    ----------
    Wang, Zhou, Lu, Maleki and Mirrokni (2018), section 6 and appendix A.

    Examples
    --------
    >>> import numpy as np
    >>> LInfinity(2.0).value(np.array([1.0, -5.0, 0.0]))
    10.0
    >>> LInfinity(2.0).prox(np.array([1.0, -5.0, 4.0]), 1.0)
    array([ 1. , -3.5,  3.5])
    """

    alpha: float = 1.0

    def __post_init__(self) -> None:
        check_strength("alpha", self.alpha)

    def _sorted(self, p: int) -> Slope:
        return Slope(np.eye(1, p).ravel(), self.alpha)

    def rows(self, p: int) -> PiecewiseRows:
        """With a threshold t: alpha · t + alpha Σ_j max(0, |β_j| − t), least where t = max |β_j|."""
        return self._sorted(p).rows(p)

    def thresholds(self, coef: Array) -> Array:
        return self._sorted(len(coef)).thresholds(coef)

    def value(self, coef: Array) -> float:
        return float(self.alpha * np.abs(coef).max(initial=0.0))

    def prox(self, coef: Array, step: float) -> Array:
        """What the projection on the ℓ1 ball of radius step · alpha leaves (Moreau)."""
        return coef - onto_ball(coef, step * self.alpha)

    def tangent(self, coef: Array, loss_gradient: Array | None = None) -> Subspace:
        """One direction for the largest coefficients together, and one for each of the others."""
        return self._sorted(len(coef)).tangent(coef, loss_gradient)

    def has_kinks(self, shape: tuple[int, ...]) -> bool:
        return bool(self.alpha > 0)

    def has_free_directions(self, shape: tuple[int, ...]) -> bool:
        return not self.has_kinks(shape)

    def check(self, shape: tuple[int, ...]) -> None:
        check_one_output(self, shape)

    def is_stationary(
        self, coef: Array, loss_gradient: Array, rtol: float = 1e-7, size: Array | None = None
    ) -> Mask:
        return self._sorted(len(coef)).is_stationary(coef, loss_gradient, rtol, size)


def onto_ball(point: Array, radius: float) -> Array:
    """Nearest point of Σ |x_j| ≤ radius: sizes less one threshold (Held, Wolfe and Crowder 1974)."""
    sizes = np.abs(point)
    if sizes.sum() <= radius:
        return point.copy()
    descending = np.sort(sizes)[::-1]
    thresholds = (np.cumsum(descending) - radius) / np.arange(1, len(point) + 1)
    last = np.flatnonzero(descending > thresholds)
    threshold = thresholds[last[-1]] if last.size else descending[0]  # the radius is 0
    return np.sign(point) * np.maximum(sizes - threshold, 0.0)
