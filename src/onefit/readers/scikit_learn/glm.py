"""scikit-learn's generalised linear models."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from sklearn import linear_model

from onefit._typing import Array, Design
from onefit.fit import Fit
from onefit.losses import Logistic, Loss, Multinomial, Tweedie
from onefit.metrics import Deviance, LogLoss
from onefit.penalties import L1, L2, ElasticNet, SeparablePenalty
from onefit.problem import Balance, Problem
from onefit.readers.conventions import class_weights, with_constant
from onefit.readers.reading import Reader, Reading, refuse
from onefit.validation import (
    check_new_rows,
    check_range,
    check_rows,
    check_weights,
    class_numbers,
)


def _poisson(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    return _tweedie(model, X, y, sample_weight, Tweedie(1.0))


def _gamma(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    return _tweedie(model, X, y, sample_weight, Tweedie(2.0))


def _any_tweedie(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    is_identity = model.link == "identity" or (model.link == "auto" and model.power <= 0)
    link: Literal["identity", "log"] = "identity" if is_identity else "log"
    return _tweedie(model, X, y, sample_weight, Tweedie(float(model.power), link))


def _tweedie(model: Any, X: Any, y: Any, sample_weight: Any, loss: Tweedie) -> Reading:
    """½ mean deviance + ½ alpha ‖β‖²: a mean, so the total penalty shrinks when a row leaves."""
    X, y = check_rows(model, X, y)
    check_range(y, loss.power)
    weights = check_weights(sample_weight, X)
    penalty = L2(float(model.alpha) * weights.sum())
    problem = Problem(loss, penalty, X, y, weights, np.array(bool(model.fit_intercept)), mean_scaled=True)
    fit = Fit(problem, np.asarray(model.coef_, dtype=np.float64), np.asarray(float(model.intercept_)))
    return Reading(fit, Deviance(loss), y)


def _logistic_regression(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    return _logistic(model, X, y, sample_weight, float(model.C), _mix(model))


def _logistic_regression_cv(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    if not model.refit:
        refuse(model, "refit", "its coefficients are averages over folds and minimise nothing")
    strengths, mixes = np.unique(model.C_), np.unique(_tuned_mix(model))
    if len(strengths) > 1 or len(mixes) > 1:
        refuse(model, "C_", "each class has a strength of its own")
    return _logistic(model, X, y, sample_weight, float(strengths[0]), float(mixes[0]))


def _mix(model: Any) -> float:
    """Return l1_ratio, from either way of naming the penalty."""
    if model.penalty in ("l1", "l2"):
        return float(model.penalty == "l1")
    return float(model.l1_ratio or 0.0)


def _tuned_mix(model: Any) -> Array:
    if model.penalty in ("l1", "l2"):
        return np.array([float(model.penalty == "l1")])
    return np.array([r or 0.0 for r in np.atleast_1d(model.l1_ratio_)], dtype=np.float64)


def _logistic(model: Any, X: Any, y: Any, sample_weight: Any, C: float, mix: float) -> Reading:
    X, y = check_rows(model, X, y, numeric=False)
    numbers = class_numbers(y, model.classes_)
    weights = check_weights(sample_weight, X)
    balance = Balance(numbers, weights) if model.class_weight == "balanced" else None
    weights = weights * class_weights(model.class_weight, numbers, weights, model.classes_)
    unpenalised = model.penalty is None or np.isinf(C)
    penalty = L2(0.0) if unpenalised else _logistic_penalty(1.0 / C, mix)
    target = numbers.astype(np.float64)
    fit = _logistic_fit(model, X, target, weights, penalty, balance)
    metric = LogLoss(np.asarray(model.classes_))
    if model.solver != "liblinear" or not model.fit_intercept:
        return Reading(fit, metric, target, model.classes_)
    scale = float(model.intercept_scaling)
    return Reading(
        fit,
        metric,
        target,
        model.classes_,
        design=lambda new: with_constant(check_new_rows(model, new), scale),
        constant=scale,
    )


def _logistic_penalty(strength: float, mix: float) -> SeparablePenalty:
    if mix in (0.0, 1.0):
        return L1(strength) if mix else L2(strength)
    return ElasticNet(strength, mix)


def _logistic_fit(
    model: Any,
    X: Design,
    y: Array,
    weights: Array,
    penalty: SeparablePenalty,
    balance: Balance | None,
) -> Fit:
    n_classes = len(model.classes_)
    coef, level = np.asarray(model.coef_, np.float64), np.asarray(model.intercept_, np.float64)
    loss: Loss = Logistic()
    if len(coef) == 1:
        coef, level = coef[0], level.reshape(-1)[0]
    else:
        loss, coef = Multinomial(n_classes), coef.T
        level = np.broadcast_to(level, (n_classes,)).copy()
    intercept = np.full(np.shape(level), bool(model.fit_intercept))
    if model.solver == "liblinear" and model.fit_intercept:  # its intercept is one more penalised column
        scale = float(model.intercept_scaling)
        X = with_constant(X, scale)
        coef, level = np.append(coef, level / scale), np.zeros(())
        intercept = np.array(False)
    problem = Problem(loss, penalty, X, y, weights, intercept, balance=balance)
    return Fit(problem, coef, np.asarray(level))


READINGS: dict[type, Reader] = {
    linear_model.PoissonRegressor: _poisson,
    linear_model.GammaRegressor: _gamma,
    linear_model.TweedieRegressor: _any_tweedie,
    linear_model.LogisticRegression: _logistic_regression,
    linear_model.LogisticRegressionCV: _logistic_regression_cv,
}
