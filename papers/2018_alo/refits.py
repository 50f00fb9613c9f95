"""Leave-one-out the slow way: solve anew without each row, never by our solvers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import lars_path

Array = np.ndarray


def _kept(n: int) -> Iterable[tuple[int, Array]]:
    for i in range(n):
        yield i, np.delete(np.arange(n), i)


def lasso(X: Array, y: Array, strengths: Array) -> Array:
    """Left-out predictions at all strengths: (J, n), by scikit-learn's least angle regression.

    A path of the n − 1 other rows is exact at every strength, since it is linear in between its corners.
    """
    found = np.empty((len(strengths), len(y)))
    for i, rest in _kept(len(y)):
        lambdas, coefs = _path(X[rest], y[rest], strengths.min())
        found[:, i] = _between(lambdas, X[i] @ coefs, strengths)
    return found


def fused_lasso(X: Array, y: Array, strengths: Array) -> Array:
    """The same for λ Σ |β_{j+1} − β_j|: a lasso of the jumps, with the level of β projected out."""
    found = np.empty((len(strengths), len(y)))
    sums = np.cumsum(X[:, ::-1], axis=1)[:, ::-1]  # column j is what a jump before coefficient j adds
    level, jumps = sums[:, 0], sums[:, 1:]
    for i, rest in _kept(len(y)):
        u, V, z = level[rest], jumps[rest], y[rest]
        on_jumps, on_y = u @ V / (u @ u), u @ z / (u @ u)
        lambdas, coefs = _path(V - np.outer(u, on_jumps), z - u * on_y, strengths.min())
        eta = level[i] * on_y + (jumps[i] - level[i] * on_jumps) @ coefs
        found[:, i] = _between(lambdas, eta, strengths)
    return found


def _path(X: Array, y: Array, smallest: float) -> tuple[Array, Array]:
    n = len(y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it drops columns near interpolation; see below
        alphas, _, coefs = lars_path(X, y, method="lasso", alpha_min=0.99 * smallest / n, max_iter=50 * n)
    lambdas = alphas * n
    if lambdas[-1] > smallest:
        raise RuntimeError(f"the path stopped at {lambdas[-1]:.3g}, before {smallest:.3g}")
    return lambdas, coefs


def _between(lambdas: Array, values: Array, strengths: Array) -> Array:
    return np.interp(strengths, lambdas[::-1], values[::-1])


def of_estimator(
    model: Any, X: Array, y: Array, predict: Callable[[Any, Array], Array], rows: Array
) -> Array:
    """Left-out values of some rows by clones of a scikit-learn estimator: (r,)."""
    found = np.empty(len(rows))
    for place, i in enumerate(rows):
        rest = np.delete(np.arange(len(y)), i)
        found[place] = predict(clone(model).fit(X[rest], y[rest]), X[[i]])[0]
    return found


def nuclear_norm(X: Array, y: Array, strengths: Array, shape: tuple[int, int]) -> Array:
    """Left-out predictions at all strengths: (J, n), by the alternating direction method of multipliers.

    All refits of a strength run side by side, each with the inverse of X'X + ρI without its row (Sherman and
    Morrison), from the solutions of the next larger strength, until nothing moves by more than 1e-10.
    """
    n, p = X.shape
    found, rho = np.empty((len(strengths), n)), n / 3.0  # about a third of the curvature of X'X
    inverse = np.linalg.inv(X.T @ X + rho * np.eye(p))
    row = X @ inverse
    slack = 1.0 - np.sum(row * X, axis=1)
    right = X.T @ y - X * y[:, None]
    coefs, multipliers = np.zeros((n, p)), np.zeros((n, p))
    for j in np.argsort(-strengths):
        live = np.arange(n)
        for _ in range(MOST_STEPS):
            smooth = (right[live] + rho * (coefs[live] - multipliers[live])) @ inverse
            smooth += row[live] * (np.sum(X[live] * smooth, axis=1) / slack[live])[:, None]
            smooth = RELAXED * smooth + (1.0 - RELAXED) * coefs[live]
            low_rank = _shrunk(smooth + multipliers[live], strengths[j] / rho, shape)
            multipliers[live] += smooth - low_rank
            moved = np.maximum(_lengths(low_rank - coefs[live]), _lengths(smooth - low_rank))
            coefs[live] = low_rank
            live = live[moved > STILL * _lengths(low_rank)]
            if not live.size:
                break
        else:
            raise RuntimeError(f"{live.size} refits did not settle at {strengths[j]:.3g}")
        found[j] = np.sum(X * coefs, axis=1)
    return found


STILL, MOST_STEPS, RELAXED = 1e-10, 20_000, 1.7


def _lengths(rows: Array) -> Array:
    return np.linalg.norm(rows, axis=1)


def _shrunk(matrices: Array, by: float, shape: tuple[int, int]) -> Array:
    """Singular values of each row, as a matrix, moved towards zero."""
    U, sizes, Vt = np.linalg.svd(matrices.reshape(-1, *shape), full_matrices=False)
    return ((U * np.maximum(sizes - by, 0.0)[:, None]) @ Vt).reshape(matrices.shape)
