"""A common factor of weights and penalty changes no fit, nor does a strength that is all but nothing."""

from __future__ import annotations

import numpy as np
import pytest

import onefit
from onefit.fit import Fit
from onefit.losses import EpsilonInsensitive, Hinge, Logistic, Poisson, Quantile
from onefit.penalties import L1, L2, FusedLasso, GroupLasso
from onefit.problem import Problem
from onefit.solvers.solve import solve

LOSSES = [Hinge(), Quantile(0.3), EpsilonInsensitive(0.1), Logistic(), Poisson()]
PENALTIES = [L2(1.0), L1(0.5), FusedLasso(0.5), GroupLasso([[0, 1], [2, 3]], 0.5)]


def _data(loss):
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(60, 4)), rng.uniform(0.5, 2.0, 60)
    weights[7] = 0.0
    eta = X @ [0.3, -0.2, 0.1, 0.4]
    counts, y = rng.poisson(np.exp(eta)).astype(float), eta + 0.3 * rng.normal(size=60)
    if isinstance(loss, Poisson):
        return X, counts, weights
    return X, (y > 0).astype(float) if loss.of_two_classes else y, weights


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("penalty", PENALTIES, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("factor", [1e12, 1e-12])
def test_a_common_factor_changes_no_fit(loss, penalty, factor):
    if isinstance(penalty, GroupLasso) and loss.has_kinks:
        pytest.importorskip("clarabel")
    X, y, weights = _data(loss)
    one = solve(Fit.at_start(Problem(loss, penalty, X, y, weights))).fit
    other = solve(Fit.at_start(Problem(loss, penalty.scaled(factor), X, y, factor * weights))).fit
    np.testing.assert_allclose(other.coef, one.coef, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(other.eta, one.eta, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(other.gradient / factor, one.gradient, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("loss", [Logistic(), Poisson()], ids=repr)
@pytest.mark.parametrize("some", [slice(None), slice(3, 4)], ids=["all", "one"])
def test_strengths_of_which_rounding_is_no_small_share(loss, some):
    X, y, weights = _data(loss)
    weights[some] *= 1e12
    fit = solve(Fit.at_start(Problem(loss, L1(1e-3), X, y, weights))).fit
    nothing = solve(Fit.at_start(Problem(loss, L2(1e-6), X, y, weights))).fit
    assert np.all(np.abs(fit.loss_gradient) <= 1e-11 * np.abs(X.T) @ np.abs(weights))
    if some == slice(None):
        np.testing.assert_allclose(fit.eta, nothing.eta, atol=1e-8)


@pytest.mark.parametrize("loss", ["hinge", "quantile"])
def test_leave_one_out_takes_weights_in_any_units(loss):
    X, y, weights = _data(Hinge() if loss == "hinge" else Quantile())
    values = []
    for factor in (1.0, 1e12):
        model = onefit.GeneralizedLinear(loss, L2(factor)).fit(X, y, sample_weight=factor * weights)
        values.append(onefit.loo(model, X, y, sample_weight=factor * weights).value)
    np.testing.assert_allclose(values[1], values[0], rtol=1e-6)
