"""Optima of straight pieces and a polyhedral penalty: bounds, equal or sorted coefficients, linear functions.

Both are sums of piecewise linear functions of single rows, so that a minimum is the solution of a linear
program.  The duals of the loss are known; those of the penalty are found as far inside their kinks as they
go.  Rows strictly inside a kink are the same in all optima, and the others stay on the piece of their dual.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import linprog

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.fit import Fit
from onefit.leave_out.optima import Optima, null_space
from onefit.numerics import INSIDE, ON_BOUND
from onefit.penalties import Polyhedral
from onefit.penalties.base import ZERO
from onefit.penalties.programs import PiecewiseRows
from onefit.solvers.stationary import STATIONARY, least_sizes

PRECISE = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


@dataclass(frozen=True, eq=False)
class ProgramFace(Optima):
    """The optima of one output beside a polyhedral penalty.

    The moves are of all coefficients, the intercept if there is one, and the further variables of the
    penalty's rows.
    """

    fit: Fit
    Z: Array  # (n, f) rows of the data
    held: Array  # (h, f) rows, of data or penalty, whose predictor is the same in all optima
    walls: tuple[Array, Array]  # A d <= b of the others

    @classmethod
    def of(cls, fit: Fit, held: Mask, walls: tuple[Array, Array]) -> ProgramFace:
        """Join what the loss says of the rows, on coefficients and intercept, with the penalty."""
        problem, penalty = fit.problem, fit.problem.penalty.without_ridge()
        assert isinstance(penalty, Polyhedral)
        p = len(fit.coef)
        rows, thresholds = penalty.rows(p), penalty.thresholds(fit.coef)
        ones, wide = int(np.any(problem.intercept)), len(thresholds)
        data = _linalg.as_columns(problem.X).dense()
        Z = np.hstack([data, np.ones((len(data), ones)), np.zeros((len(data), wide))])
        own = _linalg.as_columns(rows.X).dense()
        own = np.hstack([own, np.zeros((len(own), ones)), rows.extra])
        eta = own[:, :p] @ fit.coef + rows.extra @ thresholds
        inside, low, high = _of_penalty(fit, rows, own[:, np.r_[0:p, p + ones : own.shape[1]]], eta)
        below, above = ~inside & np.isfinite(low), ~inside & np.isfinite(high)
        A, b = walls
        A = np.vstack([np.hstack([A, np.zeros((len(A), wide))]), -own[below], own[above]])
        left = np.concatenate([(eta - low)[below], (high - eta)[above]])
        curved = np.eye(p, Z.shape[1])[penalty_ridge(fit) > 0]
        return cls(
            fit, Z, np.vstack([Z[held], own[inside], curved]), (A, np.concatenate([b, np.maximum(left, 0.0)]))
        )

    @cached_property
    def directions(self) -> Array:
        return null_space(self.held)

    @property
    def is_point(self) -> bool:
        """Whether all optima have the same predictors."""
        return not self.directions.shape[1] or not self.is_felt(np.arange(len(self.Z))).any()

    def moves(self, rows: Index) -> Array:
        return self.Z[None, rows]

    def limits(self) -> tuple[Array, Array]:
        return self.walls


def penalty_ridge(fit: Fit) -> Array:
    """Strengths of the ℓ2 part: the shape of the coefficients."""
    return fit.problem.penalty.ridge(fit.coef.shape)


def _of_penalty(fit: Fit, rows: PiecewiseRows, A: Array, eta: Array) -> tuple[Mask, Array, Array]:
    """Which rows of the penalty are held strictly inside a kink, and the ends of the piece of the others.

    Nothing is held where no duals are found, and no piece ends: then more counts as an optimum.
    """
    count = len(eta)
    if count:  # what rounding leaves beyond a bound is on it
        lower = np.where(np.isneginf(rows.ends[:, 0]), rows.kinks[:, 0], -np.inf)
        upper = np.where(np.isposinf(rows.ends[:, -1]), rows.kinks[:, -1], np.inf)
        eta = np.clip(eta, lower, upper)
    near = np.abs(eta[:, None] - rows.kinks)
    on = near.min(axis=1, initial=np.inf) <= ZERO * np.abs(fit.coef).max(initial=0.0)
    first = np.where(on, near.argmin(axis=1), np.sum(eta[:, None] > rows.kinks, axis=1))
    each = np.arange(count)
    least, most = rows.ends[each, first], rows.ends[each, first + on]
    owed = np.zeros(A.shape[1])
    owed[: len(fit.coef)] = -(fit.loss_gradient + penalty_ridge(fit) * fit.coef)
    size = max(float(np.abs(rows.ends[np.isfinite(rows.ends)]).max(initial=0.0)), float(np.abs(owed).max()))
    u = _inner_duals(A, owed, least, most, on, size)
    if u is None:
        return np.zeros(count, dtype=bool), np.full(count, -np.inf), np.full(count, np.inf)
    tie = max(ON_BOUND * size, STATIONARY * float(least_sizes(fit).max(initial=0.0)))
    inside = on & (u > least + tie) & (u < most - tie)
    edge = np.full((count, 1), np.inf)
    ends = np.hstack([-edge, rows.kinks, edge])
    piece = first + (on & (u >= most - tie))
    return inside, ends[each, piece], ends[each, piece + 1]


def _inner_duals(A: Array, owed: Array, least: Array, most: Array, on: Mask, size: float) -> Array | None:
    """Duals u with Aᵀu = owed, as many as can be strictly between their slopes; None if there are none."""
    u, kinked = least.copy(), np.flatnonzero(on)
    if not kinked.size:
        return u
    if size == 0:
        return None
    rest = (owed - A[~on].T @ least[~on]) / size
    rest = A[on].T @ np.linalg.lstsq(A[on].T, rest, rcond=None)[0]  # less what solvers leave
    low, high = least[on] / size, most[on] / size
    eye = np.eye(kinked.size)
    below, above = np.isfinite(low), np.isfinite(high)
    found = linprog(
        np.repeat([0.0, -1.0], kinked.size),
        np.vstack([np.hstack([-eye, eye])[below], np.hstack([eye, eye])[above]]),
        np.concatenate([-low[below], high[above]]),
        np.hstack([A[on].T, np.zeros((A.shape[1], kinked.size))]),
        rest,
        bounds=[*zip(low, high, strict=True), *[(0.0, INSIDE)] * kinked.size],
        options=PRECISE,
    )
    if found.status != 0:
        return None
    u[kinked] = found.x[: kinked.size] * size
    return u
