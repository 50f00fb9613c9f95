"""Blocks of arrays: in memory, mapped from a file, or sparse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, final

import numpy as np
import scipy.sparse as sp

from onefit.blocks import Block, block_length
from onefit.sources.base import LocalSource
from onefit.sources.checks import Layout


@final
class ArraySource(LocalSource):
    """Rows of arrays, cut into blocks.

    Parameters
    ----------
    X : array, memory map, data frame, sparse matrix or sparse array of shape (n, p)
        Read block by block, so that a ``numpy.memmap`` may be larger than memory.
    y : array of shape (n,)
    sample_weight : array of shape (n,), optional
    rows : int, optional
        Rows of a block; by default about a million numbers.

    Raises
    ------
    ValueError
        Lengths differ, or X has no rows.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit import RidgeLOO
    >>> from onefit.sources import ArraySource
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 3))
    >>> y = X @ [1.0, 0.0, -1.0] + rng.normal(size=1000)
    >>> model = RidgeLOO().fit(ArraySource(X, y, rows=300))
    >>> model.coef_.round(1)
    array([ 0.9,  0.1, -1. ])
    """

    def __init__(self, X: Any, y: Any, sample_weight: Any = None, *, rows: int | None = None) -> None:
        if not hasattr(X, "shape"):
            X = np.asarray(X)
        self._X = X.tocsr() if sp.issparse(X) else X
        self._columns: tuple[Any, Any] = (y, sample_weight)
        for what, column in (("y", y), ("sample_weight", sample_weight)):
            if (column is not None or what == "y") and np.shape(column)[:1] != (X.shape[0],):
                raise ValueError(
                    f"{what} has {(np.shape(column) or ('no',))[0]} entries, X has {X.shape[0]} rows"
                )
        if X.shape[0] == 0:
            raise ValueError("X has no rows")
        if rows is not None and rows < 1:
            raise ValueError(f"rows must be at least 1, got {rows!r}")
        self._rows = rows or block_length(int(X.shape[1]))
        self._layout = Layout.of("X", self._cut(self._X, slice(0, 1)))
        self.names = self._layout.names

    @property
    def shape(self) -> tuple[int | None, int]:  # type: ignore[override]
        return int(self._X.shape[0]), self._layout.width

    def named_blocks(self) -> Iterator[tuple[str, Block]]:
        n = self._X.shape[0]
        for start in range(0, n, self._rows):
            rows = slice(start, min(start + self._rows, n))
            y, weights = (None if column is None else self._cut(column, rows) for column in self._columns)
            yield self._layout.named(
                f"block {start // self._rows} (rows {start} to {rows.stop - 1})",
                self._cut(self._X, rows),
                y,
                weights,
                range(n)[rows],
            )

    @staticmethod
    def _cut(values: Any, rows: slice) -> Any:
        return values.iloc[rows] if hasattr(values, "iloc") else values[rows]
