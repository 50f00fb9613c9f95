"""Leaving out sets of rows from one fit: groups, K folds, splits in time.

With H_GG = Z_G K⁻¹ Z_Gᵀ for the rows G that leave together, and ``s`` for what a refit rescales besides,

    η̃_G = η_G + s_G + H_GG (I − D_G H_GG)⁻¹ (g_G + D_G s_G)

(Woodbury's formula in the place of Sherman–Morrison's; leave-one-out is the case of one row).  Sets with
more rows than there are free coordinates are not downdated: the curvature without them is factored, which
is then cheaper and better conditioned.

For a quadratic loss and a fixed pattern this is the refit.  For others it is the first of several steps
(``chords``).  A row that leaves alone is a set of one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.curvature import Curvature, Direction, Dual, InSingle, factor
from onefit.fit import Fit
from onefit.leave_out import prove
from onefit.leave_out.chords import (
    MAX_STEPS,
    USUAL_STEPS,
    ByProducts,
    End,
    FactoredAnew,
    FoldProblems,
    LeftOutCurvature,
    Point,
    goes_by_coefficients,
    repeat_steps,
)
from onefit.leave_out.coef_steps import Bounded, EndsOfSteps, one_step_from, steps_in_coefficients
from onefit.leave_out.forms import Batch, Forms, Hat, WithoutFolds, forms_of, times
from onefit.leave_out.leads import Leads
from onefit.leave_out.prove import Widths
from onefit.leave_out.reach import ByRow, Reach, bounds_at, bounds_of_steps, reach_at_most
from onefit.leave_out.rescaling import Rescaling, Spread, rescaling
from onefit.leave_out.result import LeftOut
from onefit.leave_out.row_steps import steps_in_rows
from onefit.leave_out.sets import Folds, removed_share
from onefit.leave_out.step import leave_kinks_out, leverages_of
from onefit.numerics import LEAST_SLACK, length_of
from onefit.problem import some_sets

MAX_SHRINKS = 16  # factors of a curved penalty that shrinks with the rows, at most
SOME, SHRUNK = (
    3,
    0.5,
)  # steps that are taken from an end, and share of a bound beyond which others lead nearer
SAME_SHRINK = 1e-11  # between two of them that are one


@dataclass(frozen=True, eq=False)
class Blocks:
    """Sets that leave, and what is known of each so far (filled in place).

    Attributes
    ----------
    fit : Fit
    base : Curvature
        With the penalty's curvature times ``base_shrink``.
    folds : Folds
    eta : (t,) or (t, c) array
        Left-out linear predictors of ``folds.rows``, in their order.
    bounds : (t,) array
        How far each may be off.
    slack : (folds,) array
        Smallest eigenvalue of I − D_G H_GG: 1 − leverage for one row.  1 where the curvature was factored
        without the set, and needs none.
    reached : (folds,) bool array
        Sets to which a step leads.
    ends : dict
        Parameters at the end of the steps of each set that was iterated.
    leads : Leads or None
        From where single rows go on.
    """

    fit: Fit
    base: Curvature
    folds: Folds
    eta: Array
    bounds: Array
    slack: Array
    reached: Mask
    ends: dict[int, Direction]
    base_shrink: float = 1.0
    leads: Leads | None = None

    @classmethod
    def of(cls, fit: Fit, curvature: Curvature | None, folds: Folds, base_shrink: float = 1.0) -> Blocks:
        """Nothing is known yet.

        Raises
        ------
        ValueError
            If a fold removes all rows of positive weight.
        """
        removed_share(folds, fit.problem.weights)  # refuses sets without which nothing is left
        base = factor(fit, shrink=base_shrink) if curvature is None else curvature
        eta = np.empty((len(folds.rows), *fit.problem.outputs))
        bounds, slack = np.full(len(folds.rows), np.inf), np.ones(len(folds))
        return cls(fit, base, folds, eta, bounds, slack, np.zeros(len(folds), dtype=bool), {}, base_shrink)

    @property
    def coupled(self) -> int:
        """Number of outputs that the loss ties together, 1 for a separable one."""
        return self.fit.problem.n_outputs if self.fit.problem.is_coupled else 1

    @cached_property
    def free(self) -> int:
        """Number of free coordinates in one factor, with the intercepts."""
        support = self.fit.tangent.support.reshape(len(self.fit.coef), -1)
        free = support.sum(axis=0) + self.fit.problem.intercept
        return int(free.sum() if self.coupled > 1 else free.max())

    @cached_property
    def shrink(self) -> Array:
        """Factor on the penalty's curvature that each fold is given: few different ones."""
        if not self.fit.tangent.is_curved:
            return np.ones(len(self.folds))
        lost = 1.0 - self.fit.problem.kept_shares(self.folds.removed)
        levels = np.unique(lost.round(12))
        if len(levels) > MAX_SHRINKS:
            levels = np.unique(np.quantile(lost, (np.arange(MAX_SHRINKS) + 0.5) / MAX_SHRINKS))
        levels = np.where(
            np.isclose(levels, 1.0 - self.base_shrink, 0.0, SAME_SHRINK), 1.0 - self.base_shrink, levels
        )
        return 1.0 - levels[np.abs(lost[:, None] - levels).argmin(axis=1)]

    @cached_property
    def forms(self) -> Array:
        """H of single rows, as ``quadratic_forms`` has it."""
        return self.base.quadratic_forms()

    @cached_property
    def curvatures(self) -> dict[float, tuple[Curvature, Rescaling]]:
        """K and what is rescaled, by the factor on the penalty's curvature."""
        return {}

    def curvature_at(self, shrink: float) -> tuple[Curvature, Rescaling]:
        if shrink not in self.curvatures:
            own = self.base if shrink == self.base_shrink else factor(self.fit, shrink=shrink)
            self.curvatures[shrink] = own, rescaling(self.fit, own, self.folds, shrink)
        return self.curvatures[shrink]

    def chunks(self, which: Index, numbers: int) -> Iterator[Index]:
        """Folds in chunks for which arrays of so many numbers a fold, and of η and β, fit a block."""
        problem = self.fit.problem
        count = max(1, 2 * _linalg.BLOCK_SIZE // max(numbers, max(problem.X.shape) * problem.n_outputs))
        for first in range(0, len(which), count):
            yield which[first : first + count]

    def batches(self, some: Index) -> Iterator[Batch]:
        """Folds to be downdated: those that remove no more rows than there are free coordinates."""
        small = some[self.folds.sizes[some] * self.coupled <= self.free]
        sizes, shrinks = self.folds.sizes[small], self.shrink[small]
        per_row = self.fit.coef.size * self.coupled
        for size, shrink in sorted(set(zip(sizes.tolist(), shrinks.tolist(), strict=True))):
            for part in self.chunks(small[(sizes == size) & (shrinks == shrink)], size * per_row):
                rows = np.sort(np.asarray(some_sets(self.folds.removed, part)), axis=1)
                yield Batch(part, rows, self.curvature_at(shrink)[0], shrink)

    def hat(self, curvature: Curvature, sets: int) -> Hat:
        """Z K⁻¹ Zᵀ times columns; as a matrix where so many sets make that worth it."""
        n = self.fit.problem.n
        if not isinstance(curvature, Dual) or sets * USUAL_STEPS < n:
            return curvature.hat
        if id(curvature) not in self.hats:
            self.hats[id(curvature)] = curvature.hat_matrix()
        return partial(_linalg.product, self.hats[id(curvature)])

    @cached_property
    def hats(self) -> dict[int, Array]:
        """Z K⁻¹ Zᵀ of curvatures."""
        return {}

    def refits(self, which: Index) -> FoldProblems:
        return FoldProblems.without(self.fit, self.base, some_sets(self.folds.removed, which))

    def ended(self, which: Index) -> list[Direction]:
        """Where steps of some sets ended before, if all of them did."""
        return [self.ends[k] for k in which.tolist()] if self.ends.keys() >= {*which.tolist()} else []

    def largest(self, which: Index) -> Array:
        """Largest bound of the values of each of some sets: (f,)."""
        return np.array([self.bounds[self.folds.place(k)].max() for k in which.tolist()])

    def step(self) -> None:
        """One step for every set, and its bound."""
        for batch in self.batches(np.arange(len(self.folds))):
            _downdate(self, batch)
        rest = np.flatnonzero(~self.reached)
        for some in self.chunks(rest, self.free * self.fit.problem.n):
            _factor_anew(self, some, 1)

    def iterate(self, which: Index, tol: float, most: int = MAX_STEPS) -> None:
        """Repeat the steps of some sets, so many at most, until they settle, and bound what is left."""
        if self.base.is_estimated:
            for some in self.chunks(which, self.fit.problem.n):
                _by_products(self, some, tol, most)
            return
        for batch in self.batches(which[self.reached[which]]):
            if isinstance(K := batch.curvature, InSingle):
                batch = _chord_in_single(self, batch, K, tol, most)
            if batch.which.size:
                _chord(self, batch, tol, most)
        rest = which[~self.reached[which]]
        for some in self.chunks(rest, self.free * self.fit.problem.n):
            _factor_anew(self, some, MAX_STEPS)

    def settle(
        self, which: Index, refits: FoldProblems, end: End, reach: Reach, without: LeftOutCurvature
    ) -> None:
        """Take over the values of some folds that have settled, and bound them."""
        with np.errstate(over="ignore", invalid="ignore"):  # of those that went astray
            bounds = bounds_at(self.fit, refits, end.point, reach, without)
        settled = np.flatnonzero(end.settled)
        own, rows, place = self.folds.judged(which[settled])
        self.eta[place] = end.point.eta[rows, ..., settled[own]]
        self._end(which, settled, Direction(end.point.coef, end.point.intercept), bounds)

    def _end(self, which: Index, settled: Index, at: Direction, bounds: ByRow) -> None:
        """Take over where some of the folds ``which`` came to, and bounds of their values."""
        own, rows, place = self.folds.judged(which[settled])
        self.bounds[place] = bounds(settled[own], rows)
        for k, coef, level in zip(which[settled].tolist(), *(part.T[settled] for part in at), strict=True):
            self.ends[k] = Direction(coef.T, np.asarray(level.T))

    def settle_at(self, which: Index, ends: EndsOfSteps, reach: Reach) -> None:
        """Take over the values of some folds whose parameters have settled."""
        settled = np.flatnonzero(ends.settled)
        own, rows, place = self.folds.judged(which[settled])
        self.eta[place] = ends.predictors(self.fit.problem.X, rows, settled[own])
        self._end(which, settled, Direction(ends.coef, ends.intercept), reach.off(ends.length))


# --- the block formula -----------------------------------------------------------------------------


def _downdate(blocks: Blocks, batch: Batch) -> None:
    """One step for each fold of a batch, and its bound."""
    fit, which = blocks.fit, batch.which
    forms = forms_of(blocks.fit, batch, blocks.free)
    blocks.slack[which] = slack = forms.slack
    possible = slack >= LEAST_SLACK
    kept = forms.kept
    kept[~possible] = np.eye(kept.shape[-1])
    slope, shift = _rescaled(blocks, batch)
    slopes, shifts = forms.stack(slope), forms.stack(shift)
    solved = np.linalg.solve(kept, (slopes + times(forms.D, shifts))[..., None])
    inside = np.asarray(solved[..., 0], dtype=np.float64)
    change = times(forms.H, inside) + shifts
    moved = forms.unstack(change, fit.problem.outputs)
    squares = blocks.curvature_at(batch.shrink)[1].squares[which]
    norm = length_of((slopes * change + shifts * inside).sum(axis=(1, 2)) + squares)
    bounds = bounds_of_steps(fit, _reach(blocks, batch, forms, kept, slack), norm)
    own, rows, place = blocks.folds.judged(which)
    blocks.eta[place] = fit.eta[rows] + moved[own, batch.places(own, rows)]
    blocks.bounds[place] = np.where(possible[own], bounds(own, rows), np.inf)
    blocks.reached[which] = possible


def _reach(blocks: Blocks, batch: Batch, forms: Forms, kept: Array, slack: Array) -> Reach:
    """Norms in A⁻¹ for the sets of a batch."""
    far, shrink = prove.far_rows(blocks.fit, blocks.forms), batch.shrink / blocks.base_shrink
    widths = far.widths(np.maximum(slack, LEAST_SLACK), shrink)  # with less nothing is claimed
    own = forms.left_out(kept)
    spread = blocks.curvature_at(batch.shrink)[1].spread.of(batch.which)
    return Reach(widths, lambda j, rows: own[j, batch.places(j, rows)], spread)


def _without(blocks: Blocks, batch: Batch) -> WithoutFolds:
    """The curvatures without the folds of a batch, by downdates."""
    forms = forms_of(blocks.fit, batch, blocks.free)
    inner: Array = np.linalg.solve(forms.kept, forms.D).astype(np.float64)
    hat = blocks.hat(batch.curvature, len(batch.which))
    return WithoutFolds(batch.curvature, blocks.fit.problem, forms, inner, hat)


def _steps(blocks: Blocks, batch: Batch, step: WithoutFolds, tol: float, most: int) -> End:
    """Where repeated steps of the folds of a batch end."""
    fit, refits = blocks.fit, blocks.refits(batch.which)
    start = None if blocks.leads is None else blocks.leads.predictors(fit, batch.rows[:, 0], blocks.base)
    found = steps_in_rows(refits, step, batch.rows, most, tol, batch.shrink, start)
    return found.ended(refits, step.parameters)


def _chord(blocks: Blocks, batch: Batch, tol: float, most: int) -> None:
    """Repeat the steps of the folds of a batch, and bound what is left."""
    step, fit, refits = _without(blocks, batch), blocks.fit, blocks.refits(batch.which)
    reach = _reach(blocks, batch, step.forms, step.forms.kept, step.forms.slack)
    if not goes_by_coefficients(fit):
        blocks.settle(batch.which, refits, _steps(blocks, batch, step, tol, most), reach, step)
        return
    start = one_step_from(fit, blocks.curvature_at(batch.shrink)[1], batch, step, blocks.leads)
    close = Bounded.of_folds(refits, step.forms.rows, reach, tol)
    found = steps_in_coefficients(refits, step, close, start, most, reach.widths.far)
    blocks.settle_at(batch.which, found, reach)


def _chord_in_single(blocks: Blocks, batch: Batch, K: InSingle, tol: float, most: int) -> Batch:
    """Repeat steps with a factor in single precision; what asks for one in double precision.

    They are bounded by products, whatever rounding there is in them.  Where they ended before, the gradient
    there tells some more, and what these do not bound much closer asks for the other factor.
    """
    anew, which = replace(batch, curvature=K.inner), batch.which
    ends, before = blocks.ended(which), blocks.largest(which)
    if tol <= 1.0 and not ends:
        return anew
    refits, step = blocks.refits(which), _without(blocks, replace(batch, curvature=K.rough))
    end = repeat_steps(refits, step.solve, refits.at(ends), SOME) if ends else None
    end = End(end.point, refits.descended(end.point)) if end else _steps(blocks, batch, step, tol, most)
    own = ByProducts.of(refits, step.solve)
    blocks.settle(which, refits, end, reach_at_most(refits, own), own)
    left = (blocks.largest(which) > SHRUNK * before) & bool(ends)
    return replace(anew, which=which[left], rows=batch.rows[left])


def _by_products(blocks: Blocks, which: Index, tol: float, most: int) -> None:
    """Repeat the steps of some folds by conjugate gradients, where their first is not bounded well enough."""
    refits, ends = blocks.refits(which), blocks.ended(which)
    own, point = ByProducts.of(refits), refits.at(ends) if ends else refits.started()
    begun = End(point, refits.descended(point))
    blocks.settle(which, refits, begun, reach_at_most(refits, own), own)
    wanting = (blocks.largest(which) > tol * refits.tol) | ~begun.settled
    if wanting.any():
        rest = refits.of(places := np.flatnonzero(wanting))
        own = ByProducts.of(rest)
        end = repeat_steps(rest, own.solve, Point(*(part[..., places] for part in point)), most, tol)
        blocks.settle(which[wanting], rest, end, reach_at_most(rest, own), own)


def _rescaled(blocks: Blocks, batch: Batch) -> tuple[Array, Array]:
    """What leaves with the rows of each fold, grown, and what else a refit changes there.

    Returns
    -------
    slope, shift : (f, b, …outputs) arrays
        g_G, and s_G = Z_G K⁻¹ (all that the refit takes off the gradient besides).
    """
    fit, rows = blocks.fit, batch.rows
    curvature, rescaled = blocks.curvature_at(batch.shrink)
    slope, shift = fit.gradient[rows], np.zeros_like(fit.eta[rows])
    for direction, amount in zip(rescaled.directions, rescaled.amounts, strict=True):
        shift += curvature.predict(direction)[rows] * _linalg.with_axes(amount[batch.which], shift)
    grown = _linalg.with_axes(rescaled.growth_of(batch.which, rows), slope)
    return slope * (1.0 + grown), shift


# --- more steps -----------------------------------------------------------------------------------


def _factor_anew(blocks: Blocks, which: Index, max_steps: int) -> None:
    """Solve without folds that are large beside the free coordinates, or that a downdate does not reach."""
    fit, refits = blocks.fit, blocks.refits(which)
    quadratic = fit.problem.loss.is_quadratic
    point = refits.at_zero() if quadratic else refits.at_fit()
    own = FactoredAnew.at(refits, point)
    end = repeat_steps(refits, own.solve, point, MAX_STEPS if quadratic else max_steps)
    if max_steps == 1:
        end.settled[:] = True  # it is a step, and bounded as such
    # without the set something is not determined: where solvers start decides, or how far a kink lets it go
    known = np.array([K.is_definite or (quadratic and not fit.is_kinked) for K in own.curvatures])
    if max_steps > 1:
        end.settled[:] &= known
    forms = np.zeros((len(which), fit.problem.n))  # of quadratics none is asked for
    if not quadratic:
        forms = np.stack([prove.widest_form(K.quadratic_forms()) for K in own.curvatures])
    widest = np.sqrt(np.max(forms, axis=1, where=refits.weights.T > 0, initial=0.0))
    even = Spread(*np.ones((2, len(which))))

    def of_rows(own: Index, rows: Index) -> Array:
        return np.full(len(rows), np.inf) if quadratic else forms[own, rows]

    blocks.slack[which] = 1.0
    blocks.settle(which, refits, end, Reach(Widths.of(widest), of_rows, even), own)
    for k in which[~known].tolist():
        blocks.bounds[blocks.folds.place(k)] = np.inf


def sets_left_out(fit: Fit, sets: Folds, curvature: Curvature | None) -> tuple[LeftOut, Blocks | None]:
    """One step for every set; none where rows on a kink and rows that are not leave together."""
    if fit.problem.loss.has_kinks:
        removed_share(sets, fit.problem.weights)
        leverages, nothing = leave_kinks_out(fit).leverages, np.full(len(sets.rows), np.inf)
        return LeftOut(fit, fit.eta[sets.rows], nothing, leverages, np.zeros(len(sets)), sets), None
    (blocks := Blocks.of(fit, curvature, sets)).step()
    eta, bounds, leverages = blocks.eta.copy(), blocks.bounds.copy(), leverages_of(fit, blocks.forms)
    return LeftOut(fit, eta, bounds, leverages, blocks.slack, sets), blocks
