"""The two levels of a search for penalties: training at given strengths, and both at once.

φ(λ) = min over w of f(λ, w),   f = training loss + Σ_k λ_k R_k(w),   F(w) = validation loss.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
import torch
from scipy.stats import qmc
from torch import Tensor, nn

from onefit._typing import Array
from onefit.exceptions import SolverError
from onefit.torch.descent import Descent, Goal, Rows
from onefit.torch.feature_map import trained_parameters
from onefit.torch.kriging import Kriging, TangentKriging

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]
Penalty: TypeAlias = Callable[[nn.Module], Tensor]
State: TypeAlias = dict[str, Tensor]


@dataclass(frozen=True)
class Space:
    """The box of the hyperparameters, and its map to the unit cube.

    Attributes
    ----------
    names : tuple of str
    low, high : tuples of float
    logarithmic : bool
    """

    names: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    logarithmic: bool

    @classmethod
    def of(cls, penalties: Any, bounds: Any, scale: str) -> Self:
        """Check the bounds.

        Raises
        ------
        ValueError
        """
        if not isinstance(penalties, Mapping) or not penalties:
            raise ValueError("penalties must be a dictionary of names and penalties, at least one")
        if not isinstance(bounds, Mapping) or set(bounds) != set(penalties):
            raise ValueError(f"bounds must have the same names as penalties: {sorted(penalties)}")
        if scale not in ("log", "linear"):
            raise ValueError(f"scale must be 'log' or 'linear', got {scale!r}")
        for name, pair in bounds.items():
            low, high = pair
            if not (np.isfinite(low) and np.isfinite(high) and low < high):
                raise ValueError(f"bounds of {name!r} must be (lower, upper) with lower < upper, got {pair}")
            if low < 0 or (scale == "log" and low == 0):
                raise ValueError(f"bounds of {name!r} must be positive, 0 only with scale='linear': {pair}")
        low, high = zip(*(bounds[name] for name in penalties), strict=True)
        return cls(tuple(penalties), low, high, scale == "log")

    def strengths(self, unit: Tensor) -> Tensor:
        """λ at a point of the unit cube."""
        low, high = (unit.new_tensor(end) for end in (self.low, self.high))
        if self.logarithmic:
            return torch.exp(low.log() + unit * (high.log() - low.log()))
        return low + unit * (high - low)

    def design(self, n_samples: int | None, seed: int) -> Array:
        """Return where to solve: a grid of 10 for one strength, a Latin hypercube for several."""
        m = len(self.names)
        if m == 1:
            return np.linspace(0.0, 1.0, n_samples or 10)[:, None]
        cube = qmc.LatinHypercube(m, seed=np.random.default_rng(seed))
        points = cube.random(n_samples or 25 * m)
        return points[np.argsort(points.sum(axis=1), kind="stable")]


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


@dataclass(frozen=True, eq=False)
class Problem:
    """The two objectives of a module: f(λ, w) on training data, F(w) on validation data."""

    module: nn.Module
    loss: Loss
    validation_loss: Loss
    penalties: tuple[Penalty, ...]
    space: Space
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

    def listed(self, unit: Array) -> list[float]:
        """λ at a point of the unit cube, in double precision."""
        strengths: list[float] = self.space.strengths(torch.as_tensor(unit, dtype=torch.float64)).tolist()
        return strengths

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


@dataclass(frozen=True, eq=False)
class Inner(Goal):
    """f(λ, ·) at a fixed λ."""

    problem: Problem
    unit: Tensor

    def __call__(self, rows: Rows) -> Tensor:
        return self.problem.training(self.unit, rows)


class Penalised(Goal):
    """Z(λ, w) = F(w) + ½R P² + μP with P = f(λ, w) − φ̂(λ): eq. 4 of the paper.

    On a batch, P² is replaced by what has the same gradient on average, 2 P̄ P with P̄ from all rows.
    """

    def __init__(
        self,
        problem: Problem,
        surrogate: Kriging | TangentKriging,
        unit: Tensor,
        weight: float,
        multiplier: float,
    ) -> None:
        self.problem = problem
        self.surrogate = surrogate
        self.unit = unit
        self.weight = weight
        self.multiplier = multiplier
        self.slack = 0.0

    def excess(self, rows: Rows = None) -> Tensor:
        """P, with φ̂ by its value and its gradient."""
        at = self.unit.detach().cpu().double().numpy()
        slope = torch.as_tensor(self.surrogate.gradient(at)).to(self.unit)
        optimal = self.surrogate.value(at) + slope @ (self.unit - self.unit.detach())
        return self.problem.training(self.unit, rows) - optimal

    def begin(self) -> None:
        """Renew P̄."""
        with torch.no_grad(), evaluating(self.problem.module):
            self.slack = self.excess().item()

    def __call__(self, rows: Rows) -> Tensor:
        excess = self.excess(rows)
        if rows is None:
            return self.problem.validation() + (0.5 * self.weight * excess + self.multiplier) * excess
        return self.problem.validation(rows) + (self.weight * self.slack + self.multiplier) * excess


class Solved(NamedTuple):
    """An inner solution: φ(λ), F(w), the slopes of φ in the unit cube, and w."""

    unit: Array
    value: float
    validation: float
    slopes: Array
    state: State

    def saved(self) -> dict[str, Any]:
        return {
            "unit": torch.as_tensor(self.unit),
            "value": self.value,
            "validation": self.validation,
            "slopes": torch.as_tensor(self.slopes),
            "state": self.state,
        }

    @classmethod
    def loaded(cls, saved: dict[str, Any]) -> Self:
        unit, slopes = saved["unit"].numpy(), saved["slopes"].numpy()
        return cls(unit, saved["value"], saved["validation"], slopes, saved["state"])


def solve(problem: Problem, unit: Array, starts: list[State], descent: Descent, seed: int) -> Solved:
    """Minimise f(λ, ·), from the best of some weights; the module itself stays as it is.

    Raises
    ------
    SolverError
    """
    problem = replace(problem, module=copy.deepcopy(problem.module))
    point = problem.at(unit)
    with torch.no_grad():
        reached = []
        for start in starts:
            problem.module.load_state_dict(start)
            reached.append(problem.training(point).item())
    problem.module.load_state_dict(starts[int(np.argmin(np.nan_to_num(reached, nan=np.inf)))])
    descend(problem, Inner(problem, point), descent, None, seed)
    point = point.requires_grad_()
    value, validation = problem.training(point), problem.validation()
    if not (torch.isfinite(value) and torch.isfinite(validation)):
        raise SolverError(f"the loss is not finite at strengths {problem.listed(unit)}: lower learning_rate")
    slopes = torch.autograd.grad(value, point)[0].cpu().double().numpy()  # the envelope theorem
    return Solved(unit, value.item(), validation.item(), slopes, state_of(problem.module))


def descend(problem: Problem, goal: Goal, descent: Descent, bounded: Tensor | None, seed: int) -> None:
    """Minimise over the parameters of the module, and over a point of the unit cube if one is given."""
    device = problem.variables[0].device
    problem.module.train(descent.is_stochastic)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        descent.run(goal, problem.variables, bounded, seed)
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
