"""Rows without weight are put back among those that were left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from builders import without
from onefit import losses, penalties
from onefit.fit import Fit
from onefit.leave_out import LeftOut, leave_out
from onefit.leave_out.idle_rows import among_idle_rows
from onefit.leave_out.result import Correction, Drawn
from onefit.problem import Problem
from onefit.solvers.solve import solve


def left_out_of_half(loss, penalty, n=60, p=4):
    """Half of the rows left out of a fit of their own, their numbers, and the problem of all."""
    rng = np.random.default_rng(0)
    X, rows = rng.normal(size=(n, p)), np.sort(rng.permutation(n)[: n // 2])
    y, weights = (X[:, 0] + rng.normal(size=n) > 0).astype(float), np.zeros(n)
    weights[rows] = rng.uniform(0.5, 2.0, len(rows))
    whole = Problem(loss, penalty, X, y, weights)
    few = replace(whole, X=X[rows], y=y[rows], weights=weights[rows])
    return leave_out(solve(Fit.at_start(few)).fit, max_error=0.0), rows, whole


@pytest.mark.parametrize(
    ("loss", "penalty"),
    [
        (losses.Squared(), penalties.L1(2.0)),
        (losses.Logistic(), penalties.L1(0.5)),
        (losses.Quantile(0.6), penalties.L2(0.5)),
        (losses.Quantile(0.6), penalties.L1(0.5)),
    ],
)
def test_they_are_what_leaving_all_rows_out_says(loss, penalty):
    found, rows, problem = left_out_of_half(loss, penalty)
    whole = among_idle_rows(found, problem, rows)
    expected = leave_out(whole.fit, max_error=0.0)
    np.testing.assert_allclose(whole.eta, expected.eta, atol=1e-6)
    np.testing.assert_allclose(whole.leverages, expected.leverages, atol=1e-8)
    assert np.isfinite(whole.bounds).all() == np.isfinite(expected.bounds).all()
    for i, one in whole.solved.items():
        assert i in rows
        np.testing.assert_allclose(one.coef, without(whole.fit, i).coef, atol=1e-5)


def test_numbers_of_rows_are_those_among_all():
    found, rows, problem = left_out_of_half(losses.Logistic(), penalties.L2(1.0))
    drawn = Drawn(np.array([3, 7]), np.array([0.5, 0.5]), found.eta + 1.0)
    numbered: LeftOut = replace(
        found,
        stepped=np.array([3]),
        anew=np.array([7]),
        correction=Correction(0.1, 0.2, 1.0, drawn=drawn),
        doubt=np.ones(len(rows)),
    )
    whole = among_idle_rows(numbered, problem, rows)
    idle = np.setdiff1d(np.arange(problem.n), rows)
    assert (whole.stepped, whole.anew) == (rows[3], rows[7])
    np.testing.assert_array_equal(whole.correction.drawn.sets, rows[[3, 7]])
    np.testing.assert_array_equal(whole.correction.drawn.before[rows], found.eta + 1.0)
    np.testing.assert_array_equal(whole.correction.drawn.before[idle], whole.fit.eta[idle])
    assert not whole.doubt[idle].any()
    assert whole.doubt[rows].all()
