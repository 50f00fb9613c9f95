"""Losses and penalties that both have corners: an exact quadratic program.

A polyhedral penalty is a piecewise linear loss on further rows: α‖Dβ‖₁ is the absolute loss on the rows of D
with response 0, bounds are a loss with infinite slopes, and the sorted ℓ1 norm is a sum of such terms with a
threshold each,

    sum of the k largest |β_j|  =  min over t of  k t + Σ_j max(0, β_j − t) + Σ_j max(0, −β_j − t).

A squared loss adds 1/w to the diagonal of G; with n > p, at most p + 1 rows have the same sum of squares
(QR).  So the active-set method of ``corners`` solves all of them, whether or not the rows of D are dependent.
Other smooth losses are solved by Newton's method: each step is a squared loss with the same penalty.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.optimize import linprog

from onefit import _linalg
from onefit._typing import Array, Design, Index
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.losses import PiecewiseLinear, Squared
from onefit.penalties import AnalysisPenalty, Box, Penalty, SeparablePenalty, Slope, Sum
from onefit.penalties.separable import broadcast
from onefit.problem import Problem
from onefit.solvers.corners import DualActiveSet, Rows, intervals

NEWTON_STEPS = 50
DENSE = 4_000_000  # entries up to which rows of a penalty are stored densely beside dense data
SETTLED = 1e-12  # change of η in a Newton step, relative to 1 + |η|, at which to stop
SNAP = 1e-11  # distance of a coefficient from a corner of its penalty, relative to the largest, that is none


def solve(start: Fit) -> Fit:
    """Minimise the objective of ``start.problem`` exactly, for a polyhedral penalty.

    Parameters
    ----------
    start : Fit
        Of one output and a design that is known itself.  Near the optimum few rounds are needed.

    Returns
    -------
    Fit
        For a loss with corners with ``eta``, ``slope`` and ``pinned`` known.

    Raises
    ------
    SolverError
        If the problem has no finite minimum, or the rows do not settle.
    TypeError
        For a penalty that is not polyhedral.
    """
    problem = start.problem
    if not _linalg.has_columns(problem.X):
        raise TypeError("a kernel model has no coefficients of its own to penalise one by one: give it L2")
    if problem.loss.has_corners or isinstance(problem.loss, Squared):
        return _solve_once(start)
    return _solve_by_newton(start)


@dataclass(frozen=True, eq=False)
class PiecewiseRows:
    """Rows (x, e) with a piecewise linear loss of x β + e t each, or with a square one.

    Attributes
    ----------
    X : (m, p) array or sparse array
    extra : (m, e) array
        Coefficients of more variables, which nothing else depends on.
    corners : (m, q) array
        Infinite beyond the last.
    ends : (m, q + 1) array
        Slopes of the pieces, ascending, the last repeated; −∞ and ∞ are constraints.
    bend : (m,) array
        1 / w for the loss ½ w (y − η)², whose corner is y and whose slopes are infinite; else 0.
    """

    X: Design
    extra: Array
    corners: Array
    ends: Array
    hessian: Array

    @classmethod
    def of(cls, X: Design, corners: Array, ends: Array, extra: Array | None = None) -> PiecewiseRows:
        """Rows of straight pieces."""
        m = X.shape[0]
        return cls(X, np.empty((m, 0)) if extra is None else extra, corners, ends, np.zeros(m))

    def densified(self) -> PiecewiseRows:
        """Return the same with dense rows, whose products cost less by far unless they are many."""
        small = _linalg.is_sparse(self.X) and self.X.shape[0] * self.X.shape[1] <= DENSE
        return replace(self, X=self.X.toarray()) if small else self

    def __add__(self, other: PiecewiseRows) -> PiecewiseRows:
        parts = (self, other)
        q = max(part.corners.shape[1] for part in parts)
        sparse = any(_linalg.is_sparse(part.X) for part in parts)
        X = [sp.csr_array(part.X) if sparse else part.X for part in parts]
        return PiecewiseRows(
            sp.vstack(X, format="csr") if sparse else np.vstack(X),
            scipy.linalg.block_diag(self.extra, other.extra),
            np.vstack([_padded(part.corners, q, np.inf) for part in parts]),
            np.vstack([_padded(part.ends, q + 1, None) for part in parts]),
            np.concatenate([part.hessian for part in parts]),
        )


def _padded(values: Array, width: int, by: float | None) -> Array:
    missing = width - values.shape[1]
    last = values[:, -1:] if by is None else np.full((len(values), 1), by)
    return np.hstack([values, np.repeat(last, missing, axis=1)])


# Penalties as rows


@singledispatch
def kinks(penalty: Penalty, p: int) -> PiecewiseRows:
    """Rows that a polyhedral penalty, less its ℓ2 part, is the sum of losses of."""
    raise TypeError(f"{type(penalty).__name__} is not polyhedral, so it makes no quadratic program")


@kinks.register
def _(penalty: SeparablePenalty, p: int) -> PiecewiseRows:
    return _absolute(sp.csr_array(sp.eye_array(p)), penalty.strengths((p,))[0])


@kinks.register
def _(penalty: AnalysisPenalty, p: int) -> PiecewiseRows:
    D = penalty.matrix(p)
    return _absolute(D, np.full(D.shape[0], penalty.alpha))


def _absolute(D: Any, strengths: Array) -> PiecewiseRows:
    """Σ_k s_k |D_k β| over the rows with a strength: without one, an interval for the dual has no width."""
    held = np.flatnonzero((strengths > 0) & np.isfinite(strengths))
    s = strengths[held]
    return PiecewiseRows.of(D[held], np.zeros((len(s), 1)), np.stack([-s, s], axis=1))


@kinks.register
def _(penalty: Box, p: int) -> PiecewiseRows:
    lower, upper = penalty.bounds((p,))
    below, above = np.isfinite(lower), np.isfinite(upper)
    held = np.flatnonzero(below | above)
    one = (below ^ above) | (lower == upper)
    first = np.where(below, lower, upper)
    corners = np.stack([first, np.where(one, np.inf, upper)], axis=1)
    left, right = np.where(below, -np.inf, 0.0), np.where(above, np.inf, 0.0)
    ends = np.stack([left, np.where(one, right, 0.0), right], axis=1)
    eye = sp.csr_array(sp.eye_array(p))
    within = _absolute(eye, broadcast(penalty.l1, (p,)))
    return PiecewiseRows.of(eye[held], corners[held], ends[held]) + within


@kinks.register
def _(penalty: Slope, p: int) -> PiecewiseRows:
    """With thresholds t_k where the weights fall, by f_k after the k-th: Σ_k f_k · (the k largest)."""
    falls = -np.diff(np.append(penalty.alpha * np.asarray(penalty.weights, dtype=np.float64), 0.0))
    ranks = np.flatnonzero(falls[:-1] > 0)
    eye, one = sp.csr_array(sp.eye_array(p)), sp.csr_array((1, p))
    together = _absolute(eye, np.full(p, falls[-1]))
    together = replace(together, extra=np.zeros((together.X.shape[0], len(ranks))))
    blocks, signs = [], np.ones((2 * p, 1))
    for place, k in enumerate(ranks):
        column = np.zeros((2 * p + 1, len(ranks)))
        column[:, place] = np.append(-signs, 1.0)
        corners = np.append(np.zeros(2 * p), np.inf)[:, None]
        ends = np.vstack([np.hstack([0 * signs, falls[k] * signs]), np.full((1, 2), (k + 1) * falls[k])])
        blocks.append(PiecewiseRows.of(sp.vstack([eye, -eye, one], format="csr"), corners, ends, column))
    return _stacked([together, *blocks])


def _stacked(blocks: list[PiecewiseRows]) -> PiecewiseRows:
    """Rows with the same extra variables."""
    return PiecewiseRows.of(
        sp.vstack([block.X for block in blocks], format="csr"),
        np.vstack([block.corners for block in blocks]),
        np.vstack([block.ends for block in blocks]),
        np.vstack([block.extra for block in blocks]),
    )


@kinks.register
def _(penalty: Sum, p: int) -> PiecewiseRows:
    return kinks(penalty.rest, p)


def _thresholds(penalty: Penalty, coef: Array) -> Array:
    """Values of the extra variables of the penalty at some coefficients."""
    penalty = penalty.without_ridge()
    if not isinstance(penalty, Slope):
        return np.empty(0)
    weights = np.asarray(penalty.weights, dtype=np.float64)
    return np.sort(np.abs(coef))[::-1][np.flatnonzero(np.diff(weights) < 0)]


# Losses as rows


def _rows_of_loss(problem: Problem, rows: Index) -> PiecewiseRows:
    X = _linalg.some_rows(problem.X, rows)
    ones = np.ones((len(rows), int(bool(problem.intercept))))
    if isinstance(problem.loss, PiecewiseLinear):
        return PiecewiseRows.of(X, *intervals(problem, rows), ones)
    bend = 1.0 / problem.weights[rows]
    y = problem.y[rows]
    if len(rows) > X.shape[1] + 1:
        root = 1.0 / np.sqrt(bend)
        Q, R = scipy.linalg.qr(np.hstack([_linalg.dense(X), ones]) * root[:, None], mode="economic")
        X, ones, y, bend = R[:, : X.shape[1]], R[:, X.shape[1] :], Q.T @ (root * y), np.ones(len(R))
    unbounded = np.tile([-np.inf, np.inf], (len(y), 1))
    return PiecewiseRows(X, ones, y[:, None], unbounded, bend)


# Solutions


def _solve_once(start: Fit) -> Fit:
    problem = start.problem
    p = problem.X.shape[1]
    rows = np.flatnonzero(problem.weights > 0)
    own, l2 = _rows_of_loss(problem, rows), problem.penalty.ridge((p,))
    penalised = kinks(problem.penalty.without_ridge(), p)
    program = (own + penalised).densified() if not _linalg.is_sparse(own.X) else own + penalised
    dual = DualActiveSet(
        Rows.of(program.X, l2, program.extra, program.hessian), program.corners, program.ends
    )
    dual.place(*_guess(start, program, l2))
    dual.settle()
    coef, extra = dual.primal()
    coef = _snapped(coef, penalised, problem.penalty, _rounding(program, coef))
    level = np.asarray(extra[0] if bool(problem.intercept) and len(extra) else 0.0)
    fit = Fit(problem, coef, level)
    if not problem.loss.has_corners:
        return fit
    slope, pinned, eta = np.zeros(problem.n), np.zeros(problem.n, dtype=bool), fit.eta.copy()
    pins = dual.pins[dual.pins < len(rows)]
    slope[rows], pinned[rows[pins]] = dual.duals[: len(rows)], True
    eta[rows[pins]] = dual.held_at(pins)
    return fit.known(eta=eta, gradient=slope, pinned=pinned)


def _guess(start: Fit, program: PiecewiseRows, l2: Array) -> tuple[Array, Array | None]:
    """Linear predictors of all rows, and duals where they are known: of the start, or of a linear program."""
    curved = np.any(program.hessian) or np.any((l2 > 0) & np.isfinite(l2))
    if not curved:  # a linear program is solved anew sooner than its vertex is left by pivots
        return _vertex(program, l2)
    level = np.atleast_1d(start.intercept)[: int(bool(start.problem.intercept))]
    extra = np.concatenate([level, _thresholds(start.problem.penalty, start.coef)])
    eta = _linalg.times(program.X, start.coef) + program.extra @ extra
    return np.clip(eta, *_allowed(program)), None


def _allowed(program: PiecewiseRows) -> tuple[Array, Array]:
    """Linear predictors at which the loss of a row is finite; for a square one, its response."""
    last = np.where(np.isfinite(program.corners), program.corners, -np.inf).max(axis=1)
    low = np.where(np.isneginf(program.ends[:, 0]), program.corners[:, 0], -np.inf)
    return low, np.where(np.isposinf(program.ends[:, -1]), last, np.inf)


def _vertex(program: PiecewiseRows, l2: Array) -> tuple[Array, Array]:
    """Solve the dual linear program: min Σ_k c_k δ_k over the parts δ_k of the duals in their intervals.

    The multipliers of Fᵀ g = 0 are the coefficients.
    """
    m = len(program.corners)
    low, high = program.ends[:, :-1], program.ends[:, 1:]
    part = np.isfinite(program.corners)
    base = np.where(np.isfinite(program.ends[:, 0]), program.ends[:, 0], program.ends[:, 1])
    base = np.where(np.isfinite(base), base, 0.0)
    least = np.where(np.isneginf(low), -np.inf, 0.0)
    most = np.where(np.isneginf(low) & np.isfinite(high), 0.0, high - np.where(np.isfinite(low), low, 0.0))
    free = np.flatnonzero(l2 == 0)
    F = sp.hstack([sp.csr_array(program.X)[:, free], sp.csr_array(program.extra)], format="csr")
    which, _ = np.nonzero(part)
    found = linprog(
        program.corners[part],
        A_eq=F[which].T,
        b_eq=-(F.T @ base),
        bounds=np.column_stack([least[part], most[part]]),
        method="highs",
    )
    if found.status != 0:
        raise SolverError(f"the problem has no finite minimum: give every column a penalty ({found.message})")
    duals: Array = base + np.bincount(which, found.x, minlength=m)
    eta: Array = np.clip(F @ found.eqlin.marginals, *_allowed(program))
    return eta, duals


def _rounding(program: PiecewiseRows, coef: Array) -> float:
    """Size of a coefficient that is none: it moves linear predictors by no more than rounding."""
    corners = np.abs(program.corners[np.isfinite(program.corners)]).max(initial=0.0)
    return SNAP * max(float(np.abs(coef).max(initial=0.0)), float(corners / abs(program.X).max()))


def _snapped(coef: Array, penalised: PiecewiseRows, penalty: Penalty, rounding: float) -> Array:
    """Put coefficients that are in a corner of a penalty on their own exactly there."""
    if np.all(np.abs(coef) <= rounding) and np.all(penalty.value(np.zeros_like(coef)) == 0):
        return np.zeros_like(coef)
    if not penalty.without_ridge().coordinatewise:
        return coef
    columns = penalised.X.indices
    which, corner = np.nonzero(np.abs(coef[columns, None] - penalised.corners) <= rounding)
    coef = coef.copy()
    coef[columns[which]] = penalised.corners[which, corner]
    return coef


def _solve_by_newton(start: Fit) -> Fit:
    """Proximal Newton: the quadratic model of the loss with the penalty as it is, and a line search."""
    fit = start
    for _ in range(NEWTON_STEPS):
        bend = np.maximum(fit.hessian, 1e-12 * float(fit.hessian.max()))
        bend = np.where(fit.problem.weights > 0, bend, 0.0)
        y = fit.eta - np.divide(fit.gradient, bend, out=np.zeros_like(bend), where=bend > 0)
        model = replace(fit.problem, loss=Squared(), y=y, weights=bend)
        target = _solve_once(Fit(model, fit.coef, fit.intercept))
        change = float(np.abs(target.eta - fit.eta).max(initial=0.0))
        moved = _toward(fit, target)
        if change <= SETTLED * (1.0 + float(np.abs(fit.eta).max(initial=0.0))):
            return moved
        fit = moved
    raise SolverError(
        f"Newton's method did not settle in {NEWTON_STEPS} steps: the problem may have no finite minimum; "
        "give it a stronger penalty"
    )


def _toward(fit: Fit, target: Fit) -> Fit:
    """Go to the target of a Newton step, or as far as the objective falls."""
    length = 1.0
    allowed = fit.objective + 1e-12 * abs(fit.objective)
    for _ in range(40):
        moved = fit.moved(
            fit.coef + length * (target.coef - fit.coef) if length < 1.0 else target.coef,
            fit.intercept + length * (target.intercept - fit.intercept),
        )
        if moved.objective <= allowed:
            return moved
        length *= 0.5
    return fit
