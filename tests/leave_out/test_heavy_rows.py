"""Rows that weigh ten thousand times what others do, and take nearly all of their fit with them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import ElasticNet, Lasso

import onefit

ALPHA = 0.002


def _table(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(25, 12))
    y = X[:, 1] - X[:, 2] + rng.normal(size=25)
    return X, y, rng.choice([0.01, 100.0], 25)


def _refitted(X, y, weights, i, share, intercept):
    """Left-out prediction of a row: the signs of a refit, and the linear system that they make."""
    keep = np.arange(len(y)) != i
    model = ElasticNet(alpha=ALPHA, l1_ratio=share, fit_intercept=intercept, tol=1e-15, max_iter=10**6)
    signs = np.sign(model.fit(X[keep], y[keep], sample_weight=weights[keep]).coef_)
    on, w = signs != 0, weights[keep] / weights[keep].sum()
    means, level = (w @ X[keep], w @ y[keep]) if intercept else (np.zeros(X.shape[1]), 0.0)
    Z = (X[keep] - means)[:, on]
    K = Z.T @ (w[:, None] * Z) + ALPHA * (1.0 - share) * np.eye(Z.shape[1])
    coef = np.linalg.solve(K, Z.T @ (w * (y[keep] - level)) - ALPHA * share * signs[on])
    return level + (X[i] - means)[on] @ coef


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("seed", [3, 5])
@pytest.mark.parametrize("share", [1.0, 0.7])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("made", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_of_a_lasso(seed, share, intercept, made):
    X, y, weights = _table(seed)
    settings = {"alpha": ALPHA, "fit_intercept": intercept, "tol": 1e-14, "max_iter": 10**6}
    model = Lasso(**settings) if share == 1.0 else ElasticNet(l1_ratio=share, **settings)
    model.fit(X, y, sample_weight=weights)
    found = onefit.loo(model, made(X), y, sample_weight=weights, exact=True)
    expected = [_refitted(X, y, weights, i, share, intercept) for i in range(25)]
    np.testing.assert_allclose(found.predictions, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_of_a_path():
    X, y, weights = _table(5)
    tuned = onefit.LassoLOO(alphas=[ALPHA]).fit(X, y, sample_weight=weights)
    expected = [_refitted(X, y, weights, i, 1.0, True) for i in range(25)]
    np.testing.assert_allclose(tuned.loo_.predictions, expected, rtol=1e-9, atol=1e-9)
