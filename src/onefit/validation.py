"""Every check of user input.  Messages name the argument or the rows, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from onefit._typing import Array, Design, Index
from onefit.design import column_sizes

MAGNITUDES = (1e-140, 1e140)  # of columns: sums of their squares, over any number of rows, are in range


def check_fitted(model: Any) -> None:
    """Refuse an estimator that was not fitted, and what is no estimator at all."""
    if isinstance(model, type) or not hasattr(model, "get_params"):
        raise TypeError(f"model must be a fitted scikit-learn estimator, got {model!r}")
    try:
        check_is_fitted(model)
    except NotFittedError as error:
        raise NotFittedError(
            f"this {type(model).__name__} is not fitted: call model.fit(X, y) first, then "
            "onefit.loo(model, X, y)"
        ) from error


def check_rows(
    model: Any, X: Any, y: Any, *, several_outputs: bool = False, numeric: bool = True
) -> tuple[Design, Array]:
    """Check X and y against what the model was fitted on; X in float64, its memory order kept."""
    X, y = validate_data(
        model,
        _as_the_model_knows_them(model, X),
        y,
        reset=False,
        accept_sparse=("csr", "csc"),
        dtype=np.float64,
        multi_output=several_outputs,
        y_numeric=numeric,
    )
    if X.shape[0] < 2:
        raise ValueError(f"leave-one-out needs at least 2 rows, got n_samples={X.shape[0]}")
    check_magnitude(X)
    return X, np.asarray(y, dtype=np.float64) if numeric else y


def check_new_rows(model: Any, X: Any) -> Design:
    """Check rows that the model was not fitted on."""
    X = _as_the_model_knows_them(model, X)
    return validate_data(model, X, reset=False, accept_sparse=("csr", "csc"), dtype=np.float64)


def check_magnitude(X: Design) -> None:
    """Refuse columns whose squares leave the range of float64.

    Raises
    ------
    ValueError
    """
    largest = column_sizes(X)
    low, high = MAGNITUDES
    outside = (largest > high) | ((largest > 0) & (largest < low))
    if np.any(outside):
        column = int(np.flatnonzero(outside)[0])
        raise ValueError(
            f"column {column} of X has entries of up to {largest[column]:.1g}, whose squares leave the "
            f"range of float64: scale it to between {low:g} and {high:g}, with StandardScaler() for instance"
        )


def _as_the_model_knows_them(model: Any, X: Any) -> Any:
    """Rows without names where the model has kept none, as machines with a function as kernel do."""
    own_kernel = callable(getattr(model, "kernel", None)) and not hasattr(model, "feature_names_in_")
    return np.asarray(X) if own_kernel and hasattr(X, "columns") else X


def check_weights(sample_weight: Any, X: Design) -> Array:
    """Return weights, (n,) and at least 0: all ones if None."""
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not np.any(weights > 0):
        raise ValueError("sample_weight is zero for every row: nothing is left to fit")
    return np.asarray(weights)


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


def check_range(y: Array, power: float) -> None:
    """Refuse responses outside the range of a Tweedie family."""
    low = "y > 0" if power >= 2 else "y >= 0"
    outside = y <= 0 if power >= 2 else y < 0
    if power >= 1 and np.any(outside):
        row = int(np.flatnonzero(outside)[0])
        raise ValueError(f"this model needs {low}, but y[{row}] = {y[row]:g} (Tweedie power {power:g})")


def is_count(given: Any) -> bool:
    """Whether strengths are given as their number."""
    return isinstance(given, int | np.integer) and not isinstance(given, bool)


def check_strengths(
    name: str, given: Any, automatic: Callable[[], tuple[float, float]], *, positive: bool = True
) -> Array:
    """Strengths in decreasing order: those given, or so many between the automatic ends."""
    if isinstance(given, int | np.integer):
        count = int(given)
        if count < 1 or given is True:
            raise ValueError(f"{name} must be at least 1 strength, got {given}")
        high, low = automatic()
        return np.geomspace(high, low, count) if count > 1 else np.array([np.sqrt(high * low)])
    try:
        strengths = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a whole number or a list of numbers, got {given!r}") from None
    if strengths.ndim == 0:
        raise ValueError(f"{name} must be a whole number or a list, got {given!r}: write [{given!r}]")
    wrong = strengths.ndim != 1 or strengths.size == 0 or not np.all(np.isfinite(strengths))
    if wrong or np.any(strengths <= 0 if positive else strengths < 0):
        kind = "positive" if positive else "non-negative"
        raise ValueError(f"{name} must be a whole number or a list of {kind} numbers, got {given!r}")
    return np.sort(strengths)[::-1].copy()


def check_max_error(max_error: Any) -> float:
    """Return how many standard errors the risk may be off, a number from 0 on."""
    if isinstance(max_error, bool) or not isinstance(max_error, int | float | np.number):
        raise TypeError(f"max_error must be a number of standard errors, got {max_error!r}")
    if not max_error >= 0:
        raise ValueError(f"max_error must be at least 0, got {max_error!r}: 0 makes every value exact")
    return float(max_error)


def check_audit(given: Any) -> int:
    """Return how many rows to audit: 0 for none, else at least 2."""
    whole = isinstance(given, int | np.integer) and not isinstance(given, bool)
    if not whole or given < 0 or given == 1:
        raise ValueError(
            f"audit must be 0 or a whole number of rows to refit, at least 2 (30 is good), got {given!r}"
        )
    return int(given)


def check_share(name: str, given: Any) -> None:
    """Refuse what is not a number between 0 and 1."""
    try:
        share = float(given)
    except (TypeError, ValueError):
        share = np.nan
    if not 0 <= share <= 1:
        raise ValueError(f"{name} must be a number in [0, 1], got {given!r}")
