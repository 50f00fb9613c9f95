"""Minimisation of the permutation criterion over a closed-form family: the paper's Adam, or L-BFGS."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from onefit._typing import Array
from onefit.tuning.closed_form import Family


@dataclass(frozen=True, eq=False)
class Minimum:
    """Where a minimisation ended.

    Attributes
    ----------
    theta : (m,) array
        The best point that was visited.
    values : (n_iter + 1,) array
        The criterion at the start and after each iteration.
    converged : bool
    """

    theta: Array
    values: Array
    converged: bool

    @property
    def n_iter(self) -> int:
        """Iterations that were made."""
        return len(self.values) - 1


def coming_down(value: float, gradient: Array) -> bool:
    """Whether λ, the first parameter, lies so far above all eigenvalues that the criterion is 1 − c/λ.

    Its slope c/λ in log λ is then all that it has fallen by; half way down (one eigenvalue equal to λ) it is
    half of that.
    """
    return bool(gradient[0] > 0.5 * (1.0 - value) > 0.0)


@dataclass(frozen=True)
class Adam:
    """Adam as the paper runs it (table 1), bias-corrected (Kingma and Ba 2014).

    It stops once an iteration changes the criterion by less than ``tol``, unless λ is still on its way down
    from a start far above the eigenvalues, where nothing changes fast (``coming_down``).  It returns the best
    point that it visited.

    Parameters
    ----------
    learning_rate : float, default 0.5
    beta_1, beta_2 : float, default 0.5 and 0.9
    max_iter : int, default 1000
    tol : float, default 1e-4
    """

    learning_rate: float = 0.5
    beta_1: float = 0.5
    beta_2: float = 0.9
    max_iter: int = 1000
    tol: float = 1e-4

    def minimise(self, family: Family, start: Array) -> Minimum:
        """Minimise the criterion of a family."""
        low, high = family.bounds().T
        theta = np.clip(start, low, high)
        value, gradient = family.value_and_gradient(theta)
        values, best = [value], theta
        first, second = np.zeros_like(theta), np.zeros_like(theta)
        for k in range(1, self.max_iter + 1):
            first = self.beta_1 * first + (1.0 - self.beta_1) * gradient
            second = self.beta_2 * second + (1.0 - self.beta_2) * gradient**2
            mean = first / (1.0 - self.beta_1**k)
            size = np.sqrt(second / (1.0 - self.beta_2**k)) + 1e-8
            theta = np.clip(theta - self.learning_rate * mean / size, low, high)
            value, gradient = family.value_and_gradient(theta)
            best = theta if value < min(values) else best
            values.append(value)
            if abs(values[-1] - values[-2]) < self.tol and not coming_down(value, gradient):
                return Minimum(best, np.array(values), True)
        return Minimum(best, np.array(values), False)


@dataclass(frozen=True)
class LBFGS:
    """Limited-memory BFGS with bounds, by SciPy.

    Parameters
    ----------
    max_iter : int, default 1000
    tol : float, default 1e-9
        It stops once an iteration decreases the criterion by less than this share, or no component of the
        gradient is larger.
    """

    max_iter: int = 1000
    tol: float = 1e-9

    def minimise(self, family: Family, start: Array) -> Minimum:
        """Minimise the criterion of a family."""
        bounds, units = family.bounds(), family.units()
        start = np.clip(start, *bounds.T)
        values = [family.value_and_gradient(start)[0]]

        def objective(scaled: Array) -> tuple[float, Array]:
            value, gradient = family.value_and_gradient(scaled * units)
            return value, gradient * units

        def record(intermediate_result: Any) -> None:
            values.append(float(intermediate_result.fun))

        options = {"maxiter": self.max_iter, "maxfun": 20 * self.max_iter, "ftol": self.tol, "gtol": self.tol}
        found = minimize(
            objective,
            start / units,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds / units[:, None],
            callback=record,
            options=options,
        )
        if len(values) == 1:  # at the minimum from the start: an iteration that stays there
            values.append(float(found.fun))
        return Minimum(np.asarray(found.x) * units, np.array(values), bool(found.status != 1))


def with_tolerance(optimiser: Adam | LBFGS, tol: float | None) -> Adam | LBFGS:
    """The same optimiser with another tolerance, if one is given."""
    return optimiser if tol is None else replace(optimiser, tol=tol)
