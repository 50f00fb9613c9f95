"""Dask arrays and data frames, partitioned by rows: on this machine or on a cluster.

A sum over rows is a tree of partial sums, a judgement a map over the partitions; what travels between
machines are totals.  A worker that dies costs what it held: its partitions are made again elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar, final
from weakref import finalize

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
from dask.delayed import Delayed, delayed
from distributed import Client, get_client

from onefit.blocks import Block, Rows
from onefit.sources.base import located
from onefit.sources.checks import Layout

Part = TypeVar("Part")

FAN_IN = 8  # partial sums that are added at a node of the tree
AT_ONCE = 64  # partitions whose judgements may wait to be written
WAIT = 10  # seconds for a scheduler to answer


@final
class DaskSource(Rows):
    """Rows of a Dask array or DataFrame, one block a partition.

    Work is done where Dask does it: on the cluster of the current ``distributed.Client``, or else on threads
    of this process.  A table that fits into the memory of the cluster is worth ``.persist()`` before, as it
    is passed over several times.

    Parameters
    ----------
    X : dask array of shape (n, p), or dask DataFrame
        Partitioned by rows.
    y : dask array or Series of shape (n,), or str
        Partitioned like X; or the name of a column of the data frame.
    sample_weight : dask array or Series of shape (n,), or str, optional
    scheduler : str or distributed.Client, optional
        A client, or the address of a scheduler, such as "tcp://10.0.0.1:8786"; by default the current one.

    Raises
    ------
    ValueError
        Partitions of X and y differ, or a named column is not there.
    ConnectionError
        No scheduler answers at the address.

    Examples
    --------
    >>> import dask.array as da
    >>> from onefit import RidgeLOO
    >>> from onefit.dask import DaskSource
    >>> X = da.random.default_rng(0).normal(size=(10_000, 3), chunks=(2_500, 3))
    >>> y = X[:, 0] - X[:, 2] + da.random.default_rng(1).normal(size=10_000, chunks=2_500)
    >>> RidgeLOO().fit(DaskSource(X, y)).coef_.round(1)  # or fit(X, y)
    array([ 1.,  0., -1.])
    """

    def __init__(self, X: Any, y: Any, sample_weight: Any = None, *, scheduler: Any = None) -> None:
        self._client = connected(scheduler)
        if isinstance(scheduler, str) and self._client is not None:
            finalize(self, self._client.close)  # it is ours
        if isinstance(X, dd.DataFrame):
            X, y, sample_weight = _named_columns(X, y, sample_weight)
        elif not isinstance(X, da.Array):
            raise TypeError(f"X must be a Dask array or DataFrame, got {type(X).__name__}")
        parts = {"X": _partitions(X, "X"), "y": _partitions(y, "y")}
        if sample_weight is not None:
            parts["sample_weight"] = _partitions(sample_weight, "sample_weight")
        for what, own in parts.items():
            if len(own) != len(parts["X"]):
                raise ValueError(
                    f"{what} has {len(own)} partitions, X has {len(parts['X'])}: they must be partitioned "
                    "alike"
                )
        self._partitions: list[tuple[Delayed, ...]] = list(zip(*parts.values(), strict=True))
        names = tuple(map(str, X.columns)) if isinstance(X, dd.DataFrame) else None
        self._layout = Layout(len(names) if names is not None else int(X.shape[1]), names, "X")
        self._rows = X.shape[0] if isinstance(X, da.Array) and np.isfinite(X.shape[0]) else None
        self.names = names

    @property
    def shape(self) -> tuple[int | None, int]:  # type: ignore[override]
        return self._rows, self._layout.width

    def total(self, of: Callable[[Block], Part]) -> Part:
        level = self._judged(of)
        while len(level) > 1:
            groups = [level[start : start + FAN_IN] for start in range(0, len(level), FAN_IN)]
            level = [delayed(_added)(group) for group in groups]
        (whole,) = self._computed(level)
        if whole is None:
            raise ValueError("the source has no rows")
        return whole

    def each(self, of: Callable[[Block], Part]) -> Iterator[Part]:
        judged = self._judged(of)
        for start in range(0, len(judged), AT_ONCE):
            found = self._computed(judged[start : start + AT_ONCE])
            yield from (part for part in found if part is not None)

    def _judged(self, of: Callable[[Block], Part]) -> list[Delayed]:
        shared = delayed(of, pure=False, traverse=False)  # sent once, not with every partition
        return [
            delayed(_judge_partition)(number, shared, self._layout, *parts)
            for number, parts in enumerate(self._partitions)
        ]

    def _computed(self, parts: list[Delayed]) -> Any:
        if self._client is None:
            return dask.compute(*parts)
        return self._client.gather(self._client.compute(parts))


def connected(scheduler: Any) -> Client | None:
    """Return the client of a scheduler: of an address, the one given, or the current one if there is one.

    Raises
    ------
    ConnectionError
        No scheduler answers.
    """
    if scheduler is None:
        try:
            return get_client()
        except ValueError:
            return None
    if not isinstance(scheduler, str):
        return scheduler
    try:
        client = Client(scheduler, timeout=WAIT, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise ConnectionError(
            f"no Dask scheduler answers at {scheduler!r}: start one (dask scheduler), or see that the "
            "address is right"
        ) from error
    return client


def _judge_partition(number: int, of: Callable[[Block], Part], layout: Layout, *parts: Any) -> Part | None:
    """None of a partition without rows, as a filter may leave it."""
    name, block = layout.named(f"partition {number}", *parts)
    return located(name, of, block) if len(block.y) else None


def _added(parts: list[Any]) -> Any:
    held = [part for part in parts if part is not None]
    return sum(held[1:], start=held[0]) if held else None


def _named_columns(X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
    """Split a data frame into X, y and weights where these are given by name."""
    taken = []
    for what, given in (("y", y), ("sample_weight", sample_weight)):
        if isinstance(given, str):
            if given not in X.columns:
                raise ValueError(
                    f"{what}={given!r} is no column of the table: it has {', '.join(map(str, X.columns))}"
                )
            taken.append(given)
    y, sample_weight = (X[given] if isinstance(given, str) else given for given in (y, sample_weight))
    return X.drop(columns=taken) if taken else X, y, sample_weight


def _partitions(values: Any, what: str) -> list[Delayed]:
    """Partitions of a Dask collection, whole rows each."""
    if isinstance(values, dd.DataFrame | dd.Series):
        return list(values.to_delayed())
    if isinstance(values, da.Array):
        whole = values.rechunk({1: -1}) if values.ndim == 2 and values.numblocks[1] > 1 else values
        return list(whole.to_delayed().ravel())
    raise TypeError(
        f"{what} must be a Dask collection like X, got {type(values).__name__}: da.from_array makes one"
    )
