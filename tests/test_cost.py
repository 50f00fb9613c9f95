"""What computations are costed at."""

from __future__ import annotations

import numpy as np
import pytest

from onefit import cost
from onefit.fit import Fit
from onefit.losses import Logistic, Multinomial, Squared
from onefit.penalties import L1, L2
from onefit.problem import Problem
from onefit.solvers.solve import solve
from onefit.solvers.truncated import Seconds


def _fit(loss, penalty, n=40, p=60, separate=0.0):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p))
    if isinstance(loss, Squared):
        y = X[:, 0] + rng.normal(size=n)
    else:
        y = (X[:, 0] + rng.logistic(size=n) * (1.0 - separate) > 0).astype(float)
    several = isinstance(loss, Multinomial)
    intercept = np.ones(3 if several else (), dtype=bool)
    if several:
        y = rng.integers(3, size=n).astype(float)
    return solve(Fit.at_start(Problem(loss, penalty, X, y, np.ones(n), intercept))).fit


def test_a_factor_on_the_side_of_the_rows_asks_for_no_sums_over_them():
    wide, tall = (cost.newton_step(n, 0, 1000).flops for n in (1000, 1001))
    assert wide < 0.3 * tall
    assert cost.newton_step(1000, 0, 4000).flops == wide


def test_a_row_of_coupled_outputs_adds_as_many_directions():
    fit = _fit(Multinomial(3), L2(1.0), n=20)  # 180 coefficients, 40 differences of predictors
    assert Seconds.of(fit).factored == cost.newton_step(20, 0, 40, 3).seconds
    assert cost.newton_step(20, 0, 60, 3).flops > 5 * cost.newton_step(20, 0, 60).flops
    assert cost.newton_step(20, 0, 180, 3).flops == cost.newton_step(20, 0, 60, 3).flops


def test_saturation_counts_the_rows_that_bend():
    squared = _fit(Squared(), L1(5.0))
    assert squared.saturation == pytest.approx(squared.tangent.size / 40)
    noisy, separated = _fit(Logistic(), L1(1.0)), _fit(Logistic(), L1(0.01), separate=1.0)
    for fit in (noisy, separated):
        bends = fit.hessian
        assert fit.saturation == pytest.approx(
            min(1.0, fit.tangent.size * (bends @ bends) / bends.sum() ** 2)
        )
    assert separated.saturation > 2 * separated.tangent.size / 40
    assert _fit(Multinomial(3), L1(0.1)).saturation <= 1.0


def test_saturation_of_nothing_that_bends_is_full():
    fit = _fit(Logistic(), L1(0.1))
    far = Fit(fit.problem, 1e5 * fit.coef, fit.intercept)
    assert not far.hessian.any()
    assert far.saturation == 1.0
