"""Between what left-out predictors lie, from the norms of the rows alone: no factor, no leverages.

Let θ(t) go from the fit to the solution without row i as the gradient g_i z_i that the row has is taken off
in proportion to t.  With A the Hessian at the fit without the row, that at θ(t) is at least e^{−ρ} A, where
ρ = R max_j |z_jᵀ(θ(t) − θ)| grows by at most e^ρ q with q = R |g_i| ‖z_i‖ max_j ‖z_j‖, norms in A⁻¹.  So
e^ρ ≤ 1 / (1 − q t), and the predictor of the row goes along its own gradient,

    η̃_i − η_i = s g_i        0 ≤ s ≤ h_i / (1 − d_i h_i) · (−log(1 − q) / q)        if q < 1.

Here h_i may be what the penalty alone allows: beside a strong penalty that is next to nothing.
"""

from __future__ import annotations

import numpy as np

from onefit import _linalg
from onefit._typing import Array
from onefit.cost import Work
from onefit.curvature import Products
from onefit.fit import Fit
from onefit.leave_out.prove import concordance, largest_form
from onefit.leave_out.result import LeftOut
from onefit.numerics import LEAST_SLACK, TINY
from onefit.penalties import Coordinates


def has_bracket(fit: Fit) -> bool:
    """Whether single rows leave nothing but themselves, and losses and penalty curve as this needs."""
    problem, curved = fit.problem, fit.tangent.hessian
    if not problem.refits_keep_the_rest or not problem.has_one_output:
        return False
    if concordance(fit) is None or not _linalg.has_columns(problem.X):
        return False
    is_ridge = isinstance(fit.tangent, Coordinates) and fit.tangent.size > 0
    return is_ridge and bool(curved[fit.tangent.support].min() > 0 and fit.hessian.max() > 0)


def bracket_cost(fit: Fit) -> Work:
    """What the bracket of all rows takes, about."""
    return Work(4.0 * _linalg.as_columns(fit.problem.X).n_stored, 100.0, 5.0 * fit.problem.n)


def left_out_between(fit: Fit) -> LeftOut:
    """The middle of where each row's predictor without it may be, and how far it may be from there.

    To be asked for only where it ``has_bracket``; infinitely far where the penalty alone bounds nothing.
    """
    problem, size, R = fit.problem, np.abs(fit.gradient), concordance(fit)
    assert R is not None  # or there is no bracket
    forms = Products(fit, fit.hessian, np.array(1.0)).forms_at_most()
    slack = 1.0 - fit.hessian * forms
    kept = np.where(slack >= LEAST_SLACK, slack, np.nan)
    own, widest = forms / kept, np.sqrt(largest_form(fit, forms) / kept)
    far = np.where(problem.weights > 0, size * own * _grown(R * size * np.sqrt(own) * widest), 0.0)
    is_known = np.isfinite(far)
    half = 0.5 * np.where(is_known, far, 0.0)
    eta, bounds = fit.eta + np.sign(fit.gradient) * half, np.where(is_known, half, np.inf)
    return LeftOut(fit, eta, bounds, np.minimum(fit.hessian * forms, 1.0), np.maximum(slack, 0.0))


def _grown(q: Array) -> Array:
    """−log(1 − q) / q, not a number where q is not below 1."""
    known = np.where(q < 1.0, np.maximum(q, TINY), np.nan)
    return -np.log1p(-known) / known
