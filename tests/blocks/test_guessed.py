"""Paths on sums end where the risk is past its minimum, which a guess tells and left-out losses confirm."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from onefit import ElasticNetLOO, LassoLOO, cost
from onefit.blocks import path_models, tuning
from onefit.blocks.guessed import GuessedRisks
from onefit.blocks.optima import optima
from onefit.blocks.rows import ArrayRows
from onefit.blocks.sums import RowSums

MODELS = [LassoLOO(), ElasticNetLOO(), ElasticNetLOO(l1_ratio=[0.3, 0.9]), LassoLOO(positive=True)]


def table(n=200, p=80, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) + 3.0
    return X, X[:, :4].sum(axis=1) + 3.0 * rng.normal(size=n)


@pytest.fixture
def solved(monkeypatch):
    """Strengths that were asked for and solved, one entry a path; rows are left out exactly at all."""
    monkeypatch.setattr(cost, "IN_A_PATH", np.inf)
    counts, net_path = [], path_models.net_path

    def counted(sums, alphas, *rest, **options):
        path = net_path(sums, alphas, *rest, **options)
        counts.append((len(alphas), path.coefs.shape[1]))
        return path

    monkeypatch.setattr(path_models, "net_path", counted)
    return counts


def same(one, other):
    assert one.alpha_ == other.alpha_
    assert_allclose(one.alphas_, other.alphas_)
    assert_allclose(one.risk_path_, other.risk_path_, rtol=1e-6)
    assert_allclose(one.coef_path_, other.coef_path_, atol=1e-12)
    assert_allclose(one.loo_.predictions, other.loo_.predictions, rtol=1e-9)


@pytest.mark.parametrize("ratio", [1.0, 0.5])
@pytest.mark.parametrize("intercept", [True, False])
def test_the_guess_is_generalised_cross_validation(ratio, intercept):
    X, y = table()
    w = np.random.default_rng(1).choice([0.5, 1.0, 2.0], len(y))
    sums = ArrayRows(X, y, w).total(RowSums.of)
    if not intercept:
        sums = sums.about_zero()
    Z, v = (X - sums.means, y - sums.y_means[0]) if intercept else (X, y)
    alphas = np.geomspace(500.0, 5.0, 6)
    for found, one, two in zip(optima(sums, ratio * alphas, (1 - ratio) * alphas), ratio * alphas,
                               (1 - ratio) * alphas, strict=True):  # fmt: skip
        own = Z[:, found.support]
        K = own.T @ (w[:, None] * own) + two * np.eye(len(found.support))
        freedom = np.trace(np.linalg.solve(K, own.T @ (w[:, None] * own)))
        left = w @ (v - own @ found.beta) ** 2
        assert_allclose(
            GuessedRisks(sums, 1.0)._risk(found, one, two),
            left / w.sum() / (1 - freedom / len(y)) ** 2,
            rtol=1e-9,
        )


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_nothing_but_time_hangs_on_where_a_path_ends(model, solved, monkeypatch):
    X, y = table()
    cut = type(model)(**model.get_params()).fit(X, y)
    assert min(count / asked for asked, count in solved) < 0.8
    solved.clear()
    monkeypatch.setattr(GuessedRisks, "ends_by", lambda *_: False)
    whole = type(model)(**model.get_params()).fit(X, y)
    assert all(count == asked for asked, count in solved)
    same(cut, whole)


def test_paths_that_ended_too_soon_are_solved_whole(solved, monkeypatch):
    X, y = table(seed=1)
    right = LassoLOO(alphas=40).fit(X, y)
    solved.clear()
    monkeypatch.setattr(
        GuessedRisks,
        "ends_by",
        lambda guess, found, *_strengths: guess.surely < np.inf and len(found.support) > 1,
    )
    same(LassoLOO(alphas=40).fit(X, y), right)
    assert [asked == count for asked, count in solved] == [False, False, True]


def test_a_path_without_early_stopping_is_whole(solved):
    X, y = table()
    model = ElasticNetLOO(alphas=60, early_stopping=False).fit(X, y)
    assert all(asked == count for asked, count in solved)
    assert len(model.alphas_) >= 60


@pytest.mark.parametrize("model", [LassoLOO(), ElasticNetLOO()], ids=["lasso", "elastic net"])
def test_what_a_pass_has_solved_is_what_another_one_finds(model, monkeypatch):
    X, y = table(n=120, p=10)
    w = np.where(np.arange(120) % 7 == 0, 0.0, 1.5)
    known = type(model)().fit(X, y, w)
    monkeypatch.setattr(tuning.Passes, "refits", lambda *_: None)
    anew = type(model)().fit(X, y, w)
    for name in ("predictions", "leverages", "losses", "bounds"):
        assert_allclose(getattr(known.loo_, name), getattr(anew.loo_, name), rtol=1e-8, atol=1e-9)
    assert known.loo_.guarantee == anew.loo_.guarantee == "exact"
