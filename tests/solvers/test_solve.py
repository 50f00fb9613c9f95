"""Problems that the first solver does not settle, and units that must not matter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from onefit.fit import Fit
from onefit.leave_out.engine import leave_out
from onefit.losses import (
    ConcomitantHuber,
    Gamma,
    Hinge,
    Poisson,
    Quantile,
    Squared,
    SquaredEpsilonInsensitive,
)
from onefit.penalties import L1, L2, Box, FusedLasso, Slope
from onefit.problem import Problem
from onefit.solvers import manifold
from onefit.solvers.solve import polish, solve
from onefit.solvers.stationary import is_stationary


def stationary(fit: Fit, tie: float = 1e-7) -> bool:
    """Whether minus the gradient of the loss is a subgradient of an ℓ1 penalty."""
    l1, _ = fit.problem.separable.strengths(fit.coef.shape)
    slope = fit.loss_gradient
    wrong = np.where(fit.coef != 0, np.abs(slope + l1 * np.sign(fit.coef)), np.abs(slope) - l1)
    return bool(np.all(wrong <= tie * l1) and abs(fit.gradient.sum()) <= tie * l1.max())


def test_a_faint_penalty_beside_more_columns_than_rows():
    # gamma regression of 44 rows on 64 columns: the pattern changes more often than Newton's method has steps
    rng = np.random.default_rng(0)
    X = rng.standard_t(2.5, size=(66, 64))
    y = np.exp(np.clip(0.5 * X[:, 0] / X[:, 0].std(), -6, 6)) * rng.gamma(2.0, 0.5, 66) + 1e-6
    weights = np.where(np.arange(66) % 3 == 0, 0.0, 1.0 + np.arange(66) % 2)
    fit = solve(Fit.at_start(Problem(Gamma(), L1(0.03), X, y, weights))).fit
    assert stationary(fit)


def test_a_loss_that_is_flat_at_the_optimum():
    # all but a few rows are within epsilon, where nothing curves
    rng = np.random.default_rng(3)
    X = np.hstack([np.eye(3)[rng.integers(0, 3, 74)], rng.normal(size=(74, 1))])
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    y = X @ np.array([-0.27, 0.68, -0.3, 0.05]) + rng.uniform(-0.21, 0.21, 74)
    weights = rng.integers(1, 4, 74).astype(float)
    fit = solve(Fit.at_start(Problem(SquaredEpsilonInsensitive(0.2), L1(3e-7), X, y, weights))).fit
    assert stationary(fit, 1e-5)


@pytest.mark.parametrize("unit", [1e-12, 1e-6, 1e6, 1e12])
@pytest.mark.parametrize(
    "penalty",
    [L1(3.0), Slope(np.linspace(1.0, 0.2, 6), 3.0), FusedLasso(3.0)],
    ids=["l1", "slope", "fused"],
)
@pytest.mark.parametrize("loss", [Quantile(0.3), Poisson()], ids=["quantile", "poisson"])
def test_units_of_the_columns_do_not_matter(loss, penalty, unit):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 6))
    eta = 0.5 * X[:, 0] - 0.3 * X[:, 1]
    y = rng.poisson(np.exp(eta)).astype(float) if isinstance(loss, Poisson) else eta + rng.normal(size=40)
    problem = Problem(loss, penalty, X, y, np.ones(40))
    fit = solve(Fit.at_start(problem)).fit
    other = solve(Fit.at_start(replace(problem, X=X * unit, penalty=penalty.scaled(unit)))).fit
    np.testing.assert_allclose(other.eta, fit.eta, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(other.coef * unit, fit.coef, rtol=1e-5, atol=1e-7)


def test_columns_of_very_different_size_with_a_penalty_that_leaves_nothing():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(91, 20)) * 10.0 ** rng.uniform(-8, 8, 20)
    y = 1e4 * rng.normal(size=91)
    gradient = np.abs(X).sum(axis=0).max()
    problem = Problem(Quantile(0.5), L1(gradient), X, y, np.ones(91), np.array(False))
    assert not np.any(solve(Fit.at_start(problem)).fit.coef)


@pytest.mark.parametrize("unit", [1e-6, 1e6, 1e12])
def test_a_hard_margin_has_no_units(unit):
    # the duals are far smaller than the intervals that they may be in
    rng = np.random.default_rng(4)
    X = rng.normal(size=(40, 40))
    y = (X[:, 0] + rng.normal(size=40) > 0).astype(float)
    problem = Problem(Hinge(), L2(1e-3), X, y, np.ones(40), np.array(False))
    fit = solve(Fit.at_start(problem)).fit
    penalty = L2(1e-3 * min(unit**2, 1.0))
    other = solve(Fit.at_start(replace(problem, X=X * unit, penalty=penalty))).fit
    np.testing.assert_allclose(other.eta, fit.eta, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(leave_out(other).eta, leave_out(fit).eta, rtol=1e-6, atol=1e-7)


def test_squares_stay_with_the_solver_of_least_squares():
    X = np.random.default_rng(5).normal(size=(30, 4))
    fit = solve(Fit.at_start(Problem(Squared(), L1(1.0), X, X[:, 0], np.ones(30)))).fit
    assert stationary(fit)


def test_a_sorted_penalty_of_more_columns_than_rows_settles_on_its_pattern():
    # Newton steps leave their piece at once; without proximal steps between them they crawl
    rng = np.random.default_rng(6)
    X = rng.poisson(0.3, size=(58, 61)).astype(float)
    X[rng.uniform(size=X.shape) < 0.02] += 5.0
    y = X[:, 0] - X[:, 3] + 0.3 * rng.normal(size=58)
    problem = Problem(
        Squared(), Slope(np.linspace(1.0, 0.2, 61), 0.05), X, y, rng.integers(1, 4, 58).astype(float)
    )
    fit = manifold.solve(Fit.at_start(problem)).fit
    assert problem.penalty.is_stationary(fit.coef[:, None], fit.loss_gradient[:, None])[0]


@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_duals_balance_beside_a_large_level(shift):
    rng = np.random.default_rng(7)
    X, y = rng.normal(size=(35, 33)), 1e4 * rng.normal(size=35)
    fit = solve(Fit.at_start(Problem(Quantile(0.5), L2(3e7), X, y + shift, np.ones(35)))).fit
    assert abs(fit.gradient.sum()) < 1e-12


def test_rows_that_are_interpolated_are_stationary_to_rounding():
    # gradients are then the rounding of linear predictors of a million, and nothing else
    stationary = 0
    for seed in range(8, 14):  # how near steps come is rounding, too, and differs between processors
        rng = np.random.default_rng(seed)
        X = (rng.uniform(size=(41, 83)) < 0.3).astype(float)
        y = 1e6 * (1.0 + X @ rng.uniform(0.0, 1.0, 83))
        start = Fit.at_start(Problem(Squared(), Box(lower=0.0), X, y, np.ones(41)))
        near = manifold.approach(start)
        assert near.is_there
        assert near.fit.objective < 1e-20 * start.objective
        stationary += is_stationary(near.fit)
        off = near.fit.moved(near.fit.coef * (1.0 + 1e-9), near.fit.intercept)
        assert not is_stationary(off)
    assert stationary >= 3


def test_a_fit_that_another_solver_left_where_it_began_is_polished_from_the_constant_model():
    # HuberRegressor beside a huge penalty: level 0 and scale 1, where all rows are on straight pieces
    rng = np.random.default_rng(0)
    X, y = 10.0 * rng.normal(size=(88, 4)), 1e4 * rng.standard_t(3, size=88)
    penalty = L2(np.stack([np.full(4, 1e10), np.full(4, np.inf)], axis=1))
    problem = Problem(ConcomitantHuber(1.35), penalty, X, y, np.ones(88), np.array([True, True]))
    coef = np.stack([1e-6 * rng.normal(size=4), np.zeros(4)], axis=1)
    found = polish(Fit(problem, coef, np.array([0.0, 1.0])))
    expected = solve(Fit.at_start(problem)).fit
    np.testing.assert_allclose(found.solution.fit.intercept, expected.intercept, rtol=1e-8)
    assert found.missed > 0.1
