"""Supports that are eliminated from quadratic models, and what inputs in a few coordinates do there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask

ROWS, COLUMNS = np.s_[:, :, None], np.s_[:, None, :]


class Responses(ABC):
    """Minus the derivatives of the outputs in the inputs: a (q, q) matrix H that all share, or several."""

    @abstractmethod
    def __len__(self) -> int:
        """How many there are."""

    @abstractmethod
    def corners(self, at: Index, Q: Index) -> Array:
        """H in coordinates Q (r, size) of problems whose matrices are at (1,) or (r,): (r, size, size)."""

    @abstractmethod
    def of_shared(self, inputs: Array) -> Array:
        """H of inputs (b, q), most of them zero, of problems that share it: (b, q)."""


@dataclass(frozen=True, eq=False)
class StackedResponses(Responses):
    """Those of supports of their own.

    Attributes
    ----------
    H : (J, q, q) array
    """

    H: Array

    def __len__(self) -> int:
        return len(self.H)

    def corners(self, at: Index, Q: Index) -> Array:
        return np.asarray(self.H[at[:, None, None], Q[:, :, None], Q[:, None, :]])

    def of_shared(self, inputs: Array) -> Array:
        return _linalg.thin_product(inputs, self.H[0].T)

    def moved(self, at: Index, inputs: Array, groups: list[Group]) -> Array:
        """H of inputs (m, q, a), zero but in the coordinates of some groups, for matrices at (a,)."""
        cases, q, count = inputs.shape
        moved = np.zeros((cases, count, q))
        for some, Q, padding in groups:
            if Q.size:
                columns = self.H[at[some, None], :, Q]  # (r, size, q)
                own = np.where(padding, 0.0, inputs[:, Q, some[:, None]])
                moved[:, some] = np.matmul(own.swapaxes(0, 1), columns).swapaxes(0, 1)
        return moved.swapaxes(1, 2)


@dataclass(frozen=True, eq=False)
class PartedResponses(Responses):
    """That of one support, in parts: K_SS⁻¹ is the largest, and stays where it is as other columns join.

    Attributes
    ----------
    inside : (q,) bool array
    inverse : (s, s) array
        K_SS⁻¹.
    across : (e, s) array
        −K_NS K_SS⁻¹.
    corner : (e, e) array
        K_NN − K_NS K_SS⁻¹ K_SN.
    """

    inside: Mask
    inverse: Array
    across: Array
    corner: Array

    def __len__(self) -> int:
        return 1

    @cached_property
    def _ahead(self) -> Array:
        """By rows, as sparse products ask for it: (s, e)."""
        return np.ascontiguousarray(self.across.T)

    @cached_property
    def _places(self) -> Index:
        """Of each coordinate among those of its kind: (q,)."""
        return np.where(self.inside, np.cumsum(self.inside), np.cumsum(~self.inside)) - 1

    @property
    def whole(self) -> StackedResponses:
        """The same in one piece."""
        H = of_parts(self.inside, (self.inverse, -self.across.T), (self.across, self.corner))
        return StackedResponses(H[None])

    def corners(self, at: Index, Q: Index) -> Array:
        found = np.empty((*Q.shape, Q.shape[1]))
        shape, own = found.shape, self.inside[Q]
        rows, columns = (np.broadcast_to(self._places[Q][place], shape) for place in (ROWS, COLUMNS))
        first, second = own[ROWS], own[COLUMNS]
        for which, part, sign in (
            (first & second, self.inverse, 1.0),
            (~first & second, self.across, 1.0),
            (first & ~second, self._ahead, -1.0),
            (~first & ~second, self.corner, 1.0),
        ):
            found[which] = sign * part[rows[which], columns[which]]
        return found

    def of_shared(self, inputs: Array) -> Array:
        found, inside = np.empty_like(inputs), self.inside
        on, off = inputs[:, inside], inputs[:, ~inside]
        found[:, inside] = _linalg.thin_product(on, self.inverse) - _linalg.thin_product(off, self.across)
        found[:, ~inside] = _linalg.thin_product(on, self._ahead) + _linalg.thin_product(off, self.corner)
        return found


def of_parts(inside: Mask, on: tuple[Array, Array], off: tuple[Array, Array]) -> Array:
    """A matrix from its rows on a support and off it, each by columns on it and off it: (q, q)."""
    found = np.empty((len(inside), len(inside))).T
    for rows, parts in ((inside, on), (~inside, off)):
        for columns, part in zip((inside, ~inside), parts, strict=True):
            found[np.ix_(rows, columns)] = part
    return found


class Elimination(NamedTuple):
    """Supports that are eliminated: one that all problems share, or one for each.

    Attributes
    ----------
    inside : (q, 1) or (q, a) bool array
    sign, l1 : arrays of its shape
    responses : Responses
        Minus the derivative of the outputs in the inputs.
    at : (1,) or (a,) int array
        Which of them is that of a problem.
    """

    inside: Mask
    sign: Array
    l1: Array
    responses: Responses
    at: Index

    @property
    def is_shared(self) -> bool:
        return len(self.responses) == 1 and self.inside.shape[1] == 1

    @property
    def held(self) -> Array:
        """What the kinks hold of the coordinates of the supports."""
        return np.where(self.inside, self.l1 * self.sign, 0.0)

    def held_at(self, j: Index, k: Index) -> Array:
        """The same of coordinates j of problems k."""
        at = (j, 0 * k) if self.is_shared else (j, k)
        return np.where(self.inside[at], self.l1[at] * self.sign[at], 0.0)

    def of(self, which: Index | slice) -> Elimination:
        """Those of some problems, each with its own columns where these differ."""
        if self.is_shared:
            return self
        columns = self.inside[:, which], self.sign[:, which], self.l1[:, which]
        return Elimination(*columns, self.responses, self.at[which])

    def moved(self, inputs: Array, groups: list[Group]) -> Array:
        """What inputs (m, q, a), zero but in the coordinates of some groups, take off the outputs."""
        if not self.is_shared and isinstance(self.responses, StackedResponses):
            return self.responses.moved(self.at, inputs, groups)
        problems = inputs.swapaxes(1, 2)  # one product for all cases
        flat = problems.reshape(-1, problems.shape[2])
        return self.responses.of_shared(flat).reshape(problems.shape).swapaxes(1, 2)


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
