"""Where rows went without themselves at one strength of a penalty: so they go about at another near by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from onefit._typing import Array, Index
from onefit.curvature import Curvature, Direction
from onefit.fit import Fit
from onefit.leave_out.result import LeftOut


class Lead(NamedTuple):
    """Parameters without a row, and those of the fit that it left."""

    end: Direction
    fit: Direction

    @property
    def move(self) -> Direction:
        """How they moved."""
        return Direction(self.end.coef - self.fit.coef, self.end.intercept - self.fit.intercept)


@dataclass(frozen=True, eq=False)
class Leads:
    """Where parameters went when single rows left, by row."""

    known: Mapping[int, Lead]

    @classmethod
    def of(cls, found: LeftOut, before: Leads | None = None) -> Leads | None:
        """What is known of a fit, and from ``before`` of other rows; None where nothing is."""
        fit = Direction(found.fit.coef, found.fit.intercept)
        known = {k: Lead(Direction(one.coef, one.intercept), fit) for k, one in found.solved.items()}
        if before is None:
            return cls(known) if known else None
        return cls({**before.known, **known})

    def of_output(self, k: int) -> Leads:
        """Those of one of several outputs."""
        parts = {
            i: [Direction(one.coef[:, k], one.intercept[k]) for one in own] for i, own in self.known.items()
        }
        return Leads({i: Lead(*part) for i, part in parts.items()})

    def ends(self, fit: Fit, rows: Index, changes: float) -> dict[int, Direction]:
        """Parameters without some of the rows, as they were there.

        Of those where fewer coordinates of the fit than so many changes have come or gone since.
        """
        on = fit.coef != 0
        known = {k: self.known[k] for k in rows.tolist() if k in self.known}
        return {
            k: lead.end for k, lead in known.items() if np.count_nonzero(on != (lead.fit.coef != 0)) < changes
        }

    def points(self, fit: Fit, rows: Index) -> dict[int, Direction]:
        """Parameters from which some of the rows may go on beside a fit."""
        moves = {k: self.known[k].move for k in rows.tolist() if k in self.known}
        return {
            k: Direction(fit.coef + move.coef, fit.intercept + move.intercept) for k, move in moves.items()
        }

    def predictors(self, fit: Fit, rows: Index, K: Curvature) -> Array:
        """Linear predictors there, those of the fit where nothing is known: (n, m)."""
        coef = np.zeros((*fit.coef.shape, len(rows)))
        level = np.zeros((*fit.intercept.shape, len(rows)))
        for j, k in enumerate(rows.tolist()):
            if k in self.known:
                coef[..., j], level[..., j] = self.known[k].move
        return fit.eta[..., None] + K.predict(Direction(coef, level))
