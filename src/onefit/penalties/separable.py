"""Penalties that treat every coefficient on its own: ridge, lasso, elastic net, and bounds.

A strength may be one number, one a feature (p,), or an array of the shape of the coefficients.  An
infinite strength fixes its coefficient at zero.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from onefit._typing import Array, Index, Mask
from onefit.penalties.base import ZERO, check_not_negative, size_of
from onefit.penalties.programs import Coordinatewise, PiecewiseRows, Polyhedral, absolute
from onefit.pieces import Coordinates
from onefit.validation import check_share

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
        check_not_negative("alpha", self.alpha)

    def has_kinks(self, shape: tuple[int, ...]) -> bool:
        return bool(np.any(self.strengths(shape)[0]))

    def has_growing_kinks(self, shape: tuple[int, ...]) -> bool:
        l1, l2 = self.strengths(shape)
        return bool(np.any((l1 > 0) & np.isfinite(l1) & np.isfinite(l2)))

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

    def on_columns(self, kept: Index) -> Self:
        """The same on some of the columns."""
        given = self.get_params().items()
        return replace(self, **{name: np.asarray(value)[kept] for name, value in given if np.ndim(value)})

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
        if not held.all():
            l1, l2, coef = l1[held], l2[held], coef[held]
        return float(np.sum(l1 * np.abs(coef) + 0.5 * l2 * coef**2))

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
        allowed = rtol * size_of(loss_gradient, size)
        return np.all(np.where(free, wrong, 0.0) <= allowed, axis=0)

    def orthant(self, coef: Array, loss_gradient: Array, slack: float = 0.0) -> Array:
        """Signs of ``coef``, and for zeros the sign in which the objective falls (0 if in none).

        A zero coordinate violates optimality when |∂loss| exceeds l1 (1 + slack).  Coordinates without
        an ℓ1 strength have no kink and no sign to keep: 0.
        """
        l1, _ = self.strengths(coef.shape)
        if not l1.any():
            return np.zeros(coef.shape)
        violated = np.abs(loss_gradient) > l1 * (1.0 + slack)
        signs = np.where(coef != 0, np.sign(coef), np.where(violated, -np.sign(loss_gradient), 0.0))
        return np.where(l1 > 0, signs, 0.0)


def broadcast(alpha: Strength, shape: tuple[int, ...]) -> Array:
    """Return one number a coefficient, from one in all, one a feature or one a coefficient."""
    strength = np.asarray(alpha, dtype=np.float64)
    if strength.ndim == 0:  # the usual case, and a view takes ten times as long to make
        return np.full(shape, strength)
    return np.broadcast_to(strength.T, shape[::-1]).T  # one a feature is the same for all outputs


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
        if isinstance(self.alpha, float) and self.alpha < np.inf:  # the usual case, asked for often
            share = float(self.l1_ratio)
            parts = float(self.alpha) * share, float(self.alpha) * (1.0 - share)
            return np.full(shape, parts[0]), np.full(shape, parts[1])
        alpha = np.asarray(self.alpha, dtype=np.float64)
        fixed = np.isinf(alpha)  # 0 · ∞ is not a strength
        finite = np.where(fixed, 0.0, alpha)
        l2 = np.where(fixed, np.inf, finite * (1.0 - self.l1_ratio))
        return broadcast(finite * self.l1_ratio, shape), broadcast(l2, shape)


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
        check_not_negative("l1", self.l1)
        check_not_negative("l2", self.l2)

    def strengths(self, shape: tuple[int, ...]) -> tuple[Array, Array]:
        alpha = broadcast(self.alpha, shape)
        l1, l2 = broadcast(self.l1, shape), broadcast(self.l2, shape)
        return _product(alpha, l1), _product(alpha, l2)


def _product(alpha: Array, strength: Array) -> Array:
    """Their product, where nothing times infinity is nothing."""
    return np.multiply(alpha, strength, out=np.zeros(alpha.shape), where=(alpha > 0) & (strength > 0))


@dataclass(frozen=True, eq=False)
class Box(Polyhedral, Coordinatewise):
    """Σ_j l1_j |β_j| where lower ≤ β ≤ upper, infinite elsewhere.

    Coefficients on a bound stay there, and zeros with an ℓ1 strength stay zero.

    Parameters
    ----------
    lower, upper : float or array, default −∞ and ∞
        Bounds; one number, one a feature, or one a coefficient.
    l1 : float or array, default 0
        Strengths of an ℓ1 penalty within the bounds.  ``L1(2.0) + Box(lower=0.0)`` sets it, too.

    Examples
    --------
    >>> import numpy as np
    >>> Box(lower=0.0).prox(np.array([1.0, -1.0]), 1.0)
    array([1., 0.])
    """

    lower: Strength = -np.inf
    upper: Strength = np.inf
    l1: Strength = 0.0

    def __post_init__(self) -> None:
        check_not_negative("l1", self.l1)
        lower, upper = _bound("lower", self.lower), _bound("upper", self.upper)
        try:
            crossed = np.broadcast_to(lower > upper, np.broadcast_shapes(lower.shape, upper.shape))
        except ValueError:
            raise ValueError(
                f"lower and upper must be of one shape, got {lower.shape} and {upper.shape}"
            ) from None
        if np.any(lower == np.inf) or np.any(upper == -np.inf):
            raise ValueError("lower must be below infinity, and upper above minus infinity")
        if np.any(crossed):
            where = f", as it is for feature {np.argwhere(crossed)[0][0]}" if crossed.ndim else ""
            raise ValueError(f"lower must not be above upper{where}")

    def bounds(self, shape: tuple[int, ...]) -> tuple[Array, Array]:
        """Return the bounds, each broadcast to the shape of the coefficients."""
        return broadcast(self.lower, shape), broadcast(self.upper, shape)

    def rows(self, p: int) -> PiecewiseRows:
        lower, upper = self.bounds((p,))
        below, above = np.isfinite(lower), np.isfinite(upper)
        held = np.flatnonzero(below | above)
        one = (below ^ above) | (lower == upper)
        kinks = np.stack([np.where(below, lower, upper), np.where(one, np.inf, upper)], axis=1)
        left, right = np.where(below, -np.inf, 0.0), np.where(above, np.inf, 0.0)
        ends = np.stack([left, np.where(one, right, 0.0), right], axis=1)
        eye = sp.csr_array(sp.eye_array(p))
        within = absolute(eye, broadcast(self.l1, (p,)))
        return PiecewiseRows.of(eye[held], kinks[held], ends[held]) + within

    def value(self, coef: Array) -> float:
        inside = np.all(_inside(coef, *self.bounds(coef.shape)))
        return float(np.sum(np.asarray(self.l1).T * np.abs(coef).T)) if inside else np.inf

    def prox(self, coef: Array, step: float) -> Array:
        shrunk = np.maximum(np.abs(coef) - step * broadcast(self.l1, coef.shape), 0.0)
        return np.clip(np.copysign(shrunk, coef), *self.bounds(coef.shape))

    def tangent(self, coef: Array, loss_gradient: Array | None = None) -> Coordinates:
        (lower, upper), l1 = self.bounds(coef.shape), broadcast(self.l1, coef.shape)
        free = (coef > lower) & (coef < upper) & ((l1 == 0) | (coef != 0))
        return Coordinates(free, l1 * np.sign(coef), np.zeros(coef.shape))

    def scaled(self, factor: float) -> Self:
        return replace(self, l1=np.asarray(self.l1) * factor)

    def has_kinks(self, shape: tuple[int, ...]) -> bool:
        lower, upper = self.bounds(shape)
        return bool(np.any(np.isfinite(lower) | np.isfinite(upper)) or np.any(self.l1))

    def has_growing_kinks(self, shape: tuple[int, ...]) -> bool:
        return bool(np.any((np.asarray(self.l1) > 0) & np.isfinite(self.l1)))

    def has_free_directions(self, shape: tuple[int, ...]) -> bool:
        lower, upper = self.bounds(shape)
        return bool(np.any((lower < upper) & (broadcast(self.l1, shape) == 0)))

    def check(self, shape: tuple[int, ...]) -> None:
        for name, bound in (("lower", self.lower), ("upper", self.upper), ("l1", self.l1)):
            if np.ndim(bound) and np.shape(bound) not in {shape, shape[:1]}:
                raise ValueError(
                    f"{name} has shape {np.shape(bound)}, but the coefficients have shape {shape}: give one "
                    "number, or one a feature"
                )

    def is_stationary(
        self, coef: Array, loss_gradient: Array, rtol: float = 1e-7, size: Array | None = None
    ) -> Mask:
        lower, upper = (bound[:, None] for bound in self.bounds(coef.shape[:1]))
        l1 = broadcast(self.l1, coef.shape[:1])[:, None]
        upwards = loss_gradient + np.where(coef >= 0, l1, -l1)  # derivatives of the objective
        downwards = loss_gradient + np.where(coef > 0, l1, -l1)
        falls = np.where(coef < upper, np.maximum(-upwards, 0.0), 0.0)
        rises = np.where(coef > lower, np.maximum(downwards, 0.0), 0.0)
        allowed = rtol * size_of(loss_gradient, size)
        return np.all((np.maximum(falls, rises) <= allowed) & _inside(coef, lower, upper), axis=0)


def _bound(name: str, given: Any) -> Array:
    bound = np.asarray(given)
    if bound.dtype.kind not in "fiu" or np.any(np.isnan(bound)):
        raise ValueError(f"{name} must be a number or an array of them, got {given!r}")
    return bound


def _inside(coef: Array, lower: Array, upper: Array) -> Mask:
    """Which coefficients keep to their bounds, but for rounding."""
    slack = ZERO * np.abs(coef)
    return np.asarray((coef >= lower - slack) & (coef <= upper + slack))
