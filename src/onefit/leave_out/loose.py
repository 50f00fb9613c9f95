"""What is left open where nothing curves, so that a refit has several optima: its intercept, or coefficients.

With the coefficients as they are the objective is convex and straight in pieces as a function of the
intercept.  Where rows on kinks do not hold it on both sides it has a flat bottom, and every intercept
there is as good.  libsvm then takes the middle one; so do we, and the bound reaches to the ends where a
model's own solver is not known to do so.

Where the penalty does not curve either, coefficients may be open, too.  They are determined if the rows that
are held strictly inside a kink have full rank on the columns that no kink of the penalty strictly holds:
then the optimal face of the linear program has no direction.

Where the loss curves, all optima agree on the rows that have a weight, but for what all outputs of a coupled
loss have in common, and for rows on straight pieces or at the end of one, which may move along it.  Columns
on their bound that depend on the others in all rows that are held, such as words that only a removed row
tells apart, leave its predictor open; so does an intercept that no row holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.fit import Fit
from onefit.leave_out.joining import StraightFace, is_held, straight_faces
from onefit.leave_out.loose_programs import ProgramFace, penalty_ridge
from onefit.leave_out.optima import SAME, Optima, null_space
from onefit.leave_out.straight_rows import around, bends, ends_of_pieces, held_rows
from onefit.leave_out.vertex import may_be_tied
from onefit.losses import PiecewiseLinear, PiecewiseLoss
from onefit.numerics import CERTIFIED, ON_BOUND, TINY, spread
from onefit.penalties import Polyhedral, SeparablePenalty
from onefit.solvers.stationary import holds_strictly, sizes_at


class FlatBottom(NamedTuple):
    """Intercepts that are as good as that of a fit, and the rows that come to a kink at either end."""

    low: float  # by how much it may move, at least and at most
    high: float
    rows: Index  # (2,)


def flat_bottom(fit: Fit) -> FlatBottom | None:
    """Where the intercept may move at no cost; None where something holds it."""
    problem = fit.problem
    if not isinstance(problem.loss, PiecewiseLinear) or not problem.has_one_output or not problem.intercept:
        return None
    held = np.flatnonzero(problem.weights > 0)
    slopes = fit.slopes[held]
    if not np.isfinite(slopes).all():
        return None
    until = (fit.kinks - fit.eta[:, None])[held].ravel()
    order = np.argsort(until)
    pull = slopes[:, 0].sum() + np.cumsum(np.diff(slopes, axis=1).ravel()[order])  # after each kink
    flat = ON_BOUND * float(np.abs(slopes).max(axis=1).sum())
    ends = order[[np.argmax(pull >= -flat), np.argmax(pull > flat)]]
    low, high = until[ends].tolist()
    if not high - low > CERTIFIED * (spread(fit.eta) + TINY):
        return None
    return FlatBottom(min(low, 0.0), max(high, 0.0), held[ends // fit.kinks.shape[1]])


def room_of_intercept(fit: Fit) -> tuple[float, float]:
    """How far the intercept may move down and up at no cost: both 0 where something holds it."""
    bottom = flat_bottom(fit)
    return (0.0, 0.0) if bottom is None else (-bottom.low, bottom.high)


def at_middle(fit: Fit) -> Fit:
    """As good a fit with the intercept in the middle of what it may be."""
    bottom = flat_bottom(fit)
    return fit if bottom is None else _moved_to_middle(fit, bottom)


def _moved_to_middle(fit: Fit, bottom: FlatBottom) -> Fit:
    by = 0.5 * (bottom.high + bottom.low)
    moved = fit.moved(fit.coef, fit.intercept + by)
    return moved.known(eta=fit.eta + by, gradient=fit.gradient, pinned=np.zeros_like(fit.pinned))


def with_middle_intercept(fit: Fit) -> tuple[Fit, float | None]:
    """The same, and how far from there the intercept may be.

    That is None where something holds the intercept, and 0 where the model's own solver takes the middle.
    """
    bottom = flat_bottom(fit)
    if bottom is None:
        return fit, None
    middle = _moved_to_middle(fit, bottom)
    reach, is_taken = 0.5 * (bottom.high - bottom.low), fit.problem.takes_middle
    taken = is_taken is not None and is_taken(fit.problem, float(middle.intercept), reach)
    return middle, 0.0 if taken else reach


@dataclass(frozen=True, eq=False)
class Face(Optima):
    """The optima of one output."""

    fit: Fit
    output: tuple[int, ...]
    free: Index  # coordinates that no kink strictly holds at zero
    held: Mask  # rows whose predictor is the same in all
    Z: Array  # (n, f) rows on the free coordinates, and the intercept

    @classmethod
    def of(cls, fit: Fit, *output: int) -> Face:
        own: Any = (slice(None), *output)
        free = np.flatnonzero(_open_columns(fit)[own])
        return cls(fit, output, free, held_rows(fit, own), _rows_on(fit, free))

    @cached_property
    def directions(self) -> Array:
        return null_space(self.Z[self.held])

    @property
    def is_point(self) -> bool:
        """Whether the rows that are held leave no direction."""
        return self.Z.shape[1] == 0 or self.directions.shape[1] == 0

    @property
    def is_of_intercept(self) -> bool:
        columns = self.Z[:, : len(self.free)]
        directions = self.directions[: len(self.free)]
        moved, parts = np.abs(columns @ directions), np.abs(columns) @ np.abs(directions)
        return not np.any(moved.max(axis=1) > SAME * parts.max(axis=1))

    def moves(self, rows: Index) -> Array:
        return self.Z[None, rows]

    def limits(self) -> tuple[Array, Array]:
        A, b = (np.concatenate(both) for both in zip(self.pieces(), self.signs(), strict=True))
        return A, b

    def pieces(self) -> tuple[Array, Array]:
        """Rows that stay on their pieces, A d ≤ b."""
        fit, room = self.fit, ~self.held & (self.fit.problem.weights > 0)
        if not room.any():
            return np.empty((0, self.Z.shape[1])), np.empty(0)
        low, high = self._ends()
        below, above = room & np.isfinite(low), room & np.isfinite(high)
        left = np.concatenate([(fit.eta - low)[below], (high - fit.eta)[above]])
        return np.vstack([-self.Z[below], self.Z[above]]), np.maximum(left, 0.0)

    def _ends(self) -> tuple[Array, Array]:
        """Ends of the straight piece that each row is on, or at the end of: (n,) each."""
        fit, loss = self.fit, self.fit.problem.loss
        if isinstance(loss, PiecewiseLinear):
            return ends_of_pieces(fit)
        own: Any = (slice(None), *self.output)
        eta, open_end = fit.eta[own], np.full(fit.problem.n, np.inf)
        if not isinstance(loss, PiecewiseLoss):
            return -open_end, open_end
        below, _, above = np.moveaxis(around(fit)[own], -1, 0)
        inside = np.where(bends(fit)[own][:, 0], above, below)
        low, high = loss.interval(fit.problem.y[own], inside)
        return np.minimum(low, eta), np.maximum(high, eta)

    def signs(self) -> tuple[Array, Array]:
        """Coordinates that keep their sign, A d ≤ b: those with a kink."""
        fit = self.fit
        own: Any = (self.free, *self.output)
        kinked = np.flatnonzero(fit.strengths[0][own] > 0)
        side = -np.sign(fit.loss_gradient[own][kinked])
        A = np.zeros((len(kinked), self.Z.shape[1]))
        A[np.arange(len(kinked)), kinked] = -side
        return A, np.maximum(side * fit.coef[own][kinked], 0.0)


def _rows_on(fit: Fit, free: Index) -> Array:
    """Rows on some coefficients, and the intercept if there is one: (n, f)."""
    Z = _linalg.as_columns(_linalg.active_columns(fit.problem.X, free)).dense()
    return np.hstack([Z, np.ones((len(Z), int(np.any(fit.problem.intercept))))])


def _of_program(fit: Fit) -> ProgramFace:
    """The optima beside a polyhedral penalty that is no sum over coefficients."""
    everything = np.arange(len(fit.coef))
    face = Face(fit, (), everything, held_rows(fit), _rows_on(fit, everything))
    return ProgramFace.of(fit, face.held, face.pieces())


@dataclass(frozen=True, eq=False)
class Together(Optima):
    """The optima of coupled outputs, which move alike in rows that are held: the loss does not feel it."""

    fit: Fit
    faces: Sequence[Face]

    @cached_property
    def directions(self) -> Array:
        apart = self._apart(pairwise(range(len(self.faces))), self.faces[0].held)
        return null_space(apart.reshape(-1, apart.shape[-1]))

    @property
    def is_point(self) -> bool:
        """Whether no row tells a move of some outputs from that of others.

        Outputs that move alike in the rows that are held do so in every row that depends on those.
        """
        Z = _rows_on(self.fit, np.unique(np.concatenate([face.free for face in self.faces])))
        apart = null_space(Z[self.faces[0].held])
        moved, parts = np.abs(Z @ apart), np.abs(Z) @ np.abs(apart)
        if not np.any(moved.max(axis=1, initial=0.0) > SAME * parts.max(axis=1, initial=0.0)):
            return True
        return self.directions.shape[1] <= int(np.all(self.fit.problem.intercept))

    def _apart(self, pairs: Iterable[tuple[int, int]], rows: Index | Mask) -> Array:
        """Differences of pairs of outputs on the coordinates of all: (pairs, r, f)."""
        ends = np.cumsum([0, *(face.Z.shape[1] for face in self.faces)])
        found = list[Array]()
        for pair in pairs:
            own = np.zeros((len(self.faces[0].Z[rows]), ends[-1]))
            for k, sign in zip(pair, (1.0, -1.0), strict=True):
                own[:, ends[k] : ends[k + 1]] = sign * self.faces[k].Z[rows]
            found.append(own)
        return np.array(found)

    def moves(self, rows: Index) -> Array:
        return self._apart(combinations(range(len(self.faces)), 2), rows)

    def limits(self) -> tuple[Array, Array]:
        A, b = zip(*(face.signs() for face in self.faces), strict=True)
        return scipy.linalg.block_diag(*A), np.concatenate(b)


def is_determined(fit: Fit) -> bool:
    """Whether a fit is the only optimum, by what holds it strictly; for its intercept ``room_of_intercept``.

    Where the loss curves this is asked of columns on their bound alone: what is inside is seen by K.
    """
    return not open_faces(fit) and is_held(fit)


def open_faces(fit: Fit, *, is_definite: bool = True) -> list[Optima]:
    """The optima of each output that has several, or of all where they are coupled.

    Where K is not definite, columns inside depend on each other, as two dummies do without the rows that have
    neither.
    """
    faces = _faces(fit, (is_definite and not _may_be_straight(fit)) or starts_from_zero(fit))
    optima: list[Any] = [Together(fit, faces)] if faces and fit.problem.is_coupled else faces
    return [one for one in optima if not one.is_point]


def reach_of_optima(fit: Fit, rows: Index, faces: Sequence[Optima] | None = None) -> Array:
    """How far the predictors of some rows are off in other optima of a fit: (r,), infinite if without end."""
    faces = open_faces(fit) if faces is None else faces
    return np.sum([np.zeros(len(rows)), *(face.reach(rows) for face in faces)], axis=0)


def _faces(fit: Fit, is_definite: bool) -> list[Any]:
    """The optima of each output, where there may be several."""
    if _is_of_program(fit) and (is_straight(fit) or _has_straight_pieces(fit)):
        return [_of_program(fit)]
    curves = _is_of_program(fit) and not fit.problem.loss.has_kinks
    if curves and not (is_definite and _is_strict(fit)):
        penalty: Any = fit.problem.penalty.without_ridge()
        many = len(penalty.thresholds(fit.coef)) > 0  # rows, by the square of the columns
        return [StraightFace.of(fit) if many else _of_program(fit)]
    if is_straight(fit):
        return [Face.of(fit)]
    if isinstance(fit.problem.loss, PiecewiseLinear) or not _has_patterns(fit):
        return straight_faces(fit)
    tied = _open_columns(fit)
    if is_definite:
        tied &= fit.coef == 0
        tied &= may_be_tied(fit) if tied.any() else False
    outputs = tied.any(axis=0) | (
        fit.problem.intercept & (not is_definite and not fit.problem.loss.has_kinks)
    )
    outputs = np.full_like(outputs, outputs.any()) if fit.problem.is_coupled else outputs
    return [Face.of(fit, *output) for output in np.argwhere(outputs).tolist()]


def _is_strict(fit: Fit) -> bool:
    """Whether kinks hold by more than rounding what is not free."""
    free = fit.free_gradient  # what solvers leave of it
    gradient = (fit.loss_gradient - free)[:, None]
    size = sizes_at(fit, gradient)
    return bool(holds_strictly(fit, fit.coef[:, None], gradient, size)[0])


def starts_from_zero(fit: Fit) -> bool:
    """Whether solvers start from zero and end at the smallest optimum: where a direction has no penalty.

    Bounds stop them elsewhere, and so do rows on straight pieces, of which any place is as good.
    """
    if not fit.has_free_directions or _is_of_program(fit):
        return False
    may_move = _has_straight_pieces(fit) and not fit.problem.is_coupled
    return not may_move or bool(bends(fit)[fit.problem.weights > 0].all())


def _has_patterns(fit: Fit) -> bool:
    """Whether columns may be on the bound of an ℓ1 part, or rows on straight pieces."""
    separable = isinstance(fit.problem.penalty, SeparablePenalty) and _linalg.has_columns(fit.problem.X)
    return separable and (fit.is_kinked or _has_straight_pieces(fit))


def _has_straight_pieces(fit: Fit) -> bool:
    """Whether rows may move along straight pieces; kinks of a mixture hold rows, which is not known here."""
    return fit.problem.loss.jumps and not fit.problem.loss.has_kinks


def _may_be_straight(fit: Fit) -> bool:
    """Whether some row is where its curve ends, so that the curvature depends on the side."""
    if not _has_straight_pieces(fit):
        return False
    curved = bends(fit)[fit.problem.weights > 0]
    return bool(np.any(curved.any(axis=-1) & ~curved.all(axis=-1)))


def _open_columns(fit: Fit) -> Mask:
    """Coefficients that no kink strictly holds, and nothing curves: of their shape."""
    l1, l2 = fit.strengths
    straight = (l2 == 0) & np.isfinite(l1)
    found = np.zeros(straight.shape, dtype=bool)
    found[straight] = not_held(fit.coef[straight], fit.loss_gradient[straight], l1[straight])
    return found


def not_held(coef: Array, gradient: Array, l1: Array) -> Mask:
    """Coefficients that no kink strictly holds at zero, by the gradient of all but their ℓ1 part."""
    pull, inside = np.abs(gradient), (coef != 0) & (l1 > 0)
    off = np.max(np.abs(pull[inside] / l1[inside] - 1.0), initial=0.0)  # what solvers leave of those inside
    return np.asarray((coef != 0) | (pull >= (1.0 - ON_BOUND - 2.0 * off) * l1))


def is_straight(fit: Fit) -> bool:
    """Whether nothing curves some coefficient: a loss of straight pieces, and no ℓ2 part."""
    problem = fit.problem
    known = isinstance(problem.penalty, SeparablePenalty) or _is_of_program(fit)
    if not isinstance(problem.loss, PiecewiseLinear) or not known:
        return False
    return problem.has_one_output and bool(np.any(penalty_ridge(fit) == 0))


def _is_of_program(fit: Fit) -> bool:
    """Whether the penalty is polyhedral, and no sum over coefficients with a kink at zero each."""
    problem = fit.problem
    polyhedral = isinstance(problem.penalty.without_ridge(), Polyhedral)
    known = polyhedral and not isinstance(problem.penalty, SeparablePenalty)
    return known and problem.has_one_output and _linalg.has_columns(problem.X)
