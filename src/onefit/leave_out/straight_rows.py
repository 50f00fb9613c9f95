"""Rows of a loss of straight pieces: the piece or the kink of each, and what its dual may be there."""

from __future__ import annotations

import numpy as np

from onefit._typing import Array, Index, Mask
from onefit.fit import Fit


def interval_of_duals(fit: Fit) -> tuple[Array, Array]:
    """Slopes of the pieces that adjoin the kink nearest to each row: (n,) each."""
    return _two_of(fit.slopes, np.abs(fit.kinks - fit.eta[:, None]).argmin(axis=1))


def ends_of_pieces(fit: Fit) -> tuple[Array, Array]:
    """Ends of the piece that each row is on, by its slope: (n,) each."""
    edge = np.full(len(fit.eta), np.inf)
    ends = np.column_stack([-edge, fit.kinks, edge])
    return _two_of(ends, np.abs(fit.slopes - fit.gradient[:, None]).argmin(axis=1))


def corners_of(fit: Fit) -> Array:
    """Corners of the losses of all rows between an infinite one on either side: (n, q + 2)."""
    found = np.pad(fit.kinks, [(0, 0), (1, 1)], constant_values=np.inf)
    found[:, 0] = -np.inf
    found[fit.problem.weights == 0, 1:] = np.inf
    return found


def _two_of(values: Array, first: Index) -> tuple[Array, Array]:
    """Two neighbours in each row of a matrix."""
    rows = np.arange(len(values))
    return values[rows, first], values[rows, first + 1]


def strictly_held(dual: Array, least: Array, most: Array, on_kink: Mask, tie: float) -> Mask:
    """Problems, along the last axis, in which rows on kinks hold the intercept beside given coefficients.

    Where it rises the objective does by what their duals are below the largest slopes, and where it falls by
    what they are above the least.
    """
    up, down = on_kink & (dual < most - tie), on_kink & (dual > least + tie)
    return np.asarray(up.any(axis=0) & down.any(axis=0))
