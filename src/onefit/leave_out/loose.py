"""What a loss of straight pieces leaves open, so that a refit has several optima: its intercept, and more.

With the coefficients as they are the objective is convex and straight in pieces as a function of the
intercept.  Where no row sits strictly inside a kink it has a flat bottom, and every intercept there is as
good.  libsvm then takes the middle one; so do we, and the bound reaches to the ends.

Where the penalty does not curve either, coefficients may be open, too.  They are determined if the rows that
are held strictly inside a kink have full rank on the columns that no kink of the penalty strictly holds:
then the optimal face of the linear program has no direction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linprog

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.fit import Fit
from onefit.losses import PiecewiseLinear
from onefit.numerics import CERTIFIED, TINY
from onefit.penalties import SeparablePenalty
from onefit.solvers.kinks import size_of_duals

TIE = 1e-8  # distance from the end of a dual's interval, relative to its size, that is none
FLAT = 1e-8  # slope, relative to those of all rows together, that is none


def room_of_intercept(fit: Fit) -> tuple[float, float]:
    """How far the intercept may move down and up at no cost: both 0 where something holds it."""
    problem, loss = fit.problem, fit.problem.loss
    if not isinstance(loss, PiecewiseLinear) or problem.intercept.ndim or not problem.intercept:
        return 0.0, 0.0
    held = problem.weights > 0
    slopes = (problem.weights[:, None] * loss.slopes(problem.y))[held]
    if not np.isfinite(slopes).all():
        return 0.0, 0.0
    until = (loss.kinks(problem.y) - fit.eta[:, None])[held].ravel()
    order = np.argsort(until)
    pull = slopes[:, 0].sum() + np.cumsum(np.diff(slopes, axis=1).ravel()[order])  # after each kink
    flat = FLAT * float(np.abs(slopes).max(axis=1).sum())
    ends = until[order]
    low, high = ends[np.argmax(pull >= -flat)], ends[np.argmax(pull > flat)]
    size = float(np.abs(fit.eta).max(initial=0.0)) + TINY
    if not high - low > CERTIFIED * size:
        return 0.0, 0.0
    return max(-float(low), 0.0), max(float(high), 0.0)


def with_middle_intercept(fit: Fit) -> Fit:
    """The fit itself, or as good a one with the intercept in the middle of what it may be."""
    down, up = room_of_intercept(fit)
    if down == up:
        return fit
    by = 0.5 * (up - down)
    moved = fit.moved(fit.coef, fit.intercept + by)
    return moved.known(eta=fit.eta + by, gradient=fit.gradient, pinned=np.zeros_like(fit.pinned))


@dataclass(frozen=True, eq=False)
class _Face:
    """The optima of a fit of straight pieces: those θ + d that agree with its duals.

    All optima of a linear program are complementary to each of its dual solutions (Goldman and Tucker 1956).
    """

    fit: Fit
    free: Index  # coordinates that no kink strictly holds at zero
    held: Mask  # rows strictly inside a kink
    Z: Array  # (n, f) rows on the free coordinates, and the intercept

    @classmethod
    def of(cls, fit: Fit) -> _Face:
        problem = fit.problem
        l1, l2 = problem.separable.strengths(fit.coef.shape)
        near = (fit.coef != 0) | (np.abs(fit.loss_gradient) >= (1.0 - FLAT) * l1)
        free = np.flatnonzero(near & (l2 == 0) & np.isfinite(l1))
        least, most = interval_of_duals(fit)
        tie = TIE * size_of_duals(fit)
        held = fit.pinned & (fit.gradient > least + tie) & (fit.gradient < most - tie)
        Z = _linalg.as_design(problem.X).basis_of_rows()[free].T
        return cls(fit, free, held, np.hstack([Z, np.ones((len(Z), int(problem.intercept)))]))

    @property
    def is_point(self) -> bool:
        """Whether the rows that are held leave no direction."""
        rows, width = self.Z[self.held], self.Z.shape[1]
        return width == 0 or (len(rows) >= width and int(np.linalg.matrix_rank(rows)) == width)

    def reach(self, rows: Index) -> Array:
        """How far the predictors of some rows may be from those of the fit: (r,)."""
        fit = self.fit
        low, high = ends_of_pieces(fit)
        room = ~self.held & (fit.problem.weights > 0)
        below, above = room & np.isfinite(low), room & np.isfinite(high)
        A = np.vstack([-self.Z[below], self.Z[above]])
        b = np.maximum(np.concatenate([(fit.eta - low)[below], (high - fit.eta)[above]]), 0.0)
        equal = self.Z[self.held]

        def farthest(z: Array) -> float:
            found = linprog(-z, A, b, equal, np.zeros(len(equal)), self._bounds())
            return -float(found.fun) if found.status == 0 else np.inf

        return np.array([max(farthest(z), farthest(-z)) for z in self.Z[rows]])

    def _bounds(self) -> list[tuple[Any, Any]]:
        """Between which ends each coordinate may move: it keeps its sign, where there is a kink."""
        l1, _ = self.fit.problem.separable.strengths(self.fit.coef.shape)
        coef, side = self.fit.coef[self.free], -np.sign(self.fit.loss_gradient[self.free])
        ends: list[tuple[Any, Any]] = [
            (None, None) if kink == 0 else (-c, None) if s > 0 else (None, -c)
            for c, s, kink in zip(coef.tolist(), side.tolist(), l1[self.free].tolist(), strict=True)
        ]
        return ends + [(None, None)] * int(self.fit.problem.intercept)


def is_determined(fit: Fit) -> bool:
    """Whether a fit of straight pieces of loss and penalty is the only optimum, by what holds it strictly.

    True for every other fit; for its intercept see ``room_of_intercept``.
    """
    return not is_straight(fit) or _Face.of(fit).is_point


def reach_of_optima(fit: Fit, rows: Index) -> Array:
    """How far the predictors of some rows are off in other optima of a fit: (r,), infinite if without end."""
    return np.zeros(len(rows)) if is_determined(fit) else _Face.of(fit).reach(rows)


def is_straight(fit: Fit) -> bool:
    """Whether nothing curves some coefficient: a loss of straight pieces, and no ℓ2 part."""
    problem = fit.problem
    if not isinstance(problem.loss, PiecewiseLinear) or not isinstance(problem.penalty, SeparablePenalty):
        return False
    return fit.coef.ndim == 1 and bool(np.any(problem.separable.strengths(fit.coef.shape)[1] == 0))


def interval_of_duals(fit: Fit) -> tuple[Array, Array]:
    """Slopes of the pieces that adjoin the kink nearest to each row: (n,) each."""
    kinks, slopes = _pieces(fit)
    return _two_of(slopes, np.abs(kinks - fit.eta[:, None]).argmin(axis=1))


def ends_of_pieces(fit: Fit) -> tuple[Array, Array]:
    """Ends of the piece that each row is on, by its slope: (n,) each."""
    kinks, slopes = _pieces(fit)
    edge = np.full(len(kinks), np.inf)
    ends = np.column_stack([-edge, kinks, edge])
    return _two_of(ends, np.abs(slopes - fit.gradient[:, None]).argmin(axis=1))


def _pieces(fit: Fit) -> tuple[Array, Array]:
    """Corners and weighted slopes of each row's loss."""
    loss, y = fit.problem.loss, fit.problem.y
    assert isinstance(loss, PiecewiseLinear)
    return loss.kinks(y), loss.slopes(y) * fit.problem.weights[:, None]


def _two_of(values: Array, first: Index) -> tuple[Array, Array]:
    """Two neighbours in each row of a matrix."""
    rows = np.arange(len(values))
    return values[rows, first], values[rows, first + 1]


def strictly_held(dual: Array, least: Array, most: Array, on_kink: Mask, tie: float) -> Mask:
    """Problems, along the last axis, in which a row strictly inside its kink holds the intercept."""
    inside = on_kink & (dual > least + tie) & (dual < most - tie)
    return np.asarray(inside.any(axis=0))
