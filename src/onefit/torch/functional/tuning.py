"""Descent on the leave-one-out risk in the strengths: Algorithms 1 and 2 of Beirami et al. (2017)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from onefit._typing import Array
from onefit.exceptions import SolverError, UnreliableWarning
from onefit.torch.functional.fit import FunctionalFit
from onefit.torch.numerics.backtracking import backtracked
from onefit.validation import check_choice

StepSize: TypeAlias = float | Callable[[int], float] | None
Scale: TypeAlias = Literal["log", "linear"]
HALVINGS = 20
LIFTS = tuple(
    10.0**k for k in range(-6, 3)
)  # strengths to begin with where fits without any are not determined
LEAST_DECREASE = 1e-9  # of the risk, relative: a step that brings less is the last
FARTHEST = 1.0  # first trial of a step, in log λ or in the largest λ
FIRST_STEP = 0.5  # of Algorithm 2, in the same unit


@dataclass(frozen=True, eq=False)
class Tuning:
    """Strengths that descent came to.

    Attributes
    ----------
    strengths : (m,) array
        λ at the end.
    fit : FunctionalFit
        With those.
    path : (t + 1, m) array
        λ after every step, the first one given.
    risks : (t + 1,) array
        Approximate leave-one-out risk there; of Algorithm 2, which does not need it, at both ends only.

    Examples
    --------
    >>> import torch
    >>> from sklearn.datasets import load_diabetes
    >>> from onefit.torch import FunctionalProblem
    >>> X, y = load_diabetes(return_X_y=True)
    >>> def squared(theta, x, y):
    ...     return (y - theta[0] - x @ theta[1:]) ** 2
    >>> def ridge(theta):
    ...     return (theta[1:] ** 2).sum()
    >>> problem = FunctionalProblem(squared, [ridge], start=11)
    >>> found = problem.tune(X, y, [1.0], n_steps=5)
    >>> found.path.shape, bool(found.risks[-1] < found.risks[0])
    ((6, 1), True)
    """

    strengths: Array
    fit: FunctionalFit
    path: Array
    risks: Array

    def __str__(self) -> str:
        shown = ", ".join(f"{value:.4g}" for value in self.strengths[:8])
        more = ", …" if len(self.strengths) > 8 else ""
        return (
            f"leave-one-out loss {self.risks[0]:.6g} → {self.risks[-1]:.6g} in {len(self.path) - 1} steps, "
            f"strengths {shown}{more}"
        )


def descend(
    fit: Callable[[Array, Tensor | None], FunctionalFit],
    strengths: Array,
    gradient: Callable[[FunctionalFit], Array],
    *,
    n_steps: int,
    step_size: StepSize,
    scale: Scale,
    stochastic: bool,
) -> Tuning:
    """Take gradient steps in the strengths, each fit beginning at the last.

    Parameters
    ----------
    fit : callable
        From strengths and a start to a fit.
    strengths : (m,) array
        Where to begin.
    gradient : callable
        Of a fit, in its strengths: (m,); of one row if ``stochastic``.
    n_steps, step_size, scale
        As for ``FunctionalProblem.tune``.
    stochastic : bool
        Algorithm 2.
    """
    check_choice("scale", scale, ("log", "linear"))
    if scale == "log" and np.any(strengths <= 0):
        raise ValueError("strengths must be positive to be tuned on a log scale: take scale='linear'")
    if n_steps < 0:
        raise ValueError(f"n_steps must be at least 0, got {n_steps}")
    least = 0.0 if strengths.any() else 1.0
    run = _Run(fit, gradient, scale, least, fit(strengths, None), strengths)
    unit = run.unit
    if scale == "linear":
        run.lift()
    if stochastic or step_size is not None:
        return run.descended(n_steps, lambda t, _: run.by_rule(step_size, unit, t), with_risks=not stochastic)
    return run.descended(n_steps, lambda _, risks: run.by_halving(risks), with_risks=True)


@dataclass
class _Run:
    """Steps in log λ, or in λ.

    Attributes
    ----------
    least : float
        Least unit of λ itself: 1 where descent began at zero, which has no scale.
    """

    fit: Callable[[Array, Tensor | None], FunctionalFit]
    gradient: Callable[[FunctionalFit], Array]
    scale: Scale
    least: float
    found: FunctionalFit
    strengths: Array
    squares: Array | float = 0.0
    length: float = np.inf

    @property
    def unit(self) -> float:
        return 1.0 if self.scale == "log" else max(float(self.strengths.max()), self.least) or 1.0

    def moved(self, step: Array) -> Array:
        if self.scale == "log":
            return self.strengths * np.exp(step)
        return np.maximum(self.strengths + step, 0.0)

    def lift(self) -> None:
        """From zero strengths without a gradient to the least of ``LIFTS`` that have one."""
        for lift in LIFTS if not self.strengths.any() else ():
            try:
                self.gradient(self.found)
            except SolverError:
                self.strengths = np.full_like(self.strengths, lift)
                self.found = self.fit(self.strengths, self.found.theta)
            else:
                return

    def descended(
        self, n_steps: int, step: Callable[[int, list[float]], bool], *, with_risks: bool
    ) -> Tuning:
        """Take steps until there are no more: each is told its number and the risks so far."""
        path, risks = [self.strengths], [self.found.loo().value]
        for t in range(n_steps):
            try:
                moved = step(t, risks)
            except SolverError as error:  # what it came to before is kept
                warnings.warn(f"descent ended after {t} steps: {error}", UnreliableWarning, stacklevel=4)
                break
            if not moved:
                break
            path.append(self.strengths)
            if with_risks:
                risks.append(self.found.loo().value)
        if not with_risks and len(path) > 1:
            risks.append(self.found.loo().value)
        return Tuning(self.strengths, self.found, np.array(path), np.array(risks))

    def by_rule(self, step_size: StepSize, unit: float, t: int) -> bool:
        """A step of the length that is given, or by AdaGrad."""
        slope = self._slope()
        self.squares = self.squares + slope**2
        length: Any = step_size(t) if callable(step_size) else step_size
        if length is None:
            length = FIRST_STEP * unit / np.sqrt(np.maximum(self.squares, np.finfo(float).tiny))
        strengths = self.moved(-length * slope)
        self.found, self.strengths = self.fit(strengths, self.found.theta), strengths
        return True

    def by_halving(self, risks: list[float]) -> bool:
        """A step that is halved until the risk decreases."""
        if len(risks) > 1 and risks[-2] - risks[-1] <= LEAST_DECREASE * abs(risks[-2]):
            return False
        slope = self._slope()
        largest = float(np.abs(slope).max())
        if not largest > 0:
            return False
        self.length = self._halved(slope, min(4 * self.length, FARTHEST * self.unit / largest), risks[-1])
        return self.length > 0

    def _slope(self) -> Array:
        gradient = self.gradient(self.found)
        return self.strengths * gradient if self.scale == "log" else gradient

    def _halved(self, slope: Array, length: float, risk: float) -> float:
        """Take the first of the steps ``length``, ``length``/2, … that decreases the risk; its length."""
        last = self.strengths, self.found

        def reach(length: Tensor) -> Tensor:
            """Risk after a step, infinite where there is no fit."""
            nonlocal last
            strengths = self.moved(-float(length) * slope)
            try:
                last = strengths, self.fit(strengths, self.found.theta)
                return length.new_tensor(last[1].loo().value)
            except SolverError:
                return length.new_tensor(np.inf)

        given = torch.tensor([risk, -float(slope @ slope), length], dtype=torch.float64)
        taken, _ = backtracked(reach, *given, slack=0.0, halvings=HALVINGS)
        if float(taken) > 0:
            self.strengths, self.found = last
        return float(taken)
