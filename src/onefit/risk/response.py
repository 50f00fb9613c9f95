"""From linear predictors to what an estimator returns, and to the loss that its users report."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, softmax

from onefit._typing import Array, Index
from onefit.losses import Logistic, Multinomial, Tweedie


class Response(ABC):
    """How left-out linear predictors are reported and judged.

    ``y`` is what the estimator was given: numbers, or for classifiers the number of the class.
    """

    method: str  # the scikit-learn method that ``predictions`` stands for
    loss_name: str  # what the losses are, for tables and axes

    @abstractmethod
    def predictions(self, eta: Array) -> Array:
        """What ``method`` of the refits returns: (n,) or (n, c)."""

    def linear(self, eta: Array) -> Array:
        """Return the linear predictors that users know, without a scale that is estimated along."""
        return eta

    @abstractmethod
    def losses(self, y: Array, eta: Array) -> Array:
        """Loss of each row: (n,)."""

    @abstractmethod
    def slopes(self, y: Array, eta: Array) -> Array:
        """φ′, the derivative of each row's loss in its linear predictors: the shape of ``eta``."""


@dataclass(frozen=True)
class Value(Response):
    """A regressor's prediction, judged by squared error (the mean over several outputs)."""

    method = "predict"
    loss_name = "squared error"

    def predictions(self, eta: Array) -> Array:
        return eta

    def losses(self, y: Array, eta: Array) -> Array:
        squares = (y - eta) ** 2
        return squares if squares.ndim == 1 else squares.mean(axis=1)

    def slopes(self, y: Array, eta: Array) -> Array:
        return 2.0 * (eta - y) / (1 if eta.ndim == 1 else eta.shape[1])


@dataclass(frozen=True)
class Pinball(Response):
    """A predicted quantile, judged by the pinball loss."""

    level: float
    method = "predict"
    loss_name = "pinball loss"

    def predictions(self, eta: Array) -> Array:
        return eta

    def losses(self, y: Array, eta: Array) -> Array:
        return np.maximum(self.level * (y - eta), (self.level - 1.0) * (y - eta))

    def slopes(self, y: Array, eta: Array) -> Array:
        return np.where(y > eta, -self.level, 1.0 - self.level)


@dataclass(frozen=True)
class Location(Response):
    """The first of two linear predictors, location and scale, judged by squared error."""

    method = "predict"
    loss_name = "squared error"

    def linear(self, eta: Array) -> Array:
        return eta[:, 0]

    def predictions(self, eta: Array) -> Array:
        return eta[:, 0]

    def losses(self, y: Array, eta: Array) -> Array:
        return (y - eta[:, 0]) ** 2

    def slopes(self, y: Array, eta: Array) -> Array:
        return np.stack([2.0 * (eta[:, 0] - y), np.zeros(len(y))], axis=1)


@dataclass(frozen=True)
class Mean(Response):
    """The mean of a Tweedie family, judged by its unit deviance (twice the loss)."""

    family: Tweedie
    method = "predict"
    loss_name = "deviance"

    def predictions(self, eta: Array) -> Array:
        return self.family.mean(eta)

    def losses(self, y: Array, eta: Array) -> Array:
        return 2.0 * self.family.value(y, eta)

    def slopes(self, y: Array, eta: Array) -> Array:
        return 2.0 * self.family.gradient(y, eta)


@dataclass(frozen=True)
class Probability(Response):
    """Class probabilities, judged by log-loss; ``eta`` is (n,) for two classes, else (n, c)."""

    classes: Index
    method = "predict_proba"
    loss_name = "log-loss"

    def predictions(self, eta: Array) -> Array:
        if eta.ndim == 1:
            return np.stack([expit(-eta), expit(eta)], axis=1)
        return softmax(eta, axis=1)

    def losses(self, y: Array, eta: Array) -> Array:
        if eta.ndim == 1:
            return Logistic().value(y, eta)
        return Multinomial(eta.shape[1]).value(y, eta)

    def slopes(self, y: Array, eta: Array) -> Array:
        loss = Logistic() if eta.ndim == 1 else Multinomial(eta.shape[1])
        return loss.gradient(y, eta)


@dataclass(frozen=True)
class Margin(Response):
    """A decision function, judged by the hinge (for c classes that of Crammer and Singer)."""

    classes: Index
    method = "decision_function"
    loss_name = "hinge loss"

    def predictions(self, eta: Array) -> Array:
        return eta

    def losses(self, y: Array, eta: Array) -> Array:
        if eta.ndim == 1:
            return np.maximum(0.0, 1.0 - (2.0 * y - 1.0) * eta)
        own = np.eye(eta.shape[1], dtype=bool)[y.astype(np.intp)]
        return np.maximum(0.0, 1.0 - eta[own] + np.where(own, -np.inf, eta).max(axis=1))

    def slopes(self, y: Array, eta: Array) -> Array:
        short = (self.losses(y, eta) > 0).astype(np.float64)
        if eta.ndim == 1:
            return -(2.0 * y - 1.0) * short
        own = np.eye(eta.shape[1], dtype=bool)[y.astype(np.intp)]
        rival = np.where(own, -np.inf, eta).argmax(axis=1)
        return (np.eye(eta.shape[1])[rival] - own) * short[:, None]
