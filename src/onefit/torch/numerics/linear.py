"""Linear models tuned by leave-one-out: what networks and learned features are measured by."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from onefit._typing import Array
from onefit.estimators import LogisticLOO, RidgeLOO
from onefit.exceptions import ShortPathWarning, UnreliableWarning

LARGEST = 2000  # coefficients of a classifier up to which it is fitted
CS = np.logspace(-3, 2, 6)  # inverse strengths of a classifier
COLLAPSED = 0.5  # of the loss on unseen rows: a smaller one of rows that a training has seen says nothing
MATTERS = 0.05  # of a loss: a simpler model that is better by less is not worth a warning


def ridge_predictions(X: Array, y: Array, X_new: Array) -> Array:
    """Predictions of ridge regression on standardised features: (m,) or (m, c)."""
    return np.asarray(make_pipeline(StandardScaler(), RidgeLOO()).fit(X, y).predict(X_new))


def class_probabilities(X: Array, y: Array, X_new: Array) -> Array | None:
    """Probabilities (m, c) of labels 0 to c − 1 by logistic regression; None where that would be large."""
    outputs = int(y.max())
    if X.shape[1] * outputs > LARGEST:
        return None
    model = make_pipeline(StandardScaler(), LogisticLOO(Cs=CS))
    with warnings.catch_warnings():
        for own in (UnreliableWarning, ShortPathWarning):  # it is a yardstick, which nobody can lengthen
            warnings.simplefilter("ignore", own)
        return np.asarray(model.fit(X, y).predict_proba(X_new))
