"""A metric of linear predictors to which something known is added."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from onefit._typing import Array
from onefit.metrics.base import LinearMetric


@final
@dataclass(frozen=True, eq=False)
class WithOffset(LinearMetric):
    """Judge η + o by another metric; the target has the response and the offset as its two columns.

    ``predictions`` and ``decision`` are those of offset zero.
    """

    inner: LinearMetric

    def __post_init__(self) -> None:
        own = ("method", "refit_method", "loss_name", "has_kinks")
        self.__dict__.update({name: getattr(self.inner, name) for name in own})

    def target(self, y: Any) -> Array:
        response = self.inner.target(y)
        return np.stack([response, np.zeros(len(response))], axis=1)

    def predictions(self, eta: Array) -> Array:
        return self.inner.predictions(eta)

    def predictors(self, predictions: Array) -> Array:
        return self.inner.predictors(predictions)

    def decision(self, eta: Array) -> Array:
        return self.inner.decision(eta)

    def losses(self, target: Array, eta: Array) -> Array:
        return self.inner.losses(target[:, 0], eta + target[:, 1])

    def slopes(self, target: Array, eta: Array) -> Array:
        return self.inner.slopes(target[:, 0], eta + target[:, 1])

    def spread(self, target: Array, eta: Array, bounds: Array) -> Array:
        return self.inner.spread(target[:, 0], eta + target[:, 1], bounds)
