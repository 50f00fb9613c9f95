"""Units of the response, of standardised columns, and the order of rows change no choice."""

import copy
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.linear_model import (
    ElasticNet,
    Lasso,
    LogisticRegression,
    PoissonRegressor,
    QuantileRegressor,
    Ridge,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

import onefit
from onefit.cost import is_tall

REGRESSORS = {
    "ridge": onefit.RidgeLOO(alphas=20),
    "lasso": onefit.LassoLOO(alphas=20),
    "net": onefit.ElasticNetLOO(alphas=20, l1_ratio=0.5),
    "nets": onefit.ElasticNetLOO(alphas=20, l1_ratio=[0.3, 0.9]),
    "net about zero": onefit.ElasticNetLOO(alphas=20, l1_ratio=0.3, fit_intercept=False),
    "generalized": onefit.GeneralizedLinearLOO("squared", onefit.penalties.L2(), alphas=8),
    "bounded lasso": onefit.LassoLOO(alphas=12, positive=True),
    **{f"ridge, {rule}": onefit.RidgeLOO(alphas=20, selection=rule) for rule in ("min", "1se", "bagged")},
    **{f"lasso, {rule}": onefit.LassoLOO(alphas=20, selection=rule) for rule in ("min", "1se")},
}
COUNTS = {"poisson": onefit.PoissonLOO(alphas=8)}
OTHERS = {
    "logistic": onefit.LogisticLOO(Cs=8),
    "logistic net": onefit.LogisticLOO(Cs=5, l1_ratio=0.5),
    "ten classes": onefit.LogisticLOO(Cs=5),
    "hinge": onefit.GeneralizedLinearLOO("hinge", alphas=5),
    **COUNTS,
}
QUANTILE = onefit.GeneralizedLinear("quantile", onefit.penalties.L2(1.0))
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
    return (y > 0).astype(int) if name in OTHERS and name not in COUNTS else np.round(np.exp(0.3 * y))


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


@pytest.mark.costly
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


@pytest.mark.costly
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", [*REGRESSORS, *OTHERS])
@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_units_of_standardised_columns(name, shape, factor):
    X, y = data(shape)
    y = target(name, y)
    units = factor ** np.random.default_rng(1).uniform(-1, 1, X.shape[1])
    other = chosen(make_pipeline(StandardScaler(), model_of(name)).fit(X * units, y)[-1])
    same(as_it_is(name, shape, standardised=True), other)


@pytest.mark.costly
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", [*REGRESSORS, *OTHERS])
def test_order_of_the_rows(name, shape):
    X, y = data(shape)
    y = target(name, y)
    order = np.random.default_rng(2).permutation(len(y))
    same(as_it_is(name, shape), chosen(model_of(name).fit(X[order], y[order])))


@pytest.mark.costly
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", [*REGRESSORS, *OTHERS])
def test_units_of_weights(name, shape):
    X, y = data(shape)
    y = target(name, y)
    plain, weighted = clone(model_of(name)).fit(X, y), clone(model_of(name))
    weighted.fit(X, y, sample_weight=np.full(len(y), 3.0))
    same(chosen(plain), chosen(weighted))
    # at next to no penalty rounding tells which rows are sampled or solved, of those that change little
    errors = plain.approx_error_path_ + weighted.approx_error_path_
    slack = 1e-6 * plain.risk_path_ + 0.1 * np.where(plain.guarantee_path_ == "exact", 0.0, errors)
    assert np.all(np.abs(weighted.risk_path_ - plain.risk_path_) <= slack)


# --- rows in blocks, and a strength for each target ---------------------------------------------------

IN_BLOCKS = {
    "ridge": onefit.RidgeLOO(alphas=12),
    "lasso": onefit.LassoLOO(alphas=12),
    "net": onefit.ElasticNetLOO(alphas=12, l1_ratio=0.5),
    "poisson": onefit.PoissonLOO(alphas=6),
    "logistic": onefit.LogisticLOO(Cs=6),
}
CHANGES = {
    "large response": (1e6, 1.0),
    "small response": (1e-6, 1.0),
    "large columns": (1.0, 1e3),
    "small columns": (1.0, 1e-3),
    "order": (1.0, None),
}


@cache
def of_many_rows():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(12_000, 4))
    return X, X @ [1.0, 0.5, 0.0, 0.0] + rng.normal(size=len(X))


def changed(model, X, y, change):
    """Choices before and after a change of units, or of the order of the rows."""
    in_y, in_X = CHANGES[change]
    order = np.random.default_rng(2).permutation(len(y)) if in_X is None else np.arange(len(y))
    units = (in_X or 1.0) ** np.linspace(-1, 1, X.shape[1])
    before = make_pipeline(StandardScaler(), clone(model)).fit(X, y)[-1]
    after = make_pipeline(StandardScaler(), clone(model)).fit((X * units)[order], (in_y * y)[order])
    return before, after[-1]


@pytest.mark.costly
@pytest.mark.parametrize(
    ("name", "change"),
    [
        (name, change)
        for name in IN_BLOCKS
        for change in CHANGES
        if "response" not in change or name != "logistic"
    ],
)
def test_rows_in_blocks(name, change):
    X, y = of_many_rows()
    assert is_tall(*X.shape)
    of_numbers = name not in ("poisson", "logistic")
    y = y if of_numbers else (y > 0).astype(int) if name == "logistic" else np.round(np.exp(0.3 * y))
    before, after = changed(IN_BLOCKS[name], X, y, change)
    same(chosen(before), chosen(after), CHANGES[change][0] if of_numbers else 1.0)


@pytest.mark.parametrize("shape", ["wide", "few"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_strength_for_each_target(shape, change):
    X, y = data(shape)
    Y = np.column_stack([y, np.random.default_rng(6).normal(size=len(y)), X[:, 0] + 0.1 * y])
    before, after = changed(onefit.RidgeLOO(alphas=20, alpha_per_target=True), X, Y, change)
    np.testing.assert_allclose(after.alpha_, before.alpha_, rtol=1e-9)
    np.testing.assert_allclose(after.coef_ / CHANGES[change][0], before.coef_, atol=1e-9)
    alone = onefit.RidgeLOO(alphas=20, alpha_per_target=True)
    each = alone.fit(X, Y * [1e6, 1.0, 1e-6]).alpha_  # a target does not see the units of another
    np.testing.assert_allclose(each, alone.fit(X, Y).alpha_, rtol=1e-9)


@pytest.mark.costly
@pytest.mark.parametrize("unit", [1e-12, 1e-6, 1e6])
@pytest.mark.parametrize("loss", ["epsilon_insensitive", "quantile", "hinge"])
def test_units_of_weights_change_no_choice_of_losses_with_kinks(loss, unit):
    """Not even where loss and penalty are straight, so that a linear program begins."""
    X, y = data("few")
    y = (y > 0).astype(int) if loss == "hinge" else y
    weights = np.random.default_rng(3).uniform(0.2, 2.0, len(y))
    model = onefit.GeneralizedLinearLOO(loss, "l1", alphas=5)
    ours = clone(model).fit(X, y, sample_weight=unit * weights)
    theirs = clone(model).fit(X, y, sample_weight=weights)
    assert ours.alpha_ == pytest.approx(unit * theirs.alpha_)
    assert ours.loo_.value == pytest.approx(theirs.loo_.value, rel=1e-8)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-8)


@pytest.mark.parametrize("unit", [1e-9, 1e-4, 1e4])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("loss", ["absolute", "quantile"])
def test_units_of_the_response_change_no_left_out_value_of_losses_with_kinks(loss, fit_intercept, unit):
    """A loss in other units is the loss beside a penalty in other units."""
    X, y = data("few")
    left_out = []
    for own in (1.0, unit):
        model = onefit.GeneralizedLinear(loss, onefit.penalties.L2(10.0 / own), fit_intercept=fit_intercept)
        left_out.append(onefit.loo(model.fit(X, own * y), X, own * y, exact=True).decision / own)
    np.testing.assert_allclose(left_out[1], left_out[0], atol=1e-7)


@pytest.mark.costly
@pytest.mark.parametrize("ratio", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_a_column_far_from_zero_changes_nothing_of_several_classes(seed, ratio):
    """Weak strengths too, where what a gradient is paired with is far smaller than the means."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 5))
    y = np.digitize(X[:, 0] - X[:, 1] + rng.normal(size=60), [-0.7, 0.7])
    far = X + np.array([0.0, 1e6, 0.0, 0.0, 0.0])
    grid = np.logspace(-2, 6, 5)
    near, other = (
        onefit.LogisticLOO(Cs=grid, l1_ratio=ratio, early_stopping=False).fit(table, y) for table in (X, far)
    )
    assert near.C_ == other.C_
    np.testing.assert_allclose(other.risk_path_, near.risk_path_, rtol=1e-3)


@pytest.mark.costly
@pytest.mark.parametrize("store", [np.asarray, sp.csr_array, sp.csc_matrix], ids=["dense", "csr", "csc"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", [name for name in [*REGRESSORS, *OTHERS] if "zero" not in name])
def test_where_the_columns_lie(name, shape, store):
    """The intercept takes up what columns have in all rows, such as that years are near 2000."""
    X, y = data(shape)
    far = np.array([1e5, 0.0])[np.arange(X.shape[1]) % 2]
    moved = chosen(clone(model_of(name)).fit(store(X + far), target(name, y)))
    _, _, coef = as_it_is(name, shape)  # which strengths are visited on the way may hang on the draws of rows
    np.testing.assert_allclose(moved[2], coef, atol=1e-6)


FITTED = {
    "ridge": Ridge(alpha=0.3),
    "lasso": Lasso(alpha=0.1, tol=1e-12, max_iter=100_000),
    "logistic": LogisticRegression(tol=1e-10, max_iter=10_000),
    "several classes": LogisticRegression(tol=1e-10, max_iter=10_000),
    "Poisson": PoissonRegressor(alpha=0.1, tol=1e-10, max_iter=10_000),
    "quantile": QuantileRegressor(alpha=0.1),
}


@pytest.mark.parametrize("store", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("p", [12, 29, 45])
@pytest.mark.parametrize("name", FITTED)
def test_left_out_values_where_the_columns_lie(name, p, store):
    rng = np.random.default_rng(p)
    X, w = rng.normal(size=(30, p)), rng.uniform(0.2, 3.0, 30)
    y = X[:, 0] - X[:, 1] + rng.normal(size=30)
    kinds = {
        "logistic": y > 0,
        "several classes": np.digitize(y, [-0.5, 0.5]),
        "Poisson": np.round(np.exp(y)),
    }
    y, far = kinds.get(name, y), np.where(np.arange(p) % 2, 1e6, 0.0)
    near = clone(FITTED[name]).fit(X, y, sample_weight=w)
    moved = copy.deepcopy(near)
    moved.intercept_ = near.intercept_ - near.coef_ @ far
    there = onefit.loo(moved, store(X + far), y, sample_weight=w)
    here = onefit.loo(near, X, y, sample_weight=w)
    np.testing.assert_allclose(
        there.predictions, here.predictions, atol=1e-6 * np.abs(here.predictions).max()
    )


@pytest.mark.parametrize("level", [2.0**14, 2.0**20])
@pytest.mark.parametrize("model", [SVR(kernel="linear", C=0.1, tol=1e-10), QUANTILE], ids=["SVR", "quantile"])
def test_a_level_of_the_response_is_taken_up_by_the_intercept(model, level):
    """Ties of kinks, and how far an intercept may move at no cost, are told beside the spread of the rows."""
    for seed in (5, 24):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(30, 5))
        y = np.round((X[:, 0] + rng.normal(size=30)) * 256) / 256  # to which a power of two adds exactly
        here, there = (
            onefit.loo(clone(model).fit(X, y + added), X, y + added, exact=True) for added in (0.0, level)
        )
        np.testing.assert_allclose(there.decision - level, here.decision, atol=1e-6)


def test_which_strengths_cannot_be_told_apart_does_not_depend_on_the_order_of_rows():
    """Strengths at the end of a path are one model: their differences are rounding."""
    rng = np.random.default_rng(19)
    X, _, y = rng.normal(size=(40, 8)), rng.normal(size=40), rng.normal(size=40)
    sets = []
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(40)
        sets.append(onefit.RidgeLOO().fit(X[order], y[order]).confidence_set_)
    assert {len(one) for one in sets} == {len(sets[0])}
    np.testing.assert_allclose(np.array(sets), np.broadcast_to(sets[0], (4, len(sets[0]))), rtol=1e-9)
