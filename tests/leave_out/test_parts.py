"""Samples beside fits without tenths: right within what they state, for fewer rows than half of all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from onefit import losses, penalties
from onefit.fit import Fit
from onefit.leave_out import leave_out, parts
from onefit.leave_out.factor_free import FitsWithout, parts_of
from onefit.leave_out.row_order import random_order
from onefit.leave_out.stages import State
from onefit.metrics import LogLoss, SquaredError
from onefit.numerics import UNRELIABLE
from onefit.problem import Problem
from onefit.risk.judging import yardstick
from onefit.solvers.solve import solve

WANTED = 0.8  # standard errors: with so few rows most samples tell no more


def of_words(loss, penalty, rng, n=400, p=600):
    """Rare words, of which single rows hold many up; some rows have no weight."""
    common = 0.3 / np.sqrt(1 + np.arange(p))
    X = (rng.random((n, p)) < common) * rng.uniform(0.5, 2.0, (n, p))
    eta = X @ (rng.normal(size=p) * (rng.random(p) < 0.2))
    is_labelled = isinstance(loss, losses.Logistic)
    y = (eta + rng.logistic(size=n) > 0).astype(float) if is_labelled else eta + rng.normal(size=n)
    weights = rng.integers(0, 4, n) > 0
    fit = solve(Fit.at_start(Problem(loss, penalty, csr_array(X), y, weights.astype(float)))).fit
    metric = LogLoss(np.array([0, 1])) if is_labelled else SquaredError()
    return fit, yardstick(metric, y, weights.astype(float))


def mean(found, judge):
    by = 0.0 if found.correction is None else found.correction.difference
    return float(np.average(judge.losses(found.rows, found.eta), weights=judge.weights)) + by


CASES = {
    "logistic": (losses.Logistic(), penalties.L1(1.0)),
    "lasso": (losses.Squared(), penalties.L1(2.0)),
    "elastic net": (losses.Squared(), penalties.ElasticNet(2.0, 0.5)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_means_are_right_within_what_is_stated(name, monkeypatch):
    """Whatever is drawn: that includes rows whose steps are off by far."""
    fit, judge = of_words(*CASES[name], np.random.default_rng(0))
    exact = leave_out(fit, max_error=0.0, yardstick=judge)
    monkeypatch.setattr(parts, "rough_cost", lambda _: 0.0)
    make, off, errors = np.random.default_rng, [], []
    for seed in range(20):
        monkeypatch.setattr(parts.np.random, "default_rng", lambda _, seed=seed: make(seed))
        state = State.of(fit, None, None, judge, WANTED)
        if not parts.tell_by_parts(state, judge):  # all rows are left out, then
            assert state.found.correction is None
            continue
        found, rows = state.found, state.found.refitted
        assert 0 < rows.size < 0.6 * fit.problem.n
        np.testing.assert_allclose(found.eta[rows], exact.eta[rows], atol=1e-3)
        off.append(abs(mean(found, judge) - mean(exact, judge)))
        errors.append(found.correction.error)
    assert len(off) >= 10
    assert np.mean(np.array(off) <= errors) >= 0.85  # at 95 %, fewer have a chance of some 5 %


@pytest.mark.parametrize("name", CASES)
def test_all_rows_leave_nothing(name):
    """Where all rows are solved a sample is the mean itself."""
    fit, judge = of_words(*CASES[name], np.random.default_rng(1), n=150, p=200)
    exact = leave_out(fit, max_error=0.0, yardstick=judge)
    state = State.of(fit, None, None, judge, WANTED)
    frame = np.flatnonzero(judge.weights > 0)
    sample = parts._Sample.of(state, judge, frame)
    off = np.abs(state.found.eta - exact.eta)[frame].mean()
    assert off < np.abs(fit.eta - exact.eta)[frame].mean()  # fits without tenths know more than the fit
    found = sample.correction(sample.drawn(frame.size))
    state.found = replace(state.found, correction=found)
    assert mean(state.found, judge) == pytest.approx(mean(exact, judge), rel=1e-3)
    assert found.error >= abs(mean(state.found, judge) - mean(exact, judge))


def test_rows_are_left_out_on_their_own_where_they_are_asked_for(monkeypatch):
    fit, judge = of_words(*CASES["lasso"], np.random.default_rng(0))
    monkeypatch.setattr(parts, "rough_cost", lambda _: 0.0)
    single = leave_out(fit, None, WANTED, yardstick=judge)
    assert single.correction is None
    together = leave_out(fit, None, WANTED, yardstick=judge, for_bounds=np.inf)
    assert together.correction is not None
    assert together.refinement.rough > 0 == single.refinement.rough


def test_where_half_of_the_rows_tell_too_little_what_needs_no_warning_will_do(monkeypatch):
    fit, judge = of_words(losses.Logistic(), penalties.L1(4.0), np.random.default_rng(0))
    exact = leave_out(fit, max_error=0.0, yardstick=judge)
    own = judge.losses(exact.rows, exact.eta)[judge.weights > 0]
    standard_error = float(own.std(ddof=1) / np.sqrt(own.size))
    monkeypatch.setattr(parts, "rough_cost", lambda _: 0.0)
    state = State.of(fit, None, None, judge, 0.2)
    assert parts.tell_by_parts(state, judge)
    off, error = abs(mean(state.found, judge) - mean(exact, judge)), state.found.correction.error
    assert max(off, 0.25 * standard_error) <= error <= 1.05 * UNRELIABLE * standard_error


def test_tenths_that_were_left_out_before_are_not_again(monkeypatch):
    fit, judge = of_words(*CASES["logistic"], np.random.default_rng(0))
    monkeypatch.setattr(parts, "rough_cost", lambda _: 0.0)
    anew, roughly = [], FitsWithout.left_out_roughly

    def watched(self, fit, curvature, missing, **how):
        anew.extend(missing)
        return roughly(self, fit, curvature, missing, **how)

    monkeypatch.setattr(FitsWithout, "left_out_roughly", watched)
    plain = leave_out(fit, max_error=WANTED, yardstick=judge, for_bounds=np.inf)
    first, *_, last = tenths = parts_of(random_order(fit))
    assert len(anew) == len(tenths)
    apart = np.full(fit.problem.n, np.nan)
    FitsWithout().complete(apart, fit, None, [first, last])
    anew.clear()
    found = leave_out(fit, max_error=WANTED, yardstick=judge, for_bounds=np.inf, apart=apart)
    assert sorted(map(min, anew)) == sorted(map(min, tenths[1:-1]))
    np.testing.assert_allclose(found.eta, plain.eta)
    for one, other in zip(found.correction.drawn, plain.correction.drawn, strict=True):
        np.testing.assert_array_equal(one, other)
    assert found.correction._replace(drawn=None) == plain.correction._replace(drawn=None)
