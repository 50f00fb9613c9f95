"""Bounds of left-out predictors one Newton step away, from leverages, or by what steps do to other rows."""

from __future__ import annotations

import numpy as np

from onefit._typing import Array, Index
from onefit.cost import Work
from onefit.curvature import Curvature, ScalarCurvature
from onefit.fit import Fit
from onefit.leave_out.prove import Widths, concordance, far_rows, radius, widest_form
from onefit.leave_out.rescaling import Spread
from onefit.leave_out.step import Step
from onefit.numerics import LARGEST_EXPONENT, LEAST_SLACK, TINY, length_of

PASSES = 3.0  # over all pairs of rows, each as long as so many functions


def radius_of_step(
    R: float, norm: Array, widths: Widths, spread: Spread, beside: Array | float = 0.0
) -> Array:
    """Bound of ‖θ̃ − θ⁽ᴳ⁾‖_A for one Newton step of length ``norm`` in A: (f,).

    No row moves by more than its own norm times that, which bounds ρ and, by e^t − 1 − t, the gradient that
    is left, ``beside`` one of some norm that the step leaves itself.
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        travelled = widths.near * norm
        left = bent(np.minimum(R * travelled, LARGEST_EXPONENT))
        if widths.far.size:
            left += widths.share * bent(np.minimum(R * widths.all * norm, LARGEST_EXPONENT))
        residual = beside + (left * spread.high + spread.off) * norm
    return radius(R, residual, travelled, widths.near, spread.low * widths.kept)


def bent(t: Array) -> Array:
    """(e^t − 1 − t)/t, the share of its gradient that a step leaves: (n,)."""
    return np.where(t > 1e-5, (np.expm1(t) - t) / t, 0.5 * t)


def bound_steps(fit: Fit, step: Step, eta: Array, slack: Array) -> Array:
    """Bounds of the left-out predictors of all rows, one Newton step away: (n,).

    For smooth losses with a constant and penalties without kinks, and one output or coupled ones; infinite
    elsewhere.  No product beyond the leverages is needed.
    """
    R = concordance(fit)
    if R is None or not (fit.problem.has_one_output or fit.problem.is_coupled):
        return np.full(len(eta), np.inf)
    D, H = fit.hessian, step.forms
    if fit.problem.is_coupled:
        share = 1.0 - slack
        kept = np.eye(H.shape[1]) - D @ H
        kept[share >= 1.0] = np.eye(H.shape[1])
        own = widest_form(H @ np.linalg.inv(kept))
    else:
        share = D * H
        own = H / np.maximum(1.0 - share, TINY)
    slack, norm = 1.0 - share, _length_of_step(fit, step, eta)
    widths = far_rows(fit, H).widths(slack)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = length_of(own) * radius_of_step(R, norm, widths, step.rescaled.spread)
    return where_told(found, slack)


def where_told(bounds: Array, slack: Array) -> Array:
    """Bounds, infinite where a row has next to no slack or nothing is told."""
    return np.where((slack >= LEAST_SLACK) & np.isfinite(bounds), bounds, np.inf)


def _length_of_step(fit: Fit, step: Step, eta: Array) -> Array:
    """Norm in A of the step of each row: (n,)."""
    change = eta - fit.eta
    slope = step.gradient + fit.bent(change)
    moved = (step.gradient * change + step.shift * slope).reshape(len(eta), -1).sum(axis=1)
    return length_of(moved + step.rescaled.squares)


def cost_of_closer_bounds(fit: Fit, K: Curvature, count: int) -> Work:
    """What ``bound_steps_closely`` takes of so many rows, about; without end where it has nothing to say."""
    n, k = fit.problem.n, min(max(1, fit.tangent.size), fit.problem.n)
    if K.is_estimated or not isinstance(K, ScalarCurvature) or not concordance(fit):
        return Work(np.inf)
    return Work(float(n) * k * (count + 0.5 * k), 50.0, PASSES * n * count)


def bound_steps_closely(fit: Fit, step: Step, eta: Array, slack: Array, rows: Index) -> Array:
    """The same for one output and some rows, by what the step of each does to every other row: (m,).

    A row j that moves by Δ_ji = z_jᵀ(θ̃ − θ̂) leaves a gradient ρ_j of at most d_j (e^t − 1 − t)/t² R Δ_ji²,
    where t is R times the widest move, and ‖Z₋ᵢᵀρ‖² in A⁻¹ is at most Σ ρ_j²/d_j as A ≥ Z₋ᵢᵀ D₋ᵢ Z₋ᵢ.  Most
    rows hardly move, so that this is far less than if all moved as the widest may.  The gradient of rows that
    reach far is told by their own moves.

    Parameters
    ----------
    eta, slack : (n,) arrays
        Predictors a step away, and 1 − d h.
    rows : (m,) int array
    """
    R, spread, far = concordance(fit), step.rescaled.spread.of(rows), far_rows(fit, step.forms)
    assert R
    slack, own = slack[rows], fit.hessian[rows]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        across, travelled, fourth, of_far = _moves_of_others(fit, step, eta, rows, far.rows)
        t = np.clip(R * travelled, TINY, LARGEST_EXPONENT)
        left = np.sqrt(fourth * (R * bent(t) / t) ** 2 + of_far)
        left = left * spread.high + spread.off * _length_of_step(fit, step, eta)[rows]
        widest = np.sqrt(far.form + own * across / slack)
        low = spread.low * (1.0 - far.share / slack)
        found = radius(R, left, travelled, widest, low) * np.sqrt(step.forms[rows] / slack)
    return where_told(found, slack)


def _moves_of_others(
    fit: Fit, step: Step, eta: Array, rows: Index, far: Index
) -> tuple[Array, Array, Array, Array]:
    """Of each of some rows that leave: its largest squared form with another, and how these move, (m,) each.

    That is the largest move, and the sum of the fourth powers in D, of those that do not reach ``far``, and
    Σ ρ²/d of those that do.
    """
    curvature, rescaled, R = step.curvature, step.rescaled, concordance(fit)
    assert isinstance(curvature, ScalarCurvature)
    assert R
    d, aside = fit.hessian, np.concatenate([far, np.flatnonzero(fit.problem.weights == 0)])
    slope, found = (step.gradient + d * (eta - fit.eta))[rows], np.empty((4, len(rows)))
    shifts = [curvature.predict(direction) for direction in rescaled.directions]
    amounts = [amount[rows] for amount in rescaled.amounts]
    for columns, moved in curvature.hat_blocks(rows):
        own = rows[columns], np.arange(moved.shape[1])
        moved[own] = 0.0
        of_far = moved[far] * slope[columns]
        moved[aside] = 0.0
        found[0, columns] = np.square(np.abs(moved).max(axis=0))
        moved *= slope[columns]
        for shift, amount in zip(shifts, amounts, strict=True):
            moved += np.multiply.outer(shift, amount[columns])
            of_far += np.multiply.outer(shift[far], amount[columns])
            moved[aside] = 0.0
        moved[own] = 0.0
        t = np.where(far[:, None] == own[0], 0.0, np.minimum(R * np.abs(of_far), LARGEST_EXPONENT))
        found[3, columns] = d[far] @ np.square(bent(t) * t / R)
        np.square(moved, out=moved)
        found[1, columns] = np.sqrt(moved.max(axis=0))
        found[2, columns] = d @ np.square(moved, out=moved)
    return found[0], found[1], found[2], found[3]
