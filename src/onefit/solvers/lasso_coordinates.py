"""The generalised lasso as a lasso, in coordinates θ with β = T θ and D β = (θ_1, …, θ_m).

Where D has full row rank, T joins a right inverse of D and a basis of its null space (Tibshirani and Taylor
2011, section 3).  Then ‖Dβ‖₁ is the ℓ1 norm of the first m coordinates, the others are free, and all that
is known of the lasso holds: exact paths, certificates, pivots.  An ℓ2 part of the penalty on β is none of θ;
it becomes p more rows, x = √l2_j e_j with response 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from onefit import _linalg
from onefit._typing import Array
from onefit.curvature import Along, ScalarCurvature
from onefit.fit import Fit
from onefit.losses.composed import WithRidgeRows
from onefit.penalties import L1, AnalysisPenalty
from onefit.problem import Problem
from onefit.solvers.newton import Solution


@dataclass(frozen=True, eq=False)
class LassoCoordinates:
    """A problem, and the same problem in lasso coordinates.

    Attributes
    ----------
    problem : Problem
        With a generalised lasso penalty, and perhaps an ℓ2 one.
    T : (p, p) array
    design : (n, p) array, or (n + p, p + 1) with rows that stand for the ℓ2 part and an intercept
        Rows of X T.
    """

    problem: Problem
    T: Array
    design: Array

    @classmethod
    def of(cls, problem: Problem) -> LassoCoordinates | None:
        """Return the coordinates; None where the penalty is another one, or D has dependent rows."""
        kinked = problem.penalty.without_ridge()
        if not isinstance(kinked, AnalysisPenalty):
            return None
        T = kinked.lasso_coordinates(problem.X.shape[1])
        if T is None:
            return None
        design = _linalg.as_columns(problem.X).along(T)
        ridge = problem.penalty.ridge((len(T),))
        if np.any(ridge):
            ones = np.ones((problem.n, int(problem.intercept)))
            below = np.zeros((len(T), int(problem.intercept)))
            design = np.block([[design, ones], [np.sqrt(ridge)[:, None] * T, below]])
        return cls(problem, T, design)

    @property
    def is_stacked(self) -> bool:
        """Whether rows stand for an ℓ2 part."""
        return len(self.design) > self.problem.n

    def restated(self, problem: Problem) -> Problem:
        """Return this problem, or one with other weights or another strength, as a lasso."""
        kinked = problem.penalty.without_ridge()
        assert isinstance(kinked, AnalysisPenalty)
        l1 = np.zeros(self.design.shape[1])
        l1[: kinked.matrix(len(self.T)).shape[0]] = kinked.alpha
        lasso = replace(problem, penalty=L1(l1), X=self.design)
        if not self.is_stacked:
            return lasso
        rest = len(self.T)
        return replace(
            lasso,
            loss=WithRidgeRows(problem.loss, problem.n),
            y=np.concatenate([problem.y, np.zeros(rest)]),
            weights=np.concatenate([problem.weights, np.ones(rest)]),
            intercept=np.array(False),
        )

    def restate(self, fit: Fit) -> Fit:
        """Return a fit in lasso coordinates."""
        lasso = self.restated(fit.problem)
        kinked = fit.problem.penalty.without_ridge()
        assert isinstance(kinked, AnalysisPenalty)
        steps = kinked.matrix(len(self.T)) @ fit.coef
        steps[kinked.signs(fit.coef) == 0] = 0.0
        theta = np.concatenate([steps, self.T[:, len(steps) :].T @ fit.coef])
        if not self.is_stacked:
            return Fit(lasso, theta, fit.intercept)
        own = np.full(int(fit.problem.intercept), float(fit.intercept))
        return Fit(lasso, np.concatenate([theta, own]), np.zeros(()))

    def parameters(self, theta: Array, level: Array) -> tuple[Array, Array]:
        """Coefficients β = T θ, (p,), and the intercept, from those in lasso coordinates."""
        p = len(self.T)
        return self.T @ theta[:p], np.asarray(theta[p:].sum()) if self.is_stacked else level

    def fit(self, problem: Problem, found: Fit) -> Fit:
        """Return the fit of a problem from what solves it in lasso coordinates."""
        return Fit(problem, *self.parameters(found.coef, found.intercept)).known(eta=found.eta[: problem.n])

    def solution(self, problem: Problem, found: Solution) -> Solution:
        """Return the solution of a problem from that in lasso coordinates."""
        fit = self.fit(problem, found.fit)
        if self.is_stacked or not isinstance(found.curvature, ScalarCurvature):
            return Solution.of(fit)
        return Solution(fit, Along(found.curvature, problem.X, self.T))
