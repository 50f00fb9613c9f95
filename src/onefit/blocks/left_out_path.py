"""The second pass: left-out losses of all strengths of a squared-loss path, a block of rows at a time.

At every strength the left-out residual of a row is (Golub, Heath and Wahba 1979, with what a refit on fewer
rows takes off a penalty that goes with their weight)

    (y − ȳ − zᵀβ − w/W zᵀq) / (1 − w h),      z = x − x̄,   h = zᵀK⁻¹z + 1/W,   q = K⁻¹ ∇P(β),

exactly, as long as the signs of the coefficients stay.  Leverages are sums of squares along directions,
h = Σ_m C_mj (zᵀt_m)² + 1/W, of which one product serves many strengths: eigenvectors for ridge, what joined
and left the support for the lasso.

Risks, their errors and the choice follow from sums, without a loss being kept.  Losses are summed as
differences d to those of one strength, l⁰: what strengths are told apart by is small beside the losses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np

from onefit._linalg import product
from onefit._typing import Array, Index, Mask
from onefit.blocks.loss_sums import LossSums
from onefit.blocks.patterns import Patterns
from onefit.blocks.rows import Block, centred_columns
from onefit.leave_out.step import FULL_LEVERAGE
from onefit.numerics import LITTLE_SLACK


class Directions(NamedTuple):
    """Leverages of neighbouring strengths, as sums of squares.

    Attributes
    ----------
    strengths : slice
    directions : (p, m) array
        T.
    shares : (m, J) array
        C, of either sign.
    """

    strengths: slice
    directions: Array
    shares: Array


class SolvedAnew(NamedTuple):
    """Strengths (s,) at which rows whose pattern changes are solved anew: all, or those with little slack.

    Whose losses are refits' then, unless only nearly so: ``is_exact``.
    """

    strengths: Index
    patterns: Patterns
    are_all: bool
    is_exact: bool = True


class KnownRefits(NamedTuple):
    """Refits without each row at one strength: left-out residuals and 1 − w h, (n,) each, or (n, t)."""

    residuals: Array
    slack: Array


class JudgedLosses(NamedTuple):
    """Losses of a piece of rows at a strength, (b,), differences to them, (J, b), and what is known of these.

    As ``LossSums.of`` takes them.
    """

    at_reference: Array
    differences: Array
    exact: Mask
    doubtful: Array


@dataclass(eq=False)
class JudgedRows:
    """A piece of rows, and what passes have found out about it.

    Attributes
    ----------
    part : Block
    kind : type or None
        Precision of the formula; None where no pass has come by.
    by_formula, slack : (J, b) arrays
        Left-out residuals as if no sign changed, and 1 − w h.
    residuals : (J, b) array
    strained : (J, b) bool array
        Where a formula may take a loss for far too much.
    exact : (J,) bool array
        Strengths at which every residual is that of a refit.
    rounds : int
        How many of the path's ``exactly`` the residuals include.
    """

    part: Block
    kind: type[np.floating[Any]] | None = None
    rounds: int = 0
    by_formula: Array = field(init=False)
    slack: Array = field(init=False)
    residuals: Array = field(init=False)
    strained: Mask = field(init=False)
    exact: Mask = field(init=False)

    def begin(self, by_formula: Array, slack: Array, *, smooth: bool) -> None:
        """Take what the formula says, which no pattern changes of a ``smooth`` path."""
        self.by_formula = self.residuals = by_formula
        self.slack, self.rounds = slack, 0
        self.strained = slack < (-1.0 if smooth else LITTLE_SLACK)
        self.exact = np.full(len(slack), smooth and by_formula.dtype == np.float64)

    def refits(self, at: int) -> KnownRefits | None:
        """Those without each row at a strength, where all of them are known."""
        return KnownRefits(self.residuals[at], self.slack[at]) if self.rounds and self.exact[at] else None

    def losses(self, reference: int) -> JudgedLosses:
        """The losses, as differences to those at a strength."""
        losses = np.square(self.residuals)
        doubtful = _sums_of_some(losses, self.strained, self.part.weights)
        at_reference = self.residuals[reference].astype(np.float64) ** 2
        losses -= losses[reference].copy()
        return JudgedLosses(at_reference, losses, self.exact.copy(), doubtful)


@dataclass(frozen=True, eq=False)
class LeftOutPath:
    """What it takes to judge rows at every strength.

    Attributes
    ----------
    means : (p,) array
    y_mean : float
        Both zero without an intercept.
    base : float
        Leverage of the intercept, 1/W, or 0.
    coefs : (p, J) array
        β.
    drifts : (p, J) array
        q/W, zero where a refit keeps the penalty.
    leverages : tuple of Directions
    reference : int
        Strength that losses are compared with.
    weight : float or None
        That of every row, if they are equal.
    single : bool
        Whether differences between strengths are computed in single precision.
    guessed_risks : (J,) array
        By generalised cross-validation.
    exactly : tuple of SolvedAnew
        Strengths at which rows whose pattern changes are solved anew; of one that comes twice, the last.
    is_smooth : bool
        Whether no pattern can change.
    """

    means: Array
    y_mean: float
    base: float
    coefs: Array
    drifts: Array
    leverages: tuple[Directions, ...]
    reference: int
    weight: float | None
    single: bool
    guessed_risks: Array
    exactly: tuple[SolvedAnew, ...] = ()
    is_smooth: bool = False

    @property
    def intercepts(self) -> Array:
        """Intercept of each strength: (J,)."""
        return self.y_mean - self.means @ self.coefs

    def judge(self, block: Block) -> LossSums:
        """Sum the left-out losses of the rows of a block of any size."""
        return reduce(add, (self.judge_further(self.judged(part)) for part in block.parts()))

    def judged(self, part: Block) -> JudgedRows:
        """What is known of a piece of rows before a pass."""
        return JudgedRows(part)

    def judge_further(self, known: JudgedRows) -> LossSums:
        """Sum the left-out losses of some rows, and take down what has come to be known of them."""
        losses, differences, exact, doubtful = self.losses(known)
        return LossSums.of(losses, differences, known.part.weights, exact, doubtful)

    def losses(self, known: JudgedRows) -> JudgedLosses:
        """Left-out losses of some rows, which are told what has come to be known of them."""
        if known.kind is not self._kind:
            known.begin(*self.left_out_residuals(known.part), smooth=self.is_smooth)
            known.kind = self._kind
        if len(self.exactly) > known.rounds:
            self._solve_anew(known)
        return known.losses(self.reference)

    def _solve_anew(self, known: JudgedRows) -> None:
        """Solve rows at strengths at which they have not been."""
        part = known.part
        Z, y = centred_columns(part.X, self.means, slice(None)), part.y - self.y_mean
        weights = part.row_weights
        if known.residuals is known.by_formula:
            known.residuals = known.by_formula.copy()
        for at, patterns, are_all, is_exact in self.exactly[known.rounds :]:
            rows = np.flatnonzero(are_all | known.strained[at].any(axis=0))
            own = np.ix_(at, rows)
            found = patterns.left_out(
                Z[:, rows], y[rows], weights[rows], known.by_formula[own], known.slack[own]
            )
            known.residuals[own], known.strained[at] = found.residuals, False
            known.exact[at] = are_all & is_exact & found.solved.all(axis=1)
        known.rounds = len(self.exactly)

    def anew(self, exactly: list[SolvedAnew]) -> LeftOutPath:
        """Return the path that solves rows anew at more strengths."""
        return replace(self, exactly=(*self.exactly, *exactly), single=self.single and not exactly)

    def left_out_residuals(self, part: Block) -> tuple[Array, Array]:
        """Left-out residuals y − η̃ of a piece in the cache, as if no sign changed, and 1 − w h: (J, b)."""
        Z = centred_columns(part.X, self.means, self._order)
        beta, drift = self.coefs[self._order, self.reference], self.drifts[self._order, self.reference]
        weights = part.row_weights
        own = part.y - self.y_mean - beta @ Z - weights * (drift @ Z)
        Z, weights = Z.astype(self._kind, copy=False), weights.astype(self._kind, copy=False)
        apart = self._apart(Z, weights)
        np.subtract(own.astype(self._kind), apart, out=apart)
        slack = self._slack(Z, weights)
        return np.divide(apart, np.maximum(slack, FULL_LEVERAGE), out=apart), slack

    @property
    def _kind(self) -> type[np.floating[Any]]:
        return np.float32 if self.single else np.float64

    @cached_property
    def _order(self) -> Index:
        """Columns that are ever active, in the order in which they turn up."""
        first = (self.coefs != 0).argmax(axis=1)
        ever = np.flatnonzero((self.coefs != 0).any(axis=1))
        return ever[np.argsort(first[ever], kind="stable")]

    @cached_property
    def _parts(self) -> list[Directions]:
        """Directions on the columns in their order, as far as they reach."""
        found = []
        for strengths, directions, shares in self.leverages:
            own = directions[self._order]
            reach = int(np.flatnonzero(own.any(axis=1)).max(initial=-1)) + 1
            found.append(Directions(strengths, own[:reach].astype(self._kind), shares.astype(self._kind)))
        return found

    @cached_property
    def _steps(self) -> tuple[Array, Array | None]:
        """Coefficients less those at the reference, and what refits take off if rows differ in it."""
        apart, drifts = (one - one[:, [self.reference]] for one in (self.coefs, self.drifts))
        if self.weight is not None:
            return (apart + self.weight * drifts)[self._order].astype(self._kind), None
        return apart[self._order].astype(self._kind), drifts[self._order].astype(
            self._kind
        ) if drifts.any() else None

    def _apart(self, Z: Array, weights: Array) -> Array:
        """Linear predictors less those at the reference, with what a refit takes off: (J, b)."""
        coefs, drifts = self._steps
        found = product(Z.T, coefs).T
        if drifts is not None:
            found += product(Z.T, drifts).T * weights
        return found

    def _slack(self, Z: Array, weights: Array) -> Array:
        """1 − w h: (J, b)."""
        slack = np.empty((self.coefs.shape[1], Z.shape[1]), dtype=Z.dtype)
        for strengths, directions, shares in self._parts:
            along = product(Z[: len(directions)].T, directions)
            forms = product(np.square(along, out=along), shares).T
            forms += Z.dtype.type(self.base)
            if self.weight != 1.0:
                forms *= weights
            np.subtract(1.0, forms, out=slack[strengths])
        return slack


def joined(paths: Sequence[LeftOutPath]) -> LeftOutPath:
    """Several paths on the same rows, to be judged in one pass."""
    if len(paths) == 1:
        return paths[0]
    first, leverages, start = paths[0], list[Directions](), 0
    for path in paths:
        for strengths, directions, shares in path.leverages:
            own = slice(strengths.start + start, strengths.stop + start)
            leverages.append(Directions(own, directions, shares))
        start += path.coefs.shape[1]
    guessed = np.concatenate([path.guessed_risks for path in paths])
    return replace(
        first,
        coefs=np.hstack([path.coefs for path in paths]),
        drifts=np.hstack([path.drifts for path in paths]),
        leverages=tuple(leverages),
        reference=int(guessed.argmin()),
        single=all(path.single for path in paths),
        guessed_risks=guessed,
    )


def _sums_of_some(losses: Array, which: Mask, weights: Array | None) -> Array:
    """Σ w l over some of the rows, of losses (J, b): (J,)."""
    found = np.zeros(len(losses))
    if which.any():
        some = np.where(which, losses, 0.0)
        found += some.sum(axis=1) if weights is None else some @ weights
    return found
