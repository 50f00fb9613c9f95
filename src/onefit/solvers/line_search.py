"""Backtracking, for all solvers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from onefit._typing import Array, Index
from onefit.curvature import Direction
from onefit.fit import Fit
from onefit.numerics import TINY

Point = TypeVar("Point")
HALVINGS = 60  # after which a step has no length
MANY_HALVINGS = 25  # the same for one of several problems: others wait
DECREASE = 1e-4  # share of what a quadratic model promises that a step must bring
CALM = 0.69  # R times the move of a row up to which a full step always descends: Hessians at most double
ROUNDING = 1e-12  # of an objective, relative to it


def backtrack(
    at: Callable[[float], Point],
    serves: Callable[[Point, float], bool],
    *,
    halvings: int = HALVINGS,
) -> Point | None:
    """Halve the length of a step until the point it leads to serves.

    Parameters
    ----------
    at : callable
        From a length to the point there; it may overflow.
    serves : callable
        Whether a point, reached with a length, is good enough.
    halvings : int
        Most lengths to try, from 1 on.

    Returns
    -------
    point, or None if none serves
    """
    length = 1.0
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for _ in range(halvings):
            point = at(length)
            if serves(point, length):
                return point
            length *= 0.5
    return None


def as_low_as(fit: Fit) -> float:
    """The largest objective that is not above that of a fit, but for rounding."""
    return fit.objective + ROUNDING * abs(fit.objective)


def falls_along(
    fit: Fit,
    at: Callable[[float], Fit],
    promised: float,
    *,
    share: float = DECREASE,
    halvings: int = HALVINGS,
) -> Fit | None:
    """Halve a step until the objective falls by a share of what its whole length promises, but for rounding.

    None where no length brings that; ``at`` is as in ``backtrack``.
    """
    allowed = as_low_as(fit)
    return backtrack(
        at, lambda there, length: there.objective <= allowed - share * length * promised, halvings=halvings
    )


def to_first_zero(fit: Fit, change: Direction, until: Array) -> Fit:
    """Go along a change to the first zero of a coefficient, which are at lengths ``until``."""
    first = np.unravel_index(np.argmin(until), until.shape)
    coef = fit.coef + until[first] * change.coef
    coef[first] = 0.0
    return fit.moved(coef, fit.intercept + until[first] * change.intercept)


def falling(objective: Callable[[Index, Array], Array], m: int) -> Array:
    """Halve the steps of several problems along which their objectives do not fall.

    Parameters
    ----------
    objective : callable
        Objectives of some problems, by their numbers, at some lengths of their steps.
    m : int
        Problems.

    Returns
    -------
    (m,) array
        Lengths, 0 where none is short enough.
    """
    lengths, todo = np.ones(m), np.arange(m)
    here = objective(todo, np.zeros(m))
    allowed = here + ROUNDING * np.abs(here) + TINY
    for _ in range(MANY_HALVINGS):
        todo = todo[~(objective(todo, lengths[todo]) <= allowed[todo])]
        if todo.size == 0:
            break
        lengths[todo] *= 0.5
    lengths[todo] = 0.0
    return lengths


def toward(fit: Fit, target: Fit) -> Fit:
    """Go to a target that a convex model has there, or as far on the way as the objective does not rise."""
    coef, level = target.coef - fit.coef, target.intercept - fit.intercept

    def at(length: float) -> Fit:
        if length == 1.0:
            return fit.moved(target.coef, target.intercept)
        return fit.moved(fit.coef + length * coef, fit.intercept + length * level)

    return falls_along(fit, at, 0.0) or fit
