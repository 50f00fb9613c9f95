"""What a refit changes besides dropping rows: penalties that shrink with the rows, balanced weights."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.curvature import Curvature, Direction, by_products, factor
from onefit.fit import Fit
from onefit.leave_out.sets import Folds


class Spread(NamedTuple):
    """Between which factors the Hessian of each left-out problem lies, beside that of the step: (f,) each."""

    low: Array
    high: Array

    def of(self, which: Index) -> Spread:
        """That of some of them."""
        return Spread(self.low[which], self.high[which])

    @property
    def off(self) -> Array:
        """Largest relative error of the Hessian of the step: (f,)."""
        return np.maximum(self.high - 1.0, 1.0 - self.low)


@dataclass(frozen=True, eq=False)
class Rescaling:
    """Refits move by Σ_t amounts_tk · directions_t, whatever else set k does.

    Attributes
    ----------
    shares : (f,) array
        Share of the weights that leaves with each set, 0 where the penalty does not shrink with the rows.
    growth : (f, c) array
        By how much the weights of each class grow without each set.
    classes : (c, n) bool array
        Rows of each class.
    shrink : float
        Factor on the penalty's curvature in K.
    gradients, directions : tuples of Direction
        What refits take off the gradient, and K⁻¹ times that.
    amounts : (t, f) array
        How much of each a refit takes off.
    """

    fit: Fit
    shares: Array
    growth: Array
    classes: Mask
    shrink: float
    gradients: tuple[Direction, ...]
    directions: tuple[Direction, ...]
    amounts: Array

    def shift(self, curvature: Curvature) -> Array:
        """s_i, the change of each row's own predictor when it leaves alone: the shape of ``eta``."""
        shift = np.zeros_like(self.fit.eta)
        for direction, amount in zip(self.directions, self.amounts, strict=True):
            shift += _linalg.row_times(amount, curvature.predict(direction))
        return shift

    def own_growth(self) -> Array:
        """By how much the weight of each row would have grown when it leaves alone: (n,)."""
        return np.asarray(np.einsum("nc,cn->n", self.growth, self.classes))

    def growth_of(self, which: Index, rows: Index) -> Array:
        """By how much the weights of some rows (f, b) would have grown without their sets: (f, b)."""
        return np.asarray(np.einsum("fc,cfb->fb", self.growth[which], self.classes[:, rows]))

    @cached_property
    def squares(self) -> Array:
        """Squared norm, in K⁻¹, of what is taken off the gradient of each refit: (f,)."""
        problem, t = self.fit.problem, len(self.gradients)
        products = np.array([b.inner(problem, a) for a in self.gradients for b in self.directions]).reshape(
            t, t
        )
        return np.einsum("tf,ts,sf->f", self.amounts, products, self.amounts)

    @cached_property
    def spread(self) -> Spread:
        """How far the Hessians of the refits are from that of the step, beside the rows that leave."""
        kept = (1.0 - self.shares) / self.shrink if self.fit.tangent.is_curved else np.ones(len(self.shares))
        low, high = np.minimum(kept, 1.0), np.maximum(kept, 1.0)
        least, most = self.growth.min(axis=1, initial=0.0), self.growth.max(axis=1, initial=0.0)
        return Spread(np.minimum(low, 1.0 + least), np.maximum(high, 1.0 + most))


def curvature_of_refits(fit: Fit, curvature: Curvature | None = None, *, probes: int = 0) -> Curvature:
    """K of the fit, with the penalty as weak as in a refit where that shrinks it.

    With some ``probes`` for its forms, a factor that takes far longer than these is not made.
    """
    shrink = fit.curvature_shrink
    if shrink < 1.0 or curvature is None:
        curvature = factor(fit, shrink=shrink)
    return by_products(fit, curvature, shrink, probes) if probes else curvature


def rescaling(
    fit: Fit, curvature: Curvature, sets: Folds | None = None, shrink: float | None = None
) -> Rescaling:
    """Read off the problem what its refits without each row, or each set, rescale.

    Parameters
    ----------
    fit, curvature
        ``curvature`` is that of refits.
    sets : Folds, optional
        Every row alone if missing.
    shrink : float, optional
        Factor on the penalty's curvature in K, if not the usual one.
    """
    problem = fit.problem
    f = problem.n if sets is None else len(sets)
    shares, growth, classes = np.zeros(f), list[Array](), list[Mask]()
    gradients, amounts = list[Direction](), list[Array]()
    for part in problem.reweighed(None if sets is None else sets.removed):
        if part.rows is None:  # the penalty
            shares = -part.changes
            gradient = Direction(fit.tangent.gradient, np.zeros_like(fit.intercept))
        else:
            growth.append(part.changes)
            classes.append(part.rows)
            own = problem.gradient_of(_linalg.row_times(part.rows, fit.gradient))
            coef, level = problem.of_losses(*own)
            gradient = Direction(np.where(fit.tangent.support, coef, 0.0), level)
        gradients.append(gradient)
        amounts.append(-part.changes)
    return Rescaling(
        fit,
        shares,
        np.array(growth).reshape(len(growth), f).T,
        np.array(classes, dtype=bool).reshape(len(classes), problem.n),
        problem.usual_shrink if shrink is None else shrink,
        tuple(gradients),
        tuple(curvature.solve(gradient) for gradient in gradients),
        np.array(amounts).reshape(len(gradients), f),
    )
