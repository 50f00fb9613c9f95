"""Problems in units of their weights: a common factor of weights and penalty changes no minimum.

Tolerances of programs, and those of the solvers that are asked for a start, are absolute.  The units are
powers of two, by which no digit changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from onefit.fit import Fit
from onefit.problem import Problem


def of_weights(start: Fit, minimise: Callable[[Fit], Fit]) -> Fit:
    """Minimise in units of the median weight, and return the fit of the problem as it is.

    Parameters
    ----------
    start : Fit
    minimise : callable
        Takes a start to a minimum.
    """
    problem = start.problem
    held = problem.weights[problem.weights > 0]
    unit = float(2.0 ** np.round(np.log2(np.median(held)))) if held.size else 1.0
    if unit == 1.0:
        return minimise(start)
    own = replace(
        problem, weights=problem.weights / unit, penalty=problem.penalty.scaled(1.0 / unit), moments=None
    )
    return _restated(minimise(_restated(start, own, 1.0 / unit)), problem, unit)


def _restated(fit: Fit, problem: Problem, unit: float) -> Fit:
    """The same point of a problem whose objective is that many times as large."""
    known = fit.at_hand("eta", "pinned", "gradient")
    if "gradient" in known:
        known["gradient"] = unit * known["gradient"]
    return Fit(problem, fit.coef, fit.intercept).known(**known)
