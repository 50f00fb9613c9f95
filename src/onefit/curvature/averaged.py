"""K of coupled outputs, about, by the average curvature of the rows.

With D̄ = Σ D_i, the covariance S of the rows and a ridge Λ, D̄ ⊗ S + I ⊗ Λ is nearly K where curvatures and
rows have little to do with each other (Martens and Grosse 2015), and two small eigendecompositions invert it:
with Λ^−½ S Λ^−½ = V diag(s) Vᵀ and D̄ = U diag(d) Uᵀ it is 1 + s dᵀ in the coordinates Λ^½ V and U.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from onefit import _linalg, cost
from onefit._linalg import Covariance, RowSpan
from onefit._typing import Array, Design
from onefit.cost import Work
from onefit.curvature.base import Direction
from onefit.curvature.reduction import is_wide, span_of
from onefit.fit import Fit
from onefit.inner_products import InnerProducts
from onefit.numerics import TINY
from onefit.penalties import Coordinates

SHARED = 30.0  # fits along a path, with all rows or without some, that have the same covariance of rows
FLAT = 1e-9  # curvature relative to the largest that is none


@dataclass(frozen=True, eq=False)
class AverageCurvature:
    """D̄ ⊗ S + I ⊗ Λ, ready to be solved with.

    Attributes
    ----------
    fit : Fit
    X : design
        The rows in the coordinates of S, (n, r): the columns, or those of the span of the rows, where these
        are fewer and Λ = λ I (``Reduction``).
    span : RowSpan or None
        That one.
    means : (r,) array
        Of the coordinates, which the intercepts take off; zero where there are none.
    columns : (r, r) array
        Λ^−½ V.
    outputs : (c, c) array
        U.
    inverse : (r, c) array
        Of 1 + s dᵀ.
    levels : (c,) array
        Inverse curvatures of the intercepts.
    shared : Covariance or None
        S, where other strengths have the same.
    """

    fit: Fit
    X: Design
    span: RowSpan | None
    means: Array
    columns: Array
    outputs: Array
    inverse: Array
    levels: Array
    shared: Covariance | None = None

    @classmethod
    def of(cls, fit: Fit, weights: Array | None = None) -> AverageCurvature:
        """That of the rows at a fit.

        Parameters
        ----------
        fit : Fit
        weights : (n,) array, optional
            Of the rows in the covariance of the columns, all alike by default.
        """
        assert fit.bending is not None
        span = span_of(fit.problem, fit.tangent)
        X = fit.problem.X if span is None else span.X
        curved, U = np.linalg.eigh(fit.bending.total())
        curved = np.where(curved > FLAT * curved[-1], curved, 0.0)
        has_levels = bool(fit.problem.intercept.any())
        ridge = fit.tangent.hessian.mean(axis=1)[: X.shape[1]]
        if weights is None and fit.tangent.has_one_ridge:
            inner = fit.problem.known_inner or InnerProducts(fit.problem.X)
            S = shared = inner.covariance if has_levels else inner.about_zero
            columns, spread = S.directions / np.sqrt(ridge[0]), S.spread / ridge[0]
        else:
            shares = None if weights is None else weights / max(weights.sum(), TINY)
            S = Covariance.of(X, shares, partial(_scale, ridge, FLAT * curved[-1]), centred=has_levels)
            columns, spread, shared = S.directions, S.spread, None
        inverse = 1.0 / (1.0 + np.multiply.outer(spread, curved))
        levels = np.divide(has_levels, curved, out=np.zeros_like(curved), where=curved > 0)
        return cls(fit, X, span, S.means, columns, U, inverse, levels, shared)

    @classmethod
    def nearest(cls, fit: Fit) -> AverageCurvature:
        """That of all rows alike where others share it, or else the next one."""
        return cls.of(fit) if _is_shared(fit) else cls.by_curved_rows(fit)

    @classmethod
    def by_curved_rows(cls, fit: Fit) -> AverageCurvature:
        """The same with rows that count as much as they are curved: nearer to K where few of them are.

        For steps of the rows themselves it is not: those that move most are not those that curve K.
        """
        assert fit.bending is not None
        return cls.of(fit, np.maximum(fit.bending.traces(), 0.0))

    def solve(self, gradient: Direction) -> Direction:
        """About K⁻¹ times a gradient, or several along a last axis of both its parts."""
        if gradient.coef.ndim > 2:
            return self._solve_each(gradient)
        whole, span = gradient.coef, self.span
        own = whole if span is None else span.coordinates(whole)
        centred = own - np.multiply.outer(self.means, gradient.intercept)
        along = self.inverse * (self.columns.T @ centred @ self.outputs)
        coef = self.columns @ along @ self.outputs.T
        levels = (self.levels * (gradient.intercept @ self.outputs)) @ self.outputs.T
        levels = levels - self.means @ coef
        if self.fit.problem.has_free_shift:
            levels = levels - levels.mean()
        return Direction(self._in_columns(coef, own, whole), levels)

    def _in_columns(self, coef: Array, own: Array, whole: Array) -> Array:
        """Coefficients from those of the coordinates, given the gradient in these and in the columns."""
        if self.span is None:
            return coef
        ridge = self.fit.tangent.hessian.flat[0]  # beside the span it is all there is
        return self.span.coefficients(coef - own / ridge) + whole / ridge

    def _solve_each(self, gradient: Direction) -> Direction:
        """The same of several: products of the columns are those of all of them side by side."""
        p, c, f = gradient.coef.shape
        whole, span = np.ascontiguousarray(np.moveaxis(gradient.coef, 1, 2)).reshape(p, -1), self.span
        level = np.ascontiguousarray(gradient.intercept.T)  # (f, c)
        own = whole if span is None else span.coordinates(whole)
        centred = own - np.multiply.outer(self.means, level.ravel())
        along = _linalg.product(self.columns.T, centred).reshape(-1, c) @ self.outputs
        along = (along.reshape(-1, f, c) * self.inverse[:, None]).reshape(-1, c) @ self.outputs.T
        coef = _linalg.product(self.columns, along.reshape(-1, f * c))
        levels = (self.levels * (level @ self.outputs)) @ self.outputs.T
        levels = levels - (self.means @ coef).reshape(f, c)
        if self.fit.problem.has_free_shift:
            levels = levels - _linalg.row_means(levels)
        coef = self._in_columns(coef, own, whole)
        return Direction(np.moveaxis(coef.reshape(-1, f, c), 1, 2), levels.T)

    def step(self) -> Array:
        """Predictors of all rows without themselves, about: η + H g with forms of this curvature: (n, c)."""
        fit = self.fit
        if self.shared is None or not _linalg.is_full(self.X):  # none of its size is kept
            along = (_linalg.times(self.X, self.columns) - self.means @ self.columns) ** 2
        else:
            along = self.shared.squares / fit.tangent.hessian.flat[0]
        moved = (along @ self.inverse + self.levels) * (fit.gradient @ self.outputs)
        return np.asarray(fit.eta + moved @ self.outputs.T)


def _scale(ridge: Array, least: float, variances: Array) -> Array:
    """Λ^−½ of a ridge that columns have of their own, or that is next to none."""
    ridge = np.maximum(ridge, least * variances)
    return np.asarray(1.0 / np.sqrt(np.where(ridge > 0, ridge, 1.0)))


def has_average(fit: Fit) -> bool:
    """Whether there is such a curvature: of coupled outputs with a ridge on all columns."""
    problem = fit.problem
    is_smooth = problem.is_coupled and fit.is_smooth
    has_ridge = is_smooth and _linalg.has_columns(problem.X) and isinstance(fit.tangent, Coordinates)
    return has_ridge and bool(fit.tangent.support.all())


def share_of_average(fit: Fit) -> Work:
    """What it takes a fit, about, where others share the covariance of the rows."""
    if not _is_shared(fit):
        return cost_of_average(fit)
    inner = fit.problem.known_inner
    return Work() if inner and inner.has_covariance else cost_of_average(fit).times(1.0 / SHARED)


def _is_shared(fit: Fit) -> bool:
    """Whether fits share a covariance, and one of its own, which fewer products do with, takes longer."""
    problem = fit.problem
    if problem.known_inner is None or not fit.tangent.has_one_ridge:
        return False
    stored = _linalg.as_columns(problem.X).n_stored
    product = cost.product_with_curvature(problem.n, stored, problem.n_outputs)
    return cost_of_average(fit).seconds > cost.PRODUCTS * product.seconds


def cost_of_solving_with_average(fit: Fit) -> Work:
    """What a solve takes, about."""
    n, p = fit.problem.X.shape
    stored, c = _linalg.as_columns(fit.problem.X).n_stored, fit.problem.n_outputs
    if is_wide(fit.problem.X, fit.tangent):
        return Work(2.0 * c * (n * (n + c) + stored))
    return Work(2.0 * c * p * (p + c))


def cost_of_average(fit: Fit) -> Work:
    """What it takes, about."""
    n, p = fit.problem.X.shape
    p = n if is_wide(fit.problem.X, fit.tangent) else p
    return Work(0.5 * float(n) * p * p + 2.0 * float(p) ** 3, 50.0, 3.0 * n * fit.problem.n_outputs)
