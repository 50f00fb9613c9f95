"""What marks cells of a target as missing, and what may be a label of it."""

from __future__ import annotations

import pandas as pd

from onefit.cli.errors import listed
from onefit.cli.numerals import MISSING_MARKS
from onefit.cli.target import not_numbers
from onefit.wording import counted

OF_PANDAS = (
    *("#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
MISSING = (*OF_PANDAS, *MISSING_MARKS)
WORDS = ("None", "null", "NULL")  # pandas takes them for missing; all its other marks are no words


def with_labels(column: pd.Series, cells: pd.Series) -> tuple[pd.Series, tuple[str, ...]]:
    """A target with the labels that were read as missing, and what was taken for what.

    Among numbers every mark means missing.  Among text a word is a label, and so is any mark beside a single
    label, as - beside +: nothing would be left to predict.

    Parameters
    ----------
    column : (n,) Series
        As it was read.
    cells : (n,) Series of str
        As they stand in the file, empty ones included.
    """
    marked = cells.where(column.isna() & (cells != ""))
    labels = marked.isin(WORDS) & is_of_labels(column)
    if column.where(~labels, marked).nunique() == 1:
        labels = marked.notna() & is_of_labels(column)
    as_label = _taken(marked[labels], "a label; leave such cells empty where they mean missing")
    as_missing = _taken(marked[~labels].dropna(), "missing; a label needs another name")
    return column.where(~labels, marked), (*as_label, *as_missing)


def is_of_labels(column: pd.Series) -> bool:
    """Whether at least half of what is known is text, not numbers among which some cell went wrong."""
    known = column.notna().sum()
    return bool(0 < known <= 2 * len(not_numbers(column)))


def _taken(marked: pd.Series, what: str) -> tuple[str, ...]:
    counts = marked.value_counts()
    if counts.empty:
        return ()
    named = listed([f"{mark!r} in {counted(count, 'row')}" for mark, count in counts.items()], 6)
    return (f"{marked.name} is {named}: taken as {what}",)
