"""Curvatures of coupled outputs with a factor in single precision, held against double precision."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from builders import tenths
from onefit import LogisticLOO
from onefit.curvature import CoupledBlock, CoupledInSingle, Direction, factor, in_single
from onefit.curvature.outputs import FAINT
from onefit.fit import Fit
from onefit.leave_out.averaged import among_others, step_of_rows
from onefit.leave_out.factor_free import FitsWithout
from onefit.leave_out.step import one_step
from onefit.losses import Multinomial
from onefit.metrics import LogLoss
from onefit.numerics import rounding_of_slack
from onefit.penalties import L1, L2
from onefit.problem import Problem
from onefit.solvers import newton
from onefit.tuning.judgement import Judgement
from onefit.tuning.looks import Looks

N, P, C = 240, 30, 7


def fit_at(strength, penalty=L2, *, fit_intercept=True, weighted=False, store=np.asarray) -> Fit:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, P)) + 0.5
    y = (X @ rng.normal(size=(P, C)) / 3.0 + rng.gumbel(size=(N, C))).argmax(axis=1).astype(float)
    weights = rng.uniform(0.3, 2.0, N) if weighted else np.ones(N)
    own = penalty(strength)
    problem = Problem(Multinomial(C), own, store(X), y, weights, np.full(C, fit_intercept))
    return newton.solve(Fit.at_start(problem)).fit


@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("strength", [0.01, 1.0])
def test_forms_are_as_near_as_their_condition_says(store, fit_intercept, weighted, strength):
    fit = fit_at(strength, fit_intercept=fit_intercept, weighted=weighted, store=store)
    exact, rough = factor(fit), in_single(factor(fit))
    assert isinstance(rough, CoupledInSingle)
    assert rough.is_definite
    D = fit.hessian
    off = D @ (rough.quadratic_forms() - exact.quadratic_forms())  # what all outputs share has no part in it
    assert 0.0 < np.abs(off).max() <= rounding_of_slack(rough.condition)
    some = np.array([3, 100, 7])
    forms = rough.quadratic_forms()[some]
    np.testing.assert_allclose(rough.forms_of(some), forms, atol=1e-6 * np.abs(forms).max())


@pytest.mark.parametrize("size", [1e-60, 1.0, 1e60])
@pytest.mark.parametrize("has_inverse", [True, False])
def test_directions_are_near_whatever_their_size(size, has_inverse):
    fit, rng = fit_at(0.1), np.random.default_rng(1)
    exact, rough = factor(fit), factor(fit).roughly
    if has_inverse:
        rough.quadratic_forms()
    gradient = Direction(*(size * rng.normal(size=part.shape) for part in (fit.coef, fit.intercept)))
    gradient.intercept[:] -= gradient.intercept.mean()
    coef = exact.solve(gradient).coef
    np.testing.assert_allclose(rough.solve(gradient).coef, coef, atol=1e-4 * np.abs(coef).max())


def test_patterns_of_their_own(fit_intercept):
    fit = fit_at(6.0, L1, fit_intercept=fit_intercept)
    assert not fit.tangent.support.all()
    exact, rough = factor(fit).quadratic_forms(), factor(fit).roughly
    assert rough.quadratic_forms() is not exact
    D = fit.hessian
    assert 0.0 < np.abs(D @ (rough.quadratic_forms() - exact)).max() <= rounding_of_slack(rough.condition)


def test_what_single_precision_does_not_hold_is_told_in_double():
    fit = fit_at(0.1)
    large = factor(Fit(replace(fit.problem, X=1e25 * fit.problem.X), 1e-25 * fit.coef, fit.intercept))
    assert large.roughly is large
    assert in_single(large) is large
    twins = np.hstack([fit.problem.X, fit.problem.X[:, :1]])
    coef = np.vstack([fit.coef, fit.coef[:1]])
    K = factor(Fit(replace(fit.problem, X=twins, penalty=L2(1e-9)), coef, fit.intercept))
    assert in_single(K) is K
    assert K.is_definite


def test_rows_that_hardly_bend_count_as_flat():
    """Else products of numbers below 1e-38 take a hundred times as long."""
    fit = fit_at(0.1)
    far = fit.moved(400.0 * fit.coef, fit.intercept)
    bent = np.abs(far.hessian)
    assert np.any((bent > 0) & (bent < np.finfo(np.float32).tiny))
    D = factor(far)._bends_in_single
    assert np.all((D == 0) | (np.abs(D) >= FAINT * bent.max() * 0.99))
    np.testing.assert_allclose(D, factor(far).own.curved(far.hessian), atol=1e-7 * bent.max())


def test_a_factor_that_is_at_hand_serves():
    K = factor(fit_at(0.1))
    assert not K.is_factored
    rough = K.roughly
    assert rough.is_in_single
    assert K.is_factored
    assert K.roughly is rough
    exact = factor(fit_at(0.1))
    assert exact.is_definite  # which takes a factor
    assert exact.roughly is exact
    assert in_single(exact) is exact


def test_steps_of_rows_are_about_those_of_double_precision():
    fit, rows = fit_at(0.1), np.arange(0, N, 5)
    exact = one_step(fit, factor(fit)).eta[rows]
    K = factor(fit)
    found = step_of_rows(fit, K, rows)
    assert "_factored" not in K.__dict__
    np.testing.assert_allclose(found, exact, atol=1e-4 * np.abs(exact).max())


def test_tenths_are_about_those_of_double_precision(monkeypatch):
    fit, parts = fit_at(0.1), tenths(N)
    found = FitsWithout().left_out_roughly(fit, factor(fit), parts)
    monkeypatch.setattr(CoupledBlock, "roughly", property(lambda K: K))
    for one, other in zip(found, FitsWithout().left_out_roughly(fit, factor(fit), parts), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4 * np.abs(other).max())


def test_strengths_beside_others_are_judged_in_single_precision_and_tenths_go_on_from_that(monkeypatch):
    monkeypatch.setattr("onefit.leave_out.averaged.UNNOTICED", 0.0)
    fit = fit_at(0.1)
    looks = Looks(Judgement(LogLoss(np.arange(C)), fit.problem.y, fit.problem.weights))
    verdict = looks.first(newton.Solution(fit, factor(fit)))
    assert isinstance(among_others(fit, factor(fit)), CoupledInSingle)
    at_hand = verdict.begun.at_hand
    assert isinstance(at_hand, CoupledInSingle)
    monkeypatch.setattr("onefit.leave_out.factor_free.factor", None)  # none is made
    tenths = looks.by_tenths(fit, at_hand)
    assert np.isfinite(tenths.losses).all()


def test_a_soon_made_factor_is_in_double_precision():
    fit = fit_at(0.1)
    small = Fit(replace(fit.problem, X=fit.problem.X[:, :2]), fit.coef[:2], fit.intercept)
    K = factor(small)
    assert among_others(small, K) is K


def test_what_is_reported_of_the_choice_is_in_double_precision(monkeypatch):
    monkeypatch.setattr("onefit.leave_out.averaged.UNNOTICED", 0.0)
    problem = fit_at(0.1).problem
    found = LogisticLOO().fit(problem.X, problem.y)
    monkeypatch.setattr(CoupledBlock, "roughly", property(lambda K: K))
    exact = LogisticLOO().fit(problem.X, problem.y)
    assert found.C_ == exact.C_
    np.testing.assert_allclose(found.coef_, exact.coef_, atol=1e-7)
    np.testing.assert_allclose(found.loo_.leverages, exact.loo_.leverages, rtol=1e-7)
    np.testing.assert_allclose(found.loo_.losses, exact.loo_.losses, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.risk_path_, exact.risk_path_, rtol=1e-4)
