"""Rows left out of smooth losses between bounds: steps on the piece, and what tells that it stays."""

import numpy as np
import pytest
import scipy.sparse as sp

from builders import without
from onefit.fit import Fit
from onefit.leave_out import leave_out
from onefit.losses import Logistic, Poisson
from onefit.numerics import KNOWN
from onefit.penalties import L1, L2, Box
from onefit.problem import Problem
from onefit.solvers.solve import solve

PENALTIES = {
    "non-negative": L2(0.5) + Box(lower=0.0),
    "between": L2(0.1) + Box(-0.3, 0.4),
    "lasso": L1(1.5) + Box(lower=0.0, upper=0.6) + L2(0.2),
}


def _fit(seed, penalty, loss, *, sparse=False, intercept=True):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, 8)) * (rng.random((40, 8)) < 0.7)
    eta = X @ rng.normal(size=8)
    classes = rng.random(40) < 1 / (1 + np.exp(-eta))
    y = (classes if isinstance(loss, Logistic) else rng.poisson(2.0, 40)).astype(float)
    weights = rng.uniform(0.5, 1.5, size=40)
    problem = Problem(
        loss, penalty, sp.csc_array(X) if sparse else X, y, weights, intercept=np.array(intercept)
    )
    return solve(Fit.at_start(problem)).fit


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("loss", [Logistic(), Poisson()])
@pytest.mark.parametrize("name", PENALTIES)
def test_bounds_of_steps_hold(name, loss, sparse):
    for seed in range(2):
        fit = _fit(seed, PENALTIES[name], loss, sparse=sparse, intercept=seed != 1)
        found = leave_out(fit, None, KNOWN)
        exact = np.array([without(fit, i).eta[i] for i in range(fit.problem.n)])
        assert np.all(np.abs(found.eta - exact) <= found.bounds + 1e-7 * np.abs(fit.eta).max())


def test_rows_that_keep_their_pattern_need_no_refit():
    fit = _fit(0, PENALTIES["non-negative"], Logistic())
    found = leave_out(fit, None, 0.01)
    patterns = [
        np.array_equal(without(fit, i).tangent.support, fit.tangent.support) for i in range(fit.problem.n)
    ]
    assert np.isfinite(found.bounds).all()
    assert len(found.anew) <= fit.problem.n - sum(patterns)
    assert 0 < sum(patterns) < fit.problem.n


def test_nearly_separated_classes_are_solved_on_the_manifold(monkeypatch):
    from onefit.solvers import quadratic_program

    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 6))
    y = (X @ np.array([2.0, 1.0, 0.5, 0.0, -0.5, 0.0]) > 0.2).astype(float)
    fits = [_separated(X, y, strength) for strength in (1e-6, 1e-9)]
    monkeypatch.setattr(quadratic_program, "solve", None)
    for fit in fits:
        for i in range(2):
            found = solve(Fit(fit.problem.without(i), fit.coef, fit.intercept)).fit
            slope = found.loss_gradient + found.problem.penalty.ridge(found.coef.shape) * found.coef
            free = found.coef > 0
            size = np.abs(found.loss_gradient).max()
            assert np.abs(slope[free]).max() <= 1e-6 * size
            assert slope[~free].min(initial=0.0) >= -1e-6 * size


def _separated(X, y, strength):
    return solve(Fit.at_start(Problem(Logistic(), L2(strength) + Box(lower=0.0), X, y, np.ones(len(y))))).fit
