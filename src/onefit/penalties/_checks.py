"""Checks of the parameters of penalties.  They refuse; they convert nothing."""

from __future__ import annotations

from typing import Any

import numpy as np


def check_strengths(name: str, given: Any) -> None:
    """Refuse what is not a number, or an array of numbers, that is at least 0; infinity is allowed."""
    strength = np.asarray(given)
    if strength.dtype.kind not in "fiu" or not np.all(strength >= 0):
        raise ValueError(f"{name} must be a number that is at least 0, or an array of them, got {given!r}")


def check_strength(name: str, given: Any) -> None:
    """Refuse what is not one finite number that is at least 0."""
    strength = np.asarray(given)
    if strength.ndim or strength.dtype.kind not in "fiu" or not 0 <= strength < np.inf:
        raise ValueError(f"{name} must be a finite number that is at least 0, got {given!r}")


def check_positive(name: str, given: Any) -> None:
    """Refuse what is not one finite number above 0."""
    number = np.asarray(given)
    if number.ndim or number.dtype.kind not in "fiu" or not 0 < number < np.inf:
        raise ValueError(f"{name} must be a finite number above 0, got {given!r}")


def check_share(name: str, given: Any) -> None:
    """Refuse what is not one number between 0 and 1."""
    share = np.asarray(given)
    if share.ndim or share.dtype.kind not in "fiu" or not 0 <= share <= 1:
        raise ValueError(f"{name} must be a number between 0 and 1, got {given!r}")


def check_weights(name: str, given: Any, count: int, what: str) -> None:
    """Refuse what is not so many finite numbers that are at least 0."""
    weights = np.asarray(given)
    if weights.dtype.kind not in "fiu" or weights.shape != (count,):
        raise ValueError(f"{name} must be {count} numbers, {what}, got {given!r}")
    wrong = np.flatnonzero(~((weights >= 0) & np.isfinite(weights)))
    if wrong.size:
        raise ValueError(
            f"{name} must be finite and at least 0, but {name}[{wrong[0]}] = {weights[wrong[0]]}"
        )


def check_one_output(penalty: object, shape: tuple[int, ...]) -> None:
    """Refuse coefficients of several outputs."""
    if len(shape) != 1:
        raise ValueError(
            f"{type(penalty).__name__} is for models with one output, got coefficients of shape {shape}"
        )
