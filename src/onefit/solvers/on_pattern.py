"""Newton steps on a pattern without a factor of their own, from a problem like this one.

Conjugate gradients solve each, by the diagonal of K or, where that takes less, by the factor of a neighbour
with a row more or another strength, whose pattern is much the same: on the coordinates that both have, with
the diagonal for those that enter.  What comes out is near the optimum, and mostly on its pattern, so that one
step with a factor ends there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeGuard

import numpy as np

from onefit import _linalg, cost
from onefit.cost import Work
from onefit.curvature import CoupledBlock, Curvature, Direction
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.numerics import EPS
from onefit.penalties import Tangent
from onefit.solvers import newton
from onefit.solvers.line_search import ROUNDING
from onefit.solvers.pattern_step import newton_step
from onefit.solvers.truncated import (
    FALLING,
    MOST_PRODUCTS,
    Approach,
    Solve,
    answered,
    by_diagonal,
    diagonal,
)

PRODUCTS = 12  # with K that a step takes, about, by the factor of a neighbour
SINGLY = 3.0  # times as many by the diagonal
TOO_MANY = 2.0  # times as many as thought, after which a step is given up
CALLS = 40.0  # around each, besides
STEPS = 4  # that end near an optimum, about
MOST_STEPS = 12  # as many as find a pattern
LOOSELY = 0.03  # error of a step, relative: the next decrement is the square of it


def pays(fit: Fit) -> bool:
    """Whether steps without factors of their own take less than with them.

    For coupled outputs, a loss that is smooth and a penalty with kinks.
    """
    problem, loss = fit.problem, fit.problem.loss
    if not problem.is_coupled or not fit.is_kinked or not loss.is_smooth or loss.is_quadratic:
        return False
    return cost_of_steps(fit).seconds < _by_own_factor(fit).times(STEPS).seconds


def _by_own_factor(fit: Fit) -> Work:
    return cost.newton_step(fit.problem.n, 0, max(1, fit.tangent.size), fit.problem.n_coupled)


def serves(neighbour: Curvature | None, fit: Fit) -> TypeGuard[CoupledBlock]:
    """Whether there is a factor of a neighbour, and steps pay."""
    return _is_at_hand(neighbour) and pays(fit)


def lead(neighbour: Curvature | None, fit: Fit) -> CoupledBlock | None:
    """The neighbour, where its factor is at hand and takes less than the diagonal."""
    takes_less = _by_factor(fit).seconds < _by_diagonal(fit).seconds
    return neighbour if _is_at_hand(neighbour) and takes_less else None


def _is_at_hand(neighbour: Curvature | None) -> TypeGuard[CoupledBlock]:
    return isinstance(neighbour, CoupledBlock) and neighbour.is_factored


def cost_of_steps(fit: Fit) -> Work:
    """What steps take to an optimum near by, about: by a neighbour's factor or the diagonal."""
    return min(_by_diagonal(fit), _by_factor(fit), key=lambda work: work.seconds)


def _product(fit: Fit) -> Work:
    stored, outputs = _linalg.as_columns(fit.problem.X).n_stored, fit.problem.n_outputs
    return cost.product_with_curvature(fit.problem.n, stored, outputs).plus(Work(calls=CALLS))


def _by_diagonal(fit: Fit) -> Work:
    return _product(fit).times(SINGLY * PRODUCTS * STEPS)


def _by_factor(fit: Fit) -> Work:
    solve = Work(2.0 * float(max(1, fit.tangent.size)) ** 2)
    return _product(fit).plus(solve).times(PRODUCTS * STEPS)


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # of steps that leave the range of the loss
def approach(start: Fit, neighbour: Curvature | None, near: float) -> Approach:
    """Go near the optimum, until the root of the decrement is so small beside that of the objective.

    Where the diagonal takes far more products than it was thought to, a neighbour takes over, or none does;
    nor does a neighbour whose products take longer than a factor of one's own.
    """
    fit, last, leading = start, np.inf, lead(neighbour, start)

    def by(there: Fit, tangent: Tangent) -> Led:
        return Led(there, tangent, neighbour=leading)

    for _ in range(MOST_STEPS):
        try:
            step = newton_step(fit, by=by)
        except SolverError:
            if leading is not None or not _is_at_hand(neighbour):
                return Approach(fit, False, is_spent=True)
            leading = neighbour
            continue
        if not np.isfinite(step.decrement):
            break
        if step.holds and step.decrement > FALLING * last:
            return Approach(fit, bool(step.decrement <= EPS * abs(fit.objective)))  # no more than rounding
        is_last = step.decrement <= near**2 * abs(fit.objective)
        fit = newton.move(fit, step, is_last, ROUNDING * abs(fit.objective))
        if is_last:
            return Approach(fit, True)
        last = step.decrement if step.holds else np.inf
    return Approach(fit, False)


@dataclass(frozen=True)
class Led(CoupledBlock):
    """K that is solved with by conjugate gradients; the rest asks for a factor.

    Attributes
    ----------
    neighbour : CoupledBlock or None
        Factored; None where the diagonal does.
    """

    neighbour: CoupledBlock | None = field(kw_only=True)

    @property
    def is_definite(self) -> bool:
        return True

    @cached_property
    def _here(self) -> Fit:
        """The fit on the piece that is asked for."""
        return self.fit.moved(self.fit.coef, self.fit.intercept).known(
            eta=self.fit.eta, bending=self.fit.bending, hessian=self.fit.hessian, tangent=self.tangent
        )

    @cached_property
    def _scaled(self) -> Solve:
        if self.neighbour is None:
            return by_diagonal(self._here)
        own, roughly = self.tangent.support, self.neighbour.for_steps
        new = own & ~self.neighbour.tangent.support
        entering = np.flatnonzero(new.any(axis=1))
        alone = np.full(own.shape, np.inf)
        if entering.size:
            alone[entering] = np.where(new[entering], diagonal(self._here, entering), np.inf)

        def about(gradient: Direction) -> Direction:
            shared = roughly.solve(Direction(np.where(own, gradient.coef, 0.0), gradient.intercept))
            return Direction(np.where(own, shared.coef, 0.0) + gradient.coef / alone, shared.intercept)

        return about

    def solve(self, gradient: Direction) -> Direction:
        thought = PRODUCTS if self.neighbour else SINGLY * PRODUCTS
        worth = _by_own_factor(self._here).seconds / _product(self._here).seconds if self.neighbour else 0.0
        most = max(TOO_MANY * thought, worth)
        found, is_settled = answered(self._here, gradient, self._scaled, LOOSELY, most)
        if not is_settled and most < MOST_PRODUCTS:
            raise SolverError("conjugate gradients take longer than a factor of K")
        return found
