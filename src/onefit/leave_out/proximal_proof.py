"""How far the ends of iterations of kinked, curved fits may be from the solutions without a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onefit import _linalg
from onefit._typing import Array
from onefit.leave_out import prove
from onefit.numerics import LEAST_SLACK

if TYPE_CHECKING:
    from onefit.leave_out.proximal import RowProblems


def gradients_left(run: RowProblems) -> Array:
    """Smallest subgradients at a run's ends: (q, m)."""
    x, l1 = run.stacked, run.table.l1[:, None] * run.keep
    gradient = run.gradient(np.arange(len(run.rows)), run.end)
    excess = np.sign(gradient) * np.maximum(np.abs(gradient) - l1, 0.0)
    return np.where(x != 0, gradient + l1 * np.sign(x), excess)


def measure(run: RowProblems) -> tuple[Array, Array, Array, Array]:
    """Radius of the error, ρ, M and own norms of a run's ends."""
    table, fit = run.table, run.table.fit
    problem, m = fit.problem, len(run.rows)
    nothing = tuple(np.full(m, np.inf) for _ in range(4))
    used = run.used
    Z = table.Z[:, used]
    L = _linalg.cholesky(np.asfortranarray(table.K[np.ix_(used, used)]))
    if L is None or problem.loss.jumps:
        return nothing  # type: ignore[return-value]
    half = _linalg.half_solve(L, np.array(Z, order="C"))
    forms = np.einsum("ij,ij->i", half, half)
    left = run.left[used]
    own = forms[run.rows]
    slack = 1.0 - fit.hessian[run.rows] * own
    solved = _linalg.factor_solve(L, left)
    along = np.einsum("qm,qm->m", Z[run.rows].T, solved)
    with np.errstate(divide="ignore", invalid="ignore"):
        squares = np.einsum("qm,qm->m", left, solved) + fit.hessian[run.rows] * along**2 / slack
        norm = np.sqrt(np.maximum(squares, 0.0))
        widest = np.sqrt(forms[problem.weights > 0].max() / slack)
        travelled = run.travelled(run.eta, np.arange(m))
        low = _lowest(run, curved=bool(np.any(table.l2)))
        R = float(problem.self_concordance() or 0.0)
        length = prove.radius(R, norm, travelled, widest, low)
        length = np.where(run.settled & (slack >= LEAST_SLACK), length, np.inf)
        return length, travelled, widest, np.sqrt(own / slack)


def _lowest(run: RowProblems, *, curved: bool) -> Array:
    """Least factor of the Hessians on that of the fit: (m,)."""
    problem = run.table.fit.problem
    low = np.minimum(run.keep / problem.usual_shrink, 1.0) if curved else 1.0
    if run.weights is None:
        return np.broadcast_to(low, run.keep.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        grown = np.where(run.weights > 0, run.weights / problem.weights[:, None], 1.0).min(axis=0)
    return np.minimum(low, grown)
