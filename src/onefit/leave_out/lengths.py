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

from onefit._typing import Array, Index
from onefit.cost import Work
from onefit.curvature import Curvature, Dual, InSingle, ScalarCurvature
from onefit.fit import Fit
from onefit.leave_out.prove import concordance
from onefit.leave_out.step import FULL_LEVERAGE, Step
from onefit.numerics import TINY

LEAST = -0.25  # ρ beside g δ from which down no t has a slope of zero: there a step is ``LONGEST``
LONGEST = 2.0  # share of a step whose slope vanishes just so
FARTHEST = 4.0  # times a step that a row is thought to go where nothing tells how far
PASSES = 4.0  # over all pairs of rows, each as long as so many functions


def cost_of_lengths(fit: Fit, K: Curvature, count: int) -> Work:
    """What the lengths of so many steps take, about; without end where they are not told so."""
    n, k = fit.problem.n, min(max(1, fit.tangent.size), fit.problem.n)
    is_scalar = isinstance(K, ScalarCurvature) and not K.is_estimated
    if not is_scalar or not concordance(fit) or not fit.problem.refits_keep_the_rest:
        return Work(np.inf)
    inverted = {Dual: 3.0, InSingle: 6.0}.get(type(K), 1.0)  # an inverse in place of so many products
    return Work(float(n) * k * min(count, n / inverted), 1.0, PASSES * n * count)


def step_lengths(fit: Fit, step: Step, of: Index) -> Array:
    """Shares of the steps of some rows at which the slopes along them vanish, about.

    (m,), 1 where nothing tells it, and ``LONGEST`` where a slope vanishes nowhere.
    """
    problem, K, d = fit.problem, step.curvature, fit.hessian
    assert isinstance(K, ScalarCurvature)
    rough = K.rough if isinstance(K, InSingle) else K
    slope = (step.gradient / np.maximum(1.0 - d * step.forms, FULL_LEVERAGE))[of]
    fallen, left, many = (step.gradient * step.forms)[of] * slope, np.empty(len(of)), np.arange(len(of))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for columns, moved in rough.hat_blocks(of):
            moved *= slope[columns]
            moved[of[columns], many[: moved.shape[1]]] = 0.0
            at, bends = (part.astype(moved.dtype, copy=False)[:, None] for part in (fit.eta, d))
            bent = problem.weights[:, None] * problem.loss_at("gradient", at + moved) - fit.gradient[:, None]
            bent -= bends * moved
            left[columns] = np.einsum("ij,ij->j", bent, moved)
        shares = 2.0 / (1.0 + np.sqrt(1.0 + 4.0 * np.maximum(left / fallen, LEAST)))
    return np.where(np.isfinite(shares), shares, 1.0)


def farthest(reached: Array) -> Array:
    """How many times its first step a row may go in the end, at most ``FARTHEST``: the shape of ``reached``.

    Where second derivatives fall along the step as fast as self-concordance R allows, by exp(−R t), the slope
    that a Newton step of length s would take away is gone at the t with (1 − exp(−R t)) / R = s, and nowhere
    if R s, which is ``reached``, is 1 or more.
    """
    reached = np.nan_to_num(reached, nan=1.0)
    inside = np.clip(reached, TINY, 1.0)
    with np.errstate(divide="ignore"):
        return np.minimum(np.where(reached > 0, -np.log1p(-inside) / inside, 1.0), FARTHEST)
