"""Approximate leave-one-out by the dual route of Wang et al. (2018), section 3.

The dual of min over β of Σ ℓ_i(x_iᵀβ) + R(β) is min over θ of Σ ℓ_i*(−θ_i) + R*(Xᵀθ), with θ = −∂ℓ/∂η at
the optimum.  With ½(y − η)² that is θ = prox_g(y) for g(u) = R*(Xᵀu), a projection where R is a norm, and

    η̃_i = y_i − θ_i / J_ii,      J the Jacobian of prox_g at y                  (their section 3.2).

Any other loss is expanded to second order at the dual optimum; with rows scaled by √d it is the former
problem for the working response y_i = η_i + θ_i / d_i (their section 3.3),

    η̃_i = η_i + θ_i / d_i − θ_i / (d_i J_ii),      J that of prox with √d x_i at √d (η + θ/d).

A free intercept adds the constraint Σ θ_i = 0.  Here J comes from differences of projections; nothing is
known of tangents, curvatures or the matrix inversion lemma.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls


def left_out(X, eta, dual, bend, projection, *, intercept):
    """Left-out linear predictors of a smooth loss.

    Parameters
    ----------
    X : (n, p) array
    eta, dual, bend : (n,) arrays
        Linear predictors, θ = −w ∂ℓ/∂η and d = w ∂²ℓ/∂η² > 0 at the optimum.
    projection : callable
        ``projection(A)`` returns the map prox_g, for g(u) = R*(Aᵀu), on columns of points: (n, r) to (n, r).
    intercept : bool

    Returns
    -------
    eta : (n,) array
    dual : (n,) array
        What the projection has for θ.
    """
    root = np.sqrt(bend)
    rows, point = root[:, None] * X, root * (eta + dual / bend)
    off = np.eye(len(root))
    if intercept:
        off -= np.outer(root, root) / (root @ root)
    project = projection(off @ rows)

    def prox(points):
        return project(off @ points)

    J = diagonal_of_jacobian(prox, point)
    return eta + dual / bend - dual / (bend * J), root * prox(point[:, None])[:, 0]


def diagonal_of_jacobian(prox, point, step=1e-3):
    """∂ prox_i / ∂ point_i, by differences with an error of step⁴ where the map is smooth.

    On a polytope it is linear on each piece; the step shrinks where it leaves the piece.
    """
    n = len(point)
    unit = step * np.eye(n)
    moved = [np.diag(prox(point[:, None] + k * unit)) for k in (-2, -1, 1, 2)]
    diagonal = (moved[0] - 8 * moved[1] + 8 * moved[2] - moved[3]) / (12 * step)
    uneven = np.abs(moved[0] + moved[3] - moved[1] - moved[2]) > 10 * step**2
    if uneven.any() and step > 1e-6:
        diagonal[uneven] = diagonal_of_jacobian(prox, point, step / 10)[uneven]
    return diagonal


# --- the projections ---------------------------------------------------------------------------------


def ridge(strength):
    """R = ½ strength ‖β‖²: R* is a square, and prox_g is linear."""

    def projection(A):
        inverse = np.linalg.inv(np.eye(len(A)) + A @ A.T / strength)
        return lambda points: inverse @ points

    return projection


def lasso(strength):
    """R = strength ‖β‖₁: onto the polytope |Aᵀu| ≤ strength."""
    return lambda A: lambda points: np.column_stack([_onto_polytope(A.T, strength, u) for u in points.T])


def generalised_lasso(D, strength):
    """R = strength ‖Dβ‖₁ for independent rows of D: onto {u : Aᵀu = Dᵀv, |v| ≤ strength}.

    With N a basis of the null space of D these are NᵀAᵀu = 0 and |D⁺ᵀAᵀu| ≤ strength.
    """

    def projection(A):
        null = np.linalg.svd(D)[2][len(D) :].T
        free = np.linalg.qr(A @ null, mode="complete")[0][:, null.shape[1] :]
        faces = (A @ np.linalg.pinv(D)).T @ free

        def project(points):
            inside = free.T @ points
            return free @ np.column_stack([_onto_polytope(faces, strength, u) for u in inside.T])

        return project

    return projection


def group_lasso(groups, strengths):
    """R = Σ_g strengths_g ‖β_g‖: onto {‖A_gᵀu‖ ≤ strengths_g}, by what is left of u (Moreau)."""

    def shrink(coef, step):
        member = np.eye(len(strengths))[groups]
        norms = np.sqrt(member.T @ coef**2)
        kept = np.maximum(1 - step * np.asarray(strengths)[:, None] / np.maximum(norms, 1e-300), 0.0)
        return (member @ kept) * coef

    return lambda A: lambda points: _by_moreau(A, points, shrink)


def nuclear_norm(shape, strength):
    """R = strength ‖β‖_*: onto {σ_max(Aᵀu) ≤ strength}, by what is left of u (Moreau)."""

    def shrink(coef, step):
        U, sizes, Vt = np.linalg.svd(coef.T.reshape(-1, *shape), full_matrices=False)
        return ((U * np.maximum(sizes - step * strength, 0.0)[:, None]) @ Vt).reshape(-1, coef.shape[0]).T

    return lambda A: lambda points: _by_moreau(A, points, shrink)


def _onto_polytope(faces, bound, point):
    """Nearest x with |faces x| ≤ bound: least-distance programming (Lawson and Hanson 1974, chapter 23).

    Non-negative least squares tells the faces that it lies on; the projection on these is then accurate.
    """
    G = np.vstack([-faces, faces])
    room = np.full(len(G), -bound) - G @ point
    unit = np.append(np.zeros(len(point)), 1.0)
    multipliers, _ = nnls(np.vstack([G.T, room]), unit)
    on = multipliers > 1e-12 * multipliers.max(initial=0.0)
    if not on.any():
        return point.copy()
    return point + np.linalg.lstsq(G[on], room[on], rcond=1e-12)[0]


def _by_moreau(A, points, shrink, rounds=2000):
    """u − A β for the β that minimises ½‖u − Aβ‖² + R(β), of all columns at once, by proximal gradients."""
    step = 1.0 / np.linalg.norm(A, 2) ** 2
    coef = np.linalg.lstsq(A, points)[0]
    gram, pull = A.T @ A, A.T @ points
    for _ in range(rounds):
        moved = shrink(coef - step * (gram @ coef - pull), step)
        change, coef = np.abs(moved - coef).max(), moved
        if change <= 1e-15 * np.abs(coef).max():
            break
    return points - A @ coef
