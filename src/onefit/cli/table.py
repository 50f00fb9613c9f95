"""Features and target of a table: what is left out, and what is worth knowing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from pandas.api import types

from onefit._typing import Array, Index
from onefit.cli.dates import ISO_DATE
from onefit.cli.errors import RowError, TableError, cited, columns_listed, listed, require_column
from onefit.cli.numerals import read_numbers, strays
from onefit.cli.target import (
    LEAST_ROWS,
    are_counted,
    guess_task,
    is_whole,
    never_known,
    target_values,
    too_few_rows,
    without_target,
)
from onefit.wording import counted

MOST_LEVELS = 100  # of one column of text; the rarer ones are grouped
OFTEN = 5  # times that a whole number occurs, on average, that may be a code
FEW_ROWS = 10  # on fewer nothing is called clear
IDENTIFIER = re.compile(
    r"(?:.*[_ .])?(?:id|index|nr|no|number|nummer|row|row\.?names?)#?|unnamed: \d+|", re.IGNORECASE
)
COUNTS, BY_NAME = "counts the rows", "looks like an identifier, by its name and distinct whole numbers"
# what columns of text look like that could have been read
UNREAD = {
    r"\d{1,2}:\d{2}(:\d{2})?": "holds times of day: write them as hours, such as 13.5",
    r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}": "holds dates in more than one format: write all like 2024-01-31",
    r"[+-]?[\d.,]+ [A-Za-zµ°/²³]{1,8}": "holds numbers with a unit: write them as plain numbers",
}


@dataclass(frozen=True)
class Table:
    """Features and target of a table.

    Attributes
    ----------
    features : (n, q) DataFrame
        Columns that are kept, as they were read.
    y : (n,) array
        Numbers, or labels as text, bool or int.
    target : str
        Name of the target.
    task : str
        One of ``TASKS``.
    reason : str
        Why this task.
    rows : (n,) array of int
        Row numbers in the file, counted from 0 below the header.
    weights : (n,) array or None
    groups, time : Series or None
        Of the columns that were named as such.
    dropped : tuple of (str, str)
        Columns that were left out, and why.
    notes : tuple of str
        What else was done or is worth knowing.
    """

    features: pd.DataFrame
    y: Array
    target: str
    task: str
    reason: str
    rows: Index
    weights: Array | None = None
    groups: pd.Series | None = None
    time: pd.Series | None = None
    dropped: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_classification(self) -> bool:
        """Whether the target is a class label."""
        return self.task in ("binary", "multiclass")

    @property
    def row_weights(self) -> Array:
        """Weight of each row, ones where none were given."""
        return np.ones(len(self.y)) if self.weights is None else self.weights

    @property
    def is_small(self) -> bool:
        """Whether there are too few rows for anything to be clear."""
        return len(self.y) < FEW_ROWS


@dataclass(frozen=True)
class Roles:
    """What columns of a table are for; all others are features.

    Attributes
    ----------
    target : str
    weights, groups, time : str or None
    drop, keep : sequence of str
        Columns to leave out whatever they hold; columns to keep even if they look like identifiers.
    """

    target: str
    weights: str | None = None
    groups: str | None = None
    time: str | None = None
    drop: Sequence[str] = ()
    keep: Sequence[str] = ()
    category: Sequence[str] = ()

    @property
    def special(self) -> list[str]:
        """Columns that are no features; time is one, since it may bring a trend and seasons."""
        named = (self.target, self.weights, self.groups, *self.drop)
        return list(dict.fromkeys(name for name in named if name))

    def left_out(self, unusable: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Columns that are no features, and why: those to drop, then those that cannot be one."""
        return [*((name, "you asked to drop it") for name in dict.fromkeys(self.drop)), *unusable]

    def check(self, frame: pd.DataFrame) -> None:
        """Refuse columns that are not there, and a column with two roles."""
        require_column(frame.columns, self.target)
        for name in (*self.special, *([self.time] if self.time else []), *self.keep, *self.category):
            require_column(frame.columns, name)
        for name in self.category:
            if kind_of(frame[name]) != "text":
                raise TableError(f"{name!r} holds fractions or dates: categories are whole numbers or text")
        if self.target in (self.weights, self.groups, self.time, *self.drop):
            raise TableError(
                f"{self.target!r} is the target: it cannot be dropped, nor be the weights, groups or time"
            )
        if self.groups and self.time:
            raise TableError("--groups and --time exclude each other: name the one that new rows differ in")


def split(frame: pd.DataFrame, roles: Roles, task: str = "auto") -> Table:
    """Split a table into features and target, and leave out what cannot be a feature.

    Rows with a missing target leave.  So do columns that are all missing, or constant, or that look like
    row identifiers: integers that count the rows from 0 or 1; whole numbers without repeats that are named
    as one (``id``, ``…_id``, ``index``, ``row``, …); text in which every value is rare.

    Parameters
    ----------
    frame : DataFrame
    roles : Roles
    task : {"auto", "regression", "binary", "multiclass", "counts"}
        With "auto" it is guessed by ``guess_task``.

    Returns
    -------
    Table

    Raises
    ------
    TableError
        Naming the column, and what to do.
    """
    roles.check(frame)
    known = frame[roles.target].notna().to_numpy()
    if not known.any():
        raise never_known(roles.target)
    held = frame if known.all() else frame[known]
    if len(held) < LEAST_ROWS:
        raise too_few_rows(len(held))
    guessed, reason = guess_task(held[roles.target]) if task == "auto" else (task, "as asked")
    y = target_values(held[roles.target], guessed)
    inner = held.drop(columns=roles.special)
    found = _unusable(inner, roles.keep)
    features = inner.drop(columns=[name for name, _ in found])
    dropped = roles.left_out(found)
    if features.shape[1] == 0:
        raise none_left(roles.target, dropped)
    return Table(
        features,
        y,
        roles.target,
        guessed,
        reason,
        np.flatnonzero(known),
        None if roles.weights is None else _weights(_as_number(held[roles.weights])),
        None if roles.groups is None else _complete(held[roles.groups], "groups"),
        None if roles.time is None else _complete(_as_number(held[roles.time]), "time"),
        tuple(dropped),
        tuple(_notes(len(frame) - len(held), roles.target, held, features)),
    )


def none_left(target: str, dropped: Sequence[tuple[str, str]]) -> TableError:
    """An error that says what became of every column."""
    reasons = "; ".join(f"{cited(name)} ({why})" for name, why in dropped[:6])
    return TableError(f"no column is left to predict {target!r} from: {reasons}".removesuffix(": "))


def _notes(n_unknown: int, target: str, held: pd.DataFrame, features: pd.DataFrame) -> Iterator[str]:
    if n_unknown:
        yield without_target(n_unknown, target)
    alike = _written_alike(held[target])
    if alike:
        yield f"classes {listed(alike)} of {cited(target)} differ in blanks or capitals only: are they one?"
    repeated = _copies(held[[*features.columns, target]])
    if repeated:
        yield (
            f"{repeated} rows have an exact copy among the others: if these are the same observation "
            "entered twice, leaving one out does not hide it, and the risk is too optimistic"
        )
    gaps = features.isna().sum()
    gaps = gaps[gaps > 0].sort_values(ascending=False)
    if len(gaps):
        named = listed([f"{cited(name)} ({count})" for name, count in gaps.items()], 6)
        yield (
            f"missing values in {named}; numbers are filled with the median and marked by an extra 0/1 "
            "column, in text missing is a level of its own"
        )
    if counted := [name for name in features if _may_be_codes(features[name])]:
        yield (
            f"{columns_listed(counted)}: whole numbers from 0 or 1 on, read as a quantity; --category COLUMN "
            "makes each a level of its own"
        )
    text = [name for name in features if kind_of(features[name]) == "text"]
    many = [name for name in text if features[name].nunique() > MOST_LEVELS]
    if many:
        yield (
            f"{columns_listed(many, 12)}: of the many levels only those that occur "
            f"{rare_below(len(held))} times or more stand alone, {MOST_LEVELS} at most; the others are one"
        )


def _may_be_codes(column: pd.Series) -> bool:
    """Whether the values are three to ten consecutive whole numbers that count something, or name it."""
    if not types.is_numeric_dtype(column) or types.is_bool_dtype(column):
        return False
    values = column.dropna().to_numpy(np.float64)
    return are_counted(values) and 3 <= column.nunique() <= len(column) / OFTEN


def _written_alike(target: pd.Series) -> list[str]:
    """Labels that differ from another one in blanks or capitals only."""
    labels = sorted({label for label in target.unique() if isinstance(label, str)})
    counts = Counter(_plain(label) for label in labels)
    return [repr(label) for label in labels if counts[_plain(label)] > 1]


def _plain(label: str) -> str:
    return " ".join(label.split()).casefold()


def _copies(rows: pd.DataFrame) -> int:
    """How many rows are equal to another one."""
    hashes = pd.util.hash_pandas_object(rows, index=False).to_numpy()
    _, inverse, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    return int(np.count_nonzero(counts[inverse] > 1))


def _as_number(column: pd.Series) -> pd.Series:
    """A column of text as numbers, if every cell is one: what is no feature has no categories."""
    found = None if kind_of(column) != "text" or types.is_bool_dtype(column) else read_numbers(column)
    return column if found is None else found[1]


def _weights(column: pd.Series) -> Array:
    if not types.is_numeric_dtype(column):
        raise TableError(f"weights {column.name!r} are not numbers")
    values = column.to_numpy(np.float64, na_value=np.nan)
    bad = np.flatnonzero(~np.isfinite(values) | (values < 0))
    if bad.size:
        row = column.index[bad[0]]
        raise RowError(
            f"weights {column.name!r} must be numbers of at least 0, but row {row} has {column.iloc[bad[0]]}"
        )
    if not values.any():
        raise TableError(f"weights {column.name!r} are zero in every row")
    return values


def _complete(column: pd.Series, role: str) -> pd.Series:
    """A column that says what leaves together, without gaps and with several values."""
    missing = np.flatnonzero(column.isna())
    if missing.size:
        raise RowError(
            f"{role} {column.name!r} is missing in {counted(missing.size, 'row')}, the first of them row "
            f"{column.index[missing[0]]}: fill it, or remove these rows"
        )
    if role == "time" and kind_of(column) == "text":
        raise RowError(
            f"time {column.name!r} is neither a date nor a number: row {column.index[0]} has "
            f"{column.iloc[0]!r}"
        )
    distinct = column.nunique()
    if distinct < 3:
        raise TableError(f"{role} {column.name!r} has {distinct} distinct values: it takes at least 3")
    return column


# --- columns that cannot be features ---------------------------------------------------------------


def kind_of(column: pd.Series) -> str:
    """Return "number", "date" (a date type, or text in ISO 8601) or "text" (also true/false)."""
    if types.is_bool_dtype(column):
        return "text"
    if types.is_numeric_dtype(column):
        return "number"
    if types.is_datetime64_any_dtype(column):
        return "date"
    present = column.dropna()
    if not len(present) or not re.fullmatch(ISO_DATE, str(present.iloc[0])):
        return "text"
    return "date" if bool(present.astype(str).str.fullmatch(ISO_DATE).all()) else "text"


def _unusable(features: pd.DataFrame, keep: Sequence[str]) -> list[tuple[str, str]]:
    """Columns to leave out, and why."""
    whys = {
        name: _without_content(column) or ("" if name in keep else _identifies(column))
        for name, column in features.items()
    }
    return [(name, why) for name, why in whys.items() if why]


def _without_content(column: pd.Series) -> str:
    present = column.dropna()
    if present.empty:
        return "all missing"
    constant = len(present) == len(column) and bool((present == present.iloc[0]).all())
    return f"constant ({present.iloc[0]})" if constant else ""


def kept_by(name: str, why: str) -> str:
    """Why a column looks like an identifier, and how it becomes a feature nevertheless."""
    return f"{why}; --keep {cited(name)} keeps it"


def _identifies(column: pd.Series) -> str:
    """Return why a column looks like a row identifier, or nothing.

    Of text every level would be among the rare ones that are one: nothing is to be had by keeping it.
    """
    kind, present = kind_of(column), column.dropna()
    if kind == "text" and not types.is_bool_dtype(present):
        return _rarely_repeats(column)
    if kind != "number" or len(present) < len(column) or not present.is_unique:
        return ""
    values = present.to_numpy(np.float64)
    if values[0] in (0.0, 1.0) and np.all(np.diff(values) == 1):
        return kept_by(str(column.name), COUNTS)
    named = IDENTIFIER.fullmatch(str(column.name)) and is_whole(values)
    return kept_by(str(column.name), BY_NAME) if named else ""


def _rarely_repeats(column: pd.Series) -> str:
    """Return what a column of text may be in which every value is rare, or nothing."""
    counts = column.dropna().astype(str).value_counts()
    least = rare_below(len(column))
    if counts.iloc[0] >= least:
        return ""
    for pattern, what in UNREAD.items():
        if counts.index.str.fullmatch(pattern).all():
            return what
    if slips := strays(column):
        cells = listed([*map(repr, slips)], 3)
        return f"holds numbers but for {cells}: correct them, or leave them empty"
    return f"looks like an identifier: no value occurs {least} times"


def rare_below(n: int) -> int:
    """Return how many rows a level of a text column must hold to stand for itself: n/10, in [2, 5]."""
    return int(np.clip(np.ceil(n / 10), 2, 5))
