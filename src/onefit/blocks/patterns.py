"""Rows whose removal changes the pattern of a lasso or an elastic net, solved on the sums over all rows.

Without row i the problem at a strength is that of K' − κ z zᵀ, with K' = Σ w z zᵀ + (1 − f) l2, f = w/W and
κ = w / (1 − w/W).  On the support of the fit its solution is that of the formula in ``left_out_path``; where
a sign changes, or a correlation passes its bound, the pattern is exchanged until none does.  All rows at all
strengths are problems of one ``Tableau``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from onefit._linalg import product, pseudo_factor
from onefit._typing import Array, Index, Mask
from onefit.blocks.sums import RowSums
from onefit.leave_out.elimination import Elimination, StackedResponses
from onefit.leave_out.exchange import HELD_ALONE, LETS_GO, QuadraticModels, of_whole_rows
from onefit.leave_out.tableau import Tableau
from onefit.numerics import EPS, LEAST_SLACK, NOISE, ON_BOUND

AT_HAND = 2**16  # numbers of an array of all strengths that is made at once
SURE = 1.0 + 1e-6  # factor on a bound that rounding does not undo


class LeftOutResiduals(NamedTuple):
    """Left-out residuals of some rows, (J, b), and where their conditions of optimality hold."""

    residuals: Array
    solved: Mask


@dataclass(frozen=True, eq=False)
class Patterns:
    """The models of all strengths, with their supports eliminated.

    Attributes
    ----------
    supports : Elimination
        Of each strength.
    gram : (p, p) array
        Σ w z zᵀ.
    base, drift : (p, J) arrays
        Coefficients on the supports and correlations off them, and what a refit without a row of unit
        weight adds for the penalty that it takes along.
    pulls : (J, p, p) array
        From z to K'⁻¹ z_S on the support, and to what the support leaves of z off it.
    reach : (p, J) array
        How far they move, at most, where a row of unit length in K'⁻¹ pulls with a slope of one.
    weight : float
        W.
    base_leverage : float
        1/W, or 0 without an intercept.
    is_strict : bool
        Whether an ℓ2 part leaves no refit a second optimum.
    nonnegative : bool
        Whether no coefficient goes below zero.
    """

    supports: Elimination
    gram: Array
    base: Array
    drift: Array
    pulls: Array
    reach: Array
    weight: float
    base_leverage: float
    is_strict: bool
    nonnegative: bool = False

    @classmethod
    def of(
        cls, sums: RowSums, coefs: Array, drifts: Array, l1: Array, l2: Array, *, nonnegative: bool = False
    ) -> Patterns:
        """Eliminate the supports.

        Parameters
        ----------
        sums : RowSums
        coefs, drifts : (p, J) arrays
            β and K'⁻¹ ∇P / W.
        l1, l2 : (J,) arrays
            Strengths on the scale of the sum; l2 as a refit keeps it.
        nonnegative : bool, default False
        """
        inside = coefs != 0
        H, pulls = _eliminated(sums.gram, l2, inside)
        base = np.where(inside, coefs, sums.cross[:, [0]] - sums.gram @ coefs)
        drift = np.where(inside, drifts, -(sums.gram @ drifts))
        strengths = np.broadcast_to(l1, coefs.shape)
        supports = Elimination(inside, np.sign(coefs), strengths, StackedResponses(H), np.arange(len(H)))
        diagonal = np.diagonal(H, axis1=1, axis2=2).T
        leant = np.where(inside, diagonal, sums.gram.diagonal()[:, None] + l2 - diagonal)
        reach = np.sqrt(np.maximum(leant, 0.0))
        known = supports, sums.gram, base, drift, pulls, reach, sums.weight, sums.base_leverage
        return cls(*known, bool(np.all(l2 > 0)), nonnegative)

    def left_out(
        self, Z: Array, y: Array, weights: Array, on_patterns: Array, slack: Array
    ) -> LeftOutResiduals:
        """Left-out residuals of some rows.

        Parameters
        ----------
        Z : (p, b) array
            Centred.
        y : (b,) array
            Less its mean.
        weights : (b,) array
        on_patterns, slack : (J, b) arrays
            Left-out residuals as long as the patterns stay, and 1 − w h.
        """
        off = np.array(on_patterns)
        if off.size == 0:
            return LeftOutResiduals(off, np.ones(off.shape, dtype=bool))
        solved = ~self._are_alone_at_fit(Z, weights)
        changed = self._changed(Z, weights, off, slack) | ~np.isfinite(off)
        for part in np.array_split(np.argwhere(changed), max(1, changed.sum() * len(Z) // AT_HAND)):
            j, b = part.T
            models = self._models(Z, y, weights, j, b)
            found = models.minima()
            anew = -found.tau / (weights[b] * (1.0 - LETS_GO))
            determined = models.determined(found)
            v = np.where(determined, found.inverse_slack, 1.0)
            anew *= of_whole_rows(v) / v
            off[j, b], solved[j, b] = np.where(found.settled, anew, off[j, b]), found.settled
            if not self.is_strict:
                tied = models.tied(found)
                which = np.flatnonzero(found.settled & (tied.any(axis=0) | ~determined))
                if which.size:
                    free = (found.x != 0)[:, which] | tied[:, which]
                    solved[j[which], b[which]] &= ~self._are_alone(Z[:, b[which]], weights[b[which]], free)
        return LeftOutResiduals(off, solved)

    @cached_property
    def _tied(self) -> Mask:
        """Zeros whose kinks hold all that they can at the fit, where nothing else holds them: (p, J)."""
        pull = self.base if self.nonnegative else np.abs(self.base)
        held = ~self.supports.inside & (pull >= (1.0 - ON_BOUND) * self.supports.l1)
        return held & (not self.is_strict)

    def _are_alone_at_fit(self, Z: Array, weights: Array) -> Mask:
        """Rows that alone tell what is tied from the support: (J, b)."""
        alone = np.zeros((self.base.shape[1], len(weights)), dtype=bool)
        for j, (free, root) in self._free_at_fit.items():
            alone[j] = self._tell_alone(root, Z[free], weights)
        return alone

    @cached_property
    def _free_at_fit(self) -> dict[int, tuple[Mask, Array]]:
        """Support and what is tied, where something is, and a root of the inverse on both, by strength."""
        free = {
            int(j): self._tied[:, j] | self.supports.inside[:, j]
            for j in np.flatnonzero(self._tied.any(axis=0))
        }
        return {j: (own, self._root_on(own)) for j, own in free.items()}

    def _root_on(self, free: Mask) -> Array:
        """W with W Wᵀ = K⁺ of some columns."""
        return pseudo_factor(self.gram[np.ix_(free, free)], NOISE * EPS)

    def _are_alone(self, Z: Array, weights: Array, free: Mask) -> Mask:
        """Rows (p, a) that alone tell the columns apart that are free without them, (p, a): (a,).

        A row that does not among all columns that are free without any does not among fewer.
        """
        every = np.asarray(free.any(axis=1))
        alone = self._tell_alone(self._root_on(every), Z[every], weights)
        some = np.flatnonzero(alone)
        patterns, which = np.unique(free.T[some], axis=0, return_inverse=True)
        for k, pattern in enumerate(patterns):
            own = some[which.ravel() == k]
            alone[own] = self._tell_alone(self._root_on(pattern), Z[pattern][:, own], weights[own])
        return alone

    def _tell_alone(self, root: Array, Z: Array, weights: Array) -> Mask:
        """Rows (k, a) that alone tell some columns apart, of which a root is known: (a,).

        A refit without such a row has other optima with other predictions for it.
        """
        forms = np.square(product(root.T, Z)).sum(axis=0)
        return np.asarray(weights * (forms + self.base_leverage) >= 1.0 - HELD_ALONE)

    def _changed(self, Z: Array, weights: Array, residuals: Array, slack: Array) -> Mask:
        """Rows whose pattern changes at some strengths: (J, b)."""
        step = weights * residuals
        changed = slack < LEAST_SLACK
        j, k = self._near_kinks(Z, weights, step, slack)
        kept = 1.0 - weights / self.weight
        for part in np.array_split(np.arange(j.size), max(1, j.size * len(weights) // AT_HAND)):
            own, at = j[part], (k[part], j[part])
            inside = self.supports.inside[at]
            towards = np.where(inside, -self.supports.sign[at], 1.0)  # zero, or the bound on either side
            ahead = product(-towards[:, None] * self.pulls[own, k[part]], Z)
            ahead *= step[own]
            ahead += (towards * self.base[at])[:, None]
            ahead += np.outer(towards * self.drift[at], weights)
            if not self.nonnegative:
                ahead[~inside] = np.abs(ahead[~inside])
            held = np.where(inside, 0.0, self.supports.l1[at])
            held *= 1.0 + np.where(self._tied[at] | self.is_strict, ON_BOUND, -ON_BOUND)  # others may be tied
            moves = ahead > np.outer(held, kept)
            some, first = np.unique(own, return_index=True)
            changed[some] |= np.logical_or.reduceat(moves, first, axis=0)
        return changed & (weights > 0)

    def _near_kinks(self, Z: Array, weights: Array, step: Array, slack: Array) -> tuple[Index, Index]:
        """Strengths and coordinates that some row may move past a kink, by Cauchy and Schwarz."""
        h = np.maximum((1.0 - slack) / np.where(weights > 0, weights, np.inf) - self.base_leverage, 0.0)
        inner = (np.sqrt(h) * np.abs(step)).max(axis=1)
        room = self.reach * inner + np.abs(self.drift) * weights.max(initial=0.0)
        beside = np.abs(Z).max(axis=1, initial=0.0)[:, None] * np.abs(step).max(axis=1, initial=0.0)
        start, held = np.abs(self.base), self.supports.l1 * (1.0 - weights.max(initial=0.0) / self.weight)
        off = self.base if self.nonnegative else start
        inside = start <= room * SURE, off + (room + beside) * SURE > held
        j, k = np.nonzero(np.where(self.supports.inside, *inside).T)
        return j, k

    def _models(self, Z: Array, y: Array, weights: Array, j: Index, b: Index) -> QuadraticModels:
        """Rows b at strengths j, which ascend."""
        z, w, inside = Z[:, b], weights[b], self.supports.inside[:, j]
        kept = 1.0 - w * self.base_leverage
        pull = np.empty_like(z)
        for first, stop in pairwise([*np.flatnonzero(np.diff(j, prepend=-1)).tolist(), j.size]):
            pull[:, first:stop] = product(self.pulls[j[first]], z[:, first:stop])
        at_fit = self.base[:, j]
        base = at_fit + self.drift[:, j] * w
        on_support = np.where(inside, z, 0.0)
        keep = 1.0 - w / self.weight
        supports = self.supports.of(j)  # one that all share where there is one strength
        tableau = Tableau(
            supports,
            base[None],
            pull,
            keep[None],
            (1.0 - LETS_GO) * w / kept,
            (np.einsum("pa,pa->a", on_support, base) - y[b])[None],
            np.einsum("pa,pa->a", on_support, pull),
        )
        start = np.where(inside, at_fit, 0.0)
        bound = supports.l1 * keep
        return QuadraticModels(tableau=tableau, start=start, bound=bound, nonnegative=self.nonnegative)


def _eliminated(gram: Array, l2: Array, inside: Mask) -> tuple[Array, Array]:
    """Eliminate the supports S of all strengths from K = Σ w z zᵀ + l2.

    K_SS⁻¹ beside K_SS⁻¹ K_SN on the rows of a support, −K_NS K_SS⁻¹ and what S leaves of K_NN below; and what
    takes z to K_SS⁻¹ z_S and to z_N − K_NS K_SS⁻¹ z_S.  Each strength takes what its own support asks for.

    Returns
    -------
    (J, p, p), (J, p, p) arrays
        The columns of the first are what is asked for: they lie side by side in memory.
    """
    p, J = inside.shape
    columns, pulls, every = np.empty((J, p, p)), np.empty((J, p, p)), np.arange(p)
    columns[:], pulls[:] = gram, np.eye(p)
    columns[:, every, every] += l2[:, None]
    for column, pull, own in zip(columns, pulls, inside.T, strict=True):
        on = np.flatnonzero(own)
        rows = column[on]
        inverse = np.linalg.inv(rows[:, on])
        across = inverse @ rows
        column -= across.T @ rows
        column[on], column[:, on] = -across, across.T
        pull[:, on] -= across.T
        pull[on[:, None], on] = column[on[:, None], on] = inverse
    return columns.swapaxes(1, 2), pulls
