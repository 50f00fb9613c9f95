"""Where results go: folders and files that hold all of them, or what was there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from onefit._whole_file import whole_file
from onefit.cli.errors import Interrupted, TableError, WriteError, one_line
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
    """Write a whole file or none.

    Raises
    ------
    WriteError
        If that fails; what was there stays.
    """
    with _telling(path):
        _write_whole(path, content)


def _write_whole(path: Path, content: bytes, take: Callable[[str, Path], None] | None = None) -> None:
    with whole_file(path, take) as file:
        file.write(content)


@dataclass(eq=False)
class ResultFolder:
    """Where a run puts its results: all of them are its own, however it ends.

    Attributes
    ----------
    place : Path
    names : tuple of str
        Of the files that the run writes.
    force : bool
        Whether results of an earlier run are overwritten.
    written : list of str
    removed : list of str
        Results of an earlier run in whose place there come none.
    """

    place: Path
    names: tuple[str, ...]
    force: bool
    written: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    _digest: bytes = b""  # of the first file

    def write(self, name: str, content: bytes) -> None:
        """Write a file; before the first one takes its name, results of an earlier run are removed.

        Raises
        ------
        WriteError
            If that fails, or another run has written into the folder meanwhile.
        """
        if self.written:
            self.fill(name, lambda path: _write_whole(path, content))
        else:
            with _telling(self.place / name, self.told()):
                self.place.mkdir(parents=True, exist_ok=True)  # another run may have made, and removed, it
                _write_whole(self.place / name, content, self._take_first)
            self._digest = sha256(content).digest()
            self.written.append(name)

    def fill(self, name: str, fill: Callable[[Path], None]) -> None:
        """The same of a file that is not held in memory, and is not the first."""
        with _telling(self.place / name, self.told()):
            first = self.place / self.written[0]
            if first.exists() and sha256(first.read_bytes()).digest() != self._digest:
                raise self._meanwhile(f"another {first.name}")
            fill(self.place / name)
        self.written.append(name)

    def told(self) -> str:
        """What is written, and what is not."""
        if not self.written:
            return "nothing was written"
        missing = [name for name in self.names if name not in self.written]
        return f"{self.place} holds {', '.join(self.written)}; {', '.join(missing)} not written"

    def _take_first(self, temporary: str, path: Path) -> None:
        """Let the first file take its name: where no results are, or in place of all that are there."""
        there = _results_in(self.place)
        if self.force:
            for name in reversed(there):  # what tells of the whole goes first
                if name != path.name:
                    (self.place / name).unlink(missing_ok=True)
            self.removed = [name for name in there if name not in self.names]
            os.replace(temporary, path)  # noqa: PTH105
            return
        if there:
            raise self._meanwhile(", ".join(there))
        try:
            os.link(temporary, path)  # which, unlike replace, refuses a name that is taken
        except FileExistsError as error:
            raise self._meanwhile(path.name) from error
        except OSError:  # a file system without links
            os.replace(temporary, path)  # noqa: PTH105

    def _meanwhile(self, what: str) -> WriteError:
        return WriteError(
            f"another run has written {what} into {self.place} meanwhile, and this one stops: give each run "
            "an --out of its own"
        )


@contextmanager
def _telling(path: Path, so_far: str = "") -> Iterator[None]:
    """Say which file cannot be written, and what was done so far."""
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        end = f"; {so_far}" if so_far else ""
        raise WriteError(f"cannot write {path}: {one_line(error)}{end}") from error


@contextmanager
def folder(out: str | None, names: tuple[str, ...], *, force: bool) -> Iterator[ResultFolder | None]:
    """Make a folder and see that it takes files, before any work; leave no empty one behind.

    Raises
    ------
    TableError
        If it cannot be written into, or holds results already and ``force`` is False.
    Interrupted
        After Ctrl-C, where some files were written.
    """
    if out is None:
        yield None
        return
    if not out:
        raise TableError("--out names no folder: write one, . for the one that you are in")
    place = Path(out)
    made = _is_made(place, force=force)
    results = ResultFolder(place, names, force)
    try:
        yield results
    except KeyboardInterrupt as error:
        if results.written:
            raise Interrupted(results.told()) from error
        raise
    finally:
        with suppress(OSError):  # it holds something
            if made:
                place.rmdir()
    if results.removed:
        say(f"removed {', '.join(results.removed)} of an earlier run from {place}")


def _results_in(place: Path) -> list[str]:
    return [name for name in RESULTS if (place / name).exists()]


def _is_made(place: Path, *, force: bool) -> bool:
    """Make a folder, if there is none; refuse one whose results are not to be overwritten, or cannot be."""
    try:
        made = not place.exists()
        there = _results_in(place)
        folders = [name for name in there if (place / name).is_dir()]
        if folders:
            raise TableError(f"cannot write {place / folders[0]}: it is a folder; name another --out")
        if there and not force:
            raise TableError(
                f"{place} holds {', '.join(there)} already: --force overwrites, or name another --out"
            )
        place.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=place).close()
    except OSError as error:
        raise TableError(f"cannot write into {place}: {error.strerror}") from error
    return made


@contextmanager
def writable(out: str | None, *, force: bool) -> Iterator[Path | None]:
    """See that a file can be written, before any work."""
    if out is None:
        yield None
        return
    path = Path(out)
    try:
        with suppress(FileNotFoundError):
            path.stat()  # tells that a name is too long, which exists() of Python 3.14 does not
        if path.is_dir():
            raise TableError(f"cannot write {path}: it is a folder")
        if path.exists() and not force:
            raise TableError(f"{path} exists already: --force overwrites it")
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise TableError(f"cannot write {path}: {error.strerror}") from error
    yield path
