"""Many convex heads solved at once by Newton's method, and what their solutions depend on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onefit.exceptions import SolverError
from onefit.torch.features.losses import HeadLoss
from onefit.torch.numerics.backtracking import backtracked

SMALL_DECREMENT = 1e-16  # squared Newton decrement, relative: the step taken then is the last, by its square
STEPS = 200
ENTRIES = 2**24  # of the Hessians, or of the products of columns, that are held at once


@dataclass(frozen=True, eq=False)
class Heads:
    """The problems of some splits.

    Attributes
    ----------
    Z : (n, q) tensor
        Features, and a column of ones if there is an intercept.
    y : (n, c) tensor
    weights : (S, n) tensor
        C w.
    ridge : (q,) tensor
        1, and 0 for the intercept.
    loss : HeadLoss
    """

    Z: Tensor
    y: Tensor
    weights: Tensor
    ridge: Tensor
    loss: HeadLoss

    def objective(self, theta: Tensor) -> Tensor:
        """Value of each problem: (S,)."""
        losses = self.weights * self.loss.value(self.y, self.Z @ theta)
        return losses.sum(-1) + 0.5 * (self.ridge[:, None] * theta.square()).sum((-2, -1))

    def slopes(self, theta: Tensor) -> Tensor:
        """Derivatives C w ℓ' in the linear predictors: (S, n, c)."""
        return self.weights[..., None] * self.loss.gradient(self.y, self.Z @ theta)

    def gradient(self, theta: Tensor) -> Tensor:
        """F(θ): (S, q, c)."""
        return self.Z.mT @ self.slopes(theta) + self.ridge[:, None] * theta

    def curvatures(self, theta: Tensor) -> Tensor:
        """Second derivatives C w ℓ'' in the linear predictors: (S, n, c, c)."""
        return self.weights[..., None, None] * self.loss.curvature(self.y, self.Z @ theta)

    def factor(self, theta: Tensor) -> Tensor:
        """Cholesky factor of H: (S, qc, qc).

        A common shift of all intercepts leaves a multinomial loss as it is; there H gets the curvature that
        keeps their sum at zero.
        """
        (n, q), c = self.Z.shape, self.loss.n_outputs
        flat = self.curvatures(theta).permute(0, 2, 3, 1).reshape(-1, n)
        H = torch.cat([flat @ products for products in self._products(c)], 1)
        H = H.reshape(-1, c, c, q, q).permute(0, 3, 1, 4, 2).reshape(-1, q * c, q * c)
        H.diagonal(dim1=-2, dim2=-1).add_(self.ridge.repeat_interleave(c))
        if self.loss.ignores_common_shift:
            free = (self.ridge == 0).to(H).repeat_interleave(c)
            H += free[:, None] * free
        return _cholesky(H)

    def _products(self, c: int) -> Iterator[Tensor]:
        """Products of the columns of Z, some columns at a time: (n, ·q)."""
        n, q = self.Z.shape
        width = max(1, ENTRIES // (n * q))
        for first in range(0, q, width):
            yield (self.Z[:, first : first + width, None] * self.Z[:, None, :]).reshape(n, -1)

    def solved(self, start: Tensor) -> Tensor:
        """Minimise by damped Newton steps.

        Raises
        ------
        SolverError
        """
        theta = self._begun(start)
        value = self.objective(theta)
        for _ in range(STEPS):
            gradient = self.gradient(theta)
            step = _solve(self.factor(theta), gradient)
            decrement = (gradient * step).sum((-2, -1))
            last = bool((decrement <= SMALL_DECREMENT * (1 + value.abs())).all())
            if last:
                return theta - step
            theta, value = self._descended(theta, value, step, decrement)
        raise SolverError(f"the convex head was not solved in {STEPS} Newton steps: scale the features")

    def _begun(self, start: Tensor) -> Tensor:
        """Each start, or zero where that is better: far on the wrong side no curvature is left to go by."""
        zero = torch.zeros_like(start)
        worse = ~(self.objective(start) <= self.objective(zero))
        return torch.where(worse[:, None, None], zero, start)

    def _descended(
        self, theta: Tensor, value: Tensor, step: Tensor, decrement: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Take each step, halved until the objective falls by its share."""

        def at(length: Tensor) -> Tensor:
            return theta - length[:, None, None] * step

        length, reached = backtracked(
            lambda t: self.objective(at(t)), value, -decrement, torch.ones_like(value)
        )
        return at(length), reached

    def solution(self, start: Tensor) -> Tensor:
        """The minimum as a function of Z, y and the weights, whose derivative is that of a Newton step."""
        with torch.no_grad():
            theta = self.solved(start)
        gradient = self.gradient(theta)
        if not gradient.requires_grad:
            return theta
        with torch.no_grad():
            factor = self.factor(theta)
        stepped: Tensor = theta + _ImplicitStep.apply(gradient, factor)  # type: ignore[no-untyped-call]
        return stepped


def _solve(factor: Tensor, right: Tensor) -> Tensor:
    """H⁻¹ times right, (S, q, c) both."""
    return torch.cholesky_solve(right.reshape(len(right), -1, 1), factor).reshape(right.shape)


def _cholesky(H: Tensor) -> Tensor:
    """Cholesky factors; an intercept without curvature left, far from the optimum, gets a trace of it."""
    factor, failed = torch.linalg.cholesky_ex(H)
    if bool(failed.any()):
        trace = 1e-12 * H.diagonal(dim1=-2, dim2=-1).mean(-1)
        factor = torch.linalg.cholesky(H + torch.diag_embed(trace[:, None].expand(H.shape[:2])))
    return factor


class _ImplicitStep(torch.autograd.Function):
    """−H⁻¹F, with the derivative −H⁻¹dF: that of a solution, where F = 0 (implicit function theorem)."""

    @staticmethod
    def forward(ctx: Any, F: Tensor, factor: Tensor) -> Tensor:
        ctx.save_for_backward(factor)
        return -_solve(factor, F)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor, None]:
        (factor,) = ctx.saved_tensors
        return -_solve(factor, outer), None


def solution(
    features: Tensor,
    y: Tensor,
    weights: Tensor,
    start: Tensor,
    loss: HeadLoss,
    fit_intercept: bool,
) -> Tensor:
    """Coefficients θ (S, q, c) of the heads with weights C w, a few splits at a time, as memory allows."""
    Z = features.double()
    ridge = Z.new_ones(Z.shape[1] + fit_intercept)
    if fit_intercept:
        Z = torch.cat([Z, Z.new_ones(len(Z), 1)], 1)
        ridge[-1] = 0
    (n, q), c = Z.shape, loss.n_outputs
    size = max(1, ENTRIES // max((q * c) ** 2, n * c * c))
    cuts = zip(torch.split(weights, size), torch.split(start, size), strict=True)
    return torch.cat([Heads(Z, y, own, ridge, loss).solution(first) for own, first in cuts])
