"""A loss of a linear predictor to which something known is added, such as the logarithm of an exposure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from onefit._typing import Array
from onefit.losses.base import CoupledLoss, Loss, PiecewiseLoss
from onefit.losses.piecewise import PiecewiseLinear
from onefit.pieces import Pieces

STEPS = 50  # of Newton's method for the constant model, which halves an interval where it fails
WIDEST = 50.0  # that the constant may be away from where it starts


@dataclass(frozen=True)
class Offset(Loss):
    """ℓ(y, η + o): the response and the offset of a row are the two columns of ``y``, (n, 2).

    Whoever takes rows, or leaves some out, takes their offsets along, so that nothing else has to know.

    Parameters
    ----------
    loss : Loss
        Of one output, and smooth.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.losses import Poisson
    >>> counts, years = np.array([2.0, 6.0]), np.array([1.0, 3.0])
    >>> loss = Offset(Poisson())
    >>> float(np.exp(loss.start(np.stack([counts, np.log(years)], axis=1), np.ones(2))).round(6))  # a year
    2.0
    """

    loss: Loss

    def __post_init__(self) -> None:
        inner: Any = self.loss
        if isinstance(inner, CoupledLoss | PiecewiseLoss | PiecewiseLinear) or not inner.is_smooth:
            raise ValueError(
                f"an offset is for smooth losses of one output, not for {type(inner).__name__}: for a loss "
                "of y − η subtract it from y"
            )

    @property
    def of_two_classes(self) -> bool:  # type: ignore[override]
        return self.loss.of_two_classes

    @property
    def pieces(self) -> Pieces:
        return self.loss.pieces

    def value(self, y: Array, eta: Array) -> Array:
        return self.loss.value(y[:, 0], eta + y[:, 1])

    def gradient(self, y: Array, eta: Array) -> Array:
        return self.loss.gradient(y[:, 0], eta + y[:, 1])

    def hessian(self, y: Array, eta: Array) -> Array:
        return self.loss.hessian(y[:, 0], eta + y[:, 1])

    def third(self, y: Array, eta: Array) -> Array:
        return self.loss.third(y[:, 0], eta + y[:, 1])

    def self_concordance(self) -> float | None:
        return self.loss.self_concordance()

    def start(self, y: Array, weights: Array) -> Array:
        """Level of the constant model: Newton's method on Σ w ℓ(y, b + o), kept within a bracket."""
        level = float(self.loss.start(y[:, 0], weights)) - float(np.average(y[:, 1], weights=weights))
        low, high = level - WIDEST, level + WIDEST
        for _ in range(STEPS):
            eta = np.full(len(y), level)
            with np.errstate(over="ignore"):
                slope = float(weights @ self.gradient(y, eta))
                curvature = float(weights @ self.hessian(y, eta))
            low, high = (low, level) if slope > 0 else (level, high)
            step = level - slope / curvature if curvature > 0 and np.isfinite(slope) else np.nan
            last, level = level, step if low < step < high else 0.5 * (low + high)
            if abs(level - last) <= 1e-12 * max(1.0, abs(level)):
                break
        return np.asarray(level)
