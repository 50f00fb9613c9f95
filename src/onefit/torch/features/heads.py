"""Heads on frozen features: estimators of onefit, and what their leave-one-out says of each row."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit
from scipy.special import softmax as softmax_of

from onefit._typing import Array, Index
from onefit.api import loo
from onefit.estimators import LogisticLOO, RidgeLOO
from onefit.exceptions import OnefitWarning
from onefit.risk.means import mean_and_error
from onefit.torch.features.one_against_rest import OneAgainstRest
from onefit.torch.features.splits import some_of_each

JOINT = 400  # coefficients up to which several classes share one multinomial fit
DECADES = 6.0  # of a logistic path
FACTOR = 6.0  # between neighbouring strengths, where no path is asked for
GUESSED = 1000  # rows, at most, that the first of them is guessed from
EXTENSIONS = 5  # moves of the three strengths, at most
UNSURE = 0.02  # least probability that least squares is taken to tell


@dataclass(frozen=True, eq=False)
class JudgedHead:
    """A head that was fitted, and what it says without each row.

    Attributes
    ----------
    estimators : tuple of estimators
    coef, intercept : (c, d) and (c,) arrays
    predictions, losses : (n, ·) and (n,) arrays
        With each row left out.
    value, std_error : float
    classes : (c,) array or None
    to_probabilities : callable
        From linear predictors, (m, ·), to (m, number of classes).
    """

    estimators: tuple[Any, ...]
    coef: Array
    intercept: Array
    predictions: Array
    losses: Array
    value: float
    std_error: float
    classes: Any = None
    to_probabilities: Callable[[Array], Array] | None = None

    def probabilities(self, scores: Array) -> Array:
        """Class probabilities.

        Raises
        ------
        ValueError
            If the head has none.
        """
        if self.to_probabilities is None:
            raise ValueError("this head has no probabilities: take head='logistic'")
        return self.to_probabilities(scores)

    def answers(self, scores: Array) -> Any:
        """Classes, or predictions."""
        if self.classes is None:
            return scores[:, 0] if scores.shape[1] == 1 else scores
        if scores.shape[1] == 1:
            return self.classes[(scores[:, 0] > 0).astype(int)]
        return self.classes[scores.argmax(axis=1)]


class Head(ABC):
    """What is fitted on the features."""

    @abstractmethod
    def fit(self, X: Array, y: Any, sample_weight: Any) -> JudgedHead:
        """Fit, tune and judge."""


@dataclass(frozen=True)
class LogisticHead(Head):
    """Logistic regression: of two classes, of a few features multinomial, else one against the rest."""

    n_strengths: int | None
    exact: bool

    def fit(self, X: Array, y: Any, sample_weight: Any) -> JudgedHead:
        classes, numbers = np.unique(y, return_inverse=True)
        if np.ndim(y) != 1 or len(classes) < 2:
            raise ValueError(f"a logistic head needs labels (n,) of at least 2 classes, got {len(classes)}")
        first = 1.0 if self.n_strengths is not None else _first_strength(X, numbers, sample_weight)
        if len(classes) == 2 or len(classes) * X.shape[1] <= JOINT:
            estimator = self._one(X, y, sample_weight, first)
            proba = binary if len(classes) == 2 else softmax
            return judged_classes((estimator,), classes, numbers, sample_weight, proba)
        if self.n_strengths is None and not self.exact:
            return _together(X, classes, numbers, sample_weight, first)
        heads = tuple(self._one(X, numbers == k, sample_weight, first) for k in range(len(classes)))
        return judged_classes(heads, classes, numbers, sample_weight, one_against_rest)

    def _one(self, X: Array, y: Any, sample_weight: Any, first: float) -> Any:
        """Fit one model: on a path if one is asked for, else at strengths around that of least squares."""
        if self.n_strengths is not None:
            begin = -np.log10(len(X))  # C Σ log-loss: a mean loss of weight 1, and up to 10^6
            model = LogisticLOO(Cs=np.logspace(begin, begin + DECADES, self.n_strengths))
            model.fit(X, y, sample_weight)
        else:
            model = _around(first, X, y, sample_weight)
        return made_exact(model, X, y, sample_weight, needed=self.exact)


def _together(X: Array, classes: Any, numbers: Any, sample_weight: Any, first: float) -> JudgedHead:
    """Each class against the rest, at the strength that is best for all of them together."""
    weights = np.ones(len(X)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)

    def risk(scores: Array, rows: Index) -> float:
        with np.errstate(divide="ignore"):
            losses = -np.log(one_against_rest(scores)[np.arange(len(rows)), numbers[rows]])
        return mean_and_error(losses, weights[rows])[0]

    heads = OneAgainstRest(X, np.eye(len(classes))[numbers], weights).tuned(first, risk)
    return judged_classes(heads, classes, numbers, sample_weight, one_against_rest)


def _first_strength(X: Array, numbers: Any, sample_weight: Any) -> float:
    """C at which logistic regression shrinks about as much as the best ridge regression on the labels.

    Their curvatures XᵀDX + 1/C and XᵀX + α are in proportion where 1/C = d α with d a mean of p(1 − p).
    """
    rows = some_of_each(numbers, GUESSED)
    weights = None if sample_weight is None else np.asarray(sample_weight)[rows]
    ridge = RidgeLOO().fit(X[rows], np.eye(int(numbers.max()) + 1)[numbers[rows]], weights)
    share = np.clip(ridge.loo_.predictions, UNSURE, 1.0 - UNSURE)
    return float(1.0 / (ridge.alpha_ * np.mean(share * (1.0 - share))))


def _around(C: float, X: Array, y: Any, sample_weight: Any) -> LogisticLOO:
    """The best of three strengths, moved until it is the one in the middle."""
    for _ in range(EXTENSIONS):
        Cs = C * np.array([1.0 / FACTOR, 1.0, FACTOR])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OnefitWarning)  # of an end of the grid: it is moved
            model = LogisticLOO(Cs=Cs, early_stopping=False).fit(X, y, sample_weight)
        if np.isclose(model.C_, C):
            break
        C = model.C_
    return model


@dataclass(frozen=True)
class RidgeHead(Head):
    """Least squares: of real numbers, or of 0 and 1 for each class."""

    n_strengths: int | None
    exact: bool

    def fit(self, X: Array, y: Any, sample_weight: Any) -> JudgedHead:
        target = np.asarray(y)
        if np.issubdtype(target.dtype, np.floating):
            return judged_numbers(RidgeLOO().fit(X, target, sample_weight), target, sample_weight)
        classes, numbers = np.unique(target, return_inverse=True)
        estimator = RidgeLOO().fit(X, np.eye(len(classes))[numbers], sample_weight)
        found = judged_numbers(estimator, np.eye(len(classes))[numbers], sample_weight)
        return JudgedHead(**{**vars(found), "classes": classes})


@dataclass(frozen=True)
class EstimatorHead(Head):
    """An estimator of the user's."""

    estimator: Any
    exact: bool

    def fit(self, X: Array, y: Any, sample_weight: Any) -> JudgedHead:
        given = {} if sample_weight is None else {"sample_weight": sample_weight}
        estimator = self.estimator.fit(X, y, **given)
        estimator = getattr(estimator, "best_estimator_", estimator)
        estimator = made_exact(
            estimator, X, y, sample_weight, needed=self.exact or not hasattr(estimator, "loo_")
        )
        if not hasattr(estimator, "classes_"):
            return judged_numbers(estimator, np.asarray(y, dtype=np.float64), sample_weight)
        classes, numbers = np.unique(y, return_inverse=True)
        proba = binary if len(classes) == 2 else softmax
        return judged_classes((estimator,), classes, numbers, sample_weight, proba)


HEADS: dict[str, Callable[[int | None, bool], Head]] = {
    "logistic": LogisticHead,
    "ridge": RidgeHead,
}


def made_exact(estimator: Any, X: Array, y: Any, sample_weight: Any, *, needed: bool) -> Any:
    """An estimator whose ``loo_`` is exact."""
    if needed:
        estimator.loo_ = loo(estimator, X, y, sample_weight=sample_weight, exact=True)
    return estimator


def judged_classes(
    estimators: tuple[Any, ...],
    classes: Any,
    numbers: Any,
    sample_weight: Any,
    proba: Callable[[Array], Array],
) -> JudgedHead:
    """Left-out probabilities and log-losses of labels."""
    scores = np.column_stack([one.loo_.decision for one in estimators])
    predictions = proba(scores)
    with np.errstate(divide="ignore"):
        losses = -np.log(predictions[np.arange(len(numbers)), numbers])
    weights = np.ones(len(losses)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    coef = np.concatenate([np.atleast_2d(one.coef_) for one in estimators])
    intercept = np.concatenate([np.atleast_1d(one.intercept_) for one in estimators])
    value, error = mean_and_error(losses, weights)
    return JudgedHead(estimators, coef, intercept, predictions, losses, value, error, classes, proba)


def judged_numbers(estimator: Any, y: Array, sample_weight: Any) -> JudgedHead:
    """Left-out predictions and squared errors."""
    predictions = estimator.loo_.predictions
    losses = ((y - predictions) ** 2).reshape(len(y), -1).mean(axis=1)
    weights = np.ones(len(losses)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    value, error = mean_and_error(losses, weights)
    coef, intercept = np.atleast_2d(estimator.coef_), np.atleast_1d(estimator.intercept_)
    return JudgedHead((estimator,), coef, intercept, predictions, losses, value, error)


def binary(scores: Array) -> Array:
    """Probabilities of two classes from one linear predictor."""
    one = expit(scores[:, 0])
    return np.column_stack([1.0 - one, one])


def one_against_rest(scores: Array) -> Array:
    """Probabilities of each head, scaled to sum to 1."""
    each = expit(scores)
    total = each.sum(axis=1, keepdims=True)
    return np.where(total > 0, each / np.where(total > 0, total, 1.0), 1.0 / each.shape[1])


def softmax(scores: Array) -> Array:
    """Probabilities of several classes."""
    shares: Array = softmax_of(scores, axis=1)
    return shares
