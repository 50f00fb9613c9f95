"""Rows on pieces of their loss and on kinks of it, and the solution for them as they are.

``kinks`` has the mathematics.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.cholesky import UpdatableCholesky
from onefit.numerics import size_of_duals
from onefit.solvers.dual_rows import WeightedRows

# Distance from a kink of the start, relative to 1 + |η|, that counts as none.
AT_CORNER = 1e-6
# A row whose squared distance from the span of those on kinks is below this share of its squared length
# counts as dependent.
DEPENDENT = 1e-14
# Error of a linear predictor or of a dual, relative to the largest kink or the interval, that is rounding.
ROUNDING = 1e-10
MOST_REPEATS = 6  # of a solution by one factor, for the digits that rounding takes


class Target(NamedTuple):
    """Where the duals of the rows on kinks would go, and the free directions with them."""

    change: Array  # (v,)
    free: Array  # (f,)


class PinnedRows:
    """State of every row: on a piece, or on a kink with its dual free.

    Parameters
    ----------
    rows : WeightedRows
    kinks : (n, q) array
    ends : (n, q + 1) array
        Duals on the pieces, ascending; the dual on kink k lies between ends k and k + 1.

    Attributes
    ----------
    duals : (n,) array
        g.
    free : (f,) array
        θ.
    pins : (v,) int array
        Rows on kinks, in the order of the factor.
    """

    def __init__(self, rows: WeightedRows, kinks: Array, ends: Array) -> None:
        self.rows, self.kinks, self.ends = rows, kinks, ends
        n, f = rows.free.shape
        self.pins: Index = np.empty(0, dtype=np.intp)
        self.state: Index = np.zeros(n, dtype=np.intp)  # number of the piece, or of the kink
        self.duals, self.pull = np.zeros(n), np.zeros(n)  # g and G g
        self.own = np.empty(0)  # coefficients of the scaled columns that go with it
        self.eta, self.free = np.zeros(n), np.zeros(f)
        self._factor = UpdatableCholesky()
        finite = ends[np.isfinite(ends)]
        self._scale = float(np.abs(finite).max(initial=0.0)) or 1.0
        self._reach = float(np.abs(kinks[np.isfinite(kinks)]).max(initial=0.0))
        self._moving = (self._reach or 1.0) / (float(rows.squared_norms.max(initial=0.0)) or 1.0)
        self._always = np.isneginf(ends[:, 0]) & np.isposinf(ends[:, 1])  # never off their kink

    # The state of the rows

    def primal(self) -> tuple[Array, Array]:
        """Return the coefficients, and those of the extra columns."""
        return self.rows.primal(self.duals, self.own, self.free)

    def held_at(self, rows: Index) -> Array:
        """Corners that rows are in: (len(rows),)."""
        return self.kinks[rows, self.state[rows]]

    def place(self, eta: Array, duals: Array | None) -> None:
        """Guess the states from linear predictors, and from duals where they are known."""
        self.eta = eta
        if duals is not None:
            self.duals = duals
        distance = np.abs(eta[:, None] - self.kinks)
        nearest = distance.argmin(axis=1)
        piece = np.asarray((eta[:, None] > self.kinks).sum(axis=1))
        inside = distance.min(axis=1) <= AT_CORNER * (1.0 + np.abs(eta))
        if duals is not None:
            gap = np.abs(duals[:, None] - self.ends)
            interior = gap.min(axis=1) > AT_CORNER * self._units(self.ends[:, -1] - self.ends[:, 0])
            inside = interior & (inside | (distance.min(axis=1) <= 0.1 * (1.0 + np.abs(eta))))
            piece = np.where(interior, piece, gap.argmin(axis=1))
        inside |= self._always
        self.state = np.where(inside, nearest, piece)
        self._pin(self._always_first(inside))

    def _always_first(self, rows: Mask) -> Index:
        return np.concatenate([np.flatnonzero(rows & self._always), np.flatnonzero(rows & ~self._always)])

    def _pin(self, candidates: Index) -> None:
        """Take as many independent rows onto their kinks as there are, and enough to fix θ."""
        self.pins = np.empty(0, dtype=np.intp)
        self._factor.clear()
        refused = candidates[~self._join(candidates)]  # held on their kinks by others: to the nearer piece
        k = self.state[refused]
        below, above = (np.abs(self.duals[refused] - self.ends[refused, k + end]) for end in (0, 1))
        self.state[refused] = k + (above < below)
        if len(missing := self._missing_directions()) > 0:
            self._join(missing)
        self.duals = np.take_along_axis(self.ends, self.state[:, None], axis=1)[:, 0]
        self.duals[self.pins] = np.clip(0.0, *self._interval(self.pins))
        self._begin()

    def _begin(self) -> None:
        """Take what goes with the duals from these."""
        self.own = self.rows.coefficients(self.duals)
        self.pull = self.rows.pull(self.duals, self.own)

    def _join(self, rows: Index) -> Mask:
        """Add the independent ones among some rows to those on kinks; say which they are."""
        joined = np.zeros(len(rows), dtype=bool)
        if len(rows) > 0:
            floor = np.maximum(DEPENDENT * self.rows.squared_norms[rows], np.finfo(float).tiny)
            cross, block = self.rows.among(self.pins, rows), self.rows.among(rows, rows)
            accepted = self._factor.append(cross, block, floor)
            self.pins = np.append(self.pins, rows[accepted])
            joined[accepted] = True
        return joined

    def _missing_directions(self) -> Index:
        """Rows that with the pinned ones determine θ, near to their kinks, and put into them."""
        added: list[int] = []
        places, state, free = np.arange(self.kinks.shape[1]), self.state[:, None], self.rows.free
        beside = (places == state) | (places == state - 1)  # the two kinks of a row on a piece
        gap = np.where(beside, np.abs(self.eta[:, None] - self.kinks), np.inf)
        nearest, distance = gap.argmin(axis=1), gap.min(axis=1)
        scale, held = float(np.max(np.sum(free**2, axis=1), initial=0.0)), free[self.pins]
        values, vectors = np.linalg.eigh(held.T @ held)
        lost = free @ vectors[:, values <= 1e-9 * scale]  # of every row, along what no pinned one holds
        while np.any(reach := np.where(np.isfinite(distance), np.sum(lost**2, axis=1), 0.0)):
            able = np.flatnonzero(reach >= 0.1 * reach.max())
            row = int(able[distance[able].argmin()])
            self.state[row] = nearest[row]
            added.append(row)
            lost = _across(lost, lost[row])
        return np.array(added, dtype=np.intp)

    # The solution for some rows on kinks

    def _target(self) -> Target:
        """Solve for the duals of the pinned rows and θ, all others staying as they are: for their changes."""
        Q, tau = self.rows.free[self.pins], self.rows.tau
        missing = -self.rows.free.T @ self.duals
        left = self.held_at(self.pins) + self.pull[self.pins] - Q @ self.free
        half = self._factor.half_solve(-left)
        if Q.shape[1] == 0:
            return Target(self._factor.back_solve(half), missing)
        along = self._factor.half_solve(np.asfortranarray(Q))
        free = _linalg.solve_or_fit(along.T @ along, missing - along.T @ half)
        return Target(self._factor.back_solve(half + along @ free), self.free + free - tau * missing)

    def _move(self, change: Array, rows: Index) -> None:
        step = np.zeros(len(self.duals))
        step[rows] = change
        self.duals += step
        self.pull, self.own = self.rows.moved(self.pull, self.own, step, self.duals)

    def _arrive(self) -> None:
        """Go to the target, and again for what rounding left of the way, while that gets smaller."""
        left = np.inf
        for at in range(MOST_REPEATS):
            target = self._target()
            self._move(target.change, self.pins)
            self.free = target.free
            self.eta = self.rows.free @ self.free - self.pull
            before, left = left, self._beside()
            if at and (left <= ROUNDING * self._reach or left > 0.5 * before):
                break

    def _beside(self) -> float:
        """How far rows are from the kinks that they are held on."""
        return float(np.abs(self.eta[self.pins] - self.held_at(self.pins)).max(initial=0.0))

    # Which rows are wrong

    def _eta_rounding(self) -> float:
        noise = self.rows.rounding(self.duals, self.own) + self._beside()
        return ROUNDING * max(self._reach, 1e-300) + 10 * noise

    def _crossing(self) -> Array:
        """How far rows on a piece are past its kinks: positive beyond the upper, negative the lower."""
        n = len(self.eta)
        bounds = np.column_stack([np.full(n, -np.inf), self.kinks, np.full(n, np.inf)])
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


def _across(vectors: Array, direction: Array) -> Array:
    """Coordinates of vectors across a direction, one fewer, by a Householder reflection: (m, r − 1)."""
    normal = direction.copy()
    normal[0] += np.copysign(np.linalg.norm(direction), direction[0])
    return np.asarray(vectors - np.outer(vectors @ normal, 2.0 / (normal @ normal) * normal))[:, 1:]
