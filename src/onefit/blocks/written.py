"""Columns of rows in a Parquet file, a part at a time."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any

from onefit._whole_file import whole_file


def write_rows(path: str | PathLike[str], parts: Iterator[dict[str, Any]]) -> None:
    """Write columns of rows, a part at a time, to a Parquet file, which is replaced when it is whole."""
    pa, pq = import_module("pyarrow"), import_module("pyarrow.parquet")  # an optional package
    tables = (pa.table(part) for part in parts)
    with whole_file(Path(path)) as file:
        first = next(tables)
        with pq.ParquetWriter(file, first.schema) as writer:
            for table in chain([first], tables):
                writer.write_table(table.cast(writer.schema))
