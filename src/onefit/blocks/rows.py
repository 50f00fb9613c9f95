"""Rows that come in blocks, wherever they are kept, and what a first pass over them tells.

They are summed over, or mapped in their order.  A summary says how many there are, of what size, and keeps a
few of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property, reduce
from itertools import starmap
from operator import add
from typing import Any, NamedTuple, Protocol, Self, TypeVar, final

import numpy as np
import scipy.sparse as sp
from joblib import Parallel, delayed, effective_n_jobs

from onefit import _linalg, cost
from onefit._typing import Array, Design, Index
from onefit.validation import check_range

CACHE = 2**16  # numbers in a piece: with the products of all strengths beside it, it stays in the cache
FEWEST = 512  # rows in a piece, so that products are worth a call
SAMPLE = 2**20  # numbers in the sample of rows, at most, but where it has many columns
NARROWEST = 32  # columns that narrower rows count as: each strength works on some numbers of a row besides


def is_large(n: int, p: int) -> bool:
    """Whether so many rows of p columns had better be gone over block by block."""
    return n * max(p, NARROWEST) > SAMPLE


def rows_of_sample(p: int) -> float:
    """Rows in the sample, at most: enough beside p columns that what is fitted to them is no overfit."""
    return max(SAMPLE // max(p, NARROWEST), cost.TALL * p)


class Addable(Protocol):
    """What blocks are summed up to."""

    def __add__(self, other: Self) -> Self: ...


S = TypeVar("S", bound=Addable)
R = TypeVar("R")


class Added:
    """A dataclass of sums over rows, which are added field by field."""

    @np.errstate(invalid="ignore")  # of steps that were too long, which are taken back
    def __add__(self, other: Self) -> Self:
        own = (field.name for field in fields(self))  # type: ignore[arg-type]
        return type(self)(*(getattr(self, name) + getattr(other, name) for name in own))


@dataclass(frozen=True)
class Largest:
    """The largest of some numbers; a sum of two is the larger one."""

    value: float

    def __add__(self, other: Largest) -> Largest:
        return Largest(max(self.value, other.value))


class Block(NamedTuple):
    """Some rows: finite numbers, checked by who hands them over.

    Attributes
    ----------
    X : (b, p) array or sparse matrix
    y : (b,) or (b, t) array
    weights : (b,) array or None
        At least 0; None where every row counts as one.
    """

    X: Design
    y: Array
    weights: Array | None = None

    @property
    def row_weights(self) -> Array:
        """Weight of each row: (b,)."""
        return np.ones(len(self.y)) if self.weights is None else self.weights

    def cut(self, size: int) -> Iterator[Block]:
        """Cut into blocks of so many rows."""
        X = self.X.tocsr() if sp.issparse(self.X) else self.X
        for start in range(0, X.shape[0], size):
            part = slice(start, start + size)
            yield Block(X[part], self.y[part], None if self.weights is None else self.weights[part])

    def parts(self) -> Iterator[Block]:
        """Cut into pieces that stay in the cache, dense ones."""
        rows, p = self.X.shape
        if not rows:
            raise ValueError("a block has no rows: leave it out")
        for part in self.cut(max(FEWEST, CACHE // max(p, 1))):
            yield part._replace(X=_linalg.dense(part.X))


def centred_columns(X: Array, means: Array, columns: Index | slice) -> Array:
    """Some columns less their means, one a row: (k, b), in double precision."""
    own = X.T[columns]
    return np.subtract(own, means[columns, None], out=np.empty(own.shape))


def block_length(p: int) -> int:
    """Rows of p columns that a block has: no fewer than columns, so that its sums take no longer than it."""
    return max(64, _linalg.BLOCK_SIZE // max(p, 1), p)


def in_threads(
    of: Callable[..., R], calls: Iterator[tuple[Any, ...]], n_jobs: int | None = None
) -> Iterator[R]:
    """Results of calls in their order; as many are under way at once as there are threads.

    Parameters
    ----------
    of : callable
    calls : iterator of tuple
        Arguments.
    n_jobs : int or None
        Threads, as in joblib; None for those of ``joblib.parallel_config``, or one.
    """
    n_jobs = effective_n_jobs(n_jobs)
    if n_jobs == 1:
        return starmap(of, calls)
    shared = Parallel(
        n_jobs=n_jobs, require="sharedmem", return_as="generator", pre_dispatch="n_jobs", batch_size=1
    )
    return iter(shared(delayed(of)(*own) for own in calls))


class Rows(ABC):
    """A source of rows that can be gone over more than once.

    Attributes
    ----------
    shape : tuple
        Number of rows, None where it is not known before they are counted, and of columns.
    names : tuple of str or None
        Names of the columns.
    """

    shape: tuple[int | None, int]
    names: tuple[str, ...] | None = None

    @abstractmethod
    def total(self, of: Callable[[Block], S]) -> S:
        """Sum what ``of`` makes of each block, in any order.

        Parameters
        ----------
        of : callable
            Can be pickled; what it returns can be added.
        """

    @abstractmethod
    def each(self, of: Callable[[Block], R]) -> Iterator[R]:
        """What ``of`` makes of each block, in the order of the rows."""


@dataclass(frozen=True, eq=False)
class ArrayRows(Rows):
    """Rows in memory.

    Parameters
    ----------
    X : (n, p) array or sparse matrix
    y : (n,) or (n, t) array
    weights : (n,) array or None
    n_jobs : int or None
        Threads that blocks are shared among, as in joblib.
    """

    X: Design
    y: Array
    weights: Array | None = None
    n_jobs: int | None = None

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        n, p = self.X.shape
        return int(n), int(p)

    def total(self, of: Callable[[Block], S]) -> S:
        return reduce(add, self.each(of))

    def each(self, of: Callable[[Block], R]) -> Iterator[R]:
        blocks = Block(self.X, self.y, self.weights).cut(block_length(self.X.shape[1]))
        return in_threads(of, ((block,) for block in blocks), self.n_jobs)


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
        if sum(len(part.X) for part in parts) <= rows_of_sample(parts[0].X.shape[1]):
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
    lowest, highest : (p,) arrays
        Of each column.
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
    lowest: Array
    highest: Array
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
            lowest=np.minimum(self.lowest, other.lowest),
            highest=np.maximum(self.highest, other.highest),
            labels=labels,
            shares=shares,
            sample=self.sample + other.sample,
        )

    @property
    def sizes(self) -> Array:
        """Largest absolute value of each column: (p,)."""
        return np.maximum(np.abs(self.lowest), np.abs(self.highest))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.rows, len(self.means)

    @property
    def response(self) -> float:
        """Weighted mean of a response of numbers."""
        return float(self.shares[0] / self.weight)


def _joined(one: Summary, two: Summary) -> tuple[Any, Array]:
    labels, places = np.unique(np.concatenate([one.labels, two.labels]), return_inverse=True)
    return labels, np.bincount(places, np.concatenate([one.shares, two.shares])).astype(np.float64)


def summarise(block: Block, *, classes: bool, power: float | None = None) -> Summary:
    """From a block to its Summary.

    Parameters
    ----------
    block : Block
    classes : bool
        Whether y holds labels, else numbers.
    power : float or None
        Of a Tweedie family, outside whose range numbers are refused.
    """
    return reduce(add, (_of_piece(part, classes, power) for part in block.parts()))


def _of_piece(block: Block, classes: bool, power: float | None) -> Summary:
    X = np.asarray(block.X, dtype=np.float64)
    weights = block.row_weights
    total = float(weights.sum())
    means = weights @ X / total if total > 0 else X.mean(axis=0)
    y = np.asarray(block.y)
    if classes:
        labels, numbers = np.unique(y, return_inverse=True)
        shares: Array = np.bincount(numbers, weights, len(labels)).astype(np.float64)
    else:
        labels, shares = np.zeros(1), np.array([weights @ _numbers(y, power)])
    return Summary(
        rows=len(X),
        count=int(np.count_nonzero(weights)),
        weight=total,
        heaviest=float(weights.max()),
        means=means,
        squares=weights @ (X - means) ** 2,
        lowest=X.min(axis=0),
        highest=X.max(axis=0),
        labels=labels,
        shares=shares,
        sample=RowSample((SampledRows(X, y, weights),)).thinned(),
    )


def _numbers(y: Any, power: float | None) -> Array:
    try:
        numbers = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("the target holds what is no number") from None
    if power is not None:
        check_range(numbers, power)
    return numbers
