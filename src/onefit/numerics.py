"""Tolerances, each with its reason: multiples of the rounding unit, or of the condition of what is solved."""

from __future__ import annotations

import numpy as np

from onefit._typing import Array

EPS = float(np.finfo(np.float64).eps)
NOISE = 500.0  # rounding units that a squared pivot must have, relative to the diagonal it came from
EPS_SINGLE = float(np.finfo(np.float32).eps)
TINY = float(np.finfo(np.float64).tiny)

# A left-out predictor is "certified" when its bound is below this share of the size of predictors: what
# refits by another solver at full precision agree to.
CERTIFIED = 1e-6

# Below this share of the size of predictors rounding is in no bound: risks of nothing would be beside it.
ROUNDED = 1e-12

# A risk is "exact" when it is known to this share of itself.
EXACT = 1e-5

# Nothing finer than this share of a risk is claimed without a proof, or than what it has to be known to: what
# few rows carry may never be drawn, and iterations may end beside an optimum.
RESOLUTION = 1e-3

# A row is "flagged" when its prediction may be off by more than this share of the spread of the responses: 1
# of probabilities, 2 between margins.
FLAGGED = 0.01

# Largest exponent whose exponential is a number that can still be multiplied.
LARGEST_EXPONENT = 300.0

# Slack 1 − d h below which rounding in h shows: √eps, and a factor for the size of K.
LEAST_SLACK = 1e-6

# Slack below which a row all but determines its own fit: one step may be far off where nothing checks it,
# and a changed sign tells.
LITTLE_SLACK = 0.2


# Relative distance of a correlation, a slope or a dual from the end of what its kink can hold that is none:
# fits are solved to a thousandth of it, and copies of an active column sit on the bound but for rounding.
ON_BOUND = 1e-8

# Share of a level that values have in common beside which the distances between them are no longer seen: a
# hundred thousand times what rounding is, where ties are told by ``ON_BOUND`` of the result.
OF_LEVEL = 1e-3

# Distance from the ends of a kink, relative to the largest slope, to which duals are moved where they may be
# anywhere: far from what is none, and near enough for many of them to have it together.
INSIDE = 1e-4

# Distance of a coefficient from a kink of its penalty that is none: in what it does to linear predictors,
# relative to the largest that one does.
SNAP = 1e-11


def rounding_of_slack(condition: float) -> float:
    """Error of 1 − d h, and of what is divided by it, from a factor of this condition.

    A Cholesky factor solves to about eps times the condition of its matrix, scaled to a unit diagonal
    (Higham 2002, Theorem 10.4); ten of those are allowed for the products around it.
    """
    return 10.0 * EPS * condition


def length_of(squares: Array | float) -> Array:
    """Length, from its square as a product: what rounding made negative is known to its size."""
    return np.asarray(np.sqrt(np.abs(squares)))


def spread(values: Array) -> float:
    """How far values are from their middle, or a share of the largest: what is small beside them.

    A level that all of them have in common, which an intercept takes up, makes nothing small.
    """
    if values.size == 0:
        return 0.0
    return float(max(0.5 * np.ptp(values), OF_LEVEL * np.abs(values).max()))


def size_of_kinks(kinks: Array) -> float:
    """What rounding in linear predictors beside kinks is relative to: the spread of those with an end."""
    return spread(kinks[np.isfinite(kinks)]) or 1.0


def size_of_duals(duals: Array, widest: float, moving: float) -> float:
    """What rounding in the duals of a loss with kinks is relative to.

    Their largest, at least ``moving``, which moves linear predictors by as much as their kinks are; beside
    a weak penalty both are far smaller than the ``widest`` interval that duals may be in.
    """
    return min(max(float(np.abs(duals).max(initial=0.0)), moving), widest)


# Of intervals around what a sample tells, and of sets that cannot be told from the best.
CONFIDENCE = 0.95

# Standard errors of a risk: to which it is known unless something else is asked for, by which it may be off
# before users are warned.
KNOWN = 0.1
UNRELIABLE = 0.5


def resolution(risk: float, standard_error: float) -> float:
    """The finest error that is claimed of a risk without a proof."""
    return min(RESOLUTION * abs(risk), KNOWN * standard_error)
