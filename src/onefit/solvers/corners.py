"""The exact active-set method for losses with corners and a quadratic penalty.

It solves, for a piecewise linear loss (hinge, quantile, absolute, epsilon-insensitive),

    minimise over (β, b):   Σ_i w_i ℓ(y_i, η_i) + ½ Σ_j l2_j β_j²,      η = Xβ + b.

At the optimum a row is on a piece of its loss, where its dual g_i is w_i times the slope, or in a corner c,
where η_i = c and g_i is anything between the slopes of the two pieces.  With Λ the strengths of the
penalised columns, G = X Λ⁻¹ Xᵀ over them, and Q an orthonormal basis of the free directions (the intercept
and the columns without a penalty), stationarity is

    η = −G g + Q θ,      Qᵀ g = 0,

the optimality of the dual, a quadratic program in a box.  Given the rows V in corners,

    G_VV g_V − Q_V θ = −c_V − G_VN g_N,      Q_Vᵀ g_V = −Q_Nᵀ g_N,

one Cholesky factor of G_VV + τ Q_V Q_Vᵀ, which is the same system for every τ > 0 and positive definite where
the system is regular.  Rows whose dual leaves its interval leave their corner, rows that cross a corner enter
it: first all at once, which takes a few rounds and may cycle, then one at a time along feasible duals, which
ends (Best 1984; ties are broken by the smallest index, Chang and Cottle 1980).  V is kept independent:
duplicated rows, and corners that more rows meet in than there are dimensions, leave all but so many of them
at the ends of their intervals.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, final

import numpy as np
import scipy.linalg
from scipy.optimize import linprog

from onefit import _linalg
from onefit._typing import Array, Design, Index, Mask
from onefit.cholesky import UpdatableCholesky
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.losses import PiecewiseLinear
from onefit.problem import Problem

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


def solve(start: Fit) -> Fit:
    """Minimise the objective of ``start.problem`` exactly.

    Parameters
    ----------
    start : Fit
        Any coefficients; near the optimum, as after the loss of a row, few rounds are needed.

    Returns
    -------
    Fit
        With ``eta``, ``slope`` (the duals of rows in corners included) and ``pinned`` (the independent rows
        in corners) known.

    Raises
    ------
    SolverError
        If the rows do not settle on pieces and in corners.
    """
    problem = start.problem
    rows = np.flatnonzero(problem.weights > 0)
    ones = np.ones((len(rows), int(bool(problem.intercept))))
    l2 = problem.penalty.ridge((problem.X.shape[1],))
    dual = DualActiveSet(Rows.of(_only(problem.X, rows), l2, ones), *intervals(problem, rows))
    dual.place(start.eta[rows], _known_duals(start, rows))
    dual.settle()
    return _as_fit(problem, rows, dual)


def _only(X: Design, rows: Index) -> Design:
    """Some rows of a design, of a kernel model those of its Gram matrix."""
    return X if len(rows) == X.shape[0] else _linalg.some_rows(X, rows)


def intervals(problem: Problem, rows: Index) -> tuple[Array, Array]:
    """Corners, and weighted slopes of the pieces between them."""
    loss, y = problem.loss, problem.y[rows]
    if not isinstance(loss, PiecewiseLinear):
        raise TypeError(f"{type(loss).__name__} is not piecewise linear")
    return loss.kinks(y), problem.weights[rows, None] * loss.slopes(y)


def _known_duals(start: Fit, rows: Index) -> Array | None:
    """Duals of the start, where it has them."""
    if "gradient" in vars(start):
        return start.gradient[rows]
    if not _linalg.has_columns(start.problem.X) and np.any(start.coef):
        return -(start.problem.penalty.ridge(start.coef.shape) * start.coef)[rows]
    return None


def _as_fit(problem: Problem, rows: Index, dual: DualActiveSet) -> Fit:
    slope, pinned = np.zeros(problem.n), np.zeros(problem.n, dtype=bool)
    slope[rows], pinned[rows[dual.pins]] = dual.duals, True
    coef, extra = dual.primal()
    if not _linalg.has_columns(problem.X):
        coef, held = np.zeros(problem.n), coef
        coef[rows] = held
    level = np.asarray(extra.sum())
    eta = problem.linear_predictor(coef, level)
    eta[rows[dual.pins]] = dual.held_at(dual.pins)
    return Fit(problem, coef, level).known(eta=eta, gradient=slope, pinned=pinned)


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows that have a weight: G, and the free directions.

    Attributes
    ----------
    design : (n, p) array, sparse array, or RowGram
        X.
    inverse : (p,) array
        1 / l2, and 0 for the columns that are free or fixed at zero.
    gram : (n, n) array or None
        G, where it is known or no larger than X.
    scaled : (n, p') array or sparse array
        X Λ^(−½) over the penalised columns: G is its row Gram matrix.
    free : (n, f) array
        Q.
    columns : int array
        Columns of [X, extra] that span the free directions.
    to_columns : (f, f) array
        Upper triangular R with Q R the columns.
    bend : (n,) array
        What is added to the diagonal of G: 0, or 1 / w for a row with the loss ½ w (y − η)².
    """

    design: Design
    inverse: Array
    gram: Array | None
    scaled: Design
    free: Array
    columns: Index
    to_columns: Array
    hessian: Array

    @classmethod
    def of(cls, X: Design, l2: Array, extra: Array, bend: Array | None = None) -> Rows:
        """Scale the columns and tell the free directions from the penalised.

        Parameters
        ----------
        X : (n, p) array, sparse array, or RowGram
        l2 : (p,) array
            Strengths; 0 is free, infinity fixed at zero.
        extra : (n, e) array
            More columns without a penalty, such as that of the intercept.
        bend : (n,) array, optional
        """
        bend = np.zeros(X.shape[0]) if bend is None else bend
        last = len(l2) + np.arange(extra.shape[1])
        inverse = np.divide(1.0, l2, out=np.zeros(len(l2)), where=l2 > 0)
        if not _linalg.has_columns(X):
            if not np.all(l2 > 0):
                raise SolverError("a kernel model needs a penalty: give it a positive strength")
            gram = _linalg.row_gram(X, inverse)
            return cls(X, inverse[: len(gram)], gram, gram, *_orthonormal(extra, last), bend)
        flat, curved = np.flatnonzero(l2 == 0), np.flatnonzero(inverse)
        free = np.hstack([_linalg.columns_as_rows(X, flat).T, extra])
        scaled = _linalg.scaled_columns(X, curved, np.sqrt(inverse[curved]))
        small = len(curved) >= X.shape[0]
        known = _linalg.row_gram(scaled, np.ones(len(curved))) if small else None
        return cls(X, inverse, known, scaled, *_orthonormal(free, np.append(flat, last)), bend)

    @cached_property
    def squared_norms(self) -> Array:
        """Diagonal of the matrix that is factored."""
        return self._diagonal + self.tau * np.sum(self.free**2, axis=1)

    @cached_property
    def tau(self) -> float:
        """Curvature given to the free directions: about that of the others."""
        return float(self._diagonal.sum()) / max(self.free.shape[1], 1) or 1.0

    @cached_property
    def _diagonal(self) -> Array:
        return self._lengths + self.hessian

    @cached_property
    def _lengths(self) -> Array:
        if self.gram is not None:
            return self.gram.diagonal().copy()
        return _linalg.row_squares(self.scaled)

    def times(self, duals: Array) -> Array:
        """G g."""
        if self.gram is not None:
            return _linalg.product(self.gram, duals) + self.hessian * duals
        return self.hessian * duals + _linalg.times(self.scaled, _linalg.transposed_times(self.scaled, duals))

    def among(self, left: Index, right: Index) -> Array:
        """Entries of G + τ Q Qᵀ, in Fortran order."""
        if self.gram is not None:
            block = self.gram[np.ix_(left, right)]
        else:
            block = _linalg.among_rows(self.scaled, left, right)
        if left is right:
            block = block + np.diag(self.hessian[left])
        return np.asfortranarray(block + self.tau * self.free[left] @ self.free[right].T)

    def primal(self, duals: Array, free: Array) -> tuple[Array, Array]:
        """β, with −Λ⁻¹ Xᵀ g on the penalised columns, and the coefficients of the extra columns."""
        p = len(self.inverse)
        coef = -self.inverse * _linalg.transposed_times(self.design, duals)
        directions = scipy.linalg.solve_triangular(self.to_columns, free)
        own = self.columns < p
        coef[self.columns[own]] = directions[own]
        extra = np.zeros(max(int(self.columns.max(initial=p - 1)) + 1 - p, 0))
        extra[self.columns[~own] - p] = directions[~own]
        return coef, extra


def _orthonormal(free: Array, columns: Index) -> tuple[Array, Index, Array]:
    """Q, independent columns, and R of these."""
    if free.shape[1] == 0:
        return free, columns, np.empty((0, 0))
    norms = np.maximum(np.linalg.norm(free, axis=0), np.finfo(float).tiny)
    Q, R, order = scipy.linalg.qr(free / norms, mode="economic", pivoting=True)
    rank = int(np.count_nonzero(np.abs(R.diagonal()) > 1e-11))
    return Q[:, :rank], columns[order[:rank]], R[:rank, :rank] * norms[order[:rank]]


class _Target(NamedTuple):
    """Where the duals of the rows in corners would go, and the free directions with them."""

    change: Array  # (v,)
    free: Array  # (f,)


@final
class DualActiveSet:
    """State of every row: on a piece, or in a corner with its dual free.

    Parameters
    ----------
    rows : Rows
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

    def __init__(self, rows: Rows, corners: Array, ends: Array) -> None:
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
        width = ends[:, -1] - ends[:, 0]
        self._width = np.where(np.isfinite(width), width, self._scale)
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
            interior = gap.min(axis=1) > _AT_CORNER * self._width
            inside = interior & (inside | (distance.min(axis=1) <= 0.1 * (1.0 + np.abs(eta))))
            piece = np.where(interior, piece, gap.argmin(axis=1))
        inside |= self._always
        self.state = np.where(inside, nearest, piece)
        self._pin(self._always_first(inside))

    def _always_first(self, rows: Mask) -> Index:
        return np.concatenate([np.flatnonzero(rows & self._always), np.flatnonzero(rows & ~self._always)])

    def settle(self) -> None:
        """Solve, from the states that the rows were placed in.

        Raises
        ------
        SolverError
        """
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
        below, above = (
            np.abs(self.duals[rows] - self.ends[rows, k]),
            np.abs(self.duals[rows] - self.ends[rows, k + 1]),
        )
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
        """Solve for the duals of the pinned rows and θ, all others staying as they are."""
        Q, tau = self.rows.free[self.pins], self.rows.tau
        missing = -self.rows.free.T @ self.duals
        half = self._factor.half_solve(-(self.held_at(self.pins) + self.pull[self.pins]))
        if Q.shape[1] == 0:
            return _Target(self._factor.back_solve(half), missing)
        along = self._factor.half_solve(np.asfortranarray(Q))
        free = np.linalg.solve(along.T @ along, missing - along.T @ half)
        return _Target(self._factor.back_solve(half + along @ free), free - tau * missing)

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
        sizes = np.abs(self.corners[np.isfinite(self.corners)])
        return _ROUNDING * float(sizes.max(initial=1e-300)) + 10 * noise

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
        return (np.maximum(g - high, 0.0) + np.minimum(g - low, 0.0)) / np.minimum(high - low, self._scale)

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
            while length < 1.0 and self._is_needed(hit, target.change[hit]):
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
        g = _into_box(np.clip(self.duals, self.ends[:, 0], self.ends[:, -1]), self.ends, self.rows.free)
        gap = np.abs(g[:, None] - self.ends)
        piece = gap.argmin(axis=1)
        inside = gap.min(axis=1) > 1e-11 * self._width
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
        moves = np.abs(change) > _NO_MOVE * np.minimum(high - low, self._scale)
        lengths[moves] = room[moves] / np.abs(change[moves])
        length = float(lengths.min(initial=np.inf))
        tied = np.flatnonzero(lengths <= length * (1 + 1e-12))
        if length == np.inf:
            return length, -1
        by_index = self._stalled > _PATIENCE
        return length, int(tied[self.pins[tied].argmin() if by_index else np.abs(change[tied]).argmax()])

    def _is_needed(self, place: int, change: float) -> bool:
        """Whether only this row determines a free direction: its dual is fixed, and its change rounding."""
        if abs(change) > 1e-6 * self._scale:
            return False
        Q = self.rows.free[self.pins]
        if Q.shape[1] == 0:
            return False
        own = Q[place]
        return bool(own @ np.linalg.lstsq(Q.T @ Q, own)[0] > 1.0 - 1e-8)

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


def _into_box(g: Array, ends: Array, free: Array) -> Array:
    """Duals with Qᵀ g = 0 between the outer ends of their intervals, nearest to some in ℓ1 distance."""
    excess = free.T @ g
    if free.shape[1] == 1:
        return _filled(g, ends, free[:, 0], -float(excess[0]))
    if np.abs(excess).max(initial=0.0) <= 1e-12 * np.abs(g).max(initial=0.0):
        return g
    room = np.concatenate([ends[:, -1] - g, g - ends[:, 0]])
    bounds = np.column_stack([np.zeros(len(room)), room])
    program = linprog(np.ones(len(room)), A_eq=np.hstack([free.T, -free.T]), b_eq=-excess, bounds=bounds)
    if program.status != 0:
        raise SolverError(
            "there are no duals that balance the directions without a penalty: the problem has no finite "
            "minimum; give every column a penalty"
        )
    return np.clip(g + program.x[: len(g)] - program.x[len(g) :], ends[:, 0], ends[:, -1])


def _filled(g: Array, ends: Array, along: Array, missing: float) -> Array:
    """The same for one direction, row after row: first those that are not at an end."""
    low, high = ends[:, 0] - g, ends[:, -1] - g
    up = along * missing > 0
    reach = np.where(along == 0, 0.0, np.abs(np.where(up, high, low)))
    room = np.minimum(reach * np.abs(along), abs(missing))
    at_end = np.abs(g[:, None] - ends).min(axis=1) <= 1e-9 * np.abs(g)
    order = np.lexsort([-np.abs(along), at_end])
    before = np.cumsum(room[order]) - room[order]
    filled = np.empty(len(g))
    filled[order] = np.clip(abs(missing) - before, 0.0, room[order])
    share = np.divide(filled, along * np.sign(missing), out=np.zeros(len(g)), where=filled > 0)
    return np.clip(g + share, ends[:, 0], ends[:, -1])
