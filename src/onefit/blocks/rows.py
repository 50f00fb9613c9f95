"""Rows that come in blocks, wherever they are kept: they are summed over, or mapped in their order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import reduce
from itertools import starmap
from operator import add
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import scipy.sparse as sp
from joblib import Parallel, delayed, effective_n_jobs

from onefit._typing import Array, Design, Index

CACHE = 2**16  # numbers in a piece: with the products of all strengths beside it, it stays in the cache
FEWEST = 512  # rows in a piece, so that products are worth a call
BLOCK_SIZE = 2**20  # numbers in a block that is read or summed at once: 8 MiB


class Addable(Protocol):
    """What blocks are summed up to."""

    def __add__(self, other: Self) -> Self: ...


S = TypeVar("S", bound=Addable)
R = TypeVar("R")


class Added:
    """A dataclass of sums over rows, which are added field by field."""

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

    def parts(self) -> Iterator[Block]:
        """Cut into pieces that stay in the cache, dense ones."""
        rows, p = self.X.shape
        if not rows:
            raise ValueError("a block has no rows: leave it out")
        size = piece_length(p)
        X = self.X.tocsr() if sp.issparse(self.X) else self.X
        for start in range(0, rows, size):
            part = slice(start, start + size)
            own = X[part].toarray() if sp.issparse(X) else X[part]
            yield Block(own, self.y[part], None if self.weights is None else self.weights[part])


def centred_columns(X: Array, means: Array, columns: Index | slice) -> Array:
    """Some columns less their means, one a row: (k, b), in double precision."""
    own = X.T[columns]
    return np.subtract(own, means[columns, None], out=np.empty(own.shape))


def piece_length(p: int) -> int:
    """Rows of p columns that a piece has."""
    return max(FEWEST, CACHE // max(p, 1))


def block_length(p: int) -> int:
    """Rows of p columns that a block has."""
    return max(64, BLOCK_SIZE // max(p, 1))


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

    def _blocks(self) -> Iterator[Block]:
        X = self.X.tocsr() if sp.issparse(self.X) else self.X
        size = block_length(X.shape[1])
        for start in range(0, X.shape[0], size):
            rows = slice(start, start + size)
            yield Block(X[rows], self.y[rows], None if self.weights is None else self.weights[rows])

    def total(self, of: Callable[[Block], S]) -> S:
        return reduce(add, self.each(of))

    def each(self, of: Callable[[Block], R]) -> Iterator[R]:
        return in_threads(of, ((block,) for block in self._blocks()), self.n_jobs)
