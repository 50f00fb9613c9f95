"""What every curvature can do, and the directions it is asked about."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Generic, NamedTuple, Self, TypeVar

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Design, Index
from onefit.fit import Fit
from onefit.problem import Problem

Sums = TypeVar("Sums")

IN_CACHE = 2**15  # numbers of a block that stays near the processor
AS_MANY = 0.5  # share of the columns of a matrix that take as long as all of them


class Direction(NamedTuple):
    """A direction in parameter space, or a gradient there."""

    coef: Array  # of the shape of the coefficients
    intercept: Array  # of the shape of the intercepts

    def inner(self, problem: Problem, gradient: Direction) -> float:
        """Inner product with a gradient of a problem, of which dual coordinates hold only the rows."""
        own, other = self.at_centre(problem), gradient.as_gradient_at_centre(problem)
        levels = float(np.sum(other.intercept * own.intercept))
        return _linalg.as_design(problem.X).pairing(other.coef, own.coef) + levels

    def at_centre(self, problem: Problem, sign: float = 1.0) -> Direction:
        """Parameters for columns less their means, or with a ``sign`` of −1 from these: one, or one a fold.

        A gradient paired with a step is else a difference of large numbers where columns lie far from zero,
        and the small one that it comes to is lost.
        """
        if problem.centre is None:
            return self
        return self._replace(intercept=self.intercept + sign * np.tensordot(problem.centre, self.coef, 1))

    def as_gradient_at_centre(self, problem: Problem) -> Direction:
        """Gradients in columns less their means, where intercepts take these up."""
        if problem.centre is None:
            return self
        return self._replace(coef=self.coef - np.multiply.outer(problem.centre, self.intercept))


def curved_along(fit: Fit, direction: Direction) -> Direction:
    """K times a direction, or several along one more axis, from the rows of a fit and its piece."""
    rows = fit.bent(fit.problem.linear_predictor(*direction))
    coef, level = fit.problem.of_losses(*fit.problem.gradient_of(rows))
    return Direction(coef + fit.tangent.curve(direction.coef), level)


class Sandwich(NamedTuple):
    """Q = K⁻¹ Zᵀ E Z K⁻¹, by which Σ_i ⟨E_i, h_i⟩ falls as K grows.

    Attributes
    ----------
    rows : (n,), (n, t) or (n, c, c) array
        q_i = z_iᵀ Q z_i.
    free : array
        Q on the free directions: (k, k), or its diagonal in the shape of the coefficients.
    """

    rows: Array
    free: Array


class Curvature(ABC):
    """K, ready to be solved with."""

    is_estimated: ClassVar[bool] = False  # whether quadratic forms are estimates

    @property
    def is_factored(self) -> bool:
        """Whether the work of a factor is known to have been done."""
        return False

    @property
    def is_at_hand(self) -> bool:
        """Whether ``for_steps`` takes little."""
        return self.is_factored

    @property
    def roughly(self) -> Curvature:
        """The same by a factor in whatever precision is at hand or soon made.

        To solve with where what comes out is checked, and for forms of which nothing is claimed.
        """
        return self

    @property
    def for_steps(self) -> Curvature:
        """What is near enough for steps that are repeated until they settle, and for nothing else."""
        return self.roughly

    def lend_to(self, other: Curvature) -> Curvature:
        """K of another fit of the same rows, whose ``for_steps`` goes by the sums over them here.

        The other one as it is, where it has a factor or nothing is to be lent.
        """
        return other

    @property
    def without_loan(self) -> Curvature:
        """The same without the sums of another fit."""
        return self

    @abstractmethod
    def sandwich(self, middle: Array) -> Sandwich:
        """Q for weights E of the rows: (n,), (n, t), or symmetric (n, c, c) of coupled outputs."""

    @abstractmethod
    def quadratic_forms(self) -> Array:
        """h_i = z_iᵀ K⁻¹ z_i: (n,) shared by all outputs, (n, t) one an output, or (n, c, c)."""

    @abstractmethod
    def solve(self, gradient: Direction) -> Direction:
        """K⁻¹ ``gradient``, zero off the tangent; both parts may have one more axis, of several gradients."""

    @abstractmethod
    def predict(self, direction: Direction) -> Array:
        """Z θ, the change of the linear predictor along a direction on the tangent: (n,) or (n, c).

        As in ``solve``, one more axis stands for several directions.
        """

    @property
    @abstractmethod
    def is_definite(self) -> bool:
        """Whether every free direction is curved, so that the solution is the only one."""

    @property
    @abstractmethod
    def condition(self) -> float:
        """Condition of what was factored, scaled to a unit diagonal: what rounding is multiplied by."""

    @abstractmethod
    def carry(self, new: Design, slopes: Array) -> Array:
        """X̃ K⁻¹ z_i c_i: what each row's own slope c_i, (n,) or (n, c), does to each new row.

        Parameters
        ----------
        new : (m, p) design
            New rows; for a kernel model their kernel with the rows of the fit, (m, n).
        slopes : (n,) or (n, c) array

        Returns
        -------
        (m, n) or (m, n, c) array
        """

    def respond(self, gradient: Direction) -> Array:
        """Z K⁻¹ ``gradient``: the linear predictor's answer to a gradient, (n,) or (n, c)."""
        return self.predict(self.solve(gradient))

    @abstractmethod
    def hat(self, rows: Array) -> Array:
        """Z K⁻¹ Zᵀ times columns of one number a row and output: (n, r), or (n, c, r)."""

    @abstractmethod
    def hat_columns(self, rows: Index) -> Array:
        """Z K⁻¹ Zᵀ times one at each of some rows, in every output: (n, r), or (n, c, r)."""

    def leave(self, rows: Index, gradients: Direction) -> Direction:
        """K⁻¹ z_i c_i for some rows i that leave, given z_i c_i, along the last axis."""
        return self.solve(gradients)


@dataclass(frozen=True, kw_only=True)
class Borrower(Curvature, Generic[Sums]):
    """K that may go by sums over the rows of another fit until it has a factor."""

    lent: Sums | None = None  # with which steps may do

    @property
    def is_at_hand(self) -> bool:
        return self.is_factored or self.lent is not None

    @property
    def without_loan(self) -> Self:
        return self if self.is_factored or self.lent is None else replace(self, lent=None)

    def lend_to(self, other: Curvature) -> Curvature:
        if not isinstance(other, type(self)) or other.is_factored or not self._has_rows_of(other):
            return other
        return replace(other, lent=self._of_rows)

    @abstractmethod
    def _has_rows_of(self, other: Self) -> bool:
        """Whether the sums over the rows are known here, and are those of the other but for D."""

    @property
    @abstractmethod
    def _of_rows(self) -> Sums:
        """What K has of the rows."""


class Wrapped(Curvature):
    """K in terms of another, whose rows are the same."""

    inner: Curvature

    @property
    def is_factored(self) -> bool:
        return self.inner.is_factored

    @property
    def is_definite(self) -> bool:
        return self.inner.is_definite

    @property
    def condition(self) -> float:
        return self.inner.condition

    def quadratic_forms(self) -> Array:
        return self.inner.quadratic_forms()

    def hat(self, rows: Array) -> Array:
        return self.inner.hat(rows)

    def sandwich(self, middle: Array) -> Sandwich:
        return self.inner.sandwich(middle)


class ScalarCurvature(Curvature):
    """K of a single output."""

    X: Design

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    def predict(self, direction: Direction) -> Array:
        return _linalg.times(self.X, direction.coef) + direction.intercept

    @abstractmethod
    def responses(self) -> Direction:
        """K⁻¹ Zᵀ on the k free directions: coef (k, n) and intercept (n,)."""

    @abstractmethod
    def hat_matrix(self) -> Array:
        """Z K⁻¹ Zᵀ: (n, n)."""

    def hat_blocks(self, rows: Index | None = None) -> Iterator[tuple[slice, Array]]:
        """Its columns, or those of some rows, some at a time and each once, which the caller may overwrite.

        (n, b), and where they stand among those asked for.
        """
        if rows is not None and len(rows) < AS_MANY * self.n:
            return ((some, self.hat_columns(rows[some])) for some in self._some_of(len(rows)))
        whole = self.hat_matrix() if rows is None else self.hat_matrix()[:, rows]
        return ((some, whole[:, some]) for some in self._some_of(whole.shape[1]))

    def _some_of(self, count: int) -> Iterator[slice]:
        size = max(1, IN_CACHE // self.n)
        return (slice(j, min(j + size, count)) for j in range(0, count, size))

    def hat_columns(self, rows: Index) -> Array:
        unit = np.zeros((self.n, len(rows)))
        unit[rows, np.arange(len(rows))] = 1.0
        return self.hat(unit)

    @abstractmethod
    def cross(self, new: Design) -> Array:
        """X̃ K⁻¹ Zᵀ: (m, n)."""

    def carry(self, new: Design, slopes: Array) -> Array:
        return self.cross(new) * slopes


class WrappedScalar(Wrapped, ScalarCurvature):
    """K of a single output in terms of another."""

    inner: ScalarCurvature

    def responses(self) -> Direction:
        return self.inner.responses()

    def hat_matrix(self) -> Array:
        return self.inner.hat_matrix()

    def cross(self, new: Design) -> Array:
        return self.inner.cross(new)


@dataclass(frozen=True)
class OfColumns(ScalarCurvature):
    """K of free columns, in the terms of all p coefficients."""

    X: Design
    support: Index | None  # None: all columns
    p: int
    hessian: Array  # (k,), or (k, k) where it is not diagonal
    d: Array  # (n,)
    intercept: bool

    @property
    def _total(self) -> float:
        """By what the intercept is curved."""
        return total_curvature(self.d, self.intercept)

    @property
    def _offset(self) -> float:
        """What the intercept adds to every form."""
        return 1.0 / self._total

    def _restrict(self, coef: Array) -> Array:
        return coef if self.support is None else coef[self.support]

    def _spread(self, free: Array) -> Array:
        """Values of the free columns among all columns, zero elsewhere: (p,), or (p, r)."""
        if self.support is None:
            return free
        full = np.zeros((self.p, *free.shape[1:]))
        full[self.support] = free
        return full


def total_curvature(d: Array, intercept: bool) -> float:
    """Σ d, by which an intercept is curved; infinite where there is none to move."""
    total = float(d.sum()) if intercept else 0.0
    return total if total > 0 else np.inf
