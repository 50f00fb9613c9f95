"""Unfitted estimators of other libraries whose refits are the optimum."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_array

from onefit import _linalg
from onefit._typing import Array
from onefit.readers.translation import coefficients, library_of
from onefit.refits import untuned


class Refit(BaseEstimator):
    """An estimator that a function fits, for those that cannot be cloned or hide their linear predictor.

    Parameters
    ----------
    fitted : callable
        From X, y and weights (or None) to a fitted estimator with ``coef_`` and ``intercept_``.
    mean : callable, optional
        From linear predictors to predictions.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> model = Refit(lambda X, y, sample_weight: Ridge(0.0).fit(X, y, sample_weight))
    >>> float(model.fit([[0.0], [1.0]], [0.0, 2.0]).predict([[2.0]])[0].round(6))
    4.0
    """

    def __init__(self, fitted: Any, mean: Any = None) -> None:
        self.fitted = fitted
        self.mean = mean

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Refit:
        """Fit."""
        self.model_ = self.fitted(X, y, sample_weight)
        if hasattr(self.model_, "classes_"):
            self.classes_ = self.model_.classes_
        return self

    def decision_function(self, X: Any) -> Array:
        """Linear predictors: (n,)."""
        X = check_array(X, accept_sparse="csr", dtype=np.float64)
        return _linalg.times(X, coefficients(self.model_)) + np.ravel(self.model_.intercept_)[0]

    def predict(self, X: Any) -> Array:
        """Predicted means: (n,)."""
        eta = self.decision_function(X)
        return eta if self.mean is None else self.mean(eta)


def tightly(model: Any, **closer: float) -> Any:
    """Clone, and solve to the optimum: a smaller tolerance, more iterations."""
    given = model.get_params(deep=False)
    bound = {name: max if name.startswith("max_") else min for name in closer}
    changes = {
        name: limit if given[name] is None else bound[name](given[name], limit)
        for name, limit in closer.items()
    }
    return clone(model).set_params(**changes)


def chosen(model: Any, target: str, attributes: Sequence[str], **closer: float) -> Any:
    """Return what a class that tunes itself has chosen."""
    values = {name.rstrip("_"): float(getattr(model, name)) for name in attributes}
    return tightly(
        untuned(model, getattr(import_module(library_of(type(model))), target), **values), **closer
    )
