"""Problems without each of some rows, solved all at once, beside the same problems solved one by one."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from builders import without
from onefit.balance import Balance
from onefit.curvature import Direction
from onefit.fit import Fit
from onefit.leave_out import batched
from onefit.leave_out.penalty_parts import PenaltyParts
from onefit.leave_out.prove import bound_at
from onefit.leave_out.refit import refit_sets
from onefit.leave_out.watched_columns import WatchedColumns
from onefit.losses import Gamma, Hinge, Logistic, Multinomial, Poisson, Squared
from onefit.penalties import L1, L2, Box, ElasticNet, GroupLasso, Slope, SparseGroupLasso, Strengths
from onefit.problem import Problem
from onefit.solvers.solve import solve

N = 60


def table(p: int = 5):
    X = np.random.default_rng(0).normal(size=(N, p))
    X[:, -1] += 3.0 * X[:, 0]
    return X


def response(loss, X):
    rng, eta = np.random.default_rng(1), 0.7 * X[:, 0] - 0.5 * X[:, 1]
    if isinstance(loss, Multinomial):
        scores = np.outer(eta, [1.0, -1.0, 0.3]) + rng.gumbel(size=(N, 3))
        return scores.argmax(axis=1).astype(float)
    if isinstance(loss, Logistic):
        return (eta + rng.logistic(size=N) > 0).astype(float)
    if isinstance(loss, Squared):
        return eta + rng.normal(size=N)
    return rng.poisson(np.exp(eta)) + (0.5 if isinstance(loss, Gamma) else 0.0)


def fitted(loss, penalty, X=None, **others) -> Fit:
    X = table() if X is None else X
    dense = X.toarray() if sp.issparse(X) else X
    many = np.ones(3, dtype=bool) if isinstance(loss, Multinomial) else np.array(True)
    settings = {"weights": np.ones(N), "intercept": many} | others
    return solve(Fit.at_start(Problem(loss, penalty, X, response(loss, dense), **settings))).fit


def agrees(fit: Fit, removed, starts=None, rtol: float = 1e-6) -> None:
    ends = batched.solve_without(fit, removed, [None] * len(removed) if starts is None else starts)
    for rows, end in zip(removed, ends, strict=True):
        anew = without(fit, rows)
        assert end is not None
        assert end.bounds.max() <= 1e-7 * (1.0 + np.abs(anew.eta).max())
        own, other = (losses(fit, eta) for eta in (end.eta, anew.eta))
        np.testing.assert_allclose(own, other, rtol=rtol, atol=1e-7)
        found = Fit(anew.problem, end.coef, end.intercept)
        np.testing.assert_allclose(found.eta, end.eta, atol=1e-9)
        assert found.objective <= anew.objective * (1.0 + 1e-11)


def losses(fit, eta):
    return fit.problem.loss.value(fit.problem.y, eta)


def singles(count: int = N):
    return list(np.arange(count)[:, None])


@pytest.mark.costly
@pytest.mark.parametrize("penalty", [L2(0.5), L1(1.5), ElasticNet(2.0, 0.5)], ids=str)
@pytest.mark.parametrize("loss", [Logistic(), Poisson(), Gamma(), Squared(), Multinomial(3)], ids=str)
def test_single_rows(loss, penalty):
    agrees(fitted(loss, penalty), singles())


@pytest.mark.parametrize("loss", [Logistic(), Multinomial(3)], ids=str)
@pytest.mark.parametrize("penalty", [L2(0.1), L1(1.0)], ids=str)
def test_groups_of_rows_in_sparse_columns(loss, penalty):
    X = sp.random_array((N, 8), density=0.4, rng=np.random.default_rng(2), format="csr")
    agrees(fitted(loss, penalty, X), [np.arange(k, k + 6) for k in range(0, N, 6)])


@pytest.mark.parametrize("loss", [Logistic(), Multinomial(3)], ids=str)
@pytest.mark.parametrize("intercept", [True, False])
def test_weights_of_a_mean(loss, intercept):
    weights = np.random.default_rng(3).uniform(0.0, 2.0, N)
    weights[:5] = 0.0
    outputs = np.full(3, intercept) if isinstance(loss, Multinomial) else np.array(intercept)
    fit = fitted(loss, L1(1.0), weights=weights, intercept=outputs, mean_scaled=True)
    agrees(fit, singles(20))


def test_balanced_classes():
    X = table()
    classes = response(Logistic(), X).astype(int)
    raw = np.ones(N)
    weights = N / (2.0 * np.bincount(classes))[classes]
    fit = fitted(Logistic(), L2(0.5), weights=weights, balance=Balance(classes, raw))
    agrees(fit, singles(20))


def test_columns_enter_that_were_not_watched():
    X = np.random.default_rng(4).normal(size=(N, 80))
    fit = fitted(Logistic(), L1(6.0), X)
    removed = [np.arange(k, k + 20) for k in (0, 20, 40)]
    entered = [np.flatnonzero(without(fit, rows).coef) for rows in removed]
    watched = np.flatnonzero(batched._watched(fit, PenaltyParts.of(fit)))
    assert any(np.setdiff1d(columns, watched).size for columns in entered)
    agrees(fit, removed)


@pytest.mark.parametrize("loss", [Logistic(), Multinomial(3)], ids=str)
def test_nothing_but_intercepts(loss):
    fit = fitted(loss, L1(300.0))
    assert not fit.coef.any()
    agrees(fit, singles(5))


def test_from_a_start_that_is_far():
    fit = fitted(Poisson(), L1(1.0))
    far = Direction(np.full(5, 0.8), np.array(-1.0))
    agrees(fit, singles(4), [far] * 4)


def test_columns_without_a_penalty_and_columns_that_are_out():
    penalty = Strengths(l1=np.array([1.0, 0.0, 1.0, np.inf, 1.0]), l2=np.zeros(5))
    fit = fitted(Logistic(), penalty)
    assert fit.coef[3] == 0
    agrees(fit, singles(10))


def test_what_has_no_minimum_is_not_claimed():
    X, y = np.array([[-1.0], [-2.0], [0.5], [1.0], [2.0], [-0.5]]), np.array([0.0, 0, 0, 1, 1, 1])
    problem = Problem(Logistic(), L2(0.0), X, y, np.ones(6))
    fit = solve(Fit.at_start(problem)).fit
    ends = batched.solve_without(fit, [np.array([2, 5]), np.array([0])], [None, None])
    assert ends[0] is None  # the others are separable
    assert ends[1] is not None


def test_copied_columns_without_a_ridge_part_are_left_to_others():
    X = table()
    fit = fitted(Logistic(), L2(0.0), np.column_stack([X, X[:, 0]]))
    assert batched.solve_without(fit, singles(3), [None] * 3) == [None] * 3


def _of_levels(classes: int, strength: float, alone: bool) -> Fit:
    """All levels of two factors beside intercepts, which depend on each other; one is of a single row."""
    rng = np.random.default_rng(3)
    first, second = rng.integers(0, 3, N), rng.integers(0, 4, N)
    first[0] = 3 if alone else 0
    X = np.hstack([np.eye(4)[first][:, : 3 + alone], np.eye(4)[second], rng.normal(size=(N, 2))])
    scores = X @ rng.normal(size=(X.shape[1], classes)) + rng.gumbel(size=(N, classes))
    y, many = scores.argmax(axis=1).astype(float), np.ones(classes, dtype=bool)
    return solve(Fit.at_start(Problem(Multinomial(classes), L1(strength), X, y, np.ones(N), many))).fit


@pytest.mark.costly
@pytest.mark.parametrize("strength", [2.0, 0.5, 0.1])
@pytest.mark.parametrize("classes", [4, 3])
def test_rows_that_the_others_determine_beside_columns_that_depend_on_each_other(classes, strength):
    """Optima without such a row are several, with the same predictors."""
    agrees(_of_levels(classes, strength, alone=False), singles())


def test_a_row_whose_level_no_other_has_is_not_determined():
    fit = _of_levels(4, 0.1, alone=True)
    columns = WatchedColumns.of(fit, PenaltyParts.of(fit), np.arange(len(fit.coef)))
    np.testing.assert_array_equal(columns.are_determined(singles()), np.arange(N) > 0)
    assert columns.are_determined([np.array([1, 2])]).all()
    assert not columns.are_determined([np.array([0, 1]), np.arange(N)]).any()
    rows = {0: np.array([0])}
    end, anew = refit_sets(fit, rows, rows)[0], without(fit, 0)  # whose coefficient is held at zero
    np.testing.assert_allclose(losses(fit.of_rows(rows[0]), end.eta), losses(fit, anew.eta)[:1], rtol=1e-6)


@pytest.mark.parametrize(
    "problem",
    [
        Problem(Hinge(), L1(1.0), table(), np.arange(float(N)) % 2, np.ones(N)),
        Problem(Squared(), Slope(np.arange(5.0)[::-1]), table(), np.arange(float(N)), np.ones(N)),
    ],
    ids=["kinked loss", "sorted"],
)
def test_applies_to_smooth_losses_and_penalties_of_coefficients_or_groups(problem):
    assert not batched.applies(Fit.at_start(problem))


@pytest.mark.parametrize("batch", [True, False], ids=["all at once", "one by one"])
def test_refits_whose_predictors_are_all_zero_are_proven(batch):
    # without a row of the larger class all classes are as frequent: rounding is relative to nothing
    X = np.random.default_rng(0).normal(size=(22, 3))
    y = np.repeat([0.0, 1.0, 2.0], [7, 8, 7])
    fit = solve(Fit.at_start(Problem(Multinomial(3), L1(1e3), X, y, np.ones(22), np.full(3, True)))).fit
    if batch:
        (end,) = batched.solve_without(fit, [np.array([8])], [None])
        assert end is not None
        assert end.bounds[8] < 1e-9
    else:
        left = solve(Fit.at_start(fit.problem.without(8)))
        assert bound_at(left, np.array([8]))[0] < 1e-9
        assert np.abs(left.fit.eta).max() < 1e-12


def test_patterns_that_go_round_in_circles():
    """Columns that depend on each other over a long chain: all exchanges at once find no pattern."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(200, 20))
    X = Z.copy()
    X[:, 1:] = 0.6 * Z[:, 1:] + 0.8 * Z[:, :-1]
    eta = X[:, [3, 9, 15]] @ rng.normal(size=3)
    y = (2.0 * eta / eta.std() + rng.logistic(size=200) > 0).astype(float)
    fit = solve(Fit.at_start(Problem(Logistic(), L1(0.01), X, y, np.ones(200), np.array(True)))).fit
    hard = np.argsort(-fit.problem.loss.value(y, fit.eta))[:12]
    agrees(fit, [np.array([i]) for i in hard])


@pytest.mark.parametrize("loss", [Poisson(), Multinomial(3)], ids=str)
def test_rows_and_problems_are_taken_in_parts(loss, monkeypatch):
    fit = fitted(loss, L2(0.5))
    monkeypatch.setattr(batched, "AT_ONCE", 600)
    agrees(fit, singles(20))


PAIRS = [0, 0, 1, 1, 2]
OF_GROUPS = {
    "group lasso": GroupLasso(PAIRS, 1.0),
    "one not penalised": GroupLasso(PAIRS, 1.0, weights=[1.0, 0.0, 1.0]),
    "sparse": SparseGroupLasso(PAIRS, 1.5),
    "with a ridge part": GroupLasso(PAIRS, 1.0) + L2(0.5),
}


def active(coef) -> tuple[bool, ...]:
    return tuple(np.bincount(PAIRS, coef**2) > 0)


@pytest.mark.costly
@pytest.mark.parametrize("penalty", OF_GROUPS.values(), ids=OF_GROUPS)
@pytest.mark.parametrize("loss", [Logistic(), Poisson(), Gamma(), Squared()], ids=str)
def test_groups_without_single_rows(loss, penalty):
    agrees(fitted(loss, penalty), singles())


@pytest.mark.parametrize("intercept", [True, False])
def test_groups_with_weights_of_a_mean_and_sparse_columns(intercept):
    X = sp.random_array((N, 5), density=0.5, rng=np.random.default_rng(2), format="csr")
    weights = np.random.default_rng(3).uniform(0.0, 2.0, N)
    weights[:5] = 0.0
    settings = {"weights": weights, "intercept": np.array(intercept), "mean_scaled": True}
    fit = fitted(Logistic(), OF_GROUPS["sparse"], X, **settings)
    agrees(fit, [np.arange(k, k + 6) for k in range(0, N, 6)])


@pytest.mark.parametrize("alpha", np.geomspace(1.0, 8.0, 6))
@pytest.mark.parametrize("kind", [GroupLasso, SparseGroupLasso])
def test_groups_come_and_go(kind, alpha):
    fit = fitted(Logistic(), kind(PAIRS, alpha))
    removed = [np.arange(k, k + 12) for k in range(0, N, 4) if k + 12 <= N]
    agrees(fit, removed)


def test_some_groups_do_come_and_go():
    found = []
    for alpha in np.geomspace(1.0, 8.0, 6):
        fit = fitted(Logistic(), GroupLasso(PAIRS, alpha))
        own = sum(active(fit.coef))
        found += [sum(active(without(fit, np.arange(k, k + 12)).coef)) - own for k in range(0, N - 12, 4)]
    assert min(found) < 0 < max(found)


def test_groups_from_a_start_without_them():
    fit = fitted(Poisson(), GroupLasso(PAIRS, 1.0))
    assert any(active(fit.coef))
    agrees(fit, singles(4), [Direction(np.zeros(5), np.array(0.0))] * 4)


def test_a_group_on_its_bound_is_left_to_others():
    fit = fitted(Squared(), GroupLasso(PAIRS, 1e4), intercept=np.array(False))
    left = fit.problem.without(np.array([0]))
    slope = Fit(left, np.zeros(5), np.array(0.0)).loss_gradient
    tied = GroupLasso(PAIRS, 1.0, weights=np.sqrt(np.bincount(PAIRS, slope**2)))
    fit = fitted(Squared(), tied, intercept=np.array(False))
    assert batched.solve_without(fit, [np.array([0])], [None]) == [None]


IN_A_BOX = {
    "positive": Box(lower=0.0),
    "positive, with a ridge part": L2(0.5) + Box(lower=0.0),
    "positive, with an l1 part": L1(1.0) + Box(lower=0.0),
    "on both sides of zero": L1(1.0) + Box(-0.2, 0.1),
    "away from zero": L2(0.5) + L1(1.0) + Box(0.1, 0.3),
    "below zero": L1(1.0) + Box(-0.3, -0.1),
    "one a column": Box([0.0, -np.inf, -0.1, 0.2, -1.0], [np.inf, 0.3, 0.1, 0.2, 0.0]),
}


@pytest.mark.costly
@pytest.mark.parametrize("penalty", IN_A_BOX.values(), ids=IN_A_BOX)
@pytest.mark.parametrize("loss", [Logistic(), Poisson(), Gamma(), Squared()], ids=str)
def test_bounds_without_single_rows(loss, penalty):
    agrees(fitted(loss, penalty), singles(), rtol=1e-4)  # one by one they come less near


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(
    "penalty", [L1(0.02) + Box(lower=0.0), L2(0.02) + L1(0.01) + Box(-0.1, 0.4)], ids=str
)
def test_bounds_with_weights_of_a_mean_and_sparse_columns(penalty, intercept):
    X = sp.random_array((N, 12), density=0.5, rng=np.random.default_rng(2), format="csr")
    weights = np.random.default_rng(3).uniform(0.0, 2.0, N)
    weights[:5] = 0.0
    settings = {"weights": weights, "intercept": np.array(intercept), "mean_scaled": True}
    fit = fitted(Logistic(), penalty, X, **settings)
    agrees(fit, [np.arange(k, k + 6) for k in range(0, N, 6)])


def test_bounds_are_reached_and_left():
    fit = fitted(Logistic(), L1(1.0) + Box(-0.2, 0.1))
    removed = [np.arange(k, k + 20) for k in range(0, N - 20, 4)]
    changes = {tuple(without(fit, rows).tangent.support) for rows in removed}
    assert len(changes) > 2
    agrees(fit, removed)


def test_from_a_start_out_of_bounds():
    fit = fitted(Poisson(), L1(1.0) + Box(-0.2, 0.1))
    agrees(fit, singles(4), [Direction(np.full(5, 0.8), np.array(-1.0))] * 4)
