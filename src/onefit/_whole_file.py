"""Files that are whole or not there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

BEGUN = ".onefit-"  # how names of files begin that are not complete: short, as there are longest names
ABANDONED = 3600.0  # seconds after which nobody writes such a file any more: none is left alone for so long


@contextmanager
def whole_file(path: Path, take: Callable[[str, Path], None] | None = None) -> Iterator[IO[bytes]]:
    """A neighbour of a file to write into, which takes its name where that comes to its end.

    Parameters
    ----------
    path : Path
    take : callable, optional
        Gives the neighbour, which is complete, its name; by default in place of any file that has it.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=BEGUN, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)  # noqa: PTH101
        (take or os.replace)(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)
    _remove_abandoned(path)


def _remove_abandoned(path: Path) -> None:
    """Remove what processes that were killed have left, and nothing that one may still write."""
    with suppress(OSError):  # that of another user, or one that another run has just removed
        now = path.stat().st_mtime
        for part in path.parent.glob(f"{BEGUN}*.part"):
            if part.stat().st_mtime < now - ABANDONED:
                part.unlink()
