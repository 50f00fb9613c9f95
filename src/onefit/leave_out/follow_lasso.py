"""Exact leave-one-out of least squares with an ℓ1 part, along the path on which one row fades away.

Row i acts on the coefficients through its slope g_i.  Let s go from 0 to 1, let that slope fade in
proportion to 1 − s, and the penalty from P to (1 − f_i) P with it.  With K = Aᵀ W A + (1 − f) diag(l2) of
*all* rows (A: columns of X, centred where there is an intercept), the solution at s obeys

    K β + γ = Aᵀ W y + t a_i − f (1 − s) l2 β⁰,            w_i (η_i − y_i) − t = (1 − s) g_i,
    γ_j = (1 − f s) l1_j sign β_j where β_j ≠ 0,           |γ_j| ≤ (1 − f s) l1_j elsewhere:

the fit at s = 0, the refit without row i at s = 1, and in between the augmented problem of Wang et al. (2018,
eq. 11).  β, γ and t are linear in s until a coordinate reaches its bound; then β_j and γ_j change places.

All rows share one tableau: eliminating β on the support S of the fit,

    (β_S, γ_N) = const + q t + f ν s − H (γ_S, β_N),

with N the columns that may join.  After the exchanges Q of a row, a system of |Q| + 1 equations says where
its path goes next, whatever the size of the support.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.fit import Fit

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
    problem = fit.problem
    f = problem.lost_shares(rows)
    coef, level = np.zeros((len(rows), len(columns))), np.zeros(len(rows))
    pivots, reached = np.zeros(len(rows), dtype=np.intp), np.zeros(len(rows), dtype=bool)
    for own in _of_one_curvature(f, curved=bool(np.any(fit.tangent.hessian))):
        tableau = LassoTableau.of(fit, columns, float(f[own[0]]))
        if tableau is None:
            continue
        size = max(1, _linalg.BLOCK_SIZE // max(1, len(columns)))
        for start in range(0, len(own), size):
            part = own[start : start + size]
            paths = _LassoPaths(tableau, rows[part], f[part])
            coef[part], level[part], reached[part] = paths.follow()
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


@dataclass(frozen=True, eq=False)
class LassoTableau:
    """What the paths of all rows share.

    Attributes
    ----------
    fit : Fit
    columns : (m,) int array
        The support S and the columns N that may join.
    inside : (m,) bool array
        Which of them are in S.
    A : (n, m) array
        Those columns, centred.
    means : (m,) array
    l1, sign, start : (m,) arrays
        Strengths, signs and, from the fit, outputs: β on S, γ off it.
    H : (m, m) array
        Minus the derivative of outputs in inputs (γ on S, β off it).
    drift : (m,) array
        ν, what shrinking the penalty does to the outputs.
    inverse : (k, k) array
        K⁻¹ on S.
    """

    fit: Fit
    columns: Index
    inside: Mask
    A: Array
    means: Array
    l1: Array
    sign: Array
    start: Array
    H: Array
    drift: Array
    inverse: Array

    @classmethod
    def of(cls, fit: Fit, columns: Index, f: float) -> LassoTableau | None:
        """Eliminate the support; None where K is singular there."""
        problem = fit.problem
        l1, l2 = (strength[columns] for strength in problem.separable.strengths(fit.coef.shape))
        A = np.ascontiguousarray(_linalg.as_columns(problem.X).columns_as_rows(columns)).T
        means = np.zeros(len(columns))
        if problem.intercept:
            means = problem.weights @ A / problem.weights.sum()
            A = A - means
        inside = fit.tangent.support[columns]
        M = _linalg.product(A.T, problem.weights[:, None] * A)
        M[np.diag_indices_from(M)] += (1.0 - f) * l2
        factor = _linalg.cholesky(np.asfortranarray(M[np.ix_(inside, inside)]))
        if factor is None:
            return None
        inverse = _linalg.factor_solve(factor, np.eye(int(inside.sum()), order="F"))
        across = M[np.ix_(inside, ~inside)]
        solved = _linalg.product(inverse, across)
        H = np.empty_like(M)
        H[np.ix_(inside, inside)] = inverse
        H[np.ix_(inside, ~inside)] = solved
        H[np.ix_(~inside, inside)] = -solved.T
        H[np.ix_(~inside, ~inside)] = M[np.ix_(~inside, ~inside)] - _linalg.product(across.T, solved)
        gradient = fit.tangent.gradient[columns]
        drift = np.empty(len(columns))
        drift[inside] = inverse @ gradient[inside]
        drift[~inside] = -across.T @ drift[inside]
        start = np.where(inside, fit.coef[columns], -fit.loss_gradient[columns])
        sign = np.sign(start)
        return cls(fit, columns, inside, A, means, l1, sign, start, H, drift, inverse)

    def pulls(self, rows: Index) -> Array:
        """Q of some rows, what their slopes do to the outputs: (m, r)."""
        own = self.A[rows].T
        pulls = np.empty_like(own)
        pulls[self.inside] = _linalg.product(self.inverse, own[self.inside])
        solved = self.H[np.ix_(self.inside, ~self.inside)]
        pulls[~self.inside] = own[~self.inside] - _linalg.product(solved.T, own[self.inside])
        return pulls


class Line(NamedTuple):
    """Where paths go next, linearly in s."""

    value: Array  # (r, m): the bounded quantity of each coordinate at s = 0: β where it is active, else γ
    rate: Array  # (r, m)
    pull: Array  # (r,): t at s = 1
    force: Array  # (r,): rate of t


class _LassoPaths:
    """The paths of some rows, in lockstep: one pivot each at a time."""

    def __init__(self, tableau: LassoTableau, rows: Index, f: Array) -> None:
        fit, inside = tableau.fit, tableau.inside
        self.tableau, self.f = tableau, f[:, None]
        self.pulls = tableau.pulls(rows).T
        # where the row alone holds a direction up it has leverage one, and lets go of it at once, forwards
        self.weights, self.slopes = (1.0 - LETS_GO) * fit.problem.weights[rows], fit.gradient[rows]
        own = tableau.A[rows][:, inside]
        self.offset = 1.0 / float(fit.problem.weights.sum()) if fit.problem.intercept else 0.0
        self.leverages = np.einsum("ij,ij->i", own, self.pulls[:, inside]) + self.offset
        self.reach = np.abs(tableau.A[rows]).max(axis=1, initial=0.0)
        self.drifts = own @ tableau.drift[inside]
        self.active = np.repeat(inside[None], len(rows), axis=0)
        self.signs = np.repeat(tableau.sign[None], len(rows), axis=0)
        self.pivots = np.zeros(len(rows), dtype=np.intp)

    def follow(self) -> tuple[Array, Array, Mask]:
        """Coefficients and intercepts at s = 1, and which paths came so far."""
        n_rows = len(self.active)
        coef, pull = np.zeros(self.active.shape), np.zeros(n_rows)
        reached, share = np.zeros(n_rows, dtype=bool), np.zeros(n_rows)
        under_way = np.arange(n_rows)
        while under_way.size:
            line, sound = self._line(under_way)
            share[under_way], j = self._next(under_way, line, share[under_way])
            ends = sound & (share[under_way] >= 1.0)
            at_end = under_way[ends]
            coef[at_end] = np.where(self.active[at_end], line.value[ends] + line.rate[ends], 0.0)
            pull[at_end], reached[at_end] = line.pull[ends], True
            onward = sound & ~ends & (self.pivots[under_way] < MOST_PIVOTS)
            at = line.value[onward, j[onward]] + share[under_way[onward]] * line.rate[onward, j[onward]]
            under_way = under_way[onward]
            self._exchange(under_way, j[onward], at)
        problem = self.tableau.fit.problem
        mean = float(problem.weights @ problem.y) + pull
        return coef, mean * self.offset - coef @ self.tableau.means, reached

    def _line(self, rows: Index) -> tuple[Line, Mask]:
        """Solve for the inputs of the exchanged coordinates and t; paths whose system is singular end."""
        table, f = self.tableau, self.f[rows]
        exchanged = self.active[rows] != table.inside
        count = exchanged.sum(axis=1)
        q = int(count.max())
        # the exchanged coordinates first, in any order, and as many others as pad them to q
        Q = np.argsort(~exchanged, axis=1, kind="stable")[:, :q]
        padding = np.arange(q) >= count[:, None]
        pull = np.take_along_axis(self.pulls[rows], Q, axis=1)
        inside = table.inside[Q]
        joined = np.where(inside, 0.0, table.l1[Q] * np.take_along_axis(self.signs[rows], Q, axis=1))
        system = np.empty((len(rows), q + 1, q + 1))
        system[:, :q, :q] = table.H[Q[:, :, None], Q[:, None, :]]
        system[:, :q, q] = -pull
        # η_i answers the inputs as the outputs answer t, but for a sign
        system[:, q, :q] = -self.weights[rows, None] * np.where(inside, pull, -pull)
        system[:, q, q] = self.weights[rows] * self.leverages[rows] - 1.0
        system[:, :q][padding] = 0.0
        system[:, np.arange(q), np.arange(q)] += padding
        rhs = np.zeros((len(rows), q + 1, 2))
        rhs[:, :q, 0] = np.where(padding, 0.0, table.start[Q] - joined)
        rhs[:, :q, 1] = np.where(padding, 0.0, f * (table.drift[Q] + joined))
        rhs[:, q, 1] = -self.slopes[rows] - self.weights[rows] * f[:, 0] * self.drifts[rows]
        x = _linalg.solve_each(system, rhs)
        inputs = np.zeros((2, len(rows), len(table.columns)))
        np.put_along_axis(inputs[0], Q, x[:, :q, 0], axis=1)
        np.put_along_axis(inputs[1], Q, x[:, :q, 1], axis=1)
        line = self._outputs(rows, inputs, x[:, q])
        return self._with_inputs(line, inputs, exchanged, f), np.asarray(np.isfinite(x).all(axis=(1, 2)))

    def _outputs(self, rows: Index, inputs: Array, pull: Array) -> Line:
        """Outputs of the tableau for inputs and t, (r, 2): at s = 0, and their rate."""
        table = self.tableau
        moved = _linalg.product(inputs.reshape(2 * len(rows), -1), table.H.T).reshape(inputs.shape)
        value = table.start + pull[:, :1] * self.pulls[rows] - moved[0]
        rate = self.f[rows] * table.drift + pull[:, 1:] * self.pulls[rows] - moved[1]
        return Line(value, rate, pull.sum(axis=1), pull[:, 1])

    def _with_inputs(self, line: Line, inputs: Array, exchanged: Mask, f: Array) -> Line:
        """The bounded quantity of an exchanged coordinate is its input."""
        default = np.where(self.tableau.inside, self.tableau.l1 * self.tableau.sign, 0.0)
        value = np.where(exchanged, inputs[0] + default, line.value)
        return line._replace(value=value, rate=np.where(exchanged, inputs[1] - f * default, line.rate))

    def _next(self, rows: Index, line: Line, share: Array) -> tuple[Array, Index]:
        """Next share at which a coordinate reaches its bound, and which."""
        table, active = self.tableau, self.active[rows]
        bound = np.where(active, 0.0, table.l1)
        shrinking = self.f[rows] * bound
        crossing, never = np.full(bound.shape, np.inf), np.full((len(rows), 1), np.inf)
        # what depends on active columns, as their copies do, keeps its distance: it brings nothing new
        still = np.where(active, 0.0, DEPENDENT * (np.abs(line.force) * self.reach[rows])[:, None])
        # a distance that closes: σβ of the active ones, (1 − f s) l1 ± γ of the others
        for side in (np.where(active, self.signs[rows], 1.0), np.where(active, self.signs[rows], -1.0)):
            room, closing = bound + side * line.value, shrinking - side * line.rate
            heads_there = (closing > still) & (table.l1 > 0)
            until = np.divide(room, closing, out=np.full(bound.shape, np.inf), where=heads_there)
            crossing = np.minimum(crossing, until)
        crossing = np.maximum(np.hstack([crossing, never]), share[:, None])  # not before we are there
        j = np.argmin(crossing, axis=1)
        return np.minimum(crossing[np.arange(len(rows)), j], 1.0), j

    def _exchange(self, rows: Index, j: Index, at: Array) -> None:
        """Let coordinate j of each row join with the sign of its correlation, or leave."""
        joins = ~self.active[rows, j]
        self.signs[rows[joins], j[joins]] = np.sign(at[joins])
        self.active[rows, j] ^= True
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
