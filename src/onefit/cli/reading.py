"""Reading tables: what is in the file is found out, and said."""

from __future__ import annotations

import csv
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.api import types
from pyarrow.lib import ArrowException

from onefit.cli import dates, marks, numerals
from onefit.cli.encodings import CHUNK, encoding_of, is_gzip, opened
from onefit.cli.errors import TableError, listed, one_line, suggest
from onefit.cli.target import is_whole

PARQUET = (".parquet", ".pq")
SPREADSHEETS = (".xlsx", ".xls", ".ods")
SEPARATORS = ",;\t|"
JSON = r'\s*(?:\{\s*["}]|\[\s*[\[{])'  # how its text begins
HEAD = 50  # lines that decide how a file is separated


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
    """

    separator: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    encoding: str | None = None
    day_first: bool | None = None
    columns: dict[str, str] = field(default_factory=dict)
    codes: tuple[str, ...] = ()


class Source(NamedTuple):
    """A table, how it was written, and what is worth saying about that."""

    frame: pd.DataFrame
    format: Format
    notes: tuple[str, ...]


def read_table(path: str | Path, asked: Format | None = None, target: str | None = None) -> Source:
    """Read a table: Parquet by its ending, else text with a header, separated by , ; tab or |.

    Text may be compressed with gzip, in UTF-8 or an older encoding, with decimal points or commas, currencies
    and percent signs.  Digits with leading zeros are codes, and stay text.  Empty cells and ``?``, ``NA``,
    ``nan``, ``null``, … are missing; in a target of text ``None`` and ``null`` are labels.

    Parameters
    ----------
    path : str or Path
    asked : Format, optional
    target : str, optional
        Column of the target, if there is one.

    Returns
    -------
    Source
        The table with text column names, and rows numbered from 0.

    Raises
    ------
    TableError
        If there is no such file, or no table in it.
    """
    path, asked = Path(path), asked or Format()
    _check_path(path)
    try:
        is_parquet = path.suffix.lower() in PARQUET
        source = _parquet(path, asked) if is_parquet else _with_labels(_text(path, asked), path, target)
    except (OSError, EOFError, zlib.error) as error:
        raise TableError(f"{path} cannot be read: {one_line(error)}") from error
    except UnicodeDecodeError as error:
        raise TableError(
            f"{path} is not a table in {error.encoding} text (byte {error.start}): name its --encoding, or "
            "save it as CSV UTF-8"
        ) from error
    except (pd.errors.ParserError, csv.Error, ArrowException) as error:
        raise TableError(f"{path} is not a table: {one_line(error)}") from error
    if len(source.frame) == 0:
        raise TableError(f"{path} has a header but no rows")
    return source


def _check_path(path: Path) -> None:
    if str(path) == "-" or path.is_fifo() or path.is_char_device():
        raise TableError(
            f"{path} is a pipe, which cannot be read twice: write the table to a file and name that"
        )
    if not path.exists():
        nowhere = f" (nor a folder {path.parent})"
        near = path.parent.is_dir()
        hint = suggest(path.name, [entry.name for entry in path.parent.iterdir()]) if near else nowhere
        raise TableError(f"{path}: no such file{hint}")
    if path.is_dir():
        raise TableError(f"{path} is a folder: name a file in it")
    if path.suffix.lower() in SPREADSHEETS:
        raise TableError(f"{path} is a spreadsheet: save the sheet as CSV and use that file")


def _parquet(path: Path, asked: Format) -> Source:
    frame = pd.read_parquet(path)
    frame.columns = [str(name).strip() for name in frame.columns]
    frame, notes = _without_copies(frame, path)
    return _interpreted(frame, asked, notes)


# --- text ------------------------------------------------------------------------------------------


def _text(path: Path, asked: Format) -> Source:
    encoding, notes = encoding_of(path, asked.encoding)
    head = head_of(path, encoding)
    if not head.strip():
        raise TableError(f"{path} is empty: it needs a line of column names and one line for each row")
    if "\0" in head:
        raise TableError(f"{path} is not a table of text: save it as CSV UTF-8, or as Parquet")
    if re.match(JSON, head):
        raise TableError(
            f"{path} is JSON: tables are read from CSV, also separated by ; tab or |, and Parquet"
        )
    separator = asked.separator or separator_of(head)
    if separator not in SEPARATORS[:2]:
        notes.append(f"columns are separated by {'a tab' if separator == chr(9) else repr(separator)}")
    known = replace(asked, separator=separator, encoding=encoding)
    frame, copies = _parsed(path, known, as_text=asked.decimal == ",")
    notes += copies
    frame = _with_zeros(frame, path, known)
    source = _interpreted(frame, known, tuple(notes))
    if source.format.decimal == "," and asked.decimal != ",":  # 1.234 was a thousand
        frame, _ = _parsed(path, known, as_text=True)
        return _interpreted(frame, replace(source.format, codes=known.codes), tuple(notes))
    return source


def _parsed(path: Path, known: Format, *, as_text: bool) -> tuple[pd.DataFrame, tuple[str, ...]]:
    missing = list(numerals.MISSING_MARKS)
    frame = _cells(path, known, dtype=str if as_text else None, na_values=missing, index_col=False)
    frame.columns = _header(path, known, frame)
    return _without_copies(frame, path)


def _cells(path: Path, known: Format, **how: Any) -> pd.DataFrame:
    return pd.read_csv(
        path,
        sep=known.separator,
        skipinitialspace=True,
        encoding=known.encoding,
        compression="gzip" if is_gzip(path) else None,
        low_memory=False,
        **how,
    )


def _with_zeros(frame: pd.DataFrame, path: Path, known: Format) -> pd.DataFrame:
    """Read whole numbers anew as text where cells begin with zeros, which pandas has taken off."""
    numbers = frame.select_dtypes("number")
    whole = [name for name in numbers if bool((numbers[name].dropna() % 1 == 0).all())]
    if not whole or not (known.codes or _has_padded_cells(path, known)):
        return frame
    header = _header(path, known, _cells(path, known, nrows=0, index_col=False))
    places = sorted(header.index(name) for name in whole)
    missing = list(numerals.MISSING_MARKS)
    cells = _cells(path, known, dtype=str, na_values=missing, usecols=places, index_col=False)
    cells.columns = [header[place] for place in places]
    codes = [name for name in cells if name in known.codes or numerals.are_codes(cells[name])]
    return frame.assign(**dict(cells[codes].items()))


def _has_padded_cells(path: Path, known: Format) -> bool:
    """Whether some cell is of digits that begin with a zero."""
    ends, rest = rf'["\r\n{re.escape(str(known.separator))}]', ""
    padded = re.compile(rf"(?:^|{ends}) *0\d+ *(?:$|{ends})")
    with opened(path, str(known.encoding)) as file:
        for chunk in iter(lambda: file.read(CHUNK), ""):
            if padded.search(rest + chunk):
                return True
            rest = chunk[-HEAD:]
    return False


def _with_labels(source: Source, path: Path, target: str | None) -> Source:
    """Read the target anew where words in it may have been taken for missing."""
    if target is None or target not in source.frame or source.frame[target].notna().all():
        return source
    known = source.format
    place = _header(path, known, _cells(path, known, nrows=0, index_col=False)).index(target)
    cells = _cells(path, known, dtype=str, keep_default_na=False, usecols=[place], index_col=False)
    column, notes = marks.with_labels(source.frame[target], cells.iloc[:, 0].fillna("").rename(target))
    return Source(source.frame.assign(**{target: column}), known, (*source.notes, *notes))


def _header(path: Path, known: Format, frame: pd.DataFrame) -> list[str]:
    """Names as they stand in the file: pandas calls the second ``a`` ``a.1``."""
    with opened(path, str(known.encoding)) as file:
        names = next(csv.reader(file, delimiter=str(known.separator), skipinitialspace=True), [])
    if len(names) != frame.shape[1]:
        return [str(name).strip() for name in frame.columns]
    return [name.strip() or str(made) for name, made in zip(names, frame.columns, strict=True)]


def _without_copies(frame: pd.DataFrame, path: Path) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Leave out a column that is there twice, and refuse two of the same name that differ."""
    counts, notes = Counter(frame.columns), []
    for name in [name for name, count in counts.items() if count > 1]:
        places = np.flatnonzero(frame.columns == name)
        first = frame.iloc[:, places[0]]
        for place in places[1:]:
            if not first.equals(frame.iloc[:, place]):
                raise TableError(
                    f"{path}: columns {places[0] + 1} and {place + 1} are both named {name!r} and differ: "
                    "rename one of them; the first line of the file has to be the names of its columns"
                )
        frame = frame.iloc[:, [k for k in range(frame.shape[1]) if k not in places[1:]]]
        notes.append(f"column {name!r} is there {len(places)} times, all alike, and was read once")
    return frame.reset_index(drop=True), tuple(notes)


def head_of(path: Path, encoding: str) -> str:
    """The first lines of a file, which decide how it is separated."""
    with opened(path, encoding) as file:
        return "".join(line for line, _ in zip(file, range(HEAD), strict=False))


def separator_of(head: str) -> str:
    """The separator that cuts all lines into the same number of columns; else that of csv.Sniffer."""
    widths = {
        mark: {len(cells) for cells in csv.reader(head.splitlines(), delimiter=mark) if cells}
        for mark in SEPARATORS
    }
    found = {mark: max(each) for mark, each in widths.items() if len(each) == 1 and each != {1}}
    if found:
        return max(found, key=lambda mark: found[mark])
    header = head.splitlines()[0]
    counts = [len(next(csv.reader([header], delimiter=mark))) for mark in SEPARATORS]
    if max(counts) > 1:
        return SEPARATORS[int(np.argmax(counts))]
    try:
        return csv.Sniffer().sniff(head, delimiters=SEPARATORS).delimiter
    except csv.Error:
        return ","  # a single column


# --- what the cells mean ---------------------------------------------------------------------------


def _interpreted(frame: pd.DataFrame, known: Format, notes: tuple[str, ...]) -> Source:
    """Read columns of text as numbers or dates, where every cell is one."""
    frame = frame.assign(**{name: _labels_of(frame[name]) for name in known.codes if name in frame.columns})
    digits = [name for name in frame.columns if _is_text(frame[name])]
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
    read = replace(known, decimal=decimal or None, columns=columns, codes=codes)
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
        *_units(frame, written),
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


def _date_formats(text: pd.DataFrame, known: Format) -> dict[str, tuple[str, bool]]:
    return {
        name: (known.columns[name], False) if name in known.columns else one
        for name in text.columns
        if (one := dates.date_format(text[name], known.day_first)) is not None
    }


def _units(frame: pd.DataFrame, written: dict[str, numerals.Numerals]) -> list[str]:
    """Say which columns had currencies or percent signs."""
    with_sign = [
        name
        for name in written
        if numerals.distinct(frame[name]).astype(str).str.contains(rf"%|{numerals.CURRENCY}").any()
    ]
    return [f"currency and percent signs were taken off {listed(with_sign, 6)}"] if with_sign else []


def _as_text(slips: dict[str, tuple[str, list[str]]]) -> Iterator[str]:
    """Say which columns are text because of a few cells, by what they hold else and these cells."""
    for name, (what, strange) in slips.items():
        if strange:
            cells = listed([repr(cell) for cell in strange], 3)
            yield (
                f"{name} holds {what} but for {cells}, and was read as text: correct such cells, or leave "
                "them empty where they mean missing"
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
            f"{listed(codes, 6)} with leading zeros: read as codes, each a category of its own; write "
            "the numbers without these zeros if they are quantities"
        )
