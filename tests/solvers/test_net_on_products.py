"""Coordinate descent over products of columns that join step by step, beside exact solvers."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose

from onefit.fit import Fit
from onefit.losses import Squared
from onefit.penalties import L1, ElasticNet
from onefit.problem import Problem
from onefit.solvers import coordinate_descent
from onefit.solvers.coordinate_descent import levelled, nearer
from onefit.solvers.net_on_products import NetOnProducts
from onefit.solvers.solve import solve

PENALTIES = [L1(20.0), ElasticNet(30.0, 0.6), L1(np.linspace(10.0, 40.0, 90))]


def _problem(penalty, *, intercept=True, store=np.asarray, n=60, p=90):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p)) + 3.0
    y = X[:, :6].sum(axis=1) + rng.normal(size=n)
    weights = rng.choice([0.0, 0.5, 1.0, 2.5], n)
    return Problem(Squared(), penalty, store(X), y, weights, np.array(intercept))


@pytest.mark.parametrize("penalty", PENALTIES, ids=["l1", "elastic net", "l1 by column"])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("store", [np.asarray, np.asfortranarray, np.float32, sp.csr_array])
def test_columns_that_join_in_parts_end_at_the_optimum(penalty, intercept, store):
    problem = _problem(penalty, intercept=intercept, store=store)
    optimum = solve(Fit.at_start(problem)).fit
    assert 5 < np.count_nonzero(optimum.coef) < 60
    net, fit = NetOnProducts(problem), Fit.at_start(problem)
    for which in (np.arange(40, 60), np.arange(20, 50), np.arange(90)):
        net.join(which)
        fit = net.minimum(fit, 1e-14, 100_000)
    assert sorted(net.columns) == list(range(90))
    assert_allclose(fit.coef, optimum.coef, atol=1e-5)
    assert_allclose(fit.intercept, optimum.intercept, atol=1e-4)
    assert_allclose(fit.eta, problem.linear_predictor(fit.coef, fit.intercept), rtol=1e-10)


@pytest.mark.parametrize("penalty", PENALTIES, ids=["l1", "elastic net", "l1 by column"])
@pytest.mark.parametrize("intercept", [True, False])
def test_steps_on_products_come_ever_nearer(penalty, intercept, monkeypatch):
    problem = _problem(penalty, intercept=intercept)
    optimum = solve(Fit.at_start(problem)).fit
    monkeypatch.setattr(coordinate_descent, "model_minimum", None)  # nothing is left to it
    steps = [fit for _, fit in nearer(Fit.at_start(problem), 1e-12)]
    excess = np.array([fit.objective - optimum.objective for fit in steps]) / optimum.objective
    assert excess[0] > 1e-9
    assert np.abs(excess[-1]) <= 1e-11
    assert np.all(excess[1:] <= excess[:-1] + 1e-11)


def test_no_column_wants_in():
    problem = _problem(L1(1e5))
    fit = NetOnProducts(problem).minimum(Fit.at_start(problem), 1e-6, 100)
    assert not fit.coef.any()
    assert fit.intercept == pytest.approx(np.average(problem.y, weights=problem.weights))


@pytest.mark.parametrize("intercept", [True, False])
def test_the_best_intercept_beside_coefficients(intercept):
    problem = _problem(PENALTIES[1], intercept=intercept)
    rng = np.random.default_rng(1)
    fit = Fit(problem, rng.normal(size=90), np.asarray(2.0 * intercept))
    found = levelled(fit)
    np.testing.assert_array_equal(found.coef, fit.coef)
    assert_allclose(found.eta, problem.linear_predictor(found.coef, found.intercept), rtol=1e-10)
    for change in (-0.1, 0.1) if intercept else ():
        assert found.objective < found.moved(found.coef, found.intercept + change).objective
    if not intercept:
        assert found.intercept == 0.0
