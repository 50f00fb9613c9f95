"""One Newton step for every row that leaves, at all strengths of a block at once.

With the weighted Gram matrix K of a strength, summed in an earlier pass, the leverage h of a row needs
nothing but the row, and so do the left-out predictor

    η̃_i = η_i + (h_i g_i + s_i) / (1 − d_i h_i)

(``leave_out.step``, of which these are the formulas for rows that are not held together).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from typing import Any, NamedTuple, Self, final

import numpy as np

from onefit._linalg import Factorization, product, times_upper
from onefit._typing import Array, Index
from onefit.blocks.loss_sums import LossSums
from onefit.blocks.models import Knots, Models, Points, Quadratic, pieces
from onefit.blocks.newton import SolvedStrengths
from onefit.blocks.rows import Block, Summary
from onefit.blocks.sums import RowSums
from onefit.leave_out.step import FULL_LEVERAGE
from onefit.penalties import SeparablePenalty
from onefit.tuning.judgement import LEAST_TOLD

DEPENDENT = 1e11  # condition up to which columns are told from their like


@final
@dataclass(frozen=True)
class StepJudge:
    """What judges the rows at one strength.

    Attributes
    ----------
    support : (k,) int array
        Columns whose coefficients may move.
    means : (k,) array
        What is taken off them.
    root : (k, k) array
        W with W Wᵀ = K⁻¹, in the precision that products with rows are to have.
    triangular : bool
        Whether it is: upper, in C order.
    level : float
        Leverage of the intercept, 1/Σd, or 0.
    shift, shift_level : (k,) array and float
        K⁻¹ times the gradient of the penalty, of which a share leaves with a row; zero where none does.
    square : float
        Squared length of that in K.
    shrink : float
        Factor on the penalty's curvature in K.
    curved : bool
        Whether the penalty has curvature.
    condition : float
        Of K; that at which columns cannot be told from their like where it has no factor.
    """

    support: Index
    means: Array
    root: Array
    triangular: bool
    level: float
    shift: Array
    shift_level: float
    square: float
    shrink: float
    curved: bool
    condition: float

    @classmethod
    def of(
        cls, found: Quadratic, coef: Array, penalty: SeparablePenalty, models: Models, count: int, kind: Any
    ) -> Self:
        """Factor K of the refits without a row, for products with rows in the precision of ``kind``."""
        mean_scaled = models.mean_scaled
        tangent = penalty.tangent(coef)
        support = np.flatnonzero(tangent.support)
        curvature = np.asarray(tangent.hessian)[support]
        is_curved = bool(np.any(penalty.strengths(coef.shape)[1]))  # of columns that may enter, too
        shrink = 1.0 - 1.0 / count if mean_scaled and is_curved else 1.0
        K = found.gram[np.ix_(support, support)] + np.diag(shrink * curvature)
        factored = Factorization.of(K)
        root = factored.inverse_root
        gradient = np.asarray(tangent.gradient)[support] * mean_scaled
        shift, means = root @ (root.T @ gradient), found.means[support]
        return cls(
            support,
            means,
            np.ascontiguousarray(root, dtype=kind),
            factored.is_definite,
            1.0 / found.mass,
            shift,
            float(-means @ shift) if np.isfinite(found.mass) else 0.0,
            float(gradient @ shift),
            shrink,
            is_curved,
            factored.condition if factored.is_definite else DEPENDENT,
        )

    def _on_support(self, X: Array) -> Array:
        return X if len(self.support) == X.shape[1] else X[:, self.support]

    def changes(self, X: Array, slope: Array, shares: Array) -> Array:
        """Return the coefficients on the support without each of some rows, less those with all: (r, k)."""
        own = self._on_support(X)
        along = product(product(own - self.means, self.root), self.root.T)
        return along * slope[:, None] + np.outer(shares, self.shift)

    def forms(self, X: Array) -> Array:
        """Return h of some rows: (r,)."""
        own = self._on_support(X)
        kind = self.root.dtype
        half = own.astype(kind, order="C", copy=False) - self.means.astype(kind)
        half = times_upper(half, self.root) if self.triangular else product(half, self.root)
        return np.einsum("ij,ij->i", half, half) + self.level


class Left(NamedTuple):
    """Some rows without themselves: (J, r) each at every strength, or (r,) at one."""

    eta: Array  # left-out predictors
    fitted: Array  # with all rows in
    forms: Array  # h
    hessian: Array  # d
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
    judges : tuple of StepJudge
        With the curvature of the nearest knot.
    knots : Knots
    weight : float
        Σ w of all rows.
    reference : int
        Strength that differences of losses are taken to.
    single : bool
        Whether h is in single precision.
    least : (J,) array
        Losses below which a row is told as right as can be, as ``Judgement.unseen`` takes them.
    """

    models: Models
    points: Points
    judges: tuple[StepJudge, ...]
    knots: Knots
    weight: float
    reference: int
    single: bool
    least: Array

    @classmethod
    def of(
        cls,
        models: Models,
        solved: SolvedStrengths,
        knots: Knots,
        summary: Summary | RowSums,
        *,
        single: bool = False,
    ) -> Self:
        """Factor the curvature of all strengths."""
        kind = np.float32 if single else np.float64
        judges = tuple(
            StepJudge.of(found, coef, penalty, models, summary.count, kind)
            for found, coef, penalty in zip(
                solved.quadratics, solved.points.coefs, models.penalties, strict=True
            )
        )
        losses = np.array([found.value for found in solved.quadratics])  # in the fits
        least = LEAST_TOLD * losses / (summary.weight * summary.count)
        return cls(models, solved.points, judges, knots, summary.weight, len(judges) // 2, single, least)

    def forms(self, X: Array) -> Array:
        """H of some rows at every strength: (J, r)."""
        own = X.astype(np.float32) if self.single else X
        at_knots = np.stack([self.judges[j].forms(own) for j in self.knots.at]).astype(np.float64)
        return at_knots if len(self.knots.at) == len(self.judges) else product(self.knots.shares, at_knots)

    def shifts(self, X: Array) -> Array:
        """S of a whole weight that leaves, for some rows at every strength: (J, r)."""
        if not self._shifts.any():
            return np.zeros((len(self.judges), len(X)))
        levels = np.array([judge.shift_level for judge in self.judges])
        return product(X, self._shifts.T).T + levels[:, None]

    @cached_property
    def _shifts(self) -> Array:
        """Of the coefficients: (J, p)."""
        found = np.zeros(self.points.coefs.shape)
        for own, judge in zip(found, self.judges, strict=True):
            own[judge.support] = judge.shift
        return found

    def leave(self, X: Array, y: Array, weights: Array) -> Left:
        """Take each of some rows out at every strength."""
        loss, fitted = self.models.loss, self.points.predictors(X)
        g, d = weights * loss.gradient(y, fitted), weights * loss.hessian(y, fitted)
        h, s = self.forms(X), self.shifts(X) * (weights / self.weight)
        leverages = d * h
        eta = fitted + (h * g + s) / np.maximum(1.0 - leverages, FULL_LEVERAGE)
        return Left(eta, fitted, h, d, leverages, g, s)

    def judge(self, block: Block) -> LossSums:
        """Sum the left-out losses of a block at all strengths."""
        metric, sums = self.models.metric, []
        for X, y, weights in pieces(block, metric, self.points.centre):
            left = self.leave(X, y, weights)
            losses = np.where(weights > 0, [metric.losses(y, eta) for eta in left.eta], 0.0)
            own = losses[self.reference].copy()
            given = None if block.weights is None else weights
            other = metric.contradicted(np.maximum(losses, self.least[:, None]))
            sums.append(LossSums.of(own, losses - own, given, contradicted=other))
        return reduce(add, sums)
