"""Newton's method for several strengths at once: one pass over the rows a step, whatever their number.

A pass sums, at the current point of every strength, losses, gradients and weighted Gram matrices.  Columns
are taken about their means over all rows, which are known by then, so that the sums are plain ones.  The
steps begin at the solutions on a sample of the rows: their error is about √(p/m) for m of them, and is
squared by each step, so that three or four passes do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self, final

import numpy as np

from onefit._linalg import add_gram, cholesky, eigh, factor_solve, product, pseudo_factor
from onefit._typing import Array, Index
from onefit.blocks.rows import Block, Rows
from onefit.exceptions import SolverError
from onefit.losses import Loss
from onefit.metrics import LinearMetric
from onefit.penalties import SeparablePenalty
from onefit.solvers.active_set import ActiveSet

MOST_PASSES = 60
# Newton decrement, relative to the loss of the constant model, at which one more step is exact: the error
# of the coefficients is about its root, 1e-9, and that of the curvature, which is not summed again, likewise.
SETTLED = 1e-18
ROUNDING = 1e-13  # of the objective: it may rise by that and not have risen
DROPPED = 1e-13  # of the largest eigenvalue: directions that the rows do not span


@final
@dataclass(frozen=True)
class Models:
    """What is fitted: one loss, and a penalty for each of J strengths.

    Attributes
    ----------
    loss : Loss
        With two derivatives and one output.
    metric : LinearMetric
        By which left-out predictions are judged; reads the response.
    penalties : tuple of SeparablePenalty
        Strongest first.
    intercept : bool
    mean_scaled : bool
        Whether the penalty shrinks when a row leaves.
    """

    loss: Loss
    metric: LinearMetric
    penalties: tuple[SeparablePenalty, ...]
    intercept: bool
    mean_scaled: bool

    def some(self, which: Index) -> Models:
        """Return those of some strengths."""
        return replace(self, penalties=tuple(self.penalties[j] for j in which))


class Points(NamedTuple):
    """Coefficients and intercepts of J strengths, for columns less ``centre``."""

    coefs: Array  # (J, p)
    levels: Array  # (J,)
    centre: Array  # (p,)

    def some(self, which: Index) -> Points:
        """Return those of some strengths."""
        return Points(self.coefs[which], self.levels[which], self.centre)

    def predictors(self, X: Array) -> Array:
        """η of some rows, whose columns are centred: (r, J)."""
        return product(X, self.coefs.T) + self.levels

    @property
    def intercepts(self) -> Array:
        """Intercepts for columns as they are: (J,)."""
        return self.levels - self.coefs @ self.centre


class Piece(NamedTuple):
    """Some rows, ready for products."""

    X: Array  # (r, p), less the centre
    y: Array  # (r,), as the loss takes it
    weights: Array  # (r,)


def pieces(block: Block, metric: LinearMetric, centre: Array) -> Iterator[Piece]:
    """Cut a block into pieces that stay in cache, centred."""
    for part in block.parts():
        target = np.asarray(metric.target(part.y), dtype=np.float64)
        weights = np.ones(len(target)) if part.weights is None else part.weights
        yield Piece(np.subtract(part.X, centre, dtype=np.float64), target, weights)


@final
@dataclass(frozen=True)
class Sums:
    """Of J strengths: losses, gradients and curvature, each summed over rows with its weights.

    Attributes
    ----------
    rows : int
    losses, totals, masses : (J,) arrays
        Σ w ℓ, Σ g and Σ d.
    slopes, firsts : (J, p) arrays
        Σ g x and Σ d x.
    grams : (J, p, p) array
        Σ d x xᵀ, lower triangles.
    """

    rows: int
    losses: Array
    totals: Array
    masses: Array
    slopes: Array
    firsts: Array
    grams: Array

    def __add__(self, other: Sums) -> Sums:
        return Sums(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))


@final
@dataclass(frozen=True)
class Summed:
    """From a block to its Sums."""

    models: Models
    points: Points

    def __call__(self, block: Block) -> Sums:
        J, p = self.points.coefs.shape
        grams = [np.zeros((p, p), order="F") for _ in range(J)]
        losses, totals, masses = np.zeros(J), np.zeros(J), np.zeros(J)
        slopes, firsts = np.zeros((J, p)), np.zeros((J, p))
        loss, rows = self.models.loss, 0
        for X, y, weights in pieces(block, self.models.metric, self.points.centre):
            with np.errstate(over="ignore", invalid="ignore"):  # too long a step is taken back
                eta, y, w = self.points.predictors(X), y[:, None], weights[:, None]
                gradient, hessian = w * loss.gradient(y, eta), w * loss.hessian(y, eta)
                losses += (w * loss.value(y, eta)).sum(axis=0)
            totals += gradient.sum(axis=0)
            masses += hessian.sum(axis=0)
            slopes += product(gradient.T, X)
            firsts += product(hessian.T, X)
            rows += len(X)
            root = np.sqrt(hessian)
            for j in range(J):
                grams[j] = add_gram(grams[j], X * root[:, [j]])
        return Sums(rows, losses, totals, masses, slopes, firsts, np.array(grams))


@final
@dataclass(frozen=True)
class Quadratic:
    """Second-order model of the loss at the point of one strength, the intercept profiled out.

    Attributes
    ----------
    value, total, mass : float
        Σ w ℓ, Σ g and Σ d; the last infinite without an intercept.
    means : (p,) array
        Of the columns, weighted by d; zero without an intercept.
    slope : (p,) array
        Gradient along the centred columns.
    gram : (p, p) array
        Hessian of the loss, both triangles.
    """

    value: float
    total: float
    mass: float
    means: Array
    slope: Array
    gram: Array

    @classmethod
    def of(cls, sums: Sums, j: int, *, intercept: bool) -> Self:
        """Read it off the sums."""
        lower = np.tril(sums.grams[j])
        gram = lower + np.tril(lower, -1).T
        if not intercept:
            return cls(sums.losses[j], 0.0, np.inf, np.zeros(len(gram)), sums.slopes[j], gram)
        mass = max(float(sums.masses[j]), np.finfo(float).tiny)
        means = sums.firsts[j] / mass
        slope = sums.slopes[j] - sums.totals[j] * means
        return cls(sums.losses[j], sums.totals[j], mass, means, slope, gram - mass * np.outer(means, means))

    def moved(self, change: Array) -> Self:
        """Return the same model seen from a step further."""
        return replace(self, slope=self.slope + self.gram @ change)

    def step(self, coef: Array, penalty: SeparablePenalty) -> tuple[Array, float]:
        """Return where the model and the penalty are smallest, less where we are."""
        l1, l2 = penalty.strengths(coef.shape)
        if np.any(l1):
            change = self._with_kinks(coef, l1, l2) - coef
        else:
            change = -_solved(self.gram + np.diag(l2), self.slope + l2 * coef)
        return change, float(-self.total / self.mass - self.means @ change)

    def _with_kinks(self, coef: Array, l1: Array, l2: Array) -> Array:
        """Minimum with an ℓ1 part: that of a lasso on p rows R with Rᵀ R = gram."""
        values, vectors = eigh(self.gram)
        kept = values > DROPPED * max(float(values.max(initial=0.0)), np.finfo(float).tiny)
        root, vectors = np.sqrt(values[kept]), vectors[:, kept]
        wanted = self.gram @ coef - self.slope
        active = ActiveSet(
            np.asfortranarray(root[:, None] * vectors.T), vectors.T @ wanted / root, fit_intercept=False
        )
        active.solve(l1, l2)
        return np.asarray(active.coef)

    def decrement(self, change: Array, level: float, l2: Array) -> float:
        """Squared length of a step in the curvature."""
        moved = level + float(self.means @ change)
        along = change @ (self.gram @ change) + l2 @ change**2
        return float(along + (self.mass * moved**2 if np.isfinite(self.mass) else 0.0))


def _solved(K: Array, rhs: Array) -> Array:
    factor = cholesky(K)
    if factor is not None:
        return factor_solve(factor, rhs)
    inverse = pseudo_factor(K)
    return inverse @ (inverse.T @ rhs)


class Solved(NamedTuple):
    """Solutions of all strengths, with the model of the loss at each."""

    points: Points
    quadratics: tuple[Quadratic, ...]


@dataclass
class _Strength:
    """Where one strength is on its way."""

    penalty: SeparablePenalty
    coef: Array
    level: float
    objective: float = np.inf  # of the last point that was no rise
    at: tuple[Array, float] | None = None
    quadratic: Quadratic | None = None
    done: bool = False

    def take(self, found: Quadratic, scale: float, *, last: bool) -> None:
        """Go on from the point that was summed at, or half-way back if the objective rose there."""
        objective = found.value + self.penalty.value(self.coef)
        if self.at is not None and not objective <= self.objective + ROUNDING * abs(self.objective):
            coef, level = self.at
            self.coef, self.level = 0.5 * (self.coef + coef), 0.5 * (self.level + level)
            return
        if not np.isfinite(objective):
            raise SolverError("the loss of the model to start from is not finite: scale the columns")
        change, level = found.step(self.coef, self.penalty)
        l2 = self.penalty.strengths(self.coef.shape)[1]
        self.done = last or found.decrement(change, level, l2) <= SETTLED * scale
        self.at, self.objective, self.quadratic = (self.coef, self.level), objective, found.moved(change)
        self.coef, self.level = self.coef + change, self.level + level


def solve_all(rows: Rows, models: Models, start: Points, *, n: int) -> Solved:
    """Minimise the objectives of all strengths, in passes over the rows.

    Parameters
    ----------
    rows : Rows
    models : Models
    start : Points
    n : int
        Rows that each pass must see.

    Raises
    ------
    SolverError
        If the steps do not become small, or the rows are not the same in each pass.
    """
    strengths = [
        _Strength(penalty, coef, float(level))
        for penalty, coef, level in zip(models.penalties, start.coefs, start.levels, strict=True)
    ]
    scale, passes = 0.0, 0
    while active := [j for j, one in enumerate(strengths) if not one.done]:
        if passes == MOST_PASSES:
            raise SolverError(
                f"Newton's method did not settle in {MOST_PASSES} passes for {len(active)} strengths: the "
                "problem may have no finite minimum, as with separable classes and hardly a penalty"
            )
        which = np.array(active)
        points = _points([strengths[j] for j in active], start.centre)
        sums = rows.total(Summed(models.some(which), points))
        check_rows(sums.rows, n)
        scale, passes = max(scale, float(np.nanmin(sums.losses))), passes + 1
        for place, j in enumerate(active):
            found = Quadratic.of(sums, place, intercept=models.intercept)
            strengths[j].take(found, scale, last=models.loss.is_quadratic)
    quadratics = tuple(one.quadratic for one in strengths if one.quadratic is not None)
    return Solved(_points(strengths, start.centre), quadratics)


def _points(strengths: Sequence[_Strength], centre: Array) -> Points:
    coefs = np.stack([one.coef for one in strengths])
    return Points(coefs, np.array([one.level for one in strengths]), centre)


def check_rows(seen: int, n: int) -> None:
    """Refuse a source that does not give the same rows in each pass.

    Raises
    ------
    ValueError
    """
    if seen != n:
        raise ValueError(
            f"a pass over the rows saw {seen} of them where the first saw {n}: a source must give the same "
            "rows each time"
        )


def null_points(models: Models, centre: Array, level: float) -> Points:
    """The constant model, for each strength."""
    J = len(models.penalties)
    return Points(np.zeros((J, len(centre))), np.full(J, level if models.intercept else 0.0), centre)
