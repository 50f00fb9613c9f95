"""Coordinate descent comes near enough that Newton's method ends in a few steps, at the same optimum."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from sklearn.svm import LinearSVC

from onefit._linalg import as_columns, null_space
from onefit.fit import Fit
from onefit.losses import Gamma, Huber, Logistic, Poisson, Squared, SquaredEpsilonInsensitive, SquaredHinge
from onefit.penalties import L1, ElasticNet
from onefit.problem import Problem
from onefit.solvers import coordinate_descent, newton, path
from onefit.solvers.solve import solve


def drawn(loss, penalty, *, intercept=True, sparse=False, weights=None, n=120, p=200, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * (rng.random((n, p)) < 0.3)
    eta = X[:, :8] @ rng.normal(size=8)
    y = (eta + rng.logistic(size=n) > 0).astype(float)
    if not isinstance(loss, Logistic):
        y = rng.gamma(3.0, np.exp(0.3 * eta) / 3.0) + 0.01
    if isinstance(loss, Poisson):
        y = rng.poisson(np.exp(0.3 * eta)).astype(float)
    weights = np.ones(n) if weights is None else weights
    return Problem(loss, penalty, sp.csr_matrix(X) if sparse else X, y, weights, np.array(intercept))


@pytest.mark.parametrize(
    ("weighted", "intercept", "sparse"), [(False, True, True), (True, True, False), (True, False, True)]
)
@pytest.mark.parametrize("loss", [Logistic(), Poisson(), Gamma()], ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize(
    "penalty",
    [L1(0.3), ElasticNet(0.4, 0.8), L1(np.geomspace(0.2, 2.0, 200))],
    ids=["l1", "elastic net", "one a column"],
)
def test_it_comes_near_the_optimum(loss, penalty, weighted, intercept, sparse):
    weights = np.random.default_rng(1).choice([0.0, 1.0, 2.5], 120) if weighted else None
    problem = drawn(loss, penalty, intercept=intercept, sparse=sparse, weights=weights)
    near = coordinate_descent.approach(Fit.at_start(problem))
    exact = newton.solve(Fit.at_start(problem)).fit
    assert near.objective <= exact.objective * (1 + 1e-4)
    assert_allclose(newton.solve(near).fit.eta, exact.eta, atol=1e-6)


@pytest.fixture
def steps(monkeypatch):
    """Newton steps that were taken, one entry each; there is no quadratic program."""
    taken, step = [], newton.newton_step
    monkeypatch.setattr(newton, "newton_step", lambda fit, *rest: taken.append(fit) or step(fit, *rest))
    monkeypatch.delattr(path.quadratic_program, "solve")
    return taken


def wide(loss, penalty, *, intercept=True, sparse=False, weights=None, n=150, p=300):
    """More columns than rows, and strengths so weak that most rows change pieces on the way."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p))
    y = X[:, :8].sum(axis=1) + 2.0 * rng.logistic(size=n)
    y = (y > 0).astype(float) if loss.of_two_classes else y
    weights = np.ones(n) if weights is None else weights
    return Problem(loss, penalty, sp.csr_matrix(X) if sparse else X, y, weights, np.array(intercept))


@pytest.mark.costly
@pytest.mark.parametrize(
    ("weighted", "intercept", "sparse"), [(False, True, True), (True, True, False), (True, False, True)]
)
@pytest.mark.parametrize(
    "loss", [SquaredHinge(), Huber(), SquaredEpsilonInsensitive()], ids=lambda loss: type(loss).__name__
)
@pytest.mark.parametrize(
    "penalty",
    [L1(1.0), ElasticNet(1.0, 0.9), L1(np.geomspace(0.5, 5.0, 300))],
    ids=["l1", "elastic net", "one a column"],
)
def test_second_derivatives_that_jump(steps, loss, penalty, weighted, intercept, sparse):
    """Few Newton steps, whatever the number of patterns of rows, and minus the gradient is a subgradient."""
    weights = np.random.default_rng(1).choice([0.0, 1.0, 2.5], 150) if weighted else None
    problem = wide(loss, penalty, intercept=intercept, sparse=sparse, weights=weights)
    fit = path.solved(Fit.at_start(problem)).fit
    l1, l2 = problem.separable.strengths(fit.coef.shape)
    pull = problem.X.T @ fit.gradient + l2 * fit.coef
    inside = fit.coef != 0
    assert_allclose(pull[inside], -(l1 * np.sign(fit.coef))[inside], atol=1e-9)
    assert np.all(np.abs(pull[~inside]) <= l1[~inside] + 1e-9)
    assert abs(fit.intercept_gradient) <= 1e-9
    assert len(steps) <= 100


def test_jumps_and_liblinear(steps):
    problem = wide(SquaredHinge(), L1(1.0), intercept=False)
    fit = path.solved(Fit.at_start(problem)).fit
    other = LinearSVC(penalty="l1", dual=False, tol=1e-10, max_iter=100_000, fit_intercept=False)
    other.fit(problem.X, problem.y)
    assert_allclose(fit.coef, other.coef_[0], atol=1e-6)
    assert len(steps) <= 100


def test_it_serves_where_many_columns_enter_and_no_strength_is_missing():
    assert coordinate_descent.applies(Fit.at_start(drawn(Logistic(), L1(0.01), n=800, p=900)))
    assert not coordinate_descent.applies(Fit.at_start(drawn(Logistic(), L1(0.3), n=60, p=8)))
    unpenalised = np.where(np.arange(900) == 0, 0.0, 0.01)
    assert not coordinate_descent.applies(Fit.at_start(drawn(Logistic(), L1(unpenalised), n=800, p=900)))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_copies_leave_k_with_full_rank(sign):
    """One of two copies, or of a column and its opposite, is enough, and Newton's method lets no other in."""
    problem = drawn(Logistic(), L1(0.3))
    X = np.hstack([problem.X, sign * problem.X])
    twice = Problem(problem.loss, problem.penalty, X, problem.y, problem.weights, problem.intercept)
    start = Fit.at_start(problem)
    once = newton.solve(start).fit
    both = np.concatenate([0.3 * once.coef, sign * 0.7 * once.coef])
    settled = coordinate_descent._on_independent_columns(Fit(twice, both, once.intercept))
    assert_allclose(settled.objective, once.objective, rtol=1e-12)
    assert np.count_nonzero(settled.coef) == np.count_nonzero(once.coef)
    found = newton.solve(coordinate_descent.approach(Fit.at_start(twice)))
    assert found.curvature.is_definite
    assert_allclose(found.fit.eta, once.eta, atol=1e-7)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("penalty", [L1(0.3), ElasticNet(0.4, 0.8)], ids=["l1", "elastic net"])
def test_products_of_columns_and_stored_columns_give_the_same_step(penalty, intercept, sparse, monkeypatch):
    weights = np.random.default_rng(2).choice([0.0, 1.0, 2.5], 120)
    problem = drawn(Logistic(), penalty, intercept=intercept, sparse=sparse, weights=weights)
    start, X = Fit.at_start(problem), problem.X.tocsc() if sparse else problem.X
    monkeypatch.setattr(coordinate_descent._WeightedNet, "has_gram", True)
    by_gram = coordinate_descent.model_minimum(start, X, 1e-12, 10_000)
    monkeypatch.setattr(coordinate_descent._WeightedNet, "has_gram", False)
    by_row = coordinate_descent.model_minimum(start, X, 1e-12, 10_000)
    assert np.count_nonzero(by_row.coef) > 5
    assert_allclose(by_gram.coef, by_row.coef, atol=1e-5)
    assert_allclose(by_gram.intercept, by_row.intercept, atol=1e-5)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(("density", "most"), [(1.0, 50), (0.2, 10), (0.06, 3), (0.02, 1)])
@pytest.mark.parametrize("store", [np.asarray, sp.csc_array], ids=["dense", "sparse"])
def test_products_of_columns_are_held_where_a_sweep_over_them_reads_less(density, most, store, intercept):
    """Over k columns a sweep reads k² products, or stored entries, or all rows where it centres columns."""
    X = np.zeros((50, 80))
    X[: int(50 * density)] = 1.0
    most = 50 if store is np.asarray or (intercept and density > 0.08) else most
    for k, held in ((most, True), (most + 1, False)):
        columns = as_columns(store(X[:, :k]))
        net = coordinate_descent._WeightedNet(columns, np.ones(50), np.ones(50), 0.0, intercept)
        assert net.has_gram == held


@pytest.mark.parametrize("store", [sp.csr_array, sp.csc_array])
@pytest.mark.parametrize("has_gram", [False, True])
def test_indices_of_64_bits(store, has_gram, monkeypatch):
    monkeypatch.setattr(coordinate_descent._WeightedNet, "has_gram", has_gram)
    problem = drawn(Logistic(), L1(0.3), sparse=True)
    X = store(problem.X)
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    long = replace(problem, X=X)
    found = coordinate_descent.approach(Fit.at_start(long))
    assert_allclose(found.coef, coordinate_descent.approach(Fit.at_start(problem)).coef, atol=1e-12)
    assert X.indices.dtype == X.indptr.dtype == np.int64  # what users hold stays as it is


def test_a_step_takes_the_columns_that_want_to_enter_the_most():
    """A quarter of the rows from the constant model on, and half of them in all."""
    problem = drawn(Logistic(), L1(0.01))
    start = Fit.at_start(problem)
    pull = np.abs(start.loss_gradient)
    assert np.count_nonzero(pull > 0.01) > 150
    assert set(coordinate_descent._of_step(start)) == set(np.argsort(-pull)[:60])
    full = start.moved(np.where(np.arange(200) < 80, 0.1, 0.0), start.intercept)
    assert len(coordinate_descent._of_step(full)) == 80 + 30


def test_null_space():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(30, 6)) * np.array([1.0, 1e6, 1e-4, 1.0, 1.0, 1.0])
    A = np.column_stack([A, A[:, 0] - 3.0 * A[:, 1], A[:, 2]])
    null = null_space(A.T @ A)
    assert null.shape == (8, 2)
    sizes = np.linalg.norm(A, axis=0)
    assert np.abs(A @ null).max() < 1e-6 * (sizes @ np.abs(null)).max()
    assert np.linalg.matrix_rank(null * sizes[:, None]) == 2
    assert null_space(np.eye(3)).shape == (3, 0)


@pytest.mark.parametrize("ridge", [0.0, 0.3, 1e4])
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_a_column_for_the_intercept_is_as_good_as_centred_ones(unit, ridge):
    """Whatever the unit of the response: columns are in one in which ℓ1 is one."""
    rng = np.random.default_rng(0)
    X = sp.random_array((150, 60), density=0.05, rng=rng, format="csc") + sp.csc_array(np.eye(150, 60))
    d, response = rng.uniform(0.1, 2.0, 150), unit * (5.0 + X @ rng.normal(size=60) + rng.normal(size=150))
    columns = as_columns((X * (3.0 / unit)).tocsc())
    net = coordinate_descent._WeightedNet(columns, d, response, ridge / unit**2, True)
    assert net.way == net.by_border
    start = np.zeros(60)
    found = [way(start, 0.0, 1e-12, 10_000) for way in (net.by_border, net.by_row, net.by_gram)]
    eta = np.array([columns.times(coef) + level for coef, level in found])
    assert np.any(found[0][0])
    assert_allclose(eta, np.broadcast_to(eta[2], eta.shape), atol=1e-4 * np.abs(eta[2]).max())


def test_nearly_full_columns_are_centred():
    """Beside a border, columns of like numbers would take the part of the intercept, little by little."""
    X = sp.csc_matrix(np.random.default_rng(0).random((20, 40)))
    net = coordinate_descent._WeightedNet(as_columns(X), np.ones(20), np.ones(20), 0.0, True)
    assert net.way == net.by_row


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("penalty", [L1(1.0), L1(1e-4), ElasticNet(1.0, 0.5), ElasticNet(1e-4, 0.5)])
def test_the_duality_gap_of_least_squares_holds_what_is_left_to_fall(penalty, intercept):
    weights = np.random.default_rng(1).choice([0.5, 1.0, 2.5], 120)
    problem = drawn(Squared(), penalty, intercept=intercept, sparse=True, weights=weights)
    optimum = solve(Fit.at_start(problem)).fit
    rng = np.random.default_rng(0)
    for size in (1.0, 1e-2, 1e-4):
        coef = optimum.coef * (1.0 + size * rng.normal(size=200))
        fit = Fit(problem, coef, optimum.intercept)
        best = fit.moved(coef, fit.intercept - fit.intercept_gradient / weights.sum())
        assert coordinate_descent.gap(fit) >= (best.objective - optimum.objective) * (1.0 - 1e-6)
    assert coordinate_descent.gap(optimum) <= 1e-8 * Fit.at_start(problem).objective
