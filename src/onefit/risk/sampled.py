"""Scores of left-out predictions of which a sample alone is known well.

With predictions p of all rows, and T what a scorer says of them, row i of the sample, which was drawn with
probability π_i, changes the score by Δ_i where its rough prediction takes the place of the exact one.  Then

    T(p) + Σ_{i drawn} (1/π_i − 1) Δ_i,      Δ_i = T(p) − T(p with row i as rough as the others)

is the difference estimator (``leave_out.draws``) of the score of exact predictions: just that where T is a
mean, and to first order in what rows change where it is not, as of ranks.  Of a model without a formula the
rough predictions are those of one that has seen the rows, and ranks are far off: there the drawn rows alone
are ranked, with weights 1/π_i (Horvitz and Thompson 1952).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from onefit._scoring import Pooled
from onefit._typing import Array, Index, Mask
from onefit.leave_out.draws import spread
from onefit.numerics import CONFIDENCE


@dataclass(frozen=True, eq=False)
class SampledPredictions:
    """Which rows were drawn at random and left out, and what was thought of all of them before.

    Attributes
    ----------
    predictions, decision : (t,) or (t, c) arrays
        Before any was left out.
    draw : (t,) int array
        Number of the draw that each row was in, alone or with others of its set; −1 of rows in none.
    chances : (m,) array
        With which each was drawn.
    has_seen : bool
        Whether the predictions before are those of a model that has seen the rows.
    """

    predictions: Array
    decision: Array
    draw: Index
    chances: Array
    has_seen: bool = False

    def drawn(self, pooled: Pooled) -> Pooled:
        """The rows that were left out, each with the weight of those that it stands for."""
        rows = np.flatnonzero(self.draw >= 0)
        own = pooled.some(rows)
        return replace(own, weights=own.row_weights / self.chances[self.draw[rows]])

    def _rough(self, pooled: Pooled, where: Mask) -> Pooled:
        """Predictions of some rows as they were thought to be before."""
        return replace(
            pooled,
            predictions=np.where(_along(where, self.predictions), self.predictions, pooled.predictions),
            decision=np.where(_along(where, self.decision), self.decision, pooled.decision),
        )

    def corrected(self, value: Callable[[Pooled], float], pooled: Pooled) -> tuple[float, float]:
        """What exact predictions would be worth, and half the width of its 95 % interval.

        Parameters
        ----------
        value : callable
            From predictions to a number.
        pooled : Pooled
            As they are reported.
        """
        known = self._rough(pooled, self.draw < 0)
        whole, by_chance = value(known), np.flatnonzero(self.chances < 1.0)
        changes = np.array([whole - value(self._rough(known, self.draw == k)) for k in by_chance])
        expanded, chance = changes / self.chances[by_chance], 1.0 - self.chances[by_chance]
        error, reach = spread(expanded, chance, CONFIDENCE)
        return whole + float(chance @ expanded), reach * error


def _along(where: Mask, values: Array) -> Mask:
    return where.reshape(-1, *(1,) * (values.ndim - 1))
