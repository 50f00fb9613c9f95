"""Rows of coupled outputs whose pattern changes, each on its own, by Newton steps without own factors."""

from __future__ import annotations

import numpy as np

from onefit._typing import Index
from onefit.curvature import Curvature
from onefit.fit import Fit
from onefit.leave_out.factor_free import fit_of_others
from onefit.leave_out.proximal import Ends
from onefit.solvers import on_pattern

SETTLED = 1e-10  # root of the last decrement, relative to that of the objective, at full precision


def iterate(fit: Fit, curvature: Curvature | None, rows: Index, tol: float) -> Ends | None:
    """Fits without each of some rows, which nothing bounds; None where this is no way.

    Parameters
    ----------
    fit : Fit
    curvature : Curvature or None
        Of the fit.
    rows : (m,) int array
    tol : float
        1 is full precision; more is so many times as loose.
    """
    if not on_pattern.serves(curvature, fit):
        return None
    starts = [fit_of_others(fit, i) for i in rows.tolist()]
    ends = [on_pattern.approach(start, curvature, SETTLED * max(tol, 1.0)) for start in starts]
    return Ends(
        np.array([end.fit.eta[i] for i, end in zip(rows, ends, strict=True)]),
        np.full(len(rows), np.inf),
        np.array([end.fit.coef for end in ends]),
        np.array([end.fit.intercept for end in ends]),
        settled=np.array([end.is_there for end in ends]),
    )
