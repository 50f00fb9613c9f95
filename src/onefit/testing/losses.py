"""Whether a loss is what it says it is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from onefit import _linalg
from onefit._typing import Array, Mask
from onefit.fit import Fit
from onefit.gradients import Cotangent, leave_one_out
from onefit.losses import CoupledLoss, Loss, Mixture, PiecewiseLinear, PiecewiseLoss
from onefit.losses.composed import straight_part
from onefit.penalties import L2
from onefit.pieces import Pieces
from onefit.problem import Problem
from onefit.testing.common import (
    check_gradient,
    check_parameters,
    check_refits,
    difference,
    holds,
    same,
)

STEP = 1e-3  # of differences in the linear predictor
ALPHA = 3.0  # ridge strength of the problems that are solved


def check_loss(loss: Loss, y: ArrayLike, eta: ArrayLike | None = None, *, rng: int = 0) -> None:
    """Check a loss: derivatives by differences, convexity, what it says of itself, refits and gradients.

    Parameters
    ----------
    loss : Loss
    y : (n,) array-like
        Responses in the range of the loss, as it takes them: 0 and 1 for two classes.  About 40.
    eta : (n,) or (n, c) array-like, optional
        Linear predictors to look at, in the domain of the loss; standard normal by default.  A loss that ties
        several outputs together needs them.
    rng : int, default 0

    Raises
    ------
    AssertionError
        Whose message says what is wrong.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.losses import Huber
    >>> check_loss(Huber(1.0), y=np.random.default_rng(0).normal(size=40))
    """
    generator = np.random.default_rng(rng)
    target = np.asarray(y, dtype=np.float64)
    holds(target.ndim == 1 and len(target) >= 10, "y must be one number a row, of ten rows or more")
    if eta is None:
        holds(
            not isinstance(loss, CoupledLoss), f"{type(loss).__name__} has several outputs: give eta (n, c)"
        )
    at = generator.normal(size=len(target)) if eta is None else np.asarray(eta, dtype=np.float64)
    check_parameters(loss)
    inside = _inside(loss, target, at)
    holds(inside.sum() >= len(target) // 2, "eta has too many rows near the ends of pieces: move it")
    _check_derivatives(loss, target[inside], at[inside])
    _check_convexity(loss, target, at, generator)
    _check_pieces(loss, target[inside], at[inside])
    if isinstance(loss, CoupledLoss):
        moved = generator.normal(size=(*at.shape, 2))
        bent = np.einsum("nab,nbt->nat", loss.hessian(target, at), moved)
        bending = loss.bending(target, at)
        same(bending(moved), bent, "bending is not what the Hessian makes", 1e-7, 1e-9)
        weights = generator.uniform(0.0, 2.0, len(target)) * (generator.random(len(target)) < 0.8)
        weighted, matrices = bending.weighted(weights), weights[:, None, None] * loss.hessian(target, at)
        same(weighted(moved), weights[:, None, None] * bent, "weights are not those of rows", 1e-7, 1e-9)
        same(weighted.total(), matrices.sum(axis=0), "total is not that of the rows", 1e-7, 1e-9)
        same(weighted.traces(), np.einsum("naa->n", matrices), "traces are not those of rows", 1e-7, 1e-9)
        return
    X, weights = 0.5 * generator.normal(size=(len(target), 3)), generator.uniform(0.5, 1.5, len(target))
    problem = Problem(loss, L2(ALPHA), X, target, weights)
    check_refits(problem, 8, generator)
    if loss.pieces is not Pieces.KINKED:  # there is no gradient: every left-out problem has pieces of its own
        _check_gradient(problem, generator.normal(size=len(target)))


def _check_gradient(problem: Problem, target: Array) -> None:
    """The gradient of leave-one-out is what differences say, while all rows keep their piece."""

    def judged(fit: Fit) -> tuple[Array, Cotangent]:
        left_out, cotangent = leave_one_out(fit, lambda one: one.eta - target)
        return left_out.eta - target, cotangent

    check_gradient(problem, lambda t: L2(ALPHA + t), judged, STEP, "the gradient of leave-one-out is wrong")


def _inside(loss: Loss, y: Array, eta: Array) -> Mask:
    """Rows that keep to their piece in all differences."""
    pieces = loss if isinstance(loss, PiecewiseLoss) else straight_part(loss)
    if pieces is None:
        return np.ones(len(y), dtype=bool)
    interval = pieces.interval(y, eta)
    holds(interval.contains(eta), "a row must be within the piece that it is on")
    return interval.contains(eta - 5 * STEP) & interval.contains(eta + 5 * STEP)


def _check_derivatives(loss: Loss, y: Array, eta: Array) -> None:
    value, gradient = loss.value(y, eta), loss.gradient(y, eta)
    hessian, third = loss.hessian(y, eta), loss.third(y, eta)
    c = eta.shape[1:] if isinstance(loss, CoupledLoss) else ()
    holds(value.shape == (len(y),), f"value must be one number a row, got the shape {value.shape}")
    shapes = {"gradient": gradient, "hessian": hessian, "third": third}
    for order, (name, part) in enumerate(shapes.items(), start=1):
        expected = (len(y), *c * order)
        holds(part.shape == expected, f"{name} must have the shape {expected}, got {part.shape}")
    lower = {"gradient": loss.value, "hessian": loss.gradient, "third": loss.hessian}
    for name, part in shapes.items():
        for k in range(c[0] if c else 1):
            unit = np.eye(c[0])[k] if c else 1.0
            found = difference(partial(_along, lower[name], y, eta, unit), STEP)
            scale = 1.0 + np.abs(found).max(initial=0.0)
            same(part[..., k] if c else part, found, f"{name} is not the derivative", 1e-6, 1e-7 * scale)


def _along(function: Callable[[Array, Array], Array], y: Array, eta: Array, unit: Any, t: float) -> Array:
    return function(y, eta + t * unit)


def _check_convexity(loss: Loss, y: Array, eta: Array, rng: np.random.Generator) -> None:
    other = eta[rng.permutation(len(y))]
    middle = loss.value(y, 0.5 * (eta + other))
    mean = 0.5 * (loss.value(y, eta) + loss.value(y, other))
    holds(middle <= mean + 1e-9 * (1.0 + np.abs(mean)), "the loss is not convex: a chord lies below it")
    hessian = loss.hessian(y, eta)
    least = np.linalg.eigvalsh(_linalg.row_matrices(hessian, eta[0].size)).min()
    holds(least >= -1e-9 * np.abs(hessian).max(), "the loss is not convex: its Hessian is negative")
    start = np.asarray(loss.start(y, np.ones(len(y))), dtype=np.float64)
    shape = eta.shape[1:]
    holds(start.shape == shape and np.isfinite(start).all(), f"start must be finite and of shape {shape}")
    holds(
        np.isfinite(loss.value(y, np.broadcast_to(start, eta.shape))), "the loss is not finite at its start"
    )


def _check_pieces(loss: Loss, y: Array, eta: Array) -> None:
    hessian, third = loss.hessian(y, eta), loss.third(y, eta)
    scale = 1e-9 * (1.0 + np.abs(hessian).max())
    if loss.pieces is Pieces.QUADRATIC:
        same(loss.hessian(y, eta[::-1]), hessian, "pieces says QUADRATIC, but the Hessian moves")
        holds(np.abs(third) <= scale, "pieces says QUADRATIC, but the third derivative is not zero")
    if loss.pieces is Pieces.STRAIGHT:
        holds(isinstance(loss, PiecewiseLinear), "a loss of straight pieces must be a PiecewiseLinear")
        holds(np.abs(hessian) <= scale, "pieces says STRAIGHT, but the Hessian is not zero")
    if loss.pieces is Pieces.KINKED:
        holds(isinstance(loss, Mixture), "a loss of curved pieces with kinks must be a Mixture of such parts")
    if loss.pieces is Pieces.SMOOTH:
        path = np.stack([loss.hessian(y, eta + t) for t in np.linspace(0.0, 0.5, 501)])
        steps = np.abs(np.diff(path, axis=0))
        jumps = steps.max(axis=0) > 0.2 * np.abs(path).max(axis=0) + scale
        holds(~jumps, "pieces says SMOOTH, but the Hessian jumps: JUMPING, or UNKNOWN")
    if isinstance(loss, PiecewiseLinear):
        kinks, slopes = loss.kinks(y), loss.slopes(y)
        holds(slopes.shape[1] == kinks.shape[1] + 1, "slopes must be one more than kinks")
        holds(np.diff(slopes, axis=1) > 0, "slopes must rise from piece to piece")
        same(loss.value(y, kinks[:, 0]), 0.0, "the value at the first kink must be zero")
