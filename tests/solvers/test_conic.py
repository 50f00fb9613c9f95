"""Losses with kinks and norms of groups or singular values: optimality, Clarabel through cvxpy, refits."""

from __future__ import annotations

import builtins

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import clarabel_route
import onefit
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.losses import (
    EpsilonInsensitive,
    Hinge,
    Huber,
    Quantile,
    SmoothedHinge,
    SquaredEpsilonInsensitive,
    SquaredHinge,
)
from onefit.penalties import L2, Conic, GroupLasso, NuclearNorm, Penalty, Pieces, SparseGroupLasso
from onefit.problem import Problem
from onefit.solvers import conic, curved_program, manifold
from onefit.solvers.solve import solve
from onefit.solvers.stationary import is_stationary

clarabel = pytest.importorskip("clarabel")


GROUPS = np.repeat(range(4), 3)
LOSSES = [EpsilonInsensitive(0.0), Quantile(0.3), EpsilonInsensitive(0.2), Hinge()]
PENALTIES = {
    "group lasso": GroupLasso(GROUPS, 2.0),
    "group lasso of lists, one free": GroupLasso(
        [[0, 5], [1, 2], [3, 4, 6, 7, 8, 9], [10, 11]], 1.0, [0.0, 1.0, 2.0, 3.0]
    ),
    "sparse group lasso": SparseGroupLasso(GROUPS, 3.0, 0.5),
    "sparse group lasso that is a lasso": SparseGroupLasso(GROUPS, 2.0, 1.0),
    "nuclear norm": NuclearNorm((3, 4), 4.0),
    "nuclear norm, tall": NuclearNorm((6, 2), 4.0),
    "ridge plus group lasso": GroupLasso(GROUPS, 3.0) + L2(0.5),
    "ridge plus nuclear norm": NuclearNorm((3, 4), 4.0) + L2(0.5),
    "nothing left": GroupLasso(GROUPS, 500.0),
}
penalties = pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES.keys())
losses = pytest.mark.parametrize("loss", LOSSES, ids=repr)


def _problem(loss, penalty, seed=0, n=40, *, intercept=True, sparse=False):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 12))
    if sparse:
        X *= rng.random(X.shape) < 0.4
    y = X[:, :4] @ [1.0, -1.0, 0.5, 0.5] + rng.normal(size=n)
    y = (y > 0).astype(float) if loss.of_two_classes else y
    weights = rng.uniform(0.5, 2.0, n)
    weights[3] = 0.0
    X = sp.csr_array(X) if sparse else X
    return Problem(loss, penalty, X, y, weights, np.array(intercept))


def _check(fit, rtol=1e-8):
    pytest.importorskip("cvxpy")
    clarabel_route.check(fit, rtol)


def _is_optimal(fit, atol=1e-7):
    """Duals between the slopes, of the right piece away from kinks, and a subgradient of the penalty."""
    problem = fit.problem
    slopes = problem.weights[:, None] * problem.loss.slopes(problem.y)
    kinks = problem.loss.kinks(problem.y)
    assert np.all((fit.gradient >= slopes[:, 0] - atol) & (fit.gradient <= slopes[:, -1] + atol))
    away = np.abs(fit.eta[:, None] - kinks).min(axis=1) > 1e-7
    own = problem.weights * problem.loss.gradient(problem.y, fit.eta)
    np.testing.assert_allclose(fit.gradient[away], own[away], atol=atol)
    np.testing.assert_array_equal(fit.pinned & away, False)
    np.testing.assert_allclose(problem.linear_predictor(fit.coef, fit.intercept), fit.eta, atol=1e-8)
    assert problem.penalty.is_stationary(fit.coef[:, None], fit.loss_gradient[:, None]).all()
    assert not problem.intercept or abs(fit.gradient.sum()) <= 1e-7


@losses
@penalties
def test_a_minimum_by_its_own_conditions_and_by_cvxpy(loss, penalty):
    fit = solve(Fit.at_start(_problem(loss, penalty))).fit
    _is_optimal(fit)
    _check(fit)
    assert fit.pinned.any()


@pytest.mark.costly
@penalties
@pytest.mark.parametrize(
    "loss", [Huber(0.5), SmoothedHinge(0.3), SquaredHinge(), SquaredEpsilonInsensitive(0.3)], ids=repr
)
def test_rounded_kinks_by_their_own_conditions_and_by_cvxpy(loss, penalty):
    problem = _problem(loss, penalty)
    assert curved_program.applies(problem)
    _check(curved_program.solve(Fit.at_start(problem)))


def _far_outside_the_parabola():
    """All rows are where Huber's loss is straight, from the start on."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(94, 93))
    y = rng.normal(size=94)
    y[0] = 1e4
    return Problem(Huber(1e-3), GroupLasso(np.repeat(range(31), 3), 1e-3), X, y, np.ones(94))


def test_responses_far_outside_the_parabola_of_huber():
    """No row bends at the start: a model in which all of them do goes nowhere."""
    problem = _far_outside_the_parabola()
    _check(manifold.solve(Fit.at_start(problem)).fit)


@pytest.mark.costly
@pytest.mark.parametrize(
    ("loss", "penalty"),
    [
        (SquaredEpsilonInsensitive(0.1), NuclearNorm((20, 2), 0.01)),
        (SquaredHinge(), NuclearNorm((20, 2), 3e-4)),
        (SquaredHinge(), GroupLasso(np.repeat(range(20), 2), 3e-4)),
    ],
    ids=repr,
)
@pytest.mark.parametrize("n", [6, 40])
def test_rows_that_a_weak_penalty_all_but_interpolates(loss, penalty, n):
    """No row bends near the optimum, where steps on a piece go nowhere."""
    rng = np.random.default_rng(0)
    X = 100.0 * rng.normal(size=(n, 40))
    y = X @ rng.normal(size=40) / 500.0 + rng.normal(size=n)
    y = (y > 0).astype(float) if loss.of_two_classes else y
    assert is_stationary(solve(Fit.at_start(Problem(loss, penalty, X, y, np.ones(n)))).fit)


@pytest.mark.parametrize("unit", [1e-5, 1.0])
def test_responses_of_any_size_beside_the_parabola(unit):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(44, 40)), 1e5 * rng.standard_t(3, size=44)
    problem = Problem(Huber(), SparseGroupLasso(np.arange(40) // 2, 3e-4), X, y * unit, np.ones(44))
    fit = curved_program.solve(Fit.at_start(problem))
    assert is_stationary(fit)


def test_columns_of_very_different_size_settle():
    """A proximal step moves by its rounding what a step of Newton's method puts back."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(79, 2)) * [5000.0, 2.0]
    for seed in range(10):
        y = np.random.default_rng(seed).normal(size=79)
        problem = Problem(EpsilonInsensitive(0.1), GroupLasso([0, 0], 6e-3), X, y, np.ones(79))
        assert is_stationary(solve(Fit.at_start(problem)).fit)


@penalties
@pytest.mark.parametrize("seed", range(1, 6))
def test_many_problems(penalty, seed):
    loss = LOSSES[seed % len(LOSSES)]
    _is_optimal(
        solve(
            Fit.at_start(
                _problem(loss, penalty, seed, 10 + 9 * seed, intercept=seed % 2 == 0, sparse=seed % 3 == 0)
            )
        ).fit
    )


@pytest.mark.costly
@pytest.mark.parametrize("loss", [EpsilonInsensitive(0.0), Quantile(), Hinge()], ids=repr)
@pytest.mark.parametrize("share", [None, 0.5])
def test_coefficients_that_are_all_zero(loss, share):
    """Duals of many rows on kinks balance the intercept, and few of them the groups."""
    zero = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X, weights = rng.normal(size=(24, 5)), rng.choice([1.0, 2.0], 24)
        eta = X @ rng.normal(size=5) + 2.0 * rng.normal(size=24)
        y, groups = (eta > 0).astype(float) if loss.of_two_classes else eta, [[0, 1], [2, 3, 4]]
        for strength in (4.0, 8.0, 16.0):
            penalty = (
                GroupLasso(groups, strength) if share is None else SparseGroupLasso(groups, strength, share)
            )
            fit = solve(Fit.at_start(Problem(loss, penalty, X, y, weights))).fit
            _is_optimal(fit)
            zero += not np.any(fit.coef)
    assert zero >= 8


@pytest.mark.filterwarnings("ignore::onefit.exceptions.UnreliableWarning")  # of the intercept
def test_leave_one_out_where_coefficients_are_all_zero():
    rng, groups = np.random.default_rng(5), [[0, 1], [2, 3, 4]]
    X, rows = rng.normal(size=(24, 5)), np.arange(24)
    y = (X @ rng.normal(size=5) + 2.0 * rng.normal(size=24) > 0).astype(int)
    model = onefit.GeneralizedLinear("hinge", SparseGroupLasso(groups, 12.0, 0.5)).fit(X, y)
    assert not np.any(model.coef_)
    exact = onefit.loo(model, X, y, exact=True)
    for i in rows[::4]:
        refit = clone(model).fit(X[rows != i], y[rows != i])
        np.testing.assert_allclose(exact.decision[i], refit.decision_function(X[[i]])[0], atol=1e-9)


@losses
def test_a_warm_start_needs_no_program(loss, monkeypatch):
    problem = _problem(loss, SparseGroupLasso(GROUPS, 3.0, 0.5))
    fit = solve(Fit.at_start(problem)).fit
    monkeypatch.setattr(conic, "solve", lambda _: pytest.fail("solved from nothing"))
    again = solve(Fit(problem, fit.coef, fit.intercept).known(gradient=fit.gradient)).fit
    np.testing.assert_allclose(again.coef, fit.coef, atol=1e-9)


@pytest.mark.costly
@pytest.mark.parametrize("name", ["absolute", "quantile", "epsilon_insensitive", "hinge"])
@pytest.mark.parametrize("which", ["group lasso", "sparse group lasso", "nuclear norm"])
def test_leave_one_out_is_that_of_refits(name, which):
    problem = _problem(Hinge() if name == "hinge" else Quantile(), PENALTIES[which], seed=2, n=24)
    X, y, rows = problem.X, problem.y, np.arange(24)
    model = onefit.GeneralizedLinear(name, PENALTIES[which]).fit(X, y)
    exact = onefit.loo(model, X, y, exact=True)
    for i in rows[::6]:
        refit = clone(model).fit(X[rows != i], y[rows != i])
        there = refit.decision_function(X[[i]]) if name == "hinge" else refit.predict(X[[i]])
        np.testing.assert_allclose(exact.decision[i], there[0], atol=1e-5)
    near = onefit.loo(model, X, y)
    assert abs(near.value - exact.value) <= 0.1 * exact.value


def _hide_clarabel(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "clarabel":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)


def test_clarabel_is_named_where_it_is_missing(monkeypatch):
    _hide_clarabel(monkeypatch)
    X, y = np.random.default_rng(0).normal(size=(20, 12)), np.arange(20) % 2
    with pytest.raises(ImportError, match=r"Hinge with GroupLasso .* pip install clarabel"):
        onefit.GeneralizedLinear("hinge", GroupLasso(GROUPS)).fit(X, y)


def test_steps_that_lead_nowhere_are_a_failure_of_the_solver_without_clarabel(monkeypatch):
    """Leave-one-out counts a refit that fails; a package that is missing must not end it."""
    _hide_clarabel(monkeypatch)
    monkeypatch.setattr(manifold, "ROUNDS", 1)
    with pytest.raises(SolverError, match=r"no optimum reached .* pip install clarabel"):
        solve(Fit.at_start(_far_outside_the_parabola()))


def test_a_penalty_with_kinks_and_no_cones_is_refused():
    class Unknown(Penalty):
        pieces = Pieces.UNKNOWN
        third = value = tangent = scaled = has_free_directions = None

        def prox(self, coef, step):
            return coef / (1.0 + step)

        def has_kinks(self, shape):
            return bool(shape)

    with pytest.raises(TypeError, match="Hinge with Unknown is no conic program"):
        conic.solve(_problem(Hinge(), Unknown()))


def test_a_point_that_is_optimal_on_its_piece_alone_is_refused():
    problem = _problem(Hinge(), GroupLasso(GROUPS, 3.0))
    fit = solve(Fit.at_start(problem)).fit
    off = fit.moved(np.zeros(12), fit.intercept).known(gradient=50.0 * fit.gradient)
    with pytest.raises(onefit.exceptions.SolverError, match="pattern of the penalty did not settle"):
        curved_program._checked(off)


@pytest.mark.parametrize("penalty", [one for one in PENALTIES.values() if isinstance(one, Conic)], ids=repr)
def test_conic_forms_have_the_value_of_the_penalty(penalty):
    """min cᵀt over t, by Clarabel, at given coefficients."""
    coef = np.random.default_rng(0).normal(size=12)
    form = penalty.conic_form(12)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    m = len(form.cost)
    found = clarabel.DefaultSolver(
        sp.csc_matrix((m, m)),
        form.cost,
        sp.csc_matrix(-form.extra),
        form.coef @ coef,
        [conic._cone(clarabel, *cone) for cone in form.cones],
        settings,
    ).solve()
    np.testing.assert_allclose(found.obj_val, penalty.value(coef), rtol=1e-6)
