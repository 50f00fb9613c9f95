"""What leaves sets of rows out of ridge, as folds and groups do, at any strength.

By the formula for sets of rows, or where these are large by the spectra of the rows that stay without them
(``ridge_spectrum``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from onefit import _linalg, cost
from onefit._typing import Array, Index
from onefit.leave_out import LeftOut, leave_out
from onefit.leave_out.sets import Folds
from onefit.solvers.solve import solve
from onefit.tuning.ridge_spectrum import RidgeSpectrum


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

    @property
    def rows(self) -> Index:
        """Rows that are judged: (v,)."""
        return self.sets.rows

    def predictors(self, alphas: Array) -> tuple[Array, Array]:
        """Left-out η of all judged rows at each strength, (J, v, t), and what rounding leaves of it, (J, v).

        Missing where a set alone fixes a direction.
        """
        return self._anew(alphas) if self._is_anew else self._by_formula(alphas)

    def left_out(self, alpha: float) -> LeftOut:
        """At one strength; by refits where a set alone fixes a direction.  Leverages are those of rows."""
        fit, problem = self.spectrum.fit(alpha), self.spectrum.problem
        at = np.array([alpha])
        leverages = 1.0 - self.spectrum.shrinkage(at).slack[0]
        (eta,), (bounds,) = self.predictors(at)
        if np.isnan(eta).any():
            return replace(leave_out(solve(fit).fit, self.sets, max_error=0.0), leverages=leverages)
        ones = np.ones(len(self.sets))  # nothing was divided by a vanishing slack, to be wary of
        return LeftOut(fit, eta.reshape(-1, *problem.outputs), bounds, leverages, ones, self.sets)

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

    def _anew(self, alphas: Array) -> tuple[Array, Array]:
        """Predictors by the spectra of the rows that stay."""
        X, parts = self.spectrum.problem.X, zip(self._spectra, self.sets.tested, strict=True)
        found = [spectrum.predict(_linalg.some_rows(X, tested), alphas) for spectrum, tested in parts]
        eta, bounds = zip(*found, strict=True)
        return np.concatenate(eta, axis=1), np.concatenate(bounds, axis=1)

    @cached_property
    def _batches(self) -> list[tuple[Index, Index]]:
        """Rows of the sets of each size, (f, m), and where they are judged."""
        sizes, first = self.sets.sizes, self.sets.starts
        found = []
        for m in np.unique(sizes):
            own = np.flatnonzero(sizes == m)
            rows = np.array([self.sets.tested[k] for k in own.tolist()])
            found.append((rows, first[own][:, None] + np.arange(m)))
        return found

    def _by_formula(self, alphas: Array) -> tuple[Array, Array]:
        """Predictors by the formula for sets of rows."""
        shape = len(alphas), len(self.rows)
        eta, bounds = np.empty((*shape, self.spectrum.n_targets)), np.empty(shape)
        for j, alpha in enumerate(alphas.tolist()):
            known = self.spectrum.without_sets(alpha, [rows for rows, _ in self._batches])
            for (_, place), (values, off) in zip(self._batches, known, strict=True):
                eta[j, place], bounds[j, place] = values, off[:, None]
        return eta, bounds
