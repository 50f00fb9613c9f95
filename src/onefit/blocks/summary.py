"""What a first pass over the rows tells: how many there are, of what size, and a few of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from typing import Any, NamedTuple, final

import numpy as np

from onefit._typing import Array
from onefit.blocks.rows import Block

SAMPLE = 2**20  # numbers in the sample of rows, at most
FEWEST = 2000  # rows of the sample that are kept even where they are wide


class SampledRows(NamedTuple):
    """Some rows: X, y and weights."""

    X: Array
    y: Any
    weights: Array

    def every(self, step: int) -> SampledRows:
        """Return every so-manieth row, in memory of its own."""
        return self if step == 1 else SampledRows(*(part[::step].copy() for part in self))


@final
@dataclass(frozen=True)
class RowSample:
    """Every ``stride``-th row of each block: where solvers start.

    Attributes
    ----------
    parts : tuple of SampledRows
        The rows, joined when there are too many of them.
    stride : int
        A power of two, doubled whenever there are too many rows.
    """

    parts: tuple[SampledRows, ...]
    stride: int = 1

    @cached_property
    def rows(self) -> SampledRows:
        """All rows, joined."""
        if len(self.parts) == 1:
            return self.parts[0]
        return SampledRows(*(np.concatenate(own) for own in zip(*self.parts, strict=True)))

    def thinned(self, stride: int = 1) -> RowSample:
        """Return the rows of a wider stride, and of one so wide that they are not too many."""
        step = max(1, stride // self.stride)
        parts = tuple(part.every(step) for part in self.parts)
        sample = RowSample(parts, step * self.stride)
        if sum(len(part.X) for part in parts) <= max(FEWEST, SAMPLE // max(parts[0].X.shape[1], 1)):
            return sample
        return RowSample((sample.rows.every(2),), 2 * sample.stride).thinned()

    def __add__(self, other: RowSample) -> RowSample:
        stride = max(self.stride, other.stride)
        one, two = self.thinned(stride), other.thinned(stride)
        return RowSample(one.parts + two.parts, max(one.stride, two.stride)).thinned()


@final
@dataclass(frozen=True)
class Summary:
    """Sums over the rows that need no model.

    Attributes
    ----------
    rows, count : int
        Rows, and rows with weight.
    weight, heaviest : float
        Σ w and the largest weight.
    means, squares : (p,) arrays
        Weighted means of the columns, and Σ w (x − mean)².
    sizes : (p,) array
        Largest absolute value of each column.
    labels, shares : (c,) arrays
        Distinct values of y, sorted, and the weight of each; of a response of numbers Σ w y alone, beside a
        label that means nothing.
    sample : RowSample
    """

    rows: int
    count: int
    weight: float
    heaviest: float
    means: Array
    squares: Array
    sizes: Array
    labels: Any
    shares: Array
    sample: RowSample

    def __add__(self, other: Summary) -> Summary:
        weight = self.weight + other.weight
        part = other.weight / weight if weight > 0 else 0.0
        apart = other.means - self.means
        labels, shares = _joined(self, other)
        return Summary(
            rows=self.rows + other.rows,
            count=self.count + other.count,
            weight=weight,
            heaviest=max(self.heaviest, other.heaviest),
            means=self.means + part * apart,
            squares=self.squares + other.squares + self.weight * part * apart**2,
            sizes=np.maximum(self.sizes, other.sizes),
            labels=labels,
            shares=shares,
            sample=self.sample + other.sample,
        )

    @property
    def response(self) -> float:
        """Weighted mean of a response of numbers."""
        return float(self.shares[0] / self.weight)


def _joined(one: Summary, two: Summary) -> tuple[Any, Array]:
    labels, places = np.unique(np.concatenate([one.labels, two.labels]), return_inverse=True)
    return labels, np.bincount(places, np.concatenate([one.shares, two.shares])).astype(np.float64)


def summarise(block: Block, *, classes: bool, least: float = -np.inf) -> Summary:
    """From a block to its Summary.

    Parameters
    ----------
    block : Block
    classes : bool
        Whether y holds labels, else numbers.
    least : float
        Numbers below it are refused.
    """
    return reduce(add, (_of_piece(part, classes, least) for part in block.parts()))


def _of_piece(block: Block, classes: bool, least: float) -> Summary:
    X = np.asarray(block.X, dtype=np.float64)
    weights = np.ones(len(X)) if block.weights is None else block.weights
    total = float(weights.sum())
    means = weights @ X / total if total > 0 else X.mean(axis=0)
    y = np.asarray(block.y)
    if classes:
        labels, numbers = np.unique(y, return_inverse=True)
        shares: Array = np.bincount(numbers, weights, len(labels)).astype(np.float64)
    else:
        labels, shares = np.zeros(1), np.array([weights @ _numbers(y, least)])
    return Summary(
        rows=len(X),
        count=int(np.count_nonzero(weights)),
        weight=total,
        heaviest=float(weights.max()),
        means=means,
        squares=weights @ (X - means) ** 2,
        sizes=np.maximum(X.max(axis=0, initial=0.0), -X.min(axis=0, initial=0.0)),
        labels=labels,
        shares=shares,
        sample=RowSample((SampledRows(X, y, weights),)).thinned(),
    )


def _numbers(y: Any, least: float) -> Array:
    try:
        numbers = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("the target holds what is no number") from None
    low = numbers < least
    if np.any(low):
        row = int(np.flatnonzero(low)[0])
        raise ValueError(f"this model needs y >= {least:g}, but y[{row}] = {numbers[row]:g}")
    return numbers
