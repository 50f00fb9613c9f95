"""Several outputs that neither loss nor penalty ties together: each follows its own path."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import ElasticNet, Lasso, LassoLars

import onefit
from onefit.fit import Fit
from onefit.leave_out.follow import Paths, has_paths
from onefit.losses import Squared
from onefit.penalties import L1, L2, Box
from onefit.penalties import ElasticNet as Net
from onefit.problem import Problem
from onefit.solvers.solve import solve

N, P, C = 50, 12, 3


def drawn(p=P, n=N):
    rng = np.random.default_rng(0)
    X, B = rng.normal(size=(n, p)), np.zeros((p, C))
    B[:3] = rng.normal(size=(3, C))
    return X, X @ B + rng.normal(size=(n, C)), rng.uniform(0.5, 2.0, n)


STRENGTHS = {
    "one": L1(4.0),
    "one a feature": L1(np.linspace(2.0, 8.0, P)),
    "one a coefficient": L1(np.linspace(1.0, 9.0, P * C).reshape(P, C)),
    "elastic net": Net(6.0, 0.5),
}


@pytest.mark.parametrize("penalty", STRENGTHS.values(), ids=STRENGTHS)
@pytest.mark.parametrize("mean_scaled", [False, True])
@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
def test_rows_of_all_outputs_are_those_of_each(penalty, mean_scaled, store):
    X, Y, weights = drawn()
    intercept = np.array([True, False, True])
    problem = Problem(Squared(), penalty, store(X), Y, weights, intercept, mean_scaled)
    fit = solve(Fit.at_start(problem)).fit
    assert has_paths(fit)
    rows = np.arange(0, N, 3)
    found = Paths(fit).follow(rows)
    assert {*found.solved, *found.near} == {*rows.tolist()}
    assert len(found.solved) >= len(rows) - 2
    for i, one in found.solved.items():
        refit = solve(Fit.at_start(problem.without(i))).fit
        np.testing.assert_allclose(one.eta, refit.eta[i], atol=1e-8)
        np.testing.assert_allclose(one.coef, refit.coef, atol=1e-8)
        np.testing.assert_allclose(one.intercept, refit.intercept, atol=1e-8)


@pytest.mark.parametrize("p", [P, 80])
@pytest.mark.parametrize("model", [Lasso(0.1, tol=1e-12), ElasticNet(0.2, tol=1e-12), LassoLars(0.1)])
@pytest.mark.parametrize("exact", [False, True])
def test_models_of_several_responses_are_told_as_one_model_each_is(model, p, exact):
    X, Y, _ = drawn(p)
    model.set_params(max_iter=10**5)
    est = onefit.loo(model.fit(X, Y), X, Y, exact=exact)
    assert est.guarantee == "exact"
    apart = [onefit.loo(model.fit(X, y), X, y, exact=True) for y in Y.T]
    np.testing.assert_allclose(est.predictions, np.stack([one.predictions for one in apart], 1), atol=1e-6)
    assert est.value == pytest.approx(np.mean([one.value for one in apart]), rel=1e-6)
    refit = model.fit(np.delete(X, 4, 0), np.delete(Y, 4, 0))
    np.testing.assert_allclose(est.predictions[4], refit.predict(X[[4]])[0], atol=1e-6)


def test_the_strength_that_is_chosen_is_judged_by_the_mean_of_the_responses():
    X, Y, weights = drawn()
    tuned = onefit.LassoLOO(alphas=np.geomspace(1.0, 0.02, 12)).fit(X, Y, sample_weight=weights)
    model = Lasso(tuned.alpha_, tol=1e-12)
    apart = [onefit.loo(model.fit(X, y, weights), X, y, sample_weight=weights, exact=True) for y in Y.T]
    assert tuned.loo_.guarantee == "exact"
    assert tuned.loo_.value == pytest.approx(np.mean([one.value for one in apart]), rel=1e-6)


def test_outputs_that_something_ties_together_have_no_paths_of_their_own():
    X, Y, weights = drawn()
    for penalty in (L2(1.0), Box(lower=0.0) + L1(1.0)):
        problem = Problem(Squared(), penalty, X, Y, weights, np.ones(C, dtype=bool))
        assert not (problem.is_apart and has_paths(Fit.at_start(problem)))
