"""Quadratic models with an ℓ1 part of many problems, each solved on a pattern of its coordinates."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.leave_out.watched_kinks import KinkPattern

NEXT_TO_NONE = 1e-8  # of the curvature of a coordinate, where columns depend on each other


class PatternModels(NamedTuple):
    """½ (z − x)ᵀ K (z − x) + gᵀ (z − x) + Σ_j l1_j |z_j| of each problem, (a, q, q) and (a, q)."""

    K: Array
    gradient: Array
    x: Array
    l1: Array

    def take(self, which: Index) -> PatternModels:
        return PatternModels(*(part[which] for part in self))

    def minimum(self, pattern: KinkPattern, depend: Mask) -> tuple[Array, Array, Mask]:
        """Where it is on a pattern, what pulls at the other coordinates there, and whether it has a minimum.

        Where columns of the pattern ``depend`` on each other, which is known or is put in, it is the one next
        to x, about.
        """
        value, pull, sure = (self.proximal(depend) if depend.any() else self)._minimum(pattern)
        if (which := np.flatnonzero(~sure & ~depend)).size:
            some = self.take(which).proximal(np.ones(which.size, dtype=bool))._minimum(pattern.take(which))
            value[which], pull[which], sure[which] = some
            depend[which] = True
        return value, pull, sure

    def proximal(self, which: Mask) -> PatternModels:
        """Some with next to no curvature along each coordinate, about x, beside what they have."""
        K, every = self.K.copy(), np.arange(self.K.shape[1])
        K[:, every, every] *= 1.0 + NEXT_TO_NONE * which[:, None]
        return self._replace(K=K)

    def _minimum(self, pattern: KinkPattern) -> tuple[Array, Array, Mask]:
        own, at, sign = pattern
        f = times_each(self.K, self.x - np.where(own, 0.0, at)) - self.gradient
        value, sure = _linalg.solve_inside(self.K, np.where(own, f - self.l1 * sign, 0.0), own)
        return value, f - times_each(self.K, value), sure


def times_each(matrices: Array, vectors: Array) -> Array:
    """Products of matrices (a, q, q) with a vector each, (a, q)."""
    return np.asarray((matrices @ vectors[..., None])[..., 0])
