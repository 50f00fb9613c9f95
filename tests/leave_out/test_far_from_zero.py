"""Columns far from zero beside their spread, in models without an intercept.

Products of such columns have lost what tells them apart.  A ridge does not change where all columns are
turned together, and turned so that one of them takes up what they have in common, none of the others is far
from zero: that is what the models are held against.
"""

import numpy as np
import pytest

import onefit
from onefit.blocks import ArrayRows
from onefit.blocks.sums import RowSums
from onefit.curvature import factor
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.losses import Logistic
from onefit.penalties import L2
from onefit.problem import Problem
from onefit.solvers.solve import solve

FAR = 1e6


def _columns(n: int, p: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Columns that are far, the same turned, and a linear predictor."""
    near = np.random.default_rng(seed).normal(size=(n, p))
    axis = np.ones(p) / np.sqrt(p)
    axis[0] -= 1.0
    axis /= np.linalg.norm(axis)
    turned = near - 2.0 * np.outer(near @ axis, axis)
    turned[:, 0] += FAR * np.sqrt(p)
    return near + FAR, turned, 2.0 * near[:, :3].sum(axis=1)


@pytest.mark.parametrize(("n", "p", "cuts"), [(60, 10, [0.0]), (100, 40, [0.0]), (60, 10, [-1.0, 1.0])])
def test_leave_one_out_is_that_of_turned_columns(n, p, cuts):
    far, turned, eta = _columns(n, p)
    y = np.digitize(eta + np.random.default_rng(1).logistic(size=n), cuts)
    model = onefit.LogisticLOO(Cs=[1.0], fit_intercept=False)
    found, told = (model.fit(X, y).loo_ for X in (far, turned))
    assert told.guarantee == "exact"
    off = abs(found.value - told.value)
    assert off <= found.approx_error + 1e-6
    assert found.guarantee != "exact" or off <= 1e-5 * told.value


def test_curvature_is_factored_from_the_rows():
    far, turned, eta = _columns(140, 100)
    y = (eta > 0).astype(float)
    weights, nothing = np.ones(len(y)), np.array(False)
    forms = []
    for X in (far, turned):
        fit = solve(Fit.at_start(Problem(Logistic(), L2(1e-4), X, y, weights, nothing))).fit
        K = factor(fit)
        assert K.is_definite
        forms.append(fit.hessian * K.quadratic_forms())
    np.testing.assert_allclose(*forms, atol=1e-4)


def test_copies_are_still_dependent():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 5))
    X = np.hstack([X, X[:, :2]])
    y = (X[:, 0] + rng.logistic(size=80) > 0).astype(float)
    start = Fit.at_start(Problem(Logistic(), L2(0.0), X, y, np.ones(80), np.array(True)))
    K = factor(solve(start).fit)
    assert not K.is_definite
    assert np.isclose(K.d @ K.quadratic_forms(), 6.0)


def test_sums_about_zero_that_tell_nothing_are_refused():
    far, _, eta = _columns(100, 4)
    with pytest.raises(SolverError, match="columns 0 and 1 and others lie more than 1000 times their spread"):
        ArrayRows(far, eta).total(RowSums.of).about_zero()
    one_far = np.hstack([far[:, :1], far[:, 1:] - FAR])
    ArrayRows(one_far, eta).total(RowSums.of).about_zero()


def test_a_lasso_goes_row_by_row_where_sums_tell_nothing():
    far, _, eta = _columns(140, 40)
    X, y = far - FAR + 1e4, eta + np.random.default_rng(1).normal(size=140)
    found = onefit.LassoLOO(alphas=[0.3], fit_intercept=False).fit(X, y).loo_
    losses = []
    for i in range(0, 140, 28):
        rest = np.arange(140) != i
        again = onefit.LassoLOO(alphas=[0.3], fit_intercept=False).fit(X[rest], y[rest])
        losses.append((y[i] - X[i] @ again.coef_) ** 2)
    np.testing.assert_allclose(found.losses[::28], losses, rtol=1e-4)
