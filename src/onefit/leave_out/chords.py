"""Steps towards refits without sets of rows, all sets at once.

The problem without fold k is solved on the smooth piece of the fit,

    θ ← θ − K_k⁻¹ (Zᵀ W_k ℓ′(Zθ) + share_k ∇P(β)),

with the folds as columns, so that a step costs a few products with X for all of them together.  The
gradient is that of the refit itself, its weights and the strength of its penalty: with any K_k the
iteration can only settle on the refit with the same active pattern, and that the pattern stays is read
from the last gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from onefit import _linalg, cost
from onefit._typing import Array, Index, Mask, Sets
from onefit.cost import Work
from onefit.curvature import Curvature, Direction, Iterated, Products, factor
from onefit.curvature.base import IN_CACHE
from onefit.curvature.iterated import product_cost
from onefit.fit import Fit
from onefit.leave_out.prove import concordance
from onefit.leave_out.vertex import held_up_to
from onefit.numerics import TINY
from onefit.penalties import SeparablePenalty
from onefit.penalties.programs import Coordinatewise
from onefit.problem import Problem, some_sets
from onefit.solvers.stationary import holds_strictly, sizes_of_gradients

SETTLED, SETTLED_QUADRATIC = 1e-9, 1e-10  # last change of η, relative to the size of Newton steps in a row
MAX_STEPS = 60  # with one factor
USUAL_STEPS = 8.0  # in which a set settles
TOGETHER = 30  # sets that a sample solves together
USUAL_PASSES = 4.0  # in which it settles where each is bounded at once
END = 3.0  # products with X that tell the coefficients where steps ended, and bound what is left
CLOSELY = 1e-2  # error of a step that is solved by products, relative: the next one removes it
STANDS = 1e-6  # share of the slopes of all rows by which correlations may still move while patterns stay


def chord_cost(fit: Fit, largest: int = 1) -> Work:
    """What a set of so many rows takes, about, until its steps settle."""
    problem, k, outputs = fit.problem, max(1, fit.tangent.size), fit.problem.n_outputs
    if goes_by_coefficients(fit) and largest <= k:
        stored = _linalg.as_columns(problem.X).n_stored
        return cost.passes(problem.n, stored, k, outputs).times(USUAL_PASSES)
    factors = 1 if problem.is_coupled else outputs
    anew = cost.newton_step(problem.n, k, k).seconds / cost.PER_FLOP if largest > k else 0.0
    stored = _linalg.as_columns(problem.X).n_stored if _linalg.has_columns(problem.X) else problem.n**2
    step = cost.steps(problem.n, stored, min(k // factors, problem.n), outputs)
    ended = END * stored * outputs
    return step.times(USUAL_STEPS)._replace(flops=USUAL_STEPS * step.flops + ended + anew)


def goes_by_coefficients(fit: Fit) -> bool:
    """Whether steps and their bounds are told by coefficients that are fewer than rows.

    Of a single output of few rows, all whose predictors stay in the cache, steps in the rows are fewer calls.
    """
    problem = fit.problem
    tall = _linalg.has_columns(problem.X) and problem.X.shape[1] < problem.n
    large = problem.is_coupled or (problem.has_one_output and TOGETHER * problem.n > IN_CACHE)
    return tall and large and bool(concordance(fit))


def chord_by_products(fit: Fit, estimate: Iterated) -> Work:
    """What a row takes by repeated steps of conjugate gradients, about."""
    return product_cost(fit).times(USUAL_STEPS * estimate.usual_products)


class Point(NamedTuple):
    """Parameters and linear predictors of several folds, along the last axis."""

    coef: Array
    intercept: Array
    eta: Array

    def back(self, steps: Iterable[Array]) -> Point:
        """Return the point from which these steps lead here."""
        return Point(*(part - step for part, step in zip(self, steps, strict=True)))


class End(NamedTuple):
    """Where the steps came to."""

    point: Point
    settled: Mask


@dataclass(frozen=True, eq=False)
class FoldProblems:
    """The problems without each of some folds, in the coordinates of the fit.

    Attributes
    ----------
    fit : Fit
    base : Curvature
        That of the fit; only its products with X are used.
    removed : Sets
        The rows that leave in each.
    keeps : (f,) array
        Factor on the penalty of each.
    weights : (n, f) array
    """

    fit: Fit
    base: Curvature
    removed: Sets
    keeps: Array
    weights: Array

    @classmethod
    def without(cls, fit: Fit, base: Curvature, removed: Sets) -> FoldProblems:
        """Return the problems without each of some sets of rows."""
        return cls(fit, base, removed, fit.problem.kept_shares(removed), fit.problem.weights_without(removed))

    def of(self, which: Index) -> FoldProblems:
        """Some of them."""
        removed = some_sets(self.removed, which)
        return FoldProblems(self.fit, self.base, removed, self.keeps[which], self.weights[:, which])

    @property
    def problems(self) -> Iterator[Problem]:
        """What each of them minimises."""
        return (self.fit.problem.without(rows) for rows in self.removed)

    def at_fit(self) -> Point:
        """Each of them at the parameters of the fit."""
        f = len(self.removed)
        values = (self.fit.coef, self.fit.intercept, self.fit.eta)
        return Point(*(np.repeat(np.asarray(value)[..., None], f, axis=-1) for value in values))

    def at(self, ends: Sequence[Direction]) -> Point:
        """Each of them at other parameters."""
        fit = self.fit
        coef, level = (np.stack(parts, axis=-1) for parts in zip(*ends, strict=True))
        moved = Direction(coef - fit.coef[..., None], level - fit.intercept[..., None])
        return Point(coef, level, fit.eta[..., None] + self.base.predict(moved))

    def started(self) -> Point:
        """Each of them after a Newton step, if K⁻¹ z of the rows that leave is at hand; else at the fit."""
        fit, base, point = self.fit, self.base, self.at_fit()
        rows, each = np.asarray([removed[0] for removed in self.removed]), np.arange(len(self.removed))
        known = base.answers if isinstance(base, Iterated) and fit.problem.refits_keep_the_rest else {}
        if not all(k in known for k in rows.tolist()):
            return point
        assert isinstance(base, Iterated)
        response = base.answers_of(rows)
        moved = base.predict(response)
        lengths = fit.gradient[rows] / (1.0 - fit.hessian[rows] * moved[rows, each])
        parts = zip(point, (*response, moved), strict=True)
        return Point(*(part + lengths * own for part, own in parts))

    def at_zero(self) -> Point:
        """From here the step of least squares is the solution of minimum norm."""
        return Point(*(np.zeros_like(part) for part in self.at_fit()))

    @cached_property
    def tol(self) -> float:
        """Change of η that is none: relative to ‖g‖/‖D‖, which has the units of η."""
        fit = self.fit
        with np.errstate(over="ignore"):  # of fits that are nothing but straight
            unit = np.linalg.norm(fit.gradient) / max(float(np.linalg.norm(fit.hessian)), TINY)
        relative = SETTLED_QUADRATIC if fit.problem.loss.is_quadratic else SETTLED
        return float(relative * unit + 1e-11 * np.max(np.abs(fit.eta), initial=0.0))

    def slope(self, eta: Array) -> Array:
        """Derivatives w ℓ′(η) with the weights of each refit, of the shape of ``eta``."""
        slope = self.fit.problem.loss_at("gradient", eta)
        weights = _linalg.with_axes(self.weights, eta, last=1)
        return np.where(weights > 0, slope, 0.0) * weights  # of rows that left it may be infinite

    def bending(self, eta: Array, way: Array) -> Array:
        """Second derivative of each loss along a way of the linear predictors: (f,)."""
        bend = self.fit.problem.loss_at("hessian", eta)
        bent = np.einsum("iab...,ib...->ia...", bend, way) if bend.ndim > way.ndim else bend * way
        across = np.sum(bent * way, axis=tuple(range(1, way.ndim - 1)))
        return np.sum(self.weights * np.where(self.weights > 0, across, 0.0), axis=0)

    def gradient(self, point: Point) -> Direction:
        """Gradient of each objective, and of the loss alone off the tangent."""
        problem = self.fit.problem
        coef, level = problem.of_losses(*problem.gradient_of(self.slope(point.eta)))
        return Direction(coef + self.penalty_gradient(point.coef), level)

    def penalty_gradient(self, coef: Array) -> Array:
        """Gradient of each penalty at coefficients on the piece of the fit."""
        tangent = self.fit.tangent
        return self.keeps * (tangent.gradient[..., None] + tangent.curve(coef - self.fit.coef[..., None]))

    def objective(self, point: Point) -> Array:
        """Objective on the smooth piece, less the penalty of the fit: (f,)."""
        problem, tangent = self.fit.problem, self.fit.tangent
        losses = problem.loss_at("value", point.eta)
        losses = losses.reshape(problem.n, -1, losses.shape[-1]).sum(axis=1)
        losses = self.weights * np.where(
            self.weights > 0, losses, 0.0
        )  # of rows that left it may be infinite
        moved = point.coef - self.fit.coef[..., None]
        along = tangent.gradient[..., None] + 0.5 * tangent.curve(moved)
        return losses.sum(axis=0) + self.keeps * _linalg.pairings(problem.X, along, moved)

    def descended(self, point: Point) -> Mask:
        """Whether the objective is no higher than at the fit, as it must be at a minimum: (f,)."""
        if self.fit.problem.loss.is_quadratic:
            return np.ones(len(self.removed), dtype=bool)
        problem = self.fit.problem
        losses = problem.loss.value(problem.y, self.fit.eta).reshape(problem.n, -1).sum(axis=1)
        start = np.where(problem.weights > 0, losses, 0.0) @ self.weights
        return self.objective(point) <= start + 1e-9 * np.abs(start)

    def pattern_stays(self, point: Point, drift: Array | None = None) -> Mask:
        """Whether signs and correlations are those of the fit's pattern: (f,).

        ``drift`` is how far the correlation of a column of norm 1 in D may still move.
        """
        fit = self.fit
        if not fit.is_kinked:
            return np.ones(len(self.removed), dtype=bool)
        if not isinstance(fit.problem.penalty, SeparablePenalty):
            if drift is not None and isinstance(fit.problem.penalty.without_ridge(), Coordinatewise):
                return self._coordinates_hold(point, drift)
            settled = True if drift is None else drift <= STANDS * np.linalg.norm(fit.gradient)
            return self._penalty_holds(point) & settled
        l1, l2 = fit.strengths
        support = fit.tangent.support
        kinked = support & (l1 > 0)
        signs = np.sign(point.coef[kinked]) == np.sign(fit.coef[kinked])[:, None]
        off = ~support & np.isfinite(l1) & np.isfinite(l2)
        room = (l1 * self._held_up_to)[off][:, None] * self.keeps
        correlations = np.abs(self.gradient(point).coef[off])
        if drift is not None:
            known = np.isfinite(drift)
            room = room * np.where(known, 1.0, -1.0)  # where nothing is known, nothing fits
            correlations = correlations + np.multiply.outer(self._norms[off], np.where(known, drift, 0.0))
        return np.all(signs, axis=0) & np.all(correlations <= room, axis=0)

    @cached_property
    def _held_up_to(self) -> Array:
        return held_up_to(self.fit)

    @cached_property
    def _norms(self) -> Array:
        """‖D^½ x_j‖ of each column, for each output: the shape of the coefficients."""
        fit = self.fit
        bend = _linalg.row_diagonals(fit.hessian)
        X, bends = fit.problem.X, bend.reshape(len(bend), -1).T
        norms = [_linalg.column_norms(X, np.maximum(d, 0.0), centred=False) for d in bends]
        return np.stack(norms, axis=1).reshape(fit.coef.shape)

    def _penalty_holds(self, point: Point) -> Mask:
        """Whether minus the gradient of the loss is a subgradient of the penalty at the point: (f,)."""
        gradient, size = self._loss_gradient(point)
        stays = self.fit.problem.penalty.is_stationary(point.coef, gradient, size=size)
        return stays & holds_strictly(self.fit, point.coef, gradient, size)

    def _coordinates_hold(self, point: Point, drift: Array) -> Mask:
        """The same of a sum over coefficients: free ones end stationary, others may drift until then: (f,).

        Subgradients of such a sum are the points of a box: both ends of a correlation tell what is between.
        """
        fit, known = self.fit, np.isfinite(drift)
        gradient, size = self._loss_gradient(point)
        own = self.penalty_gradient(point.coef) / self.keeps
        off = ~fit.tangent.support[:, None]
        room = np.where(off, np.multiply.outer(self._norms, np.where(known, drift, 0.0) / self.keeps), 0.0)
        ends = [np.where(off, gradient + side * room, -own) for side in (-1.0, 1.0)]
        stays = known & holds_strictly(fit, point.coef, np.where(off, gradient, -own), size)
        for end in ends:
            stays &= fit.problem.penalty.is_stationary(point.coef, end, size=size)
        return stays

    def _loss_gradient(self, point: Point) -> tuple[Array, Array]:
        """Gradient of the loss of each problem, beside a penalty that keeps all of its strength; its size."""
        problem, slope = self.fit.problem, self.slope(point.eta)
        gradient = _linalg.transposed_times(problem.X, slope) / self.keeps
        return gradient, sizes_of_gradients(problem, gradient, np.linalg.norm(slope, axis=0) / self.keeps)


Solve: TypeAlias = Callable[[Direction], Direction]


class LeftOutCurvature(Protocol):
    """A, the curvature without each of some folds."""

    def solve(self, gradient: Direction) -> Direction:
        """A⁻¹ times a gradient of each fold."""

    def squares(self, gradient: Direction) -> Array:
        """gᵀ A⁻¹ g of each fold: (f,)."""


@dataclass(frozen=True, eq=False)
class ByProducts:
    """The curvature without each fold, of which only products are taken.

    Attributes
    ----------
    products : Products
    roughly : callable or None
        About A⁻¹ times a gradient of each fold, where that is at hand; conjugate gradients where it is not.
    """

    products: Products
    roughly: Solve | None = None

    @classmethod
    def of(cls, refits: FoldProblems, roughly: Solve | None = None) -> ByProducts:
        """At the fit, with the weights and the penalty of each refit."""
        fit, held = refits.fit, refits.fit.problem.weights > 0
        bends = np.divide(fit.hessian, fit.problem.weights, out=np.zeros_like(fit.hessian), where=held)
        return cls(Products(fit, bends[:, None] * refits.weights, refits.keeps), roughly)

    def solve(self, gradient: Direction) -> Direction:
        if self.roughly is not None:
            return self.roughly(gradient)
        return self.products.approached(gradient, CLOSELY)[0]  # steps that lead nowhere are not taken

    def squares(self, gradient: Direction) -> Array:
        if self.roughly is None:
            return self.products.squares_at_most(gradient)
        return self.products.squares(gradient, self.solve(gradient))


@dataclass(frozen=True, eq=False)
class FactoredAnew:
    """The curvature without each fold, factored."""

    problem: Problem
    curvatures: Sequence[Curvature]

    @classmethod
    def at(cls, refits: FoldProblems, point: Point) -> FactoredAnew:
        curvatures = []
        for j, problem in enumerate(refits.problems):
            coef, level, eta = (part[..., j] for part in point)
            fit = Fit(problem, coef, level).known(eta=eta)
            curvatures.append(factor(fit, refits.fit.tangent, float(refits.keeps[j])))
        return cls(refits.fit.problem, curvatures)

    def solve(self, gradient: Direction) -> Direction:
        each = [
            K.solve(Direction(gradient.coef[..., j], gradient.intercept[..., j]))
            for j, K in enumerate(self.curvatures)
        ]
        return Direction(*(np.stack(parts, axis=-1) for parts in zip(*each, strict=True)))

    def squares(self, gradient: Direction) -> Array:
        return squares(self.problem, gradient, self.solve(gradient))


def squares(problem: Problem, gradient: Direction, step: Direction) -> Array:
    """gᵀ A⁻¹ g of each fold, with the step A⁻¹ g at hand: (f,)."""
    gradient, step = gradient.as_gradient_at_centre(problem), step.at_centre(problem)
    levels = gradient.intercept * step.intercept
    along = _linalg.pairings(problem.X, gradient.coef, step.coef)
    return np.asarray(along + levels.reshape(-1, levels.shape[-1]).sum(axis=0))


def repeat_steps(refits: FoldProblems, solve: Solve, point: Point, max_steps: int, tol: float = 1.0) -> End:
    """Steps with the same factors, until those that are to come become small, or steps no longer shrink.

    ``tol`` says how much longer these may be than at full precision.
    """
    moving = np.ones(len(refits.removed), dtype=bool)
    settled = np.zeros_like(moving)
    last = np.full(len(moving), np.inf)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for _ in range(max_steps):
            step = solve(refits.gradient(point))
            change = refits.base.predict(step)
            moved = _largest(change)
            moving &= moved < 0.9 * last  # false, too, where it is not finite
            point = point.back(np.where(moving, part, 0.0) for part in (*step, change))
            to_come = np.where(moving & np.isfinite(last), moved / (last / moved - 1.0), moved)
            settled |= to_come <= tol * refits.tol
            last = moved
            if np.all(settled | ~moving):
                break
        settled &= refits.descended(point)
    return End(point, settled)


def _largest(change: Array) -> Array:
    """Largest change of a linear predictor of each fold: (f,)."""
    return np.asarray(np.abs(change).reshape(-1, change.shape[-1]).max(axis=0))
