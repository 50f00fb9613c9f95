"""Losses of straight pieces."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from onefit._typing import Array, Index
from onefit.losses.base import PiecewiseLoss
from onefit.pieces import Pieces
from onefit.validation import check_inside, check_strength


class QuadraticPieces(PiecewiseLoss):
    """A loss whose pieces are lines, which meet in kinks, and parabolas in the place of kinks.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.losses import Huber
    >>> Huber(delta=1.0).third(np.zeros(2), np.array([0.5, 2.0]))
    array([0., 0.])
    """

    @abstractmethod
    def kinks(self, y: Array) -> Array:
        """Linear predictors of the kinks, ascending: (n, q)."""

    @abstractmethod
    def slopes(self, y: Array) -> Array:
        """Derivatives of the lines, ascending: (n, q + 1); infinite where a parabola has no end."""

    def third(self, y: Array, eta: Array) -> Array:
        return np.zeros_like(eta)

    def self_concordance(self) -> float:
        return 0.0


class PiecewiseLinear(QuadraticPieces):
    """Straight pieces that meet in kinks, where the derivative jumps: a row may sit on one.

    At the first kink the value is zero.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.losses import EpsilonInsensitive
    >>> loss = EpsilonInsensitive(epsilon=0.5)
    >>> loss.kinks(np.array([1.0]))
    array([[0.5, 1.5]])
    >>> loss.slopes(np.array([1.0]))
    array([[-1.,  0.,  1.]])
    """

    pieces = Pieces.STRAIGHT

    def breaks(self, y: Array) -> Array:
        return self.kinks(y)

    def piece(self, y: Array, eta: Array) -> Index:
        """Number of the piece that each row is on, 0 … q; the one before where it sits on a kink."""
        return np.asarray((eta[:, None] > self.kinks(y)).sum(axis=1))

    def value(self, y: Array, eta: Array) -> Array:
        kinks, slopes = self.kinks(y), self.slopes(y)
        beyond = np.maximum(eta[:, None] - kinks, 0.0)
        return slopes[:, 0] * (eta - kinks[:, 0]) + np.sum(np.diff(slopes, axis=1) * beyond, axis=1)

    def gradient(self, y: Array, eta: Array) -> Array:
        """Derivative on the piece; on a kink that of the piece before it."""
        return np.take_along_axis(self.slopes(y), self.piece(y, eta)[:, None], axis=1)[:, 0]

    def hessian(self, y: Array, eta: Array) -> Array:
        return np.zeros_like(eta)


class OfMargin(QuadraticPieces):
    """The hinge and its kin, losses of s η with s = 2y − 1 for y in {0, 1}, whose kink is at s η = 1."""

    of_two_classes = True

    def kinks(self, y: Array) -> Array:
        return (2.0 * y - 1.0)[..., None]

    def slopes(self, y: Array) -> Array:
        return np.stack([-y, 1.0 - y], axis=-1)

    def start(self, y: Array, weights: Array) -> Array:
        return np.asarray(2.0 * np.average(y, axis=0, weights=weights) - 1.0)


@dataclass(frozen=True)
class Hinge(OfMargin, PiecewiseLinear):
    """max(0, 1 − s η), with s = 2y − 1 for y in {0, 1}: the support vector machine.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.losses import Hinge
    >>> Hinge().value(np.ones(3), np.array([2.0, 0.5, -1.0]))
    array([0. , 0.5, 2. ])
    """

    def start(self, y: Array, weights: Array) -> Array:
        return np.sign(super().start(y, weights))


@dataclass(frozen=True)
class Quantile(PiecewiseLinear):
    """Pinball loss: level · (y − η) below the response, (1 − level) · (η − y) above it.

    Parameters
    ----------
    level : float, default 0.5
        Between 0 and 1; the median at 0.5.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.losses import Quantile
    >>> Quantile(0.9).value(np.array([1.0, -1.0]), np.zeros(2))
    array([0.9, 0.1])
    """

    level: float = 0.5

    def __post_init__(self) -> None:
        check_inside("level", self.level)

    def kinks(self, y: Array) -> Array:
        return y[:, None]

    def slopes(self, y: Array) -> Array:
        return np.tile(np.array([-self.level, 1.0 - self.level]), (len(y), 1))

    def start(self, y: Array, weights: Array) -> Array:
        order = np.argsort(y)
        below = np.cumsum(weights[order]) < self.level * weights.sum()
        return np.asarray(y[order][min(int(below.sum()), len(y) - 1)])


@dataclass(frozen=True)
class EpsilonInsensitive(PiecewiseLinear):
    """max(0, |y − η| − epsilon): support vector regression; the absolute loss where epsilon is 0.

    Parameters
    ----------
    epsilon : float, default 0.1
        In units of y: what costs nothing.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.losses import EpsilonInsensitive
    >>> EpsilonInsensitive(0.5).value(np.array([0.2, -2.0]), np.zeros(2))
    array([0. , 1.5])
    """

    epsilon: float = 0.1

    def __post_init__(self) -> None:
        check_strength("epsilon", self.epsilon)

    def kinks(self, y: Array) -> Array:
        return y[:, None] if self.epsilon == 0 else np.stack([y - self.epsilon, y + self.epsilon], axis=1)

    def slopes(self, y: Array) -> Array:
        return np.tile(np.array([-1.0, 1.0] if self.epsilon == 0 else [-1.0, 0.0, 1.0]), (len(y), 1))

    def start(self, y: Array, weights: Array) -> Array:
        return Quantile(0.5).start(y, weights)
