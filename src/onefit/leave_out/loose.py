"""Intercepts that a loss of straight pieces leaves open, so that a refit has several optima.

With the coefficients as they are the objective is convex and straight in pieces as a function of the
intercept.  Where no row sits strictly inside a corner it has a flat bottom, and every intercept there is as
good.  libsvm then takes the middle one; so do we, and the bound reaches to the ends.
"""

from __future__ import annotations

import numpy as np

from onefit._typing import Array, Mask
from onefit.fit import Fit
from onefit.losses import PiecewiseLinear
from onefit.numerics import CERTIFIED, TINY

FLAT = 1e-8  # slope, relative to those of all rows together, that is none


def room_of_intercept(fit: Fit) -> tuple[float, float]:
    """How far the intercept may move down and up at no cost: both 0 where something holds it."""
    problem, loss = fit.problem, fit.problem.loss
    if not isinstance(loss, PiecewiseLinear) or problem.intercept.ndim or not problem.intercept:
        return 0.0, 0.0
    held = problem.weights > 0
    slopes = (problem.weights[:, None] * loss.slopes(problem.y))[held]
    if not np.isfinite(slopes).all():
        return 0.0, 0.0
    until = (loss.kinks(problem.y) - fit.eta[:, None])[held].ravel()
    order = np.argsort(until)
    pull = slopes[:, 0].sum() + np.cumsum(np.diff(slopes, axis=1).ravel()[order])  # after each kink
    flat = FLAT * float(np.abs(slopes).max(axis=1).sum())
    ends = until[order]
    low, high = ends[np.argmax(pull >= -flat)], ends[np.argmax(pull > flat)]
    size = float(np.abs(fit.eta).max(initial=0.0)) + TINY
    if not high - low > CERTIFIED * size:
        return 0.0, 0.0
    return max(-float(low), 0.0), max(float(high), 0.0)


def with_middle_intercept(fit: Fit) -> Fit:
    """The fit itself, or as good a one with the intercept in the middle of what it may be."""
    down, up = room_of_intercept(fit)
    if down == up:
        return fit
    by = 0.5 * (up - down)
    moved = fit.moved(fit.coef, fit.intercept + by)
    return moved.known(eta=fit.eta + by, gradient=fit.gradient, pinned=np.zeros_like(fit.pinned))


def strictly_held(dual: Array, least: Array, most: Array, in_corner: Mask, tie: float) -> Mask:
    """Problems, along the last axis, in which a row strictly inside its corner holds the intercept."""
    inside = in_corner & (dual > least + tie) & (dual < most - tie)
    return np.asarray(inside.any(axis=0))
