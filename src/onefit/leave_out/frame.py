"""The sets of which a sample is drawn, and what it says about the mean.

A set is drawn with probability in proportion to what it may change: its bound, and where there is none the
change that its step makes, or the largest finite bound if that is more; where no pattern can change, no more
than the farthest end of its step would.  Those of the largest effect are taken for certain.  The difference
estimator (``draws``) gives the mean and its 95 % interval, whatever the approximation is worth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from onefit._typing import Array, Index, Mask
from onefit.leave_out.draws import (
    AT_A_LOOK,
    NEGLIGIBLE,
    Draw,
    draw_alike,
    expected_spread,
    size_for,
    spread,
    unseen,
    wanting,
)
from onefit.leave_out.lengths import FARTHEST, LONGEST, cost_of_lengths, farthest, step_lengths
from onefit.leave_out.probed import sharpened
from onefit.leave_out.result import Correction, Drawn, LeftOut
from onefit.leave_out.ways import cost_of_chords
from onefit.leave_out.yardstick import Yardstick, allowed, allowed_by_all
from onefit.numerics import CONFIDENCE, TINY, resolution
from onefit.solvers.truncated import Seconds

if TYPE_CHECKING:
    from onefit.leave_out.stages import State

FEWEST = 30  # sets that tell the error of a sample
SPARED = 2 * FEWEST  # rows that the lengths of steps spare, about: what was thought of a sample is far more
SHARES = 11  # of a step, between which one is chosen


class Frame(NamedTuple):
    """The sets among which a sample is drawn, and what was known of them before."""

    state: State
    yardstick: Yardstick
    before: LeftOut
    rough: Mask  # (t,), values of which nothing was known
    sets: Index  # (r,), by number
    errors: Array  # (r,), as shares of the mean
    rest: float  # error of the sets outside
    weights: Array  # (r,), share of each set in the mean
    losses: Array  # (r,), mean loss of each set
    effect: Array  # (r,), what each may change
    lengths: Array | None  # (n,), shares of first steps that the losses are those of; None of whole ones

    @classmethod
    def of(cls, state: State, yardstick: Yardstick, room: float, lengths: Array | None = None) -> Frame:
        """All sets but those that together may change next to nothing."""
        own, found = state.errors(), state.found
        inside = wanting(own, room)
        sets = np.flatnonzero(inside)
        totals = np.bincount(found.fold, yardstick.weights[found.rows], found.count).astype(np.float64)
        weights = (totals / totals.sum())[sets]
        rest = float(own[~inside].sum())
        own, bound = own[sets], own[sets] / np.maximum(weights, TINY)
        losses = _means(found, yardstick, found.eta)[sets]
        frame = cls(state, yardstick, found, state.rough, sets, own, rest, weights, losses, bound, lengths)
        if not found.fit.is_smooth or state.estimate is not None:  # where leverages are off, too
            return frame._replace(losses=_finite(losses), effect=frame._of_steps())
        if lengths is not None:
            frame = frame._replace(losses=frame._after(lengths))
        return frame._replace(losses=_finite(frame.losses), effect=frame._along_steps(losses))

    def _of_steps(self) -> Array:
        """What sets may change by what their steps did: (r,)."""
        state, found, bound = self.state, self.before, self.effect
        change = np.abs(self.losses - _means(found, self.yardstick, found.fit.eta[found.rows])[self.sets])
        largest = np.max(bound, where=np.isfinite(bound), initial=0.0)
        effect = np.where(np.isfinite(bound), bound, np.maximum(change, largest))
        iterated = ~np.isfinite(bound) & np.isin(self.sets, list(state.starts))
        settled = iterated & np.isin(self.sets, list(found.solved))
        ended = iterated & ~settled  # anywhere
        effect[settled] = 0.0
        effect[ended] = np.maximum(effect[ended], np.abs(self.weights @ _finite(self.losses)))
        return effect

    def _along_steps(self, whole: Array) -> Array:
        """What sets may change, where those of whole steps have these losses: (r,).

        What a step of the best length leaves is between what that length changes and what the farthest end
        would.  Sets whose slope vanishes nowhere along their step end anywhere: where they are few they are
        solved.
        """
        found = self.before
        step = _moved(found, found.eta - found.fit.eta[found.rows])
        times = farthest((found.fit.problem.self_concordance() or 1.0) * step)
        with np.errstate(invalid="ignore"):
            effect = np.abs(self._after(times) - whole)
        effect[np.isnan(effect)] = np.inf  # both are without bound
        astray = self.rough & (times == FARTHEST)
        if self.lengths is not None:
            effect = np.sqrt(effect * np.abs(self.losses - whole))
            astray = self.rough & (self.lengths == LONGEST)
        astray = np.bincount(found.fold[astray], minlength=found.count)[self.sets] > 0
        if np.count_nonzero(astray) <= FEWEST:
            effect[astray] = np.inf
        return np.minimum(self.effect, effect)

    def _after(self, shares: Array) -> Array:
        """Losses of the sets had steps been shares, (t,), as long: (r,)."""
        return _means(self.before, self.yardstick, self.before.shortened(shares))[self.sets]

    def spared(self, room: float) -> int:
        """Sets that a sample with the lengths of the steps spares, about."""
        return min(size_for(room, self._expected, FEWEST, self.size) - FEWEST, SPARED)

    def _expected(self, count: int) -> float:
        """Error of a sample of so many sets, if they are as far off as is thought."""
        return expected_spread(self.effect, self.weights, count)

    def asks_for_lengths(self, more: float) -> bool:
        """Whether so many more sets take longer than to find the lengths of steps, which are not known."""
        state, step = self.state, self.state.step
        known = self.lengths is not None or step is None or state.estimate is not None
        if known or not state.fit.is_smooth:
            return False
        assert step is not None
        return more * self.each > cost_of_lengths(state.fit, step.curvature, self._stepped.size).seconds

    @property
    def _stepped(self) -> Index:
        """Rows of which there is nothing but a first step."""
        return self.sets[self.state.found.stepped_once(self.state.starts)[self.sets]]

    def measured(self) -> Frame:
        """With the lengths of the steps."""
        state, rows, lengths = self.state, self._stepped, np.ones(self.state.found.count)
        assert state.step is not None
        lengths[rows] = step_lengths(state.fit, state.step, rows)
        return Frame.of(state, self.yardstick, state.room, lengths)

    @property
    def size(self) -> int:
        """Sets among which is drawn."""
        return self.sets.size

    @property
    def fewest(self) -> int:
        """Sets that tell the error of a sample, beside those that may have ended anywhere.

        Where these are few they are drawn for certain, as the others are thought to be where they end: those
        of them that are drawn tell whether they are.
        """
        ended = int(np.count_nonzero((self._iterated & (self.effect > 0)) | np.isinf(self.effect)))
        return max(FEWEST, FEWEST // 2 + min(FEWEST, ended))

    @property
    def each(self) -> float:
        """Seconds that a set takes, about: by a solver where it was iterated before."""
        return self.state.stages()[-1 if self._iterated.all() else 0].each.seconds

    def asks_for_factor(self, m: int) -> bool:
        """Whether so many sets, which estimates leave open, take less with a factor."""
        fit = self.state.fit
        by_factor = Seconds.of(fit).with_forms + m * cost_of_chords(fit, None).seconds
        return self.state.estimate is not None and m * self.each > by_factor

    @property
    def _iterated(self) -> Mask:
        return np.isin(self.sets, list(self.state.starts))

    def drawn(self, m: int, lots: Array, room: float) -> tuple[Frame, Draw, float]:
        """Draw so many sets, and solve them; and the error that may be left, which they tell best."""
        found = draw_alike(self.effect, self.weights, m, lots[self.sets])
        numbers, limits = self.sets[found.rows], NEGLIGIBLE / m * found.probabilities
        frame = self._sharpened(numbers)
        self.state.settle(numbers, room * limits)
        stand_for = np.ones(self.before.count)
        stand_for[self.sets] = 0.0
        stand_for[numbers] = 1.0 / found.probabilities
        told = allowed(self.state.found, self.yardstick, self.state.max_error, stand_for)
        self.state.settle(numbers, min(room, told) * limits)
        return frame, found, min(room, told)

    def _sharpened(self, numbers: Index) -> Frame:
        """With leverages of some sets that are no estimates: what these leave is told by the probes."""
        if self.state.estimate is None:
            return self
        assert self.state.step is not None
        now = sharpened(self.state.fit, self.state.step, self.state.found, numbers)
        self.state.found = now
        losses = _finite(_means(now, self.yardstick, now.eta)[self.sets])
        return self._replace(before=now, losses=losses)

    def best_share(self, drawn: Draw) -> float:
        """Share of steps of which nothing is known that would have been the best guess for those drawn."""
        if self.lengths is not None:
            return 1.0
        shares = np.linspace(0.0, 1.0, SHARES)
        return float(shares[np.argmin([self._expanded(drawn, share) for share in shares])])

    def _expanded(self, drawn: Draw, share: float) -> float:
        """Standard error of the difference that a sample tells, had steps been a share as long."""
        exact, guess = self.losses + self._change(), self.losses
        if share < 1.0:
            guess = _finite(self._after(np.where(self.rough, share, 1.0)))
        off = self.weights * (exact - guess)
        return _spread(off[drawn.rows], drawn)[0]

    def off(self, drawn: Draw, share: float) -> float:
        """How many times as far off sets are as was thought, by those drawn."""
        return self._expanded(drawn, share) / max(self._expected(len(drawn.rows)), TINY)

    def enough(self, off: float, room: float) -> int:
        """Sets to draw for an error of so much, where they are so many times as far off as is thought."""
        wanted = room / off if off > 0 else np.inf
        return size_for(wanted, self._expected, FEWEST, self.size)

    def _change(self) -> Array:
        """By how much the loss of each set is not what it was before: (r,)."""
        now = self.state.found
        return _finite(_means(now, self.yardstick, now.eta)[self.sets]) - self.losses

    def correction(self, drawn: Draw) -> Correction:
        """What a sample says about the mean."""
        change = self._change()
        off = (self.weights * change)[drawn.rows]
        error, quantile = _spread(off, drawn)
        left = _finite(self.state.errors()[self.sets[drawn.rows]] / drawn.probabilities).sum()
        half = max(quantile * error, self._unseen(off, drawn)) + float(left) + self.rest
        difference = float(np.sum(off / drawn.probabilities) - self.weights @ change)
        now = self.state.found
        told = _tightness(self.before, now), _step_error(self.before, now)
        rows = Drawn(self.sets[drawn.rows], drawn.probabilities, self._guessed)
        return Correction(difference, half, *told, rows)

    @property
    def _guessed(self) -> Array:
        """Linear predictors whose losses the sample corrects: (t,) or (t, c)."""
        if self.lengths is None:
            return self.before.eta
        shares = np.ones(len(self.lengths))
        shares[self.sets] = self.lengths[self.sets]
        return self.before.shortened(shares)

    def _unseen(self, off: Array, drawn: Draw) -> float:
        """What sets that were not drawn may change, and where nothing bounds them the resolution at least."""
        bounded = np.isfinite(self.errors)
        known = bounded[drawn.rows]
        floor = unseen(np.where(known, off, 0.0), np.where(bounded, self.errors, 0.0), drawn, CONFIDENCE)
        if bounded.all() or np.all(drawn.probabilities == 1.0):
            return floor
        standard_error = allowed_by_all(self.state.found, self.yardstick)
        return max(floor, resolution(float(self.weights @ self.losses), standard_error))


def _spread(off: Array, drawn: Draw) -> tuple[float, float]:
    """Standard error of a sum of which a sample is known, and the quantile that goes with it."""
    chance = 1.0 - drawn.probabilities
    return spread(off / drawn.probabilities, chance, AT_A_LOOK)


def _means(found: LeftOut, yardstick: Yardstick, eta: Array) -> Array:
    """Mean loss of each set at some linear predictors: (f,)."""
    weights = yardstick.weights[found.rows]
    losses = yardstick.losses(found.rows, eta)
    sums = np.bincount(found.fold, np.where(weights > 0, weights * losses, 0.0), found.count)
    totals = np.bincount(found.fold, weights, found.count)
    return np.divide(sums, totals, out=np.zeros_like(sums), where=totals > 0)


def _solved_since(before: LeftOut, now: LeftOut) -> tuple[Mask, Array]:
    """Values of sets that were solved since, and how far they were off before: (t,), (t,)."""
    numbers = np.setdiff1d(np.union1d(now.stepped, now.anew), np.union1d(before.stepped, before.anew))
    return np.isin(before.fold, numbers), _moved(before, now.eta - before.eta)


def _moved(found: LeftOut, change: Array) -> Array:
    return found.fit.problem.moved(change.reshape(len(change), -1))


def _step_error(before: LeftOut, now: LeftOut) -> float:
    """Largest share of its step by which a value was off of which nothing was known, where that tells."""
    own, off = _solved_since(before, now)
    own &= ~np.isfinite(before.bounds)
    if not before.fit.is_smooth or np.count_nonzero(own) < FEWEST // 2:
        return np.inf
    step = _moved(before, before.eta - before.fit.eta[before.rows])
    return float(np.max(off[own] / np.maximum(step[own], TINY)))


def _finite(values: Array) -> Array:
    return np.where(np.isfinite(values), values, 0.0)


def _tightness(before: LeftOut, now: LeftOut) -> float:
    """Largest share of its bound by which a value was off, among sets that were solved since."""
    own, off = _solved_since(before, now)
    own &= np.isfinite(before.bounds) & (before.bounds > 0)
    if not own.any():
        return 1.0
    return float(min(1.0, np.max(off[own] / before.bounds[own])))
