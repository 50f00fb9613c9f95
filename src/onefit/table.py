"""Real tables: reading them, splitting off the target, guessing the task, preprocessing.

The rules are few and written down where they are applied; every choice can be overridden and is reported.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types
from pyarrow.lib import ArrowException
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from onefit._typing import Array, Index

TASKS = ("regression", "binary", "multiclass", "counts")
PARQUET = (".parquet", ".pq")
SPREADSHEETS = (".xlsx", ".xls", ".ods")
SEPARATORS = ",;\t|"
MISSING_MARKS = ["?"]  # beside those of pandas: empty, NA, N/A, nan, null, None, …
MISSING_LEVEL = "(missing)"
LARGEST = 1e100  # numbers beyond it overflow when they are squared and added up
MOST_LEVELS = 100  # of one column; the rarer ones are grouped
MOST_CODES = 10  # so many consecutive integers from 0 or 1 are read as class codes
ISO_DATE = r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}.*)?"
IDENTIFIER = re.compile(r"(?:.*[_ .])?(?:id|index|row|row\.?names?)#?|unnamed: \d+|", re.IGNORECASE)


class TableError(ValueError):
    """A table, or a column of it, that cannot be used; the message says what to do."""


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
    dropped : tuple of (str, str)
        Columns that were left out, and why.
    notes : tuple of str
        What else was done or is worth knowing.
    """

    features: pd.DataFrame
    y: Any
    target: str
    task: str
    reason: str
    rows: Index
    weights: Array | None = None
    dropped: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_classification(self) -> bool:
        """Whether the target is a class label."""
        return self.task in ("binary", "multiclass")


# --- reading ---------------------------------------------------------------------------------------


def read_table(path: str | Path) -> pd.DataFrame:
    """Read a table: Parquet by its ending, else text with a header, separated by , ; tab or |.

    Text may be compressed with gzip.  Empty cells and ``?``, ``NA``, ``nan``, ``null``, … are missing;
    decimal commas are understood in files that are separated by semicolons.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    DataFrame
        With text column names, and rows numbered from 0.

    Raises
    ------
    TableError
        If there is no such file, or no table in it.
    """
    path = Path(path)
    if not path.exists():
        raise TableError(f"{path}: no such file{_suggest_file(path)}")
    if path.is_dir():
        raise TableError(f"{path} is a folder: name a file in it")
    if path.suffix.lower() in SPREADSHEETS:
        raise TableError(f"{path} is a spreadsheet: save the sheet as CSV and use that file")
    try:
        frame = _read_parquet(path) if path.suffix.lower() in PARQUET else _read_text(path)
    except (OSError, EOFError, zlib.error) as error:
        raise TableError(f"{path} cannot be read: {_one_line(error)}") from error
    except UnicodeDecodeError as error:
        raise TableError(
            f"{path} is not a table in UTF-8 text (byte {error.start}): save it as CSV UTF-8, or as Parquet"
        ) from error
    except (pd.errors.ParserError, csv.Error, ArrowException) as error:
        raise TableError(f"{path} is not a table: {_one_line(error)}") from error
    frame.columns = [str(name).strip() for name in frame.columns]
    if len(frame) == 0:
        raise TableError(f"{path} has a header but no rows")
    return frame.reset_index(drop=True)


def _suggest_file(path: Path) -> str:
    if not path.parent.is_dir():
        return f" (nor a folder {path.parent})"
    return _suggest(path.name, [entry.name for entry in path.parent.iterdir()])


def _read_parquet(path: Path) -> pd.DataFrame:
    return pd.read_parquet(path)


def _read_text(path: Path) -> pd.DataFrame:
    head = _head(path)
    if not head.strip():
        raise TableError(f"{path} is empty: it needs a line of column names and one line for each row")
    if "\0" in head:
        raise TableError(f"{path} is not a table of text: save it as CSV UTF-8, or as Parquet")
    separator = _separator(head)
    decimal = "," if separator == ";" and re.search(r"(^|;)\s*-?\d+,\d+\s*(;|$)", head, re.M) else "."
    return pd.read_csv(
        path,
        sep=separator,
        decimal=decimal,
        na_values=MISSING_MARKS,
        skipinitialspace=True,
        encoding="utf-8-sig",
        compression="gzip" if _is_gzip(path) else None,
        index_col=False,
        low_memory=False,
    )


def _is_gzip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def _head(path: Path, lines: int = 20) -> str:
    opener = gzip.open if _is_gzip(path) else open
    with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
        return "".join(line for line, _ in zip(file, range(lines), strict=False))


def _separator(head: str) -> str:
    """Return the separator that splits the header into the most columns."""
    header = head.splitlines()[0]
    counts = [len(next(csv.reader([header], delimiter=mark))) for mark in SEPARATORS]
    return SEPARATORS[int(np.argmax(counts))]


def _one_line(error: BaseException) -> str:
    text = getattr(error, "strerror", None) or str(error)
    text = text.removeprefix("Error tokenizing data. C error: ")
    return " ".join(text.split()) or type(error).__name__


def _suggest(name: str, known: Sequence[str]) -> str:
    """Close names, as the end of a message."""
    folded = {str(one).lower(): str(one) for one in reversed(known)}
    close = [folded[one] for one in difflib.get_close_matches(name.lower(), folded, n=3, cutoff=0.6)]
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""


# --- splitting -------------------------------------------------------------------------------------


def split(
    frame: pd.DataFrame,
    target: str,
    *,
    task: str = "auto",
    weights: str | None = None,
    drop: Sequence[str] = (),
    keep: Sequence[str] = (),
) -> Table:
    """Split a table into features and target, and leave out what cannot be a feature.

    Rows with a missing target leave.  So do columns that are all missing, or constant, or that look like
    row identifiers: integers that count the rows from 0 or 1; whole numbers without repeats that are named
    as one (``id``, ``…_id``, ``index``, ``row``, …); text in which every value is rare.

    Parameters
    ----------
    frame : DataFrame
    target : str
        Column to predict.
    task : {"auto", "regression", "binary", "multiclass", "counts"}
        With "auto" it is guessed by ``guess_task``.
    weights : str, optional
        Column of sample weights.
    drop, keep : sequence of str
        Columns to leave out whatever they hold; columns to keep even if they look like identifiers.

    Returns
    -------
    Table

    Raises
    ------
    TableError
        Naming the column, and what to do.
    """
    for name in (target, *([weights] if weights else []), *drop, *keep):
        require_column(frame, name)
    if target in (weights, *drop):
        raise TableError(f"{target!r} is the target: it cannot be dropped, nor be the weights")
    known = frame[target].notna().to_numpy()
    if not known.any():
        raise TableError(f"target {target!r} is missing in every row: choose another column")
    held = frame[known]
    if len(held) == 1:
        raise TableError("the table has one row with a target: leave-one-out needs at least two")
    guessed, reason = guess_task(held[target]) if task == "auto" else (task, "as asked")
    y = _target(held[target], guessed)
    chosen = [(name, "you asked to drop it") for name in dict.fromkeys(drop)]
    inner = held.drop(columns=[target, *([weights] if weights else []), *drop])
    dropped = chosen + _unusable(inner, keep)
    features = inner.drop(columns=[name for name, _ in dropped[len(chosen) :]])
    if features.shape[1] == 0:
        raise TableError(f"no column is left to predict {target!r} from{_reasons(dropped)}")
    rows = np.flatnonzero(known)
    notes = _notes(len(frame) - len(rows), target, held, features)
    w = None if weights is None else _weights(held[weights])
    return Table(features, y, target, guessed, reason, rows, w, tuple(dropped), notes)


def require_column(frame: pd.DataFrame, name: str) -> None:
    """Refuse a column that is not there, and suggest names that are."""
    if name not in frame.columns:
        hint = _suggest(name, list(frame.columns)) or f"; the columns are {_listed(frame.columns)}"
        raise TableError(f"there is no column {name!r}{hint}")
    if list(frame.columns).count(name) > 1:
        raise TableError(f"there are several columns {name!r}: rename all but one")


def _listed(names: Any, most: int = 12) -> str:
    shown = ", ".join(map(str, list(names)[:most]))
    return shown + (f", … ({len(names)} in all)" if len(names) > most else "")


def _reasons(dropped: Sequence[tuple[str, str]]) -> str:
    return ": " + "; ".join(f"{name} ({why})" for name, why in dropped[:6]) if dropped else ""


def _notes(n_unknown: int, target: str, held: pd.DataFrame, features: pd.DataFrame) -> tuple[str, ...]:
    notes = []
    if n_unknown:
        notes.append(f"{n_unknown} rows without a target ({target}) were left out")
    repeated = int(held[[*features.columns, target]].astype(str).duplicated(keep=False).sum())
    if repeated:
        notes.append(
            f"{repeated} rows have an exact copy among the others: if these are the same observation "
            "entered twice, leaving one out does not hide it, and the risk is too optimistic"
        )
    gaps = features.isna().sum()
    gaps = gaps[gaps > 0].sort_values(ascending=False)
    if len(gaps):
        named = _listed([f"{name} ({count})" for name, count in gaps.items()], 6)
        notes.append(
            f"missing values in {named}; numbers are filled with the median and marked by an extra 0/1 "
            "column, in text missing is a level of its own"
        )
    return tuple(notes)


def _weights(column: pd.Series) -> Array:
    if not types.is_numeric_dtype(column):
        raise TableError(f"weights {column.name!r} are not numbers")
    values = column.to_numpy(np.float64, na_value=np.nan)
    bad = np.flatnonzero(~np.isfinite(values) | (values < 0))
    if bad.size:
        row = column.index[bad[0]]
        raise TableError(
            f"weights {column.name!r} must be numbers of at least 0, but row {row} has {column.iloc[bad[0]]}"
        )
    if not values.any():
        raise TableError(f"weights {column.name!r} are zero in every row")
    return values


# --- columns that cannot be features ---------------------------------------------------------------


def _unusable(features: pd.DataFrame, keep: Sequence[str]) -> list[tuple[str, str]]:
    """Columns to leave out, and why."""
    found = []
    for name in features.columns:
        column = features[name]
        why = _without_content(column) or ("" if name in keep else _identifies(column))
        if why:
            found.append((name, why))
    return found


def _without_content(column: pd.Series) -> str:
    present = column.dropna()
    if present.empty:
        return "all missing"
    if present.astype(str).nunique() == 1 and len(present) == len(column):
        return f"constant ({present.iloc[0]})"
    return ""


def _identifies(column: pd.Series) -> str:
    """Return why a column looks like a row identifier, or nothing."""
    kind, present = kind_of(column), column.dropna()
    if kind == "text" and not types.is_bool_dtype(present):
        most = int(present.astype(str).value_counts().iloc[0])
        least = rare_below(len(column))
        return f"looks like an identifier: no value occurs {least} times" if most < least else ""
    if kind != "number" or len(present) < len(column) or not present.is_unique:
        return ""
    values = present.to_numpy(np.float64)
    if values[0] in (0.0, 1.0) and np.all(np.diff(values) == 1):
        return "counts the rows"
    named = IDENTIFIER.fullmatch(str(column.name)) and _whole(values)
    return "looks like an identifier, by its name and distinct whole numbers" if named else ""


def rare_below(n: int) -> int:
    """Return how many rows a level of a text column must hold to stand for itself: n/10, in [2, 5]."""
    return int(np.clip(np.ceil(n / 10), 2, 5))


# --- the target ------------------------------------------------------------------------------------


def guess_task(target: pd.Series) -> tuple[str, str]:
    """Guess the task from a target without missing values.

    1. text, true/false and categories are classes; so are two distinct numbers in 4 rows or more;
    2. numbers that are not whole, or negative, mean regression;
    3. whole numbers that start at 0 or 1 and reach beyond three times their mean are counts;
    4. up to 10 consecutive whole numbers that start at 0 or 1 (and twice as many rows) are class codes;
    5. all other whole numbers mean regression.

    Parameters
    ----------
    target : (n,) Series

    Returns
    -------
    task, reason : str
    """
    distinct = target.nunique()
    labels = "binary" if distinct == 2 else "multiclass"
    several_each = 2 * distinct <= len(target)
    if types.is_datetime64_any_dtype(target):
        raise TableError(f"target {target.name!r} is a date: choose a number or a label")
    if types.is_bool_dtype(target) or not types.is_numeric_dtype(target):
        return labels, f"{distinct} labels"
    if distinct == 2 and several_each:
        return labels, "two distinct numbers"
    values = target.to_numpy(np.float64)
    if not _whole(values):
        return "regression", "decimal numbers"
    starts_low = values.min() in (0.0, 1.0)
    if starts_low and values.max() > 3.0 * values.mean():
        return "counts", "skewed whole numbers from 0 or 1"
    if starts_low and several_each and distinct <= MOST_CODES and distinct == np.ptp(values) + 1:
        return labels, f"{distinct} consecutive whole numbers from {values.min():g}"
    return "regression", "whole numbers"


def _whole(values: Array) -> bool:
    finite = values[np.isfinite(values)]
    return len(finite) == len(values) and bool(np.all(finite == np.round(finite)))


def _target(column: pd.Series, task: str) -> Any:
    if column.nunique() == 1:
        raise TableError(
            f"target {column.name!r} is {str(column.iloc[0])!r} in every row: there is nothing to predict"
        )
    return _labels(column, task) if task in ("binary", "multiclass") else _numbers(column, task)


def _numbers(column: pd.Series, task: str) -> Array:
    if types.is_bool_dtype(column):
        return column.to_numpy(np.float64)
    if not types.is_numeric_dtype(column):
        example = column[pd.to_numeric(column, errors="coerce").isna()]
        shown = f" (row {example.index[0]} has {example.iloc[0]!r})" if len(example) else ""
        raise TableError(
            f"target {column.name!r} is not a number{shown}: {task} needs one; for labels use --task "
            "binary or multiclass, or a model for classes"
        )
    values = column.to_numpy(np.float64)
    _refuse_infinity(column, values)
    if task == "counts" and np.any(values < 0):
        row = int(np.flatnonzero(values < 0)[0])
        raise TableError(
            f"target {column.name!r} is negative in row {column.index[row]} ({values[row]:g}): counts cannot "
            "be; use --task regression"
        )
    return values


def _labels(column: pd.Series, task: str) -> Any:
    counts = column.value_counts()
    name = column.name
    if task == "binary" and len(counts) > 2:
        raise TableError(f"target {name!r} has {len(counts)} classes: use --task multiclass")
    if 2 * len(counts) > len(column):
        raise TableError(
            f"target {name!r} has {len(counts)} classes in {len(column)} rows, more than there are pairs of "
            "rows: is it a number or an identifier? Use --task regression, or another column"
        )
    if counts.iloc[-1] == 1:
        raise TableError(
            f"class {str(counts.index[-1])!r} of target {name!r} has a single row: without it no model knows "
            "the class; merge it with another class or remove the row"
        )
    if types.is_bool_dtype(column):
        return column.to_numpy(bool)
    if types.is_numeric_dtype(column):
        values = column.to_numpy(np.float64)
        return values.astype(np.int64) if _whole(values) else values
    return np.array([str(label) for label in column])


# --- preprocessing ---------------------------------------------------------------------------------


def kind_of(column: pd.Series) -> str:
    """Return "number", "date" (a date type, or text in ISO 8601) or "text" (also true/false)."""
    if types.is_bool_dtype(column):
        return "text"
    if types.is_numeric_dtype(column):
        return "number"
    if types.is_datetime64_any_dtype(column):
        return "date"
    present = column.dropna().astype(str)
    return "date" if len(present) and bool(present.str.fullmatch(ISO_DATE).all()) else "text"


def preprocessing(features: pd.DataFrame) -> ColumnTransformer:
    """Make the preprocessing that suits each column.

    Numbers: the median where missing, with an extra 0/1 column that says so (one for all columns that are
    missing in the same rows); then standardised.
    Dates: days, then as numbers.  Text, true/false and categories: one 0/1 column a level, missing being
    a level of its own; rare levels, those beyond the 100 most frequent and those never seen are one.

    Parameters
    ----------
    features : (n, q) DataFrame

    Returns
    -------
    ColumnTransformer
        Not fitted.
    """
    groups: dict[str, list[str]] = {"number": [], "filled": [], "date": [], "text": []}
    patterns: set[bytes] = set()
    for name in features.columns:
        kind = kind_of(features[name])
        pattern = features[name].isna().to_numpy().tobytes()
        repeated = kind == "number" and pattern in patterns
        patterns.add(pattern)
        groups["filled" if repeated else kind].append(name)
    made: dict[str, Callable[[], Pipeline]] = {
        "number": lambda: _numeric(as_numbers, indicator=True),
        "filled": lambda: _numeric(as_numbers, indicator=False),
        "date": lambda: _numeric(as_days, indicator=True),
        "text": lambda: _one_hot(len(features)),
    }
    steps = [(group, made[group](), names) for group, names in groups.items() if names]
    return ColumnTransformer(steps, sparse_threshold=0.0)


def _numeric(reader: Any, *, indicator: bool) -> Pipeline:
    return Pipeline(
        [
            ("read", FunctionTransformer(reader, feature_names_out="one-to-one")),
            ("impute", SimpleImputer(strategy="median", add_indicator=indicator)),
            ("scale", StandardScaler()),
        ]
    )


def _one_hot(n: int) -> Pipeline:
    encoder = OneHotEncoder(
        drop="if_binary",
        handle_unknown="infrequent_if_exist",
        min_frequency=rare_below(n),
        max_categories=MOST_LEVELS,
        sparse_output=False,
        feature_name_combiner=level_name,
    )
    return Pipeline(
        [
            ("read", FunctionTransformer(as_levels, feature_names_out="one-to-one")),
            ("encode", encoder),
        ]
    )


def as_numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """Return columns as floats, nan where missing; refuse text and infinity."""
    return frame.apply(_as_number)


def _as_number(column: pd.Series) -> pd.Series:
    try:
        numbers = pd.to_numeric(column).astype(np.float64)
    except (ValueError, TypeError) as error:
        wrong = column[pd.to_numeric(column, errors="coerce").isna() & column.notna()]
        raise TableError(
            f"column {column.name!r} must hold numbers, but row {wrong.index[0]} has {wrong.iloc[0]!r}"
        ) from error
    _refuse_infinity(column, numbers.to_numpy())
    return numbers


def _refuse_infinity(column: pd.Series, values: Array) -> None:
    """Refuse numbers whose squares would not be finite."""
    too_large = np.flatnonzero(np.abs(values) > LARGEST)
    if too_large.size:
        row, value = column.index[too_large[0]], values[too_large[0]]
        what = "is infinite" if np.isinf(value) else f"is {value:.3g}, too large to compute with,"
        raise TableError(
            f"column {column.name!r} {what} in row {row}: make it empty (missing) or a number of ordinary "
            "size"
        )


def as_days(frame: pd.DataFrame) -> pd.DataFrame:
    """Return dates as days since 1970, nan where missing."""
    return frame.apply(_as_day)


def _as_day(column: pd.Series) -> pd.Series:
    try:
        dates = pd.to_datetime(column, format=None if _is_date(column) else "ISO8601", utc=True)
    except (ValueError, TypeError) as error:
        raise TableError(f"column {column.name!r} must hold dates: {_one_line(error)}") from error
    return (dates - pd.to_datetime(0, utc=True)) / pd.to_timedelta(1, unit="D")


def _is_date(column: pd.Series) -> bool:
    return bool(types.is_datetime64_any_dtype(column))


def as_levels(frame: pd.DataFrame) -> Any:
    """Return text, true/false and categories as text, missing as a level of its own: (n, q) of str."""
    levels = frame.astype(object).where(frame.notna(), MISSING_LEVEL)
    return levels.astype(str).to_numpy(object)


def level_name(column: str, level: str) -> str:
    """Name the 0/1 column of a level."""
    return f"{column}={'other' if level == 'infrequent_sklearn' else level}"


def feature_names(fitted: ColumnTransformer) -> list[str]:
    """Names of the columns that a fitted preprocessing makes, for people."""
    names = [name.split("__", 1)[1] for name in fitted.get_feature_names_out()]
    return [re.sub(r"^missingindicator_(.*)$", r"\1 missing", name) for name in names]
