"""Ridge-penalised logistic regression with a free intercept, written out in NumPy.

The formulas as they stand (one Newton step a row, Theorem 1, and the infinitesimal jackknife, which the paper
calls the influence function), and refits that use nothing of onefit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.special import expit

Array = np.ndarray
STILL, MOST_STEPS = 1e-10, 60


def log_losses(y: Array, eta: Array) -> Array:
    """Log-loss of each row."""
    return np.logaddexp(0.0, eta) - y * eta


@dataclass(frozen=True, eq=False)
class Logistic:
    """A fit of min over θ, b of Σ log(1 + e^η) − yη + ½ λ ‖θ‖².

    Attributes
    ----------
    Z : (n, p + 1) array
        The columns, and ones.
    y : (n,) array
    strength : float
        λ.
    parameters : (p + 1,) array
        θ and b.
    """

    Z: Array
    y: Array
    strength: float
    parameters: Array

    @classmethod
    def of(cls, model: object, X: Array, y: Array) -> Logistic:
        """Read the parameters off a fitted scikit-learn model."""
        parameters = np.append(model.coef_[0], model.intercept_)  # type: ignore[attr-defined]
        return cls(np.column_stack([X, np.ones(len(X))]), y, 1.0 / model.C, parameters)  # type: ignore[attr-defined]

    @cached_property
    def eta(self) -> Array:
        return self.Z @ self.parameters

    @cached_property
    def ridge(self) -> Array:
        """Strength of each parameter; the intercept has none."""
        return np.append(np.full(self.Z.shape[1] - 1, self.strength), 0.0)

    @cached_property
    def bend(self) -> Array:
        return expit(self.eta) * expit(-self.eta)

    @cached_property
    def factor(self) -> tuple[Array, bool]:
        """Cholesky factor of the Hessian."""
        A = np.sqrt(self.bend)[:, None] * self.Z
        return cho_factor(A.T @ A + np.diag(self.ridge), lower=True)

    @cached_property
    def forms(self) -> Array:
        """h_i = z_iᵀ K⁻¹ z_i: (n,)."""
        return np.sum(solve_triangular(self.factor[0], self.Z.T, lower=True) ** 2, axis=0)

    @property
    def slope(self) -> Array:
        return expit(self.eta) - self.y

    def one_step(self) -> Array:
        """ALOOCV: left-out linear predictors by one Newton step (Theorem 1)."""
        return self.eta + self.forms * self.slope / (1.0 - self.bend * self.forms)

    def influence(self) -> Array:
        """The same to first order in the leverage: the infinitesimal jackknife (Koh and Liang 2017)."""
        return self.eta + self.forms * self.slope

    def refits(self, rows: Array) -> Array:
        """Left-out linear predictors of some rows by refits: (r,).

        All run side by side, with the Hessian that the fit has without the row, until the gradient is 1e-10
        of what the row pulled with; what this does not settle gets Newton's method, a new Hessian a step.
        """
        reach = cho_solve(self.factor, self.Z[rows].T)
        bend, slack = self.bend[rows], 1.0 - self.bend[rows] * self.forms[rows]
        theta = np.tile(self.parameters[:, None], len(rows))
        allowed = STILL * np.maximum(np.abs(self.Z[rows].T * self.slope[rows]).max(axis=0), 1e-3)
        live = np.arange(len(rows))
        for _ in range(MOST_STEPS):
            gradient = self._gradient(theta[:, live], rows[live])
            moving = np.abs(gradient).max(axis=0) > allowed[live]
            live, gradient = live[moving], gradient[:, moving]
            if not live.size:
                break
            step = cho_solve(self.factor, gradient)
            own = np.sum(self.Z[rows[live]] * step.T, axis=1)
            theta[:, live] -= step + reach[:, live] * (bend[live] * own / slack[live])
        for k in live:
            theta[:, k] = self._newton(rows[k], allowed[k])
        return np.sum(self.Z[rows] * theta.T, axis=1)

    def _gradient(self, theta: Array, rows: Array) -> Array:
        """Gradients of the objectives without each row: (p + 1, r)."""
        away = expit(self.Z @ theta) - self.y[:, None]
        away[rows, np.arange(len(rows))] = 0.0
        return self.Z.T @ away + self.ridge[:, None] * theta

    def _newton(self, row: int, allowed: float) -> Array:
        """Minimise without one row, with a step that is halved until the objective falls."""
        kept = np.delete(np.arange(len(self.y)), row)
        Z, y, theta = self.Z[kept], self.y[kept], self.parameters.copy()

        def objective(at: Array) -> float:
            return float(log_losses(y, Z @ at).sum() + 0.5 * self.ridge @ at**2)

        for _ in range(MOST_STEPS):
            mean = expit(Z @ theta)
            gradient = Z.T @ (mean - y) + self.ridge * theta
            if np.abs(gradient).max() <= allowed:
                return theta
            hessian = (Z.T * (mean * (1.0 - mean))) @ Z + np.diag(self.ridge)
            step, share, before = np.linalg.solve(hessian, gradient), 1.0, objective(theta)
            while objective(theta - share * step) > before * (1.0 + 1e-12):
                share *= 0.5
            theta = theta - share * step
        raise RuntimeError(f"the refit without row {row} did not settle: {np.abs(gradient).max():.1e}")
