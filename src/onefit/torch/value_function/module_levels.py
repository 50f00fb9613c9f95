"""The two levels of a search for the penalties of any module, by its gradients."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from onefit._typing import Array
from onefit.exceptions import SolverError
from onefit.torch.numerics.optimizers import Descent, Goal, Rows
from onefit.torch.numerics.rows import trained_parameters
from onefit.torch.value_function.checking import linear_loss
from onefit.torch.value_function.levels import (
    Joint,
    Lagrangian,
    Levels,
    SearchBox,
    Solved,
    State,
)

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]
Penalty: TypeAlias = Callable[[nn.Module], Tensor]


@dataclass(frozen=True)
class SumOfSquares:
    """The sum of squares of the parameters whose names match a pattern, as in a shell."""

    pattern: str

    def __call__(self, module: nn.Module) -> Tensor:
        """Return the value.

        Raises
        ------
        ValueError
            If no name matches.
        """
        found = [part.square().sum() for name, part in module.named_parameters() if self.matches(name)]
        if not found:
            names = [name for name, _ in module.named_parameters()]
            raise ValueError(f"no parameter is called {self.pattern!r}; there are {names}")
        return torch.stack(found).sum()

    def matches(self, name: str) -> bool:
        return fnmatchcase(name, self.pattern)


class Data(NamedTuple):
    """Rows and targets."""

    X: Tensor
    y: Tensor


def as_data(names: str, X: Any, y: Any, device: torch.device, dtype: torch.dtype) -> Data:
    """Rows and targets on a device, checked.

    Raises
    ------
    ValueError
    """
    data = Data(as_tensor(X, device, dtype), as_tensor(y, device, dtype))
    if data.X.ndim == 0 or data.y.ndim == 0 or len(data.X) != len(data.y) or len(data.X) == 0:
        raise ValueError(
            f"{names} must have the same number of rows, got {tuple(data.X.shape)} and {tuple(data.y.shape)}"
        )
    for tensor in data:
        if not torch.isfinite(tensor).all():
            raise ValueError(f"{names} hold NaN or infinity")
    return data


def as_tensor(values: Any, device: torch.device, dtype: torch.dtype) -> Tensor:
    """A tensor on a device; whole numbers, such as class labels, stay whole."""
    tensor = values if isinstance(values, Tensor) else torch.tensor(np.asarray(values))
    tensor = tensor.to(device)
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


@dataclass(frozen=True, eq=False)
class BilevelProblem:
    """The two objectives of a module: f(λ, w) on training data, F(w) on validation data."""

    module: nn.Module
    loss: Loss
    validation_loss: Loss
    penalties: tuple[Penalty, ...]
    space: SearchBox
    train: Data
    held: Data

    def training(self, unit: Tensor, rows: Rows = None) -> Tensor:
        """f(λ, w) = training loss + Σ λ_k R_k(w)."""
        X, y = self.train if rows is None else (self.train.X[rows[0]], self.train.y[rows[0]])
        return self.loss(self.module(X), y) + self.space.strengths(unit) @ self.sizes()

    def sizes(self) -> Tensor:
        """R_k(w): (m,)."""
        return torch.stack([penalty(self.module).reshape(()) for penalty in self.penalties])

    def validation(self, rows: Rows = None) -> Tensor:
        """F(w)."""
        X, y = self.held if rows is None else (self.held.X[rows[1]], self.held.y[rows[1]])
        with evaluating(self.module):
            return self.validation_loss(self.module(X), y)

    @property
    def variables(self) -> list[nn.Parameter]:
        """Parameters that are trained."""
        return trained_parameters(self.module)

    def at(self, unit: Array) -> Tensor:
        """Point of the unit cube as a tensor like the parameters."""
        return torch.tensor(unit).to(self.variables[0])  # a copy: it may be moved

    def copy(self, state: State) -> nn.Module:
        """A copy of the module with other weights."""
        module = copy.deepcopy(self.module)
        module.load_state_dict(state)
        return module.eval()

    def check(self) -> None:
        """Refuse penalties and losses that are not one number.

        Raises
        ------
        ValueError
        """
        with torch.no_grad():
            values: dict[str, Any] = {
                f"penalty {name!r}": penalty(self.module)
                for name, penalty in zip(self.space.names, self.penalties, strict=True)
            }
            values["loss"] = self.loss(self.module(self.train.X), self.train.y)
            values["validation_loss"] = self.validation()
        for name, value in values.items():
            if not isinstance(value, Tensor) or value.numel() != 1:
                shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
                raise ValueError(f"{name} must return one number as a tensor, got {shape}")
            if not torch.isfinite(value):
                raise ValueError(f"{name} is not finite at the weights that the module starts from")


@dataclass(eq=False)
class Penalised:
    """Z(λ, w) = F(w) + ½R P² + μP with P = f(λ, w) − φ̂(λ): eq. 4 of the paper.

    On a batch, P² is replaced by what has the same gradient on average, 2 P̄ P with P̄ from all rows.

    Attributes
    ----------
    problem : BilevelProblem
    goal : Lagrangian
    unit : (m,) tensor
        λ in the unit cube.
    slack : float
        P̄.
    """

    problem: BilevelProblem
    goal: Lagrangian
    unit: Tensor
    slack: float = 0.0

    def excess(self, rows: Rows = None) -> Tensor:
        """P, with φ̂ by its value and its gradient."""
        at = self.unit.detach().cpu().double().numpy()
        slope = torch.as_tensor(self.goal.surrogate.gradient(at)).to(self.unit)
        optimal = self.goal.surrogate.value(at) + slope @ (self.unit - self.unit.detach())
        return self.problem.training(self.unit, rows) - optimal

    def begin(self) -> None:
        """Renew P̄."""
        with torch.no_grad(), evaluating(self.problem.module):
            self.slack = self.excess().item()

    def __call__(self, rows: Rows) -> Tensor:
        excess = self.excess(rows)
        if rows is None:
            return self.problem.validation() + self.goal.charge(excess)
        return self.problem.validation(rows) + (self.goal.weight * self.slack + self.goal.multiplier) * excess


@dataclass(frozen=True)
class ModuleJudge:
    """Validation loss and output of a module."""

    validation_loss: Loss

    def loss(self, model: nn.Module, X: Any, y: Any) -> float:
        like = trained_parameters(model)[0]
        data = as_data("X and y", X, y, like.device, like.dtype)
        with torch.no_grad():
            return self.validation_loss(model(data.X), data.y).item()

    def predict(self, model: nn.Module, X: Any) -> Array:
        like = trained_parameters(model)[0]
        with torch.no_grad():
            predicted: Array = model(as_tensor(X, like.device, like.dtype)).double().cpu().numpy()
        return predicted


@dataclass(frozen=True, eq=False)
class ModuleLevels(Levels):
    """Both levels of a module.

    Attributes
    ----------
    problem : BilevelProblem
    descent : Descent
    first : dict of tensors
        Weights that the module comes with.
    """

    problem: BilevelProblem
    descent: Descent
    first: State

    @property
    def space(self) -> SearchBox:  # type: ignore[override]
        return self.problem.space

    @property
    def start(self) -> State:
        return self.first

    @property
    def key(self) -> bytes:
        tensors = (*self.problem.train, *self.problem.held, *self.first.values())
        return b"".join(pickle.dumps((str(one.dtype), one.detach().cpu().numpy())) for one in tensors)

    def training(self, unit: Array, state: State) -> float:
        self.problem.module.load_state_dict(state)
        with torch.no_grad():
            return self.problem.training(self.problem.at(unit)).item()

    def validation(self, state: State) -> float:
        self.problem.module.load_state_dict(state)
        with torch.no_grad():
            return self.problem.validation().item()

    def linear(self) -> float:
        problem = self.problem
        with torch.no_grad():
            output = problem.module(problem.held.X)
        return linear_loss(problem.train, problem.held, output, problem.validation_loss)

    def solve(self, unit: Array, starts: list[State], seed: int) -> Solved:
        """The module itself stays as it is, so that several can be solved at a time."""
        problem = replace(self.problem, module=copy.deepcopy(self.problem.module))
        point = problem.at(unit)
        with torch.no_grad():
            reached = []
            for start in starts:
                problem.module.load_state_dict(start)
                reached.append(problem.training(point).item())
        problem.module.load_state_dict(starts[int(np.argmin(np.nan_to_num(reached, nan=np.inf)))])
        descend(problem, partial(problem.training, point), self.descent, None, seed)
        point = point.requires_grad_()
        value, validation = problem.training(point), problem.validation()
        if not (torch.isfinite(value) and torch.isfinite(validation)):
            raise SolverError(
                f"the loss is not finite at strengths {self.space.listed(unit)}: lower learning_rate"
            )
        slopes = torch.autograd.grad(value, point)[0].cpu().double().numpy()  # the envelope theorem
        return Solved(unit, value.item(), validation.item(), slopes, state_of(problem.module))

    def descend(self, begin: Joint, goal: Lagrangian, seed: int, *, held: bool = False) -> Joint:
        problem, unit = self.problem, self.problem.at(begin.unit)
        problem.module.load_state_dict(begin.state)
        penalised, bounded = Penalised(problem, goal, unit), None if held else unit.requires_grad_()
        descend(problem, penalised, self.descent, bounded, seed, penalised.begin)
        with torch.no_grad():
            reached = problem.training(unit) + problem.validation()
        if not torch.isfinite(reached):
            raise SolverError("the loss is not finite after a round: lower learning_rate")
        return Joint(unit.detach().cpu().double().numpy(), state_of(problem.module))

    def model(self, unit: Array, state: State) -> nn.Module:
        return self.problem.copy(state)

    @property
    def judge(self) -> ModuleJudge:
        return ModuleJudge(self.problem.validation_loss)


def descend(
    problem: BilevelProblem,
    goal: Goal,
    descent: Descent,
    bounded: Tensor | None,
    seed: int,
    begin: Callable[[], object] = lambda: None,
) -> None:
    """Minimise over the parameters of the module, and over a point of the unit cube if one is given."""
    device = problem.variables[0].device
    problem.module.train(descent.is_stochastic)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        descent.run(goal, problem.variables, bounded, seed, begin)
    problem.module.eval()


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """A module in evaluation mode for a while."""
    before = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(before)


def state_of(module: nn.Module) -> State:
    """Copy the weights."""
    return {name: value.detach().cpu().clone() for name, value in module.state_dict().items()}
