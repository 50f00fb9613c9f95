"""Optima that are as good as a fit: the moves to them, and how far the predictors of rows may go."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import scipy.linalg
from scipy.optimize import linprog

from onefit._typing import Array, Index, Mask
from onefit.fit import Fit

SAME = 1e-9  # change of a predictor, relative to its parts, that is none


class Optima(ABC):
    """The optima of a fit: those θ + d that agree with its duals.

    All optima of a linear program are complementary to each of its dual solutions (Goldman and Tucker 1956).
    """

    fit: Fit

    @property
    @abstractmethod
    def directions(self) -> Array:
        """A basis of the moves d that change no row that is held: (f, k)."""

    @property
    @abstractmethod
    def is_point(self) -> bool:
        """Whether the fit is the only optimum, or all have the same predictors."""

    @abstractmethod
    def moves(self, rows: Index) -> Array:
        """Of these d those of the predictors of some rows, (1, r, f), or of all their differences."""

    @abstractmethod
    def limits(self) -> tuple[Array, Array]:
        """How far the moves go, A d ≤ b."""

    @property
    def is_of_intercept(self) -> bool:
        """Whether no move but that of an intercept changes a predictor."""
        return False

    def is_felt(self, rows: Index) -> Mask:
        """Which predictors of some rows may move, by more than rounding: (r,)."""
        moves = self.moves(rows)
        moved, parts = np.abs(moves @ self.directions), np.abs(moves) @ np.abs(self.directions)
        return np.any(moved.max(axis=2, initial=0.0) > SAME * parts.max(axis=2, initial=0.0), axis=0)

    def reach(self, rows: Index) -> Array:
        """How far the predictors of some rows may be from those of the fit: (r,), infinite if without end."""
        felt = self.is_felt(rows)
        far = np.where(felt, np.inf, 0.0)
        if not felt.any():
            return far
        A, b = self.limits()

        def farthest(move: Array) -> float:
            found = linprog(-move, A @ self.directions, b, bounds=(None, None))
            return -float(found.fun) if found.status == 0 else np.inf

        ends = (self.moves(rows[felt]) @ self.directions).transpose(1, 0, 2)
        far[felt] = [max(farthest(sign * move) for move in own for sign in (1, -1)) for own in ends]
        return far


def null_space(Z: Array, share: float | None = None) -> Array:
    """A basis of the moves that change none of some rows, by more than rounding or a share: (f, k)."""
    sizes = np.abs(Z).max(axis=0, initial=0.0)
    sizes[sizes == 0] = 1.0
    R = np.linalg.qr(Z / sizes, mode="r")  # of the same null space, and smaller
    return scipy.linalg.null_space(R, share) / sizes[:, None]
