"""Whether a reader of fitted models reads them right."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import clone

from onefit import api
from onefit._typing import Array
from onefit.exceptions import NotOptimalWarning
from onefit.readers.registry import has_reading, read
from onefit.refits import reference
from onefit.solvers.solve import polish
from onefit.testing.common import holds, same, some_rows


def check_reader(
    model: Any, X: Any, y: Any, sample_weight: Any = None, *, rtol: float = 1e-5, rng: int = 0
) -> None:
    """Check the reader of a fitted model: the objective that it states, and left-out values against refits.

    Parameters
    ----------
    model : fitted estimator
        Of a class that a reader is registered for; fitted to a tight tolerance.
    X, y, sample_weight
        What it was fitted on: about 40 rows.
    rtol : float, default 1e-5
        How closely refits agree, relative to the spread of their predictions: the solver's precision.
    rng : int, default 0

    Raises
    ------
    AssertionError
        Whose message says what is wrong.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import Lasso
    >>> X = np.random.default_rng(0).normal(size=(40, 5))
    >>> y = X[:, 0] + 0.3 * X[:, 1]
    >>> check_reader(Lasso(0.1, tol=1e-12).fit(X, y), X, y)
    """
    name = type(model).__name__
    holds(has_reading(type(model)), f"no reader is registered for {name}")
    reading = read(model, X, y, sample_weight)
    polished = polish(reading.fit)
    holds(polished.missed <= 1e-6, f"{name} is not the minimum of the objective that its reader states")
    scale = 1.0 + float(np.abs(polished.solution.fit.eta).max())
    same(
        reading.fit.eta,
        polished.solution.fit.eta,
        f"{name} is not optimal for its reader",
        1e-4,
        1e-4 * scale,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", NotOptimalWarning)
        found = api.loo(model, X, y, sample_weight, exact=True)
    _check_refits(model, X, y, sample_weight, found.predictions, rtol, np.random.default_rng(rng))


def _check_refits(
    model: Any, X: Any, y: Any, sample_weight: Any, found: Array, rtol: float, rng: np.random.Generator
) -> None:
    """Left-out predictions are those of clones that are fitted to the other rows."""
    y, unfitted = np.asarray(y), reference(model)
    method = "predict_proba" if found.ndim == 2 and hasattr(model, "predict_proba") else "predict"
    spread = float(np.ptp(found, axis=0).max()) or 1.0
    for i in some_rows(len(y), 10, rng):
        kept = np.arange(len(y)) != i
        weights = {} if sample_weight is None else {"sample_weight": np.asarray(sample_weight)[kept]}
        refit = clone(unfitted).fit(X[kept], y[kept], **weights)
        expected = _predicted(refit, method, X[[i]], found)
        same(found[i], expected, f"row {i} left out is not the refit of a clone", rtol, rtol * spread)


def _predicted(refit: Any, method: str, row: Any, found: Array) -> Array:
    if found.dtype.kind == "f" and method == "predict" and hasattr(refit, "classes_"):
        method = "predict_proba" if hasattr(refit, "predict_proba") else "decision_function"
    answer = np.asarray(getattr(refit, method)(row))[0]
    return answer[1] if found.ndim == 1 and np.ndim(answer) == 1 else answer
