"""In-sample criteria against their textbook formulas and derivatives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Lasso, LinearRegression, LogisticRegression, Ridge

import onefit
from onefit.readers import read
from onefit.risk.criteria import first_order_change
from onefit.solvers.solve import solve


def _data(n=60, p=6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, X @ rng.normal(size=p) + rng.normal(size=n)


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array])
def test_gcv_and_cp_of_ridge(storage, fit_intercept, weigh):
    X, y = _data()
    weights = weigh(60)
    unit = np.ones(60) if weights is None else weights
    Z = np.column_stack([X, np.ones(60)]) if fit_intercept else X
    C = np.diag([3.0] * 6 + [0.0] * fit_intercept)
    hat = Z @ np.linalg.solve(Z.T @ (unit[:, None] * Z) + C, Z.T * unit)
    n, df = np.count_nonzero(unit), np.trace(hat)
    training = unit @ (y - hat @ y) ** 2 / unit.sum()
    model = Ridge(3.0, fit_intercept=fit_intercept, tol=1e-12).fit(storage(X), y, weights)
    gcv = onefit.evaluate(model, storage(X), y, onefit.risk.GCV(), weights)
    np.testing.assert_allclose(gcv.value, training / (1 - df / n) ** 2, rtol=1e-8)
    assert gcv.effective_df == pytest.approx(df)
    assert gcv.training == pytest.approx(training)
    sure = onefit.evaluate(model, storage(X), y, onefit.risk.SURE(2.0), weights)
    np.testing.assert_allclose(sure.value, training + 2 * 2.0 * df / n, rtol=1e-8)
    estimated = onefit.evaluate(model, storage(X), y, onefit.risk.SURE(), weights)
    np.testing.assert_allclose(estimated.value, training * (1 + 2 * df / (n - df)), rtol=1e-8)


def test_degrees_of_freedom_of_a_lasso_are_its_support():
    X, y = _data()
    model = Lasso(0.3, tol=1e-10).fit(X, y)
    criterion = onefit.evaluate(model, X, y, onefit.risk.SURE())
    assert criterion.effective_df == pytest.approx(np.count_nonzero(model.coef_) + 1)
    assert "SURE" in str(criterion)


@pytest.mark.theory
def test_sure_is_unbiased():
    X, _ = _data(n=50)
    rng, truth = np.random.default_rng(1), X @ np.ones(6)
    gaps = []
    for _ in range(300):
        y = truth + 1.5 * rng.normal(size=50)
        model = Ridge(5.0).fit(X, y)
        in_sample = np.mean((model.predict(X) - truth) ** 2) + 1.5**2
        gaps.append(onefit.evaluate(model, X, y, onefit.risk.SURE(1.5**2)).value - in_sample)
    assert abs(np.mean(gaps)) < 3 * np.std(gaps) / np.sqrt(300)


@pytest.mark.parametrize("n_classes", [0, 2, 3], ids=["ridge", "logistic", "multinomial"])
def test_the_influence_function_is_the_derivative_in_the_weight(n_classes):
    X, y = _data()
    if n_classes:
        y = np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))
    model = (LogisticRegression(C=0.5) if n_classes else Ridge(2.0)).fit(X, y)
    fit = solve(read(model, X, y).fit).fit
    change = first_order_change(fit)
    for i in (0, 11, 40):
        moved = []
        for step in (-1e-4, 1e-4):
            weights = fit.problem.weights.copy()
            weights[i] += step
            moved.append(solve(replace(fit, problem=replace(fit.problem, weights=weights))).fit.eta[i])
        np.testing.assert_allclose(-(moved[1] - moved[0]) / 2e-4, change[i], rtol=1e-5, atol=1e-8)


def test_it_underestimates_overfitting():
    X, y = _data(n=40, p=15)
    model = Ridge(0.1).fit(X, y)
    jackknife = onefit.evaluate(model, X, y, onefit.risk.InfluenceFunction())
    assert jackknife.training < jackknife.value < onefit.loo(model, X, y).value


def test_what_has_no_criterion():
    X, y = _data()
    labels = (y > 0).astype(int)
    with pytest.raises(ValueError, match="squared error"):
        onefit.evaluate(LogisticRegression().fit(X, labels), X, labels, onefit.risk.SURE())
    wide, response = _data(n=10, p=40)
    with pytest.raises(ValueError, match="noise_variance"):
        onefit.evaluate(LinearRegression().fit(wide, response), wide, response, onefit.risk.SURE())
    flat = onefit.evaluate(LinearRegression().fit(wide, response), wide, response, onefit.risk.GCV())
    assert flat.value == np.inf
