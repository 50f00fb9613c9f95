"""Rows of coupled outputs with kinks: by the factor of the fit, each on its own, or by column without one."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose

from builders import without
from onefit.curvature import factor
from onefit.fit import Fit
from onefit.leave_out import leave_out, led_rows, without_factor
from onefit.leave_out.refit import refit_sets
from onefit.leave_out.ways import Way, ways
from onefit.losses import Multinomial
from onefit.metrics import LogLoss
from onefit.penalties import ElasticNet
from onefit.problem import Problem
from onefit.risk.judging import yardstick
from onefit.solvers import on_pattern, truncated
from onefit.solvers.solve import solve

C = 3


def fit_at(n=200, p=40, strength=0.6, store=np.asarray, intercept=True, weighted=False) -> Fit:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p)) * (rng.random((n, p)) < 0.4)
    eta = X[:, :10] @ rng.normal(size=(10, C))
    y = (eta + rng.gumbel(size=eta.shape)).argmax(axis=1).astype(float)
    weights = rng.uniform(0.2, 2.0, n) * (rng.random(n) > 0.05) if weighted else np.ones(n)
    penalty = ElasticNet(strength, 0.5)
    problem = Problem(Multinomial(C), penalty, store(X), y, weights, np.full(C, intercept))
    return solve(Fit.at_start(problem)).fit


def refitted(fit: Fit) -> np.ndarray:
    return np.array([without(fit, i).eta[i] for i in range(fit.problem.n)])


@pytest.fixture
def led(monkeypatch):
    """Steps by a factor that is at hand take next to nothing."""
    monkeypatch.setattr(on_pattern, "pays", lambda fit: fit.problem.is_coupled and fit.is_kinked)


@pytest.mark.costly
@pytest.mark.usefixtures("led")
@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_end_where_refits_do(store, weighted):
    fit = fit_at(store=store, weighted=weighted)
    curvature, rows = factor(fit), np.arange(0, 200, 7)
    assert curvature.is_definite
    ends = led_rows.iterate(fit, curvature, rows, 1.0)
    assert ends.settled.all()
    assert np.isinf(ends.bounds).all()
    for j, i in enumerate(rows.tolist()):
        alone = without(fit, i)
        assert_allclose(ends.coef[j], alone.coef, atol=1e-7)
        assert_allclose(np.diff(ends.eta[j]), np.diff(alone.eta[i]), atol=1e-7)
        assert_allclose(np.diff(ends.intercept[j]), np.diff(alone.intercept), atol=1e-7)


def test_without_a_factor_there_is_no_way():
    fit = fit_at()
    assert led_rows.iterate(fit, None, np.arange(3), 1.0) is None


@pytest.mark.usefixtures("led")
def test_it_is_among_the_ways():
    assert Way.LEAD in [way for _, way in ways(fit_at(p=120, strength=0.1))]


@pytest.mark.usefixtures("led")
@pytest.mark.parametrize(
    ("intercept", "weighted", "strength"), [(True, False, 0.6), (False, True, 0.6), (True, True, 0.05)]
)
def test_the_mean_is_within_its_error(intercept, weighted, strength):
    fit = fit_at(n=120, intercept=intercept, weighted=weighted, strength=strength)
    weights = fit.problem.weights
    judge = yardstick(LogLoss(np.arange(C)), fit.problem.y, weights)
    everyone = np.arange(fit.problem.n)
    exact = weights @ judge.losses(everyone, refitted(fit)) / weights.sum()
    found = leave_out(fit, max_error=0.1, yardstick=judge, for_bounds=0.0, affordable=0.05)
    told = weights @ judge.losses(everyone, found.eta) / weights.sum()
    error = float(weights @ judge.spread(everyone, found.eta, found.bounds) / weights.sum())
    if found.correction is not None:
        told, error = told + found.correction.difference, found.correction.error
    assert abs(told - exact) <= error + 1e-9


@pytest.mark.usefixtures("led")
def test_rows_that_change_the_pattern_are_not_taken_for_solved():
    fit = fit_at(strength=0.1)
    judge = yardstick(LogLoss(np.arange(C)), fit.problem.y, fit.problem.weights)
    found = leave_out(fit, max_error=0.3, yardstick=judge, for_bounds=0.0, affordable=0.0)
    assert found.solved
    for i, one in found.solved.items():
        assert_allclose(np.diff(one.eta), np.diff(without(fit, i).eta[i]), atol=1e-5)


@pytest.mark.usefixtures("led")
def test_refits_of_sets_may_go_by_the_factor():
    fit = fit_at()
    curvature, sets = factor(fit), {k: np.arange(20 * k, 20 * k + 20) for k in range(4)}
    assert curvature.is_definite
    led_to = refit_sets(fit, sets, sets, curvature=curvature)
    for k, one in refit_sets(fit, sets, sets).items():
        assert_allclose(np.diff(led_to[k].eta), np.diff(one.eta), atol=1e-8)


@pytest.mark.parametrize(("store", "weighted"), [(np.asarray, False), (sp.csr_array, True)])
def test_columns_tell_the_mean_where_a_factor_is_dear(store, weighted, monkeypatch):
    monkeypatch.setattr(truncated, "FACTORS", np.inf)
    fit = fit_at(n=150, p=50, strength=1.0, store=store, weighted=weighted)
    weights = fit.problem.weights
    judge = yardstick(LogLoss(np.arange(C)), fit.problem.y, weights)
    everyone = np.arange(fit.problem.n)
    exact = weights @ judge.losses(everyone, refitted(fit)) / weights.sum()
    found = without_factor.told_without_factor(fit, judge, 0.3)
    told = weights @ judge.losses(everyone, found.eta) / weights.sum()
    assert abs(told + found.correction.difference - exact) <= found.correction.error
    assert found.effective_df == pytest.approx(leave_out(fit, max_error=0.0).effective_df, rel=0.15)
