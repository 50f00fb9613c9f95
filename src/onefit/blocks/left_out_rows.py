"""Rows without themselves, a block at a time: for a file, or for what takes the values of all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np

from onefit._typing import Array, Index, Mask
from onefit.blocks.chosen import ChosenStrength
from onefit.blocks.rows import Block
from onefit.metrics import LinearMetric
from onefit.numerics import CERTIFIED, FLAGGED
from onefit.risk.estimate import RiskEstimate
from onefit.risk.judging import reach
from onefit.risk.sampled import SampledPredictions


class LeftOutRows(NamedTuple):
    """Some rows without themselves, one value a row, of which those of two classes are two.

    Attributes
    ----------
    y, weights : (b,) arrays
    predictions, decision, fitted : (b,) or (b, 2) arrays
        Without the row, and linear predictors without it and with it.
    losses, leverages, bounds : (b,) arrays
        As of ``RiskEstimate``.
    by_step : (b,) array
        Linear predictors of one step, where rows were solved anew.
    drawn : (b,) int array
        Number of a row among those that were; −1 of others.
    """

    y: Any
    weights: Array
    predictions: Array
    decision: Array
    fitted: Array
    losses: Array
    leverages: Array
    bounds: Array
    by_step: Array
    drawn: Index

    @classmethod
    def of(cls, block: Block, judge: ChosenStrength, metric: LinearMetric) -> Self:
        """Those of a block at the chosen strength."""
        values = judge.left_out(block)
        target = metric.target(block.y)
        by_step = values if judge.anew is None else replace(judge, anew=None).left_out(block)
        return cls(
            np.asarray(block.y),
            block.row_weights,
            metric.predictions(values.left_out),
            metric.decision(values.left_out),
            metric.decision(values.fitted),
            metric.losses(target, values.left_out),
            values.leverages,
            values.bounds,
            by_step.left_out,
            judge.numbers_anew(block),
        )

    @classmethod
    def of_held(cls, found: RiskEstimate) -> Self:
        """Those of rows that were all in memory, in their order; what they rest on stays with ``found``."""
        n = len(found.losses)
        return cls(
            np.asarray(found.y),
            np.ones(n) if found.sample_weight is None else found.sample_weight,
            found.predictions,
            found.decision,
            found.fitted,
            found.losses,
            found.leverages,
            found.bounds,
            found.decision,
            np.full(n, -1),
        )

    @classmethod
    def joined(cls, parts: Iterable[Self]) -> Self:
        """All rows, in their order."""
        return cls(*(np.concatenate(own) for own in zip(*parts, strict=True)))

    def columns(self, classes: Any | None) -> dict[str, Any]:
        """The rows in the columns of a file."""
        columns = {"y": self.y}
        if self.predictions.ndim == 1:
            columns["prediction"] = self.predictions
        else:
            assert classes is not None
            names = (f"probability_{name}" for name in classes)
            columns |= dict(zip(names, self.predictions.T, strict=True))
        rest = {"decision": self.decision, "loss": self.losses}
        return columns | rest | {"leverage": self.leverages, "bound": self.bounds}

    def certified(self) -> Mask:
        """Rows whose bounds are within numerical precision."""
        return np.asarray(self.bounds <= CERTIFIED * np.abs(self.fitted).max(initial=0.0))

    def flagged(self, metric: LinearMetric) -> Index:
        """Rows whose predictions may be off by much."""
        off = np.where(self.certified(), 0.0, self.bounds)
        target = metric.target(self.y)
        return np.flatnonzero(reach(metric, target, self.decision, off) > FLAGGED)

    def sampled(self, metric: LinearMetric, chances: Array | None) -> SampledPredictions | None:
        """Which of them a mean rests on that some were drawn for."""
        if chances is None:
            return None
        by_step = metric.predictions(self.by_step), metric.decision(self.by_step)
        return SampledPredictions(*by_step, self.drawn, chances)
