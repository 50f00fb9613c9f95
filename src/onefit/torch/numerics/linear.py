"""Linear models tuned by leave-one-out: what networks and learned features are measured by."""

from __future__ import annotations

import warnings

import numpy as np

from onefit._typing import Array
from onefit.estimators import LogisticLOO, RidgeLOO
from onefit.exceptions import ShortPathWarning, UnreliableWarning

LARGEST = 2000  # coefficients of a classifier up to which it is fitted
CS = np.logspace(-3, 2, 6)  # inverse strengths of a classifier


def ridge_predictions(X: Array, y: Array, X_new: Array) -> Array:
    """Predictions of ridge regression on standardised features: (m,) or (m, c)."""
    Z, Z_new = _standardised(X, X_new)
    return np.asarray(RidgeLOO().fit(Z, y).predict(Z_new))


def class_probabilities(X: Array, y: Array, X_new: Array) -> Array | None:
    """Probabilities (m, c) of labels 0 to c − 1 by logistic regression; None where that would be large."""
    outputs = int(y.max())
    if X.shape[1] * outputs > LARGEST:
        return None
    Z, Z_new = _standardised(X, X_new)
    with warnings.catch_warnings():
        for own in (UnreliableWarning, ShortPathWarning):  # it is a yardstick, which nobody can lengthen
            warnings.simplefilter("ignore", own)
        return np.asarray(LogisticLOO(Cs=CS).fit(Z, y).predict_proba(Z_new))


def _standardised(X: Array, X_new: Array) -> tuple[Array, Array]:
    middle, spread = X.mean(axis=0), X.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    return (X - middle) / spread, (X_new - middle) / spread
