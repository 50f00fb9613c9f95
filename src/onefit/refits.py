"""Refits of the estimator itself: the slow answer that every formula stands for.

Works for whatever can be cloned and fitted, with preprocessing, feature selection and all.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass
from functools import partial, singledispatch
from typing import Any

import numpy as np
from sklearn import get_config, linear_model
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.pipeline import Pipeline
from sklearn.utils import indexable
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.parallel import Parallel, delayed  # which take the configuration along

from onefit._typing import Array, Index
from onefit.exceptions import UnsupportedModelError
from onefit.metrics import HingeLoss, LogLoss, Metric, SquaredError, ZeroOneLoss

# --- the reference: which estimator is fitted again --------------------------------------------------

TIGHT: dict[type, dict[str, float]] = {  # at these a refit is the optimum, to six digits (Huber's to four)
    linear_model.Lasso: {"tol": 1e-12, "max_iter": 1_000_000},
    linear_model.ElasticNet: {"tol": 1e-12, "max_iter": 1_000_000},
    linear_model.MultiTaskLasso: {"tol": 1e-12, "max_iter": 1_000_000},
    linear_model.MultiTaskElasticNet: {"tol": 1e-12, "max_iter": 1_000_000},
    linear_model.Ridge: {"tol": 1e-12},
    linear_model.RidgeClassifier: {"tol": 1e-12},
    linear_model.HuberRegressor: {"tol": 1e-10, "max_iter": 100_000},
    linear_model.LogisticRegression: {"tol": 1e-10, "max_iter": 10_000},
    linear_model.PoissonRegressor: {"tol": 1e-10, "max_iter": 10_000},
    linear_model.GammaRegressor: {"tol": 1e-10, "max_iter": 10_000},
    linear_model.TweedieRegressor: {"tol": 1e-10, "max_iter": 10_000},
}
SMOOTH = {"lbfgs", "newton-cg", "newton-cholesky", "sag"}  # solvers that may stand in for one another
LARGE = 300  # coefficients from which on a Newton step by Cholesky is dear


@singledispatch
def reference(model: Any) -> Any:
    """Return the unfitted estimator whose refits leave-one-out is about.

    A clone with the same hyperparameters; classes that tune themselves keep what they have chosen, since
    a refit must not choose anew.  Linear models that iterate get a tight tolerance, so that a refit is the
    optimum and its stopping noise does not hide what one row does.  Register a function here for a class
    of your own.

    Parameters
    ----------
    model : fitted estimator

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import RidgeCV
    >>> from onefit.refits import reference
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reference(RidgeCV(alphas=[0.1, 1.0]).fit(X, y))
    Ridge(alpha=0.1, tol=1e-12)
    """
    return _tightened(clone(model), model)


def _tightened(unfitted: Any, model: Any) -> Any:
    """Ask the solver for the optimum, and for a solver that reaches it."""
    wanted = TIGHT.get(type(unfitted), {})
    closer = {"tol": min, "max_iter": max}
    given = unfitted.get_params(deep=False)
    changes = {name: closer[name](given[name], limit) for name, limit in wanted.items()}
    cheap = np.size(getattr(model, "coef_", ())) <= LARGE
    if given.get("solver") in SMOOTH and isinstance(unfitted, linear_model.LogisticRegression):
        changes["solver"] = "newton-cholesky" if cheap else "newton-cg"
    if given.get("solver") == "lbfgs" and cheap:  # which stops where the objective is flat to rounding
        changes.setdefault("solver", "newton-cholesky")
    return unfitted.set_params(**changes)


@reference.register(Pipeline)
def _pipeline(model: Pipeline) -> Pipeline:
    unfitted = clone(model)
    name, last = model.steps[-1]
    unfitted.steps[-1] = (name, reference(last))
    return unfitted


def untuned(model: Any, target: type, **chosen: Any) -> Any:
    """Return an unfitted ``target`` with what was chosen and with the parameters that both classes share."""
    given = model.get_params(deep=False)
    shared = target().get_params(deep=False).keys() & given.keys() - chosen.keys() - {"penalty", "precompute"}
    return clone(target(**{name: given[name] for name in shared}, **chosen))


def _chosen(model: Any, target: type, **attributes: str) -> Any:
    values = {parameter: getattr(model, attribute) for parameter, attribute in attributes.items()}
    return _tightened(untuned(model, target, **values), model)


for _tuned, _plain, _attributes in (
    (linear_model.RidgeCV, linear_model.Ridge, {"alpha": "alpha_"}),
    (linear_model.RidgeClassifierCV, linear_model.RidgeClassifier, {"alpha": "alpha_"}),
    (linear_model.LassoCV, linear_model.Lasso, {"alpha": "alpha_"}),
    (linear_model.ElasticNetCV, linear_model.ElasticNet, {"alpha": "alpha_", "l1_ratio": "l1_ratio_"}),
    (linear_model.MultiTaskLassoCV, linear_model.MultiTaskLasso, {"alpha": "alpha_"}),
    (
        linear_model.MultiTaskElasticNetCV,
        linear_model.MultiTaskElasticNet,
        {"alpha": "alpha_", "l1_ratio": "l1_ratio_"},
    ),
    (linear_model.LassoLarsCV, linear_model.LassoLars, {"alpha": "alpha_"}),
    (linear_model.LassoLarsIC, linear_model.LassoLars, {"alpha": "alpha_"}),
):
    reference.register(_tuned, partial(_chosen, target=_plain, **_attributes))


@reference.register(linear_model.LogisticRegressionCV)
def _logistic_cv(model: linear_model.LogisticRegressionCV) -> Any:
    strengths, mixes = np.unique(model.C_), l1_ratios(model, model.l1_ratio_)
    if len(strengths) > 1 or len(mixes) > 1 or not model.refit:  # no single model that could be named
        return clone(model)
    C = np.inf if model.penalty is None else float(strengths[0])
    chosen = untuned(model, linear_model.LogisticRegression, C=C, l1_ratio=float(mixes[0]))
    return _tightened(chosen, model)


def l1_ratios(model: Any, given: Any) -> Array:
    """Shares of the ℓ1 penalty of a logistic regression, from either way of naming the penalty."""
    named = [model.penalty == "l1"] if model.penalty in ("l1", "l2") else np.atleast_1d(given)
    return np.unique([float(ratio or 0.0) for ratio in named])


# --- the refits ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Failure:
    """A refit that raised an error.

    Attributes
    ----------
    fold : int
    removed : (r,) int array
        Rows that it was fitted without.
    error : str
    """

    fold: int
    removed: Index
    error: str


@dataclass(frozen=True)
class Refits:
    """Predictions of refits.

    Attributes
    ----------
    predictions : list of arrays
        One a fold, (r,) or (r, c) for its tested rows; NaN where the refit failed.
    failures : tuple of Failure
    """

    predictions: list[Any]
    failures: tuple[Failure, ...]


@dataclass(frozen=True)
class _RefitSample:
    """What a refit takes its rows from, and what it is asked for."""

    X: Any
    y: Any
    sample_weight: Array | None
    weight_name: str
    method: str
    classes: Any | None
    start: dict[str, Any]  # attributes of the model that its solver starts from


def left_out_predictions(
    model: Any,
    X: Any,
    y: Any,
    removed: Sequence[Index],
    tested: Sequence[Index],
    *,
    sample_weight: Any = None,
    method: str = "predict",
    n_jobs: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Refits:
    """Refit the ``reference`` of a model without some rows, fold after fold, and predict others.

    Linear models that can (``warm_start``) begin at the coefficients of ``model``, not at those of another
    refit: with a tolerance that leads to the same optimum from anywhere, this only saves time.

    Parameters
    ----------
    model : fitted estimator
    X : array-like, sparse matrix or DataFrame of shape (n, p)
        Given to the estimator as it is; for one that takes kernels, (n, n).
    y : array-like of shape (n,) or (n, t)
    removed, tested : sequences of int arrays
        Rows that each refit is fitted without, and rows that it predicts.
    sample_weight : array-like of shape (n,), optional
        Passed to ``fit``, for a pipeline to its last step.  Rows of weight zero stay, with weight zero.
    method : str, default "predict"
        Columns of ``predict_proba`` are those of all classes of ``model``: a class that a refit has not
        seen has probability 0.  A ``decision_function`` without all classes counts as a failure.
    n_jobs : int, optional
        As in joblib; None follows ``joblib.parallel_config``.
    progress : callable, optional
        Called with the number of refits that are done.

    Returns
    -------
    Refits

    Raises
    ------
    ValueError
        If every refit fails.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.tree import DecisionTreeRegressor
    >>> from onefit.refits import left_out_predictions
    >>> X, y = load_diabetes(return_X_y=True)
    >>> rows = [np.array([0]), np.array([1])]
    >>> model = DecisionTreeRegressor(max_depth=1).fit(X, y)
    >>> np.round(left_out_predictions(model, X, y, rows, rows).predictions, 1)
    array([[193.3],
           [110.1]])
    """
    X, y, weights = indexable(X, y, None if sample_weight is None else np.asarray(sample_weight))
    estimator = reference(model)
    classes = getattr(model, "classes_", None)
    sample = _RefitSample(X, y, weights, weight_name(model), method, classes, _start(model, estimator))
    tasks = (delayed(_refit)(estimator, sample, *rows) for rows in zip(removed, tested, strict=True))
    with closing(Parallel(n_jobs=n_jobs, return_as="generator")(tasks)) as results:
        return _collected(results, removed, tested, progress)


def weight_name(model: Any) -> str:
    """What ``fit`` of a model calls the weights; of a pipeline, those of its last step or of all that ask."""
    if isinstance(model, Pipeline) and not get_config()["enable_metadata_routing"]:
        return f"{model.steps[-1][0]}__sample_weight"
    return "sample_weight"


def _last(model: Any) -> Any:
    return model.steps[-1][1] if isinstance(model, Pipeline) else model


def _start(model: Any, estimator: Any) -> dict[str, Any]:
    """What a refit starts from: the coefficients, where the estimator can start and ends at the optimum."""
    last, fitted = _last(estimator), _last(model)
    if type(last) not in TIGHT or "warm_start" not in last.get_params(deep=False):
        return {}
    return {
        name: getattr(fitted, name) for name in ("coef_", "intercept_", "scale_") if hasattr(fitted, name)
    }


def _unfitted(estimator: Any, sample: _RefitSample, kept: Index) -> Any:
    """A clone to be fitted on some rows, with its start where it will know the same classes."""
    unfitted = clone(estimator)
    same = sample.classes is None or len(np.unique(np.asarray(sample.y)[kept])) == len(sample.classes)
    if sample.start and same:
        last = _last(unfitted).set_params(warm_start=True)
        for name, value in sample.start.items():  # solvers write into them
            setattr(last, name, deepcopy(value))
    return unfitted


def _refit(estimator: Any, sample: _RefitSample, removed: Index, tested: Index) -> tuple[Any, str]:
    """Predictions of one refit, or the error that it raised; it warns of nothing but what the fit did."""
    kept = np.setdiff1d(np.arange(len(sample.y)), removed)
    weights = {} if sample.sample_weight is None else {sample.weight_name: sample.sample_weight[kept]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            unfitted = _unfitted(estimator, sample, kept)
            fitted = unfitted.fit(*_safe_split(estimator, sample.X, sample.y, kept), **weights)
            outside, _ = _safe_split(estimator, sample.X, None, tested, kept)
            predictions = _aligned(fitted, getattr(fitted, sample.method)(outside), sample)
        except Exception as error:  # whatever an estimator may raise: the other refits go on
            return None, f"{type(error).__name__}: {error}"
    return predictions, ""


def _aligned(fitted: Any, predictions: Any, sample: _RefitSample) -> Any:
    """Predictions with one column for each class, also for classes that the refit does not know."""
    if sample.method == "predict" or sample.classes is None or len(fitted.classes_) == len(sample.classes):
        return predictions
    if sample.method != "predict_proba":
        known = ", ".join(map(repr, fitted.classes_.tolist()))
        raise ValueError(f"the refit knows only the classes {known}: its {sample.method} lacks the others")
    full = np.zeros((len(predictions), len(sample.classes)))
    full[:, np.searchsorted(sample.classes, fitted.classes_)] = predictions
    return full


def _collected(
    results: Iterator[tuple[Any, str]],
    removed: Sequence[Index],
    tested: Sequence[Index],
    progress: Callable[[int], None] | None,
) -> Refits:
    """Take results as they come, in the order of the folds."""
    predictions, failures = [], []
    for fold, (prediction, error) in enumerate(results):
        predictions.append(prediction)
        if error:
            failures.append(Failure(fold, removed[fold], error))
        if progress is not None:
            progress(fold + 1)
    if failures and len(failures) == len(predictions):
        raise ValueError(f"all {len(failures)} refits failed, the first with {failures[0].error}")
    columns = next((np.shape(found)[1:] for found in predictions if found is not None), ())
    for failure in failures:
        predictions[failure.fold] = np.full((len(tested[failure.fold]), *columns), np.nan)
    return Refits(predictions, tuple(failures))


# --- the metric --------------------------------------------------------------------------------------------


def metric_of(model: Any) -> Metric:
    """Choose how an estimator without a formula is judged.

    Classifiers by the log-loss of ``predict_proba`` if they have it, else by the hinge loss of
    ``decision_function``, else by wrong labels; regressors by squared error.

    Raises
    ------
    UnsupportedModelError
        For what is neither a classifier nor a regressor.
    """
    if is_regressor(model):
        return SquaredError()
    if not is_classifier(model):
        raise UnsupportedModelError(
            f"{type(model).__name__} is neither a classifier nor a regressor: its predictions have no loss"
        )
    classes = model.classes_
    if isinstance(classes, list):  # several outputs
        return ZeroOneLoss()
    if hasattr(model, "predict_proba"):
        return LogLoss(classes)
    return HingeLoss(classes) if hasattr(model, "decision_function") else ZeroOneLoss()
