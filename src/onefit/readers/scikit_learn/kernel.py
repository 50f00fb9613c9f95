"""scikit-learn's kernel models: ridge regression, support vector machines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import numpy as np
from sklearn import kernel_ridge, svm
from sklearn.metrics.pairwise import pairwise_kernels

from onefit._typing import Array, Design
from onefit.exceptions import NotFittedToDataError, UnsupportedModelError
from onefit.fit import Fit
from onefit.losses import EpsilonInsensitive, Hinge, Loss, Squared
from onefit.metrics import SquaredError, metric_of_loss
from onefit.penalties import L2
from onefit.problem import Problem
from onefit.readers.kernels import KernelGram
from onefit.readers.reading import Reader, Reading, Refusal, refuse
from onefit.readers.refitting import tightly
from onefit.readers.translation import (
    CheckedData,
    checked_labels,
    checked_numbers,
    dense,
    reading_of,
    ridge_penalty,
)
from onefit.solvers import libsvm
from onefit.validation import check_new_rows


def _kernel_ridge(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    if not np.all(np.asarray(model.alpha) > 0):
        refuse(model, "alpha", "without a penalty it interpolates; take a small alpha instead")
    data = checked_numbers(model, X, y, sample_weight, several_outputs=True)
    _check_shape(data.X, model.X_fit_.shape)
    outputs = data.y.shape[1:]
    named = {"gamma": model.gamma, "degree": model.degree, "coef0": model.coef0}
    params = (model.kernel_params or {}) if callable(model.kernel) else named
    kernel = partial(
        pairwise_kernels, metric=model.kernel, filter_params=not callable(model.kernel), **params
    )
    problem = Problem(
        Squared(),
        ridge_penalty(model, data.y),
        KernelGram(kernel, data.X, model.kernel),
        data.y,
        data.weights,
        np.full(outputs, False),
    )
    fit = Fit(problem, np.asarray(model.dual_coef_, dtype=np.float64), np.zeros(outputs))
    return Reading(
        fit, SquaredError(), data.y, design=lambda new: kernel(check_new_rows(model, new), model.X_fit_)
    )


def _check_shape(X: Design, fitted: tuple[int, ...]) -> None:
    if fitted != X.shape:
        raise NotFittedToDataError(
            f"the model was fitted on data of shape {fitted}, not {X.shape}: pass the data it was fitted on"
        )


def _svc(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """C Σ w hinge + ½ ‖β‖², with an intercept that is not penalised."""
    if len(model.classes_) > 2:
        raise UnsupportedModelError(
            f"SVC with {len(model.classes_)} classes is many machines that vote, without a formula; take "
            "sklearn.multiclass.OneVsRestClassifier and one of its machines"
        )
    return _kernel_machine(model, checked_labels(model, X, y, sample_weight), Hinge())


def _svr(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """C Σ w max(0, |r| − epsilon) + ½ ‖β‖²."""
    data = checked_numbers(model, X, y, sample_weight)
    return _kernel_machine(model, data, EpsilonInsensitive(float(model.epsilon)))


def _nu_machine(model: Any, X: Any, y: Any, sample_weight: Any) -> NoReturn:
    refuse(
        model,
        "nu",
        "a refit without a row keeps nu, and with it the share of support vectors, not the strength of the "
        "penalty: the formula is for SVC and SVR",
    )


def _kernel_machine(model: Any, data: CheckedData, loss: Loss) -> Reading:
    _check_shape(data.X, model.shape_fit_)
    penalty = L2(1.0 / float(model.C))
    if model.kernel == "linear":
        reading = reading_of(model, data, loss, penalty, intercept=True, mean_scaled=False)
        problem = replace(reading.fit.problem, takes_middle=libsvm.takes_middle)
        return replace(reading, fit=replace(reading.fit, problem=problem))
    kernel, dual = _kernel(model), np.zeros(len(data.y))
    held = np.flatnonzero(data.weights > 0)  # libsvm numbers the rows with weight
    dual[held[model.support_]] = dense(model.dual_coef_)[0]
    gram = KernelGram(kernel, data.X, model.kernel, checked=True)
    problem = Problem(
        loss,
        penalty,
        gram,
        data.y,
        data.weights,
        balance=data.balance,
        takes_middle=libsvm.takes_middle,
    )
    notes: tuple[str, ...] = ()
    if model.gamma in ("scale", "auto") and model.kernel in ("rbf", "poly", "sigmoid"):
        notes = (f"gamma={model.gamma!r} is held at {model._gamma:.6g}, its value on all rows",)
    fit = Fit(problem, dual, np.asarray(float(model.intercept_[0])))
    metric = metric_of_loss(loss, data.classes)
    return Reading(
        fit,
        metric,
        data.y,
        data.classes,
        notes=notes,
        design=lambda new: kernel(check_new_rows(model, new), data.X),
    )


def _kernel(model: Any) -> Callable[[Design, Design], Array]:
    """The kernel of two sets of rows: (m, n)."""
    if model.kernel == "precomputed":
        return lambda left, _: np.asarray(left, dtype=np.float64)
    if callable(model.kernel):
        return lambda left, right: np.asarray(model.kernel(left, right), dtype=np.float64)
    gamma = model._gamma if isinstance(model.gamma, str) else model.gamma
    params = {"gamma": gamma, "degree": model.degree, "coef0": model.coef0}
    return partial(pairwise_kernels, metric=model.kernel, filter_params=True, **params)


def _with_its_gamma(model: Any) -> Any:
    """Return the estimator whose refits keep the width of the kernel, solved tightly."""
    scales = {"gamma": model._gamma} if model.kernel in ("rbf", "poly", "sigmoid") else {}
    return tightly(model, tol=libsvm.TOL).set_params(max_iter=-1, **scales)


READINGS: dict[type, Reader] = {
    kernel_ridge.KernelRidge: _kernel_ridge,
    svm.SVC: _svc,
    svm.SVR: _svr,
}
REFUSALS: dict[type, Refusal] = {svm.NuSVC: _nu_machine, svm.NuSVR: _nu_machine}
REFERENCES: dict[type, Callable[[Any], Any]] = {svm.SVC: _with_its_gamma, svm.SVR: _with_its_gamma}
