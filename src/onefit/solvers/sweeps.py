"""Sweeps of coordinate descent over columns or their products, by scikit-learn.

They end by a duality gap.  scikit-learn's shortens the residuals until they are feasible, and with a weak
penalty says that next to nothing is done when all is.  Where there is an ℓ2 part every dual point is
feasible, and the gap of the residuals as they are is within a few times of what is left.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import enet_path

from onefit._typing import Array
from onefit.numerics import TINY

FEW = 5  # sweeps, after which it is first asked how much is left; then after twice as many each time


def swept(
    X: Any,
    y: Array,
    start: Array,
    ridge: float,
    error: float,
    sweeps: int,
    *,
    border: Array | None = None,
    **known: Any,
) -> Array:
    """Minimise ½‖y − Xβ‖² + ‖β‖₁ + ½ ridge ‖β‖²: β (k,).

    Parameters
    ----------
    X : (n, k) array or sparse array
        Where products are known, nothing but its shape is asked for.
    y : (n,) array
    start : (k,) array
    ridge : float
    error : float
        Duality gap that ends it, relative to ‖y‖²: with an ℓ2 part whichever of the two is smaller.
    sweeps : int
        At most.
    border : (n,) array, optional
        The last column of X, where that is as good as free.
    **known
        ``precompute`` and ``Xy``, products of the columns with each other and with y.
    """
    coef, few, left = start, FEW if ridge else sweeps, sweeps
    while left > 0:
        coef = _some(X, y, coef, ridge, error, min(few, left), known)
        left, few = left - few, 2 * few
        if left > 0 and _gap(X, y, coef, ridge, known, border) <= error * float(y @ y):
            break
    return coef


def _some(
    X: Any, y: Array, start: Array, ridge: float, error: float, sweeps: int, known: dict[str, Any]
) -> Array:
    # In this unit of the response both penalties are alike, whatever its own is and that of the columns: one
    # less the share of ℓ1, which is what scikit-learn takes for ℓ2, has no digits where one is far less.
    alike = TINY < ridge**2 < np.inf
    unit, strength, share = (ridge, 2.0 * ridge, 0.5) if alike else (1.0, 1.0 + ridge, 1.0 / (1.0 + ridge))
    if "Xy" in known:
        known = {**known, "Xy": unit * known["Xy"]}
    with (
        config_context(skip_parameter_validation=True),  # which takes as long as a few sweeps
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", ConvergenceWarning)  # the next step goes on
        _, coefs, _ = enet_path(
            X,
            unit * y,
            l1_ratio=share,
            alphas=[strength / len(y)],
            coef_init=unit * start,
            check_input=False,
            tol=error,
            max_iter=sweeps,
            **{"precompute": False, **known},
        )
    return np.asarray(coefs[:, 0]) / unit


def _gap(X: Any, y: Array, coef: Array, ridge: float, known: dict[str, Any], border: Array | None) -> float:
    """Duality gap, with the residuals as dual point; those less their share in a column that is free."""
    if known:
        along = known["Xy"] - known["precompute"] @ coef
        squares = float(y @ y - coef @ (known["Xy"] + along))
    else:
        residuals = y - X @ coef
        if border is not None:
            residuals -= border * (float(border @ residuals) / float(border @ border))
        along, squares = X.T @ residuals, float(residuals @ residuals)
    if border is not None:
        coef, along = coef[:-1], along[:-1]
    return gap_of_net(coef, along, squares, 1.0, ridge)


def gap_of_net(coef: Array, along: Array, squares: float, l1: Array | float, l2: Array | float) -> float:
    """Duality gap of a lasso or an elastic net.

    The dual point is that of the residuals, as they are beside an ℓ2 part, or as much shorter as it takes to
    be feasible, with the ℓ2 part as rows of its own: whichever tells more.

    Parameters
    ----------
    coef : (k,) array
    along : (k,) array
        Products of the columns with the residuals.
    squares : float
        Of the residuals.
    l1, l2 : float or (k,) array
    """
    pull = along - l2 * coef
    t = 1.0 / max(1.0, float(np.max(np.abs(pull) / l1, initial=0.0)))
    squares += float(coef @ (l2 * coef))
    shortened = 0.5 * (1.0 - t) ** 2 * squares + float(np.sum(l1 * np.abs(coef) - t * pull * coef))
    if not np.all(l2 > 0):
        return shortened
    beyond = np.maximum(np.abs(along) - l1, 0.0)
    own = l1 * np.abs(coef) + 0.5 * l2 * coef**2 - along * coef + 0.5 * beyond**2 / l2
    return max(min(shortened, float(own.sum())), 0.0)  # rounding of its parts
