"""Steps of all rows together, and their bounds by the gradient that is left."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import onefit
from onefit.curvature import factor
from onefit.fit import Fit
from onefit.leave_out import residual
from onefit.leave_out.prove import bound_steps
from onefit.leave_out.refit import without
from onefit.leave_out.step import Step
from onefit.losses import Exponential, Logistic, Poisson
from onefit.penalties import L2
from onefit.problem import Problem
from onefit.solvers.solve import solve


def fit_of(loss, n, p, seed, strength=0.3, intercept=True):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * np.exp(rng.normal(size=(n, 1)))
    eta = X[:, :3].sum(axis=1) / (1.0 + np.abs(X[:, :3]).sum(axis=1))
    y = rng.poisson(np.exp(eta)) if isinstance(loss, Poisson) else eta + rng.logistic(size=n) > 0
    weights = rng.integers(0, 3, size=n).astype(float)
    problem = Problem(loss, L2(strength), X, y.astype(float), weights, np.array(intercept))
    return solve(Fit.at_start(problem)).fit


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("n", "p"), [(60, 5), (50, 120)])
@pytest.mark.parametrize("loss", [Logistic(), Poisson(), Exponential()])
@pytest.mark.parametrize("strength", [0.3, 10.0])
def test_no_row_is_further_off_than_its_bound(loss, n, p, intercept, strength):
    fit = fit_of(loss, n, p, 0, strength, intercept)
    step = Step.of(fit, factor(fit))
    first, rows = step.taken(fit), np.flatnonzero(fit.problem.weights > 0)
    assert residual.applies(fit, step.curvature)
    found = residual.weigh(fit, step, first.slack, rows)
    exact = np.array([without(fit, i).eta[i] for i in rows])
    off = np.abs(found.eta - exact)
    assert np.all(off <= found.bounds + 1e-8 * (1.0 + np.abs(exact)))
    known = np.isfinite(found.bounds)
    before = np.isfinite(bound_steps(fit, step, first.eta, first.slack))[rows]
    assert np.all(known[before])
    assert known.sum() >= max(before.sum() + (p > n), 20)
    np.testing.assert_allclose(found.eta[~found.further], first.eta[rows][~found.further])
    coef, level = residual.parameters(fit, step, found.dual)
    eta = np.sum(fit.problem.X[rows].T * coef, axis=0) + level
    np.testing.assert_allclose(eta[known], found.eta[known], atol=1e-8 * np.abs(fit.eta).max())


def test_more_columns_than_rows_are_bounded_not_sampled():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 600)) * (rng.random((200, 600)) < 0.05) * np.exp(rng.normal(size=(200, 1)))
    y = (X[:, :40].sum(axis=1) + rng.logistic(size=200) > 0).astype(int)
    model = LogisticRegression(C=30.0, tol=1e-8, max_iter=5000).fit(X, y)
    est = onefit.loo(model, X, y)
    exact = onefit.loo(model, X, y, exact=True)
    assert est.guarantee in ("bounded", "exact")
    assert est.flagged.size == 0
    assert abs(est.value - exact.value) <= est.approx_error
    assert np.all(np.abs(est.decision - exact.decision) <= est.bounds + 1e-7)
