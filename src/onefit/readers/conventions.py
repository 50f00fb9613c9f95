"""How scikit-learn weighs classes, and penalises some intercepts."""

from __future__ import annotations

from typing import Any

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Design, Index
from onefit.penalties import L2
from onefit.problem import Balance
from onefit.validation import check_rows, check_weights, class_numbers


def class_weights(class_weight: Any, numbers: Index, weights: Array, classes: Any) -> Array:
    """Return the factor of each row's class: (n,)."""
    if class_weight is None:
        return np.ones(len(numbers))
    if class_weight == "balanced":
        in_class = np.bincount(numbers, weights, len(classes))
        return (weights.sum() / (len(classes) * in_class))[numbers]
    return np.array([class_weight.get(label, 1.0) for label in classes], dtype=np.float64)[numbers]


def checked_labels(
    model: Any, X: Any, y: Any, sample_weight: Any, *, by_weight: bool = False
) -> tuple[Design, Index, Array, Balance | None]:
    """Rows, class numbers, weights times those of the classes, and what a refit balances anew.

    Parameters
    ----------
    model : fitted classifier with ``class_weight``
    X, y, sample_weight : arrays
    by_weight : bool
        Whether balanced classes are those of equal weight, not of equal numbers of rows.
    """
    X, y = check_rows(model, X, y, numeric=False)
    numbers, weights = class_numbers(y, model.classes_), check_weights(sample_weight, X)
    counted = weights if by_weight else np.ones(len(numbers))
    balance = Balance(numbers, counted) if model.class_weight == "balanced" else None
    return X, numbers, weights * class_weights(model.class_weight, numbers, counted, model.classes_), balance


def with_constant(X: Design, scale: float) -> Design:
    """Return the design with a last column of ``scale``, which stands for the intercept."""
    return _linalg.as_columns(X).with_column(scale)


def dense(values: Any) -> Array:
    """Return coefficients as a dense array of floats, however they are kept."""
    return np.asarray(_linalg.as_columns(values).dense(), dtype=np.float64)


def ridge_penalty(model: Any, y: Array) -> L2:
    """One strength, that was chosen or given, or one for each output: (1, t)."""
    strengths = np.asarray(model.alpha_ if hasattr(model, "alpha_") else model.alpha, dtype=np.float64)
    return L2(
        strengths.reshape(1, -1) if y.ndim == 2 and strengths.size > 1 else float(strengths.reshape(-1)[0])
    )
