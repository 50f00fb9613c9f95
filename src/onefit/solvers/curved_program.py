"""Losses with kinks and curved penalties: quadratic programs on the smooth piece of the penalty.

On its tangent B at a point the penalty is P + gᵀz + ½ zᵀCz + O(z³), and with the eigenvectors of C as
coordinates, z = V u, a step of Newton's method is a quadratic program with diagonal curvature, which the
active-set method of ``corners`` solves exactly: the rows of the loss, and a straight row for each gᵀV u.  The
rows that sit on kinks, and their duals, come out of it.  A penalty with kinks of its own needs its pattern
first: that of the start is tried, then that of the conic program.
"""

from __future__ import annotations

import numpy as np

from onefit import _linalg
from onefit._typing import Array
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.penalties import Coordinates, PiecewiseRows, Tangent
from onefit.solvers.line_search import backtrack
from onefit.solvers.quadratic_program import minimum, on_kinks, rows_of_loss

STEPS = 60  # of Newton's method
SETTLED = 1e-11  # change of the linear predictors in a step, relative to 1 + |η|, at which to stop
FLAT = 1e-12  # curvature, relative to the largest, that is none


def solve(start: Fit) -> Fit:
    """Minimise the objective of ``start.problem`` to machine precision.

    Parameters
    ----------
    start : Fit
        Of one output, a piecewise linear loss, and a penalty without kinks.

    Raises
    ------
    SolverError
        If the steps do not settle.
    """
    return on_piece(start)


def on_piece(start: Fit) -> Fit:
    """Minimise along the smooth piece of the penalty through the start, as long as it is one."""
    fit = start
    for _ in range(STEPS):
        target = _step(fit)
        scale = 1.0 + float(np.abs(fit.eta).max(initial=0.0))
        if float(np.abs(target.eta - fit.eta).max(initial=0.0)) <= SETTLED * scale:
            return target
        fit = _toward(fit, target)
    raise SolverError(
        f"Newton's method did not settle in {STEPS} steps: the problem may have no finite minimum; give it a "
        "stronger penalty"
    )


def _step(fit: Fit) -> Fit:
    """Minimise the loss plus the quadratic model of the penalty around a point."""
    problem, rows = fit.problem, np.flatnonzero(fit.problem.weights > 0)
    basis, slopes, curvature = _coordinates(fit.tangent)
    own = rows_of_loss(problem, rows)
    offset = _linalg.times(own.X, fit.coef)
    moved = PiecewiseRows.of(_linalg.project(own.X, basis), own.kinks - offset[:, None], own.ends, own.extra)
    level = np.atleast_1d(fit.intercept)[: own.extra.shape[1]]
    dual = minimum(moved + _straight(slopes), curvature, np.zeros(len(slopes)), level)
    u, extra = dual.primal()
    found = fit.moved(fit.coef + basis @ u, np.asarray(extra[0] if level.size and len(extra) else 0.0))
    return on_kinks(found, dual, rows)


def _straight(slopes: Array) -> PiecewiseRows:
    """Linear terms, as rows that have no kink."""
    k = len(slopes)
    return PiecewiseRows.of(np.eye(k), np.full((k, 1), np.inf), np.column_stack([slopes, slopes]))


def _coordinates(tangent: Tangent) -> tuple[Array, Array, Array]:
    """Directions in which the curvature is diagonal, the gradient along them, and the curvature."""
    B = np.column_stack([*tangent.directions]) if tangent.size else np.empty((len(tangent.support), 0))
    curved = tangent.hessian[tangent.support] if isinstance(tangent, Coordinates) else tangent.hessian
    if curved.ndim == 2:
        curved, V = np.linalg.eigh(0.5 * (curved + curved.T))
        B = B @ V
    least = FLAT * np.abs(curved).max(initial=0.0)
    return B, B.T @ tangent.gradient, np.where(curved > least, curved, 0.0)


def _toward(fit: Fit, target: Fit) -> Fit:
    """Go to the target of a step, or as far as the objective falls."""
    coef, level = target.coef - fit.coef, target.intercept - fit.intercept

    def at(length: float) -> Fit:
        if length == 1.0:
            return target
        return fit.moved(fit.coef + length * coef, fit.intercept + length * level)

    rounding = 1e-12 * abs(fit.objective)
    found = backtrack(at, lambda moved, _: moved.objective <= fit.objective + rounding)
    return fit if found is None else found
