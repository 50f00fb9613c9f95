"""A Cholesky factor that columns can join and leave."""

from __future__ import annotations

from typing import final

import numpy as np
from scipy.linalg import blas, lapack

from onefit._typing import Array, Index


@final
class UpdatableCholesky:
    """Upper factor ``R`` of a positive definite matrix, ``K = R' R``, with ``k`` rows.

    ``R`` lives in the leading columns of a growable Fortran-ordered buffer, so that appending
    copies only the new columns and LAPACK reads the factor in place, through its leading
    dimension.
    """

    def __init__(self, capacity: int = 64) -> None:
        self._buffer: Array = np.zeros((capacity, capacity), order="F")
        self.size = 0

    @property
    def upper(self) -> Array:
        """``R``, shape (k, k); a view, meaningful on and above its diagonal only."""
        return self._buffer[: self.size, : self.size]

    def clear(self) -> None:
        """Forget every row and column."""
        self.size = 0

    def append(self, cross: Array, block: Array, floor: Array) -> Index:
        """Border ``K`` by as many of the offered columns as are independent of the rest.

        With ``H = R^-T cross``, the new columns of ``R`` are ``H`` above a factor of the Schur
        complement ``block - H' H``, whose pivots are the squared distances of the offered columns
        from the span of those already in.

        Parameters
        ----------
        cross : array, shape (k, b)
            Entries of ``K`` between old and offered columns.
        block : array, shape (b, b)
            Entries of ``K`` among the offered columns.  Overwritten if Fortran-ordered.
        floor : array, shape (b,)
            Positive squared distances at or below which a column counts as dependent.

        Returns
        -------
        array, shape (at most b,)
            The offered columns that joined, in the order in which they joined.
        """
        above = self.half_solve(cross)
        schur = block
        if self.size:
            schur = blas.dsyrk(-1.0, above, beta=1.0, c=block, trans=1, overwrite_c=1)
        accepted, corner = _factor_independent(schur, floor)
        self._write(above if accepted.size == floor.size == 1 else above[:, accepted], corner)
        return accepted

    def append_at(self, cross: Array, squared_distance: float) -> Index:
        """Border ``K`` by one column whose pivot is known better than by subtraction.

        Parameters
        ----------
        cross : array, shape (k, 1)
            Entries of ``K`` between old columns and the new one.
        squared_distance : float
            Positive pivot.

        Returns
        -------
        array, shape (1,)
            As `append`.
        """
        self._write(self.half_solve(cross), np.array([[np.sqrt(squared_distance)]]))
        return np.zeros(1, dtype=np.intp)

    def delete(self, positions: Index) -> None:
        """Remove rows and columns of ``K``; the order of the others stays.

        Only the block behind the first removed position changes.  There the kept rows of ``R``
        are still triangular and each removed row adds one row below them: an orthogonal
        transformation, stable where downdating is not, folds those rows in.

        Parameters
        ----------
        positions : array, shape (d,)
            Increasing positions.
        """
        first = int(positions[0])
        stop = self.size
        self.size = stop - positions.size
        kept = np.ones(stop - first, dtype=np.bool_)
        kept[positions - first] = False
        if not kept.any():
            return
        # Columns of the Fortran buffer are rows of its transpose: whole rows move, fast.
        moved = self._buffer.T[first:stop, :stop][kept]
        self._buffer[:first, first : self.size] = moved[:, :first].T
        tail = moved[:, first:]
        self._buffer[first : self.size, first : self.size] = _fold_rows(
            np.compress(kept, tail, axis=1).T, np.compress(~kept, tail, axis=1).T
        )

    def solve(self, rhs: Array) -> Array:
        """``K^-1 rhs`` for ``rhs`` of shape (k,) or (k, r)."""
        return self.back_solve(self.half_solve(rhs))

    def half_solve(self, rhs: Array) -> Array:
        """``R^-T rhs`` for ``rhs`` of shape (k,) or (k, r)."""
        return self._triangular_solve(rhs, transpose=1)

    def back_solve(self, rhs: Array) -> Array:
        """``R^-1 rhs`` for ``rhs`` of shape (k,) or (k, r)."""
        return self._triangular_solve(rhs, transpose=0)

    def condition(self) -> float:
        """Cheap lower estimate of the condition number of ``K``, from the diagonal of ``R``."""
        if self.size == 0:
            return 1.0
        diagonal = self.upper.diagonal()
        return float(diagonal.max() / diagonal.min()) ** 2

    def _triangular_solve(self, rhs: Array, *, transpose: int) -> Array:
        if rhs.size == 0:
            return rhs
        solution, _ = lapack.dtrtrs(self._buffer[:, : self.size], rhs, trans=transpose)
        return solution

    def _write(self, above: Array, corner: Array) -> None:
        start, stop = self.size, self.size + corner.shape[0]
        self._reserve(stop)
        self._buffer[:start, start:stop] = above
        self._buffer[start:stop, start:stop] = corner
        self.size = stop

    def _reserve(self, size: int) -> None:
        if size <= self._buffer.shape[0]:
            return
        grown = np.zeros((2 * size, 2 * size), order="F")
        grown[: self.size, : self.size] = self.upper
        self._buffer = grown


def _factor_independent(schur: Array, floor: Array) -> tuple[Index, Array]:
    """Columns with pivots above ``floor``, and the upper factor of ``schur`` on them.

    The plain factorisation is tried first; only when a pivot falls too low does the pivoted one
    choose which columns to keep.
    """
    corner, info = lapack.dpotrf(schur, lower=0, clean=1)
    if info == 0 and bool((corner.diagonal() ** 2 > floor).all()):
        return np.arange(floor.size), corner
    # In units of the floor one threshold serves every column.
    unit = np.sqrt(floor)
    scaled = np.triu(schur) / unit[:, None] / unit
    corner, order, rank, _ = lapack.dpstrf(scaled, tol=1.0, lower=0)
    # LAPACK asks no more of its first pivot than to be positive.
    rank = rank if corner[0, 0] > 1.0 else 0
    accepted = order[:rank].astype(np.intp) - 1
    return accepted, np.triu(corner[:rank, :rank]) * unit[accepted]


def _fold_rows(triangle: Array, rows: Array) -> Array:
    """Upper factor of ``triangle' triangle + rows' rows``, by a structured QR decomposition."""
    block_size = min(16, triangle.shape[1])
    folded, *_ = lapack.dtpqrt(0, block_size, triangle, rows)
    # A factor is defined up to the sign of its rows; keep the diagonal positive.
    return folded * np.sign(folded.diagonal())[:, None]
