"""How far risks shifted when all of their rows were judged, and what that says of the strengths beside.

What is known of a strength at little cost misses something, and misses about the same of the next one.  A
strength that all rows have judged would be held against others with what they miss: each would have to be
judged before the choice stands, or be taken for better than it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple
from weakref import ref

import numpy as np

from onefit._typing import Array
from onefit.fit import Fit
from onefit.risk.means import means
from onefit.tuning.judgement import Judgement
from onefit.tuning.sample import Verdict


class Shift(NamedTuple):
    """What all rows say of a strength less what was known of it before.

    Attributes
    ----------
    change : (u,) array
    excess : float
        Risk as it was known before less the mean loss in the fit.
    by_tenths : bool
        Whether it was known by tenths.
    """

    change: Array
    excess: float
    by_tenths: bool


@dataclass(frozen=True, eq=False)
class Shifts:
    """Shifts of the strengths of a path, by place."""

    judgement: Judgement
    known: dict[int, Shift] = field(default_factory=dict)
    in_fits: dict[int, tuple[ref[Fit], float]] = field(default_factory=dict)

    def add(self, j: int, fit: Fit, before: Verdict, after: Verdict) -> None:
        """Take down what all rows say of a strength beside what was known before."""
        change = after.losses - before.losses
        if np.isfinite(self._mean(change)):
            self.known[j] = Shift(change, self._excess(fit, before), before.seen > 0)

    def of(self, j: int, fit: Fit, verdict: Verdict) -> Verdict:
        """A strength, were it to shift as the nearest one did that was known by the same.

        In proportion to what was known of leaving out, where that is less: where a penalty is strong, little
        changes and little was missed.  Rows shift as they did there, so that the errors of differences are
        those of what is known alike.
        """
        near = self._nearest(j, verdict)
        if not near:
            return verdict
        change = self._share(near[0], fit, verdict) * self.known[near[0]].change
        error = verdict.error + abs(self._mean(change))
        return verdict._replace(losses=verdict.losses + change, error=error)

    def doubt(self, j: int, fit: Fit, verdict: Verdict) -> float:
        """How far that may be off: by how much the two nearest differ, or all where there is one."""
        near = self._nearest(j, verdict)
        shifts = [self._share(k, fit, verdict) * self._mean(self.known[k].change) for k in near]
        if len(near) < 2:
            return abs(shifts[0]) if near else np.inf
        return float(abs(shifts[0] - shifts[1])) * max(1.0, abs(j - near[0]) / abs(near[1] - near[0]))

    def _nearest(self, j: int, verdict: Verdict) -> list[int]:
        alike = [k for k, shift in self.known.items() if shift.by_tenths == (verdict.seen > 0)]
        return sorted(alike, key=lambda k: abs(k - j))[:2]

    def _share(self, k: int, fit: Fit, verdict: Verdict) -> float:
        """Share of the shift of another strength that is expected of one."""
        excess = self.known[k].excess
        return float(np.clip(self._excess(fit, verdict) / excess, 0.0, 1.0)) if excess > 0 else 0.0

    def _excess(self, fit: Fit, verdict: Verdict) -> float:
        return self._mean(verdict.losses) - self._mean_in(fit)

    def _mean_in(self, fit: Fit) -> float:
        """Mean loss in a fit, which every look at the others asks for: a score may take long."""
        known = self.in_fits.get(id(fit))
        if known is None or known[0]() is not fit:
            known = self.in_fits[id(fit)] = ref(fit), self.judgement.mean_in(fit)
        return known[1]

    def _mean(self, losses: Array) -> float:
        return float(means(losses, self.judgement.unit_weights))
