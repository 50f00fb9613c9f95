"""Training on: of all rows to a minimum, and without a few of them for the audit."""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from onefit._progress import progress_line
from onefit.exceptions import NotOptimalWarning, SolverError
from onefit.torch.networks.data import called
from onefit.torch.networks.network import Network
from onefit.torch.networks.objective import TrainingLoss
from onefit.torch.numerics.newton import DENSE, beyond_saddle, newton, quasi_newton

LITTLE_GAIN = 1e-10  # of the objective, at which L-BFGS ends
UNFINISHED = 1e-2  # gradient at the given weights, relative to those of the rows, that is worth a warning
ONCE = (NotImplementedError, RuntimeError)  # of operations without a second derivative
SADDLES = 3  # that are left in turn before the last is told of


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


@dataclass
class Watch:
    """A clock that shows how many steps were made, of how many at most.

    Attributes
    ----------
    clock : Clock
    steps : int
    """

    clock: Clock
    steps: int
    made: int = 0
    show: Callable[[int, int], None] = field(
        default_factory=lambda: progress_line("onefit.torch.loo, training on, steps at most")
    )

    def is_up(self) -> bool:
        self.made += 1
        self.show(min(self.made, self.steps), self.steps)
        return self.clock.is_up()


def trained(network: Network, max_steps: int, stop: Callable[[], bool]) -> Tensor:
    """Train on from its weights: L-BFGS, then Newton steps if there are few parameters: (k,)."""
    objective = TrainingLoss(network)
    theta = quasi_newton(objective, network.theta, max_steps, gain=LITTLE_GAIN, stop=stop)
    if len(theta) > DENSE or stop():
        return theta
    try:
        return newton(objective, theta, steps=20)
    except (SolverError, *ONCE):
        return theta  # a kink (ReLU), a flat direction or no second derivative: what L-BFGS reached stands


def missing(network: Network) -> float:
    """Gradient at the weights, relative to those of the rows and the decay."""
    objective, theta = TrainingLoss(network), network.theta
    size = float(objective.gradient_size(theta))
    return float(objective.gradient(theta).norm()) / max(size, np.finfo(float).tiny)


def finished(network: Network, max_steps: int, clock: Clock) -> tuple[Network, tuple[str, ...]]:
    """Train a network to a minimum; a warning where that was far, a note where it was not reached."""
    watch = Watch(clock, max_steps)
    before, theta = missing(network), trained(network, max_steps, watch.is_up)
    theta, notes = _left_saddles(network, theta, max_steps, clock)
    done = network.with_theta(theta)
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
        theta = trained(network.with_theta(below), max_steps, clock.is_up)
    return theta, ["the Hessian had directions of negative curvature again and again: this may be no minimum"]


def _moved(network: Network, done: Network, before: float) -> str:
    moved = float((done.theta - network.theta).norm() / network.theta.norm().clamp(min=1e-300))
    values = (float(one.row_values(one.theta).mean()) for one in (network, done))
    first, last = values
    return (
        f"the module was not trained to a minimum (its gradient is {before:.2g} of those of the rows): "
        f"training on moved the weights by {moved:.2g} (relative) and the mean training loss from "
        f"{first:.6g} to {last:.6g}. The result is for the weights after that: see that weight_decay is the "
        "one it was trained with, or take train_on=False to judge the weights as they are"
    )


# --- without a row -------------------------------------------------------------------------------------


class Retraining(ABC):
    """How a network is trained without some rows."""

    @abstractmethod
    def without(self, rows: Tensor) -> nn.Module:
        """A module in float64, in ``eval()`` mode."""


@dataclass(frozen=True)
class TrainOn(Retraining):
    """From the weights of all rows, by L-BFGS."""

    network: Network
    max_steps: int

    def without(self, rows: Tensor) -> nn.Module:
        network = self.network
        return network.as_module(trained(network.without(rows), self.max_steps, lambda: False))


@dataclass(frozen=True)
class Recipe(Retraining):
    """What the user does: a function from the numbers of the rows that stay to a trained module."""

    network: Network
    retrain: Callable[[Any], nn.Module]

    def without(self, rows: Tensor) -> nn.Module:
        kept = np.setdiff1d(np.arange(len(self.network.rows)), rows.cpu().numpy())
        module = self.retrain(kept)
        if not isinstance(module, nn.Module):
            raise TypeError(f"retrain must return a torch.nn.Module, got {type(module).__name__}")
        return module.to(device=rows.device, dtype=torch.float64).eval()


def loss_of(network: Network, module: nn.Module, rows: Tensor) -> Tensor:
    """Losses of some rows by another module: (b,)."""
    few = network.rows.take(rows)
    with torch.no_grad():
        return network.losses.values(called(module, {}, few.inputs), few.target)
