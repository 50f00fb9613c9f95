"""Several classes on columns in large units, beside which a ridge is next to nothing.

Losses see differences of outputs alone, so that what these have in common is held by the ridge and no row:
what rounding leaves of it in sums over the rows must not be divided by the ridge.
"""

import numpy as np
import pytest

import onefit
from onefit.penalties import L2


def _table(column: str, n: int = 60, classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, 4))
    X = Z.copy()
    X[:, 3] = {"income": 5e4 + 2e4 * Z[:, 3], "salary": 3e6 + 1e6 * Z[:, 3], "time": 1.6e9 + 1e7 * Z[:, 3]}[
        column
    ]
    return X, (Z @ rng.normal(size=(4, classes)) + rng.gumbel(size=(n, classes))).argmax(axis=1)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("strength", [1.0, 1e-4])
@pytest.mark.parametrize("column", ["income", "salary", "time"])
def test_rows_are_left_out_as_refits_have_them(column, strength, weighted):
    X, y = _table(column)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, size=len(y)) if weighted else np.ones(len(y))
    model = onefit.GeneralizedLinear("multinomial", L2(strength))
    found = onefit.loo(model.fit(X, y, sample_weight=weights), X, y, sample_weight=weights)
    rows = np.arange(0, len(y), 4)
    losses = []
    for i in rows:
        rest = np.arange(len(y)) != i
        scores = model.fit(X[rest], y[rest], sample_weight=weights[rest]).decision_function(X[[i]])[0]
        losses.append(np.logaddexp.reduce(scores) - scores[y[i]])
    np.testing.assert_allclose(found.losses[rows], losses, atol=1e-5)
    assert found.guarantee == "exact"
    assert np.abs(found.decision).max() < 100.0
