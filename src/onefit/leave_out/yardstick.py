"""How errors of left-out values are judged: by the mean loss and its standard error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

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


class Measured(NamedTuple):
    """What is still open in what is known: the error that all sets may leave, and that of each."""

    found: LeftOut
    max_error: float
    room: float
    errors: Array


def errors(found: LeftOut, yardstick: Yardstick | None) -> Array:
    """How far the loss of each value may be off, as a share of the mean: (t,)."""
    if yardstick is None:
        return found.bounds / max(float(np.std(found.fit.eta)), TINY) / len(found.bounds)
    own = yardstick.spread(found.rows, found.eta, found.bounds)
    weights = yardstick.weights[found.rows]
    return np.asarray(weights * np.where(weights > 0, own, 0.0) / max(float(weights.sum()), TINY))


def allowed(
    found: LeftOut, yardstick: Yardstick | None, max_error: float, stand_for: Array | None = None
) -> float:
    """Error of the mean that may be left, in units of it.

    Parameters
    ----------
    found : LeftOut
    yardstick : Yardstick or None
    max_error : float
        Standard errors of the mean.
    stand_for : (f,) array, optional
        Sets that each stands for where a sample tells the standard error, 0 for those that it lacks.  By
        default those of which something is proven tell it: others may be so far off that they inflate it.
    """
    if yardstick is None:
        return max_error
    losses, weights = yardstick.losses(found.rows, found.eta), yardstick.weights[found.rows]
    count = np.isfinite(found.bounds).astype(np.float64) if stand_for is None else stand_for[found.fold]
    known = (weights > 0) & np.isfinite(losses) & (count > 0)
    if known.sum() < 2:
        return 0.0
    losses, weights, count = losses[known], weights[known], count[known]
    deviation = weights * (losses - np.average(losses, weights=weights * count))
    size = float(np.abs(deviation).max()) or 1.0  # squares of losses after rough steps may be too large
    length = float(np.sqrt(np.sum(count * (deviation / size) ** 2)) / np.sum(weights * count))
    return max_error * size * length


def allowed_by_all(found: LeftOut, yardstick: Yardstick | None, max_error: float = 1.0) -> float:
    """The same where all values tell the standard error, proven or not."""
    return allowed(found, yardstick, max_error, np.ones(found.count))


def far_off(found: LeftOut, yardstick: Yardstick) -> Mask:
    """Sets with a prediction that may be off by a share of the spread that users would want to know of."""
    off = yardstick.reach(found.eta, found.bounds)
    far = np.zeros(found.count, dtype=bool)
    far[found.fold[(off > FLAGGED) & ~found.certified]] = True
    return far
