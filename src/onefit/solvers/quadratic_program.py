"""Losses and penalties that both have kinks: an exact quadratic program.

A polyhedral penalty is a piecewise linear loss on further rows: α‖Dβ‖₁ is the absolute loss on the rows of D
with response 0, bounds are a loss with infinite slopes, and the sorted ℓ1 norm is a sum of such terms with a
threshold each,

    sum of the k largest |β_j|  =  min over t of  k t + Σ_j max(0, β_j − t) + Σ_j max(0, −β_j − t).

A squared loss adds 1/w to the diagonal of G; with n > p, at most p + 1 rows have the same sum of squares
(QR).  A loss with rounded kinks (Huber, squared hinge) adds 1/w times the rounding, and its duals keep to
their intervals.  So the active-set method of ``kinks`` solves all of them, whether or not the rows of D are
dependent.
Other losses are solved by Newton's method: each step is a squared loss with the same penalty, and with the
kinks of the loss itself, if it has any.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.optimize import linprog

from onefit import _linalg
from onefit._typing import Array, Design, Index
from onefit.cost import Work
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.losses import Mixture, PiecewiseLinear, Squared
from onefit.losses.composed import straight_part
from onefit.losses.rounded import RoundedKinks
from onefit.numerics import SNAP
from onefit.penalties import Penalty, PiecewiseRows, Polyhedral
from onefit.penalties.programs import DENSE
from onefit.problem import Problem
from onefit.solvers.dual_active_set import DualActiveSet
from onefit.solvers.dual_rows import WeightedRows
from onefit.solvers.kinks import intervals, on_kinks, on_pattern
from onefit.solvers.line_search import toward

NEWTON_STEPS = 50
SETTLED = 1e-12  # change of η in a Newton step, relative to 1 + |η|, at which to stop
NEAR = 1e-4  # the same, at which its pattern of kinks may be that of the optimum
TROUBLE = 4  # status of a linear program that failed for numerical reasons
IN_A_PIVOT, CALLS_OF_A_PIVOT = 500.0, 50.0  # times the square of the columns, and calls of NumPy
FLAT = 1e-12  # curvature of a row in a Newton step, relative to the largest, at least


def work(n: int, p: int) -> Work:
    """What so many rows and columns take, about: a pivot a row or column, each along all free columns."""
    return Work(IN_A_PIVOT * p * p, CALLS_OF_A_PIVOT).times(n + p)


def solve(start: Fit) -> Fit:
    """Minimise the objective of ``start.problem`` exactly, for a polyhedral penalty.

    Parameters
    ----------
    start : Fit
        Of one output and a design that is known itself.  Near the optimum few rounds are needed.

    Returns
    -------
    Fit
        For a loss with kinks with ``eta``, ``gradient`` and ``pinned`` known.

    Raises
    ------
    SolverError
        If the problem has no finite minimum, or the rows do not settle.
    TypeError
        For a penalty that is not polyhedral.
    """
    problem = start.problem
    at_once = isinstance(problem.loss, RoundedKinks) and problem.n**2 <= DENSE
    if at_once or problem.loss.is_kinked or isinstance(problem.loss, Squared):
        rows = np.flatnonzero(problem.weights > 0)
        fit, dual = _minimised(start, rows_of_loss(problem, rows), _rows_of_penalty(problem))
        return on_kinks(fit, dual, rows) if problem.loss.is_kinked else fit
    return _solve_by_newton(start)


def _polyhedral(penalty: Penalty) -> Polyhedral:
    """The penalty without its ℓ2 part."""
    rest = penalty.without_ridge()
    if not isinstance(rest, Polyhedral):
        raise TypeError(f"{type(rest).__name__} is not polyhedral, so it makes no quadratic program")
    return rest


# Losses as rows


def rows_of_loss(problem: Problem, rows: Index) -> PiecewiseRows:
    """Rows of data, whose loss is of straight pieces, rounded or not, or squared; the intercept is extra."""
    X, loss, y = _linalg.some_rows(problem.X, rows), problem.loss, problem.y[rows]
    ones = np.ones((len(rows), int(bool(problem.intercept))))
    if isinstance(loss, PiecewiseLinear):
        return PiecewiseRows.of(X, *intervals(problem, rows), ones)
    bend = 1.0 / problem.weights[rows]
    if isinstance(loss, RoundedKinks):
        return PiecewiseRows(X, ones, loss.kinks(y), loss.slopes(y) / bend[:, None], loss.rounding * bend)
    if len(rows) > X.shape[1] + 1:
        root = 1.0 / np.sqrt(bend)
        Q, R = scipy.linalg.qr(
            np.hstack([_linalg.as_columns(X).dense(), ones]) * root[:, None], mode="economic"
        )
        X, ones, y, bend = R[:, : X.shape[1]], R[:, X.shape[1] :], Q.T @ (root * y), np.ones(len(R))
    unbounded = np.tile([-np.inf, np.inf], (len(y), 1))
    return PiecewiseRows(X, ones, y[:, None], unbounded, bend)


# Solutions


def _rows_of_penalty(problem: Problem) -> PiecewiseRows:
    return _polyhedral(problem.penalty).rows(problem.X.shape[1])


def solved_program(start: Fit) -> tuple[PiecewiseRows, DualActiveSet]:
    """Solve a problem whose loss is of straight pieces: its rows with a weight and those of the penalty."""
    own = rows_of_loss(start.problem, np.flatnonzero(start.problem.weights > 0))
    return _solved(start, own, _rows_of_penalty(start.problem))


def _solved(start: Fit, own: PiecewiseRows, penalised: PiecewiseRows) -> tuple[PiecewiseRows, DualActiveSet]:
    problem = start.problem
    program = own + penalised.beside(_sizes(own.X))
    level = np.atleast_1d(start.intercept)[: int(bool(problem.intercept))]
    extra = np.concatenate([level, _polyhedral(problem.penalty).thresholds(start.coef)])
    return program, minimum(program, problem.penalty.ridge(start.coef.shape), start.coef, extra)


def _minimised(start: Fit, own: PiecewiseRows, penalised: PiecewiseRows) -> tuple[Fit, DualActiveSet]:
    """Minimise the losses of rows plus the penalty of a problem; with the dual that the minimum came from."""
    problem, (_, dual) = start.problem, _solved(start, own, penalised)
    coef, extra = dual.primal()
    coef = _snapped(coef, penalised, problem.penalty, _rounding(own, coef, _sizes(own.X)))
    level = np.asarray(extra[0] if bool(problem.intercept) and len(extra) else 0.0)
    return Fit(problem, coef, level), dual


def minimum(
    program: PiecewiseRows, l2: Array, coef: Array, extra: Array, duals: Array | None = None
) -> DualActiveSet:
    """Minimise Σ of the losses of rows plus ½ Σ l2_j β_j² exactly.

    Parameters
    ----------
    program : PiecewiseRows
    l2 : (p,) array
        At least 0; where all are 0, and no row is square, it is a linear program.
    coef, extra : (p,) and (e,) arrays
        A guess.
    duals : (m,) array, optional
        Those of the rows at the guess, where they are known.
    """
    dual = DualActiveSet(
        WeightedRows.of(program.X, l2, program.extra, program.hessian), program.kinks, program.ends
    )
    dual.place(*_guess(program, l2, coef, extra, duals))
    dual.settle()
    return dual


def _guess(
    program: PiecewiseRows, l2: Array, coef: Array, extra: Array, duals: Array | None
) -> tuple[Array, Array | None]:
    """Linear predictors of all rows, and duals where they are known: of the start, or of a linear program."""
    curved = np.any(program.hessian) or np.any((l2 > 0) & np.isfinite(l2))
    if not curved and duals is None:  # solved anew sooner than by pivots
        return _vertex(program, l2)
    eta = _linalg.times(program.X, coef) + program.extra @ extra
    return np.clip(eta, *_allowed(program)), duals


def _allowed(program: PiecewiseRows) -> tuple[Array, Array]:
    """Linear predictors at which the loss of a row is finite; for a square one, its response."""
    last = np.where(np.isfinite(program.kinks), program.kinks, -np.inf).max(axis=1)
    low = np.where(np.isneginf(program.ends[:, 0]), program.kinks[:, 0], -np.inf)
    return low, np.where(np.isposinf(program.ends[:, -1]), last, np.inf)


def _vertex(program: PiecewiseRows, l2: Array) -> tuple[Array, Array]:
    """Solve the dual linear program: min Σ_k c_k δ_k over the parts δ_k of the duals in their intervals.

    The multipliers of Fᵀ g = 0 are the coefficients.  Linear programs are solved to absolute tolerances: in
    units of each column, of the largest dual and of the largest kink, those of X, weights and response change
    nothing.
    """
    free = np.flatnonzero(l2 == 0)
    F = sp.hstack([sp.csr_array(program.X)[:, free], sp.csr_array(program.extra)], format="csr")
    F = sp.csr_array(F @ sp.diags_array(1.0 / _sizes(F)))
    ends = _within_reach(F, program.ends)
    m, of_duals, of_kinks = len(program.kinks), _largest(ends), _largest(program.kinks)
    low, high = ends[:, :-1], ends[:, 1:]
    part = np.isfinite(program.kinks)
    base = np.where(np.isfinite(ends[:, 0]), ends[:, 0], ends[:, 1])
    base = np.where(np.isfinite(base), base, 0.0)
    least = np.where(np.isneginf(low), -np.inf, 0.0)
    most = np.where(np.isneginf(low) & np.isfinite(high), 0.0, high - np.where(np.isfinite(low), low, 0.0))
    which, _ = np.nonzero(part)
    for method in ("highs", "highs-ipm", "highs-ds"):  # where one has numerical trouble another may have none
        found = linprog(
            program.kinks[part] / of_kinks,
            A_eq=F[which].T,
            b_eq=-(F.T @ base) / of_duals,
            bounds=np.column_stack([least[part], most[part]]) / of_duals,
            method=method,
        )
        if found.status != TROUBLE:
            break
    if found.status == TROUBLE:
        raise SolverError(
            f"the linear program could not be solved ({found.message}): give columns a like scale"
        )
    if found.status != 0:
        raise SolverError(f"the problem has no finite minimum: give every column a penalty ({found.message})")
    duals: Array = base + of_duals * np.bincount(which, found.x, minlength=m)
    eta: Array = np.clip(F @ (of_kinks * found.eqlin.marginals), *_allowed(program))
    return eta, duals


def _within_reach(F: sp.csr_array, ends: Array) -> Array:
    """Slopes without what no dual comes near: that of a row of one column is what others pull there.

    Beside a penalty that is far stronger than all losses these would be below the tolerances.
    """
    alone = np.diff(F.indptr) == 1
    largest = np.where(alone, 0.0, np.abs(ends).max(axis=1))
    with np.errstate(invalid="ignore"):  # 0 · ∞ where another row is a constraint: it may pull at will
        pulls = largest @ abs(F)
    own = F.indices[F.indptr[:-1][alone]]
    pulls = np.where(pulls > 0, pulls, _largest(ends[~alone]))  # where nothing pulls any slope holds
    is_only = (np.bincount(own, minlength=F.shape[1]) == 1)[own] & np.isfinite(pulls[own])
    most = np.full(len(ends), np.inf)
    most[np.flatnonzero(alone)[is_only]] = (2.0 * pulls[own] / np.abs(F.data[F.indptr[:-1][alone]]))[is_only]
    cut = np.clip(ends, -most[:, None], most[:, None])
    return np.where(np.isfinite(ends), cut, ends)


def _largest(values: Array) -> float:
    """The largest size of those that are finite, or 1 where all are zero."""
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0)) or 1.0


def _sizes(X: Design) -> Array:
    """Largest entry of each column; of an empty one, that of all: (p,)."""
    sizes = _linalg.as_columns(X).column_sizes()
    return np.where(sizes > 0, sizes, float(sizes.max(initial=0.0)) or 1.0)


def _rounding(rows: PiecewiseRows, coef: Array, sizes: Array) -> Array:
    """Sizes of coefficients that are none: they move linear predictors by no more than rounding."""
    kinks = np.abs(rows.kinks[np.isfinite(rows.kinks)]).max(initial=0.0)
    return SNAP * max(float(np.abs(coef * sizes).max(initial=0.0)), float(kinks)) / sizes


def _snapped(coef: Array, penalised: PiecewiseRows, penalty: Penalty, rounding: Array) -> Array:
    """Put coefficients that are on a kink of a penalty on their own exactly there."""
    if np.all(np.abs(coef) <= rounding) and np.all(penalty.value(np.zeros_like(coef)) == 0):
        return np.zeros_like(coef)
    X = sp.csr_array(penalised.X)
    if np.any(np.diff(X.indptr) != 1) or np.any(X.data != 1):  # not one coefficient a row
        return coef
    columns = X.indices
    which, kink = np.nonzero(np.abs(coef[columns, None] - penalised.kinks) <= rounding[columns, None])
    coef = coef.copy()
    coef[columns[which]] = penalised.kinks[which, kink]
    return coef


def _solve_by_newton(start: Fit) -> Fit:
    """Proximal Newton: the quadratic model of the loss with all kinks as they are, and a line search."""
    fit, straight, penalised = start, _rows_with_kinks(start.problem), _rows_of_penalty(start.problem)
    for _ in range(NEWTON_STEPS):
        target = _target(fit, straight, penalised)
        change = float(np.abs(target.eta - fit.eta).max(initial=0.0))
        if change <= SETTLED * fit.size_of_predictors:
            return target
        known = straight is not None and change <= NEAR * fit.size_of_predictors
        if known and (settled := on_pattern(target)) is not None:
            return settled
        fit = toward(fit, target)
    raise SolverError(
        f"Newton's method did not settle in {NEWTON_STEPS} steps: the problem may have no finite minimum; "
        "give it a stronger penalty"
    )


def _rows_with_kinks(problem: Problem) -> PiecewiseRows | None:
    """Rows of the part of the loss that has kinks, where there is one."""
    straight, rows = straight_part(problem.loss), np.flatnonzero(problem.weights > 0)
    return None if straight is None else rows_of_loss(replace(problem, loss=straight), rows)


def _target(fit: Fit, straight: PiecewiseRows | None, penalised: PiecewiseRows) -> Fit:
    """Minimise the loss, its curved part to second order around a point, and the penalty."""
    problem = fit.problem
    curved = problem.loss.curved_gradient if isinstance(problem.loss, Mixture) else problem.loss.gradient
    gradient = problem.per_row(curved(problem.y, fit.eta))
    bend = np.maximum(fit.hessian, FLAT * float(fit.hessian.max()))
    bend = np.where(problem.weights > 0, bend, 0.0)
    y = fit.eta - np.divide(gradient, bend, out=np.zeros_like(bend), where=bend > 0)
    own = rows_of_loss(replace(problem, loss=Squared(), y=y, weights=bend), np.flatnonzero(bend > 0))
    if straight is None:
        return _minimised(fit, own, penalised)[0]
    found, dual = _minimised(fit, straight.above(own), penalised)
    found = on_kinks(found, dual, np.flatnonzero(problem.weights > 0))
    return found.known(gradient=found.gradient + problem.per_row(curved(problem.y, found.eta)))
