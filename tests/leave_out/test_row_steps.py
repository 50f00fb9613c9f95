"""Steps towards refits that are told by the rows alone."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from onefit.fit import Fit
from onefit.leave_out import leave_out
from onefit.leave_out.blocks import Blocks
from onefit.leave_out.engine import begin, leave_some_out
from onefit.leave_out.forms import WithoutFolds
from onefit.leave_out.leads import Leads
from onefit.leave_out.sets import Folds
from onefit.leave_out.stages import State
from onefit.losses import Logistic, Multinomial, Poisson
from onefit.metrics import LogLoss
from onefit.penalties import L2
from onefit.problem import Problem
from onefit.risk.judging import yardstick
from onefit.solvers.solve import solve, solve_path

N = 90


def fitted(classes: int) -> Fit:
    rng = np.random.default_rng(0)
    X = sp.random(N, 100 if classes > 2 else 200, density=0.2, format="csr", random_state=0)
    y = rng.integers(0, classes, N).astype(float)
    loss = Multinomial(classes) if classes > 2 else Logistic()
    intercept = np.ones(classes, dtype=bool) if classes > 2 else np.array(True)
    return solve(Fit.at_start(Problem(loss, L2(0.02), X, y, np.ones(N), intercept))).fit


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("classes", [2, 3])
def test_sets_that_have_settled_are_left_behind_and_end_at_their_refits(classes, size, monkeypatch):
    fit, seen, respond = fitted(classes), [], WithoutFolds.respond

    def watched(self, rows):
        seen.append(rows.shape[-1])
        return respond(self, rows)

    monkeypatch.setattr(WithoutFolds, "respond", watched)
    sets = tuple(np.arange(N).reshape(-1, size))
    blocks = Blocks.of(fit, None, Folds(sets, sets, N))
    blocks.step()
    blocks.iterate(np.arange(len(sets)), 1.0)
    assert seen[0] == np.count_nonzero(blocks.reached)
    assert 0 < seen[-1] < seen[0]
    ended = list(blocks.ends)
    assert len(ended) > 0.7 * seen[0]
    for k in ended[::5]:
        refit = solve(Fit(fit.problem.without(sets[k]), fit.coef, fit.intercept)).fit
        np.testing.assert_allclose(
            blocks.eta[blocks.folds.place(k)], refit.eta[sets[k]], rtol=1e-6, atol=1e-6
        )


@pytest.mark.parametrize("weighted", [False, True])
def test_where_a_penalty_shrinks_steps_begin_with_the_factor_of_a_refit_and_bounds_hold(weighted):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5))
    y = rng.poisson(np.exp(0.5 * X[:, 0])).astype(float)
    weights = rng.uniform(0.2, 3.0, 60) if weighted else np.ones(60)
    fit, K = solve(Fit.at_start(Problem(Poisson(), L2(5.0), X, y, weights, mean_scaled=True)))
    state = State.of(fit, None, K, None, 0.1)
    state.repeat_steps(np.arange(60))
    assert len(state.found.stepped) == 60
    if not weighted:
        assert next(iter(state._singles.curvatures.values()))[0] is state.step.curvature
    refits = [solve(Fit(fit.problem.without(i), fit.coef, fit.intercept)).fit.eta[i] for i in range(60)]
    assert np.all(np.abs(state.found.eta - refits) <= state.found.bounds + 1e-9)
    assert np.max(state.found.bounds) < 1e-3


@pytest.mark.parametrize("weighted", [False, True])
def test_steps_that_are_short_for_want_of_curvature_have_not_settled(weighted):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(200, 3)), np.zeros(200)])
    y = (X[:, 0] + rng.logistic(size=200) > 0).astype(float)
    X[:2, 3], y[:2] = 10.0, (0.0, 1.0)  # without either the other is all that its column tells
    weights = np.ones(200)
    if weighted:
        weights[2:] = rng.uniform(0.5, 2.0, 198)
    fits = solve_path(
        Problem(Logistic(), L2(strength), X, y, weights, np.array(True))
        for strength in np.geomspace(1e-3, 1e-5, 5)
    )
    judge, leads, claimed = yardstick(LogLoss(np.array([0, 1])), y, weights), None, 0
    for fit, K in fits:
        state = begin(fit, K, judge)
        state.leads = leads
        found, exact = leave_some_out(state, np.arange(2), judge), leave_out(fit, max_error=0.0)
        leads = Leads.of(exact)
        off = np.abs(judge.losses(np.arange(2), found.eta) - judge.losses(np.arange(2), exact.eta[:2]))
        assert np.all(off <= 3.0 * found.off + 1e-6)
        claimed += np.all(np.isfinite(found.off))
    assert claimed == 5
