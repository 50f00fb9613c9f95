"""The public checks: over every loss and penalty of ours, over a user's own, and over wrong ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import Lasso, LogisticRegression, Ridge

import onefit
from onefit import losses, penalties
from onefit.fit import Fit
from onefit.losses import Loss
from onefit.metrics import SquaredError
from onefit.penalties import Penalty, PiecewiseRows, Polyhedral
from onefit.pieces import Coordinates, Pieces, third_by_differences
from onefit.problem import Problem
from onefit.readers.reading import Reading
from onefit.readers.registry import as_fit
from onefit.testing import check_loss, check_penalty, check_reader

N, P = 40, 12
RNG = np.random.default_rng(0)
NUMBERS, CLASSES = 2.0 * RNG.normal(size=N), RNG.integers(0, 2, N).astype(float)
POSITIVE, COUNTS = RNG.gamma(2.0, 1.0, N), RNG.poisson(2.0, N).astype(float)
WEIGHTS_OF_ROWS = np.linspace(0.5, 2.0, N)
GROUPS, WEIGHTS = np.repeat(range(4), 3), np.linspace(2.0, 0.1, P)

LOSSES = {
    losses.Squared(): (NUMBERS, None),
    losses.Huber(1.0): (NUMBERS, None),
    losses.EpsilonInsensitive(0.2): (NUMBERS, None),
    losses.EpsilonInsensitive(0.0): (NUMBERS, None),
    losses.Quantile(0.3): (NUMBERS, None),
    losses.SquaredEpsilonInsensitive(0.3): (NUMBERS, None),
    losses.Logistic(): (CLASSES, None),
    losses.Exponential(): (CLASSES, None),
    losses.Hinge(): (CLASSES, None),
    losses.SquaredHinge(): (CLASSES, None),
    losses.SmoothedHinge(): (CLASSES, None),
    losses.Poisson(): (COUNTS, None),
    losses.Gamma(): (POSITIVE, None),
    losses.Tweedie(1.5): (POSITIVE, None),
    losses.Multinomial(3): (RNG.integers(0, 3, N).astype(float), RNG.normal(size=(N, 3))),
    losses.ConcomitantHuber(): (NUMBERS, np.stack([RNG.normal(size=N), RNG.uniform(1, 2, N)], axis=1)),
    losses.Mixture([losses.Logistic(), losses.Exponential()], [0.3, 0.7]): (CLASSES, None),
    losses.Mixture([losses.Logistic(), losses.Hinge()], [0.3, 0.7]): (CLASSES, None),
    losses.Mixture([losses.Quantile(0.2), losses.EpsilonInsensitive(0.4)]): (NUMBERS, None),
    losses.Mixture([losses.Quantile(0.3), losses.Squared()]): (NUMBERS, None),
}
PENALTIES = {
    "L1": penalties.L1(0.7),
    "L2": penalties.L2(0.7),
    "ElasticNet": penalties.ElasticNet(0.7),
    "Strengths": penalties.L1(WEIGHTS) + penalties.L2(0.3),
    "Box": penalties.Box(-0.5, 0.5),
    "Box with l1": penalties.Box(lower=0.0) + penalties.L1(0.3),
    "GeneralizedLasso": penalties.GeneralizedLasso(RNG.normal(size=(7, P)), 0.4),
    "GeneralizedLasso, dependent": penalties.GeneralizedLasso(RNG.normal(size=(15, P)), 0.1),
    "FusedLasso": penalties.FusedLasso(0.8),
    "TrendFilter": penalties.TrendFilter(1, 0.7),
    "Slope": penalties.Slope(WEIGHTS, 0.5),
    "LInfinity": penalties.LInfinity(2.0),
    "GroupLasso": penalties.GroupLasso(GROUPS, 0.7),
    "SparseGroupLasso": penalties.SparseGroupLasso(GROUPS, 0.8, 0.6),
    "NuclearNorm": penalties.NuclearNorm((3, 4), 0.9),
    "SmoothNuclearNorm": penalties.SmoothNuclearNorm((3, 4), 0.9, 0.3),
    "SmoothNuclearNorm, tall": penalties.SmoothNuclearNorm((6, 2), 0.9, 0.05),
    "Sum of L2 and GroupLasso": penalties.L2(0.5) + penalties.GroupLasso(GROUPS, 0.7),
    "Sum of L2 and Slope": penalties.L2(0.5) + penalties.Slope(WEIGHTS, 0.4),
    "Sum of L2 and LInfinity": penalties.L2(0.5) + penalties.LInfinity(1.5),
}


@pytest.mark.costly
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_our_losses(loss):
    check_loss(loss, *LOSSES[loss])


@pytest.mark.costly
@pytest.mark.parametrize("name", PENALTIES)
def test_our_penalties(name):
    check_penalty(PENALTIES[name], P)


def test_none_is_forgotten():
    """Every concrete class of the packages is among those that are checked.

    ``Offset``, whose response has two columns, is checked by its derivatives below and by refits in
    ``test_drop_in``.
    """

    def concrete(package, base):
        classes = (getattr(package, name) for name in package.__all__)
        found = {c for c in classes if isinstance(c, type) and issubclass(c, base)}
        return {c for c in found if not c.__abstractmethods__}

    assert concrete(losses, Loss) - {losses.Offset} == {type(loss) for loss in LOSSES}
    assert concrete(penalties, Penalty) == {type(penalty) for penalty in PENALTIES.values()}


def test_offset_is_its_loss_further_on():
    loss, given, eta = losses.Poisson(), np.linspace(-0.5, 0.5, N), RNG.normal(size=N)
    moved, both = losses.Offset(loss), np.stack([COUNTS, given], axis=1)
    for name in ("value", "gradient", "hessian", "third"):
        np.testing.assert_array_equal(
            getattr(moved, name)(both, eta), getattr(loss, name)(COUNTS, eta + given)
        )
    start = moved.start(both, WEIGHTS_OF_ROWS)
    slope = WEIGHTS_OF_ROWS @ moved.gradient(both, np.full(N, start))
    assert abs(slope) < 1e-9 * WEIGHTS_OF_ROWS.sum()


# --- as a user would write them ---------------------------------------------------------------------


@dataclass(frozen=True)
class LogCoshLoss(Loss):
    """log cosh(η − y): the absolute loss with a round tip."""

    pieces = Pieces.SMOOTH

    def value(self, y, eta):
        return np.logaddexp(eta - y, y - eta) - np.log(2.0)

    def gradient(self, y, eta):
        return np.tanh(eta - y)

    def hessian(self, y, eta):
        return 1.0 - np.tanh(eta - y) ** 2

    def third(self, y, eta):
        return -2.0 * np.tanh(eta - y) * (1.0 - np.tanh(eta - y) ** 2)

    def start(self, y, weights):
        return np.asarray(np.average(y, weights=weights))

    def self_concordance(self):
        return 2.0


@dataclass(frozen=True)
class Lopsided(Polyhedral):
    """alpha Σ max(β_j, −2 β_j): coefficients below zero cost twice as much."""

    alpha: float = 1.0

    def rows(self, p):
        ends = np.tile([-2.0 * self.alpha, self.alpha], (p, 1))
        return PiecewiseRows.of(sp.csr_array(sp.eye_array(p)), np.zeros((p, 1)), ends)

    def value(self, coef):
        return float(self.alpha * np.sum(np.maximum(coef, -2.0 * coef)))

    def prox(self, coef, step):
        a = step * self.alpha
        return np.maximum(coef - a, 0.0) + np.minimum(coef + 2.0 * a, 0.0)

    def tangent(self, coef, loss_gradient=None):
        slope = self.alpha * np.select([coef > 0, coef < 0], [1.0, -2.0], 0.0)
        return Coordinates((coef != 0) | (self.alpha == 0), slope, np.zeros_like(coef))

    def scaled(self, factor):
        return replace(self, alpha=self.alpha * factor)

    def has_kinks(self, shape):
        return self.alpha > 0

    def has_free_directions(self, shape):
        return self.alpha == 0


@dataclass(frozen=True)
class LogCosh(Penalty):
    """alpha Σ log cosh β_j."""

    alpha: float = 1.0
    pieces = Pieces.SMOOTH

    def value(self, coef):
        return float(self.alpha * np.sum(np.logaddexp(coef, -coef) - np.log(2.0)))

    def prox(self, coef, step):
        z, a = coef.copy(), step * self.alpha
        for _ in range(200):
            z = z - (z - coef + a * np.tanh(z)) / (1.0 + a)
        return z

    def tangent(self, coef, loss_gradient=None):
        slope = np.tanh(coef)
        return Coordinates(np.ones(coef.shape, dtype=bool), self.alpha * slope, self.alpha * (1.0 - slope**2))

    def third(self, coef, owed):
        return third_by_differences(self.tangent, coef, owed)

    def scaled(self, factor):
        return replace(self, alpha=self.alpha * factor)

    def has_kinks(self, shape):
        return False

    def has_free_directions(self, shape):
        return self.alpha == 0


class LogCoshRegressor(RegressorMixin, BaseEstimator):
    """Somebody's own estimator: Σ log cosh(y − η) + ½ alpha ‖β‖²."""

    def __init__(self, alpha=1.0):
        self.alpha = alpha

    def fit(self, X, y):
        inner = onefit.GeneralizedLinear(LogCoshLoss(), penalties.L2(self.alpha)).fit(X, y)
        self.coef_, self.intercept_, self.n_features_in_ = inner.coef_, inner.intercept_, X.shape[1]
        return self

    def predict(self, X):
        return X @ self.coef_ + self.intercept_


def _read(model, X, y, sample_weight):
    problem = Problem(LogCoshLoss(), penalties.L2(model.alpha), X, y, np.ones(len(y)))
    return Reading(Fit(problem, model.coef_, np.asarray(model.intercept_)), SquaredError(), y)


@pytest.fixture(autouse=True)
def _registered():
    as_fit.register(LogCoshRegressor, _read)


def test_a_loss_of_a_user():
    check_loss(LogCoshLoss(), NUMBERS)


@pytest.mark.parametrize(
    "penalty", [Lopsided(0.7), LogCosh(0.8), Lopsided(0.7) + penalties.L2(0.5)], ids=repr
)
def test_penalties_of_a_user(penalty):
    check_penalty(penalty, 6)


@pytest.mark.costly
@pytest.mark.parametrize("loss", ["squared", "logistic", "hinge", "quantile", "huber"])
@pytest.mark.parametrize("penalty", [Lopsided(2.0), LogCosh(2.0)], ids=repr)
def test_penalties_of_a_user_with_any_loss(loss, penalty):
    """Optimal, by the prox: β = prox(β − ∇loss)."""
    X = np.random.default_rng(1).normal(size=(N, 4))
    y = CLASSES if loss in {"logistic", "hinge"} else NUMBERS + 2.0 * X[:, 0]
    model = onefit.GeneralizedLinear(loss, penalty).fit(X, y)
    left_out = onefit.loo(model, X, y, exact=True)
    kept = np.arange(N) != 7
    refit = onefit.GeneralizedLinear(loss, penalty).fit(X[kept], y[kept])
    there = refit.decision_function(X[[7]]) if loss in {"logistic", "hinge"} else refit.predict(X[[7]])
    np.testing.assert_allclose(left_out.decision[7], there[0], atol=1e-5)


def test_a_reader_of_a_user():
    X = np.random.default_rng(2).normal(size=(N, 3))
    check_reader(LogCoshRegressor(0.5).fit(X, NUMBERS), X, NUMBERS)


@pytest.mark.parametrize(
    ("model", "y"),
    [
        (Ridge(2.0, tol=1e-12), NUMBERS),
        (Lasso(0.1, tol=1e-12), NUMBERS),
        (LogisticRegression(C=0.5, tol=1e-10), CLASSES),
        (onefit.GeneralizedLinear("hinge", penalties.L2(2.0)), CLASSES),
    ],
    ids=lambda one: type(one).__name__,
)
def test_readers_of_ours(model, y):
    X, weights = np.random.default_rng(3).normal(size=(N, 3)), np.random.default_rng(4).uniform(0.5, 2.0, N)
    check_reader(model.fit(X, y), X, y)
    check_reader(model.fit(X, y, sample_weight=weights), X, y, weights)


# --- wrong ones -------------------------------------------------------------------------------------


def _changed(cls, **attributes):
    name = "_".join(["Wrong", cls.__name__, *attributes])
    own = {"__module__": __name__, "__qualname__": name}
    changed = globals()[name] = dataclass(frozen=True)(type(name, (cls,), attributes | own))  # to be pickled
    return changed


WRONG_LOSSES = [
    ({"gradient": lambda self, y, eta: 1.01 * np.tanh(eta - y)}, "gradient is not the derivative"),
    ({"hessian": lambda self, y, eta: np.ones_like(eta)}, "hessian is not the derivative"),
    ({"third": lambda self, y, eta: np.zeros_like(eta)}, "third is not the derivative"),
    ({"pieces": Pieces.QUADRATIC}, "pieces says QUADRATIC"),
    ({"pieces": Pieces.STRAIGHT}, "must be a PiecewiseLinear"),
    ({"value": lambda self, y, eta: np.ones((len(eta), 2))}, "value must be one number a row"),
    ({"start": lambda self, y, weights: np.asarray(np.inf)}, "start must be finite"),
]


@pytest.mark.parametrize(("change", "message"), WRONG_LOSSES, ids=[message for _, message in WRONG_LOSSES])
def test_wrong_losses_are_found(change, message):
    with pytest.raises(AssertionError, match=message):
        check_loss(_changed(LogCoshLoss, **change)(), NUMBERS)


def test_a_loss_that_hides_its_jumps_is_found():
    loss = _changed(losses.Huber, pieces=Pieces.SMOOTH)()
    with pytest.raises(AssertionError, match="Hessian jumps"):
        check_loss(loss, NUMBERS)


def test_a_loss_that_is_not_convex_is_found():
    change = {
        "value": lambda self, y, eta: np.sin(eta),
        "gradient": lambda self, y, eta: np.cos(eta),
        "hessian": lambda self, y, eta: -np.sin(eta),
        "third": lambda self, y, eta: -np.cos(eta),
    }
    with pytest.raises(AssertionError, match="not convex"):
        check_loss(_changed(LogCoshLoss, **change)(), NUMBERS)


def _steeper(self, coef, loss_gradient=None):
    slope = np.tanh(coef)
    return Coordinates(np.ones(coef.shape, bool), 1.1 * self.alpha * slope, self.alpha * (1.0 - slope**2))


def _flat(self, coef, loss_gradient=None):
    return Coordinates(np.ones(coef.shape, bool), self.alpha * np.tanh(coef), np.zeros_like(coef))


WRONG_PENALTIES = [
    (LogCosh, {"prox": lambda self, coef, step: coef / (1.0 + step)}, "prox is not the minimum"),
    (LogCosh, {"tangent": _steeper}, "gradient of the tangent is not that"),
    (LogCosh, {"tangent": _flat}, "B or C are wrong"),
    (LogCosh, {"third": lambda self, coef, owed: np.zeros_like(coef)}, "third is not the derivative"),
    (LogCosh, {"is_ridge": lambda self, shape: True}, "is_ridge says"),
    (LogCosh, {"scaled": lambda self, factor: self}, "scaled does not scale"),
    (Lopsided, {"has_kinks": lambda self, shape: False}, "has_kinks says there are none"),
    (Lopsided, {"rows": lambda self, p: Lopsided(2.0 * self.alpha).rows(p)}, "rows do not have the value"),
    (Lopsided, {"exit": lambda self, coef, ray: np.inf}, "exit says"),
]


@pytest.mark.parametrize(("base", "change", "message"), WRONG_PENALTIES, ids=[m for *_, m in WRONG_PENALTIES])
def test_wrong_penalties_are_found(base, change, message):
    with pytest.raises(AssertionError, match=message):
        check_penalty(_changed(base, **change)(0.8), 6)


def test_a_reader_that_reads_another_objective_is_found():
    X = np.random.default_rng(2).normal(size=(N, 3))
    model = LogCoshRegressor(0.5).fit(X, NUMBERS)
    as_fit.register(LogCoshRegressor, lambda one, *data: _read(_stronger(one), *data))
    with pytest.raises(AssertionError, match="not the minimum of the objective"):
        check_reader(model, X, NUMBERS)


def _stronger(model):
    other = LogCoshRegressor(10.0 * model.alpha)
    other.coef_, other.intercept_ = model.coef_, model.intercept_
    return other


def test_a_model_without_a_reader_is_named():
    with pytest.raises(AssertionError, match="no reader is registered for object"):
        check_reader(object(), np.eye(3), np.ones(3))


@pytest.mark.costly
@pytest.mark.parametrize("penalty", penalties.PENALTIES)
@pytest.mark.parametrize("loss", ["squared", "logistic", "absolute"])
def test_names_of_the_registries(loss, penalty):
    X = np.random.default_rng(5).normal(size=(N, 4))
    y = CLASSES if loss == "logistic" else NUMBERS
    named = onefit.GeneralizedLinear(loss, penalty).fit(X, y)
    made = onefit.GeneralizedLinear(losses.LOSSES[loss](2), penalties.PENALTIES[penalty]()).fit(X, y)
    np.testing.assert_array_equal(named.coef_, made.coef_)
    assert onefit.loo(named, X, y).value == onefit.loo(made, X, y).value


def test_a_name_that_is_none():
    with pytest.raises(ValueError, match="penalty must be one of l2, l1, elasticnet, fused_lasso, linfinity"):
        onefit.GeneralizedLinear(penalty="ridge").fit(np.eye(3), np.ones(3))
