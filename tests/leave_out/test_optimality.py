"""Whether patterns stay, where columns are of very different size."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import nnls

from onefit.fit import Fit
from onefit.leave_out.engine import leave_out
from onefit.leave_out.sets import Folds
from onefit.losses import Squared
from onefit.penalties import Box
from onefit.problem import Problem
from onefit.solvers.solve import solve


def fitted_without(X, y, rows):
    """Predictions of least squares without some rows by SciPy, on columns of like size."""
    held = np.setdiff1d(np.arange(len(y)), rows)
    means, level = X[held].mean(axis=0), y[held].mean()
    norms = np.linalg.norm(X[held] - means, axis=0)
    coef, _ = nnls((X[held] - means) / norms, y[held] - level)
    return level + ((X[rows] - means) / norms) @ coef


def _cases():
    """Seeds, and whether groups leave; all but two take long on columns of so many sizes."""
    for seed in range(4):
        for grouped in (True, False):
            marks = [] if (seed, grouped) in ((0, True), (0, False)) else [pytest.mark.slow]
            yield pytest.param(seed, grouped, id=f"{seed}-{'groups' if grouped else 'rows'}", marks=marks)


@pytest.mark.parametrize(("seed", "grouped"), list(_cases()))
def test_a_small_column_that_enters_is_not_overlooked(seed, grouped):
    rng = np.random.default_rng(seed)
    factors = rng.normal(size=(30, 3)) @ rng.normal(size=(3, 12)) + 0.05 * rng.normal(size=(30, 12))
    X = factors * 10.0 ** rng.uniform(-4, 4, 12)
    y = factors[:, 0] + rng.normal(size=30)
    fit = solve(Fit.at_start(Problem(Squared(), Box(0.0, np.inf), X, y, np.ones(30)))).fit
    removed = np.array_split(rng.permutation(30), 7) if grouped else list(np.arange(30)[:, None])
    sets = Folds(tuple(removed), tuple(removed), 30) if grouped else None
    found = leave_out(fit, sets, max_error=0.0)
    for k in range(len(removed)):
        own = found.values_of(k)
        np.testing.assert_allclose(found.eta[own], fitted_without(X, y, found.rows[own]), atol=1e-7)
        assert np.all(found.bounds[own] < 1e-6)
