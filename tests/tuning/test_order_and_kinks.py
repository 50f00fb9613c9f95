"""What the order of rows must not change, and paths of losses with kinks beside exact leave-one-out."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

import onefit
from onefit import ElasticNetLOO, GeneralizedLinearLOO, LassoLOO, RidgeLOO

MODELS = [
    RidgeLOO(positive=True),
    LassoLOO(positive=True),
    ElasticNetLOO(positive=True),
    LassoLOO(bounds=(-0.2, 0.2)),
    LassoLOO(),
]


@pytest.mark.costly
@pytest.mark.parametrize("model", MODELS, ids=repr)
@pytest.mark.parametrize("seed", range(2))
def test_the_order_of_some_rows_changes_nothing(model, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(30, 40))
    y = X[:, 0] - X[:, 1] + rng.normal(size=30)
    whole = clone(model).fit(X, y)
    order = rng.permutation(30)
    other = clone(model).fit(X[order], y[order])
    assert other.alpha_ == pytest.approx(whole.alpha_)
    assert other.loo_.value == pytest.approx(whole.loo_.value, rel=1e-6)
    assert other.corrected_risk_ == pytest.approx(whole.corrected_risk_, rel=1e-2)


@pytest.mark.costly
@pytest.mark.parametrize("loss", ["absolute", "quantile", "hinge"])
@pytest.mark.parametrize(("n", "p"), [(20, 15), (60, 15)])
@pytest.mark.parametrize("seed", range(2))
def test_paths_of_losses_with_kinks_are_near_exact_leave_one_out(loss, n, p, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    y = X[:, 0] + X[:, 1] + rng.normal(size=n)
    y = np.where(y > 0, 1.0, 0.0) if loss == "hinge" else y
    model = GeneralizedLinearLOO(loss).fit(X, y)
    for k in range(0, len(model.alphas_), 5):
        fit = GeneralizedLinearLOO(loss, alphas=[model.alphas_[k]]).fit(X, y)
        exact = onefit.loo(fit, X, y, exact=True).value
        assert 0.5 * exact <= model.risk_path_[k] <= 2.0 * exact
    assert model.corrected_risk_ <= 2.0 * model.loo_.value
