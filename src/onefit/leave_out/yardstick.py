"""How errors of left-out values are judged: by the mean loss and its standard error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from onefit._typing import Array, Index, Mask
from onefit.leave_out.result import LeftOut
from onefit.numerics import FLAGGED, TINY


@dataclass(frozen=True)
class Yardstick:
    """How errors are judged: by the mean loss and its standard error.

    Attributes
    ----------
    losses : callable
        From rows and their linear predictors to losses.
    spread : callable
        From rows, linear predictors and bounds to how far the losses may be off.
    reach : callable
        From linear predictors and bounds to how far predictions may be off, in spreads of the response.
    weights : (n,) array
        Of the rows in the mean.
    """

    losses: Callable[[Index, Array], Array]
    spread: Callable[[Index, Array, Array], Array]
    reach: Callable[[Array, Array], Array]
    weights: Array


def errors(found: LeftOut, yardstick: Yardstick | None) -> Array:
    """How far the loss of each value may be off, as a share of the mean: (t,)."""
    if yardstick is None:
        return found.bounds / max(float(np.std(found.fit.eta)), TINY) / len(found.bounds)
    own = yardstick.spread(found.rows, found.eta, found.bounds)
    weights = yardstick.weights[found.rows]
    return np.asarray(weights * np.where(weights > 0, own, 0.0) / max(float(weights.sum()), TINY))


def allowed(found: LeftOut, yardstick: Yardstick | None, max_error: float) -> float:
    """Error of the mean that may be left."""
    if yardstick is None:
        return max_error
    losses, weights = yardstick.losses(found.rows, found.eta), yardstick.weights[found.rows]
    known = (weights > 0) & np.isfinite(losses) & np.isfinite(found.bounds)
    if known.sum() < 2:
        return 0.0
    # rows far off inflate it: those of which nothing is known have no say
    deviation = weights[known] * (losses[known] - np.average(losses[known], weights=weights[known]))
    return max_error * float(np.sqrt(np.sum(deviation**2)) / weights[known].sum())


def far_off(found: LeftOut, yardstick: Yardstick) -> Mask:
    """Sets with a prediction that may be off by a share of the spread that users would want to know of."""
    off = yardstick.reach(found.eta, found.bounds)
    far = np.zeros(found.count, dtype=bool)
    far[found.fold[(off > FLAGGED) & ~found.certified]] = True
    return far
