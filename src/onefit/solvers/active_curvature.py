"""The curvature that an active set keeps up to date along a path."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Design, Index
from onefit.curvature import Direction, Sandwich, ScalarCurvature
from onefit.solvers.active_set import ActiveSet


@dataclass(frozen=True)
class ActiveSetCurvature(ScalarCurvature):
    """The curvature that an active set keeps up to date; valid until the set moves on."""

    active: ActiveSet
    support: Index

    @property
    def n(self) -> int:
        return len(self.active.eta)

    @property
    def is_definite(self) -> bool:
        return True

    @property
    def condition(self) -> float:
        return self.active.condition

    def quadratic_forms(self) -> Array:
        return self.active.quadratic_forms()

    def _free(self, gradient: Direction) -> Array:
        rhs = gradient.coef[self.support] - np.multiply.outer(self.active.means, gradient.intercept)
        return self.active.solve_factor(rhs)

    def solve(self, gradient: Direction) -> Direction:
        free = self._free(gradient)
        coef = np.zeros_like(gradient.coef)
        coef[self.support] = free
        offset = gradient.intercept * self.active.intercept_leverage
        return Direction(coef, offset - self.active.means @ free)

    def predict(self, direction: Direction) -> Array:
        free = direction.coef[self.support]
        return self.active.design_times(free) + (direction.intercept + self.active.means @ free)

    def cross(self, new: Design) -> Array:
        columns = _linalg.as_design(new).basis_of_rows()
        return self.respond(Direction(columns, np.ones(columns.shape[1]))).T

    def hat(self, rows: Array) -> Array:
        A = self.active.columns
        return A @ self.active.solve_factor(A.T @ rows) + rows.sum(axis=0) * self.active.intercept_leverage

    def sandwich(self, middle: Array) -> Sandwich:
        A, offset = self.active.columns, self.active.intercept_leverage
        Q = self.active.solve_factor(self.active.solve_factor(_linalg.product(A.T, A * middle[:, None])).T)
        side = 2.0 * offset * self.active.solve_factor(A.T @ middle)
        forms = np.einsum("ij,ij->i", _linalg.product(A, Q) + side, A) + offset**2 * middle.sum()
        free = np.zeros(len(self.active.coef))
        free[self.support] = Q.diagonal()
        return Sandwich(forms, free)

    def hat_matrix(self) -> Array:
        A = self.active.columns
        return A @ self.active.solve_factor(A.T) + self.active.intercept_leverage

    def responses(self) -> Direction:
        free = self.active.solve_factor(self.active.columns.T)
        return Direction(free, self.active.intercept_leverage - self.active.means @ free)
