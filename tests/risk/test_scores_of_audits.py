"""Scores of a model without a formula, of which an audit has refitted some rows."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import onefit

ROWS, DRAWN, DRAWS = 60, 25, 40


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, 4))
    return X, X[:, 0] + rng.normal(size=ROWS)


def _by_refits(model, X, y, method):
    keep = ~np.eye(len(y), dtype=bool)
    each = [getattr(clone(model).fit(X[k], y[k]), method)(X[[i]])[0] for i, k in enumerate(keep)]
    return np.array(each)


def test_means_are_those_of_all_refits_on_average(table):
    X, y = table
    model = DecisionTreeRegressor(max_depth=5, random_state=0).fit(X, y)
    exact = r2_score(y, _by_refits(model, X, y, "predict"))
    drawn = [onefit.loo(model, X, y, audit=DRAWN, rng=seed) for seed in range(DRAWS)]
    for one in drawn[:3]:
        assert one.score("mse") == pytest.approx(one.value)
    found, errors = np.array([one.score("r2", error=True) for one in drawn]).T
    assert abs(found.mean() - exact) <= 3.0 * found.std() / np.sqrt(DRAWS)
    assert np.mean(np.abs(found - exact) <= 2.0 * errors) >= 0.8
    assert model.score(X, y) > exact + 0.5  # what it would be by rows that were seen


def test_ranks_are_those_of_refitted_rows(table):
    X, y = table[0], (table[1] > 0).astype(int)
    model = DecisionTreeClassifier(max_depth=4, random_state=0).fit(X, y)
    exact = roc_auc_score(y, _by_refits(model, X, y, "predict_proba")[:, 1])
    drawn = [onefit.loo(model, X, y, audit=DRAWN, rng=seed) for seed in range(DRAWS)]
    one, rows = drawn[0], drawn[0].audit.rows
    assert one.score("auc") == pytest.approx(
        roc_auc_score(y[rows], one.predictions[rows, 1], sample_weight=1.0 / one.sampled.chances)
    )
    found = np.array([one.score("auc") for one in drawn])
    assert abs(found.mean() - exact) <= 0.05
    assert roc_auc_score(y, model.predict_proba(X)[:, 1]) > exact + 0.2


def test_roots_and_scorers_of_ones_own(table):
    X, y = table
    model = DecisionTreeRegressor(random_state=0).fit(X, y)
    exact = np.sqrt(np.mean((y - _by_refits(model, X, y, "predict")) ** 2))
    drawn = [onefit.loo(model, X, y, audit=DRAWN, rng=seed) for seed in range(10)]
    assert np.mean([one.score("rmse") for one in drawn]) == pytest.approx(exact, rel=0.1)
    rows = drawn[0].audit.rows
    found = drawn[0].score(lambda estimator, X, y: -np.abs(estimator.predict(X) - y).max())
    assert found == -np.abs(drawn[0].predictions[rows] - y[rows]).max()
