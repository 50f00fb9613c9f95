"""Between what left-out predictors lie, beside refits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from builders import without
from onefit.fit import Fit
from onefit.leave_out.bracket import has_bracket, left_out_between
from onefit.losses import Exponential, Logistic, Poisson, SquaredHinge
from onefit.penalties import L1, L2
from onefit.problem import Problem
from onefit.solvers.solve import solve

N = 30
LOSSES = [Logistic(), Poisson(), Exponential()]


def problem_of(loss, strength: float, seed: int = 0, p: int = 4, **others) -> Problem:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, p)) + 0.5
    eta = X[:, 0] - 0.5 * X[:, 1]
    y = rng.poisson(np.exp(0.5 * eta)).astype(float)
    if loss.of_two_classes:
        y = (eta + rng.logistic(size=N) > 0.5).astype(float)
    return Problem(loss, L2(strength), X, y, np.ones(N), **others)


def is_between(fit: Fit) -> np.ndarray:
    """Whether each refit's predictor is where it is said to be; and rows of which anything is said."""
    found = left_out_between(fit)
    known = np.flatnonzero(np.isfinite(found.bounds) & (fit.problem.weights > 0))
    for i in known:
        anew = without(fit, int(i)).eta[i]
        assert abs(anew - found.eta[i]) <= found.bounds[i] * (1.0 + 1e-9) + 1e-9
        assert (anew - fit.eta[i]) * fit.gradient[i] >= -1e-9  # towards larger losses
    return known


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("strength", [3.0, 30.0, 300.0])
@pytest.mark.parametrize("intercept", [True, False])
def test_refits_are_between(loss, strength, intercept):
    for seed in range(4):
        problem = problem_of(loss, strength, seed, intercept=np.array(intercept))
        known = is_between(solve(Fit.at_start(problem)).fit)
        assert known.size == N or strength < 300.0


def test_weights_and_sparse_columns():
    problem = problem_of(Logistic(), 60.0)
    weights = np.random.default_rng(1).integers(0, 3, N).astype(float)
    assert is_between(solve(Fit.at_start(replace(problem, weights=weights))).fit).size > 10
    X = sp.csr_array(np.where(np.abs(problem.X) > 0.7, problem.X, 0.0))
    assert is_between(solve(Fit.at_start(replace(problem, X=X))).fit).size == N


def test_more_columns_than_rows():
    fit = solve(Fit.at_start(problem_of(Logistic(), 3000.0, p=60))).fit
    assert is_between(fit).size == N
    assert left_out_between(fit).bounds.max() < 0.2


def test_what_has_none():
    assert has_bracket(Fit.at_start(problem_of(Logistic(), 1.0)))
    for problem in (
        problem_of(Logistic(), 0.0),
        problem_of(Poisson(), 1.0, mean_scaled=True),
        problem_of(SquaredHinge(), 1.0),
        replace(problem_of(Logistic(), 1.0), penalty=L1(1.0)),
    ):
        assert not has_bracket(Fit.at_start(problem))
