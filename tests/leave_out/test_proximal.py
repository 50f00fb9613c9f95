"""Rows that are left out of curved fits with kinks by iteration, beside refits."""

from __future__ import annotations

import numpy as np
import pytest

from onefit.fit import Fit
from onefit.leave_out import proximal
from onefit.leave_out.engine import leave_out
from onefit.leave_out.refit import without
from onefit.leave_out.tableau import Watched
from onefit.losses import Logistic
from onefit.numerics import CERTIFIED
from onefit.penalties import L1
from onefit.problem import Problem
from onefit.solvers.solve import solve


def factor(seed: int) -> Fit:
    """All five levels of a factor, one of them twice, beside an intercept: the columns are dependent."""
    rng = np.random.default_rng(seed)
    levels = np.eye(5)[rng.integers(0, 5, 32)]
    X = np.hstack([levels, rng.normal(size=(32, 1)), levels[:, [1]]])
    y = (X[:, 5] - X[:, 1] + rng.logistic(size=32) > 0).astype(float)
    return solve(Fit.at_start(Problem(Logistic(), L1(0.035), X, y, np.ones(32)))).fit


@pytest.mark.parametrize("seed", [22, 38, 47, 58, 80, 81])
def test_a_level_that_enters_makes_the_columns_dependent(seed):
    # the model then has no single minimum: an iteration that stands still there has not settled
    fit = factor(seed)
    assert proximal.applies(fit)
    ends = proximal.iterate(Watched.of(fit), np.arange(32), 1e5)
    found = leave_out(fit)
    for i in range(32):
        refit = without(fit, i).eta[i]
        size = 1.0 + np.abs(fit.eta).max()
        assert abs(ends.eta[i] - refit) <= ends.bounds[i] + CERTIFIED * size
        assert abs(found.eta[i] - refit) <= found.bounds[i] + CERTIFIED * size
