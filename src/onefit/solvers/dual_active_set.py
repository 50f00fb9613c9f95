"""The active-set method on the dual: which rows are on pieces of their loss, and which on kinks.

``kinks`` has the mathematics.
"""

from __future__ import annotations

from typing import final

import numpy as np

from onefit._typing import Array, Index, Mask
from onefit.exceptions import SolverError
from onefit.solvers.dual_rows import WeightedRows, into_box
from onefit.solvers.pinned_rows import ROUNDING, PinnedRows

# Rounds in which all rows change their state at once.
_BLOCK_ROUNDS = 40
# Error, as ROUNDING, for the last check, where nothing more can be done.
_ACCEPTED = 1e-8
# Steps of length zero in a row after which the smallest index decides.
_PATIENCE = 8
# Change of a dual, relative to its interval, that is rounding: it must not cost a row its kink.
_NO_MOVE = 1e-12
_STUCK = (
    "the rows did not settle on the pieces and on the kinks of the loss: the columns of X are of very "
    "different size, or nearly dependent; standardise them, or give a stronger penalty"
)


@final
class DualActiveSet(PinnedRows):
    """Changes of the states until none is wrong; parameters and attributes are those of ``PinnedRows``."""

    def __init__(self, rows: WeightedRows, kinks: Array, ends: Array) -> None:
        super().__init__(rows, kinks, ends)
        self._stalled = 0
        self._best = (self.duals, self.eta)  # with the fewest rows in a wrong state

    def settle(self) -> None:
        """Solve, from the states that the rows were placed in.

        Raises
        ------
        SolverError
        """
        if not self.settle_in_blocks():
            self.settle_by_pivots()

    # All rows at once

    def settle_in_blocks(self, rounds: int = _BLOCK_ROUNDS) -> bool:
        """Let all wrong rows change their state together, for as long as this may still end well."""
        fewest = len(self.duals) + 1
        seen: set[bytes] = set()
        for _ in range(rounds):
            self._arrive()
            past, outside = self._crossing(), self._overshoot()
            enter = np.abs(past) > self._eta_rounding()
            leave = np.abs(outside) > ROUNDING
            wrong = int(np.count_nonzero(enter)) + int(np.count_nonzero(leave))
            if wrong == 0:
                return True
            if wrong < fewest:
                fewest, self._best = wrong, (self.duals.copy(), self.eta)
            pattern = np.append(self.state, np.sort(self.pins)).tobytes()
            if pattern in seen or wrong > 4 * fewest + 10:
                return False
            seen.add(pattern)
            self._let_change(past, enter, outside, leave)
        return False

    def _let_change(self, past: Array, enter: Mask, outside: Array, leave: Mask) -> None:
        """Pin the rows that crossed a kink, and free those whose dual left its interval."""
        gone = self.pins[leave]
        self.state[gone] += outside[leave] > 0
        self.state[enter & (past < 0)] -= 1
        stays = self.pins[~leave]
        self._pin(np.concatenate([stays, np.flatnonzero(enter)]))

    # One row at a time

    def settle_by_pivots(self) -> None:
        """Go down the dual objective from a feasible point, one change of state at a time.

        Raises
        ------
        SolverError
        """
        self._make_feasible()
        for _ in range(1000 + 50 * len(self.duals)):
            target = self._target()
            length, hit = self._first_hit(target.change)
            needed = self._needed(target.change) if length < 1.0 else np.empty(0, dtype=bool)
            while length < 1.0 and needed[hit]:
                target.change[hit] = 0.0
                length, hit = self._first_hit(target.change)
            if length < 1.0:
                self._stalled = self._stalled + 1 if length < 1e-12 else 0
                self._move(length * target.change, self.pins)
                self._drop(hit, upwards=target.change[hit] > 0)
                continue
            self._move(target.change, self.pins)
            self.free = target.free
            self.eta = self.rows.free @ self.free - self.pull
            if not self._enter():
                return self._finish()
        raise SolverError(_STUCK)

    def _make_feasible(self) -> None:
        """Find duals in the box with Qᵀ g = 0, near the best so far, and pin those that are not at an end."""
        self.duals, self.eta = self._best
        g = into_box(np.clip(self.duals, self.ends[:, 0], self.ends[:, -1]), self.ends, self.rows.free)
        gap = np.abs(g[:, None] - self.ends)
        piece = gap.argmin(axis=1)
        inside = gap.min(axis=1) > 1e-11 * self._units(self.ends[:, -1] - self.ends[:, 0])
        kink = np.asarray((g[:, None] > self.ends[:, 1:-1]).sum(axis=1))
        self.state = np.where(inside, kink, piece)
        self.duals = np.where(inside, g, self.ends[np.arange(len(g)), piece])
        self._begin()
        self.pins = np.empty(0, dtype=np.intp)
        self._factor.clear()
        candidates = self._always_first(inside)
        for row in candidates[~self._join(candidates)]:
            self._exchange(int(row), self._descent(int(row)))
        self._join(self._missing_directions())

    def _descent(self, row: int) -> float:
        """Sign in which a dependent row moves so that the dual objective falls."""
        pins, change = self._without_effect(row)
        slope = float(change @ (self.pull[pins] + self.held_at(pins)))
        return -1.0 if slope > 0 else 1.0

    def _without_effect(self, row: int) -> tuple[Index, Array]:
        """Direction of the duals of the pinned rows, and of one dependent on them, that leaves η as it is."""
        change = np.append(-self._factor.solve(self.rows.among(self.pins, np.array([row]))[:, 0]), 1.0)
        change[np.abs(change) < 1e-10] = 0.0
        return np.append(self.pins, row), change

    def _first_hit(self, change: Array) -> tuple[float, int]:
        """Length of the step to the first end of an interval that a pinned dual reaches, and whose it is."""
        low, high = self._interval(self.pins)
        g = self.duals[self.pins]
        room = np.maximum(np.where(change > 0, high - g, g - low), 0.0)
        lengths = np.full(len(g), np.inf)
        moves = np.abs(change) > _NO_MOVE * self._units(high - low)
        lengths[moves] = room[moves] / np.abs(change[moves])
        length = float(lengths.min(initial=np.inf))
        tied = np.flatnonzero(lengths <= length * (1 + 1e-12))
        if length == np.inf:
            return length, -1
        by_index = self._stalled > _PATIENCE
        return length, int(tied[self.pins[tied].argmin() if by_index else np.abs(change[tied]).argmax()])

    def _needed(self, change: Array) -> Mask:
        """Pinned rows that alone determine a free direction: their duals are fixed, but for rounding."""
        needed = np.abs(change) <= 1e-6 * float(self._units(np.array(self._scale)))
        Q = self.rows.free[self.pins]
        if Q.shape[1] and needed.any():
            own = np.linalg.lstsq(Q.T @ Q, Q[needed].T, rcond=None)[0]
            needed[needed] = np.einsum("vf,fv->v", Q[needed], own) > 1.0 - 1e-8
        return needed & bool(Q.shape[1])

    def _drop(self, place: int, *, upwards: bool) -> None:
        """Take a pinned row off its kink, to the piece whose slope its dual has reached."""
        row = self.pins[place]
        self.state[row] += upwards
        self.duals[row] = self.ends[row, self.state[row]]
        self.pins = np.delete(self.pins, place)
        if place < self._factor.size:
            self._factor.delete(np.array([place]))

    def _enter(self) -> bool:
        """Let a row that crossed a kink into it; where it depends on others there, one of these leaves."""
        past = self._crossing()
        wrong = np.flatnonzero(np.abs(past) > self._eta_rounding())
        if wrong.size == 0:
            return False
        row = int(wrong[0] if self._stalled > _PATIENCE else wrong[np.abs(past[wrong]).argmax()])
        upwards = past[row] > 0
        self.state[row] -= not upwards
        if not self._join(np.array([row]))[0]:
            self._exchange(row, 1.0 if upwards else -1.0)
        return True

    def _exchange(self, row: int, sign: float) -> None:
        """Move a dependent row's dual, η staying as it is, until it or a pinned one reaches an end."""
        self.pins, change = self._without_effect(row)
        length, hit = self._first_hit(sign * change)
        self._stalled = self._stalled + 1 if length < 1e-12 else 0
        if length == np.inf:
            raise SolverError("no coefficients meet the constraints")
        self._move(length * sign * change, self.pins)
        itself = hit == len(self.pins) - 1
        self._drop(hit, upwards=sign * change[hit] > 0)
        if not itself:
            self.pins = self.pins[:-1]
            if not self._join(np.array([row]))[0]:
                raise SolverError(_STUCK)

    def _finish(self) -> None:
        """Solve once more with a fresh factor, and check."""
        self._pin(self.pins)
        self._arrive()
        rounding = _ACCEPTED / ROUNDING * self._eta_rounding()
        if (
            np.abs(self._crossing()).max() > rounding
            or np.abs(self._overshoot()).max(initial=0.0) > _ACCEPTED
        ):
            raise SolverError(_STUCK)
