"""Automatic strengths: where a penalty starts to matter in these data, and where it stops."""

from __future__ import annotations

from typing import Any

import numpy as np

from onefit import _linalg
from onefit._typing import Array
from onefit.fit import Fit
from onefit.penalties import L1, L2, ElasticNet, SeparablePenalty

RIDGE_DECADES = (1.0, -7.0)  # automatic strengths, relative to the largest eigenvalue


def check_eps(eps: Any) -> None:
    """Refuse what is no share of a strength."""
    if isinstance(eps, str) or not 0 < eps < 1:
        raise ValueError(f"eps must lie in (0, 1), got {eps!r}")


def ends_of_kinked(null: float, eps: float, curvature: Array, ridge: Array) -> tuple[float, float]:
    """Range of automatic strengths of a penalty with kinks, and perhaps an ℓ2 part.

    From the smallest strength that makes all coefficients zero, or that at which the ℓ2 part has shrunk them
    to about a tenth, if it comes later: down to ``eps`` times that.  An ℓ2 part does not know the units of
    the response, as the ℓ1 part does: with large numbers it is the one that matters, and the null model is
    many decades away.

    Parameters
    ----------
    null : float
        Strength that makes all coefficients zero.
    eps : float
    curvature : (p,) array
        Of the loss along each column, Σ w d (x − x̄)².
    ridge : (p,) array
        Strength of the ℓ2 part at strength one.
    """
    held = (curvature > 0) & np.isfinite(ridge)
    shrinks = float(np.mean(ridge[held])) if held.any() else 0.0
    if shrinks <= 0:
        return null, eps * null
    high, usual = float(curvature[held].sum()), float(np.median(curvature[held]))
    reach = 10.0 ** RIDGE_DECADES[0] / shrinks
    return min(null, reach * high), eps * min(null, reach * usual)


def curvature_of_columns(start: Fit) -> Array:
    """Σ w d (x − x̄)² of each column at the constant model: (p,); with d = 1 where the loss is straight."""
    problem, hessian = start.problem, start.hessian
    if hessian.ndim == 3:  # one output like another
        hessian = np.einsum("icc->i", hessian) / hessian.shape[1]
    elif hessian.ndim == 2:
        hessian = hessian.mean(axis=1)
    rows = hessian if np.any(hessian > 0) else problem.weights
    return _linalg.column_norms(problem.X, rows, centred=bool(np.all(problem.intercept))) ** 2


def decades(largest: float) -> tuple[float, float]:
    """Range of automatic ridge strengths."""
    high, low = RIDGE_DECADES
    scale = largest if largest > 0 else 1.0
    return scale * 10.0**high, scale * 10.0**low


def mixed(ratio: float) -> SeparablePenalty:
    """A penalty of strength one with this share of ℓ1."""
    if ratio in (0.0, 1.0):
        return L1(1.0) if ratio else L2(1.0)
    return ElasticNet(1.0, ratio)
