"""Paths without rows or sets of them on sums over the rows, signs free or not: against refits."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.linear_model import ElasticNet, Lasso
from sklearn.model_selection import GroupKFold, KFold, LeaveOneGroupOut, LeaveOneOut, ShuffleSplit

from onefit import ElasticNetLOO, LassoLOO, loo
from onefit.blocks import folds
from onefit.risk.means import clustered

pytestmark = pytest.mark.filterwarnings("ignore::onefit.exceptions.ShortPathWarning")
ALPHAS = [0.02, 0.2, 1.0, 5.0]


@pytest.fixture(autouse=True)
def _no_other_way(monkeypatch):
    """Let paths be solved on sums, or not at all."""

    monkeypatch.setattr("onefit.estimators.in_memory.search_path", None)


def _refits(model, splits, X, y, weights=None):
    """Losses of the tested rows of all splits, one after the other, at each strength."""
    ratio = getattr(model, "l1_ratio_", 1.0)
    losses = []
    for alpha in model.alphas_:
        own = []
        for train, test in splits:
            net = ElasticNet(
                alpha, l1_ratio=ratio, fit_intercept=model.fit_intercept, tol=1e-13, max_iter=10**6
            )
            net.positive = model.positive
            net.fit(X[train], y[train], None if weights is None else weights[train])
            own.append((y[test] - net.predict(X[test])) ** 2)
        losses.append(np.concatenate(own))
    return np.array(losses)


def _data(n=60, p=6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) + rng.normal(size=p)
    return X, X @ np.where(np.arange(p) < p // 2, 2.0, 0.0) + rng.normal(size=n) + 3.0


@pytest.mark.parametrize("model", [LassoLOO, ElasticNetLOO])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("p", [6, 80], ids=["together", "one by one"])
def test_every_strength_of_folds_is_that_of_refits(model, fit_intercept, p):
    X, y = _data(120, p)
    found = model(alphas=ALPHAS, cv=5, fit_intercept=fit_intercept, early_stopping=False, selection="min")
    found.fit(X, y)
    risks = _refits(found, list(KFold(5).split(X)), X, y).mean(axis=1)
    np.testing.assert_allclose(found.risk_path_, risks, rtol=1e-7)
    assert found.loo_.value == pytest.approx(risks.min(), rel=1e-7)
    assert set(found.guarantee_path_) == {"exact"}


@pytest.mark.parametrize("cv", [ShuffleSplit(4, random_state=0), KFold(3, shuffle=True, random_state=1)])
def test_weights_and_splits_that_share_rows(cv):
    X, y = _data()
    weights = np.random.default_rng(1).uniform(0.0, 2.0, size=len(y))
    weights[:5] = 0.0
    splits = list(cv.split(X))
    model = ElasticNetLOO(alphas=ALPHAS, cv=splits, early_stopping=False).fit(X, y, weights)
    own = weights[np.concatenate([test for _, test in splits])]
    losses = _refits(model, splits, X, y, weights)
    np.testing.assert_allclose(model.risk_path_, losses @ own / own.sum(), rtol=1e-7)


def test_groups_of_unequal_size():
    X, y = load_diabetes(return_X_y=True)
    groups = np.random.default_rng(0).integers(40, size=len(y))
    model = LassoLOO(alphas=ALPHAS, early_stopping=False).fit(X, y, groups=groups)
    splits = list(LeaveOneGroupOut().split(X, y, groups))
    losses = _refits(model, splits, X, y)
    rows = np.concatenate([test for _, test in splits])
    own, units = clustered(losses[0], np.ones(len(rows)), groups[rows])
    assert model.risk_path_[0] == pytest.approx(units @ own / units.sum(), rel=1e-7)
    np.testing.assert_allclose(model.risk_path_, losses.mean(axis=1), rtol=1e-7)


def test_a_column_that_is_constant_without_a_group_and_one_that_depends_on_others():
    rng = np.random.default_rng(3)
    groups = np.repeat(np.arange(6), 10)
    X = np.column_stack([groups[:, None] == np.arange(6), rng.normal(size=(60, 2))]).astype(float)
    X = np.column_stack([X, X[:, -1]])  # dummies sum to one, and a column comes twice
    y = rng.normal(size=6)[groups] * 3 + X[:, -1] + 0.3 * rng.normal(size=60)
    model = LassoLOO(alphas=[1e-3, 1e-2, 0.1], cv=GroupKFold(6), early_stopping=False).fit(
        X, y, groups=groups
    )
    losses = _refits(model, list(GroupKFold(6).split(X, y, groups)), X, y)
    np.testing.assert_allclose(model.risk_path_, losses.mean(axis=1), rtol=1e-6)


def test_a_row_of_another_size_leaves_no_trace_without_its_fold():
    X, y = _data()
    X[7], y[7] = X[7] * 1e7, y[7] * 1e7
    model = LassoLOO(alphas=[0.2], cv=KFold(3)).fit(X, y)
    train, test = next(iter(KFold(3).split(X)))
    own = (y[test] - Lasso(0.2, tol=1e-13).fit(X[train], y[train]).predict(X[test])) ** 2
    kept = test != 7
    found = model.loo_.losses[test[kept]]
    np.testing.assert_allclose(found, own[kept], rtol=1e-6)


def test_a_score_is_of_the_same_predictors():
    X, y = _data()
    model = LassoLOO(alphas=ALPHAS, cv=5, scoring="neg_mean_absolute_error", early_stopping=False).fit(X, y)
    losses = np.sqrt(_refits(model, list(KFold(5).split(X)), X, y))
    np.testing.assert_allclose(model.risk_path_, losses.mean(axis=1), rtol=1e-7)


def test_the_two_ways_agree(monkeypatch):
    X, y = _data(80, 12)
    together = LassoLOO(cv=4).fit(X, y)
    monkeypatch.setattr(folds, "exchange_work", lambda _: folds.Work(calls=np.inf))
    alone = LassoLOO(cv=4).fit(X, y)
    np.testing.assert_allclose(together.risk_path_, alone.risk_path_, rtol=1e-11)
    assert together.alpha_ == alone.alpha_


def _levels(n=60):
    """Levels of a factor, one of which has a single row, and a response of theirs."""
    rng = np.random.default_rng(0)
    level = np.append(rng.integers(0, 4, n - 1), 4)[rng.permutation(n)]
    D = (level[:, None] == np.arange(5)).astype(float)
    return D, D @ [1.0, 2.0, -1.0, 0.0, 6.0] + 0.3 * rng.normal(size=n)


def test_refits_with_several_optima_are_not_called_exact():
    """Without its only row a level has the intercept for a prediction, which the others leave open."""
    X, y = _levels()
    found = LassoLOO([0.2, 0.02, 0.002], cv=5, selection="min", early_stopping=False).fit(X, y)
    risks = _refits(found, list(KFold(5).split(X)), X, y).mean(axis=1)
    assert np.all(np.abs(found.risk_path_ - risks) <= found.approx_error_path_ + 1e-7 * risks)
    assert "bounded" in found.guarantee_path_
    assert np.any(found.approx_error_path_ > 0.01)


def test_columns_that_hardly_differ_are_not_told_by_sums():
    X, y = _data()
    X = np.hstack([X, X[:, :1] + 1e-9 * X[:, 1:2]])
    found = LassoLOO(ALPHAS, cv=5, selection="min", early_stopping=False).fit(X, y)
    for alpha, risk in zip(found.alphas_, found.risk_path_, strict=True):
        model = LassoLOO([alpha]).fit(X, y)
        assert risk == pytest.approx(loo(model, X, y, groups=KFold(5), exact=True).value, rel=1e-9)


@pytest.mark.parametrize("model", [LassoLOO, ElasticNetLOO])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("cv", [None, KFold(4)], ids=["rows", "folds"])
def test_every_strength_without_coefficients_below_zero_is_that_of_refits(model, fit_intercept, cv):
    X, y = _data(40, 8)
    X[:, ::3] *= -1.0  # so that some want to be below zero
    own = model(alphas=ALPHAS, cv=cv, positive=True, fit_intercept=fit_intercept, early_stopping=False)
    found = own.set_params(selection="min").fit(X, y)
    assert np.any(found.coef_path_ > 0)
    assert np.all(found.coef_path_ >= 0)
    risks = _refits(found, list((cv or LeaveOneOut()).split(X)), X, y).mean(axis=1)
    np.testing.assert_allclose(found.risk_path_, risks, rtol=1e-7)
    assert found.loo_.value == pytest.approx(risks.min(), rel=1e-7)
    assert set(found.guarantee_path_) == {"exact"}


@pytest.mark.parametrize("cv", [None, 5])
def test_the_automatic_path_begins_where_no_coefficient_is_above_zero(cv):
    X, y = _data(60, 4)
    found = LassoLOO(positive=True, cv=cv).fit(np.column_stack([-X[:, 0], X[:, 1:]]), y)
    assert np.all(found.coef_path_[0] == 0)
    assert np.any(found.coef_path_[1] > 0)
    nothing = LassoLOO(positive=True, cv=cv, alphas=5).fit(-np.abs(y)[:, None], np.abs(y))
    assert nothing.coef_[0] == 0


def test_tall_tables_without_coefficients_below_zero():
    X, y = _data(2000, 30)
    X[:, ::3] *= -1.0
    found = LassoLOO(positive=True, selection="min").fit(X, y)
    net = Lasso(found.alpha_, positive=True, tol=1e-13)
    np.testing.assert_allclose(found.coef_, net.fit(X, y).coef_, atol=1e-7)
    for row in range(0, 2000, 100):
        rest = np.delete(np.arange(2000), row)
        own = net.fit(X[rest], y[rest]).predict(X[[row]])[0]
        assert found.loo_.predictions[row] == pytest.approx(own, abs=1e-6)
    assert np.all(found.loo_.bounds < 1e-6)


def test_dependent_columns_without_coefficients_below_zero():
    rng = np.random.default_rng(3)
    kinds = np.arange(60) % 6
    X = (kinds[:, None] == np.arange(6)).astype(float)
    X = np.column_stack([X, X[:, 0] + X[:, 1], rng.normal(size=60)])
    y = np.abs(rng.normal(size=6))[kinds] * 3 + X[:, -1] + 0.3 * rng.normal(size=60)
    for cv in (None, KFold(5)):
        own = LassoLOO(alphas=[1e-3, 1e-2, 0.1], cv=cv, positive=True, early_stopping=False)
        found = own.fit(X, y)
        risks = _refits(found, list((cv or LeaveOneOut()).split(X)), X, y).mean(axis=1)
        np.testing.assert_allclose(found.risk_path_, risks, rtol=1e-5)


@pytest.mark.filterwarnings("ignore::onefit.exceptions.UnreliableWarning")
def test_single_rows_with_several_optima_are_not_called_exact():
    """The same where single rows leave, which no fold is made of."""
    X, y = _levels(40)
    found = LassoLOO([0.2, 0.02, 0.002], selection="min", early_stopping=False).fit(X, y)
    risks = _refits(found, list(KFold(40).split(X)), X, y).mean(axis=1)
    off = np.abs(found.risk_path_ - risks)
    assert off.max() > 0.05
    assert np.all(off <= found.approx_error_path_ + 1e-7 * risks)
    assert abs(found.loo_.value - risks[-1]) <= found.loo_.approx_error + 1e-7 * risks[-1]


@pytest.mark.costly
@pytest.mark.parametrize("seed", [1, 3, 5, 8])
def test_columns_that_add_up_to_a_constant_are_exchanged(seed):
    """Rounding bends the objective up or down along what nothing curves; refits are found either way."""
    rng = np.random.default_rng(seed)
    X = rng.dirichlet(np.ones(6), size=40)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    y = X[:, 0] - X[:, 1] + rng.normal(size=40)
    found = LassoLOO(30, early_stopping=False).fit(X, y)
    assert set(found.guarantee_path_) == {"exact"}
    risks = _refits(found, list(LeaveOneOut().split(X)), X, y).mean(axis=1)
    np.testing.assert_allclose(found.risk_path_, risks, rtol=1e-5)


MODELS = [LassoLOO(selection="min"), ElasticNetLOO(selection="min"), LassoLOO(selection="min", positive=True)]


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_strengths_that_may_be_the_choice_are_exact(model, monkeypatch):
    """On a table whose strengths cannot all be: the choice is that of the exact path."""
    X, y = _data(300, 40)
    y = y + 8.0 * np.random.default_rng(1).normal(size=300)
    found = model.fit(X, y)
    known = found.guarantee_path_ == "exact"
    assert 0 < known.sum() < len(known)
    near = found.risk_path_ <= found.risk_path_.min() + found.paired_error_path_
    assert known[near].all()
    monkeypatch.setattr("onefit.cost.IN_A_PATH", np.inf)
    exact = clone(model).fit(X, y)
    assert set(exact.guarantee_path_) == {"exact"}
    assert found.alpha_ == exact.alpha_
    shared = len(known) if len(known) < len(exact.alphas_) else len(exact.alphas_)
    both = np.flatnonzero(known[:shared])
    np.testing.assert_allclose(found.risk_path_[both], exact.risk_path_[both], rtol=1e-7)


def test_rows_with_little_slack_are_solved_anew_on_a_tall_table(monkeypatch):
    """A row that is nearly alone in its level makes a formula believe in a risk that no refit has."""
    X, y = _data(900, 20)
    X[:, 7] = 1e-2 * X[:, 7]
    X[5, 7], y[5] = 3.0, y[5] + 60.0
    found = LassoLOO(early_stopping=False).fit(X, y)
    monkeypatch.setattr("onefit.cost.IN_A_PATH", np.inf)
    exact = LassoLOO(early_stopping=False).fit(X, y)
    np.testing.assert_allclose(found.risk_path_, exact.risk_path_, rtol=2e-3)
