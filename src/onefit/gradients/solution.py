"""From a derivative in the parameters, or in held-out predictors, to one in the problem: one solve."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index
from onefit.curvature import Direction, Pinned, factor
from onefit.fit import Fit
from onefit.gradients.adjoint import Cotangent, OfGram, OfLoss
from onefit.gradients.in_corners import held_out_in_corners, stand_in_corners
from onefit.leave_out.loose import flat_bottom
from onefit.penalties import Coordinates, SeparablePenalty

SMALL = 64  # columns up to which many systems are solved at once


class Solves(Protocol):
    """What a gradient needs of a curvature."""

    def solve(self, gradient: Direction) -> Direction:
        """K⁻¹ ``gradient``."""


def implicit(fit: Fit, curvature: Solves, of_parameters: Direction) -> Cotangent:
    """Pull a derivative in (β, b) back to the problem, by one solve."""
    u = curvature.solve(of_parameters)
    if not isinstance(curvature, Pinned | InCorners):
        return through_solution(fit, u)
    return through_solution(fit, u, curvature.hold(of_parameters), curvature.pins)


def through_solution(
    fit: Fit, u: Direction, held: Array | None = None, pins: Index | None = None
) -> Cotangent:
    """∂R/∂(Zᵀ g + ∇P) = −u, of the problem's parts; ``held`` is what the risk owes to kinks that hold."""
    along = fit.problem.linear_predictor(*u)
    slope, kink = -along, None
    if held is not None:
        slope, kink = np.where(fit.pinned, 0.0, slope), np.zeros(fit.problem.n)
        np.add.at(kink, np.flatnonzero(fit.pinned) if pins is None else pins, held)
    loss = OfLoss(slope, kink=kink)
    if _linalg.has_columns(fit.problem.X):
        return Cotangent(-u.coef, loss=loss)
    gram = OfGram(as_columns(u.coef), as_columns(fit.tangent.gradient))
    return Cotangent(u.intercept - along, loss=loss, gram=gram)  # ⟨u, v⟩ is uᵀ G v


def as_columns(values: Array) -> Array:
    """One column an output: (n, c)."""
    return values.reshape(len(values), -1)


@dataclass(frozen=True, eq=False)
class InCorners:
    """K⁻¹ on the directions that leave rows V on their kinks, where nothing bends but a ridge penalty Λ.

    With S = X Λ⁻¹ Xᵀ, K u = v is Λ u = v − X_Vᵀ μ, where the forces μ hold the rows:

        S_VV μ − b 1 = X_V Λ⁻¹ v,      1ᵀ μ = v_b.

    The system is as large as V, which is what makes the gradients of many left-out fits affordable.

    Where no row is on a kink the intercept is in the middle of those that are as good, so that the mean of
    the predictors of two rows stays where it is: that of those which come to their kinks at either end.
    """

    X: Any
    pins: Index
    strengths: Array  # diagonal of Λ, all positive
    intercept: bool
    midway: bool = False  # whether the mean of the rows is held, and none of them alone

    @classmethod
    def of(cls, fit: Fit) -> InCorners | None:
        """Read them off a fit; None where the penalty has kinks, or leaves directions free."""
        curved = fit.tangent.hessian
        problem = fit.problem
        if not problem.loss.is_kinked or not isinstance(fit.tangent, Coordinates) or fit.is_kinked:
            return None
        if not (np.all(curved > 0) and np.all(fit.tangent.support)):
            return None
        pins = np.flatnonzero(fit.pinned)
        if pins.size:
            return cls(problem.X, pins, curved, bool(problem.intercept))
        bottom = flat_bottom(fit)
        return None if bottom is None else cls(problem.X, bottom.rows, curved, True, midway=True)

    @property
    def _shares(self) -> Array:
        """How much of each row is in what is held: (v, pins)."""
        return np.full((1, len(self.pins)), 1.0 / len(self.pins)) if self.midway else np.eye(len(self.pins))

    @cached_property
    def _rows(self) -> Any:
        """X_V; of a kernel model G_V."""
        rows = _linalg.as_design(self.X).dense_rows(self.pins)
        return self._shares @ rows if self.midway else rows

    def _transposed(self, forces: Array) -> Array:
        """X_Vᵀ μ, in the coordinates of the coefficients."""
        everywhere = np.zeros(self.X.shape[0])
        np.add.at(everywhere, self.pins, self._shares.T @ forces if self.midway else forces)
        return _linalg.transposed_times(self.X, everywhere)

    @cached_property
    def _system(self) -> Array:
        S = _linalg.as_design(_linalg.some_rows(self.X, self.pins)).row_gram(1.0 / self.strengths)
        S = self._shares @ S @ self._shares.T if self.midway else S
        v = len(S)
        if not self.intercept:
            return S
        bordered = np.zeros((v + 1, v + 1))
        bordered[:v, :v], bordered[:v, v], bordered[v, :v] = S, -1.0, 1.0
        return bordered

    def _forces(self, gradient: Direction) -> tuple[Array, float]:
        rhs = self._rows @ (gradient.coef / self.strengths)
        rhs = np.append(rhs, gradient.intercept) if self.intercept else rhs
        found = _linalg.solve_or_fit(self._system, rhs)  # rows may hold the same direction
        return (found[:-1], float(found[-1])) if self.intercept else (found, 0.0)

    def solve(self, gradient: Direction) -> Direction:
        """K⁻¹ ``gradient``, of one right-hand side."""
        forces, level = self._forces(gradient)
        return Direction((gradient.coef - self._transposed(forces)) / self.strengths, np.asarray(level))

    def hold(self, gradient: Direction) -> Array:
        """Forces with which the rows hold against a gradient, each its own: (pins,)."""
        forces = self._forces(gradient)[0]
        return self._shares.T @ forces if self.midway else forces


@dataclass(frozen=True, eq=False)
class SideBySide:
    """K⁻¹ of the outputs of one problem, each on a few of the columns: small systems, all at once."""

    fit: Fit
    columns: Index  # that any of them has

    @classmethod
    def of(cls, fit: Fit) -> SideBySide | None:
        """None where the systems are so large that a factor each takes no longer."""
        columns = np.flatnonzero(fit.tangent.support.any(axis=1))
        return cls(fit, columns) if len(columns) <= SMALL else None

    def solve(self, gradient: Direction) -> Direction:
        """K⁻¹ ``gradient``; one after the other where some K is singular."""
        problem, tangent, columns = self.fit.problem, self.fit.tangent, self.columns
        Z = _linalg.as_columns(_linalg.active_columns(problem.X, columns)).dense()
        means = Z.mean(axis=0) if problem.intercept.all() else np.zeros(len(columns))
        Z = np.hstack([Z - means, np.ones((len(Z), 1))])
        on = np.vstack([tangent.support[columns], problem.intercept]).T
        own = gradient.coef[columns] - np.multiply.outer(means, gradient.intercept)
        right = np.where(on, np.vstack([own, gradient.intercept]).T, 0.0)
        found, sure = _linalg.solve_inside(self._matrices(Z), right, on)
        if not sure.all():
            return factor(self.fit).solve(gradient)
        coef = np.zeros_like(gradient.coef)
        coef[columns] = found[:, :-1].T
        return Direction(coef, found[:, -1] - means @ coef[columns])

    def _matrices(self, Z: Array) -> Array:
        """K of each problem: (m, q, q)."""
        (m, q), curved = (len(self.fit.intercept), Z.shape[1]), self.fit.tangent.hessian[self.columns]
        first, second = np.tril_indices(q)
        K, total = np.empty((m, q, q)), np.zeros((m, len(first)))
        for rows in np.array_split(np.arange(len(Z)), 1 + len(Z) * len(first) // _linalg.BLOCK_SIZE):
            total += _linalg.product(self.fit.hessian[rows].T, Z[rows][:, first] * Z[rows][:, second])
        K[:, first, second] = total
        K[:, second, first] = K[:, first, second]
        K[:, np.arange(q - 1), np.arange(q - 1)] += curved.T
        return K


def of_rows(fit: Fit, by_row: Array) -> Direction:
    """Zᵀ c: a derivative in the linear predictors as one in the parameters."""
    return Direction(*fit.problem.gradient_of(by_row))


def held_out(fit: Fit, tested: Index, by_row: Array, curvature: Solves | None = None) -> Cotangent:
    """Cotangent of a risk that is judged on rows without weight in the fit: one split of the data.

    Parameters
    ----------
    fit : Fit
        Of the training rows; the others have no weight.
    tested : (t,) int array
    by_row : (t,) or (t, c) array
        Derivative of the risk in their linear predictors, weights and the mean included.
    """
    everywhere = np.zeros_like(fit.eta)
    everywhere[tested] = by_row
    solves = InCorners.of(fit) or curvature
    return implicit(fit, factor(fit) if solves is None else solves, of_rows(fit, everywhere))


def stand_side_by_side(fit: Fit) -> bool:
    """Whether problems without single rows can be outputs of one: each coefficient, and each row, its own."""
    problem = fit.problem
    if problem.loss.has_kinks:
        return stand_in_corners(fit)
    separable = isinstance(problem.penalty, SeparablePenalty) and _linalg.has_columns(problem.X)
    return separable and problem.has_one_output


def held_out_alone(
    fit: Fit, rows: Index, coef: Array, intercept: Array, by_row: Array
) -> tuple[Fit, Cotangent]:
    """Cotangent of single rows that are held out in turn, every one at the solution without it.

    The problems are the outputs of one, each with weights of its own.

    Parameters
    ----------
    fit : Fit
        Of all rows, whose left-out problems ``stand_side_by_side``.
    rows : (m,) int array
    coef, intercept : (p, m) and (m,) arrays
        The solutions.
    by_row : (m,) array
        Derivative of the risk in the rows' own linear predictors.

    Returns
    -------
    outputs : Fit
        What the cotangent is one of: of the penalty and the weights as they are in ``fit``.
    cotangent : Cotangent
    """
    if fit.problem.loss.has_kinks:
        return held_out_in_corners(fit, rows, coef, intercept, by_row)
    problem, removed = fit.problem, list(rows[:, None])
    y = np.broadcast_to(problem.y[:, None], (problem.n, len(rows)))
    several = np.repeat(problem.intercept, len(rows))
    outputs = Fit(replace(problem, y=y, intercept=several, moments=None), coef, intercept)
    shares = problem.kept_shares(removed)
    grown = problem.weights_without(removed) / np.where(problem.weights > 0, problem.weights, 1.0)[:, None]
    own = Fit(outputs.problem, coef, intercept)
    kept = replace(outputs.tangent, hessian=shares * outputs.tangent.hessian)
    own.known(eta=outputs.eta, hessian=grown * outputs.hessian, tangent=kept)
    along = held_out(own, rows, np.diag(by_row), SideBySide.of(own))
    assert along.loss is not None
    return outputs, Cotangent(shares * along.gradient, loss=OfLoss(grown * along.loss.gradient))
