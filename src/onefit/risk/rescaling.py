"""What a refit changes besides dropping a row: penalties that shrink with the rows, balanced weights."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array
from onefit.curvature import Curvature, Direction, factor
from onefit.fit import Fit
from onefit.problem import Reweighed


class Rescaling(NamedTuple):
    """Refits move by Σ_t amounts_ti · directions_t, whatever else row i does.

    Attributes
    ----------
    growth : (n,) array
        By how much the weight of row i would have grown: its whole slope leaves, grown.
    directions : list of Direction
        Minus K⁻¹ times gradients of what refits add to the objective.
    amounts : (t, n) array
        How much of each a refit without row i adds.
    """

    growth: Array
    directions: list[Direction]
    amounts: Array

    def shift(self, curvature: Curvature, fit: Fit) -> Array:
        """s_i, the change of each row's own predictor: the shape of ``eta``."""
        shift = np.zeros_like(fit.eta)
        for direction, amount in zip(self.directions, self.amounts, strict=True):
            shift += (curvature.predict(direction).T * amount).T
        return shift


def curvature_of_refits(fit: Fit, curvature: Curvature | None = None) -> Curvature:
    """K of the fit, with the penalty as weak as in a refit where that shrinks it."""
    if fit.problem.usual_shrink < 1.0 and fit.tangent.is_curved:
        return factor(fit, shrink=fit.problem.usual_shrink)
    return factor(fit) if curvature is None else curvature


def _gradient(fit: Fit, part: Reweighed) -> Direction:
    """Gradient of a part of the objective."""
    if part.rows is None:
        return Direction(fit.tangent.gradient, np.zeros_like(fit.intercept))
    slope = (fit.gradient.T * part.rows).T
    return Direction(
        np.where(fit.tangent.support, _linalg.transposed_times(fit.problem.X, slope), 0.0),
        np.where(fit.problem.intercept, slope.sum(axis=0), 0.0),
    )


def rescaling(fit: Fit, curvature: Curvature) -> Rescaling:
    """Read off the problem what its refits rescale."""
    problem = fit.problem
    growth = np.zeros(problem.n)
    directions, amounts = [], []
    for part in problem.reweighed():
        directions.append(curvature.solve(_gradient(fit, part)))
        amounts.append(-part.changes)
        if part.rows is not None:
            growth[part.rows] = part.changes[part.rows]
    return Rescaling(growth, directions, np.array(amounts).reshape(len(directions), problem.n))
