"""Training on: of all rows to a minimum, and without a few of them for the audit."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import grad
from torch.nn.modules.batchnorm import _BatchNorm

from onefit._progress import progress_line
from onefit.exceptions import NotOptimalWarning, SolverError
from onefit.torch.networks.data import called
from onefit.torch.networks.mapping import ONCE, derivative, mapped
from onefit.torch.networks.network import SOME, TOGETHER, Network
from onefit.torch.numerics.minimum import by_newton
from onefit.torch.numerics.newton import DENSE, beyond_saddle, quasi_newton
from onefit.torch.numerics.objective import BUDGET, Smooth

LITTLE_GAIN = 1e-10  # of the objective, at which L-BFGS ends
UNFINISHED = 1e-2  # gradient at the given weights, relative to those of the rows, that is worth a warning
VANISHED = 1e-4  # the same where training has ended, below which there is none
MORE, SMALL_GAIN = 4, 1e-4  # at an end a fourth of the steps more gains no larger share of the objective
STILL = 1e-3  # share of the weights that training on moves, below which they were at a minimum
DROPOUT = nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout
Retraining: TypeAlias = Callable[[Tensor], "tuple[nn.Module, bool]"]  # a module without rows, if it is done

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


class TrainingEnd(NamedTuple):
    """Weights, (k,), and whether training came to an end there, at which steps gain next to nothing."""

    theta: Tensor
    is_done: bool


def trained(network: Network, max_steps: int, stop: Callable[[], bool]) -> TrainingEnd:
    """Train on from its weights: L-BFGS, then Newton steps if there are few parameters."""
    objective, made = TrainingLoss(network), count(1)

    def ends() -> bool:
        next(made)
        return stop()

    theta = quasi_newton(objective, network.theta, max_steps, gain=LITTLE_GAIN, stop=ends)
    is_done = next(made) <= max_steps and not stop()
    if not is_done and not stop():  # in kinks there may be no end, and yet nothing to be gained
        before = float(objective.value(theta))
        theta = quasi_newton(objective, theta, 1 + max_steps // MORE, gain=LITTLE_GAIN, stop=stop)
        is_done = before - float(objective.value(theta)) <= SMALL_GAIN * abs(before)
    if len(theta) > DENSE or stop():
        return TrainingEnd(theta, is_done)
    try:
        return TrainingEnd(by_newton(objective, theta, steps=20), True)
    except (SolverError, *ONCE):
        # a kink (ReLU), a flat direction or no second derivative: what L-BFGS reached stands
        return TrainingEnd(theta, is_done)


def missing(network: Network) -> float:
    """Gradient at the weights, relative to those of the rows and the decay."""
    objective, theta = TrainingLoss(network), network.theta
    size = float(objective.gradient_size(theta))
    return float(objective.gradient(theta).norm()) / max(size, np.finfo(float).tiny)


def finished(network: Network, max_steps: int, clock: Clock) -> tuple[Network, tuple[str, ...]]:
    """Train a network to a minimum; a warning where that was far, a note where it was not reached."""
    before, end = missing(network), trained(network, max_steps, watched(clock, max_steps))
    end, notes = _left_saddles(network, end, max_steps, clock)
    done = replace(network, theta=end.theta)
    moved = float((done.theta - network.theta).norm() / network.theta.norm().clamp(min=1e-300))
    if before > UNFINISHED and moved > STILL:
        warnings.warn(_moved(network, done, before, moved), NotOptimalWarning, stacklevel=3)
    if clock.is_up():
        notes.append(f"training was ended by max_seconds={clock.limit:g}")
    after = missing(done)
    if after >= VANISHED:
        notes.append(_kinked(after) if end.is_done else f"training did not converge: gradient {after:.1g}")
    return done, tuple(notes)


def _kinked(after: float) -> str:
    return (
        f"the gradient does not vanish where training ends ({after:.1g} of those of the rows): the weights "
        "are at kinks, such as those of ReLU, where the steps of the formula are rough"
    )


def _left_saddles(
    network: Network, end: TrainingEnd, max_steps: int, clock: Clock
) -> tuple[TrainingEnd, list[str]]:
    """Train on along directions of negative curvature, as long as there are some.

    At kinks, and on the way, nothing is stationary, and curvature says nothing.
    """
    for _ in range(SADDLES):
        if clock.is_up() or missing(replace(network, theta=end.theta)) >= VANISHED:
            return end, []
        try:
            below = beyond_saddle(TrainingLoss(network), end.theta)
        except ONCE:
            return end, ["the module cannot be differentiated twice: it was not checked to be at a minimum"]
        if below is None:
            return end, []
        end = trained(replace(network, theta=below), max_steps, clock.is_up)
    return end, ["the Hessian had directions of negative curvature again and again: this may be no minimum"]


def _moved(network: Network, done: Network, before: float, moved: float) -> str:
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


def without_rows(network: Network, max_steps: int, rows: Tensor) -> tuple[nn.Module, bool]:
    """Train on from the weights of all rows, by L-BFGS, and tell whether that came to an end."""
    others = network.without(rows)
    end = trained(others, max_steps, lambda: False)
    is_done = end.is_done or missing(replace(others, theta=end.theta)) < VANISHED
    return network.as_module(end.theta), is_done


def by_recipe(network: Network, retrain: Callable[[Any], nn.Module], rows: Tensor) -> tuple[nn.Module, bool]:
    """Do what the user does: ``retrain`` goes from the numbers of the rows that stay to a trained module."""
    module = retrain(np.setdiff1d(np.arange(len(network.rows)), rows.cpu().numpy()))
    if not isinstance(module, nn.Module):
        raise TypeError(f"retrain must return a torch.nn.Module, got {type(module).__name__}")
    own = copy.deepcopy(module)  # the recipe may return one module again and again
    return own.to(device=rows.device, dtype=torch.float64).eval(), True


def loss_of(network: Network, module: nn.Module, rows: Tensor) -> Tensor:
    """Losses of some rows by another module: (b,)."""
    few = network.rows.take(rows)
    with torch.no_grad():
        return network.losses.values(called(module, {}, few.inputs), few.target)
