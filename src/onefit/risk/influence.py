"""How much each row moves a penalised fit: Cook's distance and DFBETAS, from the factor of leave-one-out.

With Δθ⁽ⁱ⁾ = θ̃⁽ⁱ⁾ − θ and the dispersion φ,

    D_i = Σ_j d_j (z_jᵀ Δθ⁽ⁱ⁾)² / (φ df),        DFBETAS_ij = −Δβ_j⁽ⁱ⁾ / √(φ (K⁻¹ Zᵀ D Z K⁻¹)_jj)

(Cook 1977; Belsley, Kuh and Welsch 1980; Pregibon 1981 for generalised linear models).  For least squares
without a penalty they are the textbook's, but for the φ of DFBETAS, which is here that of all rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from onefit._typing import Array, Index
from onefit.fit import Fit
from onefit.losses import UnitDispersion
from onefit.risk.departure import Departures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from onefit.displays import InfluenceDisplay


@dataclass(frozen=True, eq=False)
class Influence:
    """Influence of each row on the fit.

    Attributes
    ----------
    cooks_distance : (n,) array
        Squared change of all fitted values, in units of their uncertainty: above 1 a row decides the fit.
    dfbetas : (n, p) or (n, c, p) array
        β_j − β_j⁽ⁱ⁾ in units of the standard error of β_j; 0 for coefficients that are not in the model.
    leverages : (n,) array
    """

    cooks_distance: Array
    dfbetas: Array
    leverages: Array

    @cached_property
    def rows(self) -> Index:
        """Row numbers, most influential first: (n,)."""
        return np.argsort(-self.cooks_distance, kind="stable")

    def plot(self, ax: Axes | None = None) -> InfluenceDisplay:
        """Cook's distance of each row, the largest with their numbers."""
        from onefit.displays import InfluenceDisplay

        return InfluenceDisplay(self.cooks_distance, self.leverages).plot(ax)


def influence(departures: Departures, df: float, *, constant: bool = False) -> Influence:
    """Cook's distance and DFBETAS of every row.

    Parameters
    ----------
    departures : Departures
    df : float
        Effective degrees of freedom.
    constant : bool, default False
        Whether the last column stands for the intercept.
    """
    fit = departures.fit
    dispersion = _dispersion(fit, df)
    n = fit.problem.n
    squares, changes = np.empty(n), []
    variance = np.zeros_like(fit.coef)
    for rows in departures.blocks():
        coef, level = departures.changes(rows)
        squares[rows] = _curved_squares(fit, fit.problem.linear_predictor(coef, level))
        changes.append(coef)
        variance += _variance(departures, rows)
    scale = np.sqrt(dispersion * variance)[..., None]
    moved = -np.concatenate(changes, axis=-1)
    dfbetas = np.divide(moved, scale, out=np.zeros_like(moved), where=scale > 0)
    dfbetas = dfbetas[: len(fit.coef) - constant]
    dfbetas = dfbetas.T if dfbetas.ndim == 2 else dfbetas.transpose(2, 1, 0)
    unit = max(dispersion * df, np.finfo(float).tiny)
    return Influence(squares / unit, dfbetas, departures.left_out.leverages)


def _dispersion(fit: Fit, df: float) -> float:
    """φ: 1 for families that have none, else the residual deviance over its degrees of freedom."""
    problem = fit.problem
    if isinstance(problem.loss, UnitDispersion):
        return 1.0
    losses = problem.per_row(problem.loss.value(problem.y, fit.eta))
    outputs = fit.eta[0].size if losses.ndim == 2 else 1
    free = float(np.count_nonzero(problem.weights)) - df
    return 2.0 * float(losses.sum()) / outputs / free if free > 0 else float("nan")


def _curved_squares(fit: Fit, change: Array) -> Array:
    """Σ_j Δη_jᵀ D_j Δη_j for changes along the last axis: (r,)."""
    if fit.hessian.ndim == 3:
        return np.einsum("nar,nab,nbr->r", change, fit.hessian, change, optimize=True)
    return np.sum(fit.hessian[..., None] * change**2, axis=tuple(range(fit.hessian.ndim)))


def _variance(departures: Departures, rows: slice) -> Array:
    """Part of some rows in diag K⁻¹ Zᵀ D Z K⁻¹: the shape of the coefficients."""
    fit = departures.fit
    bend = fit.hessian[rows]
    if fit.coef.ndim == 1:
        return departures.answers(rows, np.ones(len(bend))).coef ** 2 @ bend
    c = fit.coef.shape[1]
    D = bend if bend.ndim == 3 else bend[:, :, None] * np.eye(c)
    unit = [departures.answers(rows, np.tile(np.eye(c)[a], (len(D), 1))).coef for a in range(c)]
    return np.einsum("apkr,rab,bpkr->pk", unit, D, unit, optimize=True)
