"""Rows on straight pieces of their loss: the piece or kink of each, its dual there, and which may move."""

from __future__ import annotations

from typing import Any

import numpy as np

from onefit._typing import Array, Index, Mask
from onefit.fit import Fit
from onefit.leave_out.optima import SAME
from onefit.losses import PiecewiseLinear
from onefit.numerics import ON_BOUND, TINY
from onefit.solvers.kinks import size_of_duals


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


def held_rows(fit: Fit, own: Any = slice(None)) -> Mask:
    """Rows whose predictor is the same in all optima: (n,)."""
    held: Mask = fit.problem.weights > 0
    if fit.problem.loss.jumps:  # straight rows may move
        held = held & bends(fit)[own].all(axis=1)
    if isinstance(fit.problem.loss, PiecewiseLinear):
        least, most = interval_of_duals(fit)
        tie = ON_BOUND * size_of_duals(fit)
        held = fit.pinned & (fit.gradient > least + tie) & (fit.gradient < most - tie)
    return held


def bends(fit: Fit) -> Mask:
    """Whether the loss of each row curves a little below its predictor, there, and a little above.

    The shape of ``eta``, and one more axis; none of coupled outputs, of which that is not known.
    """
    if fit.problem.is_coupled:
        return np.zeros((*fit.eta.shape, 3), dtype=bool)
    return np.asarray(fit.problem.loss_at("hessian", around(fit)) > 0)


def around(fit: Fit) -> Array:
    """A little below each predictor, the predictor, and a little above."""
    little = SAME * float(np.abs(fit.eta).max(initial=0.0)) + TINY
    return np.stack([fit.eta - little, fit.eta, fit.eta + little], axis=-1)
