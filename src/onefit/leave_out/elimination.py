"""Supports that are eliminated from quadratic models, and what inputs in a few coordinates do there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask


class Elimination(NamedTuple):
    """Supports that are eliminated: one that all problems share, or one for each.

    Attributes
    ----------
    inside : (q, 1) or (q, a) bool array
    sign, l1 : arrays of its shape
    H : (J, q, q) array
        Minus the derivative of the outputs in the inputs.
    at : (1,) or (a,) int array
        Which of them is that of a problem.
    """

    inside: Mask
    sign: Array
    l1: Array
    H: Array
    at: Index

    @property
    def is_shared(self) -> bool:
        return len(self.H) == 1 and self.inside.shape[1] == 1

    @property
    def held(self) -> Array:
        """What the kinks hold of the coordinates of the supports."""
        return np.where(self.inside, self.l1 * self.sign, 0.0)

    def of(self, which: Index | slice) -> Elimination:
        """Those of some problems."""
        return self if self.is_shared else self.each(which)

    def each(self, which: Index | slice) -> Elimination:
        """Some of them, one after the other: a problem each."""
        columns = self.inside[:, which], self.sign[:, which], self.l1[:, which]
        return Elimination(*columns, self.H, self.at[which])

    def moved(self, inputs: Array, groups: list[Group]) -> Array:
        """What inputs (m, q, a), zero but in the coordinates of some groups, take off the outputs."""
        if not self.is_shared:
            return self._moved_each(inputs, groups)
        problems = inputs.swapaxes(1, 2)  # one product for all cases
        flat = problems.reshape(-1, problems.shape[2])
        return _linalg.thin_product(flat, self.H[0].T).reshape(problems.shape).swapaxes(1, 2)

    def _moved_each(self, inputs: Array, groups: list[Group]) -> Array:
        cases, q, count = inputs.shape
        moved = np.zeros((cases, count, q))
        for some, Q, padding in groups:
            if Q.size:
                columns = self.H[self.at[some, None], :, Q]  # (r, size, q)
                own = np.where(padding, 0.0, inputs[:, Q, some[:, None]])
                moved[:, some] = np.einsum("rsq,mrs->mrq", columns, own)
        return moved.swapaxes(1, 2)


class Group(NamedTuple):
    """Problems whose systems are padded to the same size: which, their coordinates (r, size), the padding."""

    which: Index
    coordinates: Index
    padding: Mask


def places(chosen: Mask) -> tuple[Index, Index]:
    """Coordinates and problems (q, a) that are chosen, one problem after the other."""
    problems, coordinates = np.divmod(np.flatnonzero(chosen.T), max(len(chosen), 1))
    return coordinates, problems


def padded(chosen: Mask) -> Iterator[Group]:
    """Problems in groups of about as many chosen coordinates."""
    count = np.add.reduce(chosen, axis=0, dtype=np.intp)
    order = np.argsort(count, kind="stable")
    edges = np.searchsorted(count[order], [2, 5, 10, 20, 40, 80, 160])
    j, k = places(chosen)
    packed = np.zeros((len(count), count.max(initial=0)), dtype=np.intp)
    packed[k, np.arange(k.size) - (np.cumsum(count) - count)[k]] = j
    for some in np.split(order, edges):
        if some.size:
            size = int(count[some].max())
            yield Group(some, packed[some, :size], np.arange(size) >= count[some][:, None])
