"""Left-out values by solving the problem without the row."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from joblib import Parallel, delayed

from onefit._typing import Array, Index
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.solvers.solve import solve

Progress: TypeAlias = Callable[[int, int], None]  # how many are done, of how many

REFIT_BUDGET = 2e9  # multiplications that refits of a few difficult rows may always cost
AN_EXCHANGE = 2e7  # multiplications that a refit takes the time of where rows change places one by one


class Solved(NamedTuple):
    """What solves the problem without a row."""

    eta: Array  # the left-out value of the row: () or (c,)
    coef: Array  # (p,) or (p, c)
    intercept: Array  # () or (c,)


def without(fit: Fit, rows: int | Index, *, warm: bool = True) -> Fit:
    """Refit without a row, or a set of them, from the fit or from the constant model.

    The latter is for least squares that leave a direction free: from zero, the solution is the one of
    minimum norm.
    """
    left = fit.problem.without(rows)
    return solve(replace(fit, problem=left) if warm else Fit.at_start(left)).fit


def refit_rows(
    fit: Fit,
    rows: Index,
    *,
    warm: bool = True,
    budget: float = REFIT_BUDGET,
    progress: Progress | None = None,
) -> dict[int, Solved]:
    """Refits without each of as many of the rows as the budget allows, in the order that they are given.

    A row without which the problem has no minimum is left out of the answer.  Refits run in parallel where
    ``joblib.parallel_config`` asks for it.
    """
    k = max(1, fit.tangent.size)
    steps = 1 if fit.problem.loss.quadratic and not fit.is_kinked else 10  # factorisations a refit takes
    n, p = fit.problem.X.shape
    cost = max(float(n) * (k * min(k, n) + p) * steps, AN_EXCHANGE * fit.problem.loss.has_corners)
    chosen = rows[: int(min(budget / cost, len(rows)))]
    solved = {}
    tasks = (delayed(_solve)(fit, int(i), warm) for i in chosen)
    with closing(Parallel(return_as="generator")(tasks)) as refits:
        for done, (i, one) in enumerate(zip(chosen, refits, strict=True), start=1):
            if one is not None:
                solved[int(i)] = one
            if progress is not None:
                progress(done, len(chosen))
    return solved


def _solve(fit: Fit, i: int, warm: bool) -> Solved | None:
    try:
        refit = without(fit, i, warm=warm)
    except SolverError:
        return None
    return Solved(refit.eta[i], refit.coef, refit.intercept)
