"""Blocks of tables on disk, read by pyarrow: Parquet files and folders, and whatever else it knows."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, final

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
from pyarrow import compute

from onefit._typing import Index
from onefit.blocks import Block, block_length
from onefit.sources.base import LocalSource
from onefit.sources.checks import Layout


@final
class TableSource(LocalSource):
    """Rows of a Parquet file, of a folder of them, or of any ``pyarrow.dataset``.

    Files are read one after the other, some rows at a time; each pass reads them anew.

    Parameters
    ----------
    source : path or pyarrow.dataset.Dataset
        A Parquet file, a folder of files that end in ``.parquet``, or a dataset of any format, such as
        ``pyarrow.dataset.dataset("table.csv", format="csv")``.
    target : str
        Name of the column to predict.
    sample_weight : str, optional
        Name of the column of weights.
    columns : sequence of str, optional
        Columns of X; by default all others, which must then be numbers.
    skip_missing : bool
        Whether rows without a target are passed over; otherwise they are refused.
    encoding : str
        Of a dataset of text, which does not tell its own.

    Attributes
    ----------
    names : tuple of str
        Columns of X.
    skipped : int
        Rows without a target in the last pass that was made to its end.

    Raises
    ------
    FileNotFoundError
    ValueError
        A column is not there or is not of numbers, files differ in their columns, or one ends early.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import pandas as pd
    >>> from onefit import LassoLOO
    >>> from onefit.sources import TableSource
    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame(rng.normal(size=(500, 3)), columns=["a", "b", "noise"])
    >>> table["price"] = 2 * table["a"] - table["b"] + rng.normal(size=500)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for part in range(2):
    ...         table[250 * part : 250 * (part + 1)].to_parquet(f"{folder}/part{part}.parquet")
    ...     model = LassoLOO().fit(TableSource(folder, target="price"))
    >>> model.coef_.round()
    array([ 2., -1.,  0.])
    """

    def __init__(
        self,
        source: str | PathLike[str] | ds.Dataset,
        target: str,
        sample_weight: str | None = None,
        *,
        columns: Sequence[str] | None = None,
        skip_missing: bool = False,
        encoding: str = "utf-8",
    ) -> None:
        self._dataset = source if isinstance(source, ds.Dataset) else _opened(Path(source))
        schema = self._dataset.schema
        for what, name in (("target", target), ("sample_weight", sample_weight)):
            if name is not None or what == "target":
                _check_column(schema, what, name)
        self._target, self._weight, self._skips = target, sample_weight, skip_missing
        self._encoding = encoding
        own = [name for name in schema.names if name not in (target, sample_weight)]
        own = own if columns is None else _given(columns, target, sample_weight)
        for name in own:
            _check_column(schema, "columns", name)
        if target == sample_weight or not own:
            what = "sample_weight is the target" if own else "there is no column beside the target"
            raise ValueError(f"{what}, {target!r}: name another one")
        _check_numeric(schema, own, given=columns is not None)
        self._layout = Layout(len(own), tuple(own), "the table")
        self._read = [*own, target, *([] if sample_weight is None else [sample_weight])]
        _check_files(self._dataset, schema, self._read)
        self.names: tuple[str, ...] | None = tuple(own)
        self.skipped = 0

    def named_blocks(self) -> Iterator[tuple[str, Block]]:
        return ((name, block) for name, block, _ in self.numbered_blocks())

    def numbered_blocks(self) -> Iterator[tuple[str, Block, Index]]:
        """Yield each block, what messages call it, and the numbers of its rows in their file."""
        skipped = 0
        for fragment in self._dataset.get_fragments():
            first, file = 0, _name(fragment)
            for whole in self._batches(fragment, file):
                if whole.num_rows == 0:
                    continue
                last = first + whole.num_rows - 1
                batch, rows = self._kept(whole, np.arange(first, last + 1))
                skipped += whole.num_rows - batch.num_rows
                X = np.column_stack([_numbers(batch.column(name)) for name in self._layout.names or ()])
                y, weights = (
                    None if name is None else _values(batch.column(name))
                    for name in (self._target, self._weight)
                )
                yield *self._layout.named(f"{file} (rows {first} to {last})", X, y, weights, rows), rows
                first = last + 1
        self.skipped = skipped

    def _kept(self, batch: pa.RecordBatch, rows: Index) -> tuple[pa.RecordBatch, Index]:
        """Rows of a batch that are not passed over, and their numbers."""
        if not self._skips:
            return batch, rows
        known = compute.invert(compute.is_null(batch.column(self._target), nan_is_null=True))
        return batch.filter(known), rows[known.to_numpy(zero_copy_only=False)]

    def _batches(self, fragment: ds.Fragment, file: str) -> Iterator[pa.RecordBatch]:
        """Batches of one file, with nothing read ahead but what is needed."""
        is_parquet = isinstance(fragment, ds.ParquetFileFragment)
        schema = fragment.physical_schema if is_parquet else _wide(self._dataset.schema)
        try:
            is_text = isinstance(fragment.format, ds.CsvFileFormat)
            text = _text_reader(fragment, schema, self._read, self._encoding) if is_text else None
            if text is not None:
                yield from text
                return
            yield from fragment.to_batches(
                schema=schema,
                columns=self._read,
                batch_size=block_length(len(self._read)),
                batch_readahead=1,
                fragment_readahead=1,
                use_threads=False,
                **({"fragment_scan_options": _LEAN} if is_parquet else {}),
            )
        except (pa.ArrowInvalid, OSError) as error:
            told = stray_cell(str(error), fragment, self._dataset.schema.names)
            raise ValueError(f"{file} {told or f'cannot be read to its end: {error}'}") from error


def uneven_row(message: str, before: int) -> str:
    """What pyarrow says of a row of another width, where its first one has the number ``before``."""
    found = UNEVEN.search(message)
    if found is None:
        return ""
    where = f"row {int(found['row']) - before}" if found["row"] else "a row"
    return (
        f"has {found['own']} of {found['width']} cells in {where} (rows are counted from 0 below the header):"
        " write as many cells in each row as there are columns, or take it out"
    )


def stray_cell(message: str, fragment: ds.Fragment, names: list[str]) -> str:
    """What pyarrow says of a cell of text that cannot be read, by its column and row; else nothing."""
    if not isinstance(fragment.format, ds.CsvFileFormat):
        return ""
    if "straddling object" in message:
        return "has a row longer than a block of text, where a quote may be open: close it, or take it out"
    found, before = STRAY.search(message), _rows_before(fragment)
    if found is None:
        return uneven_row(message, before)
    row = f", row {int(found['row']) - before}" if found["row"] else ""
    where = f"in column {names[int(found['column'])]!r}{row}"
    if found["cell"] is None:
        return f"is not in UTF-8 {where}: name its encoding (encoding=, or --encoding), such as latin-1"
    return (
        f"has {found['cell']} {where}, where rows before it have numbers: correct it, or leave out such rows"
    )


def _rows_before(fragment: ds.Fragment) -> int:
    """The number that pyarrow has for the first row of a text file."""
    read = fragment.format.default_fragment_scan_options.read_options
    return 1 + read.skip_rows + read.skip_rows_after_names + (0 if read.column_names else 1)


def _text_reader(
    fragment: ds.Fragment, schema: pa.Schema, names: list[str], encoding: str
) -> pyarrow.csv.CSVStreamingReader | None:
    """Reader of a text file that holds some megabytes; ``to_batches`` reads ahead, up to the whole file.

    None where the names are not found: the encoding is another one, which only the dataset knows.
    """
    options = fragment.format.default_fragment_scan_options
    read, convert = options.read_options, options.convert_options
    read.use_threads, convert.include_columns = False, names
    convert.column_types = {name: schema.field(name).type for name in names}
    try:
        return pyarrow.csv.open_csv(
            _plain_text(fragment, encoding), read, fragment.format.parse_options, convert
        )
    except pa.ArrowKeyError:
        return None


def _plain_text(fragment: ds.Fragment, encoding: str) -> Any:
    """A file of text as bytes of UTF-8, as the dataset reads it: decompressed by its ending, and decoded."""
    file, kind = fragment.open(), COMPRESSED.get(Path(fragment.path or "").suffix)
    file = file if kind is None else pa.CompressedInputStream(file, kind)
    is_utf8 = codecs.lookup(encoding).name in ("utf-8", "utf-8-sig")
    return file if is_utf8 else pa.transcoding_input_stream(file, encoding, "utf-8")


_LEAN = ds.ParquetFragmentScanOptions(use_buffered_stream=True, pre_buffer=False)


STRAY = re.compile(
    r"CSV column #(?P<column>\d+): (?:Row #(?P<row>\d+): )?CSV conversion error to \w+: "
    r"invalid (?:value (?P<cell>'.*')|UTF8 data)",
    re.DOTALL,
)
UNEVEN = re.compile(
    r"CSV parse error: (?:Row #(?P<row>\d+): )?Expected (?P<width>\d+) columns, got (?P<own>\d+)"
)
COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
OTHER_FORMATS = ("csv", "feather", "arrow", "ipc", "orc", "json")


def _opened(path: Path) -> ds.Dataset:
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {str(path)!r}")
    files = [path] if path.is_file() else sorted(path.rglob("*.parquet"))
    if not files:
        raise ValueError(f"the folder {str(path)!r} holds no file that ends in .parquet")
    try:
        return ds.dataset([str(file) for file in files], format="parquet")
    except (pa.ArrowInvalid, OSError) as error:
        kind = path.suffix[1:]
        other = f"; or pass pyarrow.dataset.dataset({str(path)!r}, format={kind!r})"
        raise ValueError(
            f"{path} is no Parquet file, or ends early{other if kind in OTHER_FORMATS else ''}: {error}"
        ) from error


def _given(columns: Any, target: str, sample_weight: str | None) -> list[str]:
    """The columns that were asked for: different ones, none of which is the target or the weight."""
    if isinstance(columns, str):
        raise TypeError(f"columns must be a list of names, got {columns!r}: give [{columns!r}]")
    own = list(columns)
    for k, name in enumerate(own):
        if name in own[:k]:
            raise ValueError(f"columns names {name!r} twice")
        if name in (target, sample_weight):
            what = "target" if name == target else "sample_weight"
            raise ValueError(f"columns names {name!r}, which is the {what}: leave it out")
    return own


def _check_column(schema: pa.Schema, what: str, name: Any) -> None:
    if not isinstance(name, str):
        raise TypeError(
            f"{what} must be the name of a column of the table, got {type(name).__name__}: it has "
            f"{', '.join(schema.names)}"
        )
    if name not in schema.names:
        raise ValueError(f"{what}={name!r} is no column of the table: it has {', '.join(schema.names)}")


def is_number(kind: pa.DataType) -> bool:
    """Whether a column of this type holds numbers, or true and false."""
    number = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(is_one(kind) for is_one in number)


def _check_numeric(schema: pa.Schema, names: list[str], *, given: bool) -> None:
    other = [
        f"{name!r} ({schema.field(name).type})" for name in names if not is_number(schema.field(name).type)
    ]
    if other:
        raise ValueError(
            f"columns must be numbers, but {', '.join(other)} {'is' if len(other) == 1 else 'are'} not: "
            + ("encode them first" if given else "encode them first, or name those to use in columns=[...]")
        )


def _check_files(dataset: ds.Dataset, schema: pa.Schema, names: list[str]) -> None:
    """See that every file has the columns, of the same kind."""
    for fragment in dataset.get_fragments():
        try:
            own = fragment.physical_schema
        except (pa.ArrowInvalid, OSError) as error:
            raise ValueError(f"{_name(fragment)} is no Parquet file, or ends early: {error}") from error
        for name in names:
            if name not in own.names:
                raise ValueError(
                    f"{_name(fragment)} has no column {name!r}, which other files of the table have"
                )
            kinds = own.field(name).type, schema.field(name).type
            if is_number(kinds[0]) != is_number(kinds[1]):
                raise ValueError(
                    f"column {name!r} of {_name(fragment)} holds {kinds[0]}, in other files {kinds[1]}"
                )


def _name(fragment: ds.Fragment) -> str:
    return str(getattr(fragment, "path", None) or "the table")


def _wide(schema: pa.Schema) -> pa.Schema:
    """Whole numbers of text files in floating point: later rows may have a fraction."""
    fields = [field.with_type(pa.float64()) if pa.types.is_integer(field.type) else field for field in schema]
    return pa.schema(fields)


def without_decimals(column: Any) -> Any:
    """A column of pyarrow, with the nearest floats in place of decimal numbers."""
    return column.cast(pa.float64()) if pa.types.is_decimal(column.type) else column


def _values(column: pa.Array) -> Any:
    """Numbers or labels."""
    return without_decimals(column).to_numpy(zero_copy_only=False)


def _numbers(column: pa.Array) -> Any:
    kind = np.float32 if pa.types.is_float32(column.type) else np.float64
    return np.asarray(_values(column), dtype=kind)
