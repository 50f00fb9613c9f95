"""What a fit leaves of its own gradient is in the bounds of all rows, however flat its objective is."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression

import onefit
from onefit.curvature import factor, in_single
from onefit.curvature.single import InSingle
from onefit.fit import Fit
from onefit.leave_out.remainder import off_besides_bounds
from onefit.leave_out.stages import State
from onefit.losses import Logistic
from onefit.metrics import LogLoss
from onefit.penalties import L2
from onefit.problem import Problem
from onefit.risk.judging import yardstick
from onefit.solvers.solve import solve

ROWS, COLUMNS = 14, 3
HEAVY = 1e6  # of a row; others weigh the inverse of it


def _table(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(ROWS, COLUMNS))
    y = (2.0 * X[:, 0] + rng.normal(size=ROWS) > 0).astype(int)
    return X, y, np.where(rng.random(ROWS) < 0.5, HEAVY, 1.0 / HEAVY)


def _solved(K, gradient):
    """A step to more digits than LAPACK has, by refinement of a matrix with a unit diagonal."""
    scale = 1.0 / np.sqrt(np.diag(K))
    inverse = np.linalg.inv((scale[:, None] * K * scale).astype(float))
    step = np.zeros_like(gradient)
    for _ in range(10):
        step += scale * (inverse @ (scale * (gradient - K @ step)).astype(float))
    return step


def _refitted(X, y, weights, C, intercept):
    """Coefficients of a logistic regression, and its intercept, in extended precision."""
    wide = np.longdouble
    Z = np.column_stack([X, np.full(len(y), float(intercept))]).astype(wide)
    sign, w = (2 * y - 1).astype(wide), weights.astype(wide)
    ridge = np.array([1.0 / C] * COLUMNS + [0.0 if intercept else 1.0], dtype=wide)

    def objective(theta):
        return w @ np.logaddexp(wide(0), -sign * (Z @ theta)) + 0.5 * ridge @ theta**2

    theta = np.zeros(COLUMNS + 1, dtype=wide)
    for _ in range(500):
        missed = 1.0 / (1.0 + np.exp(sign * (Z @ theta)))
        gradient = ridge * theta - Z.T @ (w * sign * missed)
        step = _solved((Z.T * (w * missed * (1.0 - missed))) @ Z + np.diag(ridge), gradient)
        length = wide(1)
        while np.abs(step).max() > 1e-8 and objective(theta - length * step) > objective(theta):
            length /= 2
        theta = theta - length * step
        if np.abs(step).max() <= 1e-13:
            return theta
    raise AssertionError("the refit in extended precision did not settle")


@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="nothing is wider than a double here")
@pytest.mark.parametrize("made", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize(
    ("seed", "C", "intercept"),
    [(5, 0.1, True), (14, 1.0, True), (16, 0.1, True), (17, 1e3, True), (12, 1e4, False)],
)
def test_bounds_hold_beside_rows_that_hardly_weigh(seed, C, intercept, made):
    X, y, weights = _table(seed)
    model = LogisticRegression(
        C=C, fit_intercept=intercept, solver="newton-cholesky", tol=1e-12, max_iter=10000
    )
    model.fit(X, y, sample_weight=weights)
    found = onefit.loo(model, made(X), y, sample_weight=weights, exact=True)
    for i in range(ROWS):
        keep = np.arange(ROWS) != i
        if len(set(y[keep])) == 1:
            continue
        theta = _refitted(X[keep], y[keep], weights[keep], C, intercept)
        expected = float(X[i] @ theta[:COLUMNS] + intercept * theta[COLUMNS])
        error = abs(found.decision.ravel()[i] - expected)
        assert error <= found.bounds[i] + 2e-12 * np.abs(found.decision).max()
        assert error <= 1e-6 * (1.0 + np.abs(found.decision).max())


def test_bounds_ask_for_no_better_factor_than_their_forms():
    rng = np.random.default_rng(0)
    X, n = rng.normal(size=(300, 400)), 300
    y = (X[:, 0] + rng.logistic(size=n) > 0).astype(float)
    fit = solve(Fit.at_start(Problem(Logistic(), L2(50.0), X, y, np.ones(n), np.array(True)))).fit
    fit = fit.moved(fit.coef * (1.0 + 1e-6), fit.intercept)  # beside its optimum
    K = in_single(factor(fit))
    assert isinstance(K, InSingle)
    state = State.of(fit, None, K, yardstick(LogLoss(np.arange(2)), y, np.ones(n)), 1.0, 0)
    assert state.step is not None
    off = off_besides_bounds(state.found, None, state.step)
    assert not K.inner.is_factored
    assert off.min() > 0
    exact = State.of(fit, None, factor(fit), None, 1.0, 0)
    np.testing.assert_allclose(off, off_besides_bounds(exact.found, None, exact.step), rtol=0.01)
