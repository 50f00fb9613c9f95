"""Linear models with any loss: data in, predictions out."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.metrics import accuracy_score, d2_tweedie_score, r2_score
from sklearn.utils import ClassifierTags, RegressorTags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from onefit import _linalg
from onefit._scoring import decided
from onefit._typing import Array, Design
from onefit.fit import Fit
from onefit.leave_out.loose import with_middle_intercept
from onefit.losses import CoupledLoss, Logistic, Loss, Multinomial, Tweedie
from onefit.metrics import LinearMetric, metric_of_loss
from onefit.penalties import AnalysisPenalty, SeparablePenalty
from onefit.problem import Problem
from onefit.validation import (
    check_class_count,
    check_flag,
    check_magnitude,
    check_order,
    check_range,
    check_response,
    check_table,
    check_weights,
    validated,
)

WITH_PROBABILITIES = (Logistic, Multinomial)


def takes_middle(problem: Problem, middle: float, reach: float) -> bool:
    """Whether the middle of intercepts that are as good is taken: ``LinearModel`` always does."""
    return True


def has_classes(model: LinearModel) -> bool:
    """Whether it predicts classes."""
    loss = model._loss(2)
    return loss.of_two_classes or isinstance(loss, Multinomial)


def has_probabilities(model: LinearModel) -> bool:
    """Whether it predicts their probabilities."""
    return isinstance(model._loss(2), WITH_PROBABILITIES)


class LinearModel(BaseEstimator):
    """Data in, predictions out, for every loss."""

    fit_intercept: bool
    _several_targets: bool = False

    @abstractmethod
    def _loss(self, n_classes: int) -> Loss:
        """Return the loss for so many classes."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        tags.target_tags.multi_output = self._several_targets
        try:
            loss, of_classes = self._loss(2), has_classes(self)
        except (TypeError, ValueError):  # what is wrong with the loss is for fit to say
            return tags
        if of_classes:
            tags.estimator_type = "classifier"
            tags.classifier_tags = ClassifierTags(multi_class=isinstance(self._loss(3), Multinomial))
        else:
            tags.estimator_type = "regressor"
            tags.regressor_tags = RegressorTags()
            tags.target_tags.positive_only = isinstance(loss, Tweedie) and loss.power >= 1
        return tags

    def _check_X(self, X: Any) -> Design:
        check_is_fitted(self)
        check_table(X)
        return validated(self, X, reset=False, accept_sparse=("csr", "csc"), dtype=np.float64)

    def _check(self, X: Any, y: Any, sample_weight: Any) -> tuple[Design, Any, Array, Array]:
        """Return X, the response as it was given and in the terms of the loss, and the weights."""
        of_classes = has_classes(self)
        check_flag("fit_intercept", self.fit_intercept)
        check_table(X)
        check_order(X, y, "fit(X, y)")
        check_response(y, of_classes=of_classes)
        X, given = validated(
            self,
            X,
            y,
            accept_sparse=("csr", "csc"),
            dtype=np.float64,
            ensure_min_samples=2,
            y_numeric=not of_classes,
            multi_output=self._several_targets,
        )
        given = given[:, 0] if given.ndim == 2 and given.shape[1] == 1 else given  # as in scikit-learn
        check_magnitude(X)
        weights = check_weights(sample_weight, X)
        if of_classes:
            return X, given, self._class_numbers(given, weights), weights
        target, loss = np.asarray(given, dtype=np.float64), self._loss(0)
        if isinstance(loss, Tweedie):
            check_range(target, loss.power)
            if loss.link == "log" and not np.any(target[weights > 0] > 0):
                raise ValueError("y is zero for every row: a mean of zero has no logarithm")
        return X, given, target, weights

    def _class_numbers(self, labels: Any, weights: Array) -> Array:
        check_classification_targets(labels)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        held, name = len(np.unique(numbers[weights > 0])), type(self).__name__
        instead = "use a regressor such as LassoLOO"
        check_class_count(self.classes_, held, len(numbers), taken_by=name, instead=instead, stacklevel=5)
        if held < 2:
            only = np.asarray(labels)[weights > 0].tolist()[0]
            raise ValueError(
                f"{name} needs samples of at least 2 classes in the data, but the data contains only one "
                f"class: {only!r}"
            )
        if self.fit_intercept and held < len(self.classes_):
            lacking = self.classes_[np.bincount(numbers, weights) == 0].tolist()[0]
            raise ValueError(
                f"sample_weight is zero for every row of class {lacking!r}: leave these rows out"
            )
        if held == len(labels):
            raise ValueError(f"every one of the {held} rows has a class of its own: is y a class label?")
        if len(self.classes_) > 2 and self._loss(len(self.classes_)).of_two_classes:
            shown = ", ".join(map(repr, self.classes_.tolist()[:6]))
            raise ValueError(
                f"Only binary classification is supported by loss={self._loss(2)!r}, but y has "
                f"{len(self.classes_)} classes ({shown}): take loss='multinomial', or "
                "sklearn.multiclass.OneVsRestClassifier"
            )
        return numbers.astype(np.float64)

    def _fitted_loss(self) -> Loss:
        return self._loss(len(getattr(self, "classes_", ())))

    def _outputs(self, target: Array) -> tuple[int, ...]:
        """Shape of the linear predictors of a row."""
        return (len(self.classes_),) if isinstance(self._fitted_loss(), CoupledLoss) else target.shape[1:]

    def _metric(self) -> LinearMetric:
        """How predictions are judged."""
        return metric_of_loss(self._loss(2), getattr(self, "classes_", None))

    def _take(self, fit: Fit) -> None:
        self.intercept_: Any
        fit, _ = with_middle_intercept(fit)
        if not fit.problem.has_one_output:
            self.coef_, self.intercept_ = fit.coef.T, self._without_common(fit.intercept)
        elif has_classes(self):
            self.coef_, self.intercept_ = fit.coef[None], np.atleast_1d(fit.intercept)
        else:
            self.coef_, self.intercept_ = fit.coef, float(fit.intercept)

    def _without_common(self, levels: Array) -> Array:
        """Intercepts of more than two classes, whose common level means nothing, with mean zero."""
        tied = isinstance(self._fitted_loss(), CoupledLoss)
        return levels - levels.mean(axis=-1, keepdims=True) if tied else levels

    def _as_fit(self, problem: Problem) -> Fit:
        """Return the fitted coefficients as a fit."""
        level = np.reshape(self.intercept_, problem.outputs)
        return Fit(problem, self.coef_.T.reshape(problem.coef_shape), level)

    def _eta(self, X: Any, offset: Any = None) -> Array:
        eta: Array = _linalg.times(self._check_X(X), self.coef_.T) + self.intercept_
        eta = eta[:, 0] if has_classes(self) and eta.shape[1] == 1 else eta
        return eta if offset is None else eta + np.asarray(offset, dtype=np.float64)

    def _predicted(self, eta: Array) -> Array:
        if not has_classes(self):
            return self._metric().predictions(eta)
        return self.classes_[decided(eta)]

    def predict(self, X: Any, offset: Any = None) -> Array:
        """Predicted response, mean or class: (n,), or (n, t) for several targets; with offsets added in."""
        return self._predicted(self._eta(X, offset))

    @available_if(has_classes)
    def decision_function(self, X: Any, offset: Any = None) -> Array:
        """Linear predictors: (n,) for two classes, else (n, c); with offsets added in."""
        eta = self._eta(X, offset)
        return eta[:, 1] - eta[:, 0] if eta.ndim == 2 and eta.shape[1] == 2 else eta

    @available_if(has_probabilities)
    def predict_proba(self, X: Any, offset: Any = None) -> Array:
        """Class probabilities: (n, c); with offsets added to the log-odds."""
        eta = self._eta(X, offset)
        return self._metric().predictions(eta)

    @available_if(has_probabilities)
    def predict_log_proba(self, X: Any, offset: Any = None) -> Array:
        """Logarithms of the class probabilities: (n, c); with offsets added to the log-odds."""
        return np.log(self.predict_proba(X, offset))

    def score(self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None) -> float:
        """Accuracy of a classifier, D² of a model of counts or positive numbers, else R²; with offsets in."""
        predicted, loss = self.predict(X, offset), self._fitted_loss()
        if has_classes(self):
            return float(accuracy_score(y, predicted, sample_weight=sample_weight))
        if isinstance(loss, Tweedie):
            return float(d2_tweedie_score(y, predicted, sample_weight=sample_weight, power=loss.power))
        return float(r2_score(y, predicted, sample_weight=sample_weight))


def check_determined(problem: Problem) -> None:
    """Refuse penalties that do not fit the coefficients, or that leave directions which X does not have."""
    penalty, X = problem.penalty, problem.X
    if problem.is_coupled and not isinstance(penalty, SeparablePenalty):
        raise ValueError(
            f"{type(penalty).__name__} is for models with one output, not for a loss of {problem.n_outputs} "
            "classes: take L1, L2 or ElasticNet"
        )
    penalty.check(problem.coef_shape)
    if not isinstance(penalty, AnalysisPenalty):
        return
    free = penalty.tangent(np.zeros(X.shape[1]))
    along = _linalg.as_columns(X).along(free.basis)[problem.weights > 0]
    if np.all(problem.intercept):
        along = along - along.mean(axis=0)
    rank = int(np.linalg.matrix_rank(along)) if along.size else 0
    if rank < free.size:
        raise ValueError(
            f"{type(penalty).__name__} leaves {free.size} directions of the coefficients free, of which X "
            f"determines {rank}: add rows to D, or an L2 penalty"
        )
