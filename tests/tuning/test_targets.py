"""A strength for each of several targets: what a fit to each target alone would choose, to rounding."""

from __future__ import annotations

import pickle
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge, RidgeCV

import onefit
from onefit import RidgeLOO
from onefit.risk.means import paired_errors
from onefit.tuning import ridge_spectrum
from onefit.tuning.contest import choose_each, choose_strength
from onefit.tuning.selection import SELECTIONS, smallest

ALPHAS = np.logspace(4, -3, 12)
pytestmark = pytest.mark.filterwarnings("ignore::onefit.exceptions.ShortPathWarning")


def data(shape, t=6, seed=0):
    """Targets from nearly no noise to nothing but noise."""
    rng = np.random.default_rng(seed)
    n, p = shape
    X = rng.normal(size=shape) + 0.3
    Y = X @ rng.normal(size=(p, t)) / np.sqrt(p) + 10.0 ** np.linspace(-2, 1.5, t) * rng.normal(size=(n, t))
    return X, Y + 5.0


def weights(n):
    return np.random.default_rng(3).integers(0, 3, n) * 0.7


def close(one, other):
    np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10 * max(1.0, float(np.abs(other).max())))


def is_that_of_each(model, X, Y, **fit_params):
    """Compare every target with a fit to it alone."""
    at = np.arange(len(Y)) if "sample_weight" not in fit_params else fit_params["sample_weight"] > 0
    for k, y in enumerate(Y.T):
        alone = clone(model).set_params(alpha_per_target=False).fit(X, y, **fit_params)
        assert model.alpha_[k] == pytest.approx(alone.alpha_, rel=1e-12)
        close(model.coef_[k], alone.coef_)
        close(model.intercept_[k], alone.intercept_)
        close(model.loo_.predictions[at, k], alone.loo_.predictions[at])
        visited = ~np.isnan(model.risk_path_[:, k])
        close(model.alphas_[visited], alone.alphas_)
        for name in ("risk_path_", "std_error_path_", "paired_error_path_"):
            close(getattr(model, name)[visited, k], getattr(alone, name))
        close(model.confidence_set_[k], alone.confidence_set_)
        if k in (0, 3):
            assert model.corrected_risk_[k] == pytest.approx(alone.corrected_risk_, rel=1e-8)


@pytest.mark.costly
@pytest.mark.parametrize("shape", [(40, 6), (20, 30), (25, 25)], ids=str)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("store", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("alphas", [ALPHAS, 9], ids=["given", "automatic"])
def test_each_target_is_that_of_a_fit_to_it_alone(shape, weighted, fit_intercept, store, alphas):
    X, Y = data(shape)
    given = {"sample_weight": weights(len(Y))} if weighted else {}
    model = RidgeLOO(alphas, alpha_per_target=True, fit_intercept=fit_intercept).fit(store(X), Y, **given)
    assert len(np.unique(model.alpha_)) > 1
    is_that_of_each(model, store(X), Y, **given)


@pytest.mark.costly
@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("shape", [(60, 8), (20, 30)], ids=str)
def test_every_rule_chooses_for_each(selection, shape):
    X, Y = data(shape, t=24)
    is_that_of_each(RidgeLOO(ALPHAS, alpha_per_target=True, selection=selection).fit(X, Y), X, Y)


@pytest.mark.parametrize("selection", SELECTIONS)
def test_a_choice_for_many_is_that_of_each_path(selection):
    """Also for losses that no ridge path has."""
    rng = np.random.default_rng(1)
    losses = (
        rng.gamma(1.0, size=(50, 9, 40)) + 0.3 * np.abs(np.arange(9) - rng.integers(0, 9, (50, 1)))[..., None]
    )
    own = rng.integers(0, 3, 40).astype(float)
    found = choose_each(losses.copy(), own, selection)
    for k, path in enumerate(losses):
        risks = np.average(path, axis=1, weights=own)
        paired = paired_errors(path.T, own, smallest(risks))
        best, contest = choose_strength(path.T, own, risks, paired, selection)
        assert found.best[k] == best
        close(found.risks[k], risks)
        close(found.paired_errors[k], paired)
        if contest is not None:
            mine = list(found.contests.each())[k]
            np.testing.assert_array_equal(mine.positions, contest.positions)
            close(mine.risks, contest.risks)
            close(mine.covariance, contest.covariance)


def test_targets_go_on_beyond_the_grid_as_far_as_each_needs():
    X, Y = data((60, 5), t=8)
    X[:, 4] *= 1e-5
    # of which low noise lets a signal be seen beyond the weakest strength of the grid
    Y[:, 7] = np.random.default_rng(5).normal(size=60)  # none: beyond the strongest
    model = RidgeLOO(9, alpha_per_target=True).fit(X, Y)
    visited = ~np.isnan(model.risk_path_)
    assert visited[[0, -1], [7, 1]].all()
    assert not visited[[0, -1], [1, 7]].any()
    assert len(model.alphas_) == model.n_iter_ > 9
    is_that_of_each(model, X, Y)


def test_a_row_that_alone_fixes_a_direction():
    X, Y = data((30, 4))
    X[:, 3] = 0.0
    X[7, 3] = 2.0
    settings = {"alphas": [1.0, 1e-3, 0.0], "fit_intercept": False}
    is_that_of_each(RidgeLOO(alpha_per_target=True, **settings).fit(X, Y), X, Y)


@pytest.mark.parametrize("at_once", [1, 3000])
@pytest.mark.parametrize("per_target", [False, True])
@pytest.mark.parametrize("alphas", [9, [1.0, 1e-12]])
def test_blocks_change_nothing(monkeypatch, at_once, per_target, alphas):
    X, Y = data((40, 6), t=11)
    X[:, 5] = np.arange(40) == 7  # without the penalty a row alone fixes its coefficient
    whole = RidgeLOO(alphas, alpha_per_target=per_target, fit_intercept=False).fit(X, Y)
    monkeypatch.setattr(ridge_spectrum, "AT_ONCE", at_once)
    parts = RidgeLOO(alphas, alpha_per_target=per_target, fit_intercept=False).fit(X, Y)
    for name in ("alpha_", "alphas_", "coef_", "risk_path_", "paired_error_path_", "corrected_risk_"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), rtol=1e-10)


@pytest.mark.parametrize("per_target", [False, True])
def test_left_out_values_of_all_strengths_are_never_held(monkeypatch, per_target):
    monkeypatch.setattr(ridge_spectrum, "AT_ONCE", 2**14)
    X, Y = data((100, 3), t=600)
    tracemalloc.start()
    try:
        RidgeLOO(np.logspace(3, -3, 60), alpha_per_target=per_target).fit(X, Y)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.6 * 8 * Y.size * 60


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_by_the_smallest_risk_it_is_ridge_cv(fit_intercept):
    X, Y = data((50, 8), t=15)
    ours = RidgeLOO(ALPHAS, alpha_per_target=True, selection="min", fit_intercept=fit_intercept).fit(X, Y)
    theirs = RidgeCV(ALPHAS, alpha_per_target=True, fit_intercept=fit_intercept).fit(X, Y)
    np.testing.assert_array_equal(ours.alpha_, theirs.alpha_)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(ours.risk_path_.min(axis=0), -theirs.best_score_, rtol=1e-8)
    assert ours.best_score_.shape == theirs.best_score_.shape
    assert np.all(ours.best_score_ <= theirs.best_score_ * (1 - 1e-9))  # corrected for the choice


@pytest.mark.parametrize("column", [False, True])
def test_one_target_is_what_it_is_without(column):
    X, Y = data((40, 5))
    y = Y[:, :1] if column else Y[:, 0]
    model = RidgeLOO(ALPHAS, alpha_per_target=True).fit(X, y)
    plain = RidgeLOO(ALPHAS).fit(X, y)
    assert isinstance(model.alpha_, float)
    assert model.alpha_ == plain.alpha_
    np.testing.assert_array_equal(model.coef_path_, plain.coef_path_)


def test_what_is_left_out_can_be_asked_more():
    X, Y = data((40, 5), t=3)
    model = RidgeLOO(ALPHAS, alpha_per_target=True).fit(X, Y)
    again = onefit.loo(model, X, Y)
    np.testing.assert_allclose(again.predictions, model.loo_.predictions, rtol=1e-8)
    np.testing.assert_allclose(again.leverages, model.loo_.leverages, rtol=1e-8)
    coef, interval = model.loo_.coef(), model.loo_.interval(X[:2])
    for k in range(3):
        kept = np.arange(40) != 4
        refit = Ridge(model.alpha_[k]).fit(X[kept], Y[kept, k])
        np.testing.assert_allclose(coef[4, k], refit.coef_, rtol=1e-8)
        np.testing.assert_allclose(model.loo_.predictions[4, k], refit.predict(X[[4]])[0], rtol=1e-8)
        alone = RidgeLOO([model.alpha_[k]]).fit(X, Y[:, k])
        np.testing.assert_allclose(interval[:, k], alone.loo_.interval(X[:2]), rtol=1e-8)
    audited = onefit.loo(model, X, Y, audit=4, rng=0).audit
    assert audited.interval[0] <= audited.value <= audited.interval[1]


def test_it_is_saved_and_cloned():
    X, Y = data((40, 5))
    model = RidgeLOO(ALPHAS, alpha_per_target=True).fit(X, Y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.corrected_risk_, model.corrected_risk_)
    np.testing.assert_array_equal(again.best_score_, -model.corrected_risk_)
    copy = clone(model)
    assert copy.alpha_per_target is True
    with pytest.raises(NotFittedError):
        _ = copy.corrected_risk_
    plain = model.set_params(alpha_per_target=False).fit(X, Y)
    assert plain.coef_path_.shape == (len(ALPHAS), 5, 6)
    assert plain.set_params(alpha_per_target=True).fit(X, Y).coef_path_ is None


@pytest.mark.parametrize(
    ("settings", "fit_params"),
    [
        ({"cv": 5}, {}),
        ({"scoring": "mae"}, {}),
        ({"penalty_factors": np.arange(1.0, 6.0)}, {}),
        ({}, {"groups": np.arange(40) // 4}),
    ],
)
def test_what_does_not_go_with_it_is_refused(settings, fit_params):
    X, Y = data((40, 5))
    with pytest.raises(ValueError, match="alpha_per_target=True leaves out single rows"):
        RidgeLOO(ALPHAS, alpha_per_target=True, **settings).fit(X, Y, **fit_params)


def test_bad_calls():
    X, Y = data((40, 5))
    with pytest.raises(ValueError, match="alpha_per_target must be True or False"):
        RidgeLOO(alpha_per_target="yes").fit(X, Y)
    pytest.importorskip("matplotlib")
    with pytest.raises(ValueError, match="each target has a path of its own"):
        RidgeLOO(ALPHAS, alpha_per_target=True).fit(X, Y).plot()


@pytest.mark.parametrize(("bad", "word"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")])
def test_targets_that_are_not_finite_are_named(bad, word):
    X, Y = data((40, 5))
    Y[9, 4] = bad
    with pytest.raises(ValueError, match=f"Input y contains {word}: target 4, row 9"):
        RidgeLOO(alpha_per_target=True).fit(X, Y)
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(Y, columns=list("abcdef"))
    with pytest.raises(ValueError, match=f"Input y contains {word}: target 'e', row 9"):
        RidgeLOO(alpha_per_target=True).fit(X, table)


def test_many_targets_that_fall_at_an_end_are_counted():
    X, Y = data((60, 5), t=8)
    Y[:, :4] = X[:, :1] + 1e-3 * Y[:, :4]
    with pytest.warns(onefit.exceptions.ShortPathWarning, match="weakest penalty .* for 4 of 8 targets"):
        RidgeLOO([1e3, 1e2, 10.0], alpha_per_target=True).fit(X, Y)
