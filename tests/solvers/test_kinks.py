"""The active-set method for losses with kinks: optimality, Clarabel's objective, and ties."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linprog

import clarabel_route
from builders import kinked_problem
from onefit._linalg import RowGram
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.losses import EpsilonInsensitive, Hinge, Quantile, Squared
from onefit.penalties import L2
from onefit.problem import Problem
from onefit.solvers import kinks

N, P = 50, 6  # of the problems of ``builders``
LOSSES = {
    "hinge": Hinge(),
    "median": Quantile(),
    "quantile": Quantile(0.9),
    "absolute": EpsilonInsensitive(0.0),
    "epsilon": EpsilonInsensitive(0.5),
}
PENALTIES = {
    "strong": L2(20.0),
    "weak": L2(1e-4),
    "per feature": L2(np.array([1.0, 0.0, 5.0, np.inf, 0.2, 1.0])),
}
every = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())


def _problem(loss, penalty=PENALTIES["per feature"], *args, **how):
    return kinked_problem(loss, penalty, *args, **how)


def _solve(problem):
    return kinks.solve(Fit.at_start(problem))


def _check_duals(fit):
    """Duals of rows on a piece are its slope; those on a kink lie between the slopes beside it."""
    problem, tie = fit.problem, 1e-8
    at, slopes = problem.loss.kinks(problem.y), problem.loss.slopes(problem.y) * problem.weights[:, None]
    size = tie * (1 + np.abs(fit.eta).max())
    below = (fit.eta[:, None] > at + size).sum(axis=1)
    above = (fit.eta[:, None] >= at - size).sum(axis=1)
    rows = np.arange(problem.n)
    slack = tie * np.abs(slopes).max()
    assert np.all(fit.gradient >= slopes[rows, below] - slack)
    assert np.all(fit.gradient <= slopes[rows, above] + slack)
    assert np.all(above[fit.pinned] == below[fit.pinned] + 1)
    assert not fit.pinned[problem.weights == 0].any()
    assert not fit.gradient[problem.weights == 0].any()
    np.testing.assert_allclose(problem.linear_predictor(fit.coef, fit.intercept), fit.eta, atol=10 * size)


def _check(fit):
    _check_duals(fit)
    l2 = fit.problem.penalty.ridge((fit.coef.size,))
    fixed = np.isinf(l2)
    assert not fit.coef[fixed].any()
    missed = (fit.loss_gradient + np.where(fixed, 0.0, l2) * fit.coef)[~fixed]
    terms = np.abs(fit.gradient) @ np.abs(fit.problem.X)
    atol = 1e-8 * np.abs(fit.loss_gradient).max() + 1e-14 * terms.max()
    np.testing.assert_allclose(missed, 0.0, atol=atol)
    if fit.problem.intercept:
        np.testing.assert_allclose(fit.gradient.sum(), 0.0, atol=1e-9 * np.abs(fit.gradient).sum() + 1e-12)
    _check_objective(fit)


def _check_objective(fit):
    """Not above Clarabel's; columns that are fixed at zero are not there."""
    l2 = fit.problem.penalty.ridge((fit.coef.size,))
    kept = np.isfinite(l2)
    X = fit.problem.X.toarray() if sp.issparse(fit.problem.X) else fit.problem.X
    best = clarabel_route.minimum(replace(fit.problem, X=X[:, kept], penalty=L2(l2[kept])))[2]
    assert fit.objective <= best + 1e-9 * max(abs(best), 1.0)


@every
@pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES.keys())
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
def test_optimal(loss, penalty, weighted, fit_intercept):
    _check(_solve(_problem(loss, penalty, weighted, fit_intercept)))


@every
@pytest.mark.parametrize(("n", "p"), [(30, 60), (120, 3), (3, 4)], ids=["wide", "tall", "tiny"])
def test_shapes(loss, n, p):
    problem = _problem(loss, L2(1.0), n=n, p=p)
    y = np.arange(n) % 2.0 if isinstance(loss, Hinge) else problem.y
    _check(_solve(replace(problem, y=y)))


@pytest.mark.costly
@every
def test_sparse_columns(loss, fit_intercept):
    problem = _problem(loss, weighted=True, fit_intercept=fit_intercept)
    X = np.where(np.abs(problem.X) < 0.6, 0.0, problem.X)
    dense = _solve(replace(problem, X=X))
    for store in (sp.csr_array, sp.csc_matrix):
        sparse = _solve(replace(problem, X=store(X)))
        np.testing.assert_allclose(sparse.eta, dense.eta, atol=1e-8)
        np.testing.assert_array_equal(sparse.pinned, dense.pinned)


@every
@pytest.mark.parametrize("p", [4, 80])
def test_a_gram_matrix_is_as_good_as_the_columns(loss, p, fit_intercept):
    problem = _problem(loss, L2(2.0), weighted=True, fit_intercept=fit_intercept, p=p)
    linear = _solve(problem)
    kernel = _solve(replace(problem, X=RowGram(problem.X @ problem.X.T)))
    np.testing.assert_allclose(kernel.eta, linear.eta, atol=1e-8)
    np.testing.assert_allclose(kernel.gradient, linear.gradient, atol=1e-8)
    np.testing.assert_allclose(problem.X.T @ kernel.coef, linear.coef, atol=1e-8)
    np.testing.assert_allclose(kernel.objective, linear.objective, rtol=1e-10)


@every
def test_warm_starts_lead_to_the_same(loss):
    problem, rng = _problem(loss), np.random.default_rng(3)
    cold = _solve(problem)
    other = _solve(replace(problem, penalty=problem.penalty.scaled(30.0)))
    starts = [cold, Fit(problem, cold.coef, cold.intercept), Fit(problem, other.coef, other.intercept)]
    starts += [
        Fit(problem, rng.normal(size=P), np.asarray(5.0)),
        cold.moved(cold.coef + 1e-9, cold.intercept),
    ]
    for start in starts:
        np.testing.assert_allclose(kinks.solve(start).eta, cold.eta, atol=1e-8)


@every
def test_a_row_without_weight_is_not_there(loss):
    problem = _problem(loss, weighted=True)
    there = problem.weights > 0
    few = replace(problem, X=problem.X[there], y=problem.y[there], weights=problem.weights[there])
    whole, part = _solve(problem), _solve(few)
    np.testing.assert_allclose(whole.eta[there], part.eta, atol=1e-9)
    np.testing.assert_allclose(whole.gradient[there], part.gradient, atol=1e-9)


@every
def test_copies_of_rows_share_their_weight(loss):
    problem = _problem(loss)
    times = 1 + np.arange(N) % 3
    rows = np.repeat(np.arange(N), times)
    copies = _solve(replace(problem, X=problem.X[rows], y=problem.y[rows], weights=np.ones(len(rows))))
    weighted = _solve(replace(problem, weights=times.astype(float)))
    _check(copies)
    np.testing.assert_allclose(copies.coef, weighted.coef, atol=1e-8)
    np.testing.assert_allclose(np.bincount(rows, copies.gradient), weighted.gradient, atol=1e-8)


@every
@pytest.mark.parametrize("strength", [1.0, 0.0])
def test_copies_of_columns(loss, strength):
    problem = _problem(loss, L2(np.array([1.0, strength, 1.0, 1.0, strength, 1.0])), weighted=True)
    X = problem.X.copy()
    X[:, 4] = X[:, 1]
    _check(_solve(replace(problem, X=X)))


@every
def test_responses_on_a_grid_have_ties(loss):
    """Many rows meet on kinks at once."""
    problem = _problem(loss, L2(0.5))
    y = problem.y if isinstance(loss, Hinge) else np.round(problem.y)
    _check(_solve(replace(problem, X=np.round(problem.X), y=y)))


@pytest.mark.parametrize("loss", [loss for loss in LOSSES.values() if not isinstance(loss, Hinge)], ids=repr)
def test_a_constant_response(loss, fit_intercept):
    problem = _problem(loss, L2(1.0), fit_intercept=fit_intercept)
    fit = _solve(replace(problem, y=np.full(N, 3.0)))
    _check(fit)
    if fit_intercept:
        np.testing.assert_allclose(fit.coef, 0.0, atol=1e-10)
        assert loss.value(np.full(1, 3.0), np.full(1, float(fit.intercept)))[0] < 1e-9


def test_a_rare_class():
    problem = _problem(Hinge(), L2(1.0))
    y = np.zeros(N)
    y[[4, 17]] = 1.0
    _check(_solve(replace(problem, y=y)))


@pytest.mark.parametrize("free", [0, 2])
def test_no_penalty_on_anything_is_quantile_regression(free):
    """A linear program: at a vertex as many rows are on kinks as there are parameters."""
    problem = _problem(Quantile(0.3), L2(np.where(np.arange(P) < free, 1e-9, 0.0)), weighted=True)
    fit = _solve(problem)
    Z = np.column_stack([problem.X, np.ones(N)])
    w, eye = problem.weights, np.eye(N)
    found = linprog(
        np.concatenate([np.zeros(P + 1), 0.3 * w, 0.7 * w]),
        A_eq=np.hstack([Z, eye, -eye]),
        b_eq=problem.y,
        bounds=[(None, None)] * (P + 1) + [(0, None)] * (2 * N),
    )
    np.testing.assert_allclose(fit.objective, found.fun, rtol=1e-7)
    assert np.count_nonzero(fit.pinned) == P + 1


def test_rows_are_pinned_no_more_than_there_are_dimensions():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    problem = Problem(EpsilonInsensitive(0.0), L2(1e-6), X, X @ np.array([1.0, 2.0]) + 3.0, np.ones(40))
    fit = _solve(problem)  # every row is on its kink, or next to it
    np.testing.assert_allclose(fit.eta, problem.y, atol=1e-6)
    assert np.count_nonzero(fit.pinned) <= 3
    _check_duals(fit)


def test_a_kernel_model_needs_a_penalty():
    problem = _problem(Hinge(), L2(0.0))
    with pytest.raises(SolverError, match="needs a penalty"):
        _solve(replace(problem, X=RowGram(problem.X @ problem.X.T)))


def test_smooth_losses_are_refused():
    with pytest.raises(TypeError, match="Squared is not piecewise linear"):
        _solve(_problem(Squared()))


# --- columns as they come -----------------------------------------------------------------------------------


def _table_as_it_comes(seed, n=50):
    """A year, an income, a share, an age, yes or no; and scores of these."""
    rng = np.random.default_rng(seed)
    columns = [
        2000 + rng.integers(0, 20, n),
        rng.lognormal(10, 1, n),
        rng.random(n),
        rng.integers(18, 80, n),
        rng.integers(0, 2, n),
    ]
    X = np.column_stack(columns).astype(float)
    score = (X - X.mean(axis=0)) / X.std(axis=0) @ [0.5, 1.0, -0.5, 0.3, 0.4]
    return X, score + 0.5 * rng.standard_t(4, size=n)


def _gap(fit):
    """Duality gap, row by row (Fenchel and Young): the objective less its minimum."""
    problem, loss = fit.problem, fit.problem.loss
    eta = problem.linear_predictor(fit.coef, fit.intercept)
    corners, slopes = loss.kinks(problem.y), loss.slopes(problem.y) * problem.weights[:, None]
    gaps = np.full(len(eta), np.inf)
    for k, at in enumerate(corners.T):
        own = problem.weights * (loss.value(problem.y, eta) - loss.value(problem.y, at))
        inside = (fit.gradient >= slopes[:, k] - 1e-9) & (fit.gradient <= slopes[:, k + 1] + 1e-9)
        gaps = np.where(inside, np.minimum(gaps, own - fit.gradient * (eta - at)), gaps)
    return gaps.sum()


@pytest.mark.costly
@pytest.mark.parametrize("fit_intercept", [True, False])
@every
def test_columns_of_very_different_size(loss, fit_intercept):
    """Coefficients have digits that duals have not, so that rows are on their kinks all the same."""
    for seed in range(12):
        X, y = _table_as_it_comes(seed)
        y = y > 0 if isinstance(loss, Hinge) else y
        own = Problem(loss, L2(1.0), X, y.astype(float), np.ones(len(y)), np.array(fit_intercept))
        fit = _solve(own)
        assert abs(_gap(fit)) < 1e-9 * len(y)
        eta = own.linear_predictor(fit.coef, fit.intercept)
        np.testing.assert_allclose(eta[fit.pinned], fit.eta[fit.pinned], atol=1e-8)


@every
def test_more_columns_than_rows_of_very_different_size(loss):
    for seed in range(8):
        rng = np.random.default_rng(seed)
        sizes = 10.0 ** rng.uniform(-2, 5, 60)
        X = (rng.normal(size=(30, 60)) + rng.uniform(0, 3, 60)) * sizes
        y = (X / sizes) @ rng.normal(size=60) / 8 + 0.5 * rng.normal(size=30)
        y = y > 0 if isinstance(loss, Hinge) else y
        fit = _solve(Problem(loss, L2(1.0), X, y.astype(float), np.ones(30), np.array(True)))
        assert abs(_gap(fit)) < 1e-8
