"""Parameters of convex programs by gradient: against differences, and against native models."""

from __future__ import annotations

import numpy as np
import pytest

import onefit
from onefit.estimators.searched import SearchedModel
from onefit.risk.folds import k_fold
from onefit.tuning.held_out import HeldOutJudge
from onefit.tuning.objective import objective_of

cp = pytest.importorskip("cvxpy")

from onefit.convex_program import ConvexProgram, ProgramObjective  # noqa: E402
from onefit.convex_program.search import ConicSolution, _transposed_solve  # noqa: E402

RNG = np.random.default_rng(0)
N, P = 30, 6
X = RNG.normal(size=(N, P))
Y = 0.3 + X @ [0.0, 0.0, 1.0, 1.0, 1.0, 0.0] + 0.5 * RNG.normal(size=N)
LABELS = Y > 0.3
SIGNS = np.where(LABELS, 1.0, -1.0)
BOUNDS = {"a": (0.05, 20.0), "c": (0.05, 20.0)}

LOSSES = {
    "squared": lambda eta: 0.5 * cp.sum_squares(Y - eta),
    "logistic": lambda eta: cp.sum(cp.logistic(-cp.multiply(SIGNS, eta))),
    "hinge": lambda eta: cp.sum(cp.pos(1 - cp.multiply(SIGNS, eta))),
    "huber": lambda eta: cp.sum(cp.huber(Y - eta, 1.0)),
}
PENALTIES = {
    "elastic net": lambda beta, a, c: a * cp.norm1(beta) + c * cp.sum_squares(beta),
    "fused lasso": lambda beta, a, c: a * cp.tv(beta) + c * cp.norm1(beta),
    "groups": lambda beta, a, c: a * (cp.norm2(beta[:3]) + cp.norm2(beta[3:])) + c * cp.sum_squares(beta),
    "largest": lambda beta, a, c: a * cp.norm_inf(beta) + c * cp.sum_squares(beta),
    "not affine": lambda beta, a, c: cp.square(a) * cp.norm1(beta) + c * cp.sum_squares(beta),
}


def program(loss, penalty, constrain=lambda beta, c: [], *, coef=None, intercept=True):  # noqa: ARG005
    beta = cp.Variable(P) if coef is None else coef
    b = cp.Variable() if intercept else None
    a, c = (cp.Parameter(nonneg=True, value=1.0, name=name) for name in "ac")
    eta = X @ beta + b if intercept else X @ beta
    problem = cp.Problem(cp.Minimize(LOSSES[loss](eta) + penalty(beta, a, c)), constrain(beta, c))
    kind = "classifier" if loss in ("logistic", "hinge") else "regressor"
    return onefit.from_cvxpy(problem, eta, beta, b, kind)


def response(loss):
    return LABELS if loss in ("logistic", "hinge") else Y


def objective(model, y, bounds=BOUNDS, folds=3):
    searched = SearchedModel.of(model, bounds, X, y, None)
    reading = searched.reading
    judge = HeldOutJudge(reading.metric, reading.target, np.ones(N), k_fold(N, folds, None))
    return objective_of(searched.fitted, searched.space, searched.problem_at, judge)


def differences(function, t, h=1e-3):
    """Of fourth order, and not too close: an interior point is accurate to about 1e-9."""

    def slope(unit, k):
        return (function.value(t + k * h * unit) - function.value(t - k * h * unit)) / (2 * k * h)

    return np.array([(4.0 * slope(unit, 1) - slope(unit, 2)) / 3.0 for unit in np.eye(len(t))])


@pytest.mark.costly
@pytest.mark.parametrize(
    ("loss", "penalty", "atol"),
    [
        *(("squared", name, 1e-6) for name in ("elastic net", "fused lasso", "largest", "not affine")),
        *((loss, "elastic net", 1e-6) for loss in ("logistic", "hinge", "huber")),
        ("squared", "groups", 3e-5),  # where the solver's error is in the differences
        ("logistic", "fused lasso", 3e-5),
    ],
)
def test_two_parameters_by_gradient_and_by_differences(loss, penalty, atol):
    function = objective(program(loss, PENALTIES[penalty]), response(loss))
    t = np.log([1.1, 0.6])
    _, gradient = function.value_and_gradient(t)
    h = 1e-4 if loss == "hinge" else 1e-3  # a margin comes onto the kink of the risk beyond
    np.testing.assert_allclose(gradient, differences(function, t, h), atol=atol)


def mixture():
    """The first learned loss of Wang et al. (2019), eq. 10: weights of surrogates."""
    beta, b = cp.Variable(P), cp.Variable()
    a, c = (cp.Parameter(nonneg=True, value=0.3, name=name) for name in "ac")
    eta = X @ beta + b
    margins = cp.multiply(SIGNS, eta)
    hinge, lacking = cp.sum(cp.pos(1 - margins)), cp.sum(cp.square(cp.pos(1 - margins)))
    others = 0.2 * lacking + 0.1 * cp.sum(cp.exp(-margins)) + c * cp.sum(cp.logistic(-2 * margins))
    problem = cp.Problem(cp.Minimize(a * hinge + others + cp.sum_squares(beta)))
    return onefit.from_cvxpy(problem, eta, beta, b, "classifier")


def test_weights_of_losses_the_hinge_loss_among_them():
    function = objective(mixture(), LABELS)
    t = np.log([0.4, 0.3])
    _, gradient = function.value_and_gradient(t)
    assert np.all(np.abs(gradient) > 1e-4)
    # a margin comes onto its kink beyond these steps, and the solver's error is in the differences
    by_steps = differences(function, t, 1e-4)
    np.testing.assert_allclose(gradient, by_steps, atol=5e-6)


def test_the_gradient_is_that_of_the_native_model():
    net = program("squared", lambda beta, a, c: a * cp.norm1(beta) + c / 2 * cp.sum_squares(beta))
    model = onefit.GeneralizedLinear("squared", onefit.penalties.L1(1.0) + onefit.penalties.L2(1.0))
    bounds = {"penalty__l1": BOUNDS["a"], "penalty__l2": BOUNDS["c"]}
    t = np.log([2.0, 0.5])
    for found, expected in zip(
        objective(net, Y).value_and_gradient(t),
        objective(model, Y, bounds).value_and_gradient(t),
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_parameters_of_constraints_and_attributes_of_variables(fit_intercept):
    def inside(beta, c):
        return [beta <= 0.2 * c]

    def lasso(beta, a, c):  # noqa: ARG001
        return a * cp.norm1(beta)

    beta = cp.Variable(P, nonneg=True)
    model = program("squared", lasso, inside, coef=beta, intercept=fit_intercept)
    function, t = objective(model, Y), np.log([0.8, 2.0])
    _, gradient = function.value_and_gradient(t)
    assert np.all(np.abs(gradient) > 1e-4)
    np.testing.assert_allclose(gradient, differences(function, t), atol=1e-6)


def test_the_risk_is_that_of_the_native_model():
    function = objective(
        program("squared", lambda beta, a, c: a * cp.norm1(beta) + c / 2 * cp.sum_squares(beta)), Y
    )
    model = onefit.GeneralizedLinear("squared", onefit.penalties.L1(2.0) + onefit.penalties.L2(0.5)).fit(X, Y)
    native = onefit.evaluate(model, X, Y, onefit.risk.KFold(3, approximate=False)).value
    assert function.value(np.log([2.0, 0.5])) == pytest.approx(native, rel=1e-7)


def test_a_search_ends_where_the_native_one_does():
    search = onefit.GradientSearchCV(
        program("squared", lambda beta, a, c: a / 2 * cp.sum_squares(beta) + 0.0 * c),
        {"a": (1e-2, 1e2)},
        risk=onefit.risk.KFold(3),
    ).fit(X, Y)
    ridge = onefit.GeneralizedLinear("squared", onefit.penalties.L2())
    native = onefit.GradientSearchCV(ridge, {"penalty__alpha": (1e-2, 1e2)}, risk=onefit.risk.KFold(3)).fit(
        X, Y
    )
    assert search.best_score_ == pytest.approx(native.best_score_, rel=1e-6)
    assert search.best_params_["a"] == pytest.approx(native.best_params_["penalty__alpha"], rel=1e-2)
    assert isinstance(search.best_estimator_, ConvexProgram)
    assert search.best_estimator_.values["a"] == search.best_params_["a"]


@pytest.mark.slow
def test_leave_one_out_solves_without_every_row():
    model = program("squared", PENALTIES["elastic net"])
    bounds = {"a": (0.5, 2.0), "c": (0.5, 2.0)}
    search = onefit.GradientSearchCV(model, bounds, max_iter=1, start={"a": 1.0, "c": 1.0}).fit(X, Y)
    exact = onefit.loo(search.best_estimator_, X, Y, exact=True).value
    assert -search.best_score_ == pytest.approx(exact, rel=1e-5)


def test_a_strength_a_feature():
    beta, b = cp.Variable(P), cp.Variable()
    s = cp.Parameter(P, nonneg=True, value=np.ones(P), name="s")
    eta = X @ beta + b
    problem = cp.Problem(cp.Minimize(LOSSES["squared"](eta) + cp.norm1(cp.multiply(s, beta))))
    model = onefit.from_cvxpy(problem, eta, beta, b)
    function = objective(model, Y, {"s": onefit.PerFeature(0.05, 20.0)})
    assert isinstance(function, ProgramObjective)
    t = np.linspace(-0.5, 0.5, P)
    _, gradient = function.value_and_gradient(t)
    np.testing.assert_allclose(gradient, differences(function, t), atol=1e-6)


def test_parameters_are_those_of_the_estimator():
    model = program("squared", PENALTIES["elastic net"])
    assert model.get_params() == {"a": 1.0, "c": 1.0}
    before = model.coef_.copy()
    model.set_params(a=5.0).fit(X)
    assert not np.allclose(model.coef_, before)
    with pytest.raises(ValueError, match="has no parameter 'b': it has a, c"):
        model.set_params(b=1.0)
    with pytest.raises(ValueError, match="no hyperparameter 'alpha'"):
        onefit.GradientSearchCV(model, {"alpha": (1.0, 2.0)}, risk=onefit.risk.KFold(3)).fit(X, Y)


def test_two_parameters_of_one_name():
    beta = cp.Variable(P)
    one, other = (cp.Parameter(nonneg=True, value=1.0, name="a") for _ in range(2))
    eta = X @ beta
    problem = cp.Problem(
        cp.Minimize(LOSSES["squared"](eta) + one * cp.norm1(beta) + other * cp.sum_squares(beta))
    )
    with pytest.raises(ValueError, match="two parameters are called 'a'"):
        onefit.from_cvxpy(problem, eta, beta)


def test_a_singular_system_is_solved_by_least_squares():
    M, owed = np.diag([2.0, 0.0, 1.0]), np.array([1.0, 0.0, 3.0])
    import scipy.sparse as sp

    np.testing.assert_allclose(_transposed_solve(sp.csc_array(M), owed), [0.5, 0.0, 3.0], atol=1e-10)


def test_a_program_with_powers_has_no_gradient():
    model = program("squared", lambda beta, a, c: a * cp.sum(cp.power(cp.abs(beta), 1.5)) + 0.0 * c)
    solved = ConicSolution.of(model.written.at(model.values), np.ones(N, dtype=bool))
    if solved.data.cones.p3d:
        with pytest.raises(onefit.UnsupportedModelError, match="powers"):
            solved.adjoint(np.ones(N))
