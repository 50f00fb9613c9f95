"""More than one Newton step where one is not enough: chord steps at the left-out point.

Without row i, stationarity at θ + Δ reads, with the same factor K as everywhere,

    K Δ = z_i c_i + q_i − Σ_{j≠i} z_j e_j(Δ),      e_j = g_j(η_j + z_jᵀΔ) − g_j − d_j z_jᵀΔ,

where c_i = g_i + d_i z_iᵀΔ takes the row's own term out and q_i is what the refit rescales.  With e = 0 this
is the Newton step; iterating it costs one product Z K⁻¹ Zᵀ e a step for all rows together.  Only rows
whose loss bends along the step need it, so the rows with the largest second-order effect are taken, as
many as the price of the fit allows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.curvature import Curvature
from onefit.fit import Fit

MAX_STEPS, FEW_STEPS = 30, 6  # chord steps, thorough or in passing
NEGLIGIBLE = 1e-3  # second-order effect of all rows without chord steps together, relative to the risk
THOROUGH, IN_PASSING = 1e9, 3e7  # multiplications that chord steps may always cost
SINGULAR = 1e-10  # determinant of I − D H that is none
SETTLED = 1e-4  # change of a left-out linear predictor at which the iteration stops


class LeftOutStep(NamedTuple):
    """The ingredients of the Newton step, with an axis for the outputs: c = 1 for scalar losses."""

    gradient: Array  # (n, c): g, grown by what the refit rescales
    hessian: Array  # (n, c, c): D
    forms: Array  # (n, c, c): H
    shift: Array  # (n, c): s


def refine(
    fit: Fit, curvature: Curvature, eta: Array, forms: Array, slope: Array, shift: Array, *, thorough: bool
) -> tuple[Array, Index]:
    """Improve left-out linear predictors of a loss that is not quadratic.

    Returns
    -------
    eta : array of the shape of ``fit.eta``
    unsettled : (r,) int array
        Rows whose iteration did not settle; they keep the Newton step.
    """
    n, c = len(eta), eta[0].size
    step = LeftOutStep(
        slope.reshape(n, c),
        _linalg.row_matrices(fit.hessian, c),
        _linalg.row_matrices(forms, c),
        shift.reshape(n, c),
    )
    rows, affordable = _rows_that_bend(fit, step, eta), _affordable(fit, thorough=thorough)
    rows = rows[: affordable if thorough or rows.size <= affordable else 0]  # in passing: all or none
    if rows.size == 0:
        return eta, rows
    refined, settled = _chord(fit, curvature, step, rows, MAX_STEPS if thorough else FEW_STEPS)
    result = eta.copy()
    result[rows[settled]] = refined[settled].reshape(-1, *eta.shape[1:])
    return result, rows[~settled]


def _rows_that_bend(fit: Fit, step: LeftOutStep, eta: Array) -> Index:
    """Rows by the size of the second-order effect of the step, largest first."""
    n, c = step.gradient.shape
    problem = fit.problem
    change = (eta - fit.eta).reshape(n, c)
    there = problem.per_row(problem.loss.gradient(problem.y, eta)).reshape(n, c)
    bent = there - fit.gradient.reshape(n, c) - np.einsum("nab,nb->na", step.hessian, change)
    effect = np.abs(np.einsum("na,nab,nb->n", there, step.forms, bent))
    losses = problem.per_row(problem.loss.value(problem.y, eta))
    alone = _without_rest(step)
    if problem.loss.jumps:  # the row's own bend does not tell of others that pass a corner
        order = np.argsort(-np.abs(change).sum(axis=1))
        return order[~alone[order]]
    effect[alone] = 0.0
    order = np.argsort(effect)
    left_alone = np.cumsum(effect[order]) <= NEGLIGIBLE * np.sum(losses)
    return order[~left_alone][::-1]


def _without_rest(step: LeftOutStep) -> Mask:
    """Rows of leverage one: the others say nothing about where a step would end."""
    kept = np.eye(step.gradient.shape[1]) - step.hessian @ step.forms
    return np.asarray(np.abs(np.linalg.det(kept)) < SINGULAR)


def _affordable(fit: Fit, *, thorough: bool) -> int:
    """How many rows cost no more than two factorisations, or than a few hundredths of a second."""
    n, free = fit.problem.n, max(1, fit.tangent.size)
    k = min(n, free)
    budget = THOROUGH + 2.0 * n * k**2 if thorough else IN_PASSING
    return int(budget / (16.0 * n * k))


def _chord(
    fit: Fit, curvature: Curvature, step: LeftOutStep, rows: Index, max_steps: int
) -> tuple[Array, Mask]:
    """Iterate to the left-out solution of some rows; (r, c) predictors and which of them settled."""
    (n, c), r = step.gradient.shape, len(rows)
    base = fit.eta.reshape(n, c)
    own = np.arange(r)
    unit = np.zeros((n, c, r, c))
    for a in range(c):
        unit[rows, a, own, a] = 1.0
    columns = _hat(curvature, unit.reshape(n, c, r * c), fit).reshape(n, c, r, c)
    kept = np.eye(c) - step.hessian[rows] @ step.forms[rows]
    remainder = np.zeros((n, c, r))
    previous = np.full((r, c), np.inf)
    moved = np.full((r, c), np.inf)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(max_steps):
            others = -_hat(curvature, remainder, fit)
            at_row = others[rows, :, own] + step.shift[rows]
            inside = np.linalg.solve(
                kept,
                (step.gradient[rows] + np.einsum("rab,rb->ra", step.hessian[rows], at_row))[:, :, None],
            )[:, :, 0]
            change = others + np.einsum("nbra,ra->nbr", columns, inside)
            value = at_row + np.einsum("rab,rb->ra", step.forms[rows], inside)
            moved, previous = np.abs(value - previous), value
            if np.nanmax(moved) < SETTLED:
                break
            remainder = _remainder(fit, step, base, change)
            remainder[rows, :, own] = 0.0
    return base[rows] + previous, np.all(moved < 100 * SETTLED, axis=1)


def _hat(curvature: Curvature, rows: Array, fit: Fit) -> Array:
    """Z K⁻¹ Zᵀ times (n, c, r), whatever the shape of the linear predictor."""
    if fit.eta.ndim == 1:
        return curvature.hat(rows[:, 0])[:, None]
    return curvature.hat(rows)


def _remainder(fit: Fit, step: LeftOutStep, base: Array, change: Array) -> Array:
    """e(Δ) of all rows for each left-out solution: (n, c, r)."""
    problem = fit.problem
    n, c, r = change.shape
    eta = (base[:, :, None] + change).transpose(2, 0, 1).reshape(r * n, c)
    eta = eta[:, 0] if fit.eta.ndim == 1 else eta
    slope = problem.loss.gradient(np.concatenate([problem.y] * r), eta).reshape(r, n, c).transpose(1, 2, 0)
    linear = np.einsum("nab,nbr->nar", step.hessian, change)
    return problem.weights[:, None, None] * slope - fit.gradient.reshape(n, c, 1) - linear
