"""Exact leave-one-out of least squares with an ℓ1 part, by exchanges of the pattern.

Row i acts on the coefficients through its slope g_i.  Without it the penalty is (1 − f_i) P, and with
K = Aᵀ W A + (1 − f) diag(l2) of *all* rows (A: columns of X, centred where there is an intercept), the
refit obeys

    K β + γ = Aᵀ W y + t a_i,            w_i (η_i − y_i) = t,
    γ_j = (1 − f) l1_j sign β_j where β_j ≠ 0,           |γ_j| ≤ (1 − f) l1_j elsewhere.

All rows share the tableau of ``tableau``, in which a row moves the constants: by g_i q + f ν, where q is what
it pulls at and ν = K⁻¹ ∇P.  So |Q| + 1 equations, with Q the exchanges of a row, give its minimum on a
pattern, whatever the size of the support; ``exchange`` goes from pattern to pattern.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.leave_out.exchange import LETS_GO, QuadraticModels
from onefit.leave_out.tableau import Tableau, Watched, WorkingSet
from onefit.numerics import ON_BOUND

ROUNDS = 4  # times that columns which turn out to join may be added
STATIONARY = 1e-8  # relative error of a correlation on the support that is none


class LassoEnds(NamedTuple):
    """Refits without some rows.

    ``coef`` (r, |columns|) are the coefficients of ``columns``, all others are zero; ``came`` says which rows
    have an end on these columns, ``solved`` for which of them the conditions of optimality hold on all.
    """

    columns: Index
    coef: Array
    intercept: Array
    exchanges: Index
    came: Mask
    solved: Mask


def leave_out_by_exchange(watched: Watched, rows: Index) -> LassoEnds:
    """Leave single rows out of a least-squares fit with a separable ℓ1 part, exactly.

    Parameters
    ----------
    watched : Watched
        Columns of a fit that is optimal to machine precision, with one output, a quadratic loss and an ℓ1
        part.  Those that turn out to join are watched from then on.
    rows : (r,) int array
        Rows to leave out, each on its own.

    Returns
    -------
    LassoEnds
        The optimality of each row's end is checked on all columns: ``solved`` is a proof up to rounding.
        Rows without one (no minimum, a degenerate pattern) are for a solver.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.fit import Fit
    >>> from onefit.losses import Squared
    >>> from onefit.penalties import L1
    >>> from onefit.problem import Problem
    >>> from onefit.solvers.solve import solve
    >>> X, y = np.array([[1.0], [2.0], [3.0], [4.0]]), np.array([1.0, 3.0, 2.0, 5.0])
    >>> fit = solve(Fit.at_start(Problem(Squared(), L1(2.0), X, y, np.ones(4)))).fit
    >>> ends = leave_out_by_exchange(Watched.of(fit), np.array([3]))
    >>> ends.coef, ends.intercept, ends.exchanges, ends.solved
    (array([[0.]]), array([2.]), array([1]), array([ True]))
    """
    ends, joining = _follow_all(watched, rows)
    for _ in range(ROUNDS):
        missed, before = np.flatnonzero(~ends.solved), len(watched.columns)
        watched.join(joining)
        if missed.size == 0 or len(watched.columns) == before:
            break
        again, joining = _follow_all(watched, rows[missed])
        ends = _merged(ends, missed, again)
    return ends


def _follow_all(watched: Watched, rows: Index) -> tuple[LassoEnds, Mask]:
    """Refits on the columns that are watched, and those that should have been among them."""
    fit, columns = watched.fit, np.sort(watched.columns)
    f = fit.problem.lost_shares(rows)
    coef, level = np.zeros((len(rows), len(columns))), np.zeros(len(rows))
    exchanges, came = np.zeros(len(rows), dtype=np.intp), np.zeros(len(rows), dtype=bool)
    for own in _of_one_curvature(f, curved=bool(np.any(fit.tangent.hessian))):
        table = watched.table(1.0 - float(f[own[0]]))
        if table is None:
            continue
        for part in np.array_split(own, max(1, len(own) * len(columns) // _linalg.BLOCK_SIZE)):
            models = _models(table, rows[part], f[part])
            found = models.minima()
            own_coef, level[part] = table.coefficients(found.x)
            coef[np.ix_(part, np.searchsorted(columns, table.columns))] = own_coef
            came[part], exchanges[part] = models.determined(found), found.exchanges
    solved, ended = came.copy(), np.flatnonzero(came)
    solved[ended], joining = _optimal(watched, rows[ended], columns, coef[ended], level[ended])
    return LassoEnds(columns, coef, level, exchanges, came, solved), joining


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
    level, exchanges = ends.intercept.copy(), ends.exchanges.copy()
    came, solved = ends.came.copy(), ends.solved.copy()
    level[which], exchanges[which] = again.intercept, again.exchanges
    came[which], solved[which] = again.came, again.solved
    return LassoEnds(again.columns, coef, level, exchanges, came, solved)


def _models(table: WorkingSet, rows: Index, f: Array) -> QuadraticModels:
    """The problems without each of some rows, in terms of the fit."""
    fit, inside, z = table.fit, table.inside, table.Z[rows].T
    # where the row alone holds a direction up it has leverage one, and lets go of it at once
    d, slopes = (1.0 - LETS_GO) * fit.hessian[rows], fit.gradient[rows]
    x, held = table.parameters(fit.coef, float(fit.intercept)), np.zeros(len(inside))
    held[: len(table.columns)] = -fit.loss_gradient[table.columns]
    pull = table.eliminated(z)
    drift = table.eliminated(np.where(inside, table.held + table.l2 * x, 0.0))
    change = slopes * pull + np.outer(drift, f)
    own, leverage = (np.einsum("qa,qa->a", z[inside], part[inside]) for part in (change, pull))
    base, keep = np.where(inside, x, held)[:, None] + change, 1.0 - f
    tableau = Tableau(table.elimination, base[None], pull, keep[None], d, own[None], leverage)
    start = np.repeat(np.where(inside, x, 0.0)[:, None], len(rows), axis=1)
    return QuadraticModels(tableau, start, np.multiply.outer(table.l1, keep))


def _optimal(watched: Watched, rows: Index, columns: Index, coef: Array, level: Array) -> tuple[Mask, Mask]:
    """Rows whose coefficients solve the problem without them, and columns that should have joined."""
    fit, problem = watched.fit, watched.fit.problem
    l1, l2 = problem.separable.strengths(fit.coef.shape)
    solved, joining = np.ones(len(rows), dtype=bool), np.zeros(len(l1), dtype=bool)
    active = _linalg.active_columns(problem.X, columns)
    held, open_to_ties = np.where(np.isfinite(l1), l1, np.inf)[:, None], watched.may_be_tied
    unit = STATIONARY * (np.abs(fit.loss_gradient).max() + np.finfo(float).tiny)
    scale = np.abs(fit.gradient).sum() * STATIONARY
    size = max(1, _linalg.BLOCK_SIZE // max(problem.X.shape))
    for start in range(0, len(rows), size):
        part = slice(start, start + size)
        keep, beta = 1.0 - problem.lost_shares(rows[part]), coef[part].T
        eta = _linalg.times(active, beta) + level[part]
        slope = problem.weights[:, None] * (problem.y[:, None] - eta)
        slope[rows[part], np.arange(slope.shape[1])] = 0.0
        gamma = _linalg.transposed_times(problem.X, slope)
        gamma[columns] -= keep * l2[columns, None] * beta
        bound, on = keep * l1[columns, None], beta != 0
        off_target = np.where(on, np.abs(gamma[columns] - bound * np.sign(beta)), 0.0)
        excess, most = np.abs(gamma, out=gamma), keep * held
        excess -= most
        excess[columns] = np.where(on, -np.inf, excess[columns])
        j, i = np.nonzero(excess >= np.multiply(most, -ON_BOUND, out=most))  # few
        tie = ON_BOUND * keep[i] * l1[j]
        beyond = excess[j, i] > tie + 1e-3 * unit
        bad = i[beyond | ((excess[j, i] >= -tie) & open_to_ties[j])]  # others may be as good
        joining[j[beyond]] = True
        level_free = np.abs(slope.sum(axis=0)) if problem.intercept else np.zeros(slope.shape[1])
        fine = (off_target <= unit).all(axis=0) & (level_free <= scale)
        fine[bad] = False
        solved[part] = fine
    return solved, joining & watched.eligible
