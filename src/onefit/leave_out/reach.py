"""Bounds of left-out predictors where steps ended, from norms in A⁻¹, the curvature without a set."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.curvature import Direction
from onefit.fit import Fit
from onefit.leave_out import prove
from onefit.leave_out.chords import ByProducts, FoldProblems, LeftOutCurvature, Point
from onefit.leave_out.optima import SAME
from onefit.leave_out.prove import Widths
from onefit.leave_out.rescaling import Spread
from onefit.leave_out.step_bounds import radius_of_step
from onefit.numerics import length_of

ByRow: TypeAlias = Callable[[Index, Index], Array]  # of the fold in a batch and the row of each value


class Reach(NamedTuple):
    """Norms in A⁻¹ of the folds of a batch."""

    widths: Widths
    forms: ByRow  # z_iᵀ A⁻¹ z_i
    spread: Spread

    def length(self, R: float, norm: Array, travelled: Array) -> Array:
        """Bound of ‖θ̃ − θ⁽ᴳ⁾‖_A where a gradient of such a norm in A⁻¹ is left: (f,)."""
        return prove.radius(R, norm, travelled, self.widths.near, self.spread.low * self.widths.kept)

    def off(self, length: Array) -> ByRow:
        """How far predictors may be off where the parameters are by no more than ``length`` in A."""

        def found(own: Index, rows: Index) -> Array:
            with np.errstate(invalid="ignore"):
                off = length_of(self.forms(own, rows)) * length[own]
            return np.where(np.isfinite(off), off, np.inf)

        return found

    def of_some(self, which: Index) -> Reach:
        """Those of some of the folds."""
        forms = self.forms
        return Reach(
            self.widths.of_some(which), lambda own, rows: forms(which[own], rows), self.spread.of(which)
        )


def bounds_at(fit: Fit, refits: FoldProblems, point: Point, reach: Reach, own: LeftOutCurvature) -> ByRow:
    """Bounds of the predictors at some points."""
    problem, R = fit.problem, fit.problem.self_concordance()
    gradient = refits.gradient(point)
    gradient = Direction(np.where(fit.tangent.support[..., None], gradient.coef, 0.0), gradient.intercept)
    if np.all(reach.spread.off == 0.0) and R == 0.0 and not problem.loss.jumps:
        stays = refits.pattern_stays(point)
        change = refits.base.predict(own.solve(gradient))
        change = np.abs(change).reshape(problem.n, -1, len(stays)).max(axis=1)
        return lambda own, rows: np.where(stays[own], change[rows, own], np.inf)
    if R is None or (R > 0 and problem.loss.jumps):
        return nothing_is_known
    norm = length_of(own.squares(gradient))
    widths, held = reach.widths, refits.weights
    if widths.far.size:
        held = held.copy()
        held[widths.far] = 0.0
    travelled = prove.travelled(fit, point.eta, held)
    length = reach.length(R, norm, travelled)
    stays = refits.pattern_stays(point, prove.drift(R, length, travelled, widths.near))
    if problem.loss.jumps:
        stays &= _pieces_stay(fit, refits, point, widths.near * length)

    return reach.off(np.where(stays, length, np.inf))


def bounds_of_steps(fit: Fit, reach: Reach, norm: Array) -> ByRow:
    """Bounds of the predictors one step away, of such a length in A⁻¹."""
    R = prove.concordance(fit)
    if R is None:
        return nothing_is_known
    return reach.off(radius_of_step(R, norm, reach.widths, reach.spread))


def nothing_is_known(_: Index, rows: Index) -> Array:
    """No bound at all."""
    return np.full(len(rows), np.inf)


def _pieces_stay(fit: Fit, refits: FoldProblems, point: Point, room: Array) -> Mask:
    """Whether all rows that are left are on the pieces of the fit, and stay there within some room: (f,).

    A row that ends where its piece does may be curved on one side alone, and then holds nothing.
    """
    problem = fit.problem
    largest = np.abs(point.eta).reshape(-1, len(room)).max(axis=0)
    room = np.where(np.isfinite(room), room, 0.0) + SAME * largest
    there = [problem.loss_at("hessian", point.eta + side * room) for side in (-1.0, 0.0, 1.0)]
    here = problem.loss.hessian(problem.y, fit.eta)[..., None]
    gone = _linalg.with_axes(refits.weights, point.eta, last=1) == 0
    stays = [((part == here) | gone).reshape(-1, len(room)).all(axis=0) for part in there]
    return np.asarray(np.all(stays, axis=0))


def reach_at_most(refits: FoldProblems, own: ByProducts) -> Reach:
    """Norms in A⁻¹ by what the penalty alone allows."""
    forms, f = own.products.forms_at_most(), len(refits.removed)
    widest = np.sqrt(np.max(forms, axis=0, where=refits.weights > 0, initial=0.0))
    return Reach(Widths.of(widest), lambda k, rows: forms[rows, k], Spread(np.ones(f), np.ones(f)))
