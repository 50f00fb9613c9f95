"""Whether a penalty is what it says it is."""

from __future__ import annotations

from functools import partial

import numpy as np

from onefit import _linalg
from onefit._typing import Array
from onefit.fit import Fit
from onefit.gradients import Cotangent, held_out
from onefit.losses import Squared
from onefit.penalties import Penalty, Polyhedral
from onefit.pieces import Coordinates, Pieces, Tangent
from onefit.problem import Problem
from onefit.testing.common import (
    check_gradient,
    check_parameters,
    check_refits,
    difference,
    holds,
    same,
)

STEP = 1e-5  # of differences in the coefficients, relative to them
SHAKES = (1e-3, 0.1, 3.0)  # sizes of changes that a minimum is tried against


def check_penalty(penalty: Penalty, p: int, *, rng: int = 0) -> None:
    """Check a penalty: prox and tangent against their definitions, its derivatives, refits and gradients.

    Parameters
    ----------
    penalty : Penalty
        Of a strength at which some of its pattern is active for coefficients of about one.
    p : int
        Number of features that it is for; up to some twenty.
    rng : int, default 0

    Raises
    ------
    AssertionError
        Whose message says what is wrong.

    Examples
    --------
    >>> from onefit.penalties import GroupLasso
    >>> check_penalty(GroupLasso([0, 0, 1, 1, 2, 2], alpha=0.7), p=6)
    """
    generator = np.random.default_rng(rng)
    check_parameters(penalty)
    penalty.check((p,))
    for _ in range(3):
        start = 1.5 * generator.normal(size=p)
        beta = penalty.prox(start, 0.7)
        _check_prox(penalty, start, beta, generator)
        _check_tangent(penalty, start, beta)
        _check_third(penalty, beta, (beta - start) / 0.7, generator)
        _check_stationary(penalty, beta, (beta - start) / 0.7)
        _check_parts(penalty, start, beta)
        if isinstance(penalty.without_ridge(), Polyhedral):
            _check_rows(penalty, beta, generator)
    _check_in_a_model(penalty, p, generator)


def _check_prox(penalty: Penalty, start: Array, beta: Array, rng: np.random.Generator) -> None:
    """Its objective is strongly convex: it grows by ½‖change‖² at least, in every direction."""

    def objective(at: Array) -> float:
        return 0.5 * float(np.sum((at - start) ** 2)) + 0.7 * penalty.value(at)

    best = objective(beta)
    for size in SHAKES:
        for _ in range(20):
            change = size * rng.normal(size=beta.shape) * rng.integers(0, 2, beta.shape)
            least = best + 0.499 * float(np.sum(change**2)) - 1e-9 * (1.0 + abs(best))
            holds(objective(beta + change) >= least, "prox is not the minimum that defines it")
    middle, mean = penalty.value(0.5 * (start + beta)), 0.5 * (penalty.value(start) + penalty.value(beta))
    holds(middle <= mean + 1e-9 * (1.0 + abs(mean)), "the penalty is not convex: a chord lies below it")


def _frame(tangent: Tangent) -> tuple[Array, Array]:
    """B and C as matrices, and what else a tangent says checked against them."""
    B = np.column_stack([np.empty((tangent.support.size, 0)), *tangent.directions])
    C = np.diag(tangent.hessian[tangent.support]) if isinstance(tangent, Coordinates) else tangent.hessian
    holds(tangent.size == B.shape[1], "the size of the tangent is not its number of directions")
    same(B.T @ B, np.eye(B.shape[1]), "the directions of the tangent are not orthonormal")
    same(C, C.T, "the Hessian of the tangent is not symmetric")
    return B, C


def _check_tangent(penalty: Penalty, start: Array, beta: Array) -> None:
    """On a piece B, β = prox_s(v) has dβ/dv = B (I + s C)⁻¹ Bᵀ, and −∇loss = (v − β)/s."""
    step, h = 0.7, STEP * (1.0 + np.abs(start).max())
    tangent = penalty.tangent(beta, (beta - start) / step)
    B, C = _frame(tangent)
    slope = "the gradient of the tangent is not that of the penalty"
    same(B.T @ tangent.gradient, B.T @ (start - beta) / step, slope, 1e-6, 1e-7)
    moved = [
        (penalty.prox(start + h * e, step) - penalty.prox(start - h * e, step)) for e in np.eye(len(beta))
    ]
    expected = B @ np.linalg.solve(np.eye(len(C)) + step * C, B.T)
    found = np.column_stack(moved) / (2.0 * h)
    same(found, expected, "the tangent is not the derivative of the prox: B or C are wrong", 1e-4, 1e-5)
    if not penalty.has_kinks(beta.shape):
        holds(tangent.size == beta.size, "has_kinks says there are none, but the tangent is not everything")


def _check_third(penalty: Penalty, beta: Array, loss_gradient: Array, rng: np.random.Generator) -> None:
    tangent = penalty.tangent(beta, loss_gradient)
    owed = rng.normal(size=tangent.hessian.shape)
    if penalty.turns:
        return
    found: Array = penalty.third(beta, owed)
    h = 1e-4 * float(np.abs(beta).max(initial=0.0) or 1.0)
    for d in tangent.directions:
        rate = difference(partial(_owed_along, penalty, owed, beta, d), h)
        scale = 1e-5 * (1.0 + np.abs(tangent.hessian).max(initial=0.0))
        same(found @ d, rate, "third is not the derivative of the Hessian of the tangent", 1e-4, scale)
    if penalty.pieces is Pieces.QUADRATIC:
        same(found, 0.0, "pieces says QUADRATIC, but the Hessian of the tangent moves")


def _owed_along(penalty: Penalty, owed: Array, beta: Array, d: Array, t: float) -> float:
    return float(np.sum(owed * penalty.tangent(beta + t * d).hessian))


def _check_stationary(penalty: Penalty, beta: Array, loss_gradient: Array) -> None:
    at, slope = beta[:, None], loss_gradient[:, None]
    holds(penalty.is_stationary(at, slope).all(), "is_stationary must hold at a prox")
    off = loss_gradient + np.abs(loss_gradient).max() * (1.0 + np.abs(beta)) * np.where(beta > 0, 1.0, -1.0)
    fixed = np.abs(penalty.prox(beta - off, 1.0) - beta).max() <= 1e-8
    holds(
        bool(penalty.is_stationary(at, off[:, None])[0]) == fixed, "is_stationary is not what the prox says"
    )


def _check_parts(penalty: Penalty, start: Array, beta: Array) -> None:
    l2, rest = penalty.ridge(beta.shape), penalty.without_ridge()
    total = 0.5 * float(np.sum(l2 * beta**2)) + rest.value(beta)
    same(total, penalty.value(beta), "ridge and without_ridge together are not the penalty")
    if penalty.is_ridge(beta.shape):
        same(rest.value(start), 0.0, "is_ridge says that there is nothing but ridge, but there is")
    twice = penalty.scaled(2.5)
    same(twice.value(beta), 2.5 * penalty.value(beta), "scaled does not scale the value")
    same(twice.prox(start, 0.4), penalty.prox(start, 1.0), "scaled does not scale the prox", 1e-6, 1e-7)


def _check_rows(penalty: Penalty, beta: Array, rng: np.random.Generator) -> None:
    """The rows have the value of the penalty, and say where a piece ends."""
    rest = penalty.without_ridge()
    assert isinstance(rest, Polyhedral)
    rows, extra = rest.rows(len(beta)), rest.thresholds(beta)
    total = rows.value(_linalg.times(rows.X, beta) + rows.extra @ extra)
    same(total, rest.value(beta), "the rows do not have the value of the penalty")
    tangent = rest.tangent(beta)
    ray = (
        np.sum([rng.normal() * d for d in tangent.directions], axis=0)
        if tangent.size
        else np.zeros_like(beta)
    )
    if not np.any(ray):
        return
    end = rest.exit(beta, ray)
    inside = beta + 0.9 * min(end, 10.0) * ray
    holds(rest.contains(beta, inside), "exit says that the piece goes further than contains does")
    ahead = rest.value(beta) + tangent.gradient @ (inside - beta)
    same(rest.value(inside), ahead, "the penalty is not flat as far as exit says")


# --- in a model ------------------------------------------------------------------------------------


def _check_in_a_model(penalty: Penalty, p: int, rng: np.random.Generator) -> None:
    X = rng.normal(size=(3 * p + 10, p))
    y = X @ (1.5 * rng.normal(size=p)) + rng.normal(size=len(X))
    problem = Problem(Squared(), penalty, X, y, rng.uniform(0.5, 1.5, len(y)))
    check_refits(problem, 6, rng)
    _check_gradient(problem)


def _check_gradient(problem: Problem) -> None:
    """The gradient of a held-out risk in the strength is what differences say."""
    tested = np.arange(0, problem.n, 4)

    def judged(fit: Fit) -> tuple[Array, Cotangent]:
        residuals = fit.eta[tested] - problem.y[tested]
        return residuals, held_out(fit, tested, residuals)

    what = "the gradient of a held-out risk is wrong"
    training, penalty = problem.without(tested), problem.penalty
    check_gradient(training, lambda t: penalty.scaled(1.0 + t), judged, 1e-4, what)
