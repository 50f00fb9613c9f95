"""scikit-learn's linear support vector machines, by liblinear."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sklearn import svm
from sklearn.base import clone

from onefit._typing import Array, Design
from onefit.fit import Fit
from onefit.losses import EpsilonInsensitive, Hinge, Loss, SquaredEpsilonInsensitive, SquaredHinge
from onefit.metrics import HingeLoss, LinearMetric, SquaredError
from onefit.penalties import L1, L2, SeparablePenalty
from onefit.problem import Balance, Problem
from onefit.readers.conventions import class_weights, with_constant
from onefit.readers.reading import Reader, Reading, refuse
from onefit.validation import check_new_rows, check_rows, check_weights, class_numbers


def _linear_svc(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """C Σ w ℓ + penalty, with an intercept that is one more penalised column."""
    X, y = check_rows(model, X, y, numeric=False)
    if model.multi_class != "ovr" and len(model.classes_) > 2:
        refuse(model, "multi_class", "its classes share one margin; take multi_class='ovr'")
    numbers = class_numbers(y, model.classes_)
    several = len(model.classes_) > 2
    if several and (model.class_weight is not None or model.loss == "hinge"):
        refuse(model, "loss" if model.loss == "hinge" else "class_weight", "with more than two classes")
    weights = check_weights(sample_weight, X)
    balance = Balance(numbers, weights) if model.class_weight == "balanced" else None
    weights = weights * class_weights(model.class_weight, numbers, weights, model.classes_)
    target = numbers.astype(np.float64)
    own = np.eye(len(model.classes_))[numbers] if several else target
    loss: Loss = Hinge() if model.loss == "hinge" else SquaredHinge()
    strength = 1.0 / float(model.C)
    penalty = L1(strength) if model.penalty == "l1" else L2(strength)
    reading = _liblinear(model, X, own, weights, loss, penalty, HingeLoss(np.asarray(model.classes_)))
    problem = replace(reading.fit.problem, balance=balance)
    fit = replace(reading.fit, problem=problem)
    return replace(reading, fit=fit, target=target, classes=model.classes_)


def _linear_svr(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """C Σ w ℓ + ½ ‖β‖², with an intercept that is one more penalised column."""
    X, y = check_rows(model, X, y)
    epsilon = float(model.epsilon)
    plain = model.loss == "epsilon_insensitive"
    loss: Loss = EpsilonInsensitive(epsilon) if plain else SquaredEpsilonInsensitive(epsilon)
    penalty = L2(1.0 / float(model.C))
    return _liblinear(model, X, y, check_weights(sample_weight, X), loss, penalty, SquaredError())


def _liblinear(
    model: Any,
    X: Design,
    y: Array,
    weights: Array,
    loss: Loss,
    penalty: SeparablePenalty,
    metric: LinearMetric,
) -> Reading:
    outputs = y.shape[1:]
    coef = np.asarray(model.coef_, dtype=np.float64).reshape(*outputs, -1).T
    design, scale = partial(check_new_rows, model), 0.0
    if model.fit_intercept:
        scale = float(model.intercept_scaling)
        X = with_constant(X, scale)
        level = np.asarray(model.intercept_, dtype=np.float64).reshape(*outputs, 1).T / scale
        coef = np.concatenate([coef, level])
        design = partial(_with_constant_column, model, scale)
    problem = Problem(loss, penalty, X, y, weights, np.full(outputs, False))
    return Reading(Fit(problem, coef, np.zeros(outputs)), metric, y, design=design, constant=scale)


def _with_constant_column(model: Any, scale: float, new: Any) -> Design:
    return with_constant(check_new_rows(model, new), scale)


def _solved_tightly(model: Any) -> Any:
    return clone(model).set_params(tol=min(model.tol, 1e-8), max_iter=max(model.max_iter, 1_000_000))


READINGS: dict[type, Reader] = {svm.LinearSVC: _linear_svc, svm.LinearSVR: _linear_svr}
REFERENCES: dict[type, Callable[[Any], Any]] = {
    svm.LinearSVC: _solved_tightly,
    svm.LinearSVR: _solved_tightly,
}
