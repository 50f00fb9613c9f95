"""K along a basis, and K with rows of the loss held on their kinks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Design, Index
from onefit.curvature.base import Direction, Sandwich, ScalarCurvature, WrappedScalar

LOOSE = 1e-9  # tension of a pinned row, relative to ρ, that is rounding


@dataclass(frozen=True)
class Along(WrappedScalar):
    """K along the columns of a basis B: that of the design X B."""

    inner: ScalarCurvature
    X: Design
    basis: Design  # (p, k)

    def solve(self, gradient: Direction) -> Direction:
        free = _linalg.transposed_times(self.basis, gradient.coef)
        coef, intercept = self.inner.solve(Direction(free, gradient.intercept))
        return Direction(_linalg.times(self.basis, coef), intercept)

    def cross(self, new: Design) -> Array:
        return self.inner.cross(_linalg.as_columns(new).along(self.basis))


@dataclass(frozen=True)
class Pinned(WrappedScalar):
    """K on the directions that leave some rows V where they are: those on a kink of the loss.

    With any curvature ρ > 0 on these rows, K_ρ = K + ρ Z_Vᵀ Z_V, S = Z_V K_ρ⁻¹ Z_Vᵀ and R = K_ρ⁻¹ Z_Vᵀ S⁻¹,

        K⁻¹ on {Z_V θ = 0}  =  K_ρ⁻¹ − R S Rᵀ,        T = S⁻¹ − ρ I  (= (Z_V K⁻¹ Z_Vᵀ)⁻¹ where K has one)

    whatever ρ is (Wang et al. 2018, section 4.2: the limit of ever sharper smooth kinks).  A pinned row i
    that leaves is released: its form is then z_iᵀ K⁻¹ z_i = 1 / T_ii and K⁻¹ z_i = R e_i / T_ii, infinite
    where nothing but that row held the fit in its place.
    """

    inner: ScalarCurvature
    X: Design
    pins: Index  # (v,)
    held: float  # ρ

    @cached_property
    def _columns(self) -> Array:
        """Z K_ρ⁻¹ Z_Vᵀ: (n, v)."""
        return self.inner.hat_columns(self.pins)

    @cached_property
    def _pin_inverse(self) -> Array:
        """S⁻¹, or its generalised inverse where rows pin the same direction."""
        S = self._columns[self.pins]
        return _linalg.Factorization.of(0.5 * (S + S.T)).inverse()

    @cached_property
    def lift(self) -> Direction:
        """R: what moves each pinned row by one and the others not, (p, v) and (v,)."""
        columns = _linalg.as_design(self.X).basis_of_rows(self.pins)
        coef, intercept = self.inner.solve(Direction(columns, np.ones(columns.shape[1])))
        return Direction(coef @ self._pin_inverse, intercept @ self._pin_inverse)

    @cached_property
    def released(self) -> Array:
        """1 / T_ii, infinite where the row alone holds a direction: (v,)."""
        tension = self._pin_inverse.diagonal() - self.held
        loose = tension <= LOOSE * self.held
        return np.where(loose, np.inf, 1.0 / np.where(loose, 1.0, tension))

    @cached_property
    def _steps(self) -> Array:
        """The same where finite; a pinned row without which the fit is undetermined does not move: (v,)."""
        return np.where(np.isfinite(self.released), self.released, 0.0)

    @property
    def is_definite(self) -> bool:
        return bool(np.all(np.isfinite(self.released)))

    def quadratic_forms(self) -> Array:
        moved = np.einsum("iv,iv->i", self.lifted_rows, self._columns)
        forms = np.maximum(self.inner.quadratic_forms() - moved, 0.0)
        forms[self.pins] = self.released
        return forms

    def solve(self, gradient: Direction) -> Direction:
        coef, intercept = self.inner.solve(gradient)
        moved = self.inner.predict(Direction(coef, intercept))[self.pins]
        return Direction(coef - self.lift.coef @ moved, intercept - self.lift.intercept @ moved)

    def leave(self, rows: Index, gradients: Direction) -> Direction:
        coef, intercept = self.solve(gradients)
        places, own = self._pinned(rows)
        steps = self._steps[own] * gradients.intercept[places]
        coef[..., places], intercept[places] = (
            self.lift.coef[:, own] * steps,
            self.lift.intercept[own] * steps,
        )
        return Direction(coef, intercept)

    def _pinned(self, rows: Index) -> tuple[Index, Index]:
        """Places of the pinned ones among some rows, and their numbers among the pins."""
        places = np.flatnonzero(np.isin(rows, self.pins))
        return places, np.searchsorted(self.pins, rows[places])

    def hold(self, gradient: Direction) -> Array:
        """Duals with which the pinned rows hold against a gradient: (v,)."""
        return self._pin_inverse @ self.inner.respond(gradient)[self.pins]

    def duals(self, rows: Index, slopes: Array) -> Array:
        """Change of the duals of the pinned rows when each of some rows leaves, with slope c_i: (v, r).

        That of a pinned row that leaves is minus what it was.
        """
        change = self._pin_inverse @ (self._columns[rows].T * slopes)
        places, own = self._pinned(rows)
        change[:, places] = -self._pin_inverse[:, own] * self._steps[own] * slopes[places]
        change[own, places] = -slopes[places]
        return change

    def amiss(self, rows: Index, gradient: Direction | None, beside: Array) -> Array:
        """What is left of the conditions beyond ``solve`` makes of predictors of rows that leave: (r,).

        Parameters
        ----------
        rows : (r,) int array
        gradient : Direction or None
            That is left without each row, along the last axis: a pinned row that leaves gives way to it.
        beside : (v, r) array
            How far pins are from where they are held.
        """
        lifts, off = np.abs(self.lifted_rows[rows]), np.zeros(len(rows))
        against = np.zeros_like(beside) if gradient is None else self.hold(gradient)
        places, own = self._pinned(rows)
        lifts[places] = np.abs(self.tension[own]) * self._steps[own, None]
        off[places] = np.abs(against[own, places]) * self._steps[own]
        return off + np.sum(lifts.T * beside, axis=0)

    def predict(self, direction: Direction) -> Array:
        return self.inner.predict(direction)

    def hat(self, rows: Array) -> Array:
        pulled = self._pin_inverse @ (self._columns.T @ rows)
        return self.inner.hat(rows) - self._columns @ pulled

    def sandwich(self, middle: Array) -> Sandwich:
        raise TypeError("rows on a kink of the loss answer to the weights of no row: Q says nothing of them")

    def hat_matrix(self) -> Array:
        return self.inner.hat_matrix() - _linalg.product(self.lifted_rows, self._columns.T)

    def hat_columns(self, rows: Index) -> Array:
        return self.inner.hat_columns(rows) - _linalg.product(self.lifted_rows, self._columns[rows].T)

    @cached_property
    def lifted_rows(self) -> Array:
        """Z R, what moving each pinned row by one does to all rows: (n, v)."""
        return _linalg.product(self._columns, self._pin_inverse)

    @cached_property
    def tension(self) -> Array:
        """T: (v, v)."""
        return self._pin_inverse - self.held * np.eye(len(self.pins))

    def cross(self, new: Design) -> Array:
        crossed = self.inner.cross(new)
        lifted = crossed[:, self.pins] @ self._pin_inverse
        crossed = crossed - lifted @ self._columns.T
        crossed[:, self.pins] = lifted * self._steps
        return crossed

    def responses(self) -> Direction:
        coef, intercept = self.inner.responses()
        lifted, raised = coef[:, self.pins] @ self._pin_inverse, intercept[self.pins] @ self._pin_inverse
        coef, intercept = coef - lifted @ self._columns.T, intercept - raised @ self._columns.T
        coef[:, self.pins], intercept[self.pins] = lifted * self._steps, raised * self._steps
        return Direction(coef, intercept)
