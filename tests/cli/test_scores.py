"""Scores against scikit-learn; their errors against derivatives in the weights and fresh samples."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn import metrics

from onefit._scoring import Pooled, by_row
from onefit.cli.comparison import CLASSES, NUMBERS
from onefit.displays import curves
from onefit.risk.means import clustered, mean_and_error


def numbers(n=40, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.normal(size=n)
    p = y + rng.normal(size=n)
    return Pooled(y, p, p, "predict", None, rng.uniform(0.5, 2.0, n))


def classes(c=2, n=60, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, c, n).astype(float)
    p = rng.dirichlet(np.ones(c), n)
    p[np.arange(n), y.astype(int)] += 0.3
    p = np.round(p / p.sum(axis=1, keepdims=True), 1) + 0.01  # with ties
    p = np.round(p / p.sum(axis=1, keepdims=True), 10)
    return Pooled(y, p, p, "predict_proba", np.arange(c), rng.uniform(0.5, 2.0, n))


def value(pooled, function):
    return float(pooled.shares @ function(pooled))


CASES = [
    *(pytest.param(numbers(), one, id=name) for name, (_, one) in NUMBERS.items()),
    *(pytest.param(classes(), one, id=f"{name}, two classes") for name, (_, one) in CLASSES.items()),
    *(pytest.param(classes(3), one, id=f"{name}, three classes") for name, (_, one) in CLASSES.items()),
]


@pytest.mark.parametrize(("pooled", "function"), CASES)
def test_values_of_rows_are_derivatives_in_their_weights(pooled, function):
    w = pooled.weights
    derivative = (function(pooled) - value(pooled, function)) / w.sum()
    for i in range(0, len(w), 7):
        step = 1e-5 * np.eye(len(w))[i]
        high, low = (value(replace(pooled, weights=w + s), function) for s in (step, -step))
        np.testing.assert_allclose(derivative[i], (high - low) / 2e-5, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("c", [2, 3])
def test_values_are_those_of_scikit_learn(c):
    one = classes(c)
    w, p = one.weights, one.predictions
    y = one.y.astype(int)
    found = {name: sign * value(one, function) for name, (sign, function) in CLASSES.items()}
    kinds = {"AUC": metrics.roc_auc_score, "average precision": metrics.average_precision_score}
    for name, score in kinds.items():
        each = [score(y == k, p[:, k], sample_weight=w) for k in ([1] if c == 2 else range(c))]
        np.testing.assert_allclose(found[name], np.mean(each))
    right = metrics.accuracy_score(y, p.argmax(axis=1), sample_weight=w)
    np.testing.assert_allclose(found["accuracy"], right)
    if c == 2:
        np.testing.assert_allclose(found["Brier"], metrics.brier_score_loss(y, p[:, 1], sample_weight=w))


def test_numbers_are_those_of_scikit_learn():
    one = numbers()
    how = {"sample_weight": one.weights}
    found = {name: sign * value(one, function) for name, (sign, function) in NUMBERS.items()}
    np.testing.assert_allclose(found["R²"], metrics.r2_score(one.y, one.predictions, **how))
    squared = metrics.mean_squared_error(one.y, one.predictions, **how)
    np.testing.assert_allclose(found["RMSE"], np.sqrt(squared))
    np.testing.assert_allclose(found["MAE"], metrics.mean_absolute_error(one.y, one.predictions, **how))


@pytest.mark.parametrize("function", [by_row.area, by_row.precision, by_row.brier], ids=lambda f: f.__name__)
def test_errors_are_the_spread_over_samples(function):
    rng = np.random.default_rng(0)

    def drawn():
        y = (rng.uniform(size=400) < 0.3).astype(float)
        p = 1 / (1 + np.exp(-(y + rng.normal(size=400))))
        p = np.column_stack([1 - p, p])
        return Pooled(y, p, p, "predict_proba", np.arange(2))

    found = [mean_and_error(function(drawn()), np.ones(400)) for _ in range(300)]
    told = np.mean([error for _, error in found])
    np.testing.assert_allclose(told, np.std([value for value, _ in found]), rtol=0.15)


def test_copies_of_rows_add_nothing_where_they_are_a_group():
    one = numbers()
    twice = one.some(np.tile(np.arange(len(one.y)), 2))
    alone = mean_and_error(by_row.root(one), one.weights)
    groups = np.tile(np.arange(len(one.y)), 2)
    again = mean_and_error(*clustered(by_row.root(twice), twice.weights, groups))
    np.testing.assert_allclose(again, alone)


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
        np.testing.assert_allclose(metrics.auc(x, y), metrics.roc_auc_score(positive, p, sample_weight=w))
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
