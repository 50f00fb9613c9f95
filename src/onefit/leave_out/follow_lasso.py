"""Exact leave-one-out of least squares with an ℓ1 part, along the path on which one row fades away.

Row i acts on the coefficients through its slope g_i.  Let s go from 0 to 1, let that slope fade in
proportion to 1 − s, and the penalty from P to (1 − f_i) P with it.  With K = Aᵀ W A + (1 − f) diag(l2) of
*all* rows (A: columns of X, centred where there is an intercept), the solution at s obeys

    K β + γ = Aᵀ W y + t a_i − f (1 − s) l2 β⁰,            w_i (η_i − y_i) − t = (1 − s) g_i,
    γ_j = (1 − f s) l1_j sign β_j where β_j ≠ 0,           |γ_j| ≤ (1 − f s) l1_j elsewhere:

the fit at s = 0, the refit without row i at s = 1, and in between the augmented problem of Wang et al. (2018,
eq. 11).  β, γ and t are linear in s until a coordinate reaches its bound; then β_j and γ_j change places.

All rows share the tableau of ``tableau``, in which s moves the constants: by g_i q + f ν, where q is what the
row pulls at and ν = K⁻¹ ∇P.  So |Q| + 1 equations, with Q the exchanges of a row, say where its path goes
next, whatever the size of the support.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.fit import Fit
from onefit.leave_out.tableau import Tableau, WorkingSet

NEARBY = 0.7  # share of its bound from which on a correlation is followed
ROUNDS = 4  # times that columns which turn out to join may be added
MOST_PIVOTS = 200
DEPENDENT = 1e-11  # rate of a correlation, relative to the force of the row, that is none
TIE = 1e-9  # relative excess of a correlation that is none: copies of an active column sit on the bound
LETS_GO = 1e-11  # slack 1 − w h of a row that keeps none, so that its path has a direction
STATIONARY = 1e-8  # relative error of a correlation on the support that is none


class LassoEnds(NamedTuple):
    """Where the paths of some rows end.

    ``coef`` (r, |columns|) are the coefficients of ``columns``, all others are zero; ``solved`` says for
    which rows the conditions of optimality hold on all columns.
    """

    columns: Index
    coef: Array
    intercept: Array
    pivots: Index
    solved: Mask


def leave_out_along_path(fit: Fit, rows: Index) -> LassoEnds:
    """Leave single rows out of a least-squares fit with a separable ℓ1 part, exactly.

    Parameters
    ----------
    fit : Fit
        Optimal to machine precision, with one output, a quadratic loss and an ℓ1 part.
    rows : (r,) int array
        Rows to leave out, each on its own.

    Returns
    -------
    LassoEnds
        The optimality of each row's end is checked on all columns: ``solved`` is a proof up to rounding.
        Rows without one (no minimum, a degenerate path) are for a solver.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.losses import Squared
    >>> from onefit.penalties import L1
    >>> from onefit.problem import Problem
    >>> from onefit.solvers.solve import solve
    >>> X, y = np.array([[1.0], [2.0], [3.0], [4.0]]), np.array([1.0, 3.0, 2.0, 5.0])
    >>> fit = solve(Fit.at_start(Problem(Squared(), L1(2.0), X, y, np.ones(4)))).fit
    >>> ends = leave_out_along_path(fit, np.array([3]))
    >>> ends.coef, ends.intercept, ends.pivots, ends.solved
    (array([[0.]]), array([2.]), array([1]), array([ True]))
    """
    l1, _ = fit.problem.separable.strengths(fit.coef.shape)
    gamma = np.abs(fit.loss_gradient)
    watched = np.isfinite(l1) & (fit.tangent.support | (gamma >= NEARBY * l1))
    ends, joining = _follow_all(fit, rows, np.flatnonzero(watched))
    for _ in range(ROUNDS):
        missed = np.flatnonzero(~ends.solved)
        if missed.size == 0 or not np.any(joining & ~watched):
            break
        watched |= joining
        again, joining = _follow_all(fit, rows[missed], np.flatnonzero(watched))
        ends = _merged(ends, missed, again)
    return ends


def _follow_all(fit: Fit, rows: Index, columns: Index) -> tuple[LassoEnds, Mask]:
    """Ends of all paths on some columns, and the columns that should have been among them."""
    f = fit.problem.lost_shares(rows)
    coef, level = np.zeros((len(rows), len(columns))), np.zeros(len(rows))
    pivots, reached = np.zeros(len(rows), dtype=np.intp), np.zeros(len(rows), dtype=bool)
    for own in _of_one_curvature(f, curved=bool(np.any(fit.tangent.hessian))):
        table = WorkingSet.of(fit, columns, 0.0, 1.0 - float(f[own[0]]))
        if table is None:
            continue
        for part in np.array_split(own, max(1, len(own) * len(columns) // _linalg.BLOCK_SIZE)):
            paths = _LassoPaths(table, rows[part], f[part])
            x, reached[part] = paths.follow()
            own_coef, level[part] = table.coefficients(x)
            coef[np.ix_(part, np.searchsorted(columns, table.columns))] = own_coef
            pivots[part] = paths.pivots
    came = np.flatnonzero(reached)
    solved, joining = _optimal(fit, rows[came], f[came], columns, coef[came], level[came])
    reached[came] = solved
    return LassoEnds(columns, coef, level, pivots, reached), joining


def _of_one_curvature(f: Array, *, curved: bool) -> list[Index]:
    """Rows that share K: shrinking changes it only where the penalty is curved."""
    if not curved:
        return [np.arange(len(f))] if len(f) else []
    return [np.flatnonzero(f == value) for value in np.unique(f)]


def _merged(ends: LassoEnds, which: Index, again: LassoEnds) -> LassoEnds:
    """Exchange the ends of some rows for those on more columns."""
    coef = np.zeros((len(ends.coef), len(again.columns)))
    coef[:, np.searchsorted(again.columns, ends.columns)] = ends.coef
    coef[which] = again.coef
    level, pivots, solved = ends.intercept.copy(), ends.pivots.copy(), ends.solved.copy()
    level[which], pivots[which], solved[which] = again.intercept, again.pivots, again.solved
    return LassoEnds(again.columns, coef, level, pivots, solved)


class _LassoPaths:
    """The paths of some rows, in lockstep: one pivot each at a time.

    On a pattern everything is linear in s: the solutions of the two ends, s = 0 and s = 1, say where it goes.
    """

    def __init__(self, table: WorkingSet, rows: Index, f: Array) -> None:
        fit, count = table.fit, len(rows)
        self.table, self.f, self.z = table, f, table.Z[rows].T
        # where the row alone holds a direction up it has leverage one, and lets go of it at once, forwards
        self.d, self.slopes = (1.0 - LETS_GO) * fit.hessian[rows], fit.gradient[rows]
        self.ends = self._both_ends()
        self.reach = np.abs(self.z[: len(table.columns)]).max(axis=0, initial=0.0)
        self.active = np.repeat(table.inside[None], count, axis=0).T  # coordinates of one row side by side
        self.signs = np.repeat(table.sign[None], count, axis=0).T
        self.pivots = np.zeros(count, dtype=np.intp)

    def _both_ends(self) -> Tableau:
        """The tableau of all rows, at s = 0 and at s = 1; τ counts from the fit."""
        table, fit, inside = self.table, self.table.fit, self.table.inside
        x = table.parameters(fit.coef, float(fit.intercept))
        held = np.zeros_like(x)
        held[: len(table.columns)] = -fit.loss_gradient[table.columns]
        pull = table.eliminated(self.z)
        drift = table.eliminated(np.where(inside, table.held + table.l2 * x, 0.0))
        change = (self.slopes * pull).T + np.outer(self.f, drift)
        base = np.where(inside, x, held) + np.stack([np.zeros_like(change), change])
        keep = np.stack([np.ones_like(self.f), 1.0 - self.f])
        own, leverage = (np.einsum("qa,qa->a", self.z[inside], part[inside]) for part in (change.T, pull))
        at_base = np.stack([np.zeros_like(own), own])
        return Tableau(table.elimination, base.swapaxes(1, 2), pull, keep, self.d, at_base, leverage)

    def follow(self) -> tuple[Array, Mask]:
        """Parameters at s = 1, (q, r), and which paths came so far."""
        n_rows = len(self.f)
        found = np.zeros(self.active.shape)
        reached, share = np.zeros(n_rows, dtype=bool), np.zeros(n_rows)
        under_way = np.arange(n_rows)
        while under_way.size:
            line, tau = self.ends.solve(under_way, self.active[:, under_way], self.signs[:, under_way])
            share[under_way], j = self._next(under_way, line, tau, share[under_way])
            sound = np.isfinite(line).all(axis=(0, 1))
            ends = sound & (share[under_way] >= 1.0)
            at_end = under_way[ends]
            found[:, at_end], reached[at_end] = np.where(self.active[:, at_end], line[1][:, ends], 0.0), True
            onward = sound & ~ends & (self.pivots[under_way] < MOST_PIVOTS)
            under_way, j, line = under_way[onward], j[onward], line[..., onward]
            here = np.arange(len(j))
            at = line[0, j, here] + share[under_way] * (line[1, j, here] - line[0, j, here])
            self._exchange(under_way, j, at)
        return found, reached

    def _next(self, rows: Index, line: Array, tau: Array, share: Array) -> tuple[Array, Index]:
        """Next share at which a coordinate reaches its bound, and which."""
        active, l1 = self.active[:, rows], self.table.l1[:, None]
        value, rate = line[0], line[1] - line[0]
        bound = np.where(active, 0.0, l1)
        shrinking = self.f[rows] * bound
        crossing, never = np.full_like(bound, np.inf), np.full((len(rows), 1), np.inf)
        # what depends on active columns, as their copies do, keeps its distance: it brings nothing new
        force = tau[1] - tau[0] + self.slopes[rows]
        still = np.where(active, 0.0, DEPENDENT * np.abs(force) * self.reach[rows])
        # a distance that closes: σβ of the active ones, (1 − f s) l1 ± γ of the others
        signs = self.signs[:, rows]
        for side in (np.where(active, signs, 1.0), np.where(active, signs, -1.0)):
            room, closing = bound + side * value, shrinking - side * rate
            heads_there = (closing > still) & (l1 > 0)
            until = np.divide(room, closing, out=np.full_like(bound, np.inf), where=heads_there)
            crossing = np.minimum(crossing, until)
        crossing = np.maximum(np.hstack([crossing.T, never]), share[:, None])  # not before we are there
        j = np.argmin(crossing, axis=1)
        return np.minimum(crossing[np.arange(len(rows)), j], 1.0), j

    def _exchange(self, rows: Index, j: Index, at: Array) -> None:
        """Let coordinate j of each row join with the sign of its correlation, or leave."""
        joins = ~self.active[j, rows]
        self.signs[j[joins], rows[joins]] = np.sign(at[joins])
        self.active[j, rows] ^= True
        self.pivots[rows] += 1


def _optimal(fit: Fit, rows: Index, f: Array, columns: Index, coef: Array, level: Array) -> tuple[Mask, Mask]:
    """Rows whose coefficients solve the problem without them, and columns that should have joined."""
    problem = fit.problem
    l1, l2 = problem.separable.strengths(fit.coef.shape)
    solved, joining = np.ones(len(rows), dtype=bool), np.zeros(len(l1), dtype=bool)
    active = _linalg.active_columns(problem.X, columns)
    held = np.isfinite(l1)
    size = max(1, _linalg.BLOCK_SIZE // max(problem.X.shape))
    for start in range(0, len(rows), size):
        part = slice(start, start + size)
        eta = _linalg.times(active, coef[part].T) + level[part]
        slope = problem.weights[:, None] * (eta - problem.y[:, None])
        slope[rows[part], np.arange(slope.shape[1])] = 0.0
        gamma = -_linalg.transposed_times(problem.X, slope)
        keep = 1.0 - f[part]
        gamma[columns] -= keep * l2[columns, None] * coef[part].T
        bound = keep * l1[:, None]
        unit = STATIONARY * (np.abs(fit.loss_gradient).max() + np.finfo(float).tiny)
        beyond = (np.abs(gamma) > bound * (1.0 + TIE) + 1e-3 * unit) & held[:, None]
        on = coef[part].T != 0
        off_target = np.abs(
            gamma[columns] - np.where(on, bound[columns] * np.sign(coef[part].T), gamma[columns])
        )
        beyond[columns] &= ~on
        level_free = np.abs(slope.sum(axis=0)) if problem.intercept else np.zeros(slope.shape[1])
        scale = np.abs(fit.gradient).sum() * STATIONARY
        solved[part] = ~beyond.any(axis=0) & (off_target <= unit).all(axis=0) & (level_free <= scale)
        joining |= beyond.any(axis=1)
    return solved, joining
