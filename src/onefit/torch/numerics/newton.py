"""The minimum of an objective to high accuracy: quasi-Newton steps far from it, Newton steps near it.

Left-out steps and implicit derivatives hold at a minimum only, so that none but an accurate one will do:
L-BFGS comes near, Newton steps (a dense factor, or conjugate gradients on products with the Hessian) take
the error below rounding.  With an ℓ1 norm the coordinates are split into their positive and negative
parts, and Newton steps stay on the support, which coordinates leave at zero and enter by their gradient.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy.optimize import Bounds, minimize
from torch import Tensor
from torch.func import grad_and_value

from onefit._typing import Array
from onefit.exceptions import SolverError
from onefit.torch.numerics.objective import Objective

DENSE = 600  # parameters up to which a Newton step factors a matrix
SMALL_STEP = 1e-7  # of the largest parameter: the next Newton step is below rounding
SMALL_GAIN = 1e-15  # of the objective: likewise
ROUNDING = 1e-10  # of curvature times parameters: what a gradient may be off by
FAR = 1e12  # no minimum is looked for beyond
VANISHED = 1e-6  # of the gradients of all rows: what may be left of their sum
STEPS, ROUNDS = 100, 50
SLACK = 1e-9  # by which the gradient off the support may exceed the slope of the norm


def minimise(objective: Objective, start: Tensor, *, warm: bool = False) -> Tensor:
    """Return the minimum that a start leads to: (k,).

    Parameters
    ----------
    objective : Objective
    start : (k,) tensor
    warm : bool, default False
        Whether the start is near: Newton steps are tried at once.

    Raises
    ------
    SolverError
        If the objective has no minimum that can be reached, or is not smooth.
    """
    kinked = bool((objective.kinks(start) > 0).any())
    finish = _on_support if kinked else newton
    if warm:
        try:
            return finish(objective, start)
        except SolverError:
            pass  # the start was too far: begin as if it were any other
    for _ in range(2 if kinked else 1):
        start = _split(objective, start) if kinked else quasi_newton(objective, start)
        try:
            return finish(objective, start)
        except SolverError as error:
            failure = error
    raise failure


# --- smooth --------------------------------------------------------------------------------------------


def quasi_newton(objective: Objective, start: Tensor, steps: int = 2000, gain: float = 1e-15) -> Tensor:
    """L-BFGS from a start until a step gains less than a share of the objective: (k,)."""

    def value(flat: Array) -> tuple[float, Array]:
        return _value(objective, torch.as_tensor(flat, device=start.device))

    found = minimize(value, _array(start), jac=True, method="L-BFGS-B", options=_options(steps, gain))
    return _tensor(found.x, start)


def newton(objective: Objective, theta: Tensor, steps: int = STEPS) -> Tensor:
    """Newton steps with step halving until they are below rounding: (k,)."""
    for _ in range(steps):
        slope = objective.gradient(theta)
        direction = newton_direction(objective, theta, slope)
        theta, length = _descend(objective, theta, direction, slope, 1.0)
        if _is_last(objective, theta, direction, slope):
            return _checked(objective, theta, objective.gradient(theta))
        if length == 0.0:
            break
    raise SolverError(_no_minimum(objective, theta))


def newton_direction(objective: Objective, theta: Tensor, slope: Tensor) -> Tensor:
    """−H⁻¹∇, with the moduli of the eigenvalues where H is not positive definite: (k,)."""
    if len(theta) > DENSE:
        return -conjugate(lambda v: objective.product(theta, v), slope)
    H = objective.curvature(theta)
    if not bool(torch.isfinite(H).all()):
        raise SolverError("the second derivatives are not finite: is the objective smooth?")
    lower, failed = torch.linalg.cholesky_ex(H)
    if not int(failed) and _is_well_conditioned(lower):
        return -torch.cholesky_solve(slope[:, None], lower)[:, 0]
    return -pseudo_inverse(H, absolute=True) @ slope


def _is_well_conditioned(lower: Tensor) -> bool:
    diagonal = lower.diagonal()
    return bool(diagonal.min() > 1e-7 * diagonal.max())


def pseudo_inverse(H: Tensor, *, absolute: bool = False) -> Tensor:
    """Inverse of a symmetric matrix on its range."""
    values, vectors = torch.linalg.eigh(H)
    held = values.abs() > 1e-13 * len(H) * values.abs().max()
    inverse = torch.where(held, 1.0 / torch.where(held, values, 1.0), 0.0)
    return (vectors * (inverse.abs() if absolute else inverse)) @ vectors.T


def conjugate(product: Callable[[Tensor], Tensor], rhs: Tensor, tol: float = 1e-12) -> Tensor:
    """Solve with a positive curvature by conjugate gradients; stops where the curvature is not positive."""
    solution = torch.zeros_like(rhs)
    residual, direction = rhs.clone(), rhs.clone()
    size = first = float(rhs @ rhs)
    for _ in range(20 * len(rhs) + 100):
        if size <= tol**2 * first:
            break
        bent = product(direction)
        curved = float(direction @ bent)
        if not curved > 0:
            return solution if bool(solution.any()) else rhs.clone()
        solution += size / curved * direction
        residual -= size / curved * bent
        size, last = float(residual @ residual), size
        direction = residual + size / last * direction
    return solution


def _descend(
    objective: Objective, theta: Tensor, direction: Tensor, slope: Tensor, length: float
) -> tuple[Tensor, float]:
    """Halve a step until the objective decreases, or does not increase by more than its rounding."""
    value = float(objective.value(theta))
    promised = float(slope @ direction)
    slack = 1e-13 * (1.0 + abs(value))
    for _ in range(40):
        moved = theta + length * direction
        if float(objective.value(moved)) <= value + 1e-4 * length * promised + slack:
            return moved, length
        length /= 2
    return theta, 0.0


def _is_last(objective: Objective, theta: Tensor, step: Tensor, slope: Tensor) -> bool:
    """Whether the next Newton step would be below rounding, since convergence is quadratic."""
    if float(step.abs().max()) <= SMALL_STEP * float(theta.abs().max()):
        return True
    return -float(slope @ step) <= SMALL_GAIN * abs(float(objective.value(theta)))


def _checked(objective: Objective, theta: Tensor, slope: Tensor) -> Tensor:
    """Refuse a point where the gradient has not vanished: there the curvature has."""
    rounding = ROUNDING * objective.product(theta, theta).norm()  # where every row is fitted without error
    if not float(slope.norm()) <= VANISHED * float(objective.gradient_size(theta)) + float(rounding):
        raise SolverError(_no_minimum(objective, theta))
    return theta


def _no_minimum(objective: Objective, theta: Tensor) -> str:
    slope, size = float(objective.gradient(theta).abs().max()), float(theta.abs().max())
    return (
        f"no minimum was reached: the gradient is still {slope:.2g}, the largest parameter {size:.2g}. The "
        "objective may not be smooth (say L1Norm() for an l1 norm) or have no minimum (add a penalty)"
    )


# --- with an l1 norm -----------------------------------------------------------------------------------


def _split(objective: Objective, start: Tensor) -> Tensor:
    """L-BFGS-B on θ = u − v with u, v ≥ 0, where the norm is linear: (k,)."""
    k, rate = len(start), _array(objective.kinks(start))
    kinked = rate > 0

    def value(flat: Array) -> tuple[float, Array]:
        theta = flat[:k] - flat[k:]
        total, slope = _value(objective, torch.as_tensor(theta, device=start.device))
        smooth = slope - rate * np.sign(theta)
        total += float(rate @ (flat[:k] + flat[k:] - np.abs(theta)))
        return total, np.concatenate([smooth + rate, rate - smooth])

    lower, upper = np.where(kinked, 0.0, -np.inf), np.where(kinked, np.inf, 0.0)
    bounds = Bounds(np.concatenate([lower, np.zeros(k)]), np.concatenate([np.inf * np.ones(k), upper]))
    first = _array(start)
    flat = np.concatenate([np.where(kinked, np.maximum(first, 0), first), kinked * np.maximum(-first, 0)])
    found = minimize(value, flat, jac=True, method="L-BFGS-B", bounds=bounds, options=_options(5000)).x
    return _tensor(found[:k] - found[k:], start)


def _on_support(objective: Objective, theta: Tensor) -> Tensor:
    """Newton steps on the support; coordinates leave it at zero and enter it one at a time: (k,)."""
    rate = objective.kinks(theta)
    signs = torch.sign(theta)
    for _ in range(ROUNDS + 2 * len(theta)):
        theta, signs = _settle(objective, theta, signs, rate)
        smooth = objective.gradient(theta) - rate * torch.sign(theta)
        excess = torch.where((signs == 0) & (rate > 0), smooth.abs() / rate.clamp(min=1e-300), 0.0)
        worst = int(excess.argmax())
        if float(excess[worst]) <= 1.0 + SLACK:
            return theta
        signs = signs.clone()
        signs[worst] = -torch.sign(smooth[worst])
    raise SolverError(_no_minimum(objective, theta))


def _settle(objective: Objective, theta: Tensor, signs: Tensor, rate: Tensor) -> tuple[Tensor, Tensor]:
    """Newton steps with these signs, each as far as the first coordinate that reaches zero."""
    for _ in range(STEPS + len(theta)):
        free = torch.nonzero((signs != 0) | (rate == 0))[:, 0]
        if len(free) == 0:
            return theta, signs
        part = objective.restricted(theta, free)
        slope = (objective.gradient(theta) - rate * (torch.sign(theta) - signs))[free]
        direction = torch.zeros_like(theta)
        direction[free] = newton_direction(part, theta[free], slope)
        length, hit = _first_crossing(theta, direction, signs, rate)
        full = torch.zeros_like(theta)
        full[free] = slope
        theta, taken = _descend(objective, theta, direction, full, length)
        if hit >= 0 and taken == length:
            theta, signs = theta.clone(), signs.clone()
            theta[hit] = signs[hit] = 0.0
        elif _is_last(objective, theta, direction, full):
            slope = objective.gradient(theta) - rate * (torch.sign(theta) - signs)
            return _checked(objective, theta, slope[free]), signs
        elif taken == 0.0:
            break
    raise SolverError(_no_minimum(objective, theta))


def _first_crossing(theta: Tensor, direction: Tensor, signs: Tensor, rate: Tensor) -> tuple[float, int]:
    """Length of the step at which a coordinate first reaches zero, and which; 1 and −1 if none does."""
    leaving = (rate > 0) & (signs != 0) & ((theta + direction) * signs < 0)
    if not bool(leaving.any()):
        return 1.0, -1
    lengths = torch.where(leaving, -theta / torch.where(leaving, direction, 1.0), torch.inf)
    first = int(lengths.argmin())
    return max(float(lengths[first]), 0.0), first


def _value(objective: Objective, theta: Tensor) -> tuple[float, Array]:
    slopes, values = grad_and_value(objective.value)(theta)
    value, slope = float(values), _array(slopes)
    if not float(theta.abs().max()) < FAR:
        raise SolverError(_no_minimum(objective, theta))
    if not np.isfinite(value) or not np.all(np.isfinite(slope)):
        return 1e300, np.zeros_like(slope)
    return value, slope


def _options(steps: int, gain: float = 1e-15) -> dict[str, float]:
    return {"maxiter": steps, "maxfun": 3 * steps, "ftol": gain, "gtol": 1e-9, "maxcor": 20}


def _array(theta: Tensor) -> Array:
    return theta.detach().cpu().numpy().astype(np.float64)


def _tensor(values: Array, like: Tensor) -> Tensor:
    return torch.as_tensor(values, dtype=like.dtype, device=like.device)
