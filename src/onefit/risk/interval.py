"""Predictive intervals from left-out fits: jackknife+ and its cautious relative, without a refit.

Barber, Candès, Ramdas and Tibshirani 2021, "Predictive inference with the jackknife+", eq. 1.2 and 2.3.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Design
from onefit.leave_out.departure import Departures
from onefit.metrics import LinearMetric

Method = Literal["plus", "minmax"]


def interval(
    departures: Departures, response: LinearMetric, y: Array, new: Design, coverage: float, method: Method
) -> Array:
    """Bounds of the response at new rows: (m, 2), or (m, t, 2) for several outputs.

    With R_i = |y_i − μ̃_i| and μ̃⁽ⁱ⁾(x̃) the prediction at x̃ without row i:

    * ``plus``: from the ⌊α(n+1)⌋-th smallest of μ̃⁽ⁱ⁾(x̃) − R_i to the ⌈(1−α)(n+1)⌉-th of μ̃⁽ⁱ⁾(x̃) + R_i,
    * ``minmax``: from min_i μ̃⁽ⁱ⁾(x̃) − q to max_i μ̃⁽ⁱ⁾(x̃) + q with q the ⌈(1−α)(n+1)⌉-th smallest R_i.

    An order statistic that n rows do not have is infinite.
    """
    rows = np.flatnonzero(departures.fit.problem.weights > 0)
    residuals = np.abs(y - response.predictions(departures.left_out.eta))[rows]
    size = max(1, _linalg.BLOCK_SIZE // departures.fit.eta.size)
    bounds = []
    for start in range(0, new.shape[0], size):
        eta = departures.predict(new[start : start + size])[:, rows]
        flat = response.predictions(eta.reshape(-1, *eta.shape[2:]))
        bounds.append(_BOUNDS[method](flat.reshape(*eta.shape[:2], *flat.shape[1:]), residuals, coverage))
    return np.concatenate(bounds) if bounds else np.empty((0, *residuals.shape[1:], 2))


def plus(predictions: Array, residuals: Array, coverage: float) -> Array:
    """Bounds of the jackknife+, (m, …, 2): predictions (m, n, …) without each row, residuals (n, …)."""
    low = -_smallest(-(predictions - residuals), coverage)
    return np.stack([low, _smallest(predictions + residuals, coverage)], axis=-1)


def _minmax(predictions: Array, residuals: Array, coverage: float) -> Array:
    margin = _smallest(residuals[None], coverage)
    return np.stack([predictions.min(axis=1) - margin, predictions.max(axis=1) + margin], axis=-1)


_BOUNDS = {"plus": plus, "minmax": _minmax}


def _smallest(values: Array, coverage: float) -> Array:
    """The ⌈coverage (n + 1)⌉-th smallest of n values along the second axis, infinite beyond the last."""
    n = values.shape[1]
    position = int(np.ceil(coverage * (n + 1) - 1e-9)) - 1
    if position >= n:
        return np.full((values.shape[0], *values.shape[2:]), np.inf)
    return np.partition(values, position, axis=1)[:, position]
