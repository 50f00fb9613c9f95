"""One line that tells what is being done and how long it may still take: on a terminal only."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

PATIENCE = 1.0  # seconds before anything is shown
PAUSE = 0.5  # seconds between two changes of the line
WIDTH = 78


class Progress:
    """Stages of a run, each of an expected share of the work.

    Parameters
    ----------
    shares : mapping of str to float
        Stages in their order, and how long each may take relative to the others.
    """

    def __init__(self, shares: Mapping[str, float]) -> None:
        self.shares = dict(shares)
        self._done: set[str] = set()
        self._spent = 0.0  # seconds of the stages that are done
        self._current = ""
        self._started = 0.0
        self._shown = False
        self._lock = threading.Lock()

    @contextmanager
    def stage(self, name: str, *, talks: bool = False) -> Iterator[None]:
        """Show that a stage is going on; one that ``talks`` has a line of its own."""
        self._current, self._started = name, time.monotonic()
        over = threading.Event()
        silent = talks or not sys.stderr.isatty()
        watcher = None if silent else threading.Thread(target=self._watch, args=(over,), daemon=True)
        if watcher is not None:
            watcher.start()
        try:
            yield
        finally:
            over.set()
            if watcher is not None:
                watcher.join()
            self._spent += time.monotonic() - self._started
            self._done.add(name)
            self.clear()

    def line(self, now: float) -> str:
        """What is shown at a moment."""
        elapsed = now - self._started
        place = f"{len(self._done) + 1} of {len(self.shares)}"
        text = f"[{place}] {self._current}, {elapsed:.0f} s"
        left = self.remaining(elapsed)
        return text if left is None else f"{text}, about {left:.0f} s left in all"

    def remaining(self, elapsed: float) -> float | None:
        """Seconds that are left, by the pace so far; None before there is one."""
        done = sum(self.shares.get(name, 0.0) for name in self._done)
        if done <= 0 or self._spent <= 0:
            return None
        pace = self._spent / done
        current = max(self.shares.get(self._current, 0.0) * pace - elapsed, 0.0)
        later = [share for name, share in self.shares.items() if name not in {*self._done, self._current}]
        return current + pace * sum(later)

    def clear(self) -> None:
        """Take the line off the screen, before something else is written."""
        with self._lock:
            if self._shown:
                sys.stderr.write("\r" + " " * WIDTH + "\r")
                sys.stderr.flush()
            self._shown = False

    def _watch(self, over: threading.Event) -> None:
        wait = PATIENCE
        while not over.wait(wait):
            wait = PAUSE
            with self._lock:
                sys.stderr.write("\r" + self.line(time.monotonic())[:WIDTH].ljust(WIDTH))
                sys.stderr.flush()
                self._shown = True
