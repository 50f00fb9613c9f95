"""What leaving each row out does to the coefficients, and so to predictions anywhere.

At the left-out value η̃_i the row's own slope is c_i = g_i + d_i (η̃_i − η_i), and

    θ̃⁽ⁱ⁾ = θ + K⁻¹ z_i c_i + (what the refit rescales)

(Wang et al. 2018, Theorem 3.1), so a prediction x̃ᵀθ̃⁽ⁱ⁾ at a new row costs one solve with K for all rows
that leave, and no matrix of left-out coefficients.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Design
from onefit.curvature import Curvature, Direction
from onefit.fit import Fit
from onefit.leave_out.rescaling import Rescaling, curvature_of_refits, rescaling
from onefit.leave_out.result import LeftOut, SolvedWithout


@dataclass(frozen=True, eq=False)
class Departures:
    """The left-out fits of all rows, without a matrix of their coefficients.

    Attributes
    ----------
    left_out : LeftOut
    """

    left_out: LeftOut

    @property
    def solved(self) -> dict[int, SolvedWithout]:
        """Parameters without the rows that no single step describes."""
        return self.left_out.solved

    @property
    def fit(self) -> Fit:
        """The fit with all rows."""
        return self.left_out.fit

    def of_output(self, k: int) -> Departures:
        """Those of one of several outputs that nothing ties together; leverages stay their mean."""
        held, fit = self.left_out, self.fit.apart[k]
        solved = {
            row: SolvedWithout(one.eta[k], one.coef[:, k], one.intercept[k])
            for row, one in held.solved.items()
        }
        return Departures(replace(held, fit=fit, eta=held.eta[:, k], solved=solved))

    @cached_property
    def curvature(self) -> Curvature:
        """K, factored again: leave-one-out does not keep it."""
        return curvature_of_refits(self.fit)

    @cached_property
    def _rescaling(self) -> Rescaling:
        return rescaling(self.fit, self.curvature)

    @cached_property
    def slopes(self) -> Array:
        """c_i, the slope of row i at its left-out value: the shape of ``eta``."""
        fit = self.fit
        change = self.left_out.eta - fit.eta
        return _linalg.row_times(1.0 + self._rescaling.own_growth(), fit.gradient) + fit.bent(change)

    def blocks(self, width: int = 0) -> Iterator[slice]:
        """Rows in blocks whose coefficients, or ``width`` numbers a row, take a few megabytes."""
        size = max(1, _linalg.BLOCK_SIZE // max(1, self.fit.coef.size, width))
        for start in range(0, self.fit.problem.n, size):
            yield slice(start, min(start + size, self.fit.problem.n))

    def answers(self, rows: slice, slopes: Array) -> Direction:
        """K⁻¹ z_i c_i for some rows i and slopes c_i, along the last axis."""
        columns = _linalg.as_design(self.fit.problem.X).basis_of_rows(rows)
        coef = _linalg.with_axes(columns, self.fit.coef[..., None], last=1) * slopes.T
        return self.curvature.leave(np.arange(rows.start, rows.stop), Direction(coef, slopes.T))

    def changes(self, rows: slice) -> Direction:
        """θ̃⁽ⁱ⁾ − θ for some rows i, along the last axis: (p, r) or (p, c, r), and (r,) or (c, r)."""
        coef, level = self.answers(rows, self.slopes[rows])
        for direction, amount in zip(self._rescaling.directions, self._rescaling.amounts, strict=True):
            coef = coef + direction.coef[..., None] * amount[rows]
            level = level + np.multiply.outer(direction.intercept, amount[rows])
        for i, solved in self.solved.items():
            if rows.start <= i < rows.stop:
                coef[..., i - rows.start] = solved.coef - self.fit.coef
                level[..., i - rows.start] = solved.intercept - self.fit.intercept
        return Direction(coef, level)

    def predict(self, new: Design) -> Array:
        """Linear predictors x̃ᵀθ̃⁽ⁱ⁾ of new rows without each old one: (m, n) or (m, n, c)."""
        fit = self.fit
        base = _linalg.times(new, fit.coef) + fit.intercept
        eta = base[:, None] + self.curvature.carry(new, self.slopes)
        for direction, amount in zip(self._rescaling.directions, self._rescaling.amounts, strict=True):
            along = _linalg.times(new, direction.coef) + direction.intercept
            eta += along[:, None] * _linalg.with_axes(amount, along)
        for i, solved in self.solved.items():
            eta[:, i] = _linalg.times(new, solved.coef) + solved.intercept
        return eta
