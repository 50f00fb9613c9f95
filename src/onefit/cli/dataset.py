"""Tables that are read in passes: what is in the files, found out by their schema and the first rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
from pandas.api.types import is_string_dtype

from onefit.cli import marks
from onefit.cli.encodings import UTF8, known_encoding
from onefit.cli.errors import RowError, TableError, columns_listed, listed
from onefit.cli.meaning import Format
from onefit.cli.numerals import PLAIN, Numerals, are_codes, read_numbers
from onefit.cli.reading import (
    PARQUET,
    Header,
    cells_of,
    head_of,
    header_of,
    not_decoded,
    refuse_shifted,
    refuse_twice,
    separator_of,
)
from onefit.cli.table import Roles
from onefit.cli.target import LEAST_ROWS, never_known, too_few_rows
from onefit.sources.table import is_number, stray_cell, uneven_row, without_decimals

HEAD = 100_000  # rows that tell what kind of target it is
UNNAMED = re.compile(r"__index_level_\d+__")  # what pandas calls an index without a name in Parquet
ELSE = "or raise --memory-limit"
BLANKS = 8  # before a mark of what is missing, at most


@dataclass(frozen=True, eq=False)
class Passed:
    """A table of numbers that is read in passes.

    Attributes
    ----------
    dataset : Dataset
    names : list of str
        Columns of numbers that are no target and no weight.
    target : Series
        Its values in the first rows, of those that have one.
    is_whole : bool
        Whether there are no other rows.
    notes : tuple of str
        What was done or is worth knowing.
    encoding : str or None
        Of text; None of Parquet.
    """

    dataset: ds.Dataset
    names: list[str]
    target: pd.Series
    is_whole: bool
    notes: tuple[str, ...]
    encoding: str | None


def open_passes(path: Path, roles: Roles, asked: Format) -> Passed:
    """Open a folder of Parquet files, or a file.

    Raises
    ------
    TableError
        A column is not there or not of numbers, or there are no rows with a target.
    """
    try:
        return _opened(path, roles, asked)
    except UnicodeError as error:
        raise not_decoded(path, error, asked) from error


def _opened(path: Path, roles: Roles, asked: Format) -> Passed:
    is_parquet, cells, encoding = _is_parquet(path), pd.DataFrame(), None
    said: tuple[str, ...] = ()
    if is_parquet:
        dataset = _parquet(path)
    else:
        known = _known(path, asked)
        header, encoding = _header(path, known), known.encoding
        cells = _cells(path, known, header)
        labels, said = _labels(cells, roles.target)
        dataset, said = _text(path, known, header, labels), (*header.notes, *said)
    schema = dataset.schema
    roles.check(pd.DataFrame(columns=schema.names))
    head = _head(dataset, roles.target)
    head = head if is_parquet else _without_blanks(head)
    is_whole = len(head) < HEAD
    if not is_whole:
        said = tuple(f"in the first {HEAD:,} rows {note}" for note in said)
    names = [name for name in schema.names if name not in {*roles.special, *_unnamed(schema)}]
    of_text = [name for name in (*names, roles.target) if not is_number(schema.field(name).type)]
    _refuse_empty([name for name in of_text if pa.types.is_null(schema.field(name).type)])
    _refuse_text(of_text, roles.target, cells, asked.thousands or "")
    _refuse_codes([name for name in (*names, roles.target) if name in cells and are_codes(cells[name])])
    if not names:
        raise TableError("there is no column beside the target")
    notes = (*said, *_about_index(schema), *_about_folder(path, dataset)) if is_parquet else said
    return Passed(dataset, names, head.dropna(), is_whole, notes, encoding)


def _is_parquet(path: Path) -> bool:
    return path.is_dir() or path.suffix.lower() in PARQUET


def _files(path: Path) -> list[Path]:
    return sorted(path.rglob("*.parquet")) if path.is_dir() else [path]


def _head(dataset: ds.Dataset, target: str) -> pd.Series:
    """The target in the first rows, some of which have one."""
    try:
        first = dataset.head(HEAD, columns=[target], use_threads=False)
    except pa.ArrowInvalid as error:
        fragment = next(dataset.get_fragments())
        if told := stray_cell(str(error), fragment, dataset.schema.names):
            raise TableError(f"{fragment.path} {told}") from error
        raise
    head = without_decimals(first[target]).to_pandas()
    if head.empty:
        raise TableError("the table has a header but no rows")
    if head.isna().all():
        raise never_known(target, "every row" if len(head) < HEAD else f"the first {HEAD:,} rows")
    if (count := int(head.notna().sum())) < LEAST_ROWS and len(head) < HEAD:
        raise too_few_rows(count)
    return head


def _without_blanks(head: pd.Series) -> pd.Series:
    """Labels as in memory, where blanks after a separator are no part of a cell."""
    if not is_string_dtype(head):
        return head
    quoted = head[head.str.match(' +"', na=False)]
    if len(quoted):
        raise RowError(
            f"target {head.name!r} is {quoted.iloc[0]!r} in row {quoted.index[0]}, where quotes come after "
            f"blanks: take the blanks after separators out, {ELSE}"
        )
    return head.str.lstrip(" ")


# --- text ------------------------------------------------------------------------------------------


def _known(path: Path, asked: Format) -> Format:
    """With separator and encoding."""
    encoding = known_encoding(asked.encoding or "utf-8")
    return replace(
        asked, separator=asked.separator or separator_of(head_of(path, encoding)), encoding=encoding
    )


def _header(path: Path, known: Format) -> Header:
    header = header_of(path, known)
    refuse_twice(list(header.names), path)
    if header.goes_on:
        raise TableError(f"rows have empty cells beyond the columns of the header: take them off, {ELSE}")
    return header


def _cells(path: Path, known: Format, header: Header) -> pd.DataFrame:
    """The first rows as text."""
    cells = cells_of(path, known, header, dtype=str, nrows=HEAD, keep_default_na=False, na_values=[""])
    cells.columns = pd.Index(header.names)
    refuse_shifted(path, header, cells)
    return cells


def _labels(cells: pd.DataFrame, target: str) -> tuple[set[str], tuple[str, ...]]:
    """Marks that are labels of the target, where otherwise they mean missing, and what to say of that."""
    if target not in cells:
        return set(), ()
    own = cells[target]
    known = own.mask(own.isin(marks.MISSING))
    found, said = marks.with_labels(known, own.fillna(""))
    words = marks.WORDS if marks.is_of_labels(known) else ()  # which rows further down may have
    return {*words, *(set(found.dropna()) & set(marks.MISSING))}, said


def _text(path: Path, known: Format, header: Header, labels: set[str]) -> ds.Dataset:
    missing = [
        " " * k + mark for mark in ("", *marks.MISSING) if mark not in labels for k in range(BLANKS + 1)
    ]
    text = ds.CsvFileFormat(
        parse_options=pyarrow.csv.ParseOptions(delimiter=str(known.separator), newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            decimal_point=known.decimal or ".", null_values=missing, strings_can_be_null=True
        ),
        read_options=pyarrow.csv.ReadOptions(
            encoding="utf8" if known.encoding == UTF8 else known.encoding,
            column_names=header.names,
            skip_rows=header.lines,
        ),
    )
    try:
        return ds.dataset(str(path), format=text)
    except pa.ArrowInvalid as error:
        if told := uneven_row(str(error), 1 + header.lines):
            raise TableError(f"{path} {told}") from error
        raise


def _refuse_empty(names: list[str]) -> None:
    """Refuse columns of which the first rows do not tell what they hold."""
    if names:
        raise TableError(
            f"{listed(list(map(repr, names)), 6)} {'is' if len(names) == 1 else 'are'} empty in the first "
            f"rows: leave out by --drop, {ELSE}"
        )


def _refuse_text(of_text: list[str], target: str, cells: pd.DataFrame, thousands: str) -> None:
    """Refuse columns that are not of numbers, and say what to do where they are, written in another way."""
    found = {name: read_numbers(cells[name].dropna(), "", thousands) for name in of_text if name in cells}
    written = [one[0] for one in found.values() if one is not None]
    names = [name for name in of_text if name != target or found.get(name)]
    if not names:
        return
    way = "leave out by --drop, write as numbers" if not written else _plainly(written)
    raise TableError(
        f"tables larger than memory are of numbers alone, which {listed(list(map(repr, names)), 6)} "
        f"{'is' if len(names) == 1 else 'are'} not: {way}, {ELSE}"
    )


def _plainly(written: list[Numerals]) -> str:
    """What to do with columns of numbers that are written in other ways."""
    commas = [one.decimal for one in written if one.decimal != PLAIN.decimal]
    grouped = [one.thousands for one in written if one.thousands]
    if grouped:
        return f"write numbers without {grouped[0]!r} between thousands, which are read in memory alone"
    return "say --decimal , if commas are decimal" if commas else "write numbers without currencies and signs"


def _refuse_codes(codes: list[str]) -> None:
    """Refuse digits with leading zeros: codes in a table in memory, of which numbers lose the zeros."""
    if codes:
        raise TableError(
            f"tables larger than memory are of numbers alone, and {listed(list(map(repr, codes)), 6)} with "
            f"leading zeros would be codes: leave out by --drop, write without these zeros, {ELSE}"
        )


# --- Parquet ---------------------------------------------------------------------------------------


def _parquet(path: Path) -> ds.Dataset:
    return ds.dataset([str(file) for file in _files(path)], format="parquet")


def _index(schema: pa.Schema) -> list[str | dict[str, str | None]]:
    """What pandas has written of the index: a column each, or what it counts from and to."""
    return list((schema.pandas_metadata or {}).get("index_columns", []))


def _unnamed(schema: pa.Schema) -> list[str]:
    return [level for level in _index(schema) if isinstance(level, str) and UNNAMED.fullmatch(level)]


def _about_index(schema: pa.Schema) -> Iterator[str]:
    """Say what became of an index, unless it only numbers rows."""
    levels, unnamed = _index(schema), _unnamed(schema)
    ranges = [level["name"] for level in levels if isinstance(level, dict) and level.get("name")]
    named = [level for level in levels if isinstance(level, str) and level not in unnamed]
    if ranges:
        yield f"the index {ranges[0]!r} counts the rows, and was left out"
    if named:
        yield f"the index was read as {listed(list(map(repr, named)), 6)}"
    if unnamed and not (len(levels) == 1 and pa.types.is_integer(schema.field(unnamed[0]).type)):
        yield "the index was left out where it has no name"


def _about_folder(path: Path, dataset: ds.Dataset) -> Iterator[str]:
    """Say which columns some files have beyond those of the first, or names of folders tell of."""
    known = set(dataset.schema.names)
    schemas = [fragment.physical_schema for fragment in dataset.get_fragments()]
    more = [name for own in schemas for name in own.names if name not in {*known, *_unnamed(own)}]
    if more:
        yield f"left out, as the first file has no such column: {columns_listed(list(dict.fromkeys(more)))}"
    folders = [part for file in _files(path) for part in file.relative_to(path).parts[:-1]]
    keys = [part.split("=")[0] for part in folders if "=" in part]
    if left := [key for key in dict.fromkeys(keys) if key not in known]:
        yield f"left out, as names of folders are not read: {columns_listed(left)}"
