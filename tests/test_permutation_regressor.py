"""PermutationRegressor: scikit-learn's checks, identities, and what the paper says of T."""

from __future__ import annotations

import pickle
from itertools import permutations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.feature_selection import SelectorMixin
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, scale
from sklearn.utils.estimator_checks import parametrize_with_checks

from onefit.estimators.permutation import PermutationRegressor
from onefit.exceptions import NotOptimalWarning, UnreliableWarning

STRUCTURES = ["ridge", "sparse", "aggregate"]
OPTIMIZERS = ["adam", "lbfgs"]
EVERY = [
    PermutationRegressor(structure, optimizer=optimizer)
    for structure in STRUCTURES
    for optimizer in OPTIMIZERS
]
WHY = "a row of weight 2 is permuted as one row, two copies of it are permuted apart"


@parametrize_with_checks(
    EVERY,
    expected_failed_checks=lambda _: {
        f"check_sample_weight_equivalence_on_{kind}_data": WHY for kind in ("dense", "sparse")
    },
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def _data(n=40, p=6, seed=0, outputs=()):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    y = np.multiply.outer(2.0 * X[:, 0], np.ones(outputs)) + rng.normal(size=(n, *outputs)) + 3.0
    return X, y


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return scale(X[:150]), y[:150]


@pytest.mark.parametrize("shape", [(40, 6), (20, 50)])
@pytest.mark.parametrize("outputs", [(), (1,), (3,)])
def test_ridge_is_ridge_of_that_strength(shape, outputs, fit_intercept, weigh):
    X, y = _data(*shape, outputs=outputs)
    weights = weigh(len(y))
    model = PermutationRegressor(fit_intercept=fit_intercept, random_state=0).fit(X, y, weights)
    ridge = Ridge(alpha=model.lambda_, fit_intercept=fit_intercept).fit(X, y, weights)
    several = outputs if outputs != (1,) else ()  # a response of one column is one response
    assert np.shape(model.coef_) == (*several, shape[1])
    np.testing.assert_allclose(model.coef_, ridge.coef_.reshape(*several, -1), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(model.intercept_, ridge.intercept_, rtol=1e-6, atol=1e-8)
    predicted = ridge.predict(X).reshape(-1, *several)
    np.testing.assert_allclose(model.predict(X), predicted, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("shape", [(40, 6), (20, 50)])
def test_sparse_is_ridge_of_scaled_columns(shape):
    X, y = _data(*shape)
    model = PermutationRegressor("sparse", random_state=0).fit(X, y)
    apart = model.gamma_ - model.gamma_.mean()
    s = 1 / (1 + np.exp(-model.kappa_ * (np.sum(apart**2) + 0.01) * apart))
    np.testing.assert_allclose(model.scaling_, s, rtol=1e-10)
    ridge = Ridge(alpha=model.lambda_).fit(X * s, y)
    np.testing.assert_allclose(model.coef_, s * ridge.coef_, rtol=1e-6, atol=1e-9)


def test_aggregate_is_a_mixture_of_the_two():
    X, y = _data(20, 50)
    model = PermutationRegressor("aggregate", random_state=0).fit(X, y)
    share = 1 / (1 + np.exp(-model.mu_))
    apart = model.gamma_ - model.gamma_.mean()
    s = 1 / (1 + np.exp(-model.kappa_ * (np.sum(apart**2) + 0.01) * apart))
    plain, scaled = Ridge(alpha=model.lambda_).fit(X, y), Ridge(alpha=model.lambda_).fit(X * s, y)
    expected = share * plain.predict(X) + (1 - share) * scaled.predict(X * s)
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-7)
    np.testing.assert_allclose(model.scaling_, share + (1 - share) * s)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("shape", [(30, 5), (12, 25)])
def test_criterion_path_ends_where_the_model_is(structure, shape):
    X, y = _data(*shape)
    model = PermutationRegressor(structure, 0, random_state=0, max_iter=200).fit(X, y)
    error = np.std(y - model.predict(X)) / np.std(y)
    assert model.criterion_path_.min() == pytest.approx(error, rel=1e-9)  # T = 0: the error is all there is
    assert len(model.criterion_path_) == model.n_iter_ + 1


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("shape", [(30, 5), (12, 25)])
def test_storage_does_not_matter(store, structure, shape):
    X, y = _data(*shape)
    X[np.abs(X) < 0.5] = 0.0
    weights = np.random.default_rng(1).integers(0, 3, len(y)).astype(float)
    stored = store(X)
    expected = PermutationRegressor(structure, random_state=0).fit(X, y, weights)
    model = PermutationRegressor(structure, random_state=0).fit(stored, y, weights)
    np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(model.predict(stored), expected.predict(X), rtol=1e-6, atol=1e-8)
    assert model.p_value_ == expected.p_value_


@pytest.mark.parametrize("structure", STRUCTURES)
def test_rows_of_weight_zero_are_as_good_as_removed(structure):
    X, y = _data()
    weights = np.where(np.arange(len(y)) % 3 == 0, 0.0, 1.0)
    model = PermutationRegressor(structure, random_state=0)
    kept = weights > 0
    expected = clone(model).fit(X[kept], y[kept]).coef_
    y_other = np.where(kept, y, 1e6)
    np.testing.assert_allclose(clone(model).fit(X, y_other, weights).coef_, expected, rtol=1e-9)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_units_of_the_response_do_not_matter(structure, optimizer):
    X, y = _data()
    model = PermutationRegressor(structure, optimizer=optimizer, random_state=0)
    one, other = clone(model).fit(X, y), clone(model).fit(X, 1024.0 * y)
    np.testing.assert_allclose(other.coef_, 1024.0 * one.coef_, rtol=1e-9)
    assert other.lambda_ == pytest.approx(one.lambda_, rel=1e-5)
    assert other.p_value_ == one.p_value_


def test_weights_matter_up_to_their_scale():
    X, y = _data()
    weights = np.random.default_rng(0).uniform(0.1, 3.0, len(y))
    model = PermutationRegressor("sparse", random_state=0)
    at_once = clone(model).fit(X, y, weights)
    assert not np.allclose(at_once.coef_, clone(model).fit(X, y).coef_, rtol=1e-2)
    larger = clone(model).set_params(initial_lambda=5e3).fit(X, y, 5 * weights)
    np.testing.assert_allclose(larger.coef_, at_once.coef_, rtol=1e-6)
    assert larger.lambda_ == pytest.approx(5 * at_once.lambda_)


# --- awkward data ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
class TestAwkwardData:
    def _fit(self, structure, optimizer, X, y, **parameters):
        return PermutationRegressor(structure, optimizer=optimizer, random_state=0, **parameters).fit(X, y)

    def test_one_column(self, structure, optimizer):
        X, y = _data(p=1)
        model = self._fit(structure, optimizer, X, y)
        assert model.coef_.shape == (1,)
        assert model.support_.tolist() == [True]
        assert model.score(X, y) > 0.6

    def test_more_columns_than_rows(self, structure, optimizer):
        X, y = _data(15, 40)
        model = self._fit(structure, optimizer, X, y)
        assert np.all(np.isfinite(model.coef_))
        assert model.criterion_path_.min() < 1.0

    @pytest.mark.parametrize("shape", [(40, 4), (12, 20)])
    def test_duplicated_columns_share_their_coefficient(self, structure, optimizer, shape):
        X, y = _data(*shape)
        model = self._fit(structure, optimizer, np.hstack([X, X]), y)
        np.testing.assert_allclose(model.coef_[: shape[1]], model.coef_[shape[1] :], rtol=1e-3, atol=1e-5)

    @pytest.mark.parametrize("shape", [(40, 4), (12, 20)])
    def test_a_constant_column_gets_no_coefficient(self, structure, optimizer, shape):
        X, y = _data(*shape)
        X[:, 1] = 7.0
        model = self._fit(structure, optimizer, X, y)
        assert abs(model.coef_[1]) < 1e-9

    def test_nothing_but_constant_columns(self, structure, optimizer):
        _, y = _data()
        model = self._fit(structure, optimizer, np.ones((len(y), 3)), y)
        assert np.all(model.coef_ == 0.0)
        assert model.intercept_ == pytest.approx(y.mean())
        assert model.p_value_ == 1.0

    def test_a_constant_target_is_predicted_with_a_warning(self, structure, optimizer):
        X, _ = _data()
        with pytest.warns(UnreliableWarning, match="y is constant"):
            model = self._fit(structure, optimizer, X, np.full(len(X), 0.1))
        np.testing.assert_allclose(model.predict(X), 0.1)
        assert np.all(model.coef_ == 0.0)
        assert (model.p_value_, model.n_iter_) == (1.0, 0)

    def test_one_constant_output_among_others(self, structure, optimizer):
        X, y = _data()
        alone = self._fit(structure, optimizer, X, y)
        both = self._fit(structure, optimizer, X, np.column_stack([y, np.full(len(y), 2.0)]))
        assert both.criterion_path_[0] == pytest.approx(alone.criterion_path_[0], rel=1e-12)
        assert both.criterion_path_[-1] == pytest.approx(alone.criterion_path_[-1], rel=1e-4)
        assert np.all(both.coef_[1] == 0.0)
        np.testing.assert_allclose(both.predict(X)[:, 1], 2.0)

    @pytest.mark.parametrize(("n", "expected"), [(2, 1), (3, 5), (4, 23), (5, 30)])
    def test_more_permutations_asked_for_than_there_are(self, structure, optimizer, n, expected):
        X, y = _data(n, 2)
        model = self._fit(structure, optimizer, X, y)
        assert model.n_permutations_ == expected
        assert np.all(np.isfinite(model.predict(X)))


def test_columns_far_below_the_start_are_not_given_up():
    X, y = _data()
    model = PermutationRegressor(random_state=0).fit(1e-4 * X, y)
    assert model.score(1e-4 * X, y) == pytest.approx(
        PermutationRegressor(random_state=0).fit(X, y).score(X, y), abs=0.01
    )


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"structure": "lasso"}, "structure must be one of"),
        ({"optimizer": "sgd"}, "optimizer must be"),
        ({"n_permutations": -1}, "n_permutations must be a whole number, at least 0"),
        ({"n_permutations": 2.5}, "n_permutations must be a whole number, at least 0"),
        ({"max_iter": 0}, "max_iter must be a whole number, at least 1"),
        ({"learning_rate": 0.0}, "learning_rate must be a positive number"),
        ({"tol": -1.0}, "tol must be a positive number"),
        ({"initial_lambda": "auto"}, "initial_lambda must be a positive number"),
        ({"threshold": 1.5}, "threshold must lie in"),
    ],
)
def test_wrong_parameters_are_named(parameters, message):
    with pytest.raises(ValueError, match=message):
        PermutationRegressor(**parameters).fit(*_data())


def test_one_row_of_positive_weight_is_refused():
    X, y = _data(5, 2)
    with pytest.raises(ValueError, match="at least 2 rows of positive weight"):
        PermutationRegressor().fit(X, y, [1, 0, 0, 0, 0])


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_too_few_iterations_are_told(optimizer):
    with pytest.warns(NotOptimalWarning, match="after 1 iterations"):
        PermutationRegressor("sparse", optimizer=optimizer, max_iter=1).fit(*_data())


# --- a feature selector ---------------------------------------------------------------------------------


def test_selects_features():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 10))
    y = 3.0 * X[:, 2] - 3.0 * X[:, 5] + rng.normal(size=200)
    model = PermutationRegressor("sparse", random_state=0).fit(X, y)
    assert isinstance(model, SelectorMixin)
    assert model.support_[[2, 5]].all()
    assert model.support_.sum() < 10
    assert np.array_equal(model.get_support(), model.support_)
    assert np.array_equal(model.get_support(indices=True), np.flatnonzero(model.support_))
    assert np.array_equal(model.transform(X), X[:, model.support_])
    assert model.get_feature_names_out().tolist() == [f"x{j}" for j in np.flatnonzero(model.support_)]
    assert PermutationRegressor("ridge").fit(X, y).get_support().all()
    strict = PermutationRegressor("sparse", threshold=1.0, random_state=0).fit(X, y)
    assert 1 <= strict.get_support().sum() <= model.get_support().sum()


def test_in_a_pipeline_as_a_step_and_as_the_end(diabetes):
    X, y = diabetes
    selector = PermutationRegressor("sparse", random_state=0)
    pipeline = make_pipeline(StandardScaler(), selector, PermutationRegressor(random_state=0)).fit(X, y)
    assert pipeline[-1].n_features_in_ == pipeline[1].support_.sum()
    again = pickle.loads(pickle.dumps(pipeline))
    assert np.array_equal(again.predict(X), pipeline.predict(X))


# --- permutations ---------------------------------------------------------------------------------------


def test_the_seed_decides(diabetes):
    X, y = diabetes
    one, same, other = (PermutationRegressor(random_state=seed).fit(X, y) for seed in (0, 0, 1))
    assert np.array_equal(one.coef_, same.coef_)
    assert one.criterion_path_[-1] != other.criterion_path_[-1]


@pytest.mark.parametrize("structure", ["ridge", "aggregate"])
def test_permutations_as_in_figure_three(structure):
    """R² on new rows jumps from T = 0 to T = 1 and hardly changes after T = 10; iterations fall at T = 1."""
    scores, iterations = {}, {}
    for T in (0, 1, 10, 100):
        results = []
        for seed in range(12):
            rng = np.random.default_rng(seed)
            X = rng.normal(size=(560, 48)) + rng.normal(size=(560, 1))
            y = X @ (rng.normal(size=48) / 4) + 1.5 * rng.normal(size=560)
            model = PermutationRegressor(structure, T, random_state=seed).fit(X[:60], y[:60])
            results.append((model.score(X[60:], y[60:]), model.n_iter_))
        scores[T], iterations[T] = np.mean(results, axis=0)
    assert scores[1] > scores[0] + 0.1
    assert scores[10] >= scores[1] - 0.05
    assert scores[100] == pytest.approx(scores[10], abs=0.05)
    assert iterations[1] < 0.7 * iterations[0]


def test_the_test_of_no_signal_is_exact_where_all_permutations_are_tried():
    """Over all orders of the response, p is each of 1/24, ..., 24/24 once: exactly uniform."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(4, 2)), rng.normal(size=4)
    found = [PermutationRegressor().fit(X, y[list(order)]).p_value_ for order in permutations(range(4))]
    np.testing.assert_allclose(np.sort(found), np.arange(1, 25) / 24)


@pytest.mark.theory
@pytest.mark.parametrize(("n", "p"), [(25, 8), (15, 40)])
def test_the_test_of_no_signal_keeps_its_level(n, p):
    found = []
    for seed in range(400):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(n, p)) * np.linspace(0.2, 3, p), rng.standard_t(3, size=n)
        weights = rng.uniform(0.2, 3.0, n) if seed % 2 else None
        found.append(
            PermutationRegressor(n_permutations=19, random_state=seed + 1).fit(X, y, weights).p_value_
        )
    for level in (0.05, 0.1, 0.2, 0.5, 0.8):
        share = np.mean(np.array(found) <= level + 1e-12)
        assert share <= level + 3.5 * np.sqrt(level * (1 - level) / 400)
        assert share >= level - 3.5 * np.sqrt(level * (1 - level) / 400)


def test_a_signal_is_found(diabetes):
    model = PermutationRegressor(n_permutations=199, random_state=0).fit(*diabetes)
    assert model.p_value_ == 1 / 200
