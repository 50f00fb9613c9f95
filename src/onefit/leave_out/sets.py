"""Sets of rows that leave together, and the rows that are judged without them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from onefit._typing import Array, Index, Mask, Sets
from onefit.problem import members


@dataclass(frozen=True, eq=False)
class Folds:
    """Sets of rows that leave together.

    Attributes
    ----------
    removed : tuple of int arrays, or (folds, b) int array
        Rows that are not in the training set of each fold.
    tested : tuple of int arrays, or (folds, b) int array
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

    removed: tuple[Index, ...] | Index
    tested: tuple[Index, ...] | Index
    n: int

    def __post_init__(self) -> None:
        if len(self.removed) == 0:
            raise ValueError("there is no fold: give at least one split into training and test rows")
        doubtful = _out_of_order(self.removed, self.tested, self.n)
        for k in np.flatnonzero(doubtful).tolist():
            _check_fold(k, self.removed[k], self.tested[k], self.n)

    def __len__(self) -> int:
        return len(self.removed)

    @cached_property
    def rows(self) -> Index:
        """Tested rows of all folds, one fold after the other: (t,)."""
        return members(self.tested)[1]

    @cached_property
    def fold(self) -> Index:
        """Number of the fold of each of ``rows``: (t,)."""
        return members(self.tested)[0]

    @cached_property
    def ends(self) -> Index:
        """Where the rows of each fold end in ``rows``: (folds,)."""
        return np.cumsum(np.bincount(self.fold, minlength=len(self)))

    @cached_property
    def starts(self) -> Index:
        """Where the rows of each fold begin in ``rows``: (folds,)."""
        return self.ends - np.bincount(self.fold, minlength=len(self))

    def of_which_all(self, which: Index, good: Mask) -> Index:
        """Those of some sets of which all judged values, (t,), are good."""
        own, _, place = self.judged(which)
        return which[np.bincount(own[~good[place]], minlength=len(which)) == 0]

    def place(self, k: int) -> slice:
        """Where the rows that fold k tests are in ``rows``."""
        return slice(int(self.starts[k]), int(self.ends[k]))

    @cached_property
    def sizes(self) -> Index:
        """Number of rows that each fold removes: (folds,)."""
        return np.bincount(members(self.removed)[0], minlength=len(self))

    def entries(self, rows: Index) -> Index:
        """Where each of ``rows`` is in the same values in another order, as of ascending rows: (t,)."""
        found = np.empty(len(rows), dtype=np.intp)
        found[np.argsort(self.rows, kind="stable")] = np.argsort(rows, kind="stable")
        return found

    def judged(self, which: Index) -> tuple[Index, Index, Index]:
        """Of all values that some folds judge: place of the fold in ``which``, row, and place in ``rows``."""
        ends = self.ends[which]
        counts = ends - self.starts[which]
        own = np.repeat(np.arange(len(which)), counts)
        place = np.arange(len(own)) + (ends - np.cumsum(counts))[own]
        return own, self.rows[place], place

    @cached_property
    def are_judged_once(self) -> Mask:
        """Folds that test all rows that they remove, none of which another fold removes: (folds,)."""
        fold, rows = members(self.removed)
        shared = np.bincount(rows, minlength=self.n)[rows] > 1
        tested = np.bincount(self.fold, minlength=len(self))
        return (tested == self.sizes) & (np.bincount(fold[shared], minlength=len(self)) == 0)

    @cached_property
    def is_partition(self) -> bool:
        """Whether every row is tested exactly once."""
        return len(self.rows) == self.n and len(np.unique(self.rows)) == self.n

    @cached_property
    def order(self) -> Index | slice:
        """Order of the values: that of the rows, where each row is judged once."""
        return np.argsort(self.rows, kind="stable") if self.is_partition else slice(None)


def _out_of_order(removed: Sets, tested: Sets, n: int) -> Mask:
    """Folds that have to be looked at one by one: others than distinct rows that are removed and tested."""
    fold, rows = members(removed)
    sizes = np.bincount(fold, minlength=len(removed))
    doubtful = (sizes == 0) | (sizes == n)
    if removed is not tested:
        pairs = zip(removed, tested, strict=True)
        doubtful |= [not (a is b or np.array_equal(a, b)) for a, b in pairs]
    order = np.lexsort([rows, fold])
    again = (np.diff(fold[order]) == 0) & (np.diff(rows[order]) == 0)
    doubtful[fold[order][1:][again]] = True
    doubtful[fold[(rows < 0) | (rows >= n)]] = True
    return doubtful


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
    fold, rows = members(folds.removed)
    leaving = weights[rows]
    emptied = np.bincount(fold, leaving != 0, len(folds)) == np.count_nonzero(weights)
    if emptied.any():
        k = int(np.argmax(emptied))
        raise ValueError(f"fold {k} removes all rows of positive weight: nothing is left to fit")
    return np.bincount(fold, leaving, len(folds)) / weights.sum()
