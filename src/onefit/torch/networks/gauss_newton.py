"""The Gauss–Newton matrix of a network, and steps without some of its rows in it.

With J_i the derivatives of the outputs of row i, L_i = R_iR_iᵀ the Hessian of its loss in them and
J̃_i = R_iᵀJ_i, the curvature without the rows S is K − J̃_SᵀJ̃_S with K = J̃ᵀJ̃ + Λ, so that a step from the
gradient v that they leave behind is

    K₋ₛ⁻¹v = K⁻¹(v + J̃_Sᵀ(I − H)⁻¹J̃_SK⁻¹v),     H = J̃_SK⁻¹J̃_Sᵀ

(Woodbury; Beirami et al. 2017, Theorem 1, with this curvature).  With a_i = R_i⁻¹ℓ′_i, and the slope d of the
decay of which a share s leaves too, v = J̃_Sᵀa_S + s d.  K is factored on the side of the parameters, or as
M = I + J̃Λ⁻¹J̃ᵀ on that of the outputs, where K⁻¹J̃ᵀ = Λ⁻¹J̃ᵀM⁻¹, H = I − (M⁻¹)_SS and

    J̃K⁻¹v = a_S − M⁻¹a_S + s M⁻¹J̃Λ⁻¹d,

so that the steps alone need a product of all rows with J̃.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from onefit.exceptions import SolverError, UnsupportedModelError
from onefit.torch.networks.network import Network
from onefit.torch.numerics.conjugate import cholesky, eigh_each

FLAT = 1e-14  # of the largest curvature of a loss in an output: none
LEVEL = 1e-10  # of the largest slope: none, since no step could tell
EQUAL = 1e-12  # shares of the decay that are the same
AGAIN, SETTLED = 50, 1e-9  # times that steps are taken anew for a decay of their own; change that is none
BATCH = 64  # rows whose Jacobian is taken at a time
BLOCK = 512  # columns of a symmetric product that are computed at a time, from the diagonal down


def n_bytes(n: int, c: int, k: int) -> int:
    """Memory that the curvature of n rows with c outputs takes: J̃, the matrix and its factor, gradients."""
    side = min(n * c, k)
    return 8 * (n * c * k + 2 * side**2 + 2 * n * k)


@dataclass(frozen=True, eq=False)
class GaussNewtonMatrix(ABC):
    """K in one of its two forms.

    Attributes
    ----------
    J : (n, r, k) tensor
        J̃.
    slopes : (n, r) tensor
        a_i.
    ridge, decayed : (k,) tensors
        Λ and d.
    """

    J: Tensor
    slopes: Tensor
    ridge: Tensor
    decayed: Tensor

    def with_ridge(self, ridge: Tensor) -> Self:
        """The same with another decay."""
        return type(self)(self.J, self.slopes, ridge, self.decayed)

    @abstractmethod
    def left_out(self, rows: Tensor, shares: Tensor, beside: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """K₋ₛ⁻¹v for sets of as many rows each, and leverages: (b, q), (b,) to (b, k), (b,).

        ``beside`` is a gradient for each set, (b, k), that is added to v.
        """


@dataclass(frozen=True, eq=False)
class ByParameters(GaussNewtonMatrix):
    """Factored as it is: (k, k)."""

    @cached_property
    def factor(self) -> Tensor:
        columns = self.J.flatten(0, 1).T
        K = _symmetric(columns, columns)
        K.diagonal().add_(self.ridge)
        return _cholesky(K)

    def left_out(self, rows: Tensor, shares: Tensor, beside: Tensor | None = None) -> tuple[Tensor, Tensor]:
        own = self.J[rows].flatten(1, 2)
        v = (own.mT @ self.slopes[rows].flatten(1)[..., None])[..., 0] + shares[:, None] * self.decayed
        v = v if beside is None else v + beside
        stacked = torch.cat([own, v[:, None]], 1)
        half = torch.linalg.solve_triangular(self.factor, stacked.flatten(0, 1).T, upper=False)
        half = half.T.reshape(stacked.shape)
        H, p = half[:, :-1] @ half[:, :-1].mT, (half[:, :-1] @ half[:, -1:].mT)[..., 0]
        pulled = v + (own.mT @ _solved(H, p)[..., None])[..., 0]
        return torch.cholesky_solve(pulled.T, self.factor).T, _largest(H)


@dataclass(frozen=True, eq=False)
class ByOutputs(GaussNewtonMatrix):
    """Factored as I + J̃Λ⁻¹J̃ᵀ: (nr, nr)."""

    @cached_property
    def inverse(self) -> Tensor:
        """M⁻¹."""
        rows = self.J.flatten(0, 1)
        M = _symmetric(rows / self.ridge, rows)
        M.diagonal().add_(1.0)
        return torch.cholesky_inverse(_cholesky(M))

    @cached_property
    def pull(self) -> Tensor:
        """M⁻¹J̃Λ⁻¹d: (nr,)."""
        return self.inverse @ (self.J.flatten(0, 1) @ (self.decayed / self.ridge))

    def left_out(self, rows: Tensor, shares: Tensor, beside: Tensor | None = None) -> tuple[Tensor, Tensor]:
        r = self.J.shape[1]
        own = (rows[..., None] * r + torch.arange(r, device=rows.device)).flatten(1)  # their places in J̃
        a, columns = self.slopes[rows].flatten(1), self.inverse[own]  # (b, qr), (b, qr, nr)
        t = shares[:, None] * self.pull - (columns.mT @ a[..., None])[..., 0]  # J̃K⁻¹v, but for a_S
        t = t if beside is None else t + (beside / self.ridge) @ self.J.flatten(0, 1).T @ self.inverse
        block = torch.gather(columns, 2, own[:, None].expand(-1, own.shape[1], -1))
        eye = torch.eye(own.shape[1], dtype=a.dtype, device=a.device)
        p = _solved(eye - block, torch.gather(t, 1, own) + a)
        y = (columns.mT @ p[..., None])[..., 0] - t  # of v + J̃ᵀ(…) the a_S is there twice, with both signs
        steps = y @ self.J.flatten(0, 1) + shares[:, None] * self.decayed
        steps = steps if beside is None else steps + beside
        return steps / self.ridge, _largest(eye - block)


def without_sets(
    matrix: GaussNewtonMatrix, rows: Tensor, shares: Tensor, more: Tensor
) -> tuple[Tensor, Tensor]:
    """The same where the decay that stays is less by ``more``, (b,), as shares of it, than that in K.

    K₋ₛ is then K′ − δΛ with that of ``matrix``: x = K′⁻¹(v + δΛx), again and again.
    """
    steps, leverages = matrix.left_out(rows, shares)
    if not bool((more.abs() > EQUAL).any()):
        return steps, leverages
    for _ in range(AGAIN):
        before, beside = steps, more[:, None] * matrix.ridge * steps
        steps, _ = matrix.left_out(rows, shares, beside)
        if bool(((steps - before).norm(dim=1) <= SETTLED * steps.norm(dim=1)).all()):
            break
    return steps, leverages


def matrix_of(network: Network, leaving: float) -> GaussNewtonMatrix:
    """Form K of all rows; the decay is that of the rows that stay when rows of such a share leave.

    Raises
    ------
    SolverError
        If it is singular.
    """
    slopes, bends = curved_derivatives(network)
    roots, a = _roots(network.shares[:, None] * slopes, network.shares[:, None, None] * bends)
    n, r, k = len(slopes), roots.shape[2], len(network.theta)
    J = network.theta.new_empty((n, r, k))
    for rows in network.rows.batches(BATCH):
        J[rows] = roots[rows].mT @ network.jacobian(rows)
    ridge = network.decay * (network.total - leaving)
    by_parameters = k <= n * r or bool((ridge == 0).any())
    return (ByParameters if by_parameters else ByOutputs)(J, a, ridge, network.decay * network.theta)


def _roots(slopes: Tensor, bends: Tensor) -> tuple[Tensor, Tensor]:
    """R_i and R_i⁻¹ℓ′_i: (n, c, r), (n, r).

    Directions in which no row has curvature or slope are left out, such as the one that softmax ignores; a
    row without curvature in another is given next to none, so that R_i has an inverse.
    """
    values, vectors = eigh_each(bends)
    along = (vectors.mT @ slopes[..., None])[..., 0]
    least = FLAT * values.abs().max()
    held = (values.amax(0) > least) | (along.abs().amax(0) > LEVEL * along.abs().max())
    sizes = values.clamp(min=float(least)).sqrt()
    return (vectors * sizes[:, None, :])[..., held], (along / sizes)[:, held]


def _symmetric(left: Tensor, right: Tensor) -> Tensor:
    """The product left rightᵀ, known to be symmetric, on and below the diagonal: all that a factor reads."""
    product = left.new_zeros((len(left), len(right)))
    for first in range(0, len(left), BLOCK):
        block = slice(first, first + BLOCK)
        torch.matmul(left[first:], right[block].T, out=product[first:, block])
    return product


def curved_derivatives(network: Network) -> tuple[Tensor, Tensor]:
    """First two derivatives of the losses in the outputs: (n, c), (n, c, c).

    Raises
    ------
    UnsupportedModelError
        If the second is zero: then the Gauss–Newton matrix is that of the decay alone.
    """
    slopes, bends = network.loss_derivatives()
    if float(bends.abs().max()) <= FLAT * float(slopes.abs().max()):
        raise UnsupportedModelError(
            "the loss is linear in the outputs, so that it has no Gauss-Newton curvature: return logits and "
            "take nn.CrossEntropyLoss in place of log-softmax and nn.NLLLoss, a smooth loss in place of "
            "nn.L1Loss, or curvature='last_layer'"
        )
    return slopes, bends


def _cholesky(matrix: Tensor) -> Tensor:
    factor = cholesky(matrix, 1e-8)
    if factor is None:
        raise SolverError(
            "the Gauss-Newton matrix is singular: give all parameters a weight decay, or take "
            "curvature='last_layer'"
        )
    return factor


def _solved(H: Tensor, p: Tensor) -> Tensor:
    """(I − H)⁻¹p; infinite where a leverage is 1: (b, q, q), (b, q) to (b, q)."""
    eye = torch.eye(H.shape[1], dtype=H.dtype, device=H.device)
    return torch.linalg.solve_ex(eye - H, p).result


def _largest(H: Tensor) -> Tensor:
    """Largest eigenvalue, a leverage: (b, q, q) to (b,)."""
    return eigh_each(0.5 * (H + H.mT))[0][:, -1].clamp(0.0, 1.0)
