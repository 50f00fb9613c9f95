"""The exact active-set method: optimality, leverages and degenerate designs."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import ElasticNet

from onefit.cholesky import UpdatableCholesky
from onefit.exceptions import NotOptimalWarning
from onefit.losses import Squared
from onefit.penalties import L1
from onefit.problem import Problem
from onefit.solvers.active_set import ActiveSet
from onefit.solvers.path import LeastSquaresPath


def centred(X, weights=None):
    """Columns without their weighted means."""
    weights = np.ones(len(X)) if weights is None else weights
    return X - weights @ X / weights.sum()


def toeplitz(n, p, seed=0, nonzero=8):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    for j in range(1, p):
        X[:, j] = 0.8 * X[:, j - 1] + 0.6 * X[:, j]
    return X, X[:, :nonzero] @ rng.choice([-1.0, 1.0], nonzero) + rng.normal(size=n)


def largest(X, y, weights=None):
    weights = np.ones(len(y)) if weights is None else weights
    return np.abs(X.T @ (weights * (y - np.average(y, weights=weights)))).max()


def path(X, y, ratio=1e-3, size=25, weights=None):
    return np.geomspace(1, ratio, size) * largest(X, y, weights)


def brute_leverages(X, columns, weights, l2, fit_intercept):
    """h_i = z_i' K^-1 z_i, through a QR decomposition of the stacked problem."""
    Z = np.column_stack([X[:, columns], np.ones(len(X))]) if fit_intercept else X[:, columns]
    ridge = np.zeros(Z.shape[1])
    ridge[: len(columns)] = np.broadcast_to(l2, X.shape[1])[columns]
    stacked = np.vstack([np.sqrt(weights)[:, None] * Z, np.diag(np.sqrt(ridge))])
    R = np.linalg.qr(stacked, mode="r")
    return (np.linalg.solve(R.T, Z.T) ** 2).sum(axis=0)


def kkt_violation(solver, X, y, weights, l1, l2):
    """Largest violation of the optimality conditions, relative to the largest correlation."""
    l1, l2 = np.broadcast_to(l1, X.shape[1]), np.broadcast_to(l2, X.shape[1])
    beta = solver.coef
    residual = y - X @ beta - solver.intercept
    gradient = X.T @ (weights * residual) - l2 * beta
    off = np.maximum(np.abs(gradient) - l1, 0)
    on = np.abs(gradient - np.where(np.isinf(l1), 0, l1) * np.sign(beta))
    violation = np.where(beta == 0, off, on)
    return violation.max() / np.abs(X.T @ (weights * y)).max()


PROBLEMS = {
    "plain": {},
    "no intercept": {"fit_intercept": False},
    "weights": {"weights": True},
    "elastic net": {"l2": 0.7},
    "column strengths": {"scaled": True},
    "everything": {"weights": True, "l2": 0.3, "scaled": True, "storage": "csr"},
    "row-major": {"storage": "C"},
    "strided": {"storage": "strided"},
    "csr": {"storage": "csr"},
    "csc matrix": {"storage": "csc"},
}

STORAGES = {
    "F": np.asfortranarray,
    "C": np.ascontiguousarray,
    "strided": lambda X: np.repeat(X, 2, axis=0)[::2],
    "csr": sp.csr_array,
    "csc": sp.csc_matrix,
}


@pytest.mark.parametrize("shape", [(60, 20), (40, 90)])
@pytest.mark.parametrize("name", PROBLEMS)
def test_path_is_optimal_and_leverages_follow(name, shape):
    options = PROBLEMS[name]
    rng = np.random.default_rng(1)
    X, y = toeplitz(*shape)
    X *= rng.random(X.shape) < 0.7
    weights = rng.uniform(0.1, 2, shape[0]) if options.get("weights") else None
    fit_intercept = options.get("fit_intercept", True)
    l2 = options.get("l2", 0.0)
    scale = rng.uniform(0.5, 2, shape[1]) if options.get("scaled") else 1.0
    solver = ActiveSet(STORAGES[options.get("storage", "F")](X), y, weights, fit_intercept=fit_intercept)
    full = np.ones(shape[0]) if weights is None else weights
    for strength in path(X, y, weights=weights):
        l1 = strength * scale
        solver.solve(l1, l2)
        assert solver.relative_gap() < 1e-12
        assert kkt_violation(solver, X, y, full, l1, l2) < 1e-12
        expected = brute_leverages(X, solver.support, full, l2, fit_intercept)
        np.testing.assert_allclose(solver.quadratic_forms(), expected, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(solver.eta, X @ solver.coef + solver.intercept, atol=1e-11)


def test_scikit_learn_agrees():
    X, y = toeplitz(80, 30)
    model = ElasticNet(alpha=0.05, l1_ratio=0.8, tol=1e-12, max_iter=100_000).fit(X, y)
    solver = ActiveSet(X, y)
    solver.solve(80 * 0.05 * 0.8, 80 * 0.05 * 0.2)
    np.testing.assert_allclose(solver.coef, model.coef_, atol=1e-8)
    assert solver.intercept == pytest.approx(model.intercept_, abs=1e-8)


def test_zero_weight_is_a_row_left_out():
    X, y = toeplitz(50, 80)
    weights = np.random.default_rng(0).uniform(0.5, 2, 50)
    weights[:20] = 0
    weighted, reduced = ActiveSet(X, y, weights), ActiveSet(X[20:], y[20:], weights[20:])
    for l1 in path(X[20:], y[20:], weights=weights[20:]):
        weighted.solve(l1)
        reduced.solve(l1)
        np.testing.assert_allclose(weighted.coef, reduced.coef, atol=1e-10)
        np.testing.assert_allclose(weighted.quadratic_forms()[20:], reduced.quadratic_forms(), rtol=1e-8)


def test_weight_two_is_a_row_repeated():
    X, y = toeplitz(40, 15)
    twice, repeated = ActiveSet(X, y, np.full(40, 2.0)), ActiveSet(np.r_[X, X], np.r_[y, y])
    for l1 in path(X, y):
        twice.solve(l1)
        repeated.solve(l1)
        np.testing.assert_allclose(twice.coef, repeated.coef, atol=1e-11)
        np.testing.assert_allclose(twice.quadratic_forms(), repeated.quadratic_forms()[:40])


def test_saturated_path_to_tiny_strengths():
    X, y = toeplitz(50, 150)
    solver = ActiveSet(X, y)
    for l1 in path(X, y, ratio=1e-8, size=50):
        solver.solve(l1)
        assert solver.relative_gap() < 1e-10
        assert solver.support.size <= 49
    np.testing.assert_allclose(solver.eta, y, atol=1e-5)


def test_a_leap_arrives_where_the_path_does():
    X, y = toeplitz(50, 150)
    walked, leapt = ActiveSet(X, y), ActiveSet(X, y)
    for l1 in path(X, y, ratio=1e-5):
        walked.solve(l1)
    leapt.solve(l1)
    assert leapt.relative_gap() < 1e-10
    np.testing.assert_allclose(leapt.coef, walked.coef, atol=1e-10)
    leapt.solve(np.inf)
    assert leapt.support.size == 0
    np.testing.assert_array_equal(leapt.quadratic_forms(), 1 / 50)


def degenerate_designs():
    X, _ = toeplitz(40, 60)
    rng = np.random.default_rng(3)
    yield "duplicates", np.column_stack([X, X, -X])
    yield "near duplicates", np.column_stack([X, X + 1e-6 * rng.normal(size=X.shape)])
    yield "low rank", rng.normal(size=(40, 5)) @ rng.normal(size=(5, 60))
    yield "ties", rng.integers(-1, 2, size=(40, 70)).astype(float)
    yield "dummies", np.column_stack([np.kron(np.eye(8), np.ones((5, 1)))] * 2 + [np.ones(40)])
    yield "far from zero", X + 1e3
    yield "scales", X * 10.0 ** rng.uniform(-3, 3, 60)
    yield "constant columns", np.column_stack([np.zeros(40), X, np.full(40, 7.3)])


DEGENERATE = dict(degenerate_designs())


@pytest.mark.parametrize("varied", [False, True])
@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_design(name, varied):
    X = DEGENERATE[name]
    rng = np.random.default_rng(4)
    y = X @ rng.normal(size=X.shape[1]) / np.linalg.norm(X, axis=0).max() + rng.normal(size=40)
    scale = rng.uniform(0.8, 1.2, X.shape[1]) if varied else np.ones(X.shape[1])
    solver = ActiveSet(X, y)
    for l1 in path(X, y, ratio=1e-4):
        solver.solve(l1 * scale)
        assert solver.relative_gap() < 1e-10
        assert np.linalg.matrix_rank(centred(X[:, solver.support]), tol=1e-12) == solver.support.size
        assert np.isfinite(solver.quadratic_forms()).all()


@pytest.mark.parametrize("distance", [1e-4, 1e-5, 1e-6])
def test_nearly_dependent_columns_join_once_they_pay(distance):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(100, 15))
    X = np.column_stack([X, X + distance * rng.normal(size=X.shape)])
    y = X[:, :15].sum(axis=1) + rng.normal(size=100)
    solver = ActiveSet(X, y)
    for l1 in path(X, y, ratio=1e-7, size=40):
        solver.solve(l1)
        assert solver.relative_gap() < 1e-9
        assert np.isfinite(solver.quadratic_forms()).all()
    assert solver.support.size > 15 or distance < 1e-5


def test_leverages_where_what_joins_or_leaves_is_almost_dependent():
    X, y = toeplitz(60, 12)
    X[:, 1] = X[:, 0] + 1e-3 * X[:, 1]
    solver = ActiveSet(X, y)
    for excluded in ([0, 1], [], [1], [0, 1], [0]):
        l1 = np.full(12, 1e-3)
        l1[excluded] = np.inf
        solver.solve(l1)
        assert solver.support.size == 12 - len(excluded)
        expected = brute_leverages(X, solver.support, np.ones(60), 0, fit_intercept=True)
        np.testing.assert_allclose(solver.quadratic_forms(), expected, rtol=1e-8)


def test_unpenalised_and_excluded_columns():
    X, y = toeplitz(60, 30)
    l1 = np.full(30, 5.0)
    l1[:4], l1[4:8] = 0, np.inf
    solver = ActiveSet(X, y)
    solver.solve(5.0)
    solver.solve(l1)
    assert kkt_violation(solver, X, y, np.ones(60), l1, 0) < 1e-12
    assert set(range(4)) <= set(solver.support)
    assert not solver.coef[4:8].any()
    assert solver.relative_gap() < 1e-12


@pytest.mark.parametrize("shape", [(60, 20), (20, 60), (2, 1), (2, 5)])
def test_no_penalty_at_all(shape):
    X, y = toeplitz(*shape, nonzero=1)
    solver = ActiveSet(X, y)
    solver.solve(0.0)
    assert kkt_violation(solver, X, y, np.ones(shape[0]), 0, 0) < 1e-11
    assert solver.support.size == min(shape[0] - 1, shape[1])


def test_dependent_unpenalised_column_takes_the_place_of_a_penalised_one():
    X, y = toeplitz(60, 5, nonzero=5)
    X = np.column_stack([X, X[:, 0] + 0.5 * X[:, 1]])
    l1 = np.r_[np.ones(5), 0.0]
    solver = ActiveSet(X, y)
    solver.solve(1.0)
    solver.solve(l1)
    assert solver.relative_gap() < 1e-12
    assert kkt_violation(solver, X, y, np.ones(60), l1, 0) < 1e-12
    assert 5 in solver.support


def test_nothing_to_explain():
    X, y = toeplitz(30, 10)
    solver = ActiveSet(np.zeros_like(X), y)
    for l1 in (1.0, 0.0):
        solver.solve(l1)
        assert solver.support.size == 0
        assert solver.intercept == pytest.approx(y.mean())
    constant = ActiveSet(X, np.full(30, 3.0))
    constant.solve(0.1)
    np.testing.assert_array_equal(constant.coef, 0)


def test_ridge_part_may_change_along_the_way():
    X, y = toeplitz(40, 80)
    solver = ActiveSet(X, y)
    for l1, l2 in [(3, 1), (3, 0.1), (1, 0), (1, 1e-10), (0.1, 5), (0.1, 0)]:
        solver.solve(l1, l2)
        assert solver.relative_gap() < 1e-11
        expected = brute_leverages(X, solver.support, np.ones(40), l2, fit_intercept=True)
        np.testing.assert_allclose(solver.quadratic_forms(), expected, rtol=1e-9)


def test_path_there_and_back():
    X, y = toeplitz(60, 40)
    solver, down = ActiveSet(X, y), []
    strengths = path(X, y)
    for l1 in strengths:
        solver.solve(l1)
        down.append(solver.coef)
    for l1, coef in zip(strengths[::-1], down[::-1], strict=True):
        solver.solve(l1)
        np.testing.assert_allclose(solver.coef, coef, atol=1e-11)


def test_gap_is_infinite_where_an_unpenalised_column_is_not_fitted():
    X, y = toeplitz(20, 8)
    assert ActiveSet(X, y).relative_gap() == np.inf


def test_stopping_short_is_said(monkeypatch):
    X, y = toeplitz(20, 8)
    monkeypatch.setattr(ActiveSet, "_enter", lambda *_: None)
    active = ActiveSet(X, y)
    assert not active.solve(0.1)
    with pytest.warns(NotOptimalWarning, match="stopped short of its optimum"):
        active.warn()


def test_newtons_method_goes_on_where_it_stops_short(monkeypatch):
    X, y = toeplitz(20, 8)
    problem = Problem(Squared(), L1(2.0), X, y, np.ones(20))
    optimum = LeastSquaresPath().next(problem).fit
    monkeypatch.setattr(ActiveSet, "_enter", lambda *_: None)
    found = LeastSquaresPath().next(problem).fit
    np.testing.assert_allclose(found.coef, optimum.coef, atol=1e-9)
    assert np.any(optimum.coef)


def test_weights_need_a_positive_sum():
    X, y = toeplitz(10, 3, nonzero=2)
    with pytest.raises(ValueError, match="positive sum"):
        ActiveSet(X, y, np.zeros(10))


def test_factor_serves_other_solves():
    X, y = toeplitz(50, 20)
    solver = ActiveSet(X, y, np.linspace(0.5, 2, 50))
    solver.solve(3.0, 0.5)
    w = np.linspace(0.5, 2, 50)
    A = centred(X[:, solver.support], w)
    K = A.T @ (w[:, None] * A) + 0.5 * np.eye(A.shape[1])
    rhs = np.random.default_rng(0).normal(size=(A.shape[1], 3))
    np.testing.assert_allclose(K @ solver.factor.solve(rhs), rhs, atol=1e-11)
    np.testing.assert_allclose(K @ solver.factor.solve(rhs[:, 0]), rhs[:, 0], atol=1e-11)
    np.testing.assert_allclose(solver.design_times(rhs[:, 0]), A @ rhs[:, 0], atol=1e-12)
    np.testing.assert_allclose(w @ A, 0, atol=1e-12)
    np.testing.assert_array_equal(solver.signs, np.sign(solver.coef[solver.support]))


def test_read_only_design_stays_untouched():
    X, y = toeplitz(30, 10)
    copy = X.copy()
    X.setflags(write=False)
    y.setflags(write=False)
    solver = ActiveSet(X, y)
    solver.solve(1.0)
    solver.quadratic_forms()
    np.testing.assert_array_equal(X, copy)


def test_factor_survives_many_updates():
    rng = np.random.default_rng(6)
    A = rng.normal(size=(80, 40))
    K = A.T @ A
    factor, members = UpdatableCholesky(4), np.empty(0, dtype=int)
    for _ in range(60):
        new = rng.choice(np.setdiff1d(np.arange(40), members), 4, replace=False)
        floor = np.full(4, 1e-8)
        joined = factor.append(K[np.ix_(members, new)], K[np.ix_(new, new)], floor)
        members = np.concatenate([members, new[joined]])
        leaving = np.sort(rng.choice(members.size, rng.integers(0, members.size), replace=False))
        if leaving.size and members.size > 20:
            factor.delete(leaving)
            members = np.delete(members, leaving)
        R = np.triu(factor.upper)
        np.testing.assert_allclose(R.T @ R, K[np.ix_(members, members)], atol=1e-11)
        assert (R.diagonal() > 0).all()


def test_factor_takes_independent_columns_only():
    A = np.random.default_rng(7).normal(size=(30, 5))
    A = np.column_stack([A, A[:, 0] + A[:, 1], A[:, 2]])
    K = A.T @ A
    factor = UpdatableCholesky()
    first, rest = np.arange(2), np.arange(2, 7)
    factor.append(np.empty((0, 2)), K[np.ix_(first, first)], np.full(2, 1e-8))
    joined = factor.append(K[np.ix_(first, rest)], K[np.ix_(rest, rest)], np.full(5, 1e-8))
    members = np.concatenate([first, rest[joined]])
    assert joined.size == 3
    R = np.triu(factor.upper)
    np.testing.assert_allclose(R.T @ R, K[np.ix_(members, members)], atol=1e-11)
