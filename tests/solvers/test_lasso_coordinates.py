"""The generalised lasso as a lasso: the same objective, the same solution, the same curvature."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import clarabel_route
from builders import without
from onefit.curvature import Along, Direction, factor
from onefit.fit import Fit
from onefit.losses import Huber, Logistic, Poisson, Squared
from onefit.penalties import L1, L2, FusedLasso, GeneralizedLasso, Slope, TrendFilter
from onefit.problem import Problem
from onefit.solvers.lasso_coordinates import LassoCoordinates, WithRidgeRows
from onefit.solvers.solve import solve, solve_path

N, P = 50, 10
TREE = [(0, 3), (3, 1), (5, 3), (2, 6), (6, 7)]
SOME_ROWS = np.random.default_rng(3).normal(size=(6, P))
SQUARE = np.eye(P) - 0.7 * np.eye(P, k=1)
PENALTIES = {
    "chain": FusedLasso(2.0),
    "tree": FusedLasso(2.0, edges=TREE),
    "lines": TrendFilter(1, 2.0),
    "parabolas": TrendFilter(2, 2.0),
    "some rows": GeneralizedLasso(SOME_ROWS, 1.0),
    "as many rows as columns": GeneralizedLasso(SQUARE, 2.0),
    "ridge and chain": L2(0.7) + FusedLasso(2.0),
    "ridge a feature and some rows": L2(np.linspace(0.0, 2.0, P)) + GeneralizedLasso(SOME_ROWS, 1.0),
}
LOSSES = {"squared": Squared(), "logistic": Logistic(), "poisson": Poisson()}
every = pytest.mark.parametrize("name", PENALTIES)


def _problem(loss, penalty, weighted=False, fit_intercept=True, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, P)) + 0.2
    eta = X @ np.repeat([1.0, -0.5], P // 2)
    if isinstance(loss, Logistic):
        y = (eta + rng.logistic(size=N) > 0).astype(float)
    elif isinstance(loss, Poisson):
        y = rng.poisson(np.exp(0.3 * eta)).astype(float)
    else:
        y = eta + rng.normal(size=N)
    weights = np.ones(N)
    if weighted:
        weights = rng.uniform(0.2, 2.0, N)
        weights[::7] = 0.0
    return Problem(loss, penalty, X, y, weights, np.array(fit_intercept))


@every
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
def test_the_objective_is_the_same_everywhere(name, loss, fit_intercept):
    problem = _problem(loss, PENALTIES[name], weighted=True, fit_intercept=fit_intercept)
    coordinates, rng = LassoCoordinates.of(problem), np.random.default_rng(1)
    for coef in (np.zeros(P), rng.normal(size=P), np.repeat([0.4, 0.0], P // 2)):
        fit = Fit(problem, coef, np.asarray(0.3 * fit_intercept))
        there = coordinates.restate(fit)
        np.testing.assert_allclose(there.objective, fit.objective, rtol=1e-12)
        back = coordinates.fit(problem, there)
        np.testing.assert_allclose(back.coef, coef, atol=1e-12)
        np.testing.assert_allclose(back.intercept, fit.intercept, atol=1e-15)
        np.testing.assert_allclose(back.eta, fit.eta, atol=1e-12)


@every
def test_steps_of_the_coefficients_are_the_coordinates(name):
    problem = _problem(Squared(), PENALTIES[name])
    coordinates = LassoCoordinates.of(problem)
    kinked = problem.penalty.without_ridge()
    coef = np.repeat([0.4, 0.0], P // 2)
    theta = coordinates.restate(Fit(problem, coef, np.asarray(0.0))).coef
    m = kinked.matrix(P).shape[0]
    np.testing.assert_allclose(theta[:m], kinked.matrix(P) @ coef, atol=1e-14)
    np.testing.assert_array_equal(theta[:m] == 0, kinked.signs(coef) == 0)
    l1 = coordinates.restated(problem).penalty.strengths(theta.shape)[0]
    np.testing.assert_array_equal(l1, np.where(np.arange(theta.size) < m, kinked.alpha, 0.0))


@every
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
@pytest.mark.parametrize(
    ("weighted", "fit_intercept"), [(False, True), (True, False)], ids=["intercept", "weighted"]
)
def test_optimal(name, loss, weighted, fit_intercept):
    fit = solve(Fit.at_start(_problem(loss, PENALTIES[name], weighted, fit_intercept))).fit
    clarabel_route.check(fit)


@every
@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=repr)
def test_the_curvature_is_that_of_the_coefficients(name, loss):
    solution = solve(Fit.at_start(_problem(loss, PENALTIES[name], weighted=True)))
    ours, own = solution.curvature, factor(solution.fit)
    if "ridge" not in name:
        assert isinstance(ours, Along)
    np.testing.assert_allclose(ours.quadratic_forms(), own.quadratic_forms(), rtol=1e-8)
    np.testing.assert_allclose(ours.hat_matrix(), own.hat_matrix(), atol=1e-9)
    gradient = Direction(np.random.default_rng(2).normal(size=P), np.asarray(0.7))
    for one, other in zip(ours.solve(gradient), own.solve(gradient), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-8)
    new = np.random.default_rng(3).normal(size=(4, P))
    np.testing.assert_allclose(ours.cross(new), own.cross(new), atol=1e-9)


@every
@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=repr)
def test_a_path_visits_the_solutions(name, loss):
    problems = [
        _problem(loss, PENALTIES[name].scaled(factor), weighted=True) for factor in (10.0, 2.0, 0.5, 0.1)
    ]
    for problem, solution in zip(problems, solve_path(problems), strict=True):
        alone = solve(Fit.at_start(problem)).fit
        np.testing.assert_allclose(solution.fit.coef, alone.coef, atol=1e-7)
        np.testing.assert_allclose(
            solution.curvature.quadratic_forms(), factor(alone).quadratic_forms(), rtol=1e-6
        )


@every
def test_refits_start_from_the_fit(name):
    fit = solve(Fit.at_start(_problem(Logistic(), PENALTIES[name]))).fit
    for i in (0, 20):
        warm, cold = without(fit, i), without(fit, i, warm=False)
        np.testing.assert_allclose(warm.coef, cold.coef, atol=1e-8)
        np.testing.assert_allclose(warm.intercept, cold.intercept, atol=1e-8)


@every
@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=repr)
def test_sparse_columns(name, loss):
    problem = _problem(loss, PENALTIES[name], weighted=True)
    X = np.where(np.abs(problem.X) < 0.6, 0.0, problem.X)
    dense = solve(Fit.at_start(replace(problem, X=X))).fit
    for store in (sp.csr_array, sp.csc_matrix):
        sparse = solve(Fit.at_start(replace(problem, X=store(X)))).fit
        np.testing.assert_allclose(sparse.coef, dense.coef, atol=1e-9)


@every
def test_degenerate_data(name):
    """Copies of rows and columns, and a constant response."""
    problem = _problem(Squared(), PENALTIES[name])
    X = np.vstack([problem.X, problem.X[:20]])
    X[:, 4] = X[:, 3]
    copied = replace(problem, X=X, y=np.append(problem.y, problem.y[:20]), weights=np.ones(N + 20))
    clarabel_route.check(solve(Fit.at_start(copied)).fit)
    flat = solve(Fit.at_start(replace(problem, y=np.full(N, 3.0)))).fit
    np.testing.assert_allclose(flat.coef, 0.0, atol=1e-12)
    np.testing.assert_allclose(flat.intercept, 3.0)


@pytest.mark.parametrize("name", [name for name in PENALTIES if "ridge" not in name])
def test_strong_penalties_leave_the_null_space(name):
    penalty = PENALTIES[name].scaled(1e4)
    fit = solve(Fit.at_start(_problem(Squared(), penalty, weighted=True))).fit
    D = penalty.matrix(P).toarray()
    np.testing.assert_allclose(D @ fit.coef, 0.0, atol=1e-11)
    assert fit.tangent.size == P - len(D)
    null = np.linalg.svd(D)[2][len(D) :].T
    plain = solve(Fit.at_start(_problem(Squared(), L2(0.0), weighted=True))).fit.problem
    free = solve(Fit.at_start(replace(plain, X=plain.X @ null))).fit if null.size else None
    if free is not None:
        np.testing.assert_allclose(fit.eta, free.eta, atol=1e-8)


def test_who_has_lasso_coordinates():
    ring = FusedLasso(1.0, edges=[(0, 1), (1, 2), (2, 0)])
    for penalty in (ring, Slope(np.ones(P)), L1(1.0), L2(1.0), L2(1.0) + Slope(np.ones(P))):
        assert LassoCoordinates.of(_problem(Squared(), penalty)) is None
    assert LassoCoordinates.of(_problem(Squared(), L2(1.0) + FusedLasso(1.0))).is_stacked
    assert not LassoCoordinates.of(_problem(Squared(), FusedLasso(1.0))).is_stacked


@pytest.mark.parametrize("loss", [Squared(), Logistic(), Poisson(), Huber()], ids=repr)
def test_ridge_rows_are_a_quadratic_loss(loss):
    y, rng = np.array([1.0, 0.0, 1.0, 0.0, 0.0]), np.random.default_rng(0)
    joined, eta = WithRidgeRows(loss, 3), rng.normal(size=5)
    assert joined.pieces is loss.pieces
    for what in ("value", "gradient", "hessian", "third"):
        values = getattr(joined, what)(y, eta)
        np.testing.assert_array_equal(values[:3], getattr(loss, what)(y[:3], eta[:3]))
        np.testing.assert_array_equal(values[3:], getattr(Squared(), what)(y[3:], eta[3:]))
    step = 1e-6
    slope = (joined.value(y, eta + step) - joined.value(y, eta - step)) / (2 * step)
    np.testing.assert_allclose(joined.gradient(y, eta), slope, atol=1e-8)
