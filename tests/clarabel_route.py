"""Any problem written as a convex program and solved by Clarabel: an independent solver for tests."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from onefit.fit import Fit
from onefit.losses import (
    EpsilonInsensitive,
    Hinge,
    Huber,
    Logistic,
    Mixture,
    Poisson,
    Quantile,
    SmoothedHinge,
    Squared,
    SquaredEpsilonInsensitive,
    SquaredHinge,
)
from onefit.penalties import (
    AnalysisPenalty,
    Box,
    GroupPenalty,
    LInfinity,
    NuclearNorm,
    SeparablePenalty,
    Slope,
    Sum,
)


def minimum(problem, tol=1e-10):
    """Coefficients (p,), intercept and objective of a problem with one output."""
    cp = pytest.importorskip("cvxpy")
    X, p = problem.X, problem.X.shape[1]
    rows = np.flatnonzero(problem.weights)
    X = (X.toarray() if sp.issparse(X) else np.asarray(X))[rows]
    coef = cp.Variable(p)
    level = cp.Variable() if problem.intercept else 0.0
    terms, constraints = _penalty(cp, problem.penalty, coef)
    losses = _loss(cp, problem.loss, problem.y[rows], X @ coef + level)
    program = cp.Problem(cp.Minimize(problem.weights[rows] @ losses + terms), constraints)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that the last digits are not certain
        program.solve(solver="CLARABEL", tol_gap_abs=tol, tol_gap_rel=tol, tol_feas=tol)
    return coef.value, float(level.value) if problem.intercept else 0.0, float(program.value)


def _loss(cp, loss, y, eta):
    sign = 2 * y - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        saturated = np.where(y > 0, y * np.log(y) - y, 0.0)  # of counts
    return {
        Squared: lambda: 0.5 * cp.square(y - eta),
        Logistic: lambda: cp.logistic(cp.multiply(-sign, eta)),
        Poisson: lambda: cp.exp(eta) - cp.multiply(y, eta) + saturated,
        Hinge: lambda: cp.pos(1 - cp.multiply(sign, eta)),
        SquaredHinge: lambda: cp.square(cp.pos(1 - cp.multiply(sign, eta))),
        Mixture: lambda: sum(
            w * _loss(cp, own, y, eta) for w, own in zip(loss.shares, loss.losses, strict=True)
        ),
        Quantile: lambda: cp.maximum(loss.level * (y - eta), (loss.level - 1) * (y - eta)),
        EpsilonInsensitive: lambda: cp.pos(cp.abs(y - eta) - loss.epsilon),
        SquaredEpsilonInsensitive: lambda: cp.square(cp.pos(cp.abs(y - eta) - loss.epsilon)),
        Huber: lambda: 0.5 * cp.huber(y - eta, loss.delta),
        SmoothedHinge: lambda: cp.huber(cp.pos(1 - cp.multiply(sign, eta)), loss.width) / (2 * loss.width),
    }[type(loss)]()


def _penalty(cp, penalty, coef):
    """Terms of the objective, and constraints."""
    if isinstance(penalty, Sum):
        terms, constraints = _penalty(cp, penalty.rest, coef)
        return terms + _penalty(cp, penalty.quadratic, coef)[0], constraints
    if isinstance(penalty, Box):
        return 0.0, _bounds(coef, *penalty.bounds(coef.shape))
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
        case LInfinity():
            return penalty.alpha * cp.norm_inf(coef)
        case NuclearNorm():
            return penalty.alpha * cp.normNuc(cp.reshape(coef, penalty.shape, order="C"))
        case GroupPenalty():
            l1, strengths = penalty.strengths()
            norms = [cp.norm2(coef[np.flatnonzero(penalty.membership == g)]) for g in range(penalty.count)]
            return l1 * cp.norm1(coef) + sum(s * n for s, n in zip(strengths, norms, strict=True))
    raise TypeError(penalty)


def check(fit, rtol=1e-9):
    """Assert that a fit is optimal by its own conditions, and not above Clarabel's objective."""
    problem = fit.problem
    gradient = fit.loss_gradient
    assert problem.penalty.is_stationary(fit.coef[:, None], gradient[:, None]).all()
    if problem.intercept:
        assert abs(fit.gradient.sum()) <= 1e-7 * np.abs(fit.gradient).sum() + 1e-12
    else:
        assert fit.intercept == 0
    best = minimum(problem)[2]
    scale = max(abs(best), Fit.at_start(problem).objective * 1e-6)
    assert fit.objective <= best + rtol * scale
