"""Any problem written as a convex program and solved by Clarabel: an independent solver for tests."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from conic import losses_of, terms_of
from onefit.fit import Fit


def minimum(problem, tol=1e-10):
    """Coefficients (p,), intercept and objective of a problem with one output."""
    cp = pytest.importorskip("cvxpy")
    X, p = problem.X, problem.X.shape[1]
    rows = np.flatnonzero(problem.weights)
    X = (X.toarray() if sp.issparse(X) else np.asarray(X))[rows]
    coef = cp.Variable(p)
    level = cp.Variable() if problem.intercept else 0.0
    terms, constraints = terms_of(cp, problem.penalty, coef)
    losses = losses_of(cp, problem.loss, problem.y[rows], X @ coef + level)
    program = cp.Problem(cp.Minimize(problem.weights[rows] @ losses + terms), constraints)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that the last digits are not certain
        program.solve(solver="CLARABEL", tol_gap_abs=tol, tol_gap_rel=tol, tol_feas=tol)
    return coef.value, float(level.value) if problem.intercept else 0.0, float(program.value)


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
