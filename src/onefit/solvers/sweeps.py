"""Sweeps of coordinate descent over columns or their products, by scikit-learn."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import enet_path

from onefit._typing import Array


def swept(X: Any, y: Array, start: Array, ridge: float, error: float, sweeps: int, **known: Any) -> Array:
    """Minimise ½‖y − Xβ‖² + ‖β‖₁ + ½ ridge ‖β‖²: β (k,).

    Parameters
    ----------
    X : (n, k) array or sparse array
        Where products are known, nothing but its shape is asked for.
    y : (n,) array
    start : (k,) array
    ridge : float
    error : float
        Duality gap that ends it, relative to ‖y‖².
    sweeps : int
        At most.
    **known
        ``precompute`` and ``Xy``, products of the columns with each other and with y.
    """
    with (
        config_context(skip_parameter_validation=True),  # which takes as long as a few sweeps
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", ConvergenceWarning)  # the next step goes on
        _, coefs, _ = enet_path(
            X,
            y,
            l1_ratio=1.0 / (1.0 + ridge),
            alphas=[(1.0 + ridge) / len(y)],
            coef_init=start,
            check_input=False,
            tol=error,
            max_iter=sweeps,
            **{"precompute": False, **known},
        )
    return np.asarray(coefs[:, 0])
