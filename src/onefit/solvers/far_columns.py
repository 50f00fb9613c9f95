"""Columns that lie far from zero beside their spread, less their means: the intercept takes these up.

Sums of products lose the digits that the means take, twice over, and the duals of straight pieces with them.
Where the curvature of the rows tells all, means are taken off in its factor instead (``curvature``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array
from onefit.fit import Fit
from onefit.problem import Problem

ROUNDING = 1e-12  # of a mean: spreads below are those of columns that are constant
FAR = 100.0  # spreads from zero: a product of such columns has four digits less


def near_zero(start: Fit, minimise: Callable[[Fit], Fit]) -> Fit:
    """Minimise in columns near zero, and return the fit of the problem as it is.

    Parameters
    ----------
    start : Fit
    minimise : callable
        Takes a start to a minimum.
    """
    near = in_columns_near_zero(start)
    if near.fit is start:
        return minimise(start)
    found = minimise(near.fit)
    return _beside(found, start.problem, found.intercept - near.means @ found.coef)


class NearZero(NamedTuple):
    """A fit in columns near zero, and what was taken off them."""

    fit: Fit
    means: Array  # (p,)


def in_columns_near_zero(fit: Fit) -> NearZero:
    """The same fit in columns near zero; itself where none is far."""
    means, problem = _means_of_far(fit.problem), fit.problem
    if means is None:
        return NearZero(fit, np.zeros(problem.X.shape[1]))
    near, shift = _linalg.as_columns(problem.X).near_zero(means)
    own = _beside(fit, replace(problem, X=near.X), fit.intercept + shift @ fit.coef)
    return NearZero(own if shift.any() else fit, shift)


def _beside(fit: Fit, problem: Problem, level: Array) -> Fit:
    """The same linear predictors in other columns, with what is known of them."""
    known = fit.at_hand("gradient", "pinned")
    return Fit(problem, fit.coef, np.asarray(level)).known(eta=fit.eta, **known)


def _means_of_far(problem: Problem) -> Array | None:
    """Means of the columns that are far from zero, 0 for others: (p,); None where there are none."""
    X = problem.X
    if not _linalg.has_columns(X) or not np.all(problem.intercept):
        return None
    means = _linalg.column_means(X, problem.weights)
    spreads = _linalg.column_norms(X, problem.weights, centred=True) / np.sqrt(problem.weights.sum())
    far = (np.abs(means) > FAR * spreads) & (spreads > ROUNDING * np.abs(means))  # not constant
    return np.where(far, means, 0.0) if far.any() else None
