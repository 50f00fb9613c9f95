"""scikit-learn's least squares: ridge, lasso, elastic net, kernels, and Huber's robust kind."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sklearn import kernel_ridge, linear_model
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.preprocessing import label_binarize
from sklearn.utils.class_weight import compute_sample_weight

from onefit._typing import Array, Design
from onefit.exceptions import NotFittedToDataError, UnsupportedModelError
from onefit.fit import Fit
from onefit.losses import ConcomitantHuber, Squared
from onefit.metrics import HingeLoss, LocationError, SquaredError
from onefit.penalties import L1, L2, Box, ElasticNet, Penalty, SeparablePenalty
from onefit.problem import Balance, Problem
from onefit.readers.kernels import KernelGram
from onefit.readers.reading import Reading, as_fit, refuse
from onefit.validation import (
    check_new_rows,
    check_rows,
    check_weights,
    class_numbers,
)


def _least_squares(
    model: Any,
    data: tuple[Design, Array],
    weights: Array,
    penalty: Penalty,
    *,
    mean_scaled: bool = False,
) -> Reading:
    X, y = data
    outputs = y.shape[1:]
    coef = np.asarray(model.coef_, dtype=np.float64).reshape(*outputs, X.shape[1]).T
    level = np.asarray(model.intercept_, dtype=np.float64).reshape(-1)
    level = np.broadcast_to(level, outputs).copy() if outputs else level[0]
    intercept = np.full(outputs, bool(model.fit_intercept))
    problem = Problem(Squared(), penalty, X, y, weights, intercept, mean_scaled)
    return Reading(Fit(problem, coef, np.asarray(level)), SquaredError(), y)


@as_fit.register(linear_model.LinearRegression)
def _linear_regression(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    data = check_rows(model, X, y, several_outputs=True)
    dropped = np.asarray(getattr(model, "singular_", np.empty(0)))[getattr(model, "rank_", 0) :]
    if np.any(dropped > 1e-9 * np.max(getattr(model, "singular_", [0.0]))):
        refuse(model, "tol", "its fit dropped directions that are small beside others: scale the columns")
    penalty = _with_signs(model, L2(0.0), data[1])
    return _least_squares(model, data, check_weights(sample_weight, data[0]), penalty)


@as_fit.register(linear_model.Ridge)
def _ridge(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    data = check_rows(model, X, y, several_outputs=True)
    penalty = _with_signs(model, ridge_penalty(model.alpha, data[1]), data[1])
    return _least_squares(model, data, check_weights(sample_weight, data[0]), penalty)


@as_fit.register(linear_model.RidgeCV)
def _ridge_cv(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    data = check_rows(model, X, y, several_outputs=True)
    return _least_squares(
        model, data, check_weights(sample_weight, data[0]), ridge_penalty(model.alpha_, data[1])
    )


def _with_signs(model: Any, penalty: SeparablePenalty, y: Array) -> Penalty:
    """``positive=True`` is a bound at zero."""
    if not getattr(model, "positive", False):
        return penalty
    if y.ndim == 2 and y.shape[1] > 1:
        refuse(model, "positive", "with several outputs; fit one model an output")
    return penalty + Box(lower=0.0)


def ridge_penalty(alpha: Any, y: Array) -> L2:
    """One strength, or one for each output: (1, t)."""
    strengths = np.asarray(alpha, dtype=np.float64)
    return L2(
        strengths.reshape(1, -1) if y.ndim == 2 and strengths.size > 1 else float(strengths.reshape(-1)[0])
    )


@as_fit.register(linear_model.RidgeClassifier)
@as_fit.register(linear_model.RidgeClassifierCV)
def _ridge_classifier(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    X, y = check_rows(model, X, y, numeric=False)
    numbers = class_numbers(y, model.classes_)
    signs = 2.0 * label_binarize(numbers, classes=np.arange(len(model.classes_))) - 1.0
    signs = signs[:, 0] if signs.shape[1] == 1 else signs
    weights = check_weights(sample_weight, X)
    balance = Balance(numbers, np.ones(len(y))) if model.class_weight == "balanced" else None
    if model.class_weight is not None:
        weights = weights * compute_sample_weight(model.class_weight, y)
    alpha = model.alpha_ if isinstance(model, linear_model.RidgeClassifierCV) else model.alpha
    penalty = _with_signs(model, ridge_penalty(alpha, signs), signs)
    reading = _least_squares(model, (X, signs), weights, penalty)
    fit = replace(reading.fit, problem=replace(reading.fit.problem, balance=balance))
    return Reading(fit, HingeLoss(np.asarray(model.classes_)), numbers.astype(np.float64), model.classes_)


@as_fit.register(linear_model.Lasso)
@as_fit.register(linear_model.LassoLars)
@as_fit.register(linear_model.ElasticNet)
@as_fit.register(linear_model.LassoCV)
@as_fit.register(linear_model.ElasticNetCV)
def _elastic_net(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """½ Σ w r² / Σw + alpha (…): a mean, so the total penalty shrinks when a row leaves."""
    data = check_rows(model, X, y, several_outputs=True)
    if data[1].ndim == 2 and data[1].shape[1] == 1:
        data = data[0], data[1][:, 0]
    if data[1].ndim == 2:
        raise UnsupportedModelError(
            f"{type(model).__name__} with {data[1].shape[1]} outputs is not supported: "
            "fit one model an output"
        )
    weights = check_weights(sample_weight, data[0])
    alpha, ratio = _strength_and_mix(model)
    total = float(alpha) * weights.sum()
    penalty = _with_signs(model, L1(total) if ratio == 1 else ElasticNet(total, ratio), data[1])
    return _least_squares(model, data, weights, penalty, mean_scaled=True)


def _strength_and_mix(model: Any) -> tuple[float, float]:
    """Alpha and l1_ratio, the tuned ones of a class that tunes them."""
    if isinstance(model, linear_model.LassoCV):
        return model.alpha_, 1.0
    if isinstance(model, linear_model.ElasticNetCV):
        return model.alpha_, model.l1_ratio_
    if isinstance(model, linear_model.LassoLars):
        return model.alpha, 1.0
    return model.alpha, model.l1_ratio


@as_fit.register(kernel_ridge.KernelRidge)
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
        ridge_penalty(model.alpha, y),
        KernelGram(kernel, X, model.kernel),
        y,
        check_weights(sample_weight, X),
        np.full(y.shape[1:], False),
    )
    fit = Fit(problem, np.asarray(model.dual_coef_, dtype=np.float64), np.zeros(y.shape[1:]))
    return Reading(
        fit, SquaredError(), y, design=lambda new: kernel(check_new_rows(model, new), model.X_fit_)
    )


@as_fit.register(linear_model.HuberRegressor)
def _huber(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """Location and scale are estimated together: two outputs, the second without coefficients."""
    X, y = check_rows(model, X, y)
    fixed = np.full(X.shape[1], np.inf)
    penalty = L2(np.stack([np.full(X.shape[1], 2.0 * model.alpha), fixed], axis=1))
    problem = Problem(
        ConcomitantHuber(model.epsilon),
        penalty,
        X,
        y,
        check_weights(sample_weight, X),
        np.array([bool(model.fit_intercept), True]),
    )
    coef = np.stack([model.coef_, np.zeros(X.shape[1])], axis=1)
    level = np.array([float(model.intercept_), float(model.scale_)])
    return Reading(Fit(problem, coef, level), LocationError(), y)
