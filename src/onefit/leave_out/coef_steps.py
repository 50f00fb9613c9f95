"""Steps towards refits without sets of rows that are told by the coefficients, where rows are more.

Of the rows a step asks for nothing but the gradient of each left-out problem,

    r = Σ_j z_j w_j ℓ′(z_jᵀθ) + share ∇P(β),     θ ← θ − K_G⁻¹ r,

a sum over blocks of rows that stay in the cache.  The same pass tells how far rows have moved, so that what
is left is bounded after every step, and steps end where that bound is small.  Every few steps of a problem
are mixed, in the norm of K_G.  Folds that have settled, or that steps do not bring on, are left behind.
Where many rows leave together, the factor of the fit does about as well as K_G.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from onefit import _linalg
from onefit._linalg.design import RowsInSingle
from onefit._typing import Array, Design, Index, Mask
from onefit.curvature import AverageCurvature, Curvature, Direction
from onefit.fit import Fit
from onefit.leave_out import prove
from onefit.leave_out.chords import FoldProblems
from onefit.leave_out.forms import Batch, WithoutFolds
from onefit.leave_out.leads import Leads
from onefit.leave_out.reach import Reach
from onefit.leave_out.rescaling import Rescaling
from onefit.numerics import length_of
from onefit.solvers.mixing import LEAVE, ChordStep, mixed

IN_CACHE = 2**16  # linear predictors of a block of rows
FEWEST = 64  # rows of a block: products of fewer take longer
MIXED = 6  # steps that are mixed: in the coefficients that takes next to nothing
PATIENCE, NEARER = 6, 0.25  # steps by which what is left falls to such a share: slower ones are given up


class EndsOfSteps(NamedTuple):
    """Where steps without some folds came to."""

    coef: Array  # (p, …outputs, f)
    intercept: Array  # (…outputs, f)
    length: Array  # (f,), how far the refits may be from there in A, at most
    settled: Mask  # (f,)
    passes: list[int]  # over all rows, each of so many folds

    def predictors(self, X: Design, rows: Index, own: Index) -> Array:
        """Linear predictors of some rows, each in the fold of the same place: (t, …outputs)."""
        of_rows = _linalg.as_design(X).dense_rows(rows)
        moved: Array = np.einsum("tp,p...t->t...", of_rows, self.coef[..., own])
        return moved + np.moveaxis(self.intercept[..., own], -1, 0)

    def predictors_of(self, X: Design, rows: Index, fold: int) -> Array:
        """Linear predictors of some rows in one fold: (t, …outputs)."""
        some = _linalg.some_rows(X, rows)
        return np.asarray(_linalg.times(some, self.coef[..., fold]) + self.intercept[..., fold])


class About(Protocol):
    """A curvature that is about K_G of some folds."""

    def solve(self, gradient: Direction) -> Direction:
        """Its inverse times a gradient of each fold."""

    def of(self, which: Index) -> About:
        """That of some of the folds."""


class OfFit(NamedTuple):
    """The curvature with all rows."""

    curvature: Curvature | AverageCurvature

    def solve(self, gradient: Direction) -> Direction:
        return self.curvature.solve(gradient)

    def of(self, which: Index) -> OfFit:
        return self


class Close(Protocol):
    """What is close enough of some folds."""

    def told(self, norm: Array, travelled: Array) -> tuple[Array, Mask]:
        """How far refits may be from where gradients of such norms are left, and whether that will do.

        ``travelled`` is how far rows have moved from the fit; 0 where nobody asks.
        """

    def of(self, which: Index) -> Close:
        """That of some of the folds."""


class Bounded(NamedTuple):
    """Where a bound of the left-out predictors is small: a norm is one in A⁻¹, by which that is told."""

    reach: Reach
    widest: Array  # (f,), √ of the largest form in A⁻¹ of a row that leaves
    R: float
    full: float  # full precision of predictors
    enough: float

    @classmethod
    def of_folds(cls, refits: FoldProblems, rows: Index, reach: Reach, tol: float) -> Bounded:
        """That of folds of so many rows each, (f, b), at so many times full precision."""
        f, b = rows.shape
        forms = reach.forms(np.repeat(np.arange(f), b), rows.ravel()).reshape(f, b)
        R = prove.concordance(refits.fit)
        assert R
        return cls(reach, length_of(forms).max(axis=1), R, refits.tol, tol * refits.tol)

    def told(self, norm: Array, travelled: Array) -> tuple[Array, Mask]:
        length = self.reach.length(self.R, norm, travelled)
        return length, (self.widest * length <= self.enough) | (self.widest * norm <= self.full)

    def of(self, which: Index) -> Bounded:
        return self._replace(reach=self.reach.of_some(which), widest=self.widest[which])


@dataclass(frozen=True, eq=False)
class Roughly:
    """Where a step is a small share of the longest so far.

    Attributes
    ----------
    share : float
    longest : (f,) array
        Of all folds.
    which : int array
        The folds that are meant.
    """

    share: float
    longest: Array
    which: Index

    @classmethod
    def of_folds(cls, share: float, longest: Array) -> Roughly:
        """All of them, whose ways are as long as is known: else their first steps tell."""
        return cls(share, longest, np.arange(len(longest)))

    def told(self, norm: Array, travelled: Array) -> tuple[Array, Mask]:
        self.longest[self.which] = np.fmax(self.longest[self.which], norm)
        return norm, norm <= self.share * self.longest[self.which]

    def of(self, which: Index) -> Roughly:
        return Roughly(self.share, self.longest, self.which[which])


class _RowsOnce(NamedTuple):
    """Some rows that are in the cache together."""

    rows: slice
    X: Design
    y: Array
    eta: Array  # (c, r), of the fit


class _Seen(NamedTuple):
    """What a pass over the rows tells of some points."""

    gradient: Direction
    travelled: Array  # (f,), ρ


@dataclass(frozen=True, eq=False)
class _Passes:
    """All rows, block by block."""

    fit: Fit
    blocks: Sequence[_RowsOnce]
    far: Index | None  # rows whose moves are not asked for; None where no move is

    @classmethod
    def of(cls, fit: Fit, folds: int, far: Index | None, *, in_single: bool) -> _Passes:
        """In blocks for so many folds; in single precision, where X is dense, if that will do."""
        rough = _in_single(fit) if in_single else None
        X = _linalg.as_columns(fit.problem.X).by_row if rough is None else rough.X
        return cls(fit, list(_blocks(fit, X, folds)), far)

    def seen(self, refits: FoldProblems, at: Direction) -> _Seen:
        """Gradients at a point of each fold, and how far rows have moved."""
        problem, f = self.fit.problem, at.coef.shape[-1]
        coef, level = at.coef.reshape(len(at.coef), -1), at.intercept.reshape(-1, 1)
        gradient, levels, travelled = np.zeros_like(coef), np.zeros(len(level)), np.zeros(f)
        held = refits.weights
        if self.far is not None and self.far.size:
            held = held.copy()
            held[self.far] = 0.0
        for rows, X, y, here in self.blocks:
            eta = np.ascontiguousarray(_linalg.times(X, coef.astype(X.dtype, copy=False)).T)
            eta += level
            slope = self._slopes(y, eta, np.ascontiguousarray(refits.weights[rows].T, dtype=eta.dtype))
            gradient += _linalg.transposed_times(X, slope.T)
            levels += slope.sum(axis=1)
            if self.far is None:
                continue
            change = eta.reshape(len(here), f, -1)
            change -= here[:, None]
            moved = np.ptp(change, axis=0) if problem.is_coupled else np.abs(change[0])
            np.maximum(travelled, np.where(held[rows].T > 0, moved, 0.0).max(axis=1), out=travelled)
        free = _linalg.with_axes(problem.intercept, at.intercept)
        level = np.where(free, levels.reshape(at.intercept.shape), 0.0)
        own, level = problem.of_losses(gradient.reshape(at.coef.shape), level)
        own += refits.penalty_gradient(at.coef)
        return _Seen(Direction(own, level), travelled)

    def _slopes(self, y: Array, eta: Array, weights: Array) -> Array:
        """Weighted slopes of the losses of some rows, at linear predictors (c f, r)."""
        problem, f = self.fit.problem, len(weights)
        if problem.is_coupled:
            by_class = eta.reshape(problem.n_outputs, -1)
            slope = problem.loss.gradient(np.tile(y, f), by_class.T).T.reshape(-1, *weights.shape)
        else:
            slope = problem.loss.gradient(y, eta)[None]
        slope = (slope * weights).astype(eta.dtype, copy=False)
        slope[:, weights == 0.0] = 0.0  # of rows that left it may be infinite
        return slope.reshape(eta.shape)


def _in_single(fit: Fit) -> RowsInSingle | None:
    """Rows in single precision, which those of a path share."""
    inner = fit.problem.known_inner
    return RowsInSingle.of(fit.problem.X) if inner is None else inner.rows_in_single


def _blocks(fit: Fit, X: Design, folds: int) -> Iterator[_RowsOnce]:
    problem = fit.problem
    n, c = problem.n, problem.n_outputs
    here = np.ascontiguousarray(fit.eta.reshape(n, c).T)
    size = max(FEWEST, IN_CACHE // (c * folds))
    for start in range(0, n, size):
        rows = slice(start, min(start + size, n))
        yield _RowsOnce(rows, X[rows], problem.y[rows], here[:, rows])


@dataclass(eq=False)
class _Unsettled:
    """Folds that are not done, and the steps that they took."""

    refits: FoldProblems
    without: About
    close: Close
    which: Index  # (f,)
    at: Direction
    least: Array  # (f,), norm of the shortest step so far
    mark: Array  # (f,), norm that steps are held against
    waited: Array  # (f,), steps since
    mix: int  # steps that are mixed
    seen: Sequence[ChordStep] = ()

    def count(self, norm: Array) -> None:
        """Count the steps that bring next to nothing, by the norms that these have left."""
        self.least, fallen = np.fmin(self.least, norm), norm <= NEARER * self.mark
        self.mark, self.waited = np.where(fallen, norm, self.mark), np.where(fallen, 0, self.waited + 1)

    def go(self, step: Direction, gradient: Direction) -> None:
        """Go where a step leads together with those before, both told in the columns less their means."""
        problem = self.refits.fit.problem
        flat, here = _flat(step), _flat(self.at.at_centre(problem))
        self.seen = [*self.seen, ChordStep(here + flat, flat, -_flat(gradient))][-self.mix :]
        self.at = _shaped(mixed(self.seen), self.at).at_centre(problem, -1.0)

    def take(self, end: EndsOfSteps, own: Mask, length: Array) -> None:
        """Where some of the folds are is the end of their steps so far."""
        which = self.which[own]
        end.coef[..., which], end.intercept[..., which] = (part[..., own] for part in self.at)
        end.length[which] = length[own]

    def without_those(self, done: Mask) -> _Unsettled:
        """The others alone, once so many are done that this saves more than it takes."""
        keep = np.flatnonzero(~done)
        if keep.size > (1.0 - LEAVE) * self.which.size:
            return self
        seen = [one.of(keep) for one in self.seen]
        return _Unsettled(
            self.refits.of(keep),
            self.without.of(keep),
            self.close.of(keep),
            self.which[keep],
            _some(self.at, keep),
            self.least[keep],
            self.mark[keep],
            self.waited[keep],
            self.mix,
            seen,
        )


def _flat(direction: Direction) -> Array:
    """Coefficients and intercepts of each fold: (q, f)."""
    return np.concatenate([part.reshape(-1, part.shape[-1]) for part in direction])


def _shaped(flat: Array, like: Direction) -> Direction:
    size = like.coef[..., 0].size
    return Direction(flat[:size].reshape(like.coef.shape), flat[size:].reshape(like.intercept.shape))


def _some(direction: Direction, which: Any) -> Direction:
    return Direction(*(np.ascontiguousarray(part[..., which]) for part in direction))


def one_step_from(
    fit: Fit, rescaled: Rescaling, batch: Batch, without: WithoutFolds, leads: Leads | None
) -> Direction:
    """Parameters of each fold of a batch one step from a fit, or where single rows went before."""
    gone = _linalg.row_times(1.0 + rescaled.growth_of(batch.which, batch.rows), fit.gradient[batch.rows])
    coef, level = without.gradient_of(without.forms.stack(gone))
    for gradient, amount in zip(rescaled.gradients, rescaled.amounts, strict=True):
        coef += gradient.coef[..., None] * amount[batch.which]
        level += gradient.intercept[..., None] * amount[batch.which]
    step = without.solve(Direction(coef, level))
    start = Direction(fit.coef[..., None] + step.coef, fit.intercept[..., None] + step.intercept)
    for row, known in ({} if leads is None else leads.points(fit, batch.rows[:, 0])).items():
        own = batch.rows[:, 0] == row
        start.coef[..., own], start.intercept[..., own] = (part[..., None] for part in known)
    return start


def steps_in_coefficients(
    refits: FoldProblems,
    without: About,
    close: Close,
    start: Direction,
    max_steps: int,
    far: Index | None = None,
    mix: int = MIXED,
    patience: int = PATIENCE,
    *,
    in_single: bool = False,
) -> EndsOfSteps:
    """Steps until what is left of each fold is small, or no longer shrinks.

    Parameters
    ----------
    refits : FoldProblems
    without : About
        About K_G of the same folds.
    close : Close
    start : Direction
        Parameters of each fold.
    max_steps : int
    far : (k,) int array, optional
        Rows whose moves are not asked for, where what is left is bounded by those of the others.
    mix : int, default 6
        Steps that are mixed.
    patience : int, default 6
        Steps in which what is left must fall to a quarter.
    in_single : bool, default False
        Whether gradients may be summed in single precision: where so many rows leave that what they take
        with them is far above what that rounds off.
    """
    f, problem = start.coef.shape[-1], refits.fit.problem
    end = EndsOfSteps(
        start.coef.copy(), start.intercept.copy(), np.full(f, np.inf), np.zeros(f, dtype=bool), []
    )
    rows = _Passes.of(refits.fit, f, far, in_single=in_single)
    unseen = np.full(f, np.inf)
    waited = np.zeros(f)
    moving = _Unsettled(refits, without, close, np.arange(f), start, unseen, unseen, waited, mix)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for _ in range(max_steps):
            gradient, travelled = rows.seen(moving.refits, moving.at)
            end.passes.append(len(moving.which))
            back = moving.without.solve(gradient).at_centre(problem)
            gradient = gradient.as_gradient_at_centre(problem)
            norm = length_of((_flat(gradient) * _flat(back)).sum(axis=0))
            nearer = norm < moving.least  # false, too, where it is not finite
            length, small = moving.close.told(norm, travelled)
            moving.take(end, nearer & ~end.settled[moving.which], length)
            end.settled[moving.which] |= nearer & small
            moving.count(norm)
            done = end.settled[moving.which] | (moving.waited >= patience)
            if np.all(done):
                break
            moving.go(Direction(*(-part for part in back)), gradient)
            moving = moving.without_those(done)
    return end
