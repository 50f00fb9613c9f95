"""Steps of coupled outputs for some rows, and about those of all rows, by the average curvature of the rows.

What the latter are off by is told by the rows whose steps are taken.
"""

from __future__ import annotations

import numpy as np

from onefit._typing import Array, Index
from onefit.cost import UNNOTICED
from onefit.curvature import AverageCurvature, CoupledBlock, Curvature, has_average, in_single
from onefit.fit import Fit
from onefit.leave_out.rescaling import rescaling
from onefit.leave_out.step import Step
from onefit.solvers.truncated import Seconds

STRENGTHS = 10  # of a path that are judged, about


def among_others(fit: Fit, curvature: Curvature) -> Curvature:
    """What tells the forms of a strength that is judged beside others.

    Of coupled outputs a factor in single precision, which serves fits and tenths, too, where those of all
    strengths take some time; the choice is judged by one in double precision.
    """
    is_soon_made = STRENGTHS * Seconds.of(fit).factored <= UNNOTICED
    return curvature if is_soon_made or not isinstance(curvature, CoupledBlock) else in_single(curvature)


def has_some_steps(fit: Fit, curvature: Curvature) -> bool:
    """Whether both kinds of steps are to be had."""
    return fit.problem.refits_keep_the_rest and has_average(fit) and isinstance(curvature, CoupledBlock)


def step_by_average(fit: Fit) -> Array:
    """Predictors of all rows without themselves, about: (n, c)."""
    return AverageCurvature.of(fit).step()


def step_of_rows(fit: Fit, curvature: Curvature, rows: Index) -> Array:
    """Predictors of some rows without themselves, one Newton step away, about: (r, c)."""
    assert isinstance(curvature, CoupledBlock)
    few, nothing, K = fit.of_rows(rows), np.zeros_like(fit.eta[rows]), curvature.roughly
    step = Step(K, K.forms_of(rows), few.gradient, nothing, rescaling(fit, K))
    return step.taken(few).eta
