"""Balanced Monte-Carlo splits."""

from __future__ import annotations

import numpy as np

from onefit._typing import Index, Mask

FEWEST_OF_EACH = 5  # rows of each class that has them


def balanced_splits(
    n: int, n_splits: int, train_size: float, rng: np.random.Generator, classes: Index | None = None
) -> Mask:
    """Draw splits that hold every row out equally often, within one.

    Source: the 2019 paper, section 4, "sampling of cross-validation splits uniform".  No split takes the last
    training row of a class; where the classes are so small, fewer rows are held out.

    Parameters
    ----------
    n : int
    n_splits : int
    train_size : float
        Share of the rows to train on; at least one row is held out, and at least one is not.
    rng : numpy.random.Generator
    classes : (n,) int array, optional

    Returns
    -------
    (n_splits, n) bool array
        True where held out.

    Raises
    ------
    ValueError
        If every row is alone in its class.
    """
    labels = np.zeros(n, dtype=np.intp) if classes is None else classes
    spare = n - len(np.unique(labels))
    if spare == 0:
        raise ValueError(
            f"every one of {n} rows is alone in its class, so that none can be held out: add rows"
        )
    size = min(max(1, round(n * (1 - train_size))), spare)
    held, times = np.zeros((n_splits, n), dtype=bool), np.zeros(n, dtype=np.intp)
    for split in held:
        order = np.lexsort((rng.random(n), times))
        chosen = order[_rank_within(labels[order]) < (np.bincount(labels) - 1)[labels[order]]][:size]
        split[chosen] = True
        times[chosen] += 1
    return held


def _rank_within(labels: Index) -> Index:
    """Number of earlier rows with the same label: (n,)."""
    same = labels[:, None] == np.arange(labels.max() + 1)
    return same.cumsum(0)[np.arange(len(labels)), labels] - 1


def some_of_each(labels: Index, size: int) -> Index:
    """Rows drawn from each class in proportion to its size, always the same: sorted row numbers.

    Parameters
    ----------
    labels : (n,) int array
    size : int
        About as many in all, and some of each class; every row if there are no more.
    """
    if size >= len(labels):
        return np.arange(len(labels))
    rng, chosen = np.random.default_rng(0), []
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        count = min(len(rows), max(FEWEST_OF_EACH, round(size * len(rows) / len(labels))))
        chosen.append(rng.choice(rows, count, replace=False))
    return np.sort(np.concatenate(chosen))
