"""A risk as a function of hyperparameters, and its gradient.

Each evaluation solves the problem to machine precision from the last solution, so that the gradient of
``onefit.gradients`` is exact at every step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from onefit import _linalg, gradients
from onefit._typing import Array, Design
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.gradients import Stencil
from onefit.losses import Mixture, PiecewiseLinear
from onefit.penalties import Penalty, SeparablePenalty
from onefit.problem import Problem
from onefit.tuning.judges import Judge, Judged, Part
from onefit.tuning.space import Domain, Hyperparameter, Shares, Space

PROBE = 1e-4  # step of a central difference of the risk itself, relative to the width of the bounds
FINE = 1e-2  # distance between points where the loss changes, relative to what it is elsewhere


class Changes(NamedTuple):
    """What a hyperparameter changes of the problem."""

    penalty: bool
    loss: bool
    gram: bool


NOTHING = Changes(penalty=False, loss=False, gram=False)


InGram: TypeAlias = Callable[[Design, str, Array], Array | None]


def _by_points(X: Design, name: str, owed: Array) -> None:
    """Nothing is known of this kernel but its values."""


class Visited(NamedTuple):
    """A point, the risk there, and that of each set of rows where sets leave."""

    t: Array
    value: float
    by_set: Array | None = None


class Objective(ABC):
    """A risk and its gradient in the hyperparameters."""

    space: Space
    judge: Judge
    visited: list[Visited]

    @abstractmethod
    def has_kinks(self) -> bool:
        """Whether the risk has kinks."""

    def has_kinks_of_rows(self) -> bool:
        """Whether each row makes kinks, so that they are all over and minima lie in them."""
        return False

    @abstractmethod
    def value(self, t: Array) -> float:
        """The risk; infinite where there is none."""

    @abstractmethod
    def value_and_gradient(self, t: Array) -> tuple[float, Array]:
        """The risk and its gradient in t, which is zero where the risk is infinite."""

    @abstractmethod
    def without_effect(self) -> list[str]:
        """Names of hyperparameters that were found to change nothing."""


@dataclass(eq=False)
class RiskObjective(Objective):
    """A risk and its gradient in the hyperparameters.

    Attributes
    ----------
    space : Space
    problem_at : callable
        The problem for hyperparameters by name.
    judge : Judge
    in_gram : callable
        From a kernel's design, the name of a hyperparameter with one value a feature and a derivative in the
        Gram matrix to the derivative in each value, or None where it has no formula.
    """

    space: Space
    problem_at: Callable[[dict[str, Any]], Problem]
    judge: Judge
    in_gram: InGram = _by_points
    fits: list[Fit] = field(default_factory=list)
    changes: dict[int, Changes | None] = field(default_factory=dict)
    visited: list[Visited] = field(default_factory=list)

    @property
    def exact(self) -> dict[int, bool]:
        """Hyperparameters whose gradients are no differences of the risk."""
        return {m: changes is not None for m, changes in self.changes.items()}

    def has_kinks(self) -> bool:
        """Where rows come onto kinks of loss or metric, or coefficients onto those of the penalty."""
        problem = self._problem(self.space.middle)
        return self.has_kinks_of_rows() or problem.penalty.has_kinks(problem.coef_shape)

    def has_kinks_of_rows(self) -> bool:
        return self.judge.metric.has_kinks or self._problem(self.space.middle).loss.has_kinks

    def without_effect(self) -> list[str]:
        return [self.space.domains[m].name for m, changes in self.changes.items() if changes == NOTHING]

    def value(self, t: Array) -> float:
        return self._judged(t, gradient=False).value

    def value_and_gradient(self, t: Array) -> tuple[float, Array]:
        for m in range(len(self.space.domains)):
            known = self.changes.get(m, NOTHING)
            if known is not None and not any(known):  # what has no effect here may have one elsewhere
                self.changes[m] = self._changes(m, t)
        judged = self._judged(t, gradient=any(self.exact.values()))
        gradient = np.zeros(len(t))
        if not np.isfinite(judged.value):
            return judged.value, gradient
        owed = None
        if any(changes is not None and changes.gram for changes in self.changes.values()):
            owed = gradients.in_gram([part.cotangent for part in judged.parts])
        for m, s in enumerate(self.space.slices):
            known = self.changes[m]
            gradient[s] = (
                self._by_differences(m, t) if known is None else self._exact(m, t, known, judged.parts, owed)
            )
        return judged.value, gradient

    def _judged(self, t: Array, *, gradient: bool) -> Judged:
        try:
            judged = self.judge.judge(self.problem_at(self.space.values(t)), self.fits, gradient=gradient)
        except (SolverError, np.linalg.LinAlgError):
            judged = Judged(np.inf, [], self.fits)
        value = judged.value if np.isfinite(judged.value) else np.inf
        self.fits = judged.fits
        self.visited.append(Visited(t.copy(), value, judged.by_set))
        return judged._replace(value=value)

    def _changes(self, m: int, t: Array) -> Changes | None:
        """What this hyperparameter changes; None where the risk has no gradient along that."""
        domain, here = self.space.domains[m], self._problem(t)
        if not self.judge.has_gradient(here):
            return None
        if isinstance(domain, Shares):
            mixed = isinstance(here.loss, Mixture) and self.judge.in_loss
            return Changes(penalty=False, loss=True, gram=False) if mixed else None
        stencil, inward = self._stencil(m, t)
        there = self._moved(m, t, stencil.places[-1] * inward)
        changes = Changes(
            not gradients.same_penalty(here.penalty, there.penalty),
            here.loss != there.loss,
            not _linalg.is_same(here.X, there.X),
        )
        one_by_one = isinstance(here.penalty, SeparablePenalty)
        if domain.groups is not None and changes.penalty and not one_by_one:
            raise ValueError(
                f"{domain.name} has one value a feature, which {type(here.penalty).__name__} does not take: "
                "give it a pair of numbers"
            )
        return changes if self._is_covered(changes, here, there, m) else None

    def _is_covered(self, changes: Changes, here: Problem, there: Problem, m: int) -> bool:
        if changes.gram and _linalg.has_columns(here.X):
            return False
        if changes.loss and not (self.judge.in_loss and self._keeps_its_kinks(here, m)):
            return False
        return np.array_equal(there.weights, here.weights) and np.array_equal(there.y, here.y)

    def _keeps_its_kinks(self, here: Problem, m: int) -> bool:
        """Whether the loss is of one kind, with as many kinks, at either bound."""
        s, counts = self.space.slices[m], set()
        for end in self.space.bounds[:, s]:
            t = self.space.middle
            t[s] = end
            loss = self._problem(t).loss
            count = loss.kinks(here.y).shape[1] if isinstance(loss, PiecewiseLinear) else 0
            counts.add((type(loss), count))
        return len(counts) == 1

    def _problem(self, t: Array) -> Problem:
        return self.problem_at(self.space.values(t))

    def _exact(self, m: int, t: Array, changes: Changes, parts: list[Part], owed: Array | None) -> Array:
        domain = self.space.domains[m]
        if not isinstance(domain, Domain):
            return self._in_shares(parts)
        if changes.gram and domain.groups is not None:
            assert owed is not None
            return self._in_gram(m, domain, t, owed)
        stencil, inward = self._stencil(m, t, fine=changes.loss)
        problems = [self._moved(m, t, place * inward) for place in stencil.places]
        total = np.zeros(domain.size)
        if changes.penalty:
            total += _along_penalty(domain, parts, stencil, [problem.penalty for problem in problems])
        if changes.loss:
            losses = [problem.loss for problem in problems]
            for part in parts:
                total += part.cotangent.along_loss(gradients.loss_change(losses, stencil.weights, part.fit))
        if changes.gram:
            assert owed is not None
            total += _along_gram(owed, stencil, problems)
        return total * inward

    def _in_shares(self, parts: list[Part]) -> Array:
        """Derivative in the weights of a mixture, in which its slopes and bends are linear."""
        total: Array = np.zeros(())
        for part in parts:
            mixed = part.fit.problem.loss
            assert isinstance(mixed, Mixture)
            total = total + np.array(
                [
                    part.cotangent.along_loss(gradients.loss_change([loss], np.ones(1), part.fit))
                    for loss in mixed.losses
                ]
            )
        return total

    def _in_gram(self, m: int, domain: Domain, t: Array, owed: Array) -> Array:
        """Derivative in hyperparameters of a kernel, one for each feature or group."""
        s = self.space.slices[m]
        by_feature = self.in_gram(self._problem(t).X, domain.name, owed)
        if by_feature is not None:
            return domain.components(by_feature * domain.rate(t[s]))
        stencil, inward = self._stencil(m, t)
        gradient = np.empty(domain.size)
        for j, unit in enumerate(np.eye(domain.size)):
            problems = [self._moved(m, t, place * inward * unit) for place in stencil.places]
            gradient[j] = _along_gram(owed, stencil, problems)
        return gradient * inward

    def _by_differences(self, m: int, t: Array) -> Array:
        """Differences of the risk itself, where nothing better is known."""
        s, domain = self.space.slices[m], self.space.domains[m]
        gradient = np.zeros(domain.size)
        for j in range(domain.size):
            *ends, length = self._ends(domain, t[s], j)
            values = []
            for end in ends:
                there = t.copy()
                there[s] = end
                values.append(self._judged(there, gradient=False).value)
                self.visited.pop()
            gradient[j] = (values[1] - values[0]) / length if np.isfinite(values).all() and length else 0.0
        return gradient

    def _ends(self, domain: Hyperparameter, own: Array, j: int) -> tuple[Array, Array, float]:
        """Two points of a difference along a component, and how far they are apart.

        Of weights it is towards a vertex, which is what counts.
        """
        unit = np.eye(domain.size)[j]
        if not domain.is_box:
            return own, own + PROBE * (unit - own), PROBE
        low, high = domain.ends
        step = PROBE * (high - low) * unit
        below, above = domain.project(own - step), domain.project(own + step)
        return below, above, float(above[j] - below[j])

    def _moved(self, m: int, t: Array, step: Array) -> Problem:
        """The problem a step away in one hyperparameter."""
        there = t.copy()
        there[self.space.slices[m]] += step
        return self._problem(there)

    def _stencil(self, m: int, t: Array, *, fine: bool = False) -> tuple[Stencil, Array]:
        """Points of a difference and, for each component, the direction in which there is room for them.

        They are closer where the loss changes: it may bend in its own parameter, at as many points as rows.
        """
        domain, own = self.space.domains[m], t[self.space.slices[m]]
        low, high = domain.ends
        width = (FINE if fine else 1.0) * min(high - low, 1.0)
        central = gradients.stencil(width=width)
        if np.min(np.minimum(own - low, high - own)) >= float(np.max(central.places)):
            return central, np.ones(len(own))
        towards = np.where(own - low <= high - own, 1.0, -1.0)
        return gradients.stencil(below=0.0, width=width), towards


@singledispatch
def objective_of(
    model: Any,
    space: Space,
    problem_at: Callable[[dict[str, Any]], Problem],
    judge: Judge,
    in_gram: InGram = _by_points,
) -> Objective:
    """The risk of a model; register a function for one with gradients of its own."""
    return RiskObjective(space, problem_at, judge, in_gram)


def _along_penalty(
    domain: Domain, parts: Sequence[Part], stencil: Stencil, penalties: Sequence[Penalty]
) -> Array:
    """⟨∂R/∂∇P, ∂_m ∇P⟩ + ⟨∂R/∂C, ∂_m C⟩ of all parts, by points along the hyperparameter."""
    total, first = np.zeros(domain.size), parts[0]
    kept = [penalty.scaled(first.share) for penalty in penalties]
    rate = gradients.relative_rate(kept, stencil, first.fit.problem.penalty)  # the same for all of them
    for part in parts:
        if rate is None:
            kept = [penalty.scaled(part.share) for penalty in penalties]
            change = gradients.tangent_change(kept, stencil, part.fit)
        else:
            change = gradients.stretched(part.fit, rate)
        if domain.groups is None:
            total += part.cotangent.along(change)
        else:
            total += domain.components(part.cotangent.by_coordinate(change))
    return total


def _along_gram(owed: Array, stencil: Stencil, problems: Sequence[Problem]) -> float:
    """⟨∂R/∂G, ∂_m G⟩ by points along the hyperparameter."""
    terms = (
        weight * float(np.vdot(owed, problem.X.gram))
        for weight, problem in zip(stencil.weights, problems, strict=True)
    )
    return sum(terms)
