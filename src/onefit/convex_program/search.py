"""The risk of a program as a function of its parameters, with its gradient (Wang et al. 2019, section 3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onefit._typing import Array, Design, Mask
from onefit.convex_program.adjoint import Adjoint, ConicData, ConicSolution
from onefit.convex_program.model import ConvexProgram
from onefit.convex_program.program import SplitProgram
from onefit.exceptions import SolverError
from onefit.leave_out.sets import Folds
from onefit.problem import Problem
from onefit.tuning.judges import HeldOutJudge, Judge, LeaveOneOutJudge
from onefit.tuning.objective import Objective, RiskObjective, objective_of
from onefit.tuning.space import Domain, Space

STEP = 1e-4  # by which a parameter is moved to see what it does to the data, relative to its value
LEAST = 1e-3  # what counts as the value of a parameter that is zero, relative to its bounds


@dataclass(eq=False)
class ProgramObjective(Objective):
    """The risk over splits: every training set is solved, and its solution differentiated.

    Attributes
    ----------
    space : Space
    model : ConvexProgram
    judge : HeldOutJudge or LeaveOneOutJudge
        Of the latter every row is a split.
    """

    space: Space
    model: ConvexProgram
    judge: Judge
    folds: Folds
    weights: Array
    visited: list[tuple[Array, float]] = field(default_factory=list)

    def has_kinks(self) -> bool:
        return True  # where a support changes

    def without_effect(self) -> list[str]:
        return []

    def value(self, t: Array) -> float:
        return self._solved(t)[0]

    def value_and_gradient(self, t: Array) -> tuple[float, Array]:
        value, solutions = self._solved(t)
        gradient = np.zeros(len(t))
        if not np.isfinite(value):
            return value, gradient
        adjoints = [one.adjoint(self._slopes(k, one)) for k, one in enumerate(solutions)]
        for m, (domain, s) in enumerate(zip(self.space.domains, self.space.slices, strict=True)):
            assert isinstance(domain, Domain), m
            rates = [self._along(t, domain, unit, adjoints) for unit in np.eye(domain.size)]
            gradient[s] = rates
        return value, gradient

    def _solved(self, t: Array) -> tuple[float, list[ConicSolution]]:
        program, value, solutions = self._program(self.space.values(t)), 0.0, []
        try:
            for k in range(len(self.folds)):
                solutions.append(ConicSolution.of(program, self._kept(k)))
                value += self._risk(k, solutions[-1])
        except SolverError:
            value = np.inf
        self.visited.append((t.copy(), value))
        return value, solutions

    def _program(self, values: dict[str, Any]) -> SplitProgram:
        return self.model.written.at({**self.model.values, **values})

    def _kept(self, k: int) -> Mask:
        kept = np.ones(len(self.weights), dtype=bool)
        kept[self.folds.removed[k]] = False
        return kept

    def _shares(self, k: int) -> Array:
        return self.weights[self.folds.tested[k]] / self.weights[self.folds.rows].sum()

    def _risk(self, k: int, one: ConicSolution) -> float:
        tested = self.folds.tested[k]
        losses = self.judge.metric.losses(self.judge.target[tested], one.predictors[tested])
        return float(self._shares(k) @ losses)

    def _slopes(self, k: int, one: ConicSolution) -> Array:
        tested, slopes = self.folds.tested[k], np.zeros(len(self.weights))
        found = self.judge.metric.slopes(self.judge.target[tested], one.predictors[tested])
        slopes[tested] = self._shares(k) * found
        return slopes

    def _along(self, t: Array, domain: Domain, unit: Array, adjoints: list[Adjoint]) -> float:
        """Derivative in one component: all splits' data, a little above its value and a little below."""
        values = self.space.values(t)
        own = np.asarray(values[domain.name], dtype=np.float64)
        at = unit if domain.groups is None else unit[domain.groups]
        size = float(np.abs(own * at).max())
        step = STEP * max(size, LEAST * (domain.high - domain.low))
        low = step if np.min(own[at > 0] if own.ndim else own) - step >= domain.low else 0.0
        high = step if low else 2.0 * step
        shift = at[0] if domain.groups is None else at
        ahead = self._program({**values, domain.name: own + high * shift})
        behind = self._program({**values, domain.name: own - low * shift})
        total = sum(
            adjoint.along(self._data(ahead, k), self._data(behind, k), high + low)
            for k, adjoint in enumerate(adjoints)
        )
        return total * (size if domain.scale == "log" else 1.0)

    def _data(self, program: SplitProgram, k: int) -> ConicData:
        data = program.by_rows(self._kept(k)).get_problem_data("CLARABEL")[0]
        return ConicData.of(data, program.places(data))


@objective_of.register(ConvexProgram)
def _of_program(
    model: ConvexProgram,
    space: Space,
    problem_at: Callable[[dict[str, Any]], Problem],
    judge: Judge,
    in_gram: Callable[[Design, str, Array], Array | None] | None = None,
) -> Objective:
    if isinstance(judge, HeldOutJudge):
        return ProgramObjective(space, model, judge, judge.folds, judge.weights)
    if isinstance(judge, LeaveOneOutJudge):
        rows = tuple(np.arange(len(judge.weights))[:, None])
        return ProgramObjective(space, model, judge, Folds(rows, rows, len(rows)), judge.weights)
    return RiskObjective(space, problem_at, judge)
