"""Small data and models that several tests share: everything is made here from a seed, nothing is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import (
    ElasticNet,
    ElasticNetCV,
    GammaRegressor,
    HuberRegressor,
    Lasso,
    LassoCV,
    LassoLars,
    LinearRegression,
    LogisticRegression,
    LogisticRegressionCV,
    PoissonRegressor,
    QuantileRegressor,
    Ridge,
    RidgeClassifier,
    RidgeClassifierCV,
    RidgeCV,
    TweedieRegressor,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR

import onefit
from onefit.fit import Fit
from onefit.leave_out.factor_free import parts_of
from onefit.leave_out.refit import solution_without
from onefit.leave_out.row_order import random_order
from onefit.losses import Hinge, Huber, Multinomial, Quantile, Squared
from onefit.penalties import (
    L1,
    L2,
    Box,
    FusedLasso,
    GroupLasso,
    NuclearNorm,
    Slope,
    SparseGroupLasso,
    TrendFilter,
)
from onefit.penalties import (
    ElasticNet as ElasticNetPenalty,
)
from onefit.problem import Problem

N, P = 48, 6


def slow_where(doubled: Callable[[Any, str], bool], checks: Any) -> Any:
    """scikit-learn's checks of some estimators, those ``doubled(estimator, name)`` marked slow."""
    names, cases = checks.args
    marked = []
    for case in cases:
        estimator, check = values = getattr(case, "values", case)
        marks = [*getattr(case, "marks", ())]
        slow = [pytest.mark.slow] if doubled(estimator, getattr(check, "func", check).__name__) else []
        marked.append(pytest.param(*values, marks=marks + slow))
    return pytest.mark.parametrize(names, marked, **checks.kwargs)


def design(n: int = N, p: int = P, seed: int = 0) -> np.ndarray:
    """Columns of zero mean and unit scale that are a little correlated: (n, p)."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, p)) + 0.3 * rng.normal(size=(n, 1))


def response(kind: str, X: np.ndarray, seed: int = 1) -> np.ndarray:
    """A response of some kind to the first three columns: (n,), or (n, 2) for "outputs".

    ``kind`` is one of numbers, outputs, labels, three, counts, positive.
    """
    rng = np.random.default_rng(seed)
    eta = X[:, :3] @ [1.0, -1.0, 0.5] + 0.4
    return {
        "numbers": lambda: eta + rng.normal(size=len(eta)),
        "outputs": lambda: np.column_stack([eta, -eta]) + rng.normal(size=(len(eta), 2)),
        "labels": lambda: np.where(eta + rng.logistic(size=len(eta)) > 0, "yes", "no"),
        "three": lambda: np.digitize(eta + rng.normal(size=len(eta)), [-0.7, 1.0]),
        "counts": lambda: rng.poisson(np.exp(eta / 2)).astype(float),
        "positive": lambda: np.exp(eta / 2) * rng.gamma(3, 1 / 3, size=len(eta)),
    }[kind]()


def weights(n: int = N, seed: int = 2) -> np.ndarray:
    """Weights of n rows, a few of them zero."""
    drawn = np.random.default_rng(seed).uniform(0.3, 2.0, n)
    drawn[5::17] = 0.0
    return drawn


def kinked_problem(
    loss: Any,
    penalty: Any,
    weighted: bool = False,
    fit_intercept: bool = True,
    *,
    n: int = 50,
    p: int = 6,
) -> Problem:
    """A problem whose loss has kinks, of labels for a hinge and else of numbers; some weights may be zero."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p)) + 0.3
    eta = X @ rng.normal(size=p)
    labels = isinstance(loss, Hinge)
    y = (eta + rng.logistic(size=n) > 0).astype(float) if labels else eta + rng.normal(size=n)
    drawn = rng.uniform(0.2, 2.0, n) if weighted else np.ones(n)
    if weighted:
        drawn[::7] = 0.0
    return Problem(loss, penalty, X, y, drawn, np.array(fit_intercept))


@dataclass(frozen=True)
class Case:
    """An unfitted model, the kind of its response, and what its formula promises."""

    make: Callable[[], Any]
    kind: str
    formula: bool = True  # whether loo needs no refit
    n: int = N
    refit: Callable[[Any], Any] = clone  # what the left-out values are of: fitted model -> unfitted one

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Return X and y for the model."""
        X = design(self.n)
        return X, response(self.kind, X)


def _of(library: str, name: str, *args: Any, **params: Any) -> Callable[[], Any]:
    return lambda: getattr(pytest.importorskip(library), name)(*args, **params)


TIGHT = {"tol": 1e-10, "max_iter": 100_000}
PAIRS = [[0, 1], [2, 3], [4, 5]]


def _any(loss: Any, penalty: Any) -> Callable[[], Any]:
    return lambda: onefit.GeneralizedLinear(loss, penalty)


def _ridge(model: Any) -> Any:
    return Ridge(model.alpha_)


def _lasso(model: Any) -> Any:
    return Lasso(model.alpha_, **TIGHT)


def _elastic_net(model: Any) -> Any:
    return ElasticNet(alpha=model.alpha_, l1_ratio=model.l1_ratio_, **TIGHT)


def _logistic(model: Any) -> Any:
    return LogisticRegression(C=float(np.ravel(model.C_)[0]), tol=1e-10, max_iter=10_000)


def _held_fixed(pipeline: Any) -> Any:
    """Only the last step is refitted: what comes before it is held fixed."""
    return make_pipeline(FunctionTransformer(pipeline[0].transform), clone(pipeline[-1]))


MODELS = {
    "LinearRegression": Case(LinearRegression, "numbers"),
    "Ridge": Case(lambda: Ridge(2.0), "numbers"),
    "Ridge, two outputs": Case(lambda: Ridge(2.0), "outputs"),
    "RidgeCV": Case(lambda: RidgeCV([0.1, 1.0, 10.0]), "numbers", refit=_ridge),
    "RidgeClassifier": Case(lambda: RidgeClassifier(2.0), "labels"),
    "RidgeClassifierCV": Case(RidgeClassifierCV, "three", refit=lambda m: RidgeClassifier(m.alpha_)),
    "KernelRidge": Case(lambda: KernelRidge(alpha=1.0, kernel="rbf", gamma=0.1), "numbers"),
    "Lasso": Case(lambda: Lasso(0.1, **TIGHT), "numbers"),
    "Lasso, positive": Case(lambda: Lasso(0.1, positive=True, **TIGHT), "numbers"),
    "LassoCV": Case(lambda: LassoCV(cv=3, alphas=10, **TIGHT), "numbers", refit=_lasso),
    "LassoLars": Case(lambda: LassoLars(0.1), "numbers"),
    "ElasticNet": Case(lambda: ElasticNet(alpha=0.1, **TIGHT), "numbers"),
    "ElasticNetCV": Case(lambda: ElasticNetCV(cv=3, alphas=10, **TIGHT), "numbers", refit=_elastic_net),
    "LogisticRegression": Case(lambda: LogisticRegression(tol=1e-10, max_iter=10_000), "labels"),
    "LogisticRegression, l1": Case(
        lambda: LogisticRegression(l1_ratio=1.0, C=1.0, solver="saga", tol=1e-9, max_iter=100_000), "labels"
    ),
    "LogisticRegression, three classes": Case(
        lambda: LogisticRegression(tol=1e-10, max_iter=10_000), "three"
    ),
    "LogisticRegressionCV": Case(
        lambda: LogisticRegressionCV(
            Cs=3,
            cv=3,
            tol=1e-9,
            max_iter=10_000,
            scoring="neg_log_loss",
            l1_ratios=(0.0,),
            use_legacy_attributes=False,
        ),
        "labels",
        refit=_logistic,
    ),
    "PoissonRegressor": Case(lambda: PoissonRegressor(alpha=0.1, tol=1e-10), "counts"),
    "GammaRegressor": Case(lambda: GammaRegressor(alpha=0.1, tol=1e-10), "positive"),
    "TweedieRegressor": Case(lambda: TweedieRegressor(power=1.5, alpha=0.1, tol=1e-10), "counts"),
    "HuberRegressor": Case(lambda: HuberRegressor(tol=1e-8, max_iter=10_000), "numbers"),
    "QuantileRegressor": Case(lambda: QuantileRegressor(alpha=0.01), "numbers"),
    "SVC": Case(lambda: SVC(gamma=0.1, tol=1e-9), "labels"),
    "SVR": Case(lambda: SVR(gamma=0.1, tol=1e-9), "numbers"),
    "LinearSVC": Case(lambda: LinearSVC(tol=1e-9, max_iter=100_000), "labels"),
    "LinearSVR": Case(
        lambda: LinearSVR(
            loss="squared_epsilon_insensitive", dual=False, epsilon=0.1, tol=1e-9, max_iter=100_000
        ),
        "numbers",
    ),
    "squared, fused": Case(_any("squared", FusedLasso(0.5)), "numbers"),
    "squared, trend": Case(_any("squared", TrendFilter(1, 0.5)), "numbers"),
    "squared, nuclear": Case(_any("squared", NuclearNorm((2, 3), 0.5)), "numbers"),
    "squared, box": Case(_any("squared", Box(-0.5, 0.8)), "numbers"),
    "huber, slope": Case(_any(Huber(1.0), Slope(np.linspace(2, 1, P), 0.5)), "numbers"),
    "quantile, ridge": Case(_any(Quantile(0.3), L2(1.0)), "numbers"),
    "logistic, groups": Case(_any("logistic", GroupLasso(PAIRS, 0.5)), "labels"),
    "logistic, sparse groups": Case(_any("logistic", SparseGroupLasso(PAIRS, 0.5, 0.5)), "labels"),
    "poisson, elastic net": Case(_any("poisson", ElasticNetPenalty(0.5, 0.5)), "counts"),
    "hinge, l1": Case(_any("hinge", L1(0.5)), "labels"),
    "multinomial, ridge": Case(_any(Multinomial(3), L2(1.0)), "three"),
    "RidgeLOO": Case(lambda: onefit.RidgeLOO(alphas=10), "numbers", refit=_ridge),
    "LassoLOO": Case(lambda: onefit.LassoLOO(alphas=10), "numbers", refit=_lasso),
    "ElasticNetLOO": Case(lambda: onefit.ElasticNetLOO(alphas=10), "numbers", refit=_elastic_net),
    "LogisticLOO": Case(lambda: onefit.LogisticLOO(Cs=5), "labels", refit=_logistic),
    "PoissonLOO": Case(
        lambda: onefit.PoissonLOO(alphas=5),
        "counts",
        refit=lambda m: PoissonRegressor(alpha=m.alpha_, tol=1e-10),
    ),
    "GeneralizedLinearLOO": Case(
        lambda: onefit.GeneralizedLinearLOO(penalty=FusedLasso(1.0), alphas=5),
        "numbers",
        refit=lambda m: onefit.GeneralizedLinear("squared", m.penalty_),
    ),
    "GradientSearchCV": Case(
        lambda: onefit.GradientSearchCV(Ridge(), {"alpha": (1e-2, 1e2)}), "numbers", formula=False, n=12
    ),
    "PermutationRegressor": Case(
        lambda: onefit.PermutationRegressor(random_state=0), "numbers", formula=False, n=12
    ),
    "Pipeline": Case(lambda: make_pipeline(StandardScaler(), Ridge(2.0)), "numbers", refit=_held_fixed),
    "RandomForestRegressor": Case(
        lambda: RandomForestRegressor(5, random_state=0), "numbers", formula=False, n=12
    ),
    "celer.Lasso": Case(_of("celer", "Lasso", 0.1, tol=1e-9), "numbers"),
    "glum": Case(
        _of("glum", "GeneralizedLinearRegressor", family="poisson", alpha=0.1, gradient_tol=1e-9), "counts"
    ),
    "sortedl1.Slope": Case(_of("sortedl1", "Slope", alpha=0.1, tol=1e-9), "numbers"),
}


def without(fit: Fit, rows: int | np.ndarray, *, warm: bool = True) -> Fit:
    """Refit without a row, or a set of them, from the fit or from the constant model."""
    return solution_without(fit, rows, warm=warm).fit


def town_table(n=60, seed=0):
    """Rows of numbers and a word, with a response y that depends on x and on the word."""
    rng = np.random.default_rng(seed)
    x, z = rng.normal(size=(2, n))
    place = np.where(x + rng.normal(size=n) > 0, "town", "coast")
    return pd.DataFrame({"x": x, "z": z, "place": place, "y": 2 * x + (place == "town") + rng.normal(size=n)})


def tenths(n):
    """Tenths of so many rows, drawn at random."""
    return np.array_split(np.random.default_rng(0).permutation(n), 10)


def tenths_of(X, y, weights=None):
    """Tenths of the rows of a problem, as they are drawn where its models are told apart by them."""
    weights = np.ones(len(y)) if weights is None else weights
    fit = Fit.at_start(Problem(Squared(), L2(), X, np.asarray(y, dtype=float), weights))
    return parts_of(random_order(fit))
