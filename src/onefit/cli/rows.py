"""Rows that deserve a look: flagged, decisive, predicted worst."""

from __future__ import annotations

from typing import Any

import numpy as np

from onefit.cli.comparison import Ranking
from onefit.cli.judged import METRICS
from onefit.cli.trust import HIGH_LEVERAGE
from onefit.displays.cloud import largest
from onefit.risk.estimate import RiskEstimate
from onefit.wording import to_digits

MOST_ROWS = 20  # of one table in the report
WORST = 10
DECIDING = 8


def worst(comparison: Ranking) -> list[list[str]]:
    """Rows of the largest loss: number, y, left-out prediction, loss."""
    judged = comparison.best.judged
    est = comparison.best.estimate
    order = largest(judged.losses, WORST)
    return [
        [
            *_observed(comparison, judged.rows[i]),
            _predicted(est, judged.predictions[i]),
            to_digits(judged.losses[i], 4),
        ]
        for i in order
    ]


def flagged(comparison: Ranking) -> list[list[str]]:
    """Flagged rows of the highest leverage: number, y, left-out prediction, leverage, loss, why."""
    if comparison.cuts is not None:
        return []
    est = comparison.best.estimate
    rows = est.flagged[np.argsort(-est.leverages[est.flagged], kind="stable")][:MOST_ROWS]
    return [
        [
            *_observed(comparison, i),
            _predicted(est, est.predictions[i]),
            f"{est.leverages[i]:.3f}",
            to_digits(est.losses[i], 4),
            "determines most of its own fit (leverage near 1)"
            if est.leverages[i] >= HIGH_LEVERAGE
            else "without it other coefficients may be zero",
        ]
        for i in rows
    ]


def deciding(comparison: Ranking) -> list[list[str]]:
    """Rows that decide most, the highest Cook's distance first.

    Parameters
    ----------
    comparison : Ranking

    Returns
    -------
    list of list of str
        Cells of row number, y, fitted value, left-out prediction, leverage, Cook's distance and the
        coefficient that it moves most; none where the influence cannot be had.
    """
    est = comparison.best.estimate
    try:
        influence = est.influence(top=DECIDING)
    except ValueError:  # the fits without each row are not kept with every result
        return []
    fitted, distance = METRICS[est.loss_name].predictions(est.fitted), influence.cooks_distance
    pulls = np.abs(influence.dfbetas.reshape(len(influence.dfbetas), -1, influence.dfbetas.shape[-1])).max(
        axis=1
    )
    names = comparison.feature_names
    return [
        [
            *_observed(comparison, i),
            _predicted(est, fitted[i]),
            _predicted(est, est.predictions[i]),
            f"{influence.leverages[i]:.3f}",
            f"{distance[i]:.3g}",
            names[int(np.argmax(pull))],
        ]
        for i, pull in zip(influence.rows[: len(pulls)], pulls, strict=True)
        if np.isfinite([distance[i], *pull]).all()
    ]


def _observed(comparison: Ranking, i: int) -> list[str]:
    """Cells of the number of a row and of its y."""
    table = comparison.table
    y = str(table.y[i]) if table.is_classification else to_digits(table.y[i], 5)
    return [str(table.rows[i]), y]


def _predicted(est: RiskEstimate, value: Any) -> str:
    """Cell of a prediction: a number, or the likeliest class and its probability."""
    if est.classes is None:
        return to_digits(value, 5)
    return f"{np.asarray(est.classes)[value.argmax()]} ({value.max():.2f})"
