"""Many small elastic nets side by side, in NumPy: ½‖y − Xθ‖²/n + λ₁‖θ‖₁ + ½λ₂‖θ‖² on each training set.

Nothing of onefit: the gradient in (λ₁, λ₂) is that of the paper's section 3 on the active set.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from settings import Regression

Array = np.ndarray
STILL, MOST_SWEEPS = 1e-10, 100_000


@dataclass(frozen=True, eq=False)
class Splits:
    """The cross-validation risk of a regression as a function of the strengths.

    Attributes
    ----------
    grams : (K, p, p) array
        X'X / n of each training set; ``rights`` X'y / n.
    X, y : arrays
        All rows, and ``tested``, (K, n), the share of each in the risk of a split.
    """

    grams: Array
    rights: Array
    X: Array
    y: Array
    tested: Array

    @classmethod
    def of(cls, data: Regression) -> Splits:
        """Monte-Carlo splits."""
        shares = data.training / data.training.sum(axis=1, keepdims=True)
        tested = ~data.training / (~data.training).sum(axis=1, keepdims=True)
        return cls(*_moments(data.X, data.y, shares), data.X, data.y, tested)

    def risk_and_gradient(self, strengths: Array, start: Array | None = None) -> tuple[float, Array, Array]:
        """The risk at one pair (λ₁, λ₂), its gradient, and the coefficients of the splits: (K, p)."""
        coefs = solve(self.grams, self.rights, strengths, start)
        residuals = self.y - coefs @ self.X.T
        owed = -2.0 * (self.tested * residuals) @ self.X
        active = coefs != 0.0
        inner = self.grams + strengths[1] * np.eye(coefs.shape[1])
        both = active[:, :, None] & active[:, None, :]
        system = np.where(both, inner, np.eye(coefs.shape[1]))
        u = np.linalg.solve(system, np.where(active, owed, 0.0)[:, :, None])[:, :, 0]
        gradient = -np.array([np.sum(u * np.sign(coefs)), np.sum(u * coefs)]) / len(coefs)
        return self._risk(residuals), gradient, coefs

    def risks(self, strengths: Array) -> Array:
        """The risk at many pairs: (m,) from (m, 2)."""
        m = len(strengths)
        grams, rights = np.tile(self.grams, (m, 1, 1)), np.tile(self.rights, (m, 1))
        coefs = solve(grams, rights, np.repeat(strengths, len(self.grams), axis=0).T[:, :, None])
        residuals = self.y - coefs.reshape(m, len(self.grams), -1) @ self.X.T
        return np.array([self._risk(one) for one in residuals])

    def _risk(self, residuals: Array) -> float:
        return float(np.mean(np.sum(self.tested * residuals**2, axis=1)))


def on_all_rows(data: Regression, strengths: Array) -> Array:
    """Coefficients of the fits on all rows at many pairs: (m, p) from (m, 2)."""
    gram, right = _moments(data.X, data.y, np.full((1, len(data.y)), 1.0 / len(data.y)))
    m = len(strengths)
    return solve(np.tile(gram, (m, 1, 1)), np.tile(right, (m, 1)), strengths.T[:, :, None])


def test_losses(data: Regression, strengths: Array) -> Array:
    """Mean squared errors on the new rows at many pairs: (m,)."""
    return np.mean((data.y_new - on_all_rows(data, strengths) @ data.X_new.T) ** 2, axis=1)


def _moments(X: Array, y: Array, shares: Array) -> tuple[Array, Array]:
    return np.einsum("kn,ni,nj->kij", shares, X, X, optimize=True), shares * y @ X


def solve(grams: Array, rights: Array, strengths: Array, start: Array | None = None) -> Array:
    """Coordinate descent on all problems at once: (m, p).

    Parameters
    ----------
    grams, rights : (m, p, p) and (m, p) arrays
    strengths : a pair of numbers, or (2, m, 1) array
    start : (m, p) array, optional
    """
    l1, l2 = (np.broadcast_to(one, (len(grams), 1))[:, 0] for one in strengths)
    coefs = np.zeros_like(rights) if start is None else start.copy()
    by_column = np.ascontiguousarray(grams.transpose(1, 0, 2))
    live = np.arange(len(grams))
    for _ in range(MOST_SWEEPS):
        own, before = coefs[live], coefs[live].copy()
        for j, columns in enumerate(by_column[:, live] if len(live) < len(grams) else by_column):
            curvature = columns[:, j]
            pull = rights[live, j] - np.einsum("mp,mp->m", columns, own) + curvature * own[:, j]
            shrunk = np.sign(pull) * np.maximum(np.abs(pull) - l1[live], 0.0)
            own[:, j] = shrunk / (curvature + l2[live])
        coefs[live] = own
        live = live[np.abs(own - before).max(axis=1) > STILL * (1.0 + np.abs(own).max(axis=1))]
        if not live.size:
            return coefs
    raise RuntimeError(f"{live.size} elastic nets did not settle")
