"""Where hyperparameters may be, between bounds or on a simplex, and how a search writes them in a vector."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np

from onefit._typing import Array, Index

Scale: TypeAlias = Literal["log", "linear"]

ROUNDING = 1e-8  # distance of a sum from 1 that is none


class Hyperparameter(ABC):
    """Where one hyperparameter may be, a number or a vector, and how the search writes it."""

    name: str
    is_box: bool = True  # whether every component has bounds of its own

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of components."""

    @property
    @abstractmethod
    def ends(self) -> tuple[float, float]:
        """Bounds of every component in the scale of the search."""

    @property
    @abstractmethod
    def middle(self) -> Array:
        """Where the search starts if nothing else is known: (size,)."""

    @abstractmethod
    def value(self, t: Array) -> Any:
        """The hyperparameter as the model takes it."""

    @property
    @abstractmethod
    def range(self) -> str:
        """What its values are, in words."""

    @abstractmethod
    def holds(self, values: Array) -> bool:
        """Whether values of the components, in the scale of the model, are allowed."""

    @abstractmethod
    def at(self, values: Array) -> Array:
        """Values of the components in the scale of the search: (size,)."""

    @abstractmethod
    def project(self, t: Array) -> Array:
        """Nearest point that is allowed: (size,)."""

    @abstractmethod
    def spread(self, shares: Array) -> Array:
        """A point for each row of numbers between 0 and 1: (r, size)."""


@dataclass(frozen=True, eq=False)
class Domain(Hyperparameter):
    """A number between bounds, or one for each group of features.

    Attributes
    ----------
    name : str
    low, high : float
    scale : "log" or "linear"
        What the search takes steps in.
    groups : (p,) int array or None
        Component of each feature; None for a number.
    """

    name: str
    low: float
    high: float
    scale: Scale
    groups: Index | None = None

    @property
    def size(self) -> int:
        return 1 if self.groups is None else int(self.groups.max()) + 1

    @property
    def ends(self) -> tuple[float, float]:
        return (
            (float(np.log(self.low)), float(np.log(self.high)))
            if self.scale == "log"
            else (self.low, self.high)
        )

    @property
    def middle(self) -> Array:
        return np.full(self.size, 0.5 * sum(self.ends))

    def value(self, t: Array) -> Any:
        """The hyperparameter as the model takes it: a float, or one number a feature."""
        values = np.clip(np.exp(t) if self.scale == "log" else t, self.low, self.high)
        return float(values[0]) if self.groups is None else values[self.groups]

    @property
    def range(self) -> str:
        return f"from {self.low:g} to {self.high:g}"

    def holds(self, values: Array) -> bool:
        return bool(np.all((values >= self.low) & (values <= self.high)))

    def at(self, values: Array) -> Array:
        return self.project(np.log(values) if self.scale == "log" else values)

    def project(self, t: Array) -> Array:
        return np.clip(t, *self.ends)

    def spread(self, shares: Array) -> Array:
        low, high = self.ends
        return low + shares * (high - low)

    def components(self, by_feature: Array) -> Array:
        """Sum what features contribute to each component: (size,)."""
        assert self.groups is not None
        return np.bincount(self.groups, by_feature, self.size).astype(np.float64)

    def rate(self, t: Array) -> Array:
        """Derivative of each feature's value in its component: (p,)."""
        assert self.groups is not None
        return (np.exp(t) if self.scale == "log" else np.ones_like(t))[self.groups]


@dataclass(frozen=True, eq=False)
class Shares(Hyperparameter):
    """Weights of a mixture: at least 0, with sum 1."""

    name: str
    count: int
    is_box = False

    @property
    def size(self) -> int:
        return self.count

    @property
    def ends(self) -> tuple[float, float]:
        return 0.0, 1.0

    @property
    def middle(self) -> Array:
        return np.full(self.count, 1.0 / self.count)

    def value(self, t: Array) -> Array:
        """Rounding does not leave the simplex."""
        held = np.maximum(t, 0.0)
        return held / held.sum()

    @property
    def range(self) -> str:
        return "at least 0, with sum 1"

    def holds(self, values: Array) -> bool:
        return bool(np.all(values >= 0) and abs(values.sum() - 1.0) <= ROUNDING)

    def at(self, values: Array) -> Array:
        return self.project(values)

    def project(self, t: Array) -> Array:
        """max(t − τ, 0) with the τ for which they sum to 1 (Held, Wolfe and Crowder 1974)."""
        descending = np.sort(t)[::-1]
        thresholds = (np.cumsum(descending) - 1.0) / np.arange(1, self.count + 1)
        last = np.flatnonzero(descending > thresholds)[-1]
        return np.maximum(t - thresholds[last], 0.0)

    def spread(self, shares: Array) -> Array:
        """Points of the uniform distribution on the simplex: spacings of exponential draws."""
        draws = -np.log1p(-shares)
        return draws / draws.sum(axis=1, keepdims=True)


@dataclass(frozen=True, eq=False)
class Space:
    """All hyperparameters of a search, one after the other in a vector t."""

    domains: tuple[Hyperparameter, ...]

    @property
    def is_box(self) -> bool:
        """Whether every component has bounds of its own."""
        return all(domain.is_box for domain in self.domains)

    @property
    def bounds(self) -> Array:
        """Lower and upper bounds: (2, m)."""
        return np.repeat([domain.ends for domain in self.domains], [d.size for d in self.domains], axis=0).T

    @property
    def slices(self) -> list[slice]:
        """Where each hyperparameter is in t."""
        ends = np.cumsum([0, *(domain.size for domain in self.domains)]).tolist()
        return [slice(first, last) for first, last in pairwise(ends)]

    @property
    def middle(self) -> Array:
        """The middle of everything that is allowed: (m,)."""
        return np.concatenate([domain.middle for domain in self.domains])

    @property
    def bases(self) -> list[Array]:
        """The middle, and the same with all weight of a mixture on one of its losses."""
        found = [self.middle]
        for domain, s in self._parts():
            for vertex in [] if domain.is_box else np.eye(domain.size):
                base = self.middle
                base[s] = vertex
                found.append(base)
        return found

    def values(self, t: Array) -> dict[str, Any]:
        """Hyperparameters by name."""
        return {domain.name: domain.value(t[s]) for domain, s in self._parts()}

    def project(self, t: Array) -> Array:
        """Nearest point that is allowed: (m,)."""
        return np.concatenate([domain.project(t[s]) for domain, s in self._parts()])

    def spread(self, shares: Array) -> Array:
        """A point for each row of numbers between 0 and 1: (r, m)."""
        return np.hstack([domain.spread(shares[:, s]) for domain, s in self._parts()])

    def _parts(self) -> Iterator[tuple[Hyperparameter, slice]]:
        return zip(self.domains, self.slices, strict=True)
