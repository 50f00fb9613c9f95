"""Logistic regression of each class against the rest, all of them fitted together on dense features.

The outputs share the features and the strength, so that a product with the features serves all of them.
Strengths are told apart by one Newton step a row; the chosen one is judged with the bounds of these steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from onefit._typing import Array
from onefit.curvature import Curvature, Independent, factor
from onefit.fit import Fit
from onefit.leave_out import LeftOut, leave_out
from onefit.leave_out.step import one_step
from onefit.losses import Logistic
from onefit.metrics import LogLoss
from onefit.penalties import L2
from onefit.problem import Problem
from onefit.risk.estimate import RiskEstimate
from onefit.risk.judging import estimate, yardstick
from onefit.solvers import newton, truncated
from onefit.solvers.newton import Solution

FACTOR = 6.0  # between neighbouring strengths
MOVES = 8  # along the strengths, at most


@dataclass(frozen=True, eq=False)
class OneClass:
    """One class against the rest, as it was fitted.

    Attributes
    ----------
    C_ : float
    coef_ : (1, d) array
    intercept_ : (1,) array
    loo_ : RiskEstimate
        Leave-one-out of its own log-loss.
    """

    C_: float
    coef_: Array
    intercept_: Array
    loo_: RiskEstimate


@dataclass(frozen=True, eq=False)
class OneAgainstRest:
    """The features and which class each row has.

    Attributes
    ----------
    X : (n, d) array
    targets : (n, c) array
        1 where the row has the class, else 0.
    weights : (n,) array
    """

    X: Array
    targets: Array
    weights: Array

    def tuned(self, first: float, loss: Callable[[Array], float]) -> tuple[OneClass, ...]:
        """Fit at the best strength, climbing from the first guess.

        Parameters
        ----------
        first : float
            Inverse strength to begin with.
        loss : callable
            From left-out linear predictors (n, c) to the risk.
        """
        found = {0: self._solved(first, None)}
        risks = {0: self._risk(found[0], loss)}
        best, step = 0, 1
        for _ in range(MOVES):
            sides = [best + step, best - step]
            move = next((j for j in sides if j not in risks), None)
            if move is None:
                break
            found[move] = self._solved(first * FACTOR**move, found[best])
            risks[move] = self._risk(found[move], loss)
            if risks[move] < risks[best]:
                step, best = move - best, move
            found = {best: found[best]}
        return self._judged(first * FACTOR**best, found[best])

    def _problem(self, C: float) -> Problem:
        outputs = np.ones(self.targets.shape[1], dtype=bool)
        return Problem(Logistic(), L2(1.0 / C), self.X, self.targets, self.weights, outputs)

    def _solved(self, C: float, last: Solution | None) -> Solution:
        start = Fit.at_start(self._problem(C))
        if last is not None:
            start = Fit(start.problem, last.fit.coef, last.fit.intercept)
        return newton.solve(truncated.approach(start, self._common(start).solve))

    def _common(self, fit: Fit) -> Curvature:
        """One curvature for all outputs, with the mean of theirs."""
        problem = fit.problem
        d = fit.hessian.mean(axis=1)
        one = Problem(Logistic(), problem.penalty, self.X, self.targets[:, 0], self.weights)
        mean = Fit(one, np.zeros(self.X.shape[1]), np.zeros(())).known(hessian=d)
        return Independent([factor(mean)], np.zeros(self.targets.shape[1], dtype=np.intp))

    @staticmethod
    def _risk(solution: Solution, loss: Callable[[Array], float]) -> float:
        return loss(one_step(*solution).eta)

    def _judged(self, C: float, solution: Solution) -> tuple[OneClass, ...]:
        fit, curvature = solution
        assert isinstance(curvature, Independent)  # the loss does not tie the outputs together
        metric, judged = LogLoss(np.array([False, True])), list[OneClass]()
        for k, target in enumerate(self.targets.T):
            own = Fit(
                Problem(Logistic(), fit.problem.penalty, self.X, np.ascontiguousarray(target), self.weights),
                fit.coef[:, k],
                fit.intercept[k],
            ).known(eta=fit.eta[:, k])
            judge = yardstick(metric, own.problem.y, self.weights)
            left_out: LeftOut = leave_out(
                own, curvature=curvature.of_output(k), yardstick=judge, affordable=0.0
            )
            loo = estimate(left_out, metric, target == 1.0, target=target, classes=np.array([False, True]))
            judged.append(OneClass(C, own.coef[None], own.intercept[None], loo))
        return tuple(judged)
