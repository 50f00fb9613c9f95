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

with N the columns that may join.  After the exchanges Q of a row, a system of |Q| + 1 equations says where its
path goes next, whatever the size of the support.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.problem import Fit

NEARBY = 0.7  # share of its bound from which on a correlation is followed
ROUNDS = 4  # times that columns which turn out to join may be added
MOST_PIVOTS = 200
TIE = 1e-9  # relative excess of a correlation that is none: copies of an active column sit on the bound
STATIONARY = 1e-8  # relative error of a correlation on the support that is none


class Ends(NamedTuple):
    """Where the paths of some rows end.

    ``coef`` (r, |columns|) are the coefficients of ``columns``, all others are zero; ``solved`` says for
    which rows the conditions of optimality hold on all columns.
    """

    columns: Index
    coef: Array
    level: Array
    pivots: Index
    solved: Mask


def leave_out_along_path(fit: Fit, rows: Index) -> Ends:
    """Leave single rows out of a least-squares fit with a separable ℓ1 part, exactly.

    Parameters
    ----------
    fit : Fit
        Optimal to machine precision, with one output, a quadratic loss and an ℓ1 part.
    rows : (r,) int array
        Rows to leave out, each on its own.

    Returns
    -------
    Ends
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
    >>> fit = solve(Problem(Squared(), L1(2.0), X, y, np.ones(4)).at_start()).fit
    >>> ends = leave_out_along_path(fit, np.array([3]))
    >>> ends.coef, ends.level, ends.pivots, ends.solved
    (array([[0.]]), array([2.]), array([1]), array([ True]))
    """
    l1, _ = fit.problem.penalty.strengths(fit.coef.shape)
    gamma = np.abs(fit.loss_gradient)
    watched = np.isfinite(l1) & (fit.tangent.support | (gamma >= NEARBY * l1))
    for _ in range(ROUNDS):
        ends, joining = _follow_all(fit, rows, np.flatnonzero(watched))
        if not np.any(joining & ~watched):
            break
        watched |= joining
    return ends


def _follow_all(fit: Fit, rows: Index, columns: Index) -> tuple[Ends, Mask]:
    """Ends of all paths on some columns, and the columns that should have been among them."""
    problem = fit.problem
    f = problem.weights[rows] / problem.weights.sum() * problem.mean_scaled
    coef, level = np.zeros((len(rows), len(columns))), np.zeros(len(rows))
    pivots, reached = np.zeros(len(rows), dtype=np.intp), np.zeros(len(rows), dtype=bool)
    # the shrinking penalty changes K only where it is curved
    groups = np.unique(f, return_inverse=True)[1] if np.any(fit.tangent.hessian) else np.zeros(len(rows), int)
    for group in range(groups.max(initial=-1) + 1):
        own = np.flatnonzero(groups == group)
        tableau = Tableau.of(fit, columns, float(f[own[0]]))
        if tableau is None:
            continue
        pulls = tableau.pulls(rows[own])
        for place, r in enumerate(own):
            path = _Path(tableau, int(rows[r]), float(f[r]), pulls[:, place])
            end = path.follow()
            pivots[r] = path.pivots
            if end is not None:
                coef[r], level[r], reached[r] = *end, True
    solved, joining = _optimal(fit, rows, f, columns, coef, level)
    return Ends(columns, coef, level, pivots, solved & reached), joining & np.any(reached)


@dataclass(frozen=True, eq=False)
class Tableau:
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
    def of(cls, fit: Fit, columns: Index, f: float) -> Tableau | None:
        """Eliminate the support; None where K is singular there."""
        problem = fit.problem
        l1, l2 = (strength[columns] for strength in problem.penalty.strengths(fit.coef.shape))
        A = np.ascontiguousarray(_linalg.columns_as_rows(problem.X, columns)).T
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
        """q of some rows, what their slopes do to the outputs: (m, r)."""
        own = self.A[rows].T
        pulls = np.empty_like(own)
        pulls[self.inside] = _linalg.product(self.inverse, own[self.inside])
        solved = self.H[np.ix_(self.inside, ~self.inside)]
        pulls[~self.inside] = own[~self.inside] - _linalg.product(solved.T, own[self.inside])
        return pulls


class _Path:
    """The path of one row."""

    def __init__(self, tableau: Tableau, i: int, f: float, pull: Array) -> None:
        self.tableau = tableau
        self.f = f
        self.pull = pull
        self.pivots = 0
        problem, own = tableau.fit.problem, tableau.A[i]
        self.weight, self.slope = float(problem.weights[i]), float(tableau.fit.slope[i])
        self.offset = 1.0 / float(problem.weights.sum()) if problem.intercept else 0.0
        inside = tableau.inside
        self.leverage = float(own[inside] @ pull[inside]) + self.offset
        self.drift = float(own[inside] @ tableau.drift[inside])
        # η_i answers the inputs as the outputs answer t, but for a sign
        self.answer = np.where(inside, pull, -pull)
        self.exchanged: list[int] = []
        self.sign = tableau.sign.copy()

    def follow(self) -> tuple[Array, float] | None:
        """Coefficients and intercept at s = 1; None where the path breaks down."""
        s = 0.0
        while self.pivots <= MOST_PIVOTS:
            line = self._line()
            if line is None:
                return None
            value, rate, inputs = line
            s, j = self._next(value, rate, s)
            if s >= 1.0:
                return self._end(value + rate, inputs)
            self.pivots += 1
            self._exchange(j, float(value[j] + s * rate[j]))
        return None

    def _line(self) -> tuple[Array, Array, Array] | None:
        """Where the bounded quantities go, value + rate · s, and the inputs at s = 1 (the last one is t).

        For an exchanged coordinate the bounded quantity is its input, for the others their output.
        """
        table, Q, f = self.tableau, self.exchanged, self.f
        q = len(Q)
        system, rhs = np.empty((q + 1, q + 1)), np.empty((q + 1, 2))
        system[:q, :q] = table.H[np.ix_(Q, Q)]
        system[:q, q] = -self.pull[Q]
        system[q, :q] = -self.weight * self.answer[Q]
        system[q, q] = self.weight * self.leverage - 1.0
        joined = np.where(table.inside[Q], 0.0, table.l1[Q] * self.sign[Q])
        rhs[:q, 0] = table.start[Q] - joined
        rhs[:q, 1] = f * (table.drift[Q] + joined)
        rhs[q] = 0.0, -self.slope - self.weight * f * self.drift
        try:
            x = np.linalg.solve(system, rhs)
        except np.linalg.LinAlgError:
            return None
        if not np.all(np.isfinite(x)):
            return None
        value = table.start + x[q, 0] * self.pull
        rate = f * table.drift + x[q, 1] * self.pull
        if q:
            value -= table.H[:, Q] @ x[:q, 0]
            rate -= table.H[:, Q] @ x[:q, 1]
            default = np.where(table.inside[Q], table.l1[Q] * table.sign[Q], 0.0)
            value[Q] = x[:q, 0] + default
            rate[Q] = x[:q, 1] - f * default
        return value, rate, x.sum(axis=1)

    @property
    def _active(self) -> Mask:
        active = self.tableau.inside.copy()
        active[self.exchanged] ^= True
        return active

    def _next(self, value: Array, rate: Array, s: float) -> tuple[float, int]:
        """Next share at which a coordinate reaches its bound, and which."""
        table, active = self.tableau, self._active
        crossing = np.full(len(value), np.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            kinked = active & (table.l1 > 0)
            inward = kinked & (rate * self.sign < 0)
            crossing[inward] = -value[inward] / rate[inward]
            for side in (1.0, -1.0):  # |γ| ≤ (1 − f s) l1
                room, closing = table.l1 - side * value, side * rate + self.f * table.l1
                near = ~active & (closing > 0)
                crossing[near] = np.minimum(crossing[near], room[near] / closing[near])
        crossing = np.where(crossing < s, s, crossing)  # within rounding of where we are
        j = int(np.argmin(crossing))
        return min(float(crossing[j]), 1.0), j

    def _exchange(self, j: int, at: float) -> None:
        """Let coordinate j join with the sign of its correlation, or leave."""
        if not self._active[j]:
            self.sign[j] = np.sign(at)
        if j in self.exchanged:
            self.exchanged.remove(j)
        else:
            self.exchanged.append(j)

    def _end(self, value: Array, inputs: Array) -> tuple[Array, float]:
        table = self.tableau
        coef = np.where(self._active, value, 0.0)
        problem = table.fit.problem
        if not problem.intercept:
            return coef, 0.0
        mean = float(problem.weights @ problem.y) * self.offset
        return coef, mean + float(inputs[-1]) * self.offset - float(table.means @ coef)


def _optimal(
    fit: Fit, rows: Index, f: Array, columns: Index, coef: Array, level: Array
) -> tuple[Mask, Mask]:
    """Rows whose coefficients solve the problem without them, and columns whose correlations are too large."""
    problem = fit.problem
    l1, l2 = problem.penalty.strengths(fit.coef.shape)
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
        off_target = np.abs(gamma[columns] - np.where(on, bound[columns] * np.sign(coef[part].T), gamma[columns]))
        beyond[columns] &= ~on
        level_free = np.abs(slope.sum(axis=0)) if problem.intercept else np.zeros(slope.shape[1])
        scale = np.abs(fit.slope).sum() * STATIONARY
        solved[part] = ~beyond.any(axis=0) & (off_target <= unit).all(axis=0) & (level_free <= scale)
        joining |= beyond.any(axis=1)
    return solved, joining
