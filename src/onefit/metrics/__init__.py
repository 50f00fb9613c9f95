"""By what predictions are judged: link, loss of each row, its derivative, method of estimators.

One metric serves formulas, which know linear predictors, and refits, which know what a method of an estimator
returned.  A new metric is one class here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onefit.losses import Logistic, Loss, Multinomial, Quantile, Tweedie
from onefit.metrics.base import LinearMetric, Metric, WithOffset, farther
from onefit.metrics.classification import HingeLoss, LogLoss, ShareLogLoss, ZeroOneLoss
from onefit.metrics.regression import Deviance, LocationError, PinballLoss, SquaredError

__all__ = [
    "Deviance",
    "HingeLoss",
    "LinearMetric",
    "LocationError",
    "LogLoss",
    "Metric",
    "PinballLoss",
    "ShareLogLoss",
    "SquaredError",
    "WithOffset",
    "ZeroOneLoss",
    "farther",
    "metric_of_loss",
]


def metric_of_loss(loss: Loss, classes: Any) -> LinearMetric:
    """How a model with this loss is judged."""
    if isinstance(loss, Logistic | Multinomial):
        return LogLoss(np.asarray(classes))
    if loss.of_two_classes:
        return HingeLoss(np.asarray(classes))
    if isinstance(loss, Tweedie):
        return Deviance(loss)
    return PinballLoss(loss.level) if isinstance(loss, Quantile) else SquaredError()
