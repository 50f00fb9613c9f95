"""Least squares with an ℓ1 and an ℓ2 part on sparse columns, without a factor of all columns.

An ℓ2 part moves with the strength, and K with it: the active-set method factors it anew at every strength,
which takes k³.  Coordinate descent finds the pattern in sweeps over what is stored.  A factor of the rows,
where these are few, or conjugate gradients end on it.  Near interpolation sweeps are slow.  Newton's method
on the dual problem, which goes from pattern to pattern, is not (Li, Sun and Toh 2018, without the augmented
Lagrangian that a lasso asks for): from one to the next few columns change, and with them products of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from onefit import _linalg, cost
from onefit._typing import Array, Design, Index, Mask
from onefit.cost import Work
from onefit.curvature import Direction, Dual, conjugate_gradients, factor
from onefit.fit import Fit
from onefit.inner_products import InnerProducts
from onefit.numerics import EPS
from onefit.penalties import Coordinates
from onefit.solvers import coordinate_descent
from onefit.solvers.line_search import backtrack, toward

ROUNDS = 30  # of sweeps and an end on the pattern that they found
FIRST_SWEEPS, SHARPER, LAST_SWEEPS = 1e-4, 0.1, 1e-14  # error: the first show which columns enter
PRECISE = 1e-6  # error that leaves a pattern worth ending on
FEW, SWEEPS, PRODUCTS = 10, 300, 300  # in a round: sweeps take about as long as a factor
STEPS = 15  # from pattern to pattern in a round, at most: a handful finds the last one
REFINED = 3  # steps on a pattern, with gradients anew
HALVINGS = 30  # of a step
CLOSE = 1e-8  # error of a step, relative to its gradient
ROUNDING = 30.0 * EPS  # of a gradient, relative to what adds up to it
SLOW = 0.3  # share of the gap that sweeps leave where a step by a factor is next
USUAL, APART = 300.0, 10.0  # passes over what is stored, each as slow as so many in a product of matrices
CALLS = 6e3  # of Python, around them
FACTORS, IN_FACTORS = 2.0, 3e3  # k³ that an active set takes with a new ℓ2 part, and calls around it
IN_A_PRODUCT = 60.0  # the same, of two products and what goes with them


def pays(fit: Fit) -> bool:
    """Whether the next fit of a path takes less like this than a factor of K does."""
    problem, k = fit.problem, float(np.count_nonzero(fit.coef))
    if not problem.loss.is_quadratic or not coordinate_descent.is_possible(fit):
        return False
    columns = _linalg.as_columns(problem.X)
    if columns.is_nearly_full or not np.all(fit.strengths[1] > 0):
        return False
    swept = 2.0 * USUAL * APART * columns.n_stored * k / problem.X.shape[1]
    return Work(swept, CALLS).seconds < Work(FACTORS * k**3, IN_FACTORS).seconds


def solve(start: Fit, columns: SomeColumns | None = None) -> Fit | None:
    """The optimum of a problem for which this ``pays``, to rounding; None where that is not reached."""
    search = _Search.of(start, columns)
    return next(filter(search.is_optimal, search.nearer(start, PRECISE)), None)


def approach(start: Fit, enough: Callable[[Fit], bool], columns: SomeColumns | None = None) -> Fit | None:
    """A fit of such a problem that is near enough to the optimum; None where that is not reached."""
    return next(filter(enough, _Search.of(start, columns).nearer(start, LAST_SWEEPS)), None)


@dataclass(eq=False)
class SomeColumns:
    """Products X_S X_Sᵀ of all rows, of columns of which few change from one time to the next.

    Attributes
    ----------
    X : sparse array
        By column.
    """

    X: Any
    _inside: Mask | None = None
    _gram: Array | None = None

    @classmethod
    def of(cls, X: Design) -> Self:
        """Those of a design with columns."""
        return cls(_linalg.as_columns(X).by_column())

    def products(self, inside: Mask) -> InnerProducts:
        """Of the rows in these columns, with what is known of them."""
        own, last = self.X[:, inside], self._inside
        if last is None or self._gram is None or 2 * np.sum(inside != last) > np.sum(inside):
            self._gram = _products(own)
        else:
            entered, gone = self.X[:, inside & ~last], self.X[:, last & ~inside]
            self._gram = self._gram + _products(entered) - _products(gone)
        self._inside = inside
        return InnerProducts.of(own, self._gram)


def _products(X: Any) -> Array:
    return _linalg.as_columns(X).row_gram(np.ones(X.shape[1]))


@dataclass(frozen=True, eq=False)
class _Search:
    """What does not change from point to point."""

    columns: SomeColumns
    l1: Array
    l2: Array
    weights: Array
    y: Array
    intercept: bool

    @classmethod
    def of(cls, fit: Fit, columns: SomeColumns | None) -> Self:
        problem = fit.problem
        columns = SomeColumns.of(problem.X) if columns is None else columns
        return cls(columns, *fit.strengths, fit.hessian, problem.y, bool(problem.intercept))

    @property
    def X(self) -> Any:
        """By column."""
        return self.columns.X

    def nearer(self, start: Fit, precise: float) -> Iterator[Fit]:
        """Fits ever nearer to the optimum: by sweeps to such an error, while they pay, and by patterns."""
        fit, error, left = start, FIRST_SWEEPS, coordinate_descent.gap(start)
        for _ in range(ROUNDS):
            sweeps = self._sweeps(fit) if self._is_factored(fit) else SWEEPS
            fit = toward(fit, coordinate_descent.model_minimum(fit, self.X, error, sweeps))
            yield fit
            before, left = left, coordinate_descent.gap(fit)
            if error <= precise or left > SLOW * before:
                for there in self._by_patterns(coordinate_descent.levelled(fit)):
                    yield there
                    fit = there if there.objective <= fit.objective else fit
            error = max(error * SHARPER, LAST_SWEEPS)

    @cached_property
    def lengths(self) -> Array:
        """Of the columns: (p,)."""
        return _linalg.column_lengths(self.X)

    def _by_patterns(self, fit: Fit) -> Iterator[Fit]:
        """Newton's method on the dual problem, which is smooth beside an ℓ2 part: some steps.

        With u the forces of the rows, d times residuals, and c = Xᵀu, it is to minimise
        ½ Σ u²/d − yᵀu + ½ Σ (|c| − l1)₊²/l2 where Σ u = 0.  A step leads to the forces at the minimum of the
        primal problem on the columns with |c| > l1, each with the sign of its c; the first one to that with
        the signs of the fit, which may have been found.
        """
        there = self._on_signs(fit, np.sign(fit.coef))
        yield _agreed(there, np.sign(fit.coef))
        forces, pull = -there.gradient, -there.loss_gradient
        for _ in range(STEPS):
            signs = np.where(np.abs(pull) > self.l1, np.sign(pull), 0.0)
            there = self._on_signs(there, signs)
            yield _agreed(there, signs)
            ways = -there.gradient - forces, -there.loss_gradient - pull
            length = self._falling(forces, pull, *ways)
            if length is None:
                return
            forces, pull = forces + length * ways[0], pull + length * ways[1]

    def _falling(self, forces: Array, pull: Array, by_force: Array, by_pull: Array) -> float | None:
        """A length of a step by which the dual objective falls."""
        held = self.weights > 0

        def dual(length: float) -> float:
            u, beyond = (forces + length * by_force)[held], np.abs(pull + length * by_pull) - self.l1
            rows = u @ (0.5 * u / self.weights[held] - self.y[held])
            return float(rows + 0.5 * np.sum(np.maximum(beyond, 0.0) ** 2 / self.l2))

        here = dual(0.0)
        return backtrack(lambda length: length, lambda _, length: dual(length) < here, halvings=HALVINGS)

    def _on_signs(self, fit: Fit, signs: Array) -> Fit:
        """The minimum over the columns that have a sign, of the objective with these signs."""
        inside = signs != 0
        fit = fit.moved(np.where(inside, fit.coef, 0.0), fit.intercept)
        if self._is_factored(fit):
            solve = self._by_factor(fit, inside)
        else:
            solve = self._by_products(np.flatnonzero(inside))
        for _ in range(REFINED):
            pull = fit.loss_gradient + self.l2 * fit.coef + self.l1 * signs
            if np.all(np.abs(pull) <= self._rounding(fit), where=inside):
                break
            step = solve(Direction(np.where(inside, pull, 0.0), fit.intercept_gradient))
            fit = fit.moved(fit.coef - step.coef, fit.intercept - step.intercept)
        return fit

    def _sweep(self, fit: Fit) -> Work:
        """A sweep over the columns that are in."""
        n_stored, k = _linalg.as_columns(self.X).n_stored, float(np.count_nonzero(fit.coef))
        return Work(2.0 * APART * n_stored * k / self.X.shape[1], IN_A_PRODUCT / 2.0)

    def _factor(self, fit: Fit) -> Work:
        """A factor, which is no larger than the rows."""
        return cost.newton_step(self.X.shape[0], 0, int(np.count_nonzero(fit.coef)))

    def _is_factored(self, fit: Fit) -> bool:
        """Whether a factor takes less than products that may not end, for each step that it serves."""
        return self._factor(fit).seconds < self._sweep(fit).times(2.0 * PRODUCTS * REFINED).seconds

    def _sweeps(self, fit: Fit) -> int:
        """How many take as long as a factor."""
        return int(np.clip(self._factor(fit).seconds / self._sweep(fit).seconds, FEW, SWEEPS))

    def _by_factor(self, fit: Fit, inside: Mask) -> Callable[[Direction], Direction]:
        """K⁻¹ on some columns by a factor, of rows whose products are known where these are fewer."""
        l2, k = self.l2[inside], int(np.count_nonzero(inside))
        if k <= len(self.weights) or np.ptp(l2) > 0:
            nothing = np.zeros(len(inside))
            return factor(fit, Coordinates(inside, nothing, np.where(inside, self.l2, 0.0))).solve
        known = self.columns.products(inside)
        K = Dual(known.X, None, k, l2, self.weights, self.intercept, known)

        def solve(gradient: Direction) -> Direction:
            step = K.solve(Direction(gradient.coef[inside], gradient.intercept))
            coef = np.zeros_like(gradient.coef)
            coef[inside] = step.coef
            return Direction(coef, step.intercept)

        return solve

    def _by_products(self, inside: Index) -> Callable[[Direction], Direction]:
        """K⁻¹ on some columns, by conjugate gradients."""
        columns, l2, d = self.X[:, inside], self.l2[inside], self.weights
        transposed = columns.T
        diagonal = columns.multiply(columns).T @ d + l2
        level = float(d.sum()) if self.intercept else np.inf

        def curved(along: Direction) -> Direction:
            rows = d * (columns @ along.coef + along.intercept)
            return Direction(transposed @ rows + l2 * along.coef, rows.sum() * self.intercept)

        def scaled(gradient: Direction) -> Direction:
            return Direction(gradient.coef / diagonal, gradient.intercept / level)

        def solve(gradient: Direction) -> Direction:
            own = Direction(gradient.coef[inside], gradient.intercept)
            step, _ = conjugate_gradients(curved, scaled, _inner, own, CLOSE, PRODUCTS)
            coef = np.zeros_like(gradient.coef)
            coef[inside] = step.coef
            return Direction(coef, step.intercept)

        return solve

    def _pull(self, fit: Fit) -> Array:
        """Gradient on the signs of a fit: (p,)."""
        return fit.loss_gradient + self.l2 * fit.coef + self.l1 * np.sign(fit.coef)

    def _rounding(self, fit: Fit) -> Array:
        """What rounding makes of the gradient of each coefficient: (p,)."""
        size = float(np.linalg.norm(self.weights * (np.abs(self.y) + np.abs(fit.eta))))
        return ROUNDING * (self.lengths * size + self.l1 + self.l2 * np.abs(fit.coef))

    def is_optimal(self, fit: Fit) -> bool:
        """Whether gradients vanish inside, and exceed no strength outside, but for rounding."""
        pull = np.abs(self._pull(fit)) - np.where(fit.coef == 0, self.l1, 0.0)
        return bool(np.all(pull <= self._rounding(fit)))


def _agreed(fit: Fit, signs: Array) -> Fit:
    """Without coefficients that have another sign than was thought."""
    coef = np.where(fit.coef * signs > 0, fit.coef, 0.0)
    return coordinate_descent.levelled(fit.moved(coef, fit.intercept))


def _inner(one: Direction, other: Direction) -> Array:
    return np.asarray(one.coef @ other.coef + one.intercept * other.intercept)
