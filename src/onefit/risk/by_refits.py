"""The result of refits alone, for models that have no formula."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from onefit._typing import Array, Mask
from onefit.leave_out import Refinement
from onefit.leave_out.sets import Folds
from onefit.metrics import Metric
from onefit.risk.audit import Audit
from onefit.risk.estimate import RiskEstimate
from onefit.risk.means import clustered, mean_and_error


def estimate_by_refits(
    metric: Metric,
    losses: Array,
    predictions: Array,
    fitted: Array,
    *,
    y: Any,
    sample_weight: Array | None,
    folds: Folds,
    done: Mask,
    classes: Any | None,
) -> RiskEstimate:
    """Judge predictions of refits, and of the model itself where there was none.

    Parameters
    ----------
    metric : Metric
    losses, predictions : arrays
        Of each of ``folds.rows``.
    fitted : array
        Predictions of the model for all rows.
    done : bool array
        Which of ``folds.rows`` were refitted.
    """
    order = np.argsort(folds.rows, kind="stable") if folds.is_partition else np.arange(len(folds.rows))
    rows = folds.rows[order]
    weights = (np.ones(folds.n) if sample_weight is None else sample_weight)[rows]
    value, std_error = mean_and_error(*clustered(losses[order], weights, rows))
    return RiskEstimate(
        value=value,
        std_error=std_error,
        losses=losses[order],
        predictions=predictions[order],
        decision=_as_decision(predictions[order], metric.method),
        fitted=_as_decision(fitted, metric.method)[rows],
        leverages=np.full(len(rows), np.nan),
        effective_df=float("nan"),
        y=y,
        sample_weight=sample_weight,
        classes=classes,
        loss_name=metric.loss_name,
        method=metric.method,
        approx_error=0.0,
        guarantee="exact",
        bounds=np.where(done[order], 0.0, np.inf),
        certified=done[order],
        rows=rows,
        flagged=np.flatnonzero(~done[order]),
        notes=("there is no formula for this model: every value is that of a refit",),
        refinement=Refinement(0, refitted=len(folds)),
        _by_row=len(folds) == folds.n,
    )


def by_audit(result: RiskEstimate, audit: Audit, folds: int) -> RiskEstimate:
    """The value of an audit in place of the mean loss, which has no meaning where few folds were refitted."""
    return replace(
        result,
        value=audit.value,
        # rows with large losses are drawn more often, so this errs on the large side
        std_error=float(np.nanstd(audit.refitted_losses) / np.sqrt(folds)),
        approx_error=0.5 * (audit.interval[1] - audit.interval[0]),
        guarantee="sampled",
        notes=(
            f"there is no formula for this model: the risk is that of the audit, from {audit.m} refits; "
            "other rows keep predictions that have seen them",
        ),
        audit=audit,
        refinement=None,
    )


def _as_decision(predictions: Array, method: str) -> Array:
    """Scores whose sign, or whose largest, tells the class: log-odds for probabilities."""
    if method != "predict_proba":
        return predictions
    with np.errstate(divide="ignore"):
        scores = np.log(predictions)
    return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores
