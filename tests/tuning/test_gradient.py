"""Risks as functions of hyperparameters, and the ways down."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.losses import Squared
from onefit.metrics import SquaredError
from onefit.penalties import L1, L2
from onefit.problem import Problem
from onefit.risk import folds
from onefit.solvers.solve import solve
from onefit.tuning.descent import DescentPlan, descend
from onefit.tuning.held_out import HeldOutJudge
from onefit.tuning.judges import Judge, Judged, LeaveOneOutJudge
from onefit.tuning.objective import RiskObjective
from onefit.tuning.optimizers import lbfgs
from onefit.tuning.space import Domain, Space

# --- ways down a function that is known ------------------------------------------------------------


class _Bowl(Judge):
    """(t − 1)ᵀ A (t − 1), read from the strengths of a problem; infinite, or unsolvable, beyond a limit."""

    metric = SquaredError()

    def __init__(self, A, limit=np.inf, failing=False):
        self.A, self.limit, self.failing = A, limit, failing

    def has_gradient(self, _):
        return False

    def judge(self, problem, *_, **__):
        t = np.log(problem.penalty.alpha)
        if t.max() > self.limit:
            if self.failing:
                raise SolverError("beyond the limit")
            return Judged(np.nan, [], [])
        return Judged(float((t - 1.0) @ self.A @ (t - 1.0)), [], [])

    def is_rough(self, _):
        return False

    def thorough(self, problem, starts):
        return self.judge(problem, starts).value


def _strengths(p, seed=0):
    rng = np.random.default_rng(seed)
    problem = Problem(Squared(), L2(1.0), rng.normal(size=(10, p)), rng.normal(size=10), np.ones(10))
    domain = Domain("alpha", np.exp(-3.0), np.exp(4.0), "log", np.arange(p))
    return Space((domain,)), lambda values: replace(problem, penalty=L2(values["alpha"]))


def _plan(optimizer, **settings):
    given = {"max_iter": 2000, "tol": 1e-6, "learning_rate": 0.1, "n_starts": 1, **settings}
    return DescentPlan(optimizer, seed=np.random.default_rng(0), **given)


@pytest.mark.costly
@pytest.mark.parametrize("optimizer", ["lbfgs", "projected", "constant", "adam"])
def test_ways_down_reach_the_bottom(optimizer):
    objective = RiskObjective(*_strengths(4), _Bowl(np.diag([1.0, 3.0, 10.0, 30.0])))
    length = 0.03 if optimizer == "constant" else 0.1  # below 2 over the largest curvature, 60
    found = descend(objective, _plan(optimizer, learning_rate=length))
    np.testing.assert_allclose(found.t, 1.0, atol=1e-3 if optimizer == "adam" else 1e-5)
    assert found.value == min(point.value for point in objective.visited)


@pytest.mark.parametrize("value", [1e-9, 1.0, 1e9])
def test_bounds_are_reached_to_the_last_digit_whatever_the_units(value):
    rng = np.random.default_rng(0)
    bounds = np.sort(rng.normal(size=(20, 2)), axis=1)
    slopes = value * np.where(np.arange(20) % 2, 1.0, -1.0)
    found = lbfgs(
        lambda t: (float(slopes @ t), slopes),
        bounds.mean(axis=1),
        bounds,
        {},
        units=bounds[:, 1] - bounds[:, 0],
        reach=0.05,
    )
    np.testing.assert_array_equal(found.t, bounds[np.arange(20), (slopes < 0).astype(int)])


@pytest.mark.parametrize("failing", [False, True])
@pytest.mark.parametrize("optimizer", ["lbfgs", "projected"])
def test_risks_may_be_infinite_in_places(optimizer, failing):
    """The middle of the bounds is finite, the first steps are not."""
    objective = RiskObjective(*_strengths(4), _Bowl(np.diag([1.0, 3.0, 10.0, 30.0]), 1.2, failing=failing))
    found = descend(objective, _plan(optimizer, max_iter=200))
    assert np.isfinite(found.value)
    assert found.value < objective.value(np.full(4, 0.5))


def test_risks_that_are_nowhere_finite_are_refused():
    objective = RiskObjective(*_strengths(4), _Bowl(np.eye(4), -10.0))
    with pytest.raises(ValueError, match="not finite for any"):
        descend(objective, _plan("lbfgs"))


def test_random_starts_are_within_the_bounds_and_spread():
    objective = RiskObjective(*_strengths(4), _Bowl(np.eye(4)))
    descend(objective, _plan("projected", n_starts=4, max_iter=1))
    points = np.array([point.t for point in objective.visited])
    assert points.min() >= -3.0 - 1e-12
    assert points.max() <= 4.0 + 1e-12
    assert np.ptp(points, axis=0).min() > 2.0


def test_interruptions_before_the_first_value_are_passed_on():
    class Interrupted(_Bowl):
        def judge(self, *_, **__):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        descend(RiskObjective(*_strengths(3), Interrupted(np.eye(3))), _plan("lbfgs"))


# --- judges ----------------------------------------------------------------------------------------


def _sample(p=4, n=25):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, p))
    return X, X[:, 0] + rng.normal(size=n)


def test_leave_one_out_is_the_mean_over_refits():
    X, y = _sample()
    problem = Problem(Squared(), L2(2.0), X, y, np.ones(len(y)))
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    judge = LeaveOneOutJudge(SquaredError(), y, weights / weights.sum())
    losses = []
    for i in range(len(y)):
        fit = solve(Fit.at_start(problem.without(np.array([i])))).fit
        losses.append((y[i] - fit.eta[i]) ** 2)
    value = judge.judge(problem, [], gradient=False).value
    assert value == pytest.approx(np.average(losses, weights=weights), rel=1e-9)
    assert judge.judge(problem, [], gradient=True).value == pytest.approx(value, rel=1e-12)


def test_leave_one_out_of_a_lasso_is_that_of_its_refits():
    X, y = _sample()
    problem = Problem(Squared(), L1(2.0), X, y, np.ones(len(y)))
    judge = LeaveOneOutJudge(SquaredError(), y, np.full(len(y), 1 / len(y)))
    refits = [solve(Fit.at_start(problem.without(np.array([i])))).fit.eta[i] for i in range(len(y))]
    judged = judge.judge(problem, [], gradient=True)
    assert judged.value == pytest.approx(np.mean((y - refits) ** 2), rel=1e-9)
    assert len(judged.parts) > 1  # rows whose pattern changes have parts of their own


def test_rows_without_weight_are_not_drawn():
    X, y = _sample(n=60)
    held = np.sort(np.random.default_rng(2).permutation(60)[:25])
    weights = np.zeros(60)
    weights[held] = 1.0
    whole = Problem(Squared(), L1(2.0), X, y, weights)
    few = Problem(Squared(), L1(2.0), X[held], y[held], weights[held])
    judge = LeaveOneOutJudge(SquaredError(), y, weights / 25)
    alone = LeaveOneOutJudge(SquaredError(), y[held], weights[held] / 25)
    value, expected = (
        own.of_some(10).judge(problem, [], gradient=False).value
        for own, problem in ((judge, whole), (alone, few))
    )
    assert value == pytest.approx(expected, rel=1e-9)


def test_single_rows_average_to_the_gradient_of_all():
    """Algorithm 2 of the 2017 paper is unbiased for its Algorithm 1."""
    X, y = _sample()
    problem = Problem(Squared(), L2(2.0), X, y, np.ones(len(y)))
    judge = LeaveOneOutJudge(SquaredError(), y, np.full(len(y), 1 / len(y)), exact=False)
    (whole,) = judge.judge(problem, [], gradient=True).parts
    rows = [
        replace(judge, batch=np.array([i])).judge(problem, [], gradient=True).parts[0].cotangent
        for i in range(len(y))
    ]
    mean = np.mean([row.gradient for row in rows], axis=0)
    np.testing.assert_allclose(mean, whole.cotangent.gradient, rtol=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_held_out_sets_are_solved_without(weighted):
    X, y = _sample()
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(y)) if weighted else np.ones(len(y))
    drawn = folds.monte_carlo(len(y), 6, 0.7, 0)
    problem = Problem(Squared(), L1(1.5), X, y, np.ones(len(y)))
    judge = HeldOutJudge(SquaredError(), y, weights, drawn)
    losses = []
    for rows in drawn.removed:
        fit = solve(Fit.at_start(problem.without(rows))).fit
        losses.append((y[rows] - fit.eta[rows]) ** 2)
    expected = np.average(np.concatenate(losses), weights=weights[drawn.rows])
    judged = judge.judge(problem, [], gradient=False)
    assert judged.value == pytest.approx(expected, rel=1e-10)
    again = judge.judge(problem, judged.fits, gradient=True)  # from the fits just found
    assert again.value == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(
    ("n", "n_splits", "train_size"), [(40, 6, 0.8), (37, 11, 0.7), (20, 128, 0.95), (9, 5, 0.3)]
)
@pytest.mark.parametrize("seed", range(3))
def test_monte_carlo_splits_are_balanced(n, n_splits, train_size, seed):
    drawn = folds.monte_carlo(n, n_splits, train_size, seed)
    held = np.bincount(drawn.rows, minlength=n)
    assert np.ptp(held) <= 1
    sizes = {len(rows) for rows in drawn.removed}
    assert sizes == {n - round(train_size * n)}
    assert all(len(np.unique(rows)) == len(rows) for rows in drawn.removed)
