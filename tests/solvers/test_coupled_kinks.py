"""Coupled outputs with kinks: one output at a time, and on the pattern by the factor of a neighbour."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose

from onefit.cost import Work
from onefit.curvature import Direction, factor
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.losses import Multinomial
from onefit.penalties import L1, L2, ElasticNet
from onefit.problem import Problem
from onefit.solvers import coordinate_descent, newton, on_pattern
from onefit.solvers.one_output import best_shift, model_of, shifted, with_output
from onefit.solvers.solve import solve, solve_path

C = 3
CASES = [(False, True, True), (True, True, False), (True, False, True)]  # weighted, intercept, sparse
PENALTIES = {"l1": L1(0.5), "elastic net": ElasticNet(0.8, 0.5), "one a column": L1(np.geomspace(0.2, 2, 60))}


def drawn(penalty, *, weighted=False, intercept=True, sparse=False, n=150, p=60, seed=0) -> Problem:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * (rng.random((n, p)) < 0.4)
    eta = X[:, :8] @ rng.normal(size=(8, C))
    y = (eta + rng.gumbel(size=eta.shape)).argmax(axis=1).astype(float)
    weights = rng.choice([0.0, 1.0, 2.5], n) if weighted else np.ones(n)
    X = sp.csr_array(X) if sparse else X
    return Problem(Multinomial(C), penalty, X, y, weights, np.full(C, intercept))


def from_one_another(eta: np.ndarray) -> np.ndarray:
    """Predictors less their mean: no loss depends on a constant in all of them."""
    return eta - eta.mean(axis=-1, keepdims=True)


@pytest.fixture
def optimum():
    """A fit, and its curvature with a factor."""
    fit = newton.solve(Fit.at_start(drawn(ElasticNet(0.8, 0.5)))).fit
    curvature = factor(fit)
    assert curvature.is_definite
    return fit, curvature


@pytest.mark.parametrize("c", [2, 3, 4, 7])
@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_the_best_shift_is_the_best_on_a_grid(c, ridge):
    rng = np.random.default_rng(c)
    coef = rng.normal(size=(40, c)) * (rng.random((40, c)) < 0.7)
    l1, l2 = rng.uniform(0.1, 1.0, 40), np.full(40, ridge)
    shift = best_shift(coef, l1, l2)

    def value(s):
        off = coef - s[:, None]
        return l1 * np.abs(off).sum(axis=1) + 0.5 * l2 * (off**2).sum(axis=1)

    others = [np.full(40, t) for t in np.linspace(-3, 3, 601)] + list(coef.T)
    assert np.all(value(shift) <= np.min([value(s) for s in others], axis=0) + 1e-12)


def test_nothing_is_shifted_without_a_reason():
    coef = np.array([[0.0, 1.0, 0.0, 2.0], [-1.0, 0.0, 0.0, 3.0]])  # zero is between the two in the middle
    assert_allclose(best_shift(coef, np.ones(2), np.zeros(2)), 0.0)


def test_a_shift_keeps_losses_and_lowers_the_penalty():
    fit = Fit.at_start(drawn(L1(0.5)))
    coef = np.random.default_rng(0).normal(size=fit.coef.shape) + 1.0
    far = fit.moved(coef, fit.intercept)
    moved = shifted(far)
    assert_allclose(np.diff(moved.eta, axis=1), np.diff(far.eta, axis=1), atol=1e-12)
    assert_allclose(moved.eta, moved.problem.linear_predictor(moved.coef, moved.intercept), atol=1e-12)
    assert moved.objective < far.objective


@pytest.mark.parametrize("weighted", [False, True])
def test_the_model_of_an_output_has_its_derivatives(weighted):
    fit = Fit.at_start(drawn(L1(0.5), weighted=weighted))
    fit = fit.moved(0.1 * np.random.default_rng(0).normal(size=fit.coef.shape), fit.intercept)
    for k in range(C):
        model = model_of(fit, k)
        assert_allclose(model.gradient, fit.gradient[:, k], atol=1e-12)
        held = fit.problem.weights > 0
        assert_allclose(model.hessian[held], fit.hessian[held, k, k])
        same = with_output(fit, k, model)
        assert_allclose(same.objective, fit.objective)


@pytest.mark.parametrize(("weighted", "intercept", "sparse"), CASES)
@pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES)
def test_outputs_in_turn_come_near_the_optimum(penalty, weighted, intercept, sparse):
    start = Fit.at_start(drawn(penalty, weighted=weighted, intercept=intercept, sparse=sparse))
    near = coordinate_descent.approach(start)
    exact = newton.solve(start).fit
    assert exact.objective <= near.objective <= exact.objective * (1 + 1e-4)
    assert_allclose(from_one_another(newton.solve(near).fit.eta), from_one_another(exact.eta), atol=1e-6)


def test_the_gap_is_none_at_the_optimum_only(optimum):
    fit, _ = optimum
    assert 0.0 <= coordinate_descent.gap(fit) < 1e-9 * fit.objective
    assert coordinate_descent.gap(Fit.at_start(fit.problem)) > 1e-3 * fit.objective


@pytest.mark.costly
@pytest.mark.parametrize(("weighted", "intercept", "sparse"), CASES)
@pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES)
def test_a_factor_leads_to_the_optimum_without_a_row(penalty, weighted, intercept, sparse, monkeypatch):
    monkeypatch.setattr(on_pattern, "_by_own_factor", lambda _: Work(np.inf))  # which few columns would
    fit = newton.solve(
        Fit.at_start(drawn(penalty, weighted=weighted, intercept=intercept, sparse=sparse))
    ).fit
    curvature, changed = factor(fit), 0
    assert curvature.is_definite  # which takes a factor
    assert on_pattern.lead(curvature, fit) is curvature
    for row in np.flatnonzero(fit.problem.weights)[:8].tolist():
        start = Fit(fit.problem.without(row), fit.coef, fit.intercept)
        near = on_pattern.approach(start, curvature, 1e-8)
        exact = newton.solve(start).fit
        assert near.is_there
        assert_allclose(from_one_another(near.fit.eta), from_one_another(exact.eta), atol=1e-6)
        assert np.array_equal(near.fit.coef != 0, exact.coef != 0)
        changed += not np.array_equal(exact.coef != 0, fit.coef != 0)
    assert changed


@pytest.mark.parametrize(("weighted", "intercept", "sparse"), CASES)
def test_the_diagonal_leads_there_too(weighted, intercept, sparse):
    problem = drawn(ElasticNet(1.0, 0.5), weighted=weighted, intercept=intercept, sparse=sparse)
    fit = newton.solve(Fit.at_start(problem)).fit
    for row in np.flatnonzero(fit.problem.weights)[:8].tolist():
        start = Fit(fit.problem.without(row), fit.coef, fit.intercept)
        near, exact = on_pattern.approach(start, None, 1e-8), newton.solve(start).fit
        assert near.is_there
        assert_allclose(from_one_another(near.fit.eta), from_one_another(exact.eta), atol=1e-6)
        assert np.array_equal(near.fit.coef != 0, exact.coef != 0)


def test_where_the_diagonal_takes_too_long_a_neighbour_takes_over(monkeypatch):
    """As on patterns that are as large as the sample, without a ridge."""
    fit = newton.solve(Fit.at_start(drawn(L1(0.005), n=60, p=80))).fit
    curvature = factor(fit)
    starts = [Fit(fit.problem.without(row), fit.coef, fit.intercept) for row in range(8)]
    alone = [on_pattern.approach(start, curvature, 1e-8) for start in starts]
    spent = [k for k, own in enumerate(alone) if own.is_spent]  # rounding decides where it takes too long
    assert spent
    assert not any(alone[k].is_there for k in spent)
    assert curvature.is_definite  # which takes a factor
    monkeypatch.setattr(on_pattern, "_by_factor", lambda _: Work(np.inf))
    assert on_pattern.lead(curvature, starts[0]) is None
    monkeypatch.setattr(on_pattern, "_by_own_factor", lambda _: Work(np.inf))
    for k in spent:
        led = on_pattern.approach(starts[k], curvature, 1e-8)
        assert not led.is_spent
        assert led.fit.objective < alone[k].fit.objective


def test_a_neighbour_gives_way_to_a_factor_that_takes_less(monkeypatch):
    fit = newton.solve(Fit.at_start(drawn(L1(0.005), n=60, p=80))).fit
    start, curvature = Fit(fit.problem.without(0), fit.coef, fit.intercept), factor(fit)
    assert curvature.is_definite
    led = on_pattern.Led(start, start.tangent, neighbour=curvature)
    gradient = Direction(start.free_gradient, start.intercept_gradient)
    monkeypatch.setattr(on_pattern, "_by_own_factor", lambda _: Work(np.inf))
    led.solve(gradient)
    monkeypatch.setattr(on_pattern, "_by_own_factor", lambda _: Work(0.0))
    monkeypatch.setattr(on_pattern, "TOO_MANY", 1 / on_pattern.PRODUCTS)  # one product
    with pytest.raises(SolverError, match="longer than a factor"):
        led.solve(gradient)


def test_only_a_factor_at_hand_serves(optimum, monkeypatch):
    fit, curvature = optimum
    monkeypatch.setattr(on_pattern, "pays", lambda _: True)
    assert on_pattern.serves(curvature, fit)
    assert not on_pattern.serves(factor(fit), fit)
    assert not on_pattern.serves(None, fit)


def test_it_pays_for_many_coefficients_with_kinks_alone():
    wide = drawn(L1(0.01), n=400, p=400)
    full = Fit(wide, np.ones(wide.coef_shape), np.zeros(C))
    assert on_pattern.pays(full)
    assert not on_pattern.pays(Fit.at_start(wide))
    assert not on_pattern.pays(Fit(drawn(L2(0.01), n=400, p=400), np.ones(wide.coef_shape), np.zeros(C)))


@pytest.mark.parametrize("sparse", [False, True])
def test_paths_end_where_newton_does(sparse, monkeypatch):
    monkeypatch.setattr(on_pattern, "pays", lambda fit: fit.problem.is_coupled)
    problems = [drawn(ElasticNet(alpha, 0.5), sparse=sparse) for alpha in np.geomspace(20.0, 0.05, 6)]
    for problem, solution in zip(problems, solve_path(problems), strict=True):
        alone = newton.solve(Fit.at_start(problem)).fit
        assert_allclose(solution.fit.coef, alone.coef, atol=1e-8)


def test_a_solver_takes_the_curvature_of_a_neighbour(optimum, monkeypatch):
    monkeypatch.setattr(on_pattern, "pays", lambda _: True)
    fit, curvature = optimum
    start = Fit(fit.problem.without(3), fit.coef, fit.intercept)
    assert_allclose(solve(start, curvature).fit.coef, newton.solve(start).fit.coef, atol=1e-9)
