"""Losses whose kinks are rounded: Moreau envelopes of those of straight pieces."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from onefit._typing import Array, Mask
from onefit.losses.base import CoupledLoss
from onefit.losses.piecewise import OfMargin, QuadraticPieces
from onefit.pieces import Pieces
from onefit.validation import check_positive, check_strength

LEAST_WIDTH = 0.05  # of a kink that is rounded


class RoundedKinks(QuadraticPieces):
    """Straight pieces whose kinks are parabolas: the Moreau envelope of a piecewise linear loss.

    With the kinks c_k and the slopes s_0 … s_q of that loss, a row's derivative climbs from s_k to s_(k+1)
    between c_k + ``rounding`` s_k and c_k + ``rounding`` s_(k+1); pieces that reach to infinity are parabolas
    where their slope is infinite.  Slopes between two kinks are finite.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.losses import SmoothedHinge
    >>> loss, y = SmoothedHinge(0.5), np.array([1.0])
    >>> loss.kinks(y), loss.slopes(y), loss.breaks(y)
    (array([[1.]]), array([[-1.,  0.]]), array([[0.5, 1. ]]))
    """

    pieces = Pieces.JUMPING

    @property
    @abstractmethod
    def rounding(self) -> float:
        """Width of a parabola, in linear predictors, for each unit by which the slope changes."""

    def breaks(self, y: Array) -> Array:
        kinks, slopes = self.kinks(y), self.rounding * self.slopes(y)
        ends = np.sort(np.concatenate([kinks + slopes[..., :-1], kinks + slopes[..., 1:]], axis=-1), axis=-1)
        return ends[np.isfinite(ends)].reshape(*ends.shape[:-1], -1)

    def _climbs(self, y: Array, eta: Array) -> Iterator[tuple[Array, Array, Array, Array]]:
        """How far each row is past each kink, the derivative that it has from it, and its two limits."""
        kinks, slopes = self.kinks(y), self.slopes(y)
        for k in range(kinks.shape[-1]):
            past, low, high = eta - kinks[..., k], slopes[..., k], slopes[..., k + 1]
            yield past, np.minimum(np.maximum(past / self.rounding, low), high), low, high

    def value(self, y: Array, eta: Array) -> Array:
        climbs = list(self._climbs(y, eta))
        total = sum(climbed * (past - 0.5 * self.rounding * climbed) for past, climbed, _, _ in climbs)
        return total - sum(low for _, _, low, _ in climbs[1:]) * climbs[0][0]  # it counts with both kinks

    def gradient(self, y: Array, eta: Array) -> Array:
        climbs = list(self._climbs(y, eta))
        total = sum(climbed for _, climbed, _, _ in climbs)
        return np.asarray(total - sum(low for _, _, low, _ in climbs[1:]))

    def hessian(self, y: Array, eta: Array) -> Array:
        climbs = [(low < climbed) & (climbed < high) for _, climbed, low, high in self._climbs(y, eta)]
        return np.logical_or.reduce(climbs) / self.rounding

    def start(self, y: Array, weights: Array) -> Array:
        return np.asarray(np.average(y, weights=weights))


@dataclass(frozen=True)
class SquaredHinge(OfMargin, RoundedKinks):
    """max(0, 1 − s η)², with s = 2y − 1 for y in {0, 1}.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.losses import SquaredHinge
    >>> SquaredHinge().value(np.ones(3), np.array([2.0, 0.5, -1.0]))
    array([0.  , 0.25, 4.  ])
    """

    rounding = 0.5

    def slopes(self, y: Array) -> Array:
        first = y > 0
        return np.stack([np.where(first, -np.inf, 0.0), np.where(first, 0.0, np.inf)], axis=-1)


@dataclass(frozen=True)
class SmoothedHinge(OfMargin, RoundedKinks):
    """The hinge with its kink rounded: for m = 1 − s η it is 0, m²/(2 width) up to ``width``, m − width/2.

    It has the slopes of the hinge outside 0 < m < width.

    Parameters
    ----------
    width : float, default 0.5
        At least 0.05: Newton's method does not settle on sharper kinks.

    Examples
    --------
    >>> import numpy as np
    >>> SmoothedHinge(1.0).value(np.ones(3), np.array([2.0, 0.5, -1.0]))
    array([0.   , 0.125, 1.5  ])
    """

    width: float = 0.5

    def __post_init__(self) -> None:
        if not LEAST_WIDTH <= self.width < np.inf:
            raise ValueError(
                f"width must be a number from {LEAST_WIDTH:g} on, got {self.width!r}: for a sharper kink "
                "take Hinge(), which has a solver of its own"
            )

    @property
    def rounding(self) -> float:
        return self.width


@dataclass(frozen=True)
class SquaredEpsilonInsensitive(RoundedKinks):
    """max(0, |y − η| − epsilon)².

    Parameters
    ----------
    epsilon : float, default 0.1
        In units of y: what costs nothing.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.losses import SquaredEpsilonInsensitive
    >>> SquaredEpsilonInsensitive(0.5).value(np.array([0.2, -2.0]), np.zeros(2))
    array([0.  , 2.25])
    """

    epsilon: float = 0.1
    rounding = 0.5

    def __post_init__(self) -> None:
        check_strength("epsilon", self.epsilon)

    def kinks(self, y: Array) -> Array:
        return np.stack([y - self.epsilon, y + self.epsilon], axis=-1)

    def slopes(self, y: Array) -> Array:
        return np.broadcast_to([-np.inf, 0.0, np.inf], (*y.shape, 3))


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

    def __post_init__(self) -> None:
        check_positive("delta", self.delta)

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
    if_endless = (
        "the scale of the errors may have fallen to zero, as most rows are fitted without one; give it "
        "a stronger penalty or fewer columns, or fix the scale: "
        "GeneralizedLinear(loss=onefit.losses.Huber(delta))"
    )

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon)

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

    def rank(self, n_outputs: int) -> int:
        return 1  # along (1, z) alone

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
