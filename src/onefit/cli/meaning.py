"""What the cells of a table mean: numbers, dates, codes, or text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from pandas.api import types

from onefit.cli import dates, numerals
from onefit.cli.errors import cited, columns_listed, listed
from onefit.cli.target import is_whole


@dataclass(frozen=True)
class Format:
    """How the text of a table is written; what is None is found out.

    Attributes
    ----------
    separator, encoding : str or None
    decimal, thousands : str or None
        Marks in numbers.
    day_first : bool or None
        Whether 1/2/2024 is in February.
    columns : dict of str to str
        Formats of the dates of some columns, where they are known.
    codes : tuple of str
        Columns of digits that are no numbers, where they are known.
    text : tuple of str
        Columns of text, whatever it looks like, where they are known.
    units : dict of str to str
        Currencies and percent signs of columns of numbers.
    """

    separator: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    encoding: str | None = None
    day_first: bool | None = None
    columns: dict[str, str] = field(default_factory=dict)
    codes: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    units: dict[str, str] = field(default_factory=dict)


class Source(NamedTuple):
    """A table, how it was written, and what is worth saying about that."""

    frame: pd.DataFrame
    format: Format
    notes: tuple[str, ...]


def interpreted(frame: pd.DataFrame, known: Format, notes: tuple[str, ...]) -> Source:
    """Read columns of text as numbers or dates, where every cell is one."""
    labels = [name for name in (*known.codes, *known.text) if name in frame.columns]
    frame = frame.assign(**{name: _labels_of(frame[name]) for name in labels})
    digits = [name for name in frame.columns if _is_text(frame[name]) and name not in known.text]
    codes = tuple(name for name in digits if name in known.codes or numerals.are_codes(frame[name]))
    text = [name for name in digits if name not in codes]
    guessed = _date_formats(frame[text], known)
    numeric = [name for name in text if name not in guessed]
    usual = "," if known.separator == ";" else ""  # it stands between columns where commas are in numbers
    decimal = known.decimal or numerals.decimal_mark((frame[name] for name in numeric), usual)
    numbers = {
        name: found
        for name in numeric
        if (found := numerals.read_numbers(frame[name], decimal, known.thousands or "")) is not None
    }
    written = {name: how for name, (how, _) in numbers.items()}
    days = {name: dates.dates(frame[name], format_) for name, (format_, _) in guessed.items()}
    formats = {name: one for name, one in guessed.items() if days[name] is not None}
    made = {
        **dict(frame.items()),
        **{name: values for name, (_, values) in numbers.items()},
        **{name: days[name] for name in formats},
    }
    columns = {name: one for name, (one, _) in formats.items()}
    words = tuple(
        name for name in frame.columns if name not in {*numbers, *formats, *codes} and _is_words(frame[name])
    )
    signs = {name: one for name in written if {*(one := numerals.signs(frame[name]))} - {numerals.NO_SIGN}}
    units = {name: " or ".join(sorted(one)) for name, one in signs.items()}
    read = replace(known, decimal=decimal or None, columns=columns, codes=codes, text=words, units=units)
    notable = {name: one for name, one in written.items() if one != numerals.PLAIN}
    slips = {name: ("numbers", numerals.strays(frame[name])) for name in numeric if name not in numbers}
    slips |= {
        name: ("dates", dates.strays(frame[name], one))
        for name, (one, _) in guessed.items()
        if name not in formats
    }
    said = (
        *notes,
        *numerals.told(notable),
        *(_with_points(written) if known.decimal == "," else ()),
        *_told_units(signs),
        *dates.told(formats),
        *_as_text(slips),
        *_as_codes([name for name in codes if name not in known.codes]),
    )
    return Source(pd.DataFrame(made), read, said)


def _is_text(column: pd.Series) -> bool:
    return not (
        types.is_bool_dtype(column)
        or types.is_numeric_dtype(column)
        or types.is_datetime64_any_dtype(column)
        or isinstance(column.dtype, pd.CategoricalDtype)
    ) and not any(isinstance(value, bool) for value in column.dropna())


def _is_words(column: pd.Series) -> bool:
    """Whether all that a column holds is text, or categories of text."""
    categorical = isinstance(column.dtype, pd.CategoricalDtype)
    return types.infer_dtype(column.cat.categories if categorical else column, skipna=True) == "string"


def _date_formats(text: pd.DataFrame, known: Format) -> dict[str, tuple[str, bool]]:
    """Formats of columns of dates: known ones where the cells have them, others where they leave no doubt."""
    found = {}
    for name, column in text.items():
        own, seen = known.columns.get(str(name)), dates.date_format(column, known.day_first)
        if own and known.day_first is None and column.notna().any() and dates.dates(column, own) is not None:
            found[str(name)] = (own, False)
        elif seen is not None and not (own and seen[1]):
            found[str(name)] = seen
    return found


def _with_points(written: dict[str, numerals.Numerals]) -> Iterator[str]:
    """Say which numbers have decimal points where those of the table have commas."""
    if pointed := [name for name, how in written.items() if how.decimal != ","]:
        yield f"decimal '.' in {columns_listed(pointed)}, where ',' was to be expected: read as points"


def _told_units(signs: dict[str, dict[str, int]]) -> Iterator[str]:
    """Say which columns had currencies or percent signs, and where cells differ in them."""
    if signs:
        yield f"currency and percent signs were taken off {columns_listed(signs)}"
    for name, counts in signs.items():
        if len(counts) > 1:
            each = listed([f"{sign} in {count}" for sign, count in counts.items()], 6)
            own = cited(name)
            yield f"cells of {own} differ in their sign ({each}) and were read as they are: write all alike"


def _as_text(slips: dict[str, tuple[str, list[str]]]) -> Iterator[str]:
    """Say which columns are text because of a few cells, by what they hold else and these cells."""
    for name, (what, strange) in slips.items():
        if strange:
            cells = listed([repr(cell) for cell in strange], 3)
            yield (
                f"{cited(name)} holds {what} but for {cells}, and was read as text: correct such cells, "
                "or leave them empty where they mean missing"
            )


def _labels_of(column: pd.Series) -> pd.Series:
    """Whole numbers as text; other columns as they are."""
    is_number = types.is_numeric_dtype(column) and not types.is_bool_dtype(column)
    if not is_number or not is_whole(column.dropna().to_numpy(np.float64)):
        return column
    return column.astype("Int64").astype("string").astype(object)


def _as_codes(codes: list[str]) -> Iterator[str]:
    """Say which columns are codes."""
    if codes:
        yield (
            f"{columns_listed(codes)} with leading zeros: read as codes, each a category of its own; write "
            "the numbers without these zeros if they are quantities"
        )
