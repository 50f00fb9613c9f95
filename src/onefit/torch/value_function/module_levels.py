"""The two levels of a search for the penalties of any module, by its gradients."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from onefit._typing import Array
from onefit.exceptions import SolverError
from onefit.torch.numerics.identity import digest_of
from onefit.torch.numerics.optimizers import Adam, Descent, Goal, Rows
from onefit.torch.numerics.rows import evaluating, seeded, trained_parameters
from onefit.torch.value_function.checking import linear_loss
from onefit.torch.value_function.levels import (
    Joint,
    Lagrangian,
    Levels,
    SearchBox,
    Solved,
    State,
)
from onefit.wording import counted

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]
Penalty: TypeAlias = Callable[[nn.Module], Tensor]


@dataclass(frozen=True)
class SumOfSquares:
    """The sum of squares of the trained parameters whose names match a pattern, as in a shell."""

    pattern: str

    def __call__(self, module: nn.Module) -> Tensor:
        """Return the value.

        Raises
        ------
        ValueError
            If no name matches.
        """
        trained = {name: part for name, part in module.named_parameters() if part.requires_grad}
        found = [part.square().sum() for name, part in trained.items() if fnmatchcase(name, self.pattern)]
        if not found:
            raise ValueError(
                f"no parameter that is trained is called {self.pattern!r}; there are {list(trained)}"
            )
        return torch.stack(found).sum()


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
    given = values if isinstance(values, Tensor) else np.asarray(values)
    if not isinstance(given, Tensor) and given.dtype.kind not in "biuf":
        raise TypeError(f"rows and targets must be numbers, got {given.dtype}: write classes as 0, 1, 2 …")
    tensor = (given if isinstance(given, Tensor) else torch.tensor(given)).to(device)
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


@dataclass(eq=False)
class Penalised:
    """Z(λ, w) = F(w) + ½R P² + μP with P = f(λ, w) − φ̂(λ): eq. 4 of the paper.

    On a batch, P² is replaced by what has the same gradient on average, 2 P̄ P with P̄ from all rows.

    Attributes
    ----------
    levels : ModuleLevels
    goal : Lagrangian
    unit : (m,) tensor
        λ in the unit cube.
    slack : float
        P̄.
    """

    levels: ModuleLevels
    goal: Lagrangian
    unit: Tensor
    slack: float = 0.0

    def excess(self, rows: Rows = None) -> Tensor:
        """P, with φ̂ by its value and its gradient."""
        at = self.unit.detach().cpu().double().numpy()
        slope = torch.as_tensor(self.goal.surrogate.gradient(at)).to(self.unit)
        optimal = self.goal.surrogate.value(at) + slope @ (self.unit - self.unit.detach())
        return self.levels.objective(self.unit, rows) - optimal

    def begin(self) -> None:
        """Renew P̄."""
        with torch.no_grad(), evaluating(self.levels.module):
            self.slack = self.excess().item()

    def __call__(self, rows: Rows) -> Tensor:
        excess = self.excess(rows)
        if rows is None:
            return self.levels.held_loss() + self.goal.charge(excess)
        return self.levels.held_loss(rows) + (self.goal.weight * self.slack + self.goal.multiplier) * excess


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
    """Both levels of a module: f(λ, w) on training data, F(w) on validation data.

    Attributes
    ----------
    module : nn.Module
    loss, validation_loss : callables
        Of outputs and targets.
    penalties : tuple of callables
        R_k of the module.
    space : SearchBox
    train, held : Data
    descent : Lbfgs or Adam
    first : dict of tensors
        Weights that the module comes with.
    """

    module: nn.Module
    loss: Loss
    validation_loss: Loss
    penalties: tuple[Penalty, ...]
    space: SearchBox
    train: Data
    held: Data
    descent: Descent
    first: State

    # --- as functions of tensors -----------------------------------------------------------------------

    def objective(self, unit: Tensor, rows: Rows = None) -> Tensor:
        """f(λ, w) = training loss + Σ λ_k R_k(w)."""
        X, y = self.train if rows is None else (self.train.X[rows[0]], self.train.y[rows[0]])
        return self.loss(self.module(X), y) + self.space.strengths(unit) @ self.sizes()

    def sizes(self) -> Tensor:
        """R_k(w): (m,)."""
        return torch.stack([penalty(self.module).reshape(()) for penalty in self.penalties])

    def held_loss(self, rows: Rows = None) -> Tensor:
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

    def check(self) -> None:
        """Refuse penalties and losses that are not one number.

        Raises
        ------
        ValueError
        """
        penalties = zip(self.space.names, self.penalties, strict=True)
        self._check_batches()
        terms: dict[str, Any] = {f"penalty {name!r}": penalty(self.module) for name, penalty in penalties}
        values = dict(terms)
        with torch.no_grad():
            values["loss"] = self._said("X and y", self.train, self.loss)
            values["validation_loss"] = self._said("X_val and y_val", self.held, self.validation_loss)
        for name, value in values.items():
            if not isinstance(value, Tensor) or value.numel() != 1:
                shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
                raise ValueError(f"{name} must return one number as a tensor, got {shape}")
            if not torch.isfinite(value):
                raise ValueError(f"{name} is not finite at the weights that the module starts from")
        for name, term in terms.items():
            if not term.requires_grad:
                raise ValueError(
                    f"{name} does not depend on any parameter that is trained, so that its strength changes "
                    "nothing: see requires_grad of those that it is of"
                )

    def _check_batches(self) -> None:
        """Refuse batches that the module does not train on, as batch normalisation does not on one row."""
        if not isinstance(self.descent, Adam):
            return
        size, own = self.descent.smallest, copy.deepcopy(self.module).train()
        try:
            with torch.no_grad(), seeded(0, self.variables[0].device):
                own(self.train.X[:size])
        except ValueError as error:
            raise ValueError(
                f"the module does not train on a batch of {counted(size, 'row')} ({error}): raise "
                "batch_size, or give more rows"
            ) from error

    def _said(self, names: str, data: Data, loss: Loss) -> Tensor:
        """A loss of some rows, which the module and the loss have to take."""
        shapes = f"{names} of shapes {tuple(data.X.shape)} and {tuple(data.y.shape)}"
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="Using a target size", category=UserWarning)
            try:
                with evaluating(self.module):
                    return loss(self.module(data.X), data.y)
            except UserWarning as error:
                raise ValueError(
                    f"the loss would hold every output against every target of {shapes}: give outputs and "
                    "targets one shape, as y[:, None] does"
                ) from error
            except RuntimeError as error:
                raise ValueError(f"the module and its loss do not take {shapes}: {error}") from error

    # --- the levels ------------------------------------------------------------------------------------

    @property
    def start(self) -> State:
        return self.first

    @property
    def key(self) -> bytes:
        functions = self.loss, self.validation_loss, self.penalties
        return digest_of(self.module, self.first, functions, *self.train, *self.held).encode()

    def training(self, unit: Array, state: State) -> float:
        self.module.load_state_dict(state)
        with torch.no_grad():
            return self.objective(self.at(unit)).item()

    def validation(self, state: State) -> float:
        self.module.load_state_dict(state)
        with torch.no_grad():
            return self.held_loss().item()

    def linear(self) -> float:
        with torch.no_grad():
            output = self.module(self.held.X)
        return linear_loss(self.train, self.held, output, self.validation_loss)

    def solve(self, unit: Array, starts: list[State], seed: int) -> Solved:
        """The module itself stays as it is, so that several can be solved at a time."""
        own = replace(self, module=copy.deepcopy(self.module))
        point = own.at(unit)
        with torch.no_grad():
            reached = []
            for start in starts:
                own.module.load_state_dict(start)
                reached.append(own.objective(point).item())
        own.module.load_state_dict(starts[int(np.argmin(np.nan_to_num(reached, nan=np.inf)))])
        own.minimise(partial(own.objective, point), None, seed)
        point = point.requires_grad_()
        value, validation = own.objective(point), own.held_loss()
        if not (torch.isfinite(value) and torch.isfinite(validation)):
            raise SolverError(
                f"the loss is not finite at strengths {self.space.listed(unit)}: lower learning_rate"
            )
        slopes = torch.autograd.grad(value, point)[0].cpu().double().numpy()  # the envelope theorem
        return Solved(unit, value.item(), validation.item(), slopes, state_of(own.module))

    def descend(self, begin: Joint, goal: Lagrangian, seed: int, *, held: bool = False) -> Joint:
        unit = self.at(begin.unit)
        self.module.load_state_dict(begin.state)
        penalised, bounded = Penalised(self, goal, unit), None if held else unit.requires_grad_()
        self.minimise(penalised, bounded, seed, penalised.begin)
        with torch.no_grad():
            reached = self.objective(unit) + self.held_loss()
        if not torch.isfinite(reached):
            raise SolverError("the loss is not finite after a round: lower learning_rate")
        return Joint(unit.detach().cpu().double().numpy(), state_of(self.module))

    def model(self, unit: Array, state: State) -> nn.Module:
        module = copy.deepcopy(self.module)
        module.load_state_dict(state)
        return module.eval()

    @property
    def judge(self) -> ModuleJudge:
        return ModuleJudge(self.validation_loss)

    def minimise(
        self, goal: Goal, bounded: Tensor | None, seed: int, begin: Callable[[], object] = lambda: None
    ) -> None:
        """Minimise over the parameters of the module, and over a point of the unit cube if one is given."""
        self.module.train(self.descent.is_stochastic)
        with seeded(seed, self.variables[0].device):
            self.descent.run(goal, self.variables, bounded, seed, begin)
        self.module.eval()


def state_of(module: nn.Module) -> State:
    """Copy the weights."""
    return {name: value.detach().cpu().clone() for name, value in module.state_dict().items()}
