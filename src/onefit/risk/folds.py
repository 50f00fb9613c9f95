"""What leaves together: groups, splits of a splitter, and splits drawn here.

A fold removes rows and is judged on some of those it removed; the rest is trained on.  That covers groups,
K folds, Monte-Carlo and time-series splits alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np

from onefit._typing import Index, Mask
from onefit.leave_out.sets import Folds
from onefit.validation import is_count

Seed: TypeAlias = int | np.random.Generator | None


GROUPS_AS_SPLITS = "list(cv.split(X, y, groups)), its splits"  # in place of a splitter


def as_folds(
    given: Any, X: Any, y: Any = None, groups: Any = None, *, with_groups: str = GROUPS_AS_SPLITS
) -> Folds:
    """Read groups, a splitter, or a list of splits.

    Parameters
    ----------
    given : array of shape (n,), object with ``split``, or iterable of (train, test)
        Group of each row; or a scikit-learn splitter; or pairs of row numbers or boolean masks; or Folds.
    X, y, groups : arrays
        The data; ``y`` and ``groups`` are for the splitter alone.
    with_groups : str
        What to give where the splitter needs groups.

    Examples
    --------
    >>> import numpy as np
    >>> as_folds(["a", "b", "a"], np.zeros((3, 1))).removed
    (array([0, 2]), array([1]))
    """
    if isinstance(given, Folds):
        return given
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    if hasattr(given, "split") and not isinstance(given, str | type):
        try:
            splits = list(given.split(X, y, groups))
        except ValueError as error:
            needs = f": give {with_groups}" if groups is None and "groups" in str(error) else ""
            raise ValueError(f"{given!r} cannot split these data: {str(error).rstrip('.')}{needs}") from error
        return by_split(splits, n)
    if is_grouping(given):
        return by_group(given, n)
    return by_split(given, n)


def is_grouping(given: Any) -> bool:
    """Whether this is one value a row, and neither a splitter nor pairs of rows."""
    if isinstance(given, list | tuple):
        return len(given) > 0 and not any(
            isinstance(value, list | tuple) or np.ndim(value) for value in given
        )
    return hasattr(given, "__array__")


def by_group(groups: Any, n: int) -> Folds:
    """One fold a group.

    Parameters
    ----------
    groups : array-like of shape (n,)
        Group of each row: numbers, text, dates, categories.
    n : int
        Number of rows.

    Raises
    ------
    ValueError
        If there is not one group a row, a group is missing (NaN, None), or all rows are in one group.
    """
    values = np.asarray(groups)
    if values.shape != (n,):
        raise ValueError(f"groups must have one value a row, shape ({n},), got shape {values.shape}")
    missing = np.flatnonzero(_missing(values))
    if missing.size:
        raise ValueError(
            f"groups has {missing.size} missing values, the first in row {missing[0]}: give those rows a "
            "group of their own"
        )
    numbers = _numbered(values)
    if numbers.max() == 0:
        raise ValueError("all rows are in one group: nothing is left to fit when it leaves")
    order = np.argsort(numbers, kind="stable")
    removed = tuple(np.split(order, np.cumsum(np.bincount(numbers))[:-1]))
    return Folds(removed, removed, n)


def numbers_of(groups: Folds) -> Index:
    """Number of each row's group: (n,)."""
    numbers = np.empty(groups.n, dtype=np.intp)
    numbers[groups.rows] = groups.fold
    return numbers


def _missing(values: Any) -> Mask:
    if values.dtype != object:
        return np.asarray(values != values)  # NaN and NaT
    return np.array([value is None or not _equals_itself(value) for value in values])


def _equals_itself(value: Any) -> bool:
    try:
        return bool(value == value)
    except TypeError:  # pandas.NA says neither yes nor no
        return False


def _numbered(values: Any) -> Index:
    """Number of each value: in sorted order, or of appearance for objects that have no order."""
    if values.dtype != object:
        return np.unique(values, return_inverse=True)[1]
    distinct = dict.fromkeys(values)
    with suppress(TypeError):
        distinct = dict.fromkeys(sorted(distinct))
    number = {value: k for k, value in enumerate(distinct)}
    return np.array([number[value] for value in values], dtype=np.intp)


def by_split(splits: Iterable[tuple[Any, Any]], n: int) -> Folds:
    """One fold a split; what is in neither part of a split has left too.

    Parameters
    ----------
    splits : iterable of (train, test)
        Row numbers or boolean masks.
    n : int
        Number of rows.

    Raises
    ------
    ValueError
        If a part is empty, the two overlap, or training rows are repeated (a bootstrap is no set of rows).
    TypeError
        If the splits are no pairs of row numbers or masks.
    """
    removed, tested = [], []
    for k, split in enumerate(_pairs(splits)):
        train, test = (_row_numbers(part, n, k) for part in split)
        kept = np.zeros(n, dtype=bool)
        kept[train] = True
        if np.count_nonzero(kept) < train.size:
            raise ValueError(f"fold {k} has training rows that occur more than once; use sample weights")
        removed.append(np.flatnonzero(~kept))
        tested.append(test)
    return Folds(tuple(removed), tuple(tested), n)


def _pairs(splits: Any) -> list[Any]:
    wanted = "expected groups, a splitter with .split, or pairs (train, test) of row numbers"
    if isinstance(splits, str) or not isinstance(splits, Iterable):
        hint = f": for {splits} folds KFold({splits}, shuffle=True)" if is_count(splits) else ""
        raise TypeError(f"{wanted}, got {splits!r}{hint}")
    pairs = list(splits)
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"{wanted}; one of them is {type(pair).__name__}, not a pair")
    return pairs


def _row_numbers(part: Any, n: int, k: int) -> Index:
    rows = np.asarray(part)
    if rows.size == 0:
        return np.empty(0, dtype=np.intp)
    if rows.dtype == bool:
        if rows.shape != (n,):
            raise ValueError(f"fold {k}: a mask must have one value a row, ({n},), got {rows.shape}")
        return np.flatnonzero(rows)
    if rows.ndim != 1 or not np.issubdtype(rows.dtype, np.integer):
        raise TypeError(f"fold {k}: expected row numbers or a mask, got an array of {rows.dtype}")
    if rows.min() < 0 or rows.max() >= n:
        raise ValueError(f"fold {k} has rows outside 0 … {n - 1}")
    return rows.astype(np.intp)


# --- splits drawn here -----------------------------------------------------------------------------


def k_fold(n: int, n_splits: int, rng: Seed = None) -> Folds:
    """K folds whose sizes differ by one at most: blocks in the order of the rows, or shuffled.

    Parameters
    ----------
    n : int
    n_splits : int
        From 2 to n, which is leave-one-out.
    rng : int, Generator or None
        Seed of the shuffle; None keeps the order.
    """
    if not 2 <= n_splits <= n or n_splits != int(n_splits):
        raise ValueError(f"n_splits must be from 2 to the number of rows, {n}, got {n_splits}")
    order = np.arange(n) if rng is None else np.random.default_rng(rng).permutation(n)
    removed = tuple(np.sort(part) for part in np.array_split(order, n_splits))
    return Folds(removed, removed, n)


def leave_q_out(n: int, q: int, n_draws: int, rng: Seed = None) -> Folds:
    """Draw sets of q rows (Beirami et al. 2017, leave-q-out).

    Parameters
    ----------
    n, q, n_draws : int
        Rows, rows that leave at a time, sets.
    rng : int, Generator or None
    """
    if not 1 <= q < n:
        raise ValueError(f"q must be from 1 to the number of rows less one, {n - 1}, got {q}")
    if n_draws < 1:
        raise ValueError(f"there must be at least 1 draw, got {n_draws}")
    generator = np.random.default_rng(rng)
    removed = tuple(np.sort(generator.choice(n, q, replace=False)) for _ in range(n_draws))
    return Folds(removed, removed, n)


def monte_carlo(n: int, n_splits: int, train_size: float, rng: Seed = None) -> Folds:
    """Train on a random share of the rows, test on the rest, again and again.

    The splits are balanced: each row is held out as often as any other, give or take one.

    Parameters
    ----------
    n, n_splits : int
    train_size : float in (0, 1)
    rng : int, Generator or None
    """
    q = n - _count("train_size", train_size, n)
    if n_splits < 1:
        raise ValueError(f"there must be at least 1 split, got {n_splits}")
    generator = np.random.default_rng(rng)
    removed, order = [], generator.permutation(n)
    for _ in range(n_splits):
        if len(order) < q:  # the next round, without what is left of the last one in front
            fresh = generator.permutation(np.setdiff1d(np.arange(n), order))
            missing = q - len(order)
            later = generator.permutation(np.concatenate([fresh[missing:], order]))
            order = np.concatenate([order, fresh[:missing], later])
        removed.append(np.sort(order[:q]))
        order = order[q:]
    return Folds(tuple(removed), tuple(removed), n)


def held_out(n: int, test_size: float, rng: Seed = None) -> Folds:
    """One random split, with a share ``test_size`` of the rows to test on."""
    return leave_q_out(n, _count("test_size", test_size, n), 1, rng)


def _count(name: str, share: float, n: int) -> int:
    """How many of n rows a share is: at least one, and not all."""
    if not 0 < share < 1:
        raise ValueError(f"{name} must be a share between 0 and 1, got {share}")
    return int(np.clip(round(share * n), 1, n - 1))
