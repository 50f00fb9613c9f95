"""Ridge on many training sets from one Gram matrix: equal to solving each on its own."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from onefit.curvature import Direction, factor
from onefit.fit import Fit
from onefit.losses import Logistic, Squared
from onefit.penalties import L1, L2
from onefit.problem import Problem
from onefit.solvers.ridge_splits import RidgeSplits
from onefit.solvers.solve import solve

N, P = 50, 7
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, P)) + 3.0
Y = X[:, 0] + RNG.normal(size=N)


def _problem(penalty, *, fit_intercept=True, weights=None, mean_scaled=False):
    weights = np.ones(N) if weights is None else weights
    return Problem(Squared(), penalty, X, Y, weights, np.array(fit_intercept), mean_scaled)


@pytest.mark.parametrize("mean_scaled", [False, True])
@pytest.mark.parametrize("penalty", [L2(2.0), L2(np.linspace(0.1, 9.0, P)), L2(0.0)], ids=repr)
def test_as_if_solved_alone(penalty, mean_scaled, weigh, fit_intercept):
    problem = _problem(penalty, fit_intercept=fit_intercept, weights=weigh(N), mean_scaled=mean_scaled)
    splits = RidgeSplits.of(problem)
    other = replace(problem, penalty=penalty.scaled(3.0))
    for one, removed in ((problem, np.array([3, 8, 20])), (other, np.arange(10))):
        assert splits.serves(one)
        fit, curvature = splits.without(one.without(removed), removed)
        alone = solve(Fit.at_start(one.without(removed))).fit
        np.testing.assert_allclose(fit.coef, alone.coef, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(fit.eta, alone.eta, rtol=1e-9, atol=1e-12)
        gradient = Direction(np.arange(1.0, P + 1), np.array(2.0 if fit_intercept else 0.0))
        for ours, theirs in zip(curvature.solve(gradient), factor(alone).solve(gradient), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-12)


def test_too_few_rows_are_left_to_others():
    problem, removed = _problem(L2(0.0)), np.arange(N - P)
    assert RidgeSplits.of(problem).without(problem.without(removed), removed) is None


@pytest.mark.parametrize(
    "changes",
    [{"loss": Logistic()}, {"penalty": L1(1.0)}, {"X": sp.csr_array(X)}, {"X": np.tile(X, 8)}],
    ids=["another loss", "kinks", "sparse", "wide"],
)
def test_what_it_is_not_for(changes):
    assert RidgeSplits.of(replace(_problem(L2(1.0)), **changes)) is None


def test_another_problem_is_not_served():
    problem = _problem(L2(1.0))
    splits = RidgeSplits.of(problem)
    assert splits.serves(replace(problem, X=X.copy()))
    for changes in ({"X": X + 1.0}, {"y": Y + 1.0}, {"weights": np.full(N, 2.0)}, {"penalty": L1(1.0)}):
        assert not splits.serves(replace(problem, **changes))
