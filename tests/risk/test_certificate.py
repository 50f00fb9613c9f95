"""Certificates: every certified row equals its refit, and every other one does not or changes pattern."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from builders import without
from onefit.balance import Balance
from onefit.fit import Fit
from onefit.leave_out import leave_out
from onefit.leave_out.patterns import bound_of_patterns, step_is_exact
from onefit.leave_out.step import one_step
from onefit.losses import Logistic, Squared
from onefit.penalties import L1, L2, ElasticNet
from onefit.problem import Problem
from onefit.solvers.solve import solve

N = 40


def _problem(penalty, p=8, fit_intercept=True, weights=None, mean_scaled=True, store=np.asarray, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, p))
    y = X[:, :4] @ np.array([2.0, -1.0, 0.5, 0.2]) + rng.normal(size=N)
    weights = np.ones(N) if weights is None else weights
    return Problem(Squared(), penalty, store(X), y, weights, np.array(fit_intercept), mean_scaled)


def _refit_without(problem, i):
    weights = problem.weights.copy()
    weights[i] = 0.0
    share = weights.sum() / problem.weights.sum() if problem.mean_scaled else 1.0
    left = replace(problem, weights=weights, penalty=problem.penalty.scaled(share))
    return solve(Fit.at_start(left)).fit


def _compare(problem):
    solution = solve(Fit.at_start(problem))
    left_out = one_step(*solution)
    fits = [_refit_without(problem, i) for i in range(N)]
    error = np.abs(left_out.eta - [fit.eta[i] for i, fit in enumerate(fits)])
    same = np.array([np.array_equal(np.sign(fit.coef), np.sign(left_out.fit.coef)) for fit in fits])
    proven = np.isfinite(bound_of_patterns(solution.fit, left_out.eta)) & step_is_exact(solution.fit)
    return proven | (problem.weights == 0), error / np.std(problem.y), same


@pytest.mark.costly
@pytest.mark.parametrize("penalty", [L1(3.0), L1(12.0), ElasticNet(8.0, 0.7), L1(0.3)], ids=repr)
@pytest.mark.parametrize("mean_scaled", [False, True])
@pytest.mark.parametrize("p", [8, 60])
def test_certified_rows_are_their_refits(penalty, mean_scaled, p, weigh, fit_intercept):
    weights = weigh(N)
    problem = _problem(penalty, p, fit_intercept, weights, mean_scaled)
    certified, error, same = _compare(problem)
    assert np.all(error[certified] < 1e-8)
    provable = not mean_scaled or weights is None or isinstance(penalty, L1)
    saturated = p == 60 and penalty == L1(0.3)  # then any row changes the pattern, up to rounding
    if provable and not saturated:  # sharp: what is not certified is wrong, or would move on another pattern
        assert np.all((error[~certified] > 1e-10) | ~same[~certified])
        assert certified.any()


@pytest.mark.parametrize("seed", range(6))
def test_sharp_on_a_pattern_that_hardly_holds(seed):
    problem = _problem(L1(6.0), p=20, seed=seed)
    certified, error, same = _compare(problem)
    assert np.all(error[certified] < 1e-8)
    assert np.all(~same[~certified] | (error[~certified] > 1e-10))
    assert 0 < certified.sum() < N


def test_in_every_storage(store, fit_intercept):
    problem = _problem(L1(6.0), 20, fit_intercept)
    stored = replace(problem, X=store(problem.X))
    ours = leave_out(solve(Fit.at_start(stored)).fit, max_error=0.0).certified
    np.testing.assert_array_equal(ours, leave_out(solve(Fit.at_start(problem)).fit, max_error=0.0).certified)


@pytest.mark.parametrize(
    "penalty", [L2(1.0), L2(np.array([0.0, 1.0, np.inf, 2.0])), L2(0.0)], ids=["1", "mixed", "0"]
)
def test_ridge_is_always_certified(penalty):
    problem = _problem(penalty, p=4, mean_scaled=False, weights=np.random.default_rng(0).uniform(0.5, 2.0, N))
    assert leave_out(solve(Fit.at_start(problem)).fit, max_error=0.0).certified.all()


@pytest.mark.parametrize("strengths", [[0.0, 3.0, 6.0, np.inf], [12.0, 0.0, 0.0, 1.0]], ids=str)
def test_strengths_of_their_own(strengths, fit_intercept):
    problem = _problem(L1(np.array(strengths)), p=4, fit_intercept=fit_intercept)
    certified, error, same = _compare(problem)
    assert certified.any()
    assert np.all(error[certified] < 1e-8)
    assert np.all((error[~certified] > 1e-10) | ~same[~certified])


def test_nothing_selected():
    problem = _problem(L1(1e4), p=8)
    left_out = leave_out(solve(Fit.at_start(problem)).fit, max_error=0.0)
    assert left_out.certified.all()
    np.testing.assert_allclose(left_out.eta, (problem.y.sum() - problem.y) / (N - 1), rtol=1e-10)


def test_one_step_of_a_curved_loss_is_bounded_not_certified():
    problem = _problem(L2(1.0), mean_scaled=False)
    problem = replace(problem, loss=Logistic(), y=(problem.y > 0).astype(float))
    weights = np.ones(N)
    weights[7] = 0.0
    fit = solve(Fit.at_start(replace(problem, weights=weights))).fit
    left_out = leave_out(fit, max_error=1e6)
    error = np.abs(left_out.eta - [without(fit, i).eta[i] for i in range(N)])
    one_step = np.setdiff1d(np.arange(N), left_out.stepped)
    np.testing.assert_array_equal(one_step[left_out.certified[one_step]], [7])
    assert one_step.size > N / 2
    assert np.all(error <= left_out.bounds + 1e-12)
    assert np.isfinite(left_out.bounds).mean() > 0.5


def test_a_row_without_weight_still_counts_in_a_balance_of_rows():
    # class_weight="balanced" of RidgeClassifier counts rows, whatever their weight: one that leaves
    # changes the weights of all
    problem = _problem(L2(1.0), mean_scaled=False)
    classes = (problem.y > 0).astype(np.intp)
    weights = np.ones(N)
    weights[7] = 0.0
    problem = replace(problem, y=2.0 * classes - 1, weights=weights, balance=Balance(classes, np.ones(N)))
    left_out = leave_out(solve(Fit.at_start(problem)).fit, max_error=0.0)
    assert abs(left_out.eta[7] - left_out.fit.eta[7]) > 1e-6
    assert 7 in left_out.refitted
    assert left_out.certified[7]
