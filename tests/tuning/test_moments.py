"""Sums over training sets that serve every strength: the same risk, the same gradient, from less work."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from onefit.curvature import Direction, factor
from onefit.fit import Fit
from onefit.leave_out.sets import Folds
from onefit.losses import Logistic, Squared
from onefit.metrics import SquaredError
from onefit.penalties import L1, L2, ElasticNet
from onefit.problem import Moments, Problem
from onefit.solvers.solve import solve
from onefit.tuning.held_out import HeldOutJudge

N, P = 60, 8
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, P)) + 3.0
Y = X @ np.array([2.0, -1.0, 0.5, 0, 0, 0, 0, 0]) + RNG.normal(size=N)
WEIGHTS = RNG.integers(1, 4, N).astype(float)


def _problem(penalty, fit_intercept=True):
    return Problem(Squared(), penalty, X, Y, WEIGHTS, np.array(fit_intercept), mean_scaled=True)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("penalty", [L1(20.0), ElasticNet(30.0, 0.5), L2(1.0)], ids=repr)
def test_the_curvature_is_the_same(penalty, fit_intercept):
    problem = _problem(penalty, fit_intercept)
    fit = solve(Fit.at_start(problem)).fit
    known = replace(fit, problem=replace(problem, moments=Moments.of(problem)))
    assert known.problem.known_moments is not None
    plain, summed = factor(fit), factor(known)
    np.testing.assert_allclose(summed.quadratic_forms(), plain.quadratic_forms(), rtol=1e-10)
    gradient = Direction(
        np.where(fit.tangent.support, RNG.normal(size=P), 0.0), np.asarray(float(fit_intercept))
    )
    for one, other in zip(summed.solve(gradient), plain.solve(gradient), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


def test_sums_of_other_rows_or_for_another_loss_are_not_used():
    problem = _problem(L1(20.0))
    known = replace(problem, moments=Moments.of(problem))
    assert known.known_moments is not None
    assert known.without(3).known_moments is None
    assert replace(known, X=X.copy()).known_moments is None
    assert replace(known, loss=Logistic()).known_moments is None


class _Summing(HeldOutJudge):
    """Counts how often sums over a training set are taken."""

    taken = 0

    def _training(self, problem, k):
        before = self.moments.get(k)
        training = super()._training(problem, k)
        type(self).taken += self.moments.get(k) is not before
        return training


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_they_are_taken_once_and_change_nothing(fit_intercept):
    sets = list(np.array_split(np.arange(N), 5))
    folds = Folds(tuple(sets), tuple(sets), N)
    judge = _Summing(SquaredError(), Y, np.ones(N), folds)
    _Summing.taken = 0
    for strength in (30.0, 10.0, 3.0):
        problem = _problem(L1(strength), fit_intercept)
        found = judge.judge(problem, [], gradient=True)
        plain = 0.0
        for rows, part in zip(sets, found.parts, strict=True):
            refit = solve(Fit.at_start(problem.without(rows))).fit
            plain += float(np.sum((Y[rows] - refit.eta[rows]) ** 2)) / N
            np.testing.assert_allclose(part.fit.coef, refit.coef, atol=1e-10)
        assert found.value == pytest.approx(plain, rel=1e-10)
    assert _Summing.taken == len(sets)
