"""Refits without a row by exchanges of the pattern, against refits by the solver and the certificates."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from builders import without
from onefit import _linalg
from onefit.curvature import Direction
from onefit.fit import Fit
from onefit.leave_out import optimality
from onefit.leave_out.follow import Paths
from onefit.leave_out.follow_lasso import leave_out_by_exchange
from onefit.leave_out.patterns import bound_of_patterns
from onefit.leave_out.step import one_step
from onefit.leave_out.tableau import Watched
from onefit.leave_out.ways import Way, ways
from onefit.losses import Squared
from onefit.penalties import L1, ElasticNet
from onefit.problem import Problem
from onefit.solvers.solve import solve


def _data(n=40, p=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) + 0.7 * rng.normal(size=(n, 1))
    return X, X[:, :5] @ rng.normal(size=5) + rng.normal(size=n)


def _fit(X, y, penalty, weights=None, fit_intercept=True, mean_scaled=True):
    weights = np.ones(len(y)) if weights is None else weights
    problem = Problem(Squared(), penalty, X, y, weights, np.array(fit_intercept), mean_scaled)
    return solve(Fit.at_start(problem)).fit


def _check(fit, rows=None, most_unsolved=0.0):
    """Every end that is called solved is the refit; at most a share of them is not."""
    rows = np.flatnonzero(fit.problem.weights) if rows is None else rows
    ends = leave_out_by_exchange(Watched.of(fit), rows)
    assert np.mean(~ends.solved) <= most_unsolved
    for place in np.flatnonzero(ends.solved):
        refit = without(fit, int(rows[place]))
        coef = np.zeros(fit.coef.size)
        coef[ends.columns] = ends.coef[place]
        eta = fit.problem.linear_predictor(coef, ends.intercept[place])
        np.testing.assert_allclose(eta, refit.eta, atol=1e-8 * np.abs(refit.eta).max())
    return ends


@pytest.mark.parametrize("penalty", [L1(8.0), L1(2.0), ElasticNet(10.0, 0.5)], ids=repr)
@pytest.mark.parametrize("mean_scaled", [True, False])
def test_every_row(penalty, mean_scaled, weigh, fit_intercept):
    X, y = _data()
    ends = _check(_fit(X, y, penalty, weigh(40), fit_intercept, mean_scaled), most_unsolved=0.1)
    assert ends.exchanges.max() > 1


def test_rows_start_from_where_they_went_before_where_that_is_nearer():
    """Near the sample rows go round from the pattern of the fit, while few columns come and go on a path."""
    X, y = _data(40, 200)
    strong, weak = (_fit(X, y, L1(strength)) for strength in (0.4, 0.3))
    assert weak.tangent.size > 30
    before, rows = _check(strong), np.arange(40)
    leads = {}
    for i in rows[before.came].tolist():
        coef = np.zeros(200)
        coef[before.columns] = before.coef[i]
        leads[i] = Direction(coef, before.intercept[i])
    alone, led = _check(weak), leave_out_by_exchange(Watched.of(weak), rows, leads)
    both = alone.solved & led.solved
    assert led.solved.sum() >= alone.solved.sum() > 30
    np.testing.assert_allclose(led.own[both], alone.own[both], atol=1e-8 * np.abs(weak.eta).max())
    assert led.exchanges.sum() < 0.5 * alone.exchanges.sum()


def test_in_every_storage(store):
    X, y = _data()
    _check(_fit(store(X), y, L1(4.0)))


def _words(n=60, p=200, seed=0):
    """Rare words: many are in a single row, and some always come together."""
    rng = np.random.default_rng(seed)
    X = rng.poisson(1.2 / np.arange(2, p + 2) ** 0.7, size=(n, p)).astype(float)
    X[:, 50:60] = X[:, 60:70]
    X[:, 70:75] = -X[:, 75:80]
    X[np.arange(5), 190 + np.arange(5)] = 1.0
    kept = X[:, np.abs(X).sum(axis=0) > 0]
    y = kept[:, :30] @ rng.normal(size=30) + rng.normal(size=n)
    y[:5] += 20.0  # which only words of their own explain
    return kept, y


@pytest.mark.parametrize("share", [0.3, 0.1, 0.03])
@pytest.mark.parametrize("seed", [0, 2])
def test_words_of_one_row_and_words_that_come_together(share, seed):
    X, y = _words(seed=seed)
    null = np.abs((X - X.mean(axis=0)).T @ (y - y.mean())).max()
    fit = _fit(sp.csr_array(X), y, L1(share * null))
    ends = _check(fit, most_unsolved=0.1)  # words that come together but in the removed row leave it open
    alone = one_step(fit).slack < 1e-8
    assert share > 0.03 or np.any(alone & ends.solved)


def test_in_blocks(monkeypatch):
    X, y = _data()
    monkeypatch.setattr(_linalg, "BLOCK_SIZE", 100)
    _check(_fit(X, y, L1(4.0)))


def test_sparse_data_with_a_strength_for_each_column():
    X, y = _data()
    X[np.abs(X) < 0.8] = 0.0
    strengths = np.linspace(2.0, 8.0, 60)
    strengths[:3], strengths[-5:] = 0.0, np.inf
    ends = _check(_fit(sp.csr_array(X), y, L1(strengths)))
    assert np.all(ends.columns < 55)


def test_rows_whose_certificate_holds_need_no_exchange():
    X, y = _data()
    fit = _fit(X, y, L1(8.0))
    certified = np.isfinite(bound_of_patterns(fit, one_step(fit).eta))
    ends = _check(fit)
    assert certified.any()
    assert not ends.exchanges[certified].any()
    assert ends.exchanges[~certified].all()


def test_columns_that_join_late_are_found():
    X, y = _data(n=30, p=200, seed=4)
    y[3] += 30.0  # without this row all is different
    fit = _fit(X, y, L1(20.0))
    _check(fit, np.array([3, 4]))


def test_copies_of_columns_and_constant_ones():
    X, y = _data()
    X[:, 10], X[:, 11] = X[:, 0], 1.0
    _check(_fit(X, y, L1(4.0)), most_unsolved=0.2)


def test_supports_as_large_as_the_number_of_rows_are_left_to_a_solver():
    X, y = _data(n=20, p=60)
    fit = _fit(X, y, L1(1e-4))
    assert np.count_nonzero(fit.coef) >= 18
    _check(fit, most_unsolved=1.0)


def test_nothing_in_the_model():
    X, y = _data()
    ends = _check(_fit(X, y, L1(1e4)))
    assert not ends.coef.any()


@pytest.mark.parametrize("penalty", [L1(4.0), L1(0.5), ElasticNet(4.0, 0.5)], ids=repr)
def test_one_coordinate_at_a_time_leads_there_too(penalty, monkeypatch):
    X, y = _data(n=50, p=40)
    fit = _fit(X, y, penalty)
    together = _check(fit)
    none = lambda models: models._at_start(np.arange(models.start.shape[1]))[0]  # noqa: E731
    monkeypatch.setattr("onefit.leave_out.exchange.QuadraticModels._exchange", none)
    alone = _check(fit)
    assert np.all(alone.exchanges[together.exchanges > 0] > 0)
    np.testing.assert_allclose(
        alone.coef @ X[:, alone.columns].T, together.coef @ X[:, together.columns].T, atol=1e-8
    )


def test_no_rows():
    X, y = _data()
    watched = Watched.of(_fit(X, y, L1(4.0)))
    assert leave_out_by_exchange(watched, np.empty(0, dtype=np.intp)).coef.shape[0] == 0


def test_where_a_path_ends_without_a_proof_a_refit_starts():
    X, y = _words(seed=2)
    null = np.abs((X - X.mean(axis=0)).T @ (y - y.mean())).max()
    fit = _fit(sp.csr_array(X), y, L1(0.03 * null))
    found = Paths(fit).follow(np.arange(len(y)))
    assert found.solved
    assert found.near
    for i, end in found.near.items():
        refit = without(fit, i)
        there = Fit(fit.problem.without(i), end.coef, end.intercept)
        np.testing.assert_allclose(there.objective, refit.objective, rtol=1e-9)


def test_rows_that_are_followed_later_find_the_columns_that_joined_before():
    X, y = _data(n=30, p=200, seed=4)
    y[3] += 30.0
    watched = Watched.of(_fit(X, y, L1(20.0)))
    before = len(watched.columns)
    leave_out_by_exchange(watched, np.array([3]))
    assert len(watched.columns) > before
    ends = leave_out_by_exchange(watched, np.array([4]))
    assert ends.solved.all()
    assert len(ends.columns) == len(watched.columns)


@pytest.mark.parametrize("weights", ["equal", "unequal"])
def test_elastic_nets_are_followed_where_all_rows_share_a_tableau(weights):
    X, y = _data()
    drawn = np.random.default_rng(1).uniform(0.5, 2.0, 40) if weights == "unequal" else np.ones(40)
    fit = _fit(X, y, ElasticNet(10.0, 0.5), drawn)
    assert ways(fit)[0][1] == (Way.FOLLOW if weights == "equal" else Way.ITERATE)


def _some_ends(fit, columns, rows):
    """No optima but in the intercept, some near the fit and some far: coefficients, intercepts, slopes."""
    X, y, weights = fit.problem.X, fit.problem.y, fit.problem.weights
    coef = np.repeat(fit.coef[None, columns], len(rows), axis=0)
    coef[len(rows) // 2 :] *= np.random.default_rng(0).uniform(0.5, 1.5, coef[len(rows) // 2 :].shape)
    held = np.where(np.arange(len(y))[:, None] == rows, 0.0, weights[:, None])
    residual = y[:, None] - (X.toarray() if sp.issparse(X) else X)[:, columns] @ coef.T
    level = (held * residual).sum(axis=0) / held.sum(axis=0)
    if not fit.problem.intercept:
        level = np.zeros(len(rows))
    return coef, level, held * (residual - level)


@pytest.mark.parametrize("share", [0.5, 0.1])
def test_columns_are_screened_only_where_they_stay_at_zero(share, store, weigh, fit_intercept, monkeypatch):
    monkeypatch.setattr(optimality, "TOGETHER", 4)
    X, y = _data(n=40, p=120, seed=3)
    X[:, ::3] += 5.0
    null = np.abs((X - X.mean(axis=0)).T @ (y - y.mean())).max()
    fit = _fit(store(X), y, L1(share * null), weigh(40), fit_intercept)
    watched, rows, asked = Watched.of(fit), np.flatnonzero(fit.problem.weights), []
    screened = optimality.Optimality._screened

    def seen(self, block):
        asked.extend(screened(self, block))
        return asked

    monkeypatch.setattr(optimality.Optimality, "_screened", seen)
    columns = np.sort(watched.columns)
    coef, level, slope = _some_ends(fit, columns, rows)
    optimality.Optimality(watched, columns).of(rows, coef, level)
    bound = np.outer(fit.problem.separable.strengths(fit.coef.shape)[0], 1.0 - fit.problem.lost_shares(rows))
    violated, looked_at = np.abs(X.T @ slope) > bound, np.zeros(bound.shape, dtype=bool)
    looked_at[columns] = True
    for which, near in asked:
        looked_at[np.ix_(near, which)] = True
    assert np.all(looked_at | ~violated)
    assert violated.any()
    assert share == 0.1 or not looked_at.all()
