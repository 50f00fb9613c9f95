"""Columns of rows in a Parquet file, a part at a time."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any


def write_rows(path: str | PathLike[str], parts: Iterator[dict[str, Any]]) -> None:
    """Write columns of rows, a part at a time, to a Parquet file, which is replaced when it is whole."""
    pa, pq = import_module("pyarrow"), import_module("pyarrow.parquet")  # an optional package
    part_of = Path(path).with_name(f".{Path(path).name}.part")
    writer: Any = None
    try:
        try:
            for part in parts:
                table = pa.table(part)
                if writer is None:
                    writer = pq.ParquetWriter(part_of, table.schema)
                writer.write_table(table.cast(writer.schema))
        finally:
            if writer is not None:
                writer.close()
        part_of.replace(path)
    finally:
        part_of.unlink(missing_ok=True)
