"""Derivatives by reverse mode, of modules whose operations may have no batching rule."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import jacrev


def jacobian_of(f: Callable[[Tensor], Tensor], theta: Tensor, maps: bool) -> Tensor:
    """Derivatives of a vector in another: (c, k)."""
    if maps:
        return jacrev(f)(theta)
    at = theta.detach().requires_grad_()
    outputs = f(at)
    return torch.stack([derivative(output, at) for output in outputs])


def derivative(value: Tensor, variable: Tensor) -> Tensor:
    """Derivative that is zero where nothing depends on the variable."""
    if not value.requires_grad:
        return torch.zeros_like(variable)
    (found,) = torch.autograd.grad(
        value, variable, retain_graph=True, allow_unused=True, materialize_grads=True
    )
    return found
