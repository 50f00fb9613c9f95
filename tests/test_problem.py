"""What a refit without some rows minimises."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

from onefit.balance import Balance
from onefit.fit import Fit
from onefit.losses import Gamma, Logistic, Multinomial, Poisson, Squared
from onefit.penalties import L1, L2
from onefit.problem import Problem
from onefit.solvers.solve import solve

N = 12
CLASSES = np.arange(N) % 3
SETS = [np.array([i]) for i in range(N)] + [np.array([0, 4]), np.array([1, 2, 6, 7])]


@pytest.fixture(params=[(False, False), (True, False), (False, True), (True, True)])
def problem(request):
    mean_scaled, balanced = request.param
    rng = np.random.default_rng(0)
    raw = rng.uniform(0.5, 2.0, N)
    weights, balance = raw, None
    if balanced:
        balance = Balance(CLASSES, raw)
        weights = raw * (raw.sum() / (3 * np.bincount(CLASSES, raw)))[CLASSES]
    X, y = rng.normal(size=(N, 2)), (CLASSES > 0).astype(float)
    return Problem(Logistic(), L2(2.0), X, y, weights, mean_scaled=mean_scaled, balance=balance)


def test_balanced_weights_are_those_of_the_rows_that_stay(problem):
    if problem.balance is None:
        pytest.skip("not balanced")
    raw = problem.balance.raw_weights
    for rows in SETS:
        kept = np.setdiff1d(np.arange(N), rows)
        in_class = np.bincount(CLASSES[kept], raw[kept], 3)
        own = raw[kept] * (raw[kept].sum() / (3 * in_class))[CLASSES[kept]]
        left = problem.without(rows)
        np.testing.assert_allclose(left.weights[kept], own)
        np.testing.assert_array_equal(left.weights[rows], 0.0)


def test_no_refits_have_no_balanced_weights():
    balance = Balance(CLASSES, np.ones(len(CLASSES)))
    assert balance.growths([]).shape == (int(CLASSES.max()) + 1, 0)


def test_a_mean_shrinks_its_penalty(problem):
    for rows in SETS:
        share = problem.weights[rows].sum() / problem.weights.sum()
        expected = 2.0 * (1.0 - share) if problem.mean_scaled else 2.0
        assert problem.without(rows).penalty.alpha == pytest.approx(expected)


def test_what_is_weighed_anew_is_what_changes_in_the_problem_that_is_left(problem):
    parts = problem.reweighed(SETS)
    for f, rows in enumerate(SETS):
        left, weights, strength = problem.without(rows), problem.weights.copy(), problem.penalty.alpha
        for part in parts:
            if part.rows is None:
                strength *= 1.0 + part.changes[f]
            else:
                weights[part.rows] *= 1.0 + part.changes[f]
        weights[rows] = 0.0
        np.testing.assert_allclose(weights, left.weights)
        assert strength == pytest.approx(left.penalty.alpha)
    for one, of_sets in zip(problem.reweighed(), parts, strict=True):
        np.testing.assert_allclose(one.changes, of_sets.changes[:N])


def test_shares_that_leave_with_single_rows(problem):
    kept = [problem.kept_share(i) for i in range(N)]
    np.testing.assert_allclose(problem.lost_shares(), 1.0 - np.array(kept))
    equal = replace(problem, weights=np.ones(N), balance=None)
    assert equal.usual_shrink == pytest.approx(equal.kept_share(0))
    assert problem.refits_keep_the_rest == (problem.reweighed() == [])


def test_what_a_refit_keeps_of_the_penalty_has_all_its_digits_beside_a_heavy_row():
    weights = np.full(N, 1e-6)
    weights[3] = 1e6
    problem = Problem(Squared(), L2(1.0), np.ones((N, 1)), np.ones(N), weights, mean_scaled=True)
    total = weights.sum()
    removed = [np.array([3]), np.array([1, 3]), np.array([0]), np.arange(N)]
    expected = np.array([11e-6, 10e-6, total - 1e-6, 0.0]) / total
    np.testing.assert_allclose(problem.kept_shares(removed), expected, rtol=1e-14)
    np.testing.assert_allclose(problem.kept_alone(np.array([0, 3])), expected[[2, 0]], rtol=1e-14)


def test_rows_without_weight_may_have_an_infinite_loss():
    problem = Problem(Gamma(), L2(1.0), np.ones((3, 1)), np.ones(3), np.array([1.0, 0.0, 1.0]))
    eta = np.array([0.0, -1e4, 0.0])
    with np.errstate(over="ignore"), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(problem.objective(np.zeros(1), eta))
        for infinite in (np.array([1.0, np.inf, 2.0]), np.array([[1.0, 3.0], [-np.inf, np.nan], [2.0, 4.0]])):
            expected = np.where(np.arange(3) == 1, 0.0, infinite.T).T
            np.testing.assert_array_equal(problem.per_row(infinite), expected)


@pytest.mark.parametrize("penalty", [L1(1.0), L2(1.0)])
def test_a_row_without_weight_whose_mean_overflows_is_as_good_as_not_there(penalty):
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(60, 5)), np.append(np.ones(60), 0.0)
    y = rng.poisson(np.exp(X[:, 0])).astype(float)
    far = np.vstack([X, [1e3, 0.0, 0.0, 0.0, 0.0]])
    fit = solve(Fit.at_start(Problem(Poisson(), penalty, far, np.append(y, 1.0), weights))).fit
    alone = solve(Fit.at_start(Problem(Poisson(), penalty, X, y, np.ones(60)))).fit
    assert np.isinf(fit.problem.loss.hessian(fit.problem.y, fit.eta)[-1])
    np.testing.assert_allclose(fit.coef, alone.coef, atol=1e-8)


@pytest.mark.parametrize(
    ("loss", "y", "outputs"),
    [
        (Logistic(), (CLASSES > 0).astype(float), ()),
        (Squared(), np.random.default_rng(2).normal(size=(N, 2)), (2,)),
        (Multinomial(3), CLASSES.astype(float), (3,)),
    ],
    ids=["one output", "independent", "coupled"],
)
def test_losses_at_several_predictors_of_each_row(loss, y, outputs):
    problem = Problem(loss, L2(1.0), np.ones((N, 2)), y, np.ones(N), np.full(outputs, True))
    eta = np.random.default_rng(3).normal(size=(N, *outputs, 5))
    for name in ("value", "gradient", "hessian"):
        each = [getattr(loss, name)(y, eta[..., k]) for k in range(5)]
        np.testing.assert_allclose(problem.loss_at(name, eta), np.stack(each, axis=-1), atol=1e-12)
    assert problem.is_coupled == (each[0].ndim == 3)
    assert problem.coef_shape == (2, *outputs)
    assert problem.n_outputs == eta[0, ..., 0].size
    assert problem.has_one_output == (eta.ndim == 2)


def test_outputs_that_move_together_do_not_move_where_only_differences_count():
    X, ones, both = np.ones((N, 1)), np.ones(N), np.array([True, True])
    change = np.array([[1.0, 1.0], [3.0, -1.0]])
    tied = Problem(Multinomial(2), L2(1.0), X, CLASSES % 2.0, ones, both)
    np.testing.assert_array_equal(tied.moved(change), [0.0, 4.0])
    apart = Problem(Squared(), L2(1.0), X, np.ones((N, 2)), ones, both)
    np.testing.assert_array_equal(apart.moved(change), [1.0, 3.0])


@pytest.mark.parametrize("outputs", [(), (3,)])
@pytest.mark.parametrize("more", [(), (4,)])
def test_gradient_of_rows_is_the_adjoint_of_the_linear_predictor(outputs, more):
    rng = np.random.default_rng(4)
    intercept = rng.random(outputs) < 0.5
    problem = Problem(
        Squared(), L2(1.0), rng.normal(size=(N, 2)), np.ones((N, *outputs)), np.ones(N), intercept
    )
    rows, coef = rng.normal(size=(N, *outputs, *more)), rng.normal(size=(2, *outputs, *more))
    level = np.where(intercept[(..., *(None,) * len(more))], rng.normal(size=(*outputs, *more)), 0.0)
    by_coef, by_level = problem.gradient_of(rows)
    assert (by_coef.shape, by_level.shape) == (coef.shape, level.shape)
    along = np.sum(by_coef * coef) + np.sum(by_level * level)
    assert along == pytest.approx(np.sum(rows * problem.linear_predictor(coef, level)))
