"""Left-out predictions of all rows together, as scorers are given them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if

from onefit._typing import Array, Index

# Predictions of a constant model, as of balanced classes, differ by rounding alone: they are ties, of which
# that would make an order, and of it any area under the ROC curve.
DECIMALS, BITS = 12, 40


@dataclass(frozen=True, eq=False)
class Pooled:
    """Left-out predictions of some rows, and what they are held against.

    Attributes
    ----------
    y : (r,) or (r, t) array
        As the user gave it.
    predictions, decision : (r,) or (r, c) arrays
    method : str
        Whose outputs the predictions are.
    classes : array or None
    weights : (r,) array or None
    """

    y: Any
    predictions: Array
    decision: Array
    method: str
    classes: Any | None = None
    weights: Array | None = None

    def some(self, rows: Index) -> Pooled:
        """Those of some rows."""
        return replace(
            self,
            y=self.y[rows],
            predictions=self.predictions[rows],
            decision=self.decision[rows],
            weights=None if self.weights is None else self.weights[rows],
        )

    @property
    def ranked(self) -> Array:
        """Decision functions with their ties: (r,) or (r, c)."""
        return np.round(self.decision, DECIMALS)

    @property
    def probabilities(self) -> Array | None:
        """Those of classes with their ties, to the same share of each, where there are some: (r, c)."""
        if self.classes is None or self.method != "predict_proba":
            return None
        digits, powers = np.frexp(self.predictions)
        return np.ldexp(np.round(np.ldexp(digits, BITS)), powers - BITS)

    @property
    def row_weights(self) -> Array:
        """Weight of each row, one where none were given: (r,)."""
        return np.ones(len(self.predictions)) if self.weights is None else self.weights

    @property
    def shares(self) -> Array:
        """Weights with sum one: (r,)."""
        return np.asarray(self.row_weights / self.row_weights.sum())

    @property
    def number(self) -> Index:
        """Number of each row's class."""
        return np.searchsorted(np.asarray(self.classes), np.asarray(self.y))


def decided(decision: Array) -> Index:
    """Number of the class that decision functions, (n,) of two classes or (n, c), speak for: (n,)."""
    return decision.argmax(axis=1) if decision.ndim == 2 else (decision > 0).astype(np.intp)


def stand_in(pooled: Pooled) -> BaseEstimator:
    """What a scorer takes for the fitted estimator; its rows are numbers of rows."""
    if pooled.classes is None:
        return _PooledRegressor(pooled.predictions)
    return _PooledClassifier(pooled.probabilities, pooled.ranked, np.asarray(pooled.classes))


@dataclass(eq=False, repr=False)
class _PooledRegressor(RegressorMixin, BaseEstimator):
    """Stands for a fitted estimator that predicts what it was given, by row number."""

    response: Array

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def predict(self, rows: Array) -> Array:
        return self.response[rows[:, 0]]


@dataclass(eq=False, repr=False)
class _PooledClassifier(ClassifierMixin, BaseEstimator):
    probabilities: Any
    decision: Array
    classes_: Array

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def decision_function(self, rows: Array) -> Array:
        return self.decision[rows[:, 0]]

    def predict(self, rows: Array) -> Array:
        return self.classes_[decided(self.decision[rows[:, 0]])]

    @available_if(lambda self: self.probabilities is not None)
    def predict_proba(self, rows: Array) -> Array:
        return self.probabilities[rows[:, 0]]
