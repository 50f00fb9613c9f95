"""Metrics of predicted classes and their probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy.special import expit, logit, softmax

from onefit._typing import Array
from onefit.losses import Logistic, Loss, Multinomial
from onefit.metrics.base import IdentityLink, LossMetric, Metric, OfClasses, OfNumbers, mean_over_outputs
from onefit.numerics import LARGEST_EXPONENT, TINY


@final
@dataclass(frozen=True, eq=False)
class LogLoss(OfClasses, LossMetric):
    """Log-loss of class probabilities; ``eta`` is (n,) for two classes, else (n, c).

    Probabilities count as at least the rounding of their type, as in ``sklearn.metrics.log_loss``: a class
    that was thought impossible costs 36.  Linear predictors have no such bound, so refits show them.
    """

    classes: Any
    method = "predict_proba"
    refit_method = "decision_function"
    loss_name = "log-loss"

    def predictions(self, eta: Array) -> Array:
        if eta.ndim == 1:
            return np.stack([expit(-eta), expit(eta)], axis=1)
        return softmax(eta, axis=1)

    def predictors(self, predictions: Array) -> Array:
        eps = np.finfo(predictions.dtype).eps
        logs = np.log(np.clip(predictions, eps, 1.0 - eps).astype(np.float64))
        return logs[:, 1] - logs[:, 0] if logs.shape[1] == 2 else logs

    def loss(self, eta: Array) -> Loss:
        return Logistic() if eta.ndim == 1 else Multinomial(eta.shape[1])

    def spread(self, target: Array, eta: Array, bounds: Array) -> Array:
        """Of c classes log(1 + S eᵇ) − log(1 + S) at most, where ℓ = log(1 + S) and bounds are b."""
        if eta.ndim == 1:
            return super().spread(target, eta, bounds)
        missed = -np.expm1(-self.losses(target, eta))  # the probability of the other classes, S / (1 + S)
        grown = np.expm1(np.minimum(bounds, LARGEST_EXPONENT))
        return np.where(bounds < LARGEST_EXPONENT, np.log1p(grown * missed), bounds)

    def contradicted(self, losses: Array) -> Array:
        """−log of (1 − e^(−ℓ)) / (c − 1), the probability of an other class if all of them have the same."""
        return np.log(max(len(self.classes) - 1, 1)) - np.log(-np.expm1(-np.maximum(losses, TINY)))


@final
@dataclass(frozen=True)
class ShareLogLoss(OfNumbers, LossMetric):
    """Log-loss of a predicted probability of success; the target is a share of successes, 0 … 1.

    As for ``LogLoss``, a prediction counts as at least the rounding of its type.
    """

    loss_name = "log-loss"

    def predictions(self, eta: Array) -> Array:
        return np.asarray(expit(eta))

    def predictors(self, predictions: Array) -> Array:
        eps = np.finfo(predictions.dtype).eps
        return np.asarray(logit(np.clip(predictions, eps, 1.0 - eps)))

    def loss(self, eta: Array) -> Loss:
        return Logistic()


@final
@dataclass(frozen=True, eq=False)
class HingeLoss(OfClasses, IdentityLink):
    """Hinge loss of a decision function, for c classes that of Crammer and Singer."""

    classes: Any
    method = refit_method = "decision_function"
    loss_name = "hinge loss"
    has_kinks = True

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
        return mean_over_outputs(wrong)
