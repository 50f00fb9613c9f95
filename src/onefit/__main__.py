"""The command ``onefit``, and ``python -m onefit``."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

EXTRA = ("click", "pandas", "pyarrow", "jinja2", "skops", "matplotlib")  # what onefit[cli] brings


def main() -> None:
    """Run the command line; exit 2 for what the user can mend, 130 after Ctrl-C."""
    try:
        with _ending_on_interrupt():
            from onefit.cli.app import run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRA:
            raise
        sys.stderr.write(
            f"onefit: error: the command line needs {error.name}: pip install '.[cli]' "
            "in the folder of onefit\n"
        )
        sys.exit(2)
    sys.exit(run())


@contextmanager
def _ending_on_interrupt() -> Iterator[None]:
    """End at once on Ctrl-C while modules load, some of which make another exception of that, or none."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end(*_: Any) -> None:
    os.write(2, b"onefit: interrupted\n")
    os._exit(130)  # nothing is open, and nothing written


if __name__ == "__main__":
    main()
