"""Losses with kinks on columns that lie far from zero beside their spread."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import Lasso, QuantileRegressor

import onefit
from onefit.fit import Fit
from onefit.losses import EpsilonInsensitive, Hinge, Huber, Quantile, SquaredHinge
from onefit.penalties import L1, L2, Box, ElasticNet, FusedLasso, GroupLasso, Slope
from onefit.problem import Problem
from onefit.solvers.solve import solve

LOSSES = {
    "quantile": Quantile(0.3),
    "median": Quantile(0.5),
    "insensitive": EpsilonInsensitive(0.2),
    "hinge": Hinge(),
    "squared hinge": SquaredHinge(),
    "huber": Huber(1.0),
}
PENALTIES = {
    "ridge": L2(1.0),
    "none": L2(0.0),
    "lasso": L1(2.0),
    "net": ElasticNet(1.0, 0.5),
    "box": Box(-0.5, 0.5),
    "fused": FusedLasso(1.0),
    "group": GroupLasso([0, 0, 1, 1, 2], 1.0),
    "slope": Slope((3.0, 2.0, 1.0, 1.0, 1.0), 0.5),
}
FAR = np.array([1e5, -3e5, 0.0, 1e4, 2e6])


def drawn(loss):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5))
    y = X @ [1.0, -1.0, 0.5, 0.0, 0.0] + rng.normal(size=60)
    return X, (y > 0).astype(float) if "hinge" in loss else y, rng.uniform(0.5, 2.0, 60)


@pytest.mark.costly
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_columns_may_lie_anywhere_where_there_is_an_intercept(loss, penalty):
    X, y, weights = drawn(loss)
    near = solve(Fit.at_start(Problem(LOSSES[loss], PENALTIES[penalty], X, y, weights))).fit
    problem = Problem(LOSSES[loss], PENALTIES[penalty], X + FAR, y, weights)
    far = solve(Fit.at_start(problem)).fit
    size = float(np.abs(near.eta).max())
    assert far.objective == pytest.approx(near.objective, rel=1e-8)
    np.testing.assert_allclose(far.eta, near.eta, atol=1e-6 * size)
    np.testing.assert_allclose(far.problem.linear_predictor(far.coef, far.intercept), far.eta, atol=1e-6)
    np.testing.assert_array_equal(far.pinned, near.pinned)
    anew = solve(Fit(problem.without(3), far.coef, far.intercept)).fit
    there = solve(Fit.at_start(near.problem.without(3))).fit
    np.testing.assert_allclose(anew.eta[3], there.eta[3], atol=1e-6 * size)


@pytest.mark.costly
@pytest.mark.parametrize("penalty", ["ridge", "lasso", "net"])
@pytest.mark.parametrize("loss", ["quantile", "hinge"])
def test_rows_of_far_columns_are_told_as_refits_have_them(loss, penalty):
    X, y, weights = drawn(loss)
    model = onefit.GeneralizedLinear(LOSSES[loss], PENALTIES[penalty])
    est = onefit.loo(model.fit(X + FAR, y, weights), X + FAR, y, sample_weight=weights, exact=True)
    assert est.guarantee == "exact"
    for i in range(0, 60, 6):
        kept = np.arange(60) != i
        refit = model.fit(X[kept], y[kept], weights[kept])
        own = refit.decision_function if loss == "hinge" else refit.predict
        assert own(X[[i]])[0] == pytest.approx(est.decision[i], abs=1e-5)


@pytest.mark.parametrize("level", [2.0**20, 2.0**24])
@pytest.mark.parametrize(
    "model",
    [
        onefit.GeneralizedLinear(Quantile(0.3), L1(1.0)),
        onefit.GeneralizedLinear("squared", Slope(np.linspace(8.0, 2.0, 6))),
        onefit.GeneralizedLinear(Huber(1.0), Slope(np.linspace(4.0, 1.0, 6))),
        Lasso(0.1, tol=1e-12, max_iter=10**6),
    ],
    ids=["quantile", "slope", "huber slope", "lasso of two"],
)
def test_a_level_of_the_columns_changes_no_left_out_value(model, level):
    """Tolerances beside columns as they are would take gradients for none, and prove what is wrong."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 6))
    y = X[:, 0] - 0.5 * X[:, 1] + rng.normal(size=40)
    if isinstance(model, Lasso):
        y = np.column_stack([y, X[:, 2] + rng.normal(size=40)])
    far = X + level
    near = far - level  # without the digits that the level takes
    there, here = (onefit.loo(clone(model).fit(Z, y), Z, y, exact=True) for Z in (far, near))
    room = np.maximum(there.bounds, 1e-6)
    assert np.all(np.abs(there.predictions - here.predictions).reshape(40, -1).max(axis=1) <= room)


def test_quantiles_of_far_columns_are_those_of_scikit_learn():
    X, y, _ = drawn("quantile")
    model = QuantileRegressor(quantile=0.3, alpha=0.02).fit(X, y)
    own = onefit.GeneralizedLinear(Quantile(0.3), L1(0.02 * 60)).fit(X + FAR, y)
    np.testing.assert_allclose(own.predict(X + FAR), model.predict(X), atol=1e-6)


def test_without_an_intercept_columns_stay_where_they_are():
    X, y, weights = drawn("quantile")
    problem = Problem(Quantile(0.3), L2(1.0), X + 200.0, y, weights, np.array(False))
    fit = solve(Fit.at_start(problem)).fit
    assert fit.intercept == 0.0
    for step in (1e-3, -1e-3):
        for j in range(5):
            assert fit.moved(fit.coef + step * np.eye(5)[j], fit.intercept).objective > fit.objective
