"""The tableau of losses with kinks beside a penalty that has some, too: both are rows of one program.

With the rows V of data and penalty on kinks, Λ the ℓ2 part and Z the rows on coefficients and intercept,

    [[P, R], [Rᵀ, −T]] = [[Λ, Z_Vᵀ], [Z_V, 0]]⁻¹

make up the M of ``follow_kinks``, with H = Z P Zᵀ.  In a linear program T is zero: a row that leaves its kink
goes along an edge, and s stands still until another row is at a kink of its own.  Paths are followed with
ε RᵀR added to T, as beside a faint penalty on the distance from the fit, which leaves that optimal and which,
if ε is small enough, changes no vertex (Friedlander and Tseng 2007); where they end the pattern is solved
without.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.leave_out.kink_tableau import AtEnds, Held, KinkTableau
from onefit.leave_out.straight_rows import corners_of
from onefit.numerics import CERTIFIED, SNAP
from onefit.numerics import size_of_duals as size_beside
from onefit.penalties import Polyhedral, SeparablePenalty
from onefit.solvers import quadratic_program

FAINT = 1e-6  # share of the duals that moves predictors by as much as the kinks are


def applies(fit: Fit) -> bool:
    """Whether loss and penalty are rows of a program on the coefficients alone."""
    problem, penalty = fit.problem, fit.problem.penalty.without_ridge()
    if not problem.loss.is_kinked or not problem.loss.is_quadratic or not problem.has_one_output:
        return False
    if not isinstance(penalty, Polyhedral) or not _linalg.has_columns(problem.X):
        return False
    strengths = [problem.penalty.ridge(fit.coef.shape)]
    if isinstance(problem.penalty, SeparablePenalty):
        strengths.extend(problem.penalty.strengths(fit.coef.shape))
    return bool(np.isfinite(strengths).all()) and penalty.thresholds(fit.coef).size == 0


@dataclass(frozen=True, eq=False)
class ProgramTableau(KinkTableau):
    """That of a polyhedral penalty, whose rows are below those of the data.

    Attributes
    ----------
    Z : (n, d) array
        All rows on the coefficients, and on the intercept if there is one.
    """

    Z: Array

    @classmethod
    def of(cls, fit: Fit) -> Self | None:
        """None where the fit is not the only optimum."""
        problem, held = fit.problem, np.flatnonzero(fit.problem.weights > 0)
        try:
            program, dual = quadratic_program.solved_program(fit)
        except SolverError:
            return None
        coef, _ = dual.primal()
        away = np.abs(_linalg.times(problem.X, coef - fit.coef)).max(initial=0.0)
        if away > CERTIFIED * np.abs(fit.eta).max(initial=0.0):
            return None
        corners, slopes, m = corners_of(fit), fit.slopes, len(program.kinks) - len(held)
        own = np.concatenate([held, problem.n + np.arange(m)])
        level = np.ones((problem.n, int(bool(problem.intercept))))
        rows = np.hstack([_linalg.as_columns(program.X).dense(), program.extra])[len(held) :]
        Z = np.vstack([np.hstack([_linalg.as_columns(problem.X).dense(), level]), rows])
        eta, gradient = np.append(fit.eta, np.zeros(m)), np.zeros(len(Z))
        on_kink, place = np.zeros(len(Z), dtype=bool), np.zeros(len(Z), dtype=np.intp)
        eta[own], gradient[own], place[own] = dual.eta, dual.duals, dual.state
        pins = own[dual.pins]
        on_kink[pins], place[pins] = True, place[pins] + 1
        penalised = np.pad(program.kinks[len(held) :], [(0, 0), (1, 1)], constant_values=np.inf)
        penalised[:, 0] = -np.inf
        kinks = np.vstack([_wider(corners, penalised.shape[1]), penalised])
        slopes = np.vstack([_wider(slopes, program.ends.shape[1]), program.ends[len(held) :]])
        eta[pins] = kinks[pins, place[pins]]
        found = cls(fit, eta, gradient, on_kink, kinks, slopes, place, Z)
        return found if found._is_regular else None

    @cached_property
    def pins(self) -> Index:
        """Rows V: (v,)."""
        return np.flatnonzero(self.on_kink)

    @cached_property
    def _bend(self) -> Array:
        """Diagonal of Λ: (d,)."""
        l2 = self.fit.problem.penalty.ridge(self.fit.coef.shape)
        return np.append(l2, np.zeros(self.Z.shape[1] - len(l2)))

    @cached_property
    def _system(self) -> Array:
        held = self.Z[self.pins]
        return _linalg.bordered(np.diag(self._bend), held.T, np.zeros((len(held), len(held))))

    @cached_property
    def _is_regular(self) -> bool:
        sizes = np.sqrt(np.maximum(np.abs(self._system).max(axis=0), np.finfo(float).tiny))
        units = np.outer(sizes, sizes)
        condition = np.linalg.norm(self._system / units, 1) * np.linalg.norm(self._solved * units, 1)
        return bool(condition < 1.0 / CERTIFIED**2)

    @cached_property
    def _solved(self) -> Array:
        try:
            return np.asarray(np.linalg.inv(self._system), dtype=np.float64)
        except np.linalg.LinAlgError:
            return np.full(self._system.shape, np.nan)

    @cached_property
    def _inverse(self) -> tuple[Array, Array, Array]:
        """P, R and T."""
        d, found = self.Z.shape[1], self._solved
        return found[:d, :d], found[:d, d:], -found[d:, d:]

    @cached_property
    def size_of_duals(self) -> float:
        widest = float(np.abs(self.slopes[np.isfinite(self.slopes)]).max(initial=0.0))
        return size_beside(self.gradient, widest, CERTIFIED * widest) or 1.0  # all may be zero

    @cached_property
    def _give(self) -> Array:
        """What a faint penalty adds to T, by rows of all, zero off kinks: (n, v)."""
        R = self._inverse[1][self._bend == 0]
        soft, found = R.T @ R, np.zeros((len(self.Z), len(self.pins)))
        largest = float(soft.diagonal().max(initial=0.0)) or 1.0
        found[self.pins] = FAINT * self.size_of_duals / (self.size_of_kinks * largest) * soft
        return found

    def yielding(self, which: Index) -> Array:
        found = self.columns(which)
        found[..., self.pins] -= self._give[which]
        return found

    def _new_columns(self, which: Index) -> Array:
        P, R, T = self._inverse
        M, on_kink = np.empty((len(self.Z), which.size)), self.on_kink[which]
        own = np.searchsorted(self.pins, which[on_kink])
        M[:, on_kink] = self.Z @ R[:, own]
        M[np.ix_(self.pins, on_kink)] = -T[:, own]
        free = self.Z[which[~on_kink]].T
        M[:, ~on_kink] = -self.Z @ (P @ free)
        M[np.ix_(self.pins, ~on_kink)] = -R.T @ free
        return M

    def ends(self, changes: Array) -> AtEnds:
        P, R, _ = self._inverse
        forces = np.where(self.on_kink[:, None], 0.0, -changes)
        moved = P @ (self.Z.T @ forces) + R @ changes[self.pins]
        p, eta = len(self.fit.coef), self.eta[:, None] + self.Z @ moved
        coef = self.fit.coef[:, None] + moved[:p]
        if isinstance(self.fit.problem.penalty, SeparablePenalty):
            l1, _ = self.fit.strengths
            sizes = np.abs(self.Z).max(axis=0)[:p, None]
            little = SNAP * (np.abs(coef * sizes).max(axis=0, initial=0.0) + self.size_of_kinks)
            coef[(l1 > 0)[:, None] & (np.abs(coef) * sizes <= little)] = 0.0
        return AtEnds(coef, self.fit.intercept + moved[p:].sum(axis=0), eta)

    def is_unique(self, held: Held) -> Mask:
        """Whether rows strictly inside their kinks determine what nothing curves."""
        return self.determined_by(self.Z[:, self._bend == 0], held)


def _wider(values: Array, width: int) -> Array:
    """The same with the last column repeated."""
    return np.pad(values, [(0, 0), (0, max(width - values.shape[1], 0))], "edge")
