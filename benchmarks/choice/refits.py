"""Refits by brute force, independent of the library: coordinate descent and active sets, compiled by numba.

All fits of a problem differ in which rows are held, and each starts at the fit to all rows.  Penalties are
α(ρ‖β‖₁ + (1 − ρ)‖β‖²/2), beside half the mean of squared residuals or the sum of logistic or Poisson losses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numba import njit

Array = np.ndarray
SMALL = 1e-12  # share of the null deviance that a sweep may still gain
ROUNDS = 60
STEPS = 30  # of Newton
MOST_PARAMETERS = 0.7  # a row, after which a path ends
NOBODY = np.empty(0, dtype=np.int64)
FARTHEST = 30.0  # linear predictors beyond which losses are not followed
FLAT = 1e-10  # ridge of active sets whose columns are dependent, relative to their curvature


@njit(cache=True)
def _sweep(gram, gradient, coef, l1, l2):
    """One round of coordinate descent: the largest gain.  ``gradient`` is Xᵀ of the residuals."""
    largest = 0.0
    for j in range(len(coef)):
        curvature = gram[j, j] + l2
        if gram[j, j] <= 0:
            continue
        old = coef[j]
        slope = gradient[j] + gram[j, j] * old
        new = np.sign(slope) * max(abs(slope) - l1, 0.0) / curvature
        if new != old:
            change = new - old
            gradient -= change * gram[j]
            coef[j] = new
            largest = max(largest, curvature * change * change)
    return largest


@njit(cache=True)
def _step(gram, gradient, coef, active, l1, l2):
    """From the coefficients in use to their minimum, had they kept their signs."""
    a = len(active)
    matrix, right = np.empty((a, a)), np.empty(a)
    for i in range(a):
        right[i] = gradient[active[i]] - l1 * np.sign(coef[active[i]]) - l2 * coef[active[i]]
        for k in range(a):
            matrix[i, k] = gram[active[i], active[k]]
        matrix[i, i] += l2 + FLAT * (gram[active[i], active[i]] + 1.0)
    return np.linalg.solve(matrix, right)


@njit(cache=True)
def _active_set(gram, gradient, coef, l1, l2):
    """Minimise over the columns in use, up to the first that leaves: false if one has left."""
    active = np.flatnonzero(coef)
    step = _step(gram, gradient, coef, active, l1, l2)
    share, leaves = 1.0, -1
    for i, j in enumerate(active):
        if coef[j] * (coef[j] + step[i]) <= 0.0 and -coef[j] / step[i] < share:
            share, leaves = -coef[j] / step[i], j
    for i, j in enumerate(active):
        coef[j] += share * step[i]
        gradient -= share * step[i] * gram[j]
    if leaves >= 0:
        gradient += coef[leaves] * gram[leaves]
        coef[leaves] = 0.0
    return leaves < 0


@njit(cache=True)
def _least_squares(gram, gradient, coef, l1, l2, small):
    """Elastic net of a centred Gram matrix, from ``coef``, whose gradient is given; both are changed."""
    for _ in range(ROUNDS):
        if _sweep(gram, gradient, coef, l1, l2) <= small:
            return
        for _ in range(5):
            if not np.any(coef) or _active_set(gram, gradient, coef, l1, l2):
                break


@njit(cache=True)
def _centred(X, y, weights):
    """Means, and the weighted Gram matrix and products of centred columns and response."""
    total = weights.sum()
    means = weights @ X / total
    mean = (weights * y).sum() / total
    heavy = np.ascontiguousarray((X - means).T) * weights
    return means, mean, heavy @ (X - means), heavy @ (y - mean)


@njit(cache=True)
def _without(parts, X, y, out):
    """What ``_centred`` gives of equally heavy rows, less those that are out: one a rank."""
    means, mean, gram, products = parts[0].copy(), parts[1], parts[2].copy(), parts[3].copy()
    n = float(len(y))
    for i in out:
        d, e = X[i] - means, y[i] - mean
        scale = n / (n - 1.0)
        for j in range(len(d)):
            gram[j] -= scale * d[j] * d
        products -= scale * e * d
        means -= d / (n - 1.0)
        mean -= e / (n - 1.0)
        n -= 1.0
    return means, mean, gram, products


@njit(cache=True)
def squared_path(X, y, out, parts, alphas, l1_ratio, starts):
    """Coefficients (J, p) and intercepts (J,) of the mean of squares without the rows that are out."""
    means, mean, gram, products = _without(parts, X, y, out)
    coefs, levels = starts.copy(), np.empty(len(alphas))
    total = float(len(y) - len(out))
    small = SMALL * ((y - mean) ** 2).sum()
    for k in range(len(alphas)):
        coef = coefs[k]
        gradient = products.copy()
        for j in np.flatnonzero(coef):
            gradient -= coef[j] * gram[j]
        l1, l2 = alphas[k] * l1_ratio * total, alphas[k] * (1.0 - l1_ratio) * total
        _least_squares(gram, gradient, coef, l1, l2, small)
        levels[k] = mean - (means * coef).sum()
    return coefs, levels


@njit(cache=True)
def _objective(y, held, eta, coef, l1, l2, poisson):
    """Sum of logistic or Poisson losses and the penalty."""
    if poisson:
        losses = np.exp(np.minimum(eta, FARTHEST)) - y * eta
    else:
        losses = np.maximum(eta, 0.0) + np.log1p(np.exp(-np.abs(eta))) - y * eta
    return (held * losses).sum() + l1 * np.abs(coef).sum() + 0.5 * l2 * (coef * coef).sum()


@njit(cache=True)
def _expected(eta, poisson):
    """Expected responses, and how fast they rise."""
    bounded = np.minimum(np.maximum(eta, -FARTHEST), FARTHEST)
    if poisson:
        counts = np.exp(bounded)
        return counts, np.maximum(counts, 1e-6)
    share = 1.0 / (1.0 + np.exp(-bounded))
    return share, np.maximum(share * (1.0 - share), 1e-6)


@njit(cache=True)
def _newton_step(X, y, held, coef, level, l1, l2, small, poisson):
    """Coefficients and intercept that minimise the quadratic model of the losses."""
    eta = X @ coef + level
    expected, curvature = _expected(eta, poisson)
    means, mean, gram, products = _centred(X, eta + (y - expected) / curvature, held * curvature)
    found = coef.copy()
    _least_squares(gram, products - gram @ found, found, l1, l2, small)
    return found, mean - (means * found).sum()


@njit(cache=True)
def curved_path(X, y, held, alphas, l1_ratio, starts, intercepts, poisson):
    """Coefficients (J, p) and intercepts (J,) of the sum of losses over the rows that are held."""
    coefs, levels = starts.copy(), intercepts.copy()
    small = SMALL * held.sum()
    for k in range(len(alphas)):
        coef, level = coefs[k], levels[k]
        l1, l2 = alphas[k] * l1_ratio, alphas[k] * (1.0 - l1_ratio)
        value = _objective(y, held, X @ coef + level, coef, l1, l2, poisson)
        for _ in range(STEPS):
            found, at = _newton_step(X, y, held, coef, level, l1, l2, small, poisson)
            after = _objective(y, held, X @ found + at, found, l1, l2, poisson)
            for _ in range(20):
                if after <= value:
                    break
                found, at = 0.5 * (found + coef), 0.5 * (at + level)
                after = _objective(y, held, X @ found + at, found, l1, l2, poisson)
            if not after <= value:  # nothing is gained along the step, or the loss is beyond all numbers
                break
            gain, value = value - after, after
            coef, level = found, at
            if gain <= 1e3 * small:
                break
        coefs[k], levels[k] = coef, level
    return coefs, levels


class Refits(ABC):
    """Fits of one problem at strengths, with some of its rows left out.

    Parameters
    ----------
    X : (n, p) array
    y : (n,) array
    l1_ratio : float
    """

    def __init__(self, X: Array, y: Array, l1_ratio: float) -> None:
        self.X, self.y, self.l1_ratio = X, np.asarray(y, dtype=float), l1_ratio

    @abstractmethod
    def scale(self) -> float:
        """What strengths are relative to: the null strength, or the trace of the curvature."""

    @abstractmethod
    def predicted(self, strengths: Array, out: Array, rows: Array) -> Array:
        """Linear predictors (m, J) of rows by the fits without the rows that are out."""

    @abstractmethod
    def nearby(self, strengths: Array, out: Array) -> Array:
        """Linear predictors (m, J) of the rows that are out by one Newton step from the fits to all rows.

        The columns in use stay: exact for ridge, near for the others where few columns come and go.
        """

    @abstractmethod
    def parameters(self, strengths: Array) -> Array:
        """Degrees of freedom of the fits to all rows, the intercept's included, as far as they go: (J,)."""


class Elastic(Refits):
    """Elastic net of the mean of squares."""

    def __init__(self, X: Array, y: Array, l1_ratio: float) -> None:
        super().__init__(X, y, l1_ratio)
        self._parts = _centred(self.X, self.y, np.ones(len(y)))
        self._starts: Array | None = None

    def _path(self, strengths: Array, out: Array, starts: Array) -> tuple[Array, Array]:
        return squared_path(self.X, self.y, out, self._parts, strengths, self.l1_ratio, starts)

    def scale(self) -> float:
        return float(np.abs(self._parts[3]).max() / len(self.y) / self.l1_ratio)

    def _start(self, strengths: Array) -> Array:
        if self._starts is None:
            coef, coefs = np.zeros((1, self.X.shape[1])), []
            for k in range(len(strengths)):  # each from the last one
                if np.count_nonzero(coef) > MOST_PARAMETERS * len(self.y):
                    break
                coef, _ = self._path(strengths[[k]], NOBODY, coef)
                coefs.append(coef[0])
            self._starts = np.array(coefs)
        return self._starts[: len(strengths)]

    def predicted(self, strengths: Array, out: Array, rows: Array) -> Array:
        coefs, levels = self._path(strengths, out, self._start(strengths))
        return rows @ coefs.T + levels

    def nearby(self, strengths: Array, out: Array) -> Array:
        n, m = len(self.y), len(out)
        means, mean, found = self._parts[0], self._parts[1], np.empty((m, len(strengths)))
        for k, (alpha, coef) in enumerate(zip(strengths, self._start(strengths), strict=True)):
            active = np.flatnonzero(coef)
            columns = np.column_stack([np.ones(n), self.X[:, active] - means[active]])
            fitted = mean + columns[:, 1:] @ coef[active]
            curvature = np.ones(n)
            slope = columns.T @ (self.y - fitted) * m / n  # the mean of fewer squares, and less penalty
            ridge = alpha * (1.0 - self.l1_ratio) * (n - m)
            found[:, k] = fitted[out] + _step_without(columns, curvature, self.y - fitted, slope, ridge, out)
        return found

    def parameters(self, strengths: Array) -> Array:
        found = []
        for alpha, coef in zip(strengths, self._start(strengths), strict=False):
            active = np.flatnonzero(coef)
            gram = self._parts[2][np.ix_(active, active)]
            ridge = alpha * (1.0 - self.l1_ratio) * len(self.y) * np.eye(len(active))
            found.append(1.0 + np.trace(np.linalg.lstsq(gram + ridge, gram, rcond=None)[0]))
        return np.array(found)


class Ridge(Refits):
    """Ridge regression: half the sum of squares beside α‖β‖²/2, fits without rows in closed form."""

    def __init__(self, X: Array, y: Array, l1_ratio: float) -> None:
        super().__init__(X, y, l1_ratio)
        self._means, self._mean = self.X.mean(axis=0), float(self.y.mean())
        left, self._values, right = np.linalg.svd(self.X - self._means, full_matrices=False)
        self._turn, self._scores = right.T, left * self._values
        self._products = self._scores.T @ (self.y - self._mean)

    def scale(self) -> float:
        return float(np.mean((self.X - self._means) ** 2) * self.X.shape[1]) * len(self.y)

    def predicted(self, strengths: Array, out: Array, rows: Array) -> Array:
        scores, found = (rows - self._means) @ self._turn, np.empty((len(rows), len(strengths)))
        own = self._scores[out]
        for k, alpha in enumerate(strengths):
            inverse = 1.0 / (self._values**2 + alpha)
            coef = inverse * self._products
            residuals = self.y[out] - self._mean - own @ coef
            leverages = 1.0 / len(self.y) + (own * inverse) @ own.T
            heavier = np.linalg.solve(np.eye(len(out)) - leverages, residuals)
            found[:, k] = (
                self._mean + scores @ (coef - inverse * (own.T @ heavier)) - heavier.sum() / len(self.y)
            )
        return found

    def nearby(self, strengths: Array, out: Array) -> Array:
        return self.predicted(strengths, out, self.X[out])

    def _left_out(self, strength: float) -> tuple[Array, Array]:
        """Left-out residuals (n,) and the hat matrix (n, n)."""
        shrunk = self._scores / (self._values**2 + strength)
        hat = shrunk @ self._scores.T + 1.0 / len(self.y)
        residuals = self.y - self._mean - shrunk @ self._products
        return residuals / (1.0 - hat.diagonal()), hat

    def expected_folds(self, strengths: Array, share: float) -> Array:
        """Losses of rows by fits without a random share of the others, in the mean over all shares: (n, J).

        To second order.  Without a share q of the rows X'X is (1 − q) X'X in the mean, a fit at the strength
        α/(1 − q); that some rows are gone and others are not adds q/(1 − q) Σ h_ij² e_j²/(1 − h_ii)².
        """
        losses = np.empty((len(self.y), len(strengths)))
        for k, alpha in enumerate(strengths):
            errors, hat = self._left_out(alpha / (1.0 - share))
            slack = 1.0 - hat.diagonal()
            np.fill_diagonal(hat, 0.0)
            losses[:, k] = errors**2 + share / (1.0 - share) * (hat**2 @ errors**2) / slack**2
        return losses

    def spread_errors(self, strengths: Array, share: float) -> Array:
        """Left-out losses with what each row's own error adds to others: (n, J).

        The same in sum, nearly, but for the strength, at the price of leave-one-out: row j counts
        e_j² (1 + q/(1 − q) Σ_i h_ij²/(1 − h_jj)²).
        """
        losses = np.empty((len(self.y), len(strengths)))
        for k, alpha in enumerate(strengths):
            errors, hat = self._left_out(alpha)
            slack = 1.0 - hat.diagonal()
            np.fill_diagonal(hat, 0.0)
            losses[:, k] = errors**2 * (1.0 + share / (1.0 - share) * (hat**2).sum(axis=0) / slack**2)
        return losses

    def parameters(self, strengths: Array) -> Array:
        squares = self._values[:, None] ** 2
        return 1.0 + (squares / (squares + strengths)).sum(axis=0)


def _step_without(columns, curvature, residuals, slope, ridge, out):
    """Change of the predictors of the rows that are out by the Newton step of the other rows: (m,)."""
    own = columns[out]
    matrix = (columns.T * curvature) @ columns - (own.T * curvature[out]) @ own
    matrix[np.diag_indices_from(matrix)] += ridge + FLAT * np.trace(matrix) / len(matrix)
    matrix[0, 0] -= ridge
    return own @ np.linalg.solve(matrix, slope - own.T @ residuals[out])


class Curved(Refits):
    """The sum of losses that are not squares beside an elastic net."""

    poisson: bool

    def __init__(self, X: Array, y: Array, l1_ratio: float) -> None:
        super().__init__(X, y, l1_ratio)
        self._turn = np.eye(X.shape[1])
        if l1_ratio == 0:  # a rotation changes nothing, and leaves no more columns than rows
            self._turn = np.linalg.svd(X, full_matrices=False)[2].T
        self._turned = np.ascontiguousarray(self.X @ self._turn)
        self._starts: tuple[Array, Array] | None = None

    def scale(self) -> float:
        mean = self.y.mean()
        if self.l1_ratio:
            return float(np.abs(self.X.T @ (self.y - mean)).max() / self.l1_ratio)
        curvature = mean if self.poisson else mean * (1.0 - mean)
        return float(curvature * ((self.X - self.X.mean(axis=0)) ** 2).sum())

    def _path(self, strengths: Array, held: Array, coefs: Array, levels: Array) -> tuple[Array, Array]:
        start = (strengths, self.l1_ratio, coefs, levels)
        return curved_path(self._turned, self.y, held, *start, self.poisson)

    def _start(self, strengths: Array) -> tuple[Array, Array]:
        if self._starts is None:
            mean, coefs, levels = self.y.mean(), [], []
            coef = np.zeros((1, self._turned.shape[1]))
            level = np.log(np.array([mean if self.poisson else mean / (1.0 - mean)]))
            for k in range(len(strengths)):  # each from the last one
                if self.l1_ratio and np.count_nonzero(coef) > MOST_PARAMETERS * len(self.y):
                    break
                coef, level = self._path(strengths[[k]], np.ones(len(self.y)), coef, level)
                coefs.append(coef[0])
                levels.append(level[0])
            self._starts = np.array(coefs), np.array(levels)
        return self._starts[0][: len(strengths)], self._starts[1][: len(strengths)]

    def predicted(self, strengths: Array, out: Array, rows: Array) -> Array:
        held = np.ones(len(self.y))
        held[out] = 0.0
        coefs, levels = self._path(strengths, held, *self._start(strengths))
        return rows @ self._turn @ coefs.T + levels

    def nearby(self, strengths: Array, out: Array) -> Array:
        found = np.empty((len(out), len(strengths)))
        for k, (alpha, coef, level) in enumerate(zip(strengths, *self._start(strengths), strict=True)):
            active = np.flatnonzero(coef)
            columns = np.column_stack([np.ones(len(self.y)), self._turned[:, active]])
            eta = columns @ np.append(level, coef[active])
            expected, curvature = _expected(eta, self.poisson)
            slope, ridge = np.zeros(columns.shape[1]), alpha * (1.0 - self.l1_ratio)
            found[:, k] = eta[out] + _step_without(columns, curvature, self.y - expected, slope, ridge, out)
        return found

    def parameters(self, strengths: Array) -> Array:
        return 1.0 + (np.abs(self._start(strengths)[0]) > 0).sum(axis=1)


class Logistic(Curved):
    """Logistic regression."""

    poisson = False


class Poisson(Curved):
    """Poisson regression, log link."""

    poisson = True
