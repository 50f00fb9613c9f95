"""The two levels of a search for penalties, for whatever is trained.

φ(λ) = min over w of f(λ, w),   f = training loss + Σ_k λ_k R_k(w),   F(w) = validation loss.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
import torch
from scipy.stats import qmc
from torch import Tensor

from onefit._typing import Array
from onefit.torch.value_function.kriging import Kriging
from onefit.validation import check_choice

State: TypeAlias = dict[str, Tensor]  # w


@dataclass(frozen=True)
class SearchBox:
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
    def of(cls, names: Iterable[str], bounds: Any, scale: str) -> Self:
        """Check the bounds.

        Raises
        ------
        ValueError
        """
        names = tuple(names)
        if not isinstance(bounds, Mapping) or set(bounds) != set(names):
            raise ValueError(f"bounds must have the same names as penalties: {sorted(names)}")
        check_choice("scale", scale, ("log", "linear"))
        for name, pair in bounds.items():
            low, high = _pair(name, pair)
            if not (np.isfinite(low) and np.isfinite(high) and low < high):
                raise ValueError(f"bounds of {name!r} must be (lower, upper) with lower < upper, got {pair}")
            if low < 0 or (scale == "log" and low == 0):
                raise ValueError(f"bounds of {name!r} must be positive, 0 only with scale='linear': {pair}")
        lows, highs = zip(*(_pair(name, bounds[name]) for name in names), strict=True)
        return cls(names, lows, highs, scale == "log")

    def strengths(self, unit: Tensor) -> Tensor:
        """λ at a point of the unit cube."""
        low, high = (unit.new_tensor(end) for end in (self.low, self.high))
        if self.logarithmic:
            return torch.exp(low.log() + unit * (high.log() - low.log()))
        return low + unit * (high - low)

    def listed(self, unit: Array) -> list[float]:
        """λ at a point of the unit cube, in double precision."""
        strengths: list[float] = self.strengths(torch.as_tensor(unit, dtype=torch.float64)).tolist()
        return strengths

    def rates(self, unit: Array) -> Array:
        """Derivative of each λ_k in its coordinate of the unit cube: (m,)."""
        low, high = np.array(self.low), np.array(self.high)
        return np.array(self.listed(unit)) * np.log(high / low) if self.logarithmic else high - low

    def design(self, n_samples: int | None, seed: int) -> Array:
        """Return where to solve: a grid of 10 for one strength, a Latin hypercube for several."""
        m = len(self.names)
        if m == 1:
            return np.linspace(0.0, 1.0, n_samples or 10)[:, None]
        cube = qmc.LatinHypercube(m, seed=np.random.default_rng(seed))
        points = cube.random(n_samples or 25 * m)
        return points[np.argsort(points.sum(axis=1), kind="stable")]


def _pair(name: str, given: Any) -> tuple[float, float]:
    try:
        low, high = map(float, given)
    except (TypeError, ValueError) as error:
        raise ValueError(f"bounds of {name!r} must be two numbers (lower, upper), got {given!r}") from error
    return low, high


class Solved(NamedTuple):
    """An inner solution: φ(λ), F(w), the slopes of φ in the unit cube, and w."""

    unit: Array
    value: float
    validation: float
    slopes: Array
    state: State


class Joint(NamedTuple):
    """A point of both levels: λ, in the unit cube, and w."""

    unit: Array
    state: State


class Lagrangian(NamedTuple):
    """Z(λ, w) = F(w) + ½R P² + μP with P = f(λ, w) − φ̂(λ): eq. 4 of the paper.

    Attributes
    ----------
    surrogate : Kriging
        φ̂ on the unit cube.
    weight, multiplier : float
        R and μ.
    """

    surrogate: Kriging
    weight: float
    multiplier: float

    def charge(self, excess: Any) -> Any:
        """½R P² + μP of some P."""
        return (0.5 * self.weight * excess + self.multiplier) * excess


class Levels(ABC):
    """What is trained, on which data, and how each level is minimised."""

    space: SearchBox

    @property
    @abstractmethod
    def start(self) -> State:
        """Where the first training begins."""

    @property
    @abstractmethod
    def key(self) -> bytes:
        """What results depend on: the model and the data."""

    @abstractmethod
    def training(self, unit: Array, state: State) -> float:
        """f(λ, w) on all training rows."""

    @abstractmethod
    def validation(self, state: State) -> float:
        """F(w) on all validation rows."""

    def linear(self) -> float:
        """Validation loss of a linear model beside this one; NaN where there is none, or this is one."""
        return float("nan")

    @abstractmethod
    def solve(self, unit: Array, starts: list[State], seed: int) -> Solved:
        """Minimise f(λ, ·), from the best of some w.

        Raises
        ------
        SolverError
        """

    @abstractmethod
    def descend(self, begin: Joint, goal: Lagrangian, seed: int, *, held: bool = False) -> Joint:
        """Minimise Z over λ and w, or over w alone with λ held.

        Raises
        ------
        SolverError
        """

    @abstractmethod
    def model(self, unit: Array, state: State) -> Any:
        """A model of its own with these λ and w."""

    @property
    @abstractmethod
    def judge(self) -> Any:
        """Judges models on other data, by ``loss`` and ``predict``, and holds none of the search."""
