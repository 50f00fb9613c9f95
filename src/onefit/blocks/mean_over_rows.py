"""The mean over all rows of their losses without themselves, and how far it may be off."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Self, final

import numpy as np

from onefit._typing import Array
from onefit.blocks.anew import DoubtfulRows, most_rows
from onefit.blocks.chosen import ChosenStrength
from onefit.blocks.loss_sums import LossSums
from onefit.blocks.newton import check_rows
from onefit.blocks.rows import Added, Block, Largest, Rows
from onefit.leave_out.draws import NEGLIGIBLE, Draw, spread, unseen
from onefit.metrics import LinearMetric
from onefit.numerics import CONFIDENCE, EXACT, KNOWN, TINY, resolution


@final
@dataclass(frozen=True)
class RowSum(Added):
    """Sums over the rows at one strength.

    Attributes
    ----------
    rows : int
    losses : LossSums
    off : float
        Σ w times how far a loss may be off.
    unknown : int
        Rows of whose refits nothing is known.
    df : float
        Sum of the leverages.
    largest : Largest
        Of them.
    doubtful : DoubtfulRows
        Some of those that may be off.
    """

    rows: int
    losses: LossSums
    off: float
    unknown: int
    df: float
    largest: Largest
    doubtful: DoubtfulRows

    @property
    def value(self) -> float:
        """Weighted mean of the losses."""
        return float(self.losses.risks[0])

    @property
    def std_error(self) -> float:
        """Its sampling standard error."""
        return float(self.losses.std_errors[0])

    @property
    def error(self) -> float:
        """How far the mean may be off."""
        return np.inf if self.unknown else self.off / self.losses.weight


def _sum_of_rows(block: Block, judge: ChosenStrength, metric: LinearMetric, most: int) -> RowSum:
    values = judge.left_out(block)
    target, weights = _read(block, metric)
    held = weights > 0
    losses = np.where(held, metric.losses(target, values.left_out), 0.0)
    spread = np.where(held, metric.spread(target, values.left_out, values.bounds), 0.0)
    known = np.isfinite(spread)
    change = np.abs(losses - np.where(held, metric.losses(target, values.fitted), 0.0))
    total = max(float(weights.sum()), TINY)
    usual = (weights @ change or weights @ losses) / total
    change = np.maximum(change, NEGLIGIBLE * usual)  # a step may not see what a refit does
    return RowSum(
        len(target),
        LossSums.of(losses, np.zeros((1, len(losses))), weights),
        float(weights[known] @ spread[known]),
        int(np.count_nonzero(~known)),
        float(values.leverages.sum()),
        Largest(float(values.leverages.max(initial=0.0))),
        judge.drawn(block, losses, weights * np.minimum(spread, change), most + 1),
    )


def _read(block: Block, metric: LinearMetric) -> tuple[Array, Array]:
    """Target and weights of a block."""
    target = metric.target(block.y)
    return target, block.row_weights


class MeanOverRows(NamedTuple):
    """A mean over all rows, how far it may be off, and what is behind that.

    ``chances`` are those with which rows were drawn, where the mean rests on a sample of them.
    """

    value: float
    off: float
    guarantee: str
    total: RowSum
    judge: ChosenStrength
    chances: Array | None = None

    @classmethod
    def of(cls, rows: Rows, judge: ChosenStrength, metric: LinearMetric, count: int) -> Self:
        """Judge all rows in a pass, and solve some of them anew if that may be off by too much."""
        most = most_rows(count, rows.shape[1])
        total = rows.total(partial(_sum_of_rows, judge=judge, metric=metric, most=most))
        check_rows(total.losses.count, count)
        can_tell = judge.solves_anew and total.doubtful.is_worth_solving
        if can_tell and not total.error <= KNOWN * total.std_error:
            before, (some, chances) = total, total.doubtful.drawn()
            judge = judge.solved_anew(rows, some, n=total.rows)
            total = rows.total(partial(_sum_of_rows, judge=judge, metric=metric, most=0))
            value, off = _sampled(before, some, chances, judge, metric)
            if off < total.error and not total.error <= KNOWN * total.std_error:
                return cls(value, off, "sampled", total, judge, chances)
        is_exact = total.error <= EXACT * max(abs(total.value), TINY)
        guarantee = "rough" if total.unknown else "exact" if is_exact else "bounded"
        return cls(total.value, total.error, guarantee, total, judge)


def _sampled(
    before: RowSum, some: DoubtfulRows, chances: Array, judge: ChosenStrength, metric: LinearMetric
) -> tuple[float, float]:
    """Correct a mean by the difference estimator (``leave_out.draws``); how far it may be off, at 95 %."""
    found, weight = judge.anew, before.losses.weight
    if found is None or len(found.y) < len(some.y) or not np.isfinite(found.bounds).all():
        return before.value, np.inf
    rest = max(some.total - float(some.sizes.sum()), 0.0)
    if rest > 0 and not np.any(chances < 1.0):  # none that tells of the others
        return before.value, np.inf
    off = found.weights * (metric.losses(found.y, found.left_out) - found.losses) / weight
    error, quantile = spread(off / chances, 1.0 - chances, CONFIDENCE)
    draw, effect = Draw(np.arange(len(off)), chances), np.append(some.sizes, rest) / weight
    left = unseen(off, effect, draw, CONFIDENCE)
    least = resolution(before.value, before.std_error)
    return before.value + float(np.sum(off / chances)), max(quantile * error + left, least)
