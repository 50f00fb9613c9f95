"""Steps towards refits without sets of rows, told by the rows alone.

The parameters without set G are θ̂ − K_G⁻¹ Zᵀ u at every step of ``chords``: gradients are sums over rows,
and that of the penalty at θ̂ is one, too: Zᵀ g = −∇P(θ̂).  With H_G = Z K_G⁻¹ Zᵀ and η = η̂ − H_G u a step is

    u ← (1 − κ) u + ℓ′(η) − share g − κ D_G (η − η̂),

one product with H_G, whatever the number of columns; κ is the share of the penalty that is left, beside that
of its curvature in K_G.  Every few steps of a problem are mixed, in the norm of H_G, which is about that of
A⁻¹ in the gradient.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from onefit._typing import Array, Index, Mask
from onefit.curvature import Direction
from onefit.leave_out.chords import End, FoldProblems, Point
from onefit.solvers.mixing import ChordStep, mixed

MIXED = 3  # steps that are mixed
PATIENCE = 4  # steps that may pass without one that is the shortest so far


class RowEnd(NamedTuple):
    """Where steps in the rows came to."""

    dual: Array  # u, of the shape of η
    eta: Array
    settled: Mask

    def ended(self, refits: FoldProblems, parameters: Callable[[Array], Direction]) -> End:
        """The parameters there, by K_G⁻¹ Zᵀ, and whether the objective has fallen."""
        fit = refits.fit
        with np.errstate(over="ignore", invalid="ignore"):
            step = parameters(self.dual)
            point = Point(
                fit.coef[..., None] - step.coef, fit.intercept[..., None] - step.intercept, self.eta
            )
            return End(point, self.settled & refits.descended(point))

    def take(self, which: Mask, dual: Array, eta: Array) -> None:
        """Go on to other points, where asked to."""
        self.dual[..., which], self.eta[..., which] = dual[..., which], eta[..., which]


def steps_in_rows(
    refits: FoldProblems,
    respond: Callable[[Array], Array],
    rows: Index,
    max_steps: int,
    tol: float = 1.0,
    shrink: float = 1.0,
) -> RowEnd:
    """Steps from the fit, until those of each fold become small, or no longer shrink.

    Parameters
    ----------
    refits : FoldProblems
    respond : callable
        H_G times a column of each fold.
    rows : (f, b) int array
        Those that leave.
    max_steps : int
    tol : float, default 1
        How much longer the last steps may be than at full precision.
    shrink : float, default 1
        Factor on the penalty's curvature in K_G.
    """
    fit, f = refits.fit, len(rows)
    share = refits.keeps / shrink
    base, everyone = fit.eta[..., None], np.arange(f)[:, None]
    dual, eta = np.zeros((*fit.eta.shape, f)), np.repeat(base, f, axis=-1)
    end = RowEnd(dual.copy(), eta.copy(), np.zeros(f, dtype=bool))
    least, waited, seen = np.full(f, np.inf), np.zeros(f), deque[ChordStep](maxlen=MIXED)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for _ in range(max_steps):
            bent = _bent(fit.hessian, eta - base)
            bent[rows, ..., everyone] = 0.0
            linear = refits.keeps * fit.gradient[..., None] + share * bent
            target = (1.0 - share) * dual + refits.slope(eta) - linear
            ahead = base - respond(target)
            moved = np.abs(ahead - eta).reshape(-1, f).max(axis=0)
            shorter = moved < least  # false, too, where it is not finite
            end.take(shorter, target, ahead)
            end.settled[:] |= moved <= tol * refits.tol
            least, waited = np.where(shorter, moved, least), np.where(shorter, 0, waited + 1)
            if np.all(end.settled | (waited >= PATIENCE)):
                break
            seen.append(ChordStep(np.stack([target, ahead]), target - dual, eta - ahead))
            dual, eta = mixed(seen)
    return end


def _bent(hessian: Array, change: Array) -> Array:
    """D times changes of the linear predictors, one a fold along the last axis."""
    if hessian.ndim == 3:
        return np.asarray(np.einsum("nab,nbf->naf", hessian, change))
    return hessian[..., None] * change
