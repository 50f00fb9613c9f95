"""Newton steps on the faces of the sorted ℓ1 norm: optimality, the quadratic program's minimum, hard data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.losses import Huber, Logistic, Poisson, Squared
from onefit.penalties import L2, Slope
from onefit.problem import Problem
from onefit.solvers import quadratic_program, sorted_faces
from onefit.solvers.solve import solve
from onefit.solvers.stationary import is_stationary

N, P = 40, 9
WEIGHTS = {
    "falling": np.linspace(2.0, 0.5, P),
    "some equal": np.repeat([3.0, 1.0, 0.5], 3),
    "all equal": np.ones(P),
    "the last are free": np.maximum(np.linspace(2.0, -1.0, P), 0.0),
}
LOSSES = {"squared": Squared(), "logistic": Logistic(), "poisson": Poisson(), "huber": Huber(0.7)}


def problem_of(loss, penalty, n=N, p=P, seed=0, **changes):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) + rng.normal(size=(n, 1))
    score = X[:, :3].sum(axis=1) + rng.normal(size=n)
    y = {"Logistic": (score > 0) * 1.0, "Poisson": rng.poisson(np.exp(np.clip(0.3 * score, -3, 3))) * 1.0}
    target = y.get(type(loss).__name__, score)
    return replace(Problem(loss, penalty, X, target, rng.uniform(0.5, 2.0, n), np.array(True)), **changes)


@pytest.mark.parametrize("alpha", [5.0, 0.3, 1e-3])
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("loss", LOSSES)
def test_as_low_as_the_quadratic_program(loss, weights, alpha):
    problem = problem_of(LOSSES[loss], Slope(WEIGHTS[weights], alpha))
    fit = sorted_faces.solve(Fit.at_start(problem))
    assert is_stationary(fit)
    least = quadratic_program.solve(Fit.at_start(problem)).objective
    assert fit.objective == pytest.approx(least, rel=1e-11)


@pytest.mark.parametrize("ridge", [1e-3, np.linspace(0.0, 3.0, P)])
def test_a_ridge_part(ridge):
    problem = problem_of(Squared(), Slope(WEIGHTS["falling"], 2.0) + L2(ridge))
    fit = sorted_faces.solve(Fit.at_start(problem))
    least = quadratic_program.solve(Fit.at_start(problem)).objective
    assert fit.objective == pytest.approx(least, rel=1e-12)


@pytest.mark.parametrize("n", [6, 12, 30])
def test_more_columns_than_rows(n):
    problem = problem_of(Squared(), Slope(np.linspace(1.0, 0.2, 15), 0.1), n=n, p=15)
    fit = sorted_faces.solve(Fit.at_start(problem))
    least = quadratic_program.solve(Fit.at_start(problem)).objective
    assert fit.objective == pytest.approx(least, rel=1e-10)


def test_columns_that_depend_on_one_another():
    problem = problem_of(Squared(), Slope(WEIGHTS["falling"], 0.5))
    levels = np.eye(4)[np.arange(N) % 4]
    problem = replace(problem, X=np.hstack([levels, levels[:, :2], problem.X[:, :3]]))
    fit = sorted_faces.solve(Fit.at_start(problem))
    least = quadratic_program.solve(Fit.at_start(problem)).objective
    assert fit.objective == pytest.approx(least, rel=1e-12)


def test_coefficients_that_are_equal_are_so_to_the_last_digit():
    X = np.random.default_rng(2).normal(size=(N, P))
    y = X @ np.linspace(3.2, 3.0, P)
    problem = problem_of(Squared(), Slope(WEIGHTS["falling"], 20.0), X=X, y=y)
    fit = sorted_faces.solve(Fit.at_start(problem))
    sizes = np.sort(np.abs(fit.coef[fit.coef != 0]))
    apart = np.diff(sizes)
    assert np.any(apart == 0)
    assert np.all((apart == 0) | (apart > 1e-9 * sizes[-1]))


def test_many_columns():
    # as a quadratic program it has 200 x 401 rows
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 3)) @ rng.normal(size=(3, 200)) + 0.05 * rng.normal(size=(40, 200))
    y = X[:, 0] + 0.1 * rng.normal(size=40)
    start = Fit.at_start(Problem(Squared(), Slope(np.linspace(1.0, 0.2, 200), 0.1), X, y, np.ones(40)))
    fit, exact = solve(start).fit, sorted_faces.solve(start)
    assert fit.objective == pytest.approx(exact.objective, rel=1e-12)
    assert is_stationary(fit)
    assert is_stationary(exact)


def test_the_same_from_the_fit_and_from_nothing():
    problem = problem_of(Logistic(), Slope(WEIGHTS["falling"], 0.2))
    fit = sorted_faces.solve(Fit.at_start(problem))
    left = problem.without(3)
    warm = sorted_faces.solve(Fit(left, fit.coef, fit.intercept))
    cold = sorted_faces.solve(Fit.at_start(left))
    np.testing.assert_allclose(warm.eta, cold.eta, atol=1e-8)


def test_no_minimum_without_a_penalty():
    problem = problem_of(Logistic(), Slope(np.zeros(P)))
    separated = replace(problem, y=(problem.X[:, 0] > 0) * 1.0)
    with pytest.raises(SolverError):
        sorted_faces.solve(Fit.at_start(separated))


@pytest.mark.parametrize(("scale", "outlier"), [(1.0, 1e6), (1e3, 0.0), (1e5, 0.0)])
def test_rows_that_all_start_where_their_loss_is_straight(scale, outlier):
    """Nothing curves there, and the loss turns before clusters meet, or where none do."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(24, 5))
    y = scale * (X @ rng.normal(size=5) + rng.normal(size=24))
    y[7] += outlier
    problem = Problem(Huber(), Slope(np.linspace(3.0, 0.5, 5)), X, y, np.ones(24))
    start = Fit.at_start(problem)
    assert not np.any(start.hessian)
    fit, other = sorted_faces.solve(start), quadratic_program.solve(start)
    assert is_stationary(fit)
    assert fit.objective <= other.objective * (1 + 1e-9)
