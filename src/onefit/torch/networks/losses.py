"""The loss of every row, from the loss of a batch.

A loss of a batch is Σ_i b_i ℓ_i or its mean Σ_i b_i ℓ_i / Σ_i b_i: a row's share b_i is 1, or the sum of the
class weights of its targets, 0 where all are ignored.
"""

from __future__ import annotations

import copy
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from onefit.torch.networks.data import Tree
from onefit.torch.networks.mapping import mapped
from onefit.torch.numerics.rows import check_scalar

TAKE_NUMBERS = nn.CrossEntropyLoss, nn.NLLLoss
# of a loss that does not take what it is given
FAILURES = RuntimeError, TypeError, IndexError, AssertionError
BatchLoss: TypeAlias = Callable[[Any, Any], Tensor]  # of outputs and targets


class RowLosses(ABC):
    """Losses and shares of rows."""

    @abstractmethod
    def values(self, outputs: Tree, target: Tree) -> Tensor:
        """ℓ_i, 0 where the share is: (n,)."""

    def shares(self, outputs: Tree, target: Tree) -> Tensor:
        """b_i: (n,)."""
        return torch.ones_like(self.values(outputs, target))


@dataclass(frozen=True)
class Alone(RowLosses):
    """Any function of a batch, called for each row on its own."""

    loss: BatchLoss

    def values(self, outputs: Tree, target: Tree) -> Tensor:
        def one(output: Tree, y: Tree) -> Tensor:
            value = self.loss(tree_map(lambda leaf: leaf[None], output), tree_map(lambda leaf: leaf[None], y))
            check_scalar("the loss of a batch (take reduction='mean' or 'sum')", value.reshape(()))
            return value.reshape(())

        return mapped(one, (outputs, target))


@dataclass(frozen=True)
class Elementwise(RowLosses):
    """A loss of PyTorch that knows the losses of its elements: ``reduction="none"``."""

    elements: BatchLoss
    divided: bool  # by the number of elements of a row

    def values(self, outputs: Tree, target: Tree) -> Tensor:
        losses = self.elements(outputs, target)
        rows = losses.reshape(len(losses), -1)
        return rows.mean(1) if self.divided else rows.sum(1)


@dataclass(frozen=True)
class ClassWeighted(RowLosses):
    """Cross-entropy or negative log-likelihood of class numbers: weights of classes, ignored targets."""

    elements: BatchLoss
    weight: Tensor | None
    ignore_index: int

    def values(self, outputs: Tree, target: Tree) -> Tensor:
        losses = self.elements(outputs, target)
        shares = self.shares(outputs, target)
        return losses.reshape(len(losses), -1).sum(1) / torch.where(shares > 0, shares, 1.0)

    def shares(self, outputs: Tree, target: Tree) -> Tensor:
        held = target != self.ignore_index
        weights = torch.ones_like(target, dtype=torch.float64)
        if self.weight is not None:
            weights = self.weight.double()[torch.where(held, target, 0)]
        return (weights * held).reshape(len(target), -1).sum(1)


def row_losses(loss: Any, target: Tree) -> tuple[RowLosses, ...]:
    """What the losses of rows may be, the most likely first: which of them it is, the batch tells."""
    reduction = getattr(loss, "reduction", None)
    if not isinstance(loss, nn.Module) or reduction not in ("mean", "sum", "batchmean"):
        return (Alone(loss),)
    elements: Any = copy.deepcopy(loss)
    elements.reduction = "none"
    numbered = isinstance(target, Tensor) and not target.is_floating_point()
    if numbered and reduction == "mean" and isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss):
        return ClassWeighted(elements, loss.weight, loss.ignore_index), Alone(loss)
    # of a sum a row's loss is its whole part; of probabilities of classes there is a mean over rows
    return Elementwise(elements, divided=reduction == "mean"), Alone(loss)


def _check_shapes(loss: BatchLoss, outputs: Tree, target: Tree) -> None:
    """Refuse a loss of elements that would hold every output against every target."""
    kind = row_losses(loss, target)[0]
    if not isinstance(kind, Elementwise) or not (isinstance(outputs, Tensor) and isinstance(target, Tensor)):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own, of the same
        try:
            elements = kind.elements(outputs, target)
        except (*FAILURES, ValueError):
            return  # the loss of the batch says why
    if elements.numel() > max(outputs.numel(), target.numel()):
        raise ValueError(
            f"the loss holds every output against every target: the module returns {tuple(outputs.shape)} "
            f"and y is {tuple(target.shape)}; give both one shape, as y[:, None] does"
        )


def check_targets(loss: BatchLoss, outputs: Tree, target: Tree) -> None:
    """Refuse targets that a loss of PyTorch takes for something else, or not at all.

    Raises
    ------
    TypeError, ValueError
    """
    if not (isinstance(outputs, Tensor) and isinstance(target, Tensor)):
        return
    if type(loss) in (nn.BCEWithLogitsLoss, nn.BCELoss):  # others may do as they like
        _check_shares(type(loss).__name__, target)
    if (
        isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss)
        and type(loss) in TAKE_NUMBERS
        and outputs.ndim == 2
    ):
        _check_numbers(type(loss).__name__, loss.ignore_index, outputs.shape[1], target)
    if not target.is_floating_point():
        _check_whole(loss, outputs, target)


def _check_whole(loss: BatchLoss, outputs: Tensor, target: Tensor) -> None:
    """Refuse whole numbers and truths where the loss, or its derivatives, are those of floats only."""
    few, y = outputs[:2], target[:2]
    if not _is_taken(loss, few, y) and _is_taken(loss, few, y.to(outputs)):
        name = type(loss).__name__ if isinstance(loss, nn.Module) else "the loss"
        raise TypeError(f"y holds {target.dtype}, and {name} takes floats: pass y.astype(float)")


def _is_taken(loss: BatchLoss, outputs: Tensor, target: Tensor) -> bool:
    """Whether a loss has a value and derivatives, a second one too, if it depends on outputs in this way."""
    try:
        at = outputs.detach().requires_grad_()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of shapes: they are checked on their own
            (slope,) = torch.autograd.grad(loss(at, target).sum(), at, create_graph=True)
            if slope.requires_grad:
                torch.autograd.grad(slope.sum(), at)
    except (*FAILURES, ValueError, AttributeError):
        return False
    return True


def _check_shares(name: str, target: Tensor) -> None:
    if not target.is_floating_point():
        raise TypeError(f"y holds {target.dtype}, and {name} takes floats: pass y.astype(float)")
    outside = torch.nonzero((target < 0) | (target > 1))
    if len(outside):
        wrong = float(target[tuple(outside[0])])
        raise ValueError(f"{name} takes y from 0 to 1, and row {int(outside[0][0])} has {wrong:.4g}")


def _check_numbers(name: str, ignored: int, classes: int, target: Tensor) -> None:
    if classes == 1:
        raise ValueError(
            f"the module has one output, and {name} of a single class is 0 whatever it is: return an output "
            "for each class, or take BCEWithLogitsLoss()"
        )
    if target.ndim == 2 and target.shape[1] == 1:
        raise ValueError(
            f"y has the shape {tuple(target.shape)}, and {name} takes one number a row: pass y[:, 0]"
        )
    if target.ndim != 1:  # probabilities of classes
        return
    if target.is_floating_point() or target.dtype == torch.bool:
        raise TypeError(f"y holds {target.dtype}, and {name} takes numbers of classes: pass y.astype(int)")
    wrong = torch.nonzero(((target < 0) | (target >= classes)) & (target != ignored))
    if len(wrong):
        row = int(wrong[0])
        raise ValueError(
            f"y is {int(target[row])} in row {row}, and the module has {classes} outputs: number classes "
            f"from 0 to {classes - 1}"
        )


def read_losses(loss: BatchLoss, outputs: Tree, target: Tree) -> tuple[RowLosses, bool]:
    """Find the losses of rows, and whether the loss of a batch is their mean.

    Raises
    ------
    ValueError
        If it is neither their mean nor their sum, or not finite.
    """
    _check_shapes(loss, outputs, target)
    batch = _of_batch(loss, outputs, target)
    for kind in row_losses(loss, target):
        try:
            rows, shares = kind.values(outputs, target), kind.shares(outputs, target)
        except (RuntimeError, IndexError, ValueError):
            continue
        mean = float((shares * rows).sum() / shares.sum())
        total = float((shares * rows).sum())
        slack = 1e-6 * float((shares * rows).abs().sum()) + 1e-12
        if abs(float(batch) - mean) <= slack / len(rows):
            return kind, True
        if abs(float(batch) - total) <= slack:
            return kind, False
    raise ValueError(_neither(loss, outputs, target, float(batch)))


def check_losses(loss: BatchLoss, losses: RowLosses, outputs: Tree, target: Tree) -> None:
    """Refuse rows that are no more than judged by a loss where it does not take them.

    Raises
    ------
    TypeError, ValueError
    """
    check_targets(loss, outputs, target)
    _check_shapes(loss, outputs, target)
    _of_batch(loss, outputs, target)
    check_finite(losses, outputs, target)


def check_finite(losses: RowLosses, outputs: Tree, target: Tree) -> None:
    """Refuse losses of rows that are not finite."""
    wrong = torch.nonzero(~torch.isfinite(losses.values(outputs, target)))
    if len(wrong):
        raise ValueError(f"the loss of row {int(wrong[0])} is not finite at the given weights")


def _of_batch(loss: BatchLoss, outputs: Tree, target: Tree) -> Tensor:
    """The loss of a batch, one number."""
    try:
        batch = loss(outputs, target)
    except FAILURES as error:
        raise TypeError(f"the loss fails on the outputs and y, {error}: {_advice(error)}") from error
    check_scalar("the loss of a batch (take reduction='mean' or 'sum')", batch)
    return batch


def _advice(error: Exception) -> str:
    if isinstance(error, RuntimeError):
        return (
            "outputs are in float64 here, as tensors of its own must be (weight.double()); a loss that is an "
            "nn.Module is taken to float64 as it is"
        )
    if isinstance(error, TypeError):
        return (
            "it is called with what the module returns and y; where it takes more, as GaussianNLLLoss does, "
            "give a function of both, such as lambda out, y: loss(out[:, 0], y, out[:, 1].exp())"
        )
    return "see that y has the shape and the values that it takes"


def _neither(loss: BatchLoss, outputs: Tree, target: Tree, batch: float) -> str:
    rows = Alone(loss).values(outputs, target)
    wrong = torch.nonzero(~torch.isfinite(rows))
    if len(wrong):
        return f"the loss of row {int(wrong[0])} is not finite at the given weights"
    return (
        f"the loss of all rows is {batch:.6g}, which is neither the mean, {float(rows.mean()):.6g}, nor the "
        f"sum, {float(rows.sum()):.6g}, of the losses of the rows: no row can be left out of it. Class "
        "weights and ignored targets are read from nn.CrossEntropyLoss and nn.NLLLoss; for others give "
        "sample_weight"
    )
