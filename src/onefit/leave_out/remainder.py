"""How far a fit is from its own optimum, which all values that start from it inherit.

A solver leaves a gradient r, and rounding another: that of each row by δ_j, some units of what it is the sum
of, g_j and d_j times its predictor.  In K⁻¹ both together are no longer than

    ν = ‖r‖ + Σ_j δ_j ‖z_j‖,

and with A = K − d_i z_i z_iᵀ, z_iᵀ A⁻¹ v = z_iᵀ K⁻¹ v / (1 − d_i h_i): the predictor of row i without itself
is off by ‖z_i‖ ν / (1 − d_i h_i) at most, besides what is left out of it.
"""

from __future__ import annotations

import numpy as np

from onefit import _linalg
from onefit._typing import Array
from onefit.curvature import Curvature, Direction
from onefit.fit import Fit
from onefit.leave_out.prove import widest_form
from onefit.leave_out.result import LeftOut
from onefit.leave_out.step import Step
from onefit.numerics import LEAST_SLACK, ROUNDED, length_of, rounding_of_slack
from onefit.pieces import Pieces


def off_besides_bounds(found: LeftOut, K: Curvature | None, step: Step | None) -> Array:
    """How far values one step from a fit are off whatever bounds the step: (t,).

    Parameters
    ----------
    found : LeftOut
    K : Curvature or None
        By which the step went, where there is one: its condition leaves a share of the step open.
    step : Step or None
        That of single rows, if its forms are at hand and no estimates.
    """
    off = np.zeros(len(found.bounds))
    if K is not None:
        change = np.abs(found.eta - found.fit.eta[found.rows])
        moved = change.reshape(len(change), -1).max(axis=1)
        off += rounding_of_slack(K.condition) * moved / np.maximum(found.slack, LEAST_SLACK)[found.fold]
    if step is not None:
        with_fit = _off_with_the_fit(found.fit, step, found.slack)
        off += np.where(with_fit > ROUNDED * found.size, with_fit, 0.0)
    return off


def _off_with_the_fit(fit: Fit, step: Step, slack: Array) -> Array:
    """How far left-out predictors are off because the fit is: (n,)."""
    left = _left_by_solver(fit, step.curvature) + _left_by_rounding(fit, step.forms)
    return length_of(widest_form(step.forms)) * left / np.maximum(slack, LEAST_SLACK)


def _left_by_solver(fit: Fit, K: Curvature) -> float:
    """‖r‖ in K⁻¹."""
    gradient = Direction(fit.free_gradient, fit.intercept_gradient)
    return float(length_of(K.roughly.solve(gradient).inner(fit.problem, gradient)))


def _left_by_rounding(fit: Fit, forms: Array) -> float:
    """Σ_j δ_j ‖z_j‖ in K⁻¹, over the rows that count."""
    unit = float(fit.problem.loss.pieces is Pieces.SMOOTH)  # what is an exponential rounds beside one, too
    predictor = unit + np.abs(fit.eta) + np.abs(fit.intercept)
    terms = np.abs(fit.gradient) + _linalg.row_times(np.abs(fit.hessian), predictor)
    own = np.einsum("naa->na", forms) if forms.ndim == 3 else forms.reshape(len(forms), -1)
    sizes = length_of(own) * terms.reshape(len(terms), -1)
    return rounding_of_slack(1.0) * float(np.sum(sizes, where=fit.problem.weights[:, None] > 0))
