"""One Newton step for every row that leaves, at all strengths of a block at once.

With the weighted Gram matrix K of a strength, summed in an earlier pass, the leverage h of a row needs
nothing but the row, and so do the left-out predictor

    η̃_i = η_i + (h_i g_i + s_i) / (1 − d_i h_i)

and how far it may be off (``leave_out.step`` and ``leave_out.prove``, of which these are the formulas for
rows that are not held together).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import NamedTuple, Protocol, Self, final

import numpy as np

from onefit._linalg import cholesky, product, pseudo_factor
from onefit._typing import Array, Index
from onefit.blocks.chosen import RowValues
from onefit.blocks.losses import LossSums
from onefit.blocks.newton import Models, Points, Quadratic, Solved, pieces
from onefit.blocks.pattern import Checked, Pattern
from onefit.blocks.rows import Block
from onefit.leave_out.prove import bent, radius
from onefit.leave_out.rescaling import Spread
from onefit.leave_out.step import FULL_LEVERAGE
from onefit.numerics import LARGEST_EXPONENT, LEAST_SLACK, TINY
from onefit.penalties import SeparablePenalty


@final
@dataclass(frozen=True)
class Judge:
    """What judges the rows at one strength.

    Attributes
    ----------
    support : (k,) int array
        Columns whose coefficients may move.
    means : (k,) array
        What is taken off them.
    root : (k, k) array
        W with W Wᵀ = K⁻¹.
    level : float
        Leverage of the intercept, 1/Σd, or 0.
    shift, shift_level : (k,) array and float
        K⁻¹ times the gradient of the penalty, of which a share leaves with a row; zero where none does.
    square : float
        Squared length of that in K.
    shrink : float
        Factor on the penalty's curvature in K.
    curved, kinked : bool
        Whether the penalty has curvature, and kinks.
    """

    support: Index
    means: Array
    root: Array
    level: float
    shift: Array
    shift_level: float
    square: float
    shrink: float
    curved: bool
    kinked: bool

    @classmethod
    def of(
        cls, found: Quadratic, coef: Array, penalty: SeparablePenalty, *, mean_scaled: bool, count: int
    ) -> Self:
        """Factor K of the refits without a row."""
        tangent = penalty.tangent(coef)
        support = np.flatnonzero(tangent.support)
        curvature = np.asarray(tangent.hessian)[support]
        shrink = 1.0 - 1.0 / count if mean_scaled and np.any(curvature) else 1.0
        K = found.gram[np.ix_(support, support)] + np.diag(shrink * curvature)
        factor = cholesky(K)
        root = pseudo_factor(K) if factor is None else np.asarray(np.linalg.inv(factor).T, dtype=np.float64)
        gradient = np.asarray(tangent.gradient)[support] * mean_scaled
        shift, means = root @ (root.T @ gradient), found.means[support]
        return cls(
            support,
            means,
            root,
            1.0 / found.mass,
            shift,
            float(-means @ shift) if np.isfinite(found.mass) else 0.0,
            float(gradient @ shift),
            shrink,
            bool(np.any(curvature)),
            penalty.has_kinks(coef.shape),
        )

    def changes(self, X: Array, slope: Array, shares: Array) -> Array:
        """Return the coefficients on the support without each of some rows, less those with all: (r, k)."""
        own = X if len(self.support) == X.shape[1] else X[:, self.support]
        along = product(product(own - self.means, self.root), self.root.T)
        return along * slope[:, None] + np.outer(shares, self.shift)

    def forms(self, X: Array) -> tuple[Array, Array]:
        """Return h of some rows, and s of a whole weight that leaves: (r,) each."""
        own = X if len(self.support) == X.shape[1] else X[:, self.support]
        half = product(own - self.means, self.root)
        return np.einsum("ij,ij->i", half, half) + self.level, own @ self.shift + self.shift_level


class Totals(Protocol):
    """What is known of all rows, by who summed them first."""

    @property
    def count(self) -> int:
        """Rows with weight."""

    @property
    def weight(self) -> float:
        """Σ w."""


class Left(NamedTuple):
    """Some rows without themselves, at one strength: (r,) each."""

    eta: Array  # left-out predictors
    fitted: Array  # with all rows in
    forms: Array  # h
    leverages: Array  # d h
    gradient: Array  # g
    shift: Array  # s


@final
@dataclass(frozen=True)
class StepPath:
    """J solved strengths, and what judges rows at each by one Newton step.

    Attributes
    ----------
    models : Models
    points : Points
    judges : tuple of Judge
    weight : float
        Σ w of all rows.
    reference : int
        Strength that differences of losses are taken to.
    """

    models: Models
    points: Points
    judges: tuple[Judge, ...]
    weight: float
    reference: int

    @classmethod
    def of(cls, models: Models, solved: Solved, summary: Totals) -> Self:
        """Factor the curvature of all strengths."""
        judges = tuple(
            Judge.of(found, coef, penalty, mean_scaled=models.mean_scaled, count=summary.count)
            for found, coef, penalty in zip(
                solved.quadratics, solved.points.coefs, models.penalties, strict=True
            )
        )
        return cls(models, solved.points, judges, summary.weight, len(judges) // 2)

    def leave(self, X: Array, y: Array, weights: Array, j: int, fitted: Array) -> Left:
        """Take each of some rows out at strength j."""
        loss = self.models.loss
        g, d = weights * loss.gradient(y, fitted), weights * loss.hessian(y, fitted)
        h, s = self.judges[j].forms(X)
        s *= weights / self.weight
        eta = fitted + (h * g + s) / np.maximum(1.0 - d * h, FULL_LEVERAGE)
        return Left(eta, fitted, h, d * h, g, s)

    def judge(self, block: Block) -> Judgement:
        """Sum the left-out losses of a block at all strengths."""
        metric, rows, sums = self.models.metric, 0, []
        widest = np.zeros(len(self.judges))
        for X, y, weights in pieces(block, metric, self.points.centre):
            fitted, strained = self.points.predictors(X), 0
            losses = np.empty((len(self.judges), len(X)))
            for j in range(len(losses)):
                left = self.leave(X, y, weights, j, fitted[:, j])
                losses[j] = np.where(weights > 0, metric.losses(y, left.eta), 0.0)
                widest[j] = np.where(weights > 0, left.forms, 0.0).max(initial=widest[j])
                strained += int(np.count_nonzero(1.0 - left.leverages < LEAST_SLACK))
            own = losses[self.reference].copy()
            sums.append(LossSums.of(self.reference, own, losses - own, weights, strained))
            rows += len(X)
        return Judgement(rows, reduce(add, sums), widest)

    def at(self, j: int, widest: float, found: Quadratic) -> ChosenStep:
        """What tells single rows apart at one strength; ``widest`` is the largest h."""
        which, judge = np.array([j]), self.judges[j]
        models, points = self.models.some(which), self.points.some(which)
        path = StepPath(models, points, (judge,), self.weight, 0)
        l1, l2 = models.penalties[0].strengths(points.coefs[0].shape)
        pattern = Pattern.of(found, points.coefs[0], l1, judge.shrink * l2) if np.any(l1) else None
        return ChosenStep(path, widest, pattern)


@final
@dataclass(frozen=True)
class Judgement:
    """Sums of a pass that judges J strengths.

    Attributes
    ----------
    rows : int
    losses : LossSums
    widest : (J,) array
        Largest squared length of a row in K⁻¹; zero where nothing depends on it.
    """

    rows: int
    losses: LossSums
    widest: Array

    def __add__(self, other: Judgement) -> Judgement:
        return Judgement(
            self.rows + other.rows,
            self.losses + other.losses,
            np.maximum(self.widest, other.widest),
        )


@final
@dataclass(frozen=True)
class Largest:
    """The largest of some numbers; a sum of two is the larger one."""

    value: float

    def __add__(self, other: Largest) -> Largest:
        return Largest(max(self.value, other.value))


@final
@dataclass(frozen=True)
class ChosenStep:
    """One strength, at which rows are told apart.

    Attributes
    ----------
    path : StepPath
        Of this strength alone.
    widest : float
        Largest h of all rows.
    pattern : Pattern or None
        Where the penalty has kinks.
    """

    path: StepPath
    widest: float
    pattern: Pattern | None

    def widest_over_all(self, block: Block) -> Largest:
        """Largest squared length of a row over all columns, also those that are not on the support."""
        assert self.pattern is not None
        parts = pieces(block, self.path.models.metric, self.path.points.centre)
        return Largest(max(float(self.pattern.widest(X)[w > 0].max(initial=0.0)) for X, _, w in parts))

    def left_out(self, block: Block) -> RowValues:
        """Left-out values of the rows of a block, and how far they may be off."""
        metric, points = self.path.models.metric, self.path.points
        parts = []
        for X, y, weights in pieces(block, metric, points.centre):
            left = self.path.leave(X, y, weights, 0, points.predictors(X)[:, 0])
            held, bounds = weights > 0, self._bounds(X, left, weights)
            parts.append(
                RowValues(
                    left.fitted,
                    np.where(held, left.eta, left.fitted),
                    np.clip(left.leverages, 0.0, 1.0),
                    1.0 - left.leverages,
                    np.where(held, bounds, 0.0),
                )
            )
        return RowValues.joined(parts)

    def _bounds(self, X: Array, left: Left, weights: Array) -> Array:
        """As ``leave_out.prove.bound_steps``; infinite where nothing is known."""
        R, judge = self.path.models.loss.self_concordance(), self.path.judges[0]
        if R is None or self.path.models.loss.jumps:
            return np.full(len(left.eta), np.inf)
        shares = weights / self.path.weight * self.path.models.mean_scaled
        change, hessian = left.eta - left.fitted, left.leverages / np.maximum(left.forms, TINY)
        slope = left.gradient + hessian * change
        norm = np.sqrt(
            np.maximum(left.gradient * change + left.shift * slope + shares**2 * judge.square, 0.0)
        )
        kept = (1.0 - shares) / judge.shrink if judge.curved else np.ones_like(shares)
        spread = Spread(np.minimum(kept, 1.0), np.maximum(kept, 1.0))
        if self.pattern is None:
            nothing = np.zeros_like(norm)
            checked = Checked(left.forms, nothing, nothing, nothing)
        else:
            own = judge.changes(X, slope, shares)
            checked = self.pattern.check(X, own, slope, hessian, shares)
        slack = 1.0 - hessian * checked.forms
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            widest = np.sqrt(self.widest / slack)
            length = norm + checked.moved
            bend = bent(np.minimum(R * widest * length, LARGEST_EXPONENT))
            residual = checked.residual + (bend * spread.high + spread.off) * length
            within = radius(R, residual, widest * length, widest, spread.low)
            found = checked.off + np.sqrt(checked.forms / slack) * within
        return np.where((slack >= LEAST_SLACK) & np.isfinite(found), found, np.inf)
