"""Leave-one-out from one minimum, by a Newton step without each row or set of rows, and its gradients.

With g_S = Σ_{i∈S} w_i ∇ℓ_i(θ̂) and H_{−S} the curvature of the objective without the rows in S,

    θ̃⁽ˢ⁾ = θ̂ + H_{−S}⁻¹ g_S                                    (Beirami et al. 2017, Theorem 1, eq. 4)

Derivation: at θ̂ the gradient without S is −g_S, since the whole one is zero.  The matrices H_{−S} differ by
what a few rows contribute, so that conjugate gradients with H as their preconditioner end after as many
products as that has ranks, for all sets at once: two for a generalised linear model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.nn.utils.rnn import pad_sequence

from onefit._typing import Index
from onefit.exceptions import SolverError
from onefit.leave_out.sets import Folds
from onefit.risk.judging import shown
from onefit.torch.numerics.conjugate import cholesky, conjugate_each, pseudo_inverse
from onefit.torch.numerics.newton import ROUNDING
from onefit.torch.numerics.objective import PenalisedSum


@dataclass(frozen=True, eq=False)
class Sets:
    """Rows that leave together and rows that are judged there, padded to the same length.

    Attributes
    ----------
    removed : (s, q) int tensor
    removed_weights : (s, q) tensor
        0 where an entry is padding.
    tested, tested_weights : likewise
        Weights of the tested rows sum to 1 over all sets.
    """

    removed: Tensor
    removed_weights: Tensor
    tested: Tensor
    tested_weights: Tensor

    @classmethod
    def of(cls, folds: Folds, weights: Tensor) -> Sets:
        """Pad some folds."""
        removed, removed_weights = _padded(folds.removed, weights)
        tested, tested_weights = _padded(folds.tested, weights)
        return cls(removed, removed_weights, tested, tested_weights / tested_weights.sum())

    def __len__(self) -> int:
        return len(self.removed)

    def only(self, which: Tensor) -> Sets:
        """Some of the sets; their weights in the mean are not made to sum to 1."""
        parts = self.removed, self.removed_weights, self.tested, self.tested_weights
        return Sets(*(part[which] for part in parts))


def _padded(rows: tuple[Index, ...] | Index, weights: Tensor) -> tuple[Tensor, Tensor]:
    numbers = [torch.as_tensor(part, device=weights.device) for part in rows]
    index = pad_sequence(numbers, batch_first=True, padding_value=-1)  # the last row, of no weight
    return index, weights[index] * (index >= 0)


@dataclass(frozen=True, eq=False)
class Steps:
    """Left-out curvatures at a minimum: solves with H_{−S} for all sets at once.

    Attributes
    ----------
    objective : PenalisedSum
        On its free coordinates, so that it is smooth at ``theta``.
    theta : (k,) tensor
        Its minimum.
    sets : Sets
    dense : bool
        Whether the whole curvature is formed and factored; products with it are enough otherwise.
    """

    objective: PenalisedSum
    theta: Tensor
    sets: Sets
    dense: bool = True

    @cached_property
    def matrix(self) -> Tensor:
        """Curvature with all rows in: (k, k)."""
        return self.objective.curvature(self.theta)

    @cached_property
    def _inverse(self) -> Callable[[Tensor], Tensor]:
        """V ↦ V H⁻¹, on the range of H where it is singular."""
        lower = cholesky(self.matrix)
        if lower is not None:
            return lambda V: torch.cholesky_solve(V.T, lower).T
        if float(torch.linalg.eigvalsh(self.matrix)[0]) < -1e-9 * float(self.matrix.diagonal().abs().max()):
            raise SolverError(
                "the curvature at the fit is not positive definite, so it is not a strict minimum: no row "
                "can be left out by a Newton step (curvature='gauss_newton' may do, or a stronger penalty)"
            )
        inverse = pseudo_inverse(self.matrix)
        return lambda V: V @ inverse

    def gradients(self) -> Tensor:
        """g_S at θ̂: (s, k)."""
        pull = vmap(self.objective.set_gradient, in_dims=(None, 0, 0), chunk_size=self._chunk())
        return pull(self.theta, self.sets.removed, self.sets.removed_weights)

    def test_gradients(self, points: Tensor) -> Tensor:
        """∇ of the weighted mean loss of the rows tested in each set: (s, k)."""
        pull = vmap(self.objective.set_gradient, chunk_size=self._chunk())
        return pull(points, self.sets.tested, self.sets.tested_weights)

    def own(self, V: Tensor, points: Tensor | None = None) -> Tensor:
        """Curvature that each set brings itself, times its row of V: (s, k)."""
        at = self.theta.expand(len(self.sets), -1) if points is None else points
        push = vmap(self.objective.set_product, chunk_size=self._chunk())
        return push(at, self.sets.removed, self.sets.removed_weights, V)

    def whole(self, V: Tensor, points: Tensor | None = None) -> Tensor:
        """Curvature with all rows in, times each row of V: (s, k)."""
        if points is not None:
            return self.objective.products_at(points, V)
        return V @ self.matrix if self.dense else self.objective.products(self.theta, V)

    def solve(self, rhs: Tensor, points: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """H_{−S}⁻¹ times each row, and whether H_{−S} is positive definite as far as was seen: (s, k), (s,).

        At θ̂, or at a point of each set.
        """
        return conjugate_each(
            lambda V: self.whole(V, points) - self.own(V, points),
            rhs,
            self._inverse if self.dense else torch.clone,
        )

    def solve_whole(self, rhs: Tensor) -> Tensor:
        """H⁻¹ times each row: (t, k)."""
        if self.dense:
            return self._inverse(rhs)
        solution, positive = conjugate_each(self.whole, rhs, torch.clone)
        if not bool(positive.all()):
            raise SolverError("the curvature at the fit is not positive definite: it is not a strict minimum")
        return solution

    def left_out(self, gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Steps s = H_{−S}⁻¹ g_S, leverages, and whether H_{−S} is positive definite: (s, k), (s,), (s,).

        The leverage is sᵀH_S s / sᵀH s, which is d h where H_S has rank 1.  Without a positive definite
        H_{−S} it is 1, and the step 0.
        """
        steps, positive = self.solve(gradients)
        own = (steps * self.own(steps)).sum(1)
        whole = own + (steps * gradients).sum(1)
        leverages = torch.where(whole > 0, own / torch.where(whole > 0, whole, 1.0), 0.0)
        return (
            torch.where(positive[:, None], steps, 0.0),
            torch.where(positive, leverages, 1.0),
            positive,
        )

    def fits_without_error(self, gradients: Tensor) -> bool:
        """Whether no gradient exceeds rounding: then none tells where the fit would go without its row."""
        rounding = ROUNDING * self.objective.product(self.theta, self.theta).norm()
        return bool(gradients.norm(dim=1).max() <= rounding) and bool(rounding > 0)

    def _chunk(self) -> int:
        return self.objective._chunk(self.sets.removed.shape[1] + self.sets.tested.shape[1])


# --- gradients in the strengths of all penalties -----------------------------------------------------------


def exact_gradient(steps: Steps) -> Tensor:
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


def gradient_at(steps: Steps, points: Tensor) -> Tensor:
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
    in_theta, in_strengths = torch.zeros_like(steps.theta), torch.zeros_like(steps.objective.strengths)
    for part in _parts(steps, moves, adjoints):
        one, other = grad(part, argnums=(0, 1))(steps.theta, steps.objective.strengths)
        in_theta, in_strengths = in_theta + one, in_strengths + other
    return in_theta, in_strengths


def _parts(steps: Steps, moves: Tensor, adjoints: Tensor) -> Iterator[Callable[[Tensor, Tensor], Tensor]]:
    """Parts of that sum, as functions of θ and λ, each of what fits into memory.

    Σ_s pᵀHs is tr(H Σ s pᵀ), a sum over min(s, k) pairs of vectors.
    """
    objective, sets = steps.objective, steps.sets
    for few in torch.split(
        torch.arange(len(sets), device=moves.device), objective._chunk(sets.removed.shape[1])
    ):

        def own(theta: Tensor, _: Tensor, few: Tensor = few) -> Tensor:
            rows, weights = sets.removed[few], sets.removed_weights[few]
            at = theta.expand(len(few), -1)
            pulls = vmap(objective.set_gradient)(at, rows, weights)
            pushes = vmap(objective.set_product)(at, rows, weights, moves[few])
            return (adjoints[few] * (pulls + pushes)).sum()

        yield own
    left, right = adjoints, moves
    if len(moves) > len(steps.theta):
        left = torch.eye(len(steps.theta), dtype=moves.dtype, device=moves.device)
        right = adjoints.T @ moves
    size = objective._chunk(len(objective))
    for a, b in zip(torch.split(left, size), torch.split(right, size), strict=True):

        def whole(theta: Tensor, strengths: Tensor, a: Tensor = a, b: Tensor = b) -> Tensor:
            return -(a * vmap(objective.product_of, in_dims=(None, None, 0))(theta, strengths, b)).sum()

        yield whole


def _check(positive: Tensor) -> None:
    wrong = torch.nonzero(~positive)[:, 0].cpu().numpy()
    if wrong.size:
        raise SolverError(
            f"the curvature without {wrong.size} of the sets is not positive definite ({shown(wrong)}): the "
            "risk has no gradient here; take curvature='gauss_newton', or a stronger penalty"
        )
