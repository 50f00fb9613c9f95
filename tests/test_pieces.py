"""Local models: where pieces end, and that nothing is taken for zero that a class does not know."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.optimize import minimize

import onefit
from onefit.curvature import factor
from onefit.fit import Fit
from onefit.gradients import leave_one_out, stencil, tangent_change
from onefit.leave_out.step import one_step
from onefit.losses import Hinge, Huber, Logistic, Quantile, Squared
from onefit.penalties import L1, L2, Box, FusedLasso, GroupLasso, Penalty, Slope, SparseGroupLasso
from onefit.pieces import Coordinates, Interval, Pieces, third_by_differences
from onefit.problem import Problem
from onefit.solvers.solve import solve


@dataclass(frozen=True)
class LogCosh(Penalty):
    """alpha Σ log cosh β_j, as a user would write it: smooth, and not quadratic."""

    alpha: float = 1.0
    pieces = Pieces.SMOOTH

    def value(self, coef):
        return float(self.alpha * np.sum(np.logaddexp(coef, -coef) - np.log(2.0)))

    def prox(self, coef, step):
        z, a = coef.copy(), step * self.alpha
        for _ in range(200):
            z = z - (z - coef + a * np.tanh(z)) / (1.0 + a)
        return z

    def tangent(self, coef, loss_gradient=None):
        slope = np.tanh(coef)
        return Coordinates(np.ones(coef.shape, dtype=bool), self.alpha * slope, self.alpha * (1.0 - slope**2))

    def third(self, coef, owed):
        return third_by_differences(self.tangent, coef, owed)

    def scaled(self, factor):
        return replace(self, alpha=self.alpha * factor)

    def has_kinks(self, shape):
        return False

    def has_free_directions(self, shape):
        return self.alpha == 0


def _data(loss, seed=0, n=50, p=4):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    y = X[:, 0] - X[:, 1] + rng.normal(size=n)
    return X, (y > 0).astype(float) if loss.of_two_classes else y, rng.uniform(0.5, 2.0, n)


@pytest.mark.parametrize("loss", [Hinge(), Quantile(0.3)], ids=repr)
@pytest.mark.parametrize("penalty", [LogCosh(5.0), LogCosh(2.0) + L2(0.5)], ids=repr)
def test_a_smooth_penalty_with_a_kinked_loss_is_minimised(loss, penalty):
    X, y, weights = _data(loss)
    problem = Problem(loss, penalty, X, y, weights)
    fit = solve(Fit.at_start(problem)).fit

    def objective(theta):
        return problem.objective(theta[:-1], X @ theta[:-1] + theta[-1])

    best = fit.objective
    assert abs(objective(np.append(fit.coef, fit.intercept)) - best) <= 1e-9
    rng = np.random.default_rng(1)
    for scale in (1e-4, 1e-2, 1.0):
        for _ in range(40):
            assert objective(np.append(fit.coef, fit.intercept) + scale * rng.normal(size=5)) > best - 1e-9
    # stationary, with duals between the slopes
    np.testing.assert_allclose(X.T @ fit.gradient + fit.tangent.gradient, 0.0, atol=1e-8)
    slopes = weights[:, None] * loss.slopes(y)
    assert np.all((fit.gradient >= slopes[:, 0] - 1e-9) & (fit.gradient <= slopes[:, -1] + 1e-9))
    rough = minimize(objective, np.zeros(5), method="Nelder-Mead", options={"maxiter": 20000, "fatol": 1e-10})
    assert best <= rough.fun + 1e-9


@pytest.mark.parametrize("name", ["hinge", "quantile"])
def test_left_out_values_of_both_are_refits(name):
    X, y, _ = _data(Hinge() if name == "hinge" else Quantile())
    model = onefit.GeneralizedLinear(name, LogCosh(3.0)).fit(X, y)
    left_out = onefit.loo(model, X, y, exact=True).decision
    for i in range(0, len(y), 5):
        kept = np.arange(len(y)) != i
        again = onefit.GeneralizedLinear(name, LogCosh(3.0)).fit(X[kept], y[kept])
        there = again.decision_function(X[[i]]) if name == "hinge" else again.predict(X[[i]])
        np.testing.assert_allclose(left_out[i], there[0], atol=1e-6)


@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=repr)
@pytest.mark.parametrize("mean_scaled", [False, True])
def test_gradients_with_a_tangent_of_coordinates_that_bends(loss, mean_scaled):
    """The curvature of the penalty moves with the coefficients: its derivative must not be dropped."""
    X, y, weights = _data(loss)
    target = np.random.default_rng(2).normal(size=len(y))

    def at(alpha):
        return Problem(loss, LogCosh(alpha), X, y, weights, mean_scaled=mean_scaled)

    def risk(alpha):
        fit = solve(Fit.at_start(at(alpha))).fit
        return float(np.mean((one_step(fit).eta - target) ** 2))

    fit = solve(Fit.at_start(at(2.0))).fit
    _, cotangent = leave_one_out(fit, lambda left: 2.0 * (left.eta - target) / len(target))
    points = stencil()
    change = tangent_change([LogCosh(2.0 + place) for place in points.places], points, fit)
    h = 1e-3
    slope = (risk(2 - 2 * h) - 8 * risk(2 - h) + 8 * risk(2 + h) - risk(2 + 2 * h)) / (12 * h)
    np.testing.assert_allclose(cotangent.along(change), slope, rtol=1e-6)


@pytest.mark.parametrize(
    "penalty",
    [LogCosh(0.7), GroupLasso([0, 0, 1, 1, 2, 2], 0.8), SparseGroupLasso([0, 0, 0, 1, 1, 1], 0.8, 0.4)],
    ids=["log cosh", "group lasso", "sparse group lasso"],
)
def test_third_derivatives_by_differences(penalty):
    coef = np.array([1.0, -0.4, 0.3, 0.7, 0.0, 0.0])
    tangent = penalty.tangent(coef)
    owed = np.random.default_rng(0).normal(size=tangent.hessian.shape)
    expected = np.zeros(6)
    for d in tangent.directions:
        high, low = (np.sum(owed * penalty.tangent(coef + t * d).hessian) for t in (1e-5, -1e-5))
        expected += (high - low) / 2e-5 * d
    np.testing.assert_allclose(penalty.third(coef, owed), expected, rtol=1e-6, atol=1e-8)
    assert np.any(np.abs(expected) > 1e-2)
    np.testing.assert_allclose((penalty + L2(0.3)).third(coef, owed), expected, rtol=1e-6, atol=1e-8)


def test_a_penalty_says_what_it_is_made_of():
    class Silent(Penalty):
        value = prox = tangent = scaled = has_kinks = has_free_directions = None

    with pytest.raises(TypeError, match=r"abstract methods .?pieces.?, .?third.?"):
        Silent()


def test_rows_on_their_pieces():
    interval = Huber(1.0).interval(np.zeros(3), np.array([-2.0, 0.5, 3.0]))
    np.testing.assert_array_equal(interval.low, [-np.inf, -1.0, 1.0])
    np.testing.assert_array_equal(interval.high, [-1.0, 1.0, np.inf])
    np.testing.assert_array_equal(interval.contains(np.array([-1.5, 2.0, 1.0])), [True, False, True])
    steps = interval.exit(np.array([-2.0, 0.5, 3.0]), np.array([0.5, -0.5, 1.0]))
    np.testing.assert_allclose(steps, [2.0, 3.0, np.inf])
    assert np.isinf(Interval.between(np.zeros((1, 0)), np.zeros(1)).exit(np.zeros(1), np.ones(1))[0])


@pytest.mark.parametrize(
    "penalty",
    [L1(0.7), FusedLasso(0.8), Slope([3.0, 2.5, 2.0, 1.0, 0.5, 0.1], 0.4), L1(0.2) + Box(-1.0, 1.0)],
    ids=["l1", "fused", "slope", "box"],
)
def test_how_far_the_piece_of_a_polyhedral_penalty_goes(penalty):
    rest = penalty.without_ridge()
    for seed in range(6):
        rng = np.random.default_rng(seed)
        coef = penalty.prox(1.5 * rng.normal(size=6), 0.7)
        tangent = penalty.tangent(coef)
        ray = np.sum([rng.normal() * d for d in tangent.directions], axis=0)
        if not np.any(ray):
            continue
        end = rest.exit(coef, ray)
        assert end > 0
        inside = coef + 0.99 * min(end, 10.0) * ray
        assert rest.contains(coef, coef)
        assert rest.contains(coef, inside)
        np.testing.assert_allclose(
            penalty.value(inside), penalty.value(coef) + tangent.gradient @ (inside - coef), rtol=1e-9
        )
        if np.isfinite(end):
            assert not rest.contains(coef, coef + 1.01 * end * ray)


def test_the_factor_of_a_bent_penalty_is_that_of_its_curvature():
    X, y, weights = _data(Squared())
    fit = solve(Fit.at_start(Problem(Squared(), LogCosh(2.0), X, y, weights))).fit
    Z = np.column_stack([X, np.ones(len(y))])
    K = (Z * weights[:, None]).T @ Z + np.diag(np.append(2.0 / np.cosh(fit.coef) ** 2, 0.0))
    forms = np.einsum("ij,ij->i", Z @ np.linalg.inv(K), Z)
    np.testing.assert_allclose(factor(fit).quadratic_forms(), forms, rtol=1e-10)
