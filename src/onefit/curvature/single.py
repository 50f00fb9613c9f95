"""K whose forms are told by a factor in single precision, in half the time, with the rounding of that."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onefit._typing import Array, Design, Index
from onefit.curvature.base import Curvature, Direction, WrappedScalar
from onefit.curvature.dual import Dual


@dataclass(frozen=True)
class InSingle(WrappedScalar):
    """Forms in single precision; whatever else is asked for is told by a factor in double precision."""

    inner: Dual
    X: Design
    forms: Array
    rounding: float

    @property
    def condition(self) -> float:
        """In units of the rounding of double precision, as bounds take it."""
        return self.rounding

    def quadratic_forms(self) -> Array:
        return self.forms

    def solve(self, gradient: Direction) -> Direction:
        return self.inner.solve(gradient)

    def hat_columns(self, rows: Index) -> Array:
        return self.inner.hat_columns(rows)


def in_single(K: Curvature) -> Curvature:
    """K with forms in single precision, where these can be told and nobody has made a factor yet."""
    if not isinstance(K, Dual) or K.is_factored:
        return K
    with np.errstate(over="ignore", invalid="ignore"):  # of what single precision does not hold
        known = K.forms_in_single()
    return K if known is None else InSingle(K, K.X, *known)
