"""Newton steps on a pattern without a factor of their own, by that of a problem like this one.

The pattern of a neighbour, with a row more or another strength, is much the same: conjugate gradients take
its factor as preconditioner on the coordinates that both have, and the diagonal of K on those that enter.
What comes out is near the optimum, and mostly on its pattern, so that one step with a factor ends there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeGuard

import numpy as np

from onefit import _linalg, cost
from onefit.cost import Work
from onefit.curvature import CoupledBlock, Curvature, Direction
from onefit.fit import Fit
from onefit.numerics import EPS
from onefit.penalties import Tangent
from onefit.solvers import newton
from onefit.solvers.line_search import ROUNDING
from onefit.solvers.truncated import FALLING, Approach, Solve, answered, diagonal

PRODUCTS = 12  # with K that a step takes, about
CALLS = 60.0  # around each
STEPS = 4  # that end near an optimum, about
MOST_STEPS = 12  # as many as find a pattern
LOOSELY = 0.03  # error of a step, relative: the next decrement is the square of it


def pays(fit: Fit) -> bool:
    """Whether steps by the factor of a neighbour take less than with factors of their own.

    For coupled outputs, a loss that is smooth and a penalty with kinks.
    """
    problem, loss = fit.problem, fit.problem.loss
    if not problem.is_coupled or not fit.is_kinked or not loss.is_smooth or loss.is_quadratic:
        return False
    own = cost.newton_step(problem.n, 0, max(1, fit.tangent.size), problem.n_coupled)
    return cost_of_steps(fit).seconds < own.times(STEPS).seconds


def serves(neighbour: Curvature | None, fit: Fit) -> TypeGuard[CoupledBlock]:
    """Whether there is a factor of a neighbour, and steps by it pay."""
    return isinstance(neighbour, CoupledBlock) and neighbour.is_factored and pays(fit)


def cost_of_steps(fit: Fit) -> Work:
    """What steps take to an optimum near by, about."""
    stored, outputs = _linalg.as_columns(fit.problem.X).n_stored, fit.problem.n_outputs
    k = float(max(1, fit.tangent.size))
    each = Work(4.0 * stored * outputs + 2.0 * k * k, CALLS, 3.0 * fit.problem.n * outputs)
    return each.times(PRODUCTS * STEPS)


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # of steps that leave the range of the loss
def approach(start: Fit, neighbour: CoupledBlock, near: float) -> Approach:
    """Go near the optimum, until the root of the decrement is so small beside that of the objective."""
    fit, last = start, np.inf

    def by(there: Fit, tangent: Tangent) -> LedByNeighbour:
        return LedByNeighbour(there, tangent, neighbour=neighbour)

    for _ in range(MOST_STEPS):
        step = newton.newton_step(fit, by=by)
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
class LedByNeighbour(CoupledBlock):
    """K that is solved with by conjugate gradients; the rest asks for a factor.

    Attributes
    ----------
    neighbour : CoupledBlock
        Factored.
    """

    neighbour: CoupledBlock = field(kw_only=True)

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
        own, lead = self.tangent.support, self.neighbour.roughly
        new = own & ~self.neighbour.tangent.support
        entering = np.flatnonzero(new.any(axis=1))
        alone = np.full(own.shape, np.inf)
        if entering.size:
            alone[entering] = np.where(new[entering], diagonal(self._here, entering), np.inf)

        def about(gradient: Direction) -> Direction:
            shared = lead.solve(Direction(np.where(own, gradient.coef, 0.0), gradient.intercept))
            return Direction(np.where(own, shared.coef, 0.0) + gradient.coef / alone, shared.intercept)

        return about

    def solve(self, gradient: Direction) -> Direction:
        return answered(self._here, gradient, self._scaled, LOOSELY)
