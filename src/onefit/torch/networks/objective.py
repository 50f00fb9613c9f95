"""What the training of a network minimises, by batched forward passes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import grad

from onefit.torch.networks.derivatives import derivative
from onefit.torch.networks.kronecker import BUDGET
from onefit.torch.networks.mapping import mapped
from onefit.torch.networks.network import SOME, TOGETHER, Network
from onefit.torch.numerics.objective import Smooth


@dataclass(frozen=True, eq=False)
class TrainingLoss(Smooth):
    """What the training minimises, by batched forward passes."""

    network: Network

    def value_and_gradient(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = self._penalty(theta), self.network.total * self.network.decay * theta
        at = theta.detach().requires_grad_()
        for few in self.network.rows.batches(TOGETHER):
            part = self._part(at, few)
            value, gradient = value + part.detach(), gradient + derivative(part, at)
        return value, gradient

    def value(self, theta: Tensor) -> Tensor:
        with torch.no_grad():
            parts = [self._part(theta, few) for few in self.network.rows.batches(TOGETHER)]
            return torch.stack(parts).sum() + self._penalty(theta)

    def gradient(self, theta: Tensor) -> Tensor:
        return self.value_and_gradient(theta)[1]

    def product(self, theta: Tensor, v: Tensor) -> Tensor:
        total = self.network.total * self.network.decay * v
        at = theta.detach().requires_grad_()
        for few in self.network.rows.batches(TOGETHER):
            (slope,) = torch.autograd.grad(self._part(at, few), at, create_graph=True)
            total = total + derivative(slope @ v, at)
        return total

    def curvature(self, theta: Tensor) -> Tensor:
        eye = torch.eye(len(theta), dtype=theta.dtype, device=theta.device)
        dense = torch.diag(self.network.total * self.network.decay)
        for few in self.network.rows.batches(TOGETHER):

            def bent(v: Tensor, few: Tensor = few) -> Tensor:
                return grad(lambda t: (grad(self._part)(t, few) * v).sum())(theta)

            dense = dense + mapped(bent, (eye,), chunk=64)
        return 0.5 * (dense + dense.T)

    def gradient_size(self, theta: Tensor) -> Tensor:
        """Estimated from some rows where there are many."""
        network = self.network.with_theta(theta)
        n = len(network.rows)
        rows = torch.linspace(0, n - 1, min(n, SOME), device=theta.device).round().long()
        sizes = [
            network.gradients(few).norm(dim=1) for few in torch.split(rows, max(1, BUDGET // len(theta)))
        ]
        size = (torch.cat(sizes) * network.shares[rows]).mean() * n
        return size + (0.0 if network.mean else 1.0) * (network.decay * theta).norm()

    def _part(self, theta: Tensor, few: Tensor) -> Tensor:
        network = self.network
        rows = network.rows.take(few)
        return (network.shares[few] * network.losses.values(network.outputs(theta, rows), rows.target)).sum()

    def _penalty(self, theta: Tensor) -> Tensor:
        return 0.5 * self.network.total * (self.network.decay * theta**2).sum()
