"""By what predictions are judged: link, loss of each row, its derivative, method of estimators.

One metric serves formulas, which know linear predictors, and refits, which know what a method of an estimator
returned.  A new metric is one class here.
"""

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
]
