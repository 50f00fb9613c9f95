"""Curves and tables of a two-class prediction: ROC, precision and recall, calibration, thresholds."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import confusion_matrix_at_thresholds

from onefit._typing import Array

MOST_POINTS = 300  # of a curve that is drawn
BINS = 10  # of a calibration curve
THRESHOLDS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


class Counts(NamedTuple):
    """Weights of true and false positives above each of the falling thresholds: (k,) each."""

    thresholds: Array
    true: Array
    false: Array


class Confusion(NamedTuple):
    """What happens if rows of at least a probability are called positive."""

    threshold: float
    true_positive: float
    false_positive: float
    false_negative: float
    true_negative: float

    @property
    def flagged(self) -> float:
        """Share of rows that are called positive."""
        return (self.true_positive + self.false_positive) / sum(self[1:])

    @property
    def precision(self) -> float:
        """Share of the rows called positive that are."""
        return _ratio(self.true_positive, self.true_positive + self.false_positive)

    @property
    def recall(self) -> float:
        """Share of the positive rows that are called so."""
        return _ratio(self.true_positive, self.true_positive + self.false_negative)

    @property
    def specificity(self) -> float:
        """Share of the negative rows that are called so."""
        return _ratio(self.true_negative, self.true_negative + self.false_positive)

    @property
    def accuracy(self) -> float:
        """Share of rows that are called right."""
        return (self.true_positive + self.true_negative) / sum(self[1:])

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        errors = self.false_positive + self.false_negative
        return _ratio(2.0 * self.true_positive, 2.0 * self.true_positive + errors)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else float("nan")


def counts(positive: Any, probabilities: Array, w: Array) -> Counts:
    """Count positives above every distinct probability."""
    _, false, _, true, at_least = confusion_matrix_at_thresholds(positive, probabilities, sample_weight=w)
    return Counts(at_least, true, false)


def roc(found: Counts) -> tuple[Array, Array]:
    """False and true positive rate, from (0, 0) to (1, 1)."""
    x, y = (np.concatenate([[0.0], part / part[-1]]) for part in (found.false, found.true))
    return _thinned(x, y)


def precision_recall(found: Counts) -> tuple[Array, Array]:
    """Recall and precision, from the highest threshold on."""
    return _thinned(found.true / found.true[-1], found.true / (found.true + found.false))


def _thinned(x: Array, y: Array) -> tuple[Array, Array]:
    """At most some hundred points of a curve, evenly along its length, its ends among them."""
    if len(x) <= MOST_POINTS:
        return x, y
    along = np.concatenate([[0.0], np.cumsum(np.hypot(np.diff(x), np.diff(y)))])
    wanted = np.searchsorted(along, np.linspace(0.0, along[-1], MOST_POINTS))
    keep = np.unique(np.append(np.minimum(wanted, len(x) - 1), [0, len(x) - 1]))
    return x[keep], y[keep]


def calibration(positive: Any, probabilities: Array, w: Array) -> tuple[Array, Array, Array, Array]:
    """Mean probability, share of positives, its standard error and number of rows, in bins of equal size."""
    order = np.argsort(probabilities, kind="stable")
    bins = [part for part in np.array_split(order, BINS) if part.size and w[part].sum() > 0]
    expected = np.array([np.average(probabilities[part], weights=w[part]) for part in bins])
    share = np.array([np.average(positive[part], weights=w[part]) for part in bins])
    size = np.array([w[part].sum() ** 2 / np.sum(w[part] ** 2) for part in bins])
    return expected, share, np.sqrt(share * (1.0 - share) / size), np.array([len(part) for part in bins])


def thresholds(found: Counts) -> list[Confusion]:
    """Confusion at round thresholds, and at the one of the largest F1: rising thresholds."""
    f1 = 2.0 * found.true / (found.true + found.false + found.true[-1])
    best = float(found.thresholds[int(np.argmax(f1))])
    return [at(found, one) for one in sorted({*THRESHOLDS, best})]


def at(found: Counts, threshold: float) -> Confusion:
    """Confusion at a threshold: rows of at least this probability are called positive."""
    k = int(np.searchsorted(-found.thresholds, -threshold, side="right")) - 1
    true, false = (float(found.true[k]), float(found.false[k])) if k >= 0 else (0.0, 0.0)
    return Confusion(threshold, true, false, float(found.true[-1]) - true, float(found.false[-1]) - false)
