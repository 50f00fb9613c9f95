"""Where rows went without themselves at one strength of a penalty: so they go about at another near by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from onefit._typing import Array, Index
from onefit.curvature import Curvature, Direction
from onefit.fit import Fit
from onefit.leave_out.result import LeftOut


@dataclass(frozen=True, eq=False)
class Leads:
    """How parameters move when single rows leave, by row."""

    moves: Mapping[int, Direction]

    @classmethod
    def of(cls, found: LeftOut, before: Leads | None = None) -> Leads | None:
        """What is known of a fit, and from ``before`` of other rows; None where nothing is."""
        fit = found.fit
        moves = {
            k: Direction(one.coef - fit.coef, one.intercept - fit.intercept)
            for k, one in found.solved.items()
        }
        if before is None:
            return cls(moves) if moves else None
        return cls({**before.moves, **moves})

    def points(self, fit: Fit, rows: Index) -> dict[int, Direction]:
        """Parameters from which some of the rows may go on beside a fit."""
        known = {k: self.moves[k] for k in rows.tolist() if k in self.moves}
        return {
            k: Direction(fit.coef + move.coef, fit.intercept + move.intercept) for k, move in known.items()
        }

    def predictors(self, fit: Fit, rows: Index, K: Curvature) -> Array:
        """Linear predictors there, those of the fit where nothing is known: (n, m)."""
        coef = np.zeros((*fit.coef.shape, len(rows)))
        level = np.zeros((*fit.intercept.shape, len(rows)))
        for j, k in enumerate(rows.tolist()):
            if k in self.moves:
                coef[..., j], level[..., j] = self.moves[k]
        return fit.eta[..., None] + K.predict(Direction(coef, level))
