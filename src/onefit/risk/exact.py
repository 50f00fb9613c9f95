"""Every row's left-out value as its refit has it, at the cost of the rows that need more than a step.

Rows that carry a certificate are free.  The others are followed along the exact path of the augmented
problem, pivot by pivot (least squares with an ℓ1 part: Wang et al. 2018, eq. 11), or get steps with the
gradient of their own refit until they settle (curved losses), or are solved anew.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index
from onefit.penalties import SeparablePenalty
from onefit.problem import Fit, Problem
from onefit.risk import blocks
from onefit.risk.folds import Folds
from onefit.risk.one_fit import LeftOut, Refinement, follow, has_corner_paths
from onefit.risk.refit import Progress, Solved, refit_rows
from onefit.solvers.lasso_coordinates import LassoCoordinates
from onefit.solvers.left_out_path import leave_out_along_path
from onefit.solvers.path import least_squares_path


def exactly(left_out: LeftOut, progress: Progress | None = None) -> LeftOut:
    """Make the left-out value of every row equal to that of its refit.

    Parameters
    ----------
    left_out : LeftOut
        Of any precision; its certificates are used.
    progress : callable, optional
        Called with the number of rows solved anew and their total.
    """
    missing = np.flatnonzero(~left_out.certified)
    certified = len(left_out.eta) - missing.size - left_out.refitted.size
    if missing.size and has_corner_paths(left_out.fit):
        left_out = follow(left_out, missing)
        missing = np.setdiff1d(missing, left_out.refitted)
    rest, solved, stepped = missing, dict(left_out.solved), np.empty(0, dtype=np.intp)
    eta, slack = left_out.eta.copy(), left_out.slack.copy()
    problem = left_out.fit.problem
    pivoted: dict[int, Solved] = {}
    if rest.size and _has_path(left_out.fit):
        pivoted = _along_paths(left_out.fit, rest)
    elif rest.size and not problem.loss.quadratic and problem.penalty.polyhedral:
        stepped, values = _by_steps(left_out, rest)
        eta[stepped], slack[stepped] = values, 1.0
    rest = np.setdiff1d(rest, np.concatenate([np.array(list(pivoted), dtype=np.intp), stepped]))
    refitted = refit_rows(
        left_out.fit, rest, warm=not left_out.fit.has_free_directions, budget=np.inf, progress=progress
    )
    solved |= pivoted | refitted
    for i, one in solved.items():
        eta[i], slack[i] = one.eta, 1.0
    failed = rest.size - len(refitted)
    slack[np.setdiff1d(rest, list(refitted))] = 0.0
    counts = (certified, len(pivoted), stepped.size, len(refitted) + left_out.refitted.size, failed)
    return replace(
        left_out,
        eta=eta,
        slack=slack,
        solved=solved,
        stepped=stepped,
        skipped=failed,
        refinement=Refinement(*counts),
    )


def _has_path(fit: Fit) -> bool:
    """Whether the left-out fits can be followed along a piecewise-linear path, perhaps in lasso coordinates."""
    problem = fit.problem
    if not problem.loss.quadratic or problem.loss.has_corners or problem.balance is not None:
        return False
    return fit.is_kinked and fit.coef.ndim == 1 and _lasso(fit.problem) is not None


def _lasso(problem: Problem) -> LassoCoordinates | Problem | None:
    """The problem itself where its penalty is separable, or its lasso coordinates where it has some."""
    return problem if isinstance(problem.penalty, SeparablePenalty) else LassoCoordinates.of(problem)


def _along_paths(fit: Fit, rows: Index) -> dict[int, Solved]:
    coordinates = _lasso(fit.problem)
    if not isinstance(coordinates, LassoCoordinates):
        return _by_pivots(fit, rows)
    pivoted = _by_pivots(coordinates.restate(fit), rows)
    return {i: Solved(one.eta, *coordinates.parameters(one.coef, one.level)) for i, one in pivoted.items()}


def _by_pivots(fit: Fit, rows: Index) -> dict[int, Solved]:
    ends = leave_out_along_path(fit, rows)
    if not ends.solved.any():  # copies of a column share its coefficient: let one of them have it
        ends = leave_out_along_path(next(least_squares_path([fit.problem])).fit, rows)
    done = np.flatnonzero(ends.solved)
    coef = np.zeros((done.size, fit.coef.size))
    coef[:, ends.columns] = ends.coef[done]
    own = _linalg.own_products(fit.problem.X, rows[done], coef) + ends.level[done]
    return {
        int(rows[place]): Solved(value, one, np.asarray(ends.level[place]))
        for place, value, one in zip(done, own, coef, strict=True)
    }


def _by_steps(left_out: LeftOut, rows: Index) -> tuple[Index, Array]:
    """Rows whose steps end on the refit, and their values there."""
    single = tuple(rows[:, None])
    found = blocks.leave_out(left_out.fit, None, Folds(single, single, left_out.fit.problem.n))
    return rows[found.exact], found.eta[found.exact]
