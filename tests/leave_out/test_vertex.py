"""Columns that are copies of others, some of them but for the last digits."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from onefit.fit import Fit
from onefit.leave_out import leave_out
from onefit.leave_out.vertex import copies
from onefit.losses import Squared
from onefit.numerics import CERTIFIED
from onefit.penalties import L1
from onefit.problem import Problem
from onefit.solvers.solve import solve


def _problem(off=0.0, sign=1.0, strength=5.0, store=np.asarray):
    """The fifth column is the third but for a share ``off`` of it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 6)) * 10.0 ** rng.integers(-3, 3, 6)
    X[:, 4] = sign * X[:, 2] * (1.0 + off * rng.normal(size=80))
    scales = np.linalg.norm(X, axis=0)
    y = X[:, [0, 2]] @ (20.0 / scales[[0, 2]]) + 0.3 * rng.normal(size=80)
    strengths = strength * scales / scales[2]
    strengths[4] = strengths[2]
    return Problem(Squared(), L1(strengths), store(X), y, rng.uniform(0.5, 2.0, 80))


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(("off", "same"), [(0.0, True), (1e-9, True), (1e-5, False)])
def test_copies_are_known_but_for_the_last_digits(off, same, sign):
    problem = _problem(off, sign)
    fit = solve(Fit.at_start(problem)).fit
    expected = np.zeros(6, dtype=bool)
    expected[4 if fit.coef[2] else 2] = same
    np.testing.assert_array_equal(copies(fit), expected)
    nothing = Fit.at_start(problem)
    np.testing.assert_array_equal(copies(nothing), np.arange(6) == 4 if same else np.zeros(6, dtype=bool))


def test_copies_with_strengths_of_their_own_are_none():
    problem = _problem()
    problem.penalty.alpha[4] *= 1.5
    assert not copies(solve(Fit.at_start(problem)).fit).any()


@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("off", [0.0, 1e-9, 1e-8])
@pytest.mark.parametrize("strength", [5.0, 1.0])
def test_rows_are_followed_past_copies(off, strength, store):
    """A column that nearly is another one stays as near to its bound, whichever row leaves."""
    fit = solve(Fit.at_start(_problem(off, strength=strength, store=store))).fit
    found = leave_out(fit, max_error=0.0)
    assert len(found.anew) == 0
    assert len(found.failed) == 0
    exact = np.array([solve(Fit.at_start(fit.problem.without(i))).fit.eta[i] for i in range(80)])
    np.testing.assert_allclose(found.eta, exact, atol=CERTIFIED * np.abs(exact).max())
