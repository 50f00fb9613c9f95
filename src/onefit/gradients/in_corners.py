"""Single rows that are held out in turn of losses with kinks: systems of the rows on kinks, all at once."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.fit import Fit
from onefit.gradients.adjoint import Cotangent, OfGram, OfLoss
from onefit.leave_out.loose import flat_bottom
from onefit.losses import PiecewiseLinear
from onefit.penalties import Coordinates
from onefit.problem import Problem


def stand_in_corners(fit: Fit) -> bool:
    """Whether nothing bends but a ridge penalty on all coefficients, kept by refits as weights are."""
    problem, tangent = fit.problem, fit.tangent
    if not isinstance(problem.loss, PiecewiseLinear) or not problem.has_one_output or fit.is_kinked:
        return False
    if not isinstance(tangent, Coordinates) or not problem.refits_keep_the_rest:
        return False
    return bool(np.all(tangent.hessian > 0) and np.all(tangent.support))


def held_out_in_corners(
    fit: Fit, rows: Index, coef: Array, intercept: Array, by_row: Array
) -> tuple[Fit, Cotangent]:
    """Cotangent of single rows that are held out in turn, every one at the solution without it.

    What it takes and returns is that of ``solution.held_out_alone``; the formulas are those of
    ``solution.InCorners``, with G = X Λ⁻¹ Xᵀ over all rows.
    """
    problem, own = fit.problem, (rows, np.arange(rows.size))
    y, several = np.broadcast_to(problem.y[:, None], (problem.n, rows.size)), np.full(rows.size, True)
    outputs = Fit(replace(problem, y=y, intercept=several & problem.intercept, moments=None), coef, intercept)
    pinned = outputs.pinned
    pinned[own] = False  # they have left
    strengths = fit.tangent.hessian[:, None]
    forces, level = _forces(problem, strengths[:, 0], pinned, rows, by_row)
    for j in np.flatnonzero(~pinned.any(axis=0)).tolist():  # in the middle of the intercepts that are as good
        bottom = flat_bottom(Fit(problem.without(int(rows[j])), coef[:, j], intercept[j]))
        if bottom is not None:
            np.add.at(forces[:, j], bottom.rows, 0.5 * by_row[j])
    owed = -forces
    owed[own] += by_row
    u = _linalg.transposed_times(problem.X, owed) / strengths
    along = problem.linear_predictor(u, level)
    slope = np.where(pinned, 0.0, -along)
    slope[own] = 0.0  # they have no weight
    loss = OfLoss(slope, kink=forces)
    if _linalg.has_columns(problem.X):
        return outputs, Cotangent(-u, loss=loss)
    return outputs, Cotangent(level - along, loss=loss, gram=OfGram(u, strengths * coef))


class _Systems(NamedTuple):
    """Rows on kinks of each solution, padded, and the systems of their forces."""

    places: Index  # (m, v)
    is_held: Mask  # (m, v)
    K: Array  # (m, v, v), or one more with an intercept
    right: Array  # (m, v), or one more


def _forces(
    problem: Problem, strengths: Array, pinned: Mask, rows: Index, by_row: Array
) -> tuple[Array, Array]:
    """What holds the rows on kinks, (n, m), and the change of the intercepts: (m,)."""
    systems = _systems(problem, strengths, pinned, rows, by_row)
    found = _linalg.solve_each(systems.K, systems.right[..., None])[..., 0]
    for j in np.flatnonzero(~np.isfinite(found).all(axis=1)):  # rows may hold the same direction
        found[j] = _linalg.solve_or_fit(systems.K[j], systems.right[j])
    forces, v = np.zeros(pinned.shape), systems.places.shape[1]
    one, place = np.nonzero(systems.is_held)
    forces[systems.places[one, place], one] = found[one, place]
    return forces, found[:, v] if problem.intercept else np.zeros(len(rows))


def _systems(problem: Problem, strengths: Array, pinned: Mask, rows: Index, by_row: Array) -> _Systems:
    count = pinned.sum(axis=0)
    v, free = int(count.max(initial=0)), int(bool(problem.intercept))
    places = np.argsort(~pinned, axis=0, kind="stable")[:v].T
    is_held = np.arange(v) < count[:, None]
    G = _linalg.as_design(problem.X).row_gram(1.0 / strengths)
    K, right = np.zeros((len(rows), v + free, v + free)), np.zeros((len(rows), v + free))
    both = is_held[:, :, None] & is_held[:, None, :]
    K[:, :v, :v] = np.where(both, G[places[:, :, None], places[:, None, :]], np.eye(v))
    right[:, :v] = np.where(is_held, G[places, rows[:, None]], 0.0) * by_row[:, None]
    if free:
        K[:, :v, v], K[:, v, :v], right[:, v] = -1.0 * is_held, is_held, by_row
        K[:, v, v] = count == 0  # which nothing holds
        right[count == 0, v] = 0.0
    return _Systems(places, is_held, K, right)
