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

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onefit.torch.networks.blocks import Dense, Factored, ParameterBlock
from onefit.torch.networks.data import Tree, taken
from onefit.torch.networks.layers import Parts, Tracer, flat_rows
from onefit.torch.numerics.conjugate import eigh_each
from onefit.torch.numerics.objective import BUDGET


@dataclass(frozen=True, eq=False)
class KroneckerCurvature:
    """Curvature of a network by layers, and the steps without each of its rows.

    Attributes
    ----------
    tracer : Tracer
    blocks : tuple of ParameterBlock
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
    blocks: tuple[ParameterBlock, ...]
    X: Tree
    slopes: Tensor
    roots: Tensor
    leaving: Parts
    size: int

    @classmethod
    def of(
        cls,
        module: torch.nn.Module,
        parts: Parts,
        X: Tree,
        slopes: Tensor,
        bends: Tensor,
        decay: Parts,
        leaving: Parts,
        flatten: Callable[[Any], Tensor] = flat_rows,
    ) -> KroneckerCurvature:
        """Read the layers of a module and sum their factors over the rows.

        Parameters
        ----------
        module : nn.Module
        parts, decay, leaving : dict of tensors
            By trainable parameter: its values, what the decay adds to the curvature, and aθ̂.
        X : tensor, or a tuple or dict of them
        slopes, bends : (n, c) and (n, c, c) tensors
            Derivatives of the losses in the outputs.  Directions of negative curvature count as flat.
        flatten : callable, optional
            From what the module returns to (n, c).

        Raises
        ------
        UnsupportedModelError
            If a module that is neither ``nn.Linear`` nor ``nn.Conv2d`` has too many parameters for a matrix.
        SolverError
            If a layer has neither curvature nor decay in some direction of its inputs.
        """
        tracer = Tracer.of(module, parts, X, flatten)
        values, vectors = eigh_each(bends)
        roots = vectors * values.clamp(min=0.0).sqrt()[:, None, :]
        c, k = slopes.shape[1], sum(part.numel() for part in parts.values())
        size = max(1, BUDGET // (3 * (c + 1) * k + 4 * tracer.numbers(X)))
        blocks = _blocks(tracer, X, roots, decay, size)
        return cls(tracer, blocks, X, slopes, roots, leaving, size)

    def left_out(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Steps of all parameters without some rows, each alone, and their leverages: (b, k), (b,).

        The leverage is the largest eigenvalue of L_iJ_iK̃⁻¹J_iᵀ, at most 1.
        """
        traces, roots = self.tracer.trace(taken(self.X, rows)), self.roots[rows]
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
        leverages = eigh_each(own)[0][:, -1].clamp(0.0, 1.0)
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
    values, vectors = eigh_each(M / (scale[:, :, None] * scale[:, None, :]))
    held = values > 1e-13 * values[:, -1:]
    inverse = torch.where(held, 1.0 / torch.where(held, values, 1.0), 0.0)
    within = inverse[..., None] * (vectors.mT @ (rhs / scale)[..., None])
    return (vectors @ within)[..., 0] / scale


def _blocks(tracer: Tracer, X: Tree, roots: Tensor, decay: Parts, size: int) -> tuple[ParameterBlock, ...]:
    """Sum the factors over the rows, batch by batch, and diagonalise them."""
    A: Parts = {}
    S: Parts = {}
    whole: Parts = {}
    positions = {}
    for rows in torch.split(torch.arange(len(roots), device=roots.device), size):
        traces = tracer.trace(taken(X, rows))
        for layer in tracer.layers:
            a, g = traces.inputs[layer.name], traces.slopes[layer.name]
            g = torch.einsum("bctgq,bcr->brtgq", g, roots[rows])
            positions[layer.name] = a.shape[1]
            _add(A, layer.name, a.flatten(0, 1).movedim(1, 0))
            _add(S, layer.name, g.flatten(0, 2).movedim(1, 0))
        for owner, names in tracer.others.items():
            J = torch.cat([traces.jacobians[name] for name in names], -1)
            _add(whole, owner, (roots[rows].mT @ J).flatten(0, 1))
    n = len(roots)
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
