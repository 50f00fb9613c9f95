"""Every row's left-out value as its refit has it, at the cost of the rows that need more than a step.

Rows that carry a certificate are free.  The others are followed along an exact path, pivot by pivot, where
there is one, or get steps with the gradient of their own refit until they settle (curved losses), or are
solved anew.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onefit._typing import Index
from onefit.risk import blocks
from onefit.risk.folds import Folds
from onefit.risk.one_fit import LeftOut, Refinement
from onefit.risk.paths import follow, has_paths
from onefit.risk.refit import Progress, refit_rows


def exactly(left_out: LeftOut, progress: Progress | None = None) -> LeftOut:
    """Make the left-out value of every row equal to that of its refit.

    Parameters
    ----------
    left_out : LeftOut
        Of any precision; its certificates are used.
    progress : callable, optional
        Called with the number of rows solved anew and their total.
    """
    fit = left_out.fit
    rest = np.flatnonzero(~left_out.certified)
    certified = len(left_out.eta) - rest.size - left_out.refitted.size
    if has_paths(fit):
        left_out = left_out.with_solved(follow(fit, rest), pivoted=True)
        rest = np.setdiff1d(rest, left_out.refitted)
    elif rest.size and not fit.problem.loss.quadratic and fit.problem.penalty.polyhedral:
        left_out = _by_steps(left_out, rest)
        rest = np.setdiff1d(rest, left_out.stepped)
    warm = not fit.has_free_directions
    left_out = left_out.with_solved(refit_rows(fit, rest, warm=warm, budget=np.inf, progress=progress))
    missing = np.setdiff1d(rest, left_out.refitted)
    pivoted, stepped = left_out.pivoted.size, left_out.stepped.size
    counts = (certified, pivoted, stepped, len(left_out.solved) - pivoted, missing.size)
    return replace(left_out.without_slack(missing), skipped=missing.size, refinement=Refinement(*counts))


def _by_steps(left_out: LeftOut, rows: Index) -> LeftOut:
    """Repeat the steps of some rows; those that end on the refit are ``stepped``."""
    single = tuple(rows[:, None])
    found = blocks.leave_out(left_out.fit, None, Folds(single, single, left_out.fit.problem.n))
    stepped = rows[found.exact]
    eta, slack = left_out.eta.copy(), left_out.slack.copy()
    eta[stepped], slack[stepped] = found.eta[found.exact], 1.0
    return replace(left_out, eta=eta, slack=slack, stepped=stepped)
