"""How long the first step of each row had better be, and what rows are worth looking at for that.

Let a Newton step s = A⁻¹ g_i z_i without row i lead through θ̂ + t s, and let δ_j = z_jᵀ s be what it does to
the predictor of row j.  The slope of the objective without the row is −g_i δ_i where t = 0, and at t = 1

    ρ = Σ_{j ≠ i} (ℓ′_j(η_j + δ_j) − ℓ′_j(η_j) − d_j δ_j) δ_j.

What a step leaves is of second order in its length, so that the slope vanishes at about the t with
t + (ρ / g_i δ_i) t² = 1.  A step of that length is not always nearer to the refit than a whole one, but what
both are off by goes with the change (``benchmarks/step_lengths.py``): a sample that is drawn by it, and
corrects losses after such steps, needs a fraction of the rows.
"""

from __future__ import annotations

import numpy as np

from onefit._typing import Array
from onefit.cost import Work
from onefit.curvature import Curvature, Dual, InSingle, ScalarCurvature
from onefit.fit import Fit
from onefit.leave_out.prove import concordance
from onefit.leave_out.step import FULL_LEVERAGE, Step

LEAST = -0.25  # ρ beside g δ below which no t has a slope of zero: there a step is twice as long
PASSES = 4.0  # over all pairs of rows, each as long as so many functions


def cost_of_lengths(fit: Fit, K: Curvature) -> Work:
    """What the lengths of all steps take, about; without end where they are not told so."""
    n, k = fit.problem.n, min(max(1, fit.tangent.size), fit.problem.n)
    is_scalar = isinstance(K, ScalarCurvature) and not K.is_estimated
    if not is_scalar or not concordance(fit) or not fit.problem.refits_keep_the_rest:
        return Work(np.inf)
    inverted = {Dual: 3.0, InSingle: 6.0}.get(type(K), 1.0)  # an inverse in place of so many products
    return Work(float(n) * n * k / inverted, 1.0, PASSES * n * n)


def step_lengths(fit: Fit, step: Step) -> Array:
    """Shares of their steps at which the slopes along them vanish, about: (n,), 1 where nothing tells it."""
    problem, K, d = fit.problem, step.curvature, fit.hessian
    assert isinstance(K, ScalarCurvature)
    rough = K.rough if isinstance(K, InSingle) else K
    slope = step.gradient / np.maximum(1.0 - d * step.forms, FULL_LEVERAGE)
    fallen, left, rows = step.gradient * slope * step.forms, np.empty(problem.n), np.arange(problem.n)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for columns, moved in rough.hat_blocks():
            moved *= slope[columns]
            moved[rows[columns], rows[: moved.shape[1]]] = 0.0
            at, bends = (part.astype(moved.dtype, copy=False)[:, None] for part in (fit.eta, d))
            bent = problem.weights[:, None] * problem.loss_at("gradient", at + moved) - fit.gradient[:, None]
            bent -= bends * moved
            left[columns] = np.einsum("ij,ij->j", bent, moved)
        shares = 2.0 / (1.0 + np.sqrt(1.0 + 4.0 * np.maximum(left / fallen, LEAST)))
    return np.where(np.isfinite(shares), shares, 1.0)
