"""Risks of a path as it is solved, by generalised cross-validation: how far it need be solved.

Past the minimum supports grow, and with them what a strength takes, while nothing is chosen there.  Sums over
the rows tell about how much a risk has risen beside the error of the difference: with σ² the risk, losses of
two strengths differ by 2 r Δη, about, whose standard deviation is 2σ √(Δβᵀ G Δβ / W).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from onefit._typing import Array
from onefit.blocks.optima import Optimum
from onefit.blocks.sums import RowSums
from onefit.numerics import LEAST_SLACK
from onefit.tuning.grid import CLEARLY_WORSE, PATIENCE
from onefit.tuning.pulls import largest_by_chance

SURELY = (1.5, 6.0)  # times the rise that ends a path, at first, and where left-out losses go on falling
PARAMETERS = 2.0  # that a guess may be off by: it jumps where one joins
EVERY = 3  # strengths, one of which is looked at


@dataclass(eq=False)
class GuessedRisks:
    """What is guessed of the strengths so far, strongest first.

    Attributes
    ----------
    sums : RowSums
    surely : float
        Times the rise that ends a path; infinite for a path that is whole.
    """

    sums: RowSums
    surely: float
    _lowest: tuple[float, Array] = (np.inf, np.zeros(0))  # with its coefficients
    _count: int = 0
    _best: int = 0

    def ends_by(self, found: Optimum, l1: float, l2: float) -> bool:
        """Whether the risk is past its minimum at the next optimum for certain, even if guesses are off."""
        self._count += 1
        if np.isinf(self.surely) or self._count % EVERY:
            return False
        risk, coef = self._risk(found, l1, l2), np.zeros(len(self.sums.means))
        coef[found.support] = found.beta
        if risk < self._lowest[0]:
            self._lowest, self._best = (risk, coef), self._count
        if self._count - self._best < PATIENCE:
            return False
        least, best = self._lowest
        without = float(self.sums.squares[0]) / self.sums.weight  # beside a gain that is none so are rises
        if not self._is_clear(risk - least, coef - best) or not self._is_clear(without - least, best):
            return False
        return bool(self.sums.largest_pull(coef, risk) <= largest_by_chance(len(coef)))

    def _is_clear(self, rise: float, apart: Array) -> bool:
        """Whether a rise from the lowest risk is beyond its error, and what a guess may be off by."""
        least, n = self._lowest[0], self.sums.count
        moved = max(float(apart @ (self.sums.gram @ apart)), 0.0) / self.sums.weight
        error = 2.0 * float(np.sqrt(moved * least / n))
        return rise > self.surely * CLEARLY_WORSE * error + 2.0 * PARAMETERS * least / n

    def _risk(self, found: Optimum, l1: float, l2: float) -> float:
        """By the sums, since G β = Xᵀy − l1 sign β − l2 β on the support, and K's factor."""
        beta, freedom = found.beta, float(len(found.beta))
        pull = l1 * float(np.abs(beta).sum()) + l2 * float(beta @ beta)
        left = float(self.sums.squares[0] - self.sums.cross[found.support, 0] @ beta) - pull
        if l2 > 0 and freedom:
            inverse = lapack.dtrtri(found.factor, lower=1)[0]
            freedom -= l2 * float(np.vdot(inverse, inverse))  # LAPACK leaves zeros in the other triangle
        slack = max(1.0 - freedom / self.sums.count, LEAST_SLACK)
        return max(left, 0.0) / self.sums.weight / slack**2
