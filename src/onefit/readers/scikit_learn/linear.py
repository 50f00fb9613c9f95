"""scikit-learn's least squares: ridge, lasso, elastic net, Huber's robust kind, and quantiles."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn import linear_model
from sklearn.compose import TransformedTargetRegressor
from sklearn.preprocessing import label_binarize
from sklearn.utils.class_weight import compute_sample_weight

from onefit._typing import Array, Design
from onefit.exceptions import UnsupportedModelError
from onefit.fit import Fit
from onefit.losses import ConcomitantHuber, Quantile, Squared
from onefit.metrics import HingeLoss, LocationError, PinballLoss, SquaredError
from onefit.penalties import L1, L2, Box, ElasticNet, Penalty, SeparablePenalty
from onefit.problem import Balance, Problem
from onefit.readers.conventions import ridge_penalty
from onefit.readers.reading import Reader, Reading, refuse
from onefit.validation import (
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


def _linear_regression(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    data = check_rows(model, X, y, several_outputs=True)
    dropped = np.asarray(getattr(model, "singular_", np.empty(0)))[getattr(model, "rank_", 0) :]
    if np.any(dropped > 1e-9 * np.max(getattr(model, "singular_", [0.0]))):
        refuse(model, "tol", "its fit dropped directions that are small beside others: scale the columns")
    penalty = _with_signs(model, L2(0.0), data[1])
    return _least_squares(model, data, check_weights(sample_weight, data[0]), penalty)


def _ridge(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    data = check_rows(model, X, y, several_outputs=True)
    penalty = _with_signs(model, ridge_penalty(model.alpha, data[1]), data[1])
    return _least_squares(model, data, check_weights(sample_weight, data[0]), penalty)


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


def _stochastic(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    name = type(model).__name__
    raise UnsupportedModelError(
        f"no leave-one-out formula for {name}: it stops on its way, where nothing is at its minimum, at "
        "coefficients that depend on the order of the rows. Fit the model with a solver that converges "
        "(LogisticRegression, LinearSVC, ElasticNet, onefit.GeneralizedLinear)"
    )


def _transformed_target(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    inner = getattr(model, "regressor_", model.regressor)
    raise UnsupportedModelError(
        "no leave-one-out formula for TransformedTargetRegressor, whose losses are those of its inverse "
        f"function: judge its {type(inner).__name__} on the transformed response, "
        "onefit.loo(model.regressor_, X, model.transformer_.transform(y.reshape(-1, 1)).ravel())"
    )


READINGS: dict[type, Reader] = {
    TransformedTargetRegressor: _transformed_target,
    linear_model.LinearRegression: _linear_regression,
    linear_model.Ridge: _ridge,
    linear_model.RidgeCV: _ridge_cv,
    linear_model.RidgeClassifier: _ridge_classifier,
    linear_model.RidgeClassifierCV: _ridge_classifier,
    linear_model.Lasso: _elastic_net,
    linear_model.LassoLars: _elastic_net,
    linear_model.ElasticNet: _elastic_net,
    linear_model.LassoCV: _elastic_net,
    linear_model.ElasticNetCV: _elastic_net,
    linear_model.HuberRegressor: _huber,
    linear_model.QuantileRegressor: _quantile_regressor,
    linear_model.SGDClassifier: _stochastic,
    linear_model.SGDRegressor: _stochastic,
    linear_model.SGDOneClassSVM: _stochastic,
}
