"""The value-function search on GeneralizedLinear: against fine grids, conditions of optimality, refusals."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.base import clone

torch = pytest.importorskip("torch")

import onefit  # noqa: E402
from onefit.penalties import L1, L2, Box, ElasticNet, GroupLasso, Strengths  # noqa: E402
from onefit.torch import ValueFunctionSearch  # noqa: E402
from onefit.torch.value_function.levels import Joint, Lagrangian  # noqa: E402
from onefit.torch.value_function.linear_levels import LinearLevels  # noqa: E402


def rows(loss, seed=0, n=60, p=12):
    """Training and validation data."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(2 * n, p)) @ (np.eye(p) + 0.3)
    eta = X @ np.r_[np.ones(3), np.zeros(p - 3)] * (1.0 if loss == "squared" else 0.5)
    if loss == "squared":
        y = eta + 4.0 * rng.normal(size=2 * n)
    else:
        y = np.where(rng.random(2 * n) < 1.0 / (1.0 + np.exp(-eta)), "yes", "no")
    return X[:n], y[:n], X[n:], y[n:]


def mean_loss(model, X, y):
    """Of the loss that the model minimises: ½ squared error, or log-loss."""
    if model.loss == "squared":
        return 0.5 * np.mean((y - model.predict(X)) ** 2)
    return -np.mean(np.log(model.predict_proba(X)[np.arange(len(y)), (y == "yes").astype(int)]))


def search(loss, penalty, bounds, **settings):
    settings = {"n_rounds": 2, **settings}
    return ValueFunctionSearch(onefit.GeneralizedLinear(loss, penalty), bounds=bounds, **settings)


def refit(loss, penalty, data):
    return onefit.GeneralizedLinear(loss, penalty).fit(*data[:2])


@pytest.mark.costly
@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("seed", [0, 1])
def test_one_strength_is_that_of_a_fine_grid(loss, seed):
    data = rows(loss, seed)
    found = search(loss, L2(), {"penalty__alpha": (0.1, 1e4)}).fit(*data)
    grid = np.geomspace(0.1, 1e4, 100)
    risks = np.array([mean_loss(refit(loss, L2(alpha), data), *data[2:]) for alpha in grid])
    assert found.validation_loss_.retrained <= risks.min() + 0.005 * np.ptp(risks)
    best = found.lambda_["penalty__alpha"]
    flat = grid[risks <= risks.min() + 0.005 * np.ptp(risks)]
    assert flat[0] * 0.9 <= best <= flat[-1] * 1.1


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.slow
def test_two_strengths_are_those_of_a_fine_grid(loss):
    """A strength for columns of signal and one for columns of noise, through two terms of one penalty."""
    data, bounds = rows(loss, 3), (0.05, 2e3)
    found = search(
        loss,
        Strengths(1.0, l1=1.0, l2=1.0),
        {"penalty__l1": (0.05, 30.0), "penalty__l2": bounds},
        n_samples=30,
    ).fit(*data)
    grid = np.array(
        [
            mean_loss(refit(loss, Strengths(1.0, l1=l1, l2=l2), data), *data[2:])
            for l1 in np.geomspace(0.05, 30.0, 15)
            for l2 in np.geomspace(*bounds, 15)
        ]
    )
    assert found.validation_loss_.retrained <= grid.min() + 0.01 * np.ptp(grid)


@pytest.mark.costly
@pytest.mark.parametrize(
    "penalty", [L2(), L1(), ElasticNet(1.0, 0.5), GroupLasso(np.repeat(np.arange(4), 3))]
)
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_the_refit_and_the_values_are_exact(loss, penalty):
    data = rows(loss)
    found = search(loss, penalty, {"penalty__alpha": (0.1, 20.0)}, n_samples=6).fit(*data)
    best = found.lambda_["penalty__alpha"]
    direct = refit(loss, penalty.__class__(**{**penalty.get_params(), "alpha": best}), data)
    np.testing.assert_allclose(found.module_.coef_, direct.coef_, atol=1e-8)
    np.testing.assert_allclose(found.module_.intercept_, direct.intercept_, atol=1e-8)
    assert found.validation_loss_.retrained == pytest.approx(mean_loss(direct, *data[2:]), rel=1e-8)
    assert found.losses(*data[2:]).retrained == pytest.approx(found.validation_loss_.retrained, rel=1e-10)
    assert found.losses(*data[2:]).joint == pytest.approx(found.validation_loss_.joint, rel=1e-8)
    assert found.validation_loss_.joint < found.validation_loss_.retrained  # it has seen these rows
    np.testing.assert_array_equal(found.predict(data[2]), found.module_.predict(data[2]))


def levels(loss, penalty, bounds, seed=0, scale="log"):
    estimator = onefit.GeneralizedLinear(loss, penalty)
    return LinearLevels.of(estimator, rows(loss, seed), bounds, scale, max_iter=100, tol=1e-8)


@pytest.mark.parametrize("scale", ["log", "linear"])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_slopes_of_the_optimal_value(loss, scale):
    bounds = {"penalty__l1_ratio": (0.1, 0.9), "penalty__alpha": (0.5, 20.0)}
    both = levels(loss, ElasticNet(), bounds, scale=scale)
    unit = np.array([0.4, 0.6])
    solved = both.solve(unit, [both.start], 0)

    def value(at):
        return both.solve(at, [solved.state], 0).value

    numeric = [(value(unit + step) - value(unit - step)) / 2e-4 for step in 1e-4 * np.eye(2)]
    np.testing.assert_allclose(solved.slopes, numeric, rtol=1e-5, atol=1e-6)
    assert both.training(unit, solved.state) == pytest.approx(solved.value, rel=1e-12)


class Plane:
    """φ̂ with a known value and slope, above or below φ."""

    def __init__(self, level, slope):
        self.level, self.slope = level, slope

    def value(self, at):
        return self.level + float(self.slope @ at)

    def gradient(self, at):  # noqa: ARG002
        return self.slope


@pytest.mark.costly
@pytest.mark.parametrize("error", [-0.02, 0.0, 0.05])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_the_penalised_loss_is_minimised_over_the_coefficients(loss, error):
    """By a general minimiser of Z at a λ that is held, also where φ̂ is too high or too low."""
    both = levels(loss, L2(), {"penalty__alpha": (1.0, 100.0)})
    unit = np.array([0.5])
    solved = both.solve(unit, [both.start], 0)
    goal = Lagrangian(Plane(solved.value * (1 + error), np.zeros(1)), 0.5, 2.0)
    found = both.descend(Joint(unit, solved.state), goal, 0, held=True).state

    def state(theta):
        return {"coef": torch.tensor(theta[:-1]), "level": torch.tensor(theta[-1])}

    def penalised(theta):
        excess = both.training(unit, state(theta)) - goal.surrogate.value(unit)
        return both.validation(state(theta)) + 0.25 * excess**2 + 2.0 * excess

    ours = np.r_[found["coef"].numpy(), found["level"].numpy()]
    direct = minimize(
        penalised, np.r_[solved.state["coef"].numpy(), solved.state["level"].numpy()], tol=1e-10
    )
    assert penalised(ours) <= direct.fun + 1e-9
    if error <= 0.0:  # else Z may have several minima
        np.testing.assert_allclose(ours, direct.x, atol=1e-4)


def test_the_penalised_loss_is_minimised_over_the_strength():
    both = levels("logistic", L2(), {"penalty__alpha": (0.1, 1e3)})
    begin = both.solve(np.array([0.3]), [both.start], 0)
    goal = Lagrangian(_interpolated(both), 2.0, 2.0)
    found = both.descend(Joint(begin.unit, begin.state), goal, 0)

    def penalised(unit):
        at = both.descend(Joint(np.array([unit]), begin.state), goal, 0, held=True)
        excess = both.training(*at) - goal.surrogate.value(at.unit)
        return both.validation(at.state) + excess**2 + 2.0 * excess

    values = [penalised(unit) for unit in np.linspace(0.0, 1.0, 41)]
    assert penalised(found.unit[0]) <= min(values) + 1e-9


def _interpolated(both):
    from onefit.torch.value_function.kriging import Kriging

    solved = [both.solve(np.array([unit]), [both.start], 0) for unit in np.linspace(0, 1, 10)]
    columns = [np.array([getattr(one, name) for one in solved]) for name in ("unit", "value", "slopes")]
    return Kriging.fit(*columns)


def test_several_classes_and_a_loss_with_kinks():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 5))
    three = np.argmax(X[:, :3] + rng.normal(size=(120, 3)), axis=1)
    for loss, y in (("multinomial", three), ("hinge", three > 0)):
        found = search(loss, L2(), {"penalty__alpha": (1e-2, 1e3)}, n_samples=6).fit(
            X[:60], y[:60], X[60:], y[60:]
        )
        assert found.validation_loss_.retrained == found.validation_losses_.min()
        assert found.module_.score(X[60:], y[60:]) > 0.5
        assert found.joint_module_.coef_.shape == found.module_.coef_.shape


def test_sparse_rows_are_as_dense_ones():
    X, y, X_val, y_val = rows("squared")
    X, X_val = np.where(X > 0.5, X, 0.0), np.where(X_val > 0.5, X_val, 0.0)
    one = search("squared", L2(), {"penalty__alpha": (0.1, 1e3)}, n_samples=5)
    dense = one.fit(X, y, X_val, y_val).lambda_["penalty__alpha"]
    sparse = one.fit(sp.csr_array(X), y, sp.csr_array(X_val), y_val).lambda_["penalty__alpha"]
    assert sparse == pytest.approx(dense, rel=1e-4)


def test_a_search_goes_on_from_its_checkpoint(tmp_path):
    data, settings = rows("squared"), {"n_samples": 4, "checkpoint": tmp_path}
    first = search("squared", L1(), {"penalty__alpha": (0.1, 50.0)}, **settings).fit(*data)
    stamps = {file: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    again = search("squared", L1(), {"penalty__alpha": (0.1, 50.0)}, **settings).fit(*data)
    assert stamps == {file: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    assert again.lambda_ == first.lambda_
    np.testing.assert_array_equal(again.module_.coef_, first.module_.coef_)
    with pytest.raises(ValueError, match="belongs to a search with other data"):
        search("squared", L2(), {"penalty__alpha": (0.1, 50.0)}, **settings).fit(*data)


@pytest.mark.parametrize(
    ("penalty", "settings", "message"),
    [
        (L2(), {"bounds": None}, "at least one strength"),
        (L2(), {"bounds": {"alpha": (0.1, 1.0)}}, "it has penalty__alpha"),
        (L2(), {"bounds": {"penalty__beta": (0.1, 1.0)}}, "it has penalty__alpha"),
        (L2(np.ones(12)), {}, "no strength 'penalty__alpha' that is a number"),
        (L2() + Box(0.0), {"bounds": {"penalty__rest__lower": (0.1, 1.0)}}, "penalty__quadratic__alpha"),
        (L2(), {"bounds": {"penalty__alpha": (0.0, 1.0)}}, "0 only with scale"),
        (L2(), {"batch_size": 10}, "batch_size is for modules"),
        (L2(), {"loss": torch.nn.MSELoss()}, "loss is for modules"),
    ],
)
def test_wrong_settings_are_refused(penalty, settings, message):
    one = search("squared", penalty, {"penalty__alpha": (0.1, 10.0)}).set_params(**settings)
    with pytest.raises(ValueError, match=message):
        one.fit(*rows("squared"))


def test_other_estimators_are_refused():
    model = onefit.RidgeLOO()
    with pytest.raises(TypeError, match="or a GeneralizedLinear, got RidgeLOO"):
        ValueFunctionSearch(model, bounds={"alpha": (0.1, 1.0)}).fit(*rows("squared"))


def test_clone_and_pickle_without_the_data():
    data = rows("squared", n=600)
    found = search("squared", L2(), {"penalty__alpha": (0.1, 1e3)}, n_samples=5).fit(*data)
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.predict(data[2]), found.predict(data[2]))
    assert again.losses(*data[2:]) == found.losses(*data[2:])
    assert not hasattr(clone(found), "lambda_")
    assert len(pickle.dumps(found)) < data[0].nbytes
