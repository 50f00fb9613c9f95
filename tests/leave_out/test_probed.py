"""Leave-one-out without a factor: estimated leverages, and a sample that is solved."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression, PoissonRegressor

import onefit
from onefit import LogisticLOO
from onefit.curvature import Dual, InSingle
from onefit.fit import Fit
from onefit.leave_out import engine, leave_out
from onefit.leave_out.chords import FoldProblems
from onefit.leave_out.frame import Frame
from onefit.leave_out.probed import BY_PROBES, as_close_as_asked, doubt_of_probes, sharpened
from onefit.leave_out.step import one_step
from onefit.leave_out.yardstick import allowed_by_all
from onefit.losses import Logistic
from onefit.metrics import LogLoss
from onefit.penalties import L2
from onefit.problem import Problem
from onefit.risk.judging import yardstick
from onefit.solvers.solve import solve

iterated = importlib.import_module("onefit.curvature.iterated")
products = importlib.import_module("onefit.curvature.products")


@pytest.fixture(autouse=True)
def _dear(monkeypatch):
    """Whatever a factor takes, it takes far longer, and there is no time to solve without every row."""
    monkeypatch.setattr(iterated, "DEARER", 0.0)
    monkeypatch.setattr(engine, "UNMINDED", 0.0)
    monkeypatch.setattr(Frame, "asks_for_factor", lambda *_: False)
    monkeypatch.setattr(Dual, "is_factored", False)


def table(n=240, p=500, seed=0):
    rng = np.random.default_rng(seed)
    X = sp.random(n, p, density=0.08, format="csr", random_state=seed)
    eta = 3.0 * (X @ rng.normal(size=p))
    return X, eta, rng


MODELS = {
    "logistic": LogisticRegression(C=3.0, tol=1e-10, max_iter=10_000),
    "no intercept": LogisticRegression(C=0.3, fit_intercept=False, tol=1e-10, max_iter=10_000),
    "balanced": LogisticRegression(C=3.0, class_weight="balanced", tol=1e-10, max_iter=10_000),
    "poisson": PoissonRegressor(alpha=5e-2, tol=1e-10, max_iter=10_000),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_risk_is_within_what_is_stated_of_all_refits(name, weighted, monkeypatch):
    X, eta, rng = table()
    y = (eta > 0.5).astype(int) if name != "poisson" else rng.poisson(np.exp(0.1 * eta))
    weights = rng.uniform(0.5, 2.0, len(y)) if weighted else None
    model = MODELS[name].fit(X, y, sample_weight=weights)
    found = onefit.loo(model, X, y, weights)
    assert found.guarantee == "sampled"
    assert any("estimated" in note for note in found.notes)
    monkeypatch.undo()
    exact = onefit.loo(model, X, y, weights, exact=True)
    assert abs(found.value - exact.value) <= found.approx_error
    assert found.approx_error <= 0.5 * found.std_error
    assert found.effective_df == pytest.approx(exact.effective_df, rel=0.03)
    solved = found.bounds < np.inf
    assert 30 <= solved.sum() < len(y) / 2
    off = np.abs(found.decision - exact.decision)
    assert np.all(off[solved] <= found.bounds[solved] + 1e-7)
    assert np.median(off[~solved]) <= 0.1 * np.std(exact.decision)


def test_coefficients_of_rows_that_were_solved_are_those_of_refits():
    X, eta, _ = table()
    y = (eta > 0).astype(int)
    model = MODELS["logistic"].fit(X, y)
    found = onefit.loo(model, X, y)
    rows = found._left_out.refitted[:3]
    assert rows.size == 3
    for i in rows:
        kept = np.arange(len(y)) != i
        refit = LogisticRegression(C=3.0, tol=1e-12, max_iter=100_000).fit(X[kept], y[kept])
        assert found.decision[i] == pytest.approx(refit.decision_function(X[[i]])[0], abs=1e-4)


def test_a_path_chooses_as_with_factors(monkeypatch):
    X, eta, rng = table(n=300)
    y = (eta + rng.logistic(size=300) > 0).astype(int)
    Cs = np.logspace(-2, 3, 11)
    ours = LogisticLOO(Cs=Cs).fit(X, y)
    monkeypatch.undo()
    with_factors = LogisticLOO(Cs=Cs).fit(X, y)
    assert abs(np.searchsorted(Cs, ours.C_) - np.searchsorted(Cs, with_factors.C_)) <= 1
    assert ours.loo_.value == pytest.approx(with_factors.loo_.value, abs=ours.loo_.std_error)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_few_probes_do_where_they_leave_little_open(weighted, intercept):
    X, eta, rng = table()
    y = (eta + rng.logistic(size=len(eta)) > 0).astype(float)
    weights = rng.uniform(0.5, 2.0, len(y)) if weighted else np.ones(len(y))
    fit = solve(Fit.at_start(Problem(Logistic(), L2(0.5), X, y, weights, np.array(intercept)))).fit
    judge = yardstick(LogLoss(np.array([0, 1])), y, weights)
    exact = leave_out(fit, max_error=0.0)
    truth = weights @ judge.losses(exact.rows, exact.eta) / weights.sum()
    begun = engine.begin(fit, None, judge)
    assert begun.estimate.probes == iterated.FEW_PROBES
    one = allowed_by_all(begun.found, judge)
    half = doubt_of_probes(fit, begun.step, begun.found, judge).half / BY_PROBES
    rooms = (
        (4.0 * one, iterated.FEW_PROBES),
        (half / 1.3, 2 * iterated.FEW_PROBES),
        (0.1 * one, iterated.PROBES),
    )
    for room, probes in rooms:
        step, found = as_close_as_asked(fit, begun.step, begun.found, judge, room)
        assert step.curvature.probes == probes
        np.testing.assert_allclose(found.eta, step.taken(fit).eta)
    few, all_of_them = (np.linalg.norm(one.leverages - exact.leverages) for one in (begun.found, found))
    assert all_of_them < few
    found = leave_out(fit, None, 0.3, yardstick=judge, for_bounds=0.0, begun=begun)
    told = weights @ judge.losses(found.rows, found.eta) / weights.sum() + found.correction.difference
    assert abs(told - truth) <= found.correction.error
    off = np.abs(found.eta - exact.eta)[found.stepped]
    assert np.all(off <= found.bounds[found.stepped] + exact.bounds[found.stepped])


def test_steps_of_rows_begin_with_the_answer_that_told_their_leverage():
    X, eta, rng = table()
    y = (eta + rng.logistic(size=len(eta)) > 0).astype(float)
    fit = solve(Fit.at_start(Problem(Logistic(), L2(0.5), X, y, np.ones(len(y)), np.array(True)))).fit
    judge = yardstick(LogLoss(np.array([0, 1])), y, None)
    state, rows = engine.begin(fit, None, judge), np.arange(0, 60, 2)
    state.found = sharpened(fit, state.step, state.found, rows)
    begun = FoldProblems.without(fit, state.step.curvature, rows[:, None]).started()
    np.testing.assert_allclose(begun.eta[rows, np.arange(len(rows))], state.found.eta[rows], rtol=1e-9)
    np.testing.assert_allclose(X @ begun.coef + begun.intercept, begun.eta, rtol=1e-9, atol=1e-9)
    step = one_step(fit).eta[rows]
    np.testing.assert_allclose(state.found.eta[rows], step, rtol=1e-3, atol=1e-3)


def test_where_conjugate_gradients_do_not_settle_a_factor_is_made(monkeypatch):
    monkeypatch.setattr(products, "MOST_PRODUCTS", 2)
    X, eta, _ = table()
    y = (eta > 0).astype(int)
    model = LogisticRegression(C=1e4, tol=1e-8, max_iter=10_000).fit(X, y)
    found = onefit.loo(model, X, y)
    assert not any("estimated" in note for note in found.notes)
    assert np.isfinite(found.approx_error)


def test_once_there_is_a_factor_rows_are_stepped_with_it(monkeypatch):
    X, eta, rng = table()
    y = (eta + rng.logistic(size=len(eta)) > 0).astype(float)
    fit = solve(Fit.at_start(Problem(Logistic(), L2(0.5), X, y, np.ones(len(y)), np.array(True)))).fit
    state, rows = engine.begin(fit, None, yardstick(LogLoss(np.array([0, 1])), y, None)), np.arange(20)
    state.repeat_steps(rows)
    assert set(state.starts) == set(rows.tolist())
    state.take_factor()
    monkeypatch.setattr(products, "conjugate_gradients", None)  # that nothing asks for any more
    state.repeat_steps(rows)
    assert np.isin(rows, state.found.stepped).all()
    exact = leave_out(fit, max_error=0.0)
    off = np.abs(state.found.eta - exact.eta)[rows]
    assert np.all(off <= state.found.bounds[rows] + exact.bounds[rows])


def test_a_factor_that_a_sample_asks_for_is_made_in_single_precision_before_more_probes(monkeypatch):
    monkeypatch.setattr(Frame, "asks_for_factor", lambda *_: True)
    monkeypatch.setattr(engine, "as_close_as_asked", None)
    X, eta, rng = table()
    y = (eta + rng.logistic(size=len(eta)) > 0).astype(float)
    fit = solve(Fit.at_start(Problem(Logistic(), L2(0.5), X, y, np.ones(len(y)), np.array(True)))).fit
    judge = yardstick(LogLoss(np.array([0, 1])), y, None)
    state = engine.begin(fit, None, judge)
    assert state.estimate is not None
    found = leave_out(fit, None, 0.3, yardstick=judge, for_bounds=0.0, begun=state)
    assert isinstance(state.step.curvature, InSingle)
    exact = leave_out(fit, max_error=0.0)
    told, truth = (judge.losses(one.rows, one.eta) for one in (found, exact))
    difference, error = (0.0, 0.0) if found.correction is None else found.correction[:2]
    allowed_error = max(error, 0.3 * truth.std() / np.sqrt(len(y)))
    assert abs(told.mean() + difference - truth.mean()) <= allowed_error
