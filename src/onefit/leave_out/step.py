"""One Newton step for each row that leaves, all with the same factor.

With K = Zᵀ D Z + C, h_i = z_iᵀ K⁻¹ z_i, and ``s`` for what a refit rescales besides dropping the row,

    η̃_i = η_i + (h_i g_i + s_i) / (1 − d_i h_i)

(Rad & Maleki 2020; Wang et al. 2018, Theorem 3.1 and eq. 17; Beirami et al. 2017, Theorem 1).  Derivation:
at the optimum the gradient of the objective without row i is −g_i z_i (plus what is rescaled), its
Hessian K − d_i z_i z_iᵀ; Sherman–Morrison inverts the latter.  It is exact when the loss is quadratic and
the active pattern does not change; what else is known of it is in ``prove``.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array
from onefit.curvature import Curvature
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.leave_out.rescaling import Rescaling, curvature_of_refits, rescaling
from onefit.leave_out.result import LeftOut
from onefit.numerics import TINY

ROUNDING = 1e-14  # of the trace: with so much on its diagonal a singular H has a factor
FULL_LEVERAGE = 1e-8  # slack 1 − d h below which a row determines its own fit


class Step(NamedTuple):
    """The ingredients of the Newton step of single rows."""

    curvature: Curvature
    forms: Array  # h, in the shape that ``quadratic_forms`` has
    gradient: Array  # g, grown by what the refit rescales: the shape of ``eta``
    shift: Array  # s
    rescaled: Rescaling

    @classmethod
    def of(cls, fit: Fit, curvature: Curvature) -> Step:
        """Read them off a fit and the curvature of its refits."""
        rescaled = rescaling(fit, curvature)
        slope = _linalg.row_times(1.0 + rescaled.own_growth(), fit.gradient)
        return cls(curvature, curvature.quadratic_forms(), slope, rescaled.shift(curvature), rescaled)

    @classmethod
    def first(cls, fit: Fit, curvature: Curvature | None, probes: int) -> Step:
        """By so many probes where a factor takes far longer, if they tell the leverages."""
        with suppress(SolverError):
            return cls.of(fit, curvature_of_refits(fit, curvature, probes=probes))
        return cls.of(fit, curvature_of_refits(fit, curvature))

    def taken(self, fit: Fit) -> LeftOut:
        """One step for every row, and nothing more: nothing is known of where it ends."""
        if fit.problem.loss.has_kinks or fit.pinned.any():
            return _released(fit, self)
        return (_coupled if fit.problem.is_coupled else _separable)(fit, self)


def one_step(fit: Fit, curvature: Curvature | None = None) -> LeftOut:
    """One Newton step for every row, and nothing more."""
    return Step.of(fit, curvature_of_refits(fit, curvature)).taken(fit)


def leverages_of(fit: Fit, forms: Array) -> Array:
    """d_i h_i of single rows: the mean over independent outputs, the trace D_i H_i of coupled ones: (n,)."""
    if fit.problem.is_coupled:
        return np.maximum(np.einsum("nab,nba->n", fit.hessian, forms), 0.0)
    shares = _linalg.row_times(forms, fit.hessian).reshape(len(forms), -1)
    return np.clip(shares.mean(axis=1), 0.0, 1.0)


def _result(fit: Fit, eta: Array, leverages: Array, slack: Array) -> LeftOut:
    return LeftOut(fit, eta, np.full(len(eta), np.inf), leverages, slack)


def _separable(fit: Fit, step: Step) -> LeftOut:
    slack = 1.0 - _linalg.row_times(step.forms, fit.hessian)
    moved = _linalg.row_times(step.forms, step.gradient) + step.shift
    eta = fit.eta + moved / np.maximum(slack, FULL_LEVERAGE)
    return _result(fit, eta, leverages_of(fit, step.forms), slack.reshape(len(eta), -1).min(axis=1))


def _released(fit: Fit, step: Step) -> LeftOut:
    """Rows on a kink of the loss hold it themselves, and are released: η̃_i = η_i + g_i / T_ii.

    Without some of them the fit is not determined on its pattern: they have no slack.
    """
    loose = np.isinf(step.forms)
    h = np.where(loose, 0.0, step.forms)
    leverages = np.where(fit.pinned, 1.0, fit.hessian * h)
    slack = np.where(fit.pinned, 1.0, 1.0 - leverages)
    eta = fit.eta + (h * step.gradient + step.shift) / np.maximum(slack, FULL_LEVERAGE)
    return _result(fit, eta, np.clip(leverages, 0.0, 1.0), np.where(loose, 0.0, slack))


def _coupled(fit: Fit, step: Step) -> LeftOut:
    H, g, D, eye = step.forms, step.gradient, fit.hessian, np.eye(step.gradient.shape[1])
    kept = eye - D @ H
    slack = 1.0 - largest_share(D, H)
    kept = np.where(slack[:, None, None] < FULL_LEVERAGE, eye * FULL_LEVERAGE, kept)
    # (K − ZᵀDZ)⁻¹ = K⁻¹ + K⁻¹Zᵀ (I − D H)⁻¹ D Z K⁻¹, applied to Zᵀg and to the rescaling
    inside = np.linalg.solve(kept, g[:, :, None] + D @ step.shift[:, :, None])
    eta = fit.eta + (H @ inside)[:, :, 0] + step.shift
    return _result(fit, eta, leverages_of(fit, H), slack)


def largest_share(D: Array, H: Array) -> Array:
    """Largest eigenvalue of each D H, that of Rᵀ D R with H = R Rᵀ: (…,), for matrices (…, c, c)."""
    eye = np.eye(H.shape[-1])
    size = np.trace(H, axis1=-2, axis2=-1)[..., None, None]
    try:
        R = np.linalg.cholesky(H + (ROUNDING * size + TINY) * eye)
    except np.linalg.LinAlgError:  # what sums of squares of sparse columns far from zero lose is more
        values, vectors = np.linalg.eigh(H)
        R = vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]
    return np.asarray(np.linalg.eigvalsh(R.swapaxes(-1, -2) @ D @ R)[..., -1])


def leave_kinks_out(fit: Fit) -> LeftOut:
    """One step for a loss with kinks; without curvature rows without a slope leave nothing behind."""
    problem = fit.problem
    if not problem.refits_keep_the_rest or not problem.loss.is_kinked:
        return one_step(fit)
    acting = np.flatnonzero((fit.gradient != 0) | fit.pinned)
    eta, leverages, slack = fit.eta.copy(), np.zeros(problem.n), np.ones(problem.n)
    if acting.size == 0:
        return _result(fit, eta, leverages, slack)
    few = one_step(fit.of_rows(acting))
    eta[acting], leverages[acting], slack[acting] = few.eta, few.leverages, few.slack
    return _result(fit, eta, leverages, slack)
