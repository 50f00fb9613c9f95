"""Steps that minimise a smooth objective, and what tells that a point is its minimum."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from onefit._typing import Array
from onefit.exceptions import SolverError
from onefit.torch.numerics.backtracking import backtracked
from onefit.torch.numerics.conjugate import cholesky, conjugate_each, pseudo_inverse
from onefit.torch.numerics.objective import Smooth
from onefit.torch.numerics.optimizers import as_array, lbfgs_b, like

DENSE = 600  # parameters up to which a Newton step factors a matrix
SMALL_STEP = 1e-7  # of the largest parameter: the next Newton step is below rounding
SMALL_GAIN = 1e-15  # of the objective: likewise
ROUNDING = 1e-10  # of curvature times parameters: what a gradient may be off by
FAR = 1e12  # no minimum is looked for beyond
VANISHED = 1e-6  # of the gradients of all rows: what may be left of their sum
NEGATIVE = 1e-7  # of the largest curvature: what is below minus that is negative, and not rounding
LANCZOS = 40  # products that look for negative curvature where no matrix is formed


def quasi_newton(
    objective: Smooth,
    start: Tensor,
    steps: int = 2000,
    gain: float = 1e-15,
    stop: Callable[[], bool] = lambda: False,
) -> Tensor:
    """L-BFGS from a start until a step gains less than a share of the objective, or it is stopped: (k,)."""

    def value(flat: Array) -> tuple[float, Array]:
        return value_and_gradient(objective, torch.as_tensor(flat, device=start.device))

    return like(lbfgs_b(value, as_array(start), max_iter=steps, gain=gain, stop=stop), start)


def value_and_gradient(objective: Smooth, theta: Tensor) -> tuple[float, Array]:
    """For SciPy; a large number where the value is not finite.

    Raises
    ------
    SolverError
        If the parameters grow without bounds.
    """
    values, gradients = objective.value_and_gradient(theta)
    value, gradient = float(values), as_array(gradients)
    if not float(theta.abs().max()) < FAR:
        raise SolverError(no_minimum(objective, theta))
    if not np.isfinite(value) or not np.all(np.isfinite(gradient)):
        return 1e300, np.zeros_like(gradient)
    return value, gradient


def beyond_saddle(objective: Smooth, theta: Tensor) -> Tensor | None:
    """Return a lower point along the direction of the most negative curvature, None where there is none.

    A stationary point has no slope, so that f(θ ± tv) ≈ f(θ) + ½t²vᵀHv: the decrease that is asked for is
    that of the parabola, a share of it.
    """
    curved, direction = lowest_curvature(objective, theta)
    if not curved < 0:
        return None
    first = 1.0 + float(theta.norm())
    for sign in (1.0, -1.0):
        step = sign * first * direction
        moved, length = descended(objective, theta, step, 0.5 * sign * curved * first * direction, 1.0)
        if length > 0:
            return moved
    return None


def lowest_curvature(objective: Smooth, theta: Tensor) -> tuple[float, Tensor]:
    """Smallest eigenvalue of the Hessian and its direction; 0 where it is not below rounding."""
    if len(theta) > DENSE:
        H, basis = _by_products(objective, theta)
    else:
        H, basis = objective.curvature(theta), torch.eye(len(theta)).to(theta)
    values, vectors = torch.linalg.eigh(H)
    lowest, scale = float(values[0]), float(values.abs().max())
    direction = basis @ vectors[:, 0]
    return (lowest if lowest < -NEGATIVE * scale else 0.0), direction / direction.norm()


def _by_products(objective: Smooth, theta: Tensor) -> tuple[Tensor, Tensor]:
    """The Hessian in a basis by Lanczos' method: a few products tell a direction of clear descent."""
    start = like(np.random.default_rng(0).normal(size=len(theta)), theta)  # no symmetry hides a direction
    basis, diagonal, beside = [start / start.norm()], list[float](), list[float]()
    for _ in range(LANCZOS):
        bent = objective.product(theta, basis[-1])
        diagonal.append(float(bent @ basis[-1]))
        for earlier in (*basis, *basis):  # twice: what rounding leaves of them
            bent = bent - (bent @ earlier) * earlier
        beside.append(float(bent.norm()))
        if beside[-1] <= NEGATIVE * max(map(abs, diagonal)):
            break
        basis.append(bent / beside[-1])
    off = np.diag(beside[: len(diagonal) - 1], 1)
    return like(np.diag(diagonal) + off + off.T, theta), torch.stack(basis[: len(diagonal)], 1)


def newton_direction(objective: Smooth, theta: Tensor, slope: Tensor) -> Tensor:
    """−H⁻¹∇, with the moduli of the eigenvalues where H is not positive definite: (k,)."""
    if len(theta) > DENSE:
        step = conjugate_each(lambda V: objective.product(theta, V[0])[None], slope[None], torch.clone)[0][0]
        return -step if bool(step.any()) else -slope
    H = objective.curvature(theta)
    if not bool(torch.isfinite(H).all()):
        raise SolverError("the second derivatives are not finite: is the objective smooth?")
    lower = cholesky(H)
    if lower is not None:
        return -torch.cholesky_solve(slope[:, None], lower)[:, 0]
    return -pseudo_inverse(H, absolute=True) @ slope


def descended(
    objective: Smooth, theta: Tensor, direction: Tensor, slope: Tensor, length: float
) -> tuple[Tensor, float]:
    """Halve a step until the objective decreases, or does not increase by more than its rounding."""
    taken, _ = backtracked(
        lambda t: objective.value(theta + t * direction),
        objective.value(theta),
        slope @ direction,
        theta.new_tensor(length),
    )
    return theta + taken * direction, float(taken)


def is_last(objective: Smooth, theta: Tensor, step: Tensor, slope: Tensor) -> bool:
    """Whether the next Newton step would be below rounding, since convergence is quadratic."""
    if float(step.abs().max()) <= SMALL_STEP * float(theta.abs().max()):
        return True
    return -float(slope @ step) <= SMALL_GAIN * abs(float(objective.value(theta)))


def checked(objective: Smooth, theta: Tensor, slope: Tensor) -> Tensor:
    """Refuse a point where the gradient has not vanished: there the curvature has."""
    rounding = ROUNDING * objective.product(theta, theta).norm()  # where every row is fitted without error
    if not float(slope.norm()) <= VANISHED * float(objective.gradient_size(theta)) + float(rounding):
        raise SolverError(no_minimum(objective, theta))
    return theta


def no_minimum(objective: Smooth, theta: Tensor) -> str:
    """What to say where no minimum was reached."""
    slope, size = float(objective.gradient(theta).abs().max()), float(theta.abs().max())
    return (
        f"no minimum was reached: the gradient is still {slope:.2g}, the largest parameter {size:.2g}. The "
        "objective may not be smooth (say L1Norm() for an l1 norm) or have no minimum (add a penalty)"
    )
