"""Numbers as people write them: decimal commas, separators of thousands, currencies, percent signs.

A column of text is read as numbers if every cell of it is one.  ``1.234`` alone may be a thousand or a
fraction; what the other columns of the file look like decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from onefit.cli.errors import columns_listed

ERRORS = ("#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!", "#NULL!")  # of spreadsheets
MISSING_MARKS = ("?", "-", "--", "—", "n.a.", "n. a.", "k.A.", "k. A.", *ERRORS)  # beside those of pandas
NEARLY = 0.9  # share of the rows or distinct cells that are numbers, from which on the others look like slips
CURRENCY = r"[$€£¥₹₽₩]|(?:US\$|USD|EUR|GBP|CHF|JPY|CNY|kr|Fr\.|Rs\.?)(?=[\s\d-]|$)"
SAME = {"US$": "$", "USD": "$", "EUR": "€", "GBP": "£", "JPY": "¥", "Fr.": "CHF", "Rs": "₹", "Rs.": "₹"}
NO_SIGN = "no sign"
SPACES = "  \u2009’'"  # between thousands, beside the mark itself
SHORTEST_CODE = 3  # digits: hours, days and months have two
SAMPLE = 2000  # distinct cells that decide how a column is written


@dataclass(frozen=True)
class Numerals:
    """How numbers are written.

    Attributes
    ----------
    decimal : {".", ","}
    thousands : str
        One of ``,``, ``.``, a space or ``'``; nothing if there is none.
    """

    decimal: str = "."
    thousands: str = ""

    @property
    def pattern(self) -> str:
        """Of a number that is written like this, without its unit."""
        grouped = rf"\d{{1,3}}(?:[{_escaped(self.thousands)}]\d{{3}})+" if self.thousands else ""
        whole = rf"(?:\d+|{grouped})" if grouped else r"\d+"
        mark = _escaped(self.decimal)
        return rf"[+-]?(?:{whole}(?:[{mark}]\d*)?|[{mark}]\d+)(?:[eE][+-]?\d+)?"


def _escaped(mark: str) -> str:
    every = mark + SPACES if mark.strip() == "" or mark in SPACES else mark
    return every.replace("-", r"\-").replace("]", r"\]")


PLAIN, ENGLISH, CONTINENTAL = Numerals(), Numerals(".", ","), Numerals(",", ".")
SPACED, SPACED_COMMA = Numerals(".", " "), Numerals(",", " ")
WRITINGS = (PLAIN, Numerals(","), ENGLISH, CONTINENTAL, SPACED, SPACED_COMMA)
SURE = {  # what can be read in one way only
    ",": r"[+-]?(?:\d{1,3}(?:\.\d{3})+,\d+|0,\d+|\d+,(?:\d{1,2}|\d{4,})|\d{1,3}(?:\.\d{3}){2,})",
    ".": r"[+-]?(?:\d{1,3}(?:,\d{3})+\.\d+|0\.\d+|\d*\.(?:\d{1,2}|\d{4,})|\d{1,3}(?:,\d{3}){2,})",
}


def bare(cells: pd.Series) -> pd.Series:
    """Text without currency, percent sign and outer spaces; brackets mean a negative number."""
    text = cells.astype(str).str.strip()
    text = text.str.replace(r"^\((.*)\)$", r"-\1", regex=True).str.replace("−", "-")
    text = text.str.replace(CURRENCY, "", regex=True).str.replace(r"\s*%$", "", regex=True)
    return text.str.strip().str.replace(r"^([+-])\s+", r"\1", regex=True)


def signs(column: pd.Series) -> dict[str, int]:
    """Currencies and percent signs of a column of text, and how many cells have each; zeros need none."""
    present = column.dropna()
    text = present[~present.isin(MISSING_MARKS)].astype(str)
    if not text.str.contains(r"[^\d.,+\-]").any():
        return {}
    found = text.str.extract(f"(%|{CURRENCY})")[0]
    known = found[found.notna() | ~text.str.fullmatch("[+-]?[0.,]+")]
    return {
        str(sign): int(count) for sign, count in known.replace(SAME).fillna(NO_SIGN).value_counts().items()
    }


def distinct(column: pd.Series) -> pd.Series:
    """Some distinct cells that hold something, spread over the column."""
    present = column.dropna()
    some = present.iloc[:: max(1, len(present) // (5 * SAMPLE))]
    cells = pd.Series(some.unique()[:SAMPLE])
    return cells[~cells.isin(MISSING_MARKS)]


def decimal_mark(columns: Iterable[pd.Series], usual: str = "") -> str:
    """Decimal mark that the columns of text of a file speak for; nothing if none of them tells.

    Where cells may be read in two ways it is the usual one, if any of them has it.
    """
    votes, has_usual = dict.fromkeys(SURE, 0), False
    for column in columns:
        cells = bare(distinct(column))
        if not len(cells) or not cells.str.fullmatch(r"[+-]?[\d.,\s’']*\d[\d.,\s’']*").all():
            continue
        for mark, pattern in SURE.items():
            votes[mark] += bool(cells.str.fullmatch(pattern).any())
        has_usual |= bool(usual) and bool(cells.str.contains(usual, regex=False).any())
    if any(votes.values()):
        return max(votes, key=lambda mark: votes[mark])
    return usual if has_usual else ""


def read_numbers(
    column: pd.Series, decimal: str = "", thousands: str = ""
) -> tuple[Numerals, pd.Series] | None:
    """A column of text as floats, and how its numbers are written; None if some cell is not a number.

    Parameters
    ----------
    column : Series of text
    decimal, thousands : str
        What is known from the user or from the file: writings with this mark are tried first.
    """
    cells = bare(distinct(column))
    if not len(cells):
        return None
    tried = [Numerals(decimal or ".", thousands)] if thousands else []
    tried += sorted(WRITINGS, key=lambda one: one.decimal != (decimal or "."))
    for one in tried:
        values = numbers(column, one) if cells.str.fullmatch(one.pattern).all() else None
        if values is not None:
            return one, values
    return None


def numbers(column: pd.Series, written: Numerals) -> pd.Series | None:
    """A column of text as floats, nan where missing; None if some cell is not such a number."""
    cells = column.where(~column.isin(MISSING_MARKS))
    text = bare(cells.dropna())
    if not text.str.fullmatch(written.pattern).all():
        return None
    if written.thousands:
        marks = SPACES if written.thousands in SPACES else written.thousands
        text = text.str.replace(f"[{marks}]", "", regex=True)
    if written.decimal != ".":
        text = text.str.replace(written.decimal, ".", regex=False)
    found = pd.Series(np.nan, index=column.index, name=column.name)
    found.loc[text.index] = pd.to_numeric(text).to_numpy(np.float64)
    return found


def are_codes(column: pd.Series) -> bool:
    """Whether a column of text holds codes: nothing but digits, as many in each, some of them led by zeros.

    As those of a post office are.  Hours and months of two digits are numbers, and so are others of which
    one happens to be written with zeros before it.
    """
    cells = distinct(column).astype(str).str.strip()
    widths = cells.str.len()
    alike = len(cells) > 0 and widths.min() == widths.max() >= SHORTEST_CODE
    return bool(alike and cells.str.fullmatch(r"\d+").all() and cells.str.startswith("0").any())


def strays(column: pd.Series) -> list[str]:
    """Distinct cells that are no numbers, where nearly all are, or most are and those of nearly all rows."""
    present = column.dropna()
    present = present[~present.isin(MISSING_MARKS)]
    some = present.iloc[:: max(1, len(present) // (5 * SAMPLE))]
    return [] if _few_strays(some) is None else _few_strays(present) or []


def _few_strays(cells: pd.Series) -> list[str] | None:
    """Distinct cells that are no numbers, None where they are many."""
    counts = cells.value_counts(sort=False)
    known = pd.Series(counts.index)
    text = bare(known)
    strange = min((~text.str.fullmatch(one.pattern) for one in WRITINGS), key=lambda rest: rest.sum())
    share, of_rows = strange.mean(), strange.repeat(counts.to_numpy()).mean()
    are_few = share < 0.5 and min(share, of_rows) <= 1.0 - NEARLY
    return known[strange].astype(str).tolist() if are_few else None


def told(names: dict[str, Numerals]) -> Iterator[str]:
    """Say which columns of text were read as numbers, and how they are written."""
    for written in dict.fromkeys(names.values()):
        which = [name for name, one in names.items() if one == written]
        groups = f" and {written.thousands!r} between thousands" if written.thousands else ""
        yield f"read as numbers with decimal {written.decimal!r}{groups}: {columns_listed(which)}"
