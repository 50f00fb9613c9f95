"""The strength at which a penalty leaves nothing but what it does not penalise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from onefit import _linalg
from onefit._typing import Array
from onefit.fit import Fit
from onefit.losses import Squared, UnitDispersion
from onefit.numerics import EPS
from onefit.penalties import L2, Penalty, SeparablePenalty
from onefit.problem import Problem
from onefit.solvers.solve import solve

DECADES = 12  # above and below a first guess, in which the strength is looked for
BISECTIONS = 40


def null_strength(problem: Problem) -> float:
    """Smallest factor on the penalty with which the coefficients stay on its null space.

    Parameters
    ----------
    problem : Problem
        Whose penalty has kinks that grow with the factor.

    Notes
    -----
    On the null space (nothing, for most penalties; constants for a fused lasso) the model is fitted; the
    factor is the smallest for which minus its gradient is a subgradient, found by bisection.
    """
    coef, gradient = _null_fit(problem)
    if isinstance(problem.penalty, SeparablePenalty):
        return strength_of_single_coefficients(problem.penalty, gradient)
    size = float(np.abs(gradient).max(initial=0.0))
    unit = _unit(problem.penalty, gradient)
    if size <= np.finfo(float).tiny or unit <= 0:
        return 1.0

    def holds(log_factor: float) -> bool:
        penalty = problem.penalty.scaled(unit * 10.0**log_factor)
        if problem.has_one_output:
            return bool(penalty.is_stationary(coef[:, None], gradient[:, None])[0])
        return bool(np.all(penalty.prox(-gradient, 1.0) == coef))  # the proximal step from zero stays there

    low, high = -float(DECADES), float(DECADES)
    if not holds(high):
        return unit
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return unit * 10.0**high


def strength_of_single_coefficients(penalty: SeparablePenalty, gradient: Array) -> float:
    """The largest |∂loss| relative to its ℓ1 strength, and a rounding more."""
    l1, l2 = penalty.strengths(gradient.shape)
    kinked = (l1 > 0) & np.isfinite(l1) & np.isfinite(l2)
    highest = float(np.max(np.abs(gradient[kinked]) / l1[kinked], initial=0.0))
    return highest * (1.0 + 1e-12) if highest > np.finfo(float).tiny else 1.0


def _unit(penalty: Penalty, gradient: Array) -> float:
    """A first guess: ⟨g, −d⟩ / P(d) along the steepest descent d."""
    rest, descent = penalty.without_ridge(), -gradient
    if np.isinf(rest.value(descent)):  # it leaves the bounds of the coefficients
        descent = rest.prox(descent, 0.0)
    value = rest.value(descent)
    return -float(np.sum(gradient * descent)) / value if value > 0 and np.isfinite(value) else 0.0


def _null_fit(problem: Problem) -> tuple[Array, Array]:
    """Coefficients that minimise the loss on the null space of the penalty, and its gradient there."""
    start = Fit.at_start(problem)
    tangent = problem.penalty.tangent(start.coef)
    starts_there = tangent.size == 0 and isinstance(problem.loss, Squared | UnitDispersion)
    if starts_there or not problem.has_one_output:
        return start.coef, _pull(problem.X, start.gradient)  # at the constant model itself
    basis = np.reshape([*tangent.directions], (-1, len(start.coef))).T
    inner = replace(problem, X=_linalg.as_columns(problem.X).along(basis), penalty=L2(0.0))
    inner_start = Fit(inner, np.zeros(basis.shape[1]), start.intercept)
    found = solve(inner_start).fit
    return np.asarray(basis @ found.coef), _pull(problem.X, found.gradient)


def _pull(X: Any, slopes: Array) -> Array:
    """Xᵀ slopes, zero where it is rounding, as of constant columns beside an intercept."""
    pull = _linalg.transposed_times(X, slopes)
    columns = _linalg.column_lengths(X)
    largest = _linalg.row_times(columns, np.broadcast_to(np.linalg.norm(slopes, axis=0), pull.shape))
    return np.where(np.abs(pull) > len(slopes) * EPS * largest, pull, 0.0)
