"""How messages name arguments and count rows."""

from __future__ import annotations

from typing import Any


def shown(value: Any) -> str:
    """An argument in a few words: arrays and tables by their kind and shape."""
    shape = getattr(value, "shape", None)
    return (
        repr(value)
        if shape is None or isinstance(value, type)
        else f"{type(value).__name__} of shape {shape}"
    )


def count_of_rows(count: int) -> str:
    """That many rows: "1 row", "12,000 rows"."""
    return "1 row" if count == 1 else f"{count:,} rows"
