"""Exact leave-one-out of losses with kinks, along the path on which one row fades away.

Row i acts through its dual g_i.  As it fades, g_i (1 − s) from s = 0 to 1, all else moves in straight lines
until a row reaches a kink of its loss or the end of its interval there; then its linear predictor and its
dual change places, one pivot, as in decremental support vector learning (Cauwenberghs and Poggio 2001).

Where a refit weighs the other rows anew, as balanced classes do, or shrinks the penalty, which beside a ridge
penalty is the same as more weight for all rows, their weights become w_j (1 + r_j s) meanwhile: duals on
pieces, and the intervals of those on kinks, move in straight lines, too (Karasuyama et al. 2012).

All rows share one tableau.  With the rows V on kinks, the others N, and H, R, T of ``curvature.Pinned``,

    (Δg_V, Δη_N) = M (Δη_V, Δg_N),      M = [[−T, −(Z_N R)ᵀ], [Z_N R, −H_NN]],

so that after the exchanges U of a row a system of |U| equations says where its path goes next.  Rows are
followed together, one pivot of each at a time.  Lines in s are pairs: where they begin, and how far they go
until s = 1.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.fit import Fit
from onefit.leave_out.kink_program import ProgramTableau
from onefit.leave_out.kink_tableau import Held, KinkTableau, RidgeTableau

MOST_PIVOTS = 400
MANY = 10  # rows, as a share of n, from which on the whole tableau is made at once
AT_ONCE = 2**17  # numbers in an array of paths and rows
ACCEPTED = 1e-8  # rounding for the last check: of a linear predictor, relative to the kinks, or of a dual
SINGULAR = 1e13  # condition number of a system of exchanges beyond which its solution is noise
ROOM = 8  # places for rows that change theirs, at first


class CornerEnds(NamedTuple):
    """Where the paths of some rows end.

    ``solved`` says for which rows the conditions of optimality hold there; ``pivots`` how many it took.
    """

    coef: Array  # (p, r)
    intercept: Array  # (r,)
    eta: Array  # (r,), of the row that left
    pivots: Index  # (r,)
    solved: Mask  # (r,)


class Ended(NamedTuple):
    """Paths that have come to their end."""

    numbers: Index  # (r,)
    changes: Array  # (r, n), right-hand sides


def leave_out_along_path(fit: Fit, rows: Index) -> CornerEnds:
    """Leave single rows out of a fit whose loss has kinks, exactly.

    Parameters
    ----------
    fit : Fit
        Optimal, with its pinned rows and their duals known; one output, and a ridge penalty, or one to which
        ``kink_program`` applies.
    rows : (r,) int array
        Rows to leave out, each on its own.
    """
    is_ridge = fit.problem.penalty.is_ridge(fit.coef.shape)
    paths = RidgeTableau.of(fit) if is_ridge else ProgramTableau.of(fit)
    if paths is None:
        none, coef = np.zeros(rows.size, dtype=np.intp), np.full((len(fit.coef), rows.size), np.nan)
        return CornerEnds(coef, np.full(rows.size, np.nan), np.full(rows.size, np.nan), none, none > 0)
    n = len(paths.place)
    if MANY * rows.size > n:
        paths.columns(np.arange(n))
    changes = np.zeros((n, rows.size))
    pivots, reached = np.zeros(rows.size, dtype=np.intp), np.zeros(rows.size, dtype=bool)
    for some in np.array_split(np.arange(rows.size), 1 + rows.size * n // AT_ONCE):
        walk = _Walk.of(paths, rows[some])
        for at in range(MOST_PIVOTS):
            walk, ended = walk.go_on()
            own = some[ended.numbers]
            changes[:, own], pivots[own], reached[own] = ended.changes.T, at, True
            if walk.rows.size == 0:
                break
    return _ends(paths, rows, changes, pivots, reached)


@dataclass(frozen=True, eq=False)
class _Walk:
    """Paths of some rows at a time: which rows are not where they are in the fit, and where these are.

    Places behind the first ``count`` of a path are empty, and hold the row that leaves.
    """

    paths: KinkTableau
    numbers: Index  # (r,), of the paths
    rows: Index  # (r,), that leave
    slower: Array  # (r, n), how fast the left goes before any exchange, beside the lower end of its interval
    faster: Array  # (r, n), and beside the upper
    changed: Index  # (r, c)
    place: Index  # (r, c)
    on_kink: Mask  # (r, c)
    count: Index  # (r,)
    done: Array  # (r,)

    @classmethod
    def of(cls, paths: KinkTableau, rows: Index) -> _Walk:
        """Where all paths begin: a row that leaves keeps no kink, its dual is given, and fades."""
        slower = faster = paths.pace(rows)
        if len(paths.groups):
            grown, (_, _, below, above) = paths.growths[:, rows].T @ paths.groups, paths.own_room
            slower, faster = slower - grown * below, faster - grown * above
        changed = np.repeat(rows[:, None], 1, axis=1)
        nowhere, numbers = np.zeros_like(changed), np.arange(rows.size)
        count = paths.on_kink[rows].astype(np.intp)
        off = nowhere.astype(bool)
        return cls(paths, numbers, rows, slower, faster, changed, nowhere, off, count, np.zeros(rows.size))

    def some(self, which: Mask) -> _Walk:
        """Some of the paths."""
        if which.all():
            return self
        own = {one.name: getattr(self, one.name) for one in fields(self)[1:]}
        return replace(self, **{name: part[which] for name, part in own.items()})

    def go_on(self) -> tuple[_Walk, Ended]:
        """The paths after one pivot more, and those that end before it."""
        columns = self.paths.yielding(self.changed)
        x, is_sound = self._solved(columns, *self.paths.moved)
        step, row, rises = self._next(columns, x)
        ended = self.some(is_sound & (step >= 1.0))
        going = is_sound & (step < 1.0)
        left = replace(self.some(going), done=np.maximum(self.done, step)[going])
        return left._passed(row[going], rises[going]), ended._ended()

    @cached_property
    def _every(self) -> Index:
        return np.arange(len(self.rows))[:, None]

    @cached_property
    def _is_held(self) -> Mask:
        """Places that are not empty: (r, c)."""
        return np.asarray(np.arange(self.changed.shape[1]) < self.count[:, None])

    @cached_property
    def _crossed(self) -> Mask:
        """Changed rows that stand on the other side of the tableau: (r, c)."""
        return self._is_held & (self.on_kink != self.paths.on_kink[self.changed])

    @cached_property
    def _growth(self) -> Array:
        """Of the weights of the changed rows: (r, c)."""
        return self.paths.growth_at(self.rows, self.changed)

    @cached_property
    def _given(self) -> Array:
        """How fast the right-hand sides of the changed rows go before any exchange: (r, c)."""
        on_kink, gradient = self.paths.on_kink[self.changed], self.paths.gradient[self.changed]
        return np.where(on_kink, 0.0, self._growth * gradient)

    @cached_property
    def _pace(self) -> Array:
        """How fast their left-hand sides do: (r, c)."""
        below = self.paths.own_room[2][self.changed]
        return np.asarray(self.slower[self._every, self.changed] + self._growth * below)

    def _solved(self, columns: Array, kinks: Array, slopes: Array) -> tuple[Array, Mask]:
        """What the changed rows add to the right-hand sides, (r, 2, c), and whether that is more than noise.

        Each is held at its kink, or at the slope of its piece.
        """
        paths, C, on_kink = self.paths, self.changed, self.on_kink
        with np.errstate(invalid="ignore"):
            at = np.where(on_kink, kinks[C, self.place], slopes[C, self.place])
            grows = np.where(on_kink, 0.0, self._growth * paths.slopes[C, self.place])
        leaves = self.rows[:, None] == C
        at, grows = np.where(leaves, paths.gradient[C], at), np.where(leaves, -paths.gradient[C], grows)
        at -= np.where(on_kink, paths.eta[C], paths.gradient[C])
        grows -= np.where(self._crossed, self._pace, self._given)
        owed = np.where(self._is_held, np.stack([at, grows]), 0.0)
        among = np.take_along_axis(columns, C[:, None, :], axis=2).swapaxes(1, 2)
        system = np.where(self._crossed[:, :, None], among, np.eye(C.shape[1]))
        x = _linalg.solve_each(system, np.moveaxis(owed, 0, 2)).swapaxes(1, 2)
        largest = np.abs(owed).max(axis=(0, 2), initial=0.0)
        return x, np.abs(x).max(axis=(1, 2), initial=0.0) < SINGULAR * (1.0 + largest)

    def _next(self, columns: Array, x: Array) -> tuple[Array, Index, Mask]:
        """Where the next row of each path reaches an end, which row, and whether it is the upper one."""
        paths, C, every = self.paths, self.changed, self._every
        left, added = np.matmul(x, columns).swapaxes(0, 1)
        left += paths.base
        low, high, *_ = paths.own_room
        tie = paths.tie(paths.on_kink)
        down = _until(left - low, -(self.slower + added), tie)
        up = _until(high - left, self.faster + added, tie)
        # a row that changed places moves on the other side of the tableau
        other = np.where(paths.on_kink[C], paths.eta[C], paths.gradient[C])
        at = np.where(self._crossed, other + x[:, 0], left[every, C])
        pace = np.where(self._crossed, self._given + x[:, 1], self._pace + added[every, C])
        low, high, below, above = paths.room(C, self.place, self.on_kink)
        tie = paths.tie(self.on_kink)
        down[every, C] = _until(at - low, self._growth * below - pace, tie)
        up[every, C] = _until(high - at, pace - self._growth * above, tie)
        down[every, self.rows[:, None]] = up[every, self.rows[:, None]] = np.inf
        steps = np.maximum(np.fmin(up, down), self.done[:, None])
        row = steps.argmin(axis=1)
        here = every[:, 0], row
        return steps[here], row, up[here] <= down[here]

    def _passed(self, row: Index, rises: Mask) -> _Walk:
        """Move one row of each path from its kink onto a piece, or from a piece onto a kink."""
        paths, every, last = self.paths, np.arange(len(row)), self.count
        changed, place, on_kink = self.changed, self.place, self.on_kink
        if last.max(initial=0) == changed.shape[1]:
            more = [(0, 0), (0, ROOM)]
            changed = np.pad(changed, more, "edge")
            place, on_kink = np.pad(place, more), np.pad(on_kink, more)
            changed[:, -ROOM:] = self.rows[:, None]
        else:
            changed, place, on_kink = changed.copy(), place.copy(), on_kink.copy()
        own = (changed == row[:, None]) & (np.arange(changed.shape[1]) < last[:, None])
        is_known = own.any(axis=1)
        at = every, np.where(is_known, own.argmax(axis=1), last)
        was = np.where(is_known, on_kink[at], paths.on_kink[row])
        # the kink after piece k is number k + 1, the piece after kink k is number k
        now = np.where(is_known, place[at], paths.place[row]) + np.where(was, rises - 1, rises)
        changed[at], place[at], on_kink[at] = row, now, ~was
        count = last + ~is_known
        back = np.flatnonzero((~was == paths.on_kink[row]) & (now == paths.place[row]))
        end = back, count[back] - 1  # whose place is taken
        for part, empty in ((changed, self.rows[back]), (place, 0), (on_kink, False)):
            part[back, at[1][back]], part[end] = part[end], empty
        count[back] -= 1
        return replace(self, changed=changed, place=place, on_kink=on_kink, count=count)

    def _ended(self) -> Ended:
        """Right-hand sides without the rows that leave, all others exactly at their ends."""
        x, is_sound = self._solved(self.paths.columns(self.changed), self.paths.kinks, self.paths.slopes)
        changes = self.paths.given(self.rows)
        np.add.at(changes, (self._every, self.changed), x.sum(axis=1))
        return Ended(self.numbers[is_sound], changes[is_sound])


def _until(room: Array, pace: Array, tie: Array) -> Array:
    """When a room has gone, or never if it does not get smaller but for rounding."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(pace > tie, room / pace, np.inf)


def _ends(paths: KinkTableau, rows: Index, changes: Array, pivots: Index, reached: Mask) -> CornerEnds:
    """Parameters at the ends, and whether they are optimal."""
    found, own = paths.ends(changes), (rows, np.arange(rows.size))
    moving = np.flatnonzero(changes.any(axis=1))
    along = _linalg.product(paths.columns(moving).T, changes[moving])
    dual = paths.gradient[:, None] + np.where(paths.on_kink[:, None], along, changes)
    reached = reached & (np.abs(dual[own]) <= ACCEPTED * paths.size_of_duals)  # as far as it is known
    dual[own] = 0.0
    solved = reached & _optimal(paths, rows, found.eta, dual)
    return CornerEnds(found.coef, found.intercept, found.eta[own], pivots, solved)


def _optimal(paths: KinkTableau, rows: Index, eta: Array, dual: Array) -> Mask:
    """Whether every dual is a slope of its row's loss there, and nothing else is as good: (r,)."""
    inner, size = paths.kinks[:, 1:-1], ACCEPTED * paths.size_of_kinks
    below = (eta[:, None, :] > inner[:, :, None] + size).sum(axis=1)
    above = (eta[:, None, :] >= inner[:, :, None] - size).sum(axis=1)
    n, grown = np.arange(len(eta))[:, None], 1.0 + paths.groups.T @ paths.growths[:, rows]
    least, most = paths.slopes[n, below] * grown, paths.slopes[n, above] * grown
    slack, own = ACCEPTED * paths.size_of_duals, (rows, np.arange(rows.size))
    held = (dual >= least - slack) & (dual <= most + slack)
    on_kink = above > below
    held[own], on_kink[own] = True, False
    return np.asarray(held.all(axis=0) & paths.is_unique(Held(dual, least, most, on_kink, slack)))
