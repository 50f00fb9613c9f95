"""What every metric says of itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from onefit._typing import Array
from onefit.losses import Loss
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
        Whether its derivative jumps; for most it does not.
    """

    refit_method: str
    has_kinks: bool = False

    @abstractmethod
    def target(self, y: Any) -> Array:
        """Numbers, or class numbers, as losses take them: floats, (n,) or (n, t)."""

    @abstractmethod
    def predictions(self, eta: Array) -> Array:
        """What ``method`` returns, the inverse link: (n,) or (n, c)."""

    @abstractmethod
    def predictors(self, predictions: Array) -> Array:
        """Linear predictors with these predictions, the link."""

    def decision(self, eta: Array) -> Array:
        """Return the linear predictors that users know, without a scale that is estimated along."""
        return eta

    @abstractmethod
    def losses(self, target: Array, eta: Array) -> Array:
        """Loss of each row: (n,)."""

    def contradicted(self, losses: Array) -> Array | None:
        """Losses of rows, from their own, were their labels others; None where responses are no labels."""
        return None

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
            return self.losses(target, self.predictors(floating(predictions)))

    @final
    def of_refits(self, target: Any, outputs: Any) -> Array:
        """Loss of each row from what ``refit_method`` of a refit returned: (r,)."""
        if self.refit_method == "decision_function":
            with np.errstate(invalid="ignore"):  # of missing outputs
                return self.losses(target, floating(outputs))
        return self.of_predictions(target, outputs)


class OfClasses(Metric):
    """A metric of labels, in the order of ``classes``."""

    classes: Any

    @final
    def target(self, y: Any) -> Array:
        return class_numbers(y, self.classes).astype(np.float64)


class IdentityLink(LinearMetric):
    """A metric whose predictions are the linear predictors."""

    @final
    def predictions(self, eta: Array) -> Array:
        return eta

    @final
    def predictors(self, predictions: Array) -> Array:
        return predictions


class OfNumbers(Metric):
    """A metric of responses that are numbers, which estimators predict."""

    method = refit_method = "predict"

    @final
    def target(self, y: Any) -> Array:
        return np.asarray(y, dtype=np.float64)


class LossMetric(LinearMetric):
    """A metric that is a multiple of a loss with derivatives."""

    times: float = 1.0

    @abstractmethod
    def loss(self, eta: Array) -> Loss:
        """Return the loss of linear predictors of this shape."""

    @final
    def losses(self, target: Array, eta: Array) -> Array:
        return self.times * self.loss(eta).value(target, eta)

    @final
    def slopes(self, target: Array, eta: Array) -> Array:
        return self.times * self.loss(eta).gradient(target, eta)

    def spread(self, target: Array, eta: Array, bounds: Array) -> Array:
        return farther(self, target, eta, bounds)


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

    def contradicted(self, losses: Array) -> Array | None:
        return self.inner.contradicted(losses)


def mean_over_outputs(values: Array) -> Array:
    """Mean of each row's numbers: (n,), of (n,) or (n, c)."""
    return values if values.ndim == 1 else np.asarray(values.mean(axis=tuple(range(1, values.ndim))))


def floating(values: Any) -> Array:
    """Return an array of floats, of single precision if it was."""
    values = np.asarray(values)
    return values if values.dtype.kind == "f" else values.astype(np.float64)


def farther(metric: LinearMetric, target: Array, eta: Array, bounds: Array) -> Array:
    """Change of a convex loss at the end of the interval where it is larger: (n,)."""
    finite = np.where(np.isfinite(bounds), bounds, 0.0)
    here = metric.losses(target, eta)
    with np.errstate(over="ignore", invalid="ignore"):
        ends = [metric.losses(target, eta + side * finite) - here for side in (-1.0, 1.0)]
    found = np.maximum(*ends)
    return np.where(np.isfinite(bounds) & np.isfinite(found), found, np.inf)
