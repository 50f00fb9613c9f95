"""What one pass tells of the columns: their means and deviations, and which of them cannot be features."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.preprocessing import StandardScaler

from onefit._typing import Array, Index
from onefit.cli.errors import TableError
from onefit.cli.table import BY_NAME, COUNTS, IDENTIFIER, kept_by
from onefit.cli.target import (
    IF_AMOUNTS,
    LARGEST,
    as_numbers,
    numbers_as_labels,
    one_value,
    refuse_infinity,
    single_row,
)

MOST = 2**20  # hashes that tell whether values repeat


class Repeats:
    """Whether values come twice, by those of them whose hashes are small: all that there are, or a sample."""

    def __init__(self) -> None:
        self.limit, self.hashes = 2**64 - 1, np.empty(0, dtype=np.uint64)

    def add(self, values: Array) -> None:
        """Look at more values."""
        own = pd.util.hash_array(values)
        held = np.concatenate([self.hashes, own[own <= self.limit]])
        while len(held) > MOST:
            self.limit //= 2
            held = held[held <= self.limit]
        self.hashes = held

    @property
    def are_none(self) -> bool:
        """Whether none was seen twice."""
        return len(np.unique(self.hashes)) == len(self.hashes)


class Amounts:
    """A target of numbers as it passes by.

    Parameters
    ----------
    target : str
    task : str
    """

    def __init__(self, target: str, task: str) -> None:
        self._target, self._task, self._extremes = target, task, list[float]()

    def add(self, y: Array, rows: Index) -> None:
        """Look at the values of more rows, by their numbers.

        Raises
        ------
        TableError
            Naming the row: there is text, or a number that does not suit the task.
        """
        values = as_numbers(pd.Series(y, index=rows, name=self._target), self._task)
        extremes = [*self._extremes, float(values.min()), float(values.max())]
        self._extremes = [min(extremes), max(extremes)]

    def labels(self) -> None:
        """None; see that there is something to predict.

        Raises
        ------
        TableError
            All values are the same.
        """
        least, largest = self._extremes or (0.0, 1.0)
        if least == largest:
            raise one_value(self._target, np.format_float_positional(least, trim="-"))


def without_blanks(y: Array) -> Array:
    """Labels, of which those of text begin with no blank."""
    values = np.asarray(y)
    if values.dtype != object:
        return values
    return np.array([str(label).lstrip(" ") for label in values], dtype=object)


class Classes:
    """Labels of a target of two classes as they pass by.

    Parameters
    ----------
    target : str
    strip : bool
        Whether blanks before labels are no part of them.
    """

    def __init__(self, target: str, *, strip: bool) -> None:
        self._target, self._counts = target, Counter[Any]()
        self._plain = without_blanks if strip else np.asarray

    def add(self, y: Array, rows: Index) -> None:
        """Look at the labels of more rows, by their numbers.

        Raises
        ------
        TableError
            They are of a third class.
        """
        if y.dtype.kind == "f":
            refuse_infinity(pd.Series(y, index=rows, name=self._target), y)
        labels, counts = np.unique(self._plain(y), return_counts=True)
        self._counts.update(dict(zip(labels.tolist(), counts.tolist(), strict=True)))
        if len(self._counts) > 2:
            last_first = reversed(list(self._counts))
            raise self._third(min(last_first, key=lambda label: self._counts[label]))

    def _third(self, label: Any) -> TableError:
        shown, amounts = repr(label), ""
        if isinstance(label, float | int):
            shown, amounts = f"{label:g}", IF_AMOUNTS
        return TableError(
            f"target {self._target!r} has a third class, {shown}, and tables larger than memory are for two: "
            f"{amounts}correct it, leave out such rows, or take a sample of the rows"
        )

    def labels(self) -> Callable[[Array], Array]:
        """What makes labels of y as those of a table in memory: of numbers that are not whole text.

        Raises
        ------
        TableError
            There is a single class, or a class of a single row.
        """
        values = np.array(sorted(self._counts))
        is_number = values.dtype.kind in "fiu"
        made = numbers_as_labels(pd.Series(values, name=self._target)) if is_number else values
        rarest = made[np.argmin([self._counts[value] for value in values.tolist()])]
        if len(values) == 1:
            raise one_value(self._target, rarest)
        if min(self._counts.values()) == 1:
            raise single_row(self._target, rarest)
        return (lambda y: made[np.searchsorted(values, y)]) if is_number else self._plain


class Seen:
    """Columns of numbers as they pass by.

    Parameters
    ----------
    names : sequence of str
    keep : sequence of str
        Those that are features even if they look like identifiers.
    """

    def __init__(self, names: Sequence[str], keep: Sequence[str] = ()) -> None:
        self.names, self._keep, self.scaler = list(names), keep, StandardScaler()
        self._first: Any = np.empty(0)
        self._last: Any = self._first
        self._constant: Any = self._first
        self._counts: Any = self._first
        self._ids = {j: Repeats() for j, name in enumerate(names) if IDENTIFIER.fullmatch(name)}

    def add(self, X: Array, rows: Index) -> None:
        """The next rows, by their numbers: (r, p).

        Raises
        ------
        TableError
            There is a number too large to compute with.
        """
        for place in np.flatnonzero(np.any(np.abs(X) > LARGEST, axis=0)):
            values = X[:, place]
            refuse_infinity(pd.Series(values, index=rows, name=self.names[place]), values, gaps="")
        self.scaler.partial_fit(X)
        if not len(self._first):
            self._first, self._last = X[0], X[0] - 1.0
            self._constant, self._counts = np.ones(X.shape[1], bool), np.isin(X[0], (0.0, 1.0))
        self._constant = self._constant & np.all(self._first == X, axis=0)
        self._counts = self._counts & np.all(np.diff(X, axis=0, prepend=self._last[None]) == 1.0, axis=0)
        self._last = X[-1]
        whole = np.all(np.round(X) == X, axis=0)
        self._ids = {j: ids for j, ids in self._ids.items() if whole[j]}
        for j, ids in self._ids.items():
            ids.add(np.ascontiguousarray(X[:, j]))

    @property
    def count(self) -> int:
        """Rows."""
        return int(np.max(self.scaler.n_samples_seen_))

    def unusable(self) -> list[tuple[str, str]]:
        """Columns to leave out, and why, as of a table in memory."""
        whys = {name: self._why(j, name) for j, name in enumerate(self.names)}
        return [(name, why) for name, why in whys.items() if why]

    def _why(self, j: int, name: str) -> str:
        if self._constant[j]:
            return f"constant ({self._first[j]})"
        if name in self._keep:
            return ""
        if self._counts[j]:
            return kept_by(name, COUNTS)
        return kept_by(name, BY_NAME) if j in self._ids and self._ids[j].are_none else ""

    def scaler_of(self, names: Sequence[str]) -> StandardScaler:
        """Means and standard deviations of some columns."""
        places = [self.names.index(name) for name in names]
        own: Any = copy.copy(self.scaler)
        own.mean_, own.var_, own.scale_ = (every[places] for every in (own.mean_, own.var_, own.scale_))
        own.n_features_in_ = len(places)
        if np.ndim(own.n_samples_seen_):
            own.n_samples_seen_ = own.n_samples_seen_[places]
        return own
