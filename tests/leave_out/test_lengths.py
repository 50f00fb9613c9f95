"""Lengths of steps, and steps with a factor in single precision: what they say, and that bounds hold."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from onefit.curvature import Direction, InSingle, factor, in_single
from onefit.fit import Fit
from onefit.leave_out import leave_out
from onefit.leave_out.frame import FEWEST
from onefit.leave_out.lengths import FARTHEST, LONGEST, cost_of_lengths, farthest, step_lengths
from onefit.leave_out.sample import sample
from onefit.leave_out.stages import LOOSELY, State
from onefit.leave_out.step import Step, largest_share
from onefit.losses import Logistic, Poisson, Squared
from onefit.metrics import LogLoss
from onefit.penalties import L2
from onefit.problem import Problem
from onefit.risk.judging import yardstick
from onefit.solvers.solve import solve


def fitted(
    n=60, p=90, strength=0.05, loss=None, *, sparse=True, intercept=True, weighted=False, shrinks=False
):
    rng = np.random.default_rng(3)
    X = sp.random_array((n, p), density=0.2, rng=rng, format="csr", data_sampler=rng.normal)
    y = rng.integers(0, 2, n).astype(float)
    weights = rng.uniform(0.5, 2.0, n) if weighted else np.ones(n)
    weights[:3] = 0.0 if weighted else 1.0
    design = X if sparse else X.toarray()
    held = Problem(
        loss or Logistic(), L2(strength), design, y, weights, np.array(intercept), mean_scaled=shrinks
    )
    return solve(Fit.at_start(held)).fit


def slope_along(fit, i, move, t):
    """Of the objective without row i, along a move of the coefficients and the intercept."""
    coef, level = (part + t * step for part, step in zip((fit.coef, fit.intercept), move, strict=True))
    held = fit.problem.without(np.array([i]))
    there = Fit(held, coef, level)
    down = there.loss_gradient + there.tangent.gradient
    return down @ move[0] + there.intercept_gradient * move[1]


@pytest.mark.parametrize("case", [{}, {"p": 20, "sparse": False}, {"intercept": False}, {"weighted": True}])
@pytest.mark.parametrize("loss", [Logistic(), Poisson()])
def test_they_are_where_the_slope_along_a_step_vanishes(case, loss):
    fit = fitted(loss=loss, **case)
    step = Step.of(fit, factor(fit))
    lengths = step_lengths(fit, step, np.arange(fit.problem.n))
    K, slack = step.curvature, 1.0 - fit.hessian * step.forms
    for i in np.flatnonzero(fit.problem.weights)[:6]:
        unit = np.zeros(fit.problem.n)
        unit[i] = fit.gradient[i] / slack[i]
        move = K.solve(type(K.responses())(fit.problem.X.T @ unit, unit.sum() * fit.problem.intercept))
        first, last = (slope_along(fit, i, move, t) for t in (0.0, 1.0))
        t = lengths[i]
        assert first < 0
        assert last * t**2 == pytest.approx(-first * (1.0 - t), rel=1e-3, abs=-1e-7 * first)
    np.testing.assert_array_equal(lengths[fit.problem.weights == 0], 1.0)


def test_a_factor_in_single_precision_tells_them():
    fit = fitted()
    rough = in_single(factor(fit))
    assert isinstance(rough, InSingle)
    rows = np.arange(fit.problem.n)
    found = step_lengths(fit, Step.of(fit, rough), rows)
    np.testing.assert_allclose(found, step_lengths(fit, Step.of(fit, factor(fit)), rows), atol=1e-3)
    assert not rough.inner.is_factored


def test_a_factor_in_single_precision_serves_the_next_fit():
    fit = fitted()
    rough, exact = in_single(factor(fit)), factor(fit)
    assert rough.is_at_hand
    gradient = Direction(np.random.default_rng(0).normal(size=fit.coef.shape), np.array(0.5))
    for one, other in zip(rough.for_steps.solve(gradient), exact.solve(gradient), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4 * float(np.abs(exact.solve(gradient).coef).max()))
    assert not rough.inner.is_factored


def test_where_they_are_not_told():
    straight, shrinking = fitted(loss=Squared()), fitted(shrinks=True)
    for fit in (straight, shrinking):
        assert np.isinf(cost_of_lengths(fit, factor(fit), 10).seconds)


@pytest.mark.parametrize("case", [{}, {"intercept": False}, {"weighted": True}])
@pytest.mark.parametrize("strength", [1.0, 0.01])
def test_bounds_hold_where_steps_are_rounded_to_single_precision(case, strength):
    fit = fitted(strength=strength, **case)
    judge = yardstick(LogLoss(np.array([0, 1])), fit.problem.y, None)
    rough = in_single(factor(fit))
    exact = leave_out(fit, max_error=0.0)
    state = State.of(fit, None, rough, judge, 0.1)
    rows = np.flatnonzero(fit.problem.weights)
    state._repeat(state._singles, rows, LOOSELY)
    assert not rough.inner.is_factored
    ended = state.found.stepped
    assert ended.size > 0.8 * rows.size
    off = np.abs(state.found.eta - exact.eta)[ended]
    assert np.all(off <= state.found.bounds[ended] + exact.bounds[ended])
    before = state.found.bounds[ended]
    # from these ends, as far as rounding lets them, and then by the other factor
    state._repeat(state._singles, ended, 1.0)
    off = np.abs(state.found.eta - exact.eta)[ended]
    assert np.all(off <= state.found.bounds[ended] + exact.bounds[ended])
    assert np.median(state.found.bounds[ended] / before) < 0.1
    anew = State.of(fit, None, rough, judge, 0.1)
    anew._repeat(anew._singles, rows, 1.0)  # at full precision from the fit the factor has to be, too
    assert rough.inner.is_factored
    off = np.abs(anew.found.eta - exact.eta)[ended]
    assert np.all(off <= anew.found.bounds[ended] + exact.bounds[ended])


def test_a_sample_by_them_needs_fewer_rows():
    fit = fitted(n=400, p=600, strength=0.02)
    judge = yardstick(LogLoss(np.array([0, 1])), fit.problem.y, None)
    exact = leave_out(fit, max_error=0.0)
    truth = judge.losses(np.arange(400), exact.eta).mean()
    state = State.of(fit, None, factor(fit), judge, 0.3)
    sample(state, judge, 1.0)
    found = state.found
    assert len(found.stepped) == FEWEST
    told = judge.losses(found.rows, found.eta).mean() + found.correction.difference
    assert abs(told - truth) <= found.correction.error <= state.room


def test_the_farthest_end_is_where_falling_curvature_has_taken_the_slope():
    reached = np.array([0.0, 1e-9, 0.2, 0.5, 0.9])
    times = farthest(reached)
    np.testing.assert_allclose(1.0 - np.exp(-times * reached), reached, rtol=1e-7, atol=1e-15)
    np.testing.assert_array_equal(farthest(np.array([0.99, 1.0, 7.0, np.inf, np.nan])), FARTHEST)


def nearly_separated(n=800, levels=40, rare=8):
    """Levels of factors, a few of which have five rows, four of them of one class."""
    rng = np.random.default_rng(1)
    X = (rng.random((n, levels)) < rng.uniform(0.01, 0.1, levels)).astype(float)
    y = (X @ rng.normal(size=levels) + rng.logistic(size=n) > -1.5).astype(float)
    rows, own = rng.permutation(n)[: 5 * rare].reshape(rare, 5), np.zeros((n, rare))
    own[rows.T, np.arange(rare)] = y[rows.T] = 1.0
    y[rows[:, 0]] = 0.0
    problem = Problem(Logistic(), L2(0.01), np.column_stack([X, own]), y, np.ones(n), np.array(True))
    return solve(Fit.at_start(problem)).fit


def test_rows_whose_slope_vanishes_nowhere_along_their_step_are_solved():
    fit = nearly_separated()
    rows, judge = np.arange(fit.problem.n), yardstick(LogLoss(np.array([0, 1])), fit.problem.y, None)
    exact = leave_out(fit, max_error=0.0)
    truth, inside, sampled = judge.losses(rows, exact.eta).mean(), 0, 0
    for seed in range(20):
        state = State.of(fit, None, factor(fit), judge, 0.3)
        state.prove()
        astray = np.isinf(state.found.bounds) & (step_lengths(fit, state.step, rows) == LONGEST)
        assert 0 < np.count_nonzero(astray) < FEWEST
        sample(state, judge, 1.0, seed)
        found = state.found
        np.testing.assert_allclose(found.eta[astray], exact.eta[astray], rtol=1e-3)
        if found.correction is None:  # the sample would not do, and all rows were solved
            continue
        told, sampled = judge.losses(rows, found.eta).mean() + found.correction.difference, sampled + 1
        inside += abs(told - truth) <= found.correction.error
    assert inside >= 0.85 * sampled >= 13


def test_the_largest_share_of_forms_that_rounding_made_indefinite():
    H, D = np.diag([1e10, -1e-3, 2.0])[None], 1e-3 * np.eye(3)[None]
    np.testing.assert_allclose(largest_share(D, H), 1e7)
