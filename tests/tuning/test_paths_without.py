"""Paths without each of some sets of rows: refits, each from the one at the strength before."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import onefit
from onefit.fit import Fit
from onefit.leave_out.sets import Folds
from onefit.losses import Logistic, Squared
from onefit.metrics import SquaredError
from onefit.penalties import L1, L2, Box, ElasticNet
from onefit.problem import Problem
from onefit.solvers.solve import solve
from onefit.tuning.judgement import Judgement
from onefit.tuning.paths_without import PathsWithout

PENALTIES = {
    "lasso": L1,
    "net": lambda strength: ElasticNet(strength, 0.7),
    "own factors": lambda strength: L1(strength * np.linspace(0.5, 2.0, 90)),
}


def _folds(n, kind, rng):
    if kind == "groups":  # of several sizes, which do not test all that they remove
        removed = tuple(np.split(rng.permutation(n), [3, 9, 20]))
        return Folds(removed, tuple(rows[:3] for rows in removed), n)
    parts = tuple(np.array_split(rng.permutation(n), 5))
    return Folds(parts, parts, n)


def _problem(rng, store=np.asarray, *, intercept=True):
    X = rng.normal(size=(40, 90)) * (rng.random((40, 90)) < 0.6)
    y = X[:, :4].sum(axis=1) + rng.normal(size=40)
    return Problem(Squared(), L1(1.0), store(X), y, rng.uniform(0.5, 2.0, 40), np.array(intercept))


@pytest.mark.costly
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize(("store", "intercept"), [(np.asarray, True), (sp.csr_array, False)])
@pytest.mark.parametrize("kind", ["folds", "groups"])
def test_values_are_those_of_refits(penalty, store, intercept, kind):
    """From strong penalties down to supports that are as large as the samples without a set."""
    rng = np.random.default_rng(0)
    base, sets = _problem(rng, store, intercept=intercept), _folds(40, kind, rng)
    judgement = Judgement(SquaredError(), base.y, base.weights, sets)
    paths, largest = PathsWithout(judgement), 0
    for strength in np.geomspace(20.0, 0.02, 8):
        problem = Problem(
            base.loss, PENALTIES[penalty](strength), base.X, base.y, base.weights, base.intercept
        )
        found, eta = paths.verdict(Fit.at_start(problem)), np.empty(len(sets.rows))
        for removed, tested, end in zip(sets.removed, sets.tested, sets.ends, strict=True):
            anew = solve(Fit.at_start(problem.without(removed))).fit
            eta[end - len(tested) : end] = anew.eta[tested]
            largest = max(largest, np.count_nonzero(anew.coef))
        exact = judgement.losses_of(sets.rows, eta)
        np.testing.assert_allclose(found.losses, exact, rtol=1e-6, atol=1e-6 * exact.mean())
        assert found.proven
        assert found.error <= 1e-6 * exact.mean()
    assert largest >= 25


def test_others_are_judged_otherwise():
    rng = np.random.default_rng(0)
    base, sets = _problem(rng), _folds(40, "folds", rng)
    others = [
        Problem(Squared(), L2(1.0), base.X, base.y, base.weights),
        Problem(Squared(), Box(0.0, np.inf) + L1(1.0), base.X, base.y, base.weights),
        Problem(Logistic(), L1(1.0), base.X, (base.y > 0).astype(float), base.weights),
        Problem(Squared(), L1(np.append(0.0, np.ones(89))), base.X, base.y, base.weights),  # one is free
    ]
    for problem in others:
        judgement = Judgement(SquaredError(), problem.y, problem.weights, sets)
        assert PathsWithout(judgement).verdict(Fit.at_start(problem)) is None
    assert PathsWithout(Judgement(SquaredError(), base.y, base.weights)).verdict(Fit.at_start(base)) is None


@pytest.mark.parametrize("n", [30, 120])
def test_estimators_have_the_risks_of_refits(n):
    """With copies among the columns, too, of which several fits are optimal."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, 45))
    X[:, 7] = X[:, 3]
    y = X[:, :5].sum(axis=1) + rng.normal(size=n)
    model = onefit.LassoLOO(cv=5, early_stopping=False).fit(X, y)
    parts = np.array_split(np.arange(n), 5)  # as KFold has them
    for j in range(0, len(model.alphas_), 24):
        losses = []
        for part in parts:
            rest = np.delete(np.arange(n), part)
            inner = Problem(Squared(), L1(model.alphas_[j] * len(rest)), X[rest], y[rest], np.ones(len(rest)))
            anew = solve(Fit.at_start(inner)).fit
            losses.append((y[part] - X[part] @ anew.coef - anew.intercept) ** 2)
        assert model.risk_path_[j] == pytest.approx(np.concatenate(losses).mean(), rel=1e-8)
