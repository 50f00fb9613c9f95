"""The rounds of the value-function search, and what they are checked against.

In a network with more weights than rows, f(λ, w) = φ(λ) leaves directions in which w can fit the validation
rows too, at hardly any cost in f, and the more so the weaker the penalty.  Z then falls with λ whatever the
validation loss of weights does that see training rows only; a hundred times the multiplier does not help.
So λ of every round is judged by weights that are retrained there; once they do clearly worse than the best
so far, the rounds are given up, and what is left of their number is spent on minima of an interpolation of
the validation losses themselves.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypeAlias, TypeVar, cast

import numpy as np
import torch
from joblib import Parallel, delayed, effective_n_jobs
from scipy.stats import qmc
from torch import Tensor

from onefit._typing import Array
from onefit._whole_file import whole_file
from onefit.torch.value_function.kriging import Kriging
from onefit.torch.value_function.levels import Joint, Lagrangian, Levels, Solved, State

WORSE = 0.05  # a rise of the validation loss, relative to its size, that is not chance
SAME = 2e-4  # distance in the unit cube within which a solution stands for another
TRIED = 0.02  # distance of a minimum from what was solved, within which solving there tells nothing new
SIDE, CANDIDATES = 501, 12  # where the interpolation is looked at: a grid for one strength, else 2^12 points

Report: TypeAlias = Callable[[str, int, int], object]
Origin: TypeAlias = Literal["sample", "round", "interpolation"]
P = TypeVar("P", Solved, Joint)


class Round(NamedTuple):
    """A round of the augmented Lagrangian.

    Attributes
    ----------
    strengths : tuple of float
        λ at its end.
    validation, training, optimal_value : float
        F(w), f(λ, w) and φ̂(λ) at its end.
    multiplier, weight : float
        μ and R with which it was run.
    retrained : float
        Validation loss of weights that are trained at λ on the training data alone; NaN if that was not done.
    """

    strengths: tuple[float, ...]
    validation: float
    training: float
    optimal_value: float
    multiplier: float
    weight: float
    retrained: float


class Outcome(NamedTuple):
    """What came of the rounds.

    Attributes
    ----------
    best : Solved
        λ*, and weights trained there.
    joint : Joint
        Weights fitted jointly with λ*.
    surrogate : Kriging
        φ̂ of the last round.
    rounds : tuple of Round
    origin : "sample", "round" or "interpolation"
        Where λ* comes from.
    """

    best: Solved
    joint: Joint
    surrogate: Kriging
    rounds: tuple[Round, ...]
    origin: Origin


@dataclass(frozen=True)
class Store:
    """A folder with what was solved already, each in a file of its own; none keeps nothing.

    Attributes
    ----------
    folder : Path or None
    """

    folder: Path | None

    @classmethod
    def opened(cls, folder: str | Path | None, key: str) -> Self:
        """Open or begin a folder.

        Raises
        ------
        ValueError
            If it belongs to another search.
        """
        if folder is None:
            return cls(None)
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        store = cls(path)
        if store.load("search", lambda: {"key": key})["key"] != key:
            raise ValueError(
                f"checkpoint {path} belongs to a search with other data, settings or weights: choose another "
                "folder, or remove it"
            )
        return store

    def load(self, name: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return what was saved under a name, or compute and save it."""
        if self.folder is None:
            return compute()
        file = self.folder / f"{name}.pt"
        if file.exists():
            return _read(file)
        result = compute()
        with whole_file(file) as whole:
            torch.save(result, whole)
        return result

    def point(self, name: str, kind: type[P], compute: Callable[[], P]) -> P:
        """The same for a named tuple, whose arrays are saved as tensors."""

        def saved() -> dict[str, Any]:
            parts = compute()._asdict().items()
            return {key: torch.as_tensor(v) if isinstance(v, np.ndarray) else v for key, v in parts}

        parts = self.load(name, saved)
        values = (parts[key] for key in kind._fields)
        return kind._make(v.numpy() if isinstance(v, Tensor) else v for v in values)


def _read(file: Path) -> dict[str, Any]:
    """What was saved in a file."""
    try:
        return cast("dict[str, Any]", torch.load(file, map_location="cpu", weights_only=True))
    except (pickle.UnpicklingError, EOFError, RuntimeError) as error:
        raise ValueError(
            f"checkpoint {file} is damaged: remove this file, and the search does anew what was in it"
        ) from error


@dataclass(eq=False)
class Run:
    """One search, which saves what it has done.

    Attributes
    ----------
    levels : Levels
    store : Store
    seed : int
    n_jobs : int or None
    is_warm : bool
        Whether solves begin with weights that were found before.
    report : callable
    solved : list of Solved
        All weights that saw training rows only, in the order in which they were found.
    n_descents : int
        Joint minimisations.
    """

    levels: Levels
    store: Store
    seed: int
    n_jobs: int | None
    is_warm: bool
    report: Report
    solved: list[Solved] = field(default_factory=list)
    n_descents: int = 0

    def sample(self, design: Array) -> None:
        """Solve at each λ, weakest penalties first: weights that were penalised to zero are a poor start."""
        parallel, at_once = Parallel(n_jobs=self.n_jobs), effective_n_jobs(self.n_jobs)
        for first in range(0, len(design), at_once):
            numbered = enumerate(design[first : first + at_once], first)
            jobs = [delayed(solved)(*self._task(number), unit) for number, unit in numbered]
            for one in parallel(jobs):
                self.solved.append(one)
                self.report("solve", len(self.solved), len(design))

    def _task(self, number: int) -> tuple[Levels, Store, int, int, list[State]]:
        return self.levels, self.store, number, self.seed, self._starts

    @property
    def _starts(self) -> list[State]:
        return [self.levels.start, *(one.state for one in self.solved if self.is_warm)]

    @property
    def best(self) -> Solved:
        """The solution with the smallest validation loss."""
        return min(self.solved, key=lambda one: one.validation)

    def rounds(
        self,
        interpolate: Callable[[list[Solved]], Kriging],
        weights: list[float],
        first: float,
        *,
        checks: bool,
    ) -> Outcome:
        """Minimise over λ and w together, from the best sample, and check what comes of it.

        What a check solves for is one more sample of φ, just where it is needed.

        Parameters
        ----------
        interpolate : callable
            From solutions to φ̂.
        weights : list of float
            R of each round.
        first : float
            μ of the first.
        checks : bool
            Whether λ is checked after each.
        """
        n_samples, n_rounds, multiplier = len(self.solved), len(weights), first
        surrogate = interpolate(self.solved)
        joint, done, ends = Joint(self.best.unit, self.best.state), list[Round](), list[Joint]()
        kept, checked = True, None
        for number, weight in enumerate(weights):
            least, n_solved = self.best.validation, len(self.solved)
            goal = Lagrangian(surrogate, weight, multiplier)
            joint = self._descent(f"round-{number}", joint, goal, self.seed - 1 - number)
            ends.append(joint)
            checked = self._retrained(joint.unit) if checks or number == n_rounds - 1 else None
            done.append(self._round(joint, goal, checked))
            self.report("round", len(done), n_rounds)
            kept = checked is None or not checks or not is_worse(checked.validation, least)
            if not kept:
                break
            multiplier += weight * (done[-1].training - done[-1].optimal_value)
            if checks and n_solved < len(self.solved):
                surrogate = interpolate(self.solved)
        if not kept:
            self._interpolate(n_rounds - len(done))
        if not checks and checked is not None:
            return Outcome(checked, joint, surrogate, tuple(done), "round")
        return self._outcome(done, ends, n_samples, Lagrangian(surrogate, weights[0], first))

    def _descent(self, name: str, begin: Joint, goal: Lagrangian, seed: int, *, held: bool = False) -> Joint:
        self.n_descents += 1
        return self.store.point(name, Joint, partial(self.levels.descend, begin, goal, seed, held=held))

    def _round(self, joint: Joint, goal: Lagrangian, checked: Solved | None) -> Round:
        return Round(
            tuple(self.levels.space.listed(joint.unit)),
            self.levels.validation(joint.state),
            self.levels.training(*joint),
            goal.surrogate.value(joint.unit),
            goal.multiplier,
            goal.weight,
            float("nan") if checked is None else checked.validation,
        )

    def _retrained(self, unit: Array) -> Solved:
        """Train at λ on the training data alone, unless that was done before at next to the same λ."""
        apart = [np.abs(one.unit - unit).max() for one in self.solved]
        nearest = int(np.argmin(apart))
        if apart[nearest] <= SAME:
            return self.solved[nearest]
        self.solved.append(solved(*self._task(len(self.solved)), unit))
        return self.solved[-1]

    def _interpolate(self, n_solves: int) -> None:
        """Solve where an interpolation of the validation losses is lowest, again and again."""
        for done in range(n_solves):
            unit = lowest(self.solved)
            if min(np.abs(one.unit - unit).max() for one in self.solved) < TRIED:
                break
            self._retrained(unit)
            self.report("interpolate", done + 1, n_solves)

    def _outcome(self, done: list[Round], ends: list[Joint], n_samples: int, goal: Lagrangian) -> Outcome:
        best = self.best
        ours = [joint for joint in ends if np.abs(joint.unit - best.unit).max() <= SAME]
        number = next(number for number, one in enumerate(self.solved) if one is best)
        origin: Origin = "sample" if number < n_samples else "round" if ours else "interpolation"
        if ours:
            return Outcome(best, ours[-1], goal.surrogate, tuple(done), origin)
        joint = self._descent("joint", Joint(best.unit, best.state), goal, self.seed - 1, held=True)
        return Outcome(best, joint, goal.surrogate, tuple(done), origin)


def solved(levels: Levels, store: Store, number: int, seed: int, starts: list[State], unit: Array) -> Solved:
    """Solve at a λ, or load what was saved under its number."""
    return store.point(f"solve-{number}", Solved, partial(levels.solve, unit, starts, seed + number))


def is_worse(loss: float, least: float) -> bool:
    """Whether a validation loss is clearly above another."""
    return loss > least + WORSE * abs(least)


def lowest(known: list[Solved]) -> Array:
    """Where a Kriging of the validation losses is lowest: (m,).

    Of their logarithms above the smallest, lest the losses of useless penalties drown the differences of
    the others; its nugget smooths the noise of the training.
    """
    x, losses = np.array([one.unit for one in known]), np.array([one.validation for one in known])
    least, middle = losses.min(), float(np.median(losses))
    spread = middle - least or 1.0
    model = Kriging.fit(x, np.log1p((losses - least) / spread))
    m = x.shape[1]
    if m == 1:
        candidates = np.linspace(0.0, 1.0, SIDE)[:, None]
    else:
        candidates = np.vstack([qmc.Sobol(m, scramble=False).random_base2(CANDIDATES), x])
    return candidates[int(np.argmin([model.value(one) for one in candidates]))]
