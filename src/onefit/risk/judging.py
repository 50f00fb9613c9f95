"""From left-out linear predictors to a risk, what it may be off by, and a warning where that is much."""

from __future__ import annotations

from typing import Any

import numpy as np

from onefit._typing import Array
from onefit.leave_out import LeftOut
from onefit.leave_out.yardstick import Yardstick
from onefit.metrics import LinearMetric
from onefit.numerics import FLAGGED
from onefit.risk.estimate import Readout, RiskEstimate
from onefit.risk.means import clustered, mean_and_error
from onefit.risk.trust import class_lost, guarantee_of, notes_on, reach, remedy


def estimate(
    left_out: LeftOut,
    response: LinearMetric,
    y: Any,
    *,
    target: Array | None = None,
    sample_weight: Array | None = None,
    classes: Any | None = None,
    notes: tuple[str, ...] = (),
    clusters: Any | None = None,
    readout: Readout | None = None,
) -> RiskEstimate:
    """Judge left-out linear predictors.

    Parameters
    ----------
    left_out : LeftOut
    response : LinearMetric
    y : array
        Response in the user's terms.
    target : array, optional
        Response in the terms of ``response`` (class numbers for classifiers), if other than ``y``.
    sample_weight : (n,) array, optional
    classes : array, optional
    notes : tuple of str
    clusters : (n,) array, optional
        Rows of the same cluster are not independent, and the standard error is that of the clusters.
    readout : Readout, optional
        How new rows are predicted.
    """
    order = left_out.order
    rows, eta, bounds = left_out.rows[order], left_out.eta[order], left_out.bounds[order]
    target = np.asarray(y) if target is None else target
    losses = response.losses(target[rows], eta)
    spread = response.spread(target[rows], eta, bounds)
    value, std_error, error = _risk(left_out, losses, spread, sample_weight, clusters)
    lone = class_lost(y, classes, sample_weight, left_out)[order]
    certified = left_out.certified[order] & ~lone
    far = (reach(response, target, eta, left_out.likely_bounds[order]) > FLAGGED) & ~certified
    return RiskEstimate(
        value=value,
        std_error=std_error,
        losses=losses,
        y=y,
        sample_weight=sample_weight,
        classes=classes,
        approx_error=error if error < np.inf else float("inf"),
        guarantee=guarantee_of(left_out, value, error),
        bounds=bounds,
        certified=certified,
        rows=rows,
        flagged=np.flatnonzero(far | lone),
        notes=(*notes, *notes_on(left_out, rows[lone])),
        _lone=lone,
        _readout=readout,
        **_in_terms_of(response, left_out),
        **_taken_over(left_out),
    )


def _in_terms_of(response: LinearMetric, left_out: LeftOut) -> dict[str, Any]:
    """Predictors and predictions, and what they are."""
    eta = left_out.eta[left_out.order]
    return {
        "predictions": response.predictions(eta),
        "decision": response.decision(eta),
        "fitted": response.decision(left_out.fit.eta)[left_out.rows[left_out.order]],
        "loss_name": response.loss_name,
        "method": response.method,
    }


def _taken_over(left_out: LeftOut) -> dict[str, Any]:
    """What was known before the rows were judged."""
    return {
        "leverages": left_out.leverages[left_out.rows[left_out.order]],
        "effective_df": left_out.effective_df,
        "refinement": left_out.refinement,
        "_by_row": left_out.sets is None,
        "_remedy": remedy(left_out),
        "_left_out": left_out,
    }


def _risk(
    left_out: LeftOut, losses: Array, spread: Array, sample_weight: Array | None, clusters: Any
) -> tuple[float, float, float]:
    """Mean loss, its standard error, and what it may be off by: of all rows, or corrected by a sample."""
    rows = left_out.rows[left_out.order]
    weights = np.ones(len(losses)) if sample_weight is None else sample_weight[rows]
    clusters = rows if clusters is None else np.asarray(clusters)[rows]
    value, std_error = mean_and_error(*clustered(losses, weights, clusters))
    if left_out.correction is not None:
        return value + left_out.correction.difference, std_error, left_out.correction.error
    off = weights * np.where(weights > 0, spread, 0.0)
    return value, std_error, float(off.sum() / weights.sum())


def yardstick(response: LinearMetric, target: Array, weights: Array | None) -> Yardstick:
    """How the engine judges errors: by the loss that is reported."""
    return Yardstick(
        losses=lambda rows, eta: response.losses(target[rows], eta),
        spread=lambda rows, eta, bounds: response.spread(target[rows], eta, bounds),
        reach=lambda eta, bounds: reach(response, target, eta, bounds),
        weights=np.ones(len(target)) if weights is None else weights,
    )
