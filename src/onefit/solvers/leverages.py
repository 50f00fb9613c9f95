"""Leverages that follow the support along a path, instead of being computed anew at each strength."""

from __future__ import annotations

import numpy as np
from scipy.linalg import blas, lapack

from onefit._typing import Array, Index
from onefit.cholesky import UpdatableCholesky
from onefit.solvers.column_store import ColumnStore

# Relative squared length below which a direction that joined or left is not followed at all.
_UNSAFE = 1e-4


def followed(
    before: Index, value: Array, store: ColumnStore, slots: Index, factor: UpdatableCholesky, l2: Array
) -> Array | None:
    """Leverages of a support by way of those of an earlier one; None where afresh is cheaper or safer.

    Between supports ``S0`` and ``S1`` with intersection ``I``, only the directions that left and
    those that joined matter:

        h(S1) = h(S0) - rowsums(P_left^2) + rowsums(P_joined^2),

    where ``P`` holds the columns outside ``I``, made orthogonal to ``A_I`` and to one another in
    the metric of ``K``.
    """
    was, now = np.zeros((2, store.count), dtype=np.bool_)
    was[before] = now[slots] = True
    joined = np.flatnonzero(~was[slots])
    left = np.flatnonzero(was & ~now)
    changed = joined.size + left.size
    if changed == 0:
        return value
    if 2 * changed > slots.size:
        return None
    directions = _exchanged_directions(store, slots, factor, l2, joined, left)
    if directions is None:
        return None
    squares = blas.dgemm(1.0, store.matrix, directions).T ** 2
    return value + squares[: joined.size].sum(axis=0) - squares[joined.size :].sum(axis=0)


def afresh(store: ColumnStore, slots: Index, factor: UpdatableCholesky) -> Array:
    """``a_i' K_SS^-1 a_i`` as the squared rows of ``A_S R^-1``, shape (n,)."""
    columns = _divide(store.matrix.T[slots].T, factor.upper)
    return np.square(columns.T).sum(axis=0)


def _exchanged_directions(
    store: ColumnStore,
    slots: Index,
    factor: UpdatableCholesky,
    l2: Array,
    joined: Index,
    left: Index,
) -> Array | None:
    """Coefficients, on the stored columns, of the directions that joined, then of those that left.

    For the joined coordinates ``J`` let ``T = K^-1 E_J`` and ``M = T_J``: the joined directions are
    ``A_S T M^-1/2``.  Eliminating ``J`` from the present factor projects what left, ``L``, on the
    common columns ``I``: with ``Y = K^-1 K_IL``, ``V = Y - T M^-1 Y_J`` equals ``K_II^-1 K_IL``.
    Then ``N = K_LL - K_LI V``, and the directions that left are ``(A_L - A_I V) N^-1/2``.

    Returns
    -------
    array, shape (m, number of directions), or None
        None if a direction is too short to be told from rounding.
    """
    count = joined.size
    rhs = np.zeros((slots.size, count + left.size), order="F")
    rhs[joined, np.arange(count)] = 1.0
    common = store.gram[np.ix_(slots, left)]
    common[joined] = 0.0
    rhs[:, count:] = common
    solved = factor.solve(rhs)
    gained, fit = solved[:, :count], solved[:, count:]
    root = _root(gained[joined], gained[joined].diagonal())
    if root is None:
        return None
    gained = _divide(gained, root)
    fit = fit - blas.dgemm(1.0, gained, _divide(fit[joined].T, root), trans_b=1)
    lost = store.gram[np.ix_(left, left)] + np.diag(l2[store.owner[left]])
    root = _root(lost - blas.dgemm(1.0, common, fit, trans_a=1), lost.diagonal())
    if root is None:
        return None
    directions = np.zeros((store.count, rhs.shape[1]), order="F")
    directions[slots, :count] = gained
    directions[slots, count:] = _divide(-fit, root)
    directions[left, count:] = _divide(np.eye(left.size), root)
    return directions


def _root(block: Array, scale: Array) -> Array | None:
    """Upper Cholesky factor, or None where a pivot is too small a share of its ``scale``."""
    if block.size == 0:
        return block
    root, info = lapack.dpotrf(block, lower=0, clean=1)
    if info != 0 or bool((root.diagonal() ** 2 <= _UNSAFE * scale).any()):
        return None
    return root


def _divide(rows: Array, upper: Array) -> Array:
    """``rows R^-1`` for an upper triangular ``R``."""
    return blas.dtrsm(1.0, upper, rows, side=1) if rows.size else rows
