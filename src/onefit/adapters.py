"""Fitted estimators of other libraries, read as a ``Fit``.

The only file that knows other libraries' conventions: how they scale loss and penalty, whether they shrink
the penalty when a row leaves, where they keep coefficients.  A new library is one registration.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, singledispatch
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from sklearn import kernel_ridge, linear_model
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import label_binarize
from sklearn.utils.class_weight import compute_sample_weight

from onefit import _linalg
from onefit._typing import Array, Design, Index
from onefit._validation import (
    check_fitted,
    check_new_rows,
    check_range,
    check_rows,
    check_weights,
    class_numbers,
)
from onefit.exceptions import NotFittedToDataError, UnsupportedModelError
from onefit.losses import ConcomitantHuber, Logistic, Loss, Multinomial, Squared, Tweedie
from onefit.penalties import L1, L2, ElasticNet, SeparablePenalty
from onefit.problem import Balance, Fit, Problem
from onefit.risk.response import Location, Margin, Mean, Probability, Response, Value


@dataclass(frozen=True)
class Reading:
    """A fitted estimator in our terms.

    Attributes
    ----------
    fit : Fit
        As the estimator left it, polished or not.
    response : Response
        How its predictions come from linear predictors.
    target : array
        The response in the terms of ``response``: numbers, or class numbers.
    classes : array or None
    tol : float
        Tolerance that its solver was asked for.
    converged : bool
        Whether the solver stopped before its limit of iterations.
    iterates : bool
        Whether it iterates at all.
    notes : tuple of str
    design : callable
        From new rows, as the estimator takes them, to rows of the fit's X.
    constant : float
        Value of the last column of the fit's X where that stands for the intercept, else 0.
    """

    fit: Fit
    response: Response
    target: Array
    classes: Any | None = None
    tol: float = 1e-4
    converged: bool = True
    iterates: bool = False
    notes: tuple[str, ...] = ()
    design: Callable[[Any], Design] | None = None
    constant: float = 0.0


def read(model: Any, X: Any, y: Any, sample_weight: Any = None) -> Reading:
    """Read a fitted estimator and the data it was fitted on.

    Raises
    ------
    UnsupportedModelError
        For an estimator, or a parameter of one, without a formula.
    NotFittedError
        For an estimator that was not fitted.
    """
    check_fitted(model)
    foreign = type(model).__module__.startswith("sklearn.") and type(model) not in as_fit.registry
    # scikit-learn's own subclasses (LassoLarsIC, MultiTaskLasso) solve other problems than their parents
    reading = (as_fit.dispatch(object) if foreign else as_fit)(model, X, y, sample_weight)
    if isinstance(model, Pipeline):  # what its last step says of its solver holds
        return reading
    limit, steps = getattr(model, "max_iter", None), getattr(model, "n_iter_", None)
    reached = limit is not None and steps is not None and np.max(steps) >= limit
    tol = float(getattr(model, "tol", 1e-4))
    design = reading.design or partial(check_new_rows, model)
    return replace(reading, tol=tol, converged=not reached, iterates=steps is not None, design=design)


@singledispatch
def as_fit(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """Translate a fitted estimator; register a function here for a new class."""
    names = sorted(cls.__name__ for cls in as_fit.registry if cls is not object)
    raise UnsupportedModelError(
        f"no leave-one-out formula for {type(model).__name__}; supported are {', '.join(names)}, and "
        "pipelines that end in one of them"
    )


def _refuse(model: Any, parameter: str, why: str) -> None:
    raise UnsupportedModelError(
        f"{type(model).__name__}({parameter}={getattr(model, parameter)!r}) is not supported: {why}"
    )


def _refuse_positive(model: Any) -> None:
    if getattr(model, "positive", False):
        _refuse(model, "positive", "sign constraints have no formula yet; refit with positive=False")


@as_fit.register(Pipeline)
def _pipeline(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    prepared = X if len(model.steps) == 1 else model[:-1].transform(X)
    reading = read(model[-1], prepared, y, sample_weight)
    if len(model.steps) == 1:
        return reading
    note = "the preprocessing steps of the pipeline were fitted on all rows and held fixed"
    inner = reading.design

    def design(new: Any) -> Design:
        return inner(model[:-1].transform(new)) if inner is not None else new

    return replace(reading, notes=(*reading.notes, note), design=design)


# --- least squares ---------------------------------------------------------------------------------


def _least_squares(
    model: Any,
    data: tuple[Design, Array],
    weights: Array,
    penalty: SeparablePenalty,
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
    return Reading(Fit(problem, coef, np.asarray(level)), Value(), y)


@as_fit.register(linear_model.LinearRegression)
def _linear_regression(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    _refuse_positive(model)
    data = check_rows(model, X, y, several_outputs=True)
    dropped = np.asarray(getattr(model, "singular_", np.empty(0)))[getattr(model, "rank_", 0) :]
    if np.any(dropped > 1e-9 * np.max(getattr(model, "singular_", [0.0]))):
        _refuse(model, "tol", "its fit dropped directions that are small beside others: scale the columns")
    return _least_squares(model, data, check_weights(sample_weight, data[0]), L2(0.0))


@as_fit.register(linear_model.Ridge)
def _ridge(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    _refuse_positive(model)
    data = check_rows(model, X, y, several_outputs=True)
    return _least_squares(
        model, data, check_weights(sample_weight, data[0]), _ridge_penalty(model.alpha, data[1])
    )


@as_fit.register(linear_model.RidgeCV)
def _ridge_cv(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    data = check_rows(model, X, y, several_outputs=True)
    return _least_squares(
        model, data, check_weights(sample_weight, data[0]), _ridge_penalty(model.alpha_, data[1])
    )


def _ridge_penalty(alpha: Any, y: Array) -> L2:
    """One strength, or one for each output: (1, t)."""
    strengths = np.asarray(alpha, dtype=np.float64)
    return L2(
        strengths.reshape(1, -1) if y.ndim == 2 and strengths.size > 1 else float(strengths.reshape(-1)[0])
    )


@as_fit.register(linear_model.RidgeClassifier)
@as_fit.register(linear_model.RidgeClassifierCV)
def _ridge_classifier(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    _refuse_positive(model)
    X, y = check_rows(model, X, y, numeric=False)
    numbers = class_numbers(y, model.classes_)
    signs = 2.0 * label_binarize(numbers, classes=np.arange(len(model.classes_))) - 1.0
    signs = signs[:, 0] if signs.shape[1] == 1 else signs
    weights = check_weights(sample_weight, X)
    balance = Balance(numbers, np.ones(len(y))) if model.class_weight == "balanced" else None
    if model.class_weight is not None:
        weights = weights * compute_sample_weight(model.class_weight, y)
    alpha = model.alpha_ if isinstance(model, linear_model.RidgeClassifierCV) else model.alpha
    reading = _least_squares(model, (X, signs), weights, _ridge_penalty(alpha, signs))
    fit = replace(reading.fit, problem=replace(reading.fit.problem, balance=balance))
    return Reading(fit, Margin(np.asarray(model.classes_)), numbers.astype(np.float64), model.classes_)


@as_fit.register(linear_model.Lasso)
@as_fit.register(linear_model.LassoLars)
@as_fit.register(linear_model.ElasticNet)
@as_fit.register(linear_model.LassoCV)
@as_fit.register(linear_model.ElasticNetCV)
def _elastic_net(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """½ Σ w r² / Σw + alpha (…): a mean, so the total penalty shrinks when a row leaves."""
    _refuse_positive(model)
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
    penalty = L1(total) if ratio == 1 else ElasticNet(total, ratio)
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
        _refuse(model, "alpha", "without a penalty it interpolates; take a small alpha instead")
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
        _ridge_penalty(model.alpha, y),
        _linalg.RowGram(np.asarray(kernel(X), dtype=np.float64)),
        y,
        check_weights(sample_weight, X),
        np.full(y.shape[1:], False),
    )
    fit = Fit(problem, np.asarray(model.dual_coef_, dtype=np.float64), np.zeros(y.shape[1:]))
    return Reading(fit, Value(), y, design=lambda new: kernel(check_new_rows(model, new), model.X_fit_))


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
    return Reading(Fit(problem, coef, level), Location(), y)


# --- generalised linear models ---------------------------------------------------------------------


@as_fit.register(linear_model.PoissonRegressor)
def _poisson(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    return _tweedie(model, X, y, sample_weight, Tweedie(1.0))


@as_fit.register(linear_model.GammaRegressor)
def _gamma(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    return _tweedie(model, X, y, sample_weight, Tweedie(2.0))


@as_fit.register(linear_model.TweedieRegressor)
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
    return Reading(fit, Mean(loss), y)


@as_fit.register(linear_model.LogisticRegression)
def _logistic_regression(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    return _logistic(model, X, y, sample_weight, float(model.C), _mix(model))


@as_fit.register(linear_model.LogisticRegressionCV)
def _logistic_regression_cv(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    if not model.refit:
        _refuse(model, "refit", "its coefficients are averages over folds and minimise nothing")
    strengths, mixes = np.unique(model.C_), np.unique(_tuned_mix(model))
    if len(strengths) > 1 or len(mixes) > 1:
        _refuse(model, "C_", "each class has a strength of its own")
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
    weights = weights * _class_weights(model.class_weight, numbers, weights, model.classes_)
    unpenalised = model.penalty is None or np.isinf(C)
    penalty = L2(0.0) if unpenalised else _logistic_penalty(1.0 / C, mix)
    target = numbers.astype(np.float64)
    fit = _logistic_fit(model, X, target, weights, penalty, balance)
    response = Probability(np.asarray(model.classes_))
    if model.solver != "liblinear" or not model.fit_intercept:
        return Reading(fit, response, target, model.classes_)
    scale = float(model.intercept_scaling)
    return Reading(
        fit,
        response,
        target,
        model.classes_,
        design=lambda new: _with_constant(check_new_rows(model, new), scale),
        constant=scale,
    )


def _class_weights(class_weight: Any, numbers: Index, weights: Array, classes: Any) -> Array:
    if class_weight is None:
        return np.ones(len(numbers))
    if class_weight == "balanced":
        in_class = np.bincount(numbers, weights, len(classes))
        return (weights.sum() / (len(classes) * in_class))[numbers]
    return np.array([class_weight.get(label, 1.0) for label in classes], dtype=np.float64)[numbers]


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
        X = _with_constant(X, scale)
        coef, level = np.append(coef, level / scale), np.zeros(())
        intercept = np.array(False)
    problem = Problem(loss, penalty, X, y, weights, intercept, balance=balance)
    return Fit(problem, coef, np.asarray(level))


def _with_constant(X: Design, scale: float) -> Design:
    column = np.full((X.shape[0], 1), scale)
    return sp.hstack([X, column], format="csr") if _linalg.is_sparse(X) else np.hstack([X, column])
