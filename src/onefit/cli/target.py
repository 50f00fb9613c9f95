"""The target: what kind of task it is, and its values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

from onefit._typing import Array
from onefit.cli.errors import RowError, TableError, cited
from onefit.cli.numerals import are_codes
from onefit.validation import are_hardly_classes
from onefit.wording import counted

MOST_CODES = 10  # so many consecutive integers from 0 or 1 are read as class codes
MOST_CLASSES = 50  # every class needs its own coefficients
FEWEST = 4  # rows of classes: two of each
LEAST_ROWS = 3  # of any table: two are left without one
LARGEST = 1e100  # numbers beyond it overflow when they are squared and added up
IF_AMOUNTS = "use --task regression or counts if these are amounts, "  # where a target has too many classes


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
    if not is_whole(values):
        return "regression", "decimal numbers"
    starts_low = values.min() in (0.0, 1.0)
    if starts_low and values.max() > 3.0 * values.mean():
        return "counts", "skewed whole numbers from 0 or 1"
    if several_each and are_counted(values):
        whole = f"{distinct} consecutive whole numbers from {values.min():g}"
        return labels, f"{whole}; if they are amounts, --task counts or regression"
    return "regression", "whole numbers"


def are_counted(values: Array) -> bool:
    """Whether whole numbers are few and consecutive from 0 or 1 on, as codes are."""
    distinct = np.unique(values)
    few = 0 < len(distinct) <= MOST_CODES and distinct[0] in (0.0, 1.0)
    return bool(few and len(distinct) == np.ptp(distinct) + 1 and is_whole(distinct))


def target_values(column: pd.Series, task: str) -> Any:
    """Values of a target without missing ones, as its task needs them: (n,)."""
    if column.nunique() == 1:
        raise one_value(column.name, column.iloc[0])
    return _labels(column, task) if task in ("binary", "multiclass") else as_numbers(column, task)


def as_numbers(column: pd.Series, task: str) -> Array:
    """Values of a target of numbers without missing ones: (n,)."""
    if types.is_bool_dtype(column):
        return column.to_numpy(np.float64)
    if are_codes(column):  # a task of numbers was asked for
        column = pd.to_numeric(column)
    if not types.is_numeric_dtype(column):
        refuse_strays(column)
        example = not_numbers(column)
        shown = f" (row {example.index[0]} has {example.iloc[0]!r})" if len(example) else ""
        raise RowError(
            f"target {column.name!r} is not a number{shown}: {task} needs one; for labels use --task "
            "binary or multiclass, or a model for classes"
        )
    values = column.to_numpy(np.float64)
    refuse_infinity(column, values)
    if task == "counts" and np.any(values < 0):
        row = int(np.flatnonzero(values < 0)[0])
        raise RowError(
            f"target {column.name!r} is negative in row {column.index[row]} ({values[row]:g}): counts cannot "
            "be; use --task regression"
        )
    return values


def _labels(column: pd.Series, task: str) -> Any:
    counts = column.value_counts()
    counts = counts[counts > 0]  # of categories some may be those of no row
    name = column.name
    if task == "binary" and len(counts) > 2:
        fitting = "multiclass" if len(counts) <= MOST_CLASSES else "regression if these are numbers"
        raise TableError(f"target {name!r} has {len(counts)} classes: use --task {fitting}")
    if len(counts) > MOST_CLASSES or 2 * len(counts) > len(column):
        refuse_strays(column)
    if len(counts) > MOST_CLASSES and 2 * len(counts) <= len(column):
        raise TableError(
            f"target {name!r} has {len(counts)} classes, such as {str(counts.index[0])!r} and "
            f"{str(counts.index[1])!r}: at most {MOST_CLASSES} are taken. Is it a number written in a way "
            "that is not understood (see --decimal and --thousands)?"
        )
    too_many = types.is_numeric_dtype(column) and are_hardly_classes(len(counts), len(column))
    if too_many or 2 * len(counts) > len(column):
        raise TableError(
            f"target {name!r} has {len(counts)} classes in {len(column)} rows, {_too_many(column)}"
        )
    if counts.iloc[-1] == 1:
        raise single_row(name, counts.index[-1])
    if types.is_bool_dtype(column):
        return column.to_numpy(bool)
    if types.is_numeric_dtype(column):
        return numbers_as_labels(column)
    return np.array([str(label) for label in column])


def never_known(target: str, where: str = "every row") -> TableError:
    """An error that there is no target."""
    return TableError(f"target {target!r} is missing in {where}: choose another column")


def one_value(target: Any, value: Any) -> TableError:
    """An error that the target is constant."""
    return TableError(f"target {target!r} is {str(value)!r} in every row: there is nothing to predict")


def too_few_rows(count: int) -> TableError:
    """An error that nothing can be fitted to the rows that stay where one leaves."""
    return TableError(
        f"the table has {counted(count, 'row')} with a target: it takes at least {LEAST_ROWS} to fit a model "
        "without one of them"
    )


def single_row(target: Any, label: Any) -> TableError:
    """An error that a class cannot be left out."""
    return TableError(
        f"class {str(label)!r} of target {target!r} has a single row: without it no model knows the class; "
        "merge it with another class or remove the row"
    )


def without_target(count: int, target: str) -> str:
    """Say how many rows left, as they have no target."""
    return f"{counted(count, 'row')} without a target ({cited(target)}) left out"


def numbers_as_labels(column: pd.Series) -> Array:
    """Whole numbers as such; others as text, which classifiers do not take for amounts."""
    values = column.to_numpy(np.float64)
    refuse_infinity(column, values)
    if is_whole(values):
        return values.astype(np.int64)
    written = column.to_numpy() + 0.0  # −0 is 0
    return np.array([np.format_float_positional(value, trim="-") for value in written])


def _too_many(column: pd.Series) -> str:
    """What a target may be that has nearly as many classes as rows."""
    if len(column) < FEWEST:
        return "which are too few: each class needs two rows at least"
    if types.is_numeric_dtype(column):
        return "too few of each: is it a number or an identifier? Use --task regression, or another column"
    return (
        f"such as {str(column.iloc[0])!r}: write it as plain numbers if it is a number with a unit, or "
        "choose another column"
    )


def not_numbers(column: pd.Series) -> pd.Series:
    """Values that are neither numbers nor missing."""
    return column[pd.to_numeric(column, errors="coerce").isna() & column.notna()]


def refuse_strays(column: pd.Series) -> None:
    """Refuse text among numbers, where most are numbers."""
    strays = not_numbers(column)
    if 0 < 2 * len(strays) < len(column):
        more = f", and text in {len(strays) - 1} more" if len(strays) > 1 else ""
        raise RowError(
            f"target {column.name!r} holds numbers, but {strays.iloc[0]!r} in row {strays.index[0]}{more}: "
            "correct it, or leave it empty where it means missing"
        )


def refuse_infinity(column: pd.Series, values: Array, gaps: str = "empty (missing) or ") -> None:
    """Refuse numbers whose squares would not be finite; say what else than a number the cell may be."""
    too_large = np.flatnonzero(np.abs(values) > LARGEST)
    if too_large.size:
        row, value = column.index[too_large[0]], values[too_large[0]]
        what = "is infinite" if np.isinf(value) else f"is {value:.3g}, too large to compute with,"
        raise RowError(
            f"column {column.name!r} {what} in row {row}: make it {gaps}a number of ordinary "
            f"size, or leave the column out with --drop {column.name!r}"
        )


def is_whole(values: Array) -> bool:
    """Whether all values are finite whole numbers."""
    finite = values[np.isfinite(values)]
    return len(finite) == len(values) and bool(np.all(finite == np.round(finite)))
