"""How scikit-learn weighs classes, and penalises some intercepts."""

from __future__ import annotations

from typing import Any

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Design, Index
from onefit.penalties import L2


def class_weights(class_weight: Any, numbers: Index, weights: Array, classes: Any) -> Array:
    """Return the factor of each row's class: (n,)."""
    if class_weight is None:
        return np.ones(len(numbers))
    if class_weight == "balanced":
        in_class = np.bincount(numbers, weights, len(classes))
        return (weights.sum() / (len(classes) * in_class))[numbers]
    return np.array([class_weight.get(label, 1.0) for label in classes], dtype=np.float64)[numbers]


def with_constant(X: Design, scale: float) -> Design:
    """Return the design with a last column of ``scale``, which stands for the intercept."""
    return _linalg.as_columns(X).with_column(scale)


def dense(values: Any) -> Array:
    """Return coefficients as a dense array of floats, however they are kept."""
    return np.asarray(_linalg.as_columns(values).dense(), dtype=np.float64)


def ridge_penalty(alpha: Any, y: Array) -> L2:
    """One strength, or one for each output: (1, t)."""
    strengths = np.asarray(alpha, dtype=np.float64)
    return L2(
        strengths.reshape(1, -1) if y.ndim == 2 and strengths.size > 1 else float(strengths.reshape(-1)[0])
    )
