"""What a penalty is made of where many problems are solved side by side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onefit._typing import Array
from onefit.fit import Fit
from onefit.penalties import Box, GroupPenalty, Penalty, SeparablePenalty
from onefit.penalties.separable import broadcast


@dataclass(frozen=True, eq=False)
class PenaltyParts:
    """Σ_j l1_j |β_j| + ½ Σ_j l2_j β_j² between bounds, all of the shape of β, and norms of groups."""

    l1: Array
    l2: Array
    lower: Array
    upper: Array
    groups: GroupPenalty | None = None

    @classmethod
    def of(cls, fit: Fit) -> PenaltyParts:
        """Of a fit whose penalty ``has_parts``."""
        penalty, shape = fit.problem.penalty, fit.coef.shape
        rest, groups = penalty.without_ridge(), None
        lower, upper = np.full(shape, -np.inf), np.full(shape, np.inf)
        l2 = np.broadcast_to(penalty.ridge(shape), shape)
        if isinstance(rest, GroupPenalty):
            l1, groups = np.full(shape, rest.strengths()[0]), rest
        elif isinstance(rest, Box):
            l1, (lower, upper) = broadcast(rest.l1, shape), rest.bounds(shape)
        else:
            assert isinstance(rest, SeparablePenalty)
            l1 = rest.strengths(shape)[0]
        return cls(l1, l2, lower, upper, groups)


def has_parts(penalty: Penalty) -> bool:
    """Whether a penalty is made of these."""
    return isinstance(penalty.without_ridge(), SeparablePenalty | Box | GroupPenalty)
