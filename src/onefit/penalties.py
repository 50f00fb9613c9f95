"""Penalties: value, proximal operator, and the smooth piece through a point.

Every penalty is described locally by its *tangent*: the directions in which the coefficients can move
while the active pattern stays as it is, with the gradient and the curvature of the penalty there.
Leave-one-out, degrees of freedom and hyperparameter gradients need no more than that.

A strength may be one number, one a feature (p,), or an array of the shape of the coefficients.  An
infinite strength fixes its coefficient at zero.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from onefit._typing import Array, Mask

Strength: TypeAlias = ArrayLike


@dataclass(frozen=True)
class Tangent:
    """The smooth piece of a penalty through a point.

    Attributes
    ----------
    support : bool array of the shape of the coefficients
        Coordinates that are free to move; the columns of B are their unit vectors.
    gradient : array of the shape of the coefficients
        Gradient of the penalty on the piece, zero off the support.
    hessian : array of the shape of the coefficients
        Diagonal of the penalty's curvature C on the piece, zero off the support.
    """

    support: Mask
    gradient: Array
    hessian: Array


class Penalty(ABC):
    """A convex function of the coefficients; the intercept is never penalised."""

    @abstractmethod
    def value(self, coef: Array) -> float:
        """Penalty at ``coef``."""

    @abstractmethod
    def prox(self, coef: Array, step: float) -> Array:
        """Argmin over z of ½‖z − coef‖² + step · P(z)."""

    @abstractmethod
    def tangent(self, coef: Array) -> Tangent:
        """Smooth piece through ``coef``."""

    @abstractmethod
    def scaled(self, factor: float) -> Self:
        """``factor`` times this penalty."""


@dataclass(frozen=True)
class SeparablePenalty(Penalty):
    """Σ_j l1_j |β_j| + ½ Σ_j l2_j β_j²: everything follows from the two strengths a coordinate."""

    alpha: Strength = 1.0

    def scaled(self, factor: float) -> Self:
        return replace(self, alpha=np.asarray(self.alpha) * factor)

    @abstractmethod
    def strengths(self, shape: tuple[int, ...]) -> tuple[Array, Array]:
        """Return l1 and l2, each broadcast to the shape of the coefficients."""

    def value(self, coef: Array) -> float:
        l1, l2 = self.strengths(coef.shape)
        held = coef != 0  # an infinite strength on a zero costs nothing
        return float(np.sum(l1[held] * np.abs(coef[held]) + 0.5 * l2[held] * coef[held] ** 2))

    def prox(self, coef: Array, step: float) -> Array:
        l1, l2 = self.strengths(coef.shape)
        return np.sign(coef) * np.maximum(np.abs(coef) - step * l1, 0.0) / (1.0 + step * l2)

    def tangent(self, coef: Array) -> Tangent:
        return self.piece(coef, np.sign(coef))

    def piece(self, coef: Array, orthant: Array) -> Tangent:
        """Smooth piece through ``coef`` on which the kinked coordinates keep the signs ``orthant``."""
        l1, l2 = self.strengths(coef.shape)
        support = ((orthant != 0) | (l1 == 0)) & np.isfinite(l1) & np.isfinite(l2)
        l1, l2 = np.where(support, l1, 0.0), np.where(support, l2, 0.0)
        return Tangent(support, l1 * orthant + l2 * coef, l2)

    def orthant(self, coef: Array, loss_gradient: Array, slack: float = 0.0) -> Array:
        """Signs of ``coef``, and for zeros the sign in which the objective falls (0 if in none).

        A zero coordinate violates optimality when |∂loss| exceeds l1 (1 + slack).  Coordinates without
        an ℓ1 strength have no kink and no sign to keep: 0.
        """
        l1, _ = self.strengths(coef.shape)
        violated = np.abs(loss_gradient) > l1 * (1.0 + slack)
        signs = np.where(coef != 0, np.sign(coef), np.where(violated, -np.sign(loss_gradient), 0.0))
        return np.where(l1 > 0, signs, 0.0)


def _broadcast(alpha: Strength, shape: tuple[int, ...]) -> Array:
    strength = np.asarray(alpha, dtype=np.float64)
    if strength.ndim == 1 and len(shape) == 2:  # one a feature, the same for all outputs
        strength = strength[:, None]
    return np.broadcast_to(strength, shape)


@dataclass(frozen=True)
class L2(SeparablePenalty):
    """½ alpha ‖β‖²: ridge.

    Parameters
    ----------
    alpha : float or array, default 1.0
        Strength; one number, or one a feature.

    Examples
    --------
    >>> import numpy as np
    >>> L2(3.0).value(np.array([1.0, 1.0]))
    3.0
    """

    def strengths(self, shape: tuple[int, ...]) -> tuple[Array, Array]:
        return np.zeros(shape), _broadcast(self.alpha, shape)


@dataclass(frozen=True)
class L1(SeparablePenalty):
    """alpha ‖β‖₁: lasso.

    Parameters
    ----------
    alpha : float or array, default 1.0
        Strength; one number, or one a feature.

    Examples
    --------
    >>> import numpy as np
    >>> L1(np.array([1.0, 2.0])).value(np.array([1.0, -1.0]))
    3.0
    """

    def strengths(self, shape: tuple[int, ...]) -> tuple[Array, Array]:
        return _broadcast(self.alpha, shape), np.zeros(shape)


@dataclass(frozen=True)
class ElasticNet(SeparablePenalty):
    """alpha (l1_ratio ‖β‖₁ + ½ (1 − l1_ratio) ‖β‖²).

    Parameters
    ----------
    alpha : float or array, default 1.0
        Strength; one number, or one a feature.
    l1_ratio : float, default 0.5
        1 is the lasso, 0 ridge.

    Examples
    --------
    >>> import numpy as np
    >>> ElasticNet(2.0, 0.5).value(np.array([1.0, -1.0]))
    3.0
    """

    l1_ratio: float = 0.5

    def strengths(self, shape: tuple[int, ...]) -> tuple[Array, Array]:
        alpha = _broadcast(self.alpha, shape)
        fixed = np.isinf(alpha)  # 0 · ∞ is not a strength
        finite = np.where(fixed, 0.0, alpha)
        l2 = np.where(fixed, np.inf, finite * (1.0 - self.l1_ratio))
        return finite * self.l1_ratio, l2
