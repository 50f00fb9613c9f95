"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Sequence


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def mean_and_error(values: Sequence[float], digits: int = 4) -> str:
    """Mean of some values and its standard error, as text."""
    n = len(values)
    mean = sum(values) / n
    error = (sum((value - mean) ** 2 for value in values) / max(n - 1, 1) / n) ** 0.5
    return f"{mean:.{digits}f} ({error:.{digits}f})"
