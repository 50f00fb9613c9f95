"""Penalties as linear programs over cones, for losses whose kinks leave no gradient to go by."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import scipy.sparse as sp

from onefit._typing import Array, Index
from onefit.penalties.base import Penalty


class Cone(Enum):
    """A convex cone.

    Examples
    --------
    >>> from onefit.penalties import Cone
    >>> [cone.name for cone in Cone]
    ['NONNEGATIVE', 'SECOND_ORDER', 'SEMIDEFINITE']
    """

    NONNEGATIVE = "numbers that are at least 0"
    SECOND_ORDER = "(t, x) with ‖x‖₂ ≤ t"
    SEMIDEFINITE = "positive semidefinite matrices: upper triangle by columns, off the diagonal times √2"


@dataclass(frozen=True, eq=False)
class ConicForm:
    """P(β) = min over t of cᵀt, such that A β + E t is in a product of cones.

    Attributes
    ----------
    coef : (r, p) sparse array
        A.
    extra : (r, m) sparse array
        E.
    cost : (m,) array
        c.
    cones : sequence of (Cone, int)
        In the order of the rows, with the number of rows; of a semidefinite cone the order of the matrix.

    Examples
    --------
    >>> from onefit.penalties import GroupLasso
    >>> form = GroupLasso([0, 0, 1], alpha=1.0).conic_form(3)
    >>> form.cost.shape, [(cone.name, rows) for cone, rows in form.cones]
    ((2,), [('SECOND_ORDER', 3), ('SECOND_ORDER', 2)])
    """

    coef: Any
    extra: Any
    cost: Array
    cones: Sequence[tuple[Cone, int]]


class Conic(Penalty):
    """A penalty that is a conic program, but for an ℓ2 part; it can then be joined with losses with kinks.

    Examples
    --------
    >>> from onefit.penalties import Conic, GroupLasso, NuclearNorm
    >>> isinstance(GroupLasso([0, 0, 1]), Conic), isinstance(NuclearNorm((2, 3)), Conic)
    (True, True)
    """

    @abstractmethod
    def conic_form(self, p: int) -> ConicForm:
        """Program of p coefficients, for the penalty without its ℓ2 part."""


def norms(groups: Sequence[Index], strengths: Array, l1: float, p: int) -> ConicForm:
    """l1 ‖β‖₁ + Σ_g s_g ‖β_g‖₂: a second-order cone a group of positive strength.

    Parameters
    ----------
    groups : sequence of int arrays
        Columns of each group.
    strengths : (G,) array
    l1 : float
    p : int
    """
    kept = np.flatnonzero(strengths > 0).tolist()
    sizes = np.array([len(groups[g]) for g in kept], dtype=np.intp)
    tops = np.cumsum(sizes + 1) - sizes - 1  # first row of each cone
    within = np.arange(int(sizes.sum())) + np.repeat(np.arange(len(kept)) + 1, sizes)
    columns = np.concatenate([np.empty(0, dtype=np.intp), *(groups[g] for g in kept)])
    total = int(np.sum(sizes + 1))
    A = sp.csr_array((np.ones(len(within)), (within, columns)), shape=(total, p))
    E = sp.csr_array((np.ones(len(kept)), (tops, np.arange(len(kept)))), shape=(total, len(kept)))
    cones = [(Cone.SECOND_ORDER, int(size) + 1) for size in sizes]
    if l1 == 0:
        return ConicForm(A, E, strengths[kept], cones)
    eye = sp.csr_array(sp.eye_array(p))
    return ConicForm(
        sp.vstack([eye, -eye, A], format="csr"),
        sp.block_diag([sp.vstack([eye, eye]), E], format="csr"),
        np.concatenate([np.full(p, l1), strengths[kept]]),
        [(Cone.NONNEGATIVE, 2 * p), *cones],
    )


def nuclear_norm(rows: int, columns: int, strength: float) -> ConicForm:
    """Strength times ‖W‖_* = min ½ (tr U + tr V), [[U, W], [Wᵀ, V]] positive semidefinite; W in C order."""
    order = rows + columns
    column, row = np.tril_indices(order)  # the upper triangle by columns
    scale = np.where(row == column, 1.0, np.sqrt(2.0))
    place = np.arange(len(row))
    in_W = (row < rows) & (column >= rows)
    own = np.flatnonzero(~in_W)
    number = row[in_W] * columns + column[in_W] - rows
    A = sp.csr_array((scale[in_W], (place[in_W], number)), shape=(len(row), rows * columns))
    E = sp.csr_array((scale[own], (own, np.arange(len(own)))), shape=(len(row), len(own)))
    cost = np.where(row == column, 0.5 * strength, 0.0)[own]
    return ConicForm(A, E, cost, [(Cone.SEMIDEFINITE, order)])
