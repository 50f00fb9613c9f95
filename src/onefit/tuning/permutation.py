"""Minimisation of the permutation criterion over a closed-form family: the paper's Adam, or L-BFGS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from onefit._typing import Array
from onefit.tuning.closed_form import Family
from onefit.tuning.optimizers import Minimum, Visit, adam, lbfgs

TINY = 1e-8  # of Adam in the paper


def coming_down(value: float, gradient: Array) -> bool:
    """Whether λ, the first parameter, lies so far above all eigenvalues that the criterion is 1 − c/λ.

    Its slope c/λ in log λ is then all that it has fallen by; half way down (one eigenvalue equal to λ) it is
    half of that.
    """
    return bool(gradient[0] > 0.5 * (1.0 - value) > 0.0)


@dataclass(frozen=True)
class PapersAdam:
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

        def stop(point: Visit, values: Sequence[float]) -> str:
            settled = len(values) > 1 and abs(values[-1] - values[-2]) < self.tol
            here = settled and not coming_down(point.value, point.gradient)
            return "the criterion changes by less than tol" if here else ""

        betas = self.beta_1, self.beta_2
        project = partial(np.clip, a_min=low, a_max=high)
        return adam(
            family.value_and_gradient, start, project, self.learning_rate, self.max_iter, stop, betas, TINY
        )


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

        def scaled(t: Array) -> tuple[float, Array]:
            value, gradient = family.value_and_gradient(t * units)
            return value, gradient * units

        start = np.clip(start, *bounds.T) / units
        options = {"maxiter": self.max_iter, "maxfun": 20 * self.max_iter, "ftol": self.tol, "gtol": self.tol}
        found = lbfgs(scaled, start, bounds / units[:, None], options)
        # at the minimum from the start: an iteration that stays there
        values = found.values if found.n_iter else np.repeat(found.values, 2)
        return replace(found, t=found.t * units, gradient=found.gradient / units, values=values)


def with_tolerance(optimiser: PapersAdam | LBFGS, tol: float | None) -> PapersAdam | LBFGS:
    """The same optimiser with another tolerance, if one is given."""
    return optimiser if tol is None else replace(optimiser, tol=tol)
