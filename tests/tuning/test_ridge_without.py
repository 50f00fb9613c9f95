"""Ridge paths by folds, groups and scores from one eigendecomposition: those of refits."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Ridge
from sklearn.metrics import mean_absolute_error
from sklearn.model_selection import KFold, LeaveOneGroupOut, LeaveOneOut, RepeatedKFold, ShuffleSplit

from onefit import GeneralizedLinearLOO, LassoLOO, RidgeLOO
from onefit.leave_out.sets import Folds
from onefit.losses import Squared
from onefit.penalties import L2
from onefit.problem import Problem
from onefit.tuning.ridge_spectrum import RidgeSpectrum
from onefit.tuning.ridge_without import RidgeWithoutSets

ALPHAS = np.array([1e3, 1.0, 1e-3])
SPLITTERS = {
    "folds": KFold(5),
    "pairs": None,  # as groups
    "draws": ShuffleSplit(4, test_size=0.3, random_state=0),
    "repeated": RepeatedKFold(n_splits=4, n_repeats=2, random_state=0),
}
pytestmark = pytest.mark.filterwarnings("ignore::onefit.exceptions.ShortPathWarning")


def sample(n, p, outputs=()):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p)) * rng.uniform(0.3, 3.0, p) + 0.5
    y = rng.normal(size=(n, *outputs)) + X[:, :2].sum(axis=1).reshape(-1, *(1,) * len(outputs))
    return X, y, rng


def refitted(X, y, weights, splits, alpha, *, fit_intercept=True, loss=np.square):
    """Mean loss of rows that refits did not see."""
    losses, counts = [], []
    for train, test in splits:
        own = None if weights is None else weights[train]
        model = Ridge(alpha, fit_intercept=fit_intercept, solver="svd").fit(X[train], y[train], own)
        error = loss(y[test] - model.predict(X[test]))
        losses.append(error.reshape(len(test), -1).mean(axis=1))
        counts.append(np.ones(len(test)) if weights is None else weights[test])
    return np.average(np.concatenate(losses), weights=np.concatenate(counts))


@pytest.mark.parametrize("shape", [(40, 5), (30, 60), (25, 24)])
@pytest.mark.parametrize("how", SPLITTERS)
@pytest.mark.parametrize("weigh", [None, "unequal", "some zero"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("outputs", [(), (2,)])
def test_risks_are_those_of_refits(shape, how, weigh, fit_intercept, outputs):
    X, y, rng = sample(*shape, outputs)
    n = len(X)
    weights = {None: None, "unequal": rng.uniform(0.5, 2.0, n), "some zero": rng.integers(0, 3, n) * 1.0}[
        weigh
    ]
    groups = np.arange(n) // 2 if how == "pairs" else None
    model = RidgeLOO(ALPHAS, cv=SPLITTERS[how], fit_intercept=fit_intercept, selection="min")
    model.fit(X, y, sample_weight=weights, groups=groups)
    splitter = SPLITTERS[how] or LeaveOneGroupOut()
    splits = list(splitter.split(X, y, groups))
    expected = [refitted(X, y, weights, splits, alpha, fit_intercept=fit_intercept) for alpha in ALPHAS]
    np.testing.assert_allclose(model.risk_path_, expected, rtol=1e-7)
    assert np.all(model.approx_error_path_ < 1e-3 * model.risk_path_)
    np.testing.assert_allclose(model.loo_.value, model.risk_path_[model.alpha_ == ALPHAS][0], rtol=1e-9)


def test_sparse_rows():
    X, y, _ = sample(40, 6)
    X[np.abs(X) < 1.0] = 0.0
    dense, sparse = (RidgeLOO(ALPHAS, cv=4).fit(own, y) for own in (X, sp.csr_array(X)))
    np.testing.assert_allclose(sparse.risk_path_, dense.risk_path_, rtol=1e-9)


@pytest.mark.parametrize("shape", [(40, 5), (30, 60)])
def test_scores_of_single_rows(shape):
    X, y, _ = sample(*shape)
    model = RidgeLOO(ALPHAS, scoring="neg_mean_absolute_error", selection="min").fit(X, y)
    splits = list(LeaveOneOut().split(X))
    expected = [refitted(X, y, None, splits, alpha, loss=np.abs) for alpha in ALPHAS]
    np.testing.assert_allclose(model.risk_path_, expected, rtol=1e-7)
    assert mean_absolute_error(y, model.predict(X)) < min(expected)


@pytest.mark.parametrize("shape", [(20, 19), (30, 10), (24, 40)])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("alpha", [1e2, 1e-2, 1e-6])
def test_both_ways_are_within_their_rounding(shape, fit_intercept, alpha, monkeypatch):
    rng = np.random.default_rng(1)
    X = rng.normal(size=shape) * 10.0 ** rng.uniform(-3, 2, shape[1])
    y, sets = rng.normal(size=len(X)), np.arange(len(X)).reshape(-1, 2)
    problem = Problem(Squared(), L2(1.0), X, y, np.ones(len(X)), np.array(fit_intercept))
    expected = np.empty(len(X))
    for rows in sets:
        stay = np.setdiff1d(np.arange(len(X)), rows)
        means, level = X[stay].mean(axis=0) * fit_intercept, y[stay].mean() * fit_intercept
        stacked = np.vstack([X[stay] - means, np.sqrt(alpha) * np.eye(X.shape[1])])
        target = np.concatenate([y[stay] - level, np.zeros(X.shape[1])])
        coef = np.linalg.lstsq(stacked, target, rcond=1e-16)[0]
        expected[rows] = level + (X[rows] - means) @ coef
    for anew in (True, False):
        monkeypatch.setattr(RidgeWithoutSets, "_is_anew", anew)
        found = RidgeWithoutSets(RidgeSpectrum(problem), Folds(sets, sets, len(X)), 1).left_out(alpha)
        assert np.all(np.abs(found.eta - expected) <= found.bounds + 1e-10 * np.abs(expected).max())


def test_a_set_that_alone_fixes_a_direction_is_refitted():
    X, y, _ = sample(12, 3)
    X[:, 2] = 0.0
    X[:2, 2] = [1.0, 2.0]
    model = RidgeLOO([1e-12], selection="min", fit_intercept=False).fit(X, y, groups=np.arange(12) // 2)
    splits = list(LeaveOneGroupOut().split(X, y, np.arange(12) // 2))
    np.testing.assert_allclose(
        model.risk_path_[0], refitted(X, y, None, splits, 1e-12, fit_intercept=False), rtol=1e-6
    )


def test_a_path_goes_on_while_the_risk_falls():
    X, y, _ = sample(40, 5)
    y = y + 10.0 * X[:, 0]
    start = RidgeLOO(cv=5).fit(X, y)
    by_rows = RidgeLOO().fit(X, y)
    assert start.alphas_.max() >= start.alpha_ >= start.alphas_.min()
    assert abs(np.log10(start.alpha_ / by_rows.alpha_)) < 2


@pytest.mark.parametrize("model", [RidgeLOO, LassoLOO])
def test_leave_one_out_of_scikit_learn_is_the_default(model):
    X, y, _ = sample(40, 5)
    default, named = model().fit(X, y), model(cv=LeaveOneOut()).fit(X, y)
    assert named.alpha_ == default.alpha_
    np.testing.assert_array_equal(named.risk_path_, default.risk_path_)


def test_squares_take_no_offset():
    X, y, _ = sample(40, 5)
    with pytest.raises(ValueError, match="subtract it from y"):
        GeneralizedLinearLOO("squared", L2()).fit(X, y, offset=np.ones(40))
