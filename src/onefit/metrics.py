"""By what predictions are judged: link, loss of each row, its derivative, method of estimators.

One metric serves formulas, which know linear predictors, and refits, which know what a method of an estimator
returned.  A new metric is one class here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy.special import expit, logit, softmax

from onefit._typing import Array
from onefit.losses import Logistic, Multinomial, Tweedie
from onefit.validation import class_numbers


class Metric(ABC):
    """A loss of each row's prediction.

    Attributes
    ----------
    method : str
        The scikit-learn method whose outputs are the predictions.
    loss_name : str
        What the losses are, for tables and axes.
    """

    method: str
    loss_name: str

    @abstractmethod
    def target(self, y: Any) -> Any:
        """Return what an estimator was given in the terms of the losses: numbers, or class numbers."""

    @abstractmethod
    def of_predictions(self, target: Any, predictions: Any) -> Array:
        """Loss of each row: (r,); missing (NaN) for predictions that are missing."""


class LinearMetric(Metric):
    """A metric of models with linear predictors ``eta``, (n,) or (n, c).

    Attributes
    ----------
    refit_method : str
        The method that refits are asked for: one whose outputs lose nothing of the linear predictors.
    has_kinks : bool
        Whether its derivative jumps.
    """

    refit_method: str
    has_kinks: bool

    @abstractmethod
    def predictions(self, eta: Array) -> Array:
        """What ``method`` returns, the inverse link: (n,) or (n, c)."""

    @abstractmethod
    def predictors(self, predictions: Array) -> Array:
        """Linear predictors with these predictions, the link."""

    @abstractmethod
    def decision(self, eta: Array) -> Array:
        """Return the linear predictors that users know, without a scale that is estimated along."""

    @abstractmethod
    def losses(self, target: Array, eta: Array) -> Array:
        """Loss of each row: (n,)."""

    @abstractmethod
    def slopes(self, target: Array, eta: Array) -> Array:
        """φ′, the derivative of each row's loss in its linear predictors: the shape of ``eta``."""

    @abstractmethod
    def spread(self, target: Array, eta: Array, bounds: Array) -> Array:
        """How far each loss may be off, if no linear predictor of the row is by more than a bound: (n,).

        For class scores, no difference of two of them.  All losses here are convex in η.
        """

    @final
    def of_predictions(self, target: Any, predictions: Any) -> Array:
        with np.errstate(invalid="ignore"):  # of missing predictions
            return self.losses(target, self.predictors(_floating(predictions)))

    @final
    def of_refits(self, target: Any, outputs: Any) -> Array:
        """Loss of each row from what ``refit_method`` of a refit returned: (r,)."""
        if self.refit_method == "decision_function":
            with np.errstate(invalid="ignore"):  # of missing outputs
                return self.losses(target, _floating(outputs))
        return self.of_predictions(target, outputs)


def _floating(values: Any) -> Array:
    """Return an array of floats, of single precision if it was."""
    values = np.asarray(values)
    return values if values.dtype.kind == "f" else values.astype(np.float64)


def _numbers(y: Any) -> Array:
    return np.asarray(y, dtype=np.float64)


@final
@dataclass(frozen=True)
class SquaredError(LinearMetric):
    """Squared error of a prediction, the mean over several outputs."""

    method = refit_method = "predict"
    loss_name = "squared error"
    has_kinks = False

    def target(self, y: Any) -> Array:
        return _numbers(y)

    def predictions(self, eta: Array) -> Array:
        return eta

    def predictors(self, predictions: Array) -> Array:
        return predictions

    def decision(self, eta: Array) -> Array:
        return eta

    def losses(self, target: Array, eta: Array) -> Array:
        squares = (target - eta.reshape(target.shape)) ** 2  # some regressors return a column
        return squares if squares.ndim == 1 else squares.mean(axis=1)

    def slopes(self, target: Array, eta: Array) -> Array:
        return 2.0 * (eta - target) / (1 if eta.ndim == 1 else eta.shape[1])

    def spread(self, target: Array, eta: Array, bounds: Array) -> Array:
        size = np.abs(target - eta).reshape(len(eta), -1).mean(axis=1)
        return bounds * (2.0 * size + bounds)


@final
@dataclass(frozen=True)
class PinballLoss(LinearMetric):
    """Pinball loss of a predicted quantile."""

    level: float
    method = refit_method = "predict"
    loss_name = "pinball loss"
    has_kinks = True

    def target(self, y: Any) -> Array:
        return _numbers(y)

    def predictions(self, eta: Array) -> Array:
        return eta

    def predictors(self, predictions: Array) -> Array:
        return predictions

    def decision(self, eta: Array) -> Array:
        return eta

    def losses(self, target: Array, eta: Array) -> Array:
        return np.maximum(self.level * (target - eta), (self.level - 1.0) * (target - eta))

    def slopes(self, target: Array, eta: Array) -> Array:
        return np.where(target > eta, -self.level, 1.0 - self.level)

    def spread(self, target: Array, eta: Array, bounds: Array) -> Array:
        return bounds * max(self.level, 1.0 - self.level)


@final
@dataclass(frozen=True)
class LocationError(LinearMetric):
    """Squared error of the first of two linear predictors, location and scale."""

    method = refit_method = "predict"
    loss_name = "squared error"
    has_kinks = False

    def target(self, y: Any) -> Array:
        return _numbers(y)

    def predictions(self, eta: Array) -> Array:
        return eta[:, 0]

    def predictors(self, predictions: Array) -> Array:
        return np.stack([predictions, np.full(len(predictions), np.nan)], axis=1)  # the scale is not judged

    def decision(self, eta: Array) -> Array:
        return eta[:, 0]

    def losses(self, target: Array, eta: Array) -> Array:
        return (target - eta[:, 0]) ** 2

    def slopes(self, target: Array, eta: Array) -> Array:
        return np.stack([2.0 * (eta[:, 0] - target), np.zeros(len(target))], axis=1)

    def spread(self, target: Array, eta: Array, bounds: Array) -> Array:
        size = np.abs(target - eta[:, 0])
        return bounds * (2.0 * size + bounds)


@final
@dataclass(frozen=True)
class Deviance(LinearMetric):
    """Unit deviance of the mean of a Tweedie family: twice its loss."""

    family: Tweedie
    method = refit_method = "predict"
    loss_name = "deviance"
    has_kinks = False

    def target(self, y: Any) -> Array:
        return _numbers(y)

    def predictions(self, eta: Array) -> Array:
        return self.family.mean(eta)

    def predictors(self, predictions: Array) -> Array:
        return predictions if self.family.link == "identity" else np.log(predictions)

    def decision(self, eta: Array) -> Array:
        return eta

    def losses(self, target: Array, eta: Array) -> Array:
        return 2.0 * self.family.value(target, eta)

    def slopes(self, target: Array, eta: Array) -> Array:
        return 2.0 * self.family.gradient(target, eta)

    def spread(self, target: Array, eta: Array, bounds: Array) -> Array:
        return farther(self, target, eta, bounds)


@final
@dataclass(frozen=True, eq=False)
class LogLoss(LinearMetric):
    """Log-loss of class probabilities; ``eta`` is (n,) for two classes, else (n, c).

    Probabilities count as at least the rounding of their type, as in ``sklearn.metrics.log_loss``: a class
    that was thought impossible costs 36.  Linear predictors have no such bound, so refits show them.
    """

    classes: Any
    method = "predict_proba"
    refit_method = "decision_function"
    loss_name = "log-loss"
    has_kinks = False

    def target(self, y: Any) -> Array:
        return _numbers(class_numbers(y, self.classes))

    def predictions(self, eta: Array) -> Array:
        if eta.ndim == 1:
            return np.stack([expit(-eta), expit(eta)], axis=1)
        return softmax(eta, axis=1)

    def predictors(self, predictions: Array) -> Array:
        eps = np.finfo(predictions.dtype).eps
        logs = np.log(np.clip(predictions, eps, 1.0 - eps).astype(np.float64))
        return logs[:, 1] - logs[:, 0] if logs.shape[1] == 2 else logs

    def decision(self, eta: Array) -> Array:
        return eta

    def losses(self, target: Array, eta: Array) -> Array:
        return _likelihood(eta).value(target, eta)

    def slopes(self, target: Array, eta: Array) -> Array:
        return _likelihood(eta).gradient(target, eta)

    def spread(self, target: Array, eta: Array, bounds: Array) -> Array:
        return farther(self, target, eta, bounds) if eta.ndim == 1 else bounds


def farther(metric: LinearMetric, target: Array, eta: Array, bounds: Array) -> Array:
    """Change of a convex loss at the end of the interval where it is larger: (n,)."""
    finite = np.where(np.isfinite(bounds), bounds, 0.0)
    here = metric.losses(target, eta)
    with np.errstate(over="ignore"):
        ends = [metric.losses(target, eta + side * finite) - here for side in (-1.0, 1.0)]
    return np.where(np.isfinite(bounds), np.maximum(*ends), np.inf)


def _likelihood(eta: Array) -> Logistic | Multinomial:
    return Logistic() if eta.ndim == 1 else Multinomial(eta.shape[1])


@final
@dataclass(frozen=True)
class ShareLogLoss(LinearMetric):
    """Log-loss of a predicted probability of success; the target is a share of successes, 0 … 1.

    As for ``LogLoss``, a prediction counts as at least the rounding of its type.
    """

    method = refit_method = "predict"
    loss_name = "log-loss"
    has_kinks = False

    def target(self, y: Any) -> Array:
        return _numbers(y)

    def predictions(self, eta: Array) -> Array:
        return np.asarray(expit(eta))

    def predictors(self, predictions: Array) -> Array:
        eps = np.finfo(predictions.dtype).eps
        return np.asarray(logit(np.clip(predictions, eps, 1.0 - eps)))

    def decision(self, eta: Array) -> Array:
        return eta

    def losses(self, target: Array, eta: Array) -> Array:
        return Logistic().value(target, eta)

    def slopes(self, target: Array, eta: Array) -> Array:
        return Logistic().gradient(target, eta)

    def spread(self, target: Array, eta: Array, bounds: Array) -> Array:
        return farther(self, target, eta, bounds)


@final
@dataclass(frozen=True, eq=False)
class HingeLoss(LinearMetric):
    """Hinge loss of a decision function, for c classes that of Crammer and Singer."""

    classes: Any
    method = refit_method = "decision_function"
    loss_name = "hinge loss"
    has_kinks = True

    def target(self, y: Any) -> Array:
        return _numbers(class_numbers(y, self.classes))

    def predictions(self, eta: Array) -> Array:
        return eta

    def predictors(self, predictions: Array) -> Array:
        return predictions

    def decision(self, eta: Array) -> Array:
        return eta

    def losses(self, target: Array, eta: Array) -> Array:
        if eta.ndim == 1:
            return np.maximum(0.0, 1.0 - (2.0 * target - 1.0) * eta)
        own = np.eye(eta.shape[1], dtype=bool)[target.astype(np.intp)]
        return np.maximum(0.0, 1.0 - eta[own] + np.where(own, -np.inf, eta).max(axis=1))

    def slopes(self, target: Array, eta: Array) -> Array:
        short = (self.losses(target, eta) > 0).astype(np.float64)
        if eta.ndim == 1:
            return -(2.0 * target - 1.0) * short
        own = np.eye(eta.shape[1], dtype=bool)[target.astype(np.intp)]
        rival = np.where(own, -np.inf, eta).argmax(axis=1)
        return (np.eye(eta.shape[1])[rival] - own) * short[:, None]

    def spread(self, target: Array, eta: Array, bounds: Array) -> Array:
        return bounds * (1.0 if eta.ndim == 1 else 2.0)


@final
@dataclass(frozen=True)
class ZeroOneLoss(Metric):
    """Whether a predicted label is wrong, the share of them for several outputs."""

    method = "predict"
    loss_name = "zero-one loss"

    def target(self, y: Any) -> Any:
        return np.asarray(y)

    def of_predictions(self, target: Any, predictions: Any) -> Array:
        labels = np.asarray(predictions)
        wrong = np.asarray(target != labels, dtype=np.float64)
        wrong[labels != labels] = np.nan  # NaN, also among objects
        return wrong if wrong.ndim == 1 else wrong.mean(axis=1)
