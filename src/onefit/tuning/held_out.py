"""Hyperparameters judged by sets of rows that are held out in turn, each solved without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from joblib import Parallel, delayed

from onefit import gradients
from onefit._typing import Array
from onefit.fit import Fit
from onefit.leave_out.loose import at_middle
from onefit.leave_out.sets import Folds
from onefit.losses import Squared
from onefit.penalties import SeparablePenalty
from onefit.problem import Moments, Problem
from onefit.solvers.ridge_splits import RidgeSplits
from onefit.tuning.judges import Judge, Judged, Part, solved_from, weighted_slopes

MOST_MOMENTS = 2**24  # numbers that sums over all training sets may take: 128 MiB


@dataclass(frozen=True, eq=False)
class HeldOutJudge(Judge):
    """Sets of rows that are held out in turn: K folds, Monte-Carlo splits, or one set (Wang et al. 2019).

    Attributes
    ----------
    folds : Folds
        The risk is the mean over all tested rows by ``weights``, whatever these add up to.
    n_jobs : int or None
        As in joblib.
    """

    folds: Folds
    n_jobs: int | None = None
    shared: list[RidgeSplits | None] = field(default_factory=list)
    moments: dict[int, Moments] = field(default_factory=dict)

    def has_gradient(self, problem: Problem) -> bool:
        return True

    def of_some(self, count: int) -> Judge:
        """By the first folds in which so many rows are tested."""
        folds, few = self.folds, 1 + int(np.searchsorted(self.folds.ends, count))
        if few >= len(folds):
            return self
        return replace(self, folds=Folds(folds.removed[:few], folds.tested[:few], folds.n))

    def judge(self, problem: Problem, starts: list[Fit], *, gradient: bool) -> Judged:
        total, shared = float(self.weights[self.folds.rows].sum()), self._shared(problem)
        tasks = (
            delayed(self._one)(
                problem, self._training(problem, k), k, starts[k : k + 1], gradient, total, shared
            )
            for k in range(len(self.folds))
        )
        found = Parallel(n_jobs=None if shared is not None else self.n_jobs)(tasks)
        values, parts, fits = zip(*found, strict=True)
        known = [part for part in parts if part is not None]
        return Judged(float(sum(values)), known, list(fits), self.of_sets(values))

    def of_sets(self, values: Sequence[float]) -> Array:
        """Mean loss of each set, given what it brings to the risk: (f,); NaN where rows have no weight."""
        own = np.array([float(self.weights[tested].sum()) for tested in self.folds.tested])
        shares = own / self.weights[self.folds.rows].sum()
        return np.divide(values, shares, out=np.full(len(own), np.nan), where=shares > 0)

    def _one(
        self,
        problem: Problem,
        training: Problem,
        k: int,
        start: list[Fit],
        gradient: bool,
        total: float,
        shared: RidgeSplits | None,
    ) -> tuple[float, Part | None, Fit]:
        removed, tested = self.folds.removed[k], self.folds.tested[k]
        known = None if shared is None else shared.without(training, removed)
        fit, curvature = solved_from(training, start) if known is None else known
        fit = at_middle(fit)
        y, eta, weights = self.target[tested], fit.eta[tested], self.weights[tested] / total
        value = float(weights @ self.metric.losses(y, eta))
        if not gradient:
            return value, None, fit
        slopes = weighted_slopes(self.metric, y, eta, weights)
        cotangent = gradients.held_out(fit, tested, slopes, curvature)
        return value, Part(fit, cotangent, problem.kept_share(removed)), fit

    def _training(self, problem: Problem, k: int) -> Problem:
        """The problem without a set, with sums over its rows where they serve every strength."""
        left = problem.without(self.folds.removed[k])
        n, p = problem.X.shape
        tall = p <= n and p**2 * len(self.folds) <= MOST_MOMENTS and isinstance(problem.X, np.ndarray)
        if not tall or type(problem.loss) is not Squared or not problem.has_one_output:
            return left
        if not isinstance(problem.penalty, SeparablePenalty) or not problem.penalty.has_kinks((p,)):
            return left
        own = self.moments.get(k)
        if own is None or own.X is not problem.X or not np.array_equal(own.weights, left.weights):
            own = self.moments[k] = Moments.of(left)
        return replace(left, weights=own.weights, moments=own)

    def _shared(self, problem: Problem) -> RidgeSplits | None:
        """What ridge regressions on all training sets share, summed once."""
        if not self.shared:
            self.shared.append(RidgeSplits.of(problem))
        known = self.shared[0]
        return known if known is not None and known.serves(problem) else None
