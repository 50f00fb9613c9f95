"""Our problems as convex programs for Clarabel: a solver that shares nothing with ours."""

from __future__ import annotations

import warnings
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from conic import is_written, losses_of, terms_of
from onefit import _linalg
from onefit.losses import CoupledLoss
from onefit.penalties import Box
from onefit.problem import Problem

TOL = 1e-11
SIZE = 40_000  # entries of X from which on a program takes too long to write


@cache
def _cvxpy() -> ModuleType | None:
    try:
        import cvxpy
    except ImportError:
        return None
    return cvxpy


def knows(problem: Problem) -> bool:
    """Whether a problem can be written down, and cvxpy is there to do it."""
    if _cvxpy() is None or problem.y.ndim > 1 or isinstance(problem.loss, CoupledLoss):
        return False
    if isinstance(problem.X, _linalg.RowGram) or np.prod(problem.X.shape) > SIZE:
        return False
    return is_written(problem.loss)


class _Program(NamedTuple):
    """A problem in the words of cvxpy."""

    coef: Any
    level: Any
    objective: Any
    constraints: list[Any]

    @classmethod
    def of(cls, problem: Problem) -> _Program:
        cp = _cvxpy()
        rows = np.flatnonzero(problem.weights)
        X = problem.X[rows]
        X = sp.csr_matrix(X) if sp.issparse(X) else np.asarray(X)
        coef = cp.Variable(X.shape[1])
        level = cp.Variable() if problem.intercept else 0.0
        terms, constraints = terms_of(cp, problem.penalty, coef)
        losses = losses_of(cp, problem.loss, problem.y[rows], X @ coef + level)
        return cls(coef, level, problem.weights[rows] @ losses + terms, constraints)

    def solved(self, problem: Problem, goal: Any, *limits: Any) -> tuple[np.ndarray, float] | None:
        """Coefficients and intercept where something is smallest, or None where Clarabel gives up."""
        cp = _cvxpy()
        program = cp.Problem(cp.Minimize(goal), [*self.constraints, *limits])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                program.solve(solver="CLARABEL", tol_gap_abs=TOL, tol_gap_rel=TOL, tol_feas=TOL)
            except (cp.error.SolverError, cp.error.DCPError, ValueError):
                return None
        if self.coef.value is None:
            return None
        return _feasible(problem, self.coef.value), float(self.level.value) if problem.intercept else 0.0


def minimum(problem: Problem) -> tuple[np.ndarray, float] | None:
    """Coefficients and intercept, or None where Clarabel gives up."""
    program = _Program.of(problem)
    return program.solved(problem, program.objective)


def ends(problem: Problem, i: int, highest: float) -> list[tuple[np.ndarray, float]]:
    """Where the predictor of a row is least and largest, among all that are no higher than ``highest``."""
    program, x = _Program.of(problem), problem.X[[i]]
    eta = (sp.csr_matrix(x) if sp.issparse(x) else np.asarray(x))[0] @ program.coef + program.level
    limit = program.objective / abs(highest) <= np.sign(highest)  # tolerances are absolute
    found = [program.solved(problem, sign * eta, limit) for sign in (1.0, -1.0)]
    return [one for one in found if one is not None]


def _feasible(problem: Problem, coef: np.ndarray) -> np.ndarray:
    """Coefficients within their bounds, which an interior point may miss by its tolerance."""
    for part in (problem.penalty, getattr(problem.penalty, "rest", None)):
        if isinstance(part, Box):
            return np.clip(coef, *part.bounds(coef.shape))
    return coef
