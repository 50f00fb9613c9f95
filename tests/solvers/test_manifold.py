"""Newton steps on the active manifold: optimality, Clarabel's objective, and degenerate data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import nnls

import clarabel_route
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.losses import Huber, Logistic, Poisson, SmoothedHinge, Squared, SquaredHinge
from onefit.penalties import (
    L2,
    Box,
    FusedLasso,
    GroupLasso,
    NuclearNorm,
    Slope,
    SparseGroupLasso,
)
from onefit.problem import Problem
from onefit.solvers import manifold
from onefit.solvers.null_model import null_strength
from onefit.solvers.solve import solve

N, P = 60, 12
GROUPS = np.repeat(np.arange(4), 3)
LOSSES = {"squared": Squared(), "logistic": Logistic(), "poisson": Poisson(), "squared hinge": SquaredHinge()}
PENALTIES = {
    "group": GroupLasso(GROUPS, 2.0),
    "group, one free": GroupLasso(GROUPS, 2.0, weights=[1.0, 0.0, 2.0, 1.0]),
    "sparse group": SparseGroupLasso(GROUPS, 3.0, 0.5),
    "slope": Slope(np.linspace(2.0, 0.5, P), 1.5),
    "nuclear": NuclearNorm((3, 4), 4.0),
    "box": Box(-0.2, np.linspace(0.1, 0.6, P)),
    "half-line": Box(lower=0.0),
    "chain": FusedLasso(2.0),
    "ridge and group": L2(0.5) + GroupLasso(GROUPS, 2.0),
    "ridge and nuclear": L2(0.5) + NuclearNorm((3, 4), 3.0),
    "ridge a feature and box": L2(np.linspace(0.0, 2.0, P)) + Box(-0.2, 0.4),
}
every = pytest.mark.parametrize("name", PENALTIES)
SHRINKING = [
    name for name in PENALTIES if "box" not in name and name not in ("half-line", "chain", "group, one free")
]


def _problem(loss, penalty, weighted=False, fit_intercept=True, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, P)) + 0.2
    eta = X @ np.repeat([1.0, 0.0, -0.5, 0.0], 3)
    if isinstance(loss, Logistic | SquaredHinge):
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


def _solve(problem):
    return manifold.solve(Fit.at_start(problem)).fit


def _same(one, other, tol=1e-7):
    size = np.abs(one.coef).max(initial=1e-3)
    np.testing.assert_allclose(other.coef, one.coef, atol=tol * size)
    np.testing.assert_allclose(other.intercept, one.intercept, atol=tol * (1 + abs(float(one.intercept))))


@every
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    ("weighted", "fit_intercept"), [(False, True), (True, False)], ids=["intercept", "weighted"]
)
def test_optimal(name, loss, weighted, fit_intercept):
    fit = _solve(_problem(LOSSES[loss], PENALTIES[name], weighted, fit_intercept))
    clarabel_route.check(fit)


@every
def test_a_jumping_curvature(name):
    """Huber's second derivative jumps: a proximal step must then be short enough by itself."""
    fit = _solve(_problem(Huber(0.7), PENALTIES[name]))
    assert fit.problem.penalty.is_stationary(fit.coef[:, None], fit.loss_gradient[:, None]).all()
    np.testing.assert_allclose(fit.gradient.sum(), 0.0, atol=1e-8)


@every
def test_sparse_columns(name):
    problem = _problem(Logistic(), PENALTIES[name], weighted=True)
    X = np.where(np.abs(problem.X) < 0.6, 0.0, problem.X)
    dense = _solve(replace(problem, X=X))
    for store in (sp.csr_array, sp.csc_matrix):
        _same(dense, _solve(replace(problem, X=store(X))))


@every
def test_the_curvature_that_comes_with_it_is_that_of_the_fit(name):
    from onefit.curvature import factor

    solution = manifold.solve(Fit.at_start(_problem(Logistic(), PENALTIES[name])))
    np.testing.assert_allclose(
        solution.curvature.quadratic_forms(), factor(solution.fit).quadratic_forms(), rtol=1e-12
    )


@every
def test_a_warm_start_leads_to_the_same(name):
    problem = _problem(Logistic(), PENALTIES[name])
    cold, rng = _solve(problem), np.random.default_rng(5)
    other = _solve(replace(problem, penalty=PENALTIES[name].scaled(0.3)))
    for start in (cold.coef, other.coef, 0.3 * rng.normal(size=P)):
        coef = problem.penalty.prox(start, 1e-12)
        _same(cold, manifold.solve(Fit(problem, coef, other.intercept)).fit)


@every
def test_a_row_without_weight_is_not_there(name):
    problem = _problem(Logistic(), PENALTIES[name], weighted=True)
    there = problem.weights > 0
    few = replace(problem, X=problem.X[there], y=problem.y[there], weights=problem.weights[there])
    _same(_solve(problem), _solve(few))


@every
def test_weights_are_repeated_rows(name):
    problem = _problem(Squared(), PENALTIES[name])
    times = np.arange(N) % 3
    rows = np.repeat(np.arange(N), times)
    copies = replace(problem, X=problem.X[rows], y=problem.y[rows], weights=np.ones(len(rows)))
    _same(_solve(replace(problem, weights=times.astype(float))), _solve(copies))


@every
def test_copies_of_columns(name):
    """The predictions are still unique, the coefficients perhaps not."""
    problem = _problem(Squared(), PENALTIES[name])
    X = problem.X.copy()
    X[:, 1], X[:, 10] = X[:, 0], -X[:, 4]
    fit = _solve(replace(problem, X=X))
    clarabel_route.check(fit)


@every
def test_a_constant_response(name):
    problem = _problem(Squared(), PENALTIES[name])
    fit = _solve(replace(problem, y=np.full(N, 3.0)))
    np.testing.assert_allclose(
        fit.coef, np.clip(0.0, *PENALTIES[name].bounds((P,))) if name == "box" else 0.0, atol=1e-10
    )
    np.testing.assert_allclose(fit.intercept, 3.0, rtol=1e-10)


@pytest.mark.parametrize(
    "name", [name for name in PENALTIES if name not in ("half-line", "group, one free", "chain")]
)
def test_a_rare_class(name):
    problem = _problem(Logistic(), PENALTIES[name])
    y = np.zeros(N)
    y[[4, 17]] = 1.0
    clarabel_route.check(_solve(replace(problem, y=y)))


@pytest.mark.parametrize("name", SHRINKING)
@pytest.mark.parametrize("loss", LOSSES)
def test_strong_penalties_leave_nothing(name, loss):
    problem = _problem(LOSSES[loss], PENALTIES[name], weighted=True)
    strength = null_strength(problem)
    strong = _solve(replace(problem, penalty=problem.penalty.scaled(1.001 * strength)))
    assert not strong.coef.any()
    weaker = _solve(replace(problem, penalty=problem.penalty.scaled(0.98 * strength)))
    assert weaker.coef.any()


@pytest.mark.parametrize("name", ["group", "slope", "nuclear", "chain"])
def test_more_columns_than_rows(name):
    problem = _problem(Squared(), PENALTIES[name])
    fit = _solve(replace(problem, X=problem.X[:9], y=problem.y[:9], weights=np.ones(9)))
    clarabel_route.check(fit)


def test_separable_classes_without_a_penalty_have_no_optimum():
    problem = _problem(Logistic(), Box(lower=0.0))
    with pytest.raises(SolverError, match="no finite minimum"):
        _solve(replace(problem, y=(problem.X[:, 0] > 0).astype(float)))


def test_nearly_dependent_columns_with_bounds():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3)) @ rng.normal(size=(3, 50)) + 1e-2 * rng.normal(size=(N, 50))
    y = X @ rng.uniform(-1, 1, 50)
    start = Fit.at_start(Problem(Squared(), Box(lower=0.0), X, y, np.ones(N), np.array(False)))
    coef, distance = nnls(X, y, maxiter=10_000)
    fit = solve(start).fit
    assert fit.objective == pytest.approx(0.5 * distance**2, rel=1e-12)
    np.testing.assert_allclose(fit.coef, coef, atol=1e-8)


def test_a_constant_column_beside_the_intercept():
    """Along it nothing curves, and its penalty says to go to zero: a Newton step sees neither."""
    problem = _problem(Logistic(), GroupLasso(np.repeat(np.arange(5), 3)[:13], 0.05))
    X = np.column_stack([problem.X, np.full(N, 0.5)])
    start = Fit(replace(problem, X=X), np.append(np.ones(P), -0.1), np.array(0.0))
    fit = manifold.solve(start).fit
    clarabel_route.check(fit)
    assert fit.coef[-1] == 0


@pytest.mark.parametrize("level", [3e5, 1e6, 3e6])
@pytest.mark.parametrize("seed", range(6))
def test_a_response_far_from_zero(level, seed):
    """What rounding leaves of its linear predictors is no reason to go on."""
    problem = _problem(Squared(), GroupLasso(np.repeat(np.arange(4), 3), 20.0), seed=seed)
    near, fit = _solve(problem), _solve(replace(problem, y=problem.y + level))
    np.testing.assert_allclose(fit.coef, near.coef, atol=1e-15 * level + 1e-9)


def test_a_fit_that_nothing_moves_takes_few_steps(monkeypatch):
    """All gradients are rounding there, and steps along the piece gain nothing: it takes a step or two."""
    y = np.random.default_rng(0).normal(size=25)
    problem = Problem(Squared(), L2(10.0) + Box(-1.0, 1.0), np.ones((25, 1)), y, np.ones(25))
    calls, step = [], manifold._newton_step
    monkeypatch.setattr(manifold, "_newton_step", lambda *args: calls.append(1) or step(*args))
    fit = manifold.solve(Fit(problem, np.array([0.3]), np.array(0.0))).fit
    assert len(calls) < 10
    assert fit.intercept == pytest.approx(y.mean(), rel=1e-12)
    assert fit.coef[0] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("strength", [0.3, 0.9])
def test_counts_far_from_the_constant_model(strength):
    """One proximal gradient step from there overshoots by orders of magnitude."""
    rng = np.random.default_rng(3)
    X = np.eye(4)[rng.integers(0, 4, N)]
    y = rng.poisson(np.exp(X @ [5.0, 4.0, 3.0, 4.5])).astype(float)
    penalty = GroupLasso(np.array([0, 0, 0, 1]), 1.0)
    problem = Problem(Poisson(), penalty, X, y, np.ones(N), np.array(False))
    fit = _solve(replace(problem, penalty=penalty.scaled(strength * null_strength(problem))))
    clarabel_route.check(fit)


@pytest.mark.parametrize("name", ["group", "nuclear", "slope"])
@pytest.mark.parametrize("loss", ["squared", "poisson"])
def test_nearly_dependent_columns_take_few_steps(name, loss, monkeypatch):
    """First-order steps take as many as the condition of the columns: tens of thousands here."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3)) @ rng.normal(size=(3, 100)) + 0.02 * rng.normal(size=(40, 100))
    eta = 0.3 * X[:, 0]
    y = rng.poisson(np.exp(eta)).astype(float) if loss == "poisson" else eta + 0.1 * rng.normal(size=40)
    penalty = {
        "group": GroupLasso(np.arange(100) // 5, 0.02),
        "nuclear": NuclearNorm((10, 10), 0.02),
        "slope": Slope(np.linspace(1.0, 0.2, 100), 0.02),
    }[name]
    calls, prox = [], type(penalty).prox
    monkeypatch.setattr(type(penalty), "prox", lambda *args: calls.append(1) or prox(*args))
    fit = _solve(Problem(LOSSES[loss], penalty, X, y, np.ones(40)))
    assert len(calls) < 2000
    clarabel_route.check(fit)


@pytest.mark.costly
@pytest.mark.parametrize("loss", [SquaredHinge(), SmoothedHinge()], ids=repr)
@pytest.mark.parametrize("name", ["group", "group, balanced", "one free", "slope"])
def test_rows_on_straight_pieces_hold_up_no_step(name, loss):
    """Most rows of all but separable classes are straight: where they count as bent, steps have no end."""
    rng = np.random.default_rng(0)
    n, p = 40, 48
    X = (rng.random((n, p)) < 0.3).astype(float)
    X[:, -16:] = X[:, :16] + 1e-4 * rng.normal(size=(n, 16))
    y = (X[:, :6] @ [2.0, -2.0, 1.0, 1.0, -1.0, -1.0] + rng.logistic(size=n) > 0).astype(float)
    groups, weights = np.arange(p) // 3, np.ones(n)
    penalty = {
        "group": GroupLasso(groups, 0.002),
        "group, balanced": GroupLasso(groups, 0.002),
        "one free": GroupLasso(groups, 0.002, weights=np.minimum(np.arange(16), 1)),
        "slope": Slope(np.linspace(2.0, 1.0, p), 0.002),
    }[name]
    if "balanced" in name:
        weights = (n / (2.0 * np.bincount(y.astype(int))))[y.astype(int)]
    clarabel_route.check(manifold.solve(Fit.at_start(Problem(loss, penalty, X, y, weights))).fit)
