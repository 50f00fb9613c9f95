"""Penalties as programs: of flat pieces, sums of piecewise linear functions of single rows x β, and of cones.

Cones serve losses whose kinks leave no gradient to go by.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from onefit import _linalg
from onefit._typing import Array, Design, Mask
from onefit.penalties.base import ZERO, Penalty
from onefit.pieces import Interval, Pieces

DENSE = 4_000_000  # entries up to which rows of a penalty are stored densely beside dense data
NEAR = 1e-7  # step along a ray in which no threshold changes its rank


@dataclass(frozen=True, eq=False)
class PiecewiseRows:
    """Rows (x, e) with a piecewise linear loss of x β + e t each, or with a square one.

    Attributes
    ----------
    X : (m, p) array or sparse array
    extra : (m, e) array
        Coefficients of more variables, which nothing else depends on.
    kinks : (m, q) array
        Infinite beyond the last.
    ends : (m, q + 1) array
        Slopes of the pieces, ascending, the last repeated; −∞ and ∞ are constraints.
    hessian : (m,) array
        1 / w for the loss ½ w (y − η)², whose kink is y and whose slopes are infinite; where parabolas round
        the kinks, their width for each unit of slope; else 0.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.penalties import L1
    >>> rows = L1(2.0).rows(3)
    >>> rows.X.shape, rows.ends[0].tolist()
    ((3, 3), [-2.0, 2.0])
    """

    X: Design
    extra: Array
    kinks: Array
    ends: Array
    hessian: Array

    @classmethod
    def of(cls, X: Design, kinks: Array, ends: Array, extra: Array | None = None) -> PiecewiseRows:
        """Rows of straight pieces."""
        m = X.shape[0]
        return cls(X, np.empty((m, 0)) if extra is None else extra, kinks, ends, np.zeros(m))

    def value(self, eta: Array) -> float:
        """Σ of the losses of the rows, each zero at its first kink, or at 0 where it has none."""
        first = np.where(np.isfinite(self.kinks[:, 0]), self.kinks[:, 0], 0.0)
        past = np.column_stack([eta - first, np.maximum(eta[:, None] - self.kinks, 0.0)])
        past[:, 0] = np.where(np.isfinite(self.kinks[:, 0]), np.minimum(past[:, 0], 0.0), past[:, 0])
        with np.errstate(invalid="ignore"):  # ∞ − ∞ where the last slope is repeated
            gains = np.column_stack([self.ends[:, :2], np.diff(self.ends[:, 1:], axis=1)])
        return float(np.sum(gains[past != 0] * past[past != 0]))

    def beside(self, sizes: Array) -> PiecewiseRows:
        """Return the same with each row in units of linear predictors, beside columns of these sizes, (p,).

        A row z with the loss f(z) is one of cz with f(z/c): without it, columns in units far from 1 are lost
        beside rows of ones.  The rows are dense unless they are many: their products cost less by far.
        """
        if not len(sizes):
            return replace(self, X=_linalg.densified(self.X, DENSE))
        reach = np.ravel(abs(sp.csr_array(self.X) * (1.0 / sizes)).max(axis=1).toarray())
        reach = np.maximum(reach, np.abs(self.extra).max(axis=1, initial=0.0) / np.median(sizes))
        c = np.divide(1.0, reach, out=np.ones_like(reach), where=reach > 0)
        X, factors = sp.csr_array(sp.diags_array(c) @ sp.csr_array(self.X)), c[:, None]
        return PiecewiseRows(
            _linalg.densified(X, DENSE),
            self.extra * factors,
            self.kinks * factors,
            self.ends / factors,
            self.hessian * c**2,
        )

    def __add__(self, other: PiecewiseRows) -> PiecewiseRows:
        return self._joined([other], scipy.linalg.block_diag(self.extra, other.extra))

    def above(self, *others: PiecewiseRows) -> PiecewiseRows:
        """Return these rows and others below them that depend on the same further variables."""
        return self._joined(others, np.vstack([self.extra, *(other.extra for other in others)]))

    def _joined(self, others: Sequence[PiecewiseRows], extra: Array) -> PiecewiseRows:
        parts = (self, *others)
        q = max(part.kinks.shape[1] for part in parts)
        return PiecewiseRows(
            _linalg.stacked([part.X for part in parts]),
            extra,
            np.vstack([_padded(part.kinks, q, np.inf) for part in parts]),
            np.vstack([_padded(part.ends, q + 1, None) for part in parts]),
            np.concatenate([part.hessian for part in parts]),
        )


def _padded(values: Array, width: int, by: float | None) -> Array:
    missing = width - values.shape[1]
    last = values[:, -1:] if by is None else np.full((len(values), 1), by)
    return np.hstack([values, np.repeat(last, missing, axis=1)])


def absolute(D: Any, strengths: Array) -> PiecewiseRows:
    """Σ_k s_k |D_k β| over the rows with a strength: without one, an interval for the dual has no width."""
    held = np.flatnonzero((strengths > 0) & np.isfinite(strengths))
    s = strengths[held]
    return PiecewiseRows.of(D[held], np.zeros((len(s), 1)), np.stack([-s, s], axis=1))


class Coordinatewise(Penalty):
    """A penalty that is a sum over coefficients: the step of ``prox`` may be one a coefficient.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.penalties import L1
    >>> L1(1.0).prox(np.array([3.0, 3.0]), np.array([1.0, 2.0]))  # a step for each coefficient
    array([2., 1.])
    """


class Polyhedral(Penalty):
    """A penalty that is piecewise linear, but for an ℓ2 part.

    With ``rows`` it can be joined with any loss: losses with kinks and smooth ones are solved exactly.

    Examples
    --------
    >>> from onefit.penalties import L1, L2, NuclearNorm, Polyhedral
    >>> [isinstance(one, Polyhedral) for one in (L1(1.0), L1(1.0) + L2(1.0), NuclearNorm((2, 3)))]
    [True, True, False]
    """

    pieces = Pieces.QUADRATIC

    @abstractmethod
    def rows(self, p: int) -> PiecewiseRows:
        """Rows of p features that the penalty, less its ℓ2 part, is the sum of losses of."""

    def thresholds(self, coef: Array) -> Array:
        """Best values of the extra variables of the rows at some coefficients; by default there are none."""
        return np.empty(0)

    def third(self, coef: Array, owed: Array) -> Array:
        return np.zeros_like(coef)

    def exit(self, coef: Array, ray: Array) -> float:
        """How many times the coefficients can change by ``ray``, along the tangent, before the piece ends."""
        rows, eta, held = self._predictors(coef)
        ahead = self.thresholds(coef + NEAR * ray) - self.thresholds(coef)
        change = _linalg.times(rows.X, ray) + rows.extra @ (ahead / NEAR)
        steps = Interval.between(rows.kinks, eta).exit(eta, change)
        return float(steps[~held].min(initial=np.inf))

    def contains(self, coef: Array, other: Array) -> bool:
        """Whether other coefficients are on the piece of these, ends included."""
        rows, eta, held = self._predictors(coef)
        _, there, still = self._predictors(other)
        return bool(np.all(np.where(held, still, Interval.between(rows.kinks, eta).contains(there))))

    def _predictors(self, coef: Array) -> tuple[PiecewiseRows, Array, Mask]:
        """Rows, their predictors, and which of them are on a kink."""
        rows = self.rows(len(coef))
        eta = _linalg.times(rows.X, coef) + rows.extra @ self.thresholds(coef)
        distance = np.abs(eta[:, None] - rows.kinks).min(axis=1, initial=np.inf)
        return rows, eta, distance <= ZERO * np.abs(coef).max(initial=0.0)


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
