"""K of which a factor in single precision tells the forms, in half the time, with the rounding of that."""

from __future__ import annotations

from dataclasses import dataclass, field

from onefit._typing import Array, Design, Index
from onefit.curvature.base import Curvature, Direction, WrappedScalar
from onefit.curvature.dual import Dual
from onefit.curvature.outputs import CoupledBlock


@dataclass(frozen=True)
class InSingle(WrappedScalar):
    """Forms in single precision; whatever else is asked for is told by a factor in double precision.

    Attributes
    ----------
    inner : Dual
        Not factored yet.
    X : design
    rough : Dual
        The same with a factor in single precision, for what is checked by other means.
    """

    inner: Dual
    X: Design
    rough: Dual

    @property
    def roughly(self) -> Dual:
        return self.rough

    @property
    def is_at_hand(self) -> bool:
        return True  # the rough one, which serves steps

    @property
    def condition(self) -> float:
        """In units of the rounding of double precision, as bounds take it."""
        return self.rough.condition

    def quadratic_forms(self) -> Array:
        return self.rough.quadratic_forms()

    def solve(self, gradient: Direction) -> Direction:
        return self.inner.solve(gradient)

    def hat_columns(self, rows: Index) -> Array:
        return self.inner.hat_columns(rows)


@dataclass(frozen=True)
class CoupledInSingle(CoupledBlock):
    """The same of coupled outputs.

    Attributes
    ----------
    rough : CoupledBlock
        With a factor in single precision.
    """

    rough: CoupledBlock = field(kw_only=True)

    @property
    def is_factored(self) -> bool:
        return True

    @property
    def roughly(self) -> CoupledBlock:
        return self.rough

    @property
    def is_definite(self) -> bool:
        return self.rough.is_definite

    @property
    def condition(self) -> float:
        return self.rough.condition

    def quadratic_forms(self) -> Array:
        return self.rough.quadratic_forms()

    def forms_of(self, rows: Index) -> Array:
        return self.rough.forms_of(rows)


def in_single(K: Curvature) -> Curvature:
    """K with forms in single precision, where these can be told and nobody has made a better factor yet."""
    if isinstance(K, CoupledBlock):
        rough = K.roughly
        return (
            K
            if not rough.is_in_single
            else CoupledInSingle(K.fit, K.tangent, reduction=rough.own, rough=rough)
        )
    if not isinstance(K, Dual) or K.is_factored:
        return K
    rough_dual = K.in_single
    return K if rough_dual is None else InSingle(K, K.X, rough_dual)
