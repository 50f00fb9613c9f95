"""Intervals at prediction time, from what a saved model keeps of its left-out fits.

The jackknife+ (Barber, Candès, Ramdas and Tibshirani 2021, eq. 1.2) needs the predictions of left-out fits.
Its guarantee holds for any fixed subset of the rows too: given all other rows, which are in every fit, those
of the subset and a new one are exchangeable.  So some hundred rows, drawn without looking at the data, are
kept.  Where the left-out coefficients would not fit into memory, and for groups and time, the
left-out residuals alone are kept, and added to the prediction (the jackknife); those of a group count as one
together (Lee, Barber and Willett 2023).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onefit._typing import Array
from onefit.cli.judged import METRICS, LeftOutTable
from onefit.risk.estimate import RiskEstimate
from onefit.risk.interval import plus, shares_of

KEPT = 1000  # rows whose left-out fits are kept
MOST_COEFFICIENTS = 20_000_000  # that are held at once on the way
BLOCK = 2_000_000  # numbers


def keep(est: RiskEstimate, judged: LeftOutTable, y: Any, n_features: int) -> dict[str, Any]:
    """What a saved model needs for intervals; nothing for classes."""
    if est.classes is not None:
        return {}
    residuals = np.asarray(y, dtype=np.float64)[judged.rows] - judged.predictions
    chosen = np.sort(np.random.default_rng(0).permutation(len(residuals))[:KEPT])
    kept: dict[str, Any] = {"residuals": residuals[chosen]}
    if judged.clusters is not None:
        kept["groups"] = judged.clusters[chosen]
    if not judged.together and n_features * len(residuals) <= MOST_COEFFICIENTS:
        kept |= {"coef": est.coef()[chosen], "intercept": est.intercept()[chosen], "link": est.loss_name}
    return kept


def bounds(kept: dict[str, Any], X: Array, predictions: Array, coverage: float) -> Array:
    """Lower and upper bounds of new responses: (m, 2).

    Parameters
    ----------
    kept : dict
        From ``keep``.
    X : (m, p) array
        New rows after preprocessing.
    predictions : (m,) array
    coverage : float in (0, 1)
    """
    residuals = np.abs(kept["residuals"])
    shares = shares_of(kept["groups"]) if "groups" in kept else None
    size = max(1, BLOCK // len(residuals))
    parts = []
    for start in range(0, len(X), size):
        part = slice(start, start + size)
        without = predictions[part, None]
        if "coef" in kept:
            eta = X[part] @ kept["coef"].T + kept["intercept"]
            without = METRICS[kept["link"]].predictions(eta)
        parts.append(plus(without, residuals, coverage, shares))
    return np.concatenate(parts)
