"""What a refit changes besides dropping a row: penalties that shrink with the rows, balanced weights."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array
from onefit.curvature import Curvature, Direction, factor
from onefit.fit import Fit


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
    if fit.problem.mean_scaled and fit.tangent.is_curved:
        return factor(fit, shrink=fit.problem.usual_shrink)
    return factor(fit) if curvature is None else curvature


def rescaling(fit: Fit, curvature: Curvature) -> Rescaling:
    """Read off the problem what its refits rescale."""
    problem = fit.problem
    growth = np.zeros(problem.n)
    directions, amounts = [], []
    if problem.mean_scaled:  # the penalty shrinks by w_i / Σw
        directions.append(curvature.solve(Direction(fit.tangent.gradient, np.zeros_like(fit.intercept))))
        amounts.append(problem.weights / problem.weights.sum())
    n_classes = 0 if problem.balance is None else int(problem.balance.classes.max()) + 1
    for k in range(n_classes):
        assert problem.balance is not None
        own = problem.balance.classes == k
        change = problem.balance.growth(k)
        growth[own] = change[own]
        slope = (fit.gradient.T * own).T
        gradient = Direction(
            np.where(fit.tangent.support, _linalg.transposed_times(problem.X, slope), 0.0),
            np.where(problem.intercept, slope.sum(axis=0), 0.0),
        )
        directions.append(curvature.solve(gradient))
        amounts.append(-change)
    return Rescaling(growth, directions, np.array(amounts).reshape(len(directions), problem.n))
