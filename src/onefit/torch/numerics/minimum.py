"""The minimum of an objective to high accuracy: quasi-Newton steps far from it, Newton steps near it.

Left-out steps and implicit derivatives hold at a minimum only, so that none but an accurate one will do:
L-BFGS comes near, Newton steps (a dense factor, or conjugate gradients on products with the Hessian) take
the error below rounding.  What is stationary but no minimum is left along a direction of negative curvature.

With an ℓ1 norm the signs are found first, the coordinates being split into their positive and negative parts
for L-BFGS-B; Newton steps stay on the support, which coordinates leave at zero and enter by their gradient.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from onefit._typing import Array
from onefit.exceptions import SolverError
from onefit.torch.numerics.newton import (
    beyond_saddle,
    checked,
    descended,
    is_last,
    newton_direction,
    no_minimum,
    quasi_newton,
    value_and_gradient,
)
from onefit.torch.numerics.objective import PenalisedSum, Smooth
from onefit.torch.numerics.optimizers import as_array, lbfgs_b, like

ROUNDS, STEPS = 50, 100
SLACK = 1e-9  # by which the gradient off the support may exceed the slope of the norm


def minimise(objective: PenalisedSum, start: Tensor, *, warm: bool = False) -> Tensor:
    """Return the minimum that a start leads to: (k,).

    Parameters
    ----------
    objective : PenalisedSum
    start : (k,) tensor
    warm : bool, default False
        Whether the start is near: Newton steps are tried at once.

    Raises
    ------
    SolverError
        If the objective has no minimum that can be reached, or is not smooth.
    """
    kinked = bool((objective.kinks(start) > 0).any())
    if warm:
        try:
            return by_newton(objective, start)
        except SolverError:
            pass  # the start was too far: begin as if it were any other
    for _ in range(2 if kinked else 1):
        start = split_signs(objective, start) if kinked else quasi_newton(objective, start)
        try:
            return by_newton(objective, start)
        except SolverError as error:
            failure = error
    raise failure


def split_signs(objective: PenalisedSum, start: Tensor) -> Tensor:
    """L-BFGS-B on θ = u − v with u, v ≥ 0, where the norm is linear: (k,)."""
    k, rate = len(start), as_array(objective.kinks(start))
    kinked = rate > 0

    def value(flat: Array) -> tuple[float, Array]:
        theta = flat[:k] - flat[k:]
        total, gradient = value_and_gradient(objective, torch.as_tensor(theta, device=start.device))
        smooth = gradient - rate * np.sign(theta)
        total += float(rate @ (flat[:k] + flat[k:] - np.abs(theta)))
        return total, np.concatenate([smooth + rate, rate - smooth])

    lower, upper = np.where(kinked, 0.0, -np.inf), np.where(kinked, np.inf, 0.0)
    bounds = np.concatenate([lower, np.zeros(k)]), np.concatenate([np.full(k, np.inf), upper])
    first = as_array(start)
    flat = np.concatenate([np.where(kinked, np.maximum(first, 0), first), kinked * np.maximum(-first, 0)])
    found = lbfgs_b(value, flat, max_iter=5000, gain=1e-15, bounds=bounds)
    return like(found[:k] - found[k:], start)


def by_newton(objective: Smooth, theta: Tensor, steps: int = STEPS) -> Tensor:
    """Newton steps until they are below rounding, at a point that is a minimum: (k,).

    Of an ℓ1 norm they are on the support, which coordinates leave at zero and enter one at a time.

    Raises
    ------
    SolverError
        If no minimum is reached.
    """
    rate = objective.kinks(theta)
    signs = torch.sign(theta)
    for _ in range(ROUNDS + 2 * len(theta)):
        theta, signs = _settle(objective, theta, signs, rate, steps)
        smooth = objective.gradient(theta) - rate * torch.sign(theta)
        excess = torch.where((signs == 0) & (rate > 0), smooth.abs() / rate.clamp(min=1e-300), 0.0)
        worst = int(excess.argmax())
        if float(excess[worst]) <= 1.0 + SLACK:
            below = _below(objective, theta, signs, rate)
            if below is None:
                return theta
            theta, signs = below, torch.sign(below)
            continue
        signs = signs.clone()
        signs[worst] = -torch.sign(smooth[worst])
    raise SolverError(no_minimum(objective, theta))


def _below(objective: Smooth, theta: Tensor, signs: Tensor, rate: Tensor) -> Tensor | None:
    """Return a lower point on the support where this one is no minimum."""
    free = torch.nonzero((signs != 0) | (rate == 0))[:, 0]
    if len(free) == 0:
        return None
    found = beyond_saddle(objective.restricted(theta, free), theta[free])
    return None if found is None else theta.scatter(0, free, found)


def _settle(
    objective: Smooth, theta: Tensor, signs: Tensor, rate: Tensor, steps: int
) -> tuple[Tensor, Tensor]:
    """Newton steps with these signs, each as far as the first coordinate that reaches zero."""
    for _ in range(steps + int((rate > 0).sum())):
        free = torch.nonzero((signs != 0) | (rate == 0))[:, 0]
        if len(free) == 0:
            return theta, signs
        part = objective.restricted(theta, free)
        slope = (objective.gradient(theta) - rate * (torch.sign(theta) - signs))[free]
        direction, full = (
            torch.zeros_like(theta).scatter(0, free, own)
            for own in (newton_direction(part, theta[free], slope), slope)
        )
        length, hit = _first_crossing(theta, direction, signs, rate)
        theta, taken = descended(objective, theta, direction, full, length)
        if hit >= 0 and taken == length:
            theta, signs = theta.clone(), signs.clone()
            theta[hit] = signs[hit] = 0.0
        elif is_last(objective, theta, direction, full):
            slope = objective.gradient(theta) - rate * (torch.sign(theta) - signs)
            return checked(objective, theta, slope[free]), signs
        elif taken == 0.0:
            break
    raise SolverError(no_minimum(objective, theta))


def _first_crossing(theta: Tensor, direction: Tensor, signs: Tensor, rate: Tensor) -> tuple[float, int]:
    """Length of the step at which a coordinate first reaches zero, and which; 1 and −1 if none does."""
    leaving = (rate > 0) & (signs != 0) & ((theta + direction) * signs < 0)
    if not bool(leaving.any()):
        return 1.0, -1
    lengths = torch.where(leaving, -theta / torch.where(leaving, direction, 1.0), torch.inf)
    first = int(lengths.argmin())
    return max(float(lengths[first]), 0.0), first
