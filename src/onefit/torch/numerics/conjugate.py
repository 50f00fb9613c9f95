"""Linear solves: conjugate gradients on products with a matrix, factors and pseudo-inverses."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

ACCURACY = 1e-13  # of the residual, in the norm of the preconditioner
ENOUGH = 1e-8  # what it has to come to at least

MATRICES = 512  # decomposed at once: for each, however small, CUDA takes half a megabyte of work space


def eigh_each(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors of many small symmetric matrices, some at a time: (b, d), (b, d, d)."""
    found = [torch.linalg.eigh(few) for few in torch.split(matrices, MATRICES)]
    values, vectors = zip(*found, strict=True)
    return torch.cat(values), torch.cat(vectors)


def pseudo_inverse(H: Tensor, *, absolute: bool = False) -> Tensor:
    """Inverse of a symmetric matrix on its range."""
    values, vectors = torch.linalg.eigh(H)
    held = values.abs() > 1e-13 * len(H) * values.abs().max()
    inverse = torch.where(held, 1.0 / torch.where(held, values, 1.0), 0.0)
    return (vectors * (inverse.abs() if absolute else inverse)) @ vectors.T


def cholesky(H: Tensor, least: float = 1e-7) -> Tensor | None:
    """Lower Cholesky factor; None where its diagonal spans more than 1 / ``least``, or there is none."""
    lower, failed = torch.linalg.cholesky_ex(H)
    diagonal = lower.diagonal()
    sound = not int(failed) and (len(H) == 0 or bool(diagonal.min() > least * diagonal.max()))
    return lower if sound else None


def conjugate_each(
    product: Callable[[Tensor], Tensor],
    rhs: Tensor,
    precondition: Callable[[Tensor], Tensor],
    *,
    accuracy: float | Tensor = ACCURACY,
    most: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Conjugate gradients for each row of a right-hand side, with a matrix of its own.

    Parameters
    ----------
    product, precondition : callables
        The matrices, and about their inverses, times rows.
    rhs : (s, k) tensor
    accuracy : float or (s,) tensor
        Of the residual, relative to the right-hand side in the norm of the preconditioner.
    most : int, optional
        Products, at most.

    Returns
    -------
    solution : (s, k) tensor
        As far as it came where a direction of negative curvature was met.
    positive : (s,) bool tensor
        Where it converged and none was met.
    """
    solution, residual = torch.zeros_like(rhs), rhs.clone()
    conditioned = precondition(residual)
    direction = conditioned.clone()
    size = (residual * conditioned).sum(1)
    goal = accuracy**2 * size
    positive = torch.isfinite(size)
    for _ in range(most or 10 * rhs.shape[1] + 100):
        active = positive & (size > goal)
        if not bool(active.any()):
            return solution, positive
        bent = product(direction)
        curved = (direction * bent).sum(1)
        positive &= ~active | (curved > 0)
        length = torch.where(active & positive, size / torch.where(curved > 0, curved, 1.0), 0.0)
        solution += length[:, None] * direction
        residual -= length[:, None] * bent
        conditioned = precondition(residual)
        size, last = torch.where(active, (residual * conditioned).sum(1), size), size
        turn = torch.where(active & (last > 0), size / torch.where(last > 0, last, 1.0), 0.0)
        direction = conditioned + turn[:, None] * direction
    return solution, positive & (size <= (ENOUGH / ACCURACY) ** 2 * goal)
