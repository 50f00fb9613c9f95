"""From left-out linear predictors to a risk, what it may be off by, and a warning where that is much.

With it go rows to flag, and notes on what a reader should know.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.exceptions import UnreliableWarning
from onefit.leave_out import LeftOut
from onefit.leave_out.yardstick import Yardstick
from onefit.metrics import LinearMetric
from onefit.numerics import EXACT, FLAGGED, ROUNDED, TINY, UNRELIABLE
from onefit.risk.estimate import RiskEstimate
from onefit.risk.leverages import with_own_leverages
from onefit.risk.means import clustered, mean_and_error
from onefit.risk.readout import Readout
from onefit.risk.sampled import SampledPredictions
from onefit.wording import counted

DISAGREES = "lies outside of what"  # of a risk and its audit
LONE_SHARE = 0.1  # share of the risk that rows may carry whose refits would not know their class


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
    left_out = with_own_leverages(left_out)
    order = left_out.order
    rows, eta, bounds = left_out.rows[order], left_out.eta[order], left_out.bounds[order]
    target = np.asarray(y) if target is None else target
    own = target if left_out.sets is None else target[rows]
    losses, spread = response.losses(own, eta), response.spread(own, eta, bounds)
    value, std_error, error = _risk(left_out, losses, spread, sample_weight, clusters)
    if error and error <= _rounding(left_out, response, own, sample_weight) < np.inf:
        error = 0.0
    lone = class_lost(y, classes, sample_weight, left_out)[order]
    certified = left_out.certified[order] & ~lone
    likely = np.where(certified, 0.0, left_out.likely_bounds[order])
    far = reach(response, target, eta, likely) > FLAGGED
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
        _clusters=None if left_out.sets is None else _clusters(left_out, clusters),
        _removed=left_out.removed,
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
        "sampled": _sampled_rows(response, left_out),
    }


def _sampled_rows(response: LinearMetric, left_out: LeftOut) -> SampledPredictions | None:
    """Which rows a corrected mean rests on, in the terms of predictions."""
    if left_out.correction is None or left_out.correction.drawn is None:
        return None
    drawn, draw = left_out.correction.drawn, np.full(left_out.count, -1)
    draw[drawn.sets] = np.arange(len(drawn.sets))
    eta = drawn.before[left_out.order]
    return SampledPredictions(
        response.predictions(eta),
        response.decision(eta),
        draw[left_out.fold][left_out.order],
        drawn.chances,
    )


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
    value, std_error = mean_and_error(*clustered(losses, weights, _clusters(left_out, clusters)))
    if left_out.correction is not None:
        return value + left_out.correction.difference, std_error, left_out.correction.error
    off = weights * np.where(weights > 0, spread, 0.0)
    return value, std_error, float(off.sum() / weights.sum())


def _clusters(left_out: LeftOut, clusters: Any) -> Any:
    """What each value counts towards: its group, or its row, which splits may leave out several times."""
    rows = left_out.rows[left_out.order]
    return rows if clusters is None else np.asarray(clusters)[rows]


def _rounding(left_out: LeftOut, response: LinearMetric, target: Array, sample_weight: Array | None) -> float:
    """Mean by which rounding of linear predictors changes losses, of targets in their order."""
    rows = left_out.rows[left_out.order]
    off = np.full(len(rows), ROUNDED * left_out.size)
    changes = response.spread(target, left_out.eta[left_out.order], off)
    held = np.ones(len(rows)) if sample_weight is None else sample_weight[rows]
    return float(np.average(np.where(held > 0, changes, 0.0), weights=held))


def yardstick(response: LinearMetric, target: Array, weights: Array | None) -> Yardstick:
    """How the engine judges errors: by the loss that is reported."""
    return Yardstick(
        losses=lambda rows, eta: response.losses(target[rows], eta),
        spread=lambda rows, eta, bounds: response.spread(target[rows], eta, bounds),
        reach=lambda eta, bounds: reach(response, target, eta, bounds),
        weights=np.ones(len(target)) if weights is None else weights,
    )


# --- which values to trust -----------------------------------------------------------------------------


def guarantee_of(left_out: LeftOut, value: float, error: float) -> str:
    """How it is known that the mean is within an error of refits."""
    return str(guarantees(np.array(left_out.correction is not None), np.array(value), np.array(error)))


def guarantees(sampled: Mask, values: Array, errors: Array) -> Any:
    """The same of several means, where some errors are those of samples: of their shape."""
    exact = errors <= EXACT * np.maximum(np.abs(values), TINY)
    return np.select([~(errors < np.inf), sampled, exact], ["rough", "sampled", "exact"], default="bounded")


def reach(response: LinearMetric, target: Array, eta: Array, bounds: Array) -> Array:
    """How far predictions may be off, as a share of the spread of responses: (t,).

    The spread is 1 for probabilities and 2 between margins.
    """
    found, away = np.zeros(len(bounds)), np.flatnonzero(bounds)
    if away.size:
        found[away] = _moved(response, eta[away], bounds[away]) / spread(response, target)
    return found


def _moved(response: LinearMetric, eta: Array, bounds: Array) -> Array:
    """How far predictions may be off: (t,)."""
    finite = np.where(np.isfinite(bounds), bounds, 0.0)
    predictions = response.predictions(eta)
    by = _linalg.with_axes(finite, eta)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        if response.method == "predict_proba":  # the log-odds of no class move by more
            by, odds = finite[:, None], np.log(predictions) - np.log1p(-predictions)
            ends = [1.0 / (1.0 + np.exp(-(odds + side * by))) for side in (-1.0, 1.0)]
        else:
            ends = [response.predictions(eta + side * by) for side in (-1.0, 1.0)]
        moved = np.maximum(*(np.abs(end - predictions) for end in ends))
    found = np.where(np.isfinite(moved), moved, 0.0).reshape(len(moved), -1).max(axis=1)
    return np.where(np.isfinite(bounds), found, np.inf)


def spread(response: LinearMetric, target: Array) -> float:
    """Spread of responses, in the units of predictions."""
    if response.method != "predict":
        return 1.0 if response.method == "predict_proba" else 2.0
    return float(np.max(np.std(target, axis=0))) or 1.0


def class_lost(y: Any, classes: Any | None, sample_weight: Array | None, left_out: LeftOut) -> Mask:
    """Values whose refit would not know all classes, since what left was all there is of one."""
    if classes is None:
        return np.zeros(len(left_out.rows), dtype=bool)
    _, numbers = np.unique(np.ravel(y), return_inverse=True)
    held = np.ones(len(numbers), dtype=bool) if sample_weight is None else sample_weight > 0
    count = np.bincount(numbers, held)
    if left_out.removed is None:
        return (count[numbers] == 1) & held
    gone = np.array([np.bincount(numbers[rows], held[rows], len(count)) for rows in left_out.removed])
    return np.any((gone == count) & (count > 0), axis=1)[left_out.fold]


def remedy(left_out: LeftOut) -> str:
    """What tells more where the error is too large: rows that were solved anew are not solved again."""
    if left_out.failed.size and np.all(np.isin(left_out.fold, left_out.failed) | left_out.certified):
        return (
            "no solution was found without them: regularise more, or, where all other counts are zero, find "
            "more rows like them, since no penalty makes up for these"
        )
    anew = np.isin(left_out.fold, np.union1d(left_out.anew, left_out.failed))
    if left_out.correction is None and np.all(anew | left_out.certified):
        why = "has several optima" if left_out.several.size else "could not be checked"
        return f"every row was solved anew, and what {why} may differ: regularise more, or ask for audit=30"
    return "ask for exact=True, which solves without every such row, or for audit=30, or regularise more"


def notes_on(left_out: LeftOut, lone: Index) -> tuple[str, ...]:
    """What a reader of the result should know."""
    notes = []
    if lone.size:
        notes.append(
            f"no row of some class is left without row {shown(lone)}: a refit would not know the class"
        )
    if left_out.failed.size:
        notes.append(
            f"no solution without {left_out.failed.size} of the rows: steps from the fit stand in its place, "
            "flagged"
        )
    if left_out.doubt is not None:
        notes.append(
            "leverages are estimated, since to compute them takes far longer: left-out linear predictors "
            f"are off by about {float(np.sqrt(np.mean(left_out.doubt**2))):.2g} each; ask for exact=True "
            "if each matters"
        )
    if not left_out.fit.problem.loss.is_convex:
        notes.append(
            "the loss is not convex: a row may leave a lower minimum elsewhere, where a refit from another "
            "start ends; values are those of the minimum beside the fit"
        )
    if left_out.several.size:
        notes.append(
            f"several optima without {left_out.several.size} of the rows, as intercept or coefficients are "
            "undetermined: one of them, with the middle intercept, stands for them, and bounds reach to the "
            "others where they are finite"
        )
    return tuple(notes)


def shown(rows: Index) -> str:
    """The first row numbers, for a sentence."""
    return ", ".join(map(str, rows[:8])) + (", …" if len(rows) > 8 else "")


def warn_if_unreliable(result: RiskEstimate) -> None:
    """Warn when the risk may be off by more than half of its standard error, or an audit says otherwise."""
    if result._lone is not None and result._share(result._lone) > LONE_SHARE:
        warnings.warn(
            f"left out, these rows leave no other of their class, which a refit would not know: "
            f"{shown(result.rows[result._lone])}",
            UnreliableWarning,
            stacklevel=3,
        )
        return
    if not np.isfinite(result.value):
        endless = result.rows[~np.isfinite(result.losses)]
        warnings.warn(
            f"left out, row {shown(endless)} is predicted so far off that its {result.loss_name} is without "
            "bound: look at that row, or give the model a stronger penalty",
            UnreliableWarning,
            stacklevel=3,
        )
        return
    if result.audit is not None and result.audit.excludes(result.value, result.std_error):
        warnings.warn(
            f"the {result.loss_name} of {result.value:.4g} {DISAGREES} {result.audit.m} refits of the whole "
            f"model say, {result.audit.short}: give est.audit.value with est.audit.interval as the risk; "
            "value, losses and predictions hold fixed what a refit does anew, such as preprocessing",
            UnreliableWarning,
            stacklevel=3,
        )
        return
    if result.guarantee == "exact" or not result.approx_error > UNRELIABLE * result.std_error:
        return
    rows = np.flatnonzero(~np.isfinite(result.bounds))
    at, which = "row" if rows.size == 1 else "rows", shown(result.rows[rows])
    known = (
        f"may be off by {result.approx_error:.2g}, with a standard error of {result.std_error:.2g}"
        if np.isfinite(result.approx_error)
        else f"rests on {counted(rows.size, 'row')} of whose refits nothing is known ({at} {which})"
    )
    warnings.warn(
        f"the {result.loss_name} of {result.value:.4g} {known}: {result._remedy}",
        UnreliableWarning,
        stacklevel=3,
    )
