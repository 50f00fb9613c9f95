"""The curvature of many outputs at once, against sums over all rows, and what is solved with it."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from sklearn.linear_model import LogisticRegression

from onefit.exceptions import SolverError
from onefit.torch.features import lockstep
from onefit.torch.features.one_against_rest import NearCurvature, solving

N, P = 300, 6


def features():
    return np.random.default_rng(0).normal(size=(N, P)) + 0.5


def exactly(X, d, alpha):
    Z = np.hstack([X, np.ones((N, 1))])
    return (Z.T * d) @ Z + np.diag([*np.full(P, alpha), 0.0])


@pytest.mark.parametrize("kind", ["equal", "few"])
def test_equal_weights_and_few_weights_are_exact(kind):
    X, d = features(), np.full((N, 2), [0.25, 0.1])
    if kind == "few":  # fewer than one row in five
        d[50:], d[:50] = 0.0, np.random.default_rng(1).uniform(0.01, 0.25, (50, 2))
    sums = NearCurvature(X)
    K = sums.curvature(sums.moments(d), 0.7)
    gradient = np.random.default_rng(2).normal(size=(P + 1, 2))
    found = solving(K)(gradient)
    for k in range(2):
        np.testing.assert_allclose(
            found[:, k], np.linalg.solve(exactly(X, d[:, k], 0.7), gradient[:, k]), rtol=1e-9
        )
    rows = np.array([0, 7, 200])
    forms = sums.curvature(sums.moments(d), 0.7, rows).quadratic_forms()
    Z = np.hstack([X[rows], np.ones((3, 1))])
    for k in range(2):
        expected = np.einsum("ij,ji->i", Z, np.linalg.solve(exactly(X, d[:, k], 0.7), Z.T))
        np.testing.assert_allclose(forms[:, k], expected, rtol=1e-9)


def test_other_weights_keep_their_sum():
    """Along the intercept, where the curvature is the sum of the weights, nothing is lost."""
    X, d = features(), np.random.default_rng(1).uniform(0.0, 0.25, (N, 1))
    sums = NearCurvature(X)
    found = solving(sums.curvature(sums.moments(d), 0.7))(exactly(X, d[:, 0], 0.7)[:, -1:])
    np.testing.assert_allclose(found[:, 0], [*np.zeros(P), 1.0], atol=1e-12)


def regressions(alpha=0.5):
    X, rng = features(), np.random.default_rng(3)
    targets = (X @ rng.normal(size=(P, 3)) + rng.logistic(size=(N, 3)) > 1.0).astype(float)
    return lockstep.Regressions(X, targets, rng.uniform(0.5, 2.0, N), alpha)


@pytest.mark.parametrize("scale", [1.0, 50.0])
def test_regressions_in_step_are_those_of_scikit_learn(scale):
    """From far away too, where full Newton steps overshoot."""
    several = regressions()
    sums = NearCurvature(several.X)
    start = scale * np.random.default_rng(4).normal(size=(P + 1, 3))
    state = several.descended(
        start, lambda one: solving(sums.curvature(sums.moments(one.d), several.alpha)), 1e-11
    )
    for k, target in enumerate(several.targets.T):
        model = LogisticRegression(C=1.0 / several.alpha, tol=1e-12, max_iter=10_000)
        model.fit(several.X, target, several.weights)
        np.testing.assert_allclose(state.theta[:-1, k], model.coef_[0], atol=1e-6)
        np.testing.assert_allclose(state.theta[-1, k], model.intercept_[0], atol=1e-6)
    np.testing.assert_allclose(state.gradient, 0.0, atol=1e-6)


def test_what_does_not_settle_is_an_error(monkeypatch):
    monkeypatch.setattr(lockstep, "STEPS", 1)
    several = regressions()
    with pytest.raises(SolverError, match="3 classes did not settle in 1 steps"):
        several.descended(np.zeros((P + 1, 3)), lambda _: lambda gradient: gradient, 1e-11)
