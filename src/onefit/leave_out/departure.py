"""What leaving each row out does to the coefficients, and so to predictions anywhere.

At the left-out value η̃_i the row's own slope is c_i = g_i + d_i (η̃_i − η_i), and

    θ̃⁽ⁱ⁾ = θ + K⁻¹ z_i c_i + (what the refit rescales)

(Wang et al. 2018, Theorem 3.1), so a prediction x̃ᵀθ̃⁽ⁱ⁾ at a new row costs one solve with K for all rows
that leave, and no matrix of left-out coefficients.  Of rows that leave together the slopes add up,

    θ̃⁽ᴳ⁾ = θ + K⁻¹ Σ_{i in G} z_i c_i + (what the refit rescales),

each at its value without the whole set G (``set_departures``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Design, Index, Mask
from onefit.curvature import Curvature, Direction
from onefit.fit import Fit
from onefit.leave_out.rescaling import Rescaling, curvature_of_refits, rescaling
from onefit.leave_out.result import LeftOut, SolvedWithout


@dataclass(frozen=True, eq=False)
class Departures(ABC):
    """The fits without each of some units, rows or sets of them, and no matrix of their coefficients.

    Attributes
    ----------
    left_out : LeftOut
    """

    left_out: LeftOut

    @property
    def fit(self) -> Fit:
        """The fit with all rows."""
        return self.left_out.fit

    @property
    @abstractmethod
    def counts(self) -> Mask:
        """Units with a row of positive weight: (f,)."""

    @abstractmethod
    def check_left_once(self, asked: str, least: int = 1) -> None:
        """See that units are exchangeable: rows, or sets that test what they remove, which no other does.

        Raises
        ------
        ValueError
            If they are not, or fewer than ``least``, for what is ``asked``.
        """

    @property
    @abstractmethod
    def eta(self) -> Array:
        """Left-out linear predictors of the judged rows, by these fits: (t,) or (t, c)."""

    @property
    @abstractmethod
    def slopes(self) -> Array:
        """c_i, the slope of row i at its left-out value: the shape of ``eta`` of the fit."""

    @abstractmethod
    def changes(self, units: slice) -> Direction:
        """θ̃ − θ without some units, along the last axis: (p, f) or (p, c, f), and (f,) or (c, f)."""

    @abstractmethod
    def predict(self, new: Design) -> Array:
        """Linear predictors x̃ᵀθ̃ of new rows without each unit: (m, f) or (m, f, c)."""

    @cached_property
    def curvature(self) -> Curvature:
        """K, factored again: leave-one-out does not keep it."""
        return curvature_of_refits(self.fit)

    @cached_property
    def _rescaling(self) -> Rescaling:
        return rescaling(self.fit, self.curvature, self.left_out.sets)

    def blocks(self, width: int = 0) -> Iterator[slice]:
        """Units in blocks whose coefficients, or ``width`` numbers a unit, take a few megabytes."""
        size = max(1, _linalg.BLOCK_SIZE // max(1, self.fit.coef.size, width))
        for start in range(0, self.left_out.count, size):
            yield slice(start, min(start + size, self.left_out.count))

    def answers(self, rows: Index | slice, slopes: Array) -> Direction:
        """K⁻¹ z_i c_i for some rows i and slopes c_i, along the last axis."""
        columns = _linalg.as_design(self.fit.problem.X).basis_of_rows(rows)
        coef = _linalg.with_axes(columns, self.fit.coef[..., None], last=1) * slopes.T
        return self.curvature.leave(np.arange(self.fit.problem.n)[rows], Direction(coef, slopes.T))

    def _rescaled(self, change: Direction, units: slice) -> Direction:
        """A change of parameters without some units, with what their refits rescale."""
        coef, level = change
        for direction, amount in zip(self._rescaling.directions, self._rescaling.amounts, strict=True):
            coef = coef + direction.coef[..., None] * amount[units]
            level = level + np.multiply.outer(direction.intercept, amount[units])
        return Direction(coef, level)

    def _rescaled_predictors(self, new: Design, eta: Array) -> Array:
        """Changes of predictors, (m, f) or (m, f, c), with what the refits rescale."""
        for direction, amount in zip(self._rescaling.directions, self._rescaling.amounts, strict=True):
            along = _linalg.times(new, direction.coef) + direction.intercept
            eta = eta + along[:, None] * _linalg.with_axes(amount, along)
        return eta


@dataclass(frozen=True, eq=False)
class RowDepartures(Departures):
    """The fits without each row."""

    @property
    def counts(self) -> Mask:
        return np.asarray(self.fit.problem.weights > 0)

    def check_left_once(self, asked: str, least: int = 1) -> None:
        """Each row leaves by itself."""

    @property
    def eta(self) -> Array:
        return self.left_out.eta

    @property
    def solved(self) -> dict[int, SolvedWithout]:
        """Parameters without the rows that no single step describes."""
        return self.left_out.solved

    def of_output(self, k: int) -> RowDepartures:
        """Those of one of several outputs that nothing ties together; leverages stay their mean."""
        held, fit = self.left_out, self.fit.apart[k]
        solved = {
            row: SolvedWithout(one.eta[k], one.coef[:, k], one.intercept[k])
            for row, one in held.solved.items()
        }
        return RowDepartures(replace(held, fit=fit, eta=held.eta[:, k], solved=solved))

    @cached_property
    def slopes(self) -> Array:
        fit = self.fit
        change = self.left_out.eta - fit.eta
        return _linalg.row_times(1.0 + self._rescaling.own_growth(), fit.gradient) + fit.bent(change)

    def changes(self, units: slice) -> Direction:
        coef, level = self._rescaled(self.answers(units, self.slopes[units]), units)
        for i, solved in self.solved.items():
            if units.start <= i < units.stop:
                coef[..., i - units.start] = solved.coef - self.fit.coef
                level[..., i - units.start] = solved.intercept - self.fit.intercept
        return Direction(coef, level)

    def predict(self, new: Design) -> Array:
        fit = self.fit
        base = _linalg.times(new, fit.coef) + fit.intercept
        eta = base[:, None] + self._rescaled_predictors(new, self.curvature.carry(new, self.slopes))
        for i, solved in self.solved.items():
            eta[:, i] = _linalg.times(new, solved.coef) + solved.intercept
        return eta
