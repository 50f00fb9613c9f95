"""From somebody else's approximate solution to the optimum on its pattern."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from onefit.fit import Fit
from onefit.solvers import newton
from onefit.solvers.solve import solve


class Polished(NamedTuple):
    """A solution and how far the coefficients that were given are from it.

    Attributes
    ----------
    solution : Solution
    missed : float
        Share of the achievable decrease of the objective, from the constant model to the optimum (taken
        as at least a tenth of the former), that the given coefficients miss.
    moved : float
        ‖Δβ‖ / ‖β‖.
    """

    solution: newton.Solution
    missed: float
    moved: float


def polish(fit: Fit) -> Polished:
    """Solve from ``fit`` to machine precision, following changes of the active pattern."""
    solution = solve(fit)
    start, best = Fit.at_start(fit.problem).objective, solution.fit.objective
    achievable = max(start - best, 0.1 * abs(start), np.finfo(float).tiny)
    excess = max(fit.objective - best, 0.0) if np.isfinite(fit.objective) else np.inf
    size = max(float(np.linalg.norm(solution.fit.coef)), np.finfo(float).tiny)
    moved = float(np.linalg.norm(solution.fit.coef - fit.coef)) / size
    return Polished(solution, excess / achievable, moved)
