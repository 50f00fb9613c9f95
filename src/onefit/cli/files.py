"""Files that are whole or not there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from onefit.cli.errors import TableError


def write(path: Path, content: bytes) -> None:
    """Write a whole file or none: into a neighbour first, which then takes the name."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())  # noqa: PTH101
        os.replace(temporary, path)  # noqa: PTH105
    except BaseException:
        os.unlink(temporary)  # noqa: PTH108
        raise
    _remove_parts(path)


def _remove_parts(path: Path) -> None:
    """Remove what a process that was killed has left of this file."""
    for part in path.parent.glob(f".{path.name}.*.part"):
        part.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def folder(out: str | None, names: tuple[str, ...], *, force: bool) -> Iterator[Path | None]:
    """Make a folder and see that it takes files, before any work; leave no empty one behind.

    Raises
    ------
    TableError
        If it cannot be written into, or holds some of the files already and ``force`` is False.
    """
    if out is None:
        yield None
        return
    place = Path(out)
    made = not place.exists()
    there = [name for name in names if (place / name).exists()]
    if there and not force:
        raise TableError(
            f"{place} holds {', '.join(there)} already: --force overwrites, or name another --out"
        )
    try:
        place.mkdir(parents=True, exist_ok=True)
        _check_folder(place)
    except OSError as error:
        raise TableError(f"cannot write into {place}: {error.strerror}") from error
    try:
        yield place
    finally:
        if made and not any(place.iterdir()):
            place.rmdir()


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
        _check_folder(path.parent)
    except OSError as error:
        raise TableError(f"cannot write {path}: {error.strerror}") from error
    yield path


def _check_folder(place: Path) -> None:
    with tempfile.TemporaryFile(dir=place):
        return
