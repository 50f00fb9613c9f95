"""Curvature of the parameters of one layer, in coordinates in which it and the decay are diagonal."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from onefit.exceptions import SolverError
from onefit.torch.networks.layers import Layer, Parts, Traces

FLAT = 1e-14  # of the largest curvature: what has none, and no row or decay has a slope in it
ROUNDED = 1e-13  # of the squared pivots: a pencil that is singular but for rounding


@dataclass(frozen=True, eq=False)
class ParameterBlock(ABC):
    """Curvature of some parameters, in m coordinates in which it and the decay are diagonal.

    Attributes
    ----------
    decayed : (m,) tensor
        What the decay adds to the curvature.
    rows : int
        n.
    """

    decayed: Tensor
    rows: int

    @property
    @abstractmethod
    def curvature(self) -> Tensor:
        """Curvature of the losses: (m,)."""

    @abstractmethod
    def coordinates(self, traces: Traces) -> Tensor:
        """Jacobian of each output: (b, c, m)."""

    @abstractmethod
    def projected(self, parts: Parts) -> Tensor:
        """Coordinates of a gradient, such as that of the decay: (m,)."""

    @abstractmethod
    def lifted(self, steps: Tensor) -> Parts:
        """Steps of the parameters from steps of the coordinates, by name: (b, m) to (b, ·)."""

    @abstractmethod
    def without(self, traces: Traces, roots: Tensor, W: Tensor) -> Tensor:
        """WᵀFW with the curvature of the losses of all rows but one, for each: (b, d, m) to (b, d, d)."""

    @cached_property
    def inverse(self) -> Tensor:
        """Of the curvature with the decay; 0 where there is neither, and hence no slope: (m,)."""
        whole = self.curvature + self.decayed
        held = whole > FLAT * whole.max()
        return torch.where(held, 1.0 / torch.where(held, whole, 1.0), 0.0)


@dataclass(frozen=True, eq=False)
class Factored(ParameterBlock):
    """A layer, by the Kronecker factors of its curvature.

    Attributes
    ----------
    layer : Layer
    X, U : (g, p, p) and (g, q, q) tensors
        Bases on the side of the inputs and of the outputs.
    mu, sigma : (g, p) and (g, q) tensors
        The factors in them.
    positions : int
        T.
    """

    layer: Layer
    X: Tensor
    U: Tensor
    mu: Tensor
    sigma: Tensor
    positions: int

    @classmethod
    def of(cls, layer: Layer, A: Tensor, S: Tensor, decay: Parts, rows: int, positions: int) -> Factored:
        """Diagonalise sums of a_t a_tᵀ and g_tᵀLg_t; the decay is that of each parameter."""
        columns = layer.joined(decay)[:, 0]
        X, mu, delta = _pencil(A, columns, layer.name)
        sigma, U = torch.linalg.eigh(S)
        decayed = delta[:, None, :].expand(-1, S.shape[-1], -1).flatten()
        return cls(decayed, rows, layer, X, U, mu, sigma.clamp(min=0.0), positions)

    @property
    def curvature(self) -> Tensor:
        return (self.sigma[:, :, None] * self.mu[:, None, :]).flatten() / (self.rows * self.positions)

    def coordinates(self, traces: Traces) -> Tensor:
        a, g = self._turned(traces)
        return torch.einsum("bctgq,btgp->bcgqp", g, a).flatten(2)

    def projected(self, parts: Parts) -> Tensor:
        return (self.U.mT @ self.layer.joined(parts) @ self.X).flatten()

    def lifted(self, steps: Tensor) -> Parts:
        return self.layer.parted(self.U @ self._matrices(steps) @ self.X.mT)

    def without(self, traces: Traces, roots: Tensor, W: Tensor) -> Tensor:
        # tr(WᵀS₋WA₋) for S₋ = σ − Σ_r g_r g_rᵀ and A₋ = μ − Σ_t a_t a_tᵀ, term by term
        a, g = self._turned(traces)
        a = _compressed(a.movedim(1, 2))  # (b, g, t, p)
        g = _compressed(torch.einsum("bctgq,bcr->bgrtq", g, roots).flatten(2, 3))  # (b, g, r, q)
        M = self._matrices(W)  # (b, d, g, q, p)
        by_a = M @ a[:, None].mT
        by_g = g[:, None] @ M
        every = _gram(M * self.sigma[:, :, None], M * self.mu[:, None, :])
        every -= _gram(by_a * self.sigma[:, :, None], by_a)
        every -= _gram(by_g * self.mu[:, None, :], by_g)
        both = g[:, None] @ by_a
        return (every + _gram(both, both)) / ((self.rows - 1) * self.positions)

    def _turned(self, traces: Traces) -> tuple[Tensor, Tensor]:
        """Inputs and slopes in the two bases: (b, T, g, p), (b, c, T, g, q)."""
        a, g = traces.inputs[self.layer.name], traces.slopes[self.layer.name]
        return torch.einsum("btgp,gpk->btgk", a, self.X), torch.einsum("bctgq,gqk->bctgk", g, self.U)

    def _matrices(self, flat: Tensor) -> Tensor:
        return flat.reshape(*flat.shape[:-1], *self.sigma.shape, self.mu.shape[1])


@dataclass(frozen=True, eq=False)
class Dense(ParameterBlock):
    """Parameters of no known layer, such as a norm's scales, by their exact Gauss–Newton block.

    Attributes
    ----------
    names : tuple of str
    sizes : tuple of int
    X : (m, m) tensor
        The basis.
    mu : (m,) tensor
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    X: Tensor
    mu: Tensor

    @classmethod
    def of(cls, owner: str, names: tuple[str, ...], M: Tensor, decay: Parts, rows: int) -> Dense:
        """Diagonalise Σ_i J_iᵀL_iJ_i."""
        flat = [decay[name].reshape(-1) for name in names]
        X, mu, delta = _pencil(M[None], torch.cat(flat)[None], owner)
        return cls(delta[0], rows, names, tuple(len(part) for part in flat), X[0], mu[0])

    @property
    def curvature(self) -> Tensor:
        return self.mu

    def coordinates(self, traces: Traces) -> Tensor:
        return torch.cat([traces.jacobians[name] for name in self.names], -1) @ self.X

    def projected(self, parts: Parts) -> Tensor:
        return torch.cat([parts[name].reshape(-1) for name in self.names]) @ self.X

    def lifted(self, steps: Tensor) -> Parts:
        pieces = torch.split(steps @ self.X.T, list(self.sizes), -1)
        return dict(zip(self.names, pieces, strict=True))

    def without(self, traces: Traces, roots: Tensor, W: Tensor) -> Tensor:
        own = W @ self.coordinates(traces).mT @ roots
        return (W * self.mu) @ W.mT - own @ own.mT


def _pencil(A: Tensor, decay: Tensor, name: str) -> tuple[Tensor, Tensor, Tensor]:
    """X, μ and δ with XᵀAX = diag(μ) and Xᵀdiag(decay)X = diag(δ), of each group: (g, p, p), (g, p), (g, p).

    A + τ diag(decay) is factored: neither has to be positive definite, but no direction may lack both.
    """
    bent, pulled = float(A.diagonal(dim1=-2, dim2=-1).mean()), float(decay.mean())
    tau = bent / pulled if bent > 0 and pulled > 0 else 1.0
    lower, failed = torch.linalg.cholesky_ex(A + torch.diag_embed(tau * decay))
    pivots = lower.diagonal(dim1=-2, dim2=-1) ** 2
    if bool(failed.any()) or bool(pivots.min() <= ROUNDED * pivots.max()):
        raise SolverError(
            f"the curvature of {name or 'the module itself'!r} is singular: give all weights a weight "
            "decay, or take curvature='last_layer'"
        )
    half = torch.linalg.solve_triangular(lower, A, upper=False)
    within = torch.linalg.solve_triangular(lower, half.mT, upper=False)
    mu, V = torch.linalg.eigh(0.5 * (within + within.mT))
    X = torch.linalg.solve_triangular(lower.mT, V, upper=True)
    return X, mu.clamp(min=0.0), (X**2 * decay[..., None]).sum(-2)


def _compressed(root: Tensor) -> Tensor:
    """Rows with the same sum of squares RᵀR, no more than columns: (…, r, q)."""
    if root.shape[-2] <= root.shape[-1]:
        return root
    return torch.linalg.qr(root, mode="r").R


def _gram(left: Tensor, right: Tensor) -> Tensor:
    """Inner products of several arrays: (b, d, …) twice to (b, d, d)."""
    return left.flatten(2) @ right.flatten(2).mT
