"""Refits of curved losses with several optima: columns that only the rows that left told apart."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.optimize import linprog
from sklearn.base import clone

import onefit
from onefit.exceptions import UnreliableWarning
from onefit.fit import Fit
from onefit.losses import Squared
from onefit.penalties import (
    L1,
    L2,
    Box,
    FusedLasso,
    GeneralizedLasso,
    GroupLasso,
    LInfinity,
    NuclearNorm,
    Slope,
    SparseGroupLasso,
)
from onefit.problem import Problem
from onefit.solvers.null_model import null_strength
from onefit.solvers.solve import solve

N = 24
GROUPS = [0, 0, 1, 1, 2, 2]
OPEN = {
    "group": GroupLasso(GROUPS, 2.0),
    "sparse group": SparseGroupLasso(GROUPS, 2.0),
    "slope": Slope((2.0, 2.0, 1.0, 1.0, 1.0, 1.0), 1.0),
    "generalised": GeneralizedLasso(np.eye(6)),
    "box": Box(-0.2, 1.5),
    "ℓ1 in a box": L1(1.0) + Box(-0.2, 1.5),
}
DETERMINED = {
    "ridge": GroupLasso(GROUPS, 2.0) + L2(0.1),
    "fused": FusedLasso(1.0),
    "slope": Slope(tuple(np.linspace(2.0, 1.0, 6)), 1.0),
    "ridge in a box": L2(0.1) + Box(-0.2, 1.5),
}


def told_apart_by_the_first(seed, loss):
    """The columns of the second group are those of the first one, but in row 0."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(N, 2))
    X = np.hstack([A, A, rng.normal(size=(N, 2))])
    X[0, 2:4] = 1.0 - A[0]
    y = A @ [1.0, -1.0] + rng.normal(size=N)
    return X, y if loss == "squared" else (y > 0).astype(int)


def left_out(loss, penalty, X, y, **options):
    model = onefit.GeneralizedLinear(loss, penalty).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreliableWarning)
        return onefit.loo(model, X, y, exact=True, **options)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("name", OPEN)
def test_bounds_reach_to_the_optima_that_share_a_coefficient_otherwise(name, loss):
    """Another optimum takes the coefficients of the copies the other way round."""
    for seed in range(2):
        X, y = told_apart_by_the_first(seed, loss)
        est = left_out(loss, OPEN[name], X, y)
        refit = solve(Fit.at_start(est._left_out.fit.problem.without(0))).fit
        for order in ([0, 1, 2, 3, 4, 5], [2, 3, 0, 1, 4, 5]):
            other = refit.moved(refit.coef[order], refit.intercept)
            assert other.objective == pytest.approx(refit.objective, rel=1e-9)
            assert abs(float(X[0] @ other.coef + other.intercept) - est.decision[0]) <= est.bounds[0] + 1e-5
        assert est.bounds[0] > 1e-3
        assert np.all(est.bounds[1:] < 1e-6)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("name", DETERMINED)
def test_what_penalties_determine_is_exact(name, loss):
    X, y = told_apart_by_the_first(0, loss)
    est = left_out(loss, DETERMINED[name], X, y)
    model = onefit.GeneralizedLinear(loss, DETERMINED[name]).fit(X[1:], y[1:])
    value = float(np.ravel(X[0] @ np.ravel(model.coef_) + model.intercept_)[0])
    assert est.guarantee == "exact"
    assert est.decision[0] == pytest.approx(value, abs=1e-5)


@pytest.mark.parametrize("row", [0, 7])
@pytest.mark.parametrize("together", [False, True], ids=["rows", "groups"])
def test_a_level_of_one_row_beside_a_bound(row, together):
    """Nothing pulls at the coefficient of a level whose only row has left, from zero up."""
    rng = np.random.default_rng(row)
    X = rng.normal(size=(N, 4))
    X[:, 3] = np.arange(N) == row
    y = X[:, 0] + (1.0 if row else -1.0) * X[:, 3] + 0.5 * rng.normal(size=N)
    groups = np.where(np.arange(N) // 2 == row // 2, -1, np.arange(N)) if together else np.arange(N)
    est = left_out("squared", Box(lower=0.0, upper=[np.inf, np.inf, np.inf, 5.0]), X, y, groups=groups)
    refit = solve(Fit.at_start(est._left_out.fit.problem.without(np.flatnonzero(groups == groups[row])))).fit
    rest = float(X[row, :3] @ refit.coef[:3] + refit.intercept)
    ends = np.array([rest, rest + 5.0])
    assert est.bounds[row] == pytest.approx(np.abs(ends - est.decision[row]).max(), abs=1e-6)
    assert np.all(np.delete(est.bounds, row) < 1e-6)
    assert any("several optima" in note for note in est.notes)


@pytest.mark.parametrize("intercept", [True, False])
def test_non_negative_squares_with_more_columns_than_rows(intercept):
    """Weighted rows that are interpolated: the ends are those of linear programs."""
    rng = np.random.default_rng(3)
    X, weights = rng.normal(size=(12, 20)), rng.integers(1, 4, 12).astype(float)
    y = X[:, 0] + rng.normal(size=12)
    model = onefit.GeneralizedLinear("squared", Box(lower=0.0), fit_intercept=intercept)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreliableWarning)
        est = onefit.loo(model.fit(X, y, sample_weight=weights), X, y, sample_weight=weights, exact=True)
    Z = np.hstack([X, np.ones((12, int(intercept)))])
    sides = [(0.0, None)] * 20 + [(None, None)] * intercept
    for i in range(12):
        held = np.arange(12) != i
        ends = [linprog(s * Z[i], A_eq=Z[held], b_eq=y[held], bounds=sides) for s in (1.0, -1.0)]
        far = [np.inf if end.status else abs(end.x @ Z[i] - est.decision[i]) for end in ends]
        assert max(far) <= est.bounds[i] + 1e-6


@pytest.mark.parametrize("penalty", [GroupLasso(np.arange(60) // 4, 3.0), NuclearNorm((6, 10), 3.0)])
def test_more_columns_than_rows_that_nothing_ties_are_exact(penalty):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(N, 60))
    y = X[:, :3].sum(axis=1) + rng.normal(size=N)
    est = left_out("squared", penalty, X, y)
    assert est.guarantee == "exact"
    for i in range(0, N, 8):
        refit = onefit.GeneralizedLinear("squared", penalty).fit(np.delete(X, i, 0), np.delete(y, i))
        assert refit.predict(X[i : i + 1])[0] == pytest.approx(est.predictions[i], abs=1e-5)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("penalty", [Slope(tuple(np.linspace(2.0, 1.0, 6))), LInfinity()])
def test_coefficients_that_are_only_just_held_at_zero_without_a_row(penalty, intercept):
    """The penalty is zero at zero alone, so that no other optimum has the same predictors."""
    X, y = told_apart_by_the_first(0, "squared")
    without = Problem(Squared(), penalty, X[1:], y[1:], np.ones(N - 1), np.asarray(intercept))
    just = penalty.scaled(null_strength(without) * (1.0 + 2e-5))
    model = onefit.GeneralizedLinear(penalty=just, fit_intercept=intercept).fit(X, y)
    est = onefit.loo(model, X, y, exact=True)
    refits = [clone(model).fit(np.delete(X, i, 0), np.delete(y, i)) for i in range(N)]
    assert not refits[0].coef_.any()
    each = [refit.predict(X[i : i + 1])[0] for i, refit in enumerate(refits)]
    np.testing.assert_allclose(est.predictions, each, rtol=0.0, atol=1e-7)
    assert est.guarantee == "exact"
