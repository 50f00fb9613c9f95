"""Our problems as convex programs for Clarabel: a solver that shares nothing with ours."""

from __future__ import annotations

import warnings
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from onefit import _linalg
from onefit.losses import (
    CoupledLoss,
    EpsilonInsensitive,
    Gamma,
    Hinge,
    Huber,
    Logistic,
    Poisson,
    Quantile,
    Squared,
    SquaredEpsilonInsensitive,
    SquaredHinge,
    Tweedie,
)
from onefit.penalties import AnalysisPenalty, Box, GroupPenalty, NuclearNorm, SeparablePenalty, Slope, Sum
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
    return _kind(problem.loss) in LOSSES


def _kind(loss):
    if isinstance(loss, Tweedie):
        return {(1.0, "log"): Poisson, (2.0, "log"): Gamma, (0.0, "identity"): Squared}.get(
            (loss.power, loss.link), Tweedie
        )
    return type(loss)


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
        terms, constraints = _penalty(cp, problem.penalty, coef)
        losses = LOSSES[_kind(problem.loss)](cp, problem.loss, problem.y[rows], X @ coef + level)
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


def _sign(y):
    return 2.0 * y - 1.0


LOSSES = {
    Squared: lambda cp, loss, y, eta: 0.5 * cp.square(y - eta),
    Logistic: lambda cp, loss, y, eta: cp.logistic(cp.multiply(-_sign(y), eta)),
    Poisson: lambda cp, loss, y, eta: cp.exp(eta) - cp.multiply(y, eta),
    Gamma: lambda cp, loss, y, eta: eta + cp.multiply(y, cp.exp(-eta)),
    Huber: lambda cp, loss, y, eta: 0.5 * cp.huber(y - eta, loss.delta),
    Hinge: lambda cp, loss, y, eta: cp.pos(1 - cp.multiply(_sign(y), eta)),
    SquaredHinge: lambda cp, loss, y, eta: cp.square(cp.pos(1 - cp.multiply(_sign(y), eta))),
    Quantile: lambda cp, loss, y, eta: cp.maximum(loss.level * (y - eta), (loss.level - 1) * (y - eta)),
    EpsilonInsensitive: lambda cp, loss, y, eta: cp.pos(cp.abs(y - eta) - loss.epsilon),
    SquaredEpsilonInsensitive: lambda cp, loss, y, eta: cp.square(cp.pos(cp.abs(y - eta) - loss.epsilon)),
}


def _penalty(cp, penalty, coef):
    """Terms of the objective, and constraints."""
    if isinstance(penalty, Sum):
        terms, constraints = _penalty(cp, penalty.rest, coef)
        return terms + _penalty(cp, penalty.quadratic, coef)[0], constraints
    if isinstance(penalty, Box):
        l1 = np.broadcast_to(np.asarray(penalty.l1, dtype=np.float64), coef.shape)
        return l1 @ cp.abs(coef), _bounds(coef, *penalty.bounds(coef.shape))
    return _term(cp, penalty, coef), []


def _bounds(coef, lower, upper):
    below, above = np.flatnonzero(np.isfinite(lower)), np.flatnonzero(np.isfinite(upper))
    constraints = [coef[below] >= lower[below]] if below.size else []
    return [*constraints, *([coef[above] <= upper[above]] if above.size else [])]


def _term(cp, penalty, coef):
    p = coef.shape[0]
    match penalty:
        case SeparablePenalty():
            l1, l2 = penalty.strengths((p,))
            return l1 @ cp.abs(coef) + 0.5 * (l2 @ cp.square(coef))
        case AnalysisPenalty():
            return penalty.alpha * cp.norm1(penalty.matrix(p).toarray() @ coef)
        case Slope():
            falls = -np.diff(np.append(penalty.weights, 0.0))
            largest = [cp.sum_largest(cp.abs(coef), k + 1) * f for k, f in enumerate(falls) if f > 0]
            return penalty.alpha * sum(largest)
        case NuclearNorm():
            return penalty.alpha * cp.normNuc(cp.reshape(coef, penalty.shape, order="C"))
        case GroupPenalty():
            l1, strengths = penalty.strengths()
            norms = [cp.norm2(coef[np.flatnonzero(penalty.membership == g)]) for g in range(penalty.count)]
            return l1 * cp.norm1(coef) + sum(s * n for s, n in zip(strengths, norms, strict=True))
    raise TypeError(penalty)
