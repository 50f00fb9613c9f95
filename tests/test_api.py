"""onefit.loo: warnings, real data, and what happens at the edges of what can be left out."""

from __future__ import annotations

import csv
import gzip
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import (
    ElasticNet,
    HuberRegressor,
    Lasso,
    LassoLarsIC,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    RidgeClassifier,
)
from sklearn.preprocessing import scale

import onefit

TIGHT = {"tol": 1e-12, "max_iter": 100_000}


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return scale(X), y


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return scale(X), y


def _quiet_fit(model, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, y)


# --- solutions that are not ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [Lasso(0.5, max_iter=1), ElasticNet(alpha=0.1, max_iter=2), LogisticRegression(max_iter=2)],
    ids=repr,
)
def test_a_solver_that_stopped_early(diabetes, model):
    X, y = diabetes
    y = (y > 140).astype(int) if isinstance(model, LogisticRegression) else y
    loose = _quiet_fit(model, X, y)
    with pytest.warns(onefit.NotOptimalWarning, match="refit with a smaller tol or a larger max_iter"):
        est = onefit.loo(loose, X, y)
    best = type(model)(**{**model.get_params(), "max_iter": 100_000, "tol": 1e-10}).fit(X, y)
    np.testing.assert_allclose(est.value, onefit.loo(best, X, y).value, rtol=1e-6)


def test_a_loose_tolerance(diabetes):
    # a tolerance of 1e-2 excuses an objective that is off by as much, not more
    X, y = diabetes
    loose = Lasso(0.5, tol=1e-2).fit(X, y)
    est = onefit.loo(loose, X, y)
    np.testing.assert_allclose(est.value, onefit.loo(Lasso(0.5, **TIGHT).fit(X, y), X, y).value, rtol=1e-8)


def test_a_converged_model_does_not_warn(diabetes):
    X, y = diabetes
    for model in (Ridge(), Lasso(0.5), ElasticNet(alpha=0.5), LinearRegression()):
        onefit.loo(model.fit(X, y), X, y)
    onefit.loo(LogisticRegression().fit(X, y > 140), X, y > 140)


def test_the_model_and_the_data_are_left_alone(diabetes):
    X, y = diabetes
    X, y = X.copy(), y.copy()
    model = Lasso(0.5).fit(X, y)
    before = X.copy(), y.copy(), model.coef_.copy()
    onefit.loo(model, X, y, sample_weight=np.ones(len(y)))
    for one, other in zip(before, (X, y, model.coef_), strict=True):
        np.testing.assert_array_equal(one, other)


def test_deterministic(cancer):
    X, y = cancer
    model = LogisticRegression(C=0.1, max_iter=1000).fit(X, y)
    np.testing.assert_array_equal(onefit.loo(model, X, y).losses, onefit.loo(model, X, y).losses)


# --- identities ------------------------------------------------------------------------------------


def test_a_weight_of_zero_removes_a_row(diabetes):
    X, y = diabetes
    X, y = X[:60], y[:60]
    weights = np.random.default_rng(0).uniform(0.5, 2.0, 60)
    weights[::7] = 0.0
    kept = weights > 0
    for model in (Ridge(), Lasso(0.5, **TIGHT), LinearRegression()):
        whole = onefit.loo(model.fit(X, y, weights), X, y, sample_weight=weights)
        part = onefit.loo(
            model.fit(X[kept], y[kept], weights[kept]), X[kept], y[kept], sample_weight=weights[kept]
        )
        np.testing.assert_allclose(whole.predictions[kept], part.predictions, rtol=1e-9)
        np.testing.assert_allclose(whole.value, part.value, rtol=1e-9)
        np.testing.assert_allclose(whole.std_error, part.std_error, rtol=1e-9)
        np.testing.assert_allclose(whole.effective_df, part.effective_df, rtol=1e-9)


@pytest.mark.parametrize("model", [Lasso(0.02, tol=1e-14), ElasticNet(0.02, tol=1e-14)], ids=repr)
def test_a_row_that_outweighs_all_others_leaves_as_exactly_as_they(model):
    """What is left of the weights, and so of the penalty, is no difference of two numbers near one."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(30, 4))
    y, weights, others = X[:, 0] - X[:, 1] + rng.normal(size=30), np.full(30, 1e-6), np.arange(30) != 4
    weights[4] = 1e6
    refit = clone(model).fit(X[others], y[others], sample_weight=weights[others])
    est = onefit.loo(model.fit(X, y, sample_weight=weights), X, y, sample_weight=weights)
    assert est.predictions[4] == pytest.approx(refit.predict(X[[4]])[0], abs=1e-12)


def test_weights_of_one_are_none(diabetes):
    X, y = diabetes
    ones = np.ones(len(y))
    for model in (Ridge(), Lasso(0.5), PoissonRegressor(alpha=0.1)):
        with_ones = onefit.loo(model.fit(X, y, ones), X, y, sample_weight=ones)
        np.testing.assert_allclose(with_ones.losses, onefit.loo(model.fit(X, y), X, y).losses, rtol=1e-6)


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_the_scale_of_weights_where_the_loss_is_a_mean(diabetes, factor):
    X, y = diabetes
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    for model in (Lasso(0.5, **TIGHT), ElasticNet(alpha=0.1, **TIGHT)):
        one = onefit.loo(model.fit(X, y, weights), X, y, sample_weight=weights)
        other = onefit.loo(model.fit(X, y, factor * weights), X, y, sample_weight=factor * weights)
        np.testing.assert_allclose(one.predictions, other.predictions, rtol=1e-7)
        np.testing.assert_array_equal(one.certified, other.certified)


# --- rows that cannot be left out ------------------------------------------------------------------


def test_a_class_with_a_single_member(diabetes):
    X, _ = diabetes
    X, y = X[:40, :3], np.zeros(40, dtype=int)
    y[4] = 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", onefit.UnreliableWarning)
        est = onefit.loo(LogisticRegression().fit(X, y), X, y)
    assert np.all(np.isfinite(est.losses))
    assert est.losses[4] == est.losses.max()


@pytest.mark.parametrize("C", [1.0, 1e3])
def test_separable_classes_with_a_penalty(C, refits):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(30, 3))
    y = (X[:, 0] > 0).astype(int)
    model = LogisticRegression(C=C, tol=1e-10, solver="newton-cholesky", max_iter=1000)
    est = onefit.loo(model.fit(X, y), X, y)
    expected = -np.log(refits(model, X, y, "predict_proba")[np.arange(30), y]).mean()
    np.testing.assert_allclose(est.value, expected, rtol=1e-2)


def test_a_penalty_that_hardly_counts(refits):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(50, 3))
    y = (X[:, 0] + rng.normal(size=50) > 0).astype(int)
    model = LogisticRegression(C=1e6, tol=1e-10, solver="newton-cholesky", max_iter=1000)
    est = onefit.loo(model.fit(X, y), X, y)
    expected = -np.log(refits(model, X, y, "predict_proba")[np.arange(50), y]).mean()
    np.testing.assert_allclose(est.value, expected, rtol=1e-2)


def test_counts_that_are_zero_but_one(diabetes):
    # the refit without row 4 has no minimum, and must not settle
    X, _ = diabetes
    X, y = X[:40, :3], np.zeros(40)
    y[4] = 3.0
    with pytest.warns(onefit.UnreliableWarning, match="4"):  # without row 4 the likelihood has no maximum
        est = onefit.loo(PoissonRegressor(alpha=0.1, tol=1e-8).fit(X, y), X, y)
    assert 4 in est.flagged


def test_a_constant_response(diabetes):
    X, _ = diabetes
    X, y = X[:40, :3], np.full(40, 2.5)
    for model in (Ridge(), Lasso(0.1), LinearRegression(), PoissonRegressor()):
        est = onefit.loo(model.fit(X, y), X, y)
        np.testing.assert_allclose(est.predictions, 2.5, rtol=1e-8)
        assert est.value < 1e-12


def test_two_rows():
    X, y = np.array([[0.0, 1.0], [2.0, 5.0]]), np.array([1.0, 4.0])
    for model in (Ridge(), LinearRegression()):
        np.testing.assert_allclose(onefit.loo(model.fit(X, y), X, y).predictions, [4.0, 1.0], rtol=1e-9)


@pytest.mark.parametrize("model", [Lasso(0.1), ElasticNet(alpha=0.1)], ids=repr)
def test_two_rows_of_a_lasso(model):
    # without a row all coefficients vanish, which is not followed and not said
    X, y = np.array([[0.0, 1.0], [2.0, 5.0]]), np.array([1.0, 4.0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        est = onefit.loo(model.fit(X, y), X, y)
    warned = any(issubclass(w.category, onefit.UnreliableWarning) for w in caught)
    assert warned or np.allclose(est.predictions, [4.0, 1.0])


@pytest.mark.parametrize("alpha", [0.1, 0.03, 0.01])
def test_a_saturated_lasso_warns(alpha, refits):
    # nothing can be certified, and a risk off by orders of magnitude comes back silently
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(15, 40)), rng.normal(size=15)
    model = Lasso(alpha, **TIGHT).fit(X, y)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        est = onefit.loo(model, X, y)
    exact = np.mean((y - refits(model, X, y)) ** 2)
    warned = any(issubclass(w.category, onefit.UnreliableWarning) for w in caught)
    assert warned or abs(est.value - exact) < 0.5 * exact


def test_columns_of_very_different_units():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 4))
    y = X @ np.ones(4) + rng.normal(size=40)
    units = np.array([1e2, 1e-2, 1.0, 10.0])
    plain = onefit.loo(LinearRegression().fit(X, y), X, y)
    scaled = onefit.loo(LinearRegression().fit(X * units, y), X * units, y)
    np.testing.assert_allclose(scaled.predictions, plain.predictions, rtol=1e-8)


def test_far_from_zero(refits):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 4)) + 1e6
    y = X @ np.ones(4) + rng.normal(size=40)
    for model in (Ridge(), LinearRegression()):
        est = onefit.loo(model.fit(X, y), X, y)
        np.testing.assert_allclose(est.predictions - y, refits(model, X, y) - y, atol=1e-5)


# --- real data -------------------------------------------------------------------------------------


@pytest.fixture
def heart(data_folder):
    path = data_folder / "heart_disease.csv.gz"
    if not path.exists():
        pytest.skip(f"{path} is missing")
    with gzip.open(path, "rt") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["famhist"] = float(row["famhist"] == "Present")
    y = np.array([int(row.pop("chd")) for row in rows])
    return scale(np.array([[float(value) for value in row.values()] for row in rows])), y


@pytest.fixture
def colon(data_folder):
    path = data_folder / "colon_tumour.npz"
    if not path.exists():
        pytest.skip(f"{path} is missing")
    with np.load(path) as data:
        return scale(np.log(data["X"].astype(np.float64))), data["y"].astype(int)


@pytest.mark.parametrize(
    "model", [LinearRegression(), Ridge(10.0), KernelRidge(kernel="rbf", gamma=0.05)], ids=repr
)
def test_heart_disease_by_least_squares(heart, refits, model):
    X, y = heart
    rows = range(0, len(y), 11)
    est = onefit.loo(model.fit(X, y.astype(float)), X, y.astype(float))
    expected = refits(model, X, y.astype(float), rows=rows)
    np.testing.assert_allclose(est.predictions[list(rows)], expected, atol=1e-8 * np.std(y))


@pytest.mark.parametrize("C", [0.01, 0.1, 1.0])
def test_heart_disease_by_logistic_regression(heart, refits, C):
    X, y = heart
    model = LogisticRegression(C=C, tol=1e-10, solver="newton-cholesky")
    est = onefit.loo(model.fit(X, y), X, y)
    rows = np.arange(0, len(y), 5)
    shares = refits(model, X, y, "predict_proba", rows=rows)
    expected = -np.log(shares[np.arange(len(rows)), y[rows]])
    np.testing.assert_allclose(est.losses[rows].mean(), expected.mean(), rtol=1e-3)


@pytest.mark.parametrize(
    "model", [LinearRegression(), Ridge(100.0), KernelRidge(alpha=10.0, kernel="rbf")], ids=repr
)
def test_colon_tumours_by_least_squares(colon, refits, model):
    X, y = colon
    est = onefit.loo(model.fit(X, y.astype(float)), X, y.astype(float))
    np.testing.assert_allclose(est.predictions, refits(model, X, y.astype(float)), atol=1e-8 * np.std(y))


@pytest.mark.parametrize("alpha", [0.15, 0.08])
def test_colon_tumours_by_lasso(colon, refits, alpha):
    X, y = colon
    y = y.astype(float)
    model = Lasso(alpha, **TIGHT)
    est = onefit.loo(model.fit(X, y), X, y)
    sure = np.flatnonzero(est.certified)
    assert sure.size > 0
    np.testing.assert_allclose(est.predictions[sure], refits(model, X, y, rows=sure), atol=1e-6)
    risk = np.mean((y - refits(model, X, y)) ** 2)
    np.testing.assert_allclose(est.value, risk, rtol=0.1)


def test_colon_tumours_by_logistic_regression(colon, refits):
    X, y = colon
    strengths = [1e-4, 1e-3, 1e-2]
    models = [LogisticRegression(C=C, tol=1e-8, solver="newton-cholesky") for C in strengths]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", onefit.UnreliableWarning)
        risks = [onefit.loo(model.fit(X[:, ::4], y), X[:, ::4], y).value for model in models]
    best = int(np.argmin(risks))
    shares = refits(models[best], X[:, ::4], y, "predict_proba")
    np.testing.assert_allclose(risks[best], -np.log(shares[np.arange(len(y)), y]).mean(), rtol=1e-2)


# --- corners that a review found ---------------------------------------------------------------------------


def test_a_scale_that_falls_to_zero_is_named():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 11)), rng.normal(size=12)
    model = HuberRegressor(alpha=1e-4, max_iter=10_000).fit(X, y)  # a parameter a row
    assert model.scale_ < 1e-6
    with pytest.raises(onefit.SolverError, match="the scale of the errors may have fallen to zero"):
        onefit.loo(model, X, y)


@pytest.mark.parametrize(
    "model", [PoissonRegressor(alpha=0, tol=1e-9), HuberRegressor(alpha=0, max_iter=2000)]
)
def test_a_dummy_of_a_single_row_without_a_penalty(model):
    # without its row the dummy is constant, and the refit leaves its coefficient at zero
    rng = np.random.default_rng(0)
    X = np.c_[rng.normal(size=60), (np.arange(60) == 0) * 1.0]
    y = rng.poisson(2.0, 60) + 1.0
    y[0] = 9.0
    est = onefit.loo(model.fit(X, y), X, y)
    refit = clone(model).fit(X[1:], y[1:])
    np.testing.assert_allclose(est.predictions[0], refit.predict(X[:1])[0], rtol=2e-3)


def test_ridge_does_not_choose_interpolation():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 60))
    y = X[:, 0] + rng.normal(size=30)
    model = onefit.RidgeLOO(alphas=[0.0, 1e-10, 1e-7, 0.1, 1.0, 10.0]).fit(X, y)
    expected = [onefit.loo(Ridge(a).fit(X, y), X, y).value for a in model.alphas_ if a > 0]
    np.testing.assert_allclose(model.risk_path_[:-1], expected, rtol=1e-6)
    assert model.risk_path_[-1] == pytest.approx(
        onefit.loo(LinearRegression().fit(X, y), X, y).value, rel=1e-6
    )


@pytest.mark.parametrize(
    "model",
    [
        onefit.LassoLOO(alphas=[0.05]),
        onefit.ElasticNetLOO(alphas=[0.001]),
        onefit.RidgeLOO(alphas=[0.1]),
    ],
    ids=lambda model: type(model).__name__,
)
def test_columns_far_from_zero(model):
    X, y = load_diabetes(return_X_y=True)
    near, far = clone(model).fit(X, y), clone(model).fit(X + 1e6, y)
    assert far.loo_.value == pytest.approx(near.loo_.value, rel=1e-5)
    np.testing.assert_allclose(far.coef_, near.coef_, rtol=1e-3, atol=1e-2)


def test_the_last_of_a_class_is_not_certified():
    X = np.random.default_rng(0).normal(size=(30, 60))
    y = np.array([0, 1] * 14 + [2, 0])
    est = onefit.loo(RidgeClassifier().fit(X, y), X, y)
    assert not est.certified[28]
    np.testing.assert_array_equal(est.flagged, [28])
    assert "a refit would not know the class" in str(est)


def test_weights_of_zero_and_one_are_certified_like_the_rows():
    X, y = load_diabetes(return_X_y=True)
    weights = np.random.default_rng(0).integers(0, 2, len(y)).astype(float)
    held = weights > 0
    model = ElasticNet(alpha=0.01, tol=1e-10, max_iter=100_000)
    ours = onefit.loo(model.fit(X, y, sample_weight=weights), X, y, sample_weight=weights)
    rows = onefit.loo(model.fit(X[held], y[held]), X[held], y[held])
    np.testing.assert_allclose(ours.predictions[held], rows.predictions, rtol=1e-8)
    np.testing.assert_array_equal(ours.certified[held], rows.certified)


def test_subclasses_of_scikit_learn_are_not_taken_for_their_parents():
    X, y = load_diabetes(return_X_y=True)
    with pytest.raises(onefit.UnsupportedModelError, match="LassoLarsIC"):
        onefit.loo(LassoLarsIC().fit(X, y), X, y)


def test_named_risks_are_as_exact_as_asked_for():
    X, y = load_breast_cancer(return_X_y=True)
    X, y = scale(X)[:200, :10], y[:200]
    model = LogisticRegression(C=1e3, tol=1e-10, max_iter=5000).fit(X, y)
    risk = onefit.risk.LeaveOneOut()
    found = {error: onefit.evaluate(model, X, y, risk, max_error=error) for error in (0.1, 0.0)}
    assert found[0.0].approx_error < found[0.1].approx_error <= 0.1 * found[0.1].std_error
    assert abs(found[0.1].value - found[0.0].value) <= found[0.1].approx_error
