"""Curvatures that steps solve with by what another fit has summed over the rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from onefit.curvature import Direction, factor, in_single
from onefit.fit import Fit
from onefit.losses import Logistic, Multinomial
from onefit.penalties import L1, L2
from onefit.problem import Problem
from onefit.solvers.solve import solve

N, P, C = 150, 12, 3


def problem_of(loss, penalty, *, fit_intercept=True, weighted=False, store=np.asarray) -> Problem:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, P)) * (rng.random((N, P)) < 0.6) + 0.2
    eta = X @ rng.normal(size=(P, C))
    y = (eta[:, 0] > 0) if isinstance(loss, Logistic) else (eta + rng.gumbel(size=(N, C))).argmax(axis=1)
    weights = rng.uniform(0.3, 2.0, N) if weighted else np.ones(N)
    intercept = np.array(fit_intercept) if isinstance(loss, Logistic) else np.full(C, fit_intercept)
    return Problem(loss, penalty, store(X), y.astype(float), weights, intercept)


def fits_of(problem, *strengths) -> list[Fit]:
    return [solve(Fit.at_start(replace(problem, penalty=L2(a)))).fit for a in strengths]


def gradient_of(fit) -> Direction:
    rng = np.random.default_rng(1)
    level = rng.normal(size=fit.intercept.shape) * np.asarray(fit.problem.intercept)
    coef = rng.normal(size=fit.coef.shape)
    if fit.coef.ndim > 1:  # of classes
        coef, level = coef - coef.mean(axis=1, keepdims=True), level - level.mean()
    return Direction(coef, level)


def as_at(one, other) -> Fit:
    """The other fit with rows that are curved as at the one, but for how much they are in all."""
    both = (fit.hessian.reshape(len(fit.eta), -1)[:, :: C + 1].sum() for fit in (other, one))
    share = next(both) / next(both)
    return other.moved(other.coef, other.intercept).known(hessian=share * one.hessian)


@pytest.mark.parametrize("loss", [Logistic(), Multinomial(C)], ids=["two classes", "three classes"])
@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_rows_are_curved_as_at_the_other_fit_but_for_how_much_in_all(loss, store, fit_intercept, weighted):
    problem = problem_of(loss, L2(), fit_intercept=fit_intercept, weighted=weighted, store=store)
    one, other = fits_of(problem, 5.0, 0.5)
    K, own, gradient = factor(one), factor(other), gradient_of(one)
    K.roughly.solve(gradient)  # makes the factor
    lent = K.lend_to(own)
    assert lent.is_at_hand
    assert not lent.is_factored
    expected, found = factor(as_at(one, other)).solve(gradient), lent.for_steps.solve(gradient)
    scale = np.abs(expected.coef).max()
    tol = 1e-9 if isinstance(loss, Logistic) else 1e-4  # in single precision
    np.testing.assert_allclose(found.coef, expected.coef, atol=tol * scale)
    np.testing.assert_allclose(found.intercept, expected.intercept, atol=tol * scale)
    exact = factor(other).solve(gradient)
    np.testing.assert_allclose(lent.solve(gradient).coef, exact.coef, rtol=1e-8, atol=1e-10 * scale)
    np.testing.assert_allclose(lent.quadratic_forms(), factor(other).quadratic_forms(), rtol=1e-8)
    assert lent.for_steps.is_factored  # by its own factor, now that there is one
    np.testing.assert_allclose(lent.for_steps.solve(gradient).coef, exact.coef, atol=1e-4 * scale)


@pytest.mark.parametrize("loss", [Logistic(), Multinomial(C)], ids=["two classes", "three classes"])
def test_nothing_is_lent_where_the_rows_or_columns_are_others(loss):
    problem = problem_of(loss, L2())
    one, other = fits_of(problem, 5.0, 0.5)
    K, gradient = factor(one), gradient_of(one)
    assert K.lend_to(factor(other)).is_at_hand is False  # nothing was summed
    K.roughly.solve(gradient)
    made = factor(other)
    made.quadratic_forms()
    assert K.lend_to(made) is made
    elsewhere = fits_of(replace(problem, X=problem.X.copy()), 0.5)[0]
    assert not K.lend_to(factor(elsewhere)).is_at_hand
    kinked = solve(Fit.at_start(replace(problem, penalty=L1(6.0)))).fit
    assert 0 < np.count_nonzero(kinked.coef) < kinked.coef.size
    assert not K.lend_to(factor(kinked)).is_at_hand
    lent = K.lend_to(factor(other))
    assert not lent.without_loan.is_at_hand


def test_classes_in_the_coordinates_of_few_rows():
    problem = problem_of(Multinomial(C), L2())
    few = replace(problem, X=problem.X[:8], y=np.arange(8.0) % C, weights=np.ones(8))
    one, other = fits_of(few, 5.0, 0.5)
    K, gradient = factor(one), gradient_of(one)
    K.roughly.solve(gradient)
    lent, expected = K.lend_to(factor(other)), factor(as_at(one, other)).solve(gradient)
    assert lent.is_at_hand
    np.testing.assert_allclose(lent.for_steps.solve(gradient).coef, expected.coef, rtol=1e-4, atol=1e-5)


def test_one_output_of_few_rows_has_a_factor_of_these():
    problem = problem_of(Logistic(), L2())
    one, other = fits_of(
        replace(problem, X=problem.X[:8], y=np.arange(8.0) % 2, weights=np.ones(8)), 5.0, 0.5
    )
    K, own = factor(one), factor(other)
    K.solve(gradient_of(one))
    assert K.lend_to(own) is own


def test_forms_are_never_those_of_the_rows_of_another_fit():
    """What is lent is for steps that are repeated until they settle."""
    problem = problem_of(Multinomial(C), L2(), fit_intercept=True)
    one, other = fits_of(problem, 5.0, 0.05)
    K = factor(one)
    K.roughly.solve(gradient_of(one))
    lent, exact = K.lend_to(factor(other)), factor(other).quadratic_forms()
    assert lent.is_at_hand
    np.testing.assert_allclose(in_single(lent).quadratic_forms(), exact, atol=1e-4 * np.abs(exact).max())
    np.testing.assert_allclose(lent.roughly.quadratic_forms(), exact, atol=1e-4 * np.abs(exact).max())
