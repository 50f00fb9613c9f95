"""Refits in which rows on straight pieces of a loss that curves elsewhere, or at their ends, hold nothing."""

from __future__ import annotations

import numpy as np
import pytest

import clarabel_route
from onefit.fit import Fit
from onefit.leave_out.engine import leave_out
from onefit.losses import Huber, SmoothedHinge, SquaredHinge
from onefit.penalties import L1, L2
from onefit.problem import Problem
from onefit.solvers.solve import solve

SAME = 1e-4  # difference of predictors beyond that of an interior-point method


def left_out(problem):
    return leave_out(solve(Fit.at_start(problem)).fit, max_error=0.0)


@pytest.mark.parametrize("penalty", [L1(1e4), L2(1e9)])
@pytest.mark.parametrize("gap", [3.0, 300.0])
def test_an_intercept_between_rows_that_are_all_straight_is_open(penalty, gap):
    """As many rows far above as far below: Huber's intercept is anywhere between their parabolas."""
    rng = np.random.default_rng(0)
    half = gap + np.arange(1.0, 8.0)
    y = np.r_[0.0, half, -half]
    problem = Problem(Huber(1.0), penalty, rng.normal(size=(15, 2)), y, np.r_[0.5, np.ones(14)])
    found = left_out(problem)
    assert 0 in found.several
    assert found.bounds[0] == pytest.approx(half[0] - 1.0 + abs(found.eta[0]), rel=1e-6)
    np.testing.assert_array_equal(found.several, [0])
    assert np.delete(found.bounds, 0).max() < 1e-6


def test_an_intercept_that_all_margins_leave_open_is_said():
    y = np.r_[0.0, 1.0].repeat(6)
    problem = Problem(SmoothedHinge(0.5), L1(1e4), np.zeros((12, 1)), y, np.r_[0.0, np.ones(11)])
    found = left_out(problem)
    assert found.several.size == 6  # without a row of the second class both are five
    for i in found.several:
        assert abs(found.eta[i]) + 0.5 <= found.bounds[i] + 1e-9  # margins of at least a half are straight


def drawn(loss, seed):
    """Dummies, some of them rare, and whole numbers: rows end on the ends of parabolas."""
    rng = np.random.default_rng(seed)
    n, p = 24, 14
    X = (rng.uniform(size=(n, p)) < rng.uniform(0.05, 0.5, size=p)).astype(float)
    y = np.round(X @ rng.normal(size=p) + 2.0 * rng.standard_t(2, size=n))
    if isinstance(loss, SquaredHinge | SmoothedHinge):
        y = (y > np.median(y)).astype(float)
    return Problem(loss, L1(0.2), X, y, np.ones(n))


@pytest.mark.costly
@pytest.mark.parametrize(
    ("loss", "seed"),
    [
        (Huber(1.0), 2),
        (Huber(1.0), 4),
        (SmoothedHinge(0.5), 2),
        (SmoothedHinge(0.5), 6),
        (SquaredHinge(), 0),
    ],
)
def test_no_optimum_is_beyond_its_bound(loss, seed):
    """An interior-point method ends in the middle of all optima."""
    problem = drawn(loss, seed)
    found = left_out(problem)
    off = np.zeros(problem.n)
    for i in range(problem.n):
        coef, level, _ = clarabel_route.minimum(problem.without(i))
        off[i] = abs(problem.X[i] @ coef + level - found.eta[i])
    assert np.all(off <= found.bounds + SAME)
    assert off.max() > 0.01
    assert found.bounds.max() < 10.0
