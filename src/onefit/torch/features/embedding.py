"""Features of a frozen module, in batches: held in memory, or block by block."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from onefit import cost
from onefit._typing import Array, Index
from onefit._whole_file import whole_file
from onefit.blocks import block_length
from onefit.blocks.rows import Rows
from onefit.sources import GeneratedSource
from onefit.torch.numerics.devices import as_device, on_host
from onefit.torch.numerics.identity import digest_of
from onefit.torch.numerics.loaders import in_order
from onefit.torch.numerics.rows import evaluating
from onefit.validation import check_count

INSTEAD = (
    "fit RidgeLOO or LogisticLOO on onefit.torch.embedded_rows(module, data), which holds a block at a time"
)
DONE = "complete"  # name of the file that says how many blocks a folder holds, and of what
LOOKED_AT = 16  # rows that tell whether data are those whose features a folder holds
COPIES = 3  # of the features that a head needs: as they came, scaled, and what it works with


class Features(NamedTuple):
    """Features of some rows.

    Attributes
    ----------
    X : (n, d) array
    layers : (d,) int array
        Which part of what the module returned each comes from.
    y : array or None
        Targets, where the data brought them.
    """

    X: Array
    layers: Index
    y: Any = None


def read_features(module: nn.Module | None, X: Any, y: Any, how: dict[str, Any]) -> Features:
    """Features and targets of the training rows.

    Raises
    ------
    ValueError
        If there are no targets, or not as many as rows, or a feature is not finite.
    """
    found = embedded(module, X, **how)
    target = found.y if y is None else y
    if target is None:
        raise ValueError("there are no targets: give y, or data that yield (input, target)")
    target = np.asarray(on_host(target))
    if len(target) != len(found.X):
        raise ValueError(f"X has {len(found.X)} rows, y has {len(target)}")
    return found._replace(y=target[:, 0] if target.shape[1:] == (1,) else target)


def embedded(
    module: nn.Module | None, X: Any, *, batch_size: int, device: torch.device, autocast: torch.dtype | None
) -> Features:
    """Run a module over rows, a batch at a time, without gradients, in ``eval()`` mode.

    Raises
    ------
    TypeError
        For a source of blocks.
    ValueError
        If the module does not return numbers for each row, or they are not finite, or all features together
        do not fit into memory.
    """
    if isinstance(X, Rows):
        raise TypeError(f"features are held in memory here, and X is a source of blocks: {INSTEAD}")
    read = list[Features]()
    for batch in embedded_batches(module, X, batch_size=batch_size, device=device, autocast=autocast):
        if not read:
            _check_room(X, batch.X.shape[1])
        read.append(batch)
    if not read:
        raise ValueError("there are no rows")
    stacked = np.concatenate([batch.X for batch in read])
    targets = [batch.y for batch in read if batch.y is not None]
    return Features(stacked, read[0].layers, np.concatenate(targets) if targets else None)


class FlatParts(nn.Module):
    """What a module returns, a tensor for all or a tuple or dict of them, as (b, d)."""

    def forward(self, outputs: Any) -> Tensor:
        """Put the parts next to each other in the order in which they are read as features."""
        leaves: list[Tensor] = tree_flatten(outputs)[0]
        return torch.cat([leaf.reshape(len(leaf), -1) for leaf in leaves], dim=1)


def _check_room(X: Any, width: int) -> None:
    """Refuse features that do not fit into memory, before the module runs over all rows."""
    data = X.dataset if isinstance(X, DataLoader) else X
    rows = data if isinstance(data, Dataset) else tree_flatten(data)[0][0]
    n = len(rows) if isinstance(rows, Sized) else 0
    needed, room = COPIES * 8.0 * n * width, cost.memory()
    if needed > room:
        raise ValueError(
            f"{n} rows of {width} features take {needed / 2**30:.0f} GiB of the {room / 2**30:.0f} "
            f"there are: {INSTEAD}"
        )


def embedded_batches(
    module: nn.Module | None, X: Any, *, batch_size: int, device: torch.device, autocast: torch.dtype | None
) -> Iterator[Features]:
    """The same, batch by batch.

    Raises
    ------
    ValueError
    """
    place, before = device if module is not None else torch.device("cpu"), 0
    with _running(module, place), torch.no_grad():
        precise = nullcontext() if autocast is None else torch.autocast(place.type, autocast)
        for inputs, target in _batches(X, batch_size):
            moved = tree_map(lambda leaf: _for(module, leaf, place), inputs)
            with precise:
                outputs = moved if module is None else _called(module, moved)
            n = len(tree_flatten(inputs)[0][0])
            parts = [_rows(leaf, n) for leaf in tree_flatten(outputs)[0]]
            layers = np.repeat(np.arange(len(parts)), [part.shape[1] for part in parts])
            stacked = np.concatenate(parts, axis=1)
            wrong = np.flatnonzero(~np.isfinite(stacked).all(axis=1))
            if wrong.size:
                raise ValueError(
                    f"the features of row {before + wrong[0]} are not finite ({wrong.size} rows of its batch)"
                )
            before += n
            yield Features(stacked, layers, None if target is None else np.asarray(on_host(target)))


@contextmanager
def _running(module: nn.Module | None, device: torch.device) -> Iterator[None]:
    """A module on a device in ``eval()`` mode for a while, then as it was."""
    if module is None:
        yield
        return
    like = next(module.parameters(), None)
    before = device if like is None else like.device
    with evaluating(module.to(device)):
        try:
            yield
        finally:
            module.to(before)


def _for(module: nn.Module | None, leaf: Any, device: torch.device) -> Tensor:
    """A tensor as the module takes it: on its device, real numbers in its precision."""
    tensor = leaf if isinstance(leaf, Tensor) else torch.as_tensor(np.array(leaf))
    like = None if module is None else next(module.parameters(), None)
    real = tensor.is_floating_point() and like is not None and like.is_floating_point()
    return tensor.to(device, like.dtype) if real and like is not None else tensor.to(device)


def _called(module: nn.Module, inputs: Any) -> Any:
    if isinstance(inputs, dict):
        return module(**inputs)
    return module(*inputs) if isinstance(inputs, tuple | list) else module(inputs)


def _rows(leaf: Any, n: int) -> Array:
    """What was returned for a batch as (n, ·) in double precision."""
    if not isinstance(leaf, Tensor) or leaf.ndim == 0 or len(leaf) != n:
        shape = tuple(leaf.shape) if isinstance(leaf, Tensor) else type(leaf).__name__
        raise ValueError(f"the features must be tensors with one entry for each of {n} rows, got {shape}")
    rows: Array = leaf.reshape(n, -1).double().cpu().numpy()
    return rows


def _batches(X: Any, size: int) -> Iterator[tuple[Any, Any]]:
    """Inputs and targets, or None, of so many rows at a time, in order."""
    if isinstance(X, DataLoader):
        yield from (_pair(batch) for batch in in_order(X, size))
    elif isinstance(X, Dataset):
        loader = DataLoader(X, batch_size=size, collate_fn=default_collate)
        yield from (_pair(batch) for batch in loader)
    else:
        X = np.asarray(X) if isinstance(X, list) else X
        leaves = tree_flatten(X)[0] if isinstance(X, tuple | dict) else [X]
        if len({len(leaf) for leaf in leaves}) != 1:
            raise ValueError(f"the inputs have different numbers of rows: {[len(leaf) for leaf in leaves]}")
        for first in range(0, len(leaves[0]), size):
            yield _cut(X, slice(first, first + size)), None


def _cut(X: Any, rows: slice) -> Any:
    return tree_map(lambda leaf: leaf[rows], X) if isinstance(X, tuple | dict) else X[rows]


def _pair(batch: Any) -> tuple[Any, Any]:
    """Input and target of a batch, which may lack one."""
    if not isinstance(batch, tuple | list) or len(batch) < 2:
        return (batch[0] if isinstance(batch, tuple | list) else batch), None
    return (batch[0] if len(batch) == 2 else tuple(batch[:-1])), batch[-1]


# --- block by block ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Embedded:
    """Makes the blocks anew each time it is called, or reads them where they were kept."""

    module: nn.Module | None
    data: Any
    how: dict[str, Any]
    keep: Path | None

    def __call__(self) -> Iterator[tuple[Array, Array]]:
        yield from self._blocks() if self.keep is None else self._kept(self.keep)

    def _kept(self, folder: Path) -> Iterator[tuple[Array, Array]]:
        """Blocks that were written before, or are written now."""
        done, count, digest = folder / DONE, 0, self._digest

        def file(name: str, number: int) -> Path:
            return folder / f"{name}_{number:06d}.npy"

        if done.exists():
            blocks, kept = done.read_text().split()
            if kept != digest:
                raise ValueError(
                    f"keep={str(folder)!r} holds features of another module or of other rows: take another "
                    "folder, or remove it"
                )
            yield from ((np.load(file("X", k)), np.load(file("y", k))) for k in range(int(blocks)))
            return
        for X, y in self._blocks():
            np.save(file("X", count), X)
            np.save(file("y", count), y)
            count += 1
            yield X, y
        with whole_file(done) as whole:
            whole.write(f"{count} {digest}".encode())

    @cached_property
    def _digest(self) -> str:
        """What tells the module and the data from others: weights, and some rows."""
        rows: Any = in_order(self.data, 1).dataset if isinstance(self.data, DataLoader) else self.data
        if isinstance(rows, IterableDataset) or not hasattr(rows, "__len__"):
            return digest_of(self.module, str(self.how["autocast"]))
        count = len(rows)
        some = [rows[k] for k in np.unique(np.linspace(0, count - 1, LOOKED_AT).astype(int)).tolist()]
        return digest_of(self.module, str(self.how["autocast"]), count, some)

    def _blocks(self) -> Iterator[tuple[Array, Array]]:
        """Batches put together to blocks of a size that is worth a call."""
        held: list[Features] = []
        for batch in embedded_batches(self.module, self.data, **self.how):
            if batch.y is None:
                raise ValueError("there are no targets: the data must yield (input, target)")
            held.append(batch)
            if sum(len(one.X) for one in held) >= block_length(batch.X.shape[1]):
                yield _joined(held)
                held = []
        if held:
            yield _joined(held)


def _joined(held: list[Features]) -> tuple[Any, Array]:
    X = np.concatenate([one.X for one in held]).astype(np.float32)
    return X, np.concatenate([np.asarray(one.y) for one in held])


def embedded_rows(
    module: nn.Module | None,
    data: Any,
    *,
    keep: Any = None,
    batch_size: int = 256,
    device: str | torch.device = "cpu",
    autocast: torch.dtype | None = None,
) -> GeneratedSource:
    """Features of a frozen module as a source of rows, for any estimator that is fitted block by block.

    Memory holds one block, in single precision, however many rows there are:
    ``RidgeLOO().fit(embedded_rows(backbone, loader))``.

    Parameters
    ----------
    module : nn.Module or None
        The backbone, in ``eval()`` mode; None where the data are features.
    data : Dataset or DataLoader
        Yields (input, target), in the same order each time it is gone over.
    keep : path of a folder, optional
        Where the features are written, so that the module runs over the rows once.  If
        not given it runs in every pass, of which there are two to four.  A folder that holds features
        already serves the same module, weights included, and the same rows, of which some are looked at
        (none of a stream).
    batch_size, device, autocast
        As in ``LeaveOneOutHead``.

    Returns
    -------
    onefit.sources.GeneratedSource

    Raises
    ------
    ValueError
        If there are no targets, features are not finite, or ``keep`` holds those of another module or of
        other rows.

    Examples
    --------
    >>> import torch
    >>> from torch.utils.data import TensorDataset
    >>> from onefit import RidgeLOO
    >>> from onefit.torch import embedded_rows
    >>> _ = torch.manual_seed(0)
    >>> X = torch.randn(400, 3)
    >>> backbone = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh())
    >>> rows = embedded_rows(backbone, TensorDataset(X, X[:, 0].sin()))
    >>> RidgeLOO().fit(rows).coef_.shape
    (8,)
    """
    check_count("batch_size", batch_size)
    folder = None if keep is None else Path(keep)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    how = {"batch_size": batch_size, "device": as_device(device), "autocast": autocast}
    return GeneratedSource(_Embedded(module, data, how, folder))
