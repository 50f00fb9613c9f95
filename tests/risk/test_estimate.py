"""The result: value, error, scores, pickles and what it prints."""

from __future__ import annotations

import pickle
import re
import warnings

import numpy as np
import pytest
from sklearn import metrics
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.linear_model import (
    HuberRegressor,
    Lasso,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    RidgeClassifier,
)
from sklearn.preprocessing import scale

import onefit
from onefit.penalties import L1
from onefit.risk.means import mean_and_error
from onefit.risk.presentation import with_error

N = 90


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return scale(X[:N]), y[:N]


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return scale(X[:N, :6]), y[:N]


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True)
    return scale(X[::2, :6]), y[::2]


def test_value_and_error_without_weights(diabetes):
    X, y = diabetes
    est = onefit.loo(Ridge(1.0).fit(X, y), X, y)
    np.testing.assert_allclose(est.losses, (y - est.predictions) ** 2)
    np.testing.assert_allclose(est.value, est.losses.mean())
    np.testing.assert_allclose(est.std_error, est.losses.std(ddof=1) / np.sqrt(N))
    np.testing.assert_allclose(est.effective_df, est.leverages.sum())
    assert est.method == "predict"
    assert est.loss_name == "squared error"


def test_value_and_error_with_weights(diabetes):
    X, y = diabetes
    weights = np.random.default_rng(0).uniform(0.0, 2.0, N)
    weights[:5] = 0.0
    est = onefit.loo(Ridge(1.0).fit(X, y, sample_weight=weights), X, y, sample_weight=weights)
    np.testing.assert_allclose(est.value, np.average(est.losses, weights=weights))
    held = weights > 0
    n = held.sum()
    share = weights / weights.sum()
    error = np.sqrt(n / (n - 1) * np.sum((share * (est.losses - est.value))[held] ** 2))
    np.testing.assert_allclose(est.std_error, error)


def test_the_scale_of_weights_changes_nothing():
    losses = np.random.default_rng(0).normal(size=20) ** 2
    weights = np.random.default_rng(1).uniform(size=20)
    np.testing.assert_allclose(mean_and_error(losses, weights), mean_and_error(losses, 7 * weights))
    np.testing.assert_allclose(mean_and_error(losses, np.ones(20))[1], losses.std(ddof=1) / np.sqrt(20))


def test_a_single_weighted_row_has_no_error():
    value, error = mean_and_error(np.array([3.0, np.inf]), np.array([2.0, 0.0]))
    assert value == 3.0
    assert np.isnan(error)


@pytest.mark.parametrize("weighted", [False, True])
def test_scores_of_regressors(diabetes, weighted):
    X, y = diabetes
    weights = np.random.default_rng(0).uniform(0.5, 2.0, N) if weighted else None
    est = onefit.loo(Ridge(1.0).fit(X, y, sample_weight=weights), X, y, sample_weight=weights)
    kw = {"sample_weight": weights}
    np.testing.assert_allclose(est.score("r2"), metrics.r2_score(y, est.predictions, **kw))
    np.testing.assert_allclose(est.score("neg_mean_squared_error"), -est.value)
    np.testing.assert_allclose(
        est.score("neg_mean_absolute_error"), -metrics.mean_absolute_error(y, est.predictions, **kw)
    )
    scorer = metrics.make_scorer(metrics.mean_pinball_loss, alpha=0.3)
    np.testing.assert_allclose(
        est.score(scorer), metrics.mean_pinball_loss(y, est.predictions, alpha=0.3, **kw)
    )


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "labels", [np.array([0, 1]), np.array(["no", "yes"]), np.array([-1.0, 1.0])], ids=str
)
def test_scores_of_a_binary_classifier(cancer, weighted, labels):
    X, numbers = cancer
    y = labels[numbers]
    weights = np.random.default_rng(0).uniform(0.5, 2.0, N) if weighted else None
    kw = {"sample_weight": weights}
    est = onefit.loo(LogisticRegression(C=0.5).fit(X, y, **kw), X, y, **kw)
    assert est.predictions.shape == (N, 2)
    np.testing.assert_allclose(est.predictions.sum(axis=1), 1.0)
    positive = est.predictions[:, 1]
    np.testing.assert_allclose(est.score("roc_auc"), metrics.roc_auc_score(numbers, positive, **kw))
    np.testing.assert_allclose(est.score("accuracy"), metrics.accuracy_score(numbers, positive > 0.5, **kw))
    np.testing.assert_allclose(est.score("neg_log_loss"), -metrics.log_loss(numbers, est.predictions, **kw))
    np.testing.assert_allclose(est.score("neg_log_loss"), -est.value)


def test_scores_of_a_classifier_of_three_classes(wine):
    X, y = wine
    est = onefit.loo(LogisticRegression(C=0.5).fit(X, y), X, y)
    np.testing.assert_allclose(est.score("accuracy"), np.mean(est.predictions.argmax(axis=1) == y))
    np.testing.assert_allclose(est.score("neg_log_loss"), -metrics.log_loss(y, est.predictions))
    auc = metrics.roc_auc_score(y, est.predictions, multi_class="ovr")
    np.testing.assert_allclose(est.score("roc_auc_ovr"), auc)


def test_scores_of_a_margin_classifier(cancer):
    X, y = cancer
    est = onefit.loo(RidgeClassifier().fit(X, y), X, y)
    assert est.method == "decision_function"
    np.testing.assert_allclose(est.losses, np.maximum(0, 1 - (2 * y - 1) * est.predictions))
    np.testing.assert_allclose(est.score("roc_auc"), metrics.roc_auc_score(y, est.predictions))
    np.testing.assert_allclose(est.score("accuracy"), np.mean((est.predictions > 0) == y))


def test_margins_of_three_classes(wine):
    X, y = wine
    est = onefit.loo(RidgeClassifier().fit(X, y), X, y)
    np.testing.assert_allclose(est.value, metrics.hinge_loss(y, est.predictions))


def test_deviance_of_counts(diabetes):
    X, y = diabetes
    counts = np.round(y / 30)
    est = onefit.loo(PoissonRegressor(alpha=0.1).fit(X, counts), X, counts)
    np.testing.assert_allclose(est.value, metrics.mean_poisson_deviance(counts, est.predictions))
    np.testing.assert_allclose(est.predictions, np.exp(est.decision))


def test_several_outputs_are_averaged(diabetes):
    X, y = diabetes
    Y = np.column_stack([y, -2 * y])
    est = onefit.loo(Ridge(1.0).fit(X, Y), X, Y)
    np.testing.assert_allclose(est.value, metrics.mean_squared_error(Y, est.predictions))
    np.testing.assert_allclose(est.score("r2"), metrics.r2_score(Y, est.predictions))


def test_the_scale_of_huber_is_not_shown(diabetes):
    X, y = diabetes
    model = HuberRegressor(alpha=1.0, tol=1e-8, max_iter=2000).fit(X, y / 50)
    est = onefit.loo(model, X, y / 50)
    assert est.decision.shape == est.predictions.shape == est.fitted.shape == (N,)


def test_a_pickle_leaves_the_data_behind(diabetes):
    X, y = diabetes
    wide = np.hstack([X] * 20)
    est = onefit.loo(Ridge(1.0).fit(wide, y), wide, y)
    saved = pickle.dumps(est)
    assert len(saved) < wide.nbytes / 10
    back = pickle.loads(saved)
    np.testing.assert_array_equal(back.losses, est.losses)
    assert back.value == est.value
    assert back.score("r2") == est.score("r2")
    assert str(back).splitlines()[0] == str(est).splitlines()[0]
    np.testing.assert_array_equal(back.certified, est.certified)
    with pytest.raises(ValueError, match="not kept with a saved result"):
        back.influence()


def test_certificates_that_were_asked_for_are_saved(diabetes):
    X, y = diabetes
    est = onefit.loo(Lasso(1.0, tol=1e-10, max_iter=10_000).fit(X, y), X, y)
    certified, flagged = est.certified, est.flagged
    assert certified.any()
    back = pickle.loads(pickle.dumps(est))
    np.testing.assert_array_equal(back.certified, certified)
    np.testing.assert_array_equal(back.flagged, flagged)
    np.testing.assert_array_equal(flagged, np.flatnonzero(~certified))


def test_flags_of_a_saved_curved_loss_are_the_same(cancer):
    # what is strained is not saved, so all uncertified rows are flagged
    X, y = cancer
    est = onefit.loo(LogisticRegression(C=0.5).fit(X, y), X, y)
    _ = est.certified
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(est)).flagged, est.flagged)


def test_print(diabetes):
    X, y = diabetes
    est = onefit.loo(Ridge(1.0).fit(X, y), X, y)
    text = str(est)
    assert "leave-one-out squared error" in text
    assert with_error(est.value, est.std_error) in text
    assert "proven" not in text
    assert est.certified.all()
    assert re.search(rf"^rows +{N}$", text, re.MULTILINE)
    assert re.search(rf"^how known +{N} certified$", text, re.MULTILINE)


def test_a_loss_without_bound_is_said_to_be_one():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    y = rng.poisson(np.exp(0.5 * X[:, 1] + 0.8 * X[:, 0])).astype(float)
    X[3, 0], y[3] = 1e5, 2.0
    model = PoissonRegressor(alpha=1e-4, solver="newton-cholesky", tol=1e-10).fit(X, y)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        est = onefit.loo(model, X, y)
    assert [one.category for one in said] == [onefit.UnreliableWarning]
    assert "row 3 is predicted so far off" in str(said[0].message)
    assert est.value == np.inf
    assert np.flatnonzero(~np.isfinite(est.losses)).tolist() == [3]


@pytest.mark.parametrize("level", [1.60044882, -1e-3])
@pytest.mark.parametrize(
    "model", [Lasso(0.1), onefit.GeneralizedLinearLOO(penalty=L1(1.0))], ids=["lasso", "path"]
)
def test_errors_that_are_rounding_are_none(model, level):
    """A constant response is predicted without error, in whatever units; warnings are errors here."""
    X, y = np.random.default_rng(0).normal(size=(60, 5)), np.full(60, level)
    model.fit(X, y)
    est = model.loo_ if hasattr(model, "loo_") else onefit.loo(model, X, y)
    assert est.guarantee == "exact"
    assert est.value <= 1e-20 * level**2
