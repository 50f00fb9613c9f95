"""What is too dear to bound is sampled: a few sets are solved, drawn at random, and correct the mean.

The sample grows until it leaves no more error than is asked for, and gives way where another way takes less
(``frame`` tells of the sets among which it is drawn).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array
from onefit.fit import Fit
from onefit.leave_out.draws import LOOKS, MOST, NEGLIGIBLE
from onefit.leave_out.frame import FEWEST, Frame
from onefit.leave_out.probed import doubt_of_probes
from onefit.leave_out.result import Correction, LeftOut
from onefit.leave_out.row_order import random_order
from onefit.leave_out.yardstick import Yardstick, allowed_by_all
from onefit.numerics import UNRELIABLE

if TYPE_CHECKING:
    from onefit.leave_out.stages import State

LARGER = 4  # times, at most, before it is looked at again: its error is told roughly, mostly too large


def sample(state: State, yardstick: Yardstick, affordable: float, rng: int = 0) -> None:
    """Correct the mean where bounds leave too much open, in about so many seconds or with the fewest sets."""
    if state.errors().sum() <= state.room:
        return
    room = allowed_by_all(state.found, yardstick, state.max_error)  # were losses right
    frame = Frame.of(state, yardstick, state.room)
    frame = frame.measured() if frame.asks_for_lengths(frame.spared(room)) else frame
    most = max(frame.fewest, int(affordable / frame.each))
    few = frame.size <= (FEWEST / MOST if state.fit.is_smooth else most)
    if few or frame.asks_for_factor(frame.fewest):
        _solve_all(state, yardstick, affordable, rng)
        return
    before, too_far = state.found, UNRELIABLE / state.max_error
    lots, others = _lots(state.fit, before, rng)
    grown = _grown(frame, lots, room, most)
    if grown.fails(too_far) and frame.asks_for_lengths(MOST * frame.size):
        grown = _grown(_begun_anew(frame, before), others, room, most)
    found, doubt = _with_doubt(grown.found, state, yardstick)
    if grown._replace(found=found).fails(too_far):
        _solve_all(state, yardstick, affordable, rng)
    elif found.error < (left := state.errors().sum()):
        # it claims no more than was asked for: where heavy tails were not drawn, errors look smaller
        told = found if np.isfinite(left) else found._replace(error=max(found.error, grown.room))
        state.found = replace(state.found, correction=told, doubt=doubt)


def _lots(fit: Fit, found: LeftOut, rng: int) -> Array:
    """Random numbers for each look and each set, which belong to what a row holds: (2, LOOKS, t)."""
    lots = np.random.default_rng(rng).random((2, LOOKS, found.count))
    return lots if found.sets is not None else lots[..., np.argsort(random_order(fit))]


class _Grown(NamedTuple):
    """What a sample says, the error that was to be left, and whether that asks for more than other ways."""

    found: Correction
    room: float
    is_dear: bool = False

    def fails(self, too_far: float) -> bool:
        """Whether it is dear, or leaves an error of which users need a warning."""
        return self.is_dear or self.found.error > too_far * self.room


def _grown(frame: Frame, lots: Array, room: float, most: int) -> _Grown:
    """Draw few sets, and more of the others after a look at these, until they leave no more than room.

    ``lots``, one row a look, are the same at every strength: so are most of the sets.
    """
    state, m = frame.state, frame.fewest
    for look in range(LOOKS - 1):
        frame, drawn, room = frame.drawn(m, lots[look], room)
        found = frame.correction(drawn)
        if found.error <= room:
            return _Grown(found, room)
        share, fewest = frame.best_share(drawn), len(drawn.rows)
        off = frame.off(drawn, share)
        state.shorten(np.full(state.found.count, share))
        frame = Frame.of(state, frame.yardstick, NEGLIGIBLE * room, frame.lengths)
        m = frame.enough(off, room)
        if m > most:  # as many as can be afforded, or as few as will do
            m = max(most, frame.enough(off, UNRELIABLE / state.max_error * room))
        m = max(fewest, m if look == LOOKS - 2 else min(m, LARGER * fewest))
        dear = frame.asks_for_factor(m) or frame.asks_for_lengths(m - frame.fewest)
        if m >= MOST * frame.size or dear:
            return _Grown(found, room, True)
    frame, drawn, room = frame.drawn(m, lots[-1], room)
    return _Grown(frame.correction(drawn), room)


def _begun_anew(frame: Frame, before: LeftOut) -> Frame:
    """The sets that are still open, with the lengths of their steps."""
    state = frame.state
    is_rough = _linalg.with_axes(state.rough, before.eta)
    state.found = replace(state.found, eta=np.where(is_rough, before.eta, state.found.eta))
    return Frame.of(state, frame.yardstick, state.room).measured()


def _with_doubt(found: Correction, state: State, yardstick: Yardstick) -> tuple[Correction, Array | None]:
    """What probes leave, where leverages are estimates, beside what the sample leaves; and of each value."""
    if state.step is None or state.estimate is None:
        return found, None
    doubt = doubt_of_probes(state.fit, state.step, state.found, yardstick)
    difference = found.difference - 0.5 * doubt.bias
    return found._replace(difference=difference, error=found.error + doubt.half), doubt.values


def _solve_all(state: State, yardstick: Yardstick, affordable: float, rng: int) -> None:
    """Solve all sets that are wanting; with a factor a sample may do after all."""
    if state.estimate is None:
        state.refine(np.inf)
        return
    state.take_factor()
    sample(state, yardstick, affordable, rng)
