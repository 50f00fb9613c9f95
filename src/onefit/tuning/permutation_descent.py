"""Ways down the permutation criterion of a closed-form family: the paper's Adam, or L-BFGS with bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from onefit._typing import Array
from onefit.tuning.closed_form import Family
from onefit.tuning.optimizers import Minimum, Visit, adam, lbfgs

BETAS, LEAST_STEP = (0.5, 0.9), 1e-8  # of Adam in the paper


def coming_down(value: float, gradient: Array) -> bool:
    """Whether λ, the first parameter, lies so far above all eigenvalues that the criterion is 1 − c/λ.

    Its slope c/λ in log λ is then all that it has fallen by; half way down (one eigenvalue equal to λ) it is
    half of that.
    """
    return bool(gradient[0] > 0.5 * (1.0 - value) > 0.0)


def papers_adam(
    family: Family, start: Array, *, learning_rate: float = 0.5, max_iter: int = 1000, tol: float = 1e-4
) -> Minimum:
    """Minimise by Adam as the paper runs it (table 1), bias-corrected (Kingma and Ba 2014).

    It stops once an iteration changes the criterion by less than ``tol``, unless λ is still on its way down
    from a start far above the eigenvalues, where nothing changes fast (``coming_down``).  It returns the best
    point that it visited.
    """
    low, high = family.bounds().T

    def stop(point: Visit, values: Sequence[float]) -> str:
        settled = len(values) > 1 and abs(values[-1] - values[-2]) < tol
        here = settled and not coming_down(point.value, point.gradient)
        return "the criterion changes by less than tol" if here else ""

    project = partial(np.clip, a_min=low, a_max=high)
    return adam(family.value_and_gradient, start, project, learning_rate, max_iter, stop, BETAS, LEAST_STEP)


def bounded_bfgs(family: Family, start: Array, *, max_iter: int = 1000, tol: float = 1e-9) -> Minimum:
    """Minimise by limited-memory BFGS with bounds, by SciPy.

    It stops once an iteration decreases the criterion by less than the share ``tol``, or no component of the
    gradient is larger.
    """
    bounds = family.bounds()
    options = {"maxiter": max_iter, "maxfun": 20 * max_iter, "ftol": tol, "gtol": tol}
    start = np.clip(start, *bounds.T)
    found = lbfgs(family.value_and_gradient, start, bounds, options, units=family.units())
    values = found.values
    if not found.n_iter or found.value < values[-1]:  # where a line search found no step, or took none lower
        values = np.append(values, found.value)
    return replace(found, values=values)
