"""Automatic paths on columns of very different units: no column in large ones ends them for all others."""

import numpy as np
import pytest
import scipy.sparse as sp

import onefit
from onefit.penalties import L1, L2, Box, GroupLasso, Slope, SparseGroupLasso
from onefit.tuning.pulls import held, squares_of_products
from onefit.tuning.selection import Bagging, bagged, roots_of


def _table(n: int = 240, p: int = 6, seed: int = 0) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Standard columns and what depends on them."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, p))
    eta = Z @ np.array([1.0, -1.0, 1.0, 0.5, 1.0, -0.5])
    return Z, {
        "numbers": eta + 2.0 * rng.normal(size=n),
        "targets": np.column_stack([eta + 2.0 * rng.normal(size=n), rng.normal(size=n)]),
        "two": (eta + 2.0 * rng.logistic(size=n) > 0).astype(int),
        "three": np.digitize(eta + 2.0 * rng.logistic(size=n), [-1.5, 1.5]),
        "counts": rng.poisson(np.exp(0.3 * eta)),
    }


MODELS = {
    "ridge": (onefit.RidgeLOO(), "numbers"),
    "ridge, folds": (onefit.RidgeLOO(cv=5), "numbers"),
    "ridge of targets": (onefit.RidgeLOO(), "targets"),
    "lasso": (onefit.LassoLOO(), "numbers"),
    "lasso, folds": (onefit.LassoLOO(cv=5), "numbers"),
    "lasso, not negative": (onefit.LassoLOO(positive=True), "numbers"),
    "elastic net": (onefit.ElasticNetLOO(l1_ratio=0.9), "numbers"),
    "two classes": (onefit.LogisticLOO(), "two"),
    "three classes": (onefit.LogisticLOO(), "three"),
    "two classes, l1": (onefit.LogisticLOO(l1_ratio=1.0), "two"),
    "counts": (onefit.PoissonLOO(), "counts"),
    "groups": (onefit.GeneralizedLinearLOO("squared", GroupLasso([0, 0, 1, 1, 2, 2])), "numbers"),
    "groups, two classes": (onefit.GeneralizedLinearLOO("logistic", GroupLasso([0, 0, 2, 1, 2, 2])), "two"),
    "sparse groups": (
        onefit.GeneralizedLinearLOO("squared", SparseGroupLasso([0, 0, 1, 1, 2, 2])),
        "numbers",
    ),
    "sorted": (onefit.GeneralizedLinearLOO("squared", Slope(np.linspace(2.0, 1.0, 6))), "numbers"),
}


def _strengths(model) -> np.ndarray:
    return model.Cs_ if hasattr(model, "Cs_") else model.alphas_


@pytest.mark.costly
@pytest.mark.parametrize("name", MODELS)
def test_others_have_their_say(name):
    model, response = MODELS[name]
    Z, responses = _table()
    X = Z.copy()
    X[:, 3] = 3e6 + 1e6 * Z[:, 3]
    plain = model.fit(Z, responses[response]).loo_.value
    short = len(_strengths(model))
    raw = model.fit(X, responses[response]).loo_.value
    assert raw <= 1.03 * plain
    assert len(_strengths(model)) > short


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("penalty", [GroupLasso([0, 0, 1, 1, 2, 2]), SparseGroupLasso([0, 0, 1, 1, 2, 2])])
def test_a_strength_half_way_is_solved_from_the_stronger_one_where_it_is_not_from_both(penalty, seed):
    Z, responses = _table(seed=seed)
    X = Z.copy()
    X[:, 3] = 3e6 + 1e6 * Z[:, 3]  # in a group with one in thousandths of its units
    model = onefit.GeneralizedLinearLOO("logistic", penalty).fit(X, responses["two"])
    assert model.loo_.value < np.log(2.0)


def test_each_target_goes_on_for_itself():
    Z, responses = _table()
    X = Z.copy()
    X[:, 3] *= 1e6
    rng = np.random.default_rng(1)
    y = np.column_stack([responses["numbers"], X[:, 3] / 1e6 + rng.normal(size=len(X))])
    model = onefit.RidgeLOO(alpha_per_target=True).fit(X, y)
    assert model.alpha_[0] < 1e-6 * model.alpha_[1]


@pytest.mark.costly
@pytest.mark.parametrize(
    ("n", "model", "response"),
    [
        (6000, onefit.LogisticLOO(), "two"),
        (60_000, onefit.LogisticLOO(), "two"),
        (6000, onefit.LassoLOO(), "numbers"),
        (6000, onefit.RidgeLOO(), "numbers"),
    ],
)
def test_tall_tables(n, model, response):
    Z, responses = _table(n)
    X = Z.copy()
    X[:, 3] = 3e6 + 1e6 * Z[:, 3]
    assert model.fit(X, responses[response]).loo_.value <= 1.01 * model.fit(Z, responses[response]).loo_.value


@pytest.mark.parametrize("model", [onefit.RidgeLOO(), onefit.LassoLOO(early_stopping=False)])
def test_paths_of_columns_that_are_alike_are_no_longer(model):
    Z, responses = _table()
    assert len(_strengths(model.fit(Z, responses["numbers"]))) == 100
    noise = np.random.default_rng(2).normal(size=len(Z))
    assert len(_strengths(model.fit(Z, noise))) == 100


@pytest.mark.parametrize("n", [300, 1000])
@pytest.mark.parametrize(
    "model", [onefit.LassoLOO(), onefit.RidgeLOO(), onefit.GeneralizedLinearLOO("huber", "l2")]
)
def test_no_path_goes_on_for_what_rounding_leaves(n, model):
    X = np.random.default_rng(2).normal(size=(n, 5))
    assert len(_strengths(model.fit(X, X.sum(axis=1)))) < 200


def test_sparse_columns_pull_as_dense_ones_do():
    rng = np.random.default_rng(0)
    x = (rng.random(400) < 0.5) * 1.0
    squares = (np.where(x > 0, 0.02, 1.0) * rng.normal(size=400)) ** 2
    X = np.column_stack([x, rng.random(400) < 0.5, np.where(rng.random(400) < 0.5, 1 - x, 0.0)])
    for means in (X.mean(axis=0), None):
        centred = X if means is None else X - means
        expected = (centred**2).T @ squares[:, None]
        for columns in (X, sp.csr_array(X), sp.csc_matrix(X)):
            np.testing.assert_allclose(squares_of_products(columns, means, squares[:, None]), expected)


@pytest.mark.parametrize(
    "penalty", [L1(1.0) + Box(lower=0.0, upper=2.0), L2(1.0) + Box(lower=0.0, upper=2.0)]
)
def test_what_pulls_beyond_a_bound_has_no_more_to_say(penalty):
    coef, gradient = np.array([0.0, 0.0, 1.0, 2.0, 2.0]), np.array([5.0, -0.5, -1.0, -7.0, 0.25])
    np.testing.assert_array_equal(held(gradient, coef, penalty), [0.0, 0.5, 1.0, 0.0, 0.25])


def test_no_choice_lies_on_a_hump():
    risks = np.array([[1.0, 0.5, 0.9, 1.2, 1.1, 0.6, 0.52]])
    covariance = 0.02 * (np.eye(7) + np.ones((7, 7)))[None]
    plain, limited = (
        bagged(risks, roots_of(covariance), np.arange(7), Bagging(2.0, 0.5, beyond))
        for beyond in (np.inf, 1.0)
    )
    assert risks[0, plain[0]] > 1.0
    assert risks[0, limited[0]] <= 0.5 + 0.2


@pytest.mark.parametrize("model", [onefit.LassoLOO(), onefit.ElasticNetLOO(), onefit.RidgeLOO()])
def test_a_single_column_ends_a_path_as_others_do(model):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 1))
    assert len(model.fit(X, X[:, 0] + rng.normal(size=60)).alphas_) == 100


@pytest.mark.costly
@pytest.mark.parametrize("store", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("l1_ratio", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("columns", [1, 2, 3])
@pytest.mark.parametrize("value", [1.0, 7.3])
def test_constants_have_no_say(columns, l1_ratio, value, store):
    y = np.arange(200) < 96
    model = onefit.LogisticLOO(l1_ratio=l1_ratio).fit(store(np.full((200, columns), value)), y)
    assert model.loo_.value == pytest.approx(0.697385, abs=1e-5)
    np.testing.assert_allclose(model.predict_proba(np.full((1, columns), value))[0, 1], 0.48, rtol=1e-6)
    assert len(model.Cs_) <= 30
