"""K of many outputs on the same features, nearly, at a fraction of what their factors cost.

Logistic losses are curved where a row is uncertain: for one class against the rest in few rows.  Of each
output the rows with the largest weights d_i are summed as they are and the others with the mean d̄ of theirs,

    Σ_i d_i z_i z_iᵀ  ≈  Σ_largest (d_i − d̄) z_i z_iᵀ + d̄ Σ_i z_i z_iᵀ,

the last sum being that of all outputs.  It is exact where all weights are equal, as at the constant model,
and where few rows have any.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index
from onefit.curvature import Independent
from onefit.curvature.primal import Primal
from onefit.problem import Moments

SHARE = 5  # one row in so many is summed as it is
PER_FEATURE = 2  # and at least so many rows a feature


@dataclass(frozen=True, eq=False)
class NearCurvature:
    """What serves the curvatures of all outputs of all fits on the same rows.

    Attributes
    ----------
    X : (n, p) array
    """

    X: Array

    @cached_property
    def _means(self) -> Array:
        return np.asarray(self.X.mean(axis=0))

    @cached_property
    def _gram(self) -> Array:
        """Of all rows, centred: the lower triangle."""
        return _linalg.as_columns(self.X).weighted_gram(self._means, np.ones(len(self.X)))

    def moments(self, d: Array) -> list[Moments]:
        """Sums over the rows for each column of weights (n, c)."""
        means = _linalg.product(self.X.T, d) / np.maximum(d.sum(axis=0), np.finfo(float).tiny)
        return [
            Moments(self.X, own, middle, self._summed(own, middle))
            for own, middle in zip(d.T, means.T, strict=True)
        ]

    def curvature(self, moments: list[Moments], alpha: float, judged: Index | None = None) -> Independent:
        """Curvature of outputs with intercepts and a ridge penalty.

        Parameters
        ----------
        moments : list of Moments
        alpha : float
        judged : array of row numbers, optional
            Those whose quadratic forms are asked for; all if not given.
        """
        rows, ridge = (self.X if judged is None else self.X[judged]), np.full(self.X.shape[1], alpha)
        factors = [Primal(rows, None, len(ridge), ridge, own.weights, True, own) for own in moments]
        return Independent(factors, np.arange(len(factors)))

    def _summed(self, d: Array, means: Array) -> Array:
        """Σ d (x − m)(x − m)ᵀ, nearly: the lower triangle."""
        most = max(len(d) // SHARE, PER_FEATURE * self.X.shape[1])
        if most >= len(d):
            return _linalg.as_columns(self.X).weighted_gram(means, d)
        largest = np.sort(np.argpartition(-d, most)[:most])
        rest = max(0.0, (d.sum() - d[largest].sum()) / (len(d) - most))
        away = self._means - means
        gram = np.asfortranarray(rest * (self._gram + len(d) * np.outer(away, away)))
        block = self.X[largest]
        block -= means
        block *= np.sqrt(np.maximum(d[largest] - rest, 0.0))[:, None]
        return _linalg.add_gram(gram, block)
