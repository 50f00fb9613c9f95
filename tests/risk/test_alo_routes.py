"""``ALO(route="dual")``: against the primal formula, and against refits where that is exact."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import Lasso, LogisticRegression

import onefit
from onefit.leave_out import LeftOut
from onefit.penalties import (
    L1,
    L2,
    Box,
    ElasticNet,
    FusedLasso,
    GroupLasso,
    LInfinity,
    NuclearNorm,
    Slope,
    SmoothNuclearNorm,
    SparseGroupLasso,
    TrendFilter,
)
from onefit.risk.dual_route import jacobian, left_out_by_dual

N, P = 60, 12
GROUPS = np.repeat(np.arange(4), 3)
PENALTIES = {
    "ridge": L2(3.0),
    "lasso": L1(5.0),
    "elastic net": ElasticNet(6.0, 0.5),
    "a strength a feature": L1(np.linspace(1.0, 6.0, P)) + L2(np.linspace(0.5, 2.0, P)),
    "box": Box(-0.4, 0.7),
    "non-negative lasso": Box(lower=0.0) + L1(2.0),
    "group lasso": GroupLasso(GROUPS, 4.0),
    "sparse group lasso": SparseGroupLasso(GROUPS, 5.0, 0.4),
    "fused lasso": FusedLasso(1.5),
    "trend filter": TrendFilter(1, 1.0),
    "slope": Slope(np.linspace(6.0, 2.0, P)),
    "largest": LInfinity(25.0),
    "ridge and largest": L2(2.0) + LInfinity(15.0),
    "nuclear norm": NuclearNorm((3, 4), 8.0),
    "smooth nuclear norm": SmoothNuclearNorm((3, 4), 8.0),
}


def _data(loss, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, P)) + 0.3
    eta = X @ np.outer([1.0, -1.0, 0.0], [1.0, 1.0, 0.5, 0.5]).ravel()
    if loss == "squared":
        return X, eta + rng.normal(size=N)
    if loss == "poisson":
        return X, rng.poisson(np.exp(0.3 * eta)).astype(float)
    return X, (eta + rng.logistic(size=N) > 0).astype(int)


def _both(model, X, y, weights=None):
    """Values by either route, and the predictors behind them."""
    seen = {}

    class Recorded(onefit.risk.ALO):
        def of(self, left_out: LeftOut, *rest):
            eta = left_out.eta if self.route == "primal" else left_out_by_dual(left_out.fit)
            seen[self.route] = eta
            return super().of(left_out, *rest)

    found = [onefit.evaluate(model, X, y, Recorded(route), weights) for route in ("primal", "dual")]
    return [one.value for one in found], [seen[route] for route in ("primal", "dual")]


@pytest.mark.costly
@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.parametrize("loss", ["squared", "logistic", "poisson"])
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
def test_both_routes_are_one(name, loss, weighted, fit_intercept):
    X, y = _data(loss)
    weights = np.random.default_rng(1).uniform(0.3, 2.0, N) if weighted else None
    model = onefit.GeneralizedLinear(loss, PENALTIES[name], fit_intercept=fit_intercept).fit(X, y, weights)
    values, (primal, dual) = _both(model, X, y, weights)
    np.testing.assert_allclose(dual, primal, atol=1e-7 * np.std(primal))
    np.testing.assert_allclose(values[1], values[0], rtol=1e-7)


def test_ridge_is_leave_one_out_by_refits():
    X, y = _data("squared")
    model = onefit.GeneralizedLinear("squared", L2(3.0)).fit(X, y)
    _, (_, dual) = _both(model, X, y)
    rest = [np.delete(np.arange(N), i) for i in range(N)]
    refits = [onefit.GeneralizedLinear("squared", L2(3.0)).fit(X[kept], y[kept]) for kept in rest]
    expected = [one.predict(X[[i]])[0] for i, one in enumerate(refits)]
    np.testing.assert_allclose(dual, expected, rtol=1e-9)


@pytest.mark.parametrize("loss", ["squared", "poisson"])
def test_rows_without_weight_have_no_say(loss):
    X, y = _data(loss)
    weights = np.where(np.arange(N) % 7 == 3, 0.0, np.random.default_rng(1).uniform(0.3, 2.0, N))
    model = onefit.GeneralizedLinear(loss, L1(2.0)).fit(X, y, weights)
    values, (primal, dual) = _both(model, X, y, weights)
    np.testing.assert_allclose(dual, primal, rtol=1e-6, atol=1e-8)
    assert values[1] == pytest.approx(values[0], rel=1e-8)


def test_sparse_columns():
    X, y = _data("logistic")
    X[np.abs(X) < 0.5] = 0.0
    dense = onefit.GeneralizedLinear("logistic", L1(2.0)).fit(X, y)
    thin = onefit.GeneralizedLinear("logistic", L1(2.0)).fit(sparse.csr_array(X), y)
    risk = onefit.risk.ALO("dual")
    expected = onefit.evaluate(dense, X, y, risk).value
    assert onefit.evaluate(thin, sparse.csr_array(X), y, risk).value == pytest.approx(expected, rel=1e-9)


def test_the_jacobian_of_a_piecewise_map_keeps_to_its_piece():
    at = np.array([1.0, 1e-4, -2.0])  # the second is next to the kink of |x|
    np.testing.assert_allclose(jacobian(np.abs, at), np.diag([1.0, 1.0, -1.0]), atol=1e-9)


@pytest.mark.parametrize(
    ("model", "loss", "message"),
    [
        (lambda: onefit.GeneralizedLinear("hinge", L2(1.0)), "logistic", "positive second derivative"),
        (lambda: onefit.GeneralizedLinear("huber", L2(1.0)), "squared", "positive second derivative"),
        (lambda: Lasso(0.1), "squared", "keeps the penalty"),
        (
            lambda: LogisticRegression(class_weight="balanced"),
            "logistic",
            "keeps the penalty and the weights",
        ),
    ],
)
def test_what_has_no_dual_route(model, loss, message):
    X, y = _data(loss)
    with pytest.raises(ValueError, match=message):
        onefit.evaluate(model().fit(X, y), X, y, onefit.risk.ALO("dual"))


def test_several_outputs_have_no_dual_route():
    X, y = _data("squared")
    model = LogisticRegression().fit(X, np.digitize(y, [-1.0, 1.0]))
    with pytest.raises(ValueError, match="one output"):
        onefit.evaluate(model, X, np.digitize(y, [-1.0, 1.0]), onefit.risk.ALO("dual"))


def test_an_unknown_route():
    with pytest.raises(ValueError, match="route must be 'primal' or 'dual', got 'both'"):
        onefit.risk.ALO("both")
