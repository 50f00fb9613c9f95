"""Newton's method with rows held on the kinks of their loss: the last digits of a solution.

A quadratic program in the dual divides by the strengths of a ridge penalty, and so does its rounding.  On the
pattern that it finds the problem is smooth: with V the rows on kinks, a step is

    u = K⁻¹ r on {Z_V u = 0},        Δμ = −(Z_V K_ρ⁻¹ Z_Vᵀ)⁻¹ Z_V K_ρ⁻¹ r,

for the gradient r, duals μ included, along the free directions (``curvature.Pinned``).
"""

from __future__ import annotations

import numpy as np

from onefit.curvature import Direction, Pinned, factor
from onefit.fit import Fit
from onefit.losses import Mixture
from onefit.losses.composed import straight_part
from onefit.solvers.stationary import is_stationary

STEPS = 6
SETTLED = 1e-12  # change of η in a step, relative to 1 + |η|, at which to stop
TIE = 1e-9  # of a dual past the end of its interval, relative to the largest, that is rounding


def solve(fit: Fit) -> Fit | None:
    """Minimise on the pattern of a fit.

    Parameters
    ----------
    fit : Fit
        Near the optimum, with ``eta``, ``gradient`` and ``pinned`` known; its loss is a ``Mixture``.

    Returns
    -------
    Fit or None
        None where the steps do not settle, or the pattern is none of the optimum.
    """
    for _ in range(STEPS):
        fit, change = _stepped(fit)
        if change <= SETTLED * (1.0 + float(np.abs(fit.eta).max(initial=0.0))):
            return fit if _duals_hold(fit) and (not fit.is_kinked or is_stationary(fit)) else None
    return None


def _stepped(fit: Fit) -> tuple[Fit, float]:
    """Take a step; with the largest change of a linear predictor."""
    problem, curvature = fit.problem, factor(fit)
    residual = Direction(
        fit.tangent.part_along(fit.loss_gradient + fit.tangent.gradient),
        fit.intercept_gradient,
    )
    step = curvature.solve(residual)
    moved = fit.moved(fit.coef - step.coef, fit.intercept - step.intercept)
    eta = np.where(fit.pinned, fit.eta, moved.eta)
    gradient = problem.per_row(problem.loss.gradient(problem.y, eta))
    if isinstance(curvature, Pinned):
        gradient[fit.pinned] = fit.gradient[fit.pinned] - curvature.hold(residual)
    change = float(np.abs(curvature.predict(step)).max(initial=0.0))
    return moved.known(eta=eta, gradient=gradient, pinned=fit.pinned), change


def _duals_hold(fit: Fit) -> bool:
    """Whether the dual of each row on a kink is between the slopes beside it."""
    problem, held, straight = fit.problem, np.flatnonzero(fit.pinned), straight_part(fit.problem.loss)
    if straight is None or not held.size:
        return True
    assert isinstance(problem.loss, Mixture)
    y, eta, weights = problem.y[held], fit.eta[held], problem.weights[held]
    own = fit.gradient[held] - weights * problem.loss.curved_gradient(y, eta)
    slopes = straight.slopes(y) * weights[:, None]
    kink = np.abs(eta[:, None] - straight.kinks(y)).argmin(axis=1)
    every, tie = np.arange(len(held)), TIE * float(np.abs(slopes).max())
    return bool(np.all((own >= slopes[every, kink] - tie) & (own <= slopes[every, kink + 1] + tie)))
