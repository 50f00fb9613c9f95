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

from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np

from onefit._linalg import add_gram, mirrored, product
from onefit._typing import Array, Index, Mask
from onefit.blocks.patterns import Patterns
from onefit.blocks.rows import Block, centred_columns
from onefit.leave_out.step import FULL_LEVERAGE
from onefit.tuning.contest import Contest, within_reach
from onefit.tuning.selection import Selection, roots_of, smallest


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
    exactly : tuple of (index, Patterns)
        Strengths at which rows whose pattern changes are solved anew.
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
    exactly: tuple[tuple[Index, Patterns], ...] = ()
    is_smooth: bool = False

    @property
    def intercepts(self) -> Array:
        """Intercept of each strength: (J,)."""
        return self.y_mean - self.means @ self.coefs

    def judge(self, block: Block) -> LossSums:
        """Sum the left-out losses of the rows of a block of any size."""
        return reduce(add, map(self._judge, block.parts()))

    def _judge(self, part: Block) -> LossSums:
        residuals, slack = self.left_out_residuals(part)
        exact = np.full(self.coefs.shape[1], self.is_smooth and not self.single)
        if self.exactly:
            Z, y = centred_columns(part.X, self.means, slice(None)), part.y - self.y_mean
            weights = np.ones(len(y)) if part.weights is None else part.weights
            for at, patterns in self.exactly:
                found = patterns.left_out(Z, y, weights, residuals[at], slack[at])
                residuals[at], exact[at] = found.residuals, found.solved.all(axis=1)
        at_reference = residuals[self.reference].astype(np.float64)
        losses = np.square(residuals, out=residuals)
        losses -= losses[self.reference].copy()
        return LossSums.of(at_reference**2, losses, part.weights, exact)

    def left_out_residuals(self, part: Block) -> tuple[Array, Array]:
        """Left-out residuals y − η̃ of a piece in the cache, as if no sign changed, and 1 − w h: (J, b)."""
        Z = centred_columns(part.X, self.means, self._order)
        beta, drift = self.coefs[self._order, self.reference], self.drifts[self._order, self.reference]
        weights = np.ones(len(part.y)) if part.weights is None else part.weights
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


def joined(paths: list[LeftOutPath]) -> LeftOutPath:
    """Several paths on the same rows, to be judged in one pass."""
    if len(paths) == 1:
        return paths[0]
    first, leverages, exactly, start = paths[0], list[Directions](), list[tuple[Index, Patterns]](), 0
    for path in paths:
        for strengths, directions, shares in path.leverages:
            own = slice(strengths.start + start, strengths.stop + start)
            leverages.append(Directions(own, directions, shares))
        exactly += [(at + start, patterns) for at, patterns in path.exactly]
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
        exactly=tuple(exactly),
    )


@dataclass(frozen=True, eq=False)
class LossSums:
    """Sums over rows.

    Attributes
    ----------
    count : int
        Rows with weight.
    weight : float
        Σ w.
    level : (3,) array
        Σ w l⁰, Σ w² l⁰ and Σ w² (l⁰)².
    first, second : (J,) arrays
        Σ w d and Σ w² d.
    mixed : (J,) array
        Σ w² l⁰ d.
    pairs : (J, J) array
        Σ w² d dᵀ.
    square_weight : float
        Σ w².
    exact : (J,) bool array
        Strengths at which every loss is that of a refit.
    """

    count: int
    weight: float
    square_weight: float
    level: Array
    first: Array
    second: Array
    mixed: Array
    pairs: Array
    exact: Mask

    @classmethod
    def of(
        cls,
        losses: Array,
        differences: Array,
        weights: Array | None,
        exact: Mask | None = None,
    ) -> LossSums:
        """Sum over some rows.

        Parameters
        ----------
        losses : (b,) array
            l⁰.
        differences : (J, b) array
        weights : (b,) array or None
        exact : (J,) bool array or None
            None where no loss is known to be that of a refit.
        """
        exact = np.zeros(len(differences), dtype=bool) if exact is None else exact
        differences = np.asarray(differences, dtype=np.float64)  # their covariance must stay definite
        weights = np.ones(len(losses)) if weights is None else weights
        squares = weights**2
        weighted = differences * weights
        moments = differences @ np.stack([weights, squares, squares * losses], axis=1)
        return cls(
            int(np.count_nonzero(weights)),
            float(weights.sum()),
            float(squares.sum()),
            np.array([weights @ losses, squares @ losses, squares @ losses**2]),
            moments[:, 0],
            moments[:, 1],
            moments[:, 2],
            _pairs(weighted),
            exact,
        )

    def __add__(self, other: LossSums) -> LossSums:
        return LossSums(
            self.count + other.count,
            self.weight + other.weight,
            self.square_weight + other.square_weight,
            self.level + other.level,
            self.first + other.first,
            self.second + other.second,
            self.mixed + other.mixed,
            self.pairs + other.pairs,
            self.exact & other.exact,
        )

    @property
    def risks(self) -> Array:
        """Weighted mean loss of each strength: (J,)."""
        return (self.level[0] + self.first) / self.weight

    @property
    def _spread(self) -> float:
        """From Σ w² (l − mean)² to the variance of the weighted mean."""
        n = self.count
        return n / (n - 1) / self.weight**2 if n > 1 else float("nan")

    @property
    def std_errors(self) -> Array:
        """Standard error of each risk: (J,)."""
        means = self.risks
        squares = self.level[2] + 2.0 * self.mixed + self.pairs.diagonal()
        sums = self.level[1] + self.second
        total = squares - 2.0 * means * sums + means**2 * self.square_weight
        return np.sqrt(np.maximum(total, 0.0) * self._spread)

    def covariance(self, best: int) -> Array:
        """Covariance of the errors of the differences to the risk at ``best``: (J, J)."""
        first = self.first - self.first[best]
        second = self.second - self.second[best]
        to_best = self.pairs[best]
        pairs = self.pairs - to_best - to_best[:, None] + to_best[best]
        means = first / self.weight
        cross = np.outer(means, second)
        return (pairs - cross - cross.T + self.square_weight * np.outer(means, means)) * self._spread

    def paired_errors(self, best: int) -> Array:
        """Standard errors of the differences to the risk at ``best``: (J,), 0 there."""
        return np.sqrt(np.maximum(self.covariance(best).diagonal(), 0.0))

    def of_some(self, which: Index) -> LossSums:
        """Return the sums of some strengths."""
        return LossSums(
            self.count,
            self.weight,
            self.square_weight,
            self.level,
            self.first[which],
            self.second[which],
            self.mixed[which],
            self.pairs[np.ix_(which, which)],
            self.exact[which],
        )

    def within_reach(self) -> Index:
        """Strengths within reach of the smallest risk."""
        risks = self.risks
        return np.flatnonzero(within_reach(risks, self.paired_errors(smallest(risks))))

    def contest(self, paths: Index, selection: Selection) -> Contest:
        """Strengths within reach of the smallest risk of their path.

        Parameters
        ----------
        paths : (J,) int array
            Which path a strength belongs to; the first one is number 0.
        selection : "bagged_se", "bagged", "min" or "1se"
        """
        reached, positions = list[Index](), list[Index]()
        for path in np.unique(paths):
            at = np.flatnonzero(paths == path)
            own = self.of_some(at).within_reach()
            reached.append(at[own])
            positions.append(own)
        at = np.concatenate(reached)
        risks = self.risks[at]
        covariance = self.covariance(int(at[smallest(risks)]))[np.ix_(at, at)]
        root = roots_of(covariance[None])[0]
        return Contest(np.concatenate(positions), paths[at], risks, root, self.count, selection)


def _pairs(differences: Array) -> Array:
    """D Dᵀ."""
    J = len(differences)
    return mirrored(add_gram(np.zeros((J, J), order="F"), differences.T))
