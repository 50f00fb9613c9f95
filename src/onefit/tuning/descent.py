"""Ways down a risk: where they start, where they stop, and which of them is the best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy.ndimage import minimum_filter
from scipy.stats import qmc

from onefit._typing import Array, Index
from onefit.tuning.judges import LeaveOneOutJudge
from onefit.tuning.kinked_descent import bfgs_in_kinks
from onefit.tuning.objective import Objective
from onefit.tuning.optimizers import (
    Function,
    Minimum,
    Stop,
    Visit,
    adam,
    constant_steps,
    lbfgs,
    projected_gradient,
)

Optimizer: TypeAlias = Literal["auto", "lbfgs", "projected", "constant", "adam", "stochastic"]

COARSE = {1: 17, 2: 5}  # points a side of the grid that one or two hyperparameters start from
SPREAD = 25  # points that three numbers or more start from, as many as two
MOST_VALLEYS = 3  # of that grid to start from
IN_A_KINK = "the risk falls no more: its minimum is in a kink, where no gradient vanishes"
# Steps that have to lower a risk with kinks, and by which share of it, which rows would not tell.
PATIENCE, IN_KINKS = 5, 1e-4
REACH = 0.05  # largest component of a first step, in widths of the bounds
IN_A_START = 48  # held-out rows that say which points of the grid may be valleys
TO_RACE = 0.25  # share of the points that all rows judge


Callback: TypeAlias = Callable[[dict[str, Any], float], Any]


@dataclass(frozen=True)
class DescentPlan:
    """How to go down.

    Attributes
    ----------
    optimizer : "auto", "lbfgs", "projected", "constant", "adam" or "stochastic"
        L-BFGS-B takes bounds only: "auto" is "projected" where there are weights of a mixture.
    max_iter : int
    tol : float
        Largest component of the projected gradient, as a share of the risk and in the scale of the search,
        at which to stop.
    learning_rate : float
        Of ``adam``, ``stochastic`` and ``constant``, in the scale of the search.
    n_starts : int
    seed : Generator
    callback : callable or None
        Called with the hyperparameters and the risk after each evaluation of the gradient.
    start : (m,) array or None
        Where to start first, in place of the coarse grid.
    """

    optimizer: Optimizer
    max_iter: int
    tol: float
    learning_rate: float
    n_starts: int
    seed: np.random.Generator
    callback: Callback | None = None
    start: Array | None = None


def descend(objective: Objective, plan: DescentPlan) -> Minimum:
    """Minimise from each start, and keep the best, with its gradient projected onto the bounds.

    Raises
    ------
    ValueError
        If the risk is not finite anywhere it was looked at.
    """
    best: Minimum | None = None
    try:
        for start in _starts(objective, plan):
            found = WAYS[plan.optimizer](objective, start, plan)
            if best is None or found.value < best.value:
                best = replace(found, gradient=_projected(objective, found.t, found.gradient))
    except KeyboardInterrupt:
        if not objective.visited:
            raise
        t, value, _ = min(objective.visited, key=lambda point: point.value)
        if best is None or value < best.value:
            values = np.array([*(point.value for point in objective.visited), value])
            best = Minimum(t, value, np.full(len(t), np.nan), values, False, "interrupted")
    assert best is not None
    if not np.isfinite(best.value):
        raise ValueError(
            "the risk is not finite for any of the hyperparameters that were tried: move the bounds to "
            "stronger penalties, or look at the data"
        )
    return best


def _starts(objective: Objective, plan: DescentPlan) -> Sequence[Array]:
    """The one given, else the lowest of coarse points, else the middle; then random.

    Beside the middle of a simplex stand its vertices: one loss of a mixture may hide what the others can do.
    """
    space = objective.space
    sides = np.concatenate([np.full(domain.size, domain.is_box) for domain in space.domains])
    if plan.start is not None:
        first = [plan.start]
    elif sides.sum() in COARSE or not space.is_box:
        first = _valleys(objective, np.flatnonzero(sides))
    elif len(sides) == len(space.domains):
        first = _lowest_and_middle(objective)
    else:  # of vectors a few points tell nothing
        first = [space.middle]
    if plan.n_starts == 1:
        return first
    return [*first, *space.spread(qmc.LatinHypercube(len(sides), rng=plan.seed).random(plan.n_starts - 1))]


def _valleys(objective: Objective, sides: Index) -> list[Array]:
    """Points of a coarse grid that are as low as their neighbours: the lowest first."""
    low, high = objective.space.bounds[:, sides]
    points: list[Array] = []
    found: list[float] = []
    m = len(sides) if len(sides) in COARSE else 0  # more numbers stay in their middle
    shape = [COARSE[m]] * m if m else []
    share = (np.indices(shape).reshape(m, -1).T + 0.5) / COARSE[m] if m else np.full((1, len(sides)), 0.5)
    for base in objective.space.bases:
        own = np.tile(base, (len(share), 1))
        own[:, sides] = low + share * (high - low)
        values = _raced(objective, own[::-1])[::-1]
        least = minimum_filter(values.reshape(shape), size=3, mode="nearest").ravel() if m else values
        valleys = (values <= least) & (np.isfinite(values) | ~np.isfinite(values).any())
        points.extend(own[valleys])
        found.extend(values[valleys])
    return [points[i] for i in np.argsort(found, kind="stable")[:MOST_VALLEYS]]


def _lowest_and_middle(objective: Objective) -> list[Array]:
    """The lowest of points spread over the bounds of three numbers or more, and the middle.

    Either may lead into a kink that the other passes by.
    """
    space = objective.space
    spread = space.spread(qmc.Halton(len(space.domains), scramble=False).random(SPREAD)[1:])
    points = np.vstack([space.middle, spread])
    lowest = int(np.argmin(_raced(objective, points)))
    return [points[i] for i in dict.fromkeys((lowest, 0))]


def _raced(objective: Objective, points: Array) -> Array:
    """Risks of points, infinite where those by some of the rows are not among the lowest: (r,)."""
    judge, visits = objective.judge, len(objective.visited)
    objective.judge = judge.of_some(IN_A_START)
    try:
        values = np.array([objective.value(point) for point in points])
    finally:
        rough, objective.judge = objective.judge is not judge, judge
    if not rough:
        return values
    del objective.visited[visits:]
    near = values <= np.quantile(values, TO_RACE, method="higher")
    return np.array(
        [objective.value(point) if stays else np.inf for point, stays in zip(points, near, strict=True)]
    )


def _projected(objective: Objective, t: Array, gradient: Array) -> Array:
    """Minus the step of length one along minus the gradient that the bounds leave."""
    return t - objective.space.project(t - gradient)


def _stop(objective: Objective, plan: DescentPlan) -> Stop:
    """Stop at a minimum, or in kinks that no line search settles."""
    kinks = objective.has_kinks()

    def stop(point: Visit, values: Sequence[float]) -> str:
        if kinks and len(values) > PATIENCE and min(values[:-PATIENCE]) <= (1.0 + IN_KINKS) * min(values):
            return IN_A_KINK
        relative = point.gradient / max(abs(point.value), np.finfo(float).tiny)
        small = np.abs(_projected(objective, point.t, relative)).max() <= plan.tol
        return "the projected gradient is below tol" if small and np.isfinite(point.value) else ""

    return stop


def _told(objective: Objective, plan: DescentPlan) -> Function:
    """Return the risk and its gradient, and tell what was evaluated."""

    def evaluate(t: Array) -> tuple[float, Array]:
        value, gradient = objective.value_and_gradient(t)
        if plan.callback is not None:
            plan.callback(objective.space.values(t), value)
        return value, gradient

    return evaluate


def _suited(objective: Objective, start: Array, plan: DescentPlan) -> Minimum:
    """Between bounds L-BFGS-B, or BFGS where rows make kinks; on a simplex projected gradient."""
    if not objective.space.is_box:
        return _projected_gradient(objective, start, plan)
    return (_bfgs_in_kinks if objective.has_kinks_of_rows() else _lbfgs)(objective, start, plan)


def _bfgs_in_kinks(objective: Objective, start: Array, plan: DescentPlan) -> Minimum:
    told, stop, bounds = _told(objective, plan), _stop(objective, plan), objective.space.bounds
    return bfgs_in_kinks(told, start, bounds.T, plan.max_iter, stop, REACH)


def _lbfgs(objective: Objective, start: Array, plan: DescentPlan) -> Minimum:
    options = {"maxiter": plan.max_iter, "gtol": 0.0, "ftol": 1e-10, "maxls": 10}
    told, stop, bounds = _told(objective, plan), _stop(objective, plan), objective.space.bounds
    widths = bounds[1] - bounds[0]
    return lbfgs(told, start, bounds.T, options, stop, units=widths, reach=REACH)


def _projected_gradient(objective: Objective, start: Array, plan: DescentPlan) -> Minimum:
    low, high = objective.space.bounds
    return _with_steps(projected_gradient, objective, start, plan, 0.1 * float(np.max(high - low)))


def _with_steps(
    way: Callable[..., Minimum],
    objective: Objective,
    start: Array,
    plan: DescentPlan,
    length: float | None = None,
) -> Minimum:
    """Go down by steps that have a length, that of the plan or another, and are projected."""
    length = plan.learning_rate if length is None else length
    told, stop = _told(objective, plan), _stop(objective, plan)
    return way(told, start, objective.space.project, length, plan.max_iter, stop)


def _stochastic(objective: Objective, start: Array, plan: DescentPlan) -> Minimum:
    """Algorithm 2 of Beirami et al. 2017: steps along the gradient of one row at a time, ever shorter."""
    judge = objective.judge
    if not isinstance(judge, LeaveOneOutJudge):
        raise TypeError("optimizer='stochastic' takes one row at a time, and is for risk='loo'")
    t, told, values = start, _told(objective, plan), list[float]()
    try:
        for step in range(plan.max_iter):
            row = plan.seed.integers(len(judge.weights), size=1)
            objective.judge = replace(judge, exact=False, batch=row)
            value, gradient = told(t)
            values.append(value)
            size = max(float(np.abs(gradient).max()), np.finfo(float).tiny)
            t = objective.space.project(t - plan.learning_rate / np.sqrt(1.0 + step) * gradient / size)
    finally:  # what is judged after an interruption is judged by all rows
        objective.judge = judge
    value, gradient = objective.value_and_gradient(t)
    return Minimum(t, value, gradient, np.array([*values, value]), False, "all steps were taken")


WAYS: dict[str, Callable[[Objective, Array, DescentPlan], Minimum]] = {
    "auto": _suited,
    "lbfgs": _lbfgs,
    "projected": _projected_gradient,
    "constant": partial(_with_steps, constant_steps),
    "adam": partial(_with_steps, adam),
    "stochastic": _stochastic,
}
