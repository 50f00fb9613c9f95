"""scikit-learn's kernel models: ridge regression, support vector machines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sklearn import kernel_ridge, svm
from sklearn.metrics.pairwise import pairwise_kernels

from onefit._typing import Array, Design
from onefit.exceptions import NotFittedToDataError, UnsupportedModelError
from onefit.fit import Fit
from onefit.losses import EpsilonInsensitive, Hinge, Loss, Squared
from onefit.metrics import HingeLoss, LinearMetric, SquaredError
from onefit.penalties import L2
from onefit.problem import Balance, Problem
from onefit.readers.kernels import KernelGram
from onefit.readers.reading import Reader, Reading, refuse
from onefit.readers.refitting import tightly
from onefit.readers.translation import checked_labels, dense, ridge_penalty
from onefit.validation import check_new_rows, check_rows, check_weights


def _kernel_ridge(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    if not np.all(np.asarray(model.alpha) > 0):
        refuse(model, "alpha", "without a penalty it interpolates; take a small alpha instead")
    X, y = check_rows(model, X, y, several_outputs=True)
    if model.X_fit_.shape != X.shape:
        raise NotFittedToDataError(
            f"the model was fitted on {model.X_fit_.shape[0]} rows, but X has {X.shape[0]}: "
            "pass the data it was fitted on"
        )
    named = {"gamma": model.gamma, "degree": model.degree, "coef0": model.coef0}
    params = (model.kernel_params or {}) if callable(model.kernel) else named
    kernel = partial(
        pairwise_kernels, metric=model.kernel, filter_params=not callable(model.kernel), **params
    )
    problem = Problem(
        Squared(),
        ridge_penalty(model, y),
        KernelGram(kernel, X, model.kernel),
        y,
        check_weights(sample_weight, X),
        np.full(y.shape[1:], False),
    )
    fit = Fit(problem, np.asarray(model.dual_coef_, dtype=np.float64), np.zeros(y.shape[1:]))
    return Reading(
        fit, SquaredError(), y, design=lambda new: kernel(check_new_rows(model, new), model.X_fit_)
    )


def _svc(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """C Σ w hinge + ½ ‖β‖², with an intercept that is not penalised."""
    if len(model.classes_) > 2:
        raise UnsupportedModelError(
            f"SVC with {len(model.classes_)} classes is many machines that vote, without a formula; take "
            "sklearn.multiclass.OneVsRestClassifier and one of its machines"
        )
    X, numbers, weights, balance = checked_labels(model, X, y, sample_weight)
    target, metric = numbers.astype(np.float64), HingeLoss(np.asarray(model.classes_))
    reading = _kernel_machine(model, X, target, weights, Hinge(), metric, balance)
    return replace(reading, classes=model.classes_)


def _svr(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """C Σ w max(0, |r| − epsilon) + ½ ‖β‖²."""
    X, y = check_rows(model, X, y)
    loss = EpsilonInsensitive(float(model.epsilon))
    return _kernel_machine(model, X, y, check_weights(sample_weight, X), loss, SquaredError())


def _nu_machine(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    refuse(
        model,
        "nu",
        "a refit without a row keeps nu, and with it the share of support vectors, not the strength of the "
        "penalty: the formula is for SVC and SVR",
    )


def _kernel_machine(
    model: Any,
    X: Design,
    y: Array,
    weights: Array,
    loss: Loss,
    metric: LinearMetric,
    balance: Balance | None = None,
) -> Reading:
    if model.shape_fit_ != X.shape:
        raise NotFittedToDataError(
            f"the model was fitted on data of shape {model.shape_fit_}, not {X.shape}: pass the data it "
            "was fitted on"
        )
    level = np.asarray(float(model.intercept_[0]))
    penalty = L2(1.0 / float(model.C))
    if model.kernel == "linear":
        problem = Problem(loss, penalty, X, y, weights, balance=balance)
        return Reading(Fit(problem, dense(model.coef_)[0], level), metric, y)
    kernel = _kernel(model)
    dual = np.zeros(len(y))
    dual[np.flatnonzero(weights > 0)[model.support_]] = dense(model.dual_coef_)[
        0
    ]  # libsvm numbers the rows with weight
    gram = KernelGram(kernel, X, model.kernel, checked=True)
    problem = Problem(loss, penalty, gram, y, weights, balance=balance)
    notes: tuple[str, ...] = ()
    if model.gamma in ("scale", "auto") and model.kernel in ("rbf", "poly", "sigmoid"):
        notes = (f"gamma={model.gamma!r} is held at {model._gamma:.6g}, its value on all rows",)
    fit = Fit(problem, dual, level)
    return Reading(fit, metric, y, notes=notes, design=lambda new: kernel(check_new_rows(model, new), X))


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
    return tightly(model, tol=1e-8).set_params(max_iter=-1, **scales)


READINGS: dict[type, Reader] = {
    kernel_ridge.KernelRidge: _kernel_ridge,
    svm.SVC: _svc,
    svm.SVR: _svr,
    svm.NuSVC: _nu_machine,
    svm.NuSVR: _nu_machine,
}
REFERENCES: dict[type, Callable[[Any], Any]] = {svm.SVC: _with_its_gamma, svm.SVR: _with_its_gamma}
