"""Ridge at every strength from one eigendecomposition.

With X̃ = W^½ (X − 1 x̄ᵀ) = Q S^½ Vᵀ and ỹ = W^½ (y − ȳ), at every strength alpha

    1 − leverage_i = (1 − Σ_j Q_ij² − w_i/Σw) + Σ_j Q_ij² alpha/(s_j + alpha),
    residual       = (ỹ − Q Qᵀỹ) + Q diag(alpha/(s + alpha)) Qᵀỹ,
    coefficients   = X̃ᵀ Q diag(1/(s + alpha)) Qᵀỹ,

none of which loses digits as alpha goes to zero (Golub, Heath and Wahba 1979).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from onefit import _linalg
from onefit._typing import Array
from onefit.problem import Fit, Problem
from onefit.risk.one_fit import FULL_LEVERAGE, LeftOut


@dataclass(frozen=True)
class RidgeSpectrum:
    """The eigendecomposition of a ridge problem, of the smaller of its two Gram matrices.

    Attributes
    ----------
    problem : Problem
        Its penalty is not looked at; ``y`` may have several columns.
    """

    problem: Problem

    @cached_property
    def _root(self) -> Array:
        return np.sqrt(self.problem.weights)

    @cached_property
    def _share(self) -> Array:
        """Leverage of the intercept: w_i / Σw, or 0."""
        weights = self.problem.weights
        return weights / weights.sum() if np.all(self.problem.intercept) else np.zeros(len(weights))

    @cached_property
    def _means(self) -> Array:
        if not np.all(self.problem.intercept):
            return np.zeros(self.problem.X.shape[1])
        return _linalg.column_means(self.problem.X, self.problem.weights)

    @cached_property
    def _level(self) -> Array:
        """Weighted mean of y, or 0."""
        y = self.problem.y
        if not np.all(self.problem.intercept):
            return np.zeros(y.shape[1:])
        return np.average(y, axis=0, weights=self.problem.weights)

    @cached_property
    def _decomposition(self) -> tuple[Array, Array]:
        """Q (n, r) and s (r,)."""
        X, weights, root = self.problem.X, self.problem.weights, self._root
        n, p = X.shape
        if p <= n:
            means = self._means if np.all(self.problem.intercept) else None
            gram = _linalg.weighted_gram(X, means, weights)
            s, V = _linalg.eigh(gram)
            s, V = _positive(s, V)
            half = V / np.sqrt(s)
            Q = _linalg.times(X, half) - self._means @ half
            return root[:, None] * Q, s
        G = _linalg.row_gram(X, np.ones(p))
        if np.all(self.problem.intercept):
            along = G @ self._share
            G = G - along - along[:, None] + self._share @ along
        s, Q = _positive(*_linalg.eigh(G * np.outer(root, root)))
        return Q, s

    @property
    def largest(self) -> float:
        """Largest eigenvalue of X̃ᵀX̃."""
        s = self._decomposition[1]
        return float(s.max(initial=0.0))

    @cached_property
    def _response(self) -> Array:
        """ỹ: (n, t)."""
        y = self.problem.y.reshape(self.problem.n, -1)
        return self._root[:, None] * (y - self._level.reshape(1, -1))

    @cached_property
    def _projected(self) -> Array:
        """Qᵀ ỹ: (r, t)."""
        return _linalg.product(self._decomposition[0].T, self._response)

    def left_out_residuals(self, alphas: Array) -> tuple[Array, Array]:
        """Y − η̃ for each strength, (n, t, J), and the slack 1 − leverage, (n, J)."""
        Q, s = self._decomposition
        shrink = alphas / (s[:, None] + alphas)  # (r, J)
        squares = Q**2
        slack = np.maximum(1.0 - squares.sum(axis=1) - self._share, 0.0)[:, None] + _linalg.product(
            squares, shrink
        )
        r, t = self._projected.shape
        kept = (self._projected[:, :, None] * shrink[:, None, :]).reshape(r, -1)
        rest = self._response - _linalg.product(Q, self._projected)
        residual = rest[:, :, None] + _linalg.product(Q, kept).reshape(len(Q), t, -1)
        weighted = residual / np.maximum(slack, FULL_LEVERAGE)[:, None, :]
        root = np.where(self._root > 0, self._root, 1.0)
        return weighted / root[:, None, None], slack

    def coefficients(self, alphas: Array) -> Array:
        """β at each strength: (p, t, J)."""
        Q, s = self._decomposition
        r, t = self._projected.shape
        dual = (self._projected[:, :, None] / (s[:, None] + alphas)[:, None, :]).reshape(r, -1)
        rows = self._root[:, None] * _linalg.product(Q, dual)
        coef = _linalg.transposed_times(self.problem.X, rows)
        coef = coef - np.outer(self._means, rows.sum(axis=0))
        return coef.reshape(-1, t, len(alphas))

    def levels(self, coefs: Array) -> Array:
        """Intercepts that belong to coefficients (p, t, J): (t, J)."""
        return self._level.reshape(-1, 1) - np.tensordot(self._means, coefs, (0, 0))

    def left_out(self, fit: Fit, residual: Array, slack: Array) -> LeftOut:
        """Leave-one-out at one strength, from its column of ``left_out_residuals``."""
        y = self.problem.y
        eta = y - residual.reshape(y.shape)
        gone = self.problem.weights == 0
        eta[gone] = fit.eta[gone]
        return LeftOut(fit, eta, np.where(gone, 0.0, 1.0 - slack), np.where(gone, 1.0, slack))


def _positive(values: Array, vectors: Array) -> tuple[Array, Array]:
    """Eigenpairs above rounding."""
    keep = values > len(values) * np.finfo(float).eps * max(float(values.max(initial=0.0)), 1e-300)
    return values[keep], vectors[:, keep]
