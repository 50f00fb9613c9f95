"""Kinks of single coefficients, Σ_j l1_j |x_j| between bounds, of many problems that are solved side by side.

A coordinate is on a kink, a bound or zero where it has an ℓ1 part, or in the piece between two of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from onefit._typing import Array, Index, Mask
from onefit.numerics import ON_BOUND


class KinkPattern(NamedTuple):
    """Where the coordinates of each problem are, (a, q)."""

    own: Mask  # in a piece
    at: Array  # kink that others are on
    sign: Array  # of the coordinates in the piece, 0 where there is no ℓ1 part

    def take(self, which: Index) -> KinkPattern:
        return KinkPattern(self.own[which], self.at[which], self.sign[which])


class KinkExchange(NamedTuple):
    """What one round of an active-set method does with the patterns of quadratic models."""

    after: KinkPattern
    moved: Mask  # (a, q)
    target: Array  # (a, q), the minima on the patterns before, up to the ends of their pieces


@dataclass(frozen=True, eq=False)
class WatchedKinks:
    """Strengths of the ℓ1 part, which problems keep different shares of, and bounds: (a, q) or (q,)."""

    l1: Array  # (a, q)
    lower: Array
    upper: Array

    def take(self, which: Index) -> WatchedKinks:
        return WatchedKinks(self.l1[which], self.lower, self.upper)

    def hold(self, x: Array) -> Mask:
        """Whether coordinates are on a kink."""
        return np.asarray((x == self.lower) | (x == self.upper) | ((x == 0) & (self.l1 > 0)))

    def slopes(self, at: Array) -> tuple[Array, Array]:
        """Slopes of the penalty to the left and to the right of a kink."""
        left = np.where(at == self.lower, -np.inf, np.where(at > 0, self.l1, -self.l1))
        return left, np.where(at == self.upper, np.inf, np.where(at < 0, -self.l1, self.l1))

    def leaves(self, at: Array, pull: Array, slack: float = ON_BOUND) -> tuple[Mask, Mask]:
        """Whether a pull takes a coordinate off its kink to the left, and to the right."""
        left, right = self.slopes(at)
        with np.errstate(invalid="ignore"):  # infinite ones hold whatever the slack
            return pull < left - slack * np.abs(left), pull > right + slack * np.abs(right)

    def pulls_off(self, at: Array, pull: Array, slack: float = ON_BOUND) -> Mask:
        """Whether what is on a kink is pulled off it."""
        left, right = self.leaves(at, pull, slack)
        return np.asarray(self.hold(at) & (left | right))

    def is_tied(self, at: Array, pull: Array, size: Array | float) -> Mask:
        """Whether what is on a kink is all but pulled off it, where a pull is a sum of terms of this size."""
        near = [
            np.isfinite(slope) & (np.abs(pull - slope) <= ON_BOUND * (np.abs(slope) + size))
            for slope in self.slopes(at)
        ]
        return np.asarray(self.hold(at) & (near[0] | near[1]))

    def ends(self, sign: Array) -> tuple[Array, Array]:
        """Ends of the pieces on one side of zero."""
        kinked = self.l1 > 0
        low = np.where(kinked & (sign > 0), np.maximum(self.lower, 0.0), self.lower)
        return low, np.where(kinked & (sign < 0), np.minimum(self.upper, 0.0), self.upper)

    def pattern(self, x: Array, free: Mask) -> KinkPattern:
        """Where coordinates are; what is not free is held."""
        return KinkPattern(free & ~self.hold(x), x.copy(), np.where(self.l1 > 0, np.sign(x), 0.0))

    def pulled(self, x: Array, pull: Array, free: Mask) -> tuple[KinkPattern, Array]:
        """The pattern that coordinates go to next, and which way those on a kink go, −1, 0 or 1."""
        pattern, (left, right) = self.pattern(x, free), self.leaves(x, pull, 0.0)
        way = np.where(free & ~pattern.own, np.subtract(right, left, dtype=np.float64), 0.0)
        own = pattern.own | (way != 0)
        return KinkPattern(own, x, np.where((x == 0) & (self.l1 > 0), way, pattern.sign)), way

    def exchange(self, pattern: KinkPattern, value: Array, pull: Array, free: Mask) -> KinkExchange:
        """Hold what leaves its piece at the end of it, and let go what is pulled at too hard.

        ``value`` are the minima on the patterns, ``pull`` what the rest of the model pulls with there.
        """
        own, at, sign = pattern
        low, high = self.ends(sign)
        target = np.where(own, np.clip(value, low, high), at)
        left, right = (free & ~own & leaves for leaves in self.leaves(at, pull))
        moved = (own & (target != value)) | left | right
        outward = np.where(at == 0, np.subtract(right, left, dtype=np.float64), np.sign(at))
        sign = np.where(left | right, np.where(self.l1 > 0, outward, 0.0), sign)
        return KinkExchange(KinkPattern(own ^ moved, target, sign), moved, target)
