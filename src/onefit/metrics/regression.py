"""Metrics of predicted numbers."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import final

import numpy as np

from onefit._typing import Array
from onefit.losses import Loss, Tweedie
from onefit.metrics.base import IdentityLink, LinearMetric, LossMetric, OfNumbers, mean_over_outputs


@final
@dataclass(frozen=True)
class SquaredError(OfNumbers, IdentityLink):
    """Squared error of a prediction, the mean over several outputs."""

    loss_name = "squared error"

    def losses(self, target: Array, eta: Array) -> Array:
        with np.errstate(over="ignore"):  # infinite without a word far out
            squares = target - eta.reshape(target.shape)  # some regressors return a column
            squares *= squares
        return mean_over_outputs(squares)

    def slopes(self, target: Array, eta: Array) -> Array:
        return 2.0 * (eta - target) / prod(eta.shape[1:])

    def spread(self, target: Array, eta: Array, bounds: Array) -> Array:
        off = target - eta
        return bounds * (2.0 * mean_over_outputs(np.abs(off, out=off)) + bounds)


@final
@dataclass(frozen=True)
class PinballLoss(OfNumbers, IdentityLink):
    """Pinball loss of a predicted quantile; those of other levels cannot be compared."""

    level: float
    has_kinks = True

    def __post_init__(self) -> None:
        self.__dict__["loss_name"] = f"pinball loss at {self.level:g}"

    def losses(self, target: Array, eta: Array) -> Array:
        return np.maximum(self.level * (target - eta), (self.level - 1.0) * (target - eta))

    def slopes(self, target: Array, eta: Array) -> Array:
        return np.where(target > eta, -self.level, 1.0 - self.level)

    def spread(self, target: Array, eta: Array, bounds: Array) -> Array:
        return bounds * max(self.level, 1.0 - self.level)


@final
@dataclass(frozen=True)
class LocationError(OfNumbers, LinearMetric):
    """Squared error of the first of two linear predictors, location and scale."""

    loss_name = "squared error"

    def predictions(self, eta: Array) -> Array:
        return eta[:, 0]

    def predictors(self, predictions: Array) -> Array:
        return np.stack([predictions, np.full(len(predictions), np.nan)], axis=1)  # the scale is not judged

    def decision(self, eta: Array) -> Array:
        return eta[:, 0]

    def losses(self, target: Array, eta: Array) -> Array:
        return SquaredError().losses(target, eta[:, 0])

    def slopes(self, target: Array, eta: Array) -> Array:
        return np.stack([SquaredError().slopes(target, eta[:, 0]), np.zeros(len(target))], axis=1)

    def spread(self, target: Array, eta: Array, bounds: Array) -> Array:
        return SquaredError().spread(target, eta[:, 0], bounds)


@final
@dataclass(frozen=True)
class Deviance(OfNumbers, LossMetric):
    """Unit deviance of the mean of a Tweedie family: twice its loss; those of others cannot be compared."""

    family: Tweedie
    times = 2.0

    def __post_init__(self) -> None:
        names = {1.0: "deviance", 2.0: "gamma deviance"}
        power = self.family.power
        self.__dict__["loss_name"] = names.get(power, f"deviance of power {power:g}")

    def predictions(self, eta: Array) -> Array:
        return self.family.mean(eta)

    def predictors(self, predictions: Array) -> Array:
        return predictions if self.family.link == "identity" else np.log(predictions)

    def loss(self, eta: Array) -> Loss:
        return self.family
