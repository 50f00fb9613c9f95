"""The loss and the penalty of a program around its solution, by differences.

* g, the slope of each row, is the derivative of L, on its kinks minus the dual variable of u = X β + b;
* d, its second derivative, is a difference of the derivative of L;
* the tangent of P and its curvature come from the proximal operator of P without its quadratic terms.  On the
  tangent its Jacobian at β − t ∇ is (I + t C)⁻¹, and off it zero (Wang et al. 2018, section 3, read
  backwards), so its eigenvectors of eigenvalue λ > 0 span the tangent, with the curvature (1/λ − 1)/t.

Refits solve the same program with the linear predictor of the row held where it is, which makes its loss a
constant.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from onefit._typing import Array, Design, Index, Mask
from onefit.convex_program.program import SplitProgram
from onefit.convex_program.splitting import shown
from onefit.curvature import Curvature, Direction, Wrapped, factor
from onefit.fit import Fit
from onefit.losses import Loss
from onefit.penalties import Penalty
from onefit.pieces import Pieces, Subspace
from onefit.problem import Problem
from onefit.solvers.newton import Solution
from onefit.solvers.solve import SelfSolved

STEP = 1e-5  # of a difference quotient of the loss, relative to the spread of the linear predictors
NEAR = 1e-6  # the same on both sides of a kink
NOTHING = 1e-9  # of the linear predictors, from a coefficient that a solver means to be zero
ALIKE = 1e-6  # relative difference of two slopes that is none
PROBES = (-2.0, -0.5, 0.5, 2.0)  # where the shape of the loss is looked at, in spreads of the predictors
PROX_STEP = 1e-3  # of a difference quotient of the proximal operator, relative to the coefficients
PROX_ERROR = 1e-6  # of the proximal operator itself, relative: a solver makes it
NOISE = 1e-4  # of its Jacobian: eigenvalues below it are 0, above one minus it 1


def solution(program: SplitProgram) -> Fit:
    """Solve a program with all rows, and look at its loss there.

    Raises
    ------
    SolverError
    ValueError
        If the loss is not a sum over rows.
    """
    coef, level, dual = program.solve(np.ones(program.n, dtype=bool), np.zeros(program.n))
    eta = program.X @ coef + level
    loss, pinned = _local_loss(program, eta, -dual)
    penalty = ProgramPenalty(program, kinked=loss.is_kinked or not program.is_smooth)
    rows, ones = np.arange(program.n, dtype=np.float64), np.ones(program.n)
    problem = Problem(loss, penalty, program.X, rows, ones, np.array(program.intercept))
    slope = np.where(pinned, -dual, loss.gradient(rows, eta))
    return Fit(problem, coef, level).known(eta=eta, gradient=slope, pinned=pinned)


# --- the loss ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ProgramLoss(Loss, SelfSolved):
    """The loss of a program; its ``y`` are numbers of rows.

    Each row's value includes an equal share of the whole loss at the fit, since a sum is all that a program
    tells.  A loss with rows on a kink counts as straight: it is followed on its piece.

    Parameters
    ----------
    program : SplitProgram
    eta : (n,) array
        Linear predictors of the fit, around which each row is moved.
    size : float
        Their spread: the unit of difference quotients.
    pieces : Pieces
        What it was found to be made of, around the fit.
    """

    program: SplitProgram
    eta: Array
    size: float
    pieces: Pieces = Pieces.UNKNOWN

    def minimise(self, start: Fit) -> Solution:
        """Solve the program on the rows that have weight, whatever the start."""
        problem, penalty = start.problem, start.problem.penalty
        assert isinstance(penalty, ProgramPenalty)
        kept, is_whole = problem.weights > 0, penalty.program is self.program
        if is_whole and np.all(kept) and np.array_equal(start.eta, self.eta):
            return Solution(start, Deferred(start))
        found = penalty.program.solve(kept, self.eta)
        moves = np.abs(found.coef) * np.abs(self.program.X).max(axis=0, initial=0.0)
        nothing = NOTHING * float(np.abs(self.eta).max(initial=0.0))  # what a solver means to be zero
        fit = Fit(problem, np.where(moves <= nothing, 0.0, found.coef), found.intercept)
        dual = np.where(kept, -found.dual, 0.0)
        pinned = _on_kink(replace(self, eta=fit.eta), dual) & kept
        slope = problem.weights * self.gradient(problem.y, fit.eta)
        fit.known(gradient=np.where(pinned, dual, slope), pinned=pinned)
        return Solution(fit, Deferred(fit))

    @cached_property
    def _total(self) -> float:
        return self.program.loss_at(self.eta)

    def value(self, y: Array, eta: Array) -> Array:
        rows = np.broadcast_to(y, eta.shape).astype(np.intp)
        values = np.full(eta.shape, self._total / self.program.n)
        for place in zip(*np.nonzero(eta != self.eta[rows]), strict=True):
            u = self.eta.copy()
            u[rows[place]] = eta[place]
            values[place] += self.program.loss_at(u) - self._total
        return values

    def gradient(self, y: Array, eta: Array) -> Array:
        """Derivative, on one side of a kink on a kink.

        As many linear predictors of all rows are made as one row has values.
        """
        rows = np.broadcast_to(y, eta.shape).astype(np.intp).ravel()
        order = np.argsort(rows, kind="stable")
        place = np.arange(rows.size)
        first = np.diff(rows[order], prepend=-1) > 0
        layer = np.empty_like(place)
        layer[order] = place - np.maximum.accumulate(np.where(first, place, 0))
        table = np.tile(self.eta, (int(layer.max(initial=-1)) + 1, 1))
        table[layer, rows] = eta.ravel()
        slopes = np.array([self.program.slopes_at(u) for u in table]).reshape(table.shape)
        return slopes[layer, rows].reshape(eta.shape)

    def hessian(self, y: Array, eta: Array) -> Array:
        """Central difference quotient; next to a kink the one on the other side of it."""
        h = STEP * self.size
        before, here, after = (self.gradient(y, eta + t * h) for t in (-1.0, 0.0, 1.0))
        left, right = (here - before) / h, (after - here) / h
        same = np.abs(right - left) <= 0.1 * (np.abs(right) + np.abs(left))
        return np.maximum(np.where(same, 0.5 * (left + right), np.fmin(left, right)), 0.0)

    def third(self, y: Array, eta: Array) -> Array:
        h = np.sqrt(STEP) * self.size
        before, here, after = (self.gradient(y, eta + t * h) for t in (-1.0, 0.0, 1.0))
        return (after - 2.0 * here + before) / h**2

    def self_concordance(self) -> None:
        return None

    def start(self, y: Array, weights: Array) -> Array:
        return np.asarray(self.eta.mean())


def _local_loss(program: SplitProgram, eta: Array, dual: Array) -> tuple[ProgramLoss, Mask]:
    """Look at the loss around the fit: what it is like, and which rows are on a kink."""
    size = max(float(eta.std()), 1e-3 * float(np.abs(eta).max())) or 1.0
    _check_sum_over_rows(program, eta, size)
    loss, rows = ProgramLoss(program, eta, size), np.arange(len(eta), dtype=np.float64)
    pinned = _on_kink(loss, dual)
    if pinned.any():
        return replace(loss, pieces=Pieces.STRAIGHT), pinned
    slope, bend = loss.gradient(rows, eta), loss.hessian(rows, eta)
    tie = ALIKE * (np.abs(slope).max() + bend.max() * size)
    moved = [loss.gradient(rows, eta + t * size) - slope - t * bend * size for t in PROBES]
    straight = bool(np.max(np.abs(moved)) <= tie)  # false, too, outside the domain
    jumps = not straight and bool(np.all(np.abs(loss.third(rows, eta)) * size <= 1e-5 * bend.max()))
    if straight:
        return replace(loss, pieces=Pieces.QUADRATIC), pinned
    return replace(loss, pieces=Pieces.JUMPING if jumps else Pieces.SMOOTH), pinned


def _check_sum_over_rows(program: SplitProgram, eta: Array, size: float) -> None:
    """Refuse a loss in which the slope of some row depends on another row.

    Half of the rows are moved, by chance, and the slopes of the others must stay.
    """
    rng = np.random.default_rng(0)
    base = program.slopes_at(eta)
    for reach in (1.0, 0.1, 0.01) * 3:
        moved = rng.permutation(len(eta)) < len(eta) // 2
        slopes = program.slopes_at(eta + np.where(moved, reach * size * rng.uniform(-1, 1, len(eta)), 0.0))
        if np.any(np.abs(slopes - base)[~moved] > ALIKE * np.abs(base).max()):
            raise ValueError(
                f"the loss {shown(program.loss)} is not a sum over rows, the slope of a row depends on "
                "others: use a sum, such as sum_squares in place of norm, so that each row has a term to "
                "leave out"
            )


def _on_kink(loss: ProgramLoss, dual: Array) -> Mask:
    """Rows around which the derivative jumps, with the dual variable between both sides."""
    rows = np.arange(len(loss.eta), dtype=np.float64)
    far, low, high, beyond = (
        loss.gradient(rows, loss.eta + t * NEAR * loss.size) for t in (-10.0, -1.0, 1.0, 10.0)
    )
    jump = high - low
    sharp = (jump > 0.5 * (beyond - far)) & (jump > ALIKE * np.abs(dual).max())
    return sharp & (dual > low + ALIKE * jump) & (dual < high - ALIKE * jump)


# --- the penalty ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ProgramPenalty(Penalty):
    """The terms and constraints of a program that the coefficients alone are in.

    Parameters
    ----------
    program : SplitProgram
    kinked : bool
        Whether there is an active pattern; kinks of the loss make one, too.
    """

    program: SplitProgram
    kinked: bool
    pieces = Pieces.TURNING

    def third(self, coef: Array, owed: Array) -> Array:
        raise TypeError("the free directions of a program turn with the coefficients")

    def value(self, coef: Array) -> float:
        return self.program.penalty_at(coef)

    def prox(self, coef: Array, step: float) -> Array:
        return self.program.proximal(coef, step)

    def tangent(self, coef: Array, loss_gradient: Array | None = None) -> Subspace:
        """Range of the Jacobian of the proximal operator, and (J⁻¹ − I)/t there as the curvature.

        Raises
        ------
        ValueError
            Without the gradient of the loss.
        """
        if loss_gradient is None:
            raise ValueError("the tangent of a program depends on the gradient of the loss")
        known = self._known
        if (
            known
            and np.array_equal(known[-1][0], coef)
            and np.allclose(known[-1][1], loss_gradient, rtol=1e-9)
        ):
            return known[-1][2]
        basis, curved = self._piece(coef, loss_gradient)
        slope, unit = self.program.smooth_slope, float(np.abs(coef).max(initial=0.0)) or 1.0
        bent = [slope(coef + unit * e) - slope(coef - unit * e) for e in np.eye(len(coef))]
        smooth = basis.T @ np.column_stack(bent) @ basis / (2.0 * unit)
        extent, force = (float(np.abs(v).max(initial=0.0)) for v in (coef, loss_gradient))
        t = extent / force if extent > 0 and force > 0 else 1.0
        # a subgradient next to the coefficients: (β − t g − z)/t at z = prox_tP(β − t g)
        subgradient = (coef - self.program.proximal(coef - t * loss_gradient, t)) / t - loss_gradient
        piece = Subspace.along(basis, subgradient, curved + smooth)
        known[:] = [(coef, loss_gradient, piece)]
        return piece

    def is_stationary(
        self, coef: Array, loss_gradient: Array, rtol: float = PROX_ERROR, size: Array | None = None
    ) -> Mask:
        """As for any penalty, to the precision that solvers have."""
        return super().is_stationary(coef, loss_gradient, max(rtol, PROX_ERROR), size)

    @cached_property
    def _known(self) -> list[tuple[Array, Array, Subspace]]:
        """The last tangent: its 2p programs are not solved twice."""
        return []

    def _piece(self, coef: Array, loss_gradient: Array) -> tuple[Array, Array]:
        """Tangent of the terms that are not quadratic, and their curvature: (p, k) and (k, k)."""
        p = len(coef)
        if self.program.is_smooth:
            return np.eye(p), np.zeros((p, p))
        gradient = loss_gradient + self.program.smooth_slope(coef)
        extent, force = np.abs(coef).max(), np.abs(gradient).max()
        t = float(extent / force) if extent > 0 and force > 0 else 1.0
        h = PROX_STEP * max(float(extent), t * float(force), np.finfo(float).tiny)
        prox, at = self.program.proximal_rough, coef - t * gradient
        J = np.column_stack([prox(at + h * e, t) - prox(at - h * e, t) for e in np.eye(p)]) / (2.0 * h)
        shares, vectors = np.linalg.eigh(0.5 * (J + J.T))
        free = shares > NOISE
        shares = np.where(shares[free] > 1.0 - NOISE, 1.0, shares[free])
        return vectors[:, free], np.diag((1.0 / shares - 1.0) / t)

    def scaled(self, factor: float) -> Self:
        if factor == 1.0:
            return self
        program = self.program
        scaled = replace(program, smooth=factor * program.smooth, rough=factor * program.rough)
        return replace(self, program=scaled)

    def has_kinks(self, shape: tuple[int, ...]) -> bool:
        return self.kinked

    def has_free_directions(self, shape: tuple[int, ...]) -> bool:
        return False  # refits do not start from anywhere


@dataclass(frozen=True, eq=False)
class Deferred(Wrapped):
    """The curvature of a fit, factored when something is asked of it: refits are asked nothing."""

    fit: Fit

    @cached_property
    def inner(self) -> Curvature:  # type: ignore[override]
        return factor(self.fit)

    def solve(self, gradient: Direction) -> Direction:
        return self.inner.solve(gradient)

    def predict(self, direction: Direction) -> Array:
        return self.inner.predict(direction)

    def carry(self, new: Design, slopes: Array) -> Array:
        return self.inner.carry(new, slopes)

    def hat_columns(self, rows: Index) -> Array:
        return self.inner.hat_columns(rows)
