"""Directions that only saturated rows see: their curvature is below rounding, and nothing is proven by it."""

from __future__ import annotations

import numpy as np
import pytest

from onefit.curvature import factor
from onefit.fit import Fit
from onefit.leave_out.prove import bound_at, is_blind
from onefit.leave_out.stages import State
from onefit.losses import Logistic
from onefit.penalties import L2
from onefit.problem import Problem
from onefit.solvers.newton import Solution


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
