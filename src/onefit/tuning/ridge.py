"""Ridge at every strength from one eigendecomposition.

With X̃ = W^½ (X − 1 x̄ᵀ) = Q S^½ Vᵀ and ỹ = W^½ (y − ȳ), at every strength alpha

    1 − leverage_i = (1 − Σ_j Q_ij² − w_i/Σw) + Σ_j Q_ij² alpha/(s_j + alpha),
    residual       = (ỹ − Q Qᵀỹ) + Q diag(alpha/(s + alpha)) Qᵀỹ,
    coefficients   = X̃ᵀ Q diag(1/(s + alpha)) Qᵀỹ,

none of which loses digits as alpha goes to zero (Golub, Heath and Wahba 1979).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from onefit import _linalg
from onefit._typing import Array
from onefit.fit import Fit
from onefit.leave_out import LeftOut, leave_out
from onefit.leave_out.step import FULL_LEVERAGE
from onefit.penalties import L2
from onefit.problem import Problem
from onefit.tuning.grid import Grid
from onefit.tuning.path import SearchResult, judged
from onefit.tuning.selection import Selection


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
            gram = _linalg.as_columns(X).weighted_gram(means, weights)
            s, V = _linalg.eigh(gram)
            s, V = _positive(s, V)
            half = V / np.sqrt(s)
            Q = _linalg.times(X, half) - self._means @ half
            return root[:, None] * Q, s
        G = _linalg.as_design(X).row_gram(np.ones(p))
        if np.all(self.problem.intercept):
            G = _linalg.centred_gram(G, self._share)
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
        held = self.problem.weights > 0
        saturated = len(s) >= np.count_nonzero(held) - bool(np.all(self.problem.intercept))
        unit = np.ones(len(alphas)) if saturated else alphas  # alpha cancels: both vanish with it
        shrink = unit / (s[:, None] + alphas)  # (r, J)
        squares = Q**2
        beyond = np.maximum(1.0 - squares.sum(axis=1) - self._share, 0.0) * (not saturated)
        slack = beyond[:, None] + _linalg.product(squares, shrink)
        r, t = self._projected.shape
        kept = (self._projected[:, :, None] * shrink[:, None, :]).reshape(r, -1)
        rest = (self._response - _linalg.product(Q, self._projected)) * (not saturated)
        residual = rest[:, :, None] + _linalg.product(Q, kept).reshape(len(Q), t, -1)
        least = 0.0 if saturated else FULL_LEVERAGE
        # a row that alone fixes a direction: what is left of residual and slack is rounding
        lost = (slack <= least) & held[:, None]
        ratio = residual / np.where(slack > least, slack, 1.0)[:, None, :]
        ratio[np.broadcast_to(lost[:, None, :], ratio.shape)] = np.nan
        root = np.where(held, self._root, 1.0)
        return ratio / root[:, None, None], np.where(
            held[:, None], slack * (alphas if saturated else 1.0), 1.0
        )

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

    def left_out(self, alpha: float) -> LeftOut:
        """Leave-one-out at one strength."""
        problem = replace(self.problem, penalty=L2(alpha))
        strength = np.array([alpha])
        coefs = self.coefficients(strength)
        outputs = problem.y.shape[1:]
        fit = Fit(problem, coefs.reshape(-1, *outputs), self.levels(coefs).reshape(outputs))
        residual, slack = self.left_out_residuals(strength)
        if np.isnan(residual).any():  # a row alone fixes a direction: it has to be refitted
            return leave_out(fit)
        gone = problem.weights == 0
        eta = problem.y - residual.reshape(problem.y.shape)
        eta[gone] = fit.eta[gone]
        # nothing was divided by a vanishing slack, so none is left to be wary of
        return LeftOut(
            fit, eta, np.zeros(problem.n), np.where(gone, 0.0, 1.0 - slack[:, 0]), np.ones(problem.n)
        )


def search_ridge(spectrum: RidgeSpectrum, grid: Grid, selection: Selection) -> SearchResult:
    """Judge every strength, strongest first, and more at either end while the risk falls, and choose."""
    alphas, losses = _judged_while_falling(spectrum, grid)
    weights, shape = spectrum.problem.weights, spectrum.problem.y.shape
    coefs = spectrum.coefficients(alphas)
    levels = spectrum.levels(coefs).T.reshape(len(alphas), *shape[1:])
    coefs = np.moveaxis(coefs, 2, 0).reshape(len(alphas), -1, *shape[1:])
    return judged(alphas, losses, weights, coefs, levels, selection)


def _judged_while_falling(spectrum: RidgeSpectrum, grid: Grid) -> tuple[Array, Array]:
    """Strengths and losses, a decade more at a time at an end where the risk still falls."""
    alphas, losses = grid.values, _losses(spectrum, grid.values)
    weights, decade = spectrum.problem.weights, max(int(np.ceil(grid.step)), 1)
    below, above = grid.below(grid.room_below), grid.above(grid.room_above)
    while below.size and grid.falls_below(_linalg.column_means(losses, weights)):
        more, below = below[:decade], below[decade:]
        alphas, losses = np.append(alphas, more), np.hstack([losses, _losses(spectrum, more)])
    while above.size and grid.falls_above(_linalg.column_means(losses, weights)):
        more, above = above[:decade][::-1], above[decade:]
        alphas, losses = np.append(more, alphas), np.hstack([_losses(spectrum, more), losses])
    return alphas, losses


def _losses(spectrum: RidgeSpectrum, alphas: Array) -> Array:
    """Left-out loss of each row at each strength: (n, J)."""
    shape = spectrum.problem.y.shape
    losses = np.empty((shape[0], len(alphas)), order="F")
    at_once = max(1, _linalg.BLOCK_SIZE // max(1, int(np.prod(shape))))
    for start in range(0, len(alphas), at_once):
        part = slice(start, start + at_once)
        losses[:, part] = np.mean(spectrum.left_out_residuals(alphas[part])[0] ** 2, axis=1)
    for j in np.flatnonzero(np.isnan(losses).any(axis=0)):
        squares = (spectrum.problem.y - spectrum.left_out(float(alphas[j])).eta) ** 2
        losses[:, j] = squares.reshape(shape[0], -1).mean(axis=1)
    return losses


def _positive(values: Array, vectors: Array) -> tuple[Array, Array]:
    """Eigenpairs above rounding."""
    keep = values > len(values) * np.finfo(float).eps * max(float(values.max(initial=0.0)), 1e-300)
    return values[keep], vectors[:, keep]
