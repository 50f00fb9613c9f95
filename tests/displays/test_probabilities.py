"""Curves of left-out probabilities against scikit-learn and counts by hand."""

from __future__ import annotations

from itertools import pairwise

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import auc, confusion_matrix, precision_recall_curve, roc_auc_score, roc_curve

import onefit
from onefit.displays import curves
from onefit.displays.probabilities import CURVES, curve

mpl.use("Agg")

N = 60


@pytest.fixture(scope="module")
def sample():
    rng = np.random.default_rng(0)
    probabilities = rng.uniform(size=N).round(1)  # with ties
    return rng.uniform(size=N) < probabilities, probabilities, rng.uniform(0.5, 2.0, N)


@pytest.fixture(scope="module", params=["equal", "weighted"])
def weighted(request, sample):
    positive, probabilities, weights = sample
    return positive, probabilities, np.ones(N) if request.param == "equal" else weights


@pytest.fixture(scope="module")
def est():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(80, 3))
    labels = np.where(X[:, 0] + rng.normal(size=80) > 0, "yes", "no")
    return onefit.loo(LogisticRegression().fit(X, labels), X, labels)


class TestRoc:
    def test_is_scikit_learns(self, weighted):
        positive, probabilities, weights = weighted
        x, y = curves.roc(curves.counts(positive, probabilities, weights))
        wanted = roc_curve(positive, probabilities, sample_weight=weights, drop_intermediate=False)
        np.testing.assert_allclose(x, wanted[0], atol=1e-12)
        np.testing.assert_allclose(y, wanted[1], atol=1e-12)

    def test_its_area_survives_thinning(self):
        rng = np.random.default_rng(1)
        probabilities = rng.uniform(size=5000)
        positive = rng.uniform(size=5000) < probabilities
        x, y = curves.roc(curves.counts(positive, probabilities, np.ones(5000)))
        assert len(x) <= curves.MOST_POINTS + 2
        assert (x[0], y[0], x[-1], y[-1]) == (0.0, 0.0, 1.0, 1.0)
        assert auc(x, y) == pytest.approx(roc_auc_score(positive, probabilities), abs=1e-3)


def test_precision_and_recall_are_scikit_learns(weighted):
    positive, probabilities, weights = weighted
    recall, precision = curves.precision_recall(curves.counts(positive, probabilities, weights))
    wanted = precision_recall_curve(positive, probabilities, sample_weight=weights)
    np.testing.assert_allclose(recall, wanted[1][-2::-1])  # which ends in an invented point (0, 1)
    np.testing.assert_allclose(precision, wanted[0][-2::-1])


class TestCalibration:
    def test_of_twenty_rows_by_hand(self):
        probabilities = np.repeat(np.arange(10) / 10 + 0.05, 2)
        positive = np.tile([True, False], 10)
        positive[:2], positive[-2:] = False, True
        expected, share, error, size = curves.calibration(positive, probabilities, np.ones(20))
        np.testing.assert_allclose(expected, np.arange(10) / 10 + 0.05)
        np.testing.assert_array_equal(share, [0.0, *[0.5] * 8, 1.0])
        np.testing.assert_allclose(error, [0.0, *[np.sqrt(0.25 / 2)] * 8, 0.0])
        np.testing.assert_array_equal(size, 2)

    def test_bins_hold_all_rows_and_keep_the_means(self, weighted):
        positive, probabilities, weights = weighted
        order = np.argsort(probabilities, kind="stable")
        expected, share, _, size = curves.calibration(positive, probabilities, weights)
        ends = np.cumsum([0, *size])
        total = np.array([weights[order[a:b]].sum() for a, b in pairwise(ends)])
        assert size.sum() == N
        assert expected @ total == pytest.approx(probabilities @ weights)
        assert share @ total == pytest.approx(weights[positive].sum())


class TestThresholds:
    def test_are_confusion_matrices(self, weighted):
        positive, probabilities, weights = weighted
        for one in curves.thresholds(curves.counts(positive, probabilities, weights)):
            wanted = confusion_matrix(positive, probabilities >= one.threshold, sample_weight=weights)
            found = [
                [one.true_negative, one.false_positive],
                [one.false_negative, one.true_positive],
            ]
            np.testing.assert_allclose(found, wanted, atol=1e-12)

    def test_rates_by_hand(self):
        one = curves.Confusion(0.5, true_positive=6, false_positive=2, false_negative=3, true_negative=9)
        assert (one.precision, one.recall, one.specificity) == (6 / 8, 6 / 9, 9 / 11)
        assert (one.accuracy, one.flagged, one.f1) == (15 / 20, 8 / 20, 12 / 17)

    def test_precision_of_no_row_is_not_a_number(self):
        found = curves.counts(np.array([True, False]), np.array([0.3, 0.2]), np.ones(2))
        assert np.isnan(curves.at(found, 0.9).precision)

    def test_the_largest_f1_is_among_them(self, weighted):
        positive, probabilities, weights = weighted
        found = curves.counts(positive, probabilities, weights)
        everywhere = max(curves.at(found, p).f1 for p in np.unique(probabilities))
        assert max(one.f1 for one in curves.thresholds(found)) == pytest.approx(everywhere)


class TestPlot:
    def test_roc_is_that_of_the_left_out_probabilities(self, est):
        display = est.plot(Figure().subplots(), kind="roc")
        assert auc(display.x, display.y) == pytest.approx(est.score("auc"))
        drawn = display.ax_.lines[-1].get_xydata()
        np.testing.assert_array_equal(drawn, np.stack([display.x, display.y], axis=1))

    def test_thresholds_draw_three_rates(self, est):
        display = est.plot(Figure().subplots(), kind="thresholds")
        assert [line.get_label() for line in display.ax_.lines] == ["recall", "precision", "accuracy"]
        half = next(one for one in display.found if one.threshold == 0.5)
        right = (est.predictions[:, 1] >= 0.5) == (est.y == "yes")
        assert half.accuracy == pytest.approx(np.mean(right))

    def test_calibration_and_precision_say_what_they_show(self, est):
        names = {
            "calibration": ("left-out probability", "share of positive rows"),
            "precision-recall": ("recall", "precision"),
        }
        for kind, wanted in names.items():
            drawn = est.plot(Figure().subplots(), kind=kind).ax_
            assert (drawn.get_xlabel(), drawn.get_ylabel()) == wanted

    def test_other_kinds_and_regressors_are_refused(self, est):
        with pytest.raises(ValueError, match="kind must be one of left-out"):
            est.plot(Figure().subplots(), kind="pie")
        rng = np.random.default_rng(3)
        X, y = rng.normal(size=(20, 2)), rng.normal(size=20)
        with pytest.raises(ValueError, match="probabilities of two classes"):
            onefit.loo(Ridge().fit(X, y), X, y).plot(kind="roc")

    @pytest.mark.parametrize("kind", CURVES)
    def test_every_kind_has_a_curve(self, sample, kind):
        ax = Figure().subplots()
        curve(kind, *sample).plot(ax)
        assert ax.lines
