"""Steps of coupled outputs for some rows, and about those of all rows, by the average curvature of the rows.

With D̄ = Σ D_i and the covariance S of the rows, D̄ ⊗ S + C is nearly K where curvatures and rows have little
to do with each other (Martens and Grosse 2015), and two small eigendecompositions invert it.  What steps by
it are off by is told by the rows whose steps are taken.
"""

from __future__ import annotations

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index
from onefit.curvature import CoupledBlock, Curvature
from onefit.fit import Fit
from onefit.leave_out.rescaling import rescaling
from onefit.leave_out.step import Step

FLAT = 1e-9  # curvature along outputs, relative to the largest, that is none


def has_average(fit: Fit, curvature: Curvature) -> bool:
    """Whether both kinds of steps are to be had."""
    keeps = fit.problem.refits_keep_the_rest and fit.problem.loss.is_smooth and not fit.is_kinked
    return keeps and isinstance(curvature, CoupledBlock) and _linalg.has_columns(fit.problem.X)


def step_by_average(fit: Fit) -> Array:
    """Predictors of all rows without themselves, about: η + H̃ g with H̃ by the average curvature: (n, c)."""
    n, X = fit.problem.n, _linalg.as_columns(fit.problem.X)
    curved, U = np.linalg.eigh(fit.hessian.sum(axis=0))
    means = _linalg.column_means(fit.problem.X, np.ones(n))
    covariance = _linalg.mirrored(X.weighted_gram(means, np.full(n, 1.0 / n)))
    spread, V = np.linalg.eigh(covariance)
    along = (_linalg.times(fit.problem.X, V) - means @ V) ** 2
    curved = np.where(curved > FLAT * curved[-1], curved, 0.0)
    ridge = float(fit.tangent.hessian.mean())
    inverse = 1.0 / np.maximum(np.multiply.outer(np.maximum(spread, 0.0), curved) + ridge, FLAT * curved[-1])
    levels = np.divide(fit.problem.intercept.any(), curved, out=np.zeros_like(curved), where=curved > 0)
    return fit.eta + ((along @ inverse + levels) * (fit.gradient @ U)) @ U.T


def step_of_rows(fit: Fit, curvature: Curvature, rows: Index) -> Array:
    """Predictors of some rows without themselves, one Newton step away: (r, c)."""
    assert isinstance(curvature, CoupledBlock)
    few, nothing = fit.of_rows(rows), np.zeros_like(fit.eta[rows])
    step = Step(curvature, curvature.forms_of(rows), few.gradient, nothing, rescaling(fit, curvature))
    return step.taken(few).eta
