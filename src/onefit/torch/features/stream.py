"""Embeddings that do not fit into memory: rows that a frozen module makes of a loader, block by block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from onefit._typing import Array
from onefit.blocks import block_length
from onefit.sources import GeneratedSource
from onefit.torch.features.embedding import Features, embedded_batches
from onefit.torch.numerics.rows import as_device, check_counts

DONE = "complete"  # name of the file that says that a folder holds all blocks


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
        done, count = folder / DONE, 0

        def file(name: str, number: int) -> Path:
            return folder / f"{name}_{number:06d}.npy"

        if done.exists():
            yield from ((np.load(file("X", k)), np.load(file("y", k))) for k in range(int(done.read_text())))
            return
        for X, y in self._blocks():
            np.save(file("X", count), X)
            np.save(file("y", count), y)
            count += 1
            yield X, y
        done.write_text(str(count))

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
        not given it runs in every pass, of which there are two to four.
    batch_size, device, autocast
        As in ``LeaveOneOutHead``.

    Returns
    -------
    onefit.sources.GeneratedSource

    Raises
    ------
    ValueError
        If there are no targets, or features are not finite.

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
    check_counts(batch_size=batch_size)
    folder = None if keep is None else Path(keep)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    how = {"batch_size": batch_size, "device": as_device(device), "autocast": autocast}
    return GeneratedSource(_Embedded(module, data, how, folder))
