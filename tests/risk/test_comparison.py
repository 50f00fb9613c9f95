"""``onefit.compare``: paired differences, against the differences of the losses taken row by row."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ttest_rel
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import ShuffleSplit
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree import DecisionTreeRegressor

import onefit

N = 40


@pytest.fixture(scope="module")
def sample():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 4))
    return X, X[:, 0] + rng.normal(size=N), rng.uniform(0.5, 2.0, N)


@pytest.fixture(scope="module")
def judged(sample):
    X, y, _ = sample
    return {
        name: onefit.loo(Ridge(alpha).fit(X, y), X, y)
        for name, alpha in {"weak": 1.0, "strong": 1e3, "middle": 30.0}.items()
    }


def _refit_losses(X, y, alpha):
    kept = [np.delete(np.arange(N), i) for i in range(N)]
    refits = [Ridge(alpha).fit(X[rows], y[rows]) for rows in kept]
    return np.array([(y[i] - refits[i].predict(X[[i]])[0]) ** 2 for i in range(N)])


class TestCompare:
    def test_is_the_paired_test_of_losses_of_refits(self, sample, judged):
        X, y, _ = sample
        found = onefit.compare(weak=judged["weak"], strong=judged["strong"])
        weak, strong = _refit_losses(X, y, 1.0), _refit_losses(X, y, 1e3)
        assert found.names == ("weak", "strong")
        np.testing.assert_allclose(found.risk, [weak.mean(), strong.mean()])
        np.testing.assert_allclose(found.std_error, [np.std(e, ddof=1) / np.sqrt(N) for e in (weak, strong)])
        assert found.difference[1] == pytest.approx(np.mean(strong - weak))
        assert found.difference_error[1] == pytest.approx(np.std(strong - weak, ddof=1) / np.sqrt(N))
        paired = ttest_rel(weak, strong, alternative="less")
        assert found.p_worse[1] == pytest.approx(1.0 - paired.pvalue)

    def test_best_comes_first_and_is_held_against_itself(self, judged):
        found = onefit.compare(judged)
        assert list(found.risk) == sorted(found.risk)
        assert (found.difference[0], found.difference_error[0]) == (0.0, 0.0)
        assert np.isnan(found.p_worse[0])
        assert "nan" not in str(found) + found._repr_html_()

    def test_losses_that_are_all_equal_settle_nothing_and_all_higher_everything(self, judged):
        weak = judged["weak"]
        higher = replace(weak, losses=weak.losses + 1.0, value=weak.value + 1.0)
        assert onefit.compare(one=weak, same=weak).p_worse[1] == 0.5
        assert onefit.compare(one=weak, higher=higher).p_worse[1] == 1.0

    def test_weights_of_rows_weigh_the_differences(self, sample):
        X, y, weights = sample
        one, other = (onefit.loo(Ridge(a).fit(X, y, weights), X, y, weights) for a in (1.0, 1e3))
        found = onefit.compare(one=one, other=other)
        change = other.losses - one.losses
        mean = np.average(change, weights=weights)
        error = np.sqrt(np.sum((weights * (change - mean)) ** 2) * N / (N - 1)) / weights.sum()
        assert found.difference[1] == pytest.approx(mean)
        assert found.difference_error[1] == pytest.approx(error)

    def test_fitted_estimators_stand_for_their_risk(self, sample, judged):
        X, y, _ = sample
        tuned = onefit.RidgeLOO([1.0]).fit(X, y)
        found = onefit.compare(tuned, judged["strong"])
        assert found.names == ("RidgeLOO 0", "RiskEstimate 1")
        assert found.risk[0] == pytest.approx(judged["weak"].value)

    def test_frame_has_a_row_a_model(self, judged):
        pytest.importorskip("pandas")
        found = onefit.compare(judged)
        table = found.to_frame()
        assert list(table.index) == list(found.names)
        np.testing.assert_array_equal(table["difference"], found.difference)
        np.testing.assert_array_equal(table["p_worse"], found.p_worse)

    def test_is_shown_as_text_line_and_html(self, judged):
        found = onefit.compare({"<b>": judged["weak"], "strong": judged["strong"]})
        assert str(found).splitlines()[0] == "left-out squared error"
        assert str(found).splitlines()[2].split()[0] == "<b>"
        assert "\n" not in repr(found)
        assert "<td>&lt;b&gt;</td>" in found._repr_html_()

    def test_refuses_what_cannot_be_compared(self, sample, judged):
        X, y, weights = sample
        weak = judged["weak"]
        cases = {
            "at least two": {"weak": weak},
            "were judged on other rows": {
                "weak": weak,
                "half": onefit.loo(Ridge().fit(X[:20], y[:20]), X[:20], y[:20]),
            },
            "judged by another y": {
                "weak": weak,
                "doubled": onefit.loo(Ridge().fit(X, 2 * y), X, 2 * y),
            },
            "models of one loss": {
                "weak": weak,
                "logistic": onefit.loo(LogisticRegression().fit(X, y > 0), X, y > 0),
            },
            "other weights of the rows": {
                "weak": weak,
                "weighted": onefit.loo(Ridge().fit(X, y, weights), X, y, weights),
            },
        }
        for said, models in cases.items():
            with pytest.raises(ValueError, match=said):
                onefit.compare(models)
        with pytest.raises(TypeError, match=r"write onefit\.loo"):
            onefit.compare(weak=weak, plain=LinearRegression().fit(X, y))
        with pytest.raises(ValueError, match="all different"):
            onefit.compare(weak, weak, names=["same", "same"])


def test_rows_that_leave_with_others_are_not_held_against_rows_that_leave_alone(sample):
    X, y, _ = sample
    model, groups = Ridge().fit(X, y), np.arange(N) // 4
    alone, together = onefit.loo(model, X, y), onefit.loo(model, X, y, groups=groups)
    with pytest.raises(ValueError, match="one and other leave other rows out together"):
        onefit.compare(one=alone, other=together)
    again = onefit.loo(Ridge(100.0).fit(X, y), X, y, groups=groups)
    assert onefit.compare(one=together, other=again).names


@pytest.mark.parametrize("weighted", [False, True])
def test_what_leaves_together_counts_as_one(weighted):
    """Groups, and rows that several splits leave out, are no independent ones: neither are differences."""
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(60, 3)), np.arange(60) % 12
    y = X[:, 0] + rng.normal(size=12)[groups] + rng.normal(size=60)
    weights = rng.uniform(0.5, 2.0, 60) if weighted else None
    splits = ShuffleSplit(9, test_size=0.5, random_state=0)
    for leaving, of_rows in ((groups, groups), (splits, np.arange(60))):
        one, other = (
            onefit.loo(Ridge(strength).fit(X, y, weights), X, y, weights, groups=leaving)
            for strength in (1, 100)
        )
        own = (np.ones(60) if weights is None else weights)[one.rows]
        units = np.unique(of_rows[one.rows], return_inverse=True)[1]
        totals = np.bincount(units, own)
        for losses, stated in (
            (other.losses - one.losses, onefit.compare(one=one, other=other).difference_error[1]),
            (one.losses, one.std_error),
            (one.losses, one.score("mse", error=True)[1]),
        ):
            means, mean = np.bincount(units, own * losses) / totals, np.average(losses, weights=own)
            spread = np.sum((totals * (means - mean)) ** 2) * len(means) / (len(means) - 1)
            assert stated == pytest.approx(np.sqrt(spread) / totals.sum(), rel=1e-8)
        assert one._counted[0] == len(totals)


def test_errors_of_samples_count():
    """Two audited models: which is better of them is known no better than their samples tell."""
    X, y = load_diabetes(return_X_y=True)
    X, y = X[:150], y[:150]
    tree, near = DecisionTreeRegressor(max_depth=3, random_state=0), KNeighborsRegressor(10)
    exact = {one: onefit.loo(one.fit(X, y), X, y, exact=True).value for one in (tree, near)}
    ridge, off = onefit.loo(Ridge(0.1).fit(X, y), X, y), []
    truth = exact[tree] - exact[near]
    for seed in range(12):
        found = [onefit.loo(one, X, y, audit=30, rng=seed + 50 * k) for k, one in enumerate((tree, near))]
        told = onefit.compare(*found, names=("tree", "near"))
        assert told.difference_error[1] > 0.9 * max(one.approx_error for one in found) / 1.96
        off.append((found[0].value - found[1].value - truth) / told.difference_error[1])
        beside = onefit.compare(near=found[1], ridge=ridge)
        assert 0 < beside.difference_error[1] < 1.5 * max(beside.std_error)
    assert np.sqrt(np.mean(np.square(off))) < 1.5


def test_samples_of_few_rows_move_apart():
    X, y = load_diabetes(return_X_y=True)
    tree = DecisionTreeRegressor(max_depth=3, random_state=0).fit(X, y)
    one, other = (onefit.loo(tree, X, y, audit=4, rng=seed) for seed in (0, 1))
    found = onefit.compare(one=one, other=other)
    apart = np.hypot(*found.std_error)
    assert found.difference_error[1] == pytest.approx(
        np.linalg.norm([apart, one.approx_error / 1.959964, other.approx_error / 1.959964]), rel=1e-6
    )


def test_saved_folds_are_folds():
    X, y = load_diabetes(return_X_y=True)
    model = Ridge(0.1).fit(X, y)
    alone, folds = onefit.loo(model, X, y), onefit.loo(model, X, y, groups=np.arange(442) % 5)
    saved = pickle.loads(pickle.dumps(folds))
    assert onefit.compare(folds=folds, saved=saved).difference[1] == 0
    with pytest.raises(ValueError, match="leave other rows out together"):
        onefit.compare(alone=alone, saved=saved)
    forest = KNeighborsRegressor().fit(X[:60], y[:60])
    rows = onefit.loo(forest, X[:60], y[:60], exact=True)
    assert onefit.compare(onefit.loo(Ridge().fit(X[:60], y[:60]), X[:60], y[:60]), rows).risk.shape == (2,)
