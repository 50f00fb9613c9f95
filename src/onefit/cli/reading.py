"""Reading tables: what is in the file is found out, and said."""

from __future__ import annotations

import csv
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.api.types import is_integer_dtype, is_string_dtype
from pyarrow import parquet
from pyarrow.lib import ArrowException
from pyarrow.types import is_nested

from onefit.cli import marks, numerals
from onefit.cli.encodings import CHUNK, encoding_of, is_gzip, opened
from onefit.cli.errors import SEPARATORS, TableError, columns_listed, listed, one_line, suggest
from onefit.cli.meaning import Format, Source, interpreted
from onefit.wording import counted

PARQUET = (".parquet", ".pq")
SPREADSHEETS = (".xlsx", ".xls", ".ods")
JSON = r'\s*(?:\{\s*["}]|\[\s*[\[{])'  # how its text begins
MISSING = list(numerals.MISSING_MARKS)
LONG_LINE = re.compile(r"Expected (?P<width>\d+) fields in line (?P<line>\d+), saw (?P<own>\d+)")  # of pandas
HEAD = 50  # lines that decide how a file is separated


def read_table(path: str | Path, asked: Format | None = None, target: str | None = None) -> Source:
    """Read a table: Parquet by its ending, else text with a header, separated by , ; tab or |.

    Text may be compressed with gzip, in UTF-8 or an older encoding, with decimal points or commas, currencies
    and percent signs.  Digits with leading zeros are codes, and stay text.  Empty cells and ``?``, ``NA``,
    ``nan``, ``null``, … are missing; in a target of text ``None`` and ``null`` are labels.  Where the header
    is one cell short, rows begin with their names; an index of Parquet is columns.

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
        source = (_parquet if path.suffix.lower() in PARQUET else _text)(path, asked, target)
    except (OSError, EOFError, zlib.error) as error:
        raise TableError(f"{path} cannot be read: {one_line(error)}") from error
    except UnicodeError as error:
        raise not_decoded(path, error, asked) from error
    except (pd.errors.ParserError, csv.Error, ArrowException) as error:
        raise TableError(f"{path} is not a table: {_long_line(error) or one_line(error)}") from error
    if len(source.frame) == 0:
        raise TableError(f"{path} has a header but no rows")
    return source


def _long_line(error: Exception) -> str:
    """What pandas says of a line of too many cells, and what to do; nothing of other errors."""
    found = LONG_LINE.search(str(error))
    if found is None:
        return ""
    return (
        f"line {found['line']} has {found['own']} cells, where the header has {found['width']}: put a cell "
        "that holds the separator in quotes, or take what is too much out"
    )


def not_decoded(path: Path, error: UnicodeError, asked: Format) -> TableError:
    """An error that a file is in another encoding."""
    at = f"byte {error.start}" if isinstance(error, UnicodeDecodeError) else one_line(error)
    return TableError(
        f"{path} is not a table in {getattr(error, 'encoding', asked.encoding)} text ({at}): name its "
        "--encoding, or save it as CSV UTF-8"
    )


def _check_path(path: Path) -> None:
    if str(path) == "-" or path.is_fifo() or path.is_char_device():
        raise TableError(
            f"{path} is a pipe, which cannot be read twice: write the table to a file and name that"
        )
    if not path.exists():
        nowhere = f" (nor a folder {path.parent})"
        near = path.parent.is_dir()
        there = {entry.stem: entry.name for entry in path.parent.iterdir()} if near else {}
        hint = suggest(path.stem, there) if near else nowhere
        raise TableError(f"{path}: no such file{hint}")
    if path.is_dir():
        raise TableError(f"{path} is a folder: name a file in it")
    if path.suffix.lower() in SPREADSHEETS:
        raise TableError(f"{path} is a spreadsheet: save the sheet as CSV and use that file")


def _parquet(path: Path, asked: Format, target: str | None) -> Source:
    schema = parquet.read_schema(path)
    refuse_twice(schema.names, path)
    nested = [field.name for field in schema if is_nested(field.type)]
    if target in nested:
        raise TableError(f"{path}: target {target!r} holds lists or structures: choose a number or a label")
    others = [name for name in schema.names if name not in nested] if nested else None
    frame, notes = _with_index(pd.read_parquet(path, columns=others))
    frame.columns = [str(name).strip() for name in frame.columns]
    if nested:
        notes += (f"{columns_listed(nested)}: lists or structures, which were left out",)
    frame, copies = _without_copies(frame, path)
    return interpreted(frame, asked, (*notes, *copies))


def refuse_twice(names: list[str], path: Path) -> None:
    """Refuse two columns of the same name, which pandas does not read."""
    for name, count in Counter(names).items():
        if count > 1:
            first = names.index(name)
            second = names.index(name, first + 1)
            raise TableError(
                f"{path}: columns {first + 1} and {second + 1} are both named {name!r}: rename one of them"
            )


def _with_index(frame: pd.DataFrame) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """An index as columns, unless it only numbers rows, or has the name of a column."""
    if frame.index.nlevels == 1 and frame.index.name is None and is_integer_dtype(frame.index):
        return frame, ()
    names = [_unnamed(k) if name is None else name for k, name in enumerate(frame.index.names)]
    if twice := [repr(str(name)) for name in names if name in frame.columns]:
        said = f"the index was left out: a column is called {listed(twice, 6)}, too"
        return frame.reset_index(drop=True), (said,)
    said = f"the index was read as {listed([repr(str(name)) for name in names], 6)}"
    return frame.reset_index(names=names), (said,)


# --- text ------------------------------------------------------------------------------------------


def _text(path: Path, asked: Format, target: str | None) -> Source:
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
    header = header_of(path, known)
    frame, copies = _parsed(path, known, header, as_text=asked.decimal == ",")
    notes += [*header.notes, *copies, *_about_short_lines(path, known, header, frame)]
    frame = _with_zeros(frame, path, known, header)
    source = interpreted(frame, known, tuple(notes))
    if source.format.decimal == "," and asked.decimal != ",":  # 1.234 was a thousand
        frame, _ = _parsed(path, known, header, as_text=True)
        source = interpreted(frame, replace(source.format, codes=known.codes, text=known.text), tuple(notes))
    refuse_shifted(path, header, source.frame)
    return _with_labels(source, path, header, target)


class Header(NamedTuple):
    """Columns of a table of text.

    Attributes
    ----------
    names : tuple of str
        As they stand in the file.
    notes : tuple of str
    goes_on : bool
        Whether rows have empty cells beyond these columns.
    lines : int
        Lines of the file that it ends after: more than one where blank ones come first, or a name is of two.
    """

    names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    goes_on: bool = False
    lines: int = 1


def header_of(path: Path, known: Format) -> Header:
    """Columns by the header; one more before them, where each row begins with its name, as R writes them."""
    with opened(path, str(known.encoding)) as file:
        lines = csv.reader(file, delimiter=str(known.separator), skipinitialspace=True)
        rows = (cells for cells in lines if len(cells) > 1 or "".join(cells).strip())
        named, length = next(rows, []), lines.line_num
        first, width, wide, uneven = next(rows, []), len(named), 0, False
        if len(first) > width:
            for cells in chain([first], rows):
                wide = wide or (lines.line_num if any(map(str.strip, cells[width:])) else 0)
                uneven = uneven or len(cells) != width + 1
    if wide and uneven:
        raise TableError(
            f"{path} is not a table: line {wide} has more cells than the header: the first line of the file "
            "has to be the names of its columns, and each row as many cells, or its own name before them"
        )
    notes: tuple[str, ...] = ()
    if wide:
        named = ["", *named]
        notes = (f"the header is one cell short: rows begin with their names, read as {_unnamed(0)!r}",)
    elif len(first) > width:
        notes = ("rows end in empty cells beyond the header, which were left out",)
    names = tuple(name.strip() or _unnamed(place) for place, name in enumerate(named))
    return Header(names, notes, len(first) > len(names), length)


def _about_short_lines(path: Path, known: Format, header: Header, frame: pd.DataFrame) -> Iterator[str]:
    """Say which lines have fewer cells than there are columns; such a line leaves the last column empty."""
    width = len(header.names)
    if width < 2 or header.names[-1] not in frame or frame[header.names[-1]].notna().all():
        return
    begins, held, count = 0, 0, 0
    with opened(path, str(known.encoding)) as file, suppress(csv.Error):  # of a cell too long for csv
        lines = csv.reader(file, delimiter=str(known.separator), skipinitialspace=True)
        for cells in lines:
            if len(cells) < width and lines.line_num > header.lines and "".join(cells).strip():
                begins, held, count = begins or lines.line_num, held or len(cells), count + 1
    if count:
        first = f", the first of {count} such lines," if count > 1 else ""
        yield (
            f"line {begins}{first} has {counted(held, 'cell')}, where the header has {width}: the last "
            "columns were read as missing; complete the line if it lacks a cell before them"
        )


def refuse_shifted(path: Path, header: Header, frame: pd.DataFrame) -> None:
    """Refuse names of rows below the name of the first column, where the header ends in an empty cell."""
    first, last = header.names[0], header.names[-1]
    if last != _unnamed(len(header.names) - 1) or not {first, last} <= {*frame.columns} or first == last:
        return
    names = frame[first]
    numbers = numerals.read_numbers(names) if is_string_dtype(names) else ("", names)
    counts = numbers is not None and bool((numbers[1] == np.arange(1, len(names) + 1)).all())
    if names.is_unique and frame[last].notna().all() and (numbers is None or counts):
        raise TableError(
            f"{path}: the header ends in an empty cell, and {first!r} holds {listed(names.tolist(), 2)}, as "
            "names of rows are: put the empty cell first if they are names, else name the last column"
        )


def _unnamed(place: int) -> str:
    """What pandas calls a column without a name."""
    return f"Unnamed: {place}"


def _parsed(
    path: Path, known: Format, header: Header, *, as_text: bool
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    words = {place: str for place, name in enumerate(header.names) if name in known.text}
    frame = cells_of(path, known, header, dtype=str if as_text else words, na_values=MISSING)
    frame.columns = pd.Index(header.names)
    return _without_copies(frame, path)


def cells_of(path: Path, known: Format, header: Header, **how: Any) -> pd.DataFrame:
    """Columns of a file, named by their places."""
    places = list(range(len(header.names)))
    return pd.read_csv(
        path,
        sep=known.separator,
        skipinitialspace=True,
        encoding=known.encoding,
        compression="gzip" if is_gzip(path) else None,
        low_memory=False,
        index_col=False,
        header=0,
        names=places,
        **({"usecols": places} if header.goes_on else {}) | how,
    )


def _with_zeros(frame: pd.DataFrame, path: Path, known: Format, header: Header) -> pd.DataFrame:
    """Read whole numbers anew as text where cells begin with zeros, which pandas has taken off."""
    numbers = frame.select_dtypes("number")
    whole = [name for name in numbers if bool((numbers[name].dropna() % 1 == 0).all())]
    if not whole or not (known.codes or _has_padded_cells(path, known)):
        return frame
    places = sorted(header.names.index(name) for name in whole)
    cells = cells_of(path, known, header, dtype=str, na_values=MISSING, usecols=places)
    cells.columns = pd.Index([header.names[place] for place in places])
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


def _with_labels(source: Source, path: Path, header: Header, target: str | None) -> Source:
    """Read the target anew where words in it may have been taken for missing."""
    if target is None or target not in source.frame or source.frame[target].notna().all():
        return source
    known = source.format
    place = header.names.index(target)
    cells = cells_of(path, known, header, dtype=str, keep_default_na=False, usecols=[place])
    column, notes = marks.with_labels(source.frame[target], cells.iloc[:, 0].fillna("").rename(target))
    return Source(source.frame.assign(**{target: column}), known, (*source.notes, *notes))


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
