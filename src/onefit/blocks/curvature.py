"""Losses, gradients and curvature of several strengths, summed in one pass, and the models they make."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self, final

import numpy as np

from onefit._linalg import Factorization, add_gram, eigh, mirrored, product
from onefit._typing import Array, Index
from onefit.blocks.models import Models, Points, pieces
from onefit.blocks.rows import Added, Block
from onefit.penalties import SeparablePenalty
from onefit.solvers.active_set import ActiveSet

DROPPED = 1e-13  # of the largest eigenvalue: directions that the rows do not span


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
        with np.errstate(over="ignore", invalid="ignore"):  # too long a step is taken back
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
    def of(cls, sums: Sums, j: int, place: int, *, intercept: bool) -> Self:
        """Read it off the sums: of strength j, whose curvature is at a place of its own."""
        gram, mass = mirrored(sums.grams[place]), np.inf
        means = np.zeros(len(gram))
        if intercept:
            mass = max(float(sums.masses[place]), np.finfo(float).tiny)
            means = sums.firsts[place] / mass
            gram -= mass * np.outer(means, means)
        return cls(0.0, 0.0, mass, means, means, gram).at(sums, j)

    def at(self, sums: Sums, j: int) -> Self:
        """Return the model of this curvature where the sums were taken."""
        total = float(sums.totals[j]) if np.isfinite(self.mass) else 0.0
        return replace(
            self, value=float(sums.losses[j]), total=total, slope=sums.slopes[j] - total * self.means
        )

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

    def metric(self, l2: Array) -> Array:
        """Curvature of the objective in coefficients and intercept: (p + 1, p + 1)."""
        K = np.zeros((len(l2) + 1, len(l2) + 1))
        K[:-1, :-1] = self.gram + np.diag(l2)
        if np.isfinite(self.mass):
            along = np.append(self.means, 1.0)
            K += self.mass * np.outer(along, along)
        return K
