"""Truncated Newton steps: from one fit to the next without a factor of its own.

Along a path K changes with the strength and with the weights of the rows, but not much: the factor of the
last fit makes a good preconditioner of the next one.  Each Newton step is solved by conjugate gradients only
as well as it is worth (Dembo, Eisenstat and Steihaug 1982; Eisenstat and Walker 1996), with two products
with X for each.  What comes out is near enough to the optimum for one factored Newton step to end there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import NamedTuple, TypeAlias

import numpy as np

from onefit import _linalg, cost
from onefit._typing import Array, Index
from onefit.cost import Work
from onefit.curvature import (
    AverageCurvature,
    Counted,
    CoupledBlock,
    CoupledProducts,
    Curvature,
    Direction,
    Products,
    conjugate_gradients_of_one,
    coordinates,
    cost_of_solving_with_average,
    curved_along,
    factor,
    has_average,
    share_of_average,
)
from onefit.curvature.products import SINGLE
from onefit.fit import Fit
from onefit.penalties import Coordinates
from onefit.solvers.line_search import falls_along

FACTORS = 2.0  # times one that also its inverse, the forms of all rows and steps from these take, about
FITS = 4.0  # along a path that a factor serves, about
SINGLY = 4.0  # times as many with the diagonal of K as preconditioner
AVERAGED = 2.0  # times as many with the average curvature of the rows
FEWER = 3.0  # times fewer than with the diagonal, which a look at it hopes for: on words, eight times
MOST_STEPS, MOST_PRODUCTS = 20, 200  # Newton steps, and products with K in each
NEAR = 1e-11  # root of the decrement, relative to that of the objective, that ends the steps
SHORT = 1e-5  # the same, where the last step is taken that leaves the square of it or little more
ROUGH = 1e-3  # the same of fits that tell a risk: what is left of the objective is far below its error
FALLING = 0.25  # of a decrement that the next one must be, near the end
ROUGHLY = 0.1  # error of the first steps, relative to the gradient

Solve: TypeAlias = Callable[[Direction], Direction]


def preconditioner(fit: Fit, last: Curvature | None) -> Solve | None:
    """What serves conjugate gradients best at a fit; None where K had better be factored anew.

    Parameters
    ----------
    fit : Fit
    last : Curvature or None
        Of a problem like this one.
    """
    takes = Seconds.of(fit)
    by_factor = takes.by_neighbour(last)
    if min(takes.factor_free, by_factor) > takes.factored:
        return None
    return WithoutFactor(fit) if last is None or takes.factor_free < by_factor else last.for_steps.solve


@dataclass
class WithoutFactor:
    """About K⁻¹ without any factor of K: by its diagonal, or by the average curvature of the rows.

    Called with a gradient.  The first step goes by the diagonal and the next one by the average, unless that
    takes longer to be made than all steps; from then on that goes on of which a digit took less.

    Attributes
    ----------
    fit : Fit
        All its coefficients are free; the average is that of the last one before it is made.
    by_average : bool
        Whether the next step goes by the average.
    digits : dict of float
        Seconds that a digit took by the average or by the diagonal.
    """

    fit: Fit
    by_average: bool = False
    digits: dict[bool, float] = field(default_factory=dict)

    @cached_property
    def _takes(self) -> Seconds:
        return Seconds.of(self.fit)

    @cached_property
    def _diagonal(self) -> Solve:
        return by_diagonal(self.fit)

    @cached_property
    def _average(self) -> Solve:
        return AverageCurvature.nearest(self.fit).solve

    def __call__(self, gradient: Direction) -> Direction:
        return (self._average if self.by_average else self._diagonal)(gradient)

    @property
    def each(self) -> float:
        """Seconds of a product with K and what serves it."""
        return self._takes.product + (self._takes.average if self.by_average else 0.0)

    def took(self, products: int, error: float, digits: float, fit: Fit) -> None:
        """Note what a step to a fit took, with such an error, and the digits to go from there."""
        self.digits[self.by_average] = (products + 1) * self.each / np.log10(1.0 / error)
        if len(self.digits) > 1:
            self.by_average = self.digits[True] < self.digits[False]
        else:
            self.fit = fit
            may_pay = self._takes.average < (FEWER - 1.0) * self._takes.product
            left = digits * self.digits[False]
            self.by_average = may_pay and bool(share_of_average(self.fit).seconds < left)


def most_products_by_average(fit: Fit, last: Curvature | None) -> int:
    """Products with K that a fit may take by the average curvature of its rows, before a factor does better.

    As many as take as long as a factor of its own, or as its share of a neighbour's and the products with
    that; none where one is at hand, or these would be fewer than a fit takes.
    """
    if not has_average(fit) or (isinstance(last, CoupledBlock) and last.is_factored):
        return 0
    takes = Seconds.of(fit)
    each = takes.product + takes.average
    by_factor = min(takes.factored, takes.by_neighbour(last))
    most = int((by_factor - share_of_average(fit).seconds) / each)
    return most if most >= cost.PRODUCTS else 0


class Seconds(NamedTuple):
    """What ways to a fit take, about."""

    product: float  # of K with a direction
    solve: float  # with a factor
    singly: float  # a fit, with the diagonal of K as preconditioner
    factored: float  # a step with a factor of its own
    average: float = np.inf  # with the average curvature of the rows
    averaged: float = np.inf  # a fit, with that as preconditioner

    @property
    def factor_free(self) -> float:
        """A fit without any factor of K."""
        return min(self.singly, self.averaged)

    @property
    def by_factor(self) -> float:
        """A fit, with the factor of a neighbour."""
        return cost.PRODUCTS * (self.product + self.solve)

    @property
    def with_forms(self) -> float:
        """A factor, its inverse, the forms of all rows and steps from these."""
        return FACTORS * self.factored

    def by_neighbour(self, last: Curvature | None) -> float:
        """The same with the share of a fit in a factor that has to be made, if it has."""
        if last is None:
            return np.inf
        return self.by_factor if last.is_at_hand else self.factored / FITS + self.by_factor

    @classmethod
    def of(cls, fit: Fit) -> Seconds:
        """Infinite, where there are no conjugate gradients."""
        problem, n, outputs = fit.problem, fit.problem.n, fit.problem.n_outputs
        factors = 1 if problem.is_coupled else outputs
        size = coordinates(fit) if problem.is_coupled else fit.tangent.size // factors
        k = max(1, size) if problem.is_coupled else min(max(1, size), n)
        factored = cost.newton_step(n, 0, k, problem.n_coupled).times(factors).seconds
        if not fit.is_smooth or problem.loss.is_quadratic:
            return cls(np.inf, 0.0, np.inf, factored)
        stored = _linalg.as_columns(problem.X).n_stored if _linalg.has_columns(problem.X) else n * n
        product = cost.product_with_curvature(n, stored, outputs).seconds
        solve = Work(2.0 * float(k) ** 2 * factors).seconds
        diagonal = _linalg.has_columns(problem.X) and (problem.is_coupled or outputs == 1)
        singly = cost.PRODUCTS * SINGLY * product if diagonal else np.inf
        if not has_average(fit):
            return cls(product, solve, singly, factored)
        average = cost_of_solving_with_average(fit).seconds
        averaged = AVERAGED * cost.PRODUCTS * (product + average) + share_of_average(fit).seconds
        return cls(product, solve, singly, factored, average, averaged)


def by_diagonal(fit: Fit) -> Solve:
    """Each coefficient on its own, by the diagonal of K; what nothing curves stays as it is."""
    d = np.maximum(_linalg.row_diagonals(fit.hessian), 0.0)
    columns = np.where(fit.tangent.support, diagonal(fit, None), np.inf)
    total = np.where(fit.problem.intercept, d.sum(axis=0), 0.0)
    levels = np.where(total > 0, total, np.inf)
    if not fit.problem.has_free_shift:
        return lambda gradient: Direction(gradient.coef / columns, gradient.intercept / levels)
    flat = np.flatnonzero(~fit.tangent.hessian.any(axis=1))

    def without_shifts(gradient: Direction) -> Direction:
        coef, level = gradient.coef / columns, gradient.intercept / levels
        coef[flat] -= _linalg.row_means(coef[flat])
        return Direction(coef, level - level.mean())

    return without_shifts


def diagonal(fit: Fit, columns: Index | None) -> Array:
    """Of K, for the coefficients of some columns: (k,) or (k, c), one where that is zero."""
    d = np.maximum(_linalg.row_diagonals(fit.hessian), 0.0)
    rows = _linalg.as_columns(_linalg.active_columns(fit.problem.X, columns))
    squares = [rows.column_squares(own, None) for own in d.reshape(len(d), -1).T]
    ridge = fit.tangent.hessian if columns is None else fit.tangent.hessian[columns]
    found = np.stack(squares, axis=-1).reshape(ridge.shape) + ridge
    return np.where(found > 0, found, 1.0)


@dataclass
class ServingFactor:
    """A factor that serves the fits of a path after its own, until another one does better.

    Attributes
    ----------
    curvature : Curvature
    products : list of int
        With K, that fits took with it, one after the other.
    """

    curvature: Curvature
    products: list[int] = field(default_factory=list)

    def at(self, fit: Fit) -> Curvature:
        """About K of another fit, with the strengths there where that takes little."""
        there = self.curvature.lend_to(factor(fit))
        return there if there.is_at_hand else self.curvature

    def pays(self, takes: Seconds) -> bool:
        """Whether it does for another fit, too.

        While what the last fit took beyond the first is no more than what factor and all that cost each fit.
        """
        each = takes.product + takes.solve
        beyond = [(count - self.products[0]) * each for count in self.products]
        return bool(beyond) and beyond[-1] * len(beyond) <= takes.factored + sum(beyond)


class Approach(NamedTuple):
    """How far steps led."""

    fit: Fit
    is_there: bool  # whether that is an optimum: nothing is left that a step with a factor would bring
    is_spent: bool = False  # whether that would have taken more products than it was worth
    products: int = 0  # with K that these took


def approach(start: Fit, solve: Solve, near: float = NEAR, most: float = np.inf) -> Approach:
    """Go near the optimum of a smooth objective, or as near as some Newton steps lead.

    Parameters
    ----------
    start : Fit
    solve : callable
        About K⁻¹ times a gradient.
    near : float
        Root of the decrement, relative to that of the objective, of the last step, which is taken.
    most : float
        Products with K after which there is no other step.
    """
    fit, first, last, spent = start, np.inf, np.inf, 0
    for _ in range(MOST_STEPS):
        if spent >= most:
            return Approach(fit, False, True, spent)
        gradient = Direction(fit.loss_gradient + fit.tangent.gradient, fit.intercept_gradient)
        roughly = solve(gradient)
        size = roughly.inner(fit.problem, gradient)
        first = min(first, size)
        loosely = min(ROUGHLY, np.sqrt(max(size, 0.0) / first)) if first > 0 else ROUGHLY
        found, products = _conjugate(fit, gradient, roughly, solve, loosely, most - spent)
        direction, spent = Direction(-found.coef, -found.intercept), spent + products
        decrement, close = -direction.inner(fit.problem, gradient), near**2 * abs(fit.objective)
        is_last = 0 < decrement <= close
        small = decrement <= 1e-12 * abs(fit.objective)
        if not decrement > 0 or (small and not is_last and decrement > FALLING * last):
            break
        last = decrement
        moved = _moved(fit, direction, decrement)
        if is_last:  # no minimum is at infinity
            there = fit.tangent.hessian.min(initial=np.inf) > 0
            return Approach(moved or fit, there, False, spent)
        if moved is None:
            break
        fit = moved
        if isinstance(solve, WithoutFactor):
            left = 0.5 * float(np.log10(decrement / close)) if close > 0 else np.inf
            solve.took(products, loosely, left, fit)
    return Approach(fit, False, False, spent)


def answered(
    fit: Fit, gradient: Direction, solve: Solve, loosely: float, most: float = np.inf
) -> tuple[Direction, bool]:
    """K⁻¹ times a gradient, to such an error in the norm of the preconditioner; and whether it is."""
    most = min(MOST_PRODUCTS, most)
    found, products = _conjugate(fit, gradient, solve(gradient), solve, loosely, most)
    return found, products < most


def _conjugate(
    fit: Fit, gradient: Direction, roughly: Direction, solve: Solve, loosely: float, most: float
) -> tuple[Direction, int]:
    """K⁻¹ gradient, to an error of ``loosely`` in the norm of the preconditioner; and the products."""
    problem, times = fit.problem, Counted(_products(fit, roughly=loosely >= SINGLE))
    is_plain = _linalg.has_columns(problem.X)
    found, _ = conjugate_gradients_of_one(
        times,
        solve,
        _paired if is_plain else lambda one, other: np.asarray(one.inner(problem, other)),
        gradient,
        roughly,
        loosely,
        int(min(MOST_PRODUCTS, most)),
    )
    return found, times.count


def _products(fit: Fit, *, roughly: bool) -> Solve:
    """K times a direction."""
    if has_average(fit):
        inner = fit.problem.known_inner
        rows = inner.rows_in_single if roughly and inner is not None else None
        return CoupledProducts(fit, rows).times
    is_plain = _linalg.has_columns(fit.problem.X) and fit.coef.ndim == 1
    if is_plain and isinstance(fit.tangent, Coordinates):
        return Products(fit, fit.hessian, np.array(1.0)).times
    return partial(curved_along, fit)


def _paired(one: Direction, other: Direction) -> Array:
    """Inner product of a direction and a gradient, of columns."""
    return np.asarray(np.vdot(one.coef, other.coef) + np.vdot(one.intercept, other.intercept))


def _moved(fit: Fit, direction: Direction, decrement: float) -> Fit | None:
    change = fit.problem.linear_predictor(*direction)

    def at(length: float) -> Fit:
        coef = fit.coef + length * direction.coef
        level = fit.intercept + length * direction.intercept
        return fit.moved(coef, level).known(eta=fit.eta + length * change)

    return falls_along(fit, at, decrement)
