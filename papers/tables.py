"""Tables for the README, in Markdown and as CSV beside the pictures."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def save(path: Path, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Write a CSV."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *rows])
    print(path, flush=True)


def report(path: Path, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table, and write it as a CSV."""
    print(markdown(head, rows), flush=True)
    save(path, head, rows)


def mean_and_error(values: Sequence[float], digits: int = 4) -> str:
    """Mean of some values and its standard error, as text."""
    n = len(values)
    mean = sum(values) / n
    error = (sum((value - mean) ** 2 for value in values) / max(n - 1, 1) / n) ** 0.5
    return f"{mean:.{digits}f} ({error:.{digits}f})"
