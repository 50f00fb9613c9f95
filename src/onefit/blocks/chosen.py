"""Every row at one strength: its left-out prediction, its leverage, and how far the prediction may be off.

The left-out residual (``left_out_path``) is that of a refit as long as no sign changes.  Where some do, let δ
be the coefficients that the step takes past zero, e the excess of correlations over their strength off the
support, and A the Hessian of all columns.  Without the row it is A⁽ⁱ⁾ = A − w z zᵀ; what a candidate's
subgradient leaves is A⁽ⁱ⁾δ + e, so that strong convexity gives, with h the leverage on all columns,

    |η̃ − η⁽ⁱ⁾| ≤ √(h/(1 − w h)) (2 ‖δ‖_A + ‖e‖_{A⁻¹} / √(1 − w h)).

Unequal weights shrink an ℓ2 part by unequal shares f_i, where the step knows their mean: that leaves
ℓ2 |f_i − f̄| ‖Δβ‖ more of the subgradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from onefit._linalg import cholesky, condition, factor_solve, half_solve, product, pseudo_factor
from onefit._typing import Array, Index
from onefit.blocks.rows import Block, centred_columns
from onefit.blocks.sums import RowSums
from onefit.numerics import LEAST_SLACK, TINY, rounding_of_slack

DEPENDENT = 1e11  # condition up to which columns are told from their like
ROOM = 1e-12  # share of a strength that is rounding


class RowValues(NamedTuple):
    """One value a row, (b,) each.

    Attributes
    ----------
    fitted, left_out : arrays
        Linear predictors with the row and without it.
    leverages, slack : arrays
        w h and 1 − w h.
    bounds : array
        How far each left-out predictor may be off; infinite where nothing is known.
    """

    fitted: Array
    left_out: Array
    leverages: Array
    slack: Array
    bounds: Array

    @classmethod
    def joined(cls, parts: list[RowValues]) -> RowValues:
        """Put the values of blocks together."""
        return cls(*(np.concatenate(values) for values in zip(*parts, strict=True)))


@dataclass(frozen=True, eq=False)
class ChosenStrength:
    """A squared-loss fit with a separable penalty, known by sums over the rows.

    Attributes
    ----------
    sums : RowSums
        About zero for a model without an intercept.
    support : (k,) int array
    coef : (k,) array
    l1, l2 : float
        Strengths on the scale of the sum.
    mean_scaled : bool
        Whether a refit without row i keeps the share 1 − w_i/W of the penalty.
    inverse : (k, k) array
        K⁻¹.
    rounding : float
        Relative error of steps.
    """

    sums: RowSums
    support: Index
    coef: Array
    l1: float
    l2: float
    mean_scaled: bool
    inverse: Array
    rounding: float

    @classmethod
    def of(cls, sums: RowSums, coef: Array, l1: float, l2: float, *, mean_scaled: bool) -> ChosenStrength:
        """Factor K = G_SS + ℓ2 I, with what a refit keeps of ℓ2."""
        support = np.flatnonzero(coef) if l1 > 0 else np.arange(len(coef))
        kept = 1.0 - 1.0 / sums.count if mean_scaled else 1.0
        K = sums.gram[np.ix_(support, support)] + kept * l2 * np.eye(len(support))
        L = cholesky(K)
        if L is None:  # columns that depend on each other, and nothing that holds them apart
            half = pseudo_factor(K)
            inverse, size = product(half, half.T), DEPENDENT
        else:
            inverse, size = factor_solve(L, np.eye(len(L))), condition(L)
        return cls(sums, support, coef[support], l1, l2, mean_scaled, inverse, rounding_of_slack(size))

    def left_out(self, block: Block) -> RowValues:
        """Return the values of the rows of a block of any size."""
        return RowValues.joined([self._values(part) for part in block.parts()])

    def _values(self, part: Block) -> RowValues:
        sums, k = self.sums, len(self.support)
        weights = np.ones(len(part.y)) if part.weights is None else part.weights
        Z = centred_columns(part.X, sums.means, self._order)
        shares = weights / sums.weight * self.mean_scaled
        along = product(Z.T, self._responses).T
        h = np.einsum("ji,ji->i", along[:k], Z[:k]) + sums.base_leverage
        slack = 1.0 - weights * h
        fitted = product(Z[:k].T, self.coef) + sums.y_means[0]
        residual = np.ravel(part.y) - fitted - shares * product(Z[:k].T, self._drift)
        residual /= np.maximum(slack, LEAST_SLACK)
        left_out = np.ravel(part.y) - residual
        held = weights > 0
        left_out[~held] = fitted[~held]
        bounds = self.rounding * np.abs(left_out - fitted) / np.maximum(slack, LEAST_SLACK)
        if self.l1 > 0:
            bounds += self._off(Z, along, weights, residual, shares)
        bounds[slack < LEAST_SLACK] = np.inf
        bounds[~held] = 0.0
        return RowValues(fitted, left_out, np.clip(weights * h, 0.0, 1.0), slack, bounds)

    @cached_property
    def _order(self) -> Index:
        """The support, and the other columns where they may enter."""
        rest = (
            np.setdiff1d(np.arange(len(self.sums.means)), self.support) if self.l1 > 0 else self.support[:0]
        )
        return np.concatenate([self.support, rest])

    @cached_property
    def _across(self) -> Array:
        """G_SL for the columns off the support: (k, l)."""
        return self.sums.gram[np.ix_(self.support, self._order[len(self.support) :])]

    @cached_property
    def _drift(self) -> Array:
        """K⁻¹ ∇P: (k,)."""
        return self.inverse @ (self.l1 * np.sign(self.coef) + self.l2 * self.coef)

    @cached_property
    def _responses(self) -> Array:
        """From z to what coefficients, and correlations off the support, gain by a slope of one: (q, q)."""
        k, q = len(self.support), len(self._order)
        responses = np.zeros((q, q), order="F")
        responses[:k, :k] = self.inverse
        responses[:k, k:] = -product(self.inverse, self._across)
        responses[k:, k:] = np.eye(q - k)
        return responses

    def _off(self, Z: Array, along: Array, weights: Array, residual: Array, shares: Array) -> Array:
        """How far rows may be off whose refits have other signs, or another share of the ℓ2 part: (b,)."""
        k, signs = len(self.support), np.sign(self.coef)
        along *= -weights * residual
        unequal = self._unequal(shares, along[:k])
        correlations = self.sums.cross[self._order[k:], 0] - self.coef @ self._across
        start = np.concatenate([self.coef, correlations])
        drift = np.concatenate([self._drift, -self._drift @ self._across])
        along += start[:, None] + (
            np.outer(drift, shares) if self._is_unequal else drift[:, None] * shares[0]
        )
        along[:k] *= signs[:, None]
        np.abs(along[k:], out=along[k:])
        flips = along[:k].min(axis=1, initial=np.inf) < 0.0
        enters = along[k:].max(axis=1, initial=0.0) > self.l1 * (1.0 - shares.max()) * (1.0 + ROOM)
        bounds = np.zeros(Z.shape[1])
        past = np.minimum(along[:k][flips], 0.0)
        excess = np.maximum(along[k:][enters] - self.l1 * (1.0 - shares) * (1.0 + ROOM), 0.0)
        rows = np.flatnonzero(past.any(axis=0) | excess.any(axis=0) | (unequal > 0))
        if rows.size:
            bounds[rows] = self._bounds(
                Z[:, rows],
                weights[rows],
                (np.flatnonzero(flips), past[:, rows] * signs[flips][:, None]),
                (k + np.flatnonzero(enters), excess[:, rows]),
                unequal[rows],
            )
        return bounds

    def _bounds(
        self,
        Z: Array,
        weights: Array,
        past: tuple[Index, Array],
        excess: tuple[Index, Array],
        unequal: Array,
    ) -> Array:
        """The bound at the head of this module, for δ and e with entries at some columns: (r,)."""
        factor = self._factor
        if factor is None:
            return np.full(len(weights), np.inf)
        L, gram, inverse = factor
        h = np.square(half_solve(L, Z.T)).sum(axis=1) + self.sums.base_leverage
        slack = np.maximum(1.0 - weights * h, TINY)
        outside = _norms(inverse, *excess)
        off = 2.0 * _norms(gram, *past) + (outside + unequal) / np.sqrt(slack)
        return np.where(slack > LEAST_SLACK, np.sqrt(h / slack) * off, np.inf)

    @cached_property
    def _factor(self) -> tuple[Array, Array, Array] | None:
        """Lower factor of A with the least ℓ2 part, A itself, and A⁻¹; None where columns are dependent."""
        gram, unit = self.sums.gram[np.ix_(self._order, self._order)], np.eye(len(self._order))
        L = cholesky(gram + self._least_l2 * unit)
        if L is None:
            return None
        return L, gram + self.l2 * unit, factor_solve(L, unit)

    @property
    def _least_l2(self) -> float:
        """ℓ2 part of the refit that keeps least of it."""
        return self.l2 * (1.0 - self.sums.largest_weight / self.sums.weight * self.mean_scaled)

    @property
    def _is_unequal(self) -> bool:
        return self.mean_scaled and not self.sums.has_equal_weights

    def _unequal(self, shares: Array, steps: Array) -> Array:
        """What the mean share of ℓ2 leaves of the subgradient, in A⁻¹: (b,)."""
        if self.l2 == 0 or not self._is_unequal:
            return np.zeros(len(shares))
        steps = steps + np.outer(self._drift, shares)
        apart = self.l2 * np.abs(shares - 1.0 / self.sums.count)
        return apart * np.linalg.norm(steps, axis=0) / np.sqrt(self._least_l2)


def _norms(A: Array, columns: Index, entries: Array) -> Array:
    """√(vᵀ A v) of vectors with entries, (m, r), at some columns: (r,)."""
    if columns.size == 0:
        return np.zeros(entries.shape[1])
    along = product(A[np.ix_(columns, columns)], entries)
    return np.sqrt(np.maximum(np.einsum("jr,jr->r", along, entries), 0.0))
