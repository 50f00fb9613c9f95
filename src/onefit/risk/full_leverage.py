"""Rows of leverage one: each holds a coefficient up all alone, which goes when the row leaves.

Without such a row K has no inverse: along u = K⁻¹ z_i no other row and no curvature of the penalty says where
to stop.  Under an ℓ1 penalty the refit goes down the penalty, that is along g_i u, until the first
coefficient β_j on the way is zero and leaves the support.  Rows with a word of their own, which sparse text
is full of, are like that.  On the support without j, with m = K⁻¹ e_j and κ = m_j,

    η′_i = η_i − β_j u_j / κ,        h′ = h − u_j² / κ,        g′ = g_i + d_i (η′_i − η_i),

and the step is the usual one from there.
"""

from __future__ import annotations

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index
from onefit.curvature import Curvature, Direction
from onefit.fit import Fit
from onefit.penalties import SeparablePenalty

ALONG = 1e-8  # share of the largest change of a coefficient that is one


def applies(fit: Fit) -> bool:
    """Whether coefficients of this fit may leave one by one."""
    return fit.is_kinked and fit.eta.ndim == 1 and isinstance(fit.problem.penalty, SeparablePenalty)


def let_go(fit: Fit, curvature: Curvature, forms: Array, shift: Array, rows: Index) -> Array:
    """Left-out linear predictors of some rows of leverage one: (r,).

    Parameters
    ----------
    fit : Fit
    curvature : Curvature
    forms, shift : (n,) arrays
        h and s of all rows.
    rows : (r,) int array
    """
    z = _linalg.rows_as_columns(fit.problem.X, rows)
    u = curvature.solve(Direction(z, np.where(fit.problem.intercept, np.ones(len(rows)), 0.0)))
    eta = fit.eta[rows].copy()
    for place, i in enumerate(rows):
        along = np.sign(fit.gradient[i]) * u.coef[:, place]
        j = _first_to_leave(fit, along)
        if j is None:
            continue
        unit = np.zeros(len(fit.coef))
        unit[j] = 1.0
        kappa = curvature.solve(Direction(unit, np.zeros_like(fit.intercept))).coef[j]
        own = u.coef[j, place]
        moved = -fit.coef[j] * own / kappa
        h, slope = forms[i] - own**2 / kappa, fit.gradient[i] + fit.hessian[i] * moved
        slack = 1.0 - fit.hessian[i] * h
        eta[place] += moved + ((h * slope + shift[i]) / slack if slack > ALONG else 0.0)
    return eta


def _first_to_leave(fit: Fit, along: Array) -> int | None:
    """Coefficient that gets to zero first; None if all grow."""
    towards = (fit.coef * along < 0) & (np.abs(along) > ALONG * np.abs(along).max(initial=0.0))
    candidates = np.flatnonzero(towards)
    if candidates.size == 0:
        return None
    return int(candidates[np.argmin(np.abs(fit.coef[candidates] / along[candidates]))])
