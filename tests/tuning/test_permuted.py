"""The permutation criterion as a risk of any model: its definition, its gradient, and the search with it."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

import onefit
from onefit.estimators.searched import SearchedModel
from onefit.penalties import L2, ElasticNet
from onefit.risk import Permutation
from onefit.tuning.judges import PermutedJudge
from onefit.tuning.objective import RiskObjective

N, P = 40, 6
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, P))
Y = X[:, 0] - X[:, 1] + RNG.normal(size=N)
LABELS, COUNTS = (Y > 0).astype(int), RNG.poisson(np.exp(0.3 * Y))
ORDERS = np.vstack([np.arange(N), [RNG.permutation(N) for _ in range(5)]])

MODELS = {
    "ridge": (onefit.GeneralizedLinear(penalty=L2()), {"penalty__alpha": (1e-1, 1e3)}, Y),
    "elastic net": (
        onefit.GeneralizedLinear(penalty=ElasticNet()),
        {"penalty__alpha": (1.0, 1e2), "penalty__l1_ratio": (0.1, 0.9)},
        Y,
    ),
    "logistic": (onefit.GeneralizedLinear("logistic", L2()), {"penalty__alpha": (1e-1, 1e3)}, LABELS),
    "poisson": (onefit.GeneralizedLinear("poisson", L2()), {"penalty__alpha": (1e-1, 1e3)}, COUNTS),
    "hinge": (onefit.GeneralizedLinear("hinge", L2()), {"penalty__alpha": (1e-1, 1e3)}, LABELS),
}


def _objective(name, weights):
    estimator, bounds, y = MODELS[name]
    model = SearchedModel.of(estimator, bounds, X, y, weights)
    shares = np.ones(N) / N if weights is None else weights / weights.sum()
    judge = PermutedJudge(model.reading.metric, model.reading.target, shares, ORDERS)
    return RiskObjective(model.space, model.problem_at, judge)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("weighted", [False, True])
def test_gradient(name, weighted):
    objective = _objective(name, np.linspace(0.5, 2.0, N) if weighted else None)
    low, high = objective.space.bounds
    t = low + 0.45 * (high - low)
    _, gradient = objective.value_and_gradient(t)
    for j in range(len(t)):
        step = np.zeros(len(t))
        step[j] = 1e-5
        expected = (objective.value(t + step) - objective.value(t - step)) / 2e-5
        assert gradient[j] == pytest.approx(expected, rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_responses_of_rows_without_weight_stay_where_they_are(name):
    estimator, bounds, y = MODELS[name]
    weights, values = np.where(np.arange(N) % 3 > 0, 2.0, 0.0), []
    for rows in (np.arange(N), np.flatnonzero(weights)):
        model = SearchedModel.of(estimator, bounds, X[rows], y[rows], weights[rows])
        shares = weights[rows] / weights.sum()
        judge = PermutedJudge.of(Permutation(4, random_state=0), model.reading, shares)
        objective = RiskObjective(model.space, model.problem_at, judge)
        values.append(objective.value(objective.space.bounds.mean(axis=0)))
    assert values[0] == pytest.approx(values[1], rel=1e-8)


def test_squared_error_is_the_criterion_of_the_paper():
    """Equation 5, with refits of ridge to the response and to its permutations."""
    objective = _objective("ridge", None)
    alpha, share = 7.0, []
    for order in ORDERS:
        y = Y[order]
        left = y - Ridge(alpha).fit(X, y).predict(X)
        share.append(np.sqrt(np.mean(left**2) / np.var(y)))
    expected = share[0] + np.mean(np.abs(1.0 - np.array(share[1:])))
    assert objective.value(np.log([alpha])) == pytest.approx(expected, rel=1e-9)


def test_classes_are_judged_against_the_base_rate():
    objective = _objective("logistic", None)
    rate, share = LABELS.mean(), []
    null = -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate))
    for order in ORDERS:
        y = LABELS[order]
        p = LogisticRegression(C=0.5, tol=1e-10, max_iter=10_000).fit(X, y).predict_proba(X)[np.arange(N), y]
        share.append(-np.mean(np.log(p)) / null)
    expected = share[0] + np.mean(np.abs(1.0 - np.array(share[1:])))
    assert objective.value(np.log([2.0])) == pytest.approx(expected, rel=1e-6)


def test_search():
    risk = Permutation(10, random_state=0)
    search = onefit.GradientSearchCV(Ridge(), {"alpha": (1e-4, 1e3)}, risk=risk).fit(X, Y)
    again = onefit.GradientSearchCV(Ridge(), {"alpha": (1e-4, 1e3)}, risk=risk).fit(X, Y)
    assert search.best_params_ == again.best_params_
    assert np.abs(search.gradient_).max() < 1e-5
    assert search.best_risk_.value == pytest.approx(onefit.loo(search.best_estimator_, X, Y).value)


def test_a_constant_response_has_nothing_to_explain():
    search = onefit.GradientSearchCV(Ridge(), {"alpha": (1e-1, 1e3)}, risk=Permutation(3, random_state=0))
    assert -search.fit(X, np.ones(N)).best_score_ == pytest.approx(1.0)


def test_refusals():
    with pytest.raises(ValueError, match="n_permutations must be a whole number, at least 1, got 0"):
        Permutation(0)
    balanced = LogisticRegression(class_weight="balanced")
    search = onefit.GradientSearchCV(balanced, {"C": (1e-2, 1e2)}, risk=Permutation(3))
    with pytest.raises(onefit.UnsupportedModelError, match="pass sample_weight"):
        search.fit(X, LABELS)
