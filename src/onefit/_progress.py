"""A line that tells how far a long run has come: on a terminal only, and only if the run is long."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

PATIENCE = 2.0  # seconds before anything is shown
PAUSE = 0.2  # seconds between two changes of the line


def progress_line(label: str, expected: float = 0.0) -> Callable[[int, int], None]:
    """Return a function to call with how many are done, of how many.

    Parameters
    ----------
    label : str
    expected : float
        Seconds that the whole is thought to take: said at once where that is long.
    """
    started = shown = time.monotonic()
    if expected > PATIENCE and sys.stderr.isatty():
        sys.stderr.write(f"\r{label}: about {expected:.0f} s")
        sys.stderr.flush()

    def show(done: int, total: int) -> None:
        nonlocal shown
        now = time.monotonic()
        ended = done == total and shown > started  # a line that was begun is brought to its end
        if not ended and (now - started < PATIENCE or now - shown < PAUSE or not sys.stderr.isatty()):
            return
        shown = now
        left = (now - started) * (total - done) / done if done else expected
        end = "\n" if done == total else f", about {left:.0f} s left "
        sys.stderr.write(f"\r{label}: {done} of {total}{end}")
        sys.stderr.flush()

    return show
