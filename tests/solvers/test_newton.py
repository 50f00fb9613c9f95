"""Newton's method: optimality for every loss and penalty, and scikit-learn's solutions."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from itertools import pairwise
from math import comb

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from sklearn.linear_model import ElasticNet as SkElasticNet
from sklearn.linear_model import GammaRegressor, Lasso, LogisticRegression, PoissonRegressor, Ridge
from sklearn.svm import LinearSVC

from onefit import cost
from onefit._linalg import RowGram
from onefit.curvature import factor
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.losses import (
    ConcomitantHuber,
    Gamma,
    Huber,
    Logistic,
    Multinomial,
    Poisson,
    Squared,
    SquaredEpsilonInsensitive,
    SquaredHinge,
    Tweedie,
)
from onefit.penalties import L1, L2, ElasticNet, Strengths, TrendFilter
from onefit.problem import Problem
from onefit.solvers import newton, path
from onefit.solvers.solve import solve
from onefit.solvers.stationary import is_stationary

N, P = 60, 5
LOSSES = [
    Squared(),
    Logistic(),
    Multinomial(3),
    Poisson(),
    Gamma(),
    Tweedie(1.5),
    Huber(),
    ConcomitantHuber(),
]
FEATURES = np.array([2.0, 0.0, 5.0, np.inf, 1.0])
PENALTIES = {
    "L2": L2(2.0),
    "L2 weak": L2(1e-6),
    "L1": L1(3.0),
    "L1 strong": L1(1e4),
    "net": ElasticNet(4.0, 0.5),
    "L2 per feature": L2(FEATURES),
    "L1 per feature": L1(FEATURES),
    "net per feature": ElasticNet(FEATURES, 0.3),
}


@pytest.mark.parametrize("alpha", [1e-3, 1e-2])
@pytest.mark.parametrize("seed", [3, 4, 8, 12])
def test_rows_that_come_onto_another_piece_need_a_factor_of_their_own(seed, alpha):
    """A factor without the rows that a step brought onto the curved piece would lead back."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(50, 30)) * np.exp(rng.normal(size=30))
    y = (X[:, 0] + rng.normal(size=50) > 0).astype(float)
    start = Fit.at_start(Problem(SquaredHinge(), L2(alpha), X, y, np.ones(50), np.array(False)))
    found = newton.solve(start, max_steps=60).fit
    model = LinearSVC(C=1.0 / alpha, dual=False, fit_intercept=False, tol=1e-12, max_iter=10**6)
    model.fit(X, y)
    theirs = start.moved(model.coef_.ravel(), start.intercept)
    assert found.objective <= theirs.objective * (1 + 1e-9)
    slope = found.loss_gradient + alpha * found.coef
    assert_allclose(slope, 0.0, atol=1e-9 * np.abs(start.loss_gradient).max())


def test_a_coefficient_next_to_zero_does_not_stop_the_others():
    """Held at zero while the other one moves on, the objective would rise at every length of any use."""
    X = np.linalg.cholesky(np.array([[1.0, 0.99], [0.99, 1.0]])).T
    coef = np.array([1.05 * 2.0**-44, 1.0])  # passed by no halving but useless ones
    pull = np.array([0.406, 0.39])  # the gradient, of which Newton's step is (-1, 0.6)
    y = X @ coef - np.linalg.solve(X.T, pull - 0.1)
    fit = Fit(Problem(Squared(), L1(0.1), X, y, np.ones(2), np.array(False)), coef, np.array(0.0))
    step = newton.newton_step(fit, None)
    assert_allclose(step.direction.coef, [-1.0, 0.6], rtol=1e-9)
    moved = newton._line_search(fit, step, step.curvature.predict(step.direction))
    assert moved.coef[0] == 0.0
    assert_allclose(moved.coef[1], 1.0, atol=1e-11)
    assert newton.solve(fit).fit.coef[0] == 0.0


def test_copies_that_started_with_opposite_signs():
    """K does not see the difference of two copies, the penalty does."""
    rng = np.random.default_rng(0)
    column = rng.normal(size=(N, 1))
    X = np.hstack([column, column, rng.normal(size=(N, 2))])
    y = (column[:, 0] + rng.logistic(size=N) > 0).astype(float)
    problem = Problem(Logistic(), L1(2.0), X, y, np.ones(N))
    start = Fit(problem, np.array([1.5, -0.5, 0.0, 0.0]), np.asarray(0.0))
    fit, alone = newton.solve(start).fit, newton.solve(Fit.at_start(replace(problem, X=X[:, 1:]))).fit
    assert fit.objective == pytest.approx(alone.objective, rel=1e-12)
    assert fit.coef[0] * fit.coef[1] >= 0


def _problem(loss, penalty, fit_intercept=True, weights=None, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, P)) * np.array([1.0, 0.5, 2.0, 1.0, 1.0])
    eta = X @ np.array([1.0, -0.5, 0.0, 0.3, 0.0])
    intercept = np.array(fit_intercept)
    if isinstance(loss, Multinomial):
        y, intercept = rng.integers(0, 3, N).astype(float), np.full(3, fit_intercept)
    elif isinstance(loss, Logistic):
        y = (eta + rng.logistic(size=N) > 0).astype(float)
    elif isinstance(loss, Tweedie):
        y = rng.gamma(2.0, 0.5 * np.exp(0.5 * eta))
        y = np.where(np.arange(N) % 6 == 0, 0.0, y) if loss.power < 2 else y
    else:
        y = eta + rng.standard_t(2, size=N)
    if isinstance(loss, ConcomitantHuber):
        l1, l2 = penalty.strengths((P,))
        fixed = np.full(P, np.inf)
        strength = np.where(np.isinf(l1 + l2), np.inf, np.maximum(l1, l2))
        penalty, intercept = (
            type(penalty)(np.stack([strength, fixed], axis=1)),
            np.array([fit_intercept, True]),
        )
    return Problem(loss, penalty, X, y, np.ones(N) if weights is None else weights, intercept)


def _kkt_violation(fit):
    """Largest violation of the optimality conditions, relative to what is summed."""
    problem = fit.problem
    l1, l2 = problem.penalty.strengths(fit.coef.shape)
    fixed = np.isinf(l1) | np.isinf(l2)
    assert not np.any(fit.coef[fixed])
    with np.errstate(invalid="ignore"):
        smooth = fit.loss_gradient + np.where(fixed, 0.0, l2 * fit.coef)
    on = np.abs(smooth + np.where(fixed, 0.0, l1) * np.sign(fit.coef))
    off = np.maximum(np.abs(smooth) - l1, 0.0)
    violation = np.where(fixed, 0.0, np.where(fit.coef != 0, on, off))
    levels = np.where(problem.intercept, np.abs(fit.gradient.sum(axis=0)), 0.0)
    size = np.abs(problem.X).T @ np.abs(fit.gradient) + 1.0
    return max(np.max(violation / size), np.max(levels / (np.abs(fit.gradient).sum() + 1.0)))


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES.keys())
def test_optimality_conditions(loss, penalty, weigh, fit_intercept):
    problem = _problem(loss, penalty, fit_intercept, weigh(N))
    start = Fit.at_start(problem)
    solution = newton.solve(start)
    assert _kkt_violation(solution.fit) < 1e-8
    assert solution.fit.objective <= start.objective + 1e-9 * abs(start.objective)


@pytest.mark.parametrize("penalty", [L1(3.0), ElasticNet(4.0, 0.5)], ids=repr)
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_the_start_does_not_matter(loss, penalty):
    problem = _problem(loss, penalty)
    one = newton.solve(Fit.at_start(problem)).fit
    start = Fit.at_start(problem)
    rng = np.random.default_rng(1)
    coef = np.where(
        np.isinf(problem.penalty.strengths(one.coef.shape)[1]), 0.0, rng.normal(size=one.coef.shape)
    )
    if isinstance(loss, ConcomitantHuber):
        coef[:, 1] = 0.0
    other = newton.solve(start.moved(0.3 * coef, start.intercept)).fit
    assert_allclose(other.objective, one.objective, rtol=1e-12)
    assert_allclose(other.eta - np.mean(other.eta), one.eta - np.mean(one.eta), atol=1e-6)
    np.testing.assert_array_equal(other.coef != 0, one.coef != 0)


def test_the_factor_is_that_of_the_solution():
    for loss in (Logistic(), Squared()):
        solution = newton.solve(Fit.at_start(_problem(loss, ElasticNet(4.0, 0.5))))
        assert_allclose(
            solution.curvature.quadratic_forms(), factor(solution.fit).quadratic_forms(), rtol=1e-6
        )


def test_no_finite_minimum():
    # the decrement vanishes along a direction in which the objective falls for ever
    X = np.random.default_rng(0).normal(size=(40, 3))
    problem = Problem(Logistic(), L2(0.0), X, (X[:, 0] > 0).astype(float), np.ones(40))
    with pytest.raises(SolverError, match="separable"):
        newton.solve(Fit.at_start(problem))


def test_no_finite_minimum_with_three_classes():
    # as for two classes
    X = np.random.default_rng(0).normal(size=(40, 3))
    y = np.digitize(X[:, 0], [-0.5, 0.5]).astype(float)
    problem = Problem(Multinomial(3), L2(0.0), X, y, np.ones(40), np.full(3, True))
    with pytest.raises(SolverError, match="separable"):
        newton.solve(Fit.at_start(problem))


def test_separable_classes_with_a_weak_penalty_have_a_minimum():
    X = np.random.default_rng(0).normal(size=(40, 3))
    problem = Problem(Logistic(), L2(1e-6), X, (X[:, 0] > 0).astype(float), np.ones(40))
    assert _kkt_violation(newton.solve(Fit.at_start(problem)).fit) < 1e-8


def test_too_few_steps():
    with pytest.raises(SolverError, match="did not settle in 1 steps"):
        newton.solve(Fit.at_start(_problem(Poisson(), L2(1e-3))), max_steps=1)


SCIKIT_LEARN = {
    "ridge": (Ridge(2.0), Squared(), L2(2.0)),
    "lasso": (Lasso(0.1, tol=1e-14, max_iter=100_000), Squared(), L1(0.1 * N)),
    "net": (
        SkElasticNet(alpha=0.2, l1_ratio=0.3, tol=1e-14, max_iter=100_000),
        Squared(),
        ElasticNet(0.2 * N, 0.3),
    ),
    "logistic": (LogisticRegression(C=0.5, tol=1e-12, solver="newton-cholesky"), Logistic(), L2(2.0)),
    "l1 logistic": (
        LogisticRegression(C=0.3, l1_ratio=1.0, tol=1e-10, solver="saga", max_iter=100_000, random_state=0),
        Logistic(),
        L1(1 / 0.3),
    ),
    "multinomial": (LogisticRegression(C=0.5, tol=1e-12, solver="newton-cholesky"), Multinomial(3), L2(2.0)),
    "poisson": (PoissonRegressor(alpha=0.1, tol=1e-12, solver="newton-cholesky"), Poisson(), L2(0.1 * N)),
    "gamma": (GammaRegressor(alpha=0.1, tol=1e-12, solver="newton-cholesky"), Gamma(), L2(0.1 * N)),
}


@pytest.mark.parametrize("case", SCIKIT_LEARN)
@pytest.mark.parametrize("weighted", [False, True])
def test_scikit_learn_agrees(case, weighted):
    model, loss, penalty = SCIKIT_LEARN[case]
    weights = np.random.default_rng(3).uniform(0.5, 2.0, N) if weighted else np.ones(N)
    weights *= N / weights.sum()  # so that a mean is a sum over N
    problem = _problem(loss, penalty, weights=weights)
    ours = newton.solve(Fit.at_start(problem)).fit
    model = model.fit(problem.X, problem.y, sample_weight=weights)
    coef = ours.coef.T if ours.coef.ndim == 2 else ours.coef
    tol = 1e-5 if "l1" in case else 1e-7
    assert_allclose(np.squeeze(model.coef_), coef, atol=tol)
    if loss != Multinomial(3):  # whose intercepts have a common shift to spare
        assert_allclose(np.squeeze(model.intercept_), ours.intercept, atol=tol)


@pytest.mark.parametrize("p", [3, 30])
def test_kernel_ridge_in_dual_coordinates(p):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, p)), rng.normal(size=20)
    weights = rng.uniform(0.5, 2.0, 20)
    dual = newton.solve(
        Fit.at_start(Problem(Squared(), L2(0.5), RowGram(X @ X.T), y, weights, np.array(False)))
    ).fit
    primal = newton.solve(Fit.at_start(Problem(Squared(), L2(0.5), X, y, weights, np.array(False)))).fit
    assert_allclose(dual.eta, primal.eta, atol=1e-9)
    assert_allclose(dual.objective, primal.objective, rtol=1e-12)


def test_a_matrix_of_strengths_one_an_output():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 4)), rng.normal(size=(30, 2))
    both = newton.solve(
        Fit.at_start(Problem(Squared(), L2([[0.5, 4.0]]), X, y, np.ones(30), np.full(2, True)))
    ).fit
    for j, alpha in enumerate((0.5, 4.0)):
        one = newton.solve(Fit.at_start(Problem(Squared(), L2(alpha), X, y[:, j], np.ones(30)))).fit
        assert_allclose(both.eta[:, j], one.eta, atol=1e-10)


# --- where nothing curves --------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [Squared(), Huber(1.0)], ids=["squared", "huber"])
@pytest.mark.parametrize("store", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("apart", [1e-9, 1e-8, 3e-8])
def test_of_columns_that_are_almost_the_same_the_one_that_pulls_more_has_all(
    apart, store, loss, fit_intercept
):
    """As those of a table that holds a quantity in two units do; K tells no way between them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 4))
    X = np.column_stack([X, X[:, 3] + apart * rng.normal(size=80)])
    y = X[:, 0] + X[:, 3] + 4.0 * rng.normal(size=80)
    problem = Problem(loss, L1(2.0), store(X), y, rng.uniform(0.5, 2.0, 80), np.asarray(fit_intercept))
    fit, _ = newton.solve(Fit(problem, np.array([0.5, 0.0, 0.0, 0.5, 0.2]), np.zeros(())))
    assert np.count_nonzero(fit.coef[3:]) == 1
    inside = fit.coef != 0
    assert_allclose(-fit.loss_gradient[inside], 2.0 * np.sign(fit.coef[inside]), rtol=1e-11)
    assert np.all(np.abs(fit.loss_gradient[~inside]) < 2.0)


@pytest.mark.parametrize("alpha", [1e-8, 1.04e-11, 4.02e-12])
@pytest.mark.parametrize("left_out", range(6))
def test_separated_rows_beside_a_weak_l1_penalty(alpha, left_out):
    """Slopes are about as small as the penalty."""
    X, y = np.random.default_rng(0).normal(size=(6, 3)), np.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    problem = Problem(Logistic(), L1(alpha), X, y, np.ones(6)).without(left_out)
    fit, _ = newton.solve(Fit.at_start(problem))
    inside = fit.coef != 0
    assert_allclose(-fit.loss_gradient[inside], alpha * np.sign(fit.coef[inside]), rtol=1e-4)
    assert np.all(np.abs(fit.loss_gradient) <= alpha * (1.0 + 1e-4))


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("copied", [True, False], ids=["a copied column", "no copy"])
@pytest.mark.parametrize("strength", [0.01, 0.1, 1.0])
def test_three_classes_with_an_l1_penalty_have_no_common_shift(strength, copied, fit_intercept):
    """Classes share a direction without curvature; the ℓ1 penalty is least at a median of zero."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(33, 5))
    X = np.hstack([X, X[:, [3]]]) if copied else X
    y = np.digitize(X[:, 0] + 0.3 * rng.normal(size=33), [-0.5, 0.5]).astype(float)
    problem = Problem(Multinomial(3), L1(strength), X, y, np.ones(33), np.full(3, fit_intercept))
    fit = newton.solve(Fit.at_start(problem)).fit
    assert _kkt_violation(fit) < 1e-8
    assert np.all(np.median(fit.coef, axis=1) == 0)


@pytest.mark.parametrize("loss", [SquaredEpsilonInsensitive(0.2), Logistic(), Huber(0.5)], ids=repr)
@pytest.mark.parametrize("strength", [1e-4, 1e-2, 1.0])
def test_all_levels_of_a_factor_beside_an_intercept(loss, strength):
    rng = np.random.default_rng(5)
    X = np.eye(4)[rng.integers(0, 4, 42)]
    y = X @ [1.0, -1.0, 0.5, 2.0] + rng.normal(size=42)
    y = (y > 0.5).astype(float) if isinstance(loss, Logistic) else y
    fit = newton.solve(Fit.at_start(Problem(loss, L1(strength), X, y, np.ones(42)))).fit
    assert _kkt_violation(fit) < 1e-8


@pytest.mark.parametrize("strength", [1.0, 0.1, 0.01, 0.001])
def test_all_levels_of_several_factors_and_classes(strength):
    """Along a level of all classes, or all levels of a class, nothing curves; kinks end it."""
    rng = np.random.default_rng(0)
    X = np.hstack([np.eye(levels)[rng.integers(0, levels, 150)] for levels in (3, 4, 5)])
    score = X @ rng.normal(size=(12, 4))
    y = (1.5 * score / score.std() + rng.gumbel(size=score.shape)).argmax(axis=1).astype(float)
    problem = Problem(Multinomial(4), L1(strength), X, y, np.ones(150), np.ones(4, dtype=bool))
    fit = newton.solve(Fit.at_start(problem), max_steps=200).fit
    assert _kkt_violation(fit) < 1e-7


def test_shifts_of_several_columns_go_to_their_medians_at_once():
    """Eight classes share a straight direction in every column, along which steps had no end."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(380, 21)) * 10 ** rng.uniform(-1.5, 1.5, 21)
    score = X @ (rng.normal(size=(21, 8)) / X.std(axis=0)[:, None])
    y = (6.0 * score / score.std(axis=0) + rng.gumbel(size=score.shape)).argmax(axis=1).astype(float)
    problem = Problem(Multinomial(8), L1(1e-3), X, y, np.ones(380), np.ones(8, dtype=bool))
    fit = newton.solve(Fit.at_start(problem)).fit
    assert _kkt_violation(fit) < 1e-5
    assert np.all(np.sort(fit.coef, axis=1)[:, 3] <= 0)
    assert np.all(np.sort(fit.coef, axis=1)[:, 4] >= 0)


def test_what_rounding_leaves_on_a_constant_column_goes_to_zero():
    """K does not see the column beside the intercepts, and no objective tells next to nothing from zero."""
    rng = np.random.default_rng(0)
    X = np.hstack([rng.normal(size=(196, 5)), np.full((196, 1), 3.0)])
    score = X[:, :5] @ rng.normal(size=(5, 8))
    y = (5.0 * score / score.std(axis=0) + rng.gumbel(size=score.shape)).argmax(axis=1).astype(float)
    problem = Problem(Multinomial(8), L1(1e-3), X, y, np.ones(196), np.ones(8, dtype=bool))
    near = newton.solve(Fit.at_start(problem)).fit
    start = near.coef + 1e-16 * (np.arange(6) == 5)[:, None] * (np.arange(8) % 3 == 0)
    fit = newton.solve(Fit(problem, start, near.intercept)).fit
    assert not fit.coef[5].any()
    assert _kkt_violation(fit) < 1e-5


@pytest.mark.parametrize("seed", range(3))
def test_classes_beside_a_column_far_from_zero(seed):
    """Its coefficients and the intercepts make up for each other, and so do parts of a decrement."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 5))
    score = X @ [1.0, 1.0, 0.0, -0.5, 0.0] + rng.normal(size=60)
    y = np.digitize(score, np.quantile(score, [0.3, 0.7])).astype(float)
    far = X + 1e7 * (np.arange(5) == 0)
    near, fit = (
        newton.solve(
            Fit.at_start(Problem(Multinomial(3), L2(1.6e-4), one, y, np.ones(60), np.ones(3, bool)))
        ).fit
        for one in (X, far)
    )
    assert fit.objective == pytest.approx(near.objective, rel=1e-6)


def test_classes_with_hardly_a_penalty_settle():
    """Rounding along the shift that all classes share, divided by a weak penalty, is no reason to go on."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 8))
    score = X[:, :4].sum(axis=1) + rng.normal(size=1500)
    y = (10 * np.argsort(np.argsort(score)) // 1500).astype(float)
    problem = Problem(Multinomial(10), L2(1e-10), X, y, np.ones(1500), np.ones(10, dtype=bool))
    near = newton.solve(Fit.at_start(replace(problem, penalty=L2(1e-8)))).fit
    fit = newton.solve(Fit(problem, near.coef, near.intercept)).fit
    assert np.abs(fit.loss_gradient + 1e-10 * fit.coef).max() < 1e-9


@pytest.mark.parametrize("seed", [3, 10, 15])
def test_a_scale_that_runs_to_zero_warns_of_no_overflow(seed):
    # warnings are errors here
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 8))
    y = 100.0 + X[:, 0] + rng.standard_t(1.5, 60)
    rows = np.concatenate([np.arange(60), rng.integers(0, 60, 20)])
    strength = np.stack([np.full(8, 2e-3), np.full(8, np.inf)], axis=1)
    loss, levels = ConcomitantHuber(1.05), np.array([True, True])
    problem = Problem(loss, L2(strength), X[rows], y[rows], np.ones(80), levels)
    with contextlib.suppress(SolverError):
        newton.solve(Fit.at_start(problem))


@pytest.mark.parametrize("n", [31, 48])
def test_an_intercept_alone_where_all_rows_are_straight(n):
    """Responses a thousand times the width of Huber's parabola: the constant model is near the median."""
    rng = np.random.default_rng(0)
    y = 1e4 * rng.normal(size=n)
    problem = Problem(Huber(1.35), L2(1.0), np.zeros((n, 1)), y, np.ones(n), np.asarray(True))
    fit = newton.solve(Fit.at_start(problem)).fit
    assert abs(np.clip(fit.intercept - y, -1.35, 1.35).sum()) <= 1e-9


def test_a_column_that_only_a_saturated_row_has():
    """Its row is wrong by 200 and bends by 1e-87: steps on the column have no end, and are cut first."""
    rng = np.random.default_rng(0)
    X = np.hstack([rng.normal(size=(60, 4)), np.zeros((60, 1))])
    y = (X[:, 0] + rng.logistic(size=60) > 0).astype(float)
    X[0], y[0] = (200.0, 0.0, 0.0, 0.0, 5.0), 0.0
    problem = Problem(Logistic(), L1(0.01), X, y, np.ones(60))
    far = Fit(problem, np.array([1.0, 0.0, 0.0, 0.0, 0.0]), np.asarray(0.0))
    assert far.hessian[0] < 1e-80
    found, usual = newton.solve(far).fit, newton.solve(Fit.at_start(problem)).fit
    assert found.coef[4] < -10.0
    assert_allclose(found.coef, usual.coef, rtol=1e-6)


def path_of_classes(p=4):
    rng = np.random.default_rng(0)
    X, strengths = rng.normal(size=(80, p)), np.geomspace(100.0, 0.01, 12)
    y = (X[:, 0] + rng.logistic(size=80) > 0).astype(float)
    return [Problem(Logistic(), L2(strength), X, y, np.ones(80)) for strength in strengths]


def test_paths_start_ahead_of_the_last_fit_where_the_objective_is_smaller():
    fits, gaps = [found.fit for found in path.newton_path(path_of_classes())], []
    moves = path.Moves()
    for k, fit in enumerate(fits):
        if k > 2:
            start = moves.ahead(fit.problem)
            level, line, parabola = (_beyond(fit.problem, fits[:k], order) for order in range(3))
            assert start.objective <= min(level.objective, line.objective) * (1.0 + 1e-12)
            gaps.append([one.objective - fit.objective for one in (start, line, level)])
            if parabola.objective < line.objective < level.objective:
                assert start.objective <= parabola.objective * (1.0 + 1e-12)
        np.testing.assert_allclose(fit.coef, newton.solve(Fit.at_start(fit.problem)).fit.coef, atol=1e-9)
        moves.take(fit)
    ours, by_line, others = np.sum(gaps, axis=0)
    assert ours < 0.5 * by_line
    assert by_line < 0.3 * others


def _beyond(problem, fits, order):
    """The polynomial through the last fits, one further on."""
    weights = [(-1) ** j * comb(order + 1, j + 1) for j in range(order + 1)]
    coef, level = (
        sum(weight * getattr(fit, part) for weight, fit in zip(weights, fits[::-1], strict=False))
        for part in ("coef", "intercept")
    )
    return Fit(problem, coef, level)


def test_where_factors_cost_little_steps_have_their_own(monkeypatch):
    def taken(step, seconds):
        steps = []
        monkeypatch.setattr(newton, "newton_step", lambda *given: steps.append(step(*given)) or steps[-1])
        monkeypatch.setattr(cost, "PER_FLOP", seconds)
        for problem in path_of_classes(30):
            newton.solve(Fit.at_start(problem))
        return len(steps), sum(one.is_fresh for one in steps)

    (steps, factors), (more, fewer) = (taken(newton.newton_step, one) for one in (1e-10, 1.0))
    assert steps < more
    assert factors > fewer


def test_a_step_that_ends_at_the_optimum_is_followed_by_a_factor_of_its_own(monkeypatch):
    points, step = [], newton.newton_step
    monkeypatch.setattr(newton, "newton_step", lambda fit, *given: points.append(fit) or step(fit, *given))
    problems = list(path_of_classes(30))
    for problem in problems:
        newton.solve(Fit.at_start(problem))
    again = [one is other for one, other in pairwise(points)]
    assert sum(again) < 0.1 * len(problems)  # else optima are looked at twice, with the old factor before


@pytest.mark.parametrize("loss", [Logistic(), Multinomial(3)], ids=lambda one: type(one).__name__)
def test_what_rounding_leaves_on_columns_of_zeros_does_not_keep_steps_from_ending(loss):
    """Nothing but the penalty pulls at them: there is nothing that it has to be in balance with."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, P))
    X[:, 2] = 0.0
    y = rng.integers(0, 3 if isinstance(loss, Multinomial) else 2, N).astype(float)
    level = np.ones(3 if isinstance(loss, Multinomial) else (), dtype=bool)
    problem = Problem(loss, L2(0.3), X, y, np.ones(N), level)
    known = newton.solve(Fit.at_start(problem)).fit
    left = known.coef.copy()
    left[2] += 1e-30
    found = newton.solve(Fit(problem, left, known.intercept), max_steps=1).fit
    assert_allclose(found.coef, known.coef, rtol=1e-9, atol=1e-12)


def test_a_short_step_that_loses_what_the_fit_has_is_not_taken():
    # of separated classes next to nothing is left: a step that is short for the null model is long for that
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 12))
    y = X[:, :3].argmax(axis=1).astype(float)
    ones, three = np.ones(90), np.ones(3, dtype=bool)
    fit = newton.solve(Fit.at_start(Problem(Multinomial(3), L1(1e-3), X, y, ones, three))).fit
    for strength in 10.0 ** -np.arange(3.5, 9.0, 0.5):
        problem = Problem(Multinomial(3), L1(strength), X, y, ones, three)
        fit = newton.solve(Fit(problem, fit.coef, fit.intercept), max_steps=100).fit
        left = Fit(problem.without(np.arange(0, 90, 10)), fit.coef, fit.intercept)
        without = newton.solve(left, max_steps=100).fit
        assert without.objective <= left.objective
        assert _kkt_violation(without) < 1e-8


@pytest.mark.parametrize("penalty", [L2(0.01), L1(1e-5)], ids=repr)
@pytest.mark.parametrize("seed", range(3))
def test_a_class_of_great_weight_beside_one_of_next_to_none(penalty, seed):
    """Rows lose next to nothing and still weigh most: the objective has the digits of their losses."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(12, 3))
    y = (X[:, 0] + rng.logistic(size=12) > 0).astype(float)
    problem = Problem(Logistic(), penalty, X, y, np.where(y == 1, 1e6, 1e-6))
    fit = newton.solve(Fit.at_start(problem)).fit
    assert_allclose(fit.intercept_gradient, 0.0, atol=1e-6 * np.abs(fit.gradient).max())


def test_a_row_of_great_weight_beside_counts():
    """Its fit is all but its response, where deviances have digits only relative to the distance."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 3))
    y, weights = rng.poisson(np.exp(X[:, 0])) + 1.0, np.ones(12)
    for weights[0] in (1e6, 1e9, 1e12):
        fit = newton.solve(Fit.at_start(Problem(Poisson(), L1(0.3), X, y, weights))).fit
        away = np.abs(fit.loss_gradient) - 0.3
        rounding = 1e-8 + 1e-14 * weights[0]
        assert np.all(np.where(fit.coef == 0, away, np.abs(away)) < rounding)


@pytest.mark.parametrize("loss", [Logistic(), Gamma(), Poisson()], ids=repr)
def test_a_copy_of_a_column_without_a_penalty_has_nothing(loss):
    """The one without a penalty makes up for it, all the way at once."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 3))
    X[:, 2] = X[:, 0]
    mean = np.exp(X[:, 0] - 0.5 * X[:, 1])
    y = (rng.random(150) < mean / (1 + mean)) * 1.0 if isinstance(loss, Logistic) else mean + 0.1
    problem = Problem(loss, Strengths(l1=np.array([0.0, 0.01, 0.01]), l2=0.0), X, y, np.ones(150))
    for own in (Fit.at_start(problem), Fit(problem, np.array([0.3, 0.0, 0.5]), np.array(0.0))):
        fit = newton.solve(own, max_steps=50).fit
        assert fit.coef[2] == 0
        assert_allclose(fit.loss_gradient[0], 0.0, atol=1e-8)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_trends_over_far_more_columns_than_rows(seed):
    """Free coefficients are as many as rows, and K is singular along some of them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(12, 48))
    y = np.exp(X[:, :6].sum(axis=1) / 3) * rng.gamma(2.0, 0.5, size=12)
    problem = Problem(Gamma(), TrendFilter(1, 0.1), X, y, np.ones(12))
    fit = solve(Fit.at_start(problem)).fit
    assert is_stationary(fit)


def test_an_objective_that_falls_for_ever_is_soon_told():
    X = np.array([[-2.0, 1.0], [-1.0, -1.0], [1.0, 1.0], [2.0, -1.0]])
    penalty = Strengths(l1=np.array([0.0, 1.0]), l2=np.zeros(2))  # the first column separates the classes
    problem = Problem(Logistic(), penalty, X, np.array([0.0, 0.0, 1.0, 1.0]), np.ones(4))
    with pytest.raises(SolverError, match=r"did not settle in (\d\d|1\d\d) steps .*no finite minimum"):
        solve(Fit.at_start(problem))


@pytest.mark.parametrize("l1", [0.0, 0.05])
def test_a_level_that_a_class_never_has_is_told(l1):
    """Its coefficient runs away until no row curves in rounding: that steps end there makes no minimum."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), rng.integers(0, 3, 40)
    X[:, 0], y[:4] = np.arange(40) < 4, [0, 0, 0, 1]
    free = np.array([[0.0], [1.0], [1.0]]) * np.ones(3)
    problem = Problem(
        Multinomial(3), Strengths(l1=l1 * free, l2=0.1 * free), X, y, np.ones(40), np.full(3, True)
    )
    with pytest.raises(SolverError, match=r"did not settle in \d\d steps .*no finite minimum"):
        newton.solve(Fit.at_start(problem))
    held = replace(problem, penalty=Strengths(l1=l1 * free, l2=0.1 * free + 1e-4))
    fit = newton.solve(Fit.at_start(held)).fit
    assert_allclose(fit.loss_gradient[0], -1e-4 * fit.coef[0], atol=1e-10)
