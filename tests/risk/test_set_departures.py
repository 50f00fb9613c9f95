"""Coefficients and intervals where groups or folds leave, against refits."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import (
    ElasticNet,
    HuberRegressor,
    Lasso,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    QuantileRegressor,
    Ridge,
    RidgeClassifier,
)
from sklearn.model_selection import KFold, LeaveOneGroupOut, ShuffleSplit, TimeSeriesSplit
from sklearn.svm import LinearSVC

import onefit
from onefit import _linalg
from onefit.leave_out.set_departures import SetDepartures

N, GROUPS = 60, 12


def _data(seed=0):
    rng = np.random.default_rng(seed)
    groups = rng.permutation(np.concatenate([np.arange(GROUPS), rng.integers(0, GROUPS, N - GROUPS)]))
    X = rng.normal(size=(N, 5)) + 1.0
    y = X[:, 0] - 0.5 * X[:, 1] + rng.normal(size=GROUPS)[groups] + rng.normal(size=N)
    return X, y, groups


X, Y, GROUP = _data()
RESPONSES = {
    "numbers": Y,
    "counts": np.round(np.exp(Y / 2)),
    "two classes": (np.median(Y) < Y).astype(int),
    "three classes": np.digitize(Y, np.quantile(Y, [0.3, 0.6])),
    "two columns": np.column_stack([Y, Y**2]),
}
TIGHT = {"tol": 1e-10, "max_iter": 100_000}
MODELS = [
    (LinearRegression(tol=1e-12), "numbers"),
    (Ridge(2.0, tol=1e-12), "numbers"),
    (Ridge(2.0, tol=1e-12, fit_intercept=False), "two columns"),
    (RidgeClassifier(2.0, tol=1e-12, class_weight="balanced"), "two classes"),
    (Lasso(0.1, tol=1e-12), "numbers"),
    (Lasso(0.02, tol=1e-12), "numbers"),
    (ElasticNet(0.1, tol=1e-12), "numbers"),
    (PoissonRegressor(alpha=0.1, **TIGHT), "counts"),
    (LogisticRegression(C=0.3, **TIGHT), "two classes"),
    (LogisticRegression(C=0.3, class_weight="balanced", **TIGHT), "three classes"),
    (HuberRegressor(**TIGHT), "numbers"),
]


def _refits(model, X, y, removed, weights=None):
    for rows in removed:
        kept = np.setdiff1d(np.arange(len(y)), rows)
        fit = {} if weights is None else {"sample_weight": weights[kept]}
        yield clone(model).fit(X[kept], y[kept], **fit)


def _parameters(refits):
    found = [(np.squeeze(one.coef_), np.squeeze(one.intercept_ + 0.0 * one.coef_[..., 0])) for one in refits]
    return (np.array(part) for part in zip(*found, strict=True))


@pytest.mark.costly
@pytest.mark.parametrize(("model", "response"), MODELS, ids=lambda value: str(value))
@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array])
def test_coefficients_without_each_group(model, response, storage, weigh, monkeypatch):
    monkeypatch.setattr(_linalg, "BLOCK_SIZE", 40)
    y, weights, rows = RESPONSES[response], weigh(N), storage(X)
    fit = {} if weights is None else {"sample_weight": weights}
    est = onefit.loo(clone(model).fit(rows, y, **fit), rows, y, groups=GROUP, **fit)
    removed = [np.flatnonzero(k == GROUP) for k in range(GROUPS)]
    coef, level = _parameters(_refits(model, rows, y, removed, weights))
    close = 2e-4 if isinstance(model, HuberRegressor) else 1e-5
    np.testing.assert_allclose(np.squeeze(est.coef()), coef, atol=close * np.abs(coef).max())
    np.testing.assert_allclose(np.squeeze(est.intercept()), level, atol=close * (1 + np.abs(level).max()))


def test_one_step_serves_all_groups_that_it_tells(monkeypatch):
    est = onefit.loo(Ridge(2.0, tol=1e-12).fit(X, Y), X, Y, groups=GROUP)
    wanted = est.coef()
    monkeypatch.setattr("onefit.leave_out.set_departures.refit_sets", lambda *_, **__: {})
    np.testing.assert_array_equal(est.coef(), wanted)
    assert np.isfinite(wanted).all()


def test_groups_of_one_size_share_a_curved_penalty_that_shrinks():
    groups = np.arange(N) % GROUPS
    model = ElasticNet(0.01, l1_ratio=0.01, tol=1e-13).fit(X, Y)
    est = onefit.loo(model, X, Y, groups=groups)
    coef, _ = _parameters(_refits(model, X, Y, [np.flatnonzero(groups == k) for k in range(GROUPS)]))
    np.testing.assert_allclose(est.coef(), coef, atol=1e-9)


def test_the_table_is_the_jackknife_that_deletes_groups():
    model = Ridge(2.0, tol=1e-12).fit(X, Y)
    table = onefit.loo(model, X, Y, groups=GROUP).coef_table()
    each = [one.coef_ for one in _refits(model, X, Y, [np.flatnonzero(k == GROUP) for k in range(GROUPS)])]
    wanted = np.sqrt((GROUPS - 1) ** 2 / GROUPS * np.var(each, axis=0, ddof=1))
    np.testing.assert_allclose(table.std_error, wanted)


def test_errors_are_those_of_groups_where_rows_are_tied():
    ratios = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        groups = np.repeat(np.arange(40), 5)
        x = np.repeat(rng.normal(size=(40, 1)), 5, axis=0)
        y = x[:, 0] + np.repeat(rng.normal(size=40), 5) + 0.3 * rng.normal(size=200)
        model = LinearRegression().fit(x, y)
        alone, tied = (onefit.loo(model, x, y, groups=by).coef_table() for by in (None, groups))
        ratios.append(tied.std_error[0] / alone.std_error[0])
    assert 1.8 < np.mean(ratios) < 2.5  # √(5 · (1 + 0.09 / 5) / 1.09) = 2.16


# --- intervals -------------------------------------------------------------------------------------------


def _first_with(values, shares, coverage):
    """The smallest value up to which shares add up to the coverage; infinite where they do not."""
    order = np.argsort(values)
    reached = np.flatnonzero(np.cumsum(shares[order]) >= coverage - 1e-9)
    return values[order][reached[0]] if reached.size else np.inf


INTERVALS = [
    (Ridge(2.0, tol=1e-12), "numbers"),
    (Lasso(0.1, tol=1e-12), "numbers"),
    (PoissonRegressor(alpha=0.1, **TIGHT), "counts"),
    (QuantileRegressor(alpha=0.01), "numbers"),
    (KernelRidge(alpha=0.5, kernel="rbf", gamma=0.05), "numbers"),
]


@pytest.mark.parametrize(("model", "response"), INTERVALS, ids=lambda value: str(value))
@pytest.mark.parametrize("by", ["groups", "folds", "folds of groups"])
def test_intervals_by_their_definition(model, response, by, monkeypatch):
    monkeypatch.setattr(_linalg, "BLOCK_SIZE", 400)
    y, new = RESPONSES[response], np.random.default_rng(1).normal(size=(7, 5)) + 1.0
    if by == "groups":
        given, labels = GROUP, GROUP
    else:
        given = KFold(5, shuffle=True, random_state=0) if by == "folds" else LeaveOneGroupOut()
        given = list(given.split(X, y, GROUP if by == "folds of groups" else None))
        labels = np.arange(N)
    removed = [np.flatnonzero(k == GROUP) for k in range(GROUPS)] if by == "groups" else [t for _, t in given]
    refits = list(_refits(model, X, y, removed))
    fold = np.empty(N, dtype=int)
    for k, rows in enumerate(removed):
        fold[rows] = k
    residuals = np.abs(y - [refits[k].predict(X[[i]])[0] for i, k in enumerate(fold)])
    without = np.array([one.predict(new) for one in refits])[fold].T
    sizes = np.bincount(labels)[labels]
    shares = 1.0 / (sizes * (len(np.unique(labels)) + 1.0))
    est = onefit.loo(clone(model).fit(X, y), X, y, groups=given)
    tolerance = 1e-5 if isinstance(model, PoissonRegressor) else 1e-8
    for coverage in (0.5, 0.8):
        high = [_first_with(mu + residuals, shares, coverage) for mu in without]
        low = [-_first_with(residuals - mu, shares, coverage) for mu in without]
        wanted = np.column_stack([low, high])
        np.testing.assert_allclose(est.interval(new, coverage), wanted, atol=tolerance)
        margin = _first_with(residuals, shares, coverage)
        wanted = np.column_stack([without.min(axis=1) - margin, without.max(axis=1) + margin])
        np.testing.assert_allclose(est.interval(new, coverage, "minmax"), wanted, atol=tolerance)


def test_intervals_cover_rows_of_new_groups():
    """Twenty groups of 1 to 29 rows, which share half of their columns and a part of the response."""
    inside = {"rows": [], "groups": []}
    for seed in range(60):
        rng = np.random.default_rng(seed)
        groups = rng.permutation(np.repeat(np.arange(20), rng.integers(1, 30, 20)))
        levels, shared = 2.0 * rng.normal(size=40), rng.normal(size=(40, 5))
        rows = np.hstack([rng.normal(size=(len(groups), 5)), shared[groups]])
        others = np.hstack([rng.normal(size=(20, 5)), shared[20:]])
        y = rows[:, 0] + levels[groups] + 0.5 * rng.normal(size=len(groups))
        answers = others[:, 0] + levels[20:] + 0.5 * rng.normal(size=20)
        model = Ridge(1.0).fit(rows, y)
        for by, given in (("rows", None), ("groups", groups)):
            low, high = onefit.loo(model, rows, y, groups=given).interval(others, 0.9).T
            inside[by].append(np.mean((low <= answers) & (answers <= high)))
    assert np.mean(inside["rows"]) < 0.8
    assert 0.88 < np.mean(inside["groups"]) < 0.97


def test_a_tuned_model_has_them_too():
    model = onefit.RidgeLOO().fit(X, Y, groups=GROUP)
    again = onefit.loo(model, X, Y, groups=GROUP)
    np.testing.assert_allclose(model.loo_.interval(X[:3]), again.interval(X[:3]))
    np.testing.assert_allclose(model.loo_.coef_table().std_error, again.coef_table().std_error)


def test_too_few_groups_for_a_coverage_give_an_infinite_interval():
    est = onefit.loo(Ridge(2.0).fit(X, Y), X, Y, groups=GROUP)
    assert np.isinf(est.interval(X[:2], 0.95)).all()
    assert np.isfinite(est.interval(X[:2], 0.9)).all()


def test_groups_without_weight_say_nothing():
    weights = np.where(GROUP < 3, 0.0, 1.0)
    counting, new = weights > 0, X[:4] + 0.1
    est = onefit.loo(Ridge(2.0).fit(X, Y, sample_weight=weights), X, Y, weights, groups=GROUP)
    own = X[counting], Y[counting]
    wanted = onefit.loo(Ridge(2.0).fit(*own), *own, groups=GROUP[counting])
    np.testing.assert_allclose(est.interval(new), wanted.interval(new))
    np.testing.assert_allclose(est.coef_table().std_error, wanted.coef_table().std_error)


# --- what there is not -----------------------------------------------------------------------------------


@pytest.mark.parametrize("splits", [TimeSeriesSplit(3), ShuffleSplit(3, random_state=0)])
def test_sets_that_are_not_exchangeable(splits):
    est = onefit.loo(Ridge(2.0, tol=1e-12).fit(X, Y), X, Y, groups=splits)
    for asked in (lambda: est.interval(X), est.coef_table):
        with pytest.raises(ValueError, match="needs every row to leave once"):
            asked()
    removed = [np.setdiff1d(np.arange(N), train) for train, _ in splits.split(X)]
    coef, _ = _parameters(_refits(Ridge(2.0, tol=1e-12), X, Y, removed))
    np.testing.assert_allclose(est.coef(), coef)


def test_one_fold_has_an_interval_but_no_errors():
    """What is held out once is split conformal prediction."""
    train, test = np.arange(40), np.arange(40, N)
    est = onefit.loo(Ridge(2.0).fit(X, Y), X, Y, groups=[(train, test)])
    model = Ridge(2.0).fit(X[train], Y[train])
    margin = np.sort(np.abs(Y[test] - model.predict(X[test])))[int(np.ceil(0.8 * 21)) - 1]
    wanted = model.predict(X[:3])[:, None] + margin * np.array([-1.0, 1.0])
    np.testing.assert_allclose(est.interval(X[:3], 0.8), wanted)
    with pytest.raises(ValueError, match="2 folds or more"):
        est.coef_table()


def test_influence_is_of_rows():
    est = onefit.loo(Ridge(2.0).fit(X, Y), X, Y, groups=GROUP)
    with pytest.raises(ValueError, match="single rows"):
        est.influence()


@pytest.mark.filterwarnings("ignore:Setting penalty=None")  # of scikit-learn 1.8, where C is infinite
def test_a_group_without_which_there_is_no_fit():
    """Separated classes have no finite optimum without a penalty: nothing is made up."""
    x = np.r_[np.linspace(-1, 1, 20), 3.0, -3.0][:, None]
    y = np.r_[np.arange(20) >= 10, False, True].astype(int)
    groups = np.r_[np.arange(20) // 2, 10, 10]
    model = LogisticRegression(C=np.inf, **TIGHT).fit(x, y)
    with pytest.warns(onefit.UnreliableWarning):
        est = onefit.loo(model, x, y, groups=groups)
    coef = est.coef()[:, 0]
    assert np.isnan(coef[10])
    assert np.isfinite(coef[:10]).all()


@pytest.mark.parametrize("kind", ["int", "object", "str", "category"])
def test_groups_are_in_the_order_of_their_labels(kind):
    pandas = pytest.importorskip("pandas")
    labels = np.array(["c", "a", "b"])[np.arange(N) % 3]
    groups = np.unique(labels, return_inverse=True)[1] if kind == "int" else pandas.Series(labels, dtype=kind)
    est = onefit.loo(Ridge(2.0, tol=1e-12).fit(X, Y), X, Y, groups=groups)
    removed = [np.flatnonzero(labels == name) for name in "abc"]
    coef, _ = _parameters(_refits(Ridge(2.0, tol=1e-12), X, Y, removed))
    np.testing.assert_allclose(est.coef(), coef)


def test_refits_are_made_once(monkeypatch):
    est = onefit.loo(Lasso(0.1).fit(X, Y), X, Y, groups=GROUP)
    wanted = est.coef()
    monkeypatch.setattr("onefit.leave_out.set_departures.refit_sets", lambda *_, **__: {})
    np.testing.assert_array_equal(est.coef(), wanted)
    assert np.isfinite(est.interval(X[:2])).all()


@pytest.mark.parametrize("method", ["plus", "minmax"])
def test_a_fit_that_there_is_not_says_nothing(method):
    """Its row or group may be anywhere: it counts as infinitely far out on both sides."""
    est = onefit.loo(Lasso(0.1).fit(X, Y), X, Y, groups=GROUP)
    wanted = est.interval(X[:2], 0.5, method)
    for k in list(est._without_sets.anew)[:1]:
        del est._without_sets.anew[k]
    found = est.interval(X[:2], 0.5, method)
    if method == "minmax":
        assert np.isinf(found).all()
    else:
        assert np.isfinite(found).all()
        assert np.all(found[:, 1] - found[:, 0] >= wanted[:, 1] - wanted[:, 0])
    assert np.isinf(est.interval(X[:2], 0.9, method)).all()


def test_sets_that_leave_once():
    whole = SetDepartures(onefit.loo(Ridge(2.0).fit(X, Y), X, Y, groups=GROUP)._left_out)
    assert whole.sets.are_judged_once.all()
    assert whole.counts.all()
    model = LinearSVC(C=0.1, tol=1e-8, max_iter=100_000).fit(X, RESPONSES["two classes"])
    est = onefit.loo(model, X, RESPONSES["two classes"], groups=GROUP)
    assert est.coef().shape[0] == GROUPS
