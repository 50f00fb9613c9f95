"""Draws that do not know where rows are in a table: of the same rows in another order they are the same."""

import numpy as np
import pytest
import scipy.sparse as sp

import onefit
from onefit._linalg import RowGram
from onefit.fit import Fit
from onefit.leave_out.row_order import random_order
from onefit.losses import Squared
from onefit.penalties import L2, GroupLasso
from onefit.problem import Problem

N, P = 60, 5


def fit_of(X, y, weights):
    return Fit.at_start(Problem(Squared(), L2(1.0), X, y, weights))


@pytest.mark.parametrize("store", [np.asarray, np.asfortranarray, sp.csr_array, sp.csc_array])
@pytest.mark.parametrize("units", [1.0, 1e6])
def test_rows_are_the_same_wherever_they_are(store, units):
    rng = np.random.default_rng(0)
    X, y, weights = rng.normal(size=(N, P)) * (rng.random((N, P)) < 0.5), rng.normal(size=N), np.ones(N)
    expected = random_order(fit_of(X, y, weights))
    moved = rng.permutation(N)
    found = random_order(fit_of(store(units * X[moved]), units * y[moved], weights))
    assert sorted(found) == list(range(N))
    held = np.flatnonzero(np.any(X, axis=1))  # empty rows come by their response, as any that are alike do
    assert [row for row in moved[found] if row in held] == [row for row in expected if row in held]
    assert not np.array_equal(expected, np.sort(expected))


def test_rows_of_few_values_come_by_response_and_weight():
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 2, size=(N, 2)) * 1.0, rng.integers(0, 3, size=N) * 1.0
    weights, moved = rng.integers(1, 3, size=N) * 1.0, rng.permutation(N)
    table = np.column_stack([X, y, weights])
    one = random_order(fit_of(X, y, weights))
    other = random_order(fit_of(X[moved], y[moved], weights[moved]))
    np.testing.assert_array_equal(table[one], table[moved][other])


def test_rows_of_a_kernel():
    rng = np.random.default_rng(0)
    X, y, moved = rng.normal(size=(N, P)), rng.normal(size=N), rng.permutation(N)
    one = random_order(fit_of(RowGram(X @ X.T), y, np.ones(N)))
    other = random_order(fit_of(RowGram(X[moved] @ X[moved].T), y[moved], np.ones(N)))
    np.testing.assert_array_equal(moved[other], one)


GROUPS = GroupLasso([0, 0, 1, 1, 2, 2])
STRENGTHS = np.geomspace(10.0, 0.1, 6)
MODELS = {
    "lasso": (onefit.LassoLOO(), 150, 300),
    "elastic net": (onefit.ElasticNetLOO(), 80, 100),
    "l1 classes": (onefit.LogisticLOO(l1_ratio=1.0), 80, 100),
    "groups of quantiles": (onefit.GeneralizedLinearLOO("quantile", GROUPS, alphas=STRENGTHS), 100, 6),
}


@pytest.mark.costly
@pytest.mark.parametrize("name", MODELS)
def test_the_choice_does_not_know_the_order_of_the_rows(name):
    model, n, p = MODELS[name]
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p))
    y = X[:, 0] - X[:, 1] + rng.normal(size=n)
    y = (y > 0).astype(int) if name == "l1 classes" else y
    chosen = []
    for seed in range(3):
        moved = np.random.default_rng(seed).permutation(n)
        fitted = model.fit(X[moved], y[moved])
        chosen.append([fitted.loo_.value, *np.ravel(fitted.coef_)])
    np.testing.assert_allclose(chosen, np.tile(chosen[0], (3, 1)), rtol=1e-4, atol=1e-5)
