"""Hyperparameters by gradient: a risk as a function of them, and ways down.

Each evaluation solves the problem to machine precision from the last solution, so that the gradient of
``hypergrad`` is exact at every step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from joblib import Parallel, delayed
from scipy.ndimage import minimum_filter
from scipy.optimize import minimize
from scipy.stats import qmc

from onefit import _linalg, hypergrad
from onefit._typing import Array, Index
from onefit.exceptions import SolverError
from onefit.hypergrad import Cotangent, Stencil
from onefit.penalties import Penalty, SeparablePenalty
from onefit.problem import Fit, Problem
from onefit.risk import one_fit
from onefit.risk.exact import exactly
from onefit.risk.folds import Folds
from onefit.risk.one_fit import LeftOut
from onefit.risk.paths import has_paths
from onefit.risk.response import Response, Value
from onefit.solvers.newton import Solution
from onefit.solvers.ridge_splits import RidgeSplits
from onefit.solvers.solve import solve

Optimizer: TypeAlias = Literal["auto", "lbfgs", "projected", "adam", "stochastic"]
Scale: TypeAlias = Literal["log", "linear"]

PROBE = 1e-4  # step of a central difference of the risk itself, relative to the width of the bounds
COARSE = {1: 9, 2: 5}  # points a side of the grid that one or two hyperparameters start from
MOST_VALLEYS = 3  # of that grid to start from
DECREASE = 1e-4  # share of the promised decrease that a projected step has to keep
HALVINGS = 30


# --- hyperparameters -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Domain:
    """Where one hyperparameter may be: a number, or one for each group of features.

    Attributes
    ----------
    name : str
    low, high : float
    scale : "log" or "linear"
        What the search takes steps in.
    groups : (p,) int array or None
        Component of each feature; None for a number.
    """

    name: str
    low: float
    high: float
    scale: Scale
    groups: Index | None = None

    @property
    def size(self) -> int:
        """Number of components."""
        return 1 if self.groups is None else int(self.groups.max()) + 1

    @property
    def ends(self) -> tuple[float, float]:
        """Bounds in the scale of the search."""
        return (
            (float(np.log(self.low)), float(np.log(self.high)))
            if self.scale == "log"
            else (self.low, self.high)
        )

    def value(self, t: Array) -> Any:
        """The hyperparameter as the model takes it: a float, or one number a feature."""
        values = np.clip(np.exp(t) if self.scale == "log" else t, self.low, self.high)
        return float(values[0]) if self.groups is None else values[self.groups]

    def components(self, by_feature: Array) -> Array:
        """Sum what features contribute to each component: (size,)."""
        assert self.groups is not None
        return np.bincount(self.groups, by_feature, self.size).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Space:
    """All hyperparameters of a search, one after the other in a vector t."""

    domains: tuple[Domain, ...]

    @property
    def bounds(self) -> Array:
        """Lower and upper bounds: (2, m)."""
        return np.repeat([domain.ends for domain in self.domains], [d.size for d in self.domains], axis=0).T

    @property
    def slices(self) -> list[slice]:
        """Where each hyperparameter is in t."""
        ends = np.cumsum([0, *(domain.size for domain in self.domains)]).tolist()
        return [slice(first, last) for first, last in pairwise(ends)]

    def values(self, t: Array) -> dict[str, Any]:
        """Hyperparameters by name."""
        return {domain.name: domain.value(t[s]) for domain, s in zip(self.domains, self.slices, strict=True)}


# --- risks -----------------------------------------------------------------------------------------


class Part(NamedTuple):
    """A fit that the risk depends on, by its cotangent, and the share of the penalty that it keeps."""

    fit: Fit
    cotangent: Cotangent
    share: float


class Judged(NamedTuple):
    """A risk, what it depends on, and the fits to go on from."""

    value: float
    parts: list[Part]
    fits: list[Fit]


class Judge(ABC):
    """How the hyperparameters are judged."""

    @abstractmethod
    def has_gradient(self, problem: Problem) -> bool:
        """Whether the cotangents are known for this problem; differences of the risk serve where not."""

    @abstractmethod
    def judge(self, problem: Problem, starts: list[Fit], *, gradient: bool) -> Judged:
        """Solve from earlier fits, or from the constant model where there are none."""


def _from(problem: Problem, start: Fit | None) -> Solution:
    return solve(problem.at_start() if start is None else Fit(problem, start.coef, start.level))


@dataclass(frozen=True, eq=False)
class LeaveOneOut(Judge):
    """Every row on its own.

    Smooth problems take one Newton step a row.  Where the penalty has kinks, rows whose pattern changes are
    taken from their refits, so that the risk does not jump with the pattern, and each has its own gradient.

    Attributes
    ----------
    response, target
        How left-out predictors are judged.
    weights : (n,) array
        Share of each row in the risk.
    exact : bool
        Whether the gradient is that of the risk, or eq. 16 of Beirami et al. 2017.
    batch : (b,) int array or None
        Rows that the gradient is estimated from (their Algorithm 2); None for all.
    """

    response: Response
    target: Array
    weights: Array
    exact: bool = True
    batch: Index | None = None

    def has_gradient(self, problem: Problem) -> bool:
        curved = problem.penalty.bends_with_subgradient
        return not (problem.loss.has_corners or curved or isinstance(problem.X, _linalg.RowGram))

    def judge(self, problem: Problem, starts: list[Fit], *, gradient: bool) -> Judged:
        solution = _from(problem, starts[0] if starts else None)
        fit, left_out = solution.fit, self._left_out(solution)
        value = self._risk(left_out.eta)
        if not gradient:
            return Judged(value, [], [fit])
        if self.exact:
            return Judged(value, self._parts(solution, left_out), [fit])
        cotangent = hypergrad.gradient_2017(fit, self._slopes, self.batch)
        if self.batch is not None:
            grown = len(self.weights) / len(self.batch)
            cotangent = Cotangent(grown * cotangent.gradient, grown * np.asarray(cotangent.hessian))
        return Judged(value, [Part(fit, cotangent, 1.0)], [fit])

    def _left_out(self, solution: Solution) -> LeftOut:
        if not self.has_gradient(solution.fit.problem):
            return one_fit.loo(*solution, thorough=False)
        if not solution.fit.is_kinked:
            return one_fit.one_step(*solution)
        left_out = one_fit.loo(*solution)
        return exactly(left_out) if has_paths(solution.fit) else left_out

    def _parts(self, solution: Solution, left_out: LeftOut) -> list[Part]:
        fit, solved, parts = solution.fit, left_out.refitted, []
        problem = fit.problem
        if len(solved) < problem.n:

            def of_the_others(step: LeftOut) -> Array:
                slopes = self._slopes(step)
                slopes[solved] = 0.0
                return slopes

            cotangent = hypergrad.leave_one_out(fit, of_the_others, solution.curvature)[1]
            parts.append(Part(fit, cotangent, 1.0))
        slopes = self._slopes(left_out)
        for i, one in left_out.solved.items():
            own = Fit(problem.without(i), one.coef, one.level)
            rows = np.array([i])
            parts.append(Part(own, hypergrad.held_out(own, rows, slopes[rows]), problem.kept_share(i)))
        return parts

    def _risk(self, eta: Array) -> float:
        return float(self.weights @ self.response.losses(self.target, eta))

    def _slopes(self, left_out: LeftOut) -> Array:
        return (self.response.slopes(self.target, left_out.eta).T * self.weights).T


@dataclass(frozen=True, eq=False)
class HeldOut(Judge):
    """Sets of rows that are held out in turn: K folds, Monte-Carlo splits, or one set (Wang et al. 2019).

    Attributes
    ----------
    folds : Folds
    response, target, weights
        As for ``LeaveOneOut``; the risk is the weighted mean over all tested rows.
    n_jobs : int or None
        As in joblib.
    """

    folds: Folds
    response: Response
    target: Array
    weights: Array
    n_jobs: int | None = None
    shared: list[RidgeSplits | None] = field(default_factory=list)

    def has_gradient(self, problem: Problem) -> bool:
        return True

    def judge(self, problem: Problem, starts: list[Fit], *, gradient: bool) -> Judged:
        total, shared = float(self.weights[self.folds.rows].sum()), self._shared(problem)
        tasks = (
            delayed(self._one)(problem, k, starts[k] if starts else None, gradient, total, shared)
            for k in range(len(self.folds))
        )
        found = Parallel(n_jobs=None if shared is not None else self.n_jobs)(tasks)
        parts = [part for _, part, _ in found if part is not None]
        return Judged(float(sum(value for value, _, _ in found)), parts, [fit for _, _, fit in found])

    def _one(
        self,
        problem: Problem,
        k: int,
        start: Fit | None,
        gradient: bool,
        total: float,
        shared: RidgeSplits | None,
    ) -> tuple[float, Part | None, Fit]:
        removed, tested = self.folds.removed[k], self.folds.tested[k]
        known = None if shared is None else shared.without(problem, removed)
        fit, curvature = _from(problem.without(removed), start) if known is None else known
        y, eta, weights = self.target[tested], fit.eta[tested], self.weights[tested] / total
        value = float(weights @ self.response.losses(y, eta))
        if not gradient:
            return value, None, fit
        by_row = (self.response.slopes(y, eta).T * weights).T
        cotangent = hypergrad.held_out(fit, tested, by_row, curvature)
        return value, Part(fit, cotangent, problem.kept_share(removed)), fit

    def _shared(self, problem: Problem) -> RidgeSplits | None:
        """What ridge regressions on all training sets share, summed once."""
        if not self.shared:
            self.shared.append(RidgeSplits.of(problem))
        known = self.shared[0]
        return known if known is not None and known.serves(problem) else None


@dataclass(frozen=True, eq=False)
class Generalised(Judge):
    """GCV: training loss / (1 − df/n)²."""

    response: Response
    target: Array
    weights: Array

    def has_gradient(self, problem: Problem) -> bool:
        kernel = isinstance(problem.X, _linalg.RowGram)
        curved = problem.loss.has_corners or problem.penalty.bends_with_subgradient
        return not (kernel or curved or problem.at_start().coef.ndim == 2)

    def judge(self, problem: Problem, starts: list[Fit], *, gradient: bool) -> Judged:
        fit, curvature = _from(problem, starts[0] if starts else None)
        n = int(np.count_nonzero(problem.weights))
        if self.has_gradient(problem):
            df = float(np.sum(fit.bend * curvature.quadratic_forms()))
        else:  # corners of the loss and several outputs have degrees of freedom of their own
            df = one_fit.loo(fit, thorough=False).effective_df
        slack = 1.0 - df / n
        training = float(self.weights @ self.response.losses(self.target, fit.eta))
        value = training / slack**2 if slack > 0 else np.inf
        if not gradient or slack <= 0:
            return Judged(value, [], [fit])
        by_eta = self.weights * self.response.slopes(self.target, fit.eta) / slack**2
        owed = 2.0 * training / (n * slack**3)
        cotangent = hypergrad.degrees_of_freedom(fit, curvature, owed, by_eta)
        return Judged(value, [Part(fit, cotangent, 1.0)], [fit])


@dataclass(frozen=True, eq=False)
class Permuted(Judge):
    """The criterion of Lounici, Meziani and Riu (2020, eq. 5), for any loss: see ``risk.Permutation``.

    Attributes
    ----------
    orders : (T + 1, n) int array
        The rows as they are, and permuted.
    """

    response: Response
    target: Array
    weights: Array
    orders: Index

    def has_gradient(self, problem: Problem) -> bool:
        return not isinstance(problem.X, _linalg.RowGram)

    def judge(self, problem: Problem, starts: list[Fit], *, gradient: bool) -> Judged:
        value, parts, fits = 0.0, [], []
        for t, order in enumerate(self.orders):
            own = replace(problem, y=problem.y[order])
            fit, curvature = _from(own, starts[t] if starts else None)
            share, by_row = self._explained(fit, order)
            # the response is to be fitted; of a permuted one nothing is to be explained
            sign = 1.0 if t == 0 else float(np.sign(share - 1.0)) / (len(self.orders) - 1)
            value += share if t == 0 else abs(1.0 - share) / (len(self.orders) - 1)
            fits.append(fit)
            if gradient:
                v = hypergrad.of_rows(fit, sign * by_row)
                parts.append(Part(fit, hypergrad.implicit(curvature, v).cotangent, 1.0))
        return Judged(value, parts, fits)

    def _explained(self, fit: Fit, order: Index) -> tuple[float, Array]:
        """L/L₀ of a fit, or its root for squared error, and the slope in the linear predictors."""
        target = self.target[order]
        loss = float(self.weights @ self.response.losses(target, fit.eta))
        null = float(self.weights @ self.response.losses(target, fit.problem.at_start().eta))
        slopes = (self.response.slopes(target, fit.eta).T * self.weights).T
        if not null > 0:
            return 1.0, 0.0 * slopes
        if not isinstance(self.response, Value):
            return loss / null, slopes / null
        root = max(float(np.sqrt(loss / null)), np.finfo(float).tiny)
        return root, slopes / (2.0 * root * null)


# --- the risk as a function ------------------------------------------------------------------------


@dataclass(eq=False)
class Objective:
    """A risk and its gradient in the hyperparameters.

    Attributes
    ----------
    space : Space
    problem_at : callable
        The problem for hyperparameters by name.
    judge : Judge
    """

    space: Space
    problem_at: Callable[[dict[str, Any]], Problem]
    judge: Judge
    fits: list[Fit] = field(default_factory=list)
    exact: dict[int, bool] = field(default_factory=dict)
    visited: list[tuple[Array, float]] = field(default_factory=list)

    def value(self, t: Array) -> float:
        """The risk; infinite where there is none."""
        return self._judged(t, gradient=False).value

    def value_and_gradient(self, t: Array) -> tuple[float, Array]:
        """The risk and its gradient in t, which is zero where the risk is infinite."""
        for m in range(len(self.space.domains)):
            if m not in self.exact:
                self.exact[m] = self._is_exact(m, t)
        judged = self._judged(t, gradient=any(self.exact.values()))
        gradient = np.zeros(len(t))
        if not np.isfinite(judged.value):
            return judged.value, gradient
        for m, s in enumerate(self.space.slices):
            gradient[s] = self._exact(m, t, judged.parts) if self.exact[m] else self._by_differences(m, t)
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

    def _is_exact(self, m: int, t: Array) -> bool:
        """Whether this hyperparameter changes nothing but the penalty, and the risk answers to that."""
        domain = self.space.domains[m]
        here = self.problem_at(self.space.values(t))
        if not self.judge.has_gradient(here):
            return False
        if domain.groups is not None and not isinstance(here.penalty, SeparablePenalty):
            raise ValueError(
                f"{domain.name} has one value a feature, which {type(here.penalty).__name__} does not take: "
                "give it a pair of numbers"
            )
        points, inward = self._stencil(m, t)
        there = self.problem_at(self.space.values(self._shifted(m, t, points.places[-1] * inward)))
        return (
            _linalg.is_same(here.X, there.X)
            and there.loss == here.loss
            and np.array_equal(there.weights, here.weights)
        )

    def _exact(self, m: int, t: Array, parts: list[Part]) -> Array:
        domain, (stencil, inward) = self.space.domains[m], self._stencil(m, t)
        penalties = [
            self.problem_at(self.space.values(self._shifted(m, t, d * inward))).penalty
            for d in stencil.places
        ]
        total = np.zeros(domain.size)
        for part in parts:
            kept: list[Penalty] = [penalty.scaled(part.share) for penalty in penalties]
            change = hypergrad.tangent_change(kept, stencil, part.fit)
            if domain.groups is None:
                total += part.cotangent.along(change)
            else:
                total += domain.components(part.cotangent.by_coordinate(change))
        return total * inward

    def _by_differences(self, m: int, t: Array) -> Array:
        """Central differences of the risk itself: for kernels, corners of the loss, and the like."""
        s = self.space.slices[m]
        low, high = self.space.bounds[:, s]
        gradient = np.zeros(s.stop - s.start)
        for j in range(len(gradient)):
            step = PROBE * (high[j] - low[j])
            ends = np.clip([t[s][j] - step, t[s][j] + step], low[j], high[j])
            values = []
            for end in ends:
                there = t.copy()
                there[s.start + j] = end
                values.append(self._judged(there, gradient=False).value)
                self.visited.pop()
            gradient[j] = (values[1] - values[0]) / (ends[1] - ends[0]) if np.isfinite(values).all() else 0.0
        return gradient

    def _shifted(self, m: int, t: Array, step: Array) -> Array:
        there = t.copy()
        there[self.space.slices[m]] += step
        return there

    def _stencil(self, m: int, t: Array) -> tuple[Stencil, Array]:
        """Points of a difference and, for each component, the direction in which there is room for them."""
        domain, own = self.space.domains[m], t[self.space.slices[m]]
        low, high = domain.ends
        central = hypergrad.stencil(width=high - low)
        if np.min(np.minimum(own - low, high - own)) >= float(np.max(central.places)):
            return central, np.ones(len(own))
        towards = np.where(own - low <= high - own, 1.0, -1.0)
        return hypergrad.stencil(below=0.0, width=high - low), towards


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
    optimizer : "lbfgs", "projected", "adam" or "stochastic"
    max_iter : int
    tol : float
        Largest component of the projected gradient, in the scale of the search, at which to stop.
    learning_rate : float
        Of ``adam`` and ``stochastic``, in the scale of the search.
    n_starts : int
    seed : Generator
    callback : callable or None
        Called with the hyperparameters and the risk after each evaluation of the gradient.
    """

    optimizer: Optimizer
    max_iter: int
    tol: float
    learning_rate: float
    n_starts: int
    seed: np.random.Generator
    callback: Callback | None = None


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
    """The valleys of a coarse grid over one or two numbers, else the middle; then random ones."""
    low, high = objective.space.bounds
    m = len(low)
    first = _valleys(objective) if m in COARSE else [0.5 * (low + high)]
    if plan.n_starts == 1:
        return first
    spread = qmc.LatinHypercube(m, rng=plan.seed).random(plan.n_starts - 1)
    return [*first, *(low + spread * (high - low))]


def _valleys(objective: Objective) -> list[Array]:
    """Points of a coarse grid that are as low as their neighbours, lowest first."""
    low, high = objective.space.bounds
    m = len(low)
    side = (np.arange(COARSE[m]) + 0.5) / COARSE[m]
    grid = np.stack(np.meshgrid(*[side] * m, indexing="ij"), axis=-1).reshape(-1, m)
    points = low + grid * (high - low)
    values = np.array([objective.value(point) for point in points[::-1]])[::-1]
    least = minimum_filter(values.reshape([COARSE[m]] * m), size=3, mode="nearest").ravel()
    found = np.flatnonzero(values <= least)
    return [points[i] for i in found[np.argsort(values[found], kind="stable")][:MOST_VALLEYS]]


def _tell(objective: Objective, plan: Plan, t: Array, value: float) -> None:
    if plan.callback is not None:
        plan.callback(objective.space.values(t), value)


def _projected(objective: Objective, t: Array, gradient: Array) -> Array:
    """Minus the step of length one along minus the gradient that the bounds leave."""
    low, high = objective.space.bounds
    return t - np.clip(t - gradient, low, high)


def _lbfgs(objective: Objective, start: Array, plan: Plan) -> Descent:
    seen: dict[bytes, tuple[float, Array]] = {}

    def evaluate(t: Array) -> tuple[float, Array]:
        value, gradient = objective.value_and_gradient(t)
        seen[t.tobytes()] = value, gradient
        _tell(objective, plan, t, value)
        if np.isfinite(value):
            return value, gradient
        known = [abs(there) for there, _ in seen.values() if np.isfinite(there)]
        return 10.0 * max(known, default=1.0), gradient  # a wall that the line search can interpolate from

    found = minimize(
        evaluate,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=objective.space.bounds.T,
        options={"maxiter": plan.max_iter, "gtol": plan.tol, "ftol": 1e-10, "maxls": 10},
    )
    t, (value, gradient) = min(
        ((np.frombuffer(key), there) for key, there in seen.items()), key=lambda item: item[1][0]
    )
    return Descent(t, value, _projected(objective, t, gradient), [], [], int(found.nit), str(found.message))


def _projected_gradient(objective: Objective, start: Array, plan: Plan) -> Descent:
    """Barzilai–Borwein steps, projected onto the bounds, with a line search."""
    low, high = objective.space.bounds
    t = start
    value, gradient = objective.value_and_gradient(t)
    length = 0.1 * float(np.max(high - low)) / max(float(np.abs(gradient).max()), np.finfo(float).tiny)
    message, done = "the limit of iterations was reached", 0
    for done in range(plan.max_iter):  # noqa: B007
        _tell(objective, plan, t, value)
        if np.abs(_projected(objective, t, gradient)).max() <= plan.tol:
            message = "the projected gradient is below tol"
            break
        moved = _line_search(objective, t, value, gradient, length)
        if moved is None:
            message = "no step along the projected gradient lowers the risk"
            break
        there, (value_there, gradient_there) = moved
        change, turn = there - t, gradient_there - gradient
        length = float(change @ change) / float(change @ turn) if change @ turn > 0 else 2.0 * length
        t, value, gradient = there, value_there, gradient_there
    return Descent(t, value, _projected(objective, t, gradient), [], [], done, message)


def _line_search(
    objective: Objective, t: Array, value: float, gradient: Array, length: float
) -> tuple[Array, tuple[float, Array]] | None:
    low, high = objective.space.bounds
    for _ in range(HALVINGS):
        there = np.clip(t - length * gradient, low, high)
        found = objective.value_and_gradient(there)
        if found[0] <= value + DECREASE * float(gradient @ (there - t)):
            return there, found
        length *= 0.5
    return None


def _adam(objective: Objective, start: Array, plan: Plan) -> Descent:
    """Adam (Kingma and Ba 2015), projected onto the bounds."""
    low, high = objective.space.bounds
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
        t = np.clip(t - plan.learning_rate * step, low, high)
    return Descent(best[1], best[0], best[2], [], [], done, message)


def _stochastic(objective: Objective, start: Array, plan: Plan) -> Descent:
    """Algorithm 2 of Beirami et al. 2017: steps along the gradient of one row at a time, ever shorter."""
    judge = objective.judge
    if not isinstance(judge, LeaveOneOut):
        raise TypeError("optimizer='stochastic' takes one row at a time, and is for risk='loo'")
    low, high = objective.space.bounds
    t, n = start, len(judge.weights)
    try:
        for step in range(plan.max_iter):
            row = plan.seed.integers(n, size=1)
            objective.judge = replace(judge, exact=False, batch=row)
            value, gradient = objective.value_and_gradient(t)
            _tell(objective, plan, t, value)
            size = max(float(np.abs(gradient).max()), np.finfo(float).tiny)
            t = np.clip(t - plan.learning_rate / np.sqrt(1.0 + step) * gradient / size, low, high)
    finally:  # what is judged after an interruption is judged by all rows
        objective.judge = judge
    value, gradient = objective.value_and_gradient(t)
    message = "all steps were taken"
    return Descent(t, value, _projected(objective, t, gradient), [], [], plan.max_iter, message)


WAYS: dict[str, Callable[[Objective, Array, Plan], Descent]] = {
    "auto": _lbfgs,
    "lbfgs": _lbfgs,
    "projected": _projected_gradient,
    "adam": _adam,
    "stochastic": _stochastic,
}
