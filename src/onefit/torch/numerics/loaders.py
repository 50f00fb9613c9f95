"""The rows that a loader draws, each once and in the order of its data set."""

from __future__ import annotations

from itertools import chain
from typing import Any

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
)


def in_order(loader: DataLoader[Any], size: int) -> DataLoader[Any]:
    """A loader of the same rows, so many in a batch; a stream as it comes.

    That it shuffles is undone, and no row of a last batch is dropped: leaving out needs each row once.

    Raises
    ------
    ValueError
        If it draws some row more than once.
    """
    if isinstance(loader.dataset, IterableDataset):
        return loader
    rows = _drawn(loader)
    data = loader.dataset if rows is None else Subset(loader.dataset, rows)
    return DataLoader(data, batch_size=size, collate_fn=loader.collate_fn)


def _drawn(loader: DataLoader[Any]) -> list[int] | None:
    """Numbers of the rows that a loader draws; None for all of them."""
    batches = loader.batch_sampler  # which may have a sampler that is not the loader's
    by_batch = batches is not None and type(batches) is not BatchSampler
    sampler: Any = batches if by_batch else getattr(batches, "sampler", loader.sampler)
    count = len(loader.dataset)  # type: ignore[arg-type]  # a data set of rows that have numbers
    if isinstance(sampler, SequentialSampler) or (
        isinstance(sampler, RandomSampler) and not sampler.replacement and sampler.num_samples == count
    ):
        return None
    drawn: Any = sampler.indices if isinstance(sampler, SubsetRandomSampler) else sampler
    rows = sorted(int(row) for row in (chain.from_iterable(drawn) if by_batch else drawn))
    if len(set(rows)) < len(rows):
        raise ValueError(
            f"the loader draws rows more than once, by {type(sampler).__name__}: give the data set, or "
            "torch.utils.data.Subset of the rows that count, and weights as sample_weight"
        )
    return None if rows == list(range(count)) else rows
