"""Steps of single rows with the factor of the fit, and bounds by the gradient that they leave.

With A = K − d_i z_i z_iᵀ, H = Z K⁻¹ Zᵀ and δ = Z (θ̃ − θ̂), row j leaves e_j = ℓ′_j(η_j + δ_j) − g_j − d_j δ_j
beside what is linear.  The first step, δ = H e_i g_i/(1 − d_i h_i), leaves the gradient Zᵀ e, and the next,

    δ = first − Z A⁻¹ Zᵀ e,      A⁻¹ = K⁻¹ + K⁻¹ z_i z_iᵀ K⁻¹ d_i/(1 − d_i h_i),

leaves that of the new e less the last.  As A is at least Σ_{j≠i} d_j z_j z_jᵀ, its norm in A⁻¹ is at most
(Σ_{j≠i} e_j²/d_j)^½.  Each row moves by its own δ_j and has its own z_jᵀ A⁻¹ z_j, where ``bound_steps``
takes the widest leverage for all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from onefit._typing import Array, Index, Mask
from onefit.curvature import Curvature, Direction, ScalarCurvature
from onefit.fit import Fit
from onefit.leave_out.prove import concordance, radius
from onefit.leave_out.result import LeftOut, SolvedWithout
from onefit.leave_out.step import Step
from onefit.numerics import LEAST_SLACK


def applies(fit: Fit, curvature: Curvature) -> bool:
    """Whether there is one smooth output, and refits keep the rest as it is."""
    keeps = fit.problem.refits_keep_the_rest and isinstance(curvature, ScalarCurvature)
    return keeps and bool(concordance(fit))


class Weighed(NamedTuple):
    """Where the steps of some rows came to."""

    eta: Array  # (r,)
    bounds: Array  # (r,)
    dual: Array  # (n, r), θ̃ = θ̂ + K⁻¹ Zᵀ times this
    further: Mask  # (r,), beyond the first step


@dataclass(frozen=True, eq=False)
class _LeftOutRows:
    """The problems without each of some rows."""

    fit: Fit
    step: Step
    rows: Index
    room: Array  # (r,), 1 − d h
    hat: Array  # (n, r)

    @cached_property
    def stays(self) -> Mask:
        """Rows that each problem has: (n, r)."""
        stays = np.repeat((self.fit.problem.weights > 0)[:, None], len(self.rows), axis=1)
        stays[self._own] = False
        return stays

    @property
    def _own(self) -> tuple[Index, Index]:
        return self.rows, np.arange(len(self.rows))

    def some(self, which: Mask) -> _LeftOutRows:
        return replace(self, rows=self.rows[which], room=self.room[which], hat=self.hat[:, which])

    def first(self) -> tuple[Array, Array]:
        """δ and the dual of the first step: (n, r) each."""
        dual = np.zeros_like(self.hat)
        dual[self._own] = self.step.gradient[self.rows] / self.room
        return self.hat * dual[self._own], dual

    def next(self, left: Array) -> tuple[Array, Array]:
        """δ and the dual of the step that follows."""
        change, dual = self.first()
        ahead = self.step.curvature.hat(left)
        pull = self.fit.hessian[self.rows] * ahead[self._own] / self.room
        dual[self._own] -= pull
        return change - ahead - self.hat * pull, dual - left

    def left(self, change: Array) -> Array:
        """What is left of the gradient of each row: (n, r)."""
        fit, problem = self.fit, self.fit.problem
        moved = problem.per_row(problem.loss_at("gradient", fit.eta[:, None] + change))
        return np.where(self.stays, moved - fit.gradient[:, None] - fit.hessian[:, None] * change, 0.0)

    def bounds(self, change: Array, left: Array) -> Array:
        """Bounds of the predictors at δ with this gradient: (r,)."""
        d, R = self.fit.hessian[:, None], concordance(self.fit)
        assert R is not None
        squares = np.divide(left**2, d, out=np.zeros_like(left), where=left != 0)
        forms = self.step.forms[:, None] + self.hat**2 * (d[self.rows, 0] / self.room)
        widest, far = (np.max(one, axis=0, initial=0.0, where=self.stays) for one in (forms, np.abs(change)))
        length = radius(R, np.sqrt(squares.sum(axis=0)), far, np.sqrt(widest), np.ones(len(self.rows)))
        return np.sqrt(self.step.forms[self.rows] / self.room) * length


def weigh(fit: Fit, step: Step, slack: Array, rows: Index) -> Weighed:
    """Steps of some rows, further ones for those that have no bound as long as some then have one."""
    K = step.curvature
    assert isinstance(K, ScalarCurvature)
    problems = _LeftOutRows(fit, step, rows, np.maximum(slack[rows], LEAST_SLACK), K.hat_columns(rows))
    nothing = np.full(len(rows), np.inf)
    found = Weighed(fit.eta[rows], nothing, np.zeros_like(problems.hat), np.zeros(len(rows), dtype=bool))
    rest, last = np.flatnonzero(slack[rows] >= LEAST_SLACK), np.zeros(())
    problems = problems.some(np.isin(np.arange(len(rows)), rest))
    change, dual = problems.first()
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for patience in (True, *len(rows) * (False,)):
            left = problems.left(change)
            bounds = problems.bounds(change, left - last)
            known = np.isfinite(bounds)
            found.eta[rest[known]] += change[problems.rows[known], known.nonzero()[0]]
            found.bounds[rest[known]], found.dual[:, rest[known]] = bounds[known], dual[:, known]
            if known.all() or not (known.any() or patience):
                break
            found.further[rest[~known]] = True
            rest, problems, last = rest[~known], problems.some(~known), left[:, ~known]
            change, dual = problems.next(last)
    return found


def parameters(fit: Fit, step: Step, dual: Array) -> Direction:
    """Coefficients and intercepts there, along the last axis."""
    moved = step.curvature.solve(Direction(*fit.problem.gradient_of(dual)))
    return Direction(fit.coef[:, None] + moved.coef, fit.intercept + moved.intercept)


def improved(
    fit: Fit, step: Step, found: LeftOut, rows: Index
) -> tuple[dict[int, tuple[float, float]], dict[int, SolvedWithout]]:
    """Values and bounds of those rows that have better ones, and parameters beyond the first step."""
    known = weigh(fit, step, found.slack, rows)
    better = known.bounds < found.bounds[rows]
    values = {int(rows[j]): (known.eta[j], known.bounds[j]) for j in np.flatnonzero(better)}
    further = np.flatnonzero(better & known.further)  # others are told by the step
    coef, level = parameters(fit, step, known.dual[:, further])
    each = zip(further, coef.T, level, strict=True)
    return values, {int(rows[j]): SolvedWithout(known.eta[j], *one) for j, *one in each}
