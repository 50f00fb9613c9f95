"""Files that are whole or not there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from onefit.cli.errors import TableError
from onefit.cli.printed import say

# names of all files that a run writes: where the table is in memory, or read in passes
RESULTS = (
    "model.skops",
    "coefficients.csv",
    "predictions.csv",
    "predictions.parquet",
    "summary.json",
    "report.html",
)
IN_MEMORY = tuple(name for name in RESULTS if name != "predictions.parquet")
IN_PASSES = tuple(name for name in RESULTS if name not in {"predictions.csv", "report.html"})


def write(path: Path, content: bytes) -> None:
    """Write a whole file or none: into a neighbour first, which then takes the name."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)  # noqa: PTH101
        os.replace(temporary, path)  # noqa: PTH105
    except BaseException:
        os.unlink(temporary)  # noqa: PTH108
        raise
    for part in path.parent.glob(f".{path.name}.*.part"):  # what a process that was killed has left
        part.unlink(missing_ok=True)


@contextmanager
def folder(out: str | None, names: tuple[str, ...], *, force: bool) -> Iterator[Path | None]:
    """Make a folder and see that it takes files, before any work; leave no empty one behind.

    When all is done, results of an earlier run that have other names than ``names`` are removed.

    Raises
    ------
    TableError
        If it cannot be written into, or holds results already and ``force`` is False.
    """
    if out is None:
        yield None
        return
    if not out:
        raise TableError("--out names no folder: write one, . for the one that you are in")
    place = Path(out)
    made = not place.exists()
    there = [name for name in RESULTS if (place / name).exists()]
    if there and not force:
        raise TableError(
            f"{place} holds {', '.join(there)} already: --force overwrites, or name another --out"
        )
    try:
        place.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=place).close()
    except OSError as error:
        raise TableError(f"cannot write into {place}: {error.strerror}") from error
    try:
        yield place
        _remove([place / name for name in there if name not in names])
    finally:
        if made and not any(place.iterdir()):
            place.rmdir()


def _remove(others: list[Path]) -> None:
    """Remove what an earlier run has left beside new results, and say so."""
    for path in others:
        path.unlink()
    if others:
        say(f"removed {', '.join(path.name for path in others)} of an earlier run from {others[0].parent}")


@contextmanager
def writable(out: str | None, *, force: bool) -> Iterator[Path | None]:
    """See that a file can be written, before any work."""
    if out is None:
        yield None
        return
    path = Path(out)
    if path.is_dir():
        raise TableError(f"cannot write {path}: it is a folder")
    if path.exists() and not force:
        raise TableError(f"{path} exists already: --force overwrites it")
    try:
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise TableError(f"cannot write {path}: {error.strerror}") from error
    yield path
