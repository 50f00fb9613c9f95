"""The rows of a network, as people have them: pairs, data sets, loaders, several inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_flatten, tree_flatten_with_path, tree_map, tree_unflatten
from torch.utils.data import DataLoader, default_collate

from onefit.torch.numerics.loaders import in_order
from onefit.torch.numerics.rows import as_rows

Tree: TypeAlias = Any  # a tensor, or a tuple, list or dict of them
READ = 256  # rows of a data set that are collated at a time


@dataclass(frozen=True, eq=False)
class DataRows:
    """Inputs and targets of n rows.

    Attributes
    ----------
    inputs, target : trees of tensors
        Rows along the first axis of each.
    """

    inputs: Tree
    target: Tree

    def __len__(self) -> int:
        return len(tree_flatten(self.target)[0][0])

    @property
    def device(self) -> torch.device:
        return tree_flatten(self.target)[0][0].device

    def take(self, rows: Tensor) -> DataRows:
        """Some of the rows."""
        return DataRows(taken(self.inputs, rows), taken(self.target, rows))

    def batches(self, size: int) -> Iterator[Tensor]:
        """Row numbers, so many at a time."""
        yield from torch.split(torch.arange(len(self), device=self.device), size)


def taken(tree: Tree, rows: Any) -> Tree:
    """Some rows of a tree of tensors; with None, the tensors of a row as a batch of one."""
    return tree_map(lambda leaf: leaf[rows], tree)


def called(module: nn.Module, parts: dict[str, Tensor], inputs: Tree) -> Any:
    """Output of a module with other parameters: a tuple is several arguments, a dict arguments by name."""
    if isinstance(inputs, Mapping):
        return functional_call(module, parts, (), dict(inputs))
    return functional_call(module, parts, tuple(inputs) if isinstance(inputs, tuple) else (inputs,))


def read_rows(data: Any, device: torch.device, least: int = 2) -> DataRows:
    """Read rows from what a user has.

    Parameters
    ----------
    data : (inputs, target), Dataset, list of pairs, or DataLoader
        ``inputs`` is an array, a tuple of them (several arguments) or a dict (arguments by name).  Data sets
        yield (input, …, target).
    device : torch.device
    least : int, default 2
        Number of rows: 2 where they are to be left out, 1 where they are judged only.

    Raises
    ------
    TypeError, ValueError
    """
    inputs, target = _parts(data)
    rows = DataRows(_checked("X", inputs, device, least), _checked("y", target, device, least))
    n = len(rows)
    for path, leaf in tree_flatten_with_path((rows.inputs, rows.target))[0]:
        if len(leaf) != n:
            raise ValueError(f"{_name('X', path[1:])} has {len(leaf)} rows, y has {n}")
    return rows


def _checked(name: str, tree: Tree, device: torch.device, least: int) -> Tree:
    """Every array of a tree as a tensor."""
    tree = tuple(tree) if isinstance(tree, list) and tree and hasattr(tree[0], "shape") else tree
    if not isinstance(tree, tuple | Mapping):
        return as_rows(name, tree, device, least)
    leaves, layout = tree_flatten_with_path(dict(tree) if isinstance(tree, Mapping) else tree)
    rows = [as_rows(_name(name, path), leaf, device, least) for path, leaf in leaves]
    return tree_unflatten(rows, layout)


def _name(name: str, path: Any) -> str:
    return name + "".join(str(key) for key in path)


def _parts(data: Any) -> tuple[Tree, Tree]:
    """Inputs and target of all rows."""
    if isinstance(data, DataLoader):
        return _joined(_batches_of_loader(data))
    if isinstance(data, Mapping):
        raise TypeError(
            f"data is a dict of {', '.join(map(repr, data))}: give (X, y), or ({{'x1': …, 'x2': …}}, y) "
            "where the module takes several inputs by name"
        )
    if isinstance(data, list) and data and all(isinstance(row, tuple | list | Mapping) for row in data):
        return _joined(_batches_of(data))
    if isinstance(data, tuple | list):
        if len(data) != 2:
            raise ValueError(
                f"data must be (X, y), a Dataset or a DataLoader, got {len(data)} parts: several inputs go "
                "into a tuple of their own, ((X1, X2), y)"
            )
        return data[0], data[1]
    if not (hasattr(data, "__getitem__") and hasattr(data, "__len__")):
        raise TypeError(f"data must be (X, y), a Dataset with a length, or a DataLoader, got {data!r}")
    return _joined(_batches_of(data))


def _batches_of(data: Any) -> Iterator[Any]:
    for first in range(0, len(data), READ):
        rows = [data[i] for i in range(first, min(first + READ, len(data)))]
        try:
            yield default_collate(rows)
        except (RuntimeError, TypeError) as error:
            raise ValueError(
                f"rows {first} to {first + len(rows) - 1} cannot be stacked: {error}; pad them to one shape, "
                "or give a DataLoader whose collate_fn does"
            ) from error


def _batches_of_loader(loader: DataLoader[Any]) -> Iterator[Any]:
    """Batches in the order of the data set; a stream is read once, as it comes."""
    yield from in_order(loader, loader.batch_size or READ)


def _joined(batches: Iterator[Any]) -> tuple[Tree, Tree]:
    """Put batches together: the last part of each is the target."""
    read = list(batches)
    if not read:
        raise ValueError("the data hold no rows")
    for batch in read:
        if not isinstance(batch, tuple | list) or len(batch) < 2:
            raise ValueError(
                f"the data yield {type(batch).__name__}, where pairs (input, target) are needed: the target "
                "tells the loss, so return it beside the inputs, as (row['x'], row['y'])"
            )
    inputs = [batch[0] if len(batch) == 2 else tuple(batch[:-1]) for batch in read]
    return _stacked("X", inputs), _stacked("y", [batch[-1] for batch in read])


def _stacked(name: str, trees: list[Tree]) -> Tree:
    leaves = [tree_flatten(tree)[0] for tree in trees]
    layout = tree_flatten(trees[0])[1]
    try:
        return tree_unflatten([torch.cat(part) for part in zip(*leaves, strict=True)], layout)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            f"the batches of {name} do not fit together: {error}; pad all rows to one length"
        ) from error
