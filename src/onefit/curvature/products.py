"""K by what it makes of directions, and conjugate gradients, which solve with it by nothing else.

Where X is large and sparse, a factor of K takes far longer than many products with X.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from onefit import _linalg
from onefit._linalg.design import Columns, RowsInSingle
from onefit._typing import Array
from onefit.curvature.base import Direction, total_curvature
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.numerics import EPS_SINGLE

SHARPLY = 1e-10  # error of a solution that is asked for
CLOSELY = 1e-3  # error of solutions whose square is that of a form
AT_ONCE = 16  # directions at once: of more, what a sparse product fetches is out of the cache again
SINGLE = 1e3 * EPS_SINGLE  # error from which on single precision does: far above what that rounds off
SAFELY = 0.8  # share of an error that these are asked for, so that rounding leaves no more than that
MOST_PRODUCTS = 300  # with K, before a factor is the better way


def conjugate_gradients(
    times: Callable[[Direction], Direction],
    scaled: Callable[[Direction], Direction],
    pairing: Callable[[Direction, Direction], Array],
    rhs: Direction,
    error: float,
    most: int,
) -> tuple[Direction, bool]:
    """K⁻¹ times a gradient, or several along a last axis, and whether that is as near as it should be.

    Parameters
    ----------
    times, scaled : callable
        K times a direction, and about K⁻¹ times a gradient.
    pairing : callable
        Inner products of directions and gradients: () or (f,).
    rhs : Direction
    error : float
        Of the gradient that is left, relative, in the norm of ``scaled``.
    most : int
        Products with K.
    """
    if rhs.coef.ndim == 1:
        return conjugate_gradients_of_one(times, scaled, pairing, rhs, scaled(rhs), error, most)
    found, left, along = _zeros(rhs), _copied(rhs), _copied(scaled(rhs))  # changed in place
    size = first = pairing(along, left)
    moving = np.asarray(size > 0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for _ in range(most):
            bent = times(along)
            curved = pairing(along, bent)
            moving = moving & (curved > 0)
            length = np.where(moving, size / curved, 0.0)
            _add(found, length, along)
            _add(left, -length, bent)
            solved = scaled(left)
            last, size = size, pairing(solved, left)
            moving = moving & (size > error**2 * first)
            if not moving.any():
                break
            _continue(along, np.where(moving, size / last, 0.0), solved)
    return found, bool(np.all(size <= error**2 * first))


def conjugate_gradients_of_one(
    times: Callable[[Direction], Direction],
    scaled: Callable[[Direction], Direction],
    pairing: Callable[[Direction, Direction], Array],
    rhs: Direction,
    solved: Direction,
    error: float,
    most: int,
) -> tuple[Direction, bool]:
    """The same of a single gradient, where every call counts, given what ``scaled`` makes of it."""
    found, left, along = _zeros(rhs), _copied(rhs), _copied(solved)  # changed in place
    size = first = float(pairing(along, left))
    for _ in range(most):
        bent = times(along)
        curved = float(pairing(along, bent))
        if not (size > 0 and curved > 0):
            break
        length = size / curved
        for part, step, change, more in zip(found, along, left, bent, strict=True):
            part += length * step
            change -= length * more
        solved = scaled(left)
        last, size = size, float(pairing(solved, left))
        if not size > error**2 * first:
            break
        for part, more in zip(along, solved, strict=True):
            part *= size / last
            part += more
    return found, size <= error**2 * first


def _zeros(like: Direction) -> Direction:
    return Direction(*(np.zeros_like(part) for part in like))


def _copied(one: Direction) -> Direction:
    return Direction(*(np.array(part) for part in one))


def _add(one: Direction, length: Array, other: Direction) -> None:
    """Go on by a length of another direction."""
    for part, more in zip(one, other, strict=True):
        np.add(part, length * more, out=part)


def _continue(along: Direction, share: Array, new: Direction) -> None:
    """Turn to a new direction, and keep a share of the old one."""
    for part, more in zip(along, new, strict=True):
        np.add(np.multiply(part, share, out=part), more, out=part)


@dataclass
class Counted:
    """Products with K, and how many there were."""

    times: Callable[[Direction], Direction]
    count: int = 0

    def __call__(self, along: Direction) -> Direction:
        self.count += 1
        return self.times(along)


@dataclass(frozen=True, eq=False)
class Products:
    """K of one problem, or of several with the same X, by what it makes of directions.

    Attributes
    ----------
    fit : Fit
        Of a single output, on coordinates that the penalty curves.
    bends : (n,) or (n, f) array
        Second derivatives of the rows of each.
    shares : array of shape () or (f,)
        Factor on the penalty's curvature of each.
    taken : list of int
        Products that solutions took so far, one after the other.
    """

    fit: Fit
    bends: Array
    shares: Array
    taken: list[int] = field(default_factory=list)

    def times(self, along: Direction) -> Direction:
        """K times a direction, or several along a last axis."""
        change = self._design.times(along.coef)
        change += along.intercept
        change *= _linalg.with_axes(self.bends, change)
        coef = self._held(self._design.transposed_times(change))
        coef += _linalg.with_axes(self._ridge, along.coef) * self.shares * along.coef
        levels = change.sum(axis=0)
        return Direction(coef, levels if self.fit.problem.intercept else np.zeros_like(levels))

    @cached_property
    def _design(self) -> Columns:
        return _linalg.as_columns(self.fit.problem.X)

    def solve(self, gradient: Direction, error: float = SHARPLY) -> Direction:
        """K⁻¹ times a gradient, or several along a last axis.

        Raises
        ------
        SolverError
            If that takes too many products.
        """
        found, is_near = self.approached(gradient, error)
        if not is_near:
            raise SolverError(f"conjugate gradients did not settle in {MOST_PRODUCTS} products with K")
        return found

    def approached(self, gradient: Direction, error: float) -> tuple[Direction, bool]:
        """The same as near as so many products lead, and whether that is as near as it should be."""
        rhs = Direction(self._held(gradient.coef), np.asarray(gradient.intercept, dtype=np.float64))
        if rhs.coef.ndim == 1:
            return self._solved(rhs, error)
        found, near, roughly = _zeros(rhs), True, error >= SINGLE
        for first in range(0, rhs.coef.shape[-1], size := AT_ONCE * (1 + roughly)):
            some = slice(first, first + size)
            own = Direction(*(np.ascontiguousarray(part[..., some]) for part in rhs))
            of_some, is_near = self._of_some(some), False
            if roughly:
                step, is_near = of_some._roughly(own, error)
            if not is_near:
                step, is_near = of_some._solved(own, error)
            found.coef[..., some], found.intercept[..., some] = step
            near &= is_near
        return found, near

    def _solved(self, rhs: Direction, error: float) -> tuple[Direction, bool]:
        times = Counted(self.times)
        found = conjugate_gradients(times, self.scaled, pairing, rhs, error, MOST_PRODUCTS)
        self.taken.append(times.count)
        return found

    def _roughly(self, rhs: Direction, error: float) -> tuple[Direction, bool]:
        """In single precision, which halves what is fetched; what is left of the gradient shows rounding."""
        rough, own = self.single, Direction(*_in_single(*rhs))
        step, _ = rough._solved(own, SAFELY * error)
        made = rough.times(step)
        left = Direction(own.coef - made.coef, own.intercept - made.intercept)
        is_near = pairing(rough.scaled(left), left) <= error**2 * pairing(rough.scaled(own), own)
        return Direction(*(np.asarray(part, dtype=np.float64) for part in step)), bool(np.all(is_near))

    @cached_property
    def single(self) -> Products:
        """The same, in single precision."""
        fit, (bends, shares) = self.fit, _in_single(self.bends, self.shares)
        problem = replace(fit.problem, X=fit.problem.X.astype(np.float32))
        own = Fit(problem, fit.coef, fit.intercept).known(tangent=fit.tangent)
        return Products(own, bends, shares, self.taken)

    def _of_some(self, which: slice) -> Products:
        """Of some of the problems, or the only one."""
        if self.bends.ndim == 1 or range(*which.indices(n := self.bends.shape[1])) == range(n):
            return self
        return replace(self, bends=self.bends[:, which], shares=self.shares[which])

    def squares(self, gradient: Direction, step: Direction) -> Array:
        """gᵀ K⁻¹ g at most, of each: what a rough solution leaves is bounded by K ≥ C."""
        made = self.times(step)
        left = Direction(self._held(gradient.coef) - made.coef, gradient.intercept - made.intercept)
        return pairing(step, gradient) + pairing(step, left) + self.squares_at_most(left)

    def squares_at_most(self, left: Direction) -> Array:
        """The same by what the penalty alone allows, whatever the gradient."""
        centred = left.coef - _linalg.with_axes(self._means, left.coef) * left.intercept
        own = np.sum(centred**2 / _linalg.with_axes(self.curved, centred), axis=0) / self.shares
        return np.asarray(own + left.intercept**2 / self._levels)

    def forms_at_most(self) -> Array:
        """Forms h of the rows, at most: ‖z_i − z̄‖² in C⁻¹, and what an intercept adds: (n,), or (n, f)."""
        lengths = np.sqrt(_linalg.as_columns(self.fit.problem.X).row_squares())
        means = np.sqrt(np.sum(self._means**2, axis=0))
        sizes = _linalg.with_axes(lengths, self.bends) + means
        return np.asarray(sizes**2 / (self.curved.min() * self.shares) + 1.0 / self._levels)

    @cached_property
    def _ridge(self) -> Array:
        """The penalty's curvature, 0 off the tangent: (p,)."""
        own = np.where(self.fit.tangent.support, self.fit.tangent.hessian, 0.0)
        return own.astype(self.bends.dtype, copy=False)

    @cached_property
    def curved(self) -> Array:
        """The same, and no less than the least where nothing moves."""
        ridge, support = self._ridge, self.fit.tangent.support
        return np.where(support, ridge, ridge[support].min())

    @cached_property
    def _levels(self) -> Array:
        """By what the intercept of each is curved; infinite where there is none."""
        intercept = bool(self.fit.problem.intercept)
        totals = [total_curvature(d, intercept) for d in self.bends.reshape(len(self.bends), -1).T]
        return np.array(totals, dtype=self.bends.dtype).reshape(self.bends.shape[1:])

    @cached_property
    def _means(self) -> Array:
        """Means of the columns, weighted by the bends: (p,) or (p, f); 0 without an intercept."""
        return _linalg.transposed_times(self.fit.problem.X, self.bends) / self._levels

    @cached_property
    def diagonal(self) -> Array:
        """Of K, about the same for all problems: (p,)."""
        bends = np.maximum(self.bends.reshape(len(self.bends), -1).max(axis=1), 0.0)
        squares = _linalg.column_norms(self.fit.problem.X, bends, centred=False) ** 2
        return (squares + self.curved).astype(self.bends.dtype, copy=False)

    @property
    def _centred_diagonal(self) -> Array:
        taken = self._means**2 * self._levels if self.intercept else 0.0
        return np.maximum(self.diagonal - taken, self.curved)

    def _held(self, coef: Array) -> Array:
        """Zero off the tangent."""
        return coef if self._holds_none else (self.fit.tangent.support * coef.T).T

    @cached_property
    def _holds_none(self) -> bool:
        return bool(self.fit.tangent.support.all())

    def beside(self, gradient: Direction) -> Array:
        """Z P⁻¹ times gradients, with centred columns and the diagonal P of their K: (n, r)."""
        centred = gradient.coef - np.multiply.outer(self._means, gradient.intercept)
        coef = centred / self._centred_diagonal[:, None]
        return _linalg.times(self.fit.problem.X, coef) - self._means @ coef

    def forms_beside(self) -> Array:
        """Its diagonal, for the rows themselves: (n,)."""
        X, inverse, means = self.fit.problem.X, 1.0 / self._centred_diagonal, self._means
        crossed = _linalg.times(X, means * inverse)
        return _linalg.as_columns(X).row_squares(inverse) - 2.0 * crossed + float(means**2 @ inverse)

    @property
    def intercept(self) -> float:
        """1 where there is one."""
        return float(bool(self.fit.problem.intercept))

    def scaled(self, gradient: Direction) -> Direction:
        """Each coefficient on its own, by the diagonal of K."""
        own = gradient.coef / _linalg.with_axes(self.diagonal, gradient.coef)
        return Direction(own, gradient.intercept / self._levels)


@dataclass(frozen=True, eq=False)
class CoupledProducts:
    """K of coupled outputs, by what it makes of a direction.

    Attributes
    ----------
    fit : Fit
        With a ridge on all columns.
    rows : RowsInSingle or None
        By which X is multiplied roughly.
    """

    fit: Fit
    rows: RowsInSingle | None = None

    def times(self, along: Direction) -> Direction:
        """K times a direction."""
        change = self._design.times(along.coef)
        change += along.intercept
        bent = self.fit.bent(change)
        level = np.where(self.fit.problem.intercept, bent.sum(axis=0), 0.0)
        coef, level = self.fit.problem.of_losses(self._design.transposed_times(bent), level)
        coef += self.fit.tangent.hessian * along.coef
        return Direction(coef, level)

    @cached_property
    def _design(self) -> Columns | RowsInSingle:
        return self.rows or _linalg.as_columns(self.fit.problem.X)


def _in_single(*parts: Array) -> list[Array]:
    with np.errstate(over="ignore"):
        return [part.astype(np.float32) for part in parts]


def pairing(one: Direction, other: Direction) -> Array:
    """Inner products of directions and gradients: (), or (f,) of several along a last axis."""
    return np.asarray(np.einsum("p...,p...->...", one.coef, other.coef) + one.intercept * other.intercept)
