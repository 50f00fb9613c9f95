"""What refits of an estimator tell: audits of the formula, and the risk of models that have none."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from onefit._progress import progress_line
from onefit._typing import Array, Index, Mask
from onefit.exceptions import UnreliableWarning
from onefit.leave_out import Refinement
from onefit.leave_out.sets import Folds
from onefit.metrics import LinearMetric, Metric
from onefit.readers import Reading
from onefit.refits import Refits, left_out_predictions, metric_of
from onefit.risk.audit import Audit, Lottery, audit_sets, draw
from onefit.risk.audit import audit as correct
from onefit.risk.estimate import RiskEstimate
from onefit.risk.means import clustered, mean_and_error
from onefit.risk.sampled import SampledPredictions


@dataclass(frozen=True, eq=False)
class GivenSample:
    """A model and the data it was fitted on, as they were given."""

    model: Any
    X: Any
    y: Any
    sample_weight: Any

    def weights(self, n: int) -> Array:
        """Weight of each row in the risk: (n,)."""
        return np.ones(n) if self.sample_weight is None else np.asarray(self.sample_weight, dtype=np.float64)

    def refits(self, folds: Folds, which: Index, method: str, label: str) -> Refits:
        """Predictions of clones fitted without some of the folds; a warning says which refits failed."""
        line = progress_line(label)
        found = left_out_predictions(
            self.model,
            self.X,
            self.y,
            [folds.removed[k] for k in which],
            [folds.tested[k] for k in which],
            sample_weight=self.sample_weight,
            method=method,
            progress=lambda done: line(done, len(which)),
        )
        if found.failures:
            first = found.failures[0]
            warnings.warn(
                f"{len(found.failures)} of {len(which)} refits failed and keep the approximation; the first, "
                f"without rows {first.removed[:8].tolist()}: {first.error}",
                UnreliableWarning,
                stacklevel=4,
            )
        return found


def audited(
    sample: GivenSample,
    reading: Reading,
    folds: Folds,
    result: RiskEstimate,
    m: int,
    rng: int | np.random.Generator | None,
) -> Audit:
    """Audit the formula by refits of the estimator itself; what is drawn are rows, or sets of them."""
    first = folds.entries(result.rows)
    assert result._left_out is not None
    training = reading.metric.losses(reading.target[result.rows], result._left_out.fit.eta[result.rows])
    weights = sample.weights(folds.n)[folds.rows]
    refitted = partial(_refitted_losses, sample, folds, reading.metric, reading.target)
    return audit_sets(result.losses[first], weights, folds.fold, (m, rng), refitted, training[first])


def audited_folds(
    sample: GivenSample,
    folds: Folds,
    losses: Array,
    metric: LinearMetric,
    target: Array,
    lottery: Lottery,
) -> Audit:
    """Audit left-out losses by refits without some of the folds, drawn by the size of these losses.

    Parameters
    ----------
    sample : GivenSample
    folds : Folds
    losses : (t,) array
        Left-out loss of each of ``folds.rows``, in the units of ``metric``.
    metric : LinearMetric
    target : (n,) array
        Response in the terms of ``metric``.
    lottery : (int, int or Generator or None)
        How many folds are drawn, and from what.
    """
    refitted = partial(_refitted_losses, sample, folds, metric, target)
    return audit_sets(losses, sample.weights(folds.n)[folds.rows], folds.fold, lottery, refitted)


def _refitted_losses(
    sample: GivenSample, folds: Folds, metric: LinearMetric, target: Array, which: Index
) -> Array:
    """Mean loss of each of some folds by refits."""
    found = sample.refits(folds, which, metric.refit_method, "audit")
    weights = sample.weights(folds.n)
    losses = [
        mean_and_error(metric.of_refits(target[folds.tested[k]], outputs), weights[folds.tested[k]])[0]
        for k, outputs in zip(which, found.predictions, strict=True)
    ]
    return np.array(losses)


def by_refits(
    sample: GivenSample,
    folds: Folds,
    lottery: Lottery | None,
    predictions: Any,
) -> RiskEstimate:
    """Judge a model without a formula: by refits for all folds, or for some that are drawn."""
    metric = metric_of(sample.model)
    target, weights = metric.target(sample.y), sample.weights(folds.n)
    fitted = np.asarray(getattr(sample.model, metric.method)(sample.X))
    left_out = _approximate(predictions, fitted, metric.method)[folds.rows]
    thought = left_out.copy()
    before = metric.of_predictions(target[folds.rows], left_out)
    means, totals = clustered(before, weights[folds.rows], folds.fold)
    drawn = None if lottery is None else draw(means, totals, lottery[0], np.random.default_rng(lottery[1]))
    which = np.arange(len(folds)) if drawn is None else drawn.rows
    found = sample.refits(folds, which, metric.method, "refits")
    done = np.zeros(len(folds.rows), dtype=bool)
    exact = np.full(len(which), np.nan)
    for place, (k, part) in enumerate(zip(which, found.predictions, strict=True)):
        loss = metric.of_predictions(target[folds.tested[k]], part)
        exact[place] = mean_and_error(loss, weights[folds.tested[k]])[0]
        own = np.flatnonzero(folds.fold == k)
        if np.isfinite(loss).all():
            left_out[own], done[own] = part, True
    result = _estimate(
        metric,
        metric.of_predictions(target[folds.rows], left_out),
        left_out,
        fitted,
        y=sample.y,
        sample_weight=None if sample.sample_weight is None else weights,
        folds=folds,
        done=done,
        classes=getattr(sample.model, "classes_", None) if metric.method != "predict" else None,
    )
    if drawn is None:
        return result
    draws = np.full(len(folds), -1)
    draws[drawn.rows] = np.arange(len(drawn.rows))
    own = np.where(done, draws[folds.fold], -1)[folds.order]
    rough = thought[folds.order]
    decision, chances = _as_decision(rough, metric.method), drawn.probabilities
    sampled = SampledPredictions(rough, decision, own, chances, has_seen=predictions is None)
    return replace(_by_audit(result, correct(means, drawn, exact, totals), len(folds)), sampled=sampled)


def _approximate(predictions: Any, fitted: Array, method: str) -> Array:
    """What stands for left-out predictions where nothing was refitted."""
    if predictions is not None and np.shape(predictions) != fitted.shape:
        raise ValueError(
            f"predictions must be of the shape that model.{method}(X) has, {fitted.shape}, got "
            f"{np.shape(predictions)}"
        )
    return np.array(fitted if predictions is None else predictions, dtype=fitted.dtype)


def _estimate(
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
    order, rows = folds.order, folds.rows[folds.order]
    weights = (np.ones(folds.n) if sample_weight is None else sample_weight)[rows]
    value, std_error = mean_and_error(*clustered(losses[order], weights, rows))
    return RiskEstimate(
        _clusters=rows,
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
        _removed=folds.removed,
    )


def _by_audit(result: RiskEstimate, audit: Audit, folds: int) -> RiskEstimate:
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
