"""scikit-learn's scorers on predictions that are already there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import get_scorer

from onefit._typing import Array


class _Pooled(BaseEstimator):
    """Stands for a fitted estimator that predicts what it was given, by row number."""

    def __init__(self, response: Array, method: str) -> None:
        self.response = response
        self.method = method

    def __sklearn_is_fitted__(self) -> bool:
        return True


class _PooledRegressor(RegressorMixin, _Pooled):
    def predict(self, rows: Array) -> Array:
        return self.response[rows[:, 0]]


class _PooledClassifier(ClassifierMixin, _Pooled):
    def __init__(self, response: Array, method: str, decision: Array, classes: Array) -> None:
        super().__init__(response, method)
        self.decision = decision
        self.classes = classes

    @property
    def classes_(self) -> Array:
        return self.classes

    def decision_function(self, rows: Array) -> Array:
        return self.decision[rows[:, 0]]

    def predict(self, rows: Array) -> Array:
        scores = self.decision[rows[:, 0]]
        best = scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(np.intp)
        return self.classes[best]


class _PooledProbabilities(_PooledClassifier):
    def predict_proba(self, rows: Array) -> Array:
        return self.response[rows[:, 0]]


def score_pooled(
    scoring: str | Callable[..., float],
    y: Any,
    predictions: Array,
    decision: Array,
    method: str,
    classes: Any | None,
    sample_weight: Array | None,
) -> float:
    """Apply a scorer once to all left-out predictions.

    Scores that do not average over rows (R², the area under the ROC curve) are right only this way.
    """
    scorer = get_scorer(scoring) if isinstance(scoring, str) else scoring
    stand_in: _Pooled
    if classes is None:
        stand_in = _PooledRegressor(predictions, method)
    elif method == "predict_proba":
        stand_in = _PooledProbabilities(predictions, method, decision, np.asarray(classes))
    else:
        stand_in = _PooledClassifier(predictions, method, decision, np.asarray(classes))
    rows = np.arange(len(predictions))[:, None]
    weights = {} if sample_weight is None else {"sample_weight": sample_weight}
    return float(scorer(stand_in, rows, y, **weights))
