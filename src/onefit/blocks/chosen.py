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

from onefit._linalg import Factorization, cholesky, factor_solve, product, times_upper
from onefit._typing import Array, Index
from onefit.blocks.patterns import SURE, Patterns
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
        gram = sums.gram[np.ix_(support, support)] + kept * l2 * np.eye(len(support))
        K = Factorization.of(gram)  # else columns depend on each other, and nothing holds them apart
        size = K.condition if K.is_definite else DEPENDENT
        return cls(sums, support, coef[support], l1, l2, mean_scaled, K.inverse(), rounding_of_slack(size))

    def left_out(self, block: Block) -> RowValues:
        """Return the values of the rows of a block of any size."""
        return RowValues.joined([self._values(part) for part in block.parts()])

    def _values(self, part: Block) -> RowValues:
        sums, k = self.sums, len(self.support)
        weights = np.ones(len(part.y)) if part.weights is None else part.weights
        Z = centred_columns(part.X, sums.means, self._order)
        shares = weights / sums.weight * self.mean_scaled
        lengths = self._lengths(Z)
        h = lengths[0] + sums.base_leverage
        slack = 1.0 - weights * h
        fitted = product(Z[:k].T, self.coef) + sums.y_means[0]
        residual = np.ravel(part.y) - fitted - shares * product(Z[:k].T, self._drift)
        residual /= np.maximum(slack, LEAST_SLACK)
        left_out = np.ravel(part.y) - residual
        held = weights > 0
        left_out[~held] = fitted[~held]
        rounding = self.rounding * np.abs(left_out - fitted) / np.maximum(slack, LEAST_SLACK)
        off = self._off(Z, lengths, weights, residual, shares) if self.l1 > 0 else 0.0
        bounds = np.where(slack < LEAST_SLACK, np.inf, rounding + off)
        anew = np.flatnonzero(held & (bounds > rounding) & (self.l1 > 0))
        if anew.size and self._patterns is not None:
            own = (
                np.ravel(part.y)[anew] - sums.y_means[0],
                weights[anew],
                residual[None, anew],
                slack[None, anew],
            )
            (residuals,), (solved,) = self._patterns.left_out(Z[np.argsort(self._order)][:, anew], *own)
            there = anew[solved]
            left_out[there] = np.ravel(part.y)[there] - residuals[solved]
            bounds[there] = self.rounding * np.abs(residuals[solved])
        bounds[~held] = 0.0
        return RowValues(fitted, left_out, np.clip(weights * h, 0.0, 1.0), slack, bounds)

    def _lengths(self, Z: Array) -> tuple[Array, Array]:
        """Squared lengths of rows in K⁻¹, and what the columns off the support add to them: (b,) each."""
        k = len(self.support)
        if self._whole is None:
            inner = np.einsum("ij,ji->i", product(Z[:k].T, self.inverse), Z[:k])
            return inner, np.full(len(inner), np.inf)
        half = times_upper(Z.copy().T, self._whole).T
        return np.einsum("ji,ji->i", half[:k], half[:k]), np.einsum("ji,ji->i", half[k:], half[k:])

    @cached_property
    def _whole(self) -> Array | None:
        """L⁻ᵀ, L the factor of A with what a refit keeps of ℓ2; None where columns are dependent."""
        gram = self.sums.gram[np.ix_(self._order, self._order)]
        L = cholesky(gram + self._kept_l2 * np.eye(len(gram)))
        return None if L is None else np.ascontiguousarray(np.linalg.inv(L).T)

    @cached_property
    def _patterns(self) -> Patterns | None:
        """What solves rows whose pattern changes; None where they keep unequal shares of an ℓ2 part."""
        if not self.mean_scaled or (self._is_unequal and self.l2 > 0):
            return None
        coefs, drifts = np.zeros((len(self.sums.means), 1)), np.zeros((len(self.sums.means), 1))
        coefs[self.support, 0], drifts[self.support, 0] = self.coef, self._drift / self.sums.weight
        return Patterns.of(self.sums, coefs, drifts, np.array([self.l1]), np.array([self._kept_l2]))

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

    def _off(
        self, Z: Array, lengths: tuple[Array, Array], weights: Array, residual: Array, shares: Array
    ) -> Array:
        """How far rows may be off whose refits have other signs, or another share of the ℓ2 part: (b,)."""
        k, slopes = len(self.support), weights * residual
        flips, enters = self._near_kinks(lengths, slopes, shares)
        columns = np.concatenate([flips, enters])
        along = product(Z.T, self._responses[:, columns]).T * -slopes
        along += self._start[columns, None] + np.outer(self._shift[columns], shares)
        m, signs = len(flips), np.sign(self.coef[flips])[:, None]
        past = np.minimum(along[:m] * signs, 0.0) * signs
        excess = np.maximum(np.abs(along[m:]) - self.l1 * (1.0 - shares) * (1.0 + ROOM), 0.0)
        unequal = self._unequal(shares, Z[:k], slopes)
        rows = np.flatnonzero(past.any(axis=0) | excess.any(axis=0) | (unequal > 0))
        bounds = np.zeros(Z.shape[1])
        if rows.size:
            found = (flips, past[:, rows]), (enters, excess[:, rows])
            bounds[rows] = self._bounds((lengths[0] + lengths[1])[rows], weights[rows], *found, unequal[rows])
        return bounds

    def _near_kinks(self, lengths: tuple[Array, Array], slopes: Array, shares: Array) -> tuple[Index, Index]:
        """Columns whose sign a row may change, and those that may enter, by Cauchy and Schwarz."""
        k, size = len(self.support), np.abs(slopes)
        inner, outer = (float((np.sqrt(own) * size).max(initial=0.0)) for own in lengths)
        drift = np.abs(self._shift) * float(shares.max())
        room = self._sizes * np.repeat([inner, outer], [k, len(drift) - k]) * SURE + drift
        start, highest = np.abs(self._start), self.l1 * (1.0 - float(shares.max())) * (1.0 + ROOM)
        return np.flatnonzero(start[:k] <= room[:k]), k + np.flatnonzero(start[k:] + room[k:] > highest)

    @cached_property
    def _sizes(self) -> Array:
        """How far coefficients, and correlations off the support, move by rows of unit length: (q,)."""
        gram = self.sums.gram.diagonal()[self._order[len(self.support) :]] + self._kept_l2
        left = gram + np.einsum(
            "kl,kl->l", self._across, self._responses[: len(self.support), len(self.support) :]
        )
        squares = np.append(self.inverse.diagonal(), left)
        return np.sqrt(np.maximum(squares, TINY))

    @cached_property
    def _start(self) -> Array:
        """Coefficients, and correlations off the support: (q,)."""
        correlations = self.sums.cross[self._order[len(self.support) :], 0] - self.coef @ self._across
        return np.concatenate([self.coef, correlations])

    @cached_property
    def _shift(self) -> Array:
        """What these gain where the whole penalty leaves: (q,)."""
        return np.concatenate([self._drift, -self._drift @ self._across])

    def _bounds(
        self,
        lengths: Array,
        weights: Array,
        past: tuple[Index, Array],
        excess: tuple[Index, Array],
        unequal: Array,
    ) -> Array:
        """The bound at the head of this module, for δ and e with entries at some columns: (r,)."""
        factor = self._factor
        if factor is None:
            return np.full(len(weights), np.inf)
        gram, inverse = factor
        spread = self._kept_l2 / self._least_l2 if self._least_l2 > 0 else 1.0
        h = lengths * spread + self.sums.base_leverage
        slack = np.maximum(1.0 - weights * h, TINY)
        outside = _norms(inverse, *excess)
        off = 2.0 * _norms(gram, *past) + (outside + unequal) / np.sqrt(slack)
        return np.where(slack > LEAST_SLACK, np.sqrt(h / slack) * off, np.inf)

    @cached_property
    def _factor(self) -> tuple[Array, Array] | None:
        """A, and A⁻¹ with the least ℓ2 part; None where columns are dependent."""
        gram, unit = self.sums.gram[np.ix_(self._order, self._order)], np.eye(len(self._order))
        L = cholesky(gram + self._least_l2 * unit)
        return None if L is None or self._whole is None else (gram + self.l2 * unit, factor_solve(L, unit))

    @property
    def _kept_l2(self) -> float:
        """ℓ2 part that a refit keeps without a row of mean weight."""
        return self.l2 * (1.0 - 1.0 / self.sums.count if self.mean_scaled else 1.0)

    @property
    def _least_l2(self) -> float:
        """ℓ2 part of the refit that keeps least of it."""
        return self.l2 * (1.0 - self.sums.largest_weight / self.sums.weight * self.mean_scaled)

    @property
    def _is_unequal(self) -> bool:
        return self.mean_scaled and not self.sums.has_equal_weights

    def _unequal(self, shares: Array, Z: Array, slopes: Array) -> Array:
        """What the mean share of ℓ2 leaves of the subgradient, in A⁻¹: (b,)."""
        if self.l2 == 0 or not self._is_unequal:
            return np.zeros(len(shares))
        steps = product(Z.T, self.inverse).T * -slopes + np.outer(self._drift, shares)
        apart = self.l2 * np.abs(shares - 1.0 / self.sums.count)
        return apart * np.linalg.norm(steps, axis=0) / np.sqrt(self._least_l2)


def _norms(A: Array, columns: Index, entries: Array) -> Array:
    """√(vᵀ A v) of vectors with entries, (m, r), at some columns: (r,)."""
    if columns.size == 0:
        return np.zeros(entries.shape[1])
    along = product(A[np.ix_(columns, columns)], entries)
    return np.sqrt(np.maximum(np.einsum("jr,jr->r", along, entries), 0.0))
