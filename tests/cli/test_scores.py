"""Scores against scikit-learn; their errors against derivatives in the weights and fresh samples."""

import numpy as np
import pytest
from sklearn import metrics

from onefit.cli import scores
from onefit.cli.scores import Judging
from onefit.displays import curves


def numbers(n=40, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.normal(size=n)
    return Judging(y, y + rng.normal(size=n), rng.uniform(0.5, 2.0, n))


def classes(c=2, n=60, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, c, n).astype(float)
    p = rng.dirichlet(np.ones(c), n)
    p[np.arange(n), y.astype(int)] += 0.3
    p = np.round(p / p.sum(axis=1, keepdims=True), 1) + 0.01  # with ties
    return Judging(y, p / p.sum(axis=1, keepdims=True), rng.uniform(0.5, 2.0, n))


CASES = [
    *(pytest.param(numbers(), one, id=name) for name, one in scores.NUMBERS.items()),
    *(pytest.param(classes(), one, id=f"{name}, two classes") for name, one in scores.CLASSES.items()),
    *(pytest.param(classes(3), one, id=f"{name}, three classes") for name, one in scores.CLASSES.items()),
]


@pytest.mark.parametrize(("judging", "function"), CASES)
def test_derivatives_in_the_weights(judging, function):
    _, derivative = function(judging)
    for i in range(0, len(judging.y), 7):
        w = judging.weights
        step = 1e-5 * np.eye(len(w))[i]
        high, low = (function(Judging(judging.y, judging.predictions, w + s))[0] for s in (step, -step))
        np.testing.assert_allclose(derivative[i], (high - low) / 2e-5, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("c", [2, 3])
def test_values_are_those_of_scikit_learn(c):
    one = classes(c)
    w, p = one.weights, one.predictions
    y = one.y.astype(int)
    value = {name: function(one)[0] for name, function in scores.CLASSES.items()}
    each = [metrics.roc_auc_score(y == k, p[:, k], sample_weight=w) for k in ([1] if c == 2 else range(c))]
    np.testing.assert_allclose(value["AUC"], np.mean(each))
    each = [
        metrics.average_precision_score(y == k, p[:, k], sample_weight=w)
        for k in ([1] if c == 2 else range(c))
    ]
    np.testing.assert_allclose(value["average precision"], np.mean(each))
    np.testing.assert_allclose(value["log-loss"], metrics.log_loss(y, p, sample_weight=w))
    if c == 2:
        np.testing.assert_allclose(value["Brier"], metrics.brier_score_loss(y, p[:, 1], sample_weight=w))


def test_numbers_are_those_of_scikit_learn():
    one = numbers()
    how = {"sample_weight": one.weights}
    np.testing.assert_allclose(scores.r2(one)[0], metrics.r2_score(one.y, one.predictions, **how))
    squared = metrics.mean_squared_error(one.y, one.predictions, **how)
    np.testing.assert_allclose(scores.rmse(one)[0], np.sqrt(squared))
    np.testing.assert_allclose(scores.mae(one)[0], metrics.mean_absolute_error(one.y, one.predictions, **how))


@pytest.mark.parametrize(
    "function", [scores.auc, scores.average_precision, scores.brier], ids=lambda f: f.__name__
)
def test_errors_are_the_spread_over_samples(function):
    rng = np.random.default_rng(0)

    def drawn():
        y = (rng.uniform(size=400) < 0.3).astype(float)
        p = 1 / (1 + np.exp(-(y + rng.normal(size=400))))
        return Judging(y, np.column_stack([1 - p, p]), np.ones(400))

    found = [function(drawn()) for _ in range(300)]
    told = np.mean([scores.standard_error(derivative, None) for _, derivative in found])
    np.testing.assert_allclose(told, np.std([value for value, _ in found]), rtol=0.15)


def test_copies_of_rows_add_nothing_where_they_are_a_group():
    one = numbers()
    twice = Judging(np.tile(one.y, 2), np.tile(one.predictions, 2), np.tile(one.weights, 2))
    _, derivative = scores.rmse(one)
    _, doubled = scores.rmse(twice)
    alone = scores.standard_error(one.weights * derivative, None)
    groups = np.tile(np.arange(len(one.y)), 2)
    np.testing.assert_allclose(scores.standard_error(twice.weights * doubled, groups), alone)


class TestCurves:
    def found(self):
        one = classes()
        positive = one.y == 1
        return (
            positive,
            one.predictions[:, 1],
            one.weights,
            curves.counts(positive, one.predictions[:, 1], one.weights),
        )

    def test_rates_are_those_of_scikit_learn(self):
        positive, p, w, found = self.found()
        x, y = curves.roc(found)
        np.testing.assert_allclose(np.trapezoid(y, x), metrics.roc_auc_score(positive, p, sample_weight=w))
        recall, precision = curves.precision_recall(found)
        area = np.sum(np.diff(recall, prepend=0.0) * precision)
        np.testing.assert_allclose(area, metrics.average_precision_score(positive, p, sample_weight=w))

    @pytest.mark.parametrize("threshold", [0.0, 0.3, 0.5, 1.0])
    def test_confusion(self, threshold):
        positive, p, w, found = self.found()
        one = curves.at(found, threshold)
        called = p >= threshold
        expected = [
            w[a & b].sum()
            for a, b in ((called, positive), (called, ~positive), (~called, positive), (~called, ~positive))
        ]
        np.testing.assert_allclose(one[1:], expected, atol=1e-12)

    def test_the_threshold_of_the_largest_f1_is_among_them(self):
        _, p, _, found = self.found()
        best = max(curves.at(found, t).f1 for t in np.unique(p))
        assert max(one.f1 for one in curves.thresholds(found) if not np.isnan(one.f1)) == pytest.approx(best)

    def test_calibration_bins_hold_all_rows(self):
        positive, p, w, _ = self.found()
        _, share, error, size = curves.calibration(positive, p, w)
        assert size.sum() == len(p)
        assert np.all((share >= 0) & (share <= 1) & (error >= 0))

    def test_long_curves_are_thinned_without_losing_their_ends(self):
        rng = np.random.default_rng(0)
        positive = rng.uniform(size=20_000) < 0.4
        found = curves.counts(positive, rng.uniform(size=20_000) + positive, np.ones(20_000))
        x, y = curves.roc(found)
        assert len(x) <= curves.MOST_POINTS + 2
        assert (x[0], y[0], x[-1], y[-1]) == (0, 0, 1, 1)
