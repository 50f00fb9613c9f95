"""Paths that pass over strengths between which the risk is smooth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import onefit
from onefit.fit import Fit
from onefit.losses import Logistic, Multinomial, Poisson
from onefit.metrics import Deviance, LogLoss
from onefit.penalties import L2
from onefit.problem import Problem
from onefit.solvers.solve import solve
from onefit.tuning.grid import SMOOTH, Grid
from onefit.tuning.judgement import Judgement
from onefit.tuning.looks import Looks
from onefit.tuning.race import race
from onefit.tuning.walk import search_path

N, P = 120, 6
STRENGTHS = np.geomspace(1e3, 1e-5, 30)
COARSE = Grid(STRENGTHS, automatic=True, apart=SMOOTH)


def _sample(seed, loss):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, P))
    X -= X.mean(axis=0)
    eta = X[:, 0] - 0.5 * X[:, 1]
    if isinstance(loss, Poisson):
        return X, rng.poisson(np.exp(0.5 * eta)).astype(float), Deviance(loss)
    if isinstance(loss, Multinomial):
        y = (eta[:, None] + rng.logistic(size=(N, 1)) > np.array([-1.0, 1.0])).sum(axis=1)
        return X, y.astype(float), LogLoss(np.arange(3))
    return X, (eta + rng.logistic(size=N) > 0).astype(float), LogLoss(np.arange(2))


def _path(seed, loss, weights=None):
    X, y, metric = _sample(seed, loss)
    weights = np.ones(N) if weights is None else weights
    intercept = np.ones(3 if isinstance(loss, Multinomial) else (), dtype=bool)

    def problem_at(strength):
        return Problem(loss, L2(strength), X, y, weights, intercept)

    return problem_at, Looks(Judgement(metric, y, weights))


LOSSES = pytest.mark.parametrize("loss", [Logistic(), Poisson(), Multinomial(3)], ids=repr)


@LOSSES
def test_what_is_visited_is_near_enough_and_an_optimum(loss):
    problem_at, looks = _path(0, loss)
    walked = search_path(COARSE, problem_at, looks, selection="bagged_se")
    visited = np.flatnonzero(walked.is_visited)
    assert 8 <= visited.size <= 18
    assert visited[0] == 0
    assert visited[-1] == len(walked.strengths) - 1
    assert np.diff(visited).max() == 3
    least = visited[walked.risks[visited].argmin()]
    assert {max(least - 1, 0), least, min(least + 1, 29)} <= set(visited.tolist())
    for j in visited:
        fit = solve(Fit.at_start(problem_at(float(walked.strengths[j])))).fit
        np.testing.assert_allclose(walked.coefs[j], fit.coef, atol=1e-7)
    assert np.isnan(walked.coefs[~walked.is_visited]).all()


@pytest.mark.costly
@LOSSES
@pytest.mark.parametrize("selection", ["bagged_se", "bagged", "min", "1se"])
def test_the_choice_is_about_that_of_all_strengths(loss, selection):
    weights = np.random.default_rng(1).uniform(0.5, 2.0, size=N)
    off = []
    for seed in range(4):
        problem_at, looks = _path(seed, loss, weights)
        ends = {}
        for name, grid in {"all": replace(COARSE, apart=0.0), "coarse": COARSE}.items():
            walked = search_path(grid, problem_at, looks, selection=selection)
            result, left_out = race(walked, problem_at, looks, selection)
            result = result.visited()
            assert not np.isnan(result.levels).any()
            np.testing.assert_allclose(result.coefs[result.best], left_out.fit.coef, atol=1e-7)
            ends[name] = looks.judgement.losses(left_out)
        difference = ends["coarse"] - ends["all"]
        off.append(np.average(difference, weights=weights) / np.average(ends["all"], weights=weights))
    assert abs(np.mean(off)) < 0.01
    assert np.max(np.abs(off)) < 0.03


def test_the_smallest_risk_is_that_of_all_strengths():
    problem_at, looks = _path(3, Logistic())
    every = search_path(replace(COARSE, apart=0.0), problem_at, looks, selection="min")
    some = search_path(COARSE, problem_at, looks, selection="min")
    risks = {j: some.risks[j] for j in np.flatnonzero(some.is_visited)}
    assert min(risks.values()) == pytest.approx(every.risks.min(), rel=1e-6)
    for j, risk in risks.items():
        assert risk == pytest.approx(every.risks[j], rel=1e-3)


def test_places_stay_those_of_the_contest():
    problem_at, looks = _path(0, Logistic())
    walked = search_path(COARSE, problem_at, looks, selection="bagged_se")
    result, _ = race(walked, problem_at, looks, "bagged_se")
    small = result.visited()
    np.testing.assert_array_equal(small.strengths, result.strengths[small.places])
    assert small.places[small.best] == result.best
    assert small.strengths[small.best] == result.strengths[result.best]
    np.testing.assert_array_equal(small.losses, result.losses[:, small.places])
    assert small.places[small.best] in next(small.contests.each()).confidence_set()


def test_a_path_goes_on_where_the_risk_falls_at_its_end():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 4))
    y = (X[:, 0] + 0.1 * rng.normal(size=80) > 0).astype(float)
    looks = Looks(Judgement(LogLoss(np.arange(2)), y, np.ones(80)))

    def problem_at(strength):
        return Problem(Logistic(), L2(strength), X, y, np.ones(80))

    walked = search_path(Grid(np.geomspace(1e3, 10.0, 8), automatic=True, apart=SMOOTH), problem_at, looks)
    assert walked.strengths[-1] < 1.0
    assert walked.is_visited[-1]
    y[:] = rng.permutation(y)
    walked = search_path(Grid(np.geomspace(1.0, 0.01, 8), automatic=True, apart=SMOOTH), problem_at, looks)
    assert walked.strengths[0] > 10.0
    assert walked.is_visited[0]


@pytest.mark.costly
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("l1_ratio", [0.0, 1.0, [0.0, 0.5]])
def test_an_estimator_tells_of_what_it_visited(classes, l1_ratio):
    X, y, _ = _sample(0, Logistic() if classes == 2 else Multinomial(3))
    model = onefit.LogisticLOO(l1_ratio=l1_ratio).fit(X, y)
    J = len(model.Cs_)
    assert model.C_ in model.Cs_
    assert model.C_ in model.confidence_set_
    assert set(model.confidence_set_) <= set(model.Cs_)
    assert np.all(np.diff(model.Cs_) > 0)
    for name in ("risk_path_", "std_error_path_", "paired_error_path_", "coef_path_", "intercept_path_"):
        assert len(getattr(model, name)) == J
        assert np.isfinite(getattr(model, name)).all()
    np.testing.assert_allclose(model.coef_path_[model.Cs_ == model.C_][0].T.ravel(), model.coef_.ravel())
    if np.ndim(l1_ratio) == 0:
        assert J < 25
        every = onefit.LogisticLOO(l1_ratio=l1_ratio, early_stopping=False).fit(X, y)
        assert len(every.Cs_) >= 30
        assert model.loo_.value == pytest.approx(every.loo_.value, rel=0.02)
        given = onefit.LogisticLOO(l1_ratio=l1_ratio, Cs=np.geomspace(1e-3, 1e2, 20)).fit(X, y)
        assert np.diff(np.log10(given.Cs_)).max() == pytest.approx(5 / 19)
