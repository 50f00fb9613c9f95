"""scikit-learn's generalised linear models."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from sklearn import linear_model

from onefit.fit import Fit
from onefit.losses import Logistic, Loss, Multinomial, Tweedie
from onefit.metrics import LogLoss
from onefit.penalties import L2
from onefit.problem import Problem
from onefit.readers.reading import Reader, Reading, refuse
from onefit.readers.scikit_learn.svm import liblinear
from onefit.readers.translation import checked, checked_labels, elastic_net, reading_of
from onefit.refits import l1_ratios


def _tweedie(model: Any, X: Any, y: Any, sample_weight: Any, power: float | None = None) -> Reading:
    """½ mean deviance + ½ alpha ‖β‖²: a mean, so the total penalty shrinks when a row leaves."""
    power, link = float(model.power) if power is None else power, getattr(model, "link", "log")
    is_identity = link == "identity" or (link == "auto" and power <= 0)
    loss = Tweedie(power, "identity" if is_identity else "log")
    data = checked(model, X, y, sample_weight, loss, weighted=True)
    return reading_of(model, data, loss, L2(float(model.alpha) * data.total), intercept=model.fit_intercept)


def _logistic_regression(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    return _logistic(model, X, y, sample_weight, float(model.C), l1_ratios(model, model.l1_ratio)[0])


def _logistic_regression_cv(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    if not model.refit:
        refuse(model, "refit", "its coefficients are averages over folds and minimise nothing")
    strengths, mixes = np.unique(model.C_), l1_ratios(model, model.l1_ratio_)
    if len(strengths) > 1 or len(mixes) > 1:
        refuse(model, "C_", "each class has a strength of its own")
    return _logistic(model, X, y, sample_weight, float(strengths[0]), float(mixes[0]))


def _logistic(model: Any, X: Any, y: Any, sample_weight: Any, C: float, mix: float) -> Reading:
    data = checked_labels(model, X, y, sample_weight, by_weight=True)
    unpenalised = model.penalty is None or np.isinf(C)
    penalty = L2(0.0) if unpenalised else elastic_net(1.0 / C, mix)
    if model.solver == "liblinear":
        return liblinear(model, data, Logistic(), penalty)
    coef, level = np.asarray(model.coef_, np.float64).T, np.asarray(model.intercept_, np.float64)
    n_classes = len(model.classes_)
    loss: Loss = Multinomial(n_classes)
    if coef.shape[1] == 1:
        loss, coef, level = Logistic(), coef[:, 0], level.reshape(-1)[0]
    else:
        level = np.broadcast_to(level, (n_classes,)).copy()
    intercept = np.full(np.shape(level), bool(model.fit_intercept))
    problem = Problem(loss, penalty, data.X, data.y, data.weights, intercept, balance=data.balance)
    return Reading(Fit(problem, coef, np.asarray(level)), LogLoss(data.classes), data.y, data.classes)


READINGS: dict[type, Reader] = {
    linear_model.PoissonRegressor: partial(_tweedie, power=1.0),
    linear_model.GammaRegressor: partial(_tweedie, power=2.0),
    linear_model.TweedieRegressor: _tweedie,
    linear_model.LogisticRegression: _logistic_regression,
    linear_model.LogisticRegressionCV: _logistic_regression_cv,
}
