"""scikit-learn's linear support vector machines, by liblinear."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sklearn import svm

from onefit._typing import Design
from onefit.fit import Fit
from onefit.losses import EpsilonInsensitive, Hinge, Loss, SquaredEpsilonInsensitive, SquaredHinge
from onefit.metrics import metric_of_loss
from onefit.penalties import L1, L2, SeparablePenalty
from onefit.problem import Problem
from onefit.readers.reading import Reader, Reading, refuse
from onefit.readers.refitting import tightly
from onefit.readers.translation import CheckedData, checked_labels, checked_numbers, with_constant
from onefit.validation import check_new_rows


def _linear_svc(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """C Σ w ℓ + penalty, with an intercept that is one more penalised column."""
    data = checked_labels(model, X, y, sample_weight, by_weight=True)
    several = len(model.classes_) > 2
    if several and model.multi_class != "ovr":
        refuse(model, "multi_class", "its classes share one margin; take multi_class='ovr'")
    if several and (model.class_weight is not None or model.loss == "hinge"):
        refuse(model, "loss" if model.loss == "hinge" else "class_weight", "with more than two classes")
    own = np.eye(len(model.classes_))[data.y.astype(np.intp)] if several else data.y
    loss: Loss = Hinge() if model.loss == "hinge" else SquaredHinge()
    strength = 1.0 / float(model.C)
    penalty = L1(strength) if model.penalty == "l1" else L2(strength)
    return replace(liblinear(model, replace(data, y=own), loss, penalty), target=data.y)


def _linear_svr(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """C Σ w ℓ + ½ ‖β‖², with an intercept that is one more penalised column."""
    data = checked_numbers(model, X, y, sample_weight)
    epsilon = float(model.epsilon)
    plain = model.loss == "epsilon_insensitive"
    loss: Loss = EpsilonInsensitive(epsilon) if plain else SquaredEpsilonInsensitive(epsilon)
    return liblinear(model, data, loss, L2(1.0 / float(model.C)))


def liblinear(model: Any, data: CheckedData, loss: Loss, penalty: SeparablePenalty) -> Reading:
    """What liblinear minimises: its intercept is one more penalised column."""
    X, outputs = data.X, data.y.shape[1:]
    if np.size(model.coef_) != X.shape[1] * int(np.prod(outputs)):
        raise ValueError(
            f"{type(model).__name__} has coef_ of shape {np.shape(model.coef_)} for {len(model.classes_)} "
            "classes: liblinear drops classes whose rows all have weight zero; leave these rows out"
        )
    coef = np.asarray(model.coef_, dtype=np.float64).reshape(*outputs, -1).T
    design, scale = partial(check_new_rows, model), 0.0
    if model.fit_intercept:
        scale = float(model.intercept_scaling)
        X = with_constant(X, scale)
        level = np.asarray(model.intercept_, dtype=np.float64).reshape(*outputs, 1).T / scale
        coef = np.concatenate([coef, level])
        design = partial(_with_constant_column, model, scale)
    problem = Problem(loss, penalty, X, data.y, data.weights, np.full(outputs, False), balance=data.balance)
    fit, metric = Fit(problem, coef, np.zeros(outputs)), metric_of_loss(loss, data.classes)
    return Reading(fit, metric, data.y, data.classes, design=design, constant=scale)


def _with_constant_column(model: Any, scale: float, new: Any) -> Design:
    return with_constant(check_new_rows(model, new), scale)


READINGS: dict[type, Reader] = {svm.LinearSVC: _linear_svc, svm.LinearSVR: _linear_svr}
_tight = partial(tightly, tol=1e-8, max_iter=1_000_000)
REFERENCES: dict[type, Callable[[Any], Any]] = {svm.LinearSVC: _tight, svm.LinearSVR: _tight}
