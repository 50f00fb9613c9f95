"""How scikit-learn weighs classes, and penalises some intercepts."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from onefit import _linalg
from onefit._typing import Array, Design, Index


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
    column = np.full((X.shape[0], 1), scale)
    return sp.hstack([X, column], format="csr") if _linalg.is_sparse(X) else np.hstack([X, column])
