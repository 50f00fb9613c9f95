"""Ridge regression on many training sets of the same rows: one Gram matrix, down-dated for each.

With A the centred columns and a column of ones, and the sums G = Aᵀ W A and b = Aᵀ W y over all rows, the fit
without rows T solves (G − A_Tᵀ W_T A_T + C) θ = b − A_Tᵀ W_T y_T: a product over the rows that leave, and a
factorisation, in place of a product over all the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index
from onefit.curvature import Direction
from onefit.fit import Fit
from onefit.losses import Squared
from onefit.penalties import SeparablePenalty
from onefit.problem import Problem

LEAST_SHARE = 1e-8  # smallest pivot of a down-dated factor, relative to the largest, that is no rounding


class Downdated(NamedTuple):
    """K of a training set: what gradients need of a curvature."""

    cholesky: Array  # lower triangular, of the centred columns and ones
    means: Array
    intercept: bool

    def solve(self, gradient: Direction) -> Direction:
        """K⁻¹ ``gradient``."""
        if not self.intercept:
            return Direction(_linalg.factor_solve(self.cholesky, gradient.coef), np.zeros(()))
        stacked = np.append(gradient.coef - self.means * gradient.intercept, gradient.intercept)
        found = _linalg.factor_solve(self.cholesky, stacked)
        return Direction(found[:-1], np.asarray(found[-1] - self.means @ found[:-1]))


@dataclass(frozen=True, eq=False)
class RidgeSplits:
    """What all training sets share."""

    problem: Problem
    means: Array  # (p,)
    rows: Array  # A: (n, q)
    gram: Array  # G: (q, q)
    moments: Array  # b: (q,)

    @classmethod
    def of(cls, problem: Problem) -> RidgeSplits | None:
        """Sum over all rows; None where the problem is no ridge regression of one output, or is wide."""
        X, penalty = problem.X, problem.penalty
        if not isinstance(problem.loss, Squared) or not isinstance(penalty, SeparablePenalty):
            return None
        if not problem.has_one_output or problem.is_balanced or not _linalg.is_full(X):
            return None
        wide = X.shape[1] >= np.count_nonzero(problem.weights)
        if wide or penalty.has_kinks((X.shape[1],)) or np.any(np.isinf(penalty.ridge((X.shape[1],)))):
            return None
        intercept = bool(problem.intercept)
        means = _linalg.column_means(X, problem.weights) if intercept else np.zeros(X.shape[1])
        A = X - means
        A = np.hstack([A, np.ones((problem.n, 1))]) if intercept else np.ascontiguousarray(A)
        weighted = A * problem.weights[:, None]
        return cls(problem, means, A, _linalg.product(weighted.T, A), weighted.T @ problem.y)

    def serves(self, problem: Problem) -> bool:
        """Whether another problem differs in its ridge penalty alone."""
        own = self.problem
        same = problem.loss == own.loss and bool(problem.intercept) == bool(own.intercept)
        for one, other in ((problem.y, own.y), (problem.weights, own.weights)):
            same = same and np.array_equal(one, other)
        return same and _linalg.is_same(problem.X, own.X) and not problem.penalty.has_kinks(self.means.shape)

    def without(self, left: Problem, removed: Index) -> tuple[Fit, Downdated] | None:
        """Fit and curvature of the problem without some rows; None where K is singular to rounding."""
        A, problem = self.rows[removed], self.problem
        weighted = A * problem.weights[removed, None]
        K = self.gram - weighted.T @ A
        strengths = left.penalty.ridge(self.means.shape)
        K[np.diag_indices(len(strengths))] += strengths
        L = _linalg.cholesky(np.asfortranarray(K))
        if L is None or L.diagonal().min() <= LEAST_SHARE * L.diagonal().max():
            return None
        intercept = bool(problem.intercept)
        theta = _linalg.factor_solve(L, self.moments - weighted.T @ problem.y[removed])
        coef = theta[: len(strengths)]
        level = np.asarray(theta[-1] - self.means @ coef) if intercept else np.zeros(())
        fit = replace(Fit(left, coef, level)).known(eta=self.rows @ theta)
        return fit, Downdated(L, self.means, intercept)
