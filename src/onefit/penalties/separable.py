"""Penalties that treat every coefficient on its own: ridge, lasso, elastic net, and bounds.

A strength may be one number, one a feature (p,), or an array of the shape of the coefficients.  An
infinite strength fixes its coefficient at zero.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Self, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from onefit._typing import Array, Mask
from onefit.penalties.base import check_share, check_strengths, largest_gradient
from onefit.penalties.programs import Coordinatewise, PiecewiseRows, Polyhedral, absolute
from onefit.pieces import Coordinates

Strength: TypeAlias = ArrayLike


@dataclass(frozen=True)
class SeparablePenalty(Polyhedral, Coordinatewise):
    """Σ_j l1_j |β_j| + ½ Σ_j l2_j β_j²: everything follows from the two strengths a coordinate.

    Parameters
    ----------
    alpha : float, (p,) or (p, c) array-like, default 1.0
        Strength: one in all, one a feature or one a coefficient.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.penalties import ElasticNet
    >>> ElasticNet(alpha=1.0, l1_ratio=0.5).value(np.array([2.0, 0.0]))
    2.0
    """

    alpha: Strength = 1.0

    def __post_init__(self) -> None:
        check_strengths("alpha", self.alpha)

    def has_kinks(self, shape: tuple[int, ...]) -> bool:
        return bool(np.any(self.strengths(shape)[0]))

    def has_free_directions(self, shape: tuple[int, ...]) -> bool:
        l1, l2 = self.strengths(shape)
        return bool(np.any((l1 == 0) & (l2 == 0)))

    def rows(self, p: int) -> PiecewiseRows:
        return absolute(sp.csr_array(sp.eye_array(p)), self.strengths((p,))[0])

    def is_ridge(self, shape: tuple[int, ...]) -> bool:
        return not self.has_kinks(shape)

    def ridge(self, shape: tuple[int, ...]) -> Array:
        return self.strengths(shape)[1]

    def without_ridge(self) -> SeparablePenalty:
        l1, l2 = self.strengths(self.shape_of_strengths)
        return Strengths(l1=np.where(np.isinf(l2), np.inf, l1))  # what is fixed at zero stays there

    @property
    def shape_of_strengths(self) -> tuple[int, ...]:
        """(), (p,) or (p, c): how finely the strengths are given."""
        return max((np.shape(given) for given in self.get_params().values()), key=len)

    def check(self, shape: tuple[int, ...]) -> None:
        own = self.shape_of_strengths
        if own not in {(), shape[:1], shape}:
            raise ValueError(
                f"{type(self).__name__} has strengths of shape {own}, but the coefficients have shape "
                f"{shape}: give one number, or one a feature"
            )

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

    def tangent(self, coef: Array, loss_gradient: Array | None = None) -> Coordinates:
        return self.piece(coef, np.sign(coef))

    def piece(self, coef: Array, orthant: Array) -> Coordinates:
        """Smooth piece through ``coef`` on which the kinked coordinates keep the signs ``orthant``."""
        l1, l2 = self.strengths(coef.shape)
        support = ((orthant != 0) | (l1 == 0)) & np.isfinite(l1) & np.isfinite(l2)
        l1, l2 = np.where(support, l1, 0.0), np.where(support, l2, 0.0)
        return Coordinates(support, l1 * orthant + l2 * coef, l2)

    def is_stationary(
        self, coef: Array, loss_gradient: Array, rtol: float = 1e-7, size: Array | None = None
    ) -> Mask:
        l1, l2 = (part[:, None] for part in self.strengths(coef.shape[:1]))
        free = np.isfinite(l1) & np.isfinite(l2)
        l2 = np.where(free, l2, 0.0)
        slope = loss_gradient + l2 * coef
        wrong = np.where(coef != 0, np.abs(slope + l1 * np.sign(coef)), np.maximum(np.abs(slope) - l1, 0.0))
        allowed = rtol * (largest_gradient(loss_gradient, None) if size is None else size)
        return np.all(np.where(free, wrong, 0.0) <= allowed, axis=0)

    def orthant(self, coef: Array, loss_gradient: Array, slack: float = 0.0) -> Array:
        """Signs of ``coef``, and for zeros the sign in which the objective falls (0 if in none).

        A zero coordinate violates optimality when |∂loss| exceeds l1 (1 + slack).  Coordinates without
        an ℓ1 strength have no kink and no sign to keep: 0.
        """
        l1, _ = self.strengths(coef.shape)
        violated = np.abs(loss_gradient) > l1 * (1.0 + slack)
        signs = np.where(coef != 0, np.sign(coef), np.where(violated, -np.sign(loss_gradient), 0.0))
        return np.where(l1 > 0, signs, 0.0)


def broadcast(alpha: Strength, shape: tuple[int, ...]) -> Array:
    """Return one number a coefficient, from one in all, one a feature or one a coefficient."""
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
        return np.zeros(shape), broadcast(self.alpha, shape)


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
        return broadcast(self.alpha, shape), np.zeros(shape)


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

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("l1_ratio", self.l1_ratio)

    def strengths(self, shape: tuple[int, ...]) -> tuple[Array, Array]:
        alpha = broadcast(self.alpha, shape)
        fixed = np.isinf(alpha)  # 0 · ∞ is not a strength
        finite = np.where(fixed, 0.0, alpha)
        l2 = np.where(fixed, np.inf, finite * (1.0 - self.l1_ratio))
        return finite * self.l1_ratio, l2


@dataclass(frozen=True)
class Strengths(SeparablePenalty):
    """alpha (Σ_j l1_j |β_j| + ½ Σ_j l2_j β_j²): what sums of separable penalties are.

    Parameters
    ----------
    alpha : float or array, default 1.0
        Factor on both.
    l1, l2 : float or array, default 0.0
        Strengths; one number, one a feature, or one a coefficient.

    Examples
    --------
    >>> import numpy as np
    >>> (L2(1.0) + L1(np.array([1.0, 2.0]))).value(np.array([1.0, 2.0]))
    7.5
    """

    l1: Strength = field(default=0.0, kw_only=True)
    l2: Strength = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_strengths("l1", self.l1)
        check_strengths("l2", self.l2)

    def strengths(self, shape: tuple[int, ...]) -> tuple[Array, Array]:
        alpha = broadcast(self.alpha, shape)
        l1, l2 = broadcast(self.l1, shape), broadcast(self.l2, shape)
        return _product(alpha, l1), _product(alpha, l2)


def _product(alpha: Array, strength: Array) -> Array:
    """Their product, where nothing times infinity is nothing."""
    return np.multiply(alpha, strength, out=np.zeros(alpha.shape), where=(alpha > 0) & (strength > 0))
