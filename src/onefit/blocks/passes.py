"""Passes over the rows that judge a path, each of which adds to what the ones before have found.

Where rows are in memory and few, what is known of them is kept from pass to pass: a pass then solves rows at
the strengths that have come up since, and nothing twice.  Else each begins from the start.
"""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

import numpy as np

from onefit import _linalg
from onefit.blocks.left_out_path import KnownRefits, LeftOutPath
from onefit.blocks.loss_sums import LossSums
from onefit.blocks.outputs import OutputsPath
from onefit.blocks.rows import ArrayRows, Block, Rows, in_threads


class Passes:
    """Passes over some rows.

    Parameters
    ----------
    rows : Rows
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._kept: list[Any] = []  # what the path makes of the pieces

    def begin(self) -> None:
        """Forget what is known of the rows, before another path is judged."""
        self._kept = []

    def total(self, path: LeftOutPath | OutputsPath) -> LossSums:
        """Sum the left-out losses of all rows by a path, the same or one that solves more rows anew."""
        rows = self._rows
        if not isinstance(rows, ArrayRows) or rows.shape[0] * max(path.coefs.shape) > _linalg.BLOCK_SIZE:
            return rows.total(path.judge)
        if not self._kept:
            self._kept = [path.judged(part) for part in Block(rows.X, rows.y, rows.weights).parts()]
        known = ((part,) for part in self._kept)
        return reduce(add, in_threads(path.judge_further, known, rows.n_jobs))

    def refits(self, at: int) -> KnownRefits | None:
        """Those without each row at a strength, where all of them are known."""
        known = [found for one in self._kept if (found := one.refits(at)) is not None]
        if not known or len(known) < len(self._kept):
            return None
        return KnownRefits(*map(np.concatenate, zip(*known, strict=True)))
