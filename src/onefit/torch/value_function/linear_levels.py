"""The two levels of a search for the penalties of a ``GeneralizedLinear``, each solved exactly.

For a given λ, stationary points of Z = F + ½R P² + μP in w satisfy ∇F + c ∇f = 0 with c = μ + R P.  These w
minimise f + F / c: the same model on the training rows and, with smaller weights, the validation rows.  So
the solvers of the library serve for the joint problem too, kinks and all, and what is left is a search for c,
in one dimension, and for λ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import joblib
import numpy as np
import torch
from scipy.optimize import brentq
from sklearn.base import clone

from onefit import _linalg
from onefit._typing import Array
from onefit.estimators import GeneralizedLinear
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.penalties import Penalty
from onefit.problem import Problem
from onefit.readers import read
from onefit.solvers.solve import solve
from onefit.torch.numerics.devices import on_host
from onefit.torch.numerics.optimizers import lbfgs_b
from onefit.torch.value_function.levels import Joint, Lagrangian, Levels, SearchBox, Solved, State

PREFIX = "penalty__"
STRENGTHS = ("alpha", "l1_ratio", "l1", "l2")  # hyperparameters that penalties are linear in
LEAST = 1e-3  # c, relative to μ, where φ̂ lies above φ
CLOSE = 1e-9  # of log c


@dataclass(frozen=True)
class LinearJudge:
    """Mean loss of a row, in the terms of the model's own loss."""

    def loss(self, model: GeneralizedLinear, X: Any, y: Any) -> float:
        return _mean_loss(read(model, on_host(X), on_host(y)).fit)

    def predict(self, model: GeneralizedLinear, X: Any) -> Array:
        return model.predict(on_host(X))


@dataclass(frozen=True, eq=False)
class LinearLevels(Levels):
    """Both levels of a linear model.

    Attributes
    ----------
    estimator : GeneralizedLinear
        Fitted once, so that it knows its features and classes.
    train, held : Problem
        With some penalty.
    rows, target : arrays
        Training data as they were given.
    space : SearchBox
    max_iter : int
        Steps of L-BFGS-B in λ.
    tol : float
        Largest entry of the projected gradient at which these stop.
    """

    estimator: GeneralizedLinear
    train: Problem
    held: Problem
    rows: Any
    target: Any
    space: SearchBox
    max_iter: int
    tol: float

    @classmethod
    def of(
        cls,
        estimator: GeneralizedLinear,
        data: tuple[Any, ...],
        bounds: Any,
        scale: str,
        **plan: Any,
    ) -> Self:
        """Check data and bounds.

        Raises
        ------
        ValueError
        """
        X, y, X_val, y_val = map(on_host, data)
        penalty = estimator._find_penalty()
        space = SearchBox.of(_checked(penalty, bounds), bounds, scale)
        middle = space.listed(np.full(len(space.names), 0.5))
        fitted = clone(estimator).set_params(penalty=_with(penalty, space, middle)).fit(X, y)
        train, held = (read(fitted, *part).fit.problem for part in ((X, y), (X_val, y_val)))
        return cls(fitted, train, held, X, y, space, **plan)

    # --- the levels ------------------------------------------------------------------------------------

    @property
    def start(self) -> State:
        return _state(Fit.at_start(self.train))

    @property
    def key(self) -> bytes:
        problems = [(one.X, one.y, one.weights) for one in (self.train, self.held)]
        return str(joblib.hash([self.estimator.get_params(), *problems])).encode()

    def training(self, unit: Array, state: State) -> float:
        return _fit(self._at(unit), state).objective

    def validation(self, state: State) -> float:
        return _mean_loss(_fit(self.held, state))

    def solve(self, unit: Array, starts: list[State], seed: int) -> Solved:
        problem = self._at(unit)
        reached = [_fit(problem, start) for start in starts]
        fit = self._minimum(min(reached, key=lambda one: one.objective))
        state = _state(fit)
        return Solved(unit, fit.objective, self.validation(state), self._slopes(unit, fit.coef), state)

    def descend(self, begin: Joint, goal: Lagrangian, seed: int, *, held: bool = False) -> Joint:
        last = begin.state

        def value_and_slope(unit: Array) -> tuple[float, Array]:
            nonlocal last
            last, pull, excess = self._stationary(unit, last, goal)
            slope = pull * (self._slopes(unit, last["coef"].numpy()) - goal.surrogate.gradient(unit))
            return self.validation(last) + goal.charge(excess), slope

        unit = begin.unit
        if not held:
            box = np.zeros_like(unit), np.ones_like(unit)
            unit = lbfgs_b(value_and_slope, unit, max_iter=self.max_iter, tol=self.tol, bounds=box)
        return Joint(unit, self._stationary(unit, last, goal)[0])

    def model(self, unit: Array, state: State) -> GeneralizedLinear:
        model = clone(self.estimator).set_params(penalty=self._penalty(unit)).fit(self.rows, self.target)
        model._take(_fit(self._at(unit), state))
        return model

    @property
    def judge(self) -> LinearJudge:
        return LinearJudge()

    # --- at a given λ ----------------------------------------------------------------------------------

    def _penalty(self, unit: Array) -> Penalty:
        return _with(self.estimator._find_penalty(), self.space, self.space.listed(unit))

    def _at(self, unit: Array) -> Problem:
        return replace(self.train, penalty=self._penalty(unit))

    def _slopes(self, unit: Array, coef: Array) -> Array:
        """∂P/∂λ_k times ∂λ_k/∂u_k: P is linear in each λ_k, so a difference over its range is exact."""
        penalty, strengths = self.estimator._find_penalty(), self.space.listed(unit)
        slopes = []
        for k, ends in enumerate(zip(self.space.low, self.space.high, strict=True)):
            moved = [[*strengths[:k], end, *strengths[k + 1 :]] for end in ends]
            low, high = (_with(penalty, self.space, one).value(coef) for one in moved)
            slopes.append((high - low) / (ends[1] - ends[0]))
        return np.array(slopes) * self.space.rates(unit)

    def _minimum(self, start: Fit) -> Fit:
        with _linalg.one_thread_if_small(start.problem.X):
            return solve(start).fit

    @cached_property
    def _both(self) -> Problem:
        """The training rows and then the validation rows."""
        X, y = _linalg.stacked([self.train.X, self.held.X]), np.concatenate([self.train.y, self.held.y])
        weights = np.concatenate([self.train.weights, self.held.weights / self.held.weights.sum()])
        return replace(self.train, X=X, y=y, weights=weights)

    def _stationary(self, unit: Array, start: State, goal: Lagrangian) -> tuple[State, float, float]:
        """Return w that minimises Z at λ, with c = μ + R P and P.

        P falls as c grows, so that c − μ − R P has one zero, between μ and μ + R P(μ).
        """
        problem = replace(self._both, penalty=self._penalty(unit))
        optimal, found = goal.surrogate.value(unit), dict[float, tuple[State, float]]()
        last, is_held = start, np.arange(problem.n) >= self.train.n

        def error(log_pull: float) -> float:
            nonlocal last
            pull = float(np.exp(log_pull))
            if log_pull not in found:
                weights = np.where(is_held, problem.weights / pull, problem.weights)  # of f + F / c
                last = _state(self._minimum(_fit(replace(problem, weights=weights), last)))
                found[log_pull] = last, self.training(unit, last) - optimal
            return pull - goal.multiplier - goal.weight * found[log_pull][1]

        zero = float(np.log(goal.multiplier))
        other = float(np.log(max(goal.multiplier - error(zero), LEAST * goal.multiplier)))
        if abs(other - zero) > CLOSE:
            zero = brentq(error, zero, other, xtol=CLOSE) if error(zero) * error(other) < 0 else other
        error(zero)
        state, excess = found[zero]
        if not np.isfinite(excess):
            raise SolverError(f"the loss is not finite at strengths {self.space.listed(unit)}")
        return state, float(np.exp(zero)), excess


def _checked(penalty: Penalty, bounds: Any) -> list[str]:
    """Names of the strengths.

    Raises
    ------
    ValueError
        For one that the penalty lacks, is not linear in, or has one of for each feature.
    """
    if not isinstance(bounds, Mapping) or not bounds:
        raise ValueError(f"bounds must name at least one strength of the penalty, got {bounds!r}")
    own = penalty.get_params()
    known = [name for name in own if name.rpartition("__")[2] in STRENGTHS and np.ndim(own[name]) == 0]
    for name in bounds:
        if not isinstance(name, str) or name.removeprefix(PREFIX) not in known or PREFIX not in name:
            allowed = ", ".join(PREFIX + one for one in known)
            raise ValueError(
                f"{type(penalty).__name__} has no strength {name!r} that is a number; it has {allowed}"
            )
    return list(bounds)


def _with(penalty: Penalty, space: SearchBox, strengths: list[float]) -> Penalty:
    """The penalty with other strengths."""
    own = {name.removeprefix(PREFIX): one for name, one in zip(space.names, strengths, strict=True)}
    copy: Penalty = clone(penalty, safe=False).set_params(**own)
    return copy


def _mean_loss(fit: Fit) -> float:
    problem = fit.problem
    losses = problem.loss.value(problem.y, fit.eta).reshape(problem.n, -1).sum(axis=1)
    return float(problem.weights @ losses / problem.weights.sum())


def _state(fit: Fit) -> State:
    return {"coef": torch.tensor(fit.coef), "level": torch.tensor(np.asarray(fit.intercept))}


def _fit(problem: Problem, state: State) -> Fit:
    return Fit(problem, state["coef"].numpy(), state["level"].numpy())
