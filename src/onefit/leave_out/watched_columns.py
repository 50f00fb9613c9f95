"""The columns that problems without sets of rows share, and their sums over the rows with other weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.fit import Fit
from onefit.leave_out.penalty_parts import PenaltyParts
from onefit.leave_out.vertex import DEPENDENT, may_be_tied
from onefit.leave_out.watched_groups import WatchedGroups
from onefit.leave_out.watched_kinks import WatchedKinks
from onefit.numerics import LEAST_SLACK
from onefit.penalties import SeparablePenalty

PINNED = 1e-4  # curvature given to shifts, beside that of their columns: an ℓ1 part soon ends one
ALONE = 8  # problems up to which products of pairs of columns take longer than a product for each
OF_PAIRS = 2**20  # numbers in an array of pairs of columns and rows, which is used once and let go


@dataclass(frozen=True, eq=False)
class WatchedColumns:
    """The columns that are watched, centred where there are intercepts, and a column of ones."""

    fit: Fit
    watched: Index
    Z: Array  # (n, e)
    means: Array  # (e − 1,)
    free: Mask  # (c, e), coordinates that are parameters
    parts: PenaltyParts
    l1: Array  # (c, e)
    l2: Array
    lower: Array
    upper: Array

    @classmethod
    def of(cls, fit: Fit, parts: PenaltyParts, watched: Index) -> WatchedColumns:
        problem = fit.problem
        part = np.ascontiguousarray(_linalg.as_columns(problem.X).columns_as_rows(watched)).T
        means = np.zeros(len(watched))
        if np.all(problem.intercept):
            means = np.average(part, axis=0, weights=problem.weights)
        Z = np.column_stack([part - means, np.ones(problem.n)])
        every = (parts.l1, 0.0), (parts.l2, 0.0), (parts.lower, -np.inf), (parts.upper, np.inf)
        l1, l2, lower, upper = (
            np.vstack([one.reshape(len(one), -1)[watched], np.full((1, problem.n_outputs), of_level)]).T
            for one, of_level in every
        )
        free = np.isfinite(l1) & np.isfinite(l2)
        free[:, -1] = problem.intercept
        l1, l2 = (np.where(free, one, 0.0) for one in (l1, l2))
        return cls(fit, watched, Z, means, free, parts, l1, l2, lower, upper)

    @property
    def outputs(self) -> int:
        return len(self.free)

    @cached_property
    def may_be_tied(self) -> Mask:
        """Coefficients that may be on their bound beside others as good: (p, c, 1)."""
        if not isinstance(self.fit.problem.penalty, SeparablePenalty):
            return np.asarray(self.parts.l2 == 0).reshape(len(self.fit.coef), -1, 1)
        return may_be_tied(self.fit).reshape(len(self.fit.coef), self.outputs, 1)

    def are_determined(self, removed: Sequence[Index]) -> Mask:
        """Whether the other rows see all of these columns that some rows do: (m,).

        Then no move of the coefficients changes predictors of these rows alone: where optima without them
        are several, all have the same.
        """
        rows, count = self._span, self.fit.problem.weights > 0
        left = [np.eye(len(some)) * count[some] - rows[some] @ rows[some].T for some in removed]
        return np.array([np.linalg.eigvalsh(one).min(initial=1.0) > LEAST_SLACK for one in left])

    @cached_property
    def _span(self) -> Array:
        """An orthonormal basis of what the rows that count see of these columns: (n, r)."""
        Z = self.Z * (self.fit.problem.weights > 0)[:, None]
        lengths = np.linalg.norm(Z, axis=0)
        left, sizes, _ = np.linalg.svd(Z[:, lengths > 0] / lengths[lengths > 0], full_matrices=False)
        return np.asarray(left[:, sizes > DEPENDENT * sizes.max(initial=0.0)])

    @cached_property
    def may_shift(self) -> Mask:
        """Columns along which a constant for all outputs changes no loss and bends no penalty: (e,)."""
        if not self.fit.problem.loss.ignores_shifts:
            return np.zeros(self.free.shape[1], dtype=bool)
        return np.asarray(self.l2.max(axis=0) == 0)

    @cached_property
    def groups(self) -> WatchedGroups:
        """Those that the penalty takes the norms of."""
        return WatchedGroups.of(self.parts.groups, self.watched, self.free.shape[1])

    def kinks(self, keep: Array) -> WatchedKinks:
        """Those of single coefficients, of problems that keep shares of the penalty (a, 1, 1)."""
        return WatchedKinks((self.l1 * keep).reshape(len(keep), -1), self.lower.ravel(), self.upper.ravel())

    def sums_of_pairs(self, weights: Array) -> Array:
        """Zᵀ diag(w) Z for each row of weights (b, n): (b, e, e), of many by one product with pairs."""
        n, e = self.Z.shape
        if len(weights) <= ALONE:
            return np.stack([_linalg.product((self.Z.T * own), self.Z) for own in weights])
        (left, right), columns = np.tril_indices(e), np.ascontiguousarray(self.Z.T)
        sums = np.zeros((len(weights), len(left)))
        size = max(1, OF_PAIRS // len(left))
        for start in range(0, n, size):
            some = columns[:, start : start + size]
            sums += _linalg.product(some[left] * some[right], weights[:, start : start + size].T).T
        place = np.empty((e, e), dtype=np.intp)
        place[left, right] = place[right, left] = np.arange(len(left))
        return sums[:, place]

    def pinned(self, K: Array, on: Mask) -> Array:
        """K (a, q, q) with curvature where all outputs of a column may shift together."""
        if not self.may_shift.any():
            return K
        c, e = self.free.shape
        pinned = K.reshape(-1, c, e, c, e).copy()
        shifts = on.reshape(-1, c, e).all(axis=1) & self.may_shift
        diagonal = PINNED * np.einsum("acece->ace", pinned).mean(axis=1)
        every = np.arange(e)
        pinned[:, :, every, :, every] += np.where(shifts, diagonal, 0.0).T[:, :, None, None]
        return pinned.reshape(K.shape)
