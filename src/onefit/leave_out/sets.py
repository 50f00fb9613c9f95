"""Sets of rows that leave together, and the rows that are judged without them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from onefit._typing import Array, Index


@dataclass(frozen=True, eq=False)
class Folds:
    """Sets of rows that leave together.

    Attributes
    ----------
    removed : tuple of int arrays
        Rows that are not in the training set of each fold.
    tested : tuple of int arrays
        Rows that are judged there: some or all of the removed ones.
    n : int
        Number of rows of the data.

    Raises
    ------
    ValueError
        If there is no fold, or one has no training or no test rows, or rows that do not exist or occur
        twice, or tests rows that it trains on.

    Examples
    --------
    >>> import numpy as np
    >>> rows = (np.array([0, 1, 2]), np.array([3, 4]))
    >>> folds = Folds(rows, rows, 5)
    >>> folds.rows, folds.fold, folds.is_partition
    (array([0, 1, 2, 3, 4]), array([0, 0, 0, 1, 1]), True)
    """

    removed: tuple[Index, ...]
    tested: tuple[Index, ...]
    n: int

    def __post_init__(self) -> None:
        if not self.removed:
            raise ValueError("there is no fold: give at least one split into training and test rows")
        for k, (removed, tested) in enumerate(zip(self.removed, self.tested, strict=True)):
            _check_fold(k, removed, tested, self.n)

    def __len__(self) -> int:
        return len(self.removed)

    @cached_property
    def rows(self) -> Index:
        """Tested rows of all folds, one fold after the other: (t,)."""
        return np.concatenate(self.tested)

    @cached_property
    def fold(self) -> Index:
        """Number of the fold of each of ``rows``: (t,)."""
        return np.repeat(np.arange(len(self)), [len(tested) for tested in self.tested])

    @cached_property
    def ends(self) -> Index:
        """Where the rows of each fold end in ``rows``: (folds,)."""
        return np.cumsum([len(tested) for tested in self.tested])

    @cached_property
    def is_partition(self) -> bool:
        """Whether every row is tested exactly once."""
        return len(self.rows) == self.n and len(np.unique(self.rows)) == self.n


def _check_fold(k: int, removed: Index, tested: Index, n: int) -> None:
    for name, rows in (("removed", removed), ("tested", tested)):
        if rows.size and (rows.min() < 0 or rows.max() >= n):
            raise ValueError(f"fold {k} has {name} rows outside 0 … {n - 1}")
        if len(np.unique(rows)) < rows.size:
            raise ValueError(f"fold {k} has {name} rows that occur more than once")
    if tested.size == 0:
        raise ValueError(f"fold {k} has no test rows")
    if removed.size == n:
        raise ValueError(f"fold {k} has no training rows: nothing is left to fit")
    both = np.setdiff1d(tested, removed)
    if both.size:
        raise ValueError(f"fold {k} tests rows that it is trained on, such as row {both[0]}")


def removed_share(folds: Folds, weights: Array) -> Array:
    """Σ of the weights that each fold removes, over that of all: (folds,).

    Raises
    ------
    ValueError
        If all rows that are left have weight zero.
    """
    leaving = np.array([weights[rows].sum() for rows in folds.removed])
    held = np.count_nonzero(weights)
    for k, rows in enumerate(folds.removed):
        if np.count_nonzero(weights[rows]) == held:
            raise ValueError(f"fold {k} removes all rows of positive weight: nothing is left to fit")
    return leaving / weights.sum()
