"""The exact active-set method for losses with kinks and a quadratic penalty.

It solves, for a piecewise linear loss (hinge, quantile, absolute, epsilon-insensitive),

    minimise over (β, b):   Σ_i w_i ℓ(y_i, η_i) + ½ Σ_j l2_j β_j²,      η = Xβ + b.

At the optimum a row is on a piece of its loss, where its dual g_i is w_i times the slope, or on a kink c,
where η_i = c and g_i is anything between the slopes of the two pieces.  With Λ the strengths of the
penalised columns, G = X Λ⁻¹ Xᵀ over them, and Q an orthonormal basis of the free directions (the intercept
and the columns without a penalty), stationarity is

    η = −G g + Q θ,      Qᵀ g = 0,

the optimality of the dual, a quadratic program in a box.  Given the rows V on kinks,

    G_VV g_V − Q_V θ = −c_V − G_VN g_N,      Q_Vᵀ g_V = −Q_Nᵀ g_N,

one Cholesky factor of G_VV + τ Q_V Q_Vᵀ, which is the same system for every τ > 0 and positive definite where
the system is regular.  Rows whose dual leaves its interval leave their kink, rows that cross a kink enter
it: first all at once, which takes a few rounds and may cycle, then one at a time along feasible duals, which
ends (Best 1984; ties are broken by the smallest index, Chang and Cottle 1980).  V is kept independent:
duplicated rows, and kinks that more rows meet in than there are dimensions, leave all but so many of them
at the ends of their intervals.
"""

from __future__ import annotations

import numpy as np

from onefit import _linalg, numerics
from onefit._typing import Array, Index
from onefit.curvature import Direction, Pinned, factor
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.losses import Mixture, PiecewiseLinear
from onefit.losses.composed import straight_part
from onefit.numerics import CERTIFIED, rounding_of_slack
from onefit.problem import Problem
from onefit.solvers import libsvm
from onefit.solvers.dual_active_set import DualActiveSet
from onefit.solvers.dual_rows import WeightedRows
from onefit.solvers.stationary import is_stationary

SUMS = 100.0  # terms of a linear predictor, relative to it, that cancel in it
FEW_ROUNDS = 6  # in which all rows change their state at once, before libsvm is asked for a start
STEPS = 6  # of Newton's method on a pattern
SETTLED = 1e-12  # change of η in such a step, relative to 1 + |η|, at which to stop
TIE = 1e-9  # of a dual past the end of its interval, relative to the largest, that is rounding


def solve(start: Fit) -> Fit:
    """Minimise the objective of ``start.problem`` exactly.

    Parameters
    ----------
    start : Fit
        Any coefficients; near the optimum, as after the loss of a row, few rounds are needed.

    Returns
    -------
    Fit
        With ``eta``, ``gradient`` (the duals of rows on kinks included) and ``pinned`` (the independent rows
        on kinks) known.

    Raises
    ------
    SolverError
        If the rows do not settle on pieces and on kinks.
    """
    problem = start.problem
    rows = np.flatnonzero(problem.weights > 0)
    ones = np.ones((len(rows), int(bool(problem.intercept))))
    l2 = problem.penalty.ridge((problem.X.shape[1],))
    X = problem.X if len(rows) == problem.n else _linalg.some_rows(problem.X, rows)
    dual = DualActiveSet(WeightedRows.of(X, l2, ones), *intervals(problem, rows))
    dual.place(start.eta[rows], _known_duals(start, rows))
    if not libsvm.solves(problem):
        dual.settle()
    elif not dual.settle_in_blocks(FEW_ROUNDS):
        near = libsvm.near_minimum(problem)
        dual.place(near.eta[rows], _known_duals(near, rows))
        dual.settle()
    return _as_fit(problem, rows, dual)


def intervals(problem: Problem, rows: Index) -> tuple[Array, Array]:
    """Corners, and weighted slopes of the pieces between them."""
    loss, y = problem.loss, problem.y[rows]
    if not isinstance(loss, PiecewiseLinear):
        raise TypeError(f"{type(loss).__name__} is not piecewise linear")
    return loss.kinks(y), problem.weights[rows, None] * loss.slopes(y)


def size_of_duals(fit: Fit) -> float:
    """What rounding in the duals of a fit is relative to; 0 for a loss without kinks."""
    problem, rows = fit.problem, np.flatnonzero(fit.problem.weights > 0)
    if not isinstance(problem.loss, PiecewiseLinear):
        return 0.0
    kinks, slopes = intervals(problem, rows)
    widest = float(np.max(np.abs(slopes), where=np.isfinite(slopes), initial=0.0))
    l2 = problem.penalty.ridge(fit.coef.shape)
    longest = float(problem.squared_lengths(rows).max(initial=0.0)) or 1.0
    moving = numerics.size_of_kinks(kinks) * float(l2.min(where=l2 > 0, initial=np.inf)) / longest
    return numerics.size_of_duals(fit.gradient, widest, moving)


def _known_duals(start: Fit, rows: Index) -> Array | None:
    """Duals of the start, where it has them."""
    if start.at_hand("gradient"):
        return start.gradient[rows]
    if not _linalg.has_columns(start.problem.X) and np.any(start.coef):
        return -(start.problem.penalty.ridge(start.coef.shape) * start.coef)[rows]
    return None


def _as_fit(problem: Problem, rows: Index, dual: DualActiveSet) -> Fit:
    coef, extra = dual.primal()
    if not _linalg.has_columns(problem.X):
        coef, held = np.zeros(problem.n), coef
        coef[rows] = held
    fit = Fit(problem, coef, np.asarray(extra.sum()))
    eta, fit = fit.eta, on_kinks(fit, dual, rows)
    allowed = CERTIFIED * (1.0 + np.abs(fit.eta)) + rounding_of_slack(SUMS) * np.abs(eta).max(initial=0.0)
    if np.any(np.abs(eta - fit.eta) > allowed):
        raise SolverError(
            "the coefficients do not bring rows onto the kinks of the loss that they hold: the columns of "
            "X are of very different size, or very large; standardise them"
        )
    return fit


def on_kinks(fit: Fit, dual: DualActiveSet, rows: Index) -> Fit:
    """Return the fit with the duals of its rows, and exactly on the kinks where the program has them.

    The rows of the loss are the first of the program.
    """
    problem = fit.problem
    slope, pinned, eta = np.zeros(problem.n), np.zeros(problem.n, dtype=bool), fit.eta.copy()
    pins = dual.pins[dual.pins < len(rows)]
    slope[rows], pinned[rows[pins]] = dual.duals[: len(rows)], True
    straight = straight_part(problem.loss)
    assert straight is not None
    held = rows[pins]
    eta[held] = straight.kinks(problem.y[held])[np.arange(len(held)), dual.state[pins]]
    return fit.known(eta=eta, gradient=slope, pinned=pinned)


def on_pattern(fit: Fit) -> Fit | None:
    """Minimise by Newton's method with rows held on their kinks: the last digits of a solution.

    Parameters
    ----------
    fit : Fit
        Near the optimum, with ``eta``, ``gradient`` and ``pinned`` known; its loss is a ``Mixture``.

    Returns
    -------
    Fit or None
        None where the steps do not settle, or the pattern is none of the optimum.

    Notes
    -----
    A quadratic program in the dual divides by the strengths of a ridge penalty, and so does its rounding.
    On the pattern that it finds the problem is smooth: with V the rows on kinks, a step is

        u = K⁻¹ r on {Z_V u = 0},        Δμ = −(Z_V K_ρ⁻¹ Z_Vᵀ)⁻¹ Z_V K_ρ⁻¹ r,

    for the gradient r, duals μ included, along the free directions (``curvature.Pinned``).
    """
    for _ in range(STEPS):
        fit, change = _stepped(fit)
        if change <= SETTLED * fit.size_of_predictors:
            return fit if _duals_hold(fit) and (not fit.is_kinked or is_stationary(fit)) else None
    return None


def _stepped(fit: Fit) -> tuple[Fit, float]:
    """Take a step; with the largest change of a linear predictor."""
    problem, curvature = fit.problem, factor(fit)
    residual = Direction(fit.free_gradient, fit.intercept_gradient)
    step = curvature.solve(residual)
    moved = fit.moved(fit.coef - step.coef, fit.intercept - step.intercept)
    eta = np.where(fit.pinned, fit.eta, moved.eta)
    gradient = problem.per_row(problem.loss.gradient(problem.y, eta))
    if isinstance(curvature, Pinned):
        gradient[fit.pinned] = fit.gradient[fit.pinned] - curvature.hold(residual)
    change = float(np.abs(curvature.predict(step)).max(initial=0.0))
    return moved.known(eta=eta, gradient=gradient, pinned=fit.pinned), change


def _duals_hold(fit: Fit) -> bool:
    """Whether the dual of each row on a kink is between the slopes beside it."""
    problem, held, straight = fit.problem, np.flatnonzero(fit.pinned), straight_part(fit.problem.loss)
    if straight is None or not held.size:
        return True
    assert isinstance(problem.loss, Mixture)
    y, eta, weights = problem.y[held], fit.eta[held], problem.weights[held]
    own = fit.gradient[held] - weights * problem.loss.curved_gradient(y, eta)
    slopes = straight.slopes(y) * weights[:, None]
    kink = np.abs(eta[:, None] - straight.kinks(y)).argmin(axis=1)
    every, tie = np.arange(len(held)), TIE * float(np.abs(slopes).max())
    return bool(np.all((own >= slopes[every, kink] - tie) & (own <= slopes[every, kink + 1] + tie)))
