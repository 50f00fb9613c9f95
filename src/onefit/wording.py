"""How messages and tables write numbers, counts and arguments."""

from __future__ import annotations

from typing import Any

MOST_DIGITS = 6  # before or after the decimal point, that an error leaves out: then numbers have exponents


def shown(value: Any) -> str:
    """An argument in a few words: arrays and tables by their kind and shape."""
    shape = getattr(value, "shape", None)
    return (
        repr(value)
        if shape is None or isinstance(value, type)
        else f"{type(value).__name__} of shape {shape}"
    )


def counted(count: int, noun: str) -> str:
    """A count and its noun: "1 row", "12,000 rows"."""
    return f"{count} {noun}" if count == 1 else f"{count:,} {noun}s"


def to_digits(value: float, digits: int) -> str:
    """A number to so many digits, with an exponent only where it is small or has many."""
    written = f"{value:.{digits}g}"
    return f"{float(written):.0f}" if "e+" in written and abs(value) < 10.0**MOST_DIGITS else written
