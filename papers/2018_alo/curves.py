"""Three leave-one-out risks over the strength, their largest differences, and their seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import results
import settings

Array = np.ndarray
T = TypeVar("T")

HEAD = (
    "panel", "n", "p", "strengths", "refits by", "refits s", "plain s", "ours s",
    "plain, largest", "plain, at the best", "ours, largest",
)  # fmt: skip


@dataclass
class Stopwatch:
    """Seconds by name."""

    seconds: dict[str, float] = field(default_factory=dict)

    def time(self, name: str, run: Callable[[], T]) -> T:
        start = time.perf_counter()
        outcome = run()
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
        return outcome


@dataclass(frozen=True)
class Curves:
    """One panel.

    Attributes
    ----------
    title : str
    size : pair of int
        n and p.
    strengths, refits, plain, ours : (J,) arrays
        Strengths, and the three risks.
    reference : str
        Who solved the refits.
    seconds : dict of str to float
        Of "refits", "plain" and "ours", over all strengths; the fit itself counts for the latter two.
    """

    title: str
    size: tuple[int, int]
    strengths: Array
    refits: Array
    plain: Array
    ours: Array
    reference: str
    seconds: dict[str, float]

    def row(self) -> tuple[str, ...]:
        """Return the cells of HEAD."""
        off_plain = np.abs(self.plain / self.refits - 1.0)
        off_ours = np.abs(self.ours / self.refits - 1.0)
        times = (f"{self.seconds[name]:.2g}" for name in ("refits", "plain", "ours"))
        share = off_plain[np.argmin(self.refits)]
        ends = (percent(off_plain.max()), percent(share), percent(off_ours.max()))
        sizes = (str(self.size[0]), str(self.size[1]), str(len(self.strengths)))
        return (self.title.replace("\n", ", "), *sizes, self.reference, *times, *ends)


def percent(share: float) -> str:
    """Two digits of a share, in % where that is readable."""
    return f"{share:.2g}" if share < 1e-5 else f"{100 * share:.2g} %"


def report(panels: Sequence[Curves], name: str, caption: str) -> None:
    """Write the table of differences, and the curves themselves."""
    numbers: dict[str, float] = {}
    timings: dict[str, float] = {}
    for one in panels:
        off, best = np.abs(one.plain / one.refits - 1.0), int(np.argmin(one.refits))
        numbers |= {
            f"{one.title}: plain, largest": float(off.max()),
            f"{one.title}: plain, at the best": float(off[best]),
            f"{one.title}: ours, largest": float(np.max(np.abs(one.ours / one.refits - 1.0))),
            f"{one.title}: risk at the best": float(one.refits[best]),
            f"{one.title}: steps between the choices": float(abs(int(np.argmin(one.plain)) - best)),
        }
        timings |= {f"{one.title}: {key}": seconds for key, seconds in one.seconds.items()}
    given = {"caption": caption, "seeds": "1", "numbers": numbers, "timings": timings}
    results.save(settings.FOLDER, name, HEAD, [one.row() for one in panels], **given)
    lines = [
        (one.title, *(float(f"{value:.8g}") for value in values))
        for one in panels
        for values in zip(one.strengths, one.refits, one.plain, one.ours, strict=True)
    ]
    head = ("panel", "strength", "refits", "plain", "ours")
    results.save(
        settings.FOLDER, f"{name}_curves", head, lines, caption="Its curves.", seeds="1", shown=False
    )
