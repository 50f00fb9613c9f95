"""Least squares with an ℓ2 penalty and enough columns to interpolate: leave-one-out from the n × n dual.

Nothing is divided by a vanishing slack there, so that rows of leverage one are as good as any.
"""

from __future__ import annotations

import numpy as np

from onefit import _linalg
from onefit._typing import Array
from onefit.fit import Fit
from onefit.leave_out.result import LeftOut
from onefit.leave_out.sets import Folds
from onefit.numerics import rounding_of_slack
from onefit.penalties import SeparablePenalty


def left_out(fit: Fit, sets: Folds | None) -> LeftOut | None:
    """Values without each row, or each set, where they are had in the dual."""
    if not is_wide_ridge(fit):
        return None
    return leave_rows_out(fit) if sets is None else leave_sets_out(fit, sets)


def is_wide_ridge(fit: Fit) -> bool:
    """Whether the fit is least squares with an ℓ2 penalty or none, and enough columns to interpolate."""
    problem = fit.problem
    if not problem.loss.is_quadratic or problem.loss.is_kinked or not problem.refits_keep_the_rest:
        return False
    if not isinstance(problem.penalty, SeparablePenalty):
        return False
    wide = fit.coef.shape[0] + 1 >= np.count_nonzero(problem.weights)
    return wide and not fit.is_kinked and bool(np.all(fit.tangent.support))


def leave_rows_out(fit: Fit) -> LeftOut | None:
    """Left-out predictions of wide ridge fits and their limit, the interpolating one of minimum norm.

    As the strength goes to zero, g and 1 − d h vanish together.  Their ratio does not: with
    A = W⁻¹ + X C⁻¹ Xᵀ (or X Xᵀ where C = 0) and Q = A⁻¹ − A⁻¹1 1ᵀA⁻¹/(1ᵀA⁻¹1), the second term only with an
    intercept,

        y_i − η̃_i = (Q y)_i / Q_ii,      1 − d_i h_i = Q_ii / w_i    (0 where C = 0).

    None if the minimum-norm fit does not interpolate, or the strengths differ over outputs or vanish in part.
    """
    problem = fit.problem
    found = residual_form(fit)
    if found is None:
        return None
    Q, rounding = found
    rows = np.flatnonzero(problem.weights)
    eta = fit.eta.copy()
    eta[rows] = problem.y[rows] - (_linalg.product(Q, problem.y[rows]).T / Q.diagonal()).T
    return LeftOut(fit, eta, _off(eta, rounding), _leverages(fit, Q), np.ones(problem.n))


def _leverages(fit: Fit, Q: Array) -> Array:
    """1 − Q_ii / w_i, zero of rows without weight: (n,)."""
    weights, leverages = fit.problem.weights, np.zeros(fit.problem.n)
    rows, penalised = np.flatnonzero(weights), bool(np.any(fit.tangent.hessian))
    leverages[rows] = 1.0 - Q.diagonal() / weights[rows] if penalised else 1.0
    return np.clip(leverages, 0.0, 1.0)


def _off(eta: Array, rounding: float) -> Array:
    """How far off rounding in Q leaves the rows, which are sums over all of them: (t,)."""
    return np.full(len(eta), rounding * float(np.abs(eta).max(initial=0.0)))


def residual_form(fit: Fit) -> tuple[Array, float] | None:
    """Q of the rows with weight and its relative error, or None where there is none."""
    problem = fit.problem
    curved = fit.tangent.hessian.reshape(len(fit.coef), -1)
    if np.ptp(curved, axis=1).max() > 0 or (np.any(curved) and not np.all(curved)):
        return None
    rows = np.flatnonzero(problem.weights)
    penalised = bool(np.any(curved))
    scale = np.where(penalised, curved[:, 0], 1.0)
    intercept = bool(np.all(problem.intercept))
    share = np.full(len(rows), 1.0 / len(rows) if intercept else 0.0)
    G = _linalg.as_design(_linalg.some_rows(problem.X, rows)).centred_row_gram(1.0 / scale, share)
    noise = 1.0 / problem.weights[rows] if penalised else np.zeros(len(rows))
    return _inverse_form(G, noise, intercept)


def _inverse_form(G: Array, noise: Array, intercept: bool) -> tuple[Array, float] | None:
    """Q of ``leave_rows_out`` and its relative error; None if A has no inverse.

    With an intercept G is centred and a multiple of 1 1ᵀ is added: neither changes Q, and both keep A well
    conditioned.
    """
    A = G
    if intercept:
        A = G + max(float(np.trace(G)) / len(G), float(noise.mean()), np.finfo(float).tiny)
    A = np.asarray(A, order="F")
    A[np.diag_indices_from(A)] += noise
    L = _linalg.cholesky(A)
    if L is None:
        return None
    Q = _linalg.factor_solve(L, np.eye(len(A), order="F"))
    rounding = rounding_of_slack(_linalg.condition(L))
    if not intercept:
        return Q, rounding
    ones = Q.sum(axis=0)
    return Q - np.outer(ones, ones) / ones.sum(), rounding


def leave_sets_out(fit: Fit, folds: Folds) -> LeftOut | None:
    """Wide ridge and its limit, the interpolating fit of minimum norm: y_G − η̃_G = Q_GG⁻¹ (Q y)_G.

    ``Q`` is that of ``leave_rows_out``.  None where it is, and where rows without weight are judged, on
    which Q is silent.
    """
    problem = fit.problem
    if np.any(problem.weights[folds.rows] == 0):
        return None
    found = residual_form(fit)
    if found is None:
        return None
    Q, rounding = found
    held = np.flatnonzero(problem.weights)
    position = np.full(problem.n, -1)
    position[held] = np.arange(len(held))
    eta = np.empty((len(folds.rows), *problem.outputs))
    residual = _linalg.product(Q, problem.y[held])
    ends = np.cumsum([len(rows) for rows in folds.tested])
    for k, (removed, tested) in enumerate(zip(folds.removed, folds.tested, strict=True)):
        rows = np.sort(removed[problem.weights[removed] > 0])
        own = Q[np.ix_(position[rows], position[rows])]
        left_out = problem.y[rows] - np.linalg.solve(own, residual[position[rows]])
        eta[ends[k] - len(tested) : ends[k]] = left_out[np.searchsorted(rows, tested)]
    # nothing was divided by a vanishing slack, so none is left to be wary of
    return LeftOut(fit, eta, _off(eta, rounding), _leverages(fit, Q), np.ones(len(folds)), folds)
