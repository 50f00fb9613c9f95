"""Steps of coupled outputs for some rows, and about those of all rows, by the average curvature of the rows.

What the latter are off by is told by the rows whose steps are taken.
"""

from __future__ import annotations

import numpy as np

from onefit._typing import Array, Index
from onefit.curvature import AverageCurvature, CoupledBlock, Curvature, has_average
from onefit.fit import Fit
from onefit.leave_out.rescaling import rescaling
from onefit.leave_out.step import Step


def has_some_steps(fit: Fit, curvature: Curvature) -> bool:
    """Whether both kinds of steps are to be had."""
    return fit.problem.refits_keep_the_rest and has_average(fit) and isinstance(curvature, CoupledBlock)


def step_by_average(fit: Fit) -> Array:
    """Predictors of all rows without themselves, about: (n, c)."""
    return AverageCurvature.of(fit).step()


def step_of_rows(fit: Fit, curvature: Curvature, rows: Index) -> Array:
    """Predictors of some rows without themselves, one Newton step away: (r, c)."""
    assert isinstance(curvature, CoupledBlock)
    few, nothing = fit.of_rows(rows), np.zeros_like(fit.eta[rows])
    step = Step(curvature, curvature.forms_of(rows), few.gradient, nothing, rescaling(fit, curvature))
    return step.taken(few).eta
