"""What is too dear to bound is sampled: a few sets are solved, drawn at random, and correct the mean.

A set is drawn with probability in proportion to what it may change: its bound, and where there is none the
change that its step makes, or the largest finite bound if that is more.  Those of the largest effect are
taken for certain.  The difference estimator (``draws``) gives the mean and its 95 % interval, whatever the
approximation is worth.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from onefit._typing import Array, Index
from onefit.leave_out.draws import Draw, draw, spread
from onefit.leave_out.result import Correction, LeftOut
from onefit.leave_out.yardstick import Yardstick
from onefit.losses import CoupledLoss
from onefit.numerics import TINY

if TYPE_CHECKING:
    from onefit.leave_out.stages import State

FEWEST = 30  # sets that tell the error of a sample
CONFIDENCE, LOOKS = 0.95, 2  # a sample that turns out too small is drawn anew, once
NEGLIGIBLE = 0.1  # share of the error that is wanted which sets outside the sample may make up
RESOLUTION = 1e-3  # of the risk: nothing finer is claimed of rows without a bound, which may never be drawn


def sample(state: State, yardstick: Yardstick, affordable: float, rng: int = 0) -> None:
    """Correct the mean where bounds leave too much open, in about so many seconds or with the fewest sets."""
    own, room = state.errors(), state.room
    if own.sum() <= room:
        return
    part = _Part.of(state, yardstick, own, room)
    most = max(FEWEST, int(min(affordable / state.stages()[0].each.seconds, own.size)))
    if part.frame.size <= most:
        state.settle(part.frame, 0.0)
        return
    generator = np.random.default_rng(rng)
    found = part.correction(part.drawn(FEWEST, generator))
    if found.error > room:
        more = FEWEST * (found.error / room) ** 2 if room > 0 else np.inf
        if (m := int(min(1.2 * more, most))) > FEWEST:
            found = part.correction(part.drawn(m, generator))
    if found.error < state.errors().sum():
        state.found = replace(state.found, correction=found)


class _Part(NamedTuple):
    """The sets among which a sample is drawn, and what was known of them before."""

    state: State
    yardstick: Yardstick
    before: LeftOut
    frame: Index  # (r,)
    errors: Array  # (r,), as shares of the mean
    rest: float  # error of the sets outside
    weights: Array  # (r,), share of each set in the mean
    losses: Array  # (r,), mean loss of each set
    effect: Array  # (r,), what each may change
    room: float

    @classmethod
    def of(cls, state: State, yardstick: Yardstick, own: Array, room: float) -> _Part:
        """All sets but those that together may change next to nothing."""
        order = np.argsort(own, kind="stable")
        outside = np.cumsum(own[order]) <= NEGLIGIBLE * room
        frame = np.sort(order[~outside])
        found = state.found
        totals = np.bincount(found.fold, yardstick.weights[found.rows], found.count).astype(np.float64)
        weights = (totals / totals.sum())[frame]
        losses = _means(found, yardstick, found.eta)[frame]
        change = np.abs(losses - _means(found, yardstick, found.fit.eta[found.rows])[frame])
        bound = own[frame] / np.maximum(weights, TINY)
        largest = np.max(bound, where=np.isfinite(bound), initial=0.0)
        effect = np.where(np.isfinite(bound), bound, np.maximum(change, largest))
        rest = float(own[order[outside]].sum())
        return cls(state, yardstick, found, frame, own[frame], rest, weights, _finite(losses), effect, room)

    def drawn(self, m: int, rng: np.random.Generator) -> Draw:
        """Draw so many sets, and solve them."""
        found = draw(self.effect, self.weights, m, rng)
        self.state.settle(self.frame[found.rows], NEGLIGIBLE * self.room / m * found.probabilities)
        return found

    def correction(self, drawn: Draw) -> Correction:
        """What a sample says about the mean."""
        now, numbers = self.state.found, self.frame[drawn.rows]
        change = _finite(_means(now, self.yardstick, now.eta)[self.frame]) - self.losses
        off = (self.weights * change)[drawn.rows]
        chance = 1.0 - drawn.probabilities
        error, quantile = spread(off / drawn.probabilities, chance, 1.0 - (1.0 - CONFIDENCE) / LOOKS)
        left = _finite(self.state.errors()[numbers] / drawn.probabilities).sum()
        half = max(quantile * error, self._unseen(np.abs(off), drawn)) + float(left) + self.rest
        difference = float(np.sum(off / drawn.probabilities) - self.weights @ change)
        return Correction(difference, half, _tightness(self.before, now, numbers))

    def _unseen(self, off: Array, drawn: Draw) -> float:
        """What sets that were not drawn may change: a small share of the draws, all as far off as any.

        Where nothing bounds them it is the resolution at least.
        """
        by_chance = int(np.count_nonzero(drawn.probabilities < 1.0))
        if by_chance == 0:
            return 0.0
        bounded = np.isfinite(self.errors)
        others = bounded.copy()
        others[drawn.rows] = False
        known = bounded[drawn.rows]
        ratio = np.max(off[known] / np.maximum(self.errors[drawn.rows][known], TINY), initial=0.0)
        share = 1.0 - (1.0 - CONFIDENCE) ** (1.0 / by_chance)
        floor = share * min(float(ratio), 1.0) * float(self.errors[others].sum())
        return floor if bounded.all() else max(floor, RESOLUTION * abs(float(self.weights @ self.losses)))


def _means(found: LeftOut, yardstick: Yardstick, eta: Array) -> Array:
    """Mean loss of each set at some linear predictors: (f,)."""
    weights = yardstick.weights[found.rows]
    losses = yardstick.losses(found.rows, eta)
    sums = np.bincount(found.fold, np.where(weights > 0, weights * losses, 0.0), found.count)
    totals = np.bincount(found.fold, weights, found.count)
    return np.divide(sums, totals, out=np.zeros_like(sums), where=totals > 0)


def _finite(values: Array) -> Array:
    return np.where(np.isfinite(values), values, 0.0)


def _tightness(before: LeftOut, now: LeftOut, numbers: Index) -> float:
    """Largest share of its bound by which a value was off, among sets that were solved."""
    own = np.isin(before.fold, numbers) & np.isfinite(before.bounds) & (before.bounds > 0)
    if not own.any():
        return 1.0
    moved = (now.eta - before.eta)[own].reshape(int(own.sum()), -1)
    coupled = isinstance(before.fit.problem.loss, CoupledLoss)
    off = np.ptp(moved, axis=1) if coupled else np.abs(moved).max(axis=1)
    return float(min(1.0, np.max(off / before.bounds[own])))
