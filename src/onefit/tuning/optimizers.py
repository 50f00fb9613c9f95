"""Ways down a function of a few variables: L-BFGS-B, projected gradient, constant steps, Adam.

Each takes a function that returns a value and its gradient, and may be told to stop by what it has seen.
Values may be infinite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.optimize import minimize

from onefit._typing import Array

DECREASE = 1e-4  # share of the promised decrease that a projected step has to keep
SHORTENINGS = 20  # of a projected step
MEMORY = 5  # of values of which a projected step has to be below the highest
LIMIT = "the limit of iterations was reached"


class Visit(NamedTuple):
    """A point, and what the function is there."""

    t: Array
    value: float
    gradient: Array


Function: TypeAlias = Callable[[Array], tuple[float, Array]]
Projection: TypeAlias = Callable[[Array], Array]
Stop: TypeAlias = Callable[[Visit, Sequence[float]], str]
"""From the last point and all values so far to the reason to stop, or an empty string."""
Step: TypeAlias = Callable[[Visit, Sequence[float]], Visit | None]
"""From the last point and all values so far to the next point, or None where there is none."""


def never(point: Visit, values: Sequence[float]) -> str:
    """Give no reason to stop."""
    return ""


@dataclass(frozen=True, eq=False)
class Minimum:
    """Where a way down ended.

    Attributes
    ----------
    t : (m,) array
        The best point that was visited, and ``value`` and ``gradient`` there.
    values : (n_iter + 1,) array
        At the start and after each iteration.
    converged : bool
        Whether it stopped for another reason than the limit of iterations.
    message : str
        Why it stopped.
    """

    t: Array
    value: float
    gradient: Array
    values: Array
    converged: bool
    message: str

    @property
    def n_iter(self) -> int:
        """Iterations that were made."""
        return len(self.values) - 1


def _minimum(best: Visit, values: Sequence[float], message: str) -> Minimum:
    return Minimum(*best, np.array(values), message != LIMIT, message)


def stepwise(start: Visit, step: Step, max_iter: int, stop: Stop) -> Minimum:
    """Take steps until there is a reason to stop, which is asked for at the start and after each of them."""
    here = best = start
    values = [here.value]
    for _ in range(max_iter):
        if reason := stop(here, values):
            return _minimum(best, values, reason)
        there = step(here, values)
        if there is None:
            return _minimum(best, values, "no step along the projected gradient lowers the value")
        here, best = there, min(best, there, key=lambda point: point.value)
        values.append(here.value)
    return _minimum(best, values, stop(here, values) or LIMIT)


class _StoppedError(Exception):
    """Leaves SciPy's iterations; its text is the reason."""


def lbfgs(
    function: Function,
    start: Array,
    bounds: Array,
    options: dict[str, Any],
    stop: Stop = never,
    *,
    units: Array | float = 1.0,
    reach: float | None = None,
) -> Minimum:
    """Limited-memory BFGS between bounds, by SciPy.

    Parameters
    ----------
    function : callable
    start : (m,) array
    bounds : (m, 2) array
    options : dict
        Of ``scipy.optimize.minimize``: maxiter, maxfun, maxls, gtol, ftol.
    stop : callable
        Asked after every evaluation.
    units : (m,) array or float
        What counts as a step of one in each variable.
    reach : float, optional
        Largest component of the first step, in these units; that of the gradient by default.
    """
    seen, steps = list[Visit](), list[float]()
    scale = 1.0  # of values: SciPy's first step is minus the gradient
    (low, high), (lowest, highest) = bounds.T, bounds.T / units

    def evaluate(u: Array) -> tuple[float, Array]:
        nonlocal scale
        t = np.select([u <= lowest, u >= highest], [low, high], u * units)  # at a bound to the last digit
        seen.append(Visit(t, *function(t)))
        known = [point.value for point in seen if np.isfinite(point.value)]
        if reason := stop(seen[-1], known):
            raise _StoppedError(reason)
        gradient = seen[-1].gradient * units
        if reach is not None and len(seen) == 1 and gradient.any():
            scale = reach / float(np.abs(gradient).max())
        wall = 10.0 * max(map(abs, known), default=1.0)  # that the line search can interpolate from
        value = seen[-1].value if np.isfinite(seen[-1].value) else wall
        return scale * value, scale * gradient

    def record(intermediate_result: Any) -> None:
        steps.append(float(intermediate_result.fun) / scale)

    try:
        found = minimize(
            evaluate,
            start / units,
            jac=True,
            method="L-BFGS-B",
            bounds=np.stack([lowest, highest], axis=1),
            callback=record,
            options=options,
        )
        message = LIMIT if found.status == 1 else str(found.message)
    except _StoppedError as reason:
        message = str(reason)
    best = min(seen, key=lambda point: point.value)
    values = [seen[0].value, *steps]
    if best.value < values[-1]:  # met by a line search that did not accept it
        values.append(best.value)
    return _minimum(best, values, message)


def projected_gradient(
    function: Function, start: Array, project: Projection, length: float, max_iter: int, stop: Stop
) -> Minimum:
    """Barzilai–Borwein steps, projected onto what is allowed (Birgin, Martínez and Raydan 2000).

    A step has to be lower than the highest of the last few, not than the last one.

    Parameters
    ----------
    function : callable
    start : (m,) array
    project : callable
        Onto a convex set.
    length : float
        Of the first step, relative to the largest component of its gradient.
    max_iter : int
    stop : callable
        Asked at the start and after every iteration.
    """
    first = Visit(start, *function(start))
    length /= max(float(np.abs(first.gradient).max()), np.finfo(float).tiny)

    def step(here: Visit, values: Sequence[float]) -> Visit | None:
        nonlocal length
        there = _shortened(function, project, here, max(values[-MEMORY:]), length)
        if there is None:
            return None
        change, turn = there.t - here.t, there.gradient - here.gradient
        length = float(change @ change) / float(change @ turn) if change @ turn > 0 else 2.0 * length
        return there

    return stepwise(first, step, max_iter, stop)


def _shortened(
    function: Function, project: Projection, here: Visit, highest: float, length: float
) -> Visit | None:
    """Shorten a step to the minimum of a parabola, by no less than a half and no more than nine tenths."""
    for _ in range(SHORTENINGS):
        t = project(here.t - length * here.gradient)
        there, promised = Visit(t, *function(t)), float(here.gradient @ (t - here.t))
        if there.value <= highest + DECREASE * promised:
            return there
        excess = there.value - highest - promised
        length *= float(np.clip(-0.5 * promised / excess, 0.1, 0.5)) if np.isfinite(excess) else 0.1
    return None


def constant_steps(
    function: Function, start: Array, project: Projection, length: float, max_iter: int, stop: Stop
) -> Minimum:
    """Projected gradient steps t − length ∇f of one length, whatever the value does.

    It has no line search: a length above 2 / L, L the largest curvature, does not converge.  Source: the
    descent of Algorithm 1 of Optimizing for generalization in machine learning with cross-validation
    gradients (2019).

    Parameters
    ----------
    function : callable
    start : (m,) array
    project : callable
    length : float
        Of a step, relative to the gradient.
    max_iter : int
    stop : callable
        Asked at the start and after every iteration.
    """

    def step(here: Visit, values: Sequence[float]) -> Visit:
        t = project(here.t - length * here.gradient)
        return Visit(t, *function(t))

    t = project(start)
    return stepwise(Visit(t, *function(t)), step, max_iter, stop)


def adam(
    function: Function,
    start: Array,
    project: Projection,
    learning_rate: float,
    max_iter: int,
    stop: Stop,
    betas: tuple[float, float] = (0.9, 0.999),
    tiny: float = float(np.finfo(float).tiny),
) -> Minimum:
    """Adam (Kingma and Ba 2015), projected onto what is allowed.

    Parameters
    ----------
    function : callable
    start : (m,) array
    project : callable
    learning_rate : float
    max_iter : int
    stop : callable
        Asked at the start and after every iteration.
    betas : (float, float)
        Decay of the means of the gradient and of its square.
    tiny : float
        What keeps steps finite, in the units of the gradient.
    """
    t = project(start)
    first, second = np.zeros_like(t), np.zeros_like(t)

    def step(here: Visit, values: Sequence[float]) -> Visit:
        nonlocal first, second
        k = len(values)
        first = betas[0] * first + (1.0 - betas[0]) * here.gradient
        second = betas[1] * second + (1.0 - betas[1]) * here.gradient**2
        size = np.sqrt(second / (1.0 - betas[1] ** k)) + tiny
        t = project(here.t - learning_rate * first / (1.0 - betas[0] ** k) / size)
        return Visit(t, *function(t))

    return stepwise(Visit(t, *function(t)), step, max_iter, stop)
