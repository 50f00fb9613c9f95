"""Losses of all rows from those of a sample: what a strength that is judged by some of its rows is worth.

With covariates that are known for all rows (the loss in the fit, the loss after one step) the regression
estimator tells their mean and its error (``onefit.leave_out.regression``).  Rows that were not drawn take the
residual of one that was, so that differences between strengths keep their spread over rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from onefit._typing import Array, Index
from onefit.curvature import Curvature
from onefit.leave_out.draws import Draw, deviations, spread, unseen
from onefit.leave_out.leads import Leads
from onefit.leave_out.regression import regressed
from onefit.leave_out.stages import State
from onefit.numerics import CONFIDENCE, resolution
from onefit.risk.means import mean_and_error


class Stepped(NamedTuple):
    """All rows after a step: what goes on from there, and their losses then."""

    state: State
    losses: Array

    @property
    def at_hand(self) -> Curvature | None:
        """The curvature that the step went by, if it is factored: others may go by it, too."""
        K = self.state.curvature
        return K if K is not None and K.is_factored else None


class Verdict(NamedTuple):
    """What is known of a strength.

    Attributes
    ----------
    losses : (n,) array
        Left-out losses, those of rows that were not solved as the sample suggests.
    misses : (n,) array
        Share of each sampled row in the error of the mean: its norm is the error's standard deviation, and
        its product with that of another strength their covariance.
    error : float
        How far the mean may be off: proven, or at 95 % from the sample, or infinite.
    solved : int
        Rows that were solved; 0 where a step was taken for all of them.
    seen : int
        Rows that were left out together with others, which fewer single rows do not overrule.
    proven : bool
        Whether what is known of the rows is proven, where it is known at all.
    settled : bool
        Whether bounds tell the mean over all rows that have a refit to what it has to be known to.
    off : (n,) array or None
        How far losses of single rows that were solved may be off; infinite where there is no refit, NaN where
        none was solved.
    apart : (n,) or (n, c) array or None
        Linear predictors of rows that were left out together with others, NaN elsewhere.
    begun : Stepped or None
        What a race goes on from, where a step was taken for all rows.
    leads : Leads or None
        Where rows went that were left out alone, for strengths near by.
    least : (n,) array or None
        Losses that the left-out ones are no smaller than, where that is all that is known.
    """

    losses: Array
    misses: Array
    error: float
    solved: int = 0
    seen: int = 0
    proven: bool = False
    settled: bool = False
    off: Array | None = None
    apart: Array | None = None
    begun: Stepped | None = None
    leads: Leads | None = None
    least: Array | None = None

    @property
    def is_sampled(self) -> bool:
        """Whether the error holds at 95 %, by some of the rows or by refits without a proof."""
        return not self.proven or 0 < self.left_out < len(self.losses)

    @property
    def at_least(self) -> tuple[Array, float]:
        """Losses from which the mean is at most so far down: (n,), and how far."""
        return (self.losses, self.error) if self.least is None else (self.least, 0.0)

    @property
    def left_out(self) -> int:
        """Rows that were left out, alone or with others."""
        return max(self.solved, self.seen)


def judged(verdicts: Sequence[Verdict | None]) -> dict[int, Verdict]:
    """What is known, by place, of the strengths of a path of which anything is."""
    return {j: verdict for j, verdict in enumerate(verdicts) if verdict is not None}


def beside(verdicts: Sequence[Verdict | None], j: int) -> list[int]:
    """The strengths that were judged next to one, on either side."""
    places = list(judged(verdicts))
    return [k for k in places if k < j][-1:] + [k for k in places if k > j][:1]


def halfway(verdicts: Sequence[Verdict | None], j: int) -> list[int]:
    """Strengths half-way from one to those that were judged on either side, where others lie between."""
    return [(j + side) // 2 for side in beside(verdicts, j) if abs(side - j) > 1]


def from_sample(
    known: Array,
    rows: Index,
    chance: Array,
    covariates: Array,
    weights: Array,
    effect: Array | None = None,
    off: Array | None = None,
) -> Verdict:
    """Complete the losses of a sample.

    Parameters
    ----------
    known : (m,) array
        Losses of ``rows``; NaN where a row has no refit.
    rows : (m,) int array
    chance : (n,) array
        With which probability each row was to be drawn.
    covariates : (n, q) array
    weights : (n,) array
    effect : (n,) array, optional
        By how much each loss may be other than thought, where that is known.
    off : (m,) array, optional
        How far each of what is known may be off.
    """
    n, m, kept = len(weights), len(rows), np.isfinite(known) & (weights[rows] > 0)
    known, drawn = known[kept], Draw(rows[kept], chance[rows[kept]])
    if len(known) < 2:
        return Verdict(covariates[:, -1].copy(), np.zeros(n), np.inf, m)
    share, own = weights / weights.sum(), drawn.rows
    predicted, residuals = regressed(known, drawn, covariates, weights)
    expansion = share[own] / drawn.probabilities
    losses = predicted + _borrowed(known - predicted[own], drawn, chance)
    losses[own] = known
    rest = weights > 0
    rest[own] = False
    losses[weights == 0] = predicted[weights == 0]
    misses, half = np.zeros(n), 0.0
    if rest.any():
        wanted = share @ predicted + expansion @ (known - predicted[own])
        losses[rest] += (wanted - share @ losses) / share[rest].sum()
        misses[own] = deviations(expansion * residuals, 1.0 - drawn.probabilities)
        error, quantile = spread(expansion * residuals, 1.0 - drawn.probabilities, CONFIDENCE)
        may = np.zeros(n) if effect is None else share * effect
        floor = unseen(share[own] * residuals, may, drawn, CONFIDENCE)
        half = max(quantile * error, floor, resolution(*mean_and_error(losses, weights)))
    half += 0.0 if off is None else float(expansion @ off[kept])
    return Verdict(losses, misses, half, m)


def _borrowed(missed: Array, drawn: Draw, chance: Array) -> Array:
    """What predictions of all rows miss if that is in proportion to the chance of being drawn: (n,).

    Each has it from the next row that was drawn by chance, which mostly is the same one at every strength.
    """
    donors = np.flatnonzero(drawn.probabilities < 1.0)
    if donors.size == 0:
        return np.zeros(len(chance))
    donors = donors[np.argsort(drawn.rows[donors])]
    following = np.searchsorted(drawn.rows[donors], np.arange(len(chance))) % len(donors)
    return np.asarray(chance * (missed[donors] / drawn.probabilities[donors])[following])


def between(left: Verdict, right: Verdict, share: float) -> Verdict:
    """A strength between two that were judged: its losses may lie between theirs, and nothing bounds them."""
    losses = (1.0 - share) * left.losses + share * right.losses
    return Verdict(losses, (1.0 - share) * left.misses + share * right.misses, np.inf)
