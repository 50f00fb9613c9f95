"""Directions that only saturated rows see: their curvature is below rounding, and nothing is proven by it."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import onefit
from onefit.curvature import Direction, factor
from onefit.exceptions import UnreliableWarning
from onefit.fit import Fit
from onefit.leave_out import leave_out, prove, refit
from onefit.leave_out.prove import bound_at, is_blind
from onefit.leave_out.stages import State
from onefit.losses import Huber, Logistic, Squared
from onefit.penalties import L1, L2, GroupLasso
from onefit.problem import Problem
from onefit.solvers.newton import Solution
from onefit.solvers.solve import solve
from onefit.solvers.truncated import WithoutFactor


def fit_of_dummies(level_of_one_class, strength=1e-25):
    """Three levels; all rows of the first have one class, so that its coefficient says how sure they are."""
    rng = np.random.default_rng(0)
    level = np.arange(60) % 3
    X = np.hstack([np.eye(3)[level], np.ones((60, 1)), rng.normal(size=(60, 1))])
    y = np.where(level == 0, 0.0, rng.integers(0, 2, 60))
    problem = Problem(Logistic(), L2(strength), X, y, np.ones(60), np.array(False))
    return Fit(problem, np.array([level_of_one_class, 0.1, -0.2, 0.0, 0.0]), np.array(0.0)), level == 0


@pytest.mark.parametrize(
    ("level", "strength", "blind"), [(-40.0, 1e-25, True), (-40.0, 1e-3, False), (-8.0, 0.0, False)]
)
def test_saturated_rows_blind_a_fit_that_nothing_else_holds(level, strength, blind):
    fit, _ = fit_of_dummies(level, strength)
    assert is_blind(fit, factor(fit)) is blind


def test_a_dependent_column_blinds_nothing():
    fit, _ = fit_of_dummies(-2.0, 0.0)
    X = np.hstack([fit.problem.X, fit.problem.X[:, :1]])
    problem = Problem(Logistic(), L2(0.0), X, fit.problem.y, np.ones(60), np.array(True))
    doubled = Fit(problem, np.append(fit.coef, 0.0), np.array(0.3))
    assert not factor(doubled).is_definite
    assert not is_blind(doubled, factor(doubled))


def test_no_bound_is_drawn_from_such_a_curvature():
    fit, _ = fit_of_dummies(-40.0)
    state = State.of(fit, None, None, None, 0.1)
    state.prove()
    assert np.all(np.isinf(state.found.bounds))
    assert len(state.stages()) == 1  # to solve anew


def test_rows_of_such_a_direction_are_open_at_a_refit():
    fit, sure = fit_of_dummies(-40.0)
    bounds = bound_at(Solution(fit, factor(fit)), np.arange(60))
    assert np.all(np.isinf(bounds[sure]))


@pytest.mark.parametrize("penalty", [L2(0.3), L1(1e-6)])
def test_a_step_that_is_not_short_is_bounded_by_the_curvature(penalty):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = (X[:, 0] + rng.logistic(size=60) > 0).astype(float)
    fit = solve(Fit.at_start(Problem(Logistic(), penalty, X, y, np.ones(60)))).fit
    for size in (1e-4, 1e-3, 1e-2):
        near = fit.moved(fit.coef + size * rng.normal(size=3), fit.intercept + size)
        bounds, off = bound_at(Solution(near, factor(near)), np.arange(60)), np.abs(near.eta - fit.eta)
        assert np.all(off <= bounds)
        assert bounds.max() <= 3.0 * off.max()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_a_step_is_told_by_products_where_nobody_has_made_a_factor(weighted, intercept, monkeypatch):
    rng = np.random.default_rng(1)
    X = sp.random(80, 300, density=0.1, format="csr", random_state=1)
    y = (X @ rng.normal(size=300) + 0.3 * rng.logistic(size=80) > 0).astype(float)
    weights = rng.uniform(0.5, 2.0, 80) if weighted else np.ones(80)
    fit = solve(Fit.at_start(Problem(Logistic(), L2(0.1), X, y, weights, np.array(intercept)))).fit
    near = fit.moved(fit.coef + 1e-10 * rng.normal(size=300), fit.intercept)
    K = factor(near)
    monkeypatch.setattr(prove, "preconditioner", lambda fit, _: WithoutFactor(fit))
    bounds = bound_at(Solution(near, K), np.arange(80))
    assert not K.is_factored
    assert np.all(np.abs(near.eta - fit.eta) <= bounds)
    monkeypatch.setattr(prove, "preconditioner", lambda *_: None)
    by_factor = bound_at(Solution(near, factor(near)), np.arange(80))
    np.testing.assert_allclose(bounds, by_factor, atol=5e-3 * by_factor.max())


def test_a_refit_that_nothing_proves_begins_anew(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 6))
    y = X[:, 0] + rng.normal(size=40)
    fit = solve(Fit.at_start(Problem(Squared(), L1(5.0), X, y, np.ones(40)))).fit
    right = refit.solution_without(fit, np.array([3]))

    def solution_without(*_, start=None, **__):
        wrong = right.fit.moved(0.0 * right.fit.coef, right.fit.intercept)
        return right if start is None else Solution(wrong, factor(wrong))

    monkeypatch.setattr(refit, "solution_without", solution_without)
    start, rows = Direction(fit.coef, fit.intercept), np.array([3])
    found = refit.refit_sets(fit, {3: rows}, {3: rows}, {3: start})[3]
    assert found.bounds[0] < 1e-8
    assert found.eta[0] == pytest.approx(right.fit.eta[3])


def far_apart(n, seed=0):
    """Responses so large that every row is on a straight piece of Huber's loss."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, 1e3 * (X[:, 0] + rng.normal(size=n))


@pytest.mark.parametrize("penalty", [L2(1.0), L1(100.0)])
def test_intercepts_that_no_row_curves_are_solved_anew(penalty):
    X, y = far_apart(30)  # of 29 rows one holds the intercept
    problem = Problem(Huber(), penalty, X, y, np.ones(30))
    fit = solve(Fit.at_start(problem)).fit
    assert fit.hessian.sum() == 0
    assert is_blind(fit, factor(fit))
    found = onefit.loo(onefit.GeneralizedLinear("huber", penalty).fit(X, y), X, y, exact=True)
    for i in (0, 7, 29):
        again = solve(Fit.at_start(problem.without(i))).fit
        assert found.decision[i] == pytest.approx(X[i] @ again.coef + again.intercept, rel=1e-6)


@pytest.mark.parametrize("penalty", [GroupLasso([0, 0, 1, 1], 60.0), GroupLasso([0, 0, 1, 1], 1e6)])
def test_intercepts_with_an_interval_beside_groups_are_not_called_exact(penalty):
    X, y = far_apart(31)  # of 30 rows any intercept between two of them is as good
    model = onefit.GeneralizedLinear("huber", penalty).fit(X, y)
    with pytest.warns(UnreliableWarning, match="several optima"):
        found = onefit.loo(model, X, y, exact=True)
    assert found.guarantee == "rough"
    assert np.isinf(found.bounds).sum() >= 30


@pytest.mark.parametrize("seed", [37, 38, 39])
def test_a_step_that_ends_where_a_piece_does_may_be_one_of_many_optima(seed):
    """The last row on its curve is at the end of it then, and holds the intercept on one side alone."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(21, 2))
    y = 30.0 * (X[:, 0] + rng.normal(size=21))
    problem = Problem(Huber(), L2(10.0), X, y, np.ones(21))
    found = leave_out(solve(Fit.at_start(problem)).fit, max_error=0.0)
    for i in range(21):
        again = solve(Fit.at_start(problem.without(i))).fit
        assert abs(found.eta[i] - again.eta[i]) <= found.bounds[i] + 1e-6
    assert np.any((found.bounds > 0.1) & np.isfinite(found.bounds))
