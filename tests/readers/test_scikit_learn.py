"""Every supported estimator against cross_val_predict with LeaveOneOut, scale by scale."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import ClassifierMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import (
    ElasticNet,
    ElasticNetCV,
    GammaRegressor,
    HuberRegressor,
    Lasso,
    LassoCV,
    LassoLars,
    LinearRegression,
    LogisticRegression,
    LogisticRegressionCV,
    PoissonRegressor,
    Ridge,
    RidgeClassifier,
    RidgeClassifierCV,
    RidgeCV,
    TweedieRegressor,
)
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, PolynomialFeatures, StandardScaler, scale
from sklearn.utils import all_estimators

import onefit
from onefit.exceptions import UnsupportedModelError
from onefit.penalties import L2, Box
from onefit.readers import read

N = 60
# scikit-learn 1.8 warns of an elastic net without ℓ1 part even where it has converged
pytestmark = pytest.mark.filterwarnings(r"ignore:(?s).*zero l1 penalization strength")
TIGHT = {"tol": 1e-13, "max_iter": 200_000}


def _diabetes():
    X, y = load_diabetes(return_X_y=True)
    return scale(X[:N]), y[:N] / 50


def _cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return scale(X[:N, :8]), np.array(["benign", "malignant"])[y[:N]]


def _wine():
    X, y = load_wine(return_X_y=True)
    return scale(X[::3, :6]), y[::3]


def _two(y):
    return np.column_stack([y, y**2])


DATA = {
    "diabetes": _diabetes(),
    "outputs": (_diabetes()[0], _two(_diabetes()[1])),
    "counts": (_diabetes()[0], np.round(_diabetes()[1] * 2)),
    "cancer": _cancer(),
    "cancer in numbers": (_cancer()[0], (_cancer()[1] == "malignant").astype(int)),
    "wine": _wine(),
}

EXACT = {
    "LinearRegression": (LinearRegression(), "diabetes"),
    "LinearRegression, two outputs": (LinearRegression(), "outputs"),
    "Ridge": (Ridge(2.0), "diabetes"),
    "Ridge, two outputs": (Ridge(2.0), "outputs"),
    "Ridge, two strengths": (Ridge(np.array([0.5, 20.0])), "outputs"),
    "RidgeClassifier": (RidgeClassifier(2.0), "cancer"),
    "RidgeClassifier, three classes": (RidgeClassifier(2.0), "wine"),
    "RidgeClassifier, class weights": (RidgeClassifier(2.0, class_weight={0: 3.0, 2: 0.5}), "wine"),
}
SELECTING = {
    "Lasso": (Lasso(0.05, **TIGHT), "diabetes"),
    "Lasso, all zero": (Lasso(50.0, **TIGHT), "diabetes"),
    "ElasticNet": (ElasticNet(alpha=0.1, l1_ratio=0.3, **TIGHT), "diabetes"),
    "ElasticNet, no l1": (ElasticNet(alpha=0.1, l1_ratio=0.0, **TIGHT), "diabetes"),
    "Lasso, positive": (Lasso(0.05, positive=True, **TIGHT), "diabetes"),
    "ElasticNet, positive": (ElasticNet(alpha=0.1, l1_ratio=0.7, positive=True, **TIGHT), "diabetes"),
    "LinearRegression, positive": (LinearRegression(positive=True), "diabetes"),
}
# the worst relative error of the risk: one Newton step, chord steps and a few refits
CURVED = {
    "PoissonRegressor": (PoissonRegressor(alpha=0.1, tol=1e-9, solver="newton-cholesky"), "counts"),
    "GammaRegressor": (GammaRegressor(alpha=0.1, tol=1e-10, solver="newton-cholesky"), "diabetes"),
    "Tweedie 1.5": (TweedieRegressor(power=1.5, alpha=0.1, tol=1e-10, solver="newton-cholesky"), "counts"),
    "Tweedie 3": (TweedieRegressor(power=3, alpha=0.1, tol=1e-10, solver="newton-cholesky"), "diabetes"),
    "Tweedie 0": (TweedieRegressor(power=0, alpha=0.1, tol=1e-10, solver="newton-cholesky"), "diabetes"),
    "LogisticRegression": (LogisticRegression(C=0.3, tol=1e-10, solver="newton-cholesky"), "cancer"),
    "Logistic, balanced": (
        LogisticRegression(C=0.3, tol=1e-10, solver="newton-cholesky", class_weight="balanced"),
        "cancer",
    ),
    "Logistic, class weights": (
        LogisticRegression(C=0.3, tol=1e-10, solver="newton-cholesky", class_weight={0: 3.0}),
        "cancer in numbers",
    ),
    "Logistic, liblinear": (
        LogisticRegression(C=0.3, tol=1e-10, solver="liblinear", intercept_scaling=2.0, max_iter=10_000),
        "cancer",
    ),
    "Logistic, l1": (
        LogisticRegression(C=1.0, l1_ratio=1.0, tol=1e-6, solver="saga", max_iter=100_000, random_state=0),
        "cancer",
    ),
    "Logistic, net": (
        LogisticRegression(C=1.0, l1_ratio=0.5, tol=1e-6, solver="saga", max_iter=100_000, random_state=0),
        "cancer",
    ),
    "Multinomial": (LogisticRegression(C=0.3, tol=1e-8, solver="newton-cg", max_iter=1000), "wine"),
    "Multinomial, balanced": (
        LogisticRegression(C=0.3, tol=1e-8, solver="newton-cg", max_iter=1000, class_weight="balanced"),
        "wine",
    ),
    "HuberRegressor": (HuberRegressor(alpha=5.0, tol=1e-6, max_iter=20_000), "diabetes"),
}
ALL = {**EXACT, **SELECTING, **CURVED}


def _reference(model, X, y, method, sample_weight=None):
    """The definition: cross_val_predict with one row left out at a time."""
    if sample_weight is None:
        return cross_val_predict(model, X, y, cv=LeaveOneOut(), method=method)
    with sklearn.config_context(enable_metadata_routing=True):
        routed = clone(model).set_fit_request(sample_weight=True)
        return cross_val_predict(
            routed, X, y, cv=LeaveOneOut(), method=method, params={"sample_weight": sample_weight}
        )


def _fit(model, X, y, weights=None):
    return clone(model).fit(X, y) if weights is None else clone(model).fit(X, y, sample_weight=weights)


def _without_intercept(model, fit_intercept):
    return model if fit_intercept else clone(model).set_params(fit_intercept=False)


def _close(one, other, tol=1e-9):
    assert one.shape == other.shape
    np.testing.assert_allclose(one, other, atol=tol * np.std(other))


@pytest.mark.costly
@pytest.mark.parametrize("name", EXACT)
def test_least_squares_is_exact(name, weigh, fit_intercept):
    model, data = EXACT[name]
    (X, y), model = DATA[data], _without_intercept(model, fit_intercept)
    weights = weigh(len(X))
    est = onefit.loo(_fit(model, X, y, weights), X, y, sample_weight=weights)
    _close(est.predictions, _reference(model, X, y, est.method, weights))
    assert est.certified.all()


@pytest.mark.parametrize("name", SELECTING)
def test_selection_is_exact_where_certified(name, weigh, fit_intercept):
    model, data = SELECTING[name]
    (X, y), model = DATA[data], _without_intercept(model, fit_intercept)
    weights = weigh(len(X))
    est = onefit.loo(_fit(model, X, y, weights), X, y, sample_weight=weights)
    expected = _reference(model, X, y, est.method, weights)
    sure = est.certified
    np.testing.assert_allclose(est.predictions[sure], expected[sure], atol=1e-6 * np.std(y))
    if weights is None or "Lasso" in name:
        assert sure.sum() > len(y) / 4
    risk = np.average((y - expected) ** 2, weights=weights)
    assert abs(est.value - risk) < 0.05 * risk


def test_ridge_with_sign_constraints(weigh):
    (X, y), weights = DATA["diabetes"], weigh(N)
    penalty = L2(2.0) + Box(lower=0.0)
    own = onefit.GeneralizedLinear(penalty=penalty).fit(X, y, sample_weight=weights)
    expected = onefit.loo(own, X, y, sample_weight=weights, exact=True)
    est = onefit.loo(_fit(Ridge(2.0, positive=True), X, y, weights), X, y, sample_weight=weights, exact=True)
    np.testing.assert_allclose(est.predictions, expected.predictions, atol=1e-10)


def _risk(est, y, predictions, weights):
    """Mean of est's loss at other predictions."""
    if est.loss_name == "log-loss":
        losses = -np.log(predictions[np.arange(len(y)), np.searchsorted(est.classes, y)])
    elif "deviance" in est.loss_name:
        family = est._left_out.fit.problem.loss
        losses = 2 * family.value(y, np.log(predictions) if family.link == "log" else predictions)
    else:
        losses = (y - predictions) ** 2
    return np.average(losses, weights=weights)


@pytest.mark.costly
@pytest.mark.parametrize("name", CURVED)
def test_curved_losses_are_within_one_per_cent(name, weigh, fit_intercept):
    model, data = CURVED[name]
    (X, y), model = DATA[data], _without_intercept(model, fit_intercept)
    weights = weigh(len(X))
    est = onefit.loo(_fit(model, X, y, weights), X, y, sample_weight=weights)
    expected = _reference(model, X, y, est.method, weights)
    risk = _risk(est, y, expected, weights)
    assert est.predictions.shape == expected.shape
    assert abs(est.value - risk) < 0.01 * risk
    assert np.median(np.abs(est.predictions - expected)) < 0.01 * np.std(expected)


@pytest.mark.costly
@pytest.mark.parametrize(
    "name",
    [
        "Ridge",
        "Lasso",
        "ElasticNet",
        "PoissonRegressor",
        "LogisticRegression",
        "Multinomial",
        "HuberRegressor",
        "Logistic, liblinear",
    ],
)
@pytest.mark.parametrize("make", [sp.csr_matrix, sp.csc_matrix, sp.csr_array, sp.csc_array, sp.coo_array])
def test_sparse_is_dense(name, make):
    model, data = ALL[name]
    X, y = DATA[data]
    X = np.where(np.abs(X) > 0.5, X, 0.0)
    est = onefit.loo(_fit(model, X, y), X, y)
    sparse = onefit.loo(_fit(model, X, y), make(X), y)
    np.testing.assert_allclose(sparse.predictions, est.predictions, rtol=1e-7, atol=1e-8)
    np.testing.assert_array_equal(sparse.certified, est.certified)


def test_sparse_with_explicit_zeros_and_integers():
    X, y = DATA["diabetes"]
    X = np.round(X)
    stored = sp.csr_array(np.ones(X.shape, dtype=np.int64))
    stored.data[:] = X.ravel()  # zeros are stored
    assert stored.nnz == X.size
    _close(
        onefit.loo(Ridge(2.0).fit(X, y), stored, y).predictions,
        onefit.loo(Ridge(2.0).fit(X, y), X, y).predictions,
    )
    assert stored.data.dtype == np.int64


@pytest.mark.parametrize(
    "name", ["Ridge", "LinearRegression", "Lasso", "PoissonRegressor", "LogisticRegression"]
)
def test_how_the_data_are_stored_does_not_matter(name):
    model, data = ALL[name]
    X, y = DATA[data]
    expected = onefit.loo(_fit(model, X, y), X, y).predictions
    read_only, shuffled = X.copy(), pd.DataFrame(X, index=np.arange(len(X))[::-1] * 7)
    shuffled.columns = [f"x{j}" for j in range(X.shape[1])]
    read_only.setflags(write=False)
    for other in (np.asfortranarray(X), read_only, X.tolist()):
        _close(onefit.loo(_fit(model, X, y), other, y).predictions, expected, 1e-8)
    framed = _fit(model, shuffled, pd.Series(y, index=shuffled.index))
    _close(onefit.loo(framed, shuffled, pd.Series(y, index=shuffled.index)).predictions, expected, 1e-8)
    single = X.astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a solution in single precision is not optimal in double
        _close(onefit.loo(_fit(model, single, y), single, y).predictions, expected, 1e-3)


@pytest.mark.parametrize("labels", [(0, 1), (-1, 1), (False, True), ("a", "b"), (2.0, 7.0)], ids=str)
def test_any_two_labels(labels):
    X, y = DATA["cancer"]
    model = ALL["LogisticRegression"][0]
    expected = onefit.loo(_fit(model, X, y), X, y)
    named = np.array(labels)[(y == "malignant").astype(int)]
    for values in (named, named.astype(object) if isinstance(labels[0], str) else named):
        est = onefit.loo(_fit(model, X, values), X, values)
        np.testing.assert_array_equal(est.predictions, expected.predictions)
        assert list(est.classes) == list(labels)


def test_integer_responses():
    X, y = DATA["counts"]
    whole = y.astype(int)
    _close(
        onefit.loo(Ridge().fit(X, whole), X, whole).predictions,
        onefit.loo(Ridge().fit(X, y), X, y).predictions,
    )


@pytest.mark.costly
@pytest.mark.parametrize(
    "kernel", ["linear", "rbf", "poly", "precomputed", "callable", "callable with parameters"]
)
@pytest.mark.parametrize("outputs", [False, True])
def test_kernels(kernel, outputs, weigh, refits):
    X, y = DATA["outputs" if outputs else "diabetes"]
    X, y = X[:40], y[:40]
    settings = {
        "rbf": {"kernel": "rbf", "gamma": 0.05},
        "poly": {"kernel": "poly", "degree": 2, "coef0": 1.0},
        "callable": {"kernel": lambda a, b: np.exp(-0.05 * np.sum((a - b) ** 2))},
        "callable with parameters": {
            "kernel": lambda a, b, width: np.exp(-np.sum((a - b) ** 2) / width),
            "kernel_params": {"width": 20.0},
        },
    }.get(kernel, {"kernel": kernel})
    X = X @ X.T if kernel == "precomputed" else X
    weights = weigh(40)
    model = KernelRidge(alpha=[0.5, 3.0] if outputs else 0.5, **settings)
    est = onefit.loo(_fit(model, X, y, weights), X, y, sample_weight=weights)
    _close(est.predictions, refits(model, X, y, sample_weight=weights))
    assert est.certified.all()


def test_a_kernel_model_without_a_penalty_is_refused():
    X, y = DATA["diabetes"]
    model = KernelRidge(kernel="rbf", gamma=2.0, alpha=0.0)
    with pytest.raises(onefit.UnsupportedModelError, match=r"alpha=0\.0"):
        onefit.loo(model.fit(X, y), X, y)


@pytest.mark.parametrize("alpha", [1e-8, 1e-3])
def test_a_linear_kernel_with_a_weak_penalty(alpha, refits):
    # rounding in the dual coefficients is taken for a step
    # the Gram matrix has rank p < n: its dual coefficients are large, its predictions are not
    X, y = DATA["diabetes"]
    est = onefit.loo(KernelRidge(kernel="linear", alpha=alpha).fit(X, y), X, y)
    _close(est.predictions, refits(Ridge(alpha, fit_intercept=False), X, y), 1e-4)


# --- estimators that tune themselves keep what they have chosen ------------------------------------


def test_ridge_cv():
    X, y = DATA["diabetes"]
    model = RidgeCV([0.1, 1.0, 10.0]).fit(X, y)
    _close(onefit.loo(model, X, y).predictions, _reference(Ridge(model.alpha_), X, y, "predict"))


def test_ridge_cv_with_a_strength_for_each_output():
    X, y = DATA["outputs"]
    model = RidgeCV([0.1, 1.0, 100.0], alpha_per_target=True).fit(X, y)
    _close(onefit.loo(model, X, y).predictions, _reference(Ridge(model.alpha_), X, y, "predict"))


def test_ridge_classifier_cv():
    X, y = DATA["wine"]
    model = RidgeClassifierCV([0.1, 1.0, 10.0]).fit(X, y)
    expected = _reference(RidgeClassifier(model.alpha_), X, y, "decision_function")
    _close(onefit.loo(model, X, y).predictions, expected)


@pytest.mark.parametrize("kind", ["LassoCV", "ElasticNetCV", "LassoLars"])
def test_lassos_that_tune_themselves(kind):
    X, y = DATA["diabetes"]
    model = {
        "LassoCV": LassoCV(alphas=20, cv=3, **TIGHT),
        "ElasticNetCV": ElasticNetCV(alphas=20, cv=3, l1_ratio=[0.3, 0.9], **TIGHT),
        "LassoLars": LassoLars(alpha=0.05),
    }[kind].fit(X, y)
    if kind == "LassoLars":
        plain = Lasso(0.05, **TIGHT)
    elif kind == "LassoCV":
        plain = Lasso(model.alpha_, **TIGHT)
    else:
        plain = ElasticNet(alpha=model.alpha_, l1_ratio=model.l1_ratio_, **TIGHT)
    est = onefit.loo(model, X, y)
    np.testing.assert_allclose(est.predictions, onefit.loo(plain.fit(X, y), X, y).predictions, atol=1e-6)
    expected = _reference(plain, X, y, "predict")
    np.testing.assert_allclose(est.predictions[est.certified], expected[est.certified], atol=1e-6)
    assert est.certified.any()


@pytest.mark.parametrize("data", ["cancer", "wine"])
def test_logistic_regression_cv(data):
    X, y = DATA[data]
    settings = {
        "Cs": [0.03, 0.3],
        "cv": 3,
        "tol": 1e-8,
        "solver": "newton-cg",
        "max_iter": 1000,
        "l1_ratios": (0.0,),
    }
    settings |= {"scoring": "neg_log_loss", "use_legacy_attributes": False}
    model = LogisticRegressionCV(**settings).fit(X, y)
    plain = LogisticRegression(C=model.C_, tol=1e-8, solver="newton-cg", max_iter=1000).fit(X, y)
    np.testing.assert_allclose(onefit.loo(model, X, y).value, onefit.loo(plain, X, y).value, rtol=1e-6)


# --- pipelines -------------------------------------------------------------------------------------


def test_a_pipeline_may_take_text_and_dates():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    table = pandas.DataFrame(
        {
            "kind": list("abc") * 10,
            "day": pandas.date_range("2024-01-01", periods=30),
            "size": rng.normal(size=30),
        }
    )
    y = rng.normal(size=30)
    encode = make_column_transformer((OneHotEncoder(), ["kind", "day"]), remainder="passthrough")
    pipeline = make_pipeline(encode, Ridge()).fit(table, y)
    inner = pipeline[:-1].transform(table)
    found, wanted = onefit.loo(pipeline, table, y), onefit.loo(Ridge().fit(inner, y), inner, y)
    np.testing.assert_allclose(found.predictions, wanted.predictions)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of new defaults in scikit-learn
def test_models_that_are_said_to_be_supported_are_read():
    X, y = DATA["diabetes"]
    with pytest.raises(UnsupportedModelError) as refusal:
        onefit.loo(KNeighborsRegressor().fit(X, y), X, y)
    named = str(refusal.value).partition("supported are ")[2].partition(", the estimators of")[0].split(", ")
    assert len(named) == len(set(named)) > 20
    for name, kind in all_estimators():
        if name not in named or kind is Pipeline:
            continue
        target = (y > np.median(y)).astype(int) if issubclass(kind, ClassifierMixin) else y
        model = kind().fit(X, target)
        assert read(model, X, target).fit.problem.n == N


def test_a_pipeline_is_its_last_step_on_fixed_features():
    X, y = DATA["diabetes"]
    X = 3 * X[:, :4] + 1
    pipeline = make_pipeline(StandardScaler(), PolynomialFeatures(2, include_bias=False), Ridge(2.0)).fit(
        X, y
    )
    est = onefit.loo(pipeline, X, y)
    features = pipeline[:-1].transform(X)
    _close(est.predictions, _reference(Ridge(2.0), features, y, "predict"))
    assert any("held fixed" in note for note in est.notes)
    assert "note: " in str(est)
    assert onefit.loo(make_pipeline(Ridge()).fit(X, y), X, y).notes == ()


def test_a_bias_column_besides_an_intercept():
    X, y = DATA["diabetes"]
    X = X[:, :3]
    weights = np.random.default_rng(0).uniform(0.5, 2.0, N)
    features = PolynomialFeatures(2).fit_transform(X)
    est = onefit.loo(LinearRegression().fit(features, y, weights), features, y, sample_weight=weights)
    _close(est.predictions, _reference(LinearRegression(), features, y, "predict", weights), 1e-8)


def test_a_response_that_is_a_column():
    # Lasso accepts a column and fits one output
    X, y = DATA["diabetes"]
    for model in (Ridge(), Lasso(0.05, **TIGHT), LinearRegression()):
        column = onefit.loo(clone(model).fit(X, y[:, None]), X, y[:, None])
        np.testing.assert_allclose(
            column.predictions.ravel(), onefit.loo(clone(model).fit(X, y), X, y).predictions, rtol=1e-9
        )


def test_the_balance_of_ridge_classifier_counts_rows():
    # a row of weight zero counts in the balance: no row may be said to stay as it is
    X, y = DATA["wine"]
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    weights[:3] = 0.0
    model = RidgeClassifier(2.0, class_weight="balanced")
    est = onefit.loo(_fit(model, X, y, weights), X, y, sample_weight=weights)
    expected = _reference(model, X, y, "decision_function", weights)
    np.testing.assert_allclose(est.predictions, expected, atol=0.02 * np.std(expected))
    error = np.abs(est.predictions - expected).max(axis=1)
    assert np.all(error <= est.bounds + 1e-11)
    assert np.all(error[est.certified] < 1e-6 * np.std(expected))
    assert np.abs(est.predictions - est.fitted)[:3].max() > 1e-4
