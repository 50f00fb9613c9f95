"""Logistic regressions with the same features, solved in step with each other by truncated Newton steps.

A product with the features serves all of them, while each has its own conjugate gradients and goes its own
way along its direction: the longest step that suits all would be a short one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from scipy.special import expit
from torch import Tensor

from onefit import _linalg
from onefit._typing import Array
from onefit.exceptions import SolverError
from onefit.torch.numerics.backtracking import backtracked
from onefit.torch.numerics.conjugate import conjugate_each

Solve: TypeAlias = Callable[[Array], Array]

STEPS, PRODUCTS = 50, 100  # Newton steps, and products with K in each, at most
ROUGHLY = 0.3  # error of the first steps, relative to the gradient
STALE = 12  # products of a step from which on a preconditioner of the present fit pays
FALLING = 0.25  # of a decrement that the next one must be, near the end


@dataclass(frozen=True, eq=False)
class Regressions:
    """Σ_i w_i ℓ(y_i, x_iᵀβ + b) + ½ α ‖β‖², for each column of y, with the intercept as the last coefficient.

    Attributes
    ----------
    X : (n, p) array
    targets : (n, c) array
        0 and 1.
    weights : (n,) array
    alpha : float
    """

    X: Array
    targets: Array
    weights: Array
    alpha: float

    def predictors(self, theta: Array) -> Array:
        """Linear predictors (n, c) of coefficients (p + 1, c)."""
        return _linalg.product(self.X, theta[:-1]) + theta[-1]

    def transposed(self, rows: Array) -> Array:
        """[X, 1]ᵀ rows: (p + 1, c)."""
        return np.vstack([_linalg.product(self.X.T, rows), rows.sum(axis=0)])

    def bent(self, theta: Array) -> Array:
        """Gradient of the penalties at coefficients."""
        return self.alpha * np.vstack([theta[:-1], np.zeros_like(theta[-1:])])

    def at(self, theta: Array, eta: Array) -> HeadState:
        """Gradient and curvature."""
        share = expit(eta)
        residual = self.weights[:, None] * (share - self.targets)
        d = self.weights[:, None] * share * (1.0 - share)
        return HeadState(theta, eta, self.transposed(residual) + self.bent(theta), d)

    def objective(self, theta: Array, eta: Array) -> Array:
        """Value of each: (c,)."""
        losses = np.logaddexp(0.0, eta) - self.targets * eta
        return self.weights @ losses + 0.5 * self.alpha * np.sum(theta[:-1] ** 2, axis=0)

    def descended(self, theta: Array, preconditioned: Callable[[HeadState], Solve], near: float) -> HeadState:
        """Minimise.

        Parameters
        ----------
        theta : (p + 1, c) array
            Where to start.
        preconditioned : callable
            From a state to what gives about K⁻¹ times a gradient (p + 1, c) there.
        near : float
            Root of the decrement of each, relative to that of its objective, that ends the steps.

        Raises
        ------
        SolverError
        """
        state = self.at(theta, self.predictors(theta))
        solve, first, last = preconditioned(state), np.zeros(theta.shape[1]), np.inf
        for _ in range(STEPS):
            size = np.maximum(_inner(state.gradient, solve(state.gradient)), 0.0)
            first = np.maximum(first, size)
            objective = self.objective(state.theta, state.eta)
            enough = near * np.sqrt(_ratio(objective, size))
            loosely = np.minimum(ROUGHLY, np.maximum(enough, np.sqrt(_ratio(size, first))))
            direction, products = self._conjugate(state, solve, loosely)
            decrement = np.maximum(-_inner(state.gradient, direction), 0.0)
            share = float(np.max(decrement / objective))
            state = self._moved(state, objective, direction)
            if share <= near**2 or (share <= 1e-12 and share > FALLING * last):
                return state
            last = share
            if products > STALE:
                solve = preconditioned(state)
        raise SolverError(
            f"logistic regressions of {self.targets.shape[1]} classes did not settle in {STEPS} steps: are "
            "features of very different sizes? scale them"
        )

    def _conjugate(self, state: HeadState, solve: Solve, loosely: Array) -> tuple[Array, int]:
        """Minus K⁻¹ gradient, each to its own error relative to the gradient, and the products that took."""
        count = 0

        def product(rows: Tensor) -> Tensor:
            nonlocal count
            count += 1
            along = rows.numpy().T
            return _rows(self.transposed(state.d * self.predictors(along)) + self.bent(along))

        found, _ = conjugate_each(
            product,
            _rows(state.gradient),
            lambda rows: _rows(solve(rows.numpy().T)),
            accuracy=torch.from_numpy(loosely),
            most=PRODUCTS,
        )
        return -found.numpy().T, count

    def _moved(self, state: HeadState, objective: Array, direction: Array) -> HeadState:
        """Go along a direction, each as far as its objective falls by its share."""
        change, slope = self.predictors(direction), _inner(state.gradient, direction)

        def reach(length: Tensor) -> Tensor:
            t = length.numpy()
            return torch.from_numpy(self.objective(state.theta + t * direction, state.eta + t * change))

        start, along = torch.from_numpy(objective), torch.from_numpy(slope)
        length = backtracked(reach, start, along, torch.ones_like(start))[0].numpy()
        return self.at(state.theta + length * direction, state.eta + length * change)


class HeadState(NamedTuple):
    """Coefficients (p + 1, c), predictors (n, c), the gradient and the weights of the curvature there."""

    theta: Array
    eta: Array
    gradient: Array
    d: Array


def _rows(columns: Array) -> Tensor:
    """Each column as a row."""
    return torch.from_numpy(columns.T)


def _inner(one: Array, other: Array) -> Array:
    return np.einsum("pc,pc->c", one, other)


def _ratio(one: Array, other: Array) -> Array:
    """Quotients, 0 where there is nothing to divide by."""
    return np.divide(one, other, out=np.zeros_like(one), where=other > 0)
