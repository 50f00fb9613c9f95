"""In which ways a row is refined, and what it takes."""

from __future__ import annotations

import numpy as np
import pytest

from onefit.fit import Fit
from onefit.leave_out import leave_out
from onefit.leave_out.refit import refit_cost
from onefit.leave_out.ways import Way, usual_way
from onefit.losses import Squared
from onefit.penalties import L1, L2, Box
from onefit.problem import Problem
from onefit.solvers.solve import solve


def _fit(penalty):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 90)), rng.normal(size=60)
    return solve(Fit.at_start(Problem(Squared(), penalty, X, y, np.ones(60)))).fit


@pytest.mark.parametrize("strength", [15.0, 5.0])
def test_rows_that_change_the_pattern_are_costed_as_those_that_are_solved_anew(strength):
    """Nonnegative coefficients: steps know no pattern but the fit's, and settle for the other rows."""
    fit = _fit(L1(strength) + Box(lower=0.0))
    (work, way), anew = usual_way(fit), refit_cost(fit)
    share = len(leave_out(fit, max_error=0.0).anew) / 60
    assert way is Way.REPEAT
    assert share >= 0.2
    assert 0.4 * share * anew.seconds <= work.seconds <= 3.0 * share * anew.seconds


def test_rows_without_patterns_take_their_steps():
    fit = _fit(L2(5.0))
    work, way = usual_way(fit)
    assert way is Way.REPEAT
    assert work.seconds < 0.1 * refit_cost(fit).seconds
