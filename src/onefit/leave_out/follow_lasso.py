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

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.curvature import Direction
from onefit.leave_out.exchange import QuadraticModels
from onefit.leave_out.optimality import Optimality
from onefit.leave_out.tableau import Watched, WorkingSet

ROUNDS = 4  # times that columns which turn out to join may be added


class LassoEnds(NamedTuple):
    """Refits without some rows.

    ``coef`` (r, |columns|) are the coefficients of ``columns``, all others are zero; ``own`` are the linear
    predictors of the rows themselves.  ``came`` says which rows have an end on these columns, ``solved`` for
    which of them the conditions of optimality hold on all.
    """

    columns: Index
    coef: Array
    intercept: Array
    own: Array
    exchanges: Index
    came: Mask
    solved: Mask


def leave_out_by_exchange(
    watched: Watched, rows: Index, leads: Mapping[int, Direction] | None = None
) -> LassoEnds:
    """Leave single rows out of a least-squares fit with a separable ℓ1 part, exactly.

    Parameters
    ----------
    watched : Watched
        Columns of a fit that is optimal to machine precision, with one output, a quadratic loss and an ℓ1
        part.  Those that turn out to join are watched from then on.
    rows : (r,) int array
        Rows to leave out, each on its own.
    leads : mapping, optional
        Parameters without some of the rows at a strength near by: a row starts from their pattern where it
        is nearer to its own than that of the fit.

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
    leads = {} if leads is None else leads
    if leads:
        watched.join(np.any([lead.coef != 0 for lead in leads.values()], axis=0))
    ends, joining = _follow_all(watched, rows, leads)
    for _ in range(ROUNDS):
        missed, before = np.flatnonzero(~ends.solved), len(watched.columns)
        watched.join(joining)
        if missed.size == 0 or len(watched.columns) == before:
            break
        again, joining = _follow_all(
            watched, rows[missed], _came_to(ends, rows, missed, len(watched.fit.coef))
        )
        ends = _merged(ends, missed, again)
    return ends


def _follow_all(watched: Watched, rows: Index, leads: Mapping[int, Direction]) -> tuple[LassoEnds, Mask]:
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
            models = QuadraticModels.at_fit(table, rows[part])
            found = _led(models, table, rows[part], leads).minima()
            own_coef, level[part] = table.coefficients(models.without_the_rows(found).x)
            coef[np.ix_(part, np.searchsorted(columns, table.columns))] = own_coef
            came[part], exchanges[part] = models.determined(found), found.exchanges
    solved, predicted, ended = came.copy(), np.zeros(len(rows)), np.flatnonzero(came)
    some = slice(None) if ended.size == len(rows) else ended  # usually all, which need no copy
    judged = Optimality(watched, columns).of(rows[some], coef[some], level[some])
    solved[ended], predicted[ended] = judged.solved, judged.own
    return LassoEnds(columns, coef, level, predicted, exchanges, came, solved), judged.joining


def _came_to(ends: LassoEnds, rows: Index, which: Index, p: int) -> dict[int, Direction]:
    """Where some of the rows have come to, those that have come anywhere."""
    found = {}
    for k in which[ends.came[which]].tolist():
        coef = np.zeros(p)
        coef[ends.columns] = ends.coef[k]
        found[int(rows[k])] = Direction(coef, ends.intercept[k])
    return found


def _led(
    models: QuadraticModels, table: WorkingSet, rows: Index, leads: Mapping[int, Direction]
) -> QuadraticModels:
    """The problems of some rows, from where these went before if that is nearer."""
    start, led = models.start.copy(), False
    for j, i in enumerate(rows.tolist()):
        if i in leads:
            start[:, j], led = table.parameters(leads[i].coef, float(leads[i].intercept)), True
    return models.nearer(start) if led else models


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
    level, own, exchanges = ends.intercept.copy(), ends.own.copy(), ends.exchanges.copy()
    came, solved = ends.came.copy(), ends.solved.copy()
    level[which], own[which], exchanges[which] = again.intercept, again.own, again.exchanges
    came[which], solved[which] = again.came, again.solved
    return LassoEnds(again.columns, coef, level, own, exchanges, came, solved)
