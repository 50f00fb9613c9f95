"""Units of the response, of standardised columns, and the order of rows change no choice."""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import onefit

REGRESSORS = {
    "ridge": onefit.RidgeLOO(alphas=20),
    "lasso": onefit.LassoLOO(alphas=20),
    "net": onefit.ElasticNetLOO(alphas=20, l1_ratio=[0.3, 0.9]),
}
OTHERS = {
    "logistic": onefit.LogisticLOO(Cs=8),
    "poisson": onefit.PoissonLOO(alphas=8),
}
SHAPES = {"wide": (30, 40), "few": (80, 6), "tall": (1500, 8)}


def data(shape, seed=0):
    n, p = SHAPES[shape]
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, X @ np.where(np.arange(p) < 4, 1.0, 0.0) + rng.normal(size=n)


def target(name, y):
    if name in REGRESSORS:
        return y
    return (y > 0).astype(int) if "logistic" in name else np.round(np.exp(0.3 * y))


def model_of(name):
    return (REGRESSORS | OTHERS)[name]


def chosen(model):
    """Place of the choice on the path, and the coefficients."""
    path, own = (model.Cs_, model.C_) if hasattr(model, "C_") else (model.alphas_, model.alpha_)
    return (
        int(np.argmin(np.abs(np.log(path / own)))),
        len(path),
        getattr(model, "l1_ratio_", None),
        model.coef_,
    )


def same(one, other, factor=1.0):
    assert one[:3] == other[:3]
    scale = np.abs(one[3]).max() * factor
    np.testing.assert_allclose(other[3] / scale, one[3] * factor / scale, atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["ridge", "lasso"])
@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_units_of_the_response(name, shape, factor):
    """Not of an elastic net with a given ``l1_ratio``: its ℓ2 part does not grow with the response."""
    X, y = data(shape)
    model = model_of(name)
    plain, scaled = chosen(model.fit(X, y)), chosen(model.fit(X, factor * y))
    same(plain, scaled, factor)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", [*REGRESSORS, *OTHERS])
@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_units_of_standardised_columns(name, shape, factor):
    X, y = data(shape)
    y = target(name, y)
    units = factor ** np.random.default_rng(1).uniform(-1, 1, X.shape[1])
    one = chosen(make_pipeline(StandardScaler(), model_of(name)).fit(X, y)[-1])
    other = chosen(make_pipeline(StandardScaler(), model_of(name)).fit(X * units, y)[-1])
    same(one, other)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", [*REGRESSORS, *OTHERS])
def test_order_of_the_rows(name, shape):
    X, y = data(shape)
    y = target(name, y)
    order = np.random.default_rng(2).permutation(len(y))
    model = model_of(name)
    one = chosen(model.fit(X, y))
    same(one, chosen(model.fit(X[order], y[order])))
