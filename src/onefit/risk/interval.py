"""Predictive intervals from left-out fits: jackknife+, CV+ and their cautious relative.

Barber, Candès, Ramdas and Tibshirani 2021, "Predictive inference with the jackknife+", eq. 1.2, 2.3 and,
of folds, section 3.  Of groups: Lee, Barber and Willett 2023, "Distribution-free inference with hierarchical
data": rows of a group, which are alike, share what one row counts, and a new row is one of a new group.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Design, Index
from onefit.leave_out.departure import Departures
from onefit.metrics import LinearMetric

Method = Literal["plus", "minmax"]


def interval(
    departures: Departures,
    response: LinearMetric,
    y: Array,
    new: Design,
    coverage: float,
    method: Method,
    clusters: Index | None = None,
    offsets: tuple[Array | float, Array | float] = (0.0, 0.0),
) -> Array:
    """Bounds of the response at new rows: (m, 2), or (m, t, 2) for several outputs.

    With R_i = |y_i − μ̃_i| and μ̃⁽ⁱ⁾(x̃) the prediction at x̃ without row i, or all that leave with it:

    * ``plus``: from the ⌊α(n+1)⌋-th smallest of μ̃⁽ⁱ⁾(x̃) − R_i to the ⌈(1−α)(n+1)⌉-th of μ̃⁽ⁱ⁾(x̃) + R_i,
    * ``minmax``: from min_i μ̃⁽ⁱ⁾(x̃) − q to max_i μ̃⁽ⁱ⁾(x̃) + q with q the ⌈(1−α)(n+1)⌉-th smallest R_i.

    An order statistic that n rows do not have is infinite, as is what a fit says that there is not.  A row of
    ``clusters``, (n,), counts 1/n_k of one of the K groups.  ``offsets`` are added to the linear predictors
    of the rows and of the new ones.
    """
    left_out = departures.left_out
    judged = np.flatnonzero(departures.fit.problem.weights[left_out.rows] > 0)
    rows, units = left_out.rows[judged], left_out.fold[judged]
    known, added = (np.broadcast_to(part, n) for part, n in zip(offsets, (len(y), new.shape[0]), strict=True))
    own = departures.eta[judged]
    residuals = np.abs(y[rows] - response.predictions(own + _linalg.with_axes(known[rows], own)))
    shares = None if clusters is None else shares_of(clusters[rows])
    size = max(1, _linalg.BLOCK_SIZE // departures.fit.eta.size)
    bounds = []
    for start in range(0, new.shape[0], size):
        eta = departures.predict(new[start : start + size])
        eta = eta + _linalg.with_axes(added[start : start + size], eta)
        flat = response.predictions(eta.reshape(-1, *eta.shape[2:]))
        without = flat.reshape(*eta.shape[:2], *flat.shape[1:])[:, units]
        bounds.append(_BOUNDS[method](without, residuals, coverage, shares))
    return np.concatenate(bounds) if bounds else np.empty((0, *residuals.shape[1:], 2))


def shares_of(clusters: Index) -> Array:
    """What each row counts where rows of a cluster share what one counts, beside a new one: (n,)."""
    _, own, sizes = np.unique(clusters, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / (sizes[own] * (len(sizes) + 1.0)))


def plus(predictions: Array, residuals: Array, coverage: float, shares: Array | None = None) -> Array:
    """Bounds of the jackknife+, (m, …, 2): predictions (m, n, …) without each row, residuals (n, …)."""
    low = -_smallest(-(predictions - residuals), coverage, shares)
    return np.stack([low, _smallest(predictions + residuals, coverage, shares)], axis=-1)


def _minmax(predictions: Array, residuals: Array, coverage: float, shares: Array | None) -> Array:
    margin = _smallest(residuals[None], coverage, shares)
    low, high = (end(predictions, axis=1) for end in (np.min, np.max))  # nan where some fit is not known
    ends = (low - margin, -np.inf), (high + margin, np.inf)
    return np.stack([np.where(np.isnan(end), unknown, end) for end, unknown in ends], axis=-1)


_BOUNDS = {"plus": plus, "minmax": _minmax}


def _smallest(values: Array, coverage: float, shares: Array | None = None) -> Array:
    """The ⌈coverage (n + 1)⌉-th smallest of n values along the second axis, infinite beyond the last.

    Or, with a share of each, the first that together with what is smaller has so much.  Values that are not
    known count as infinite.
    """
    values = np.where(np.isnan(values), np.inf, values)
    if shares is not None:
        return _first_with(values, coverage, shares)
    n = values.shape[1]
    position = int(np.ceil(coverage * (n + 1) - 1e-9)) - 1
    if position >= n:
        return np.full((values.shape[0], *values.shape[2:]), np.inf)
    return np.partition(values, position, axis=1)[:, position]


def _first_with(values: Array, coverage: float, shares: Array) -> Array:
    order = np.argsort(values, axis=1)
    enough = np.cumsum(shares[order], axis=1) >= coverage - 1e-9
    first = np.take_along_axis(order, enough.argmax(axis=1)[:, None], axis=1)
    found = np.take_along_axis(values, first, axis=1)[:, 0]
    return np.where(enough[:, -1], found, np.inf)
