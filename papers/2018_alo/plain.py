"""The paper's formulas as they stand: one step from one fit, nothing refined, nothing refitted.

``onefit.loo`` does more even without ``exact``: it repeats steps of curved losses, follows rows out of
corners and solves rows of high leverage anew.  The figures compare with what the paper proposes, so that is
written out here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit

from onefit.penalties import Penalty, Subspace

Array = np.ndarray
ON_THE_MARGIN = 1e-7  # |1 − s η| of a row that sits in the corner of the hinge


def smooth_loss(model: Any, X: Array, y: Array) -> Array:
    """Left-out linear predictors for squared or logistic loss and any penalty (Theorems 4.2 and 6.1, eq. 17).

    η̃_i = η_i + h_i g_i / (1 − d_i h_i), h = diag Z K⁻¹ Zᵀ, K = Zᵀ D Z + C, on the pattern of the fit.
    """
    eta = X @ np.ravel(model.coef_) + np.ravel(model.intercept_)[0]
    if model.loss == "logistic":
        slope, bend = expit(eta) - y, expit(eta) * expit(-eta)
    else:
        slope, bend = eta - y, np.ones_like(eta)
    Z, C = _free_directions(model.penalty, X, np.ravel(model.coef_), X.T @ slope)
    if model.fit_intercept:
        Z, C = np.column_stack([Z, np.ones(len(Z))]), np.pad(C, (0, 1))
    A = np.sqrt(bend)[:, None] * Z
    if np.any(C):
        leverages = np.sum(A * np.linalg.lstsq(A.T @ A + C, A.T, rcond=1e-15)[0].T, axis=1)
    else:  # the hat matrix, in which an orthonormal basis loses fewer digits
        leverages = np.sum(np.linalg.qr(A)[0] ** 2, axis=1)
    return eta + leverages / bend * slope / (1.0 - leverages)


def _free_directions(penalty: Penalty, X: Array, coef: Array, gradient: Array) -> tuple[Array, Array]:
    """X B and C, in which the pattern of the fit does not change."""
    tangent = penalty.tangent(coef, gradient)
    if isinstance(tangent, Subspace):
        return X @ tangent.basis, tangent.hessian
    return X[:, tangent.support], np.diag(tangent.hessian[tangent.support])


def hinge(gram: Array, eta: Array, signs: Array, strength: float, *, intercept: bool) -> Array:
    """Left-out decision values of a support vector machine (section 6.3).

    Parameters
    ----------
    gram : (n, n) array
        X Xᵀ, or a kernel.
    eta : (n,) array
        Decision values of min over β, b of Σ max(0, 1 − s_i η_i) + ½ strength ‖β‖².
    signs : (n,) array
        The classes, −1 and 1.
    strength : float
    intercept : bool
        Whether there is a b.  The paper has none; it adds a row and a column.
    """
    n = len(eta)
    corner = np.flatnonzero(np.abs(1.0 - signs * eta) < ON_THE_MARGIN)
    slope = np.where(signs * eta < 1.0, -signs, 0.0)
    slope[corner] = 0.0
    m = corner.size
    A = np.zeros((m + intercept, m + intercept))
    A[:m, :m] = gram[np.ix_(corner, corner)] / strength
    A[m:, :m], A[:m, m:] = 1.0, -1.0
    right = np.vstack([gram[corner] / strength, np.ones((int(intercept), n))])
    inverse = np.linalg.pinv(A, rcond=1e-14)
    solved = inverse @ right
    h = gram.diagonal() / strength - np.sum(right[:m] * solved[:m], axis=0) + solved[m:].sum(axis=0)
    left_out = eta + h * slope
    pull = eta - gram @ -slope / strength  # what the rows in the corner and the intercept make of η
    held = (inverse @ np.append(-pull[corner], [-slope.sum()] * intercept))[:m]
    left_out[corner] = eta[corner] + held / np.diag(inverse)[:m]
    return left_out
