"""Least squares with coefficients that are not below zero, by active sets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import nnls
from sklearn.linear_model import ElasticNet as Reference

from onefit.fit import Fit
from onefit.losses import Squared
from onefit.penalties import L1, L2, Box, ElasticNet
from onefit.problem import Problem
from onefit.solvers import manifold
from onefit.solvers.path import are_nonnegative_squares
from onefit.solvers.solve import solve
from onefit.solvers.stationary import is_stationary

PENALTIES = {"lasso": L1(0.5), "weak": L1(0.01), "ridge": L2(0.5), "net": ElasticNet(0.5, 0.5)}


def _problem(penalty, store=np.asarray, *, intercept=True, p=70):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, p)) * (rng.random((50, p)) < 0.7)
    X[:, 5] = X[:, 2]
    y = X[:, 0] - X[:, 1] + 0.5 * X[:, 2] + rng.normal(size=50)
    weights = rng.uniform(0.0, 2.0, 50)
    return Problem(Squared(), penalty + Box(lower=0.0), store(X), y, weights, np.array(intercept))


@pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES)
@pytest.mark.parametrize(("store", "intercept"), [(np.asarray, True), (sp.csr_array, False)])
@pytest.mark.parametrize("p", [20, 70])
def test_the_optimum_is_reached_from_anywhere(penalty, store, intercept, p):
    problem = _problem(penalty, store, intercept=intercept, p=p)
    assert are_nonnegative_squares(problem)
    cold = solve(Fit.at_start(problem)).fit
    assert is_stationary(cold)
    assert np.all(cold.coef >= 0)
    assert 0 < np.count_nonzero(cold.coef) < p
    others = replace(problem, weights=np.roll(problem.weights, 7))
    warm = solve(replace(cold, problem=others)).fit
    expected = solve(Fit.at_start(others)).fit
    np.testing.assert_allclose(warm.eta, expected.eta, atol=1e-9)
    assert cold.objective <= manifold.approach(Fit.at_start(problem)).fit.objective * (1.0 + 1e-12)


@pytest.mark.parametrize(("alpha", "ratio"), [(0.05, 1.0), (0.01, 0.5)])
def test_it_is_that_of_another_solver(alpha, ratio):
    problem = _problem(ElasticNet(alpha, ratio))
    total = problem.weights.sum()
    reference = Reference(alpha / total, l1_ratio=ratio, positive=True, tol=1e-12, max_iter=10**6)
    reference.fit(problem.X, problem.y, sample_weight=problem.weights)
    found = solve(Fit.at_start(problem)).fit
    expected = reference.predict(problem.X)
    np.testing.assert_allclose(found.eta, expected, atol=1e-5 * np.abs(expected).max())


def _columns(kind, rng, n, p):
    X = rng.normal(size=(n, p))
    if kind == "levels":
        return np.hstack([np.eye(5)[rng.integers(0, 5, n)], X])
    if kind == "copies":
        return np.hstack([X, X[:, ::2]])
    if kind == "units":
        return X * 10.0 ** rng.uniform(-8.0, 8.0, p)
    if kind == "far":
        return X + 1e5
    if kind == "constant":
        return np.hstack([np.zeros((n, 1)), X, np.full((n, 1), 3.0)])
    return rng.normal(size=(n, 3)) @ rng.normal(size=(3, p))


@pytest.mark.parametrize("kind", ["levels", "copies", "units", "far", "constant", "of rank three"])
@pytest.mark.parametrize(("n", "p"), [(40, 12), (20, 40)])
@pytest.mark.parametrize("intercept", [True, False])
def test_without_a_penalty_it_is_that_of_lawson_and_hanson(kind, n, p, intercept):
    """Centred by the weights; with more columns than rows they are interpolated."""
    rng = np.random.default_rng(n + p)
    X, weights = _columns(kind, rng, n, p), rng.integers(1, 4, n).astype(float)
    y = X[:, :3].sum(axis=1) / np.abs(X[:, :3].sum(axis=1)).max() + rng.normal(size=n)
    problem = Problem(Squared(), Box(lower=0.0), X, y, weights, np.array(intercept))
    found = solve(Fit.at_start(problem)).fit
    root = np.sqrt(weights)
    if intercept:
        X, y = X - np.average(X, axis=0, weights=weights), y - np.average(y, weights=weights)
    residual = nnls(root[:, None] * X, root * y, maxiter=10**4)[1]
    assert np.all(found.coef >= 0)
    assert found.objective == pytest.approx(0.5 * residual**2, rel=1e-9, abs=1e-12 * (weights @ y**2))


def test_problems_with_other_bounds_are_none():
    problem = _problem(L1(0.5))
    for penalty in (L1(0.5), L1(0.5) + Box(lower=0.1), L1(0.5) + Box(lower=0.0, upper=1.0)):
        assert not are_nonnegative_squares(replace(problem, penalty=penalty))
