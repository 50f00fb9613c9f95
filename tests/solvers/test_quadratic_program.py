"""Polyhedral penalties with dependent rows, and kinks on both sides: optimality, and Clarabel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import clarabel_route
import onefit
from onefit._linalg import RowGram
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.losses import (
    EpsilonInsensitive,
    Hinge,
    Huber,
    Logistic,
    Mixture,
    Poisson,
    Quantile,
    SmoothedHinge,
    Squared,
    SquaredEpsilonInsensitive,
    SquaredHinge,
)
from onefit.penalties import (
    L1,
    L2,
    Box,
    ElasticNet,
    FusedLasso,
    GeneralizedLasso,
    GroupLasso,
    Slope,
    TrendFilter,
)
from onefit.problem import Problem
from onefit.solvers import kinks, quadratic_program
from onefit.solvers.dual_rows import into_box
from onefit.solvers.solve import solve

N, P = 40, 8
RING = [(i, (i + 1) % P) for i in range(P)]
MANY_ROWS = np.vstack([np.eye(P), np.diff(np.eye(P), axis=0)])
LOSSES = {
    "squared": Squared(),
    "logistic": Logistic(),
    "poisson": Poisson(),
    "hinge": Hinge(),
    "quantile": Quantile(0.3),
    "absolute": EpsilonInsensitive(0.0),
    "epsilon": EpsilonInsensitive(0.5),
    "huber": Huber(0.8),
    "squared hinge": SquaredHinge(),
    "smoothed hinge": SmoothedHinge(0.3),
    "squared epsilon": SquaredEpsilonInsensitive(0.4),
    "hinge and logistic": Mixture([Hinge(), Logistic()], [0.7, 0.3]),
    "quantiles and squared": Mixture([Quantile(0.2), Quantile(0.7), Squared()], [0.5, 0.3, 0.2]),
}
PENALTIES = {
    "l1": L1(2.0),
    "l1 per feature": L1(np.linspace(0.0, 4.0, P)),
    "elastic net": ElasticNet(2.0, 0.5),
    "dependent rows": GeneralizedLasso(MANY_ROWS, 1.0),
    "ring": FusedLasso(1.0, edges=RING),
    "chain": FusedLasso(1.0),
    "trend": TrendFilter(1, 1.0),
    "slope": Slope(np.linspace(2.0, 0.5, P)),
    "slope of three weights": Slope(np.repeat([2.0, 1.0, 0.0], [2, 3, 3])),
    "box": Box(-0.2, 0.4),
    "half-lines": Box(np.where(np.arange(P) % 2, 0.0, -np.inf), np.where(np.arange(P) % 3, np.inf, 0.3)),
    "ridge and ring": L2(0.5) + FusedLasso(1.0, edges=RING),
    "ridge and slope": L2(np.linspace(0.0, 1.0, P)) + Slope(np.linspace(2.0, 0.5, P)),
    "ridge and box": L2(1.0) + Box(0.0, 0.4),
}
CORNERS = ("hinge", "quantile", "absolute", "epsilon")
of_losses = pytest.mark.parametrize("loss", LOSSES)
of_penalties = pytest.mark.parametrize("name", PENALTIES)


def _problem(loss, penalty, weighted=False, fit_intercept=True, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, P)) + 0.2
    eta = X @ np.repeat([1.0, 0.0, -0.5, 0.2], 2)
    if loss.of_two_classes:
        y = (eta + rng.logistic(size=N) > 0).astype(float)
    elif isinstance(loss, Poisson):
        y = rng.poisson(np.exp(0.3 * eta)).astype(float)
    else:
        y = eta + rng.normal(size=N)
    weights = np.ones(N)
    if weighted:
        weights = rng.uniform(0.2, 2.0, N)
        weights[::7] = 0.0
    return Problem(loss, penalty, X, y, weights, np.array(fit_intercept))


def _solve(problem):
    return quadratic_program.solve(Fit.at_start(problem))


def _check(fit):
    clarabel_route.check(fit)
    problem = fit.problem
    if problem.loss.is_kinked:
        slopes = problem.loss.slopes(problem.y) * problem.weights[:, None]
        assert np.all((fit.gradient >= slopes[:, 0] - 1e-9) & (fit.gradient <= slopes[:, -1] + 1e-9))
        away = np.abs(fit.eta[:, None] - problem.loss.kinks(problem.y)).min(axis=1)
        assert np.all(away[fit.pinned] <= 1e-8 * (1 + np.abs(fit.eta).max()))


@pytest.mark.costly
@of_losses
@of_penalties
@pytest.mark.parametrize(
    ("weighted", "fit_intercept"), [(False, True), (True, False)], ids=["intercept", "weighted"]
)
def test_optimal(loss, name, weighted, fit_intercept):
    _check(_solve(_problem(LOSSES[loss], PENALTIES[name], weighted, fit_intercept)))


@pytest.mark.costly
@pytest.mark.parametrize("loss", ["squared", "logistic", "quantile", "hinge and logistic"])
@of_penalties
def test_sparse_columns(loss, name):
    problem = _problem(LOSSES[loss], PENALTIES[name], weighted=True)
    X = np.where(np.abs(problem.X) < 0.6, 0.0, problem.X)
    dense = _solve(replace(problem, X=X))
    for store in (sp.csr_array, sp.csc_matrix) if name == "l1" else (sp.csr_array,):  # told apart at once
        sparse = _solve(replace(problem, X=store(X)))
        np.testing.assert_allclose(sparse.objective, dense.objective, rtol=1e-10)
        if loss != "quantile":  # a linear program may have several solutions
            np.testing.assert_allclose(sparse.coef, dense.coef, atol=1e-8)


@pytest.mark.costly
@pytest.mark.parametrize("loss", ["squared", "logistic", "quantile"])
@of_penalties
def test_warm_starts_lead_to_the_same(loss, name):
    problem, rng = _problem(LOSSES[loss], PENALTIES[name]), np.random.default_rng(5)
    cold = _solve(problem)
    other = _solve(replace(problem, penalty=PENALTIES[name].scaled(0.2)))
    for coef in (cold.coef + 1e-10, other.coef, rng.normal(size=P)):
        coef = np.clip(coef, *PENALTIES[name].without_ridge().bounds((P,))) if "box" in name else coef
        warm = quadratic_program.solve(Fit(problem, coef, other.intercept))
        np.testing.assert_allclose(warm.objective, cold.objective, rtol=1e-9)


@pytest.mark.parametrize("name", ["ring", "chain", "slope", "box", "ridge and ring", "dependent rows"])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_other_solvers_find_the_same(loss, name):
    from onefit.solvers import manifold

    problem = _problem(LOSSES[loss], PENALTIES[name], weighted=True)
    ours = _solve(problem)
    for fit in (solve(Fit.at_start(problem)).fit, manifold.solve(Fit.at_start(problem)).fit):
        np.testing.assert_allclose(ours.coef, fit.coef, atol=1e-7)
        np.testing.assert_allclose(ours.intercept, fit.intercept, atol=1e-7)


@pytest.mark.costly
@of_losses
@pytest.mark.parametrize("name", ["l1", "ring", "slope", "box", "ridge and ring"])
def test_degenerate_data(loss, name):
    """Copies of rows and columns, and values on a grid: many ties at once."""
    problem = _problem(LOSSES[loss], PENALTIES[name])
    X = np.round(np.vstack([problem.X, problem.X[:10]]))
    X[:, 3] = X[:, 0]
    y = np.append(problem.y, problem.y[:10])
    y = np.round(y) if isinstance(problem.loss, Quantile | EpsilonInsensitive) else y
    _check(_solve(replace(problem, X=X, y=y, weights=np.ones(N + 10))))


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
@pytest.mark.parametrize("name", ["l1", "ring", "slope", "ridge and ring"])
def test_a_rare_class(loss, name):
    problem = _problem(LOSSES[loss], PENALTIES[name])
    y = np.zeros(N)
    y[[4, 17]] = 1.0
    _check(_solve(replace(problem, y=y)))


@pytest.mark.parametrize("loss", ["squared", "quantile", "absolute", "epsilon"])
@of_penalties
def test_a_constant_response(loss, name):
    problem = _problem(LOSSES[loss], PENALTIES[name])
    fit = _solve(replace(problem, y=np.full(N, 3.0)))
    assert fit.objective <= 1e-9
    if loss == "squared":
        assert problem.penalty.value(fit.coef) == 0
        np.testing.assert_allclose(fit.eta, 3.0, atol=1e-9)


STRONG = ["l1", "elastic net", "dependent rows", "slope", "ridge and slope"]


@of_losses
@pytest.mark.parametrize("name", STRONG)
def test_strong_penalties_leave_exactly_nothing(loss, name):
    fit = _solve(_problem(LOSSES[loss], PENALTIES[name].scaled(1e3), weighted=True))
    np.testing.assert_array_equal(fit.coef, 0.0)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("some", [0, 3])
def test_penalties_far_stronger_than_all_losses(seed, some):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(49, 20)), rng.standard_t(1.5, size=49) * 10.0 ** rng.uniform(0, 4)
    strengths = 10.0 ** rng.uniform(5, 9, size=20)
    strengths[:some] = 0.5
    problem = Problem(Quantile(0.5), L1(strengths), X, y, np.ones(49), np.array(True))
    fit = _solve(problem)
    assert not fit.coef[some:].any()
    own = replace(problem, X=X[:, :some], penalty=L1(0.5))
    wanted = _solve(own).objective if some else 0.5 * np.abs(y - np.median(y)).sum()
    np.testing.assert_allclose(fit.objective, wanted, rtol=1e-9)


@pytest.mark.parametrize("loss", ["quantile", "absolute", "epsilon", "hinge"])
@pytest.mark.parametrize("strength", [1.0, 1e4, 1e8, 1e12])
def test_a_strong_penalty_beside_an_empty_column(loss, strength):
    problem = _problem(LOSSES[loss], L1(strength))
    X = problem.X.copy()
    X[:, 3] = 0.0
    fit = _solve(replace(problem, X=X))
    without = _solve(replace(problem, X=np.delete(X, 3, axis=1)))
    assert fit.coef[3] == 0.0
    np.testing.assert_allclose(fit.objective, without.objective, rtol=1e-9)


@of_losses
@pytest.mark.parametrize("name", ["ring", "chain"])
def test_strong_fusion_leaves_a_constant(loss, name):
    fit = _solve(_problem(LOSSES[loss], PENALTIES[name].scaled(1e3)))
    assert np.ptp(fit.coef) <= 1e-9 * (1 + np.abs(fit.coef).max())


@pytest.mark.parametrize("loss", ["squared", "hinge", "quantile"])
@pytest.mark.parametrize("name", ["l1", "ring", "slope", "elastic net"])
def test_more_columns_than_rows(loss, name):
    problem = _problem(LOSSES[loss], PENALTIES[name].scaled(0.1))
    _check(_solve(replace(problem, X=problem.X[:6], y=problem.y[:6], weights=np.ones(6))))


def test_classes_that_a_free_column_separates_have_no_optimum():
    problem = _problem(Logistic(), L1(np.array([0.0, *np.ones(P - 1)])))
    with pytest.raises(SolverError, match="no finite minimum"):
        _solve(replace(problem, y=(problem.X[:, 0] > 0).astype(float)))


def test_what_it_is_not_for():
    problem = _problem(Squared(), GroupLasso(np.arange(P)))
    with pytest.raises(TypeError, match="GroupLasso is not polyhedral"):
        _solve(problem)
    kernel = replace(problem, X=RowGram(problem.X @ problem.X.T), penalty=L1(1.0))
    with pytest.raises(TypeError, match="kernel model"):
        _solve(kernel)


@pytest.mark.parametrize("loss", ["hinge and logistic", "quantiles and squared"])
@pytest.mark.parametrize("alpha", [1e-9, 1e-5, 1e-2, 1e2, 1e6])
def test_mixtures_with_kinks_at_any_strength_of_a_ridge(loss, alpha):
    """The dual divides by the strength; the last steps, on the pattern, do not."""
    problem = _problem(LOSSES[loss], L2(alpha), weighted=True)
    fit = _solve(problem)
    if alpha > 1e-7:  # below that the gradients, which are to be as small, are rounding
        _check(fit)
    left = fit.loss_gradient + alpha * fit.coef
    assert np.abs(left).max() <= 1e-11 * np.abs(fit.gradient).sum()
    assert abs(fit.gradient.sum()) <= 1e-11 * np.abs(fit.gradient).sum()


@pytest.mark.parametrize("loss", ["hinge and logistic", "quantiles and squared"])
@of_penalties
def test_newton_on_a_pattern_that_is_none_of_the_optimum(loss, name):
    """It says so, and takes the pattern of the optimum."""
    fit = _solve(_problem(LOSSES[loss], PENALTIES[name]))
    known = {"eta": fit.eta, "gradient": fit.gradient, "pinned": fit.pinned}
    again = kinks.on_pattern(Fit(fit.problem, fit.coef, fit.intercept).known(**known))
    if again is not None:  # a coefficient that is held beside others is not told by Newton's method
        np.testing.assert_allclose(again.coef, fit.coef, atol=1e-9)
    if fit.pinned.any():  # other rows where they are: they are on no kink, and hold more than a kink can
        moved = known | {"pinned": np.roll(fit.pinned, 1)}
        assert kinks.on_pattern(Fit(fit.problem, fit.coef, fit.intercept).known(**moved)) is None


@pytest.mark.parametrize("units", [1.0, 1e-12])
def test_rows_that_determine_more_directions_than_there_are_on_kinks(units):
    """A linear program of more columns than rows: most directions are held by rows that join the kinks."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(25, 5)) @ rng.normal(size=(5, 40)) + 0.3 * rng.normal(size=(25, 40))
    y = (X[:, 0] + rng.logistic(size=25) > 0).astype(float)
    problem = Problem(Hinge(), L1(0.02 * units), units * X, y, np.ones(25), np.array(True))
    fit = quadratic_program.solve(Fit.at_start(problem))
    _, _, minimum = clarabel_route.minimum(replace(problem, X=X, penalty=L1(0.02)))
    assert fit.objective == pytest.approx(minimum, rel=1e-8)


@pytest.mark.parametrize("missing", [1.0, 1e-6, 1e-8])
def test_duals_balance_however_little_is_missing(missing):
    """The tolerance of a linear program is absolute, and hid what was missing below it."""
    rng = np.random.default_rng(0)
    free, ends = rng.normal(size=(30, 4)), np.column_stack([np.full(30, -1.0), np.ones(30)])
    balanced = into_box(rng.uniform(-0.5, 0.5, size=30), ends, free)
    g = into_box(balanced + missing * rng.uniform(-0.5, 0.5, size=30), ends, free)
    assert np.abs(free.T @ g).max() <= 1e-6 * missing
    assert np.abs(g).max() <= 1.0


def test_a_path_of_fused_hinge_losses_has_its_optima():
    rng = np.random.default_rng(58)
    X = rng.normal(size=(36, 6))
    y = (X[:, 0] + 0.5 * X[:, 1] + rng.logistic(size=36) > 0).astype(int)
    model = onefit.GeneralizedLinearLOO("hinge", FusedLasso(1.0), alphas=8, early_stopping=False).fit(X, y)
    assert len(model.alphas_) >= 8
