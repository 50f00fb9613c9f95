"""The rows of a design with free columns for each of several outputs, and two products that K asks of them.

With z_ia the row of the design on the free columns S_a of output a (the intercept is a last column of ones),
two products make a curvature K of coupled outputs and read the leverages off its inverse:

    Zᵀ E Z = Σ_i E_i,ab z_ia z_ibᵀ              for symmetric E_i (c × c),
    F_i,ab = z_iaᵀ Q_ab z_ib                    for symmetric Q over all free coordinates.

Both are symmetric in (a, b), and in the columns where all outputs share them.  They are made in the precision
of E and of Q.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Design, Index

WIDTH = 64  # columns of a product of matrices from which on it is as fast as it gets
ROWS = 512  # that are in the cache together
SHORT = 1e6  # multiplications of a product that takes no longer than the calls around it


def row_products(X: Design, means: Array | None, free: Sequence[Index]) -> RowProducts:
    """Return whichever way takes fewer multiplications.

    Parameters
    ----------
    X : (n, p) design
    means : (p,) array or None
        Taken off the columns.
    free : sequence of int arrays
        Free columns of each output, ascending; number p is the intercept.
    """
    sizes = np.array([len(own) for own in free], dtype=float)
    shared = np.unique(np.concatenate([*free, np.empty(0, dtype=np.intp)])).astype(np.intp)
    pairs = 0.5 * len(sizes) * (len(sizes) + 1)
    each = 0.5 * (sizes.sum() ** 2 + np.sum(sizes**2))
    if 0.5 * pairs * len(shared) ** 2 <= each:
        return SharedColumns(X, means, free, shared)
    return OwnColumns(X, means, free)


@dataclass(frozen=True, eq=False)
class RowProducts(ABC):
    """The rows of a design, with free columns for each output."""

    X: Design
    means: Array | None
    free: Sequence[Index]

    @abstractmethod
    def weighted(self, middle: Array) -> Array:
        """Zᵀ E Z for E (n, c, c): square, its blocks on and below the diagonal valid, Fortran order."""

    @abstractmethod
    def forms(self, Q: Array) -> Array:
        """F (n, c, c) for a symmetric Q."""

    @property
    def ends(self) -> Index:
        """Where the coordinates of each output begin and end in a matrix over all of them: (c + 1,)."""
        return np.concatenate([[0], np.cumsum([len(own) for own in self.free])])

    def blocks(self, precision: Any) -> Iterator[tuple[slice, Array]]:
        """Rows, and their dense centred columns with a last one of ones."""
        for rows, block in _linalg.as_columns(self.X).blocks(self.means):
            for start in range(0, len(block), ROWS):
                part = block[start : start + ROWS]
                first = rows.start + start
                own = np.empty((len(part), part.shape[1] + 1), dtype=precision)
                own[:, :-1], own[:, -1] = part, 1.0
                yield slice(first, first + len(part)), own

    def roots(self, middle: Array) -> Iterator[Array]:
        """Blocks with a row for each row and output whose squares add up to Zᵀ E Z, for semi-definite E."""
        values, vectors = np.linalg.eigh(middle)
        root = np.sqrt(np.maximum(values, 0.0))[:, :, None] * vectors.transpose(0, 2, 1)
        for rows, Z in self.blocks(np.float64):
            parts = [root[rows, :, a, None] * Z[:, None, own] for a, own in enumerate(self.free)]
            whole = np.concatenate(parts, axis=2)
            yield whole.reshape(-1, whole.shape[2])


class OwnColumns(RowProducts):
    """Outputs with different columns: one product a pair of outputs."""

    def weighted(self, middle: Array) -> Array:
        ends, free = self.ends, self.free
        K = np.zeros((ends[-1], ends[-1]), dtype=middle.dtype, order="F")
        for rows, Z in self.blocks(middle.dtype):
            for a in range(len(free)):
                Za = Z[:, free[a]].T
                for b in range(a + 1):
                    Zb = Z[:, free[b]] * middle[rows, a, b][:, None]
                    K[ends[a] : ends[a + 1], ends[b] : ends[b + 1]] += _linalg.product(Za, Zb)
        return K

    def forms(self, Q: Array) -> Array:
        ends, free = self.ends, self.free
        found = np.empty((self.X.shape[0], len(free), len(free)))
        for rows, Z in self.blocks(Q.dtype):
            for a in range(len(free)):
                along = _linalg.product(Z[:, free[a]], Q[ends[a] : ends[a + 1], : ends[a + 1]])
                for b in range(a + 1):
                    own = np.einsum("ij,ij->i", along[:, ends[b] : ends[b + 1]], Z[:, free[b]])
                    found[rows, a, b] = found[rows, b, a] = own
        return found


@dataclass(frozen=True, eq=False)
class SharedColumns(RowProducts):
    """Outputs with much the same columns: pairs of outputs stand side by side in products of few columns."""

    shared: Index

    @cached_property
    def _chunks(self) -> list[slice]:
        """Columns of the shared ones that are taken together."""
        pairs, u = max(1, len(self._pairs[0])), len(self.shared)
        width = max(1, WIDTH // pairs, int(SHORT / (max(1, self.X.shape[0] * u) * pairs)))
        return [slice(j, min(j + width, u)) for j in range(0, u, width)]

    @cached_property
    def _pairs(self) -> tuple[Index, Index]:
        """Outputs a ≥ b."""
        return np.tril_indices(len(self.free))

    def weighted(self, middle: Array) -> Array:
        left, right = self._pairs
        u, pairs = len(self.shared), len(left)
        sums = np.zeros((u, u, pairs), dtype=middle.dtype)  # of columns k ≥ j
        for rows, block in self.blocks(middle.dtype):
            Z = np.ascontiguousarray(block[:, self.shared].T)
            E = np.ascontiguousarray(middle[rows][:, left, right].T)
            for chunk in self._chunks:
                scaled = (Z[chunk, None] * E).reshape(-1, len(block))
                below = _linalg.product(Z[chunk.start :], scaled.T)
                sums[chunk.start :, chunk] += below.reshape(u - chunk.start, -1, pairs)
        own = np.where(np.tri(u, dtype=bool)[:, :, None], sums, sums.transpose(1, 0, 2))
        if all(len(columns) == u for columns in self.free):
            whole = np.empty((len(self.free), u, len(self.free), u), dtype=own.dtype)
            whole[left, :, right] = whole[right, :, left] = own.transpose(2, 0, 1)
            return whole.reshape(2 * (u * len(self.free),)).T
        places, ends = [np.searchsorted(self.shared, columns) for columns in self.free], self.ends
        K = np.zeros((ends[-1], ends[-1]), dtype=own.dtype, order="F")
        for t, (a, b) in enumerate(zip(left, right, strict=True)):
            K[ends[a] : ends[a + 1], ends[b] : ends[b + 1]] = own[:, :, t][np.ix_(places[a], places[b])]
        return K

    def forms(self, Q: Array) -> Array:
        left, right = self._pairs
        by_column = self._spread(Q)
        found = np.zeros((self.X.shape[0], len(self.free), len(self.free)))
        for rows, block in self.blocks(Q.dtype):
            Z = np.ascontiguousarray(block[:, self.shared].T)
            total = np.zeros((len(left), len(block)), dtype=Q.dtype)
            for chunk in self._chunks:
                inner = by_column[chunk.start :, chunk].reshape(len(Z) - chunk.start, -1)
                along = _linalg.product(inner.T, Z[chunk.start :]).reshape(-1, *total.shape)
                for own, column in zip(along, Z[chunk], strict=True):
                    total += np.multiply(own, column, out=own)
            found[rows, left, right] = found[rows, right, left] = total.T
        return found

    def _spread(self, Q: Array) -> Array:
        """Q by shared columns (k, j) and pairs of outputs, below a chunk with what belongs to (j, k)."""
        left, right = self._pairs
        places, ends = [np.searchsorted(self.shared, own) for own in self.free], self.ends
        by_column = np.zeros((len(self.shared), len(self.shared), len(left)), dtype=Q.dtype)
        for t, (a, b) in enumerate(zip(left, right, strict=True)):
            own = Q[ends[a] : ends[a + 1], ends[b] : ends[b + 1]]
            by_column[places[a][:, None], places[b], t] = own
        for chunk in self._chunks:
            by_column[chunk.stop :, chunk] += by_column[chunk, chunk.stop :].transpose(1, 0, 2)
        return by_column
