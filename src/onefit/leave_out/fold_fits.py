"""Fits without sets of many rows, near their optima: what tells strengths apart where the optima take longer.

Only the one that is chosen is solved to its optima.
"""

from __future__ import annotations

import numpy as np

from onefit import cost
from onefit._typing import Array
from onefit.cost import Work
from onefit.curvature import Curvature
from onefit.fit import Fit
from onefit.leave_out.factor_free import FitsWithout, go_together, goes_by_column, rough_cost
from onefit.leave_out.sets import Folds
from onefit.solvers import coordinate_descent

DEARER = 1.5  # times that optima must take longer
CLOSELY = 0.005  # of the way of predictors, that may be left: it is all that is known of a strength
IN_A_STEP = 6e2  # calls of one by coordinate descent
STEPS, MOST_STEPS = 3.0, 15.0  # to an optimum from a fit with more rows: few if its pattern is small


def pay_roughly(fit: Fit, sets: Folds) -> bool:
    """Whether fits that are near their optima take far less."""
    if not (go_together(fit) or goes_by_column(fit)):
        return False
    near = rough_cost(fit)
    if goes_by_column(fit):  # costed at more where what stands against it tells more, which is not so here
        sweeps = coordinate_descent.work(fit, fit.tangent.size)
        near = sweeps._replace(calls=IN_A_STEP * coordinate_descent.STEPS).seconds
    return _seconds(fit, sets) > max(cost.UNNOTICED, DEARER * len(sets) * near)


def have_to_be_solved(fit: Fit, sets: Folds) -> bool:
    """Whether all sets ask for a solver, for longer than nobody minds: patterns change as many rows leave."""
    return fit.is_kinked and not goes_by_column(fit) and _seconds(fit, sets) > cost.UNNOTICED


def sets_left_out_roughly(fit: Fit, curvature: Curvature | None, sets: Folds, near: FitsWithout) -> Array:
    """Linear predictors of the rows that sets judge, from fits near their optima: of (t,) rows."""
    found, eta = np.empty((len(sets.rows), *fit.problem.outputs)), np.empty_like(fit.eta)
    left_out = near.left_out_roughly(fit, curvature, list(sets.removed), CLOSELY)
    for k, values in enumerate(left_out):
        eta[sets.removed[k]] = values
        found[sets.place(k)] = eta[sets.tested[k]]
    return found


def _seconds(fit: Fit, sets: Folds) -> float:
    """Seconds that the optima of all sets take, about."""
    (n, p), k, coupled = fit.problem.X.shape, max(1, fit.tangent.size), fit.problem.n_coupled
    anew, leaving = cost.newton_step(n, p, k, coupled), int(sets.sizes.max()) * coupled
    if not fit.is_kinked:
        return len(sets) * (cost.forms(leaving, k) if leaving <= k else anew).seconds
    steps = min(MOST_STEPS, STEPS + 0.5 * k)
    return len(sets) * anew.plus(Work(calls=cost.IN_A_SOLVER)).times(steps).seconds
