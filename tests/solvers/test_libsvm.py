"""What libsvm brings near the minimum is solved exactly from there."""

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

from onefit._linalg import RowGram
from onefit.fit import Fit
from onefit.losses import EpsilonInsensitive, Hinge, Quantile
from onefit.penalties import L2
from onefit.problem import Problem
from onefit.solvers import dual_active_set
from onefit.solvers.kinks import solve
from onefit.solvers.libsvm import near_minimum, solves


def _problem(loss, strength=0.02, intercept=True, n=120):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] ** 2 + 0.3 * rng.normal(size=n)
    y = (y > 1.0).astype(float) if isinstance(loss, Hinge) else y
    weights = np.where(np.arange(n) < 10, 0.0, rng.uniform(0.5, 2.0, n))
    return Problem(loss, L2(strength), RowGram(rbf_kernel(X, gamma=0.1)), y, weights, np.array(intercept))


@pytest.mark.parametrize("loss", [Hinge(), EpsilonInsensitive(0.2), EpsilonInsensitive(0.0)])
def test_solutions_do_not_depend_on_where_they_start(loss, monkeypatch):
    problem = _problem(loss)
    assert solves(problem)
    near = near_minimum(problem)
    exact = solve(near)
    assert exact.objective <= near.objective <= exact.objective * (1.0 + 1e-2)
    np.testing.assert_allclose(near.eta, exact.eta, atol=1e-2)
    monkeypatch.setattr(
        dual_active_set.DualActiveSet, "settle_by_pivots", lambda _: pytest.fail("one by one")
    )
    far = solve(Fit.at_start(problem))
    np.testing.assert_allclose(far.eta, exact.eta, atol=1e-9)


@pytest.mark.parametrize("problem", [_problem(Quantile(0.5)), _problem(Hinge(), intercept=False)])
def test_what_libsvm_does_not_solve_it_is_not_asked_for(problem):
    assert not solves(problem)
    assert np.isfinite(solve(Fit.at_start(problem)).objective)
