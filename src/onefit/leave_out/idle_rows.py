"""Rows without weight, which whoever tunes leaves aside: their refits are the fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index
from onefit.fit import Fit
from onefit.leave_out.refit import without_nothing
from onefit.leave_out.result import LeftOut
from onefit.problem import Problem


def among_idle_rows(found: LeftOut, problem: Problem, rows: Index) -> LeftOut:
    """What is known of all rows, from what is known of those with weight, each of which leaves alone.

    Parameters
    ----------
    found : LeftOut
        Of the rows with weight.
    problem : Problem
        That of all rows.
    rows : (m,) int array
        Numbers of those with weight, in ascending order.
    """
    n, correction = problem.n, found.correction
    idle = np.setdiff1d(np.arange(n), rows)
    fit = _of_all_rows(found.fit, problem, rows, idle)
    if correction is not None and correction.drawn is not None:
        drawn = correction.drawn
        before = _put(drawn.before, rows, fit.eta)
        correction = correction._replace(drawn=drawn._replace(sets=rows[drawn.sets], before=before))
    names = ("pivoted", "stepped", "anew", "failed", "several")
    whole = replace(
        found,
        fit=fit,
        eta=_put(found.eta, rows, fit.eta),
        bounds=_put(found.bounds, rows, np.zeros(n)),
        leverages=_put(found.leverages, rows, np.zeros(n)),
        slack=_put(found.slack, rows, np.ones(n)),
        solved={int(rows[i]): one for i, one in found.solved.items()},
        correction=correction,
        doubt=None if found.doubt is None else _put(found.doubt, rows, np.zeros(n)),
        **{name: rows[getattr(found, name)] for name in names},
    )
    whole, whole.bounds[idle] = without_nothing(whole, idle)
    return whole


def _of_all_rows(fit: Fit, problem: Problem, rows: Index, idle: Index) -> Fit:
    """The fit among rows that have neither gradient nor kinks."""
    n, shape = problem.n, fit.eta.shape[1:]
    eta = np.empty((n, *shape))
    eta[idle] = _linalg.times(_linalg.some_rows(problem.X, idle), fit.coef) + fit.intercept
    pinned = np.zeros((n, *fit.pinned.shape[1:]), dtype=bool)
    pinned[rows] = fit.pinned
    gradient = _put(fit.gradient, rows, np.zeros((n, *shape)))
    return Fit(problem, fit.coef, fit.intercept).known(
        eta=_put(fit.eta, rows, eta), gradient=gradient, pinned=pinned
    )


def _put(values: Array, rows: Index, others: Array) -> Array:
    """Values of these rows among those of others."""
    among = others.copy()
    among[rows] = values
    return among
