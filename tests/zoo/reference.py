"""Left-out linear predictors by brute force, and disputes about them settled by the objective.

The reference is a refit of the estimator with a tight tolerance.  Where scikit-learn's solver is too slow for
that, or does not end at the optimum, our own problem is solved from a cold start.  When a value disagrees
with its reference, all solutions that can be had (the refit, our own, Clarabel's) are compared by the
objective of the problem without the rows: the lowest is right, and so is every other one that is as low.
"""

from __future__ import annotations

import time
import warnings
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from onefit import _linalg
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.losses import CoupledLoss
from onefit.problem import Problem
from onefit.readers import Reading, read
from onefit.refits import reference
from onefit.solvers.solve import polish, solve
from zoo import conic
from zoo.draw import Case

AS_LOW = 1e-11  # difference of objectives, relative, that says nothing
HARDLY_HIGHER = 1e-7  # the same where optima are looked for that are far from each other
MISSED = 1e-6  # by how much Clarabel may miss that
AGREE = 1e-6  # distance of predictors, relative to their spread, at which two solutions are the same
PATIENCE = 60.0  # seconds that the refits of one problem may take
ROUNDING = 1e-13  # of the sums that make an objective


@dataclass(frozen=True)
class Candidate:
    """A solution of the problem without some rows.

    Attributes
    ----------
    source : str
    eta : array
        Linear predictors of all rows.
    objective : float
    """

    source: str
    eta: np.ndarray
    objective: float


@dataclass(frozen=True, eq=False)
class Reference:
    """Refits of one case, whose preprocessing is held fixed.

    Attributes
    ----------
    case : Case
    reading : Reading
        What was minimised with all rows.
    model : estimator
        The last step of a pipeline.
    X : array or sparse array
        What that step was given.
    """

    case: Case
    reading: Reading
    model: Any
    X: Any

    @classmethod
    def of(cls, case: Case) -> Reference:
        """Read the fitted model of a case."""
        model, X = case.model, case.X
        if hasattr(model, "steps"):
            model, X = model[-1], model[:-1].transform(X)
        X = X.astype(np.float64)  # in which we compute; refits in float32 are right to three digits
        X = X.tocsr() if sp.issparse(X) else X
        return cls(case, read(model, X, case.y, case.sample_weight), model, X)

    @property
    def problem(self) -> Problem:
        """What was minimised with all rows."""
        return self.reading.fit.problem

    @cached_property
    def optimum(self) -> Fit:
        """The solution with all rows; the fit as it was read where there is none."""
        with suppress(SolverError, np.linalg.LinAlgError, ValueError):
            return polish(self.reading.fit).solution.fit
        return self.reading.fit

    def left_out(self) -> tuple[np.ndarray, np.ndarray]:
        """Linear predictors of every row without its set, and the rows whose refit warned.

        NaN where there is no refit, since a class is missing, and where patience has run out.
        """
        own = self.reading.metric.decision(self.reading.fit.eta)
        eta = np.full(own.shape, np.nan)
        doubtful = np.zeros(len(eta), dtype=bool)
        start = time.monotonic()
        for removed in self.case.sets:
            eta[removed], doubtful[removed] = self._without(removed)
            if time.monotonic() - start > PATIENCE:
                break
        return eta, doubtful

    def _without(self, removed: np.ndarray) -> tuple[np.ndarray, bool]:
        if not self.case.family.tight:
            own = self._own(removed)
            decision = self.reading.metric.decision
            return (np.nan, False) if own is None else (decision(own.eta)[removed], False)
        with warnings.catch_warnings(record=True) as caught, np.errstate(all="ignore"):
            warnings.simplefilter("always")
            refit = self._refit(removed)
            eta = np.nan if refit is None else self._predictor(refit, removed)
        return eta, bool(caught)

    def _refit(self, removed: np.ndarray) -> Any | None:
        kept = self._kept(removed)
        weights = {} if self.case.sample_weight is None else {"sample_weight": self.case.sample_weight[kept]}
        try:
            refit = clone(reference(self.model)).fit(self.X[kept], self.case.y[kept], **weights)
        except (ValueError, SolverError, np.linalg.LinAlgError):  # a class is missing, or nothing is left
            return None
        knows_all = len(getattr(refit, "classes_", ())) == len(getattr(self.model, "classes_", ()))
        return refit if knows_all else None

    def _kept(self, removed: np.ndarray) -> np.ndarray:
        return np.setdiff1d(np.arange(len(self.case.y)), removed)

    def _predictor(self, refit: Any, rows: np.ndarray) -> np.ndarray:
        """Linear predictors of some rows by the public methods of the estimator."""
        if hasattr(refit, "decision_function"):
            return np.asarray(refit.decision_function(self.X[rows]), dtype=np.float64)
        means = np.asarray(refit.predict(self.X[rows]), dtype=np.float64)
        return self.reading.metric.decision(self.reading.metric.predictors(means))

    # --- disputes ---

    def candidates(self, removed: np.ndarray) -> list[Candidate]:
        """Solutions of the problem without some rows; Clarabel is asked where refit and own disagree."""
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = [self._by_refit(removed) if self.case.family.tight else None, self._own(removed)]
            if not _agree(found):
                found.append(self._by_clarabel(removed))
        return [one for one in found if one is not None and np.isfinite(one.objective)]

    def _by_refit(self, removed: np.ndarray) -> Candidate | None:
        refit, kept = self._refit(removed), self._kept(removed)
        if refit is None:
            return None
        weights = None if self.case.sample_weight is None else self.case.sample_weight[kept]
        fit = read(refit, self.X[kept], self.case.y[kept], weights).fit
        coef = fit.coef
        if isinstance(self.problem.X, _linalg.RowGram):
            coef = np.zeros(self.reading.fit.coef.shape)
            coef[kept] = fit.coef
        return self._candidate("refit", removed, coef, fit.intercept)

    def _own(self, removed: np.ndarray) -> Candidate | None:
        """Our own from nothing; from the fit where that does not lead anywhere."""
        left = self.problem.without(removed)
        for start in (Fit.at_start(left), replace(self.optimum, problem=left)):
            with suppress(SolverError, np.linalg.LinAlgError, ValueError):
                fit = solve(start).fit
                return self._candidate("own", removed, fit.coef, fit.intercept)
        return None

    def _by_clarabel(self, removed: np.ndarray) -> Candidate | None:
        problem = self.problem.without(removed)
        found = conic.minimum(problem) if conic.knows(problem) else None
        return None if found is None else self._candidate("clarabel", removed, *found)

    def _candidate(self, source: str, removed: np.ndarray, coef: Any, level: Any) -> Candidate:
        fit = Fit(self.problem.without(removed), np.asarray(coef), np.asarray(level))
        told = _rounding_of_predictors(fit) <= AGREE * float(np.std(fit.eta))
        return Candidate(source, fit.eta, fit.objective if told else np.nan)

    def ends(self, removed: np.ndarray, i: int) -> list[Candidate]:
        """Optima without some rows in which the predictor of row i is least and largest, by Clarabel."""
        own = self._own(removed)
        problem = self.problem.without(removed)
        if own is None or own.objective == 0 or not conic.knows(problem):
            return []
        highest = own.objective + HARDLY_HIGHER * abs(own.objective)
        found = [self._candidate("clarabel", removed, *one) for one in conic.ends(problem, i, highest)]
        return [one for one in found if one.objective <= highest + MISSED * abs(highest)]

    def as_low(self, removed: np.ndarray) -> list[Candidate]:
        """Candidates that no other one is lower than, the refit first."""
        found = self.candidates(removed)
        if not found:
            return []
        least = min(one.objective for one in found)
        start = abs(Fit.at_start(self.problem.without(removed)).objective)
        slack = AS_LOW * abs(least) + ROUNDING * start
        return [one for one in found if one.objective <= least + slack]


def _rounding_of_predictors(fit: Fit) -> float:
    """What terms that cancel leave of linear predictors, as those of two equal columns do."""
    sizes = _linalg.times(abs(fit.problem.X), np.abs(fit.coef)) if _linalg.has_columns(fit.problem.X) else 0.0
    return float(np.finfo(float).eps * np.max(sizes, initial=0.0))


def _agree(found: list[Candidate | None]) -> bool:
    if any(one is None for one in found):
        return False
    first, second = (one.eta for one in found)
    return bool(np.abs(first - second).max() <= AGREE * max(float(np.std(first)), ROUNDING))


def centred(eta: np.ndarray) -> np.ndarray:
    """Linear predictors up to what they have in common, which no probability depends on."""
    return eta - eta.mean(axis=1, keepdims=True)


def is_symmetric(reading: Reading) -> bool:
    """Whether only differences between the outputs mean anything."""
    loss = reading.fit.problem.loss
    return isinstance(loss, CoupledLoss) and reading.classes is not None


def with_scale(reading: Reading, eta: np.ndarray) -> np.ndarray:
    """Linear predictors as ``metric`` takes them, from those that users know."""
    fit = reading.fit
    has_scale = reading.metric.decision(fit.eta).ndim < fit.eta.ndim
    return np.stack([eta, np.ones_like(eta)], axis=1) if has_scale else eta
