"""Steps of coupled outputs for some rows, and about those of all rows, by the average curvature of the rows.

What the latter are off by is told by the rows whose steps are taken.
"""

from __future__ import annotations

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index
from onefit.cost import UNNOTICED
from onefit.curvature import AverageCurvature, CoupledBlock, Curvature, has_average, in_single
from onefit.fit import Fit
from onefit.leave_out.rescaling import rescaling
from onefit.leave_out.step import Step
from onefit.solvers.truncated import Seconds, diagonal

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


def step_by_diagonal(fit: Fit) -> Array:
    """The same by the diagonal of K, which is at hand without a decomposition and tells less: (n, c)."""
    design, d = _linalg.as_columns(fit.problem.X), np.maximum(_linalg.row_diagonals(fit.hessian), 0.0)
    forms = np.stack([design.row_squares(one) for one in 1.0 / diagonal(fit, None).T], axis=-1)
    curved = np.where(fit.problem.intercept, d.sum(axis=0), 0.0)
    forms += np.divide(1.0, curved, out=np.zeros_like(curved), where=curved > 0)
    return np.asarray(fit.eta + forms / (1.0 + d * forms) * fit.gradient)  # K holds d z zᵀ at least


def step_of_rows(fit: Fit, curvature: Curvature, rows: Index) -> Array:
    """Predictors of some rows without themselves, one Newton step away, about: (r, c)."""
    assert isinstance(curvature, CoupledBlock)
    few, nothing, K = fit.of_rows(rows), np.zeros_like(fit.eta[rows]), curvature.roughly
    step = Step(K, K.forms_of(rows), few.gradient, nothing, rescaling(fit, K))
    return step.taken(few).eta
