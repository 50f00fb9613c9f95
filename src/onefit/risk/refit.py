"""Left-out values by solving the problem without the row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onefit._typing import Array, Index
from onefit.exceptions import SolverError
from onefit.problem import Fit
from onefit.solvers.solve import solve

REFIT_BUDGET = 2e9  # multiplications that refits of a few difficult rows may always cost


def without(fit: Fit, i: int, *, warm: bool = True) -> Fit:
    """Refit without row i, from the fit or from the constant model.

    The latter is for least squares that leave a direction free: from zero, the solution is the one of
    minimum norm.
    """
    left = fit.problem.without(i)
    return solve(replace(fit, problem=left) if warm else left.at_start()).fit


def refit_rows(fit: Fit, rows: Index, *, warm: bool = True) -> tuple[Array, Index]:
    """Left-out linear predictors of as many of the rows as a few factorisations allow.

    Returns
    -------
    eta : (r,) or (r, c) array
    done : (r,) int array
        The rows they belong to: the first ones of ``rows`` whose refit has a minimum.
    """
    k = max(1, int(np.count_nonzero(fit.tangent.support)))
    steps = 1 if fit.problem.loss.quadratic and not fit.is_kinked else 10  # factorisations a refit takes
    n, p = fit.problem.X.shape
    cost = float(n) * (k * min(k, n) + p) * steps
    eta, done = [], []
    for i in rows[: int(REFIT_BUDGET / cost)]:
        try:
            eta.append(without(fit, i, warm=warm).eta[i])
        except SolverError:  # without the row the problem has no minimum: it stays flagged
            continue
        done.append(i)
    shape = (len(done), *fit.eta.shape[1:])
    return np.array(eta).reshape(shape), np.array(done, dtype=np.intp)
