"""Rows that are followed out of the fit, from one active pattern to the next.

Where loss and penalty are quadratic in pieces, the minimum on each pattern takes a small system in what has
changed.  Three models have such patterns: the lasso, what is a lasso in other coordinates (the augmented
problem of Wang et al. 2018, eq. 11), and losses with kinks and a ridge penalty.
"""

from __future__ import annotations

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index
from onefit.cost import Work, pivots_of_a_row
from onefit.fit import Fit
from onefit.leave_out import follow_kinks, follow_lasso
from onefit.leave_out.result import SolvedWithout
from onefit.penalties import SeparablePenalty
from onefit.problem import Problem
from onefit.solvers.lasso_coordinates import LassoCoordinates
from onefit.solvers.path import least_squares_path

PIVOTS = 10.0  # that a row on a kink takes
IN_A_PIVOT = 40.0  # calls, for all rows that are followed together
# Calls of a row of a lasso, and of each exchange, and products with the watched columns where the support is
# as large as the sample: with a high power of that share, patterns go round (``benchmarks/follow_cost.py``).
IN_A_ROW, IN_AN_EXCHANGE, GOING_ROUND = 20.0, 10.0, 400.0
ROUNDS = 2.0  # of watching more columns
JOINING = 2.0  # columns that a row of the lasso watches, relative to the support


def has_paths(fit: Fit) -> bool:
    """Whether rows can be followed out of this fit."""
    problem = fit.problem
    if problem.is_balanced or fit.coef.ndim == 2 or not problem.loss.is_quadratic:
        return False
    if problem.loss.is_kinked:
        return problem.penalty.is_ridge(fit.coef.shape) and problem.refits_keep_the_rest
    return fit.is_kinked and _lasso(problem) is not None


def paths_are_surer(fit: Fit) -> bool:
    """Whether paths are surer than iterations: where no ℓ2 part keeps columns from depending on others."""
    penalty = fit.problem.penalty
    dampened = isinstance(penalty, SeparablePenalty) and np.any(penalty.strengths(fit.coef.shape)[1])
    return has_paths(fit) and not dampened


def follow(fit: Fit, rows: Index) -> dict[int, SolvedWithout]:
    """Follow some rows; those that do not arrive are left out of the answer."""
    if rows.size == 0:
        return {}
    if fit.problem.loss.is_kinked:
        return _off_kinks(fit, rows)
    lasso = _lasso(fit.problem)
    if not isinstance(lasso, LassoCoordinates):
        return _along_lasso(fit, rows)
    found = _along_lasso(lasso.restate(fit), rows)
    return {i: SolvedWithout(one.eta, *lasso.parameters(one.coef, one.intercept)) for i, one in found.items()}


def cost(fit: Fit, rows: int) -> Work:
    """What following so many rows takes, about."""
    n = fit.problem.n
    if fit.problem.loss.is_kinked:
        return Work(n * (50.0 + np.count_nonzero(fit.pinned)), IN_A_PIVOT).times(rows * PIVOTS)
    share, watched = fit.tangent.size / n, min(JOINING * fit.tangent.size, fit.problem.X.shape[1])
    check = 2.0 * _linalg.as_columns(fit.problem.X).n_stored
    tableau = Work(ROUNDS * watched**2 * (n + 3.0 * watched), ROUNDS * PIVOTS * IN_A_PIVOT)
    exchanges = pivots_of_a_row(n, fit.tangent.size)
    each = Work(GOING_ROUND * watched**2 * share**12 + check, IN_A_ROW + IN_AN_EXCHANGE * exchanges)
    return tableau.plus(each.times(rows))


def _lasso(problem: Problem) -> LassoCoordinates | Problem | None:
    """The problem itself where its penalty is separable, or its lasso coordinates where it has some."""
    return problem if isinstance(problem.penalty, SeparablePenalty) else LassoCoordinates.of(problem)


def _along_lasso(fit: Fit, rows: Index) -> dict[int, SolvedWithout]:
    ends = follow_lasso.leave_out_by_exchange(fit, rows)
    if not ends.solved.any():  # copies of a column share its coefficient: let one of them have it
        ends = follow_lasso.leave_out_by_exchange(next(least_squares_path([fit.problem])).fit, rows)
    done = np.flatnonzero(ends.solved)
    coef = np.zeros((done.size, fit.coef.size))
    coef[:, ends.columns] = ends.coef[done]
    own = _linalg.as_columns(fit.problem.X).own_products(rows[done], coef) + ends.intercept[done]
    return _by_row(rows[done], own, coef, ends.intercept[done])


def _off_kinks(fit: Fit, rows: Index) -> dict[int, SolvedWithout]:
    ends = follow_kinks.leave_out_along_path(fit, rows)
    done = ends.solved
    return _by_row(rows[done], ends.eta[done], ends.coef[:, done].T, ends.intercept[done])


def _by_row(rows: Index, own: Array, coef: Array, level: Array) -> dict[int, SolvedWithout]:
    return {
        int(i): SolvedWithout(value, one, np.asarray(base))
        for i, value, one, base in zip(rows, own, coef, level, strict=True)
    }
