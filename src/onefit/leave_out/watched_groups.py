"""Norms of groups of columns, Σ_g s_g ‖x_g‖, in the penalties of many problems that are solved side by side.

A norm bends smoothly but where its group is zero.  Each problem has its own groups that are on: a group that
a step would turn round becomes zero, and one that is pulled at by more than its strength begins where the
quadratic model along that pull is smallest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.fit import Fit
from onefit.penalties import GroupPenalty

TURNED = 0.1  # change of a group, beside its norm, up to which its curvature is nearly that before


def is_on(groups: GroupPenalty | None, coef: Array) -> Mask:
    """Columns whose coefficients, of several vectors (p, m), are at no kink of a norm."""
    if groups is None:
        return np.ones(coef.shape, dtype=bool)
    on = (groups.norms(coef) > 0) | (groups.strengths()[1] == 0)[:, None]
    return np.asarray(on[groups.membership])


@dataclass(frozen=True, eq=False)
class WatchedGroups:
    """Watched groups that have a strength; coordinates x are (a, 1, e), of which some are in no group."""

    members: Array  # (e, g), 1 where a coordinate is in a group
    strengths: Array  # (g,)

    @classmethod
    def of(cls, groups: GroupPenalty | None, watched: Index, e: int) -> WatchedGroups:
        if groups is None:
            return cls(np.zeros((e, 0)), np.zeros(0))
        own, strengths = groups.membership[watched], groups.strengths()[1]
        numbers = np.intersect1d(own, np.flatnonzero(strengths))
        members = np.zeros((e, len(numbers)))
        members[: len(own)] = own[:, None] == numbers
        return cls(members, strengths[numbers])

    @property
    def count(self) -> int:
        return len(self.strengths)

    def norms(self, x: Array) -> Array:
        """(a, g)."""
        return np.asarray(np.sqrt(x[:, 0] ** 2 @ self.members))

    def value(self, x: Array) -> Array:
        return np.asarray(self.norms(x) @ self.strengths)

    def on(self, x: Array) -> Mask:
        """Coordinates in no group that is zero: (a, 1, e)."""
        return np.asarray((self.norms(x) == 0) @ self.members.T == 0)[:, None]

    def slope(self, x: Array) -> Array:
        """s_g x_g / ‖x_g‖: (a, 1, e)."""
        return self._each(self._inverse(x) * self.strengths)[:, None] * x

    def bend(self, x: Array) -> Array:
        """s_g (I / ‖x_g‖ − x_g x_gᵀ / ‖x_g‖³): (a, e, e)."""
        inverse = self._inverse(x)
        each, unit = self._each(inverse * self.strengths), self._each(inverse) * x[:, 0]
        bend = -self._together * (each * unit)[:, :, None] * unit[:, None]
        np.einsum("aee->ae", bend)[...] += each
        return bend

    def _inverse(self, x: Array) -> Array:
        """1 / ‖x_g‖, 0 for groups that are zero: (a, g)."""
        norms = self.norms(x)
        return np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)

    def _each(self, values: Array) -> Array:
        """What groups have (a, g), for their coordinates: (a, e)."""
        return np.asarray(values @ self.members.T)

    @cached_property
    def _together(self) -> Array:
        """1 for two coordinates of a group: (e, e)."""
        return self.members @ self.members.T

    def turned(self, x: Array, target: Array) -> Array:
        """The largest change of a group beside its norm: (a,)."""
        return np.asarray((self.norms(target - x) * self._inverse(x)).max(axis=1, initial=0.0))

    def turned_round(self, x: Array, target: Array) -> Mask:
        """Coordinates of the groups that a step takes to the other side of zero, or to it: (a, 1, e)."""
        back = ((x * target)[:, 0] @ self.members <= 0) & (self.norms(x) > 0)
        return np.asarray(self._each(back.astype(np.float64)) > 0)[:, None]


def pulls(groups: GroupPenalty | None, coef: Array, slopes: Array, keep: Array) -> Array:
    """How hard the loss pulls at the groups that are zero, in their strengths: (p, m), 0 for other columns.

    Of several problems: coefficients and slopes of their losses (p, m), and shares of the penalty (m,).
    """
    if groups is None:
        return np.zeros(coef.shape)
    l1, strengths = groups.strengths()
    pull = groups.norms(np.maximum(np.abs(slopes) - l1 * keep, 0.0))
    bound = np.where(strengths > 0, strengths, np.inf)[:, None] * keep
    return np.where(is_on(groups, coef), 0.0, (pull / bound)[groups.membership])


def begun(groups: GroupPenalty, fit: Fit, slope: Array, keep: float) -> Array:
    """Coefficients of groups that are zero, where the quadratic model along their pull is least.

    ``slope`` (p,) is 0 where nothing begins, ``keep`` the share of the penalty that the problem has.
    """
    (l1, strengths), l2 = groups.strengths(), fit.problem.penalty.ridge(slope.shape)
    pull = -np.sign(slope) * np.maximum(np.abs(slope) - l1 * keep, 0.0)
    norms, found = groups.norms(pull), np.zeros_like(slope)
    for g in np.flatnonzero(norms):
        columns = np.flatnonzero(groups.membership == g)
        unit = pull[columns] / norms[g]
        along = unit @ _linalg.as_columns(fit.problem.X).columns_as_rows(columns)
        bend = float(fit.hessian @ (along - along.mean()) ** 2 + keep * (l2[columns] @ unit**2))
        found[columns] = unit * (norms[g] - keep * strengths[g]) / bend
    return found
