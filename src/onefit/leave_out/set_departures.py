"""What leaving each set of rows out does to the coefficients, and so to predictions anywhere.

Where one step was proven to be the refit, its slopes tell (``departure``); other sets are refitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Design, Index, Mask
from onefit.curvature import Direction
from onefit.leave_out.blocks import SAME_SHRINK
from onefit.leave_out.departure import Departures
from onefit.leave_out.refit import refit_sets
from onefit.leave_out.result import SolvedWithoutSet
from onefit.leave_out.sets import Folds


@dataclass(frozen=True, eq=False)
class SetDepartures(Departures):
    """The fits without each set of rows."""

    @property
    def sets(self) -> Folds:
        """Rows that leave together."""
        assert self.left_out.sets is not None
        return self.left_out.sets

    @property
    def counts(self) -> Mask:
        weights = self.fit.problem.weights
        return np.array([bool(np.any(weights[removed] > 0)) for removed in self.sets.removed])

    def check_left_once(self, asked: str, least: int = 1) -> None:
        if not self.sets.are_judged_once.all():
            raise ValueError(
                f"{asked} needs every row to leave once, alone or with its group or fold, and to be judged "
                "there: call onefit.loo(model, X, y), with groups or without"
            )
        if len(self.sets) < least:
            raise ValueError(f"{asked} needs {least} folds or more, got {len(self.sets)}")

    @cached_property
    def anew(self) -> dict[int, SolvedWithoutSet]:
        """Refits without the sets that no single step describes, but those without which there is none."""
        which = np.flatnonzero(~self._is_one_step).tolist()
        removed = {k: np.asarray(self.sets.removed[k]) for k in which}
        judged = {k: np.asarray(self.sets.tested[k]) for k in which}
        return refit_sets(self.fit, removed, judged, curvature=self.curvature)

    @property
    def eta(self) -> Array:
        eta = self.left_out.eta.copy()
        for k, one in self.anew.items():
            eta[self.sets.place(k)] = one.eta
        return eta

    @cached_property
    def _is_one_step(self) -> Mask:
        """Sets whose refit is one step, with the curvature that is at hand: (f,).

        Of a quadratic loss, and where the other rows and the penalty weigh what they did.
        """
        found, sets = self.left_out, self.sets
        if not self.fit.problem.loss.is_quadratic:
            return np.zeros(len(sets), dtype=bool)
        told = sets.are_judged_once & (np.bincount(sets.fold[~found.certified], minlength=len(sets)) == 0)
        told[np.concatenate([found.pivoted, found.stepped, found.anew, found.several])] = False
        return np.asarray(told & (self._rescaling.spread.off <= SAME_SHRINK))

    @cached_property
    def slopes(self) -> Array:
        fit, own, rows = self.fit, self._own, self.sets.rows
        slopes, change = np.zeros_like(fit.eta), np.zeros_like(fit.eta)
        change[rows[own]] = self.left_out.eta[own] - fit.eta[rows[own]]
        slopes[rows[own]] = (fit.gradient + fit.bent(change))[rows[own]]
        return slopes

    @property
    def _own(self) -> Mask:
        """Values of sets whose slopes tell: (t,)."""
        return self._is_one_step[self.sets.fold]

    def changes(self, units: slice) -> Direction:
        shape, f = self.fit.coef.shape, units.stop - units.start
        coef, level = np.zeros((*shape, f)), np.zeros((*shape[1:], f))
        for rows, fold in self._rows_of(units):
            answer = self.answers(rows, self.slopes[rows])
            which, starts = np.unique(fold, return_index=True)
            coef[..., which - units.start] += np.add.reduceat(answer.coef, starts, axis=-1)
            level[..., which - units.start] += np.add.reduceat(answer.intercept, starts, axis=-1)
        coef, level = self._rescaled(Direction(coef, level), units)
        for k in range(units.start, units.stop):
            if not self._is_one_step[k]:
                one = self.anew.get(k)
                coef[..., k - units.start] = np.nan if one is None else one.coef - self.fit.coef
                level[..., k - units.start] = np.nan if one is None else one.intercept - self.fit.intercept
        return Direction(coef, level)

    def _rows_of(self, units: slice) -> Iterator[tuple[Index, Index]]:
        """Rows of some sets whose slopes tell, a few at a time, and the numbers of their sets."""
        fold = self.sets.fold
        at = np.flatnonzero(self._own & (fold >= units.start) & (fold < units.stop))
        size = max(1, _linalg.BLOCK_SIZE // max(1, self.fit.coef.size))
        for start in range(0, len(at), size):
            some = at[start : start + size]
            yield self.sets.rows[some], fold[some]

    def predict(self, new: Design) -> Array:
        fit, sets = self.fit, self.sets
        base = _linalg.times(new, fit.coef) + fit.intercept
        moved = self.curvature.carry(new, self.slopes)[:, sets.rows]
        eta = base[:, None] + self._rescaled_predictors(new, np.add.reduceat(moved, sets.starts, axis=1))
        for k in np.flatnonzero(~self._is_one_step).tolist():
            one = self.anew.get(k)
            eta[:, k] = np.nan if one is None else _linalg.times(new, one.coef) + one.intercept
        return eta
