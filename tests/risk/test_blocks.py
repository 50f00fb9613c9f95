"""Sets of rows left out of one fit against refits without them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import (
    ElasticNet as SkElasticNet,
)
from sklearn.linear_model import (
    Lasso,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    RidgeClassifier,
)
from sklearn.model_selection import ShuffleSplit, TimeSeriesSplit, cross_val_predict

from onefit import _linalg
from onefit._linalg import RowGram
from onefit.balance import Balance
from onefit.fit import Fit
from onefit.leave_out import leave_out
from onefit.leave_out.blocks import Blocks
from onefit.leave_out.step import one_step
from onefit.losses import ConcomitantHuber, Gamma, Huber, Logistic, Multinomial, Poisson, Squared
from onefit.penalties import L1, L2, ElasticNet
from onefit.problem import Problem
from onefit.readers import read
from onefit.risk.folds import as_folds, by_group, by_split, k_fold, monte_carlo
from onefit.solvers.solve import polish, solve

N = 60
GROUPS = by_group(np.repeat(np.arange(23), [1, 1, 2, 3, 5] * 4 + [3, 5, 4]), N)
FOLDS = {
    "groups": GROUPS,
    "10 folds": k_fold(N, 10, rng=1),
    "halves": monte_carlo(N, 3, train_size=0.5, rng=2),
}


@pytest.fixture(params=FOLDS)
def folds(request):
    return FOLDS[request.param]


def _data(p=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, p)) + 0.5
    return X, (X - 0.5) @ rng.normal(size=p) / np.sqrt(p) + 0.7 * rng.normal(size=N)


def _response(loss, y):
    if loss == Logistic():
        return (y > 0).astype(float)
    if isinstance(loss, Multinomial):
        return np.digitize(y, [-0.5, 0.5]).astype(float)
    if loss == Poisson():
        return np.round(np.exp(y))
    return np.exp(y) if loss == Gamma() else y


def _refit_without(problem, rows):
    """The definition: no weights, and a mean-scaled penalty shrinks by its share."""
    weights = problem.weights.copy()
    weights[rows] = 0.0
    share = weights.sum() / problem.weights.sum() if problem.mean_scaled else 1.0
    left = replace(problem, weights=weights, penalty=problem.penalty.scaled(share))
    return solve(Fit.at_start(left)).fit


def _refit_from(fit, problem, rows):
    return solve(replace(fit, problem=problem.without(rows))).fit


def _refitted(problem, folds, refit=_refit_without):
    pairs = zip(folds.removed, folds.tested, strict=True)
    return np.concatenate([refit(problem, removed).eta[tested] for removed, tested in pairs])


def _left_out(problem, folds):
    return leave_out(solve(Fit.at_start(problem)).fit, folds, max_error=0.0)


def _by_steps(problem, folds):
    """Steps only: nothing is solved anew."""
    fit = solve(Fit.at_start(problem)).fit
    blocks = Blocks.of(fit, None, folds)
    blocks.step()
    blocks.iterate(np.arange(len(folds)), 1.0)
    return (
        fit,
        blocks,
        np.array([np.isfinite(blocks.bounds[blocks.folds.place(k)]).all() for k in range(len(folds))]),
    )


def _in_rows(left_out):
    """Values in the order of the rows, for a partition."""
    eta = np.empty_like(left_out.eta)
    eta[left_out.sets.rows] = left_out.eta
    return eta


def close(one, other, tol=1e-8):
    np.testing.assert_allclose(one, other, atol=tol * np.std(other), rtol=0)


# --- least squares ---------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [5, 40, 90])
def test_ridge_is_as_many_refits(p, folds, weigh, fit_intercept):
    X, y = _data(p)
    weights = weigh(N)
    weights = np.ones(N) if weights is None else weights
    problem = Problem(Squared(), L2(0.5), X, y, weights, np.array(fit_intercept))
    left_out = _left_out(problem, folds)
    close(left_out.eta, _refitted(problem, folds))
    assert left_out.certified.all()


@pytest.mark.parametrize("p", [5, 90])
def test_however_x_is_stored(p, store):
    X, y = _data(p)
    problem = Problem(Squared(), L2(0.5), X, y, np.ones(N))
    close(_left_out(replace(problem, X=store(X)), GROUPS).eta, _left_out(problem, GROUPS).eta, tol=1e-10)


@pytest.mark.parametrize("p", [5, 40, 90])
def test_the_interpolating_fit_of_minimum_norm(p, fit_intercept):
    """Also where it is the refit alone that interpolates."""
    X, y = _data(p)
    model = LinearRegression(fit_intercept=fit_intercept).fit(X, y)
    for folds in FOLDS.values():
        left_out = leave_out(polish(read(model, X, y).fit).solution.fit, folds, 0.0)
        parts = [np.delete(np.arange(N), rows) for rows in folds.removed]
        predicted = [
            model.fit(X[kept], y[kept]).predict(X[rows])
            for kept, rows in zip(parts, folds.tested, strict=True)
        ]
        close(left_out.eta, np.concatenate(predicted), tol=1e-7)


@pytest.mark.parametrize("p", [5, 90])
@pytest.mark.parametrize(
    "penalty", [L2(2.0), L2(np.array([0.0, 1.0, 5.0, np.inf, 2.0]))], ids=["one", "many"]
)
def test_a_penalty_that_shrinks_with_the_rows(p, penalty, folds, weigh):
    X, y = _data(5)
    if p > 5:
        if np.ndim(penalty.alpha):
            penalty = L2(np.resize(penalty.alpha, p) + 0.1)
        X, y = _data(p)
    weights = weigh(N)
    weights = np.ones(N) if weights is None else weights
    problem = Problem(Squared(), penalty, X, y, weights, mean_scaled=True)
    left_out = _left_out(problem, folds)
    refits = _refitted(problem, folds)
    # of many sets that differ in weight a step knows the share roughly; what is certified is not repeated
    close(left_out.eta, refits, tol=1e-6)
    assert np.all(np.abs(left_out.eta - refits) <= left_out.bounds + 1e-8 * np.std(refits))
    repeated = np.isin(left_out.fold, left_out.stepped)
    np.testing.assert_allclose(left_out.eta[repeated], refits[repeated], atol=1e-8 * np.std(refits), rtol=0)
    assert left_out.certified.all()


def test_a_kernel_model_is_as_many_refits(folds, weigh):
    X, y = _data()
    weights = weigh(N)
    problem = Problem(Squared(), L2(2.0), X, y, np.ones(N) if weights is None else weights, np.array(False))
    close(_left_out(replace(problem, X=RowGram(X @ X.T)), folds).eta, _refitted(problem, folds))


@pytest.mark.parametrize("p", [5, 90])
def test_several_outputs_are_as_many_models(p, folds, weigh):
    X, y = _data(p)
    Y = np.column_stack([y, y**2, np.sin(y)])
    weights = weigh(N)
    weights = np.ones(N) if weights is None else weights
    strengths = np.array([0.5, 3.0, 0.5])
    both = _left_out(Problem(Squared(), L2(strengths[None]), X, Y, weights, np.full(3, True)), folds)
    for j in range(3):
        close(both.eta[:, j], _left_out(Problem(Squared(), L2(strengths[j]), X, Y[:, j], weights), folds).eta)


@pytest.mark.parametrize("penalty", [L1(4.0), ElasticNet(5.0, 0.7)], ids=repr)
@pytest.mark.parametrize("mean_scaled", [False, True])
@pytest.mark.parametrize("p", [15, 45])
def test_folds_called_exact_keep_their_pattern_and_are_refits(penalty, mean_scaled, p, weigh):
    X, y = _data(p, seed=4)
    weights = weigh(N)
    weights = np.ones(N) if weights is None else weights
    problem = Problem(Squared(), penalty.scaled(p / 15), X, y, weights, mean_scaled=mean_scaled)
    fit, left_out, exact = _by_steps(problem, GROUPS)
    assert 0 < np.count_nonzero(exact) < len(GROUPS)
    for k, rows in enumerate(GROUPS.removed):
        refit = _refit_without(problem, rows)
        kept = np.array_equal(np.sign(refit.coef), np.sign(fit.coef))
        assert exact[k] == kept
        if kept:
            np.testing.assert_allclose(left_out.eta[GROUPS.fold == k], refit.eta[rows], atol=1e-9)


# --- other losses ----------------------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.parametrize(
    "loss", [Logistic(), Poisson(), Gamma(), Huber(), Multinomial(3), ConcomitantHuber()], ids=repr
)
@pytest.mark.parametrize("mean_scaled", [False, True])
def test_more_steps_lead_to_the_refits(loss, mean_scaled, folds, weigh):
    X, y = _data()
    weights = weigh(N)
    weights = np.ones(N) if weights is None else weights
    intercept = np.full(3, True) if loss == Multinomial(3) else np.array(True)
    penalty = L2(1.0)
    if loss == ConcomitantHuber():
        intercept, penalty = np.full(2, True), L2(np.array([[1.0, np.inf]]))
    problem = Problem(loss, penalty, X, _response(loss, y), weights, intercept, mean_scaled)
    solution = solve(Fit.at_start(problem))
    left_out = leave_out(solution.fit, folds, max_error=0.0)
    assert left_out.certified.all()
    close(left_out.eta, _refitted(problem, folds, partial(_refit_from, solution.fit)), tol=2e-6)


@pytest.mark.costly
@pytest.mark.parametrize("loss", [Logistic(), Multinomial(3)], ids=repr)
@pytest.mark.parametrize("p", [20, 60, 90])
@pytest.mark.parametrize("strength", [0.1, 10.0])
def test_hard_classifications_settle_too(loss, p, strength, folds):
    """As many columns as rows, and hardly a penalty: one step alone is far off."""
    X, y = _data(p)
    intercept = np.full(3, True) if loss == Multinomial(3) else np.array(True)
    problem = Problem(loss, L2(strength), X, _response(loss, y), np.ones(N), intercept)
    left_out = _left_out(problem, folds)
    assert left_out.certified.all()
    close(left_out.eta, _refitted(problem, folds), tol=2e-6)


def test_a_separable_fold_without_a_penalty_is_not_settled():
    X = np.array([-3.0, -2.0, -1.0, 1.0, 2.0, 3.0, -1.5, 1.5])[:, None]
    y = np.array([0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0])
    left_out = _left_out(Problem(Logistic(), L2(0.0), X, y, np.ones(8)), by_group([0, 1] * 3 + [2, 2], 8))
    assert left_out.failed.tolist() == [2]
    assert not np.isfinite(left_out.bounds[-2:]).any()
    assert np.all(np.isfinite(left_out.eta))


def test_a_pattern_of_a_curved_loss_is_checked():
    X, y = _data(20, seed=3)
    problem = Problem(Logistic(), L1(2.0), X, (y > 0).astype(float), np.ones(N))
    fit, left_out, exact = _by_steps(problem, GROUPS)
    assert 0 < np.count_nonzero(exact) < len(GROUPS)
    for k, rows in enumerate(GROUPS.removed):
        refit = _refit_without(problem, rows)
        assert exact[k] == np.array_equal(np.sign(refit.coef), np.sign(fit.coef))
        if exact[k]:
            np.testing.assert_allclose(left_out.eta[GROUPS.fold == k], refit.eta[rows], atol=1e-6)


@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=repr)
@pytest.mark.parametrize("p", [5, 90])
def test_balanced_weights_move_when_a_set_leaves(loss, p, folds):
    X, y = _data(p)
    numbers = (y > 0.3).astype(np.intp)
    raw = np.random.default_rng(8).uniform(0.5, 2.0, N)
    target = 2.0 * numbers - 1.0 if loss == Squared() else numbers.astype(float)

    def balanced(raw):
        return raw * (raw.sum() / (2 * np.bincount(numbers, raw)))[numbers]

    def refit(problem, rows):
        held = raw.copy()
        held[rows] = 0.0
        return solve(Fit.at_start(replace(problem, weights=balanced(held)))).fit

    problem = Problem(loss, L2(1.0), X, target, balanced(raw), balance=Balance(numbers, raw))
    left_out = _left_out(problem, folds)
    assert left_out.certified.all()
    close(left_out.eta, _refitted(problem, folds, refit), tol=1e-8 if loss == Squared() else 2e-6)


def test_without_refinement_it_is_one_step():
    """Second order in what leaves: a quarter of the error for half of the weight."""
    X, y = _data()
    y = (y > 0).astype(float)
    folds = by_group(np.arange(N) // 6, N)
    errors = []
    for size in (0.1, 0.05):
        weights = np.ones(N)
        weights[folds.removed[0]] = size
        problem = Problem(Logistic(), L2(1.0), X, y, weights)
        left_out = leave_out(solve(Fit.at_start(problem)).fit, folds, np.inf)
        refit = _refit_without(problem, folds.removed[0]).eta[folds.removed[0]]
        errors.append(np.abs(left_out.eta[:6] - refit).max())
    assert 3.0 < errors[0] / errors[1] < 5.0


def test_rows_outside_the_test_set_leave_as_well(weigh):
    X, y = _data()
    weights = weigh(N)
    weights = np.ones(N) if weights is None else weights
    for splitter in (TimeSeriesSplit(5, gap=2), ShuffleSplit(5, test_size=3, train_size=50, random_state=0)):
        folds = as_folds(splitter, X)
        assert sum(map(len, folds.removed)) > len(folds.rows)
        for loss in (Squared(), Poisson()):
            problem = Problem(loss, L2(1.0), X, _response(loss, y), weights, mean_scaled=True)
            close(_left_out(problem, folds).eta, _refitted(problem, folds), tol=1e-6)


def test_in_many_small_chunks_it_is_the_same(monkeypatch):
    X, y = _data()
    for loss in (Squared(), Logistic(), Multinomial(3)):
        intercept = np.full(3, True) if loss == Multinomial(3) else np.array(True)
        problem = Problem(loss, L2(1.0), X, _response(loss, y), np.ones(N), intercept)
        whole = _left_out(problem, GROUPS).eta
        with monkeypatch.context() as patch:
            patch.setattr(_linalg, "BLOCK_SIZE", 64)
            close(_left_out(problem, GROUPS).eta, whole, tol=1e-6)


# --- one row each ----------------------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.parametrize("loss", [Squared(), Logistic(), Poisson(), Multinomial(3)], ids=repr)
@pytest.mark.parametrize("penalty", [L2(1.0), L1(1.0), ElasticNet(1.0, 0.5)], ids=repr)
@pytest.mark.parametrize("mean_scaled", [False, True])
def test_sets_of_one_row_are_leave_one_out(loss, penalty, mean_scaled):
    X, y = _data()
    intercept = np.full(3, True) if loss == Multinomial(3) else np.array(True)
    problem = Problem(loss, penalty, X, _response(loss, y), np.ones(N), intercept, mean_scaled)
    solution = solve(Fit.at_start(problem))
    singles, loo = leave_out(solution.fit, k_fold(N, N), np.inf), one_step(*solution)
    close(singles.eta, loo.eta, tol=1e-9)
    np.testing.assert_allclose(singles.slack, loo.slack, atol=1e-9)
    refits = np.array([_refit_from(solution.fit, problem, row).eta[row] for row in range(N)])
    for left_out in (leave_out(solution.fit, k_fold(N, N), 0.0), leave_out(solution.fit, None, 0.0)):
        error = left_out.eta - refits
        if loss == Multinomial(3):  # nothing holds a constant added to all intercepts
            error = error - error.mean(axis=1, keepdims=True)
        error = np.abs(error).reshape(N, -1).max(axis=1)
        assert left_out.certified.all()
        assert np.all(error <= left_out.bounds + 1e-8 * np.std(solution.fit.eta))


# --- scikit-learn ----------------------------------------------------------------------------------

X5, Y5 = _data()
BINARY, THREE = (Y5 > 0.2).astype(int), np.digitize(Y5, [-0.5, 0.5])
TIGHT = {"tol": 1e-10, "max_iter": 10_000}


@pytest.mark.parametrize(
    ("model", "X", "y", "method"),
    [
        (Ridge(1.0), X5, Y5, "predict"),
        (Ridge(1.0), sp.csr_array(X5), Y5, "predict"),
        (Ridge(1.0), X5, np.column_stack([Y5, BINARY]), "predict"),
        (KernelRidge(alpha=0.5, kernel="rbf", gamma=0.2), X5, Y5, "predict"),
        (Lasso(0.005, **TIGHT), X5, Y5, "predict"),
        (SkElasticNet(0.005, **TIGHT), X5, Y5, "predict"),
        (RidgeClassifier(class_weight="balanced"), X5, BINARY, "decision_function"),
        (RidgeClassifier(class_weight="balanced"), X5, THREE, "decision_function"),
        (LogisticRegression(solver="newton-cholesky", **TIGHT), X5, BINARY, "decision_function"),
        (LogisticRegression(C=10, solver="newton-cholesky", **TIGHT), X5, THREE, "decision_function"),
        (
            LogisticRegression(class_weight="balanced", solver="newton-cholesky", **TIGHT),
            X5,
            BINARY,
            "decision_function",
        ),
        (
            PoissonRegressor(alpha=0.1, solver="newton-cholesky", tol=1e-10),
            X5,
            np.round(np.exp(Y5)),
            "predict",
        ),
    ],
    ids=[
        "ridge",
        "ridge, sparse",
        "ridge, two outputs",
        "kernel ridge",
        "lasso",
        "elastic net",
        "ridge classifier",
        "ridge classifier, three classes",
        "logistic",
        "multinomial, C=10",
        "logistic, balanced",
        "Poisson",
    ],
)
def test_cross_val_predict_without_refits(model, X, y, method):
    reading = read(model.fit(X, y), X, y)
    folds = by_split([(np.delete(np.arange(N), rows), rows) for rows in FOLDS["10 folds"].removed], N)
    splits = [(np.delete(np.arange(N), rows), rows) for rows in folds.removed]
    left_out = leave_out(polish(reading.fit).solution.fit, folds, max_error=0.0)
    assert left_out.certified.all()
    refits = cross_val_predict(model, X, y, cv=splits, method=method)
    mine = _in_rows(left_out)
    if isinstance(model, PoissonRegressor):
        mine = np.exp(mine)
    if refits.ndim == 2 and isinstance(model, LogisticRegression):  # a common shift is free
        mine, refits = mine - mine.mean(axis=1)[:, None], refits - refits.mean(axis=1)[:, None]
    close(mine, refits, tol=3e-6 if isinstance(model, LogisticRegression | PoissonRegressor) else 1e-8)


def test_nothing_to_fit_is_an_error():
    X, y = _data()
    weights = np.zeros(N)
    weights[GROUPS.removed[4]] = 1.0
    problem = Problem(Squared(), L2(1.0), X, y, weights)
    with pytest.raises(ValueError, match="fold 4 removes all rows of positive weight"):
        _left_out(problem, GROUPS)


@pytest.mark.parametrize("rows", [3, np.array([3]), np.array([0, 3, 59])], ids=repr)
def test_a_problem_without_rows(rows):
    """Weights of zero, a smaller penalty, and weights that are balanced anew."""
    X, y = _data()
    numbers = (y > 0.3).astype(np.intp)
    raw = np.random.default_rng(8).uniform(0.5, 2.0, N)
    balance = Balance(numbers, raw)
    weights = raw * (raw.sum() / (2 * np.bincount(numbers, raw)))[numbers]
    left = Problem(Squared(), L2(2.0), X, y, weights, mean_scaled=True, balance=balance).without(rows)
    held = raw.copy()
    held[rows] = 0.0
    np.testing.assert_allclose(left.weights, held * (held.sum() / (2 * np.bincount(numbers, held)))[numbers])
    gone = weights[rows].sum() / weights.sum()
    np.testing.assert_allclose(left.penalty.alpha, 2.0 * (1.0 - gone))


def test_a_class_that_leaves_as_a_whole_has_nothing_to_grow():
    numbers = np.array([0, 0, 1, 1])
    growth = Balance(numbers, np.array([1.0, 1.0, 2.0, 2.0])).growth_without(np.array([2, 3]))
    np.testing.assert_allclose(growth, [2.0 / 6.0 - 1.0, 0.0])
