"""Blocks that a function makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, final
from zlib import crc32

import numpy as np

from onefit.blocks import Block
from onefit.blocks.newton import check_rows
from onefit.sources.base import LocalSource
from onefit.sources.checks import Layout


@final
class GeneratedSource(LocalSource):
    """Rows that a function yields block by block, every time it is called.

    Parameters
    ----------
    make : callable
        ``make()`` returns an iterator of ``(X, y)`` or ``(X, y, sample_weight)``, each time of the same
        blocks: rows are passed over several times.

    Raises
    ------
    TypeError
        ``make`` cannot be called: an iterator is spent after one pass.
    ValueError
        It yields nothing, what is no block, or other rows than before.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit import RidgeLOO
    >>> from onefit.sources import GeneratedSource
    >>> def make():
    ...     for seed in range(10):
    ...         X = np.random.default_rng(seed).normal(size=(500, 2))
    ...         yield X, X[:, 0] + np.sin(1000 * X[:, 1])
    >>> RidgeLOO().fit(GeneratedSource(make)).coef_.round(1)
    array([1., 0.])
    """

    def __init__(self, make: Callable[[], Iterable[Any]]) -> None:
        if not callable(make):
            raise TypeError(
                "blocks are passed over several times: give a function that returns an iterator, not "
                f"{make!r}"
            )
        self._make = make
        first = next(iter(make()), None)
        if first is None:
            raise ValueError("the function yields no block")
        X = _parts(0, first)[0]
        self._layout = Layout.of("block 0", X)
        self.names = self._layout.names
        self._seen: tuple[int, _Mark] | None = None

    def named_blocks(self) -> Iterator[tuple[str, Block]]:
        count, mark = 0, _Mark(0.0, 0.0, 0)
        for number, made in enumerate(self._make()):
            name, block = self._layout.named(f"block {number}", *_parts(number, made))
            mark = mark.with_block(block, count)
            count += block.X.shape[0]
            yield name, block
        before = self._seen or (count, mark)
        check_rows(count, before[0])
        if mark != before[1]:
            raise ValueError(
                "the function yields other rows, or in another order, than before: rows are passed over "
                "several times, so seed what draws them"
            )
        self._seen = count, mark


class _Mark(NamedTuple):
    """What tells rows from others: a sum of X, one of y by its places, and a checksum of labels."""

    of_columns: float
    of_y: float
    of_labels: int

    def with_block(self, block: Block, count: int) -> _Mark:
        """That of one block more, after so many rows."""
        y, of_columns = np.asarray(block.y), self.of_columns + float(block.X.sum())
        if y.dtype.kind not in "fiub":
            labels = "\0".join(map(str, y.tolist())).encode()
            return self._replace(of_columns=of_columns, of_labels=crc32(labels, self.of_labels))
        places = count + 1.0 + np.arange(len(y))
        return self._replace(of_columns=of_columns, of_y=self.of_y + float(np.sum(places @ y)))


def _parts(number: int, made: Any) -> tuple[Any, Any, Any]:
    """X, y and weights or None."""
    if not isinstance(made, tuple) or len(made) not in (2, 3):
        raise ValueError(
            f"block {number} must be (X, y) or (X, y, sample_weight), got {type(made).__name__}"
            + (f" of length {len(made)}" if isinstance(made, tuple) else "")
        )
    return made if len(made) == 3 else (*made, None)
