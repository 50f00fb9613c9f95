"""Run onefit on one problem and write down how it went."""

from __future__ import annotations

import time
import traceback
import warnings
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

import onefit
from onefit.exceptions import OnefitWarning, SolverError, UnreliableWarning, UnsupportedModelError
from onefit.fit import Fit
from onefit.solvers.solve import solve
from zoo.draw import Case
from zoo.reference import Candidate, Reference, centred, is_symmetric, with_scale

PRECISION = 1e-5  # of predictors that are proven, relative to their spread: refits have five to six digits
WORTH_A_LOOK = 1e-4  # share of the risk that a row must move before its reference is looked at again
LOOKS = 10  # rows whose reference is looked at again for what they move
MOST_ENDS = 30  # sets whose other optima are looked for
WITHIN = 1e-7  # of the risk, relative: what refits may leave of an error in all
FLAG, OFF = 0.01, 0.005  # of the response's spread: what a flag claims, and what it must at least be


@dataclass(frozen=True)
class Outcome:
    """What onefit said of one problem."""

    value: float
    std_error: float
    approx_error: float
    guarantee: str
    bounds: np.ndarray
    certified: np.ndarray
    flagged: np.ndarray
    decision: np.ndarray
    predictions: np.ndarray
    losses: np.ndarray
    notes: str


def outcome(est: Any) -> Outcome:
    """Read a result: the one place that knows how proofs and bounds are called."""
    certified = est.certified
    flags = np.isin(np.arange(len(certified)), est.flagged)
    return Outcome(
        value=float(est.value),
        std_error=float(est.std_error),
        approx_error=float(est.approx_error),
        guarantee=est.guarantee,
        bounds=np.asarray(est.bounds),
        certified=certified,
        flagged=flags,
        decision=est.decision,
        predictions=est.predictions,
        losses=est.losses,
        notes=" ".join(est.notes),
    )


@dataclass
class Record:
    """How it went with one problem, as it is written to disk.

    ``status`` is "judged", "refused" (a clear error of ours), "crash", "too slow", "no data", "no fit" (of
    another library) or "no reference".
    """

    number: int
    family: str
    mode: str
    n: int = 0
    p: int = 0
    tags: tuple[str, ...] = ()
    status: str = "judged"
    message: str = ""
    value: float = np.nan
    reference: float = np.nan
    std_error: float = np.nan
    approx_error: float = np.nan
    guarantee: str = ""
    false_bounds: int = 0  # rows further off than their bound
    false_certificates: int = 0  # certified rows that are off
    worst_excess: float = 0.0  # by how much a bound was missed at most, relative to the spread of predictors
    flagged: int = 0
    flagged_off: int = 0  # flagged rows off by half a per cent of the response's spread
    silent_off: int = 0  # rows off by one per cent that are neither flagged nor covered by their bound
    warned: bool = False
    leaked: tuple[str, ...] = ()
    undetermined: int = 0  # rows without which there are several optima
    said: bool = False
    reach: float = 0.0  # how far the risk of other optima is from the value, of problems that are warned of
    disputes: int = 0  # rows whose refit was not the optimum
    seconds: float = np.nan
    fit_seconds: float = np.nan
    broken: list[int] = field(default_factory=list)  # the first rows whose proof is false

    @property
    def error(self) -> float:
        """|value − reference|."""
        return abs(self.value - self.reference)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def judge(case: Case) -> Record:
    """Run onefit on a case, refit it, and compare."""
    record = Record(case.number, case.family.name, case.mode, *case.X.shape, case.tags)
    try:
        found, caught, seconds = _run(case)
    except (UnsupportedModelError, SolverError) as error:
        return replace(record, status="refused", message=f"{type(error).__name__}: {error}")
    except Exception as error:  # whatever it may be: that is what is looked for
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{where.filename.rpartition('onefit/')[2]}:{where.lineno}"
        return replace(record, status="crash", message=f"{type(error).__name__} at {place}: {error}")
    record.seconds = seconds
    record.leaked = tuple(sorted({_shown(w) for w in caught if not issubclass(w.category, OnefitWarning)}))
    record.warned = any(issubclass(w.category, UnreliableWarning) for w in caught)
    return _compared(case, found, record)


def _run(case: Case) -> tuple[Outcome, list[warnings.WarningMessage], float]:
    groups = None
    if case.groups is not None:
        groups = case.groups if case.mode == "groups" else _splits(case)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = time.process_time()
        est = onefit.loo(
            case.model, case.X, case.y, case.sample_weight, groups=groups, exact=case.mode == "exact"
        )
        seconds = time.process_time() - start
        str(est)
        found = outcome(est)
    return found, caught, seconds


def _splits(case: Case) -> list[tuple[np.ndarray, np.ndarray]]:
    everything = np.arange(len(case.y))
    return [(np.setdiff1d(everything, tested), tested) for tested in case.sets]


def _shown(warning: warnings.WarningMessage) -> str:
    place = f"{warning.filename.rpartition('/')[2]}:{warning.lineno}"
    return f"{warning.category.__name__} at {place}: {str(warning.message)[:80]}"


# --- the comparison ----------------------------------------------------------------------------------


def _compared(case: Case, found: Outcome, record: Record) -> Record:
    reference = Reference.of(case)
    start = time.process_time()
    _solved_anew(reference)
    record.fit_seconds = time.process_time() - start
    eta, doubtful = reference.left_out()
    known = np.isfinite(eta.reshape(len(eta), -1)).all(axis=1)
    if not known.any():
        return replace(record, status="no reference")
    comparison = _Comparison(reference, found, eta, known)
    comparison.settle(doubtful)
    comparison.write(record)
    if record.warned:
        record.reach = comparison.reach()
    return record


def _solved_anew(reference: Reference) -> None:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            solve(Fit.at_start(reference.problem))
        except (SolverError, np.linalg.LinAlgError, ValueError):
            return


def _rounding_of_level(fit: Fit) -> float:
    """What rounding in the slopes that an intercept balances leaves of it, in refits as in ours.

    It counts where predictors are next to nothing themselves, as beside a penalty of 1e16.
    """
    bends = float(np.abs(fit.hessian).sum())
    return 2 * np.finfo(float).eps * float(np.abs(fit.gradient).sum()) / bends if bends > 0 else 0.0


class _Comparison:
    """Left-out predictors of onefit beside those of refits."""

    def __init__(self, reference: Reference, found: Outcome, eta: np.ndarray, known: np.ndarray) -> None:
        self.reference, self.found, self.known = reference, found, known
        self.symmetric = is_symmetric(reference.reading)
        self.own = centred(found.decision) if self.symmetric else found.decision
        self.eta = centred(eta) if self.symmetric else eta
        weights = reference.case.sample_weight
        self.weights = np.ones(len(known)) if weights is None else weights
        self.spread = max(float(np.nanstd(self.eta)), float(np.nanmax(np.abs(self.eta))) * 1e-3, 1e-300)
        self.rounding = _rounding_of_level(reference.reading.fit)
        self.disputes = self.undetermined = 0
        self.right = np.zeros(len(known), dtype=bool)  # as good a solution as any, whatever the distance

    @property
    def distance(self) -> np.ndarray:
        """How far each predictor is off: (n,)."""
        gap = np.abs(self.own - self.eta).reshape(len(self.eta), -1).max(axis=1)
        return np.where(self.known & ~self.right, gap, 0.0)

    @property
    def losses(self) -> np.ndarray:
        """Losses of the refits; our own where there is none."""
        reading = self.reference.reading
        eta = with_scale(reading, np.where(np.isfinite(self.eta), self.eta, 0.0))
        with np.errstate(all="ignore"):
            losses = reading.metric.losses(reading.target, eta)
        return np.where(self.known & ~self.right, losses, self.found.losses)

    def excess(self) -> np.ndarray:
        """By how much each predictor misses its bound, relative to the spread of all: (n,)."""
        size = np.abs(self.eta).reshape(len(self.eta), -1).max(axis=1)
        allowed = PRECISION * (self.spread + np.where(self.known, size, 0.0)) + self.rounding
        allowed += self.found.bounds
        return np.maximum(self.distance - allowed, 0.0) / self.spread

    def settle(self, doubtful: np.ndarray) -> None:
        """Look again at the references of rows that break a proof, or that move the risk."""
        total = float(self.weights @ np.abs(self.found.losses)) or 1.0
        moved = self.weights * np.abs(self.losses - self.found.losses) / total
        moved = np.where(doubtful & (moved > 0), 1.0 + moved, moved)
        order = np.argsort(-moved)[:LOOKS]
        rows = [*np.flatnonzero(self.excess() > 0), *order[moved[order] > WORTH_A_LOOK]]
        which = self._set_of(np.array(rows, dtype=np.intp))
        looked_at = list(dict.fromkeys(which.tolist()))
        for k in looked_at:
            self._settle(self.reference.case.sets[k])
        # refits that are right to a few digits may each be off by little, and together by more than is proven
        others = self._set_of(np.argsort(-moved)).tolist()
        for k in [one for one in dict.fromkeys(others) if one not in looked_at]:
            if self._is_within():
                break
            self._settle(self.reference.case.sets[k])

    def _is_within(self) -> bool:
        """Whether the risk is no further from that of the refits than is said."""
        off = abs(float(self.weights @ (self.losses - self.found.losses) / self.weights.sum()))
        stated = self.found.approx_error if np.isfinite(self.found.approx_error) else np.inf
        return off <= stated + WITHIN * abs(self.found.value)

    def _set_of(self, rows: np.ndarray) -> np.ndarray:
        groups = self.reference.case.groups
        return rows if groups is None else np.unique(groups, return_inverse=True)[1][rows]

    def _settle(self, removed: np.ndarray) -> None:
        found = self.reference.as_low(removed)
        if not found:
            return
        disputed = self.reference.case.family.tight and all(one.source != "refit" for one in found)
        self.disputes += disputed * len(removed)
        for i in removed:
            values = [self._value(one.eta, i) for one in found]
            bound = self.found.bounds[i]
            allowed = PRECISION * (self.spread + float(np.abs(self.own[i]).max())) + self.rounding
            allowed += bound if np.isfinite(bound) else 0.0
            gaps = [float(np.abs(value - self.own[i]).max()) for value in values]
            apart = max(float(np.abs(value - values[0]).max()) for value in values)
            self.undetermined += apart > 100 * PRECISION * self.spread
            self.right[i] = min(gaps) <= allowed
            if disputed or not self.reference.case.family.tight:
                self.eta[i] = values[int(np.argmin(gaps))]

    def _value(self, eta: np.ndarray, i: int) -> np.ndarray:
        value = self.reference.reading.metric.decision(eta)[i]
        return value - value.mean() if self.symmetric else value

    def reach(self) -> float:
        """How far the risk is from ours in other optima of the refits that nothing proves."""
        open_rows = self.weights * np.where(self.found.certified, 0.0, self.found.bounds) > 0
        which = self._set_of(np.flatnonzero(open_rows))
        changes = np.zeros(2)
        for k in list(dict.fromkeys(which.tolist()))[:MOST_ENDS]:
            removed = self.reference.case.sets[k]
            first = removed[np.argmax(np.where(open_rows, self.found.bounds, 0.0)[removed])]
            own = [self._change(one, removed) for one in self.reference.ends(removed, first)]
            changes += max([0.0, *own]), min([0.0, *own])
        return float(np.abs(changes).max() / self.weights.sum())

    def _change(self, candidate: Candidate, removed: np.ndarray) -> float:
        """What the losses of some rows are above ours, in another optimum without them."""
        reading = self.reference.reading
        losses = reading.metric.losses(reading.target, candidate.eta)
        return float(self.weights[removed] @ (losses - self.found.losses)[removed])

    def write(self, record: Record) -> None:
        """Put the findings into a record."""
        found, excess = self.found, self.excess()
        certified_off = found.certified & (excess > 0)
        record.value, record.std_error = found.value, found.std_error
        record.approx_error, record.guarantee = found.approx_error, found.guarantee
        held = self.weights > 0
        change = float(self.weights[held] @ (self.losses - found.losses)[held] / self.weights.sum())
        sampled = float(self.weights[held] @ found.losses[held] / self.weights.sum())
        record.reference = sampled + change
        record.false_bounds = int(np.sum(excess > 0))
        record.false_certificates = int(np.sum(certified_off))
        record.worst_excess = float(excess.max())
        record.broken = np.flatnonzero(excess > 0)[:5].tolist()
        self._write_flags(record)
        record.undetermined, record.disputes = int(self.undetermined), self.disputes
        record.said = record.warned or any(
            word in found.notes for word in ("optima", "undetermined", "unique")
        )

    def _write_flags(self, record: Record) -> None:
        off = self._off()
        covered = np.isfinite(self.found.bounds)
        record.flagged = int(self.found.flagged.sum())
        record.flagged_off = int(np.sum(self.found.flagged & (off > OFF)))
        record.silent_off = int(np.sum(~self.found.flagged & ~covered & (off > FLAG)))

    def _off(self) -> np.ndarray:
        """How far each prediction is off, relative to the spread of the response: (n,)."""
        metric = self.reference.reading.metric
        eta = np.where(np.isfinite(self.eta), self.eta, 0.0)
        with np.errstate(all="ignore"):
            own, theirs = (
                self.found.predictions,
                metric.predictions(with_scale(self.reference.reading, eta)),
            )
        gap = np.abs(own - theirs).reshape(len(own), -1).max(axis=1)
        return np.where(self.known & ~self.right, gap, 0.0) / _spread(self.reference)


def _spread(reference: Reference) -> float:
    """Of the response, in the units of predictions: 1 for probabilities, 2 between margins."""
    reading = reference.reading
    if reading.classes is None:
        return float(np.std(reading.target)) or 1.0
    return 1.0 if reading.metric.method == "predict_proba" else 2.0
