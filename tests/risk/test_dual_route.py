"""The primal formula against the dual one of ``dual_route``, an implementation of its own.

Primal: η̃ = η + h g / (1 − d h), h from the curvature on the tangent of the penalty (Wang et al. 2018, eq. 17
and section 4).  Dual: η̃ = η + θ/d − θ / (d J), J the diagonal of the Jacobian of a projection (section 3).
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from onefit.curvature import factor
from onefit.fit import Fit
from onefit.leave_out.step import one_step
from onefit.losses import Logistic, Poisson, Squared
from onefit.penalties import L1, L2, FusedLasso, GeneralizedLasso, GroupLasso, NuclearNorm
from onefit.problem import Problem
from onefit.solvers.solve import solve

N, P = 50, 12
GROUPS = np.repeat(np.arange(4), 3)
SOME_ROWS = np.random.default_rng(3).normal(size=(8, P))


def _load():
    """``tests`` is no package: tests are imported one by one."""
    place = Path(__file__).parents[1] / "dual_route.py"
    spec = importlib.util.spec_from_file_location("dual_route", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


dual_route = _load()
differences = np.diff(np.eye(P), axis=0)
CASES = {
    "ridge": (L2(3.0), dual_route.ridge(3.0)),
    "lasso": (L1(5.0), dual_route.lasso(5.0)),
    "group lasso": (
        GroupLasso(GROUPS, 6.0),
        dual_route.group_lasso(GROUPS, np.full(4, 6.0 * np.sqrt(3))),
    ),
    "fused lasso": (FusedLasso(1.5), dual_route.generalised_lasso(differences, 1.5)),
    "generalised lasso": (GeneralizedLasso(SOME_ROWS, 2.0), dual_route.generalised_lasso(SOME_ROWS, 2.0)),
    "nuclear norm": (NuclearNorm((3, 4), 14.0), dual_route.nuclear_norm((3, 4), 14.0)),
}


def _problem(loss, penalty, weighted, fit_intercept, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, P)) + 0.3
    coef = np.outer([1.0, -1.0, 0.0], [1.0, 1.0, 0.5, 0.5]).ravel()
    eta = X @ coef
    if isinstance(loss, Logistic):
        y = (eta + rng.logistic(size=N) > 0).astype(float)
    elif isinstance(loss, Poisson):
        y = rng.poisson(np.exp(0.3 * eta)).astype(float)
    else:
        y = eta + rng.normal(size=N)
    weights = rng.uniform(0.3, 2.0, N) if weighted else np.ones(N)
    return Problem(loss, penalty, X, y, weights, np.array(fit_intercept))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("loss", [Squared(), Logistic(), Poisson()], ids=repr)
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
def test_primal_and_dual_are_one(name, loss, weighted, fit_intercept):
    penalty, projection = CASES[name]
    problem = _problem(loss, penalty, weighted, fit_intercept)
    fit = solve(Fit.at_start(problem)).fit
    eta, dual = dual_route.left_out(
        problem.X, fit.eta, -fit.gradient, fit.hessian, projection, intercept=fit_intercept
    )
    np.testing.assert_allclose(dual, -fit.gradient, atol=1e-9 * np.abs(fit.gradient).max())
    if penalty.has_kinks((P,)):
        assert 0 < fit.tangent.size < P
    h = factor(fit).quadratic_forms()
    primal = fit.eta + h * fit.gradient / (1.0 - fit.hessian * h)
    np.testing.assert_allclose(primal, eta, atol=1e-8 * np.std(eta))
    if loss.is_quadratic:  # nothing but the step
        step = one_step(fit)
        np.testing.assert_allclose(step.eta, eta, atol=1e-8 * np.std(eta))
