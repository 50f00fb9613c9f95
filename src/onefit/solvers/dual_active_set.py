"""The active-set method on the dual: which rows are on pieces of their loss, and which on kinks.

``corners`` has the mathematics.
"""

from __future__ import annotations

from typing import NamedTuple, final

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.cholesky import UpdatableCholesky
from onefit.exceptions import SolverError
from onefit.numerics import size_of_duals
from onefit.solvers.dual_rows import WeightedRows, into_box

# Distance from a corner of the start, relative to 1 + |η|, that counts as none.
_AT_CORNER = 1e-6
# Rounds in which all rows change their state at once.
_BLOCK_ROUNDS = 40
# A row whose squared distance from the span of those in corners is below this share of its squared length
# counts as dependent.
_DEPENDENT = 1e-11
# Error of a linear predictor or of a dual, relative to the largest corner or the interval, that is rounding.
_ROUNDING = 1e-10
# The same for the last check, where nothing more can be done.
_ACCEPTED = 1e-8
# Steps of length zero in a row after which the smallest index decides.
_PATIENCE = 8
# Change of a dual, relative to its interval, that is rounding: it must not cost a row its corner.
_NO_MOVE = 1e-12
_EPS = float(np.finfo(np.float64).eps)
_STUCK = (
    "the rows did not settle on the pieces and in the corners of the loss: the columns of X are of very "
    "different size, or nearly dependent; standardise them, or give a stronger penalty"
)


class _Target(NamedTuple):
    """Where the duals of the rows in corners would go, and the free directions with them."""

    change: Array  # (v,)
    free: Array  # (f,)


@final
class DualActiveSet:
    """State of every row: on a piece, or in a corner with its dual free.

    Parameters
    ----------
    rows : WeightedRows
    corners : (n, q) array
    ends : (n, q + 1) array
        Duals on the pieces, ascending; the dual in corner k lies between ends k and k + 1.

    Attributes
    ----------
    duals : (n,) array
        g.
    free : (f,) array
        θ.
    pins : (v,) int array
        Rows in corners, in the order of the factor.
    """

    def __init__(self, rows: WeightedRows, corners: Array, ends: Array) -> None:
        self.rows, self.corners, self.ends = rows, corners, ends
        n, f = rows.free.shape
        self.pins: Index = np.empty(0, dtype=np.intp)
        self.state: Index = np.zeros(n, dtype=np.intp)  # number of the piece, or of the corner
        self.duals, self.pull = np.zeros(n), np.zeros(n)  # g and G g
        self.eta, self.free = np.zeros(n), np.zeros(f)
        self._factor = UpdatableCholesky()
        self._stalled = 0
        self._best = (self.duals, self.eta)  # with the fewest rows in a wrong state
        finite = ends[np.isfinite(ends)]
        self._scale = float(np.abs(finite).max(initial=0.0)) or 1.0
        self._reach = float(np.abs(corners[np.isfinite(corners)]).max(initial=0.0))
        self._moving = (self._reach or 1.0) / (float(rows.squared_norms.max(initial=0.0)) or 1.0)
        self._always = np.isneginf(ends[:, 0]) & np.isposinf(ends[:, 1])  # never out of their corner

    # The state of the rows

    def primal(self) -> tuple[Array, Array]:
        """Return the coefficients, and those of the extra columns."""
        return self.rows.primal(self.duals, self.free)

    def held_at(self, rows: Index) -> Array:
        """Corners that rows are in: (len(rows),)."""
        return self.corners[rows, self.state[rows]]

    def place(self, eta: Array, duals: Array | None) -> None:
        """Guess the states from linear predictors, and from duals where they are known."""
        self.eta = eta
        if duals is not None:
            self.duals = duals
        distance = np.abs(eta[:, None] - self.corners)
        nearest = distance.argmin(axis=1)
        piece = np.asarray((eta[:, None] > self.corners).sum(axis=1))
        inside = distance.min(axis=1) <= _AT_CORNER * (1.0 + np.abs(eta))
        if duals is not None:
            gap = np.abs(duals[:, None] - self.ends)
            interior = gap.min(axis=1) > _AT_CORNER * self._units(self.ends[:, -1] - self.ends[:, 0])
            inside = interior & (inside | (distance.min(axis=1) <= 0.1 * (1.0 + np.abs(eta))))
            piece = np.where(interior, piece, gap.argmin(axis=1))
        inside |= self._always
        self.state = np.where(inside, nearest, piece)
        self._pin(self._always_first(inside))

    def _always_first(self, rows: Mask) -> Index:
        return np.concatenate([np.flatnonzero(rows & self._always), np.flatnonzero(rows & ~self._always)])

    def settle(self) -> None:
        """Solve, from the states that the rows were placed in."""
        if not self.settle_in_blocks():
            self.settle_by_pivots()

    def _pin(self, candidates: Index) -> None:
        """Take as many independent rows into their corners as there are, and enough to fix θ."""
        self.pins = np.empty(0, dtype=np.intp)
        self._factor.clear()
        refused = candidates[~self._join(candidates)]
        self._to_nearest_end(refused)
        if len(missing := self._missing_directions()) > 0:
            self._join(missing)
        self.duals = np.take_along_axis(self.ends, self.state[:, None], axis=1)[:, 0]
        self.duals[self.pins] = np.clip(0.0, *self._interval(self.pins))
        self.pull = self.rows.times(self.duals)

    def _to_nearest_end(self, rows: Index) -> None:
        """Put rows that are in a corner, but held there by others, on the piece nearer to their dual."""
        k = self.state[rows]
        below, above = (np.abs(self.duals[rows] - self.ends[rows, k + end]) for end in (0, 1))
        self.state[rows] = k + (above < below)

    def _join(self, rows: Index) -> Mask:
        """Add the independent ones among some rows to those in corners; say which they are."""
        joined = np.zeros(len(rows), dtype=bool)
        if len(rows) > 0:
            floor = np.maximum(_DEPENDENT * self.rows.squared_norms[rows], np.finfo(float).tiny)
            cross, block = self.rows.among(self.pins, rows), self.rows.among(rows, rows)
            accepted = self._factor.append(cross, block, floor)
            self.pins = np.append(self.pins, rows[accepted])
            joined[accepted] = True
        return joined

    def _missing_directions(self) -> Index:
        """Rows that with the pinned ones determine θ, near to their corners, and put into them."""
        added: list[int] = []
        if self.rows.free.shape[1] == 0:
            return np.array(added, dtype=np.intp)
        nearest, distance = self._adjacent_corners()
        scale = float(np.max(np.sum(self.rows.free**2, axis=1)))
        held = self.rows.free[self.pins]
        while True:
            values, vectors = np.linalg.eigh(held.T @ held)
            lost = vectors[:, values <= 1e-9 * scale]
            if lost.shape[1] == 0:
                return np.array(added, dtype=np.intp)
            reach = np.where(np.isfinite(distance), np.sum((self.rows.free @ lost) ** 2, axis=1), 0.0)
            able = np.flatnonzero(reach >= 0.1 * reach.max())
            row = int(able[distance[able].argmin()])
            self.state[row] = nearest[row]
            added.append(row)
            held = np.vstack([held, self.rows.free[row]])

    def _adjacent_corners(self) -> tuple[Index, Array]:
        """For rows on a piece, the nearer one of its two corners, and how far it is."""
        places = np.arange(self.corners.shape[1])
        beside = (places == self.state[:, None]) | (places == self.state[:, None] - 1)
        gap = np.where(beside, np.abs(self.eta[:, None] - self.corners), np.inf)
        return gap.argmin(axis=1), gap.min(axis=1)

    # The solution for some rows in corners

    def _target(self) -> _Target:
        """Solve for the duals of the pinned rows and θ, all others staying as they are: for their changes."""
        Q, tau = self.rows.free[self.pins], self.rows.tau
        missing = -self.rows.free.T @ self.duals
        left = self.held_at(self.pins) + self.pull[self.pins] - Q @ self.free
        half = self._factor.half_solve(-left)
        if Q.shape[1] == 0:
            return _Target(self._factor.back_solve(half), missing)
        along = self._factor.half_solve(np.asfortranarray(Q))
        free = _linalg.solve_or_fit(along.T @ along, missing - along.T @ half)
        return _Target(self._factor.back_solve(half + along @ free), self.free + free - tau * missing)

    def _move(self, change: Array, rows: Index) -> None:
        step = np.zeros(len(self.duals))
        step[rows] = change
        self.duals += step
        self.pull += self.rows.times(step)

    def _arrive(self) -> None:
        """Go to the target, and once more for what rounding left of the way."""
        for _ in range(2):
            target = self._target()
            self._move(target.change, self.pins)
            self.free = target.free
        self.eta = self.rows.free @ self.free - self.pull

    # Which rows are wrong

    def _eta_rounding(self) -> float:
        noise = _EPS * float(np.abs(self.duals).sum()) * float(self.rows.squared_norms.max(initial=0.0))
        return _ROUNDING * max(self._reach, 1e-300) + 10 * noise

    def _crossing(self) -> Array:
        """How far rows on a piece are past its corners: positive beyond the upper, negative the lower."""
        n = len(self.eta)
        bounds = np.column_stack([np.full(n, -np.inf), self.corners, np.full(n, np.inf)])
        every = np.arange(n)
        below, above = (
            bounds[every, self.state],
            bounds[every, np.minimum(self.state + 1, bounds.shape[1] - 1)],
        )
        past = np.maximum(self.eta - above, 0.0) + np.minimum(self.eta - below, 0.0)
        past[self.pins] = 0.0
        return past

    def _overshoot(self) -> Array:
        """How far duals of pinned rows are outside their intervals, relative to these: (v,)."""
        low, high = self._interval(self.pins)
        g = self.duals[self.pins]
        return (np.maximum(g - high, 0.0) + np.minimum(g - low, 0.0)) / self._units(high - low)

    def _units(self, widths: Array) -> Array:
        """Sizes that changes of duals in intervals of some widths are measured by."""
        return np.minimum(widths, size_of_duals(self.duals, self._scale, self._moving))

    def _interval(self, rows: Index) -> tuple[Array, Array]:
        return self.ends[rows, self.state[rows]], self.ends[rows, self.state[rows] + 1]

    # All rows at once

    def settle_in_blocks(self) -> bool:
        """Let all wrong rows change their state together, for as long as this may still end well."""
        fewest = len(self.duals) + 1
        seen: set[bytes] = set()
        for _ in range(_BLOCK_ROUNDS):
            self._arrive()
            past, outside = self._crossing(), self._overshoot()
            enter = np.abs(past) > self._eta_rounding()
            leave = np.abs(outside) > _ROUNDING
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
        """Pin the rows that crossed a corner, and free those whose dual left its interval."""
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
        corner = np.asarray((g[:, None] > self.ends[:, 1:-1]).sum(axis=1))
        self.state = np.where(inside, corner, piece)
        self.duals = np.where(inside, g, self.ends[np.arange(len(g)), piece])
        self.pull = self.rows.times(self.duals)
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
            own = np.linalg.lstsq(Q.T @ Q, Q[needed].T)[0]
            needed[needed] = np.einsum("vf,fv->v", Q[needed], own) > 1.0 - 1e-8
        return needed & bool(Q.shape[1])

    def _drop(self, place: int, *, upwards: bool) -> None:
        """Take a pinned row out of its corner, to the piece whose slope its dual has reached."""
        row = self.pins[place]
        self.state[row] += upwards
        self.duals[row] = self.ends[row, self.state[row]]
        self.pins = np.delete(self.pins, place)
        if place < self._factor.size:
            self._factor.delete(np.array([place]))

    def _enter(self) -> bool:
        """Let a row that crossed a corner into it; where it depends on others there, one of these leaves."""
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
        rounding = _ACCEPTED / _ROUNDING * self._eta_rounding()
        if (
            np.abs(self._crossing()).max() > rounding
            or np.abs(self._overshoot()).max(initial=0.0) > _ACCEPTED
        ):
            raise SolverError(_STUCK)
