"""Huber's loss, with a given scale and with one that is estimated along."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onefit._typing import Array, Mask
from onefit.losses.base import CoupledLoss
from onefit.losses.piecewise import RoundedKinks
from onefit.pieces import Pieces


@dataclass(frozen=True)
class Huber(RoundedKinks):
    """½ r² for |r| ≤ delta, delta (|r| − ½ delta) beyond, with r = y − η.

    Parameters
    ----------
    delta : float, default 1.35
        In units of y: where the parabola becomes straight.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.losses import Huber
    >>> Huber(delta=1.0).value(np.array([0.5, 3.0]), np.zeros(2))
    array([0.125, 2.5  ])
    """

    delta: float = 1.35
    rounding = 1.0

    def kinks(self, y: Array) -> Array:
        return y[..., None]

    def slopes(self, y: Array) -> Array:
        return np.broadcast_to([-self.delta, self.delta], (*y.shape, 2))


@dataclass(frozen=True)
class ConcomitantHuber(CoupledLoss):
    """σ + σ H((y − μ)/σ), jointly in η = (μ, σ), with H(z) = z² or 2 epsilon |z| − epsilon².

    The scale is estimated with the coefficients (Owen 2007), so it is one more smooth coordinate
    and moves too when a row leaves.

    Parameters
    ----------
    epsilon : float, default 1.35
        In units of σ: where the parabola becomes straight.

    References
    ----------
    Owen (2007), A robust hybrid of lasso and ridge regression.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.losses import ConcomitantHuber
    >>> ConcomitantHuber().value(np.array([1.0]), np.array([[0.0, 1.0]]))  # a residual of one σ
    array([2.])
    """

    epsilon: float = 1.35
    pieces = Pieces.JUMPING

    def _inside(self, y: Array, eta: Array) -> Mask:
        return np.abs(y - eta[:, 0]) <= self.epsilon * eta[:, 1]

    def value(self, y: Array, eta: Array) -> Array:
        r, s, e = y - eta[:, 0], eta[:, 1], self.epsilon
        inner, outer = r**2 / s, 2 * e * np.abs(r) - e**2 * s
        return np.where(s > 0, s + np.where(self._inside(y, eta), inner, outer), np.inf)

    def gradient(self, y: Array, eta: Array) -> Array:
        r, s, e = y - eta[:, 0], eta[:, 1], self.epsilon
        inside = self._inside(y, eta)
        in_mean = np.where(inside, -2 * r / s, -2 * e * np.sign(r))
        in_scale = np.where(inside, 1 - (r / s) ** 2, 1 - e**2)
        return np.stack([in_mean, in_scale], axis=1)

    def hessian(self, y: Array, eta: Array) -> Array:
        r, s = y - eta[:, 0], eta[:, 1]
        z = r / s
        quadratic = np.stack([np.ones_like(z), z, z, z**2], axis=1).reshape(-1, 2, 2)
        return quadratic * (2 * self._inside(y, eta) / s)[:, None, None]

    def third(self, y: Array, eta: Array) -> Array:
        r, s = y - eta[:, 0], eta[:, 1]
        scale = -2 * self._inside(y, eta) / s**2
        n_sigma = np.indices((2, 2, 2)).sum(axis=0)  # how often σ is differentiated
        factor = np.array([0.0, 1.0, 2.0, 3.0])[n_sigma]
        z = (r / s)[:, None, None, None]
        power = np.where(n_sigma > 0, z ** np.maximum(n_sigma - 1, 0), 0.0)
        return scale[:, None, None, None] * factor * power

    def start(self, y: Array, weights: Array) -> Array:
        mean = np.average(y, weights=weights)
        return np.array([mean, np.sqrt(np.average((y - mean) ** 2, weights=weights)) + 1e-12])

    def self_concordance(self) -> None:
        return None
