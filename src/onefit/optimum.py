"""The optimum that fitted coefficients are near to; data that they were not fitted on are found out."""

from __future__ import annotations

import warnings

import numpy as np

from onefit._linalg import RowGram, column_norms
from onefit.exceptions import NotFittedToDataError, NotOptimalWarning
from onefit.numerics import EPS_SINGLE, TINY
from onefit.readers import Reading
from onefit.solvers.newton import Solution
from onefit.solvers.solve import polish
from onefit.wording import to_digits

# share of the objective that no solver misses which calls itself converged, or which does not iterate
OTHER_DATA, OTHER_DATA_EXACT = 0.05, 1e-3
GAP_ROOM = 2.0  # times the gap that a solver has proven, for the rounding of either
OTHER_SIZES = 1e3  # ratio of the norms of columns up to which solvers stop near the optimum


def _should_fit(reading: Reading) -> bool:
    """Whether coefficients that are far from optimal cannot be what a solver left of these very data.

    They can where it stopped at its limit, where no coefficient is left though the intercept is still on its
    way, or where columns are of very different size, among them the one of ones, and with them what a ridge
    adds: then solvers call themselves converged when the largest are.  A kernel that was evaluated in single
    precision decides by its rounding what is fitted beside a weak penalty.
    """
    problem = reading.fit.problem
    if isinstance(problem.X, RowGram):
        largest = problem.n * float(np.max(problem.X.gram.diagonal(), initial=0.0))
        rounding = EPS_SINGLE * largest / max(float(np.min(reading.fit.tangent.hessian)), TINY)
        return reading.converged and rounding < 1.0
    if not np.any(reading.fit.coef):
        return False
    sizes = column_norms(problem.X, problem.weights, centred=False)
    if not np.any(sizes):
        return False
    ridge = reading.fit.tangent.hessian
    if ridge.shape == reading.fit.coef.shape:
        sizes = np.hypot(sizes, np.sqrt(ridge.reshape(len(sizes), -1).max(axis=1)))
    sizes = np.append(sizes[sizes > 0], np.sqrt(problem.weights.sum()))
    return reading.converged and bool(sizes.max() <= OTHER_SIZES * sizes.min())


def optimum(reading: Reading, name: str) -> Solution:
    """Polish what was fitted; refuse what was fitted on other data.

    Raises
    ------
    NotFittedToDataError
    """
    solution, missed, moved, achievable = polish(reading.fit)
    say_if_far(missed, achievable, reading, name, moved)
    return solution


def say_if_far(
    missed: float, achievable: float, reading: Reading, name: str, moved: float | None = None
) -> None:
    """Refuse a model that was fitted on other data, and warn of one that was not optimal.

    Parameters
    ----------
    missed : float
        Share of the achievable decrease of its objective that the fit misses.
    achievable : float
        That decrease.
    reading : Reading
    name : str
        What the model is called.
    moved : float, optional
        By what share polishing moved the coefficients, where that is known.
    """
    allowed, known = max(reading.tol, 1e-6), reading.gap / achievable
    far = missed > (OTHER_DATA if reading.iterates else OTHER_DATA_EXACT) and _should_fit(reading)
    proven = missed > max(allowed, GAP_ROOM * known)
    if far or proven:
        beside = f"; by its dual_gap_ it was within {_share(known)} it on those of its fit" if proven else ""
        raise NotFittedToDataError(
            f"the coefficients of this {name} are far from optimal on these data (they miss {_share(missed)} "
            f"the achievable decrease of its objective{beside}): pass the X, y and sample_weight that it was "
            "fitted on, with the same scaling and columns"
        )
    if missed > allowed:
        coefficients = "" if moved is None else f" and polishing moved them by {moved:.2g} (relative)"
        begins = (
            f"are X and y what this {name} was fitted on, with the same scaling and columns? Its"
            if reading.converged
            else f"this {name} stopped at its limit of iterations, where its"
        )
        warnings.warn(
            f"{begins} coefficients were not optimal: they missed {_share(missed)} the achievable "
            f"decrease of its objective{coefficients}. The result is for the polished model; refit with a "
            "smaller tol or a larger max_iter",
            NotOptimalWarning,
            stacklevel=5,
        )


def _share(missed: float) -> str:
    """A share "of" something in per cent, or how many times that it is."""
    return f"{to_digits(100.0 * missed, 2)} % of" if missed < 1.0 else f"{to_digits(missed, 2)} times"
