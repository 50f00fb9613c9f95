"""Kronecker-factored Gauss–Newton curvature, and steps without a row in it.

The block of a layer in the Gauss–Newton matrix of n rows is replaced by the product of two small matrices,
those between layers by 0 (Martens & Grosse 2015, section 3; Grosse & Martens 2016, theorem 1):

    Σ_i J_iᵀL_iJ_i ≈ A ⊗ S / (nT),     A = Σ_i Σ_t a_t a_tᵀ,     S = Σ_i Σ_t g_tᵀ L_i g_t

for J_i = Σ_t g_t ⊗ a_t at T positions, with L_i the Hessian of the loss in the outputs: the expectation over
labels is exact.  With a basis X of the pencil of A and the decay D of the columns, XᵀAX = diag(μ) and
XᵀDX = diag(δ), and U of S, UᵀSU = diag(σ), the matrix with its decay is diagonal in U ⊗ X,

    A ⊗ S / (nT) + D ⊗ I   ↦   σ_j μ_k / (nT) + δ_k                                  (K_jk)

so that nothing else is factored, and weights and biases may be decayed differently, or biases not at all.
(Second moments of the rows' Jacobians in that basis in place of σ_jμ_k, as in George et al. 2018, told lower
risks and were farther from retraining in most of the perceptrons tried: they are not used.)

Without a row.  Let K̃ be this matrix, and K̃₋ᵢ the same of the other rows, whose factors are A − Σ_t a_t a_tᵀ
and S − Σ_t g_tᵀL_ig_t.  The step K̃₋ᵢ⁻¹(J_iᵀl_i + aθ̂) is taken in the span W of K̃⁻¹J_iᵀ and K̃⁻¹aθ̂, where it
minimises the quadratic model:

    θ̃ − θ̂ = W (WᵀK̃₋ᵢW)⁻¹ WᵀK̃W (l_i, 1)

Where K̃ is the Gauss–Newton matrix this is Woodbury's identity, since K₋ᵢ⁻¹ maps into that span.  Where it is
not, K̃ − J_iᵀL_iJ_i would take away what K̃ does not hold: it is often indefinite, while K̃₋ᵢ never is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from onefit.exceptions import SolverError
from onefit.torch.networks.layers import Layer, Parts, Tracer, Traces

BUDGET = 2**23  # numbers that a batch of rows may have
FLAT = 1e-14  # of the largest curvature: what has none, and no row or decay has a slope in it
ROUNDED = 1e-13  # of the squared pivots: a pencil that is singular but for rounding


# --- blocks --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Block(ABC):
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
class Factored(Block):
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
class Dense(Block):
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


# --- the whole matrix ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class KroneckerCurvature:
    """Curvature of a network by layers, and the steps without each of its rows.

    Attributes
    ----------
    tracer : Tracer
    blocks : tuple of Block
    X : tensor
        The rows.
    slopes : (n, c) tensor
        l_i: derivatives of the losses in the outputs.
    roots : (n, c, c) tensor
        R_i with L_i = R_iR_iᵀ.
    leaving : dict of tensors
        aθ̂: the slope of the decay that leaves with a row, by parameter.
    size : int
        How many rows go through at a time.

    References
    ----------
    Martens & Grosse (2015), "Optimizing neural networks with Kronecker-factored approximate curvature".
    Grosse & Martens (2016), "A Kronecker-factored approximate Fisher matrix for convolution layers".

    Examples
    --------
    The curvature of one linear layer and squared error has no approximation in it:

    >>> import torch
    >>> layer = torch.nn.Linear(2, 1).double()
    >>> X = torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]).double()
    >>> parts = {name: part.detach() for name, part in layer.named_parameters()}
    >>> slopes, bends = torch.ones(3, 1).double(), torch.ones(3, 1, 1).double()
    >>> decay = {name: 0.5 * torch.ones_like(part) for name, part in parts.items()}
    >>> K = KroneckerCurvature.of(layer, parts, X, slopes, bends, decay, decay)
    >>> steps, leverages = K.left_out(torch.arange(3))
    >>> Z = torch.cat([X, torch.ones(3, 1)], 1)
    >>> exact = torch.diag(Z @ torch.linalg.solve(Z.T @ Z + 0.5 * torch.eye(3), Z.T))
    >>> bool(torch.allclose(leverages, exact))
    True
    """

    tracer: Tracer
    blocks: tuple[Block, ...]
    X: Tensor
    slopes: Tensor
    roots: Tensor
    leaving: Parts
    size: int

    @classmethod
    def of(
        cls,
        module: torch.nn.Module,
        parts: Parts,
        X: Tensor,
        slopes: Tensor,
        bends: Tensor,
        decay: Parts,
        leaving: Parts,
    ) -> KroneckerCurvature:
        """Read the layers of a module and sum their factors over the rows.

        Parameters
        ----------
        module : nn.Module
        parts, decay, leaving : dict of tensors
            By trainable parameter: its values, what the decay adds to the curvature, and aθ̂.
        X : tensor
        slopes, bends : (n, c) and (n, c, c) tensors
            Derivatives of the losses in the outputs.  Directions of negative curvature count as flat.

        Raises
        ------
        UnsupportedModelError
            If a module that is neither ``nn.Linear`` nor ``nn.Conv2d`` has too many parameters for a matrix.
        SolverError
            If a layer has neither curvature nor decay in some direction of its inputs.
        """
        tracer = Tracer.of(module, parts, X)
        values, vectors = torch.linalg.eigh(bends)
        roots = vectors * values.clamp(min=0.0).sqrt()[:, None, :]
        c, k = slopes.shape[1], sum(part.numel() for part in parts.values())
        size = max(1, BUDGET // (3 * (c + 1) * k + 4 * tracer.numbers(X[0])))
        blocks = _blocks(tracer, X, roots, decay, size)
        return cls(tracer, blocks, X, slopes, roots, leaving, size)

    def batches(self) -> Iterator[Tensor]:
        """Numbers of rows that go through at a time."""
        yield from _batches(self.X, self.size)

    def left_out(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Steps of all parameters without some rows, each alone, and their leverages: (b, k), (b,).

        The leverage is the largest eigenvalue of L_iJ_iK̃⁻¹J_iᵀ, at most 1.
        """
        traces, roots = self.tracer.trace(self.X[rows]), self.roots[rows]
        d = self.slopes.shape[1] + 1
        held, rest = self.slopes.new_zeros(2, len(rows), d, d)
        spans = []
        for block in self.blocks:
            J = block.coordinates(traces)
            leaving = block.projected(self.leaving).expand(len(rows), 1, -1)
            pulls = torch.cat([J, leaving], 1)  # K̃W
            W = pulls * block.inverse
            spans.append(W)
            held += pulls @ W.mT
            rest += block.without(traces, roots, W) + (W * block.decayed) @ W.mT
        slopes = torch.nn.functional.pad(self.slopes[rows], (0, 1), value=1.0)
        lengths = _solved(rest, (held @ slopes[..., None])[..., 0])
        own = roots.mT @ held[:, :-1, :-1] @ roots
        leverages = torch.linalg.eigvalsh(own)[:, -1].clamp(0.0, 1.0)
        return self._assembled([(lengths[:, None] @ W)[:, 0] for W in spans]), leverages

    def _assembled(self, steps: list[Tensor]) -> Tensor:
        """Steps of the parameters in their order: (b, k)."""
        moved: Parts = {}
        for block, step in zip(self.blocks, steps, strict=True):
            moved |= block.lifted(step)
        return torch.cat([moved[name] for name in self.tracer.parts], -1)


def _solved(M: Tensor, rhs: Tensor) -> Tensor:
    """M⁻¹ rhs for positive semi-definite M whose rows have scales of their own: (b, d)."""
    scale = M.diagonal(dim1=-2, dim2=-1).clamp(min=0.0).sqrt()
    scale = torch.where(scale > 0, scale, 1.0)
    inverse = torch.linalg.pinv(M / (scale[:, :, None] * scale[:, None, :]), rtol=1e-13, hermitian=True)
    return (inverse @ (rhs / scale)[..., None])[..., 0] / scale


def _blocks(tracer: Tracer, X: Tensor, roots: Tensor, decay: Parts, size: int) -> tuple[Block, ...]:
    """Sum the factors over the rows, batch by batch, and diagonalise them."""
    A: Parts = {}
    S: Parts = {}
    whole: Parts = {}
    positions = {}
    for rows in _batches(X, size):
        traces = tracer.trace(X[rows])
        for layer in tracer.layers:
            a, g = traces.inputs[layer.name], traces.slopes[layer.name]
            g = torch.einsum("bctgq,bcr->brtgq", g, roots[rows])
            positions[layer.name] = a.shape[1]
            _add(A, layer.name, a.flatten(0, 1).movedim(1, 0))
            _add(S, layer.name, g.flatten(0, 2).movedim(1, 0))
        for owner, names in tracer.others.items():
            J = torch.cat([traces.jacobians[name] for name in names], -1)
            _add(whole, owner, (roots[rows].mT @ J).flatten(0, 1))
    n = len(X)
    factored = [
        Factored.of(layer, A[layer.name], S[layer.name], decay, n, positions[layer.name])
        for layer in tracer.layers
    ]
    dense = [Dense.of(owner, names, whole[owner], decay, n) for owner, names in tracer.others.items()]
    return (*factored, *dense)


def _add(sums: Parts, name: str, root: Tensor) -> None:
    """Add RᵀR to a sum."""
    square = root.mT @ root
    sums[name] = sums[name] + square if name in sums else square


def _batches(X: Tensor, size: int) -> tuple[Tensor, ...]:
    return torch.split(torch.arange(len(X), device=X.device), size)
