"""exact=True against refits of scikit-learn, row by row."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_diabetes, load_wine
from sklearn.linear_model import (
    ElasticNet,
    HuberRegressor,
    Lasso,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    RidgeClassifier,
)
from sklearn.preprocessing import PolynomialFeatures, scale

import onefit

TIGHT = {"tol": 1e-12, "max_iter": 1_000_000}


def _sparse_truth(n=60, p=90, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) + 0.8 * rng.normal(size=(n, 1))
    return X, X[:, :4] @ rng.normal(size=4) + rng.normal(size=n)


def _labels(X, share=0.4, seed=1):
    rng = np.random.default_rng(seed)
    score = X[:, :3].sum(axis=1) + rng.logistic(size=len(X))
    return (score > np.quantile(score, 1 - share)).astype(int)


def _agrees(model, X, y, refits, method="predict", weights=None, tol=1e-6):
    fit = {} if weights is None else {"sample_weight": weights}
    model.fit(X, y, **fit)
    est = onefit.loo(model, X, y, exact=True, **fit)
    expected = refits(model, X, y, method, sample_weight=weights)
    unit = np.std(y) if method == "predict" else 1.0
    np.testing.assert_allclose(est.predictions, expected, atol=tol * unit)
    counts = est.refinement
    assert counts.certified + counts.pivoted + counts.stepped + counts.refitted == len(est.losses)
    assert est.certified.all()
    assert est.flagged.size == 0
    return est


@pytest.mark.parametrize("ratio", [1.0, 0.6])
@pytest.mark.parametrize("strength", [0.3, 0.02], ids=["sparse fit", "dense fit"])
def test_least_squares_with_an_l1_part(ratio, strength, weigh, fit_intercept, refits):
    X, y = _sparse_truth(n=40, p=50)
    model = ElasticNet(strength, l1_ratio=ratio, fit_intercept=fit_intercept, **TIGHT)
    est = _agrees(model, X, y, refits, weights=weigh(40))
    found = est.refinement
    assert found.pivoted + found.stepped + found.refitted > 0  # some change the pattern as they leave


def test_lasso_with_many_interactions(refits):
    X, y = load_diabetes(return_X_y=True)
    X = scale(PolynomialFeatures(2, include_bias=False).fit_transform(X))[:120]
    _agrees(Lasso(0.8, **TIGHT), X, y[:120], refits)


@pytest.mark.parametrize("share", [0.5, 0.1], ids=["sparse fit", "dense fit"])
def test_colon_tumour(share, data_folder):
    data = np.load(data_folder / "colon_tumour.npz")
    X, y = scale(data["X"].astype(float)), data["y"].astype(float)
    strongest = np.abs(X.T @ (y - y.mean())).max() / len(y)
    model = Lasso(share * strongest, **TIGHT).fit(X, y)
    est = onefit.loo(model, X, y, exact=True)
    for i in range(0, 62, 9):
        kept = np.arange(62) != i
        refit = Lasso(share * strongest, **TIGHT).fit(X[kept], y[kept])
        np.testing.assert_allclose(est.predictions[i], refit.predict(X[[i]])[0], atol=1e-6)


def test_a_support_with_copies(refits):
    X, y = _sparse_truth(n=40, p=20)
    X = np.column_stack([X, X[:, 0], -X[:, 1]])
    model = Lasso(0.1, **TIGHT)
    model.fit(X, y)
    model.coef_[20] = model.coef_[0] = (model.coef_[20] + model.coef_[0]) / 2  # as good a solution
    est = onefit.loo(model, X, y, exact=True)
    np.testing.assert_allclose(est.predictions, refits(model, X, y), atol=1e-6)
    found = est.refinement
    assert found.pivoted + found.stepped + found.refitted > 0


def test_sparse_columns(refits):
    X, y = _sparse_truth()
    X[np.abs(X) < 0.8] = 0.0
    _agrees(Lasso(0.1, **TIGHT), sp.csr_array(X), y, refits)


@pytest.mark.parametrize(("ratio", "solver"), [(0.0, "newton-cholesky"), (1.0, "saga"), (0.5, "saga")])
def test_logistic(ratio, solver, refits):
    X, _ = _sparse_truth(n=50, p=6)
    model = LogisticRegression(C=2.0, l1_ratio=ratio, solver=solver, tol=1e-10, max_iter=100_000)
    _agrees(model, X, _labels(X), refits, "predict_proba")


def test_few_positives_and_a_weak_penalty(refits):
    X, _ = _sparse_truth(n=100, p=5, seed=3)
    model = LogisticRegression(C=10.0, solver="newton-cholesky", tol=1e-12)
    _agrees(model, X, _labels(X, 0.05), refits, "predict_proba")


def test_balanced_classes(refits):
    X, _ = _sparse_truth(n=60, p=4)
    y = _labels(X, 0.2)
    logistic = LogisticRegression(class_weight="balanced", solver="newton-cholesky", tol=1e-12)
    _agrees(logistic, X, y, refits, "predict_proba")
    _agrees(RidgeClassifier(2.0, class_weight="balanced"), X, y, refits, "decision_function")


def test_several_classes(refits):
    X, y = load_wine(return_X_y=True)
    X, y = scale(X)[::3], y[::3]
    _agrees(LogisticRegression(tol=1e-10, max_iter=10_000), X, y, refits, "predict_proba")


def test_counts_with_weights(refits, weigh):
    X, _ = _sparse_truth(n=50, p=5)
    y = np.random.default_rng(2).poisson(np.exp(0.3 * X[:, 0]))
    model = PoissonRegressor(alpha=0.1, solver="newton-cholesky", tol=1e-12, max_iter=1000)
    _agrees(model, X, y.astype(float), refits, weights=weigh(50), tol=1e-5)


def test_huber(refits):
    X, y = _sparse_truth(n=50, p=4)
    y[::9] += 20.0
    _agrees(HuberRegressor(alpha=1.0, tol=1e-9, max_iter=10_000), X, y, refits, tol=2e-4)


def test_ridge_needs_nothing(refits):
    X, y = _sparse_truth()
    est = _agrees(Ridge(2.0), X, y, refits, tol=1e-9)
    assert est.refinement.certified == 60


def test_coefficients_of_every_refit():
    X, y = _sparse_truth(n=40, p=60)
    model = Lasso(0.1, **TIGHT).fit(X, y)
    est = onefit.loo(model, X, y, exact=True)
    coef, level = est.coef(), est.intercept()
    for i in range(0, 40, 7):
        kept = np.arange(40) != i
        refit = Lasso(0.1, **TIGHT).fit(X[kept], y[kept])
        np.testing.assert_allclose(coef[i], refit.coef_, atol=1e-6)
        np.testing.assert_allclose(level[i], refit.intercept_, atol=1e-6)
    np.testing.assert_allclose(np.sum(coef * X, axis=1) + level, est.predictions, atol=1e-9)


def test_refits_in_parallel_are_the_same():
    from joblib import parallel_config

    from onefit.leave_out.refit import refit_sets
    from onefit.readers import read

    X, _ = _sparse_truth(n=30, p=4)
    y = _labels(X)
    fit = read(LogisticRegression(tol=1e-10).fit(X, y), X, y).fit
    rows, seen = {k: np.array([k]) for k in (3, 8, 1)}, []
    alone = refit_sets(fit, rows, rows, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]
    with parallel_config(backend="threading", n_jobs=2):
        together = refit_sets(fit, rows, rows)
    assert list(together) == list(alone) == [3, 8, 1]
    np.testing.assert_allclose([one.eta for one in together.values()], [one.eta for one in alone.values()])


def test_what_has_no_refit_keeps_the_approximation_and_is_said():
    X = np.array([[-2.0], [-1.0], [0.5], [-0.5], [1.0], [2.0]])
    y = np.array([0, 0, 0, 1, 1, 1])  # without row 2 or row 3 the classes are separable
    model = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(X, y)
    with pytest.warns(onefit.UnreliableWarning):
        est = onefit.loo(model, X, y, exact=True)
    assert est.refinement.failed == 2
    assert {2, 3} <= set(est.flagged)
    assert "no solution" in str(est)


def test_a_row_that_has_the_only_count_is_said_to_need_others_like_it():
    X, y = np.random.default_rng(0).normal(size=(30, 4)), 5.0 * np.eye(30)[0]
    model = PoissonRegressor(alpha=0.1).fit(X, y)
    with pytest.warns(onefit.UnreliableWarning, match=r"row 0\): no solution .* more rows like them"):
        est = onefit.loo(model, X, y)
    assert est.refinement.failed == 1


def test_nothing_is_solved_where_a_row_is_alone_in_its_class(monkeypatch):
    from onefit.fit import Fit
    from onefit.leave_out import refit
    from onefit.losses import Logistic, Multinomial
    from onefit.penalties import L2
    from onefit.problem import Problem
    from onefit.solvers.solve import solve

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 3)), np.arange(30) % 2
    alone = np.arange(30) == 4
    for loss, labels in ((Multinomial(3), np.where(alone, 2, y)), (Logistic(), alone)):
        intercept = np.ones(3, dtype=bool) if labels.max() > 1 else np.array(True)
        fit = solve(Fit.at_start(Problem(loss, L2(1.0), X, labels.astype(float), np.ones(30), intercept))).fit
        rows = {k: np.array([k]) for k in (3, 4)}
        assert list(refit.refit_sets(fit, rows, rows)) == [3]
        with monkeypatch.context() as patch:
            patch.setattr(refit, "solve", None)
            patch.setattr(refit.batched, "solve_without", None)
            assert not refit.refit_sets(fit, {4: rows[4]}, {4: rows[4]})
