"""Left-out values by solving the problem without the row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onefit.problem import Fit
from onefit.risk.one_fit import FULL_LEVERAGE, LeftOut
from onefit.solvers import newton

REFIT_BUDGET = 1e11  # multiplications that refits of rows at full leverage may cost


def refit_at_full_leverage(left_out: LeftOut) -> LeftOut:
    """Refit without each row that determines its own fit, for least squares, while that is cheap.

    Such a row is the only one that fixes some direction of the coefficients.  Without it that direction
    is free, and the reference is the solution of minimum norm.
    """
    fit = left_out.fit
    rows = np.flatnonzero((left_out.slack < FULL_LEVERAGE) & (fit.problem.weights > 0))
    k = int(np.count_nonzero(fit.tangent.support))
    cost = rows.size * float(fit.problem.n) * k * min(k, fit.problem.n)
    if rows.size == 0 or not fit.problem.loss.quadratic or cost > REFIT_BUDGET:
        return left_out
    eta, slack = left_out.eta.copy(), left_out.slack.copy()
    for i in rows:
        eta[i] = without(fit, i).eta[i]
        slack[i] = 1.0
    return replace(left_out, eta=eta, slack=slack)


def without(fit: Fit, i: int) -> Fit:
    """Refit without row i, from the constant model."""
    problem = fit.problem
    weights = problem.weights.copy()
    weights[i] = 0.0
    scale = weights.sum() / problem.weights.sum() if problem.mean_scaled else 1.0
    left = replace(problem, weights=weights, penalty=problem.penalty.scaled(scale))
    return newton.solve(left.at_start()).fit
