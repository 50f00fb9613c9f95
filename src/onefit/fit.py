"""A problem and the coefficients that are meant to solve it, whoever computed them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from typing import Any, Self, TypeVar

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.losses.base import Bending, CoupledLoss
from onefit.losses.composed import straight_part
from onefit.losses.piecewise import PiecewiseLinear
from onefit.penalties import Tangent
from onefit.problem import Problem

T = TypeVar("T")

ON_KINK = 1e-7  # distance from a kink of the loss, relative to 1 + |η|, that is none


@dataclass(frozen=True)
class Fit:
    """A problem and coefficients that are meant to solve it.

    Attributes
    ----------
    problem : Problem
    coef : (p,) or (p, c) array
        For a RowGram the dual coefficients, (n,) or (n, c).
    intercept : array of shape () or (c,)
        Intercepts, zero where there is none.
    """

    problem: Problem
    coef: Array
    intercept: Array

    @classmethod
    def at_start(cls, problem: Problem) -> Fit:
        """Return the constant model that solvers start from."""
        intercept = np.where(problem.intercept, problem.loss.start(problem.y, problem.weights), 0.0)
        eta = np.broadcast_to(intercept, (problem.n, *problem.outputs)).copy()
        return cls(problem, np.zeros(problem.coef_shape), intercept).known(eta=eta)

    @cached_property
    def eta(self) -> Array:
        """Linear predictor of each row: (n,) or (n, c)."""
        return self.problem.linear_predictor(self.coef, self.intercept)

    @property
    def size_of_predictors(self) -> float:
        """1 + max |η|, beside which changes of the linear predictors are measured."""
        return 1.0 + float(np.abs(self.eta).max(initial=0.0))

    @cached_property
    def pinned(self) -> Mask:
        """Rows that sit on a kink of their loss: the shape of ``eta``, (n,) of a loss without any.

        Solvers say which; for others it is told by η.
        """
        problem = self.problem
        straight = straight_part(problem.loss)
        if straight is None:
            return np.zeros(problem.n, dtype=bool)
        kinks = straight.kinks(problem.y.ravel())
        distance = np.abs(self.eta.reshape(-1, 1) - kinks).min(axis=1).reshape(self.eta.shape)
        near: Mask = distance <= ON_KINK * (1.0 + np.abs(self.eta))
        return near & _linalg.with_axes(problem.weights > 0, self.eta)

    @cached_property
    def gradient(self) -> Array:
        """g_i = w_i ∂ℓ/∂η: the shape of ``eta``.

        On a kink of the loss it is the dual variable, which solvers know.
        """
        return self.problem.per_row(self.problem.loss.gradient(self.problem.y, self.eta))

    @cached_property
    def hessian(self) -> Array:
        """d_i = w_i ∂²ℓ/∂η²: the shape of ``eta``, or (n, c, c) for a coupled loss."""
        return self.problem.per_row(self.problem.loss.hessian(self.problem.y, self.eta))

    @property
    def kinks(self) -> Array:
        """Where the pieces of each row's loss, which are straight, meet: (n, q)."""
        loss = self.problem.loss
        assert isinstance(loss, PiecewiseLinear)
        return loss.kinks(self.problem.y)

    @cached_property
    def slopes(self) -> Array:
        """Weighted slopes of these pieces: (n, q + 1)."""
        loss = self.problem.loss
        assert isinstance(loss, PiecewiseLinear)
        return loss.slopes(self.problem.y) * self.problem.weights[:, None]

    @cached_property
    def tangent(self) -> Tangent:
        """Smooth piece of the penalty through the coefficients."""
        penalty = self.problem.penalty
        return penalty.tangent(self.coef, self.loss_gradient if penalty.turns else None)

    @property
    def curvature_shrink(self) -> float:
        """Factor on the penalty's curvature when one of the rows leaves, 1 where the penalty is straight."""
        return self.problem.usual_shrink if self.tangent.is_curved else 1.0

    @cached_property
    def is_kinked(self) -> bool:
        """Whether the penalty has kinks, which make an active pattern."""
        return self.problem.penalty.has_kinks(self.coef.shape)

    @property
    def is_smooth(self) -> bool:
        """Whether loss and penalty have neither kinks nor jumps, so that no pattern can change."""
        return not self.is_kinked and self.problem.loss.is_smooth

    @property
    def strengths(self) -> tuple[Array, Array]:
        """ℓ1 and ℓ2 strengths of a penalty that treats every coefficient on its own: each of their shape."""
        return self.problem.separable.strengths(self.coef.shape)

    @cached_property
    def has_free_directions(self) -> bool:
        """Whether a direction has no penalty: it may lose its only row, and refits then start from zero."""
        return self.problem.penalty.has_free_directions(self.coef.shape)

    @cached_property
    def loss_gradient(self) -> Array:
        """Xᵀ g: the shape of the coefficients."""
        return self.problem.coef_of_losses(_linalg.transposed_times(self.problem.X, self.gradient))

    @property
    def free_gradient(self) -> Array:
        """Of the objective, along the free directions of the penalty: the shape of the coefficients."""
        return self.tangent.part_along(self.loss_gradient + self.tangent.gradient)

    @cached_property
    def intercept_gradient(self) -> Array:
        """Σ g for each intercept, zero where there is none."""
        return self.problem.levels_of_losses(self.problem.levels_of(self.gradient))

    def bent(self, change: Array) -> Array:
        """D times a change of the linear predictors: how the gradients of the rows change with it."""
        return _linalg.row_times(self.hessian, change) if self.bending is None else self.bending(change)

    @cached_property
    def bending(self) -> Bending | None:
        """D of coupled outputs, without a matrix for each row where there need not be one; None of others."""
        loss, y = self.problem.loss, self.problem.y
        if not isinstance(loss, CoupledLoss):
            return None
        return loss.bending(y, self.eta).weighted(self.problem.weights)

    @cached_property
    def saturation(self) -> float:
        """Share of the rows that bend which the free coordinates take up: 1 where there is none to spare.

        As many count as (Σ d)² / Σ d²: hardly any of the rows of a model that separates classes bend.
        """
        bends = _linalg.row_diagonals(self.hessian).reshape(self.problem.n, -1).mean(axis=1)
        most = float(np.max(np.abs(bends), initial=0.0))
        if most == 0.0:
            return 1.0
        bends = bends / most
        rows = float(bends.sum()) ** 2 / float(bends @ bends)
        return min(1.0, self.tangent.size / (rows * self.problem.n_coupled))

    @cached_property
    def objective(self) -> float:
        """Σ w ℓ + P."""
        return self.problem.objective(self.coef, self.eta)

    def of_rows(self, rows: Index) -> Fit:
        """Return the fit of a few rows, where the others have neither gradient nor curvature."""
        problem = self.problem
        few = replace(
            problem, X=_linalg.some_rows(problem.X, rows), y=problem.y[rows], weights=problem.weights[rows]
        )
        coef = self.coef if _linalg.has_columns(problem.X) else self.coef[rows]
        known = {"eta": self.eta[rows], "gradient": self.gradient[rows], "pinned": self.pinned[rows]}
        return Fit(few, coef, self.intercept).known(**known)

    @cached_property
    def apart(self) -> list[Fit]:
        """The fit of each of several outputs that nothing ties together."""
        own = [self.problem.of_output(k) for k in range(self.problem.n_outputs)]
        fits = zip(own, self.coef.T, self.intercept, strict=True)
        return [Fit(problem, coef.copy(), level) for problem, coef, level in fits]

    def known(self, **values: Any) -> Self:
        """Take values of ``eta`` and the like that a solver has at hand, instead of computing them."""
        self.__dict__.update(values)
        return self

    def at_hand(self, *names: str) -> dict[str, Any]:
        """Those of some values by name that are known without computing them."""
        return {name: vars(self)[name] for name in names if name in vars(self)}

    def moved(self, coef: Array, intercept: Array) -> Fit:
        """Return the same problem at other coefficients."""
        return Fit(self.problem, coef, intercept)


def once(read: Callable[[Fit], T]) -> Callable[[Fit], T]:
    """Have what depends on a fit alone told once, and kept with the fit."""
    name = f"{read.__module__}.{read.__qualname__}"

    @wraps(read)
    def kept(fit: Fit) -> T:
        known: dict[str, Any] = fit.__dict__
        if name not in known:
            known[name] = read(fit)
        found: T = known[name]
        return found

    return kept
