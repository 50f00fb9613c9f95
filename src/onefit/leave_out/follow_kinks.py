"""Exact leave-one-out of losses with kinks, along the path on which one row fades away.

Row i acts through its dual g_i.  As it fades, g_i (1 − s) from s = 0 to 1, all else moves in straight lines
until a row reaches a kink of its loss or the end of its interval there; then its linear predictor and its
dual change places, one pivot, as in decremental support vector learning (Cauwenberghs and Poggio 2001).

All rows share one tableau.  With the rows V on kinks, the others N, and H, R, T of ``curvature.Pinned``,

    (Δg_V, Δη_N) = M (Δη_V, Δg_N),      M = [[−T, −(Z_N R)ᵀ], [Z_N R, −H_NN]],

so that after the exchanges U of a row a system of |U| equations says where its path goes next.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.curvature import Direction, Pinned, ScalarCurvature, factor_scalar
from onefit.fit import Fit
from onefit.leave_out.straight_rows import strictly_held
from onefit.losses import PiecewiseLinear
from onefit.solvers.kinks import size_of_duals

MOST_PIVOTS = 400
MANY = 10  # rows, as a share of n, from which on the whole tableau is made at once
ROUNDING = 1e-10  # of a linear predictor, relative to the largest kink, or of a dual, to their size
APART = 1e-9  # the same by which ends are moved that several rows would reach at once
ACCEPTED = 1e-8  # the same for the last check
SINGULAR = 1e13  # condition number of a system of exchanges beyond which its solution is noise


class CornerEnds(NamedTuple):
    """Where the paths of some rows end.

    ``solved`` says for which rows the conditions of optimality hold there; ``pivots`` how many it took.
    """

    coef: Array  # (p, r)
    intercept: Array  # (r,)
    eta: Array  # (r,), of the row that left
    pivots: Index  # (r,)
    solved: Mask  # (r,)


def leave_out_along_path(fit: Fit, rows: Index) -> CornerEnds:
    """Leave single rows out of a fit whose loss has kinks and whose penalty is quadratic, exactly.

    Parameters
    ----------
    fit : Fit
        Optimal, with its pinned rows and their duals known; one output.
    rows : (r,) int array
        Rows to leave out, each on its own.
    """
    paths = _CornerPaths(fit)
    if MANY * rows.size > fit.problem.n:
        paths.columns(np.arange(fit.problem.n))
    changes = np.zeros((fit.problem.n, rows.size))
    pivots, reached = np.zeros(rows.size, dtype=np.intp), np.zeros(rows.size, dtype=bool)
    for place, i in enumerate(rows):
        ended = paths.follow(int(i))
        if ended is not None:
            changes[:, place], pivots[place] = ended
            reached[place] = True
    return paths.ends(rows, changes, pivots, reached)


@dataclass(frozen=True, eq=False)
class _CornerPaths:
    """The tableau that all rows share, and what each row may do."""

    fit: Fit

    @cached_property
    def curvature(self) -> ScalarCurvature:
        return factor_scalar(self.fit, self.fit.tangent)

    @cached_property
    def on_kink(self) -> Mask:
        """Rows V: (n,)."""
        return self.fit.pinned

    @cached_property
    def kinks(self) -> Array:
        """Corners between an infinite one on either side: (n, q + 2)."""
        problem = self.fit.problem
        assert isinstance(problem.loss, PiecewiseLinear)
        inner = problem.loss.kinks(problem.y)
        edge = np.full((problem.n, 1), np.inf)
        found = np.hstack([-edge, inner, edge])
        found[problem.weights == 0, 1:-1] = np.inf
        found[problem.weights == 0, 0] = -np.inf
        return found

    @cached_property
    def slopes(self) -> Array:
        """Weighted slopes of the pieces: (n, q + 1)."""
        problem = self.fit.problem
        assert isinstance(problem.loss, PiecewiseLinear)
        return problem.loss.slopes(problem.y) * problem.weights[:, None]

    @cached_property
    def moved(self) -> tuple[Array, Array]:
        """Kinks and slopes, each moved away from its row a little: no two rows reach theirs at once.

        Rows that are alike, as on a table of few values, would go round in circles between the same ends.
        """
        n, last = self.slopes.shape
        away = np.random.default_rng(0).uniform(0.5, 1.0, (n, 1)) * APART
        place, on_kink = self.place[:, None], self.on_kink[:, None]
        kink = np.sign(np.arange(last + 1) - np.where(on_kink, place, place + 0.5))
        piece = np.sign(np.arange(last) - np.where(on_kink, place - 0.5, place))
        return self.kinks + away * self.size_of_kinks * kink, self.slopes + away * self.size_of_duals * piece

    @cached_property
    def size_of_kinks(self) -> float:
        finite = np.abs(self.kinks[:, 1:-1])
        return float(np.max(finite[np.isfinite(finite)], initial=0.0)) or 1.0

    @cached_property
    def size_of_duals(self) -> float:
        return size_of_duals(self.fit)

    @cached_property
    def place(self) -> Index:
        """Corner that a row of V is in, 1 … q; piece that another is on, 0 … q."""
        kink = np.abs(self.kinks[:, 1:-1] - self.fit.eta[:, None]).argmin(axis=1) + 1
        piece = np.abs(self.slopes - self.fit.gradient[:, None]).argmin(axis=1)
        return np.where(self.on_kink, kink, piece)

    @cached_property
    def base(self) -> Array:
        """What stands on the left of the tableau: g of rows on kinks, η of others."""
        return np.where(self.on_kink, self.fit.gradient, self.fit.eta)

    @cached_property
    def _tableau(self) -> tuple[Array, Mask]:
        """Columns of M, one a row, and which of them are known: (n, n) and (n,)."""
        n = self.fit.problem.n
        return np.empty((n, n)), np.zeros(n, dtype=bool)

    def columns(self, which: Index) -> Array:
        """Some columns of M over all rows, one a row: (len(which), n)."""
        M, known = self._tableau
        missing = which[~known[which]]
        if missing.size:
            M[missing], known[missing] = self._new_columns(missing).T, True
        return M[which]

    def _new_columns(self, which: Index) -> Array:
        K = self.curvature
        if not isinstance(K, Pinned):
            return -K.hat_columns(which)
        M = np.empty((self.fit.problem.n, which.size))
        pinned = self.on_kink[which]
        own = np.searchsorted(K.pins, which[pinned])
        M[:, pinned] = K.lifted_rows[:, own]
        M[np.ix_(K.pins, pinned)] = -K.tension[:, own]
        M[:, ~pinned] = -K.hat_columns(which[~pinned])
        M[np.ix_(K.pins, ~pinned)] = -K.lifted_rows[which[~pinned]].T
        return M

    @cached_property
    def tie(self) -> Array:
        """Rounding of what stands on the left: (n,)."""
        return ROUNDING * np.where(self.on_kink, self.size_of_duals, self.size_of_kinks)

    def follow(self, i: int) -> tuple[Array, int] | None:
        """Right-hand sides, Δη of V and Δg of N, at the end of the path of row i, and its pivots."""
        return _Path(self, i).walk()

    def ends(self, rows: Index, changes: Array, pivots: Index, reached: Mask) -> CornerEnds:
        """Parameters at the ends, and whether they are optimal."""
        fit, K = self.fit, self.curvature
        forces = np.where(self.on_kink[:, None], 0.0, -changes)
        gradient = _linalg.transposed_times(fit.problem.X, forces)
        coef, level = K.solve(Direction(gradient, forces.sum(axis=0)))
        if isinstance(K, Pinned):
            lift = K.lift
            coef, level = coef + lift.coef @ changes[K.pins], level + lift.intercept @ changes[K.pins]
        eta = fit.eta[:, None] + K.predict(Direction(coef, level))
        moving = np.flatnonzero(changes.any(axis=1))
        along = _linalg.product(self.columns(moving).T, changes[moving])
        dual = fit.gradient[:, None] + np.where(self.on_kink[:, None], along, changes)
        dual[rows, np.arange(rows.size)] = 0.0
        solved = reached & self._optimal(rows, eta, dual)
        own = eta[rows, np.arange(rows.size)]
        return CornerEnds(fit.coef[:, None] + coef, fit.intercept + level, own, pivots, solved)

    def _optimal(self, rows: Index, eta: Array, dual: Array) -> Mask:
        """Whether every dual is a slope of its row's loss there: (r,)."""
        inner = self.kinks[:, 1:-1]
        size = ACCEPTED * self.size_of_kinks
        below = (eta[:, None, :] > inner[:, :, None] + size).sum(axis=1)
        above = (eta[:, None, :] >= inner[:, :, None] - size).sum(axis=1)
        n = np.arange(len(eta))[:, None]
        slack = ACCEPTED * self.size_of_duals
        held = (dual >= self.slopes[n, below] - slack) & (dual <= self.slopes[n, above] + slack)
        own = rows, np.arange(rows.size)
        held[own] = True
        if not np.any(self.fit.problem.intercept):
            return held.all(axis=0)
        on_kink = above > below
        on_kink[own] = False
        return held.all(axis=0) & strictly_held(
            dual, self.slopes[n, below], self.slopes[n, above], on_kink, slack
        )


class _Path:
    """The path of one row: which rows have changed places, and where they are now."""

    def __init__(self, paths: _CornerPaths, i: int) -> None:
        self.paths, self.i = paths, i
        self.place = paths.place.copy()
        self.on_kink = paths.on_kink.copy()  # at present
        self.given = np.zeros(len(self.place))  # right-hand sides that are given
        self.wanted: dict[int, float] = {}  # left-hand sides of the rows that changed places, less their base
        if paths.on_kink[i]:  # it keeps no kink: its dual is given, and fades
            self.on_kink[i] = False
            self.wanted[i] = 0.0

    def walk(self) -> tuple[Array, int] | None:
        done, at = 0.0, 0
        for at in range(MOST_PIVOTS):
            line = self._line()
            if line is None:
                return None
            constant, slope = line
            step, row, up = self._next(constant, slope, done)
            if step >= 1.0:
                end = self._end() if at else constant + slope
                return None if end is None else (end, at)
            done = max(done, step)
            self._pass(row, up=up)
        return None

    def _line(self) -> tuple[Array, Array] | None:
        """Right-hand sides as functions of s: constant and slope."""
        paths, i = self.paths, self.i
        fading = -float(paths.fit.gradient[i])
        constant, slope = self.given.copy(), np.zeros(len(self.place))
        U = np.fromiter(self.wanted, dtype=np.intp)
        if not paths.on_kink[i]:
            slope[i] = fading
        if U.size == 0:
            return constant, slope
        known = np.flatnonzero(constant)
        rhs = np.zeros((U.size, 2))
        rhs[:, 0] = np.array(list(self.wanted.values())) - constant[known] @ paths.columns(known)[:, U]
        rhs[:, 1] = np.where(i == U, fading, 0.0)
        if not paths.on_kink[i]:
            rhs[:, 1] = -paths.columns(np.array([i]))[0, U] * slope[i]
        system = paths.columns(U)[:, U].T
        try:
            found = np.linalg.solve(system, rhs)
        except np.linalg.LinAlgError:
            return None
        if not np.abs(found).max() < SINGULAR * (1.0 + np.abs(rhs).max()):
            return None
        constant[U], slope[U] = found.T
        return constant, slope

    def _next(self, constant: Array, slope: Array, done: float) -> tuple[float, int, bool]:
        """Where the next row reaches an end, which row, and whether it is the upper one."""
        paths = self.paths
        moving = np.flatnonzero((constant != 0) | (slope != 0))
        columns = paths.columns(moving)
        left, pace = paths.base + constant[moving] @ columns, slope[moving] @ columns
        changed = np.fromiter(self.wanted, dtype=np.intp)
        # a row that changed places moves on the other side of the tableau
        own = np.where(paths.on_kink[changed], paths.fit.eta[changed], paths.fit.gradient[changed])
        left[changed], pace[changed] = own + constant[changed], slope[changed]
        low, high = self._room()
        low[self.i], high[self.i] = -np.inf, np.inf
        with np.errstate(divide="ignore", invalid="ignore"):
            up = np.where(pace > 0, (high - left) / pace, np.inf)
            down = np.where(pace < 0, (low - left) / pace, np.inf)
        steps = np.fmin(up, down)
        quiet = np.abs(pace) <= paths.tie
        steps[quiet] = np.inf
        steps = np.maximum(steps, done)
        row = int(np.argmin(steps))
        return float(steps[row]), row, bool(up[row] <= down[row])

    def _room(self) -> tuple[Array, Array]:
        """Interval of what moves of each row: its dual on a kink, its linear predictor on a piece."""
        (kinks, slopes), rows = self.paths.moved, np.arange(len(self.place))
        place = self.place
        here, before = np.minimum(place, slopes.shape[1] - 1), np.maximum(place - 1, 0)
        low = np.where(self.on_kink, slopes[rows, before], kinks[rows, here])
        high = np.where(self.on_kink, slopes[rows, here], kinks[rows, here + 1])
        return low, high

    def _pass(self, row: int, *, up: bool) -> None:
        """Move a row from its kink onto a piece, or from a piece onto a kink."""
        if self.on_kink[row]:
            self.place[row] += 0 if up else -1  # the piece after kink k is number k
        else:
            self.place[row] += 1 if up else 0  # the kink after piece k is number k + 1
        self.on_kink[row] = not self.on_kink[row]
        self._hold(row, *self.paths.moved)

    def _hold(self, row: int, kinks: Array, slopes: Array) -> None:
        """Hold a row at its kink, or at the slope of its piece."""
        paths, place = self.paths, self.place[row]
        if self.on_kink[row]:
            target = kinks[row, place] - paths.fit.eta[row]
        else:
            target = slopes[row, place] - paths.fit.gradient[row]
        if self.on_kink[row] == paths.on_kink[row]:
            self.wanted.pop(row, None)
            self.given[row] = target if abs(target) > paths.tie[row] else 0.0
        else:
            self.wanted[row] = float(target)
            self.given[row] = 0.0

    def _end(self) -> Array | None:
        """Right-hand sides where the row has gone, and all others are at kinks and slopes as they were."""
        for row in {*self.wanted, *np.flatnonzero(self.given).tolist()} - {self.i}:
            self._hold(row, self.paths.kinks, self.paths.slopes)
        line = self._line()
        return None if line is None else line[0] + line[1]
