"""Hyperparameters by gradient: a risk as a function of them, and ways down.

Each evaluation solves the problem to machine precision from the last solution, so that the gradient of
``onefit.gradients`` is exact at every step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from scipy.ndimage import minimum_filter
from scipy.optimize import minimize
from scipy.stats import qmc

from onefit import _linalg, gradients
from onefit._typing import Array, Design, Index
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.gradients import Stencil
from onefit.losses import Mixture, PiecewiseLinear
from onefit.penalties import Penalty, SeparablePenalty
from onefit.problem import Problem
from onefit.tuning.judges import Judge, Judged, LeaveOneOut, Part
from onefit.tuning.space import Domain, Hyperparameter, Shares, Space

Optimizer: TypeAlias = Literal["auto", "lbfgs", "projected", "adam", "stochastic"]

PROBE = 1e-4  # step of a central difference of the risk itself, relative to the width of the bounds
COARSE = {1: 9, 2: 5}  # points a side of the grid that one or two hyperparameters start from
MOST_VALLEYS = 3  # of that grid to start from
FINE = 1e-2  # distance between points where the loss changes, relative to what it is elsewhere
DECREASE = 1e-4  # share of the promised decrease that a projected step has to keep
SHORTENINGS = 20  # of a projected step
MEMORY = 5  # of values of which a projected step has to be below the highest
IN_A_KINK = "the risk falls no more: its minimum is in a kink, where no gradient vanishes"
PATIENCE, IN_KINKS = 8, 1e-6  # evaluations that have to lower a risk with kinks, and by how much


# --- the risk as a function ------------------------------------------------------------------------


class Changes(NamedTuple):
    """What a hyperparameter changes of the problem."""

    penalty: bool
    loss: bool
    gram: bool


NOTHING = Changes(penalty=False, loss=False, gram=False)


class _Ends(NamedTuple):
    """Two points of a difference, and how far they are apart."""

    points: tuple[Array, Array]
    step: float


InGram: TypeAlias = Callable[[Design, str, Array], Array | None]


def _by_points(X: Design, name: str, owed: Array) -> None:
    """Nothing is known of this kernel but its values."""


@dataclass(eq=False)
class Objective:
    """A risk and its gradient in the hyperparameters.

    Attributes
    ----------
    space : Space
    problem_at : callable
        The problem for hyperparameters by name.
    judge : Judge
    in_gram : callable
        From a kernel's design, the name of a hyperparameter with one value a feature and a derivative in the
        Gram matrix to the derivative in each value, or None where it has no formula.
    """

    space: Space
    problem_at: Callable[[dict[str, Any]], Problem]
    judge: Judge
    in_gram: InGram = _by_points
    fits: list[Fit] = field(default_factory=list)
    changes: dict[int, Changes | None] = field(default_factory=dict)
    visited: list[tuple[Array, float]] = field(default_factory=list)

    @property
    def exact(self) -> dict[int, bool]:
        """Hyperparameters whose gradients are no differences of the risk."""
        return {m: changes is not None for m, changes in self.changes.items()}

    def value(self, t: Array) -> float:
        """The risk; infinite where there is none."""
        return self._judged(t, gradient=False).value

    def value_and_gradient(self, t: Array) -> tuple[float, Array]:
        """The risk and its gradient in t, which is zero where the risk is infinite."""
        for m in range(len(self.space.domains)):
            known = self.changes.get(m, NOTHING)
            if known is not None and not any(known):  # what has no effect here may have one elsewhere
                self.changes[m] = self._changes(m, t)
        judged = self._judged(t, gradient=any(self.exact.values()))
        gradient = np.zeros(len(t))
        if not np.isfinite(judged.value):
            return judged.value, gradient
        owed = None
        if any(changes is not None and changes.gram for changes in self.changes.values()):
            owed = gradients.in_gram([part.cotangent for part in judged.parts])
        for m, s in enumerate(self.space.slices):
            known = self.changes[m]
            gradient[s] = (
                self._by_differences(m, t) if known is None else self._exact(m, t, known, judged.parts, owed)
            )
        return judged.value, gradient

    def _judged(self, t: Array, *, gradient: bool) -> Judged:
        try:
            judged = self.judge.judge(self.problem_at(self.space.values(t)), self.fits, gradient=gradient)
        except (SolverError, np.linalg.LinAlgError):
            judged = Judged(np.inf, [], self.fits)
        value = judged.value if np.isfinite(judged.value) else np.inf
        self.fits = judged.fits
        self.visited.append((t.copy(), value))
        return judged._replace(value=value)

    def _changes(self, m: int, t: Array) -> Changes | None:
        """What this hyperparameter changes; None where the risk has no gradient along that."""
        domain, here = self.space.domains[m], self._problem(t)
        if not self.judge.has_gradient(here):
            return None
        if isinstance(domain, Shares):
            mixed = isinstance(here.loss, Mixture) and self.judge.in_loss
            return Changes(penalty=False, loss=True, gram=False) if mixed else None
        points, inward = self._stencil(m, t)
        there = self._problem(self._shifted(m, t, points.places[-1] * inward))
        changes = Changes(
            not gradients.same_penalty(here.penalty, there.penalty),
            here.loss != there.loss,
            not _linalg.is_same(here.X, there.X),
        )
        several = isinstance(domain, Domain) and domain.groups is not None
        if several and changes.penalty and not isinstance(here.penalty, SeparablePenalty):
            raise ValueError(
                f"{domain.name} has one value a feature, which {type(here.penalty).__name__} does not take: "
                "give it a pair of numbers"
            )
        return changes if self._is_covered(changes, here, there, m) else None

    def _is_covered(self, changes: Changes, here: Problem, there: Problem, m: int) -> bool:
        if changes.gram and _linalg.has_columns(here.X):
            return False
        if changes.loss and not (self.judge.in_loss and self._keeps_its_kinks(here, m)):
            return False
        return np.array_equal(there.weights, here.weights) and np.array_equal(there.y, here.y)

    def _keeps_its_kinks(self, here: Problem, m: int) -> bool:
        """Whether the loss is of one kind, with as many kinks, at either bound."""
        s, counts = self.space.slices[m], set()
        for end in self.space.bounds[:, s]:
            t = self.space.middle
            t[s] = end
            loss = self._problem(t).loss
            count = loss.kinks(here.y).shape[1] if isinstance(loss, PiecewiseLinear) else 0
            counts.add((type(loss), count))
        return len(counts) == 1

    def _problem(self, t: Array) -> Problem:
        return self.problem_at(self.space.values(t))

    def _exact(self, m: int, t: Array, changes: Changes, parts: list[Part], owed: Array | None) -> Array:
        domain = self.space.domains[m]
        if not isinstance(domain, Domain):
            return self._in_shares(parts)
        if changes.gram and domain.groups is not None:
            assert owed is not None
            return self._in_gram(m, domain, t, owed)
        stencil, inward = self._stencil(m, t, fine=changes.loss)
        problems = [self._problem(self._shifted(m, t, d * inward)) for d in stencil.places]
        total = np.zeros(domain.size)
        if changes.penalty:
            total += _along_penalty(domain, parts, stencil, [problem.penalty for problem in problems])
        if changes.loss:
            losses = [problem.loss for problem in problems]
            for part in parts:
                total += part.cotangent.along_loss(gradients.loss_change(losses, stencil.weights, part.fit))
        if changes.gram:
            assert owed is not None
            total += _along_gram(owed, stencil, problems)
        return total * inward

    def _in_shares(self, parts: list[Part]) -> Array:
        """Derivative in the weights of a mixture, in which its slopes and bends are linear."""
        total: Array = np.zeros(())
        for part in parts:
            mixed = part.fit.problem.loss
            assert isinstance(mixed, Mixture)
            total = total + np.array(
                [
                    part.cotangent.along_loss(gradients.loss_change([loss], np.ones(1), part.fit))
                    for loss in mixed.losses
                ]
            )
        return total

    def _in_gram(self, m: int, domain: Domain, t: Array, owed: Array) -> Array:
        """Derivative in hyperparameters of a kernel, one for each feature or group."""
        s = self.space.slices[m]
        by_feature = self.in_gram(self._problem(t).X, domain.name, owed)
        if by_feature is not None:
            return domain.components(by_feature * domain.rate(t[s]))
        stencil, inward = self._stencil(m, t)
        gradient = np.empty(domain.size)
        for j, unit in enumerate(np.eye(domain.size)):
            ends = [self._problem(self._shifted(m, t, d * inward * unit)) for d in stencil.places]
            gradient[j] = _along_gram(owed, stencil, ends)
        return gradient * inward

    def _by_differences(self, m: int, t: Array) -> Array:
        """Differences of the risk itself, where nothing better is known."""
        s, domain = self.space.slices[m], self.space.domains[m]
        gradient = np.zeros(domain.size)
        for j in range(domain.size):
            ends = self._ends(domain, t[s], j)
            values = []
            for end in ends.points:
                there = t.copy()
                there[s] = end
                values.append(self._judged(there, gradient=False).value)
                self.visited.pop()
            length = ends.step
            gradient[j] = (values[1] - values[0]) / length if np.isfinite(values).all() and length else 0.0
        return gradient

    def _ends(self, domain: Hyperparameter, own: Array, j: int) -> _Ends:
        """Two points of a difference along a component: of weights towards a vertex, which is what counts."""
        unit = np.eye(domain.size)[j]
        if not domain.is_box:
            return _Ends((own, own + PROBE * (unit - own)), PROBE)
        low, high = domain.ends
        step = PROBE * (high - low) * unit
        points = domain.project(own - step), domain.project(own + step)
        return _Ends(points, float(points[1][j] - points[0][j]))

    def _shifted(self, m: int, t: Array, step: Array) -> Array:
        there = t.copy()
        there[self.space.slices[m]] += step
        return there

    def _stencil(self, m: int, t: Array, *, fine: bool = False) -> tuple[Stencil, Array]:
        """Points of a difference and, for each component, the direction in which there is room for them.

        They are closer where the loss changes: it may bend in its own parameter, at as many points as rows.
        """
        domain, own = self.space.domains[m], t[self.space.slices[m]]
        low, high = domain.ends
        width = (FINE if fine else 1.0) * min(high - low, 1.0)
        central = gradients.stencil(width=width)
        if np.min(np.minimum(own - low, high - own)) >= float(np.max(central.places)):
            return central, np.ones(len(own))
        towards = np.where(own - low <= high - own, 1.0, -1.0)
        return gradients.stencil(below=0.0, width=width), towards


def _along_penalty(
    domain: Domain, parts: Sequence[Part], stencil: Stencil, penalties: Sequence[Penalty]
) -> Array:
    """⟨∂R/∂∇P, ∂_m ∇P⟩ + ⟨∂R/∂C, ∂_m C⟩ of all parts, by points along the hyperparameter."""
    total, first = np.zeros(domain.size), parts[0]
    kept = [penalty.scaled(first.share) for penalty in penalties]
    rate = gradients.relative_rate(kept, stencil, first.fit.problem.penalty)  # the same for all of them
    for part in parts:
        if rate is None:
            kept = [penalty.scaled(part.share) for penalty in penalties]
            change = gradients.tangent_change(kept, stencil, part.fit)
        else:
            change = gradients.stretched(part.fit, rate)
        if domain.groups is None:
            total += part.cotangent.along(change)
        else:
            total += domain.components(part.cotangent.by_coordinate(change))
    return total


def _along_gram(owed: Array, stencil: Stencil, problems: Sequence[Problem]) -> float:
    """⟨∂R/∂G, ∂_m G⟩ by points along the hyperparameter."""
    terms = (
        weight * float(np.vdot(owed, problem.X.gram))
        for weight, problem in zip(stencil.weights, problems, strict=True)
    )
    return sum(terms)


# --- ways down -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Descent:
    """Where a search went.

    Attributes
    ----------
    t : (m,) array
        The best point, and ``value`` the risk there.
    gradient : (m,) array
        Projected onto the bounds: zero at a minimum.
    points, values : lists
        Of every evaluation, in order.
    n_iter : int
    message : str
        Why it stopped.
    """

    t: Array
    value: float
    gradient: Array
    points: list[Array]
    values: list[float]
    n_iter: int
    message: str


Callback: TypeAlias = Callable[[dict[str, Any], float], Any]


@dataclass(frozen=True)
class Plan:
    """How to go down.

    Attributes
    ----------
    optimizer : "auto", "lbfgs", "projected", "adam" or "stochastic"
        L-BFGS-B takes bounds only: "auto" is "projected" where there are weights of a mixture.
    max_iter : int
    tol : float
        Largest component of the projected gradient, in the scale of the search, at which to stop.
    learning_rate : float
        Of ``adam`` and ``stochastic``, in the scale of the search.
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


def descend(objective: Objective, plan: Plan) -> Descent:
    """Minimise from each start, and keep the best.

    Raises
    ------
    ValueError
        If the risk is not finite anywhere it was looked at.
    """
    best: Descent | None = None
    try:
        for start in _starts(objective, plan):
            found = WAYS[plan.optimizer](objective, start, plan)
            if best is None or found.value < best.value:
                best = found
    except KeyboardInterrupt:
        if not objective.visited:
            raise
        t, value = min(objective.visited, key=lambda point: point[1])
        if best is None or value < best.value:
            best = Descent(t, value, np.full(len(t), np.nan), [], [], len(objective.visited), "interrupted")
    assert best is not None
    if not np.isfinite(best.value):
        raise ValueError(
            "the risk is not finite for any of the hyperparameters that were tried: move the bounds to "
            "stronger penalties, or look at the data"
        )
    points, values = zip(*objective.visited, strict=True)
    return replace(best, points=list(points), values=list(values))


def _starts(objective: Objective, plan: Plan) -> Sequence[Array]:
    """The one given, else the valleys of a coarse grid over one or two numbers, else the middle; then random.

    Beside the middle of a simplex stand its vertices: one loss of a mixture may hide what the others can do.
    """
    space = objective.space
    sides = np.concatenate([np.full(domain.size, domain.is_box) for domain in space.domains])
    if plan.start is not None:
        first = [plan.start]
    elif sides.sum() in COARSE or not space.is_box:
        first = _valleys(objective, np.flatnonzero(sides))
    else:
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
        values = np.array([objective.value(point) for point in own[::-1]])[::-1]
        least = minimum_filter(values.reshape(shape), size=3, mode="nearest").ravel() if m else values
        points.extend(own[values <= least])
        found.extend(values[values <= least])
    return [points[i] for i in np.argsort(found, kind="stable")[:MOST_VALLEYS]]


def _tell(objective: Objective, plan: Plan, t: Array, value: float) -> None:
    if plan.callback is not None:
        plan.callback(objective.space.values(t), value)


def _projected(objective: Objective, t: Array, gradient: Array) -> Array:
    """Minus the step of length one along minus the gradient that the bounds leave."""
    return t - objective.space.project(t - gradient)


def _suited(objective: Objective, start: Array, plan: Plan) -> Descent:
    """L-BFGS-B between bounds; on a simplex, which it does not know, projected gradient."""
    way = _lbfgs if objective.space.is_box else _projected_gradient
    return way(objective, start, plan)


class _NoProgressError(Exception):
    """The risk has not fallen for a while, in kinks that no line search settles."""


def _lbfgs(objective: Objective, start: Array, plan: Plan) -> Descent:
    seen: dict[bytes, tuple[float, Array]] = {}
    steps: list[Array] = []
    kinks = _has_kinks(objective)

    def evaluate(t: Array) -> tuple[float, Array]:
        value, gradient = objective.value_and_gradient(t)
        seen[t.tobytes()] = value, gradient
        _tell(objective, plan, t, value)
        known = [there for there, _ in seen.values() if np.isfinite(there)]
        if kinks and len(known) > PATIENCE and min(known[:-PATIENCE]) - min(known) <= IN_KINKS:
            raise _NoProgressError
        if np.isfinite(value):
            return value, gradient
        wall = 10.0 * max(map(abs, known), default=1.0)  # that the line search can interpolate from
        return wall, gradient

    try:
        message = minimize(
            evaluate,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=objective.space.bounds.T,
            callback=steps.append,
            options={"maxiter": plan.max_iter, "gtol": plan.tol, "ftol": 1e-10, "maxls": 10},
        ).message
    except _NoProgressError:
        message = IN_A_KINK
    t, (value, gradient) = min(
        ((np.frombuffer(key), there) for key, there in seen.items()), key=lambda item: item[1][0]
    )
    return Descent(t, value, _projected(objective, t, gradient), [], [], len(steps), str(message))


def _has_kinks(objective: Objective) -> bool:
    """Whether the risk has kinks all over: where rows come onto kinks of the loss, or of the yardstick."""
    if objective.judge.metric.has_kinks:
        return True
    return objective.problem_at(objective.space.values(objective.space.middle)).loss.is_kinked


def _projected_gradient(objective: Objective, start: Array, plan: Plan) -> Descent:
    """Barzilai–Borwein steps, projected onto what is allowed (Birgin, Martínez and Raydan 2000).

    A step has to be lower than the highest of the last few, not than the last one.
    """
    low, high = objective.space.bounds
    t, kinks = start, _has_kinks(objective)
    value, gradient = objective.value_and_gradient(t)
    length = 0.1 * float(np.max(high - low)) / max(float(np.abs(gradient).max()), np.finfo(float).tiny)
    message, done = "the limit of iterations was reached", 0
    best, values = (value, t, gradient), [value]
    for done in range(plan.max_iter):  # noqa: B007
        _tell(objective, plan, t, value)
        if np.abs(_projected(objective, t, gradient)).max() <= plan.tol:
            message = "the projected gradient is below tol"
            break
        if kinks and len(values) > PATIENCE and min(values[:-PATIENCE]) - best[0] <= IN_KINKS:
            message = IN_A_KINK
            break
        moved = _line_search(objective, t, max(values[-MEMORY:]), gradient, length)
        if moved is None:
            message = "no step along the projected gradient lowers the risk"
            break
        there, (value, gradient_there) = moved
        change, turn = there - t, gradient_there - gradient
        length = float(change @ change) / float(change @ turn) if change @ turn > 0 else 2.0 * length
        t, gradient = there, gradient_there
        values.append(value)
        best = min(best, (value, t, gradient), key=lambda point: point[0])
    value, t, gradient = best
    return Descent(t, value, _projected(objective, t, gradient), [], [], done, message)


def _line_search(
    objective: Objective, t: Array, value: float, gradient: Array, length: float
) -> tuple[Array, tuple[float, Array]] | None:
    """Shorten the step to the minimum of a parabola, by no less than a half and no more than nine tenths."""
    for _ in range(SHORTENINGS):
        there = objective.space.project(t - length * gradient)
        found, promised = objective.value_and_gradient(there), float(gradient @ (there - t))
        if found[0] <= value + DECREASE * promised:
            return there, found
        excess = found[0] - value - promised
        length *= float(np.clip(-0.5 * promised / excess, 0.1, 0.5)) if np.isfinite(excess) else 0.1
    return None


def _adam(objective: Objective, start: Array, plan: Plan) -> Descent:
    """Adam (Kingma and Ba 2015), projected onto the bounds."""
    t, first, second = start, np.zeros(len(start)), np.zeros(len(start))
    best = (np.inf, t, np.zeros(len(t)))
    message, done = "the limit of iterations was reached", 0
    for done in range(1, plan.max_iter + 1):
        value, gradient = objective.value_and_gradient(t)
        _tell(objective, plan, t, value)
        if value < best[0]:
            best = (value, t, _projected(objective, t, gradient))
        if np.abs(_projected(objective, t, gradient)).max() <= plan.tol:
            message = "the projected gradient is below tol"
            break
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        step = (first / (1.0 - 0.9**done)) / (np.sqrt(second / (1.0 - 0.999**done)) + 1e-12)
        t = objective.space.project(t - plan.learning_rate * step)
    return Descent(best[1], best[0], best[2], [], [], done, message)


def _stochastic(objective: Objective, start: Array, plan: Plan) -> Descent:
    """Algorithm 2 of Beirami et al. 2017: steps along the gradient of one row at a time, ever shorter."""
    judge = objective.judge
    if not isinstance(judge, LeaveOneOut):
        raise TypeError("optimizer='stochastic' takes one row at a time, and is for risk='loo'")
    t, n = start, len(judge.weights)
    try:
        for step in range(plan.max_iter):
            row = plan.seed.integers(n, size=1)
            objective.judge = replace(judge, exact=False, batch=row)
            value, gradient = objective.value_and_gradient(t)
            _tell(objective, plan, t, value)
            size = max(float(np.abs(gradient).max()), np.finfo(float).tiny)
            t = objective.space.project(t - plan.learning_rate / np.sqrt(1.0 + step) * gradient / size)
    finally:  # what is judged after an interruption is judged by all rows
        objective.judge = judge
    value, gradient = objective.value_and_gradient(t)
    message = "all steps were taken"
    return Descent(t, value, _projected(objective, t, gradient), [], [], plan.max_iter, message)


WAYS: dict[str, Callable[[Objective, Array, Plan], Descent]] = {
    "auto": _suited,
    "lbfgs": _lbfgs,
    "projected": _projected_gradient,
    "adam": _adam,
    "stochastic": _stochastic,
}
