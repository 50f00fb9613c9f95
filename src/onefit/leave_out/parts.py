"""Rows whose steps say little, told by fits without tenths of them, and by some of them alone.

Where rows change the pattern of a fit, a step says least of those that matter most: a row that alone holds
a coefficient up has no slack.  A fit without a tenth of the rows knows the kinks, and is off by what the rest
of the tenth would have said.  The rows of the largest changes by either are left out for certain, some of the
others at random in proportion to these, and the rest are predicted from the losses in the fit, after a step
and without the tenth (``regression``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index
from onefit.leave_out.draws import LOOKS, MOST, NEGLIGIBLE, Draw, draw, expected_spread, size_for, wanting
from onefit.leave_out.factor_free import PARTS, goes_by_column, rough_cost, without_tenths
from onefit.leave_out.regression import regression_estimate
from onefit.leave_out.result import Correction, Drawn
from onefit.leave_out.yardstick import Yardstick, allowed_by_all
from onefit.numerics import UNRELIABLE, resolution

if TYPE_CHECKING:
    from onefit.leave_out.stages import State

FIRST_SAMPLE = 120  # rows by which a sample is tried
CERTAIN = 0.65  # share of them that are those of the largest changes, which tails are heavy in


def tell_by_parts(state: State, yardstick: Yardstick, apart: Array | None = None) -> bool:
    """Correct the mean by a sample beside fits without tenths, where that takes less; whether it did.

    Where half of the rows would not tell what was asked for, an error that users need no warning of will do.
    ``apart`` are the predictors without those tenths that were left out before, NaN elsewhere: (n,) or
    (n, c).
    """
    frame = np.flatnonzero(wanting(state.errors(), state.room))
    if not _pays(state, frame.size):
        return False
    sample = _Sample.of(state, yardstick, frame, apart)
    m, most, loosely = FIRST_SAMPLE, int(MOST * frame.size), max(1.0, UNRELIABLE / state.max_error)
    for _ in range(LOOKS):
        drawn = sample.drawn(m)
        found = sample.correction(drawn)
        larger = max(sample.enough(drawn), 2 * m)
        if found.error <= (1.0 if larger <= most else loosely) * sample.room:
            state.found = replace(state.found, correction=found)
            return True
        m = larger if larger <= most else min(max(sample.enough(drawn, loosely), 2 * m), most)
    return False


def _pays(state: State, count: int) -> bool:
    """Whether fits without tenths and some of the rows take less than all these rows."""
    fit = state.fit
    if state.sets is not None or not goes_by_column(fit) or MOST * count <= FIRST_SAMPLE:
        return False
    each = state.stages()[0].each.seconds
    return PARTS * rough_cost(fit) + FIRST_SAMPLE * each < MOST * count * each


@dataclass(frozen=True, eq=False)
class _Sample:
    """Rows of which some are left out alone, and what is known of all of them."""

    state: State
    yardstick: Yardstick
    frame: Index  # (r,)
    weights: Array  # (r,), share of each row in the mean
    known: Array  # (r, 3), the losses in the fit, after a step and without a tenth
    effect: Array  # (r,), how much the loss of each may change
    rest: float  # error of the mean that the other rows leave
    before: Array  # (n,) or (n, c), linear predictors before any row was left out alone

    @classmethod
    def of(cls, state: State, yardstick: Yardstick, frame: Index, apart: Array | None = None) -> _Sample:
        """Leave out tenths; predictors without them take the place of those after a step."""
        fit, found = state.fit, state.found
        inside, stepped = (yardstick.losses(frame, eta[frame]) for eta in (fit.eta, found.eta))
        eta = without_tenths(fit, state.curvature, apart)
        without = yardstick.losses(frame, eta[frame])
        stepped = np.clip(np.nan_to_num(stepped, nan=np.inf), None, 2.0 * without.max())  # may be anywhere
        in_frame = _linalg.with_axes(np.isin(found.rows, frame), eta)
        state.found = replace(found, eta=np.where(in_frame, eta, found.eta))
        effect = np.maximum(np.abs(without - inside), np.abs(stepped - inside))
        weights = yardstick.weights[frame] / yardstick.weights.sum()
        rest = np.delete(state.errors(), frame)
        known = np.column_stack([inside, stepped, without])
        before = state.found.eta
        return cls(state, yardstick, frame, weights, known, effect, float(rest.sum()), before)

    @property
    def room(self) -> float:
        """Error of the mean that may be left."""
        return allowed_by_all(self.state.found, self.yardstick, self.state.max_error)

    @cached_property
    def _order(self) -> Index:
        """Places in the frame, those of the largest effect first."""
        return np.argsort(-self.weights * self.effect, kind="stable")

    def _parted(self, m: int) -> tuple[Index, Index]:
        """Places in the frame that a sample of m takes for certain, and the others."""
        certain, rest = np.split(self._order, [int(CERTAIN * m)])
        return certain, rest

    @property
    def _now(self) -> Array:
        """Losses as far as they are known: (r,)."""
        return self.yardstick.losses(self.frame, self.state.found.eta[self.frame])

    def drawn(self, m: int) -> Draw:
        """Solve so many rows: those of the largest effect, and others at random in proportion to it."""
        certain, rest = self._parted(m)
        chance = draw(self.effect[rest], self.weights[rest], m - len(certain), np.random.default_rng(0))
        rows = np.concatenate([certain, rest[chance.rows]])
        found = Draw(rows, np.concatenate([np.ones(len(certain)), chance.probabilities]))
        self.state.settle(self.frame[rows], self._limits(found), proven=False)
        return found

    def _limits(self, drawn: Draw) -> Array:
        """Error of the mean that each row may leave, so that all together leave next to nothing."""
        return NEGLIGIBLE / len(drawn.rows) * self.room * drawn.probabilities

    def correction(self, drawn: Draw) -> Correction:
        """What a sample says about the mean.

        It claims no more than was asked for: where heavy tails were not drawn, errors look smaller.
        """
        mean, error, reach = self._told(drawn)
        finest = max(self.room, resolution(mean, self.room / self.state.max_error))
        half = max(reach * error + self._left(drawn) + self.rest, finest)
        rows = Drawn(self.frame[drawn.rows], drawn.probabilities, self.before)
        return Correction(mean - float(self.weights @ self._now), half, 1.0, drawn=rows)

    def enough(self, drawn: Draw, loosely: float = 1.0) -> int:
        """Rows to draw for some times the error that may be left, by what those drawn are off by."""
        _, error, _ = self._told(drawn)
        room, expected = loosely * self.room, self._expected(len(drawn.rows))
        wanted = room * expected / error if error > 0 else np.inf
        return size_for(wanted, self._expected, FIRST_SAMPLE, self.frame.size)

    def _told(self, drawn: Draw) -> tuple[float, float, float]:
        """The mean, its standard error, and how many of these an interval reaches."""
        return regression_estimate(self._now[drawn.rows], drawn, self.known, self.weights)

    def _left(self, drawn: Draw) -> float:
        """What the rows of a sample may still be off by: what was asked for, where steps have settled."""
        rows, own = self.frame[drawn.rows], self.state.errors()[self.frame[drawn.rows]]
        settled = np.isin(rows, list(self.state.found.solved)) & ~np.isfinite(own)
        return float(np.sum(np.where(settled, self._limits(drawn), own) / drawn.probabilities))

    def _expected(self, m: int) -> float:
        """Standard error of so many rows, if each were off by what it is drawn by."""
        certain, rest = self._parted(m)
        return expected_spread(self.effect[rest], self.weights[rest], m - len(certain))
