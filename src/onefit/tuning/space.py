"""Where hyperparameters may be, between bounds or on a simplex, and how a search writes them in a vector."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from onefit._typing import Array, Index

Scale: TypeAlias = Literal["log", "linear"]

ROUNDING = 1e-8  # distance of a sum from 1 that is none


@dataclass(frozen=True, eq=False)
class Domain:
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
    is_box: ClassVar[bool] = True  # whether every component has bounds of its own

    @property
    def size(self) -> int:
        """Number of components."""
        return 1 if self.groups is None else int(self.groups.max()) + 1

    @property
    def ends(self) -> tuple[float, float]:
        """Bounds of every component in the scale of the search."""
        low, high = self._written(np.array([self.low, self.high], dtype=np.float64))
        return float(low), float(high)

    @property
    def middle(self) -> Array:
        """Where the search starts if nothing else is known: (size,)."""
        return np.full(self.size, 0.5 * sum(self.ends))

    def value(self, t: Array) -> Any:
        """The hyperparameter as the model takes it: a float, or one number a feature."""
        values = np.clip(np.exp(t) if self.scale == "log" else t, self.low, self.high)
        return float(values[0]) if self.groups is None else values[self.groups]

    @property
    def range(self) -> str:
        """What its values are, in words."""
        return f"from {self.low:g} to {self.high:g}"

    def holds(self, values: Array) -> bool:
        """Whether values of the components, in the scale of the model, are allowed."""
        return bool(np.all((values >= self.low) & (values <= self.high)))

    def at(self, values: Array) -> Array:
        """Values of the components in the scale of the search: (size,)."""
        return self.project(self._written(values))

    def _written(self, values: Array) -> Array:
        return np.log(values) if self.scale == "log" else values

    def project(self, t: Array) -> Array:
        """Nearest point that is allowed: (size,)."""
        return np.clip(t, *self.ends)

    def spread(self, shares: Array) -> Array:
        """A point for each row of numbers between 0 and 1: (r, size)."""
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
class Shares:
    """Weights of a mixture: at least 0, with sum 1; what it can do is said at ``Domain``."""

    name: str
    size: int
    is_box: ClassVar[bool] = False

    @property
    def ends(self) -> tuple[float, float]:
        return 0.0, 1.0

    @property
    def middle(self) -> Array:
        return np.full(self.size, 1.0 / self.size)

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
        thresholds = (np.cumsum(descending) - 1.0) / np.arange(1, self.size + 1)
        last = np.flatnonzero(descending > thresholds)[-1]
        return np.maximum(t - thresholds[last], 0.0)

    def spread(self, shares: Array) -> Array:
        """Points of the uniform distribution on the simplex: spacings of exponential draws."""
        draws = -np.log1p(-shares)
        return draws / draws.sum(axis=1, keepdims=True)


Hyperparameter: TypeAlias = Domain | Shares


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
        for domain, s in self.parts():
            for vertex in [] if domain.is_box else np.eye(domain.size):
                base = self.middle
                base[s] = vertex
                found.append(base)
        return found

    def values(self, t: Array) -> dict[str, Any]:
        """Hyperparameters by name."""
        return {domain.name: domain.value(t[s]) for domain, s in self.parts()}

    def project(self, t: Array) -> Array:
        """Nearest point that is allowed: (m,)."""
        return np.concatenate([domain.project(t[s]) for domain, s in self.parts()])

    def spread(self, shares: Array) -> Array:
        """A point for each row of numbers between 0 and 1: (r, m)."""
        return np.hstack([domain.spread(shares[:, s]) for domain, s in self.parts()])

    def parts(self) -> Iterator[tuple[Hyperparameter, slice]]:
        """Each hyperparameter, and where it is in t."""
        return zip(self.domains, self.slices, strict=True)
