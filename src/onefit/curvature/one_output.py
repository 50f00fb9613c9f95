"""K of one output: what both sides of it, coefficients and rows, know of the columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onefit._typing import Array, Design, Index
from onefit.curvature.base import ScalarCurvature, total_curvature


@dataclass(frozen=True)
class OfColumns(ScalarCurvature):
    """K of free columns, in the terms of all p coefficients."""

    X: Design
    support: Index | None  # None: all columns
    p: int
    hessian: Array  # (k,), or (k, k) where it is not diagonal
    d: Array  # (n,)
    intercept: bool

    @property
    def _total(self) -> float:
        """By what the intercept is curved."""
        return total_curvature(self.d, self.intercept)

    @property
    def _offset(self) -> float:
        """What the intercept adds to every form."""
        return 1.0 / self._total

    def _restrict(self, coef: Array) -> Array:
        return coef if self.support is None else coef[self.support]

    def _spread(self, free: Array) -> Array:
        """Values of the free columns among all columns, zero elsewhere: (p,), or (p, r)."""
        if self.support is None:
            return free
        full = np.zeros((self.p, *free.shape[1:]))
        full[self.support] = free
        return full
