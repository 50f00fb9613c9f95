"""Approximate leave-one-out by the dual approach of Wang et al. (2018, section 3).

The dual of min over β of Σ ℓ_i(x_iᵀβ) + R(β) is min over θ of Σ ℓ_i*(−θ_i) + R*(Xᵀθ), with θ = −∂ℓ/∂η at the
optimum.  With ½(y − η)² its solution is θ = prox_g(y), g(u) = R*(Xᵀu), and leaving row i out is (eq. 12)

    η̃_i = y_i − θ_i / J_ii,      J the Jacobian of prox_g at y.

Any other smooth loss is expanded at the optimum: with rows scaled by √d it is that problem for the working
response η + θ/d (eq. 14), so that η̃_i = η_i + θ_i/d_i − θ_i / (d_i J_ii).  By Moreau prox_g(u) = u − A β(u),
β(u) = argmin ½‖u − Aβ‖² + R(β), A = √d X, and β = prox_tR(β − t Aᵀ(Aβ − u)) gives

    ∂β/∂u = (I − D + t D AᵀA)⁻¹ t D Aᵀ,      D the Jacobian of prox_tR,      J = I − A ∂β/∂u.

Only the proximal operator of R is asked for: nothing is known of active patterns or curvatures.  An ℓ2 part
of R joins AᵀA; a free intercept is projected out of A and u.  By Theorems 5.1 and 5.2 the result is that of
the primal approach (eq. 17).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import lstsq

from onefit import _linalg
from onefit._typing import Array
from onefit.fit import Fit

STEP = 1e-3  # of a difference quotient of the proximal operator, relative to its argument
LEAST_STEP = 1e-7  # that it is shortened to in order to stay on one piece
UNEVEN = 1e-6  # difference of two quotients that tells that they leave a piece

Map = Callable[[Array], Array]


def left_out_by_dual(fit: Fit) -> Array:
    """Left-out linear predictors by the dual approach: (n,).

    Parameters
    ----------
    fit : Fit
        Of one output, with a smooth loss and columns.  Rows without weight have no say in it: without one of
        them it is the same.

    Raises
    ------
    ValueError
        If the loss has no curvature at some row that has weight, or the model is of another kind.
    """
    _check(fit)
    held = np.flatnonzero(fit.problem.weights > 0)
    eta = fit.eta.copy()
    eta[held] = _of_all(fit.of_rows(held))
    return eta


def _of_all(fit: Fit) -> Array:
    """Of rows that all have curvature: (n,)."""
    d, theta = fit.hessian, -fit.gradient
    root = np.sqrt(d)
    A = root[:, None] * _linalg.as_columns(fit.problem.X).dense()
    free = np.ones(len(d))  # diagonal of the projection that takes the intercept out
    if bool(fit.problem.intercept):
        A = A - np.outer(root, root @ A) / (root @ root)
        free = free - d / (root @ root)
    slack = free - np.einsum("ij,ji->i", A, _response(fit, A))
    return np.asarray(fit.eta + theta / d - theta / (d * slack))


def _check(fit: Fit) -> None:
    problem = fit.problem
    if not problem.has_one_output or not _linalg.has_columns(problem.X):
        raise ValueError("route='dual' is for models with one output and columns: take route='primal'")
    if not problem.refits_keep_the_rest:
        raise ValueError(
            "route='dual' keeps the penalty and the weights of the other rows when a row leaves, and this "
            "model changes them: take route='primal', or onefit.GeneralizedLinear"
        )
    flat = np.flatnonzero((problem.weights > 0) & ~(fit.hessian > 0))
    if flat.size:
        raise ValueError(
            f"route='dual' needs a loss with a positive second derivative at every row, and row {flat[0]} "
            "has none: take route='primal'"
        )


def _response(fit: Fit, A: Array) -> Array:
    """∂β/∂u: (p, n)."""
    penalty, coef = fit.problem.penalty, fit.coef
    l2, rest = penalty.ridge(coef.shape), penalty.without_ridge()
    gram = A.T @ A + np.diag(l2)
    t = 1.0 / float(np.linalg.norm(gram, 2))
    slope = fit.loss_gradient + l2 * coef
    D = jacobian(lambda z: rest.prox(z, t), coef - t * slope)
    return np.asarray(lstsq(np.eye(len(coef)) - D + t * D @ gram, t * D @ A.T)[0])


def jacobian(function: Map, at: Array) -> Array:
    """Jacobian of a piecewise smooth map by differences: (p, p).

    A step that leaves the piece of ``at``, where quotients of two lengths differ, is shortened.
    """
    size = float(np.abs(at).max(initial=0.0)) or 1.0
    columns = [_column(function, at, unit, STEP * size, LEAST_STEP * size) for unit in np.eye(len(at))]
    return np.column_stack(columns)


def _column(function: Map, at: Array, unit: Array, step: float, least: float) -> Array:
    near, far = (
        (function(at + k * step * unit) - function(at - k * step * unit)) / (2.0 * k * step)
        for k in (1.0, 2.0)
    )
    if np.abs(near - far).max() > UNEVEN and step > least:
        return _column(function, at, unit, 0.1 * step, least)
    return np.asarray((4.0 * near - far) / 3.0)
