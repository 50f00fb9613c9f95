"""What is wrong with a table, in one line that says what to do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

SEPARATORS = ",;\t|"  # of cells, that are looked for
CLOSE = 0.75  # share of the letters in which a name has to agree with one that was meant
NUMBER = r"[+-]?\d*[.,]?\d+(?:[eE][+-]?\d+)?"


class TableError(ValueError):
    """A table, or a column of it, that cannot be used; the message says what to do."""


class RowError(TableError):
    """The same of one row, which is numbered as in all that is written."""

    def __init__(self, message: str) -> None:
        super().__init__(f"{message} (rows are counted from 0 below the header)")


class WriteError(OSError):
    """A result that cannot be written; the message names it, and says what is written."""


def one_line(error: BaseException) -> str:
    """Message of an error of another library, in one line."""
    text = getattr(error, "strerror", None) or str(error)
    text = text.removeprefix("Error tokenizing data. C error: ")
    return " ".join(text.split()) or type(error).__name__


def suggest(name: str, known: Sequence[str] | Mapping[str, str]) -> str:
    """Close names, as the end of a message; of a mapping its values, by the names that lead to them."""
    pairs = known.items() if isinstance(known, Mapping) else [(str(one), str(one)) for one in known]
    folded = {one.lower(): full for one, full in reversed(list(pairs))}
    close = [folded[one] for one in difflib.get_close_matches(name.lower(), folded, n=3, cutoff=CLOSE)]
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""


def listed(names: Any, most: int = 12) -> str:
    """Names in a row, the first few of many."""
    shown = ", ".join(map(str, list(names)[:most]))
    return shown + (f", … ({len(names)} in all)" if len(names) > most else "")


def cited(name: Any) -> str:
    """A column in a sentence: in quotes where it would not stand out as one word."""
    return str(name) if re.fullmatch(r"[\w.%/+-]+", str(name)) else repr(str(name))


def columns_listed(names: Any, most: int = 6) -> str:
    """Columns in a sentence, the first few of many."""
    return listed([cited(name) for name in names], most)


def require_column(columns: Any, name: str) -> None:
    """Refuse a column that is not among these, and suggest names that are; no name is a target not named."""
    there = f"; the columns are {columns_listed(columns, 12)}{_if_a_row(columns)}"
    if not name:
        raise TableError(f"name the column to predict with --target{there}")
    if name not in columns:
        parts = [part.strip() for part in name.split(",")]
        hint = suggest(name, list(columns)) or there
        if len(parts) > 1 and all(part in columns for part in parts):
            hint = f": it is several, {listed([*map(repr, parts)])}; name each by an option of its own"
        if len(columns) == 1 and any(mark in str(columns[0]) for mark in SEPARATORS):
            hint = f"; the table has a single one, {str(columns[0])!r}: name what separates its cells, --sep"
        raise TableError(f"there is no column {name!r}{hint}")


def _if_a_row(columns: Any) -> str:
    """A question whether the first line has no names, where most of it are numbers."""
    numbers = sum(bool(re.fullmatch(NUMBER, str(name).strip())) for name in columns)
    are_rows = len(columns) > 0 and 2 * numbers > len(columns)
    return ". Are these a row? The first line has to hold the names of the columns" if are_rows else ""


class Interrupted(Exception):  # noqa: N818  (it is no error)
    """Ctrl-C, and what is finished nevertheless."""


@contextmanager
def naming(file: Any, kinds: Any = TableError) -> Iterator[None]:
    """Say which file an error is about.

    Parameters
    ----------
    file : str or Path
    kinds : type, or tuple of these
        Errors that become one of the table; those of results never do.
    """
    try:
        yield
    except WriteError:
        raise
    except kinds as error:
        said = one_line(error)
        raise TableError(said if said.startswith(str(file)) else f"{file}: {said}") from error
