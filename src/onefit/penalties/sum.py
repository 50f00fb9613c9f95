"""An ℓ2 penalty plus any one other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from onefit._typing import Array, Mask
from onefit.penalties.base import Penalty, add, size_of
from onefit.penalties.programs import Coordinatewise
from onefit.penalties.separable import L2, Box, SeparablePenalty, Strengths, broadcast
from onefit.pieces import Pieces, Tangent


@dataclass(frozen=True, eq=False)
class Sum(Penalty):
    """½ Σ l2_j β_j² + P(β), what ``L2(...) + P`` returns.

    The tangent is that of P, with l2 added to its curvature.

    Parameters
    ----------
    quadratic : L2
        Of finite strengths.
    rest : Penalty
        Any penalty that is not separable; an L2 plus a separable one is separable, and ``+`` says so.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.penalties import Box
    >>> elastic = L2(2.0) + Box(lower=0.0)
    >>> elastic.prox(np.array([3.0, -1.0]), 1.0)
    array([1., 0.])
    """

    quadratic: L2
    rest: Penalty

    def __post_init__(self) -> None:
        given: Any = self.quadratic, self.rest
        if not isinstance(given[0], L2) or not isinstance(given[1], Penalty) or isinstance(given[1], Sum):
            raise TypeError(f"a sum is of an L2 penalty and one other that is no sum, got {given!r}")
        if not np.all(np.isfinite(np.asarray(self.quadratic.alpha))):
            raise ValueError(f"an L2 penalty in a sum must have finite strengths, got {self.quadratic!r}")

    @property
    def pieces(self) -> Pieces:
        return self.rest.pieces

    def value(self, coef: Array) -> float:
        return self.quadratic.value(coef) + self.rest.value(coef)

    def prox(self, coef: Array, step: float) -> Array:
        """Complete the square: the prox of the rest at coef / (1 + step · l2), with that shorter step.

        Raises
        ------
        ValueError
            If the ℓ2 strengths differ between features that the rest does not treat one by one.
        """
        stretch = 1.0 + step * self.quadratic.strengths(coef.shape)[1]
        if isinstance(self.rest, Coordinatewise):
            each: Any = step / stretch
            return self.rest.prox(coef / stretch, each)
        if np.ptp(stretch) == 0:
            return self.rest.prox(coef / stretch, step / stretch.flat[0])
        raise ValueError(
            f"L2 with a strength for each feature plus {type(self.rest).__name__} has no closed proximal "
            "operator: give L2 one number"
        )

    def tangent(self, coef: Array, loss_gradient: Array | None = None) -> Tangent:
        l2 = self.quadratic.strengths(coef.shape)[1]
        slope = None if loss_gradient is None else loss_gradient + l2 * coef
        return self.rest.tangent(coef, slope).with_ridge(l2, coef)

    def third(self, coef: Array, owed: Array) -> Array:
        return self.rest.third(coef, owed)

    def is_ridge(self, shape: tuple[int, ...]) -> bool:
        return self.rest.is_ridge(shape)

    def without_ridge(self) -> Penalty:
        return self.rest.without_ridge()

    def scaled(self, factor: float) -> Self:
        return type(self)(self.quadratic.scaled(factor), self.rest.scaled(factor))

    def has_kinks(self, shape: tuple[int, ...]) -> bool:
        return self.rest.has_kinks(shape)

    def has_growing_kinks(self, shape: tuple[int, ...]) -> bool:
        return self.rest.has_growing_kinks(shape)

    def has_free_directions(self, shape: tuple[int, ...]) -> bool:
        return self.quadratic.has_free_directions(shape) and self.rest.has_free_directions(shape)

    def ridge(self, shape: tuple[int, ...]) -> Array:
        return self.quadratic.ridge(shape) + self.rest.ridge(shape)

    def check(self, shape: tuple[int, ...]) -> None:
        self.quadratic.check(shape)
        self.rest.check(shape)

    def is_stationary(
        self, coef: Array, loss_gradient: Array, rtol: float = 1e-7, size: Array | None = None
    ) -> Mask:
        l2 = self.quadratic.strengths(coef.shape[:1])[1]
        size = size_of(loss_gradient, size)
        return self.rest.is_stationary(coef, loss_gradient + l2[:, None] * coef, rtol, size)


@add.register
def _of_two(one: Penalty, other: Penalty) -> Penalty:
    """``one + other``, of which one must be an L2; a Box takes any separable penalty.

    Raises
    ------
    TypeError
        Any other sum: two kinked penalties have no common proximal operator.
    """
    if isinstance(other, L2 | Box) and not isinstance(one, Box):
        one, other = other, one
    if isinstance(one, Box) and isinstance(other, SeparablePenalty):
        return _bounded(other, one)
    if isinstance(one, L2) and isinstance(other, SeparablePenalty):
        return _fold(one, other)
    if isinstance(one, L2) and not isinstance(other, Sum):
        return Sum(one, other)
    raise TypeError(
        "only an L2 penalty and one other, or a Box and a separable one, can be added, "
        f"got {type(one).__name__} + {type(other).__name__}"
    )


def _bounded(penalty: SeparablePenalty, box: Box) -> Penalty:
    shape = max(penalty.shape_of_strengths, np.shape(box.l1), key=len)
    l1, l2 = penalty.strengths(shape)
    l1 = l1 + broadcast(box.l1, shape)
    held = np.isinf(l1) | np.isinf(l2)
    l1, l2 = np.where(held, 0.0, l1), np.where(held, 0.0, l2)
    within = replace(_held_at_zero(box, held) if held.any() else box, l1=l1)
    return Sum(L2(l2), within) if np.any(l2) else within


def _held_at_zero(box: Box, held: Mask) -> Box:
    """The box where some coefficients are zero, as an infinite strength has them."""
    shape = max(held.shape, np.shape(box.lower), np.shape(box.upper), key=len)
    (lower, upper), held = box.bounds(shape), broadcast(held, shape) > 0
    return replace(
        box,
        lower=np.where(held, np.maximum(lower, 0.0), lower),
        upper=np.where(held, np.minimum(upper, 0.0), upper),
    )


def _fold(one: SeparablePenalty, other: SeparablePenalty) -> Strengths:
    shape = max(one.shape_of_strengths, other.shape_of_strengths, key=len)
    (l1, l2), (more_l1, more_l2) = one.strengths(shape), other.strengths(shape)
    return Strengths(l1=l1 + more_l1, l2=l2 + more_l2)
