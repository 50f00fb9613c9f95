"""Proximal Newton steps: they find the pattern of a penalty by the second derivatives of the loss.

The loss is replaced by a parabola, and going far costs a little:

    min over β, b   Σ (g_i e_i + ½ d_i e_i²) + ½ Σ r_j β_j² + P(β) + ½ μ ‖β − β_k‖²

with e = X (β − β_k) + b − b_k, r the ℓ2 part of the penalty and P the rest.  Its dual is smooth and has a
variable v_i a row, u = g + D^½ v: with β(v) = prox_tP(β_k − t (Xᵀu + R β_k)) and 1/t = μ + max r its gradient
is v − D^½ e, less its part along D^½ 1 where there is an intercept.  The derivative of the proximal operator
is that of the piece it leads to, B (C + I/t)⁻¹ Bᵀ, so that Newton steps in v take the factor of
K = Zᵀ D Z + C + I/t and no more (Li, Sun and Toh 2018: semismooth Newton steps in the dual of the proximal
point algorithm).  How many there are does not depend on the condition of the columns, as it does for proximal
gradient steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array
from onefit.curvature import factor
from onefit.fit import Fit
from onefit.numerics import TINY
from onefit.penalties import Penalty
from onefit.solvers.line_search import DECREASE, ROUNDING, backtrack

MOST_STEPS = 25  # in the dual
LOOSELY = 0.01  # error of a minimum, relative to how far it is: the parabola is no more right
HALVINGS = 20  # of a step in the dual


class ModelMinimum(NamedTuple):
    """About where the model has its minimum.

    Attributes
    ----------
    fit : Fit
    promised : float
        By how much the objective falls, as the model has it.
    steps : int
        Factors that it took.
    is_there : bool
        Whether that is the minimum; with too little damping there may be too many kinks on the way.
    """

    fit: Fit
    promised: float
    steps: int
    is_there: bool


class Damping(NamedTuple):
    """What going far costs in a model.

    Attributes
    ----------
    coef : float
        μ, positive.
    rows : float
        Second derivatives that rows have at least where they jump, as a share of the largest: with all of it
        no parabola is below the loss, but where many rows are straight steps are short.
    """

    coef: float
    rows: float = 1.0

    def times(self, factor: float) -> Damping:
        """Of both, as far as rows need any."""
        return Damping(self.coef * factor, min(1.0, self.rows * factor))


def model_minimum(fit: Fit, damping: Damping) -> ModelMinimum:
    """Minimise the model of an objective at a fit.

    Parameters
    ----------
    fit : Fit
        Of one output, a smooth loss and a penalty with a proximal operator.
    damping : Damping
    """
    model, steps, is_there = _Model(fit, damping), 0, False
    here = model.at(-model.root * (fit.gradient.sum() / model.total))  # the coefficients about stay
    while not is_there and steps < MOST_STEPS:
        is_there = bool(np.linalg.norm(here.left) <= LOOSELY * np.linalg.norm(model.root * here.change))
        ahead = None if is_there else model.step(here)
        is_there, here, steps = ahead is None, here if ahead is None else ahead, steps + 1
    moved = fit.moved(here.coef, fit.intercept + here.level)
    return ModelMinimum(moved, model.promised(here), steps, is_there)


class _DualPoint(NamedTuple):
    """Variables of the dual and what belongs to them."""

    v: Array  # (n,)
    value: float  # of the dual, to be minimised
    left: Array  # its gradient: (n,)
    coef: Array  # (p,)
    level: float  # change of the intercept
    change: Array  # of the linear predictors: (n,)
    subgradient: Array  # of P at the coefficients


@dataclass(frozen=True)
class _Model:
    """The model at a fit."""

    fit: Fit
    damping: Damping

    @cached_property
    def penalty(self) -> Penalty:
        """P."""
        return self.fit.problem.penalty.without_ridge()

    @cached_property
    def ridge(self) -> Array:
        """r: (p,)."""
        return self.fit.problem.penalty.ridge(self.fit.coef.shape)

    @cached_property
    def length(self) -> float:
        """Step size t of the proximal operator."""
        return 1.0 / (self.damping.coef + float(self.ridge.max(initial=0.0)))

    @cached_property
    def bend(self) -> Array:
        """D: (n,)."""
        return bend(self.fit, self.damping.rows)

    @cached_property
    def root(self) -> Array:
        """D^½: (n,)."""
        return np.sqrt(self.bend)

    @cached_property
    def total(self) -> float:
        """Σ d where there is an intercept, else infinite."""
        return max(float(self.bend.sum()), TINY) if self.fit.problem.intercept else np.inf

    def at(self, v: Array) -> _DualPoint:
        fit, X = self.fit, self.fit.problem.X
        u = fit.gradient + self.root * v
        ahead = fit.coef - self.length * (_linalg.transposed_times(X, u) + self.ridge * fit.coef)
        coef = self.penalty.prox(ahead, self.length)
        step = coef - fit.coef
        change = _linalg.times(X, step)
        value = float(u @ change + (self.ridge * fit.coef) @ step + 0.5 * (step @ step) / self.length)
        left = v - self.root * change
        level = float(self.root @ left) / self.total
        dual = 0.5 * float(v @ v) - value - self.penalty.value(coef)
        subgradient = (ahead - coef) / self.length
        return _DualPoint(v, dual, left - level * self.root, coef, level, change + level, subgradient)

    def step(self, here: _DualPoint) -> _DualPoint | None:
        """A Newton step, as long as it serves; None where none does."""
        piece = self.penalty.tangent(here.coef, -here.subgradient if self.penalty.turns else None)
        piece = piece.with_ridge(np.full(here.coef.shape, 1.0 / self.length), here.coef)
        model = self.fit.moved(self.fit.coef, self.fit.intercept).known(hessian=self.bend)
        bent = factor(model, piece).hat((self.root * here.left)[:, None])[:, 0]
        step = self.root * bent - here.left
        slope = float(here.left @ step)
        allowed = here.value + ROUNDING * abs(here.value)

        def falls(ahead: _DualPoint, length: float) -> bool:
            return ahead.value <= allowed + DECREASE * length * slope

        return backtrack(lambda length: self.at(here.v + length * step), falls, halvings=HALVINGS)

    def promised(self, there: _DualPoint) -> float:
        """By how much the objective falls, but for what going far costs."""
        fit, step = self.fit, there.coef - self.fit.coef
        loss = float(fit.gradient @ there.change + 0.5 * self.bend @ there.change**2)
        ridge = float((self.ridge * fit.coef) @ step + 0.5 * self.ridge @ step**2)
        return self.penalty.value(fit.coef) - self.penalty.value(there.coef) - loss - ridge


def bend(fit: Fit, share: float = 1.0) -> Array:
    """Second derivatives of the rows; where they jump, at least ``share`` of a squared hinge's, 2: (n,)."""
    problem = fit.problem
    return np.maximum(fit.hessian, problem.weights * (0.0 if problem.loss.is_smooth else 2.0 * share))
