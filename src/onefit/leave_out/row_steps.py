"""Steps towards refits without sets of rows that are told by the rows alone, where columns are many.

The parameters without set G are θ̂ − K_G⁻¹ Zᵀ u at every step: gradients are sums over rows, and that of the
penalty at θ̂ is one, too: Zᵀ g = −∇P(θ̂).  With H_G = Z K_G⁻¹ Zᵀ and η = η̂ − H_G u a step is

    u ← (1 − κ) u + ℓ′(η) − share g − κ D_G (η − η̂),

one product with H_G, whatever the number of columns; κ is the share of the penalty that is left, beside that
of its curvature in K_G.  Every few steps of a problem are mixed, in the norm of H_G, which is about that of
A⁻¹ in the gradient.  Folds that have settled are left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from onefit._typing import Array, Index, Mask
from onefit.curvature import Direction
from onefit.fit import Fit
from onefit.leave_out.chords import End, FoldProblems, Point
from onefit.solvers.mixing import LEAVE, MIXED, ChordStep, mixed

QUICK = 0.1  # of the step before, up to which steps are not mixed: that takes as long as a step
PATIENCE = 4  # steps that may pass without one that is the shortest so far


class RowEnd(NamedTuple):
    """Where steps in the rows came to."""

    dual: Array  # u, of the shape of η
    eta: Array
    settled: Mask

    @classmethod
    def at_fit(cls, fit: Fit, f: int) -> RowEnd:
        """Where f folds begin."""
        eta = np.repeat(fit.eta[..., None], f, axis=-1)
        return cls(np.zeros_like(eta), eta, np.zeros(f, dtype=bool))

    def ended(self, refits: FoldProblems, parameters: Callable[[Array], Direction]) -> End:
        """The parameters there, by K_G⁻¹ Zᵀ, and whether the objective has fallen."""
        fit = refits.fit
        with np.errstate(over="ignore", invalid="ignore"):
            step = parameters(self.dual)
            eta = fit.eta[..., None] - refits.base.predict(step)  # with the rounding that these have
            point = Point(fit.coef[..., None] - step.coef, fit.intercept[..., None] - step.intercept, eta)
            return End(point, self.settled & refits.descended(point))

    def take(self, moving: _Moving, which: Mask, dual: Array, eta: Array) -> None:
        """Go on to other points of those that move, where asked to."""
        some = moving.which[which]
        self.dual[..., some], self.eta[..., some] = dual[..., which], eta[..., which]


class WithoutSets(Protocol):
    """H_G = Z K_G⁻¹ Zᵀ of some folds."""

    def respond(self, rows: Array) -> Array:
        """H_G times a column of each fold."""

    def of(self, which: Index) -> WithoutSets:
        """That of some of the folds."""


@dataclass(eq=False)
class _Moving:
    """Folds that have not settled, and the steps that they took."""

    refits: FoldProblems
    without: WithoutSets
    rows: Index  # (f, b)
    shrink: float
    which: Index  # (f,)
    dual: Array
    eta: Array
    least: Array  # (f,), length of the shortest step so far
    waited: Array  # (f,), steps since
    seen: Sequence[ChordStep] = ()

    def step(self) -> tuple[Array, Array]:
        """The next u, and the linear predictors there."""
        target = (1.0 - self.share) * self.dual + self._pull()
        return target, self.refits.fit.eta[..., None] - self.without.respond(target)

    @property
    def share(self) -> Array:
        """κ: (f,)."""
        return self.refits.keeps / self.shrink

    def _pull(self) -> Array:
        """κ u where a step leads nowhere else."""
        fit, refits = self.refits.fit, self.refits
        bent = self._bent(self.eta - fit.eta[..., None], self.rows)
        linear = refits.keeps * fit.gradient[..., None] + self.share * bent
        return refits.slope(self.eta) - linear

    def _bent(self, way: Array, rows: Index) -> Array:
        """How gradients change along ways from the fit by its curvature, without these rows."""
        bent = self.refits.fit.bent(way)
        bent[rows, ..., np.arange(len(rows))[:, None]] = 0.0
        return bent

    def started_at(self, eta: Array) -> None:
        """Start at linear predictors, as if a step led there."""
        self.eta = eta
        self.dual = self._pull() / self.share

    def left(self, target: Array, ahead: Array, some: Index) -> Array:
        """How many times the steps of some folds is yet to go, about, and at least one: (m,).

        Where the curvature is a share of that in K_G along all the way from the fit, which is mostly the way
        on, a step is that share of what is left.
        """
        way = ahead[..., some] - self.refits.fit.eta[..., None]
        bent, ends = self._bent(way, self.rows[some]), tuple(range(way.ndim - 1))
        known, at_fit = -np.sum(target[..., some] * way, axis=ends), np.sum(bent * way, axis=ends)
        there = self.refits.of(some).bending(ahead[..., some], way)
        there += self.share[some] * np.maximum(known - at_fit, 0.0)
        return np.maximum(1.0, np.where(known > 0, known / there, 1.0))

    def go(self, target: Array, ahead: Array, *, mix: bool) -> None:
        """Go where a step leads, or where it leads together with those before."""
        if not mix:
            self.dual, self.eta = target, ahead
            return
        own = ChordStep(np.stack([target, ahead]), target - self.dual, self.eta - ahead)
        self.seen = [*self.seen, own][-MIXED:]
        self.dual, self.eta = mixed(self.seen)

    def without_settled(self, settled: Mask) -> _Moving:
        """The others alone, once so many have settled that this saves more than it takes."""
        keep = np.flatnonzero(~settled[self.which])
        if keep.size > (1.0 - LEAVE) * self.which.size:
            return self
        seen = [one.of(keep) for one in self.seen]
        return _Moving(
            self.refits.of(keep),
            self.without.of(keep),
            self.rows[keep],
            self.shrink,
            self.which[keep],
            self.dual[..., keep],
            self.eta[..., keep],
            self.least[keep],
            self.waited[keep],
            seen,
        )


def steps_in_rows(
    refits: FoldProblems,
    without: WithoutSets,
    rows: Index,
    max_steps: int,
    tol: float = 1.0,
    shrink: float = 1.0,
    start: Array | None = None,
) -> RowEnd:
    """Steps from the fit, or from a ``start``, until those of each fold become small, or no longer shrink.

    Parameters
    ----------
    refits : FoldProblems
    without : WithoutSets
        H_G of the same folds.
    rows : (f, b) int array
        Those that leave.
    max_steps : int
    tol : float, default 1
        How much longer the last steps may be than at full precision.
    shrink : float, default 1
        Factor on the penalty's curvature in K_G.
    start : (n, f) or (n, c, f) array, optional
        Linear predictors.
    """
    f, small = len(rows), tol * refits.tol
    end = RowEnd.at_fit(refits.fit, f)
    begun = np.arange(f), end.dual.copy(), end.eta.copy(), np.full(f, np.inf), np.zeros(f)
    moving = _Moving(refits, without, rows, shrink, *begun)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        if start is not None:
            moving.started_at(start)
        for _ in range(max_steps):
            target, ahead = moving.step()
            moved = np.abs(ahead - moving.eta).reshape(-1, moving.which.size).max(axis=0)
            shorter = moved < moving.least  # false, too, where it is not finite
            end.take(moving, shorter, target, ahead)
            close = np.flatnonzero((moved <= small) & ~end.settled[moving.which])
            if close.size:
                left = moved[close] * moving.left(target, ahead, close)
                end.settled[moving.which[close]] = left <= small
            settled = end.settled[moving.which]
            quick = bool(np.all(settled | (moved <= QUICK * moving.least)))
            moving.least = np.where(shorter, moved, moving.least)
            moving.waited = np.where(shorter, 0, moving.waited + 1)
            if np.all(settled | (moving.waited >= PATIENCE)):
                break
            moving.go(target, ahead, mix=not quick)
            moving = moving.without_settled(end.settled)
    return end
