"""Losses with two continuous derivatives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onefit._typing import Array
from onefit.losses.base import CoupledLoss, Loss, UnitDispersion
from onefit.pieces import Pieces


@dataclass(frozen=True)
class Squared(Loss):
    """½ (y − η)²; several outputs are independent.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.losses import Squared
    >>> Squared().value(np.array([1.0, 3.0]), np.array([1.0, 1.0]))
    array([0., 2.])
    """

    pieces = Pieces.QUADRATIC

    def value(self, y: Array, eta: Array) -> Array:
        return 0.5 * (y - eta) ** 2

    def gradient(self, y: Array, eta: Array) -> Array:
        return eta - y

    def hessian(self, y: Array, eta: Array) -> Array:
        return np.ones_like(eta)

    def third(self, y: Array, eta: Array) -> Array:
        return np.zeros_like(eta)

    def start(self, y: Array, weights: Array) -> Array:
        return np.average(y, axis=0, weights=weights)

    def self_concordance(self) -> float:
        return 0.0


@dataclass(frozen=True)
class Logistic(UnitDispersion):
    """log(1 + exp(η)) − y η, with y in {0, 1}.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.losses import Logistic
    >>> Logistic().value(np.array([1.0, 0.0]), np.zeros(2)).round(3)
    array([0.693, 0.693])
    >>> Logistic().gradient(np.array([1.0, 0.0]), np.zeros(2))
    array([-0.5,  0.5])
    """

    of_two_classes = True
    pieces = Pieces.SMOOTH

    def value(self, y: Array, eta: Array) -> Array:
        return np.log1p(_decay(eta)) + np.maximum(eta, 0.0) - y * eta

    def gradient(self, y: Array, eta: Array) -> Array:
        with np.errstate(over="ignore"):  # the probability is zero there
            return 1.0 / (1.0 + np.exp(-eta)) - y

    def hessian(self, y: Array, eta: Array) -> Array:
        decay = _decay(eta)
        return decay / (1.0 + decay) ** 2

    def third(self, y: Array, eta: Array) -> Array:
        return self.hessian(y, eta) * -np.tanh(0.5 * eta)

    def start(self, y: Array, weights: Array) -> Array:
        share = np.clip(np.average(y, axis=0, weights=weights), 1e-6, 1 - 1e-6)
        return np.log(share / (1 - share))

    def self_concordance(self) -> float:
        return 1.0


def _decay(eta: Array) -> Array:
    """exp(−|η|), of which the logistic loss and its derivatives are made without a number too large."""
    return np.exp(-np.abs(eta))


@dataclass(frozen=True)
class Exponential(Loss):
    """exp(−s η), with s = 2y − 1 for y in {0, 1}: boosting's loss, smallest in the mean at half the log odds.

    Examples
    --------
    >>> import numpy as np
    >>> Exponential().value(np.array([1.0, 0.0]), np.zeros(2))
    array([1., 1.])
    """

    of_two_classes = True
    pieces = Pieces.SMOOTH

    def value(self, y: Array, eta: Array) -> Array:
        return np.exp(-(2.0 * y - 1.0) * eta)

    def gradient(self, y: Array, eta: Array) -> Array:
        return -(2.0 * y - 1.0) * self.value(y, eta)

    def hessian(self, y: Array, eta: Array) -> Array:
        return self.value(y, eta)

    def third(self, y: Array, eta: Array) -> Array:
        return self.gradient(y, eta)

    def start(self, y: Array, weights: Array) -> Array:
        return 0.5 * Logistic().start(y, weights)

    def self_concordance(self) -> float:
        return 1.0


@dataclass(frozen=True)
class Multinomial(CoupledLoss, UnitDispersion):
    """−log softmax(η)_y, with y the number of the class, 0 … c − 1, and symmetric parameters.

    Parameters
    ----------
    n_classes : int
        c, the number of linear predictors of a row.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.losses import Multinomial
    >>> Multinomial(3).value(np.array([0.0, 2.0]), np.zeros((2, 3))).round(3)
    array([1.099, 1.099])
    """

    n_classes: int
    pieces = Pieces.SMOOTH

    def value(self, y: Array, eta: Array) -> Array:
        at_y = eta[np.arange(len(eta)), y.astype(np.intp)]
        highest = eta.argmax(axis=1)[:, None]
        top = np.take_along_axis(eta, highest, axis=1)
        beside = np.exp(eta - top)
        np.put_along_axis(beside, highest, 0.0, axis=1)  # to full relative precision where the loss is small
        return np.log1p(beside.sum(axis=1)) + (top[:, 0] - at_y)

    def gradient(self, y: Array, eta: Array) -> Array:
        share, own = _shares(eta).T, (y.astype(np.intp), np.arange(len(eta)))
        share[own] = 0.0
        share[own] = -share.sum(axis=0)  # its share less 1, to full relative precision
        return np.ascontiguousarray(share.T)

    def hessian(self, y: Array, eta: Array) -> Array:
        share = _shares(eta).T
        matrices = share[:, None] * -share
        np.einsum("aan->an", matrices)[...] += share
        return np.ascontiguousarray(matrices.transpose(2, 0, 1))

    def third(self, y: Array, eta: Array) -> Array:
        p = _shares(eta)
        eye = np.eye(self.n_classes)
        centred = eye[None] - p[:, None, :]  # (n, category, c): one-hot minus mean
        return np.einsum("na,nab,nac,nad->nbcd", p, centred, centred, centred)  # third cumulant

    def start(self, y: Array, weights: Array) -> Array:
        share = np.bincount(y.astype(np.intp), weights, self.n_classes) / weights.sum()
        logits = np.log(np.clip(share, 1e-6, None))
        return logits - logits.mean()

    def self_concordance(self) -> float:
        return 1.0


def _shares(eta: Array) -> Array:
    """Softmax of each row, computed class by class, since there are few of them."""
    by_class = np.ascontiguousarray(eta.T)
    shares = np.exp(by_class - by_class.max(axis=0))
    shares /= shares.sum(axis=0)
    return shares.T
