"""A module as a function of a flat vector of its trainable parameters, with its rows and their losses."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import grad, jacrev, vmap
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from onefit.exceptions import UnsupportedModelError
from onefit.torch.networks.data import DataRows, Tree, called, taken
from onefit.torch.networks.decay import Decay, read_decay
from onefit.torch.networks.losses import (
    BatchLoss,
    RowLosses,
    check_finite,
    check_losses,
    check_targets,
    read_losses,
)
from onefit.torch.networks.mapping import ONCE, REFUSALS, derivative, jacobian_of, looped, mapped
from onefit.torch.numerics.objective import BUDGET
from onefit.torch.numerics.rows import as_weights, trained_parameters

TOGETHER = 512  # rows of a forward pass
ALIKE = 1e-6  # of the largest output: what rows alone and among others may differ by
SOME = 256  # rows whose gradients tell the size of those of all


FAILURES = (RuntimeError, TypeError, IndexError, KeyError, ValueError, AttributeError)  # of a forward pass
_ACROSS = (
    "A row can be left out of what treats rows apart, and always alike: this may be statistics of the batch "
    "(x.mean(0), track_running_stats=False), a softmax over dim 0, a layer without batch_first=True, or "
    "dropout that is on in eval() mode"
)


@dataclass(frozen=True, eq=False)
class OutputLayout:
    """How what a module returns is laid out flat: the parts that the loss depends on, (n, c).

    Attributes
    ----------
    spec : TreeSpec
    used : tuple of int
        Leaves that the loss depends on.
    shapes : tuple of shapes
        Of those, without the rows.
    """

    spec: TreeSpec
    used: tuple[int, ...]
    shapes: tuple[torch.Size, ...]

    @property
    def sizes(self) -> list[int]:
        """Numbers of outputs in each."""
        return [shape.numel() for shape in self.shapes]

    def flat(self, outputs: Tree) -> Tensor:
        """Return (n, c)."""
        leaves = tree_flatten(outputs)[0]
        return torch.cat([leaves[k].reshape(len(leaves[k]), -1) for k in self.used], 1)

    def tree(self, flat: Tensor, outputs: Tree) -> Tree:
        """Return outputs whose used parts are these."""
        leaves = list(tree_flatten(outputs)[0])
        parts = torch.split(flat, self.sizes, 1)
        for k, part, shape in zip(self.used, parts, self.shapes, strict=True):
            leaves[k] = part.reshape(-1, *shape)
        return tree_unflatten(leaves, self.spec)


@dataclass(frozen=True, eq=False)
class Network:
    """A module, what it is trained on, and its parameters.

    Attributes
    ----------
    module : nn.Module
        A copy in float64, in ``eval()`` mode.
    rows : DataRows
    losses : RowLosses
        ℓ_i of outputs.
    shares : (n,) tensor
        b_i: what a row counts for.
    decay : (k,) tensor
        Weight decay of each parameter.
    mean : bool
        Whether the loss is a mean over rows, and not their sum: the decay is that of Σ b_i losses then.
    theta : (k,) tensor
        The parameters.
    layout : OutputLayout
        Of its outputs.
    """

    module: nn.Module
    rows: DataRows
    losses: RowLosses
    shares: Tensor
    decay: Tensor
    mean: bool
    theta: Tensor
    layout: OutputLayout

    @classmethod
    def read(
        cls,
        module: Any,
        loss: Any,
        rows: DataRows,
        weight_decay: Decay,
        sample_weight: Any = None,
    ) -> Network:
        """Copy a module and find out what its loss says of each row.

        Raises
        ------
        TypeError, ValueError
        """
        own, loss = _copied(module, loss, rows.device)
        named = {name: p for name, p in own.named_parameters() if p.requires_grad}
        theta = torch.cat([p.detach().reshape(-1) for p in named.values()]).clone()
        if not bool(torch.isfinite(theta).all()):
            raise ValueError("the parameters of the module are not all finite: train it again")
        decay = read_decay(weight_decay, module, {name: p.shape for name, p in named.items()}, theta)
        outputs = _outputs(own, rows)
        check_targets(loss, outputs, rows.target)
        losses, mean = read_losses(loss, outputs, rows.target)
        shares = losses.shares(outputs, rows.target)
        shares = shares * as_weights(sample_weight, len(rows), rows.device)
        _check_several(shares)
        check_finite(losses, outputs, rows.target)
        return cls(own, rows, losses, shares, decay, mean, theta, _layout(losses, outputs, rows.target))

    def judging(self, loss: BatchLoss, rows: DataRows) -> Network:
        """The network with other rows, all of weight 1, that are checked as those of training are.

        Raises
        ------
        TypeError, ValueError
        """
        check_losses(
            _loss_in_float64(loss, rows.device), self.losses, _outputs(self.module, rows), rows.target
        )
        return replace(self, rows=rows, shares=self.shares.new_ones(len(rows)))

    # --- parameters ------------------------------------------------------------------------------------

    @cached_property
    def shapes(self) -> dict[str, torch.Size]:
        """Names and shapes of the parameters, in the order of ``theta``."""
        return {name: p.shape for name, p in self.module.named_parameters() if p.requires_grad}

    def parts(self, theta: Tensor) -> dict[str, Tensor]:
        """The parameters by name."""
        pieces = torch.split(theta, [shape.numel() for shape in self.shapes.values()])
        return {
            name: piece.reshape(shape)
            for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)
        }

    def as_module(self, theta: Tensor) -> nn.Module:
        """A module with other parameters, in float64."""
        own = copy.deepcopy(self.module)
        own.load_state_dict(self.parts(theta), strict=False)
        return own

    # --- outputs and losses ----------------------------------------------------------------------------

    def outputs(self, theta: Tensor, rows: DataRows) -> Tree:
        """What the module returns for some rows."""
        return called(self.module, self.parts(theta), rows.inputs)

    def predict(self, theta: Tensor, inputs: Tree) -> Tensor:
        """Output for one row, flat: (c,)."""
        return self.layout.flat(called(self.module, self.parts(theta), taken(inputs, None)))[0]

    def row_values(self, theta: Tensor) -> Tensor:
        """ℓ_i of all rows: (n,)."""
        with torch.no_grad():
            parts = [self.rows.take(few) for few in self.rows.batches(TOGETHER)]
            return torch.cat([self.losses.values(self.outputs(theta, few), few.target) for few in parts])

    def outputs_at(self, points: Tensor, rows: Tensor) -> Tensor:
        """Outputs of some rows, each at a point of its own, flat: (b, c)."""
        inputs = taken(self.rows.inputs, rows)
        with torch.no_grad():
            return self.map(self.predict, (points, inputs), chunk=max(1, BUDGET // points.shape[1]))

    def values_of(self, flat: Tensor, rows: Tensor) -> Tensor:
        """ℓ of some rows with these outputs: (b,)."""
        few = self.rows.take(rows)
        with torch.no_grad():
            outputs = self.outputs(self.theta, few)  # for what the loss does not depend on
            return self.losses.values(self.layout.tree(flat, outputs), few.target)

    @cached_property
    def maps(self) -> bool:
        """Whether every operation of the module has a batching rule."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)
                vmap(jacrev(self.predict), in_dims=(None, 0))(self.theta, taken(self.rows.inputs, slice(2)))
        except REFUSALS:
            return False
        return True

    def map(self, f: Callable[..., Tensor], trees: tuple[Any, ...], chunk: int | None = None) -> Tensor:
        """Apply a function to every row: by ``vmap`` where the module allows it, else by a loop."""
        if self.maps:
            return vmap(f, chunk_size=chunk)(*trees)
        return looped(f, trees)

    # --- derivatives -----------------------------------------------------------------------------------

    def jacobian(self, rows: Tensor) -> Tensor:
        """Derivatives of the outputs of some rows in the parameters: (b, c, k)."""
        inputs = taken(self.rows.inputs, rows)
        return self.map(
            lambda x: jacobian_of(lambda t: self.predict(t, x), self.theta, self.maps), (inputs,), 64
        )

    def gradients(self, rows: Tensor) -> Tensor:
        """∇ℓ of some rows: (b, k)."""
        few = self.rows.take(rows)

        def one(inputs: Tree, target: Tree) -> Tensor:
            def value(theta: Tensor) -> Tensor:
                outputs = called(self.module, self.parts(theta), taken(inputs, None))
                return self.losses.values(outputs, taken(target, None))[0]

            return grad(value)(self.theta)

        return mapped(one, (few.inputs, few.target), chunk=max(1, BUDGET // len(self.theta)))

    def loss_derivatives(self) -> tuple[Tensor, Tensor]:
        """First two derivatives of ℓ in the outputs: (n, c), (n, c, c)."""
        parts = [self._derivatives(self.rows.take(few)) for few in self.rows.batches(TOGETHER)]
        first, second = zip(*parts, strict=True)
        return torch.cat(first), torch.cat(second)

    def _derivatives(self, rows: DataRows) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            outputs = self.outputs(self.theta, rows)
        flat = self.layout.flat(outputs).requires_grad_()
        value = self.losses.values(self.layout.tree(flat, outputs), rows.target).sum()
        try:
            (slopes,) = torch.autograd.grad(value, flat, create_graph=True)
            bends = [derivative(slopes[:, j].sum(), flat) for j in range(flat.shape[1])]
        except ONCE as error:
            raise UnsupportedModelError(
                f"the loss cannot be differentiated twice in the outputs ({error}), which steps of the "
                "weights ask for: take a smooth one"
            ) from error
        return slopes.detach(), torch.stack(bends, 1)

    # --- the objective ---------------------------------------------------------------------------------

    @property
    def total(self) -> float:
        """What the decay counts for: Σ b_i where the loss is a mean, else 1."""
        return float(self.shares.sum()) if self.mean else 1.0

    def check_twice_differentiable(self) -> None:
        """Refuse a loss without second derivatives, before anything is trained.

        Raises
        ------
        UnsupportedModelError
        """
        self._derivatives(self.rows.take(torch.arange(1, device=self.theta.device)))

    def leaving(self, rows: Tensor) -> Tensor:
        """Share of the decay that leaves with some rows: (b,)."""
        return self.shares[rows] if self.mean else torch.zeros_like(self.shares[rows])

    @property
    def leaving_share(self) -> Tensor:
        """The same for a row of mean share: ()."""
        total = self.shares.sum()
        return (self.shares**2).sum() / total if self.mean else torch.zeros_like(total)

    def without(self, rows: Tensor) -> Network:
        """The network with fewer rows."""
        kept = torch.ones_like(self.shares, dtype=torch.bool)
        kept[rows] = False
        index = torch.nonzero(kept)[:, 0]
        return replace(self, rows=self.rows.take(index), shares=self.shares[index])


def _copied(module: Any, loss: Any, device: torch.device) -> tuple[nn.Module, BatchLoss]:
    """Both in float64 on a device, the module in ``eval()`` mode."""
    trained_parameters(module)
    if not callable(loss):
        raise TypeError(f"loss must be a function of (output, y), got {loss!r}")
    if any(isinstance(p, nn.parameter.UninitializedParameter) for p in module.parameters()):
        raise ValueError("the module has lazy layers that have seen no data: train it first")
    own = copy.deepcopy(module).to(device=device, dtype=torch.float64).eval()
    return own, _loss_in_float64(loss, device)


def _loss_in_float64(loss: BatchLoss, device: torch.device) -> BatchLoss:
    if isinstance(loss, nn.Module):
        return copy.deepcopy(loss).to(device=device, dtype=torch.float64)
    return loss


def _check_several(shares: Tensor) -> None:
    """Refuse a single row with weight: nothing is left to train on without it."""
    count = int((shares > 0).sum())
    if count < 2:
        raise ValueError(
            f"leave-one-out needs at least 2 rows with weight to have some left to train on, there are "
            f"{count}: see sample_weight, and targets that the loss ignores"
        )


def _outputs(module: nn.Module, rows: DataRows) -> Tree:
    """Outputs of all rows.

    Raises
    ------
    ValueError
        If the module does not take the rows, or does not return one output a row.
    """
    try:
        with torch.no_grad():
            outputs = called(module, {}, rows.inputs)
    except FAILURES as error:
        raise ValueError(
            f"the module does not take these inputs ({_shapes(rows.inputs)}): {type(error).__name__}: {error}"
            ". Several inputs are a tuple, ((X1, X2), y), or a dict by argument name"
        ) from error
    for row in (0, len(rows) - 1):
        _check_alone(module, rows, outputs, row)
    return outputs


def _check_alone(module: nn.Module, rows: DataRows, outputs: Tree, row: int) -> None:
    """Refuse a module that says something else of a row alone than among the others."""
    try:
        with torch.no_grad():
            alone = called(module, {}, taken(rows.inputs, slice(row, row + 1)))
    except FAILURES as error:
        raise ValueError(
            f"the module takes all rows and not row {row} alone, {type(error).__name__}: {error}. {_ACROSS}"
        ) from error
    for leaf, one in zip(*(tree_flatten(tree)[0] for tree in (outputs, alone)), strict=True):
        if not isinstance(leaf, Tensor) or leaf.ndim == 0 or (len(leaf), len(one)) != (len(rows), 1):
            shape = tuple(leaf.shape) if isinstance(leaf, Tensor) else type(leaf).__name__
            raise ValueError(
                f"the module must return tensors with one entry a row ({len(rows)} of them), got {shape}: is "
                "it batch_first=True?"
            )
        if leaf.numel() and not _is_alike(leaf[row : row + 1], one, ALIKE * float(leaf.double().abs().max())):
            raise ValueError(
                f"the module returns something else for row {row} without the others of the batch. {_ACROSS}"
            )


def _is_alike(one: Tensor, other: Tensor, slack: float) -> bool:
    return torch.allclose(one.double(), other.double(), rtol=0.0, atol=slack, equal_nan=True)


def _shapes(tree: Tree) -> str:
    return ", ".join(f"{tuple(leaf.shape)} of {leaf.dtype}" for leaf in tree_flatten(tree)[0])


def _layout(losses: RowLosses, outputs: Tree, target: Tree) -> OutputLayout:
    """Find the parts of the outputs that the loss depends on."""
    leaves, spec = tree_flatten(outputs)
    leaves = [leaf.detach().requires_grad_(leaf.is_floating_point()) for leaf in leaves]
    value = losses.values(tree_unflatten(leaves, spec), target).sum()
    real = [k for k, leaf in enumerate(leaves) if leaf.requires_grad]
    if not value.requires_grad:
        raise ValueError("the loss does not depend on what the module returns: no row moves the weights")
    found = torch.autograd.grad(value, [leaves[k] for k in real], allow_unused=True)
    known = cast("tuple[Tensor | None, ...]", found)
    used = tuple(k for k, slope in zip(real, known, strict=True) if slope is not None)
    return OutputLayout(spec, used, tuple(leaves[k].shape[1:] for k in used))
