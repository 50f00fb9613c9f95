"""Which values to trust: rows to flag, what a reader should know, and when to warn."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from onefit._typing import Array, Index, Mask
from onefit.exceptions import UnreliableWarning
from onefit.leave_out import LeftOut
from onefit.metrics import LinearMetric
from onefit.numerics import EXACT, TINY, UNRELIABLE

if TYPE_CHECKING:
    from onefit.risk.estimate import RiskEstimate

LONE_SHARE = 0.1  # share of the risk that rows may carry whose refits would not know their class


def guarantee_of(left_out: LeftOut, value: float, error: float) -> str:
    """How it is known that the mean is within an error of refits."""
    if left_out.correction is not None:
        return "sampled"
    if not error < np.inf:
        return "rough"
    return "exact" if error <= EXACT * max(abs(value), TINY) else "bounded"


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
    by = finite.reshape(-1, *(1,) * (eta.ndim - 1))
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
            f"{left_out.failed.size} refits have no solution: steps from the fit stand in their place, "
            "flagged"
        )
    if left_out.several.size:
        notes.append(
            f"{left_out.several.size} refits have several optima, since their intercept or coefficients are "
            "undetermined: one of them, with the middle intercept, stands for them, and bounds reach to the "
            "others where they are finite"
        )
    return tuple(notes)


def shown(rows: Index) -> str:
    """The first row numbers, for a sentence."""
    return ", ".join(map(str, rows[:8])) + (", …" if len(rows) > 8 else "")


def warn_if_unreliable(result: RiskEstimate) -> None:
    """Warn when the risk may be off by more than half of its standard error."""
    if result._lone is not None and result._share(result._lone) > LONE_SHARE:
        warnings.warn(
            f"rows {shown(result.rows[result._lone])} leave no other of their class: a refit without "
            "them would not know it",
            UnreliableWarning,
            stacklevel=3,
        )
        return
    if result.guarantee == "exact" or not result.approx_error > UNRELIABLE * result.std_error:
        return
    rows = np.flatnonzero(~np.isfinite(result.bounds))
    which = shown(result.rows[rows])
    known = (
        f"may be off by {result.approx_error:.2g}, with a standard error of {result.std_error:.2g}"
        if np.isfinite(result.approx_error)
        else f"rests on {rows.size} rows of whose refits nothing is known (rows {which})"
    )
    warnings.warn(
        f"the {result.loss_name} of {result.value:.4g} {known}: {result._remedy}",
        UnreliableWarning,
        stacklevel=3,
    )
