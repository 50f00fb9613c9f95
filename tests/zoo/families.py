"""Every kind of model that onefit reads, and strengths from none to null."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn import kernel_ridge, linear_model, svm

import onefit
from onefit import losses, penalties

# share of the strength at which an ℓ1 penalty leaves nothing, and of the mean square of a column for ℓ2
L1_LEVELS = {"null": 2.0, "strong": 0.5, "middle": 0.1, "weak": 1e-2, "faint": 1e-3}
L2_LEVELS = {"null": 1e6, "strong": 10.0, "middle": 0.5, "weak": 1e-2, "faint": 1e-5}
LEVELS = ("none", *L1_LEVELS)
MILDER = {"faint": "weak", "none": "weak"}


@dataclass(frozen=True)
class Setting:
    """What an estimator is made for.

    Attributes
    ----------
    rng : Generator
    X : (n, p) array
    y : (n,) or (n, t) array
    total : float
        Sum of the weights.
    level : str
        One of ``LEVELS``.
    intercept : bool
    """

    rng: np.random.Generator
    X: np.ndarray
    y: np.ndarray
    total: float
    level: str
    intercept: bool

    @property
    def l1(self) -> float:
        """Strength for a sum of losses, in the scale of squares, logistic and Poisson."""
        target = self.y if self.y.dtype.kind == "f" else np.eye(self.y.max() + 1)[self.y]
        slope = np.reshape(target - target.mean(axis=0), (len(self.y), -1))
        highest = float(np.abs(self.X.T @ slope).max())
        return L1_LEVELS.get(self.level, 0.0) * max(highest, 1e-12 * float(np.abs(self.X).max()), 1e-300)

    @property
    def l2(self) -> float:
        """Strength for a sum of squares."""
        size = float(np.mean(np.sum((self.X - self.X.mean(axis=0)) ** 2, axis=0)))
        return L2_LEVELS.get(self.level, 0.0) * max(size, 1e-300)

    @property
    def mix(self) -> float:
        return float(self.rng.choice([0.2, 0.5, 0.9]))


@dataclass(frozen=True)
class Family:
    """A kind of model.

    Attributes
    ----------
    name : str
    response : str
        What ``tables.response`` makes for it.
    make : callable
        From a Setting to an unfitted estimator.
    unpenalised : bool
        Whether it may go without a penalty.
    weighted, sparse : bool
        Whether it takes weights of rows, and sparse designs.
    intercept : bool
        Whether it can do without an intercept.
    tight : bool
        Whether a refit of the estimator reaches its optimum in acceptable time; else our own problem is
        solved from a cold start and checked by another solver.
    """

    name: str
    response: str
    make: Callable[[Setting], Any]
    unpenalised: bool = False
    weighted: bool = True
    sparse: bool = True
    intercept: bool = True
    tight: bool = True


FAMILIES: dict[str, Family] = {}


def _family(name: str, response: str, **traits: Any) -> Callable:
    def enter(make: Callable[[Setting], Any]) -> Callable[[Setting], Any]:
        FAMILIES[name] = Family(name, response, make, **traits)
        return make

    return enter


# --- least squares -----------------------------------------------------------------------------------


@_family("Ridge", "number", unpenalised=True)
def _(s):
    return linear_model.Ridge(s.l2, fit_intercept=s.intercept, tol=1e-10)


@_family("Ridge, two outputs", "numbers")
def _(s):
    return linear_model.Ridge(s.l2 * np.array([1.0, 3.0]), fit_intercept=s.intercept)


@_family("Ridge, positive", "number", sparse=False)
def _(s):
    return linear_model.Ridge(s.l2, fit_intercept=s.intercept, positive=True, tol=1e-10)


@_family("LinearRegression", "number", unpenalised=True, sparse=False)
def _(s):
    return linear_model.LinearRegression(fit_intercept=s.intercept)


@_family("LinearRegression, positive", "number", sparse=False)
def _(s):
    return linear_model.LinearRegression(fit_intercept=s.intercept, positive=True)


@_family("RidgeClassifier", "two classes")
def _(s):
    balanced = s.rng.choice([None, "balanced"])
    return linear_model.RidgeClassifier(s.l2, fit_intercept=s.intercept, class_weight=balanced)


@_family("RidgeClassifier, three classes", "three classes")
def _(s):
    return linear_model.RidgeClassifier(s.l2, fit_intercept=s.intercept)


@_family("Lasso", "number")
def _(s):
    return linear_model.Lasso(s.l1 / s.total, fit_intercept=s.intercept, tol=1e-6, max_iter=20_000)


@_family("Lasso, positive", "number")
def _(s):
    return linear_model.Lasso(
        s.l1 / s.total, fit_intercept=s.intercept, positive=True, tol=1e-6, max_iter=20_000
    )


@_family("LassoCV", "number", sparse=False)
def _(s):
    return linear_model.LassoCV(alphas=10, cv=3, fit_intercept=s.intercept, tol=1e-6, max_iter=20_000)


@_family("ElasticNet", "number")
def _(s):
    return linear_model.ElasticNet(
        s.l1 / s.total, l1_ratio=s.mix, fit_intercept=s.intercept, tol=1e-6, max_iter=20_000
    )


@_family("LassoLars", "number", weighted=False, sparse=False)
def _(s):
    return linear_model.LassoLars(s.l1 / s.total, fit_intercept=s.intercept)


@_family("KernelRidge", "number", sparse=False, intercept=False)
def _(s):
    kernel = str(s.rng.choice(["linear", "rbf", "poly", "laplacian"]))
    return kernel_ridge.KernelRidge(
        {"null": 1e4, "strong": 1.0, "middle": 0.1, "weak": 1e-4, "faint": 1e-10}.get(s.level, 1e-2),
        kernel=kernel,
        gamma=1.0 / max(float(np.sum(s.X.var(axis=0))), 1e-300),
        degree=2,
    )


@_family("HuberRegressor", "number")
def _(s):
    epsilon = float(s.rng.choice([1.05, 1.35, 2.0]))
    return linear_model.HuberRegressor(
        epsilon=epsilon, alpha=s.l2, fit_intercept=s.intercept, tol=1e-6, max_iter=2000
    )


# --- likelihoods -------------------------------------------------------------------------------------


def _logistic(s, l1_ratio, solver, **options):
    strength = s.l2 / 4 if l1_ratio == 0 else s.l1
    C = 1.0 / strength if strength > 0 else np.inf
    given = {"fit_intercept": s.intercept, "tol": 1e-6, "max_iter": 5000, "random_state": 0} | options
    return linear_model.LogisticRegression(C=C, l1_ratio=l1_ratio, solver=solver, **given)


@_family("LogisticRegression, l2", "two classes", unpenalised=True)
def _(s):
    return _logistic(s, 0.0, "lbfgs")


@_family("LogisticRegression, balanced", "two classes")
def _(s):
    return _logistic(s, 0.0, "newton-cholesky", class_weight="balanced")


@_family("LogisticRegression, l1", "two classes", tight=False)
def _(s):
    return _logistic(s, 1.0, "liblinear", intercept_scaling=float(s.rng.choice([1.0, 10.0])))


@_family("LogisticRegression, elastic net", "two classes", tight=False)
def _(s):
    return _logistic(s, s.mix, "saga", class_weight=s.rng.choice([None, "balanced"]), max_iter=2000)


@_family("LogisticRegression, liblinear", "two classes")
def _(s):
    return _logistic(s, 0.0, "liblinear")


@_family("LogisticRegression, three classes", "three classes")
def _(s):
    return _logistic(s, 0.0, "lbfgs", class_weight=s.rng.choice([None, "balanced"]))


@_family("LogisticRegression, three classes, l1", "three classes", tight=False)
def _(s):
    return _logistic(s, 1.0, "saga", max_iter=2000)


@_family("PoissonRegressor", "count", unpenalised=True)
def _(s):
    alpha = s.l2 * float(s.y.mean()) / s.total
    return linear_model.PoissonRegressor(alpha=alpha, fit_intercept=s.intercept, max_iter=1000, tol=1e-6)


@_family("GammaRegressor", "positive", unpenalised=True)
def _(s):
    return linear_model.GammaRegressor(
        alpha=s.l2 / s.total, fit_intercept=s.intercept, max_iter=1000, tol=1e-6
    )


@_family("TweedieRegressor, 1.5", "positive")
def _(s):
    return linear_model.TweedieRegressor(
        power=1.5, alpha=s.l2 / s.total, fit_intercept=s.intercept, max_iter=1000, tol=1e-6
    )


@_family("TweedieRegressor, 1.5, many zeros", "count")
def _(s):
    return linear_model.TweedieRegressor(
        power=1.5, alpha=s.l2 / s.total, fit_intercept=s.intercept, max_iter=1000, tol=1e-6
    )


@_family("TweedieRegressor, 0", "number", unpenalised=True)
def _(s):
    return linear_model.TweedieRegressor(
        power=0, alpha=s.l2 / s.total, fit_intercept=s.intercept, max_iter=1000, tol=1e-6
    )


# --- machines ----------------------------------------------------------------------------------------


def _C(s, faint=100.0):
    return {"null": 1e-6, "strong": 0.01, "middle": 0.3, "weak": 3.0, "faint": faint}.get(s.level, 1.0)


def _kernel(s):
    return {
        "kernel": str(s.rng.choice(["linear", "rbf", "poly"])),
        "gamma": s.rng.choice(["scale", None]) or 1.0 / max(float(np.sum(s.X.var(axis=0))), 1e-300),
        "degree": 2,
        "coef0": 1.0,
    }


@_family("SVC", "two classes", sparse=False, intercept=False)
def _(s):
    return svm.SVC(C=_C(s), **_kernel(s))


@_family("SVC, balanced", "two classes", sparse=False, intercept=False)
def _(s):
    return svm.SVC(C=_C(s), class_weight="balanced", **_kernel(s))


@_family("SVR", "number", sparse=False, intercept=False)
def _(s):
    spread = float(np.std(s.y)) or 1.0
    return svm.SVR(C=_C(s) * spread, epsilon=float(s.rng.choice([0.0, 0.1, 0.5])) * spread, **_kernel(s))


@_family("LinearSVC", "two classes", tight=False)
def _(s):
    return svm.LinearSVC(C=_C(s, 30.0), fit_intercept=s.intercept, tol=1e-5, max_iter=20_000, random_state=0)


@_family("LinearSVC, hinge", "two classes", tight=False)
def _(s):
    return svm.LinearSVC(
        C=_C(s, 30.0), loss="hinge", fit_intercept=s.intercept, tol=1e-4, max_iter=20_000, random_state=0
    )


@_family("LinearSVC, l1", "two classes", tight=False)
def _(s):
    return svm.LinearSVC(
        C=1.0 / s.l1, penalty="l1", dual=False, fit_intercept=s.intercept, tol=1e-5, max_iter=20_000
    )


@_family("LinearSVC, three classes", "three classes", tight=False)
def _(s):
    return svm.LinearSVC(C=_C(s, 30.0), fit_intercept=s.intercept, tol=1e-5, max_iter=20_000, random_state=0)


@_family("LinearSVR", "number", tight=False)
def _(s):
    loss = str(s.rng.choice(["epsilon_insensitive", "squared_epsilon_insensitive"]))
    return svm.LinearSVR(
        C=_C(s, 30.0), epsilon=0.1 * float(np.std(s.y)), loss=loss, fit_intercept=s.intercept, dual=True,
        tol=1e-4, max_iter=20_000, random_state=0,
    )  # fmt: skip


@_family("QuantileRegressor", "number", sparse=False)
def _(s):
    quantile = float(s.rng.choice([0.1, 0.5, 0.8]))
    spread = float(np.std(s.y)) or 1.0
    return linear_model.QuantileRegressor(
        quantile=quantile, alpha=0.3 * s.l1 / s.total / spread, fit_intercept=s.intercept
    )


# --- any loss, any penalty ---------------------------------------------------------------------------

RESPONSE_OF = {
    "squared": "number",
    "huber": "number",
    "quantile": "number",
    "absolute": "number",
    "squared_epsilon_insensitive": "number",
    "poisson": "count",
    "gamma": "positive",
    "logistic": "two classes",
    "hinge": "two classes",
    "squared_hinge": "two classes",
    "exponential": "two classes",
    "multinomial": "three classes",
}


def _groups(s):
    return np.arange(s.X.shape[1]) // 3


def _differences(s, order):
    """Differences of neighbours, or fewer times where columns are few; one has none."""
    order = min(order, s.X.shape[1] - 1)
    own = penalties.TrendFilter(order - 1, s.l1) if order else penalties.L1(s.l1)
    return own + penalties.L2(1e-3 * s.l1)


def _ranked(s):
    return np.linspace(1.0, 0.2, s.X.shape[1])


def _matrix(s):
    p = s.X.shape[1]
    rows = next(k for k in range(int(np.sqrt(p)), 0, -1) if p % k == 0)
    return rows, p // rows


PENALTIES: dict[str, Callable[[Setting], Any]] = {
    "L2": lambda s: penalties.L2(s.l2),
    "L1": lambda s: penalties.L1(s.l1),
    "ElasticNet": lambda s: penalties.ElasticNet(s.l1, s.mix),
    "GroupLasso": lambda s: penalties.GroupLasso(_groups(s), 0.7 * s.l1),
    "SparseGroupLasso": lambda s: penalties.SparseGroupLasso(_groups(s), 0.7 * s.l1, s.mix),
    "FusedLasso": lambda s: _differences(s, 1),
    "TrendFilter": lambda s: _differences(s, 2),
    "Slope": lambda s: penalties.Slope(_ranked(s), s.l1),
    "NuclearNorm": lambda s: penalties.NuclearNorm(_matrix(s), s.l1),
    "Box": lambda s: penalties.Box(0.0, 1.0) + penalties.L2(s.l2),
}
STRUCTURED = {
    "squared": tuple(PENALTIES),
    "huber": ("L2", "L1", "GroupLasso"),
    "quantile": ("L2", "L1"),
    "absolute": ("L2",),
    "squared_epsilon_insensitive": ("L2", "L1"),
    "poisson": ("L2", "L1", "ElasticNet", "GroupLasso", "Slope"),
    "gamma": ("L2", "L1"),
    "logistic": ("L1", "ElasticNet", "GroupLasso", "FusedLasso", "Slope", "NuclearNorm", "Box"),
    "hinge": ("L2", "L1"),
    "squared_hinge": ("L2", "L1"),
    "exponential": ("L2",),
    "multinomial": ("L2", "L1", "ElasticNet"),
}


def _loss(name, s):
    """The loss by name, or with a width in the units of the response."""
    spread = float(np.std(s.y)) or 1.0
    made = {
        "huber": lambda: losses.Huber(spread * float(s.rng.choice([0.3, 1.35]))),
        "quantile": lambda: losses.Quantile(float(s.rng.choice([0.2, 0.5, 0.9]))),
        "squared_epsilon_insensitive": lambda: losses.SquaredEpsilonInsensitive(0.2 * spread),
    }
    return made[name]() if name in made else name


def _enter_generalised(loss: str, penalty: str) -> None:
    @_family(f"{loss} + {penalty}", RESPONSE_OF[loss])
    def _(s):
        return onefit.GeneralizedLinear(_loss(loss, s), PENALTIES[penalty](s), fit_intercept=s.intercept)


for _name, _kinds in STRUCTURED.items():
    for _kind in _kinds:
        _enter_generalised(_name, _kind)
