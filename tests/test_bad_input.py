"""Bad input: the right exception, and a message that names the argument or the rows."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import NotFittedError
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import (
    ElasticNet,
    GammaRegressor,
    Lasso,
    LassoCV,
    LassoLars,
    LinearRegression,
    LogisticRegression,
    MultiTaskLasso,
    PoissonRegressor,
    Ridge,
    RidgeClassifier,
)
from sklearn.metrics import accuracy_score, make_scorer
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import onefit
from onefit.exceptions import SolverError

N = 30
SELF_TUNED = [onefit.RidgeLOO(), onefit.LassoLOO(), onefit.ElasticNetLOO(), onefit.PoissonLOO()]


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3))
    return X, X[:, 0] + rng.normal(size=N)


def labels(y):
    return np.where(y > 0, "yes", "no")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_x_that_is_not_finite(data, bad, make):
    X, y = data
    model = Ridge().fit(X, y)
    X = X.copy()
    X[3, 1] = bad
    with pytest.raises(ValueError, match=r"Input X contains (NaN|infinity)"):
        onefit.loo(model, make(X), y)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_y_that_is_not_finite(data, bad):
    X, y = data
    model = Ridge().fit(X, y)
    y = y.copy()
    y[4] = bad
    with pytest.raises(ValueError, match=r"Input y contains (NaN|infinity)"):
        onefit.loo(model, X, y)


def test_labels_that_are_missing(data):
    X, y = data
    model = LogisticRegression().fit(X, (y > 0).astype(float))
    bad = (y > 0).astype(float)
    bad[2] = np.nan
    with pytest.raises(ValueError, match="Input y contains NaN"):
        onefit.loo(model, X, bad)


@pytest.mark.parametrize(
    ("labels", "message"),
    [(["a", None], "None in row 1"), (["a", 2], "mixes text and numbers, such as 'a' and 2")],
)
def test_labels_without_an_order(data, labels, message):
    y = np.array(labels * (len(data[1]) // 2 + 1), dtype=object)[: len(data[1])]
    with pytest.raises(ValueError, match=message):
        onefit.LogisticLOO().fit(data[0], y)


@pytest.mark.parametrize("model", [Ridge(), Lasso(), KernelRidge()], ids=repr)
def test_a_single_row(data, model):
    X, y = data
    with pytest.raises(ValueError, match="at least 2 rows, got n_samples=1"):
        onefit.loo(model.fit(X[:1], y[:1]), X[:1], y[:1])


def test_no_columns(data):
    X, y = data
    with pytest.raises(ValueError, match=r"0 feature\(s\)"):
        onefit.loo(Ridge().fit(X, y), np.empty((N, 0)), y)


@pytest.mark.parametrize("store", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("value", [0.0, 1.0, 0.1])
@pytest.mark.parametrize("model", SELF_TUNED, ids=repr)
def test_columns_that_are_all_constant(data, model, value, store):
    # nothing but the constant model: the mean of the other rows
    y = np.exp(data[1])
    model = clone(model).fit(store(np.full((N, 2), value)), y)
    assert not np.any(model.coef_)
    others = (y.sum() - y) / (N - 1)
    np.testing.assert_allclose(model.loo_.predictions, others, rtol=1e-6)


@pytest.mark.costly
@pytest.mark.parametrize("store", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("value", [1.0, 0.1])
@pytest.mark.parametrize("penalty", ["l1", "elasticnet"])
@pytest.mark.parametrize("loss", ["epsilon_insensitive", "quantile", "hinge", "huber"])
def test_losses_with_kinks_of_columns_that_are_all_constant(data, loss, penalty, value, store):
    # what an intercept leaves of their slopes is rounding, and no strength begins there
    y = data[1] > np.median(data[1]) if loss == "hinge" else data[1]
    model = onefit.GeneralizedLinearLOO(loss, penalty, alphas=4).fit(store(np.full((N, 2), value)), y)
    assert not np.any(model.coef_)
    assert model.alphas_.max() == pytest.approx(1.0)


@pytest.mark.parametrize("model", SELF_TUNED, ids=repr)
def test_a_single_row_with_weight(data, model):
    X, y = data
    with pytest.raises(ValueError, match="at least 2 rows with weight, there are 1"):
        clone(model).fit(X, np.exp(y), sample_weight=np.arange(N) == 3)


def test_other_number_of_columns(data):
    X, y = data
    with pytest.raises(ValueError, match="X has 2 features, but Ridge is expecting 3"):
        onefit.loo(Ridge().fit(X, y), X[:, :2], y)


def test_columns_in_another_order(data):
    X, y = data
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    with pytest.raises(ValueError, match="same order"):
        onefit.loo(Ridge().fit(frame, y), frame[["b", "a", "c"]], y)


def test_an_unknown_column(data):
    X, y = data
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    with pytest.raises(ValueError, match="feature names"):
        onefit.loo(Ridge().fit(frame, y), frame.rename(columns={"c": "d"}), y)


def test_lengths_that_differ(data):
    X, y = data
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        onefit.loo(Ridge().fit(X, y), X, y[:-1])


def test_weights_that_are_all_zero(data):
    X, y = data
    with pytest.raises(ValueError, match=r"[Ss]ample.weight"):
        onefit.loo(Ridge().fit(X, y), X, y, sample_weight=np.zeros(N))


def test_negative_weights(data):
    X, y = data
    weights = np.ones(N)
    weights[5] = -1.0
    with pytest.raises(ValueError, match=r"Negative values.*sample_weight"):
        onefit.loo(Ridge().fit(X, y), X, y, sample_weight=weights)


def test_weights_that_are_not_finite(data):
    X, y = data
    with pytest.raises(ValueError, match="sample_weight contains NaN"):
        onefit.loo(Ridge().fit(X, y), X, y, sample_weight=np.full(N, np.nan))


@pytest.mark.parametrize("shape", [(N - 1,), (N, 1), (N, 2)], ids=str)
def test_weights_of_another_shape(data, shape):
    X, y = data
    with pytest.raises(ValueError, match=r"[Ss]ample.weight"):
        onefit.loo(Ridge().fit(X, y), X, y, sample_weight=np.ones(shape))


def test_a_weight_that_is_one_number(data):
    # the weights that were checked must be the ones that are used
    # scikit-learn takes a number for a weight of all rows
    X, y = data
    model = Ridge().fit(X, y, sample_weight=2.0)
    est = onefit.loo(model, X, y, sample_weight=2.0)
    np.testing.assert_allclose(est.value, onefit.loo(Ridge(0.5).fit(X, y), X, y).value)
    assert np.isfinite(est.score("r2"))


@pytest.mark.parametrize(
    "model", [Ridge(), LogisticRegression(), make_pipeline(StandardScaler(), Ridge())], ids=repr
)
def test_a_model_that_is_not_fitted(data, model):
    with pytest.raises(NotFittedError, match=r"not fitted: call model\.fit"):
        onefit.loo(model, *data)


@pytest.mark.parametrize("model", [Ridge, "ridge", None, 3])
def test_what_is_no_model(data, model):
    with pytest.raises(TypeError, match="model must be a fitted scikit-learn estimator"):
        onefit.loo(model, *data)


@pytest.mark.parametrize("make", [LogisticRegression, RidgeClassifier])
def test_a_label_that_is_not_known(data, make):
    X, y = data
    model = make().fit(X, labels(y))
    bad = labels(y).astype(object)
    bad[7] = "perhaps"
    with pytest.raises(ValueError, match=r"y\[7\] = 'perhaps' is not among the classes"):
        onefit.loo(model, X, bad)


def test_labels_of_another_type(data):
    X, y = data
    with pytest.raises(ValueError, match=r"y\[0\] = .* is not among the classes"):
        onefit.loo(LogisticRegression().fit(X, labels(y)), X, np.where(y > 0, 1, 0))


@pytest.mark.parametrize(
    ("model", "bad", "rule"),
    [
        (PoissonRegressor(), -1.0, "y >= 0"),
        (GammaRegressor(), 0.0, "y > 0"),
        (GammaRegressor(), -2.0, "y > 0"),
    ],
    ids=str,
)
def test_responses_out_of_range(data, model, bad, rule):
    X, y = data
    y = np.exp(y)
    model = model.fit(X, y)
    y[9] = bad
    with pytest.raises(ValueError, match=rf"needs {rule}, but y\[9\] = {bad:g}$"):
        onefit.loo(model, X, y)


def test_responses_out_of_range_are_counted_and_the_family_is_named(data):
    X, y = data
    below = np.round(y) < 0
    row, count = np.flatnonzero(below)[0], below.sum()
    said = rf"this model \(Poisson\) needs y >= 0, but y\[{row}\] = -\d, the first of {count} such rows"
    with pytest.raises(ValueError, match=said):
        onefit.PoissonLOO().fit(X, np.round(y))


def supported():
    return [
        "ElasticNet",
        "HuberRegressor",
        "KernelRidge",
        "Lasso",
        "LinearRegression",
        "LogisticRegression",
        "Ridge",
    ]


@pytest.mark.parametrize(
    "model", [RandomForestRegressor(n_estimators=2), KNeighborsRegressor(), MultiTaskLasso()], ids=repr
)
def test_models_without_a_formula(data, model):
    X, y = data
    y = np.column_stack([y, y]) if isinstance(model, MultiTaskLasso) else y
    with pytest.raises(onefit.UnsupportedModelError, match=type(model).__name__) as error:
        onefit.loo(model.fit(X, y), X, y)
    for name in supported():
        assert name in str(error.value)


@pytest.mark.parametrize("model", [Ridge(positive=True), LinearRegression(positive=True)], ids=repr)
def test_sign_constraints_on_several_outputs(data, model):
    X, y = data
    y = np.column_stack([y, y])
    with pytest.raises(onefit.UnsupportedModelError, match=r"positive=True.*one model an output"):
        onefit.loo(model.fit(X, y), X, y)


def test_other_rows(data):
    X, y = data
    for model in (Ridge(), Lasso(0.05), LinearRegression()):
        with pytest.raises(onefit.NotFittedToDataError, match="pass the X, y and sample_weight"):
            onefit.loo(model.fit(X, y), X[::-1], y)


def test_other_rows_that_are_nearly_as_good_are_told_by_the_dual_gap():
    """Coefficients that a lasso's own gap proves better on the rows of its fit than they are on these."""
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(2, 200, 5))
    y, then = (rows @ [3.0, -2.0, 1.0, 0.0, 0.0] + 0.3 * rng.normal(size=200) for rows in (X, new))
    several = np.column_stack([y, y[::-1]])
    for model, target in (
        (Lasso(0.1), y),
        (Lasso(0.1), several),
        (ElasticNet(alpha=0.1), y),
        (LassoCV(alphas=[0.1]), y),
    ):
        onefit.loo(model.fit(X, target), X, target)
        with pytest.raises(onefit.NotFittedToDataError, match=r"miss [\d.]+ % of .* by its dual_gap_ it was"):
            onefit.loo(model, new, then if target is y else np.column_stack([then, then[::-1]]))
    for unknown in (Lasso(0.1).fit(X.astype(np.float32), y), LassoLars(0.1).fit(X, y)):
        with pytest.warns(onefit.NotOptimalWarning, match=r"^are X and y what this Lasso\w* was fitted on"):
            onefit.loo(unknown, new, then)


def test_how_far_coefficients_are_off_is_a_number_that_can_be_read(data):
    X, y = data
    with pytest.raises(onefit.NotFittedToDataError, match=r"miss \d+ times the achievable .* same scaling"):
        onefit.loo(Ridge(1e-3).fit(X / 100, y), X, y)


def test_other_rows_of_a_classifier(data):
    X, y = data
    with pytest.raises(onefit.NotFittedToDataError, match="LogisticRegression"):
        onefit.loo(LogisticRegression().fit(X, labels(y)), X[::-1], labels(y))


def test_weights_that_were_not_fitted_with(data):
    X, y = data
    weights = np.where(np.arange(N) < 10, 20.0, 0.1)
    with pytest.raises(onefit.NotFittedToDataError, match="sample_weight"):
        onefit.loo(Ridge().fit(X, y), X, y, sample_weight=weights)


def test_a_kernel_model_on_fewer_rows(data):
    X, y = data
    with pytest.raises(onefit.NotFittedToDataError, match=r"data of shape \(30, \d+\), not \(20,"):
        onefit.loo(KernelRidge().fit(X, y), X[:20], y[:20])


def test_directions_that_neither_penalty_nor_data_determine():
    X, y = np.random.default_rng(0).normal(size=(4, 8)), np.arange(4.0)
    model = onefit.GeneralizedLinear(penalty=onefit.penalties.GeneralizedLasso(np.eye(8)[:2], 1.0))
    with pytest.raises(ValueError, match=r"leaves 6 directions .* determines 3: add rows to D, or an L2"):
        model.fit(X, y)
    onefit.GeneralizedLinear(penalty=onefit.penalties.L2(1.0) + model.penalty).fit(X, y)


# --- magnitudes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("power", [300, 160, -160, -300])
@pytest.mark.parametrize("store", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_columns_whose_squares_are_out_of_range_are_named(power, store):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 3)), rng.normal(size=30)
    X[:, 2] *= 10.0**power
    for model in (onefit.RidgeLOO(), onefit.LassoLOO(), onefit.GeneralizedLinear()):
        with pytest.raises(ValueError, match=r"column 2 of X .* scale it"):
            model.fit(store(X), y)


def test_a_table_of_large_numbers_is_taken():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 3)), rng.normal(size=30)
    plain = onefit.RidgeLOO().fit(X, y)
    large = onefit.RidgeLOO().fit(1e130 * X, y)
    assert large.loo_.value == pytest.approx(plain.loo_.value)


def test_a_penalty_below_the_rounding_of_the_kernel_is_refused_in_words():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 3)), rng.normal(size=30)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's, that its matrix is ill-conditioned
        model = KernelRidge(alpha=1e-16, kernel="linear").fit(X, y)
    with pytest.raises(SolverError, match="penalty is so weak"):
        onefit.loo(model, X, y)


def test_a_sparse_column_far_from_zero_is_not_taken_for_a_constant():
    # every entry is stored: columns are centred before they are squared, as those of an array are
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    y = X[:, 0] + X[:, 1] + rng.normal(size=60)
    X[:, 0] += 1e8
    dense, sparse = (
        onefit.GeneralizedLinear("squared", onefit.penalties.L2(1e-3)).fit(Z, y) for Z in (X, sp.csr_array(X))
    )
    assert dense.coef_[0] > 0.5
    np.testing.assert_allclose(sparse.coef_, dense.coef_, rtol=1e-6)
    loo = [onefit.loo(dense, X, y).value, onefit.loo(sparse, sp.csr_array(X), y).value]
    assert loo[1] == pytest.approx(loo[0], rel=1e-6)


@pytest.mark.parametrize("model", [onefit.LogisticLOO(), onefit.LogisticLOO(l1_ratio=0.5)])
def test_a_class_without_weight(data, model):
    X, _ = data
    y, weights = np.array(["a", "b", "c"])[np.arange(N) % 3], np.ones(N)
    weights[y == "b"] = 0.0
    with pytest.raises(ValueError, match="sample_weight is zero for every row of class 'b': leave these"):
        model.fit(X, y, sample_weight=weights)
    assert clone(model).set_params(fit_intercept=False).fit(X, y, sample_weight=weights).loo_.value > 0
    kept = weights > 0
    assert clone(model).fit(X[kept], y[kept]).loo_.value > 0


@pytest.mark.parametrize("store", [np.asarray, sp.csr_array, pd.DataFrame], ids=["dense", "sparse", "frame"])
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_is_missing_is_named(store, wrong):
    X, y = np.random.default_rng(0).normal(size=(30, 3)), np.arange(30.0)
    fitted, there = Lasso(0.1).fit(X, y), X.copy()
    there[7, 2] = wrong
    what = "NaN" if np.isnan(wrong) else "infinity"
    for call in (
        lambda: onefit.LassoLOO().fit(store(there), y),
        lambda: onefit.loo(fitted, store(there), y),
    ):
        with pytest.raises(ValueError, match=f"X contains {what}: column 2, row 7"):
            call()
    y[5] = wrong
    with pytest.raises(ValueError, match=f"y contains {what}: row 5"):
        onefit.LassoLOO().fit(store(X), y)


@pytest.mark.parametrize("kind", ["string", "boolean"])
def test_labels_that_pandas_misses_are_named(kind):
    labels = {"string": ["a", "b"], "boolean": [True, False]}[kind] * 10
    y = pd.Series([*labels, pd.NA], dtype=kind)
    with pytest.raises(ValueError, match="y holds <NA> in row 20"):
        onefit.LogisticLOO().fit(np.ones((21, 1)), y)


def test_metrics_are_no_scorers():
    X, y = np.random.default_rng(0).normal(size=(30, 2)), np.arange(30) % 2
    with pytest.raises(ValueError, match=r"take make_scorer\(accuracy_score\)"):
        onefit.LogisticLOO(scoring=accuracy_score).fit(X, y)
    assert onefit.LogisticLOO(scoring=make_scorer(accuracy_score)).fit(X, y).loo_.value >= 0


def test_none_is_no_number_of_strengths():
    with pytest.raises(ValueError, match="leave it out for the default"):
        onefit.LassoLOO(alphas=None).fit(np.ones((5, 1)), np.arange(5.0))


@pytest.mark.parametrize("shape", [(20,), (20, 2)])
def test_targets_that_are_none_are_named(shape):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 2)), rng.normal(size=shape).astype(object)
    fitted = Ridge().fit(X, y.astype(float))
    y[7] = None
    for call in (onefit.LassoLOO().fit, partial(onefit.loo, fitted)):
        with pytest.raises(ValueError, match="y holds None in row 7: leave out rows without a target"):
            call(X, y)


def test_numbers_that_are_hardly_classes_are_named():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(66, 1)), np.repeat(np.arange(22.0), 3)
    with pytest.warns(onefit.UnreliableWarning, match="y has 22 different numbers in 66 rows"):
        onefit.GeneralizedLinear("multinomial", "l2").fit(X, y)


def test_numbers_that_have_hardly_a_row_each_are_no_classes():
    X, y = load_diabetes(return_X_y=True)
    others = onefit.GeneralizedLinear("multinomial", "l2"), onefit.GeneralizedLinearLOO("multinomial", "l2")
    for model in (onefit.LogisticLOO(), *others):
        with pytest.raises(ValueError, match=r"y has 214 different numbers in 442 rows, .* use a regressor"):
            model.fit(X, y)
    pairs = np.repeat(np.arange(22), 2)
    with pytest.raises(ValueError, match=r"if these are labels, write them as text, y\.astype\(str\)"):
        onefit.GeneralizedLinear("multinomial", "l2").fit(X[:44], pairs)
    onefit.GeneralizedLinear("multinomial", "l2").fit(X[:44], pairs.astype(str))
