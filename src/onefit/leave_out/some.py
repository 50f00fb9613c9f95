"""Some rows left out, each as well as a comparison of risks needs: samples of the rows of a strength."""

from __future__ import annotations

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.cost import Work
from onefit.fit import Fit
from onefit.leave_out import proximal
from onefit.leave_out.follow import cost as following
from onefit.leave_out.follow import follow, has_paths, paths_are_surer
from onefit.leave_out.refit import refit_cost, refit_sets

NEARLY = 1e7  # times full precision: iterations end at a thousandth of the largest linear predictor
ROUNDS = 2.0  # times what a row takes that settles at once


def can_leave_some_out(fit: Fit) -> bool:
    """Whether rows change the pattern as they leave, so that no formula serves all of them."""
    return fit.is_kinked


def cost_of_some(fit: Fit, count: int) -> float:
    """Seconds that so many rows take, about."""
    if not proximal.applies(fit):
        return refit_cost(fit).times(count).seconds
    if paths_are_surer(fit):
        return following(fit, count).seconds
    n, k = fit.problem.n, 1.3 * fit.tangent.size + 1
    each = Work(8.0 * (2.0 * n * k + 3.0 * k * k) + 2.0 * _linalg.n_stored(fit.problem.X), 2.0, 16.0 * n)
    return count * ROUNDS * each.seconds


def rows_within(fit: Fit, seconds: float) -> int:
    """How many rows take so many seconds, about."""
    one, two = cost_of_some(fit, 1), cost_of_some(fit, 2)
    return max(0, 1 + int((seconds - one) / (two - one)))


def leave_some_out(fit: Fit, rows: Index) -> Array:
    """Linear predictors of some rows without themselves, (m,) or (m, c); NaN where there is no refit.

    Rows of a lasso are followed along the exact path; others are iterated, which with an ℓ2 part settles
    on the exact value for least squares; what is left is solved anew.
    """
    eta = np.full((len(rows), *fit.eta.shape[1:]), np.nan)
    left = np.ones(len(rows), dtype=bool)
    if proximal.applies(fit) and not paths_are_surer(fit):
        _iterate(fit, rows, eta, left)
    if has_paths(fit) and left.any():
        for i, one in follow(fit, rows[left]).items():
            place = np.flatnonzero(rows == i)[0]
            eta[place], left[place] = one.eta, False
    which = {int(i): np.array([i]) for i in rows[left]}
    anew = refit_sets(fit, which, which)
    for place in np.flatnonzero(left):
        if int(rows[place]) in anew:
            eta[place] = anew[int(rows[place])].eta[0]
    return eta


def _iterate(fit: Fit, rows: Index, eta: Array, left: Mask) -> None:
    ends, _ = proximal.iterate(fit, rows, NEARLY, np.inf)
    curved = not fit.problem.loss.is_quadratic  # what has not settled there is near: it swings about the end
    near = np.isfinite(ends.eta) & (ends.settled | curved)
    eta[near], left[near] = ends.eta[near], False
