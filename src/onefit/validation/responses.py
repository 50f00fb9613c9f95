"""Responses in the terms of a loss: numbers of classes, labels that look like numbers, ranges of families."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from onefit._typing import Array, Index
from onefit.exceptions import UnreliableWarning

MANY_CLASSES = 20  # different numbers, beyond which they are hardly classes where a tenth of the rows differ
FEWEST_A_CLASS = 3  # rows, on average, below which so many numbers are no classes
FAMILIES = {1.0: "Poisson", 2.0: "gamma", 3.0: "inverse Gaussian"}  # Tweedie powers with a name


def class_numbers(y: Any, classes: Any) -> Index:
    """Return the number of each label among the classes of a fitted classifier."""
    labels, classes = np.asarray(y), np.asarray(classes)
    numbers = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
    unknown = classes[numbers] != labels
    if np.any(unknown):
        row = int(np.flatnonzero(unknown)[0])
        raise ValueError(
            f"y[{row}] = {labels.tolist()[row]!r} is not among the classes that the model was fitted on, "
            f"{classes.tolist()}"
        )
    return numbers


def are_hardly_classes(count: int, n: int) -> bool:
    """Whether so many different numbers are too many classes for so many rows."""
    return count > MANY_CLASSES and count * FEWEST_A_CLASS > n


def check_class_count(
    classes: Any, held: int, n: int, *, taken_by: str, instead: str, stacklevel: int
) -> None:
    """Refuse labels that look like numbers, of nearly as many classes as rows, and warn of many.

    Raises
    ------
    ValueError
    """
    if classes.dtype.kind not in "iuf" or held <= max(MANY_CLASSES, n // 10):
        return
    said = f"y has {held} different numbers in {n} rows, each a class of its own to {taken_by}: if y is a "
    if are_hardly_classes(held, n):
        raise ValueError(f"{said}number, {instead}; if these are labels, write them as text, y.astype(str)")
    warnings.warn(f"{said}number, {instead}", UnreliableWarning, stacklevel=stacklevel + 1)


def check_range(y: Array, power: float) -> None:
    """Refuse responses outside the range of a Tweedie family."""
    outside = y <= 0 if power >= 2 else y < 0
    if power >= 1 and np.any(outside):
        row, count = int(np.flatnonzero(outside)[0]), int(np.count_nonzero(outside))
        of_all = f", the first of {count} such rows" if count > 1 else ""
        family = FAMILIES.get(power, f"Tweedie, power {power:g}")
        low = "y > 0" if power >= 2 else "y >= 0"
        raise ValueError(f"this model ({family}) needs {low}, but y[{row}] = {y[row]:g}{of_all}")
