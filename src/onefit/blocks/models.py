"""What is fitted in passes over the rows, where it stands, and what is summed there.

A pass sums losses, gradients and curvature of several strengths, which make a model of each.

Along a path the leverages h of a row change smoothly with the strength, and those of all rows in the same
few ways.  On a sample of rows, a column-pivoted QR of h (rows times strengths) finds strengths, the knots,
whose columns span the others to a tolerance: an interpolative decomposition (Cheng, Gimbutas, Martinsson and
Rokhlin 2005).  Only at the knots is the curvature summed over all rows, and h computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, Self, final

import numpy as np
import scipy.linalg

from onefit._linalg import Factorization, add_gram, eigh, mirrored, product
from onefit._typing import Array, Index
from onefit.blocks.rows import Added, Block
from onefit.losses import Loss
from onefit.metrics import LinearMetric
from onefit.penalties import SeparablePenalty
from onefit.solvers.active_set import ActiveSet

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

    def predictors(self, X: Array) -> Array:
        """η of some rows, whose columns are centred: (J, r)."""
        return product(X, self.coefs.T).T + self.levels[:, None]

    @property
    def intercepts(self) -> Array:
        """Intercepts for columns as they are: (J,)."""
        return self.levels - self.coefs @ self.centre


def pieces(block: Block, metric: LinearMetric, centre: Array) -> Iterator[tuple[Array, Array, Array]]:
    """Cut a block into pieces that stay in cache: X less the centre, y as the loss takes it, and weights."""
    for part in block.parts():
        target = metric.target(part.y)
        weights = part.row_weights
        yield np.subtract(part.X, centre, dtype=np.float64), target, weights


def null_points(models: Models, centre: Array, level: float) -> Points:
    """The constant model, for each strength."""
    J = len(models.penalties)
    return Points(np.zeros((J, len(centre))), np.full(J, level if models.intercept else 0.0), centre)


class Knots(NamedTuple):
    """Strengths that stand for all.

    Attributes
    ----------
    at : (K,) int array
        Their positions among J.
    shares : (J, K) array
        What makes the h of all strengths of those of the knots.
    nearest : (J,) int array
        Position of the knot that is nearest to each strength.
    """

    at: Index
    shares: Array
    nearest: Index

    @classmethod
    def all(cls, J: int) -> Self:
        """Every strength is one."""
        every = np.arange(J)
        return cls(every, np.eye(J), every)

    @classmethod
    def of(cls, forms: Array, tolerance: float) -> Self:
        """Choose as few as the tolerance allows.

        Parameters
        ----------
        forms : (r, J) array
            h of some rows.
        tolerance : float
            Root mean square of the error of h, relative to what a row has at the average strength.
        """
        means = forms.mean(axis=1, keepdims=True)
        relative = forms[means[:, 0] > 0] / means[means[:, 0] > 0]  # rows of zeros have none
        if not len(relative):
            return cls.all(forms.shape[1])
        R, order = scipy.linalg.qr(relative, mode="r", pivoting=True)
        J = relative.shape[1]
        left = [float(np.linalg.norm(R[k:, k:], axis=0).max(initial=0.0)) for k in range(J)]
        enough = [k for k in range(1, J) if left[k] <= tolerance * np.sqrt(len(relative))]
        K = enough[0] if enough else J
        shares = np.zeros((J, K))
        shares[order[:K]] = np.eye(K)
        shares[order[K:]] = scipy.linalg.solve_triangular(R[:K, :K], R[:K, K:]).T
        at = order[:K]
        sort = np.argsort(at)
        at, shares = at[sort], shares[:, sort]
        nearest = at[np.abs(np.arange(J)[:, None] - at).argmin(axis=1)]
        return cls(at, shares, nearest)


class RemovedRows(NamedTuple):
    """A row for each strength, which it is solved without.

    Attributes
    ----------
    X : (J, p) array
        Less the centre.
    y, weights : (J,) arrays
        Target and weight.
    """

    X: Array
    y: Array
    weights: Array

    def some(self, which: Index) -> RemovedRows:
        """Return those of some strengths."""
        return RemovedRows(*(part[which] for part in self))


@final
@dataclass(frozen=True)
class Sums(Added):
    """Of J strengths: losses and gradients, and of some of them curvature, each summed over rows by weight.

    Attributes
    ----------
    rows : int
    losses, totals : (J,) arrays
        Σ w ℓ and Σ g.
    slopes : (J, p) array
        Σ g x.
    masses : (c,) array
        Σ d.
    firsts : (c, p) array
        Σ d x.
    grams : (c, p, p) array
        Σ d x xᵀ, lower triangles.
    """

    rows: int
    losses: Array
    totals: Array
    slopes: Array
    masses: Array
    firsts: Array
    grams: Array

    def less(self, models: Models, points: Points, curved: Index, removed: RemovedRows) -> Sums:
        """Return the sums of each strength without what a row of its own makes of them."""
        (X, y, weights), loss = removed, models.loss
        eta = np.einsum("ij,ij->i", X, points.coefs) + points.levels
        own, gradient = weights * loss.value(y, eta), weights * loss.gradient(y, eta)
        curvature = (weights * loss.hessian(y, eta))[curved]
        along = curvature[:, None] * X[curved]
        return Sums(
            self.rows,
            self.losses - own,
            self.totals - gradient,
            self.slopes - gradient[:, None] * X,
            self.masses - curvature,
            self.firsts - along,
            self.grams - along[:, :, None] * X[curved, None, :],
        )


@np.errstate(over="ignore", invalid="ignore")  # too long a step is taken back
def summed(block: Block, models: Models, points: Points, curved: Index, *, single: bool = False) -> Sums:
    """From a block to its Sums.

    Parameters
    ----------
    block : Block
    models : Models
    points : Points
    curved : (c,) int array
        Strengths whose curvature is summed: p/3 times the price of a gradient.
    single : bool
        Whether the products of the curvature are in single precision; their sums over pieces never are.
    """
    J, p = points.coefs.shape
    c, rows, loss = len(curved), 0, models.loss
    losses, totals, masses = np.zeros(J), np.zeros(J), np.zeros(c)
    slopes, firsts = np.zeros((J, p)), np.zeros((c, p))
    grams = np.zeros((c, p, p)).transpose(0, 2, 1)  # each in Fortran order
    for X, y, weights in pieces(block, models.metric, points.centre):
        eta = points.predictors(X)
        gradient, curvature = weights * loss.gradient(y, eta), loss.hessian(y, eta[curved])
        losses += loss.value(y, eta) @ weights
        totals += gradient.sum(axis=1)
        slopes += product(gradient, X)
        rows += len(X)
        if c:
            curvature *= weights
            masses += curvature.sum(axis=1)
            firsts += product(curvature, X)
            _add_grams(grams, X, curvature, single)
    return Sums(rows, losses, totals, slopes, masses, firsts, grams)


def _add_grams(grams: Array, X: Array, curvature: Array, single: bool) -> None:
    kind = np.float32 if single else np.float64
    X, roots = X.astype(kind, copy=False), np.sqrt(curvature).astype(kind, copy=False)
    for gram, root in zip(grams, roots, strict=True):
        if single:
            gram += add_gram(np.zeros(gram.shape, dtype=kind, order="F"), X * root[:, None])
        else:
            add_gram(gram, X * root[:, None])  # in place


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
    @np.errstate(over="ignore", invalid="ignore")  # of sums where a step was too long
    def of(cls, sums: Sums, j: int, place: int, *, intercept: bool) -> Self:
        """Read it off the sums: of strength j, whose curvature is at a place of its own."""
        gram, mass = mirrored(sums.grams[place]), np.inf
        means = np.zeros(len(gram))
        if intercept:
            mass = max(float(sums.masses[place]), np.finfo(float).tiny)
            means = sums.firsts[place] / mass
            gram -= mass * np.outer(means, means)
        return cls(0.0, 0.0, mass, means, means, gram).at(sums, j)

    @np.errstate(over="ignore", invalid="ignore")
    def at(self, sums: Sums, j: int) -> Self:
        """Return the model of this curvature where the sums were taken."""
        total = float(sums.totals[j]) if np.isfinite(self.mass) else 0.0
        return replace(
            self, value=float(sums.losses[j]), total=total, slope=sums.slopes[j] - total * self.means
        )

    def without(self, x: Array, loss: float, gradient: float, hessian: float) -> Self:
        """Return the model without a row, of which these are w times the loss and its derivatives."""
        value, total, apart = self.value - loss, self.total - gradient, x - self.means
        slope = self.slope + self.total * self.means - gradient * x
        if not np.isfinite(self.mass):
            gram = self.gram - hessian * np.outer(x, x)
            return replace(self, value=value, slope=slope, gram=gram)
        mass = max(self.mass - hessian, np.finfo(float).tiny)
        means = self.means - hessian / mass * apart
        gram = self.gram - hessian * (self.mass / mass) * np.outer(apart, apart)
        return type(self)(value, total, mass, means, slope - total * means, gram)

    def moved(self, change: Array) -> Self:
        """Return the same model seen from a step further."""
        return replace(self, slope=self.slope + self.gram @ change)

    def step(self, coef: Array, penalty: SeparablePenalty) -> tuple[Array, float]:
        """Return where the model and the penalty are smallest, less where we are."""
        l1, l2 = penalty.strengths(coef.shape)
        if np.any(l1):
            change = self._with_kinks(coef, l1, l2) - coef
        else:
            change = -Factorization.of(self.gram + np.diag(l2)).solve(self.slope + l2 * coef)
        return change, float(-self.total / self.mass - self.means @ change)

    def _with_kinks(self, coef: Array, l1: Array, l2: Array) -> Array:
        """Minimum with an ℓ1 part: that of a lasso on p rows R with Rᵀ R = gram, in units of the columns."""
        units = np.sqrt(np.maximum(self.gram.diagonal(), 0.0))
        units[units == 0] = 1.0
        values, vectors = eigh(self.gram / np.outer(units, units))
        kept = values > DROPPED * max(float(values.max(initial=0.0)), np.finfo(float).tiny)
        root, vectors = np.sqrt(values[kept]), vectors[:, kept]
        wanted = (self.gram @ coef - self.slope) / units
        active = ActiveSet(
            np.asfortranarray(root[:, None] * vectors.T), vectors.T @ wanted / root, fit_intercept=False
        )
        if not active.solve(l1 / units, l2 / units**2):
            active.warn()
        return np.asarray(active.coef) / units

    def metric(self, l2: Array) -> Array:
        """Curvature of the objective in coefficients and intercept: (p + 1, p + 1)."""
        K = np.zeros((len(l2) + 1, len(l2) + 1))
        K[:-1, :-1] = self.gram + np.diag(l2)
        if np.isfinite(self.mass):
            along = np.append(self.means, 1.0)
            K += self.mass * np.outer(along, along)
        return K
