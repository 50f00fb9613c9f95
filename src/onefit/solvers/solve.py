"""The chooser: which solver a problem goes to."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from onefit.exceptions import SolverError
from onefit.problem import Fit
from onefit.solvers import newton
from onefit.solvers.path import least_squares_path

FEW_STEPS = 25  # in which Newton's method settles, when it starts near the optimum


def solve(start: Fit) -> newton.Solution:
    """Minimise the objective of ``start.problem`` to machine precision.

    Newton's method on the pattern of ``start``; least squares with an ℓ1 part go to the exact active-set
    method when ``start`` has no pattern yet, or turns out to be far away.

    Raises
    ------
    SolverError
        If the problem has no finite minimum.
    """
    if not start.problem.loss.quadratic or start.coef.ndim == 2 or not start.is_kinked:
        return newton.solve(start)
    if np.any(start.coef):
        with suppress(SolverError):  # not near after all: the active-set method needs no start
            return newton.solve(start, max_steps=FEW_STEPS)
    return next(least_squares_path([start.problem]))
