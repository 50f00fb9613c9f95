"""scikit-learn's support vector machines and quantile regression: losses with corners, and their squares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sklearn import linear_model, svm
from sklearn.base import clone
from sklearn.metrics.pairwise import pairwise_kernels

from onefit import _linalg
from onefit._typing import Array, Design
from onefit.exceptions import NotFittedToDataError, UnsupportedModelError
from onefit.fit import Fit
from onefit.losses import (
    EpsilonInsensitive,
    Hinge,
    Loss,
    Quantile,
    SquaredEpsilonInsensitive,
    SquaredHinge,
)
from onefit.metrics import HingeLoss, LinearMetric, PinballLoss, SquaredError
from onefit.penalties import L1, L2, SeparablePenalty
from onefit.problem import Balance, Problem
from onefit.readers.conventions import class_weights, with_constant
from onefit.readers.kernels import KernelGram
from onefit.readers.reading import Reading, as_fit, refuse
from onefit.refits import reference
from onefit.validation import check_new_rows, check_rows, check_weights, class_numbers

# --- kernels ---------------------------------------------------------------------------------------


@as_fit.register(svm.SVC)
def _svc(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """C Σ w hinge + ½ ‖β‖², with an intercept that is not penalised."""
    X, y = check_rows(model, X, y, numeric=False)
    if len(model.classes_) > 2:
        raise UnsupportedModelError(
            f"SVC with {len(model.classes_)} classes is many machines that vote, without a formula; take "
            "sklearn.multiclass.OneVsRestClassifier and one of its machines"
        )
    numbers = class_numbers(y, model.classes_)
    weights = check_weights(sample_weight, X)
    balance = Balance(numbers, np.ones(len(y))) if model.class_weight == "balanced" else None
    weights = weights * np.asarray(model.class_weight_, dtype=np.float64)[numbers]
    target = numbers.astype(np.float64)
    reading = _kernel_machine(model, X, target, weights, Hinge(), HingeLoss(np.asarray(model.classes_)))
    problem = replace(reading.fit.problem, balance=balance)
    return replace(reading, fit=replace(reading.fit, problem=problem), classes=model.classes_)


@as_fit.register(svm.SVR)
def _svr(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """C Σ w max(0, |r| − epsilon) + ½ ‖β‖²."""
    X, y = check_rows(model, X, y)
    loss = EpsilonInsensitive(float(model.epsilon))
    return _kernel_machine(model, X, y, check_weights(sample_weight, X), loss, SquaredError())


@as_fit.register(svm.NuSVC)
@as_fit.register(svm.NuSVR)
def _nu_machine(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    refuse(
        model,
        "nu",
        "a refit without a row keeps nu, and with it the share of support vectors, not the strength of the "
        "penalty: the formula is for SVC and SVR",
    )


def _kernel_machine(
    model: Any, X: Design, y: Array, weights: Array, loss: Loss, metric: LinearMetric
) -> Reading:
    if model.shape_fit_ != X.shape:
        raise NotFittedToDataError(
            f"the model was fitted on data of shape {model.shape_fit_}, not {X.shape}: pass the data it "
            "was fitted on"
        )
    level = np.asarray(float(model.intercept_[0]))
    penalty = L2(1.0 / float(model.C))
    if model.kernel == "linear":
        problem = Problem(loss, penalty, X, y, weights)
        coef = model.coef_.toarray() if _linalg.is_sparse(model.coef_) else model.coef_
        return Reading(Fit(problem, np.asarray(coef, dtype=np.float64)[0], level), metric, y)
    kernel = _kernel(model)
    dual = np.zeros(len(y))
    weight = model.dual_coef_.toarray() if _linalg.is_sparse(model.dual_coef_) else model.dual_coef_
    dual[np.flatnonzero(weights > 0)[model.support_]] = weight[0]  # libsvm numbers the rows with weight
    problem = Problem(loss, penalty, KernelGram(kernel, X, model.kernel, checked=True), y, weights)
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


@reference.register(svm.SVC)
@reference.register(svm.SVR)
def _with_its_gamma(model: Any) -> Any:
    """Return the estimator whose refits keep the width of the kernel, solved tightly."""
    tight = {"tol": min(model.tol, 1e-8), "max_iter": -1}
    scales = model.kernel in ("rbf", "poly", "sigmoid")
    return clone(model).set_params(**tight, **({"gamma": model._gamma} if scales else {}))


# --- liblinear -------------------------------------------------------------------------------------


@as_fit.register(svm.LinearSVC)
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


@as_fit.register(svm.LinearSVR)
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


@reference.register(svm.LinearSVC)
@reference.register(svm.LinearSVR)
def _solved_tightly(model: Any) -> Any:
    return clone(model).set_params(tol=min(model.tol, 1e-8), max_iter=max(model.max_iter, 1_000_000))


# --- quantiles -------------------------------------------------------------------------------------


@as_fit.register(linear_model.QuantileRegressor)
def _quantile_regressor(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """Σ w pinball / Σw + alpha ‖β‖₁: a mean, so the total penalty shrinks when a row leaves."""
    X, y = check_rows(model, X, y)
    weights = check_weights(sample_weight, X)
    total, level = float(model.alpha) * weights.sum(), float(model.quantile)
    penalty = L1(total) if total > 0 else L2(0.0)
    intercept = np.array(bool(model.fit_intercept))
    problem = Problem(Quantile(level), penalty, X, y, weights, intercept, mean_scaled=True)
    coef = np.asarray(model.coef_, dtype=np.float64)
    return Reading(Fit(problem, coef, np.asarray(float(model.intercept_))), PinballLoss(level), y)


# --- no optimum to start from ----------------------------------------------------------------------


@as_fit.register(linear_model.SGDClassifier)
@as_fit.register(linear_model.SGDRegressor)
@as_fit.register(linear_model.SGDOneClassSVM)
def _stochastic(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    name = type(model).__name__
    raise UnsupportedModelError(
        f"no leave-one-out formula for {name}: it stops on its way, where nothing is at its minimum, at "
        "coefficients that depend on the order of the rows. Fit the model with a solver that converges "
        "(LogisticRegression, LinearSVC, ElasticNet, onefit.GeneralizedLinear)"
    )
