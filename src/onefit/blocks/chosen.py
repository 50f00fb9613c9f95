"""Every row at one strength: its left-out prediction, its leverage, and how far the prediction may be off.

One Newton step is the refit as long as the loss is squared and no coefficient changes its sign.  Rows for
which some do are solved anew, of a squared loss (``patterns``); how far others may be off follows from what
the step leaves of the subgradient and from the curvature of the loss (``leave_out.step_bounds``).

The step keeps the signs of the fit.  Coefficients that it takes through zero are put back there, and what
then is left of the smallest subgradient r of the left-out problem bounds the distance to its solution: with A
the Hessian over all columns, less the row's own part, ‖error‖_A ≤ ‖r‖ in A⁻¹, as the penalty is convex.
Where the pattern stays nothing is left, and the step is exact for squared loss.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self, final

import numpy as np

from onefit._linalg import cholesky, product, triangular_inverse
from onefit._typing import Array, Index
from onefit.blocks.anew import DoubtfulRows, SolvedRows, solve_without
from onefit.blocks.left_out_path import KnownRefits
from onefit.blocks.models import Knots, Models, Points, Quadratic, pieces
from onefit.blocks.newton import SolvedStrengths
from onefit.blocks.patterns import Patterns
from onefit.blocks.rows import Block, Largest, Rows
from onefit.blocks.step import Left, StepJudge, StepPath
from onefit.blocks.sums import RowSums
from onefit.leave_out.prove import Widths
from onefit.leave_out.rescaling import Spread
from onefit.leave_out.step_bounds import radius_of_step, where_told
from onefit.losses import Squared
from onefit.metrics import SquaredError
from onefit.numerics import LEAST_SLACK, ON_BOUND, rounding_of_slack
from onefit.penalties import L2, ElasticNet
from onefit.risk.leverages import TOLD


class Checked(NamedTuple):
    """What was found for some rows: (r,) each.

    Attributes
    ----------
    forms
        Squared length of each row in the inverse Hessian over all columns.
    off
        What putting coefficients back to zero does to the row's predictor.
    moved
        Length of that in the Hessian.
    residual
        Norm of the gradient that is left; infinite where there is no bound.
    """

    forms: Array
    off: Array
    moved: Array
    residual: Array


@final
@dataclass(frozen=True)
class Pattern:
    """The support of a fit with an ℓ1 part, and what tells whether it stays.

    Attributes
    ----------
    coef : (p,) array
    l1 : (p,) array
    slope : (p,) array
        Gradient of the loss along the centred columns.
    means : (p,) array
    gram : (p, p) array
        Hessian of the loss, and the ℓ2 part.
    level : float
        1/Σd, or 0.
    nonnegative : bool
        Whether no coefficient goes below zero.
    """

    coef: Array
    l1: Array
    slope: Array
    means: Array
    gram: Array
    level: float
    nonnegative: bool = False

    @classmethod
    def of(cls, found: Quadratic, coef: Array, l1: Array, l2: Array) -> Self:
        """Read it off the second-order model at a fit."""
        gram = found.gram + np.diag(l2)
        return cls(coef, l1, found.slope + l2 * coef, found.means, gram, 1.0 / found.mass)

    @cached_property
    def root(self) -> Array | None:
        """W with W Wᵀ the inverse of the Hessian, where it has one: (p, p)."""
        factor = cholesky(self.gram)
        return None if factor is None else triangular_inverse(factor).T

    def widest(self, X: Array) -> Array:
        """Squared length of each of some rows in the inverse Hessian over all columns: (r,)."""
        if self.root is None:
            return np.full(len(X), np.inf)
        half = product(X - self.means, self.root)
        return np.einsum("ij,ij->i", half, half) + self.level

    def check(self, X: Array, changes: Array, slopes: Array, hessian: Array, shares: Array) -> Checked:
        """Look for changes of the pattern without each of some rows.

        Parameters
        ----------
        X : (r, p) array
        changes : (r, k) array
            Of the coefficients on the support.
        slopes : (r,) array
            The row's own gradient where the step ends.
        hessian, shares : (r,) arrays
            d, and the share of the penalty that leaves with a row.
        """
        if self.root is None:
            nothing = np.full(len(X), np.inf)
            return Checked(np.zeros(len(X)), nothing, nothing, nothing)
        Z = X - self.means
        support = np.flatnonzero(self.coef)
        kept = self.l1 * (1.0 - shares[:, None])
        crossed = np.sign(self.coef[support] + changes) != np.sign(self.coef[support])
        back = np.where(crossed, -(self.coef[support] + changes), 0.0)
        # at the end of the step the gradient on the support balances the penalty, but for what is put back
        along_row = np.einsum("ij,ij->i", Z[:, support], back)
        own = hessian * along_row  # what putting back changes of the row's own gradient, which left with it
        gradient = self.slope + product(changes + back, self.gram[support]) - (slopes + own)[:, None] * Z
        zero = np.ones(gradient.shape, dtype=bool)
        zero[:, support] = crossed
        size = -gradient if self.nonnegative else np.abs(gradient)  # what the kinks have to hold
        excess = np.sign(gradient) * np.maximum(size - kept * (1.0 + ON_BOUND), 0.0)
        put_back = product(back, self.gram[support]) - own[:, None] * Z
        left = np.where(zero, excess, put_back)
        half, along = product(Z, self.root), product(left, self.root)
        forms = np.einsum("ij,ij->i", half, half) + self.level
        slack = np.maximum(1.0 - hessian * forms, 1e-8)
        squares = np.einsum("ij,ij->i", along, along) + self.level * own**2
        squares += hessian * (np.einsum("ij,ij->i", half, along) - self.level * own) ** 2 / slack
        moved = np.einsum("ij,ij->i", product(back, self.gram[np.ix_(support, support)]), back)
        return Checked(forms, np.abs(along_row), np.sqrt(np.maximum(moved, 0.0)), np.sqrt(squares))


class RowValues(NamedTuple):
    """One value a row, (b,) each.

    Attributes
    ----------
    fitted, left_out : arrays
        Linear predictors with the row and without it.
    leverages, slack : arrays
        d h and 1 − d h.
    bounds : array
        How far each left-out predictor may be off; infinite where nothing is known.
    """

    fitted: Array
    left_out: Array
    leverages: Array
    slack: Array
    bounds: Array

    @classmethod
    def of_responses(cls, each: list[RowValues]) -> RowValues:
        """Of several: the mean leverage, and the least slack and the largest bound of all."""
        fitted, left_out, leverages, slack, bounds = (
            np.stack(own, axis=1) for own in zip(*each, strict=True)
        )
        return cls(fitted, left_out, leverages.mean(axis=1), slack.min(axis=1), bounds.max(axis=1))

    @classmethod
    def joined(cls, parts: list[RowValues]) -> RowValues:
        """Put the values of blocks together."""
        return cls(*(np.concatenate(values) for values in zip(*parts, strict=True)))


@final
@dataclass(frozen=True)
class ChosenStrength:
    """One strength, at which rows are told apart.

    Attributes
    ----------
    path : StepPath
        Of this strength alone.
    widest : float
        Largest h of all rows, with the columns that are not on the support.
    pattern : Pattern or None
        Where the penalty has kinks.
    patterns : Patterns or None
        What solves rows whose pattern changes.
    quadratic : Quadratic
        The second-order model at the solution.
    rounding : float
        Relative error of steps.
    anew : SolvedRows or None
        Rows that were solved without themselves.
    """

    path: StepPath
    widest: float
    pattern: Pattern | None
    quadratic: Quadratic
    patterns: Patterns | None = None
    rounding: float = 0.0
    anew: SolvedRows | None = None

    @classmethod
    def of(cls, path: StepPath, found: Quadratic) -> Self:
        """Take the path of one strength; how wide rows are is not known then."""
        judge, (penalty,), coef = path.judges[0], path.models.penalties, path.points.coefs[0]
        l1, l2 = penalty.strengths(coef.shape)
        pattern = Pattern.of(found, coef, l1, judge.shrink * l2) if np.any(l1) else None
        return cls(path, np.inf, pattern, found)

    @classmethod
    def of_squares(
        cls,
        sums: RowSums,
        coef: Array,
        l1: float,
        l2: float,
        *,
        mean_scaled: bool,
        nonnegative: bool = False,
    ) -> Self:
        """A squared-loss fit, which sums over the rows know all of.

        Parameters
        ----------
        sums : RowSums
            About zero for a model without an intercept.
        coef : (p,) array
        l1, l2 : float
            Strengths on the scale of the sum.
        mean_scaled : bool
            Whether a refit without row i keeps the share 1 − w_i/W of the penalty.
        nonnegative : bool, default False
            Whether no coefficient goes below zero.
        """
        penalty = ElasticNet(l1 + l2, l1 / (l1 + l2)) if l1 > 0 else L2(l2)
        models = Models(Squared(), SquaredError(), (penalty,), sums.has_intercept, mean_scaled)
        mass = sums.weight if sums.has_intercept else np.inf
        slope = sums.gram @ coef - sums.cross[:, 0]
        found = Quadratic(0.0, 0.0, mass, np.zeros_like(coef), slope, sums.gram)
        solved = SolvedStrengths(Points(coef[None], sums.y_means, sums.means), (found,))
        path = StepPath.of(models, solved, Knots.all(1), sums)
        judge, patterns = path.judges[0], None
        if l1 > 0 and mean_scaled and (l2 == 0 or sums.has_equal_weights):
            drift, kept = np.zeros((len(coef), 1)), np.array([judge.shrink * l2])
            drift[judge.support, 0] = judge.shift / sums.weight
            own = sums, coef[:, None], drift, np.array([l1]), kept
            patterns = Patterns.of(*own, nonnegative=nonnegative)
        # the curvature is the same everywhere, so that it is all one how wide rows are
        pattern = cls.of(path, found).pattern
        pattern = pattern and replace(pattern, nonnegative=nonnegative)
        return cls(path, 1.0, pattern, found, patterns, rounding_of_slack(judge.condition))

    def widest_of(self, block: Block) -> Largest:
        """Largest squared length of a row of a block."""
        forms = self.path.judges[0].forms if self.pattern is None else self.pattern.widest
        parts = pieces(block, self.path.models.metric, self.path.points.centre)
        return Largest(max(float(forms(X)[w > 0].max(initial=0.0)) for X, _, w in parts))

    def left_out(self, block: Block) -> RowValues:
        """Left-out values of the rows of a block, and how far they may be off."""
        parts = pieces(block, self.path.models.metric, self.path.points.centre)
        return RowValues.joined([self._values(*part) for part in parts])

    def drawn(self, block: Block, losses: Array, sizes: Array, most: int) -> DoubtfulRows:
        """Some of the rows of a block that may be off, with their losses and what these may change."""
        target = self.path.models.metric.target(block.y)
        return DoubtfulRows.of(most, block._replace(y=target), self.path.points.centre, losses, sizes)

    def numbers_anew(self, block: Block) -> Index:
        """Number of each row of a block among those that were solved anew, −1 of others: (b,)."""
        found = np.full(len(block.y), -1)
        if self.anew is not None:
            points = self.path.points
            parts = list(pieces(block, self.path.models.metric, points.centre))
            X, y, weights = (np.concatenate(own) for own in zip(*parts, strict=True))
            rows, own = self.anew.among(X, y, weights, points.predictors(X)[0])
            found[rows] = own
        return found

    @property
    def solves_anew(self) -> bool:
        """Whether rows can be solved without themselves in passes: not where coefficients are nonnegative."""
        return self.pattern is None or not self.pattern.nonnegative

    def solved_anew(self, rows: Rows, some: DoubtfulRows, *, n: int) -> Self:
        """Solve some rows without themselves, in passes over all of them."""
        return replace(self, anew=solve_without(rows, self.path, self.quadratic, some, n=n))

    def of_refits(self, fitted: Array, y: Array, weights: Array, refits: KnownRefits) -> RowValues:
        """Values of rows that were solved without themselves."""
        eta = np.where(weights > 0, y - refits.residuals, fitted)
        slack = np.where(weights > 0, refits.slack, 1.0)  # a row without weight takes nothing with it
        leverages = np.clip(1.0 - slack, 0.0, 1.0)
        return RowValues(fitted, eta, leverages, slack, self._off(eta - fitted, slack))

    def _off(self, moved: Array, slack: Array) -> Array:
        """What rounding leaves of the predictors of rows that moved so far."""
        return self.rounding * np.abs(moved) / np.maximum(slack, LEAST_SLACK)

    def _values(self, X: Array, y: Array, weights: Array) -> RowValues:
        left = Left(*(part[0] for part in self.path.leave(X, y, weights)))
        slack, eta, unsure = 1.0 - left.leverages, left.eta, weights > 0
        if self.patterns is not None:
            by_step = (y - eta)[None], slack[None]
            anew = self.patterns.left_out(X.T, y - self.path.points.levels[0], weights, *by_step)
            eta, unsure = y - anew.residuals[0], unsure & ~anew.solved[0]
        bounds, rows = np.zeros(len(y)), np.flatnonzero(unsure)
        if rows.size:
            bounds[rows] = self._bounds(X[rows], Left(*(part[rows] for part in left)), weights[rows])
        if self.anew is not None:
            rows, own = self.anew.among(X, y, weights, left.fitted)
            eta[rows], bounds[rows] = self.anew.left_out[own], self.anew.bounds[own]
        bounds += self._off(eta - left.fitted, slack)
        return RowValues(
            left.fitted,
            np.where(weights > 0, eta, left.fitted),
            np.clip(left.hessian * self._forms_of_fit(X, left.forms), 0.0, 1.0),
            slack,
            np.where(weights > 0, bounds, 0.0),
        )

    def _forms_of_fit(self, X: Array, forms: Array) -> Array:
        """Forms h with all of the penalty, where a refit has so much less of it that leverages tell: (r,)."""
        return forms if 1.0 - self.path.judges[0].shrink < TOLD else self._judge_of_fit.forms(X)

    @cached_property
    def _judge_of_fit(self) -> StepJudge:
        path, judge = self.path, self.path.judges[0]
        models, coef = replace(path.models, mean_scaled=False), path.points.coefs[0]
        return StepJudge.of(self.quadratic, coef, models.penalties[0], models, 0, judge.root.dtype)

    def _bounds(self, X: Array, left: Left, weights: Array) -> Array:
        """As ``leave_out.step_bounds.bound_steps``; infinite where nothing is known."""
        R, judge = self.path.models.loss.self_concordance(), self.path.judges[0]
        if R is None or self.path.models.loss.jumps:
            return np.full(len(left.eta), np.inf)
        shares = weights / self.path.weight * self.path.models.mean_scaled
        change, hessian = left.eta - left.fitted, left.hessian
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
            widths = Widths.of(np.sqrt(self.widest / slack))
            within = radius_of_step(R, norm + checked.moved, widths, spread, checked.residual)
            found = checked.off + np.sqrt(checked.forms / slack) * within
        return where_told(found, slack)
