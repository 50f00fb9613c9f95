"""Gradients of leave-one-out in the strengths of all penalties."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.func import grad, vmap

from onefit.exceptions import SolverError
from onefit.torch.functional.left_out import Steps


def exact(steps: Steps) -> Tensor:
    """Gradient of the risk R(λ) = Σ_s R_s(θ̃⁽ˢ⁾(λ)) that Newton steps give, with no approximation: (m,).

    With steps s = H_{−S}⁻¹g_S, v = ∇R_s(θ̃⁽ˢ⁾) and adjoints p = H_{−S}⁻¹v,

        dR = Σ_s vᵀdθ̂ + pᵀ(dg_S − dH_{−S} s)

    is the differential at constant v, p, s of the number

        Φ(θ, λ) = Σ_s vᵀθ + pᵀ(g_S(θ) + H_S(θ) s) − Σ_s pᵀH(θ, λ) s,

    and dθ̂/dλ_m = −H⁻¹∇r_m (Lemma 4 of Beirami et al. 2017).  So ∂R/∂λ_m = ∂Φ/∂λ_m − ∇r_mᵀH⁻¹∂Φ/∂θ: two
    solves a set, whatever the number of strengths.  Needs third derivatives of the loss.
    """
    if len(steps.theta) == 0:
        return torch.zeros_like(steps.objective.strengths)  # an ℓ1 norm holds every coordinate
    gradients = steps.gradients()
    moves, positive = steps.solve(gradients)
    slopes = steps.test_gradients(steps.theta + moves)
    adjoints, likewise = steps.solve(slopes)
    _check(positive & likewise)
    direct_theta, direct_strengths = _differential(steps, moves, adjoints)
    implicit = replace(steps, objective=replace(steps.objective, gauss_newton=False))  # θ̂ knows no other
    pulled = implicit.solve_whole((slopes.sum(0) + direct_theta)[None])[0]
    return direct_strengths - steps.objective.penalty_gradients(steps.theta) @ pulled


def at_points(steps: Steps, points: Tensor) -> Tensor:
    """−Σ_s ∇r_m(θ̃)ᵀ[H_{−S}(θ̃)]⁻¹∇R_s(θ̃) at a point of each set: (m,).

    The paper's approximate gradient at its θ̃⁽ⁱ⁾ (Beirami et al. 2017, eq. 16, of which the mean over rows is
    taken here), the exact gradient of leave-one-out at the refits (eqs. 14 and 15).
    """
    solved, positive = steps.solve(steps.test_gradients(points), points)
    _check(positive)
    slopes = vmap(steps.objective.penalty_gradients)(points)  # (s, m, k)
    return -torch.einsum("smk,sk->m", slopes, solved)


def _differential(steps: Steps, moves: Tensor, adjoints: Tensor) -> tuple[Tensor, Tensor]:
    """∂ in θ and in λ of pᵀ(g_S + H_S s) summed over sets, less that of Σ pᵀH s: (k,), (m,)."""
    objective, sets = steps.objective, steps.sets
    total = torch.zeros_like(steps.theta)
    size = objective._chunk(sets.removed.shape[1])
    for part in torch.split(torch.arange(len(sets), device=moves.device), size):

        def own(theta: Tensor, part: Tensor = part) -> Tensor:
            rows, weights = sets.removed[part], sets.removed_weights[part]
            at = theta.expand(len(part), -1)
            pulls = vmap(objective.set_gradient)(at, rows, weights)
            pushes = vmap(objective.set_product)(at, rows, weights, moves[part])
            return (adjoints[part] * (pulls + pushes)).sum()

        total = total + grad(own)(steps.theta)
    in_theta, in_strengths = _differential_of_whole(steps, moves, adjoints)
    return total - in_theta, -in_strengths


def _differential_of_whole(steps: Steps, moves: Tensor, adjoints: Tensor) -> tuple[Tensor, Tensor]:
    """∂ in θ and in λ of Σ_s pᵀH(θ, λ)s: (k,), (m,).

    It is tr(H Σ s pᵀ), a sum over min(s, k) pairs of vectors.
    """
    objective = steps.objective
    left, right = adjoints, moves
    if len(moves) > len(steps.theta):
        left = torch.eye(len(steps.theta), dtype=moves.dtype, device=moves.device)
        right = adjoints.T @ moves
    in_theta, in_strengths = torch.zeros_like(steps.theta), torch.zeros_like(objective.strengths)
    size = objective._chunk(len(objective))
    for a, b in zip(torch.split(left, size), torch.split(right, size), strict=True):

        def whole(theta: Tensor, strengths: Tensor, a: Tensor = a, b: Tensor = b) -> Tensor:
            return (a * vmap(objective.product_of, in_dims=(None, None, 0))(theta, strengths, b)).sum()

        one, other = grad(whole, argnums=(0, 1))(steps.theta, objective.strengths)
        in_theta, in_strengths = in_theta + one, in_strengths + other
    return in_theta, in_strengths


def _check(positive: Tensor) -> None:
    wrong = torch.nonzero(~positive)[:, 0].tolist()
    if wrong:
        shown = ", ".join(map(str, wrong[:8])) + (", …" if len(wrong) > 8 else "")
        raise SolverError(
            f"the curvature without {len(wrong)} of the sets is not positive definite ({shown}): the risk "
            "has no gradient here; take curvature='gauss_newton', or a stronger penalty"
        )
