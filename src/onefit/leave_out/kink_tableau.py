"""The tableau that all paths out of a fit with kinks share: ``follow_kinks`` has the mathematics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.curvature import Direction, Pinned, ScalarCurvature, factor_scalar
from onefit.fit import Fit
from onefit.leave_out.straight_rows import corners_of, strictly_held
from onefit.numerics import CERTIFIED, INSIDE, TINY, size_of_kinks
from onefit.solvers.kinks import size_of_duals

ROUNDING = 1e-10  # of a linear predictor, relative to the largest kink, or of a dual, to their size
APART = 1e-9  # the same by which ends are moved that several rows would reach at once


class AtEnds(NamedTuple):
    """Where paths of some rows end."""

    coef: Array  # (p, r)
    intercept: Array  # (r,)
    eta: Array  # (n, r)


class Held(NamedTuple):
    """Problems, along the last axis: which duals are at a kink, and the slopes beside them."""

    dual: Array
    least: Array
    most: Array
    on_kink: Mask
    tie: float


@dataclass(frozen=True, eq=False)
class KinkTableau(ABC):
    """The tableau that the paths of all rows share, and what each row may do.

    Its rows are those of the data, and others below them that no path leaves out.

    Attributes
    ----------
    fit : Fit
        Optimal.
    eta, gradient : (n,) arrays
        Linear predictors and duals g.
    on_kink : (n,) bool array
        Rows V.
    kinks : (n, q + 2) array
        Corners between an infinite one on either side.
    slopes : (n, q + 1) array
        Weighted slopes of the pieces.
    place : (n,) int array
        Corner that a row of V is in, 1 … q; piece that another is on, 0 … q.
    """

    fit: Fit
    eta: Array
    gradient: Array
    on_kink: Mask
    kinks: Array
    slopes: Array
    place: Index

    @property
    @abstractmethod
    def size_of_duals(self) -> float:
        """What their rounding is relative to."""

    @abstractmethod
    def _new_columns(self, which: Index) -> Array:
        """Some columns of M: (n, len(which))."""

    @abstractmethod
    def ends(self, changes: Array) -> AtEnds:
        """Parameters and linear predictors for some right-hand sides: (n, r)."""

    @abstractmethod
    def is_unique(self, held: Held) -> Mask:
        """Problems that have one optimum: (r,)."""

    def determined_by(self, Z: Array, held: Held) -> Mask:
        """Problems in which rows strictly inside their kinks determine coefficients of some columns: (r,)."""
        finite = np.isfinite(held.least) & np.isfinite(held.most)  # a bound holds by any dual
        width = np.subtract(held.most, held.least, out=np.full_like(held.most, np.inf), where=finite)
        tie = INSIDE * np.minimum(self.size_of_duals, width)
        inside = held.on_kink & (held.dual > held.least + tie) & (held.dual < held.most - tie)
        Z = Z / np.maximum(np.abs(Z).max(axis=0), np.finfo(float).tiny)
        return np.array([_determine(Z[own]) for own in inside.T], dtype=np.bool_)

    def yielding(self, which: Index) -> Array:
        """Columns of M that paths are followed by."""
        return self.columns(which)

    @cached_property
    def moved(self) -> tuple[Array, Array]:
        """Kinks and slopes, each moved away from its row a little: no two rows reach theirs at once.

        Rows that are alike, as on a table of few values, would go round in circles between the same ends.
        """
        n, last = self.slopes.shape
        away = np.random.default_rng(0).uniform(0.5, 1.0, (n, 1)) * APART
        place, on_kink = self.place[:, None], self.on_kink[:, None]
        kink = np.sign(np.arange(last + 1) - np.where(on_kink, place, place + 0.5))
        piece = np.sign(np.arange(last) - np.where(on_kink, place - 0.5, place))
        return self.kinks + away * self.size_of_kinks * kink, self.slopes + away * self.size_of_duals * piece

    @cached_property
    def size_of_kinks(self) -> float:
        return size_of_kinks(self.kinks)

    @cached_property
    def base(self) -> Array:
        """What stands on the left of the tableau: g of rows on kinks, η of others."""
        return np.where(self.on_kink, self.gradient, self.eta)

    def room(self, rows: Index, place: Index, on_kink: Mask) -> tuple[Array, Array, Array, Array]:
        """Interval of what moves of some rows that are at a place, and how its ends grow with the weights.

        That of a dual on a kink, of a linear predictor on a piece.
        """
        kinks, slopes = self.moved
        here, before = np.minimum(place, slopes.shape[1] - 1), np.maximum(place - 1, 0)
        low = np.where(on_kink, slopes[rows, before], kinks[rows, here])
        high = np.where(on_kink, slopes[rows, here], kinks[rows, here + 1])
        return low, high, on_kink * self._growing[rows, before], on_kink * self._growing[rows, here]

    @cached_property
    def _growing(self) -> Array:
        """Slopes that grow with the weights: not those of constraints, which have no end."""
        return np.where(np.isfinite(self.slopes), self.slopes, 0.0)

    @cached_property
    def own_room(self) -> tuple[Array, Array, Array, Array]:
        """That of all rows where they are in the fit."""
        return self.room(np.arange(len(self.place)), self.place, self.on_kink)

    @cached_property
    def groups(self) -> Array:
        """Rows whose weights grow alike in every refit, as 0 or 1: (c, n); none where refits keep them."""
        problem = self.fit.problem
        if problem.balance is not None:
            own = [part.rows for part in problem.reweighed() if part.rows is not None]
        else:
            own = [np.ones(problem.n, dtype=bool)] * problem.mean_scaled
        found = np.zeros((len(own), len(self.place)))
        found[:, : problem.n] = np.array(own).reshape(len(own), problem.n)
        return found

    @cached_property
    def growths(self) -> Array:
        """By how much their weights grow beside the penalty without each row of the data: (c, n)."""
        problem = self.fit.problem
        grown = np.ones((len(self.groups), problem.n))
        if problem.balance is not None:
            grown += problem.balance.growths()
        return grown / np.maximum(problem.kept_alone(np.arange(problem.n)), TINY) - 1.0

    def growth_at(self, rows: Index, others: Index) -> Array:
        """By how much the weights of some others (r, c) grow as each of some rows leaves: (r, c)."""
        return np.einsum("gr,grc->rc", self.growths[:, rows], self.groups[:, others])

    @cached_property
    def _drift(self) -> tuple[Array, Array]:
        """Δg of N when the weights of each group grow by one, and what this does on the left: (c, n) each."""
        given = self.groups * np.where(self.on_kink, 0.0, self.gradient)
        moving = np.flatnonzero(given.any(axis=0))
        return given, given[:, moving] @ self.columns(moving)

    def given(self, rows: Index) -> Array:
        """How fast right-hand sides go before the first exchange, as each of some rows leaves: (r, n)."""
        found = self.growths[:, rows].T @ self._drift[0]
        off = np.flatnonzero(~self.on_kink[rows])
        found[off, rows[off]] = -self.gradient[rows[off]]
        return np.asarray(found)

    def pace(self, rows: Index) -> Array:
        """And how fast what stands on the left does: (r, n)."""
        growths, off = self.growths[:, rows].T, np.flatnonzero(~self.on_kink[rows])
        found = growths @ self._drift[1]
        if off.size:
            own = rows[off]
            fading = -self.gradient[own] - np.einsum("rg,gr->r", growths[off], self._drift[0][:, own])
            found[off] += fading[:, None] * self.columns(own)
        return np.asarray(found)

    @cached_property
    def _tableau(self) -> _Columns:
        n = len(self.place)
        return _Columns(np.empty((0, n)), np.full(n, -1))

    def columns(self, which: Index) -> Array:
        """Some columns of M over all rows, along the last axis of what has the shape of ``which``."""
        known = self._tableau
        missing = np.unique(which[known.number[which] < 0])
        if missing.size:
            known.add(missing, self._new_columns(missing))
        return np.asarray(known.values[known.number[which]])

    def tie(self, on_kink: Mask) -> Array:
        """Rounding of what moves of rows: their dual on a kink, their linear predictor on a piece."""
        return ROUNDING * np.where(on_kink, self.size_of_duals, self.size_of_kinks)


@dataclass(eq=False)
class _Columns:
    """Columns of M that have been asked for, one a row, and the number of each, −1 of those that have not."""

    values: Array  # (m, n), of which the last may be empty
    number: Index  # (n,)

    def add(self, which: Index, columns: Array) -> None:
        """Put in some columns: (n, len(which))."""
        begin = int(self.number.max(initial=-1)) + 1
        end = begin + which.size
        if end > len(self.values):
            room = min(max(end, 2 * len(self.values)), len(self.number))
            self.values = np.concatenate([self.values[:begin], np.empty((room - begin, len(self.number)))])
        self.values[begin:end], self.number[which] = columns.T, np.arange(begin, end)


@dataclass(frozen=True, eq=False)
class RidgeTableau(KinkTableau):
    """That of a ridge penalty."""

    @classmethod
    def of(cls, fit: Fit) -> RidgeTableau:
        """Read it off a fit."""
        kinks, slopes = corners_of(fit), fit.slopes
        kink = np.abs(kinks[:, 1:-1] - fit.eta[:, None]).argmin(axis=1) + 1
        piece = np.abs(slopes - fit.gradient[:, None]).argmin(axis=1)
        place = np.where(fit.pinned, kink, piece)
        return cls(fit, fit.eta, fit.gradient, fit.pinned, kinks, slopes, place)

    @cached_property
    def curvature(self) -> ScalarCurvature:
        return factor_scalar(self.fit, self.fit.tangent)

    @cached_property
    def size_of_duals(self) -> float:
        return size_of_duals(self.fit)

    def _new_columns(self, which: Index) -> Array:
        K = self.curvature
        if not isinstance(K, Pinned):
            return -K.hat_columns(which)
        M = np.empty((self.fit.problem.n, which.size))
        pinned = self.on_kink[which]
        own = np.searchsorted(K.pins, which[pinned])
        M[:, pinned] = K.lifted_rows[:, own]
        M[np.ix_(K.pins, pinned)] = -K.tension[:, own]
        M[:, ~pinned] = -K.hat_columns(which[~pinned])
        M[np.ix_(K.pins, ~pinned)] = -K.lifted_rows[which[~pinned]].T
        return M

    def ends(self, changes: Array) -> AtEnds:
        fit, K = self.fit, self.curvature
        forces = np.where(self.on_kink[:, None], 0.0, -changes)
        gradient = _linalg.transposed_times(fit.problem.X, forces)
        coef, level = K.solve(Direction(gradient, forces.sum(axis=0)))
        if isinstance(K, Pinned):
            lift = K.lift
            coef, level = coef + lift.coef @ changes[K.pins], level + lift.intercept @ changes[K.pins]
        eta = fit.eta[:, None] + K.predict(Direction(coef, level))
        return AtEnds(fit.coef[:, None] + coef, fit.intercept + level, eta)

    def is_unique(self, held: Held) -> Mask:
        fit = self.fit
        flat = np.flatnonzero(fit.problem.penalty.ridge(fit.coef.shape) == 0)  # columns that nothing curves
        if flat.size:
            columns = _linalg.as_columns(_linalg.active_columns(fit.problem.X, flat)).dense()
            level = np.ones((len(columns), int(np.any(fit.problem.intercept))))
            return self.determined_by(np.hstack([columns, level]), held)
        if not np.any(self.fit.problem.intercept):
            return np.ones(held.dual.shape[1], dtype=bool)
        return strictly_held(*held)


def _determine(Z: Array) -> bool:
    """Whether rows determine all coefficients: those of a single one its own, the others what is left."""
    alone, is_left = np.count_nonzero(Z, axis=1) == 1, np.ones(Z.shape[1], dtype=bool)
    is_left[np.nonzero(Z[alone])[1]] = False
    rest = Z[np.ix_(~alone, is_left)]
    if len(rest) < rest.shape[1]:
        return False
    sizes = np.linalg.svd(rest, compute_uv=False)
    return rest.shape[1] == 0 or bool(sizes[-1] > CERTIFIED * sizes[0])
