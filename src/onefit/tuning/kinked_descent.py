"""A way down a function with kinks: BFGS, with the line search of Lewis and Overton (2013).

In a kink the slope along a line jumps from below zero to above it, and a search for a small slope finds none,
which is where L-BFGS-B ends.  Here a step has to lower the value and to leave the steepest of the slope
behind, as there is always one that does; and the inverse Hessian, kept whole, grows flat across a kink, so
that directions turn along it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onefit._typing import Array
from onefit.tuning.optimizers import DECREASE, Function, Minimum, Stop, Visit, stepwise

FLATTER = 0.5  # share of the slope along a step that may be left at its end
TRIALS = 15  # steps that a line search tries
SHORTEST = 1e-6  # step that is none, in widths of the bounds


def bfgs_in_kinks(
    function: Function, start: Array, bounds: Array, max_iter: int, stop: Stop, reach: float
) -> Minimum:
    """BFGS between bounds, for functions that are smooth but for kinks.

    Parameters
    ----------
    function : callable
    start : (m,) array
    bounds : (m, 2) array
    max_iter : int
    stop : callable
        Asked at the start and after every iteration.
    reach : float
        Largest component of the first step, in widths of the bounds.

    References
    ----------
    Lewis and Overton (2013), Nonsmooth optimization via quasi-Newton methods, algorithms 2.1 and 2.6.
    """
    low, high = bounds.T
    step = _KinkedStep(function, low, high, reach)
    return stepwise(Visit(start, *function(start)), step, max_iter, stop)


@dataclass(eq=False)
class _KinkedStep:
    """A step to the next point, and what was learned of the curvature on the way."""

    function: Function
    low: Array
    high: Array
    reach: float
    inverse: Array | None = None  # of the Hessian

    def __call__(self, here: Visit, values: object) -> Visit | None:
        """Return the next point; None where even minus the gradient leads nowhere lower."""
        while True:
            fresh = self.inverse is None
            direction = self._direction(here)
            there = self._along(here, direction) if direction @ here.gradient < 0.0 else None
            if there is not None:
                self._learn(there.t - here.t, there.gradient - here.gradient, fresh=fresh)
                return there
            self.inverse = None
            if fresh:
                return None

    @property
    def _widths(self) -> Array:
        return self.high - self.low

    def _direction(self, here: Visit) -> Array:
        """−H∇f in what no bound holds back."""
        gradient = here.gradient
        free = ~(((here.t <= self.low) & (gradient > 0)) | ((here.t >= self.high) & (gradient < 0)))
        direction, moving = np.zeros_like(gradient), np.flatnonzero(free & (gradient != 0.0))
        if not moving.size:
            return direction
        if self.inverse is None:
            steepest = float(np.abs(gradient * self._widths)[moving].max())
            self.inverse = np.diag(self._widths**2 * (self.reach / steepest))
        direction[free] = -self.inverse[np.ix_(free, free)] @ gradient[free]
        return direction

    def _along(self, here: Visit, direction: Array) -> Visit | None:
        """Bisect to a step that lowers the value enough and leaves the steepest slope behind."""
        shortest = SHORTEST / float(np.abs(direction / self._widths).max())
        below, above, length, lower = 0.0, np.inf, 1.0, None
        for _ in range(TRIALS):
            t = np.clip(here.t + length * direction, self.low, self.high)
            there = Visit(t, *self.function(t))
            if there.value > here.value + DECREASE * float(here.gradient @ (t - here.t)):
                above = length
            else:
                below, lower = length, there
                if self._is_flatter(here, there, direction):
                    return there
            if above - below <= shortest:
                break
            length = 0.5 * (below + above) if np.isfinite(above) else 2.0 * length
        return lower

    def _is_flatter(self, here: Visit, there: Visit, direction: Array) -> bool:
        """Whether the slope is less steep at the end of a step, or all that moves is at its bound."""
        ends = np.where(direction > 0.0, self.high, self.low)
        at_ends = np.all((there.t == ends) | (direction == 0.0))
        return bool(at_ends or there.gradient @ direction >= FLATTER * (here.gradient @ direction))

    def _learn(self, change: Array, turn: Array, *, fresh: bool) -> None:
        """Take over the curvature along a step, where there is some."""
        along = float(change @ turn)
        if along <= np.finfo(float).eps * float(np.linalg.norm(change) * np.linalg.norm(turn)):
            return
        if fresh:
            in_widths = self._widths * turn
            self.inverse = np.diag(self._widths**2 * (along / float(in_widths @ in_widths)))
        assert self.inverse is not None
        rest = np.eye(len(change)) - np.outer(change, turn) / along
        self.inverse = rest @ self.inverse @ rest.T + np.outer(change, change) / along
