"""The search along a path: what is visited, what is chosen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from onefit.fit import Fit
from onefit.leave_out import leave_out
from onefit.leave_out.engine import in_passing
from onefit.losses import Logistic, Poisson, Squared
from onefit.metrics import Deviance, LogLoss, SquaredError
from onefit.penalties import L1, L2
from onefit.problem import Problem
from onefit.risk.judging import yardstick
from onefit.risk.means import mean_and_error
from onefit.solvers.solve import solve
from onefit.tuning.grid import Grid
from onefit.tuning.judgement import Judgement
from onefit.tuning.path import Walk, at, search_path, settle
from onefit.tuning.selection import choose, paired_errors

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 8))
Y = X[:, 0] + RNG.normal(size=60)
COUNTS = RNG.poisson(np.exp(0.5 * X[:, 0])).astype(float)


def _lasso(strength):
    return Problem(Squared(), L1(strength), X, Y, np.ones(60), mean_scaled=True)


def _poisson(strength):
    return Problem(Poisson(), L2(strength), X, COUNTS, np.ones(60), mean_scaled=True)


def _text(n, seed):
    """Words by Zipf's law, the rare ones weighted up: many rows are held up by a word of their own."""
    rng = np.random.default_rng(seed)
    topics = rng.normal(size=n)
    words = np.exp(np.outer(topics, 0.7 * rng.normal(size=1500))) / np.arange(3, 1503)
    counts = rng.poisson(40 * words / words.sum(axis=1, keepdims=True)).astype(float)
    counts = counts[:, counts.sum(axis=0) > 0]
    counts *= np.log(n / (counts > 0).sum(axis=0))
    return counts / np.linalg.norm(counts, axis=1, keepdims=True), topics + 0.3 * rng.normal(size=n)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_rise_that_only_the_steps_see_does_not_end_the_path(seed):
    words, y = _text(60, seed)
    ones = np.ones(len(y))

    def problem_at(strength):
        return Problem(Squared(), L1(strength), words, y, ones, mean_scaled=True)

    null = np.abs(Fit.at_start(problem_at(1.0)).loss_gradient).max()
    strengths = np.geomspace(null, 0.04 * null, 20)
    result = search_path(Grid(strengths), problem_at, Judgement(SquaredError(), y, ones))
    result, _, left_out = settle(result, problem_at, Judgement(SquaredError(), y, ones), "min")
    refits = [
        np.mean((y - leave_out(solve(Fit.at_start(problem_at(s))).fit, max_error=0.0).eta) ** 2)
        for s in strengths
    ]
    assert np.isfinite(left_out.bounds).all()
    assert refits[result.best] < 1.05 * min(refits)
    assert result.risks[result.best] == pytest.approx(refits[result.best], rel=0.05)


@pytest.mark.parametrize(
    ("problem_at", "metric", "target"), [(_lasso, SquaredError(), Y), (_poisson, Deviance(Poisson()), COUNTS)]
)
def test_each_point_is_a_fit_and_its_risk(problem_at, metric, target):
    strengths = np.geomspace(40.0, 0.5, 6)
    result = search_path(
        Grid(strengths), problem_at, Judgement(metric, target, np.ones(60)), early_stopping=False
    )
    for j, strength in enumerate(strengths):
        solution = solve(Fit.at_start(problem_at(strength)))
        np.testing.assert_allclose(result.coefs[j], solution.fit.coef, atol=1e-8)
        judge = yardstick(metric, target, np.ones(60))
        if j in result.thorough:  # a strength that was judged with care
            left_out = leave_out(solution.fit, curvature=solution.curvature, yardstick=judge)
        else:
            left_out = in_passing(*solution, judge)
        losses = metric.losses(target, left_out.eta)
        np.testing.assert_allclose(result.losses[:, j], losses, rtol=1e-6, atol=1e-10)
        assert (result.risks[j], result.std_errors[j]) == pytest.approx(mean_and_error(losses, np.ones(60)))
    fit, left_out = at(
        problem_at(strengths[result.best]), result, result.best, Judgement(metric, target, np.ones(60))
    )
    np.testing.assert_allclose(fit.coef, result.coefs[result.best], atol=1e-8)
    assert metric.losses(target, left_out.eta).mean() == pytest.approx(result.risks[result.best], rel=0.02)


@pytest.mark.parametrize("selection", ["min", "1se"])
def test_an_exchange_of_losses_reaches_all_that_follows_from_them(selection):
    strengths, ones = np.geomspace(40.0, 0.5, 6), np.ones(60)
    found = search_path(
        Grid(strengths), _lasso, Judgement(SquaredError(), Y, ones), selection=selection, early_stopping=False
    )
    losses = found.losses.copy()
    losses[:, 1] *= 0.1  # a new minimum
    exchanged = found.corrected(1, losses[:, 1], ones, selection)
    np.testing.assert_allclose(exchanged.risks, losses.mean(axis=0))
    np.testing.assert_allclose(exchanged.paired_errors, paired_errors(losses, ones, 1))
    assert exchanged.best == choose(exchanged.risks, exchanged.paired_errors, selection)
    assert found.risks[1] == pytest.approx(found.losses[:, 1].mean())  # the first result is as it was


def test_the_path_stops_only_when_it_is_clearly_worse():
    weights = np.ones(50)
    rows = np.random.default_rng(1).normal(size=50)
    rows += 0.05 - rows.mean()
    walk = Walk(Grid(np.ones(1)))
    for rise in [0.0, 0.01, 0.01, 0.01, 0.01]:  # within the noise, and not yet far enough
        walk.add(Fit.at_start(_lasso(1.0)), rows**2 + rise * rows, weights)
        assert not walk.seems_past_minimum(weights)
    walk.add(Fit.at_start(_lasso(1.0)), rows**2 + 0.5 * rows, weights)
    assert not walk.seems_past_minimum(weights)  # far enough, and a rise that the rows disagree on
    walk.add(Fit.at_start(_lasso(1.0)), rows**2 + 1.0, weights)
    assert walk.seems_past_minimum(weights)
    walk.correct(rows**2 - 1.0, weights)  # the rise was that of the steps alone
    assert walk.misjudged
    assert not walk.seems_past_minimum(weights)


def test_settle_chooses_on_corrected_risks():
    strengths = np.array([20.0, 8.0, 3.0])
    result = search_path(
        Grid(strengths), _lasso, Judgement(SquaredError(), Y, np.ones(60)), early_stopping=False
    )
    spoilt = replace(result, risks=np.array([result.risks[0], 1e-3, result.risks[2]]), best=1)
    settled, fit, left_out = settle(spoilt, _lasso, Judgement(SquaredError(), Y, np.ones(60)), "min")
    assert settled.best == int(np.argmin(result.risks))
    np.testing.assert_allclose(settled.risks, result.risks, rtol=0.03)  # the mistake is gone
    np.testing.assert_allclose(fit.coef, result.coefs[settled.best], atol=1e-8)
    assert SquaredError().losses(Y, left_out.eta).mean() == pytest.approx(settled.risks[settled.best])


def test_a_rough_path_is_probed_beyond_its_minimum():
    # few rows, many columns, a logistic lasso: steps on the pattern of the fit go too far, ever more so
    # where the penalty is weak, so that the path alone chooses too strong a penalty
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(40, 120))
    labels = (Z[:, :3].sum(axis=1) + 0.5 * rng.normal(size=40) > 0).astype(float)

    def problem_at(strength):
        return Problem(Logistic(), L1(strength), Z, labels, np.ones(40))

    metric, ones = LogLoss(np.arange(2)), np.ones(40)
    strengths = np.geomspace(8.0, 0.05, 12)
    rough = search_path(Grid(strengths), problem_at, Judgement(metric, labels, ones), early_stopping=False)
    settled, _, left_out = settle(rough, problem_at, Judgement(metric, labels, ones), "min")
    assert settled.risks[settled.best] == pytest.approx(metric.losses(labels, left_out.eta).mean())
    refits = [
        [solve(Fit.at_start(problem_at(s).without(i))).fit.eta[i] for i in range(40)] for s in strengths
    ]
    exact = [metric.losses(labels, np.array(eta)).mean() for eta in refits]
    assert exact[settled.best] <= exact[rough.best]
    assert exact[settled.best] <= 1.1 * min(exact)
