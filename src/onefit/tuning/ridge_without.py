"""Paths of ridge that are judged by more than squared errors of single rows: by folds, groups or a score.

Every strength is left out exactly: by the formula for sets of rows, or where these are large by the spectra
of the rows that stay without them (``ridge_spectrum``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from onefit import _linalg, cost
from onefit._typing import Array, Index
from onefit.leave_out import LeftOut, leave_out
from onefit.leave_out.sets import Folds
from onefit.risk.means import mean_and_error
from onefit.solvers.solve import solve
from onefit.tuning.grid import Grid
from onefit.tuning.judgement import Judgement
from onefit.tuning.path import SearchResult, of_verdicts
from onefit.tuning.ridge_spectrum import RidgeSpectrum
from onefit.tuning.sample import Verdict
from onefit.tuning.selection import Selection


@dataclass(frozen=True, eq=False)
class RidgeWithoutSets:
    """Left-out predictors of sets of rows at any strength.

    Attributes
    ----------
    spectrum : RidgeSpectrum
    sets : Folds
    count : int
        Strengths to come, about.
    """

    spectrum: RidgeSpectrum
    sets: Folds
    count: int

    def left_out(self, alpha: float) -> LeftOut:
        """At one strength; by refits where a set alone fixes a direction."""
        fit, problem = self.spectrum.fit(alpha), self.spectrum.problem
        eta, bounds = self._anew(alpha) if self._is_anew else self._by_formula(alpha)
        if np.isnan(eta).any():
            return leave_out(solve(fit).fit, self.sets, max_error=0.0)
        ones = np.ones(len(self.sets))  # nothing was divided by a vanishing slack, to be wary of
        return LeftOut(fit, eta.reshape(-1, *problem.outputs), bounds, np.zeros(problem.n), ones, self.sets)

    @cached_property
    def _is_anew(self) -> bool:
        """Whether the rows that stay are decomposed anew, which takes less or says more.

        The formula says nothing of rows that have no weight, or leave without being judged.
        """
        problem, sets = self.spectrum.problem, self.sets
        pairs = zip(sets.removed, sets.tested, strict=True)
        if np.any(problem.weights == 0) or not all(np.array_equal(a, b) for a, b in pairs):
            return True
        n, p = problem.X.shape
        formula = cost.residuals_of_sets(sets.sizes, min(n, p)).times(self.count)
        return cost.spectrum(n, p).times(len(sets)).seconds <= formula.seconds

    @cached_property
    def _spectra(self) -> list[RidgeSpectrum]:
        """Of the rows that stay without each set."""
        counting = np.flatnonzero(self.spectrum.problem.weights > 0)
        return [self.spectrum.of_rows(np.setdiff1d(counting, removed)) for removed in self.sets.removed]

    def _anew(self, alpha: float) -> tuple[Array, Array]:
        """Predictors of all judged rows by the spectra of the others, (v, t); and rounding, (v,)."""
        X, parts = self.spectrum.problem.X, zip(self._spectra, self.sets.tested, strict=True)
        found = [spectrum.predict(_linalg.some_rows(X, tested), alpha) for spectrum, tested in parts]
        eta, bounds = zip(*found, strict=True)
        return np.concatenate(eta), np.concatenate(bounds)

    @cached_property
    def _batches(self) -> list[tuple[Index, Index]]:
        """Rows of the sets of each size, (f, m), and where they are judged."""
        sizes, first = self.sets.sizes, self.sets.ends - self.sets.sizes
        found = []
        for m in np.unique(sizes):
            own = np.flatnonzero(sizes == m)
            rows = np.array([self.sets.tested[k] for k in own.tolist()])
            found.append((rows, first[own][:, None] + np.arange(m)))
        return found

    def _by_formula(self, alpha: float) -> tuple[Array, Array]:
        """Predictors of all judged rows, (v, t), missing where a set fixes a direction; rounding, (v,)."""
        size = len(self.sets.rows)
        eta, bounds = np.empty((size, self.spectrum.n_targets)), np.empty(size)
        known = self.spectrum.without_sets(alpha, [rows for rows, _ in self._batches])
        for (_, place), (values, off) in zip(self._batches, known, strict=True):
            eta[place], bounds[place] = values, off[:, None]
        return eta, bounds


@dataclass(frozen=True, eq=False)
class _Judged:
    """Strengths that were judged, as they follow one another on the path."""

    judge: Callable[[float], Verdict]
    weights: Array
    verdicts: deque[Verdict] = field(default_factory=deque)
    risks: deque[float] = field(default_factory=deque)

    def add(self, alpha: float, *, weaker: bool = True) -> None:
        """Judge the next strength at one end."""
        found = self.judge(alpha)
        risk = mean_and_error(found.losses, self.weights)[0]
        if weaker:
            self.verdicts.append(found)
            self.risks.append(risk)
        else:
            self.verdicts.appendleft(found)
            self.risks.appendleft(risk)

    def further(self, room: Array, falls: Callable[[Array], Any], *, weaker: bool) -> int:
        """Go on at one end while the risk falls there; how far."""
        for count, alpha in enumerate(room.tolist()):
            if not falls(np.array(self.risks)):
                return count
            self.add(alpha, weaker=weaker)
        return len(room)


def search_ridge_without(
    spectrum: RidgeSpectrum, grid: Grid, judgement: Judgement, selection: Selection
) -> SearchResult:
    """Judge every strength by folds, groups or a score, and go on beyond the grid while the risk falls."""
    single, sets, weights = spectrum.left_out, judgement.sets, judgement.unit_weights
    left_out = single if sets is None else RidgeWithoutSets(spectrum, sets, len(grid.values)).left_out
    path = _Judged(lambda alpha: judgement.verdict(left_out(alpha)), weights)
    for alpha in grid.values.tolist():
        path.add(alpha)
    below = path.further(grid.weaker, grid.falls_below, weaker=True)
    above = path.further(grid.stronger, grid.falls_above, weaker=False)
    strengths, shape = grid.reaching(above, below), spectrum.problem.outputs
    coefs = spectrum.coefficients(strengths)
    return of_verdicts(
        strengths,
        list(path.verdicts),
        weights,
        np.moveaxis(coefs, 2, 0).reshape(len(strengths), -1, *shape),
        spectrum.levels(coefs).T.reshape(len(strengths), *shape),
        selection,
    )


def thoroughly(spectrum: RidgeSpectrum, judgement: Judgement, result: SearchResult) -> LeftOut:
    """Left-out predictors at the chosen strength, with all that is told of a choice."""
    strength = float(result.strengths[result.best])
    alone = spectrum.left_out(strength)
    if judgement.sets is None:
        return alone
    found = RidgeWithoutSets(spectrum, judgement.sets, 1).left_out(strength)
    return replace(found, leverages=alone.leverages)
