"""Leave-one-out from one fit against refits without each row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, Ridge, RidgeCV

from onefit import _linalg
from onefit._linalg import RowGram
from onefit.balance import Balance
from onefit.fit import Fit
from onefit.leave_out import leave_out
from onefit.leave_out.step import one_step
from onefit.losses import ConcomitantHuber, Gamma, Huber, Logistic, Multinomial, Poisson, Squared, Tweedie
from onefit.numerics import LEAST_SLACK
from onefit.penalties import L1, L2, ElasticNet
from onefit.problem import Problem
from onefit.solvers.solve import solve

N = 40


def _data(n=N, p=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) + 0.5
    return X, X @ rng.normal(size=p) + rng.normal(size=n)


def _left_out(problem):
    solution = solve(Fit.at_start(problem))
    return leave_out(solution.fit, max_error=0.0)


def _refit_without(problem, i):
    """The definition: the row's weight is zero, and a mean-scaled penalty shrinks by its share."""
    weights = problem.weights.copy()
    weights[i] = 0.0
    share = weights.sum() / problem.weights.sum() if problem.mean_scaled else 1.0
    left = replace(problem, weights=weights, penalty=problem.penalty.scaled(share))
    return solve(Fit.at_start(left)).fit


def _refitted(problem):
    return np.array([_refit_without(problem, i).eta[i] for i in range(problem.n)])


def close(one, other, tol=1e-9):
    np.testing.assert_allclose(one, other, atol=tol * np.std(other))


# --- exact cases -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "penalty", [L2(2.0), L2(1e-8), L2(np.array([0.0, 1.0, 5.0, np.inf]))], ids=["2", "tiny", "per feature"]
)
def test_ridge_is_n_refits(penalty, weigh, fit_intercept, store):
    X, y = _data()
    weights = weigh(N)
    problem = Problem(
        Squared(), penalty, store(X), y, np.ones(N) if weights is None else weights, np.array(fit_intercept)
    )
    left_out = _left_out(problem)
    close(left_out.eta, _refitted(replace(problem, X=X)))
    assert left_out.certified.all()


@pytest.mark.parametrize("p", [4, 30, 80])
def test_mean_scaled_ridge_is_n_refits(p, fit_intercept):
    X, y = _data(p=p)
    problem = Problem(
        Squared(), ElasticNet(3.0, 0.0), X, y, np.ones(N), np.array(fit_intercept), mean_scaled=True
    )
    left_out = _left_out(problem)
    close(left_out.eta, _refitted(problem))
    assert left_out.certified.all()


@pytest.mark.parametrize("p", [4, 80])
def test_a_kernel_model_is_n_refits(p, weigh):
    X, y = _data(p=p)
    weights = weigh(N)
    problem = Problem(Squared(), L2(2.0), X, y, np.ones(N) if weights is None else weights, np.array(False))
    close(_left_out(replace(problem, X=RowGram(X @ X.T))).eta, _refitted(problem))


def test_several_outputs_are_as_many_models(weigh, fit_intercept):
    X, y = _data()
    Y = np.column_stack([y, y**2, np.sin(y)])
    weights = weigh(N)
    weights = np.ones(N) if weights is None else weights
    strengths = np.array([0.5, 3.0, 0.5])
    both = _left_out(Problem(Squared(), L2(strengths[None]), X, Y, weights, np.full(3, fit_intercept)))
    leverages = []
    for j in range(3):
        one = _left_out(Problem(Squared(), L2(strengths[j]), X, Y[:, j], weights, np.array(fit_intercept)))
        close(both.eta[:, j], one.eta)
        leverages.append(one.leverages)
    np.testing.assert_allclose(both.leverages, np.mean(leverages, axis=0), atol=1e-12)


@pytest.mark.parametrize("gcv_mode", ["svd", "eigen"])
def test_the_values_that_ridge_cv_stores(gcv_mode, fit_intercept):
    X, y = _data()
    alphas = [0.1, 1.0, 10.0]
    model = RidgeCV(alphas, fit_intercept=fit_intercept, store_cv_results=True, gcv_mode=gcv_mode).fit(X, y)
    for k, alpha in enumerate(alphas):
        left_out = _left_out(Problem(Squared(), L2(alpha), X, y, np.ones(N), np.array(fit_intercept)))
        np.testing.assert_allclose((y - left_out.eta) ** 2, model.cv_results_[:, k], rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("loss", [Squared(), Logistic(), Poisson(), Huber()], ids=repr)
@pytest.mark.parametrize("penalty", [L2(1.0), L1(1.0), ElasticNet(1.0, 0.5)], ids=repr)
@pytest.mark.parametrize("mean_scaled", [False, True])
def test_a_row_without_weight_is_not_there(loss, penalty, mean_scaled):
    X, y = _data()
    y = np.round(np.abs(y)) if loss != Logistic() else (y > 0).astype(float)
    weights = np.random.default_rng(5).uniform(0.5, 2.0, N)
    weights[::5] = 0.0
    there = weights > 0
    whole = _left_out(Problem(loss, penalty, X, y, weights, mean_scaled=mean_scaled))
    part = _left_out(Problem(loss, penalty, X[there], y[there], weights[there], mean_scaled=mean_scaled))
    quadratic = loss == Squared()
    # mean_scaled curvature shrinks by 1/n on average over rows, counting those without weight
    tol = 1e-8 if not mean_scaled or (quadratic and penalty == L1(1.0)) else 2e-2
    close(whole.eta[there], part.eta, tol=tol if quadratic else max(tol, 1e-3))
    np.testing.assert_allclose(whole.eta[~there], whole.fit.eta[~there], rtol=1e-12)
    assert np.all(whole.leverages[~there] == 0)
    assert whole.certified[~there].all()


def test_a_row_of_weight_two_leaves_whole():
    X, y = _data()
    weights = np.ones(N)
    weights[3] = 2.0
    left_out = _left_out(Problem(Squared(), L2(1.0), X, y, weights))
    kept = np.arange(N) != 3
    refit = Ridge(1.0).fit(X[kept], y[kept]).predict(X[[3]])[0]
    np.testing.assert_allclose(left_out.eta[3], refit, rtol=1e-9)
    # the fit itself is that of the row repeated
    twice = np.append(np.arange(N), 3)
    np.testing.assert_allclose(left_out.fit.coef, Ridge(1.0).fit(X[twice], y[twice]).coef_, rtol=1e-8)


@pytest.mark.parametrize("penalty", [L2(1.0), L1(1.0)], ids=repr)
def test_an_intercept_is_centring(penalty):
    X, y = _data()
    one = _left_out(Problem(Squared(), penalty, X, y, np.ones(N)))
    other = _left_out(Problem(Squared(), penalty, X - X.mean(axis=0) + 1e3, y - 50.0, np.ones(N)))
    close(other.eta + 50.0, one.eta, tol=1e-8)


@pytest.mark.parametrize("p", [4, 80])
@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=repr)
def test_leverages_sum_to_the_degrees_of_freedom(p, loss, fit_intercept):
    X, y = _data(p=p)
    y = (y > 0).astype(float) if loss == Logistic() else y
    left_out = _left_out(Problem(loss, L2(1.0), X, y, np.ones(N), np.array(fit_intercept)))
    Z = np.column_stack([X, np.ones(N)]) if fit_intercept else X
    C = np.diag([1.0] * p + [0.0] * fit_intercept)
    G = Z.T @ (left_out.fit.hessian[:, None] * Z)
    np.testing.assert_allclose(left_out.effective_df, np.trace(np.linalg.solve(G + C, G)), rtol=1e-9)
    assert np.all((left_out.leverages >= 0) & (left_out.leverages <= 1))
    if loss == Squared() and fit_intercept:
        assert np.all(left_out.leverages >= 1 / N - 1e-12)


# --- designs that lack rank ------------------------------------------------------------------------


def _least_squares(X, y, fit_intercept=True, weights=None):
    n = len(y)
    problem = Problem(
        Squared(), L2(0.0), X, y, np.ones(n) if weights is None else weights, np.array(fit_intercept)
    )
    return _left_out(problem)


@pytest.mark.parametrize("repeat", [[0], [1, 1], [0, 1, 2, 3]])
def test_duplicated_columns(repeat, weigh, fit_intercept, refits):
    X, y = _data()
    wide = np.column_stack([X, X[:, repeat]])
    weights = weigh(N)
    left_out = _least_squares(wide, y, fit_intercept, weights)
    close(left_out.eta, refits(LinearRegression(fit_intercept=fit_intercept), wide, y, sample_weight=weights))
    np.testing.assert_allclose(left_out.effective_df, 4 + fit_intercept, rtol=1e-8)


@pytest.mark.parametrize("p", [13, 14, 15, 16, 40])
def test_at_and_beyond_interpolation(p, weigh, fit_intercept, refits):
    # rows of weight zero read the fit, which must have minimum norm
    X, y = _data(n=15, p=p, seed=2)
    weights = weigh(15)
    left_out = _least_squares(X, y, fit_intercept, weights)
    expected = refits(LinearRegression(fit_intercept=fit_intercept, tol=1e-13), X, y, sample_weight=weights)
    close(left_out.eta, expected, tol=1e-7)


def test_minimum_norm_with_several_outputs(refits):
    X, y = _data(n=15, p=40)
    Y = np.column_stack([y, y**2])
    problem = Problem(Squared(), L2(0.0), X, Y, np.ones(15), np.full(2, True))
    close(_left_out(problem).eta, refits(LinearRegression(), X, Y))


@pytest.mark.parametrize("alpha", [1e-3, 1e-5, 1e-7, 1e-10])
def test_nearly_interpolating_ridge(alpha, fit_intercept, refits):
    # g and 1 − d h vanish together, and their quotient is rounding; use
    # y_i − η̃_i = (Q y)_i / Q_ii with Q = (G + alpha W⁻¹)⁻¹, centred, for every ridge on the dual side
    X, y = _data(n=15, p=40)
    model = Ridge(alpha, fit_intercept=fit_intercept, solver="svd")
    problem = Problem(Squared(), L2(alpha), X, y, np.ones(15), np.array(fit_intercept))
    close(_left_out(problem).eta, refits(model, X, y), tol=1e-6)


def test_minimum_norm_is_the_limit_of_ridge():
    X, y = _data(n=15, p=40)
    ridge = _left_out(Problem(Squared(), L2(1e-7), X, y, np.ones(15)))
    close(_least_squares(X, y).eta, ridge.eta, tol=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 1e-10, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_dummy_column_of_a_single_row(alpha, weighted, fit_intercept, refits):
    # full leverage: without its row the column is constant, and the refit cannot know its coefficient
    X, y = _data()
    X = np.column_stack([X, np.arange(N) == 3])
    weights = np.random.default_rng(0).uniform(0.5, 2.0, N) if weighted else np.ones(N)
    left_out = _left_out(Problem(Squared(), L2(alpha), X, y, weights, np.array(fit_intercept)))
    model = (
        Ridge(alpha, fit_intercept=fit_intercept) if alpha else LinearRegression(fit_intercept=fit_intercept)
    )
    close(left_out.eta, refits(model, X, y, sample_weight=weights), tol=1e-8)
    if alpha < 1:
        np.testing.assert_allclose(left_out.leverages[3], 1.0, rtol=1e-8)


@pytest.mark.parametrize("kind", ["multiple", "sum"])
def test_a_row_that_carries_a_direction_of_its_own(kind, weigh, fit_intercept, refits):
    # refits from zero must end at minimum norm, as must certificates
    # without row 5 two columns are collinear: the refit takes the solution of minimum norm
    X, y = _data()
    other = 2 * X[:, 0] if kind == "multiple" else X[:, 0] + 3 * X[:, 1]
    X = np.column_stack([X[:, 0], other, X[:, 1]])
    X[5, 1] += 1.0
    weights = np.random.default_rng(0).uniform(0.5, 2.0, N) if weigh(N) is not None else None
    left_out = _least_squares(X, y, fit_intercept, weights)
    close(
        left_out.eta,
        refits(LinearRegression(fit_intercept=fit_intercept), X, y, sample_weight=weights),
        tol=1e-8,
    )


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_duplicated_rows_beyond_interpolation(sign, refits):
    X, y = _data(n=15, p=40)
    X, y = np.vstack([X, X[:2]]), np.append(y, sign * y[:2])
    left_out = _least_squares(X, y)
    expected = refits(LinearRegression(), X, y)
    wrong = np.abs(left_out.eta - expected) > 1e-7 * np.std(expected)
    assert not np.any(left_out.certified & wrong)
    assert not np.any(wrong)


def test_duplicated_rows():
    X, y = _data()
    X, y = np.vstack([X, X]), np.append(y, y)
    problem = Problem(Squared(), L2(1.0), X, y, np.ones(2 * N))
    close(_left_out(problem).eta, _refitted(problem))


@pytest.mark.parametrize("constant", [1.0, 0.1, 7.7])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_constant_column_besides_an_intercept(constant, weighted, refits):
    # see the test of the same name for the curvature
    X, y = _data(p=3)
    weights = np.random.default_rng(1).uniform(0.3, 2.0, N) if weighted else None
    left_out = _least_squares(np.column_stack([X, np.full(N, constant)]), y, weights=weights)
    close(left_out.eta, refits(LinearRegression(), X, y, sample_weight=weights))


@pytest.mark.parametrize(
    "scales", [[1e6, 1e-6, 1.0, 1e3], [1e-8, 1e-8, 1e-8, 1e-8], [1e8, 1e8, 1e8, 1e8]], ids=str
)
def test_units_of_least_squares_do_not_matter(scales):
    X, y = _data()
    close(_least_squares(X * np.array(scales), y).eta, _least_squares(X, y).eta, tol=1e-7)


def test_columns_far_from_zero():
    X, y = _data()
    close(_least_squares(X + 1e6, y).eta, _least_squares(X, y).eta, tol=1e-7)


def test_two_rows(fit_intercept):
    X, y = _data(n=2)
    left_out = _left_out(Problem(Squared(), L2(1.0), X, y, np.ones(2), np.array(fit_intercept)))
    if fit_intercept:  # one row is its own mean
        np.testing.assert_allclose(left_out.eta, y[::-1], rtol=1e-9)
    close(left_out.eta, _refitted(Problem(Squared(), L2(1.0), X, y, np.ones(2), np.array(fit_intercept))))


def test_a_saturated_lasso_is_not_silently_wrong():
    # as many columns are active as there are rows, no row can be certified, leverages
    # are nearly 1, and the Newton step is off by orders of magnitude; refit such rows, or warn
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(15, 40)), rng.normal(size=15)
    problem = Problem(Squared(), L1(1.5), X, y, np.ones(15), mean_scaled=True)
    left_out, expected = _left_out(problem), _refitted(problem)
    exact = np.mean((y - expected) ** 2)
    strained = (left_out.slack < LEAST_SLACK) & ~np.isfinite(left_out.bounds)
    carried = np.sum(((y - left_out.eta) ** 2)[strained]) / np.sum((y - left_out.eta) ** 2)
    assert abs(np.mean((y - left_out.eta) ** 2) - exact) < 0.5 * exact or carried > 0.1


# --- curved losses ---------------------------------------------------------------------------------


def _curved(loss, weights, mean_scaled=False, strength=3.0, fit_intercept=True, n=80):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(n, 4))
    eta = X @ np.array([0.8, -0.5, 0.3, 0.0])
    penalty, intercept = L2(strength), np.array(fit_intercept)
    if isinstance(loss, Multinomial):
        y, intercept = (
            np.digitize(eta + rng.normal(size=n), [-0.5, 0.5]).astype(float),
            np.full(3, fit_intercept),
        )
    elif isinstance(loss, Logistic):
        y = (eta + rng.logistic(size=n) > 0).astype(float)
    elif isinstance(loss, Poisson):
        y = rng.poisson(np.exp(0.5 + eta)).astype(float)
    elif isinstance(loss, Tweedie):
        y = rng.gamma(3.0, np.exp(eta) / 3.0)
    else:
        y = eta + rng.standard_t(2, size=n)
    if isinstance(loss, ConcomitantHuber):
        penalty = L2(np.stack([np.full(4, strength), np.full(4, np.inf)], axis=1))
        intercept = np.array([fit_intercept, True])
    weights = np.ones(n) if weights is None else weights
    return Problem(loss, penalty, X, y, weights, intercept, mean_scaled)


CURVED = [Logistic(), Multinomial(3), Poisson(), Gamma(), Tweedie(1.5), Huber(), ConcomitantHuber()]


def _risk(problem, eta):
    losses = problem.loss.value(problem.y, eta)
    return problem.weights @ losses / problem.weights.sum()


@pytest.mark.costly
@pytest.mark.parametrize("loss", CURVED, ids=repr)
@pytest.mark.parametrize("mean_scaled", [False, True])
def test_curved_losses_come_close(loss, mean_scaled, weigh, fit_intercept):
    problem = _curved(loss, weigh(80), mean_scaled, fit_intercept=fit_intercept)
    left_out, expected = _left_out(problem), _refitted(problem)
    fitted, exact = _risk(problem, left_out.fit.eta), _risk(problem, expected)
    # a small part of the optimism, and of the risk; a second derivative that jumps costs accuracy
    share = 0.1 if isinstance(loss, ConcomitantHuber) else 0.05
    assert abs(_risk(problem, left_out.eta) - exact) < share * (exact - fitted)
    assert abs(_risk(problem, left_out.eta) - exact) < 0.005 * exact


@pytest.mark.parametrize("loss", CURVED, ids=repr)
def test_the_step_is_of_second_order(loss):
    """Twice the rows: the error of a Newton step falls faster than the step itself."""
    if isinstance(loss, Huber | ConcomitantHuber):
        pytest.skip("its second derivative jumps")
    errors = []
    for n in (60, 240):
        problem = _curved(loss, None, n=n)
        solution = solve(Fit.at_start(problem))
        eta, rows = leave_out(solution.fit, max_error=0.0).eta, range(0, n, n // 20)
        expected = np.array([_refit_without(problem, i).eta[i] for i in rows])
        errors.append(np.median(np.abs(eta[list(rows)] - expected)))
    assert errors[1] < max(errors[0] / 4, 1e-7)


def test_no_refits_when_none_are_wanted():
    problem = _curved(Poisson(), None, strength=1e-2, n=20)
    solution = solve(Fit.at_start(problem))
    bare, full = one_step(*solution), leave_out(solution.fit, max_error=0.0)
    assert np.all(np.isfinite(bare.eta))
    assert abs(_risk(problem, full.eta) - _risk(problem, _refitted(problem))) <= 1e-3


def test_balanced_weights_move_when_a_row_is_refitted():
    # rows that are solved anew must be solved with the weights of a refit
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3))
    classes = (X[:, 0] + rng.normal(size=N) > 1.0).astype(np.intp)
    count = np.bincount(classes)
    weights = (N / (2.0 * count))[classes]
    balance = Balance(classes, np.ones(N))
    problem = Problem(Logistic(), L1(0.3), X, classes.astype(float), weights, balance=balance)
    left_out, expected = _left_out(problem), np.empty(N)
    for i in range(N):
        left = count - np.bincount(classes[i : i + 1], minlength=2)
        new = ((N - 1) / (2.0 * left))[classes]
        new[i] = 0.0
        start = Fit.at_start(replace(problem, weights=new, balance=None))
        expected[i] = solve(start).fit.eta[i]
    exact, fitted = np.mean(np.logaddexp(0, expected) - classes * expected), _risk(problem, left_out.fit.eta)
    ours = np.mean(np.logaddexp(0, left_out.eta) - classes * left_out.eta)
    assert abs(ours - exact) < 0.01 * exact
    refitted = left_out.slack == 1.0
    np.testing.assert_allclose(left_out.eta[refitted], expected[refitted], rtol=1e-6)
    assert fitted < exact


def test_blocks_do_not_matter(monkeypatch):
    problem = _curved(Multinomial(3), None)
    whole = _left_out(problem).eta
    monkeypatch.setattr(_linalg, "BLOCK_SIZE", 64)
    np.testing.assert_allclose(_left_out(problem).eta, whole, rtol=1e-9, atol=1e-9)
