"""A path ends where the risk ends, whatever the units of the data."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import onefit
from onefit.exceptions import ShortPathWarning
from onefit.penalties import L1, L2, Box, ElasticNet
from onefit.tuning.grid import DECADES_OF_UNITS, MOST_DECADES, Grid

X, Y = load_diabetes(return_X_y=True)
X, Y = 100.0 * X[:150], Y[:150]
HIGH = float(np.median(Y))
CLASSES = Y > HIGH


def _models():
    return {
        "ridge": (onefit.RidgeLOO(), Y),
        "lasso": (onefit.LassoLOO(50), Y),
        "logistic": (onefit.LogisticLOO(12), CLASSES),
        "logistic l1": (onefit.LogisticLOO(12, l1_ratio=1.0), CLASSES),
        "poisson": (onefit.PoissonLOO(12), np.round(Y)),
        "generalized": (onefit.GeneralizedLinearLOO(penalty=L1(), alphas=20), Y),
        "within bounds": (onefit.GeneralizedLinearLOO(penalty=L2() + Box(lower=0.0), alphas=20), Y),
    }


def _strength(model):
    return model.C_ if hasattr(model, "C_") else model.alpha_


# --- where paths begin ---------------------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.parametrize("held", [(), (2, 5)], ids=["free", "some at zero"])
@pytest.mark.parametrize("penalty", [L2(), L1(), ElasticNet()], ids=["ridge", "lasso", "net"])
def test_bounds_of_a_penalty_begin_where_those_of_an_estimator_do(penalty, held):
    factors = np.where(np.isin(np.arange(X.shape[1]), held), np.inf, 1.0)
    inside = penalty.scaled(factors) + Box(lower=0.0)
    boxed = onefit.GeneralizedLinearLOO(penalty=inside, alphas=12).fit(X, Y)
    model = onefit.GeneralizedLinearLOO(penalty=penalty, alphas=12, penalty_factors=factors, positive=True)
    of_estimator = model.fit(X, Y)
    np.testing.assert_allclose(boxed.alphas_, of_estimator.alphas_, rtol=1e-9)
    assert boxed.alpha_ == pytest.approx(of_estimator.alpha_, rel=1e-9)
    assert boxed.loo_.value == pytest.approx(of_estimator.loo_.value, rel=1e-9)
    free = np.isfinite(factors)
    fewer = clone(model).set_params(alphas=[boxed.alpha_], penalty_factors=None).fit(X[:, free], Y)
    np.testing.assert_allclose(boxed.coef_[free], fewer.coef_, atol=1e-6)
    assert not boxed.coef_[~free].any()
    assert boxed.loo_.value == pytest.approx(fewer.loo_.value, rel=1e-6)
    centred = X - X.mean(axis=0)
    l1 = float(penalty.strengths(())[0])
    high = np.max(centred.T[free] @ Y) / l1 if l1 else 10.0 * np.sum(centred**2)
    assert np.isclose(boxed.alphas_, high, rtol=1e-6).any()


def test_ridge_strengths_of_columns_are_penalty_factors():
    factors = np.linspace(0.5, 2.0, X.shape[1])
    found = onefit.GeneralizedLinearLOO(penalty=L2(factors), alphas=12).fit(X, Y)
    factored = onefit.GeneralizedLinearLOO(penalty=L2(), alphas=12, penalty_factors=factors).fit(X, Y)
    np.testing.assert_allclose(found.alphas_, factored.alphas_, rtol=1e-9)
    assert found.loo_.value == pytest.approx(factored.loo_.value, rel=1e-9)
    refits = cross_val_predict(clone(found).set_params(alphas=[found.alpha_]), X, Y, cv=LeaveOneOut())
    np.testing.assert_allclose(found.loo_.predictions, refits, rtol=1e-6)


# --- when strengths are added ---------------------------------------------------------------------------


def test_a_path_goes_on_while_its_risk_falls():
    grid = Grid(np.geomspace(1.0, 0.1, 11), automatic=True)
    falling = np.geomspace(1.0, 0.5, 11)
    assert grid.falls_below(falling)
    assert not grid.falls_above(falling)
    assert grid.falls_above(falling[::-1])
    assert not grid.falls_below(np.full(11, 0.7))
    assert not grid.falls_below(np.append(falling, np.linspace(0.51, 0.6, 6)))  # clearly past the minimum
    assert grid.falls_below(np.append(falling, 0.51))  # not yet


def test_strengths_that_are_added_go_on_in_the_same_steps():
    grid = Grid(np.geomspace(1.0, 0.1, 11), automatic=True)
    np.testing.assert_allclose(grid.weaker[:2], 0.1 * 10.0 ** (-np.array([1, 2]) / 10))
    np.testing.assert_allclose(grid.stronger[:2], 10.0 ** (np.array([1, 2]) / 10))
    assert grid.weaker.size == DECADES_OF_UNITS * 10
    assert grid.stronger.size == MOST_DECADES * 10
    assert Grid(grid.values, automatic=True, strongest=10.0).stronger.size == 10
    assert Grid(grid.values).weaker.size == Grid(np.ones(1), automatic=True).stronger.size == 0


@pytest.mark.parametrize("model", [onefit.RidgeLOO, onefit.PoissonLOO])
def test_without_signal_the_strong_end_is_followed(model):
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(60, 20)) * 10.0 ** rng.uniform(-3, 3, size=20)  # one column sets the usual range
    y = rng.poisson(3.0, size=60).astype(float)
    fitted = model().fit(noise, y)
    assert fitted.risk_path_[0] < fitted.risk_path_.min() * (1 + 2e-3)
    assert fitted.loo_.value < 1.05 * fitted.risk_path_[0]


def test_without_noise_the_weak_end_is_followed():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(80, 5))
    y = Z @ np.arange(1.0, 6.0) + 1e-4 * rng.normal(size=80)
    for model in (onefit.LassoLOO(30), onefit.ElasticNetLOO(30), onefit.RidgeLOO(20)):
        fitted = model.fit(Z, y)
        assert fitted.loo_.value < 1e-4 * np.var(y)
    assert len(onefit.ElasticNetLOO(30).fit(Z, y).alphas_) > 30


def test_a_generalised_lasso_is_followed_too():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(60, 8))
    y = Z @ np.repeat([1.0, -1.0], 4) + 1e-3 * np.arange(8) @ Z.T
    fitted = onefit.GeneralizedLinearLOO(penalty=onefit.penalties.FusedLasso(), alphas=10).fit(Z, y)
    assert len(fitted.alphas_) > 10


# --- given strengths ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "target", "end"),
    [
        (onefit.LassoLOO([50.0, 30.0]), Y, "weakest"),
        (onefit.RidgeLOO([1e7, 1e6, 1e5]), Y, "weakest"),
        (onefit.ElasticNetLOO([1e3, 1e2]), Y, "weakest"),
        (onefit.LogisticLOO([1e-5, 1e-3]), CLASSES, "weakest"),
        (onefit.LogisticLOO([0.1, 10.0], l1_ratio=1.0), CLASSES, "strongest"),
        (onefit.PoissonLOO([1e5, 1e4]), np.round(Y), "weakest"),
    ],
)
def test_a_grid_that_is_too_short_is_said_to_be(model, target, end):
    wide = np.hstack([X, np.random.default_rng(0).normal(size=(150, 40))])
    with pytest.warns(ShortPathWarning, match=f"still falls at the {end} penalty of the (alphas|Cs) given"):
        model.fit(wide, target)


@pytest.mark.parametrize("name", ["ridge", "lasso", "logistic", "logistic l1", "poisson"])
def test_a_grid_around_the_choice_is_taken_in_silence(name):
    model, target = _models()[name]
    chosen = _strength(model.fit(X, target))
    again = model.set_params(**{f"{model._strength}s": chosen * np.array([0.1, 1.0, 10.0])})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(again.fit(X, target).risk_path_) == 3


def test_a_single_strength_is_taken_as_it_is():
    for model, target in [
        (onefit.LassoLOO([1.0]), Y),
        (onefit.LogisticLOO([1.0]), CLASSES),
        (onefit.RidgeLOO(1), Y),
    ]:
        assert len(model.fit(X, target).risk_path_) == 1
    assert onefit.RidgeLOO([0.0, 1.0]).fit(X, Y).alphas_[-1] == 0.0


# --- units ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [1e-6, 1e6])
@pytest.mark.parametrize("name", ["ridge", "lasso", "generalized"])
def test_units_of_the_response_do_not_matter(name, factor):
    model, target = _models()[name]
    one = model.fit(X, target)
    place, coef, risk = one.risk_path_.argmin(), one.coef_, one.loo_.value
    other = model.fit(X, factor * target)
    assert other.risk_path_.argmin() == place
    np.testing.assert_allclose(other.coef_, factor * coef, rtol=1e-6, atol=1e-9 * factor)
    assert other.loo_.value == pytest.approx(factor**2 * risk, rel=1e-6)


@pytest.mark.costly
@pytest.mark.parametrize("factor", [1e-3, 1e3])
@pytest.mark.parametrize("name", _models())
def test_units_of_the_columns_do_not_matter(name, factor):
    model, target = _models()[name]
    one = model.fit(X, target)
    coef, risk, visited = one.coef_, one.loo_.value, len(one.risk_path_)
    other = model.fit(factor * X, target)
    assert len(other.risk_path_) == visited
    np.testing.assert_allclose(other.coef_ * factor, coef, rtol=1e-5, atol=1e-8)
    assert other.loo_.value == pytest.approx(risk, rel=1e-6)


@pytest.mark.costly
@pytest.mark.parametrize("name", [*_models(), "elastic net"])
def test_standardised_columns_and_the_order_of_rows_do_not_matter(name):
    model, target = (_models() | {"elastic net": (onefit.ElasticNetLOO(50), Y)})[name]
    strengths = []
    order = np.random.default_rng(1).permutation(len(X))
    for columns, rows in [(X, slice(None)), (1e3 * X, slice(None)), (1e-3 * X, slice(None)), (X, order)]:
        pipeline = make_pipeline(StandardScaler(), model).fit(columns[rows], target[rows])
        strengths.append(_strength(pipeline[-1]))
    np.testing.assert_allclose(strengths, strengths[0], rtol=1e-6)


@pytest.mark.parametrize("factor", [1e6, 1e-6])
def test_an_elastic_net_is_the_same_in_all_units(factor):
    """On an automatic path ``l1_ratio`` is the share at standard deviation one."""
    one, other = (onefit.ElasticNetLOO().fit(X, scale * Y) for scale in (1.0, factor))
    np.testing.assert_allclose(
        other.coef_ / factor, one.coef_, rtol=1e-5, atol=1e-8 * np.abs(one.coef_).max()
    )
    assert other.loo_.value / factor**2 == pytest.approx(one.loo_.value, rel=1e-6)
