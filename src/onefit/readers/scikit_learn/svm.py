"""scikit-learn's linear support vector machines, by liblinear."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sklearn import svm

from onefit._typing import Array, Design
from onefit.fit import Fit
from onefit.losses import EpsilonInsensitive, Hinge, Loss, SquaredEpsilonInsensitive, SquaredHinge
from onefit.metrics import HingeLoss, LinearMetric, SquaredError
from onefit.penalties import L1, L2, SeparablePenalty
from onefit.problem import Balance, Problem
from onefit.readers.reading import Reader, Reading, refuse
from onefit.readers.refitting import tightly
from onefit.readers.translation import checked_labels, with_constant
from onefit.validation import check_new_rows, check_rows, check_weights


def _linear_svc(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """C Σ w ℓ + penalty, with an intercept that is one more penalised column."""
    X, numbers, weights, balance = checked_labels(model, X, y, sample_weight, by_weight=True)
    several = len(model.classes_) > 2
    if several and model.multi_class != "ovr":
        refuse(model, "multi_class", "its classes share one margin; take multi_class='ovr'")
    if several and (model.class_weight is not None or model.loss == "hinge"):
        refuse(model, "loss" if model.loss == "hinge" else "class_weight", "with more than two classes")
    target = numbers.astype(np.float64)
    own = np.eye(len(model.classes_))[numbers] if several else target
    loss: Loss = Hinge() if model.loss == "hinge" else SquaredHinge()
    strength = 1.0 / float(model.C)
    penalty = L1(strength) if model.penalty == "l1" else L2(strength)
    metric = HingeLoss(np.asarray(model.classes_))
    reading = liblinear(model, X, own, weights, loss, penalty, metric, balance)
    return replace(reading, target=target, classes=model.classes_)


def _linear_svr(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """C Σ w ℓ + ½ ‖β‖², with an intercept that is one more penalised column."""
    X, y = check_rows(model, X, y)
    epsilon = float(model.epsilon)
    plain = model.loss == "epsilon_insensitive"
    loss: Loss = EpsilonInsensitive(epsilon) if plain else SquaredEpsilonInsensitive(epsilon)
    penalty = L2(1.0 / float(model.C))
    return liblinear(model, X, y, check_weights(sample_weight, X), loss, penalty, SquaredError())


def liblinear(
    model: Any,
    X: Design,
    y: Array,
    weights: Array,
    loss: Loss,
    penalty: SeparablePenalty,
    metric: LinearMetric,
    balance: Balance | None = None,
) -> Reading:
    """What liblinear minimises: its intercept is one more penalised column."""
    outputs = y.shape[1:]
    coef = np.asarray(model.coef_, dtype=np.float64).reshape(*outputs, -1).T
    design, scale = partial(check_new_rows, model), 0.0
    if model.fit_intercept:
        scale = float(model.intercept_scaling)
        X = with_constant(X, scale)
        level = np.asarray(model.intercept_, dtype=np.float64).reshape(*outputs, 1).T / scale
        coef = np.concatenate([coef, level])
        design = partial(_with_constant_column, model, scale)
    problem = Problem(loss, penalty, X, y, weights, np.full(outputs, False), balance=balance)
    return Reading(Fit(problem, coef, np.zeros(outputs)), metric, y, design=design, constant=scale)


def _with_constant_column(model: Any, scale: float, new: Any) -> Design:
    return with_constant(check_new_rows(model, new), scale)


READINGS: dict[type, Reader] = {svm.LinearSVC: _linear_svc, svm.LinearSVR: _linear_svr}
_tight = partial(tightly, tol=1e-8, max_iter=1_000_000)
REFERENCES: dict[type, Callable[[Any], Any]] = {svm.LinearSVC: _tight, svm.LinearSVR: _tight}
