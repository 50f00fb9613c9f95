"""Smooth losses with the sorted ℓ1 norm: Newton steps from face to face.

A face is an order of the coefficients by size, their signs, and which of them are equal (a cluster) or zero.
On it the objective is smooth.  A Newton step goes to the minimum of the objective along its line, past places
where clusters change their order; where the minimum is such a place, the clusters that meet move together
from there.  At the minimum of a face the cluster splits whose slopes exceed the sums of its weights most:
along the new direction the objective falls.  So no face returns, and each step costs what its clusters do,
where a quadratic program has p² rows.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from scipy.optimize import brentq

from onefit import _linalg
from onefit._typing import Array, Index
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.numerics import TINY
from onefit.penalties import Slope
from onefit.solvers.newton import is_short
from onefit.solvers.stationary import sizes_of_gradients

STEPS = 10  # a coefficient, and as many rows
SETTLED = 1e-11  # Newton decrement, relative to the root of the constant model's objective, at which to stop
SHRINKS = 0.1  # share of the last decrement that is progress where the objective tells none
FLAT = 1e-13  # eigenvalue of a Hessian of unit diagonal, a direction, along which nothing curves
FARTHEST = 1e50  # length, in units of the linear predictor, to which a straight step is followed
SAME = 1e-12  # distance of lengths, relative, at which clusters meet together
STATIONARY = 1e-9  # slope, relative to those of its column's terms, that is none


@dataclass(frozen=True, eq=False)
class _Clusters:
    """Clusters of coefficients of one size.

    Attributes
    ----------
    order : (p,) int array
        Coefficients by size, the largest first.
    starts : (k,) int array
        Rank at which each cluster that is not zero begins.
    held : int
        Rank from which on coefficients are zero.
    signs : (p,) array
        Of the coefficients in their own order.
    """

    order: Index
    starts: Index
    held: int
    signs: Array

    @classmethod
    def of(cls, coef: Array) -> Self:
        """Return the face that coefficients are on."""
        sizes = np.abs(coef)
        order = np.argsort(-sizes, kind="stable")
        held = int(np.count_nonzero(sizes))
        starts = np.flatnonzero(np.diff(sizes[order][:held], prepend=np.inf))
        return cls(order, starts, held, np.where(coef < 0, -1.0, 1.0))

    @property
    def counts(self) -> Index:
        """Coefficients in each cluster."""
        return np.diff(self.starts, append=self.held)

    @cached_property
    def basis(self) -> sp.csr_array:
        """Signs of each cluster's members: (k, p)."""
        rows = np.repeat(np.arange(len(self.starts)), self.counts)
        members = self.order[: self.held]
        return sp.csr_array((self.signs[members], (rows, members)), shape=(len(self.starts), len(self.order)))

    def sizes(self, coef: Array) -> Array:
        """Size of each cluster, the mean over its members: (k,)."""
        return np.asarray(self.basis @ coef) / self.counts

    def coef(self, sizes: Array) -> Array:
        """Coefficients of clusters of these sizes: (p,)."""
        return np.asarray(self.basis.T @ sizes)

    def totals(self, weights: Array) -> Array:
        """Sum of the weights of each cluster: (k,)."""
        return np.add.reduceat(weights[: self.held], self.starts) if len(self.starts) else weights[:0]

    def split(self, slopes: Array, weights: Array, tie: Array) -> Self | None:
        """Return the face on which the cluster that is held least well is in two; None if all are held.

        Parameters
        ----------
        slopes : (p,) array
            Minus the gradient of the smooth part.
        weights : (p,) array
            Of the largest coefficient, the second, and so on.
        tie : (p,) array
            Errors of the slopes.
        """
        most, found = 0.0, None
        ends = [*self.starts.tolist(), self.held, len(self.order)]
        for first, last in pairwise(ends):
            members, zero = self.order[first:last], first == self.held
            own = np.abs(slopes[members]) if zero else self.signs[members] * slopes[members]
            by = np.argsort(-own, kind="stable")
            excess = np.cumsum(own[by] - weights[first:last]) - np.cumsum(tie[members][by])
            if not zero:
                excess = excess[:-1]  # the whole is at its minimum
            if excess.max(initial=0.0) > most:
                most, found = float(excess.max()), (first, members[by], int(excess.argmax()) + 1)
        return None if found is None else self._cut(*found, slopes)

    def _cut(self, first: int, members: Index, count: int, slopes: Array) -> Self:
        order, signs, starts, held = self.order.copy(), self.signs.copy(), self.starts, self.held
        order[first : first + len(members)] = members
        if first == held:
            upper = members[:count]
            signs[upper] = np.where(slopes[upper] < 0, -1.0, 1.0)
            starts, held = np.append(starts, first), held + count
        else:
            starts = np.sort(np.append(starts, first + count))
        return replace(self, order=order, starts=starts, held=held, signs=signs)


class _FaceStep(NamedTuple):
    """A step on a face: changes of the signed sizes and the intercept, and how steep it is."""

    sizes: Array
    intercept: float
    descent: float  # minus the slope along it
    is_straight: bool  # nothing curves along it: it ends where clusters meet


def solve(start: Fit) -> Fit:
    """Minimise the objective of ``start.problem``, whose penalty is ``Slope`` and perhaps ridge.

    Parameters
    ----------
    start : Fit
        Of one output and a smooth loss.  Near the optimum few faces are passed.

    Raises
    ------
    SolverError
        If no optimum is reached.
    """
    problem = start.problem
    weights, ridge = _weights(start), problem.penalty.ridge(start.coef.shape)
    scale = max(Fit.at_start(problem).objective, TINY)
    fit, face, last = start, _Clusters.of(start.coef), np.inf
    for _ in range(STEPS * sum(problem.X.shape)):
        step = _newton_step(fit, face, weights, ridge)
        moved = None if step.descent <= SETTLED**2 * scale else _moved(fit, face, step)
        if moved is not None and (moved.objective < fit.objective or step.descent < SHRINKS * last):
            fit, face, last = moved, _Clusters.of(moved.coef), step.descent
            continue
        steepest = np.array([np.linalg.norm(fit.gradient)])
        rounding = STATIONARY * sizes_of_gradients(problem, fit.loss_gradient[:, None], steepest)[:, 0]
        split = face.split(-(fit.loss_gradient + ridge * fit.coef), weights, rounding)
        if split is None:
            change = problem.linear_predictor(face.coef(step.sizes), np.asarray(step.intercept))
            if problem.loss.is_quadratic or is_short(fit, change):
                return fit
            break
        face, last = split, np.inf
    raise SolverError(
        f"no optimum reached (objective {fit.objective:.6g}): the problem may have no finite minimum; "
        "penalise more"
    )


def _weights(fit: Fit) -> Array:
    """Of the largest coefficient, the second, and so on: (p,)."""
    penalty = fit.problem.penalty.without_ridge()
    assert isinstance(penalty, Slope)
    return penalty.strengths


def _newton_step(fit: Fit, face: _Clusters, weights: Array, ridge: Array) -> _FaceStep:
    """Newton's step on the face; along what does not curve minus the gradient, if that has a part there."""
    problem, B = fit.problem, face.basis
    Z = np.asarray((B @ _linalg.as_design(problem.X).basis_of_rows()).T)
    gradient = B @ (fit.loss_gradient + ridge * fit.coef) + face.totals(weights)
    bend = B.multiply(B) @ ridge
    if problem.intercept:
        Z = np.hstack([Z, np.ones((len(Z), 1))])
        gradient, bend = np.append(gradient, fit.intercept_gradient), np.append(bend, 0.0)
    hessian = _linalg.product(Z.T, Z * fit.hessian[:, None])
    hessian[np.diag_indices_from(hessian)] += bend
    bent = hessian.diagonal()
    units = np.sqrt(np.maximum(np.where(bent > 0, bent, np.einsum("na,na->a", Z, Z)), TINY))
    values, vectors = np.linalg.eigh(hessian / np.multiply.outer(units, units))
    along = vectors.T @ (gradient / units)
    curved = values > FLAT * len(values)
    terms = np.abs(vectors.T) @ ((np.abs(Z.T) @ np.abs(fit.gradient)) / units)
    flat = ~curved & (np.abs(along) > STATIONARY * terms)
    if flat.any():
        step = np.where(flat, -along, 0.0)
    else:
        step = np.where(curved, -along / np.where(curved, values, 1.0), 0.0)
    if flat.any():  # of a length that moves some row by one, where any moves
        moves = (vectors @ step) / units
        largest = np.abs(Z @ moves).max()
        if largest > FLAT * (np.abs(Z) @ np.abs(moves)).max():
            step = step / largest
    change = (vectors @ step) / units
    k = len(face.starts)
    return _FaceStep(change[:k], float(change[k:].sum()), -float(along @ step), bool(flat.any()))


# --- along a step ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Line:
    """The objective along a step.

    Attributes
    ----------
    fit : Fit
    face : _Clusters
    sizes, change : (k,) arrays
        Of the clusters where it starts, and how they change; they may become negative.
    level : float
        Change of the intercept.
    """

    fit: Fit
    face: _Clusters
    sizes: Array
    change: Array
    level: float

    def at(self, length: float) -> Fit:
        """Return the fit at a length."""
        coef = self.face.coef(self.sizes + length * self.change)
        return self.fit.moved(coef, self.fit.intercept + length * self.level)

    def meetings(self) -> tuple[Array, Array]:
        """Lengths at which two clusters are of one size, or one is zero, in order; and which they are."""
        k = len(self.sizes)
        sizes, change = np.append(self.sizes, 0.0), np.append(self.change, 0.0)
        i, j = np.triu_indices(k + 1, 1)
        i, j = np.tile(i, 2), np.tile(j, 2)
        side = np.repeat([1.0, -1.0], len(i) // 2)
        with np.errstate(divide="ignore", invalid="ignore"):
            lengths = (sizes[i] - side * sizes[j]) / (side * change[j] - change[i])
        ahead = np.flatnonzero(np.isfinite(lengths) & (lengths > 0))
        order = ahead[np.argsort(lengths[ahead], kind="stable")]
        return lengths[order], np.column_stack([i[order], j[order]])

    def slope(self, length: float, side: float) -> float:
        """Slope of the objective just before a length, or just behind it."""
        fit = self.at(length)
        coef, change = fit.coef, self.face.coef(self.change)
        ridge = fit.problem.penalty.ridge(coef.shape)
        smooth = (fit.loss_gradient + ridge * coef) @ change + fit.intercept_gradient * self.level
        rates = np.where(coef == 0, side * np.abs(change), np.sign(coef) * change)
        order = np.lexsort([-side * rates, -np.abs(coef)])
        return float(smooth + _weights(fit) @ rates[order])

    def meeting_at(self, length: float, pairs: Array) -> Fit:
        """Return the fit at a length at which these pairs of clusters are of one size."""
        sizes = np.append(self.sizes + length * self.change, 0.0)
        for i, j in pairs.tolist():
            sizes[i] = np.copysign(sizes[j], sizes[i])
        return self.fit.moved(self.face.coef(sizes[:-1]), self.fit.intercept + length * self.level)


def _moved(fit: Fit, face: _Clusters, step: _FaceStep) -> Fit | None:
    """Go to the minimum of the objective along a step, at most all of it where it curves."""
    line = _Line(fit, face, face.sizes(fit.coef), step.sizes, step.intercept)
    lengths, pairs = line.meetings()
    most = np.inf if step.is_straight else 1.0
    near = int(np.searchsorted(lengths, most))
    first = bisect_left(range(near), True, key=lambda k: line.slope(float(lengths[k]), 1.0) >= 0)
    if first == near and np.isfinite(most):
        return line.at(1.0) if line.slope(1.0, -1.0) <= 0 else _between(line, lengths[:near], 1.0)
    start = float(lengths[first - 1]) if first else 0.0
    if first == len(lengths):
        return _turning(line, start, _behind(line, start))
    if line.slope(lengths[first], -1.0) > 0:
        end = float(lengths[first])
        return _turning(line, start, end) if step.is_straight else _between(line, lengths[:first], end)
    together = np.abs(lengths - lengths[first]) <= SAME * lengths[first]
    return line.meeting_at(float(lengths[first]), pairs[together])


def _behind(line: _Line, start: float) -> float:
    """A length at which what did not curve where it started rises, behind the last meeting.

    Raises
    ------
    SolverError
        If it rises nowhere.
    """
    end = max(2.0 * start, 1.0)
    while line.slope(end, -1.0) <= 0:
        end *= 2.0
        if line.fit.problem.loss.is_quadratic or end > FARTHEST:
            raise SolverError("the problem has no finite minimum: give every column a penalty")
    return end


def _turning(line: _Line, start: float, end: float) -> Fit | None:
    """Where the slope of what did not curve where it started vanishes between two lengths."""
    between = partial(line.slope, side=1.0)
    return line.at(brentq(between, start, end)) if between(start) < 0 < between(end) else None


def _between(line: _Line, before: Array, end: float) -> Fit | None:
    """Where the slope, straight for squares, vanishes between the last meeting before an end and it."""
    start = float(before[-1]) if len(before) else 0.0
    low, high = line.slope(start, 1.0), line.slope(end, -1.0)
    if not low < 0 < high:
        return None
    return line.at(start + (end - start) * low / (low - high))
