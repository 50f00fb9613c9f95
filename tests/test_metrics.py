import numpy as np
import pandas as pd
import pytest
from sklearn import linear_model, metrics
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import RandomForestRegressor
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neighbors import NearestCentroid
from sklearn.preprocessing import scale
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from onefit.exceptions import UnsupportedModelError
from onefit.losses import Tweedie
from onefit.metrics import (
    Deviance,
    HingeLoss,
    LocationError,
    LogLoss,
    PinballLoss,
    ShareLogLoss,
    SquaredError,
    ZeroOneLoss,
)
from onefit.readers import read
from onefit.refits import metric_of

N = 40


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return scale(X[:N]), y[:N]


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return scale(X[:N, :5]), np.array(["benign", "malignant"])[y[:N]]


# --- every metric ----------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
NUMBERS, POSITIVE = RNG.normal(size=12), RNG.uniform(0.5, 2.0, size=12)
TWO, THREE = np.arange(12) % 2 * 1.0, np.arange(12) % 3 * 1.0
ETA, WIDE = RNG.normal(size=12), RNG.normal(size=(12, 3))
CASES = {
    "squared error": (SquaredError(), NUMBERS, ETA),
    "three outputs": (SquaredError(), RNG.normal(size=(12, 3)), WIDE),
    "pinball": (PinballLoss(0.3), NUMBERS, ETA),
    "location": (LocationError(), NUMBERS, WIDE[:, :2]),
    "normal": (Deviance(Tweedie(0.0, "identity")), NUMBERS, ETA),
    "poisson": (Deviance(Tweedie(1.0)), POSITIVE, ETA),
    "gamma": (Deviance(Tweedie(2.0)), POSITIVE, ETA),
    "two classes": (LogLoss(np.arange(2)), TWO, ETA),
    "three classes": (LogLoss(np.arange(3)), THREE, WIDE),
    "shares": (ShareLogLoss(), RNG.random(12), ETA),
    "margin": (HingeLoss(np.arange(2)), TWO, ETA),
    "three margins": (HingeLoss(np.arange(3)), THREE, WIDE),
}


@pytest.fixture(params=CASES.values(), ids=CASES.keys())
def case(request):
    return request.param


def test_the_slope_is_the_derivative_of_the_loss(case):
    metric, target, eta = case
    slopes = metric.slopes(target, eta)
    assert slopes.shape == eta.shape
    for k in range(eta[0].size):
        step = np.zeros_like(eta)
        step.reshape(len(eta), -1)[:, k] = 1e-6
        difference = (metric.losses(target, eta + step) - metric.losses(target, eta - step)) / 2e-6
        np.testing.assert_allclose(slopes.reshape(len(eta), -1)[:, k], difference, rtol=1e-6, atol=1e-8)


def test_predictions_have_the_loss_of_their_linear_predictors(case):
    metric, target, eta = case
    predictions = metric.predictions(eta)
    wanted = metric.losses(target, eta)
    np.testing.assert_allclose(metric.of_predictions(target, predictions), wanted, rtol=1e-10)
    outputs = predictions if metric.refit_method == metric.method else metric.decision(eta)
    np.testing.assert_allclose(metric.of_refits(target, outputs), wanted, rtol=1e-10)


def test_missing_predictions_have_missing_losses(case):
    metric, target, eta = case
    outputs = np.where(np.arange(len(eta)) < 2, np.nan, metric.predictions(eta).T).T
    found = metric.of_predictions(target, outputs)
    assert np.isnan(found[:2]).all()
    assert np.isfinite(found[2:]).all()


def test_the_deviance_is_that_of_scikit_learn():
    for power in (0.0, 1.0, 1.5, 2.0):
        metric = Deviance(Tweedie(power, "identity" if power == 0 else "log"))
        found = metric.of_predictions(POSITIVE, POSITIVE[::-1]).mean()
        assert found == pytest.approx(metrics.mean_tweedie_deviance(POSITIVE, POSITIVE[::-1], power=power))


def test_shares_that_were_thought_impossible_cost_36():
    found = ShareLogLoss().of_predictions(np.array([1.0, 1.0]), np.array([0.0, 1.0]))
    np.testing.assert_allclose(found, [36.04, 0.0], atol=0.01)


# --- the metric of an estimator --------------------------------------------------------------------


def test_a_regressor_is_judged_by_squared_error(diabetes):
    X, y = diabetes
    model = RandomForestRegressor(2, random_state=0).fit(X, np.stack([y, 2 * y], axis=1))
    metric = metric_of(model)
    assert (metric.method, metric.loss_name) == ("predict", "squared error")
    Y, predictions = np.stack([y, 2 * y], axis=1), model.predict(X)
    np.testing.assert_allclose(
        metric.of_predictions(metric.target(Y), predictions), ((Y - predictions) ** 2).mean(axis=1)
    )
    np.testing.assert_allclose(
        metric.of_predictions(metric.target(pd.Series(y)), predictions[:, :1]), (y - predictions[:, 0]) ** 2
    )  # some regressors return a column


def test_probabilities_are_judged_by_log_loss_bounded_as_in_scikit_learn(cancer):
    X, y = cancer
    model = DecisionTreeClassifier(max_depth=2, random_state=0).fit(X[::2], y[::2])
    metric = metric_of(model)
    assert (metric.method, metric.loss_name) == ("predict_proba", "log-loss")
    losses = metric.of_predictions(metric.target(y), model.predict_proba(X))
    assert losses.max() > 30  # some leaf is sure, and wrong
    np.testing.assert_allclose(losses.mean(), metrics.log_loss(y, model.predict_proba(X)))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_margins_are_judged_by_the_hinge(n_classes):
    X, y = load_iris(return_X_y=True)
    kept = y < n_classes
    X, y = X[kept], np.array(["a", "b", "c"])[y[kept]]
    model = SVC(C=0.1).fit(X, y)
    metric = metric_of(model)
    assert (metric.method, metric.loss_name) == ("decision_function", "hinge loss")
    decision = model.decision_function(X)
    np.testing.assert_allclose(
        metric.of_predictions(metric.target(y), decision).mean(), metrics.hinge_loss(y, decision)
    )


def test_bare_labels_are_judged_by_whether_they_are_right(cancer):
    class Guess(ClassifierMixin, BaseEstimator):
        def fit(self, _, y):
            self.classes_, counts = np.unique(y, return_counts=True)
            self.guess_ = self.classes_[counts.argmax()]
            return self

        def predict(self, X):
            return np.full(len(X), self.guess_)

    X, y = cancer
    model = Guess().fit(X, y)
    metric = metric_of(model)
    assert (metric.method, metric.loss_name) == ("predict", "zero-one loss")
    np.testing.assert_allclose(
        metric.of_predictions(metric.target(y), model.predict(X)).mean(), 1 - model.score(X, y)
    )
    assert np.all(np.isnan(metric.of_predictions(metric.target(y[:2]), np.full(2, np.nan))))


def test_several_labels_are_judged_by_the_share_that_is_wrong(cancer):
    X, y = cancer
    Y = np.stack([y, y[::-1]], axis=1)
    model = MultiOutputClassifier(NearestCentroid()).fit(X, Y)
    metric = metric_of(model)
    assert metric == ZeroOneLoss()
    np.testing.assert_allclose(
        metric.of_predictions(metric.target(Y), model.predict(X)), (model.predict(X) != Y).mean(axis=1)
    )


def test_what_predicts_no_response_has_no_metric_of(diabetes):
    X, _ = diabetes
    with pytest.raises(UnsupportedModelError, match="KMeans is neither"):
        metric_of(KMeans(2).fit(X))


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        (linear_model.Ridge(), SquaredError),
        (linear_model.HuberRegressor(max_iter=1000), LocationError),
        (linear_model.PoissonRegressor(), Deviance),
        (linear_model.TweedieRegressor(power=0), Deviance),
        (linear_model.GammaRegressor(), Deviance),
        (linear_model.QuantileRegressor(alpha=0.1), PinballLoss),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "fit") else "",
)
def test_refits_are_judged_as_their_formulas_are(diabetes, model, kind):
    """On what the fit itself predicts, beside the formulas' own linear predictors."""
    X, y = diabetes
    reading = read(model.fit(X, y), X, y)
    metric = reading.metric
    assert isinstance(metric, kind)
    np.testing.assert_array_equal(metric.target(y), reading.target)
    wanted = metric.losses(reading.target, reading.fit.eta)
    outputs = getattr(model, metric.refit_method)(X)
    np.testing.assert_allclose(metric.of_refits(reading.target, outputs), wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    ("model", "kind"),
    [(linear_model.LogisticRegression(C=0.1), LogLoss), (linear_model.RidgeClassifier(), HingeLoss)],
)
def test_refits_of_classifiers_are_judged_as_their_formulas_are(model, kind, n_classes):
    X, y = load_iris(return_X_y=True)
    X, y = X[y < n_classes], np.array(["a", "b", "c"])[y[y < n_classes]]
    fitted = clone(model).fit(X, y)
    reading = read(fitted, X, y)
    metric = reading.metric
    assert isinstance(metric, kind)
    np.testing.assert_array_equal(metric.target(y), reading.target)
    wanted = metric.losses(reading.target, reading.fit.eta)
    outputs = getattr(fitted, metric.refit_method)(X)
    np.testing.assert_allclose(metric.of_refits(reading.target, outputs), wanted, rtol=1e-9)
    if kind is LogLoss:
        probabilities = fitted.predict_proba(X)
        np.testing.assert_allclose(metric.of_predictions(reading.target, probabilities), wanted, rtol=1e-9)


@pytest.mark.parametrize("bound", [1e-6, 0.3, 4.0])
def test_log_loss_of_classes_changes_by_no_more_than_its_spread(bound):
    """The worst is where all other classes gain on the row's own by as much as a difference may be off."""
    rng = np.random.default_rng(0)
    target, eta = rng.integers(0, 4, 50).astype(float), 5.0 * rng.normal(size=(50, 4))
    metric = LogLoss(np.arange(4))
    here, most = metric.losses(target, eta), metric.spread(target, eta, np.full(50, bound))
    own = target.astype(int)[:, None] == np.arange(4)
    worst = metric.losses(target, np.where(own, eta - bound, eta)) - here
    np.testing.assert_allclose(worst, most, rtol=1e-4, atol=1e-15)
    for _ in range(20):
        moved = eta + bound * rng.uniform(0.0, 1.0, eta.shape)
        assert np.all(np.abs(metric.losses(target, moved) - here) <= most * (1.0 + 1e-9) + 1e-15)
    assert np.all(np.isinf(metric.spread(target, eta, np.full(50, np.inf))))
