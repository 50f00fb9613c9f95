"""Derivatives of a risk in what makes up the problem at a fit, and what a hyperparameter changes of that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array
from onefit.fit import Fit
from onefit.losses import Loss, PiecewiseLinear
from onefit.penalties import Penalty, SeparablePenalty
from onefit.pieces import PLACES, WEIGHTS

STEP = 1e-3  # of a five-point difference, in the scale of the hyperparameter
CENTRAL = np.array(PLACES), np.array(WEIGHTS)  # error of order STEP⁴
ONE_SIDED = np.arange(5.0), np.array([-25.0, 48.0, -36.0, 16.0, -3.0]) / 12.0


class OfLoss(NamedTuple):
    """Derivative of a risk in the loss of the rows, weights included, at the predictors that they have."""

    gradient: Array  # ∂R/∂g: the shape of η; zero for rows on kinks, whose duals are what the others leave
    hessian: Array | None = None  # ∂R/∂d: the shape of d; None where the risk does not depend on it
    kink: Array | None = None  # ∂R/∂κ, of the kinks that rows sit on: (n,); None where there are none


class OfGram(NamedTuple):
    """Derivative of a risk in the Gram matrix of a kernel model: left rightᵀ, each (n, r)."""

    left: Array
    right: Array


@dataclass(frozen=True, eq=False)
class Cotangent:
    """Derivative of a risk in what makes up the problem, at a fit and on its tangent.

    Attributes
    ----------
    gradient : array of the shape of the coefficients
        ∂R/∂∇P, zero off the tangent.
    hessian : array of the shape of the tangent's, or None
        ∂R/∂C; None where the risk does not depend on it.
    loss : OfLoss or None
    gram : OfGram or None
        Only of kernel models.
    """

    gradient: Array
    hessian: Array | None = None
    loss: OfLoss | None = None
    gram: OfGram | None = None

    def __add__(self, other: Cotangent) -> Cotangent:
        """Sum for two risks of a fit; what either does not know of the loss or the Gram matrix is lost."""
        loss = gram = None
        if self.loss is not None and other.loss is not None:
            loss = OfLoss(*(_total(parts) for parts in zip(self.loss, other.loss, strict=True)))
        if self.gram is not None and other.gram is not None:
            gram = OfGram(*(np.hstack(parts) for parts in zip(self.gram, other.gram, strict=True)))
        return Cotangent(self.gradient + other.gradient, _total((self.hessian, other.hessian)), loss, gram)

    def along(self, change: TangentChange) -> float:
        """Derivative of the risk along a change of the penalty."""
        return _paired(self.gradient, change.gradient) + _paired(self.hessian, change.hessian)

    def along_loss(self, change: LossChange) -> float:
        """Derivative of the risk along a change of the loss."""
        if self.loss is None:
            raise TypeError("this gradient is known for changes of the penalty only")
        return sum(_paired(*parts) for parts in zip(self.loss, change, strict=True))

    def by_coordinate(self, change: TangentChange) -> Array:
        """The same as a sum over features: (p,).  For a penalty that treats each on its own."""
        parts = self.gradient * change.gradient
        parts = parts if self.hessian is None else parts + self.hessian * change.hessian
        return parts.reshape(len(parts), -1).sum(axis=1)


def _paired(owed: Array | None, change: Array) -> float:
    """Inner product, 0 where nothing is owed."""
    return 0.0 if owed is None else float(np.sum(owed * change))


def _total(parts: Sequence[Array | None]) -> Any:
    """Sum of what is there, or None."""
    known = [part for part in parts if part is not None]
    return np.sum(known, axis=0) if known else None


def in_gram(cotangents: Sequence[Cotangent]) -> Array:
    """Sum of the derivatives of a risk in the Gram matrix that several fits share: (n, n)."""
    known = [one.gram for one in cotangents if one.gram is not None]
    if len(known) < len(cotangents):
        raise TypeError("this gradient is known for changes of the penalty only")
    left, right = (np.hstack(parts) for parts in zip(*known, strict=True))
    return _linalg.product(left, right.T)


class TangentChange(NamedTuple):
    """∂_m ∇P and ∂_m C at fixed coefficients, in the shapes that the tangent has."""

    gradient: Array
    hessian: Array


class LossChange(NamedTuple):
    """∂_m g, ∂_m d and ∂_m κ at fixed predictors, weights included; κ are the kinks next to the rows."""

    gradient: Array
    hessian: Array
    kink: Array


class Stencil(NamedTuple):
    """Points of a difference, and their weights in the derivative."""

    places: Array
    weights: Array


def stencil(below: float = np.inf, above: float = np.inf, width: float = 1.0) -> Stencil:
    """Five points around 0, or on one side where there is no room on the other.

    Parameters
    ----------
    below, above : float
        Room on either side.
    width : float
        Scale of the number; the points are ``STEP`` of it apart.
    """
    h = min(STEP * min(width, 1.0), max(below, above) / 4.0)
    if below >= 2 * h and above >= 2 * h:
        return Stencil(h * CENTRAL[0], CENTRAL[1] / h)
    sign = 1.0 if above >= below else -1.0
    return Stencil(sign * h * ONE_SIDED[0], sign * ONE_SIDED[1] / h)


def tangent_change(penalties: Sequence[Penalty], points: Stencil, fit: Fit) -> TangentChange:
    """Derivative of the tangent of a penalty that depends on a number, with the pattern held.

    A five-point difference: exact for whatever is linear in the number, as strengths are.

    Parameters
    ----------
    penalties : sequence
        The penalty at each point of the stencil.
    points : Stencil
    fit : Fit
    """
    rate = relative_rate(penalties, points, fit.problem.penalty)
    if rate is not None:
        return stretched(fit, rate)
    slope = fit.loss_gradient if fit.problem.penalty.turns else None
    there = [penalty.tangent(fit.coef, slope) for penalty in penalties]
    return TangentChange(
        _sum(points.weights, [one.gradient for one in there]),
        _sum(points.weights, [one.hessian for one in there]),
    )


def loss_change(losses: Sequence[Loss], weights: Array, fit: Fit) -> LossChange:
    """Σ of some losses' slopes, bends and kinks at a fit, times weights: a derivative of the loss.

    Rows of a loss with kinks stay on the piece, or on the kink, that they are on.

    Parameters
    ----------
    losses : sequence
        The loss at each point of a stencil, or the parts of a mixture.
    weights : array
        Their weights, one each.
    fit : Fit
    """
    problem = fit.problem
    own, y, eta, none = problem.loss, problem.y, fit.eta, np.zeros(problem.n)
    held = fit.pinned
    if not isinstance(own, PiecewiseLinear):
        slope = _sum(weights, [loss.gradient(y, eta) for loss in losses])
        bend = _sum(weights, [loss.hessian(y, eta) for loss in losses])
        slope = np.where(held, 0.0, slope.T).T if held.any() else slope
        return LossChange(problem.per_row(slope), problem.per_row(bend), none)
    pieces, shape = [loss for loss in losses if isinstance(loss, PiecewiseLinear)], eta.shape
    y, eta = y.ravel(), eta.ravel()  # outputs side by side
    nearest = np.abs(eta[:, None] - own.kinks(y)).argmin(axis=1)[:, None]
    kinks = _sum(weights, [np.take_along_axis(one.kinks(y), nearest, 1)[:, 0] for one in pieces])
    on = own.piece(y, eta)[:, None]
    slopes = _sum(weights, [np.take_along_axis(one.slopes(y), on, 1)[:, 0] for one in pieces])
    slopes, kinks = slopes.reshape(shape), kinks.reshape(shape)
    return LossChange(problem.per_row(np.where(held, 0.0, slopes)), none, kinks)


def _sum(weights: Array, parts: Sequence[Array]) -> Array:
    return np.tensordot(weights, np.stack(parts), axes=1)


def relative_rate(penalties: Sequence[Penalty], points: Stencil, own: Penalty) -> Array | None:
    """Derivative of log alpha, where penalties at the points differ from that of a fit in alpha alone.

    Returns
    -------
    () or (p,) array, or None
        The tangent changes by this share of itself, coordinate by coordinate where there is one a feature.
    """
    alpha, *there = (
        np.asarray(one.get_params(deep=False).get("alpha", np.nan), dtype=np.float64)
        for one in (own, *penalties)
    )
    several = alpha.ndim > 1 or (alpha.ndim == 1 and not isinstance(own, SeparablePenalty))
    if several or not np.all((alpha > 0) & np.isfinite(alpha)):
        return None
    alike = (same_penalty(one, own, but="alpha") for one in penalties)
    if not all(alike) or any(one.shape != alpha.shape for one in there):
        return None
    return _sum(points.weights, [one / alpha for one in there])


def stretched(fit: Fit, rate: Array) -> TangentChange:
    """Change of a tangent in proportion to itself, at one rate or at one for each feature."""
    tangent = fit.tangent
    by_feature = _linalg.with_axes(rate, tangent.gradient)
    return TangentChange(by_feature * tangent.gradient, by_feature * tangent.hessian)


def same_penalty(one: Penalty, other: Penalty, but: str = "") -> bool:
    """Whether two penalties are of one kind and have the same parameters, but for one that is named."""
    ours, theirs = (
        {name: v for name, v in penalty.get_params().items() if name != but and not isinstance(v, Penalty)}
        for penalty in (one, other)
    )
    return (
        type(one) is type(other)
        and ours.keys() == theirs.keys()
        and all(_equal(value, theirs[name]) for name, value in ours.items())
    )


def _equal(one: object, other: object) -> bool:
    """Whether two parameters are the same; lists may be of lists of unequal lengths, as groups are."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    return one is other or (not callable(one) and np.array_equal(np.asarray(one), np.asarray(other)))
