"""Inner products of the rows that somebody has: the same fits, and none from other rows."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from onefit.curvature import factor
from onefit.fit import Fit
from onefit.inner_products import InnerProducts
from onefit.losses import Logistic
from onefit.penalties import L2
from onefit.problem import Problem
from onefit.solvers.solve import solve, solve_path


def wide(intercept=True):
    rng = np.random.default_rng(0)
    X = sp.csr_array(rng.normal(size=(30, 50)) * (rng.uniform(size=(30, 50)) < 0.3))
    y = (X.toarray()[:, :3].sum(axis=1) + rng.normal(size=30) > 0).astype(float)
    return Problem(Logistic(), L2(0.7), X, y, rng.uniform(0.5, 2.0, 30), np.array(intercept))


@pytest.mark.parametrize("intercept", [True, False])
def test_they_change_no_fit_and_no_leverage(intercept):
    plain = wide(intercept)
    known = replace(plain, inner=InnerProducts(plain.X))
    one, other = solve(Fit.at_start(plain)), solve(Fit.at_start(known))
    np.testing.assert_allclose(other.fit.coef, one.fit.coef, atol=1e-12)
    np.testing.assert_allclose(other.curvature.quadratic_forms(), one.curvature.quadratic_forms(), rtol=1e-9)


@pytest.mark.parametrize("strengths", [0.7, np.linspace(0.5, 2.0, 50)])
def test_strengths_that_differ_by_column_do_not_use_them(strengths):
    plain = replace(wide(), penalty=L2(strengths))
    known = replace(plain, inner=InnerProducts(plain.X))
    one, other = (factor(Fit.at_start(problem)).quadratic_forms() for problem in (plain, known))
    np.testing.assert_allclose(other, one, rtol=1e-9)


def test_those_of_other_rows_are_not_used():
    plain = wide()
    held = replace(plain, inner=InnerProducts(2.0 * plain.X))
    assert held.known_inner is None
    np.testing.assert_allclose(solve(Fit.at_start(held)).fit.coef, solve(Fit.at_start(plain)).fit.coef)


def test_along_a_path():
    plain = wide()
    inner = InnerProducts(plain.X)
    strengths = [10.0, 1.0, 0.1]
    ours = solve_path(replace(plain, penalty=L2(one), inner=inner) for one in strengths)
    for solution, strength in zip(ours, strengths, strict=True):
        alone = solve(Fit.at_start(replace(plain, penalty=L2(strength))))
        np.testing.assert_allclose(solution.fit.coef, alone.fit.coef, atol=1e-9)
