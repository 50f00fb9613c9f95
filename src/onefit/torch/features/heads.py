"""Heads on frozen features: estimators of onefit, and what their leave-one-out says of each row."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.utils.multiclass import check_classification_targets

from onefit._typing import Array, Index
from onefit.api import loo
from onefit.estimators import LogisticLOO, RidgeLOO
from onefit.exceptions import ShortPathWarning
from onefit.metrics import LogLoss
from onefit.risk.means import mean_and_error
from onefit.torch.features.one_against_rest import OneAgainstRest
from onefit.torch.features.splits import some_of_each
from onefit.validation import check_class_count

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
    estimator_answers : bool
        Whether the estimator, which is the only one, says what its linear predictors mean.
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
    estimator_answers: bool = False

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


def logistic_head(
    X: Array, y: Any, sample_weight: Any, *, n_strengths: int | None, exact: bool
) -> JudgedHead:
    """Logistic regression: of two classes, of a few features multinomial, else one against the rest."""
    if np.ndim(y) == 1:
        check_classification_targets(y)
    classes, numbers = np.unique(y, return_inverse=True)
    if np.ndim(y) != 1 or len(classes) < 2:
        raise ValueError(f"a logistic head needs labels (n,) of at least 2 classes, got {len(classes)}")
    first = 1.0 if n_strengths is not None else _first_strength(X, numbers, sample_weight)

    def fitted(target: Any) -> Any:
        """One model: on a path if one is asked for, else at strengths around that of least squares."""
        if n_strengths is None:
            model = _around(first, X, target, sample_weight)
        else:
            begin = -np.log10(len(X))  # C Σ log-loss: a mean loss of weight 1, and up to 10^6
            model = LogisticLOO(Cs=np.logspace(begin, begin + DECADES, n_strengths))
            model.fit(X, target, sample_weight)
        return made_exact(model, X, target, sample_weight, needed=exact)

    if len(classes) == 2 or len(classes) * X.shape[1] <= JOINT:
        return judged_classes((fitted(y),), classes, numbers, sample_weight, of_one_head)
    if n_strengths is None and not exact:
        return _together(X, classes, numbers, sample_weight, first)
    heads = tuple(fitted(numbers == k) for k in range(len(classes)))
    return judged_classes(heads, classes, numbers, sample_weight, one_against_rest)


def _together(X: Array, classes: Any, numbers: Any, sample_weight: Any, first: float) -> JudgedHead:
    """Each class against the rest, at the strength that is best for all of them together."""
    weights = _weights(sample_weight, len(X))

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
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            model = LogisticLOO(Cs=Cs, early_stopping=False).fit(X, y, sample_weight)
        if np.isclose(model.C_, C):
            break
        C = model.C_
    for one in said:
        if not issubclass(one.category, ShortPathWarning):  # the grid is moved
            warnings.warn(one.message, one.category, stacklevel=4)
    return model


def ridge_head(X: Array, y: Any, sample_weight: Any) -> JudgedHead:
    """Least squares: of real numbers, or of 0 and 1 for each class."""
    target, classes = np.asarray(y), None
    if not np.issubdtype(target.dtype, np.floating):
        classes, numbers = np.unique(target, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"a ridge head needs labels of at least 2 classes, got {len(classes)}")
        own, instead = "a ridge head", "give it as floats"
        check_class_count(classes, len(classes), len(numbers), taken_by=own, instead=instead, stacklevel=3)
        target = np.eye(len(classes))[numbers]
    return judged_numbers(RidgeLOO().fit(X, target, sample_weight), target, sample_weight, classes)


def head_of(estimator: Any, X: Array, y: Any, sample_weight: Any, *, exact: bool) -> JudgedHead:
    """An estimator of the user's."""
    given = {} if sample_weight is None else {"sample_weight": sample_weight}
    estimator = estimator.fit(X, y, **given)
    estimator = getattr(estimator, "best_estimator_", estimator)
    if not hasattr(estimator, "coef_"):
        raise TypeError(f"head must be a linear model with coef_, and {type(estimator).__name__} has none")
    estimator = made_exact(estimator, X, y, sample_weight, needed=exact or not hasattr(estimator, "loo_"))
    if not np.array_equal(estimator.loo_.rows, np.arange(len(X))):
        raise ValueError("head must leave out each row once: give it a cv that does, KFold for instance")
    if not hasattr(estimator, "classes_"):
        judged = judged_numbers(estimator, np.asarray(y, dtype=np.float64), sample_weight)
        return replace(judged, estimator_answers=True)  # by a link, as of counts
    classes, numbers = np.unique(y, return_inverse=True)
    if estimator.loo_.method == "predict_proba":
        return judged_classes((estimator,), classes, numbers, sample_weight, of_one_head)
    scores, losses = estimator.loo_.decision, estimator.loo_.losses
    return _judged((estimator,), scores, losses, sample_weight, classes, None)


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
    predictions = proba(np.column_stack([one.loo_.decision for one in estimators]))
    with np.errstate(divide="ignore"):
        losses = -np.log(predictions[np.arange(len(numbers)), numbers])
    return _judged(estimators, predictions, losses, sample_weight, classes, proba)


def judged_numbers(estimator: Any, y: Array, sample_weight: Any, classes: Any = None) -> JudgedHead:
    """Left-out predictions and squared errors."""
    predictions = estimator.loo_.predictions
    losses = ((y - predictions.reshape(y.shape)) ** 2).reshape(len(y), -1).mean(axis=1)
    return _judged((estimator,), predictions, losses, sample_weight, classes, None)


def _judged(
    estimators: tuple[Any, ...],
    predictions: Array,
    losses: Array,
    sample_weight: Any,
    classes: Any,
    proba: Callable[[Array], Array] | None,
) -> JudgedHead:
    coef = np.concatenate([np.atleast_2d(one.coef_) for one in estimators])
    intercept = np.concatenate([np.atleast_1d(one.intercept_) for one in estimators])
    value, error = mean_and_error(losses, _weights(sample_weight, len(losses)))
    return JudgedHead(estimators, coef, intercept, predictions, losses, value, error, classes, proba)


def _weights(given: Any, n: int) -> Array:
    return np.ones(n) if given is None else np.asarray(given, dtype=np.float64)


def of_one_head(scores: Array) -> Array:
    """Probabilities of two classes from one linear predictor, or of several from one each."""
    return LogLoss(None).predictions(scores[:, 0] if scores.shape[1] == 1 else scores)


def one_against_rest(scores: Array) -> Array:
    """Probabilities of each head, scaled to sum to 1."""
    each = expit(scores)
    total = each.sum(axis=1, keepdims=True)
    return np.where(total > 0, each / np.where(total > 0, total, 1.0), 1.0 / each.shape[1])
