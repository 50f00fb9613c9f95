"""Left-out coefficients, intervals and influence, against refits and textbook formulas."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import (
    ElasticNet,
    HuberRegressor,
    Lasso,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    QuantileRegressor,
    Ridge,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR, LinearSVR

import onefit
from onefit import _linalg


def _data(n=40, p=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) + 1.0
    return X, X @ rng.normal(size=p) + rng.normal(size=n)


def _refits(model, X, y, weights=None):
    for i in range(X.shape[0]):
        kept = np.flatnonzero(np.arange(X.shape[0]) != i)
        fit = {} if weights is None else {"sample_weight": weights[kept]}
        yield clone(model).fit(X[kept], y[kept], **fit)


RIDGES = [
    Ridge(2.0, tol=1e-12),
    Ridge(2.0, tol=1e-12, fit_intercept=False),
    LinearRegression(tol=1e-12),
    Ridge(np.array([1.0, 3.0]), tol=1e-12),
]


@pytest.mark.parametrize("model", RIDGES, ids=repr)
@pytest.mark.parametrize("p", [5, 60], ids=["tall", "wide"])
@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array])
def test_coefficients_of_least_squares(model, p, storage, weigh, monkeypatch):
    monkeypatch.setattr(_linalg, "BLOCK_SIZE", 500)
    X, y = _data(p=p)
    weights = weigh(40)
    if weights is not None and p == 60 and isinstance(model, LinearRegression):
        pytest.skip("scikit-learn's minimum norm with weights is another one")
    y = np.stack([y, y**2], axis=1) if np.ndim(getattr(model, "alpha", 1.0)) else y
    X = storage(X)
    fit = {} if weights is None else {"sample_weight": weights}
    est = onefit.loo(clone(model).fit(X, y, **fit), X, y, **fit)
    refits = list(_refits(model, X, y, weights))
    coef = np.array([refit.coef_ for refit in refits])
    np.testing.assert_allclose(est.coef(), coef, atol=1e-7 * np.abs(coef).max())
    level = np.array([np.broadcast_to(refit.intercept_, y.shape[1:]) for refit in refits])
    np.testing.assert_allclose(est.intercept(), level, atol=1e-7 * (1 + np.abs(level).max()))


@pytest.mark.parametrize("solver", ["lbfgs", "liblinear"])
def test_coefficients_of_classifiers(solver):
    X, y = _data()
    y = (y > np.median(y)).astype(int)
    model = LogisticRegression(C=0.1, solver=solver, tol=1e-10, max_iter=10_000)
    est = onefit.loo(clone(model).fit(X, y), X, y, exact=True)
    refits = list(_refits(model, X, y))
    coef = np.array([refit.coef_[0] for refit in refits])
    assert est.coef().shape == (40, 5)
    np.testing.assert_allclose(est.coef(), coef, atol=0.02 * np.abs(coef).max())
    level = np.array([refit.intercept_[0] for refit in refits])
    np.testing.assert_allclose(est.intercept(), level, atol=0.02 * np.abs(level).max())


def test_coefficients_of_several_classes():
    X, y = _data(n=60)
    y = np.digitize(y, np.quantile(y, [0.3, 0.6]))
    model = LogisticRegression(C=0.1, tol=1e-10, max_iter=10_000)
    est = onefit.loo(clone(model).fit(X, y), X, y)
    coef = np.array([refit.coef_ for refit in _refits(model, X, y)])
    assert est.coef().shape == (60, 3, 5)
    assert est.intercept().shape == (60, 3)
    np.testing.assert_allclose(est.coef(), coef, atol=0.05 * np.abs(coef).max())


def test_coefficients_of_exact_refits_of_a_curved_loss():
    X, y = _data()
    counts = np.random.default_rng(0).poisson(np.exp(0.2 * X[:, 0])).astype(float)
    model = PoissonRegressor(alpha=0.1, solver="newton-cholesky", tol=1e-12)
    est = onefit.loo(clone(model).fit(X, counts), X, counts, exact=True)
    eta = np.sum(X * est.coef(), axis=1) + est.intercept()
    np.testing.assert_allclose(np.exp(eta), est.predictions, rtol=1e-6)
    huber = onefit.loo(HuberRegressor(alpha=1.0, tol=1e-8).fit(X, y), X, y)
    assert huber.coef().shape == (40, 5)
    assert huber.intercept().shape == (40,)
    assert huber.influence().dfbetas.shape == (40, 5)


# --- intervals -------------------------------------------------------------------------------------------


def _jackknife_plus(left_out, residuals, coverage):
    """The definition, sorted row by row: (m, 2) from (n, m) predictions and (n,) residuals."""
    n = len(residuals)
    low = np.sort(left_out - residuals[:, None], axis=0)
    high = np.sort(left_out + residuals[:, None], axis=0)
    up = int(np.ceil(coverage * (n + 1)))
    return np.stack([low[n - up], high[up - 1]], axis=1)


MODELS = [
    Ridge(2.0),
    make_pipeline(StandardScaler(with_mean=False, with_std=False), Ridge(2.0)),
    KernelRidge(alpha=1.0, kernel="rbf", gamma=0.1),
    Lasso(0.2, tol=1e-12, max_iter=100_000),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("p", [5, 60])
def test_jackknife_plus_by_its_definition(model, p, monkeypatch):
    monkeypatch.setattr(_linalg, "BLOCK_SIZE", 150)
    X, y = _data(p=p)
    new, _ = _data(n=11, p=p, seed=1)
    est = onefit.loo(clone(model).fit(X, y), X, y, exact=True)
    left_out = np.array([refit.predict(new) for refit in _refits(model, X, y)])
    residuals = np.abs(y - est.predictions)
    expected = _jackknife_plus(left_out, residuals, 0.8)
    np.testing.assert_allclose(est.interval(new, 0.8), expected, atol=1e-7 * np.abs(expected).max())
    margin = np.sort(residuals)[int(np.ceil(0.8 * 41)) - 1]
    widest = np.stack([left_out.min(axis=0) - margin, left_out.max(axis=0) + margin], axis=1)
    ours = est.interval(new, 0.8, method="minmax")
    np.testing.assert_allclose(ours, widest, atol=1e-7 * np.abs(widest).max())


def test_intervals_of_several_outputs_and_of_means():
    X, y = _data()
    both = onefit.loo(Ridge(1.0).fit(X, np.stack([y, 2 * y], axis=1)), X, np.stack([y, 2 * y], axis=1))
    bounds = both.interval(X[:3])
    assert bounds.shape == (3, 2, 2)
    np.testing.assert_allclose(bounds[:, 1], 2 * bounds[:, 0])
    counts = np.random.default_rng(0).poisson(np.exp(0.2 * X[:, 0])).astype(float)
    model = PoissonRegressor(alpha=0.1, tol=1e-10).fit(X, counts)
    low, high = onefit.loo(model, X, counts).interval(X[:3]).T
    assert np.all((low < model.predict(X[:3])) & (model.predict(X[:3]) < high))
    y[::9] += 20.0
    huber = HuberRegressor(alpha=1.0, tol=1e-8).fit(X, y)
    low, high = onefit.loo(huber, X, y).interval(X[:3], 0.8).T
    assert np.all((low < huber.predict(X[:3])) & (huber.predict(X[:3]) < high))


def test_intervals_with_an_offset():
    rng = np.random.default_rng(3)
    X, offset = rng.normal(size=(33, 2)), np.log(rng.uniform(20, 900, 33))
    y = rng.poisson(0.05 * np.exp(0.3 * X[:, 0] + offset)).astype(float)
    X, new, offset, added, y = X[:30], X[30:], offset[:30], offset[30:], y[:30]
    model = onefit.PoissonLOO(alphas=[0.1])
    residuals, without = np.empty(30), np.empty((3, 30))
    for i in range(30):
        kept = np.arange(30) != i
        refit = clone(model).fit(X[kept], y[kept], offset=offset[kept])
        residuals[i] = abs(y[i] - refit.predict(X[[i]], offset=offset[[i]])[0])
        without[:, i] = refit.predict(new, offset=added)
    low, high = np.sort(without - residuals, axis=1), np.sort(without + residuals, axis=1)
    place = int(np.ceil(0.8 * 31)) - 1
    est = model.fit(X, y, offset=offset).loo_
    found = est.interval(new, 0.8, offset=added)
    np.testing.assert_allclose(found, np.column_stack([low[:, 29 - place], high[:, place]]), rtol=0.01)
    np.testing.assert_allclose(est.interval(new, 0.8), est.interval(new, 0.8, offset=np.zeros(3)))
    with pytest.raises(ValueError, match="offset"):
        est.interval(new, 0.8, offset=added[:2])


def test_rows_without_weight_say_nothing_about_a_new_one():
    X, y = _data()
    weights = np.r_[np.ones(30), np.zeros(10)]
    few = onefit.loo(Ridge(2.0).fit(X[:30], y[:30]), X[:30], y[:30]).interval(X[30:])
    all_rows = onefit.loo(Ridge(2.0).fit(X, y, weights), X, y, weights).interval(X[30:])
    np.testing.assert_allclose(all_rows, few)


def test_too_few_rows_for_a_coverage_give_an_infinite_interval():
    X, y = _data(n=9)
    est = onefit.loo(Ridge(2.0).fit(X, y), X, y)
    assert np.all(np.isinf(est.interval(X, 0.95)))
    assert np.all(np.isfinite(est.interval(X, 0.9)))


@pytest.mark.theory
def test_coverage_is_what_was_asked_for():
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(100):
        X = rng.normal(size=(140, 20))
        y = X @ rng.normal(size=20) / 4 + rng.standard_t(3, size=140)
        low, high = onefit.loo(Ridge(1.0).fit(X[:40], y[:40]), X[:40], y[:40]).interval(X[40:]).T
        inside.append(np.mean((low <= y[40:]) & (y[40:] <= high)))
    assert 0.87 < np.mean(inside) < 0.93


def test_bad_requests():
    X, y = _data()
    est = onefit.loo(Ridge(1.0).fit(X, y), X, y)
    for wrong in ({"coverage": 1.0}, {"coverage": -0.1}, {"method": "split"}):
        with pytest.raises(ValueError, match="must"):
            est.interval(X, **wrong)
    with pytest.raises(ValueError, match="features"):
        est.interval(X[:, :2])
    labels = (y > 0).astype(int)
    with pytest.raises(ValueError, match="regressors"):
        onefit.loo(LogisticRegression().fit(X, labels), X, labels).interval(X)


# --- influence -------------------------------------------------------------------------------------------


def test_cooks_distance_and_dfbetas_of_the_textbook():
    X, y = _data()
    y[7] += 15.0
    influence = onefit.loo(LinearRegression().fit(X, y), X, y).influence()
    Z = np.column_stack([X, np.ones(40)])
    inverse = np.linalg.inv(Z.T @ Z)
    h, residual = np.einsum("ij,jk,ik->i", Z, inverse, Z), y - Z @ (inverse @ (Z.T @ y))
    variance = residual @ residual / (40 - 6)
    without = (residual @ residual - residual**2 / (1 - h)) / (40 - 6 - 1)
    np.testing.assert_allclose(influence.cooks_distance, residual**2 * h / (1 - h) ** 2 / (6 * variance))
    change = (inverse @ Z.T).T * (residual / (1 - h))[:, None]
    expected = change / np.sqrt(np.outer(without, inverse.diagonal()))
    np.testing.assert_allclose(influence.dfbetas, expected[:, :5])
    assert influence.rows[0] == 7


@pytest.mark.parametrize("penalised", [Ridge(3.0), Lasso(0.1, tol=1e-12, max_iter=100_000)], ids=repr)
def test_cooks_distance_by_refits(penalised, weigh):
    X, y = _data()
    weights = weigh(40)
    fit = {} if weights is None else {"sample_weight": weights}
    model = clone(penalised).fit(X, y, **fit)
    est = onefit.loo(model, X, y, exact=True, **fit)
    unit = np.ones(40) if weights is None else weights
    moved = np.array([unit @ (model.predict(X) - r.predict(X)) ** 2 for r in _refits(model, X, y, weights)])
    free = np.count_nonzero(unit) - est.effective_df
    dispersion = unit @ (y - model.predict(X)) ** 2 / free
    expected = moved / dispersion / est.effective_df
    np.testing.assert_allclose(est.influence().cooks_distance, expected, atol=1e-5 * expected.max())


@pytest.mark.parametrize("penalised", [Ridge(3.0), Lasso(0.1, tol=1e-12, max_iter=100_000)], ids=repr)
def test_dfbetas_are_in_units_of_what_the_other_rows_tell(penalised, weigh):
    X, y = _data()
    y[7] += 15.0
    weights = weigh(40)
    fit = {} if weights is None else {"sample_weight": weights}
    model = clone(penalised).fit(X, y, **fit)
    est = onefit.loo(model, X, y, exact=True, **fit)
    unit = np.ones(40) if weights is None else weights
    refits = list(_refits(model, X, y, weights))
    kept = unit - np.diag(unit)
    squares = [w @ (y - refit.predict(X)) ** 2 for w, refit in zip(kept, refits, strict=True)]
    without = np.array(squares) / (np.count_nonzero(kept, axis=1) - est.effective_df)
    moved = np.array([model.coef_ - refit.coef_ for refit in refits])
    found, heavy = est.influence().dfbetas, (np.abs(moved) > 1e-3) & (model.coef_ != 0)
    errors = np.full_like(moved, np.nan)  # of the coefficients, the same whichever row leaves
    np.divide(moved, found * np.sqrt(without)[:, None], out=errors, where=heavy)
    errors = errors[:, model.coef_ != 0]
    np.testing.assert_allclose(np.nanmin(errors, axis=0), np.nanmax(errors, axis=0), rtol=1e-3)


def test_a_row_off_a_line_that_all_others_are_on():
    X, _ = _data()
    y = X.sum(axis=1)
    y[7] += 1.0
    found = np.abs(onefit.loo(LinearRegression().fit(X, y), X, y).influence().dfbetas)
    assert found[7].min() > 1e3 * np.delete(found, 7, axis=0).max()


def test_no_error_is_told_by_as_many_rows_as_coefficients():
    X, y = _data(n=7)  # five slopes and a level: six rows have no residuals
    found = onefit.loo(LinearRegression().fit(X, y), X, y).influence()
    assert np.isfinite(found.cooks_distance).all()
    assert np.isnan(found.dfbetas).all()


def test_losses_with_kinks_have_no_curvature_to_measure_by():
    X, y = _data()
    for model in (QuantileRegressor(alpha=0.01), SVR(kernel="linear"), LinearSVR(tol=1e-8, max_iter=100_000)):
        est = onefit.loo(model.fit(X, y), X, y)
        with pytest.raises(ValueError, match=r"has kinks instead: coef\(\) gives"):
            est.influence()
        assert np.any(est.coef() != model.coef_)


def test_influence_of_classifiers_by_refits():
    X, y = _data(n=60)
    for labels in ((y > np.median(y)).astype(int), np.digitize(y, np.quantile(y, [0.3, 0.6]))):
        model = LogisticRegression(C=0.1, tol=1e-10, max_iter=10_000).fit(X, labels)
        influence = onefit.loo(model, X, labels).influence()
        assert influence.dfbetas.shape == (60, *(() if model.coef_.shape[0] == 1 else (3,)), 5)
        moved = np.array([model.coef_ - refit.coef_ for refit in _refits(model, X, labels)]).reshape(60, -1)
        units = influence.dfbetas.reshape(60, -1)
        scale = np.sum(moved * units, axis=0) / np.sum(units**2, axis=0)  # the standard errors
        np.testing.assert_allclose(units * scale, moved, atol=0.1 * np.abs(moved).max())
        assert np.all(influence.cooks_distance >= 0)


@pytest.mark.parametrize(
    "model",
    [LinearRegression(), Ridge(2.0), Ridge([0.001, 1000.0]), ElasticNet(0.5, tol=1e-12, max_iter=100_000)],
    ids=repr,
)
def test_outputs_that_nothing_ties_together_have_their_own_errors(model):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    Y = X @ rng.normal(size=(3, 2)) + rng.normal(size=(40, 2))
    Y[:, 1] *= 1000.0
    found = onefit.loo(model.fit(X, Y), X, Y).influence()
    alphas = np.broadcast_to(getattr(model, "alpha", 0.0), 2)
    alone = [Ridge(alpha) if isinstance(model, Ridge) else clone(model) for alpha in alphas]
    each = [onefit.loo(m.fit(X, own), X, own).influence() for m, own in zip(alone, Y.T, strict=True)]
    for k, own in enumerate(each):
        np.testing.assert_allclose(found.dfbetas[:, k], own.dfbetas, rtol=1e-7)
    mean = np.mean([own.cooks_distance for own in each], axis=0)
    np.testing.assert_allclose(found.cooks_distance, mean, rtol=1e-7)
    few = onefit.loo(model, X, Y).influence(top=3)
    np.testing.assert_allclose(few.dfbetas, found.dfbetas[found.rows[:3]], rtol=1e-9)


def test_counts_have_no_dispersion_of_their_own():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = rng.poisson(np.exp(0.5 * X[:, 0] + rng.normal(size=60)))  # more spread than a Poisson family has
    model = PoissonRegressor(alpha=0.0, tol=1e-12, max_iter=10_000).fit(X, y)
    est = onefit.loo(model, X, y, exact=True)
    Z, mean = np.column_stack([X, np.ones(60)]), model.predict(X)
    changes = np.column_stack([est.coef() - model.coef_, est.intercept() - model.intercept_])
    expected = np.sum((changes @ Z.T) ** 2 * mean, axis=1) / est.effective_df
    np.testing.assert_allclose(est.influence().cooks_distance, expected, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("method", ["plus", "minmax"])
def test_too_few_rows_for_a_coverage_have_no_ends(method):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(8, 2)), rng.normal(size=8)
    est = onefit.loo(Ridge().fit(X, y), X, y)
    np.testing.assert_array_equal(est.interval(X[:1], 0.95, method), [[-np.inf, np.inf]])
