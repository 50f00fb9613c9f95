"""Units of the response, of standardised columns, and the order of rows change no choice."""

from functools import cache

import numpy as np
import pytest
from sklearn.linear_model import ElasticNet
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import onefit

REGRESSORS = {
    "ridge": onefit.RidgeLOO(alphas=20),
    "lasso": onefit.LassoLOO(alphas=20),
    "net": onefit.ElasticNetLOO(alphas=20, l1_ratio=0.5),
    "nets": onefit.ElasticNetLOO(alphas=20, l1_ratio=[0.3, 0.9]),
    "net about zero": onefit.ElasticNetLOO(alphas=20, l1_ratio=0.3, fit_intercept=False),
    "generalized": onefit.GeneralizedLinearLOO("squared", onefit.penalties.L2(), alphas=8),
}
COUNTS = {"poisson": onefit.PoissonLOO(alphas=8)}
OTHERS = {
    "logistic": onefit.LogisticLOO(Cs=8),
    "logistic net": onefit.LogisticLOO(Cs=5, l1_ratio=0.5),
    "ten classes": onefit.LogisticLOO(Cs=5),
    **COUNTS,
}
SHAPES = {"wide": (20, 24), "few": (80, 6), "tall": (160, 8)}


def data(shape, seed=0):
    n, p = SHAPES[shape]
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    noise = 3.0 if p > n else 1.0  # so that the risk has a minimum before the fits interpolate
    return X, X @ np.where(np.arange(p) < 4, 1.0, 0.0) + noise * rng.normal(size=n)


def target(name, y):
    if name in REGRESSORS:
        return y
    if name == "ten classes":
        return (10 * np.argsort(np.argsort(y))) // len(y)
    return (y > 0).astype(int) if "logistic" in name else np.round(np.exp(0.3 * y))


def model_of(name):
    return (REGRESSORS | OTHERS)[name]


def chosen(model):
    """Place of the choice on the path, and the coefficients."""
    path, own = (model.Cs_, model.C_) if hasattr(model, "C_") else (model.alphas_, model.alpha_)
    return (
        int(np.argmin(np.abs(np.log(path / own)))),
        len(path),
        model.coef_,
    )


@cache
def as_it_is(name, shape, *, standardised=False):
    X, y = data(shape)
    y, model = target(name, y), model_of(name)
    return chosen(make_pipeline(StandardScaler(), model).fit(X, y)[-1] if standardised else model.fit(X, y))


def same(one, other, factor=1.0):
    assert one[:2] == other[:2]
    scale = (np.abs(one[2]).max() or 1.0) * factor
    np.testing.assert_allclose(other[2] / scale, one[2] * factor / scale, atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", [*REGRESSORS, *COUNTS])
@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_units_of_the_response(name, shape, factor):
    X, y = data(shape)
    y, model = target(name, y), model_of(name)
    scaled = chosen(model.fit(X, factor * y))
    same(as_it_is(name, shape), scaled, 1.0 if name in COUNTS else factor)


@pytest.mark.parametrize("factor", [1e-6, 1.0, 1e6])
def test_an_elastic_net_says_what_scikit_learn_would_call_its_choice(factor):
    X, y = data("few")
    y = factor * y
    model = onefit.ElasticNetLOO(alphas=20, l1_ratio=0.4).fit(X, y)
    mix = model.l1_ratio_
    assert mix / (1 - mix) == pytest.approx(y.std() * 0.4 / 0.6)
    theirs = ElasticNet(model.alpha_, l1_ratio=mix, tol=1e-12, max_iter=100_000).fit(X, y)
    np.testing.assert_allclose(model.coef_, theirs.coef_, atol=1e-7 * np.abs(model.coef_).max())


def test_strengths_that_are_given_are_those_of_y_as_it_is():
    X, y = data("few")
    model = onefit.ElasticNetLOO(alphas=[1e3, 10.0, 0.1, 1e-3], l1_ratio=0.4).fit(X, 100.0 * y)
    assert model.l1_ratio_ == pytest.approx(0.4, rel=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", [*REGRESSORS, *OTHERS])
@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_units_of_standardised_columns(name, shape, factor):
    X, y = data(shape)
    y = target(name, y)
    units = factor ** np.random.default_rng(1).uniform(-1, 1, X.shape[1])
    other = chosen(make_pipeline(StandardScaler(), model_of(name)).fit(X * units, y)[-1])
    same(as_it_is(name, shape, standardised=True), other)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", [*REGRESSORS, *OTHERS])
def test_order_of_the_rows(name, shape):
    X, y = data(shape)
    y = target(name, y)
    order = np.random.default_rng(2).permutation(len(y))
    same(as_it_is(name, shape), chosen(model_of(name).fit(X[order], y[order])))
