"""Rows of leverage one, which hold a coefficient up alone, against refits."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from onefit.curvature import factor
from onefit.fit import Fit
from onefit.losses import Logistic, Squared
from onefit.penalties import L1, L2, ElasticNet
from onefit.problem import Problem
from onefit.risk import full_leverage, one_fit
from onefit.risk.refit import without
from onefit.solvers.solve import solve

N = 50


def _fit(loss, strength, storage=np.asarray, fit_intercept=True):
    """Three columns for all rows, and one each for rows 4 and 7."""
    rng = np.random.default_rng(0)
    X = np.zeros((N, 5))
    X[:, :3] = rng.normal(size=(N, 3))
    X[4, 3], X[7, 4] = 2.0, -3.0
    y = X @ np.array([1.0, -1.0, 0.5, 4.0, 4.0]) + 0.5 * rng.normal(size=N)
    y = (y > 0).astype(float) if isinstance(loss, Logistic) else y
    problem = Problem(loss, L1(strength), storage(X), y, np.ones(N), np.array(fit_intercept))
    return solve(Fit.at_start(problem)).fit


def _let_go(fit):
    curvature = factor(fit)
    step = one_fit.Step.of(fit, curvature)
    rows = np.flatnonzero(step.taken(fit).slack < one_fit.FULL_LEVERAGE)
    return rows, full_leverage.let_go(fit, curvature, step.forms, step.shift, rows)


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_exact_for_least_squares_that_lose_nothing_else(storage, fit_intercept):
    fit = _fit(Squared(), 0.2, storage, fit_intercept)
    rows, eta = _let_go(fit)
    assert rows.tolist() == [4, 7]
    np.testing.assert_allclose(eta, [without(fit, int(i)).eta[i] for i in rows], rtol=1e-9)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(("strength", "error"), [(0.05, 0.005), (0.5, 0.03)])
def test_close_for_a_curved_loss(strength, error, fit_intercept):
    """The rows leave a shift of the coefficients to the step: small beside how far they are thrown."""
    fit = _fit(Logistic(), strength, fit_intercept=fit_intercept)
    rows, eta = _let_go(fit)
    assert rows.tolist() == [4, 7]
    refits = np.array([without(fit, int(i)).eta[i] for i in rows])
    moved = np.abs(refits - fit.eta[rows])
    assert (np.abs(eta - refits) < error * moved).all()
    # in passing, where nothing is solved anew, the same rows are not thrown far out
    passing = one_fit.loo(fit, thorough=False).eta[rows]
    assert (np.abs(passing - refits) < error * moved).all()


@pytest.mark.parametrize("penalty", [L2(1.0), ElasticNet(1.0, 0.5)])
def test_only_where_the_penalty_has_a_kink(penalty):
    rng = np.random.default_rng(0)
    problem = Problem(Squared(), penalty, rng.normal(size=(20, 3)), rng.normal(size=20), np.ones(20))
    fit = solve(Fit.at_start(problem)).fit
    assert full_leverage.applies(fit) == isinstance(penalty, ElasticNet)
