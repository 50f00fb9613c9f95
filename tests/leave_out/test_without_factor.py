"""Coupled outputs without a factor of K: rows by fits without tenths, and a sample of them alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import onefit
from builders import tenths, without
from onefit.fit import Fit
from onefit.leave_out import leave_out, without_factor
from onefit.leave_out.factor_free import FitsWithout, without_tenths
from onefit.leave_out.refit import refit_cost
from onefit.leave_out.rows_alone import RowsAlone
from onefit.losses import Logistic, Multinomial
from onefit.metrics import LogLoss
from onefit.penalties import L2, ElasticNet
from onefit.problem import Problem
from onefit.risk.judging import yardstick
from onefit.solvers import truncated
from onefit.solvers.solve import solve
from onefit.solvers.truncated import Seconds

C = 3


def fit_at(n=240, p=400, strength=8.0, store=np.asarray, fit_intercept=True, weighted=False) -> Fit:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p)) * (rng.random((n, p)) < 0.2)
    eta = X @ rng.normal(size=(p, C)) / 3.0
    y = (eta + rng.gumbel(size=eta.shape)).argmax(axis=1).astype(float)
    weights = rng.uniform(0.2, 2.0, n) * (rng.random(n) > 0.05) if weighted else np.ones(n)
    problem = Problem(Multinomial(C), L2(strength), store(X), y, weights, np.full(C, fit_intercept))
    return solve(Fit.at_start(problem)).fit


def yardstick_of(fit):
    return yardstick(LogLoss(np.arange(C)), fit.problem.y, fit.problem.weights)


@pytest.fixture
def cheap(monkeypatch):
    """Products take next to nothing beside a factor."""
    monkeypatch.setattr(truncated, "FACTORS", np.inf)
    monkeypatch.setattr(without_factor, "_holds_factor", lambda _: False)


@pytest.mark.costly
@pytest.mark.usefixtures("cheap")
@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_mean_is_within_its_error_of_refits(store, fit_intercept, weighted):
    fit = fit_at(store=store, fit_intercept=fit_intercept, weighted=weighted)
    weights = fit.problem.weights
    exact = leave_out(fit, max_error=0.0)
    judge = yardstick_of(fit)
    found = without_factor.told_without_factor(fit, judge, 0.3)
    everyone = np.arange(fit.problem.n)
    risk, told = (weights @ judge.losses(everyone, one.eta) / weights.sum() for one in (exact, found))
    assert 0.0 < abs(told + found.correction.difference - risk) <= found.correction.error
    assert found.correction.error < abs(told - risk) + 0.3 * np.std(judge.losses(everyone, exact.eta)) / 10
    assert found.effective_df == pytest.approx(exact.effective_df, rel=0.1)
    rows = found.correction.drawn.sets
    assert len(rows) >= 5 * without_factor.ENOUGH  # rows a covariate
    np.testing.assert_allclose(found.eta[rows], exact.eta[rows], atol=0.02 * np.abs(exact.eta).max())
    refit = without(fit, int(rows[0]))
    np.testing.assert_allclose(found.solved[int(rows[0])].coef, refit.coef, atol=0.01)


@pytest.mark.costly
@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
@pytest.mark.parametrize(("p", "fit_intercept"), [(60, True), (400, True), (60, False)])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_that_go_side_by_side_end_at_their_refits(monkeypatch, store, p, fit_intercept, weighted):
    fit = fit_at(p=p, strength=3.0, store=store, fit_intercept=fit_intercept, weighted=weighted)
    rows, alone = RowsAlone(fit), []
    rows._solve.by_average = True
    monkeypatch.setattr(rows, "_without", lambda i: alone.append(i) or RowsAlone._without(rows, i))
    which = np.arange(0, 240, 6)
    found, exact = rows.taken(fit.eta, which), leave_out(fit, max_error=0.0).eta
    way = np.linalg.norm(exact - fit.eta, axis=1)[which]
    off = np.linalg.norm(found - exact, axis=1)[which]
    assert np.median(off[way > 0] / way[way > 0]) < 0.01
    assert np.all(off <= 0.05 * way + 1e-9)
    assert len(alone) < 5
    assert sorted(rows.solved) == which.tolist()
    np.testing.assert_array_equal(found[1], fit.eta[1])


@pytest.mark.usefixtures("cheap")
def test_the_engine_goes_this_way_where_it_takes_less():
    fit = fit_at()
    found = leave_out(fit, max_error=0.3, yardstick=yardstick_of(fit))
    assert found.correction is not None
    assert not np.isfinite(found.bounds).any()
    assert (
        leave_out(fit, max_error=0.0, yardstick=yardstick_of(fit)).correction is None
    )  # every row is asked for
    one = Fit.at_start(
        replace(fit.problem, loss=Logistic(), y=(fit.problem.y > 0) + 0.0, intercept=np.array(True))
    )
    assert RowsAlone.where_they_pay(one) is None


@pytest.mark.usefixtures("cheap")
def test_a_factor_takes_over_where_half_of_the_rows_would_not_tell(monkeypatch):
    fit = fit_at(strength=1e-3)
    assert without_factor.told_without_factor(fit, yardstick_of(fit), 1e-3).correction.error > 0
    monkeypatch.setattr(without_factor, "_holds_factor", lambda _: True)
    assert without_factor.told_without_factor(fit, yardstick_of(fit), 1e-3) is None
    found = leave_out(fit, max_error=1e-3, yardstick=yardstick_of(fit))
    assert np.isfinite(found.bounds).any()  # which a factor tells


@pytest.mark.usefixtures("cheap")
@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
def test_each_class_loses_by_steps_what_it_does_without_its_tenths(store):
    """Beside steps by the average curvature one class moves farther than another."""
    fit = fit_at(n=300, store=store)
    known = without_factor._covariates(RowsAlone(fit), yardstick_of(fit), without_tenths(fit))
    _, tenths, stepped = known[:, :3].T
    for k in range(C):
        own = fit.problem.y == k
        np.testing.assert_allclose(stepped[own].mean(), tenths[own].mean(), rtol=0.01)
        if k:
            np.testing.assert_array_equal(known[:, 2 + k], own)
    whole = np.concatenate([[1.0], np.zeros(known.shape[1] - 1)])
    assert np.linalg.matrix_rank(known - whole) == known.shape[1]


@pytest.mark.usefixtures("cheap")
def test_a_row_that_is_all_there_is_of_its_class_has_no_refit():
    fit = fit_at()
    y = np.where(fit.problem.y == 2, 1.0, fit.problem.y)
    y[7] = 2.0
    fit = solve(Fit.at_start(replace(fit.problem, y=y))).fit
    judge = yardstick_of(fit)
    found, by_factor = without_factor.told_without_factor(fit, judge, 0.3), leave_out(fit, max_error=0.0)
    np.testing.assert_array_equal(found.failed, [7])
    np.testing.assert_array_equal(by_factor.failed, [7])
    everyone, first = np.arange(240), leave_out(fit, max_error=np.inf)
    exact, told, step = (judge.losses(everyone, one.eta) for one in (by_factor, found, first))
    assert told[7] == pytest.approx(step[7], rel=0.3)
    off = (told.mean() + found.correction.difference) - (exact.mean() + (told[7] - exact[7]) / 240)
    assert abs(off) <= found.correction.error


@pytest.mark.usefixtures("cheap")
def test_without_intercepts_the_only_row_of_a_class_has_a_refit():
    fit = fit_at(fit_intercept=False)
    y = np.where(fit.problem.y == 2, 1.0, fit.problem.y)
    y[7] = 2.0
    fit = solve(Fit.at_start(replace(fit.problem, y=y))).fit
    rows = RowsAlone(fit)
    assert rows.lone.size == 0
    found = rows.taken(fit.eta, np.array([7]))
    np.testing.assert_allclose(found[7], without(fit, 7).eta[7], atol=0.01)
    told = without_factor.told_without_factor(fit, yardstick_of(fit), 0.3)
    assert told.failed.size == 0


def test_what_is_done_with_a_factor_counts_beside_it(monkeypatch):
    fit = fit_at()
    monkeypatch.setattr(RowsAlone, "taken", lambda *_: None)
    monkeypatch.setattr(RowsAlone, "seconds", Seconds.of(fit).with_forms)
    assert RowsAlone.where_they_pay(fit) is not None
    far_more = 2 * (Seconds.of(fit).with_forms + 240 * refit_cost(fit).seconds)
    monkeypatch.setattr(RowsAlone, "seconds", far_more)
    assert RowsAlone.where_they_pay(fit) is None


@pytest.mark.usefixtures("cheap")
def test_few_rows_are_left_to_a_factor():
    assert RowsAlone.where_they_pay(fit_at(n=without_factor.FIRST_SAMPLE)) is None


@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
def test_models_of_more_columns_than_rows_have_the_coefficients_of_columns(store):
    from sklearn.linear_model import LogisticRegression

    fit = fit_at(n=60, p=150)
    X, y = store(fit.problem.X), fit.problem.y
    model = onefit.LogisticLOO(Cs=[0.01, 0.1, 1.0]).fit(X, y)
    other = LogisticRegression(C=model.C_, tol=1e-10, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(model.coef_, other.coef_, atol=1e-5)
    np.testing.assert_allclose(model.intercept_, other.intercept_, atol=1e-5)
    assert model.coef_path_.shape[1:] == (150, C)
    np.testing.assert_allclose(model.predict_proba(X), other.predict_proba(X), atol=1e-5)
    exact = onefit.loo(other, X, y, exact=True)
    assert abs(model.loo_.value - exact.value) <= max(model.loo_.approx_error, 1e-6)
    own = model.loo_.coef()[7]
    rest = np.arange(60) != 7
    refit = LogisticRegression(C=model.C_, tol=1e-10, max_iter=10_000).fit(X[rest], y[rest])
    np.testing.assert_allclose(own, refit.coef_, atol=1e-3)


@pytest.mark.parametrize("l1_ratio", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("classes", [2, 4])
def test_tenths_without_any_row_of_a_class_end_where_steps_lead(classes, l1_ratio):
    """They have no optimum, and the other rows of the tenth are judged all the same."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(160, 30))
    y = (X[:, :4] @ rng.normal(size=(4, classes - 1)) + rng.gumbel(size=(160, classes - 1))).argmax(axis=1)
    y[tenths(160)[2][3]] = classes - 1
    penalty = ElasticNet(3.0, l1_ratio) if l1_ratio else L2(3.0)
    loss = Multinomial(classes) if classes > 2 else Logistic()
    intercept = np.ones(classes, dtype=bool) if classes > 2 else np.array(True)
    fit = solve(Fit.at_start(Problem(loss, penalty, X, y.astype(float), np.ones(160), intercept))).fit
    assert fit.problem.attains_levels(fit.problem.weights[:, None]).all()
    apart = np.full(fit.eta.shape, np.nan)
    FitsWithout().complete(apart, fit, None, tenths(160))
    assert np.isfinite(apart).all()
    rest = np.delete(tenths(160)[2], 3)
    assert not fit.problem.attains_levels(fit.problem.weights_without([tenths(160)[2]])).any()
    near = 0.5 + np.abs(fit.eta[rest]).max()
    lost = loss.value(y[rest].astype(float), apart[rest])
    assert np.all(lost < loss.value(y[rest].astype(float), fit.eta[rest]) + 2.0 * near)
