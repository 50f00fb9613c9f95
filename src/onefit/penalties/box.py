"""Bounds of the coefficients, and an ℓ1 penalty within them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from onefit._typing import Array, Mask
from onefit.penalties.base import ZERO, check_strengths, largest_gradient
from onefit.penalties.programs import Coordinatewise, PiecewiseRows, Polyhedral, absolute
from onefit.penalties.separable import Strength, broadcast
from onefit.pieces import Coordinates


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
        check_strengths("l1", self.l1)
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
        allowed = rtol * (largest_gradient(loss_gradient, None) if size is None else size)
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
