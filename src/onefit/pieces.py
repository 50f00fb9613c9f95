"""The local model of a loss or a penalty at a point: its smooth piece, and where that ends.

A loss or a penalty says by ``pieces`` what it is made of, and nothing is assumed of one that does not know:
``Pieces.UNKNOWN`` takes the general route everywhere.  At a point a penalty gives its ``Tangent`` and a loss
the ``Interval`` of each row, with what can be asked of a smooth piece: the derivatives there, how far a ray
stays on it, and whether another point is on it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from onefit import _linalg
from onefit._typing import Array, Index, Mask

NEARBY = 1e-3  # step of a difference of the curvature, relative to the largest coefficient
SMALL = 4096  # entries up to which a dense basis takes less than the calls of a sparse one
PLACES = (-2.0, -1.0, 1.0, 2.0)  # of a five-point difference: its error is of order NEARBY⁴
WEIGHTS = (1.0 / 12.0, -8.0 / 12.0, 8.0 / 12.0, -1.0 / 12.0)


class Pieces(Enum):
    """What a convex function is made of.

    Examples
    --------
    >>> from onefit.losses import Hinge, Huber, Logistic, Squared
    >>> [one.pieces.name for one in (Squared(), Logistic(), Huber(), Hinge())]
    ['QUADRATIC', 'SMOOTH', 'JUMPING', 'STRAIGHT']
    """

    STRAIGHT = "straight pieces that meet in kinks"
    KINKED = "curved pieces that meet in kinks"
    QUADRATIC = "a second derivative that is constant as long as the active pattern stays"
    SMOOTH = "a second derivative that moves smoothly with the point, along fixed free directions"
    JUMPING = "a second derivative that jumps from piece to piece"
    TURNING = "free directions that turn with the point, and a curvature that depends on the subgradient"
    UNKNOWN = "anything convex: nothing is assumed"


class Interval(NamedTuple):
    """The pieces that the rows of a loss are on: linear predictors from ``low`` to ``high``.

    Attributes
    ----------
    low, high : arrays of the shape of the linear predictors
        Infinite where the piece does not end.
    """

    low: Array
    high: Array

    @classmethod
    def between(cls, ends: Array, eta: Array) -> Interval:
        """Return the pieces around predictors (n,), of ends (n, q) in ascending order."""
        edge = np.full((len(eta), 1), np.inf)
        walls = np.hstack([-edge, ends, edge])
        number = np.sum(eta[:, None] > ends, axis=1)[:, None]
        low, high = (np.take_along_axis(walls, number + k, axis=1)[:, 0] for k in (0, 1))
        return cls(low, high)

    def contains(self, eta: Array) -> Mask:
        """Whether predictors are on the same pieces, ends included."""
        return np.asarray((eta >= self.low) & (eta <= self.high))

    def exit(self, eta: Array, change: Array) -> Array:
        """How many times each row can make a change before its piece ends: infinity if it never does."""
        wall = np.where(change > 0, self.high, self.low)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(change == 0, np.inf, np.maximum((wall - eta) / change, 0.0))


@dataclass(frozen=True, eq=False)
class Tangent(ABC):
    """The smooth piece of a penalty through a point: free directions B, gradient and curvature C there.

    Attributes
    ----------
    support : bool array of the shape of the coefficients
        Coordinates that move along some free direction.
    gradient : array of the shape of the coefficients
        Gradient of the penalty on the piece: its inner products with the free directions are what counts.
    hessian : array
        Curvature C of the penalty on the piece.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.penalties import L1
    >>> tangent = L1(2.0).tangent(np.array([0.0, 3.0, -1.0]))
    >>> tangent.support, tangent.size
    (array([False,  True,  True]), 2)
    """

    support: Mask
    gradient: Array
    hessian: Array

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of free directions, over all outputs."""

    @property
    @abstractmethod
    def directions(self) -> Iterable[Array]:
        """The free directions, each in the shape of the coefficients."""

    @abstractmethod
    def curve(self, change: Array) -> Array:
        """B C Bᵀ times changes of the coefficients, (p, …) or (p, c, …): what they add to the gradient."""

    @property
    def is_curved(self) -> bool:
        """Whether the penalty bends anywhere on the piece."""
        return bool(np.any(self.hessian))

    @property
    def has_one_ridge(self) -> bool:
        """Whether all coefficients are free and curved alike: C is a positive multiple of the identity."""
        return False

    @abstractmethod
    def part_along(self, gradient: Array) -> Array:
        """Return the part of a gradient along the free directions, B Bᵀ times it."""

    @abstractmethod
    def with_ridge(self, l2: Array, coef: Array) -> Self:
        """Return the tangent of the penalty plus ½ Σ l2_j β_j²; ``coef`` is the point of tangency."""


@dataclass(frozen=True, eq=False)
class Coordinates(Tangent):
    """Free directions that are coordinates; C is diagonal.

    Attributes
    ----------
    support : bool array of the shape of the coefficients
        Coordinates that are free to move; the columns of B are their unit vectors.
    gradient, hessian : arrays of the shape of the coefficients
        Gradient, and diagonal of C; zero off the support.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.penalties import L1
    >>> L1(2.0).tangent(np.array([0.0, 3.0, -1.0])).gradient
    array([ 0.,  2., -2.])
    """

    @property
    def has_one_ridge(self) -> bool:
        ridge = self.hessian.flat[0] if self.hessian.size else 0.0
        return bool(ridge > 0 and self.support.all() and np.all(self.hessian == ridge))

    @property
    def size(self) -> int:
        return int(np.count_nonzero(self.support))

    @property
    def directions(self) -> Iterable[Array]:
        for where in zip(*np.nonzero(self.support), strict=True):
            unit = np.zeros(self.support.shape)
            unit[where] = 1.0
            yield unit

    def curve(self, change: Array) -> Array:
        return np.asarray(_linalg.with_axes(self.hessian, change) * change)

    def part_along(self, gradient: Array) -> Array:
        return np.where(_linalg.with_axes(self.support, gradient), gradient, 0.0)

    def with_ridge(self, l2: Array, coef: Array) -> Self:
        l2 = np.where(self.support, l2, 0.0)
        return replace(self, gradient=self.gradient + l2 * coef, hessian=self.hessian + l2)


def unit_vectors(p: int, columns: Index) -> Any:
    """Those of some coordinates: (p, k), sparse unless that is small."""
    k = len(columns)
    if p * k > SMALL:
        return sp.csc_array((np.ones(k), columns, np.arange(k + 1)), shape=(p, k))
    basis = np.zeros((p, k))
    basis[columns, np.arange(k)] = 1.0
    return basis


@dataclass(frozen=True, eq=False)
class Subspace(Tangent):
    """Free directions in any position, for a single output.

    Attributes
    ----------
    support : (p,) bool array
    gradient : (p,) array
    hessian : (k, k) array
        C in the coordinates of the basis.
    basis : (p, k) array or sparse array
        Orthonormal columns.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.penalties import FusedLasso
    >>> FusedLasso(alpha=1.0).tangent(np.array([2.0, 2.0, 5.0])).basis.shape  # two constant runs
    (3, 2)
    """

    basis: Any

    @classmethod
    def along(cls, basis: Any, gradient: Array, hessian: Array | None = None) -> Subspace:
        """Return the piece along some orthonormal columns, flat where no curvature is given."""
        k, basis = basis.shape[1], _linalg.densified(basis, SMALL)
        return cls(
            _linalg.as_columns(basis).row_squares() > 0,
            gradient,
            np.zeros((k, k)) if hessian is None else hessian,
            basis,
        )

    @property
    def size(self) -> int:
        return int(self.basis.shape[1])

    @property
    def directions(self) -> Iterable[Array]:
        return _linalg.as_columns(self.basis).dense().T

    def curve(self, change: Array) -> Array:
        if not self.is_curved:
            return np.zeros_like(change)
        inner = _linalg.transposed_times(self.basis, change)
        return _linalg.times(self.basis, np.tensordot(self.hessian, inner, 1))

    def part_along(self, gradient: Array) -> Array:
        return np.asarray(_linalg.times(self.basis, _linalg.transposed_times(self.basis, gradient)))

    def with_ridge(self, l2: Array, coef: Array) -> Self:
        equal = np.ptp(l2) == 0  # and the basis is orthonormal
        curved = l2[0] * np.eye(self.size) if equal else _linalg.full_gram(self.basis, None, l2)
        return replace(self, gradient=self.gradient + l2 * coef, hessian=self.hessian + curved)


def third_by_differences(tangent_at: Callable[[Array], Tangent], coef: Array, owed: Array) -> Array:
    """Derivative of ⟨owed, C(β)⟩ in β along the free directions, by five-point differences.

    Parameters
    ----------
    tangent_at : callable
        From coefficients to the tangent there, such as ``penalty.tangent``.
    coef : (p,) or (p, c) array
    owed : array of the shape of the tangent's Hessian

    Returns
    -------
    array of the shape of the coefficients

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.penalties import SmoothNuclearNorm
    >>> penalty, coef = SmoothNuclearNorm((2, 2), 1.0), np.array([2.0, 1.0, 0.0, 1.0])
    >>> owed = np.ones(penalty.tangent(coef).hessian.shape)
    >>> found = third_by_differences(penalty.tangent, coef, owed)
    >>> bool(np.allclose(found, penalty.third(coef, owed), atol=1e-6))
    True
    """
    total = np.zeros_like(coef)
    step = NEARBY * (float(np.abs(coef).max(initial=0.0)) or 1.0)
    for direction in tangent_at(coef).directions:
        rates = (float(np.sum(owed * tangent_at(coef + k * step * direction).hessian)) for k in PLACES)
        total += sum(w * rate for w, rate in zip(WEIGHTS, rates, strict=True)) / step * direction
    return total
