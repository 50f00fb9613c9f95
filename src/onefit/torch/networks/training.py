"""Training on: of all rows to a minimum, and without a few of them for the audit."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import grad
from torch.nn.modules.batchnorm import _BatchNorm

from onefit._progress import progress_line
from onefit.exceptions import NotOptimalWarning, SolverError
from onefit.torch.networks.data import called
from onefit.torch.networks.mapping import derivative, mapped
from onefit.torch.networks.network import SOME, TOGETHER, Network
from onefit.torch.numerics.minimum import by_newton
from onefit.torch.numerics.newton import DENSE, beyond_saddle, quasi_newton
from onefit.torch.numerics.objective import BUDGET, Smooth

LITTLE_GAIN = 1e-10  # of the objective, at which L-BFGS ends
UNFINISHED = 1e-2  # gradient at the given weights, relative to those of the rows, that is worth a warning
DROPOUT = nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout
ONCE = (NotImplementedError, RuntimeError)  # of operations without a second derivative
Retraining: TypeAlias = Callable[[Tensor], nn.Module]  # from rows to a module without them, in float64

SADDLES = 3  # that are left in turn before the last is told of


# --- what is minimised ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TrainingLoss(Smooth):
    """What the training minimises, by batched forward passes."""

    network: Network

    def value_and_gradient(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        gradient = self.network.total * self.network.decay * theta
        value = 0.5 * (gradient * theta).sum()
        at = theta.detach().requires_grad_()
        for few in self.network.rows.batches(TOGETHER):
            part = self._part(at, few)
            value, gradient = value + part.detach(), gradient + derivative(part, at)
        return value, gradient

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
        network = replace(self.network, theta=theta)
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


# --- all rows ------------------------------------------------------------------------------------------


@dataclass
class Clock:
    """Seconds since it was made, and a limit on them.

    Attributes
    ----------
    limit : float or None
    """

    limit: float | None
    begun: float = field(default_factory=time.monotonic)

    @property
    def spent(self) -> float:
        return time.monotonic() - self.begun

    def has_room_for(self, seconds: float) -> bool:
        return self.limit is None or self.spent + seconds <= self.limit

    def left(self) -> float | None:
        """What is left of the limit."""
        return None if self.limit is None else max(self.limit - self.spent, 0.0)

    def is_up(self) -> bool:
        return not self.has_room_for(0.0)


def watched(clock: Clock, steps: int) -> Callable[[], bool]:
    """Whether the time is up, asked after each step; it shows how many were made, of how many at most."""
    show, made = progress_line("onefit.torch.loo, training on, steps at most"), count(1)

    def is_up() -> bool:
        show(min(next(made), steps), steps)
        return clock.is_up()

    return is_up


def trained(network: Network, max_steps: int, stop: Callable[[], bool]) -> Tensor:
    """Train on from its weights: L-BFGS, then Newton steps if there are few parameters: (k,)."""
    objective = TrainingLoss(network)
    theta = quasi_newton(objective, network.theta, max_steps, gain=LITTLE_GAIN, stop=stop)
    if len(theta) > DENSE or stop():
        return theta
    try:
        return by_newton(objective, theta, steps=20)
    except (SolverError, *ONCE):
        return theta  # a kink (ReLU), a flat direction or no second derivative: what L-BFGS reached stands


def missing(network: Network) -> float:
    """Gradient at the weights, relative to those of the rows and the decay."""
    objective, theta = TrainingLoss(network), network.theta
    size = float(objective.gradient_size(theta))
    return float(objective.gradient(theta).norm()) / max(size, np.finfo(float).tiny)


def finished(network: Network, max_steps: int, clock: Clock) -> tuple[Network, tuple[str, ...]]:
    """Train a network to a minimum; a warning where that was far, a note where it was not reached."""
    before, theta = missing(network), trained(network, max_steps, watched(clock, max_steps))
    theta, notes = _left_saddles(network, theta, max_steps, clock)
    done = replace(network, theta=theta)
    if before > UNFINISHED:
        warnings.warn(_moved(network, done, before), NotOptimalWarning, stacklevel=3)
    after = missing(done)
    if clock.is_up():
        notes.append(f"training was ended by max_seconds={clock.limit:g}")
    if after >= UNFINISHED / 100:
        notes.append(f"training did not converge: gradient {after:.1g}")
    return done, tuple(notes)


def _left_saddles(network: Network, theta: Tensor, max_steps: int, clock: Clock) -> tuple[Tensor, list[str]]:
    """Train on along directions of negative curvature, as long as there are some."""
    for _ in range(SADDLES):
        try:
            below = beyond_saddle(TrainingLoss(network), theta)
        except ONCE:
            return theta, ["the module cannot be differentiated twice: it was not checked to be at a minimum"]
        if below is None or clock.is_up():
            return theta, []
        theta = trained(replace(network, theta=below), max_steps, clock.is_up)
    return theta, ["the Hessian had directions of negative curvature again and again: this may be no minimum"]


def _moved(network: Network, done: Network, before: float) -> str:
    moved = float((done.theta - network.theta).norm() / network.theta.norm().clamp(min=1e-300))
    first, last = (float(one.row_values(one.theta).mean()) for one in (network, done))
    return (
        f"the module was not trained to a minimum (its gradient is {before:.2g} of those of the rows): "
        f"training on moved the weights by {moved:.2g} (relative) and the mean training loss from "
        f"{first:.6g} to {last:.6g}. The result is for the weights after that: see that weight_decay is the "
        f"one it was trained with{_of_modes(network)}, or take train_on=False to judge the weights as they "
        "are"
    )


def _of_modes(network: Network) -> str:
    layers = list(network.module.modules())
    if any(isinstance(layer, DROPOUT) and layer.p > 0 for layer in layers):
        return " and that it can do without dropout, which is off here"
    if any(isinstance(layer, _BatchNorm) for layer in layers):
        return ", and that it was trained as it predicts: batch norm goes by its running means here"
    return ""


# --- without a row -------------------------------------------------------------------------------------


def without_rows(network: Network, max_steps: int, rows: Tensor) -> nn.Module:
    """Train on from the weights of all rows, by L-BFGS."""
    return network.as_module(trained(network.without(rows), max_steps, lambda: False))


def by_recipe(network: Network, retrain: Callable[[Any], nn.Module], rows: Tensor) -> nn.Module:
    """Do what the user does: ``retrain`` goes from the numbers of the rows that stay to a trained module."""
    module = retrain(np.setdiff1d(np.arange(len(network.rows)), rows.cpu().numpy()))
    if not isinstance(module, nn.Module):
        raise TypeError(f"retrain must return a torch.nn.Module, got {type(module).__name__}")
    return module.to(device=rows.device, dtype=torch.float64).eval()


def loss_of(network: Network, module: nn.Module, rows: Tensor) -> Tensor:
    """Losses of some rows by another module: (b,)."""
    few = network.rows.take(rows)
    with torch.no_grad():
        return network.losses.values(called(module, {}, few.inputs), few.target)
