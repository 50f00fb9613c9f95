"""Least squares with an ℓ1 and an ℓ2 part on sparse columns, without a factor of all columns.

An ℓ2 part moves with the strength, and K with it: the active-set method factors it anew at every strength,
which takes k³.  Coordinate descent finds the pattern in sweeps over what is stored.  A factor of the rows,
where these are few, or conjugate gradients end on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from onefit import _linalg, cost
from onefit._typing import Array, Index
from onefit.cost import Work
from onefit.curvature import Direction, conjugate_gradients, factor
from onefit.fit import Fit
from onefit.numerics import EPS
from onefit.solvers import coordinate_descent
from onefit.solvers.line_search import to_first_zero, toward

ROUNDS = 10  # of sweeps and an end on the pattern that they found
FIRST, SHARPER, LAST = 1e-4, 1e-4, 1e-14  # error of the sweeps: the first show which columns enter
PRECISE = 1e-6  # error that leaves a pattern worth ending on
SWEEPS, PRODUCTS = 300, 300  # in a round, at most
STEPS = 3  # on a pattern, with gradients anew
CLOSE = 1e-8  # error of a step, relative to its gradient
ROUNDING = 30.0 * EPS  # of a gradient, relative to what adds up to it
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


def solve(start: Fit) -> Fit | None:
    """The optimum of a problem for which this ``pays``, to rounding; None where that is not reached."""
    fit, error, search = start, FIRST, _Search.of(start)
    for _ in range(ROUNDS):
        near = coordinate_descent.model_minimum(fit, search.X, error, SWEEPS)
        fit = toward(fit, near)
        if error <= PRECISE:
            fit = search.on_pattern(fit)
            if search.is_optimal(fit):
                return fit
        error = max(error * SHARPER, LAST)
    return None


@dataclass(frozen=True, eq=False)
class _Search:
    """What does not change from point to point."""

    X: Any  # by column
    l1: Array
    l2: Array
    weights: Array
    y: Array
    intercept: bool

    @classmethod
    def of(cls, fit: Fit) -> Self:
        problem = fit.problem
        X = _linalg.as_columns(problem.X).by_column()
        return cls(X, *fit.strengths, fit.hessian, problem.y, bool(problem.intercept))

    @cached_property
    def lengths(self) -> Array:
        """Of the columns: (p,)."""
        return _linalg.column_lengths(self.X)

    def on_pattern(self, fit: Fit) -> Fit:
        """Go to the minimum on the signs of a fit, or to the first zero on the way."""
        inside = fit.coef != 0
        solve = factor(fit).solve if self._is_factored(fit) else self._by_products(np.flatnonzero(inside))
        for _ in range(STEPS):
            pull = self._pull(fit)
            if np.all(np.abs(pull) <= self._rounding(fit), where=inside):
                break
            step = solve(Direction(np.where(inside, pull, 0.0), fit.intercept_gradient))
            change = Direction(-step.coef, -step.intercept)
            until = _until_zero(fit, change)
            if until.min() < 1.0:
                return toward(fit, to_first_zero(fit, change, until))
            fit = fit.moved(fit.coef + change.coef, fit.intercept + change.intercept)
        return fit

    def _is_factored(self, fit: Fit) -> bool:
        """Whether a factor, which is no larger than the rows, takes less than products that may not end."""
        (n, p), k = self.X.shape, float(np.count_nonzero(fit.coef))
        products = Work(4.0 * APART * _linalg.as_columns(self.X).n_stored * k / p, IN_A_PRODUCT)
        return cost.newton_step(n, 0, int(k)).seconds < products.times(PRODUCTS).seconds

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


def _inner(one: Direction, other: Direction) -> Array:
    return np.asarray(one.coef @ other.coef + one.intercept * other.intercept)


def _until_zero(fit: Fit, change: Direction) -> Array:
    """Lengths of a change at which coefficients are zero: (p,)."""
    falls = fit.coef * change.coef < 0
    return np.where(falls, -fit.coef / np.where(falls, change.coef, 1.0), np.inf)
