"""scikit-learn's least squares: ridge, lasso, elastic net, Huber's robust kind, and quantiles."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
from sklearn import linear_model
from sklearn.compose import TransformedTargetRegressor
from sklearn.preprocessing import label_binarize

from onefit.exceptions import UnsupportedModelError
from onefit.fit import Fit
from onefit.losses import ConcomitantHuber, Quantile, Squared
from onefit.metrics import HingeLoss, LocationError, SquaredError
from onefit.penalties import L1, L2, SeparablePenalty
from onefit.problem import Problem
from onefit.readers.reading import Reader, Reading, Refusal, refuse
from onefit.readers.translation import (
    CheckedData,
    alpha_of,
    checked,
    checked_labels,
    checked_numbers,
    elastic_net,
    mix_of,
    reading_of,
    ridge_penalty,
    with_signs,
)


def _least_squares(
    model: Any, data: CheckedData, penalty: SeparablePenalty, *, mean_scaled: bool = False
) -> Reading:
    outputs = data.y.shape[1:]
    if getattr(model, "positive", False) and np.prod(outputs) > 1:
        refuse(model, "positive", "with several outputs; fit one model an output")
    coef = np.asarray(model.coef_, dtype=np.float64).reshape(*outputs, data.X.shape[1]).T
    level = np.asarray(model.intercept_, dtype=np.float64).reshape(-1)
    level = np.broadcast_to(level, outputs).copy() if outputs else level[0]
    intercept, signed = np.full(outputs, bool(model.fit_intercept)), with_signs(penalty, model)
    problem = Problem(Squared(), signed, data.X, data.y, data.weights, intercept, mean_scaled, data.balance)
    return Reading(Fit(problem, coef, np.asarray(level)), SquaredError(), data.y)


def _linear_regression(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    data = checked_numbers(model, X, y, sample_weight, several_outputs=True)
    sizes = np.asarray(getattr(model, "singular_", np.empty(0)))
    if np.any(sizes[getattr(model, "rank_", 0) :] > 1e-9 * np.max(sizes, initial=0.0)):
        refuse(model, "tol", "its fit dropped directions that are small beside others: scale the columns")
    return _least_squares(model, data, L2(0.0))


def _ridge(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    data = checked_numbers(model, X, y, sample_weight, several_outputs=True)
    return _least_squares(model, data, ridge_penalty(model, data.y))


def _ridge_classifier(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    data = checked_labels(model, X, y, sample_weight)
    signs = 2.0 * label_binarize(data.y, classes=np.arange(len(model.classes_))) - 1.0
    signs = signs[:, 0] if signs.shape[1] == 1 else signs
    reading = _least_squares(model, replace(data, y=signs), ridge_penalty(model, signs))
    return Reading(reading.fit, HingeLoss(data.classes), data.y, model.classes_)


def _elastic_net(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """½ Σ w r² / Σw + alpha (…): a mean, so the total penalty shrinks when a row leaves."""
    data = checked_numbers(model, X, y, sample_weight, several_outputs=True)
    y = data.y if data.y[0].size > 1 else data.y.reshape(-1)
    penalty = elastic_net(alpha_of(model) * data.total, mix_of(model))
    reading = _least_squares(model, replace(data, y=y), penalty, mean_scaled=True)
    return replace(reading, gap=_dual_gap(model) * data.total)


def _dual_gap(model: Any) -> float:
    """Bound that coordinate descent kept of how far a mean was from its minimum.

    Without a penalty it keeps something else, and in single precision its rounding decides.
    """
    gaps = getattr(model, "dual_gap_", None)
    if gaps is None or not alpha_of(model) > 0 or np.asarray(model.coef_).dtype != np.float64:
        return np.inf
    return float(np.sum(np.maximum(gaps, 0.0)))


def _huber(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """Location and scale are estimated together: two outputs, the second without coefficients."""
    data = checked_numbers(model, X, y, sample_weight)
    p, intercept = data.X.shape[1], np.array([bool(model.fit_intercept), True])
    penalty = L2(np.stack([np.full(p, 2.0 * model.alpha), np.full(p, np.inf)], axis=1))
    problem = Problem(ConcomitantHuber(model.epsilon), penalty, data.X, data.y, data.weights, intercept)
    coef = np.stack([model.coef_, np.zeros(p)], axis=1)
    level = np.array([float(model.intercept_), float(model.scale_)])
    return Reading(Fit(problem, coef, level), LocationError(), data.y)


def _quantile_regressor(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """Σ w pinball / Σw + alpha ‖β‖₁: a mean, so the total penalty shrinks when a row leaves."""
    loss = Quantile(float(model.quantile))
    data = checked(model, X, y, sample_weight, loss, weighted=True)
    total = float(model.alpha) * data.total
    penalty = L1(total) if total > 0 else L2(0.0)
    return reading_of(model, data, loss, penalty, intercept=model.fit_intercept)


def _stochastic(model: Any, X: Any, y: Any, sample_weight: Any) -> NoReturn:
    name = type(model).__name__
    raise UnsupportedModelError(
        f"no leave-one-out formula for {name}: it stops on its way, where nothing is at its minimum, at "
        "coefficients that depend on the order of the rows. Fit the model with a solver that converges "
        "(LogisticRegression, LinearSVC, ElasticNet, onefit.GeneralizedLinear)"
    )


def _transformed_target(model: Any, X: Any, y: Any, sample_weight: Any) -> NoReturn:
    inner = getattr(model, "regressor_", model.regressor)
    raise UnsupportedModelError(
        "no leave-one-out formula for TransformedTargetRegressor, whose losses are those of its inverse "
        f"function: judge its {type(inner).__name__} on the transformed response, "
        "onefit.loo(model.regressor_, X, model.transformer_.transform(y.reshape(-1, 1)).ravel())"
    )


READINGS: dict[type, Reader] = {
    linear_model.LinearRegression: _linear_regression,
    linear_model.Ridge: _ridge,
    linear_model.RidgeCV: _ridge,
    linear_model.RidgeClassifier: _ridge_classifier,
    linear_model.RidgeClassifierCV: _ridge_classifier,
    linear_model.Lasso: _elastic_net,
    linear_model.LassoLars: _elastic_net,
    linear_model.ElasticNet: _elastic_net,
    linear_model.LassoCV: _elastic_net,
    linear_model.ElasticNetCV: _elastic_net,
    linear_model.HuberRegressor: _huber,
    linear_model.QuantileRegressor: _quantile_regressor,
}
REFUSALS: dict[type, Refusal] = {
    TransformedTargetRegressor: _transformed_target,
    linear_model.SGDClassifier: _stochastic,
    linear_model.SGDRegressor: _stochastic,
    linear_model.SGDOneClassSVM: _stochastic,
}
