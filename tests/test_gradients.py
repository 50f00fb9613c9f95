"""Gradients of risks in hyperparameters and data against differences of problems that are solved again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp

from onefit import _linalg, gradients
from onefit.balance import Balance
from onefit.curvature import Dual, Independent, Pinned, factor
from onefit.fit import Fit
from onefit.leave_out.rescaling import curvature_of_refits
from onefit.leave_out.step import Step
from onefit.losses import (
    ConcomitantHuber,
    EpsilonInsensitive,
    Exponential,
    Gamma,
    Hinge,
    Huber,
    Logistic,
    Loss,
    Mixture,
    Multinomial,
    Poisson,
    Quantile,
    Squared,
    SquaredEpsilonInsensitive,
    SquaredHinge,
    Tweedie,
)
from onefit.metrics import Deviance, LinearMetric, LocationError, LogLoss, SquaredError
from onefit.penalties import (
    L1,
    L2,
    Box,
    ElasticNet,
    FusedLasso,
    GeneralizedLasso,
    GroupLasso,
    LInfinity,
    NuclearNorm,
    Penalty,
    Slope,
    SparseGroupLasso,
    TrendFilter,
)
from onefit.problem import Problem
from onefit.solvers.solve import solve

N, P = 45, 6
STEP = 1e-3
STENCIL = ((-2.0, 1.0), (-1.0, -8.0), (1.0, 8.0), (2.0, -1.0))
WEIGHTINGS = ["real", "integers and zeros", "mean", "mean, real", "mean, integers and zeros"]
RIDGES = {
    "one": lambda t: L2(1.5 * np.exp(t)),
    "one a feature": lambda t: L2(np.exp(t) * np.linspace(0.3, 3.0, P)),
}


class Model(NamedTuple):
    """A loss, how it is judged, responses that suit it, and the shape of its outputs."""

    loss: Loss
    response: LinearMetric
    respond: Callable
    outputs: tuple[int, ...] = ()


def _normal(eta, rng):
    return eta + rng.normal(size=eta.shape)


def _binary(eta, rng):
    return (eta + rng.logistic(size=eta.shape) > 0).astype(float)


def _counts(eta, rng):
    return rng.poisson(np.exp(0.5 * eta)).astype(float)


def _positive(eta, rng):
    return np.exp(0.5 * eta) * rng.gamma(2.0, 0.5, size=eta.shape)


def _classes(eta, rng):
    return np.digitize(eta + rng.logistic(size=eta.shape), [-1.0, 1.0]).astype(float)


def _three(eta, rng):
    return np.stack([_normal(factor * eta, rng) for factor in (1.0, -0.5, 0.2)], axis=1)


def _contaminated(eta, rng):
    return eta + rng.standard_t(3, size=eta.shape)


TWO = LogLoss(np.arange(2))
SMOOTH = {
    "squared": Model(Squared(), SquaredError(), _normal),
    "three outputs": Model(Squared(), SquaredError(), _three, (3,)),
    "logistic": Model(Logistic(), TWO, _binary),
    "squared hinge": Model(SquaredHinge(), TWO, _binary),
    "squared epsilon-insensitive": Model(SquaredEpsilonInsensitive(0.2), SquaredError(), _normal),
    "poisson": Model(Poisson(), Deviance(Poisson()), _counts),
    "gamma": Model(Gamma(), Deviance(Gamma()), _positive),
    "tweedie": Model(Tweedie(1.5), Deviance(Tweedie(1.5)), _counts),
    "huber": Model(Huber(), SquaredError(), _contaminated),
    "multinomial": Model(Multinomial(3), LogLoss(np.arange(3)), _classes, (3,)),
    "concomitant huber": Model(ConcomitantHuber(), LocationError(), _contaminated, (2,)),
}
CORNERS = {
    "hinge": Model(Hinge(), TWO, _binary),
    "median": Model(Quantile(0.5), SquaredError(), _normal),
    "quantile": Model(Quantile(0.3), SquaredError(), _normal),
    "absolute": Model(EpsilonInsensitive(0.0), SquaredError(), _normal),
    "epsilon-insensitive": Model(EpsilonInsensitive(0.3), SquaredError(), _normal),
}


def _weights(kind, n):
    rng = np.random.default_rng(11)
    if "integers" in kind:
        return rng.integers(0, 4, n).astype(float)
    return rng.uniform(0.3, 2.5, n) if "real" in kind else np.ones(n)


def _problem(model, penalty, *, n=N, p=P, fit_intercept=True, weighting="", seed=0, store=np.asarray):
    rng = np.random.default_rng(seed)
    X, truth = rng.normal(size=(n, p)) + 0.2, np.zeros(p)
    truth[:5] = [1.0, -1.0, 0.7, 0.7, 0.7][:p]
    y = model.respond(X @ truth + 0.3, rng)
    intercept = np.full(model.outputs, fit_intercept)
    if isinstance(model.loss, ConcomitantHuber):
        intercept[1] = True
    weights = _weights(weighting, n)
    return Problem(model.loss, penalty, store(X), y, weights, intercept, weighting.startswith("mean"))


def _suited(model, penalty_at):
    """The same penalty, which keeps the scale of a concomitant loss out of the features."""
    if not isinstance(model.loss, ConcomitantHuber):
        return penalty_at

    def held(t):
        alpha = np.repeat(np.broadcast_to(penalty_at(t).alpha, P)[:, None], 2, axis=1)
        alpha[:, 1] = np.inf
        return L2(alpha)

    return held


def _solved(problem, penalty: Penalty):
    return solve(Fit.at_start(replace(problem, penalty=penalty))).fit


def _five_points(function, step=STEP):
    terms = (weight * function(place * step) for place, weight in STENCIL)
    return sum(terms) / (12.0 * step)


def _change(penalty_at, fit, points=None):
    points = gradients.stencil() if points is None else points
    return gradients.tangent_change([penalty_at(place) for place in points.places], points, fit)


def _share(problem):
    return problem.weights / problem.weights.sum()


def _one_step(fit):
    return Step.of(fit, curvature_of_refits(fit)).taken(fit)


def _slopes_of_rows(response, problem):
    return lambda left_out: (_share(problem) * response.slopes(problem.y, left_out.eta).T).T


def _loo_risk(response, fit):
    return _share(fit.problem) @ response.losses(fit.problem.y, _one_step(fit).eta)


def _same_pattern(fit, there):
    """Whether two fits are on one piece of the penalty and of the loss."""
    return (
        there.tangent.size == fit.tangent.size
        and np.array_equal(there.tangent.support, fit.tangent.support)
        and np.array_equal(there.pinned, fit.pinned)
        and (fit.problem.loss.is_smooth or np.array_equal(there.hessian == 0, fit.hessian == 0))
    )


def _derivative(risk, problem, penalty_at, fit):
    """Derivative of a risk of fits along the penalty, by differences that stay on one piece."""
    for step in (STEP, STEP / 10, STEP / 100):
        near = (_solved(problem, penalty_at(place * step)) for place, _ in STENCIL)
        if all(_same_pattern(fit, there) for there in near):
            return _five_points(lambda t: risk(_solved(problem, penalty_at(t))), step)
    pytest.fail("the pattern changes at the fit")


def _check_leave_one_out(problem, response, penalty_at, rtol):
    fit = _solved(problem, penalty_at(0.0))
    left_out, cotangent = gradients.leave_one_out(fit, _slopes_of_rows(response, problem))
    np.testing.assert_allclose(left_out.eta, _one_step(fit).eta, rtol=1e-12)
    ours = cotangent.along(_change(penalty_at, fit))
    expected = _derivative(lambda there: _loo_risk(response, there), problem, penalty_at, fit)
    np.testing.assert_allclose(ours, expected, rtol=rtol)
    return fit


# --- leave-one-out ---------------------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.parametrize("ridge", RIDGES)
@pytest.mark.parametrize("name", SMOOTH)
def test_leave_one_out_of_smooth_penalties(name, ridge, fit_intercept):
    model = SMOOTH[name]
    penalty_at = _suited(model, RIDGES[ridge])
    problem = _problem(model, penalty_at(0.0), fit_intercept=fit_intercept)
    _check_leave_one_out(problem, model.response, penalty_at, 1e-6)


@pytest.mark.costly
@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("name", SMOOTH)
def test_leave_one_out_of_weighted_rows(name, weighting):
    model = SMOOTH[name]
    penalty_at = _suited(model, RIDGES["one a feature"])
    problem = _problem(model, penalty_at(0.0), weighting=weighting)
    _check_leave_one_out(problem, model.response, penalty_at, 1e-6)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_leave_one_out_without_intercept(weighting):
    model = SMOOTH["logistic"]
    problem = _problem(model, L2(1.0), weighting=weighting, fit_intercept=False)
    _check_leave_one_out(problem, model.response, RIDGES["one"], 1e-6)


@pytest.mark.parametrize("weighting", ["", *WEIGHTINGS])
@pytest.mark.parametrize("name", ["logistic", "multinomial"])
def test_leave_one_out_of_balanced_classes(name, weighting, fit_intercept):
    model = SMOOTH[name]
    problem = _problem(model, L2(1.0), weighting=weighting, fit_intercept=fit_intercept)
    classes, raw = problem.y.astype(int), problem.weights
    growth = raw.sum() / (np.bincount(classes, raw) * (classes.max() + 1))
    balanced = replace(problem, weights=raw * growth[classes], balance=Balance(classes, raw))
    _check_leave_one_out(balanced, model.response, RIDGES["one"], 1e-6)


def test_leave_one_out_in_every_storage(store):
    model = SMOOTH["logistic"]
    problem = _problem(model, L2(1.0), weighting="mean, real", store=store)
    _check_leave_one_out(problem, model.response, RIDGES["one"], 1e-6)


@pytest.mark.parametrize("storage", [sp.csr_array, sp.csc_array])
@pytest.mark.parametrize("name", ["squared", "three outputs", "multinomial"])
def test_leave_one_out_of_sparse_columns(name, storage, fit_intercept):
    model = SMOOTH[name]
    thinned = lambda X: storage(np.where(np.abs(X) > 0.5, X, 0.0))  # noqa: E731
    problem = _problem(model, L2(1.0), fit_intercept=fit_intercept, store=thinned)
    _check_leave_one_out(problem, model.response, RIDGES["one"], 1e-6)


@pytest.mark.parametrize("weighting", ["", "integers and zeros", "mean, real"])
@pytest.mark.parametrize("name", ["squared", "three outputs", "logistic", "poisson"])
def test_leave_one_out_in_the_dual(name, weighting, fit_intercept):
    model, p = SMOOTH[name], 70
    spread = np.linspace(5.0, 20.0, p)
    problem = _problem(model, L2(spread), p=p, weighting=weighting, fit_intercept=fit_intercept)
    fit = _check_leave_one_out(problem, model.response, lambda t: L2(spread * np.exp(t)), 1e-6)
    curvature = factor(fit)
    assert isinstance(curvature.factors[0] if isinstance(curvature, Independent) else curvature, Dual)


@pytest.mark.parametrize("name", ["squared", "logistic", "multinomial"])
def test_leave_one_out_of_dependent_columns(name, fit_intercept):
    model = SMOOTH[name]
    deficient = lambda X: np.column_stack([X, X[:, 0], X[:, 1] - X[:, 2], np.zeros(len(X))])  # noqa: E731
    problem = _problem(model, L2(1.0), fit_intercept=fit_intercept, store=deficient)
    _check_leave_one_out(problem, model.response, RIDGES["one"], 1e-6)


@pytest.mark.parametrize(
    "ridge", [L2(np.array([[0.5, 2.0, 4.0]])), L2(np.geomspace(0.5, 8.0, 18).reshape(P, 3))]
)
def test_leave_one_out_of_outputs_with_strengths_of_their_own(ridge, fit_intercept):
    model = SMOOTH["three outputs"]
    strength = np.broadcast_to(ridge.alpha, (P, 3))
    problem = _problem(model, ridge, fit_intercept=fit_intercept)
    fit = _check_leave_one_out(problem, model.response, lambda t: L2(strength * np.exp(t)), 1e-6)
    assert len(factor(fit).factors) == 3


@pytest.mark.parametrize("weighting", ["", "mean, real"])
@pytest.mark.parametrize("name", ["squared", "three outputs", "logistic", "multinomial", "concomitant huber"])
def test_leave_one_out_where_some_features_have_no_penalty(name, weighting):
    model = SMOOTH[name]
    penalty_at = _suited(model, lambda t: L2(np.exp(t) * np.array([0.0, 0.0, 1.0, 1.0, 2.0, 2.0])))
    problem = _problem(model, penalty_at(0.0), weighting=weighting)
    _check_leave_one_out(problem, model.response, penalty_at, 1e-6)


@pytest.mark.parametrize("name", ["squared", "logistic", "multinomial"])
def test_leave_one_out_of_a_singular_curvature(name, fit_intercept):
    """Two equal columns without a penalty: nothing that is predicted depends on how they share."""
    model = SMOOTH[name]
    strength = np.array([0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0])
    twice = lambda X: np.column_stack([X, X[:, 0]])  # noqa: E731
    problem = _problem(model, L2(strength), fit_intercept=fit_intercept, store=twice)
    _check_leave_one_out(problem, model.response, lambda t: L2(strength * np.exp(t)), 1e-6)


def _one_step_of_kinks(fit):
    """Every row on its own, by dense algebra: on a piece its slope leaves, on a kink its hold."""
    h = np.array(factor(fit).quadratic_forms())
    return fit.eta + np.where(np.isinf(h), 0.0, h) * fit.gradient


def _loo_risk_of_kinks(response, fit):
    return _share(fit.problem) @ response.losses(fit.problem.y, _one_step_of_kinks(fit))


@pytest.mark.parametrize("ridge", RIDGES)
@pytest.mark.parametrize("weighting", ["", "real"])
@pytest.mark.parametrize("name", CORNERS)
def test_leave_one_out_with_rows_in_kinks(name, weighting, ridge, fit_intercept):
    model, penalty_at = CORNERS[name], lambda t: RIDGES[ridge](t).scaled(10.0)
    problem = _problem(model, penalty_at(0.0), weighting=weighting, fit_intercept=fit_intercept)
    fit = _solved(problem, penalty_at(0.0))
    assert fit.pinned.any()
    left_out, cotangent = gradients.leave_one_out(fit, _slopes_of_rows(model.response, problem))
    np.testing.assert_allclose(left_out.eta, _one_step_of_kinks(fit), rtol=1e-12)
    ours = cotangent.along(_change(penalty_at, fit))
    risk = lambda there: _loo_risk_of_kinks(model.response, there)  # noqa: E731
    expected = _derivative(risk, problem, penalty_at, fit)
    np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("case", ["mean-scaled", "kinks"])
def test_leave_one_out_with_rows_in_kinks_refuses(case):
    model = CORNERS["median"]
    weighting = "mean" if case == "mean-scaled" else ""
    problem = _problem(model, L2(10.0) if case == "mean-scaled" else L1(3.0), weighting=weighting)
    with pytest.raises(TypeError, match="take differences of the risk"):
        gradients.leave_one_out(solve(Fit.at_start(problem)).fit, _slopes_of_rows(model.response, problem))


GROUPS = np.repeat(np.arange(4), 3)
HEAVY = np.array([1.0, 1.5, 3.0, 6.0])  # weights by which the last groups stay out
KINKED = {
    "lasso": lambda t: L1(2.0 * np.exp(t)),
    "lasso a feature": lambda t: L1(np.exp(t) * np.linspace(1.0, 3.0, 12)),
    "net, strength": lambda t: ElasticNet(3.0 * np.exp(t), 0.4),
    "net, share": lambda t: ElasticNet(3.0, 0.4 + t),
    "ridge and lasso": lambda t: L2(np.exp(t)) + L1(1.5),
    "group": lambda t: GroupLasso(GROUPS, np.exp(t), weights=HEAVY),
    "ridge and group": lambda t: L2(np.exp(t)) + GroupLasso(GROUPS, 1.0, weights=HEAVY),
    "sparse group, strength": lambda t: SparseGroupLasso(GROUPS, np.exp(t), 0.3, weights=HEAVY),
    "sparse group, share": lambda t: SparseGroupLasso(GROUPS, 1.5, 0.3 + t, weights=HEAVY),
    "fused": lambda t: FusedLasso(np.exp(t)),
    "ridge of fused": lambda t: L2(np.exp(t)) + FusedLasso(2.0),
    "fused beside ridge": lambda t: L2(1.0) + FusedLasso(2.0 * np.exp(t)),
    "generalised": lambda t: GeneralizedLasso(np.diff(np.eye(12), axis=0)[::2], 1.2 * np.exp(t)),
    "slope": lambda t: Slope(np.linspace(2.0, 0.5, 12), np.exp(t)),
    "largest": lambda t: LInfinity(15.0 * np.exp(t)),
    "ridge and slope": lambda t: L2(np.exp(t)) + Slope(np.linspace(2.0, 0.5, 12), 1.0),
    "trend": lambda t: TrendFilter(1, np.exp(t)),
    "ridge in a box": lambda t: L2(2.0 * np.exp(t)) + Box(-0.2, 0.4),
    "lasso in a box": lambda t: L1(2.0 * np.exp(t)) + Box(lower=0.0),
    "net in a box": lambda t: ElasticNet(3.0, 0.4 + t) + Box(-0.2, 0.4),
}


def _kinked(name, penalty):
    """The penalty at a strength at which some coefficients are held, whatever the loss weighs."""
    strength = {"logistic": 2.5, "multinomial": 3.0, "huber": 5.0}.get(name, 8.0)
    return lambda t: KINKED[penalty](t).scaled(strength)


@pytest.mark.costly
@pytest.mark.parametrize("weighting", ["", "real", "mean", "mean, real"])
@pytest.mark.parametrize("penalty", KINKED)
@pytest.mark.parametrize("name", ["squared", "logistic"])
def test_leave_one_out_of_kinked_penalties(name, penalty, weighting):
    model, penalty_at = SMOOTH[name], _kinked(name, penalty)
    problem = _problem(model, penalty_at(0.0), n=60, p=12, weighting=weighting)
    fit = _check_leave_one_out(problem, model.response, penalty_at, 1e-7)
    assert 0 < fit.tangent.size < 12


@pytest.mark.parametrize("penalty", KINKED)
def test_leave_one_out_of_kinked_penalties_without_intercept(penalty):
    model, penalty_at = SMOOTH["logistic"], KINKED[penalty]
    problem = _problem(model, penalty_at(0.0), n=60, p=12, fit_intercept=False)
    fit = _check_leave_one_out(problem, model.response, penalty_at, 1e-7)
    assert 0 < fit.tangent.size < 12


@pytest.mark.parametrize("penalty", ["lasso", "net, strength", "net, share"])
@pytest.mark.parametrize("name", ["three outputs", "multinomial", "poisson", "huber"])
def test_leave_one_out_of_kinked_penalties_of_other_losses(name, penalty):
    model, penalty_at = SMOOTH[name], _kinked(name, penalty)
    problem = _problem(model, penalty_at(0.0), n=60, p=12)
    fit = _check_leave_one_out(problem, model.response, penalty_at, 1e-7)
    assert 0 < fit.tangent.size < fit.coef.size


FEW = np.repeat([1.0, 20.0], [4, 16])


@pytest.mark.parametrize(
    "fitted",
    [L1(5.0), ElasticNet(8.0, 0.6), GroupLasso(np.arange(60) // 3, 2.0, weights=FEW)],
    ids=["lasso", "net", "group"],
)
@pytest.mark.parametrize("weighting", ["", "mean, integers and zeros"])
def test_leave_one_out_of_a_few_of_many_columns(fitted, weighting, fit_intercept):
    model = SMOOTH["squared"]
    problem = _problem(model, fitted, p=60, weighting=weighting, fit_intercept=fit_intercept)
    _check_leave_one_out(problem, model.response, lambda t: fitted.scaled(np.exp(t)), 1e-7)


@pytest.mark.parametrize("length", [1.0, 0.1, 0.03, 1e-3, 1e-4])
def test_leave_one_out_of_a_group_that_has_just_entered(length):
    """A response of which the solution is known: two groups, of which one is ever so short."""
    rng = np.random.default_rng(0)
    X, noise = rng.normal(size=(40, 4)), rng.normal(size=40)
    penalty_at = lambda t: GroupLasso([0, 0, 1, 1], 2.0 * np.exp(t))  # noqa: E731
    coef, lift = np.array([1.0, -1.0, 0.6 * length, 0.8 * length]), X @ np.linalg.inv(X.T @ X)
    y = X @ coef + noise + lift @ (penalty_at(0.0).tangent(coef).gradient - X.T @ noise)
    problem = Problem(Squared(), penalty_at(0.0), X, y, np.ones(40), np.array(False))
    fit = solve(Fit.at_start(problem)).fit
    np.testing.assert_allclose(fit.coef, coef, atol=1e-10)
    _, cotangent = gradients.leave_one_out(fit, _slopes_of_rows(SquaredError(), problem))
    ours = cotangent.along(_change(penalty_at, fit))
    expected = _five_points(
        lambda t: _loo_risk(SquaredError(), _solved(problem, penalty_at(t))), 1e-3 * length
    )
    np.testing.assert_allclose(ours, expected, rtol=1e-4)


@pytest.mark.parametrize("weighting", ["", "mean"])
@pytest.mark.parametrize(
    "penalty", [L1(1e4), GroupLasso(GROUPS[::2], 1e4), FusedLasso(1e4)], ids=["lasso", "group", "fused"]
)
def test_a_penalty_that_leaves_nothing_to_bend_has_no_gradient(penalty, weighting):
    problem = _problem(SMOOTH["squared"], penalty, weighting=weighting)
    fit = solve(Fit.at_start(problem)).fit
    _, cotangent = gradients.leave_one_out(fit, _slopes_of_rows(SquaredError(), problem))
    assert cotangent.along(_change(lambda t: penalty.scaled(np.exp(t)), fit)) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("weighting", ["", "integers and zeros"])
def test_the_gradient_of_ridge_is_that_of_exact_refits(weighting, fit_intercept):
    """Refits by normal equations of their own: nothing here comes from the library."""
    problem = _problem(SMOOTH["squared"], L2(1.0), weighting=weighting, fit_intercept=fit_intercept)
    fit = solve(Fit.at_start(problem)).fit
    _, cotangent = gradients.leave_one_out(fit, _slopes_of_rows(SquaredError(), problem))
    ours = cotangent.along(_change(lambda t: L2(np.exp(t)), fit))
    expected = _five_points(lambda t: _exact_risk_of_ridge(problem, np.full(P, np.exp(t))))
    np.testing.assert_allclose(ours, expected, rtol=1e-8)


def _exact_risk_of_ridge(problem, strengths):
    Z, C = problem.X, np.diag(strengths)
    if problem.intercept:
        Z = np.column_stack([Z, np.ones(problem.n)])
        C = np.diag(np.append(strengths, 0.0))
    total = 0.0
    for i, share in enumerate(_share(problem)):
        weights = problem.weights.copy()
        weights[i] = 0.0
        theta = np.linalg.solve((Z.T * weights) @ Z + C, Z.T @ (weights * problem.y))
        total += share * (problem.y[i] - Z[i] @ theta) ** 2
    return total


# --- one strength a feature ------------------------------------------------------------------------

BY_FEATURE = {
    "ridge": L2(np.geomspace(0.3, 5.0, P)),
    "lasso": L1(np.linspace(1.0, 6.0, P)),
    "net": ElasticNet(np.linspace(1.0, 8.0, P), 0.6),
}


@pytest.mark.parametrize("penalty", BY_FEATURE)
@pytest.mark.parametrize("name", ["squared", "logistic", "poisson", "three outputs", "multinomial"])
def test_one_component_a_feature(name, penalty, fit_intercept):
    model, penalty = SMOOTH[name], BY_FEATURE[penalty]
    problem = _problem(model, penalty, weighting="mean, real", fit_intercept=fit_intercept)
    fit = solve(Fit.at_start(problem)).fit
    _, cotangent = gradients.leave_one_out(fit, _slopes_of_rows(model.response, problem))
    change = _change(lambda t: penalty.scaled(np.exp(t)), fit)
    ours = cotangent.by_coordinate(change)
    assert ours.shape == (P,)
    np.testing.assert_allclose(ours.sum(), cotangent.along(change), rtol=1e-10)
    for j in range(P):

        def risk(t, j=j):
            own = np.ones(P)
            own[j] = np.exp(t)
            return _loo_risk(model.response, _solved(problem, penalty.scaled(own)))

        np.testing.assert_allclose(ours[j], _five_points(risk), atol=1e-7 * np.abs(ours).max())


# --- one split -------------------------------------------------------------------------------------

TESTED = np.arange(0, N, 4)  # an odd number of rows is left, so that medians are unique


def _split(problem):
    weights = problem.weights.copy()
    weights[TESTED] = 0.0
    return replace(problem, weights=weights)


def _held_out_risk(response, share, fit):
    return share @ response.losses(fit.problem.y[TESTED], fit.eta[TESTED])


def _check_held_out(model, problem, penalty_at, rtol):
    problem = _split(problem)
    share = np.random.default_rng(3).uniform(0.5, 2.0, TESTED.size)
    fit = _solved(problem, penalty_at(0.0))
    by_row = (share * model.response.slopes(problem.y[TESTED], fit.eta[TESTED]).T).T
    change = _change(penalty_at, fit)
    ours = gradients.held_out(fit, TESTED, by_row).along(change)
    given = gradients.held_out(fit, TESTED, by_row, factor(fit)).along(change)
    risk = lambda there: _held_out_risk(model.response, share, there)  # noqa: E731
    expected = _derivative(risk, problem, penalty_at, fit)
    np.testing.assert_allclose([ours, given], expected, rtol=rtol)
    return fit


@pytest.mark.parametrize("ridge", RIDGES)
@pytest.mark.parametrize("weighting", ["", "real"])
@pytest.mark.parametrize("name", SMOOTH)
def test_held_out(name, weighting, ridge, fit_intercept):
    model = SMOOTH[name]
    penalty_at = _suited(model, RIDGES[ridge])
    problem = _problem(model, penalty_at(0.0), weighting=weighting, fit_intercept=fit_intercept)
    _check_held_out(model, problem, penalty_at, 1e-6)


@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("weighting", ["", "real", "mean, integers and zeros", "balanced"])
@pytest.mark.parametrize("name", ["squared", "logistic", "poisson"])
def test_rows_held_out_alone_are_differentiated_side_by_side(name, weighting, store, fit_intercept):
    """The sum over rows of the gradients of their own problems, in the penalty and in the loss."""
    model, penalty_at = SMOOTH[name], lambda t: ElasticNet(6.0 * np.exp(t), 0.5)
    problem = _problem(model, penalty_at(0.0), weighting=weighting, fit_intercept=fit_intercept, store=store)
    if weighting == "balanced":
        classes = (problem.y > np.median(problem.y)).astype(int)
        problem = replace(problem, balance=Balance(classes, problem.weights))
    rows = np.flatnonzero(problem.weights > 0)[3:17]
    alone = [solve(Fit.at_start(problem.without(int(i)))).fit for i in rows]
    own = np.array([fit.eta[i] for i, fit in zip(rows, alone, strict=True)])
    by_row = model.response.slopes(problem.y[rows], own)
    coef, level = np.stack([fit.coef for fit in alone], axis=1), np.array([fit.intercept for fit in alone])
    outputs, ours = gradients.held_out_alone(_solved(problem, penalty_at(0.0)), rows, coef, level, by_row)
    assert gradients.stand_side_by_side(_solved(problem, penalty_at(0.0)))
    losses, of_penalty, of_loss = [problem.loss], 0.0, 0.0
    for i, fit, slope in zip(rows, alone, by_row, strict=True):
        one = gradients.held_out(fit, np.array([i]), np.array([slope]))
        share = problem.kept_share(int(i))
        of_penalty += one.along(_change(lambda t, share=share: penalty_at(t).scaled(share), fit))
        of_loss += one.along_loss(gradients.loss_change(losses, np.ones(1), fit))
    np.testing.assert_allclose(ours.along(_change(penalty_at, outputs)), of_penalty, rtol=1e-9)
    found = ours.along_loss(gradients.loss_change(losses, np.ones(1), outputs))
    np.testing.assert_allclose(found, of_loss, rtol=1e-9)


@pytest.mark.costly
@pytest.mark.parametrize("kernel", [False, True])
@pytest.mark.parametrize("weighting", ["", "real", "integers and zeros"])
@pytest.mark.parametrize("name", CORNERS)
def test_rows_held_out_alone_of_losses_with_kinks(name, weighting, kernel, fit_intercept):
    """The sum over rows of the gradients of their own problems: penalty, loss with its kinks, Gram matrix."""
    model, penalty_at = CORNERS[name], lambda t: L2(10.0 * np.exp(t))
    problem = _problem(model, penalty_at(0.0), weighting=weighting, fit_intercept=fit_intercept)
    problem = replace(problem, X=_linalg.RowGram(problem.X @ problem.X.T)) if kernel else problem
    rows = np.flatnonzero(problem.weights > 0)[3:17]
    alone = [solve(Fit.at_start(problem.without(int(i)))).fit for i in rows]
    alone = [Fit(fit.problem, fit.coef, fit.intercept) for fit in alone]  # which tells kinks by η alone
    own = np.array([fit.eta[i] for i, fit in zip(rows, alone, strict=True)])
    by_row = model.response.slopes(problem.y[rows], own)
    coef, level = np.stack([fit.coef for fit in alone], axis=1), np.array([fit.intercept for fit in alone])
    whole = _solved(problem, penalty_at(0.0))
    assert gradients.stand_side_by_side(whole)
    outputs, ours = gradients.held_out_alone(whole, rows, coef, level, by_row)
    singly = [
        gradients.held_out(fit, np.array([i]), np.array([slope]))
        for i, fit, slope in zip(rows, alone, by_row, strict=True)
    ]
    of_penalty = sum(one.along(_change(penalty_at, fit)) for one, fit in zip(singly, alone, strict=True))
    np.testing.assert_allclose(ours.along(_change(penalty_at, outputs)), of_penalty, rtol=1e-9)
    of_loss = sum(
        one.along_loss(gradients.loss_change([problem.loss], np.ones(1), fit))
        for one, fit in zip(singly, alone, strict=True)
    )
    found = ours.along_loss(gradients.loss_change([problem.loss], np.ones(1), outputs))
    np.testing.assert_allclose(found, of_loss, rtol=1e-9)
    if kernel:
        of_gram = gradients.in_gram(singly)
        np.testing.assert_allclose(gradients.in_gram([ours]), of_gram, atol=1e-9 * np.abs(of_gram).max())


def test_rows_held_out_alone_without_a_row_on_a_kink():
    """Nothing holds the intercept there: it does not move."""
    problem = _problem(CORNERS["quantile"], L2(10.0), n=12)
    whole = _solved(problem, L2(10.0))
    rows = np.arange(2)
    off = np.random.default_rng(0).normal(size=(P, 2))
    _, ours = gradients.held_out_alone(whole, rows, off, np.zeros(2), np.ones(2))
    np.testing.assert_allclose(ours.gradient, -problem.X[rows].T / 10.0)
    assert not ours.loss.kink.any()


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("blocks", [False, True])
def test_small_systems_are_solved_as_by_a_factor_each(blocks, copies, fit_intercept, monkeypatch):
    """On patterns of their own, of columns far from zero, and of copies, which make them singular."""
    monkeypatch.setattr(_linalg, "BLOCK_SIZE", 64 if blocks else _linalg.BLOCK_SIZE)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 6)) + 1e3 * fit_intercept
    X[:, 5] = X[:, 4] if copies else X[:, 5]
    y, levels = (rng.random((40, 7)) < 0.5).astype(float), np.full(7, fit_intercept)
    coef = rng.normal(size=(6, 7)) * (rng.random((6, 7)) < 0.6)
    coef[4:] = 1.0
    problem = Problem(Logistic(), L1(0.1) if copies else ElasticNet(1.0, 0.9), X, y, np.ones(40), levels)
    fit = Fit(problem, coef, -(X.mean(axis=0) @ coef) * fit_intercept)
    right = gradients.solution.of_rows(fit, rng.normal(size=(40, 7)))
    masked = right._replace(coef=np.where(coef != 0, right.coef, 0.0))
    system = gradients.solution.SideBySide.of(fit)
    found, known = system.solve(masked), factor(fit).solve(masked)
    along, expected = fit.problem.linear_predictor(*found), fit.problem.linear_predictor(*known)
    np.testing.assert_allclose(along, expected, atol=1e-6 * np.abs(expected).max())
    monkeypatch.setattr(gradients.solution, "SMALL", 5)
    assert gradients.solution.SideBySide.of(fit) is None


@pytest.mark.parametrize("ridge", RIDGES)
@pytest.mark.parametrize("weighting", ["", "real"])
@pytest.mark.parametrize("name", CORNERS)
def test_held_out_with_rows_in_kinks(name, weighting, ridge, fit_intercept):
    model, penalty_at = CORNERS[name], lambda t: RIDGES[ridge](t).scaled(10.0)
    problem = _problem(model, penalty_at(0.0), weighting=weighting, fit_intercept=fit_intercept)
    fit = _check_held_out(model, problem, penalty_at, 1e-6)
    assert 0 < fit.pinned.sum() < P + fit_intercept  # at a vertex nothing would move
    assert isinstance(factor(fit), Pinned)


@pytest.mark.parametrize("name", ["squared", "logistic", "hinge", "median"])
def test_held_out_with_more_columns_than_rows(name, fit_intercept):
    model = {**SMOOTH, **CORNERS}[name]
    problem = _problem(model, L2(80.0), p=70, fit_intercept=fit_intercept)
    _check_held_out(model, problem, lambda t: L2(80.0 * np.exp(t)), 1e-6)


@pytest.mark.parametrize("penalty", KINKED)
@pytest.mark.parametrize("name", ["squared", "logistic"])
def test_held_out_of_kinked_penalties(name, penalty):
    model, penalty_at = SMOOTH[name], _kinked(name, penalty)
    problem = _problem(model, penalty_at(0.0), n=60, p=12)
    _check_held_out(model, problem, penalty_at, 1e-7)


@pytest.mark.parametrize("name", ["squared", "logistic"])
def test_held_out_of_matrices_of_low_rank(name, fit_intercept):
    model, strength = SMOOTH[name], 15.0 if name == "squared" else 6.0
    problem = _problem(model, NuclearNorm((3, 4)), n=60, p=12, fit_intercept=fit_intercept)
    fit = _check_held_out(model, problem, lambda t: NuclearNorm((3, 4), strength * np.exp(t)), 1e-6)
    assert 0 < fit.tangent.size < 12


# --- kinks: the small system, and losses that change -----------------------------------------------


@pytest.mark.parametrize("kernel", [False, True])
@pytest.mark.parametrize("name", CORNERS)
def test_rows_in_kinks_answer_as_the_whole_curvature_does(name, kernel, fit_intercept):
    """u = K⁻¹ v and the forces on the rows, from a system of their size."""
    model = CORNERS[name]
    problem = _problem(model, L2(10.0), fit_intercept=fit_intercept)
    problem = replace(problem, X=_linalg.RowGram(problem.X @ problem.X.T)) if kernel else problem
    fit = solve(Fit.at_start(problem)).fit
    small, whole = gradients.InCorners.of(fit), factor(fit)
    rng = np.random.default_rng(0)
    v = gradients.of_rows(fit, rng.normal(size=N))
    for ours, theirs in zip(small.solve(v), whole.solve(v), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-9)
    np.testing.assert_allclose(small.hold(v), whole.hold(v), atol=1e-9)


def test_the_small_system_is_for_ridge_penalties_and_kinks():
    for model, penalty in (("median", L1(3.0)), ("median", L2(np.r_[0.0, np.ones(P - 1)]))):
        assert gradients.InCorners.of(solve(Fit.at_start(_problem(CORNERS[model], penalty))).fit) is None
    assert gradients.InCorners.of(solve(Fit.at_start(_problem(SMOOTH["huber"], L2()))).fit) is None


LOSSES = {
    "huber": (SMOOTH["huber"], lambda t: Huber(1.35 * np.exp(t))),
    "tweedie": (SMOOTH["tweedie"], lambda t: Tweedie(1.5 + t)),
    "mixture": (SMOOTH["logistic"], lambda t: Mixture([Logistic(), Exponential()], [0.4 + t, 0.6 - t])),
    "concomitant huber": (SMOOTH["concomitant huber"], lambda t: ConcomitantHuber(1.35 * np.exp(t))),
    "quantile": (CORNERS["quantile"], lambda t: Quantile(0.3 + t)),
    "epsilon-insensitive": (CORNERS["epsilon-insensitive"], lambda t: EpsilonInsensitive(0.3 + t)),
    "squared epsilon": (
        SMOOTH["squared epsilon-insensitive"],
        lambda t: SquaredEpsilonInsensitive(0.2 + t),
    ),
}


def _along_loss(cotangent, loss_at, fit):
    points = gradients.stencil(width=1e-3)
    losses = [loss_at(place) for place in points.places]
    return cotangent.along_loss(gradients.loss_change(losses, points.weights, fit))


def _of_losses(risk, problem, loss_at, fit):
    """Derivative of a risk of fits along the loss, by differences that stay on one piece."""
    for step in (1e-3, 1e-4, 1e-5):
        solved = {
            place: solve(Fit.at_start(replace(problem, loss=loss_at(place * step)))).fit
            for place, _ in STENCIL
        }
        if all(_same_pattern(fit, there) for there in solved.values()):
            return sum(weight * risk(solved[place]) for place, weight in STENCIL) / (12.0 * step)
    pytest.fail("the pattern changes at the fit")


@pytest.mark.parametrize("weighting", ["", "real"])
@pytest.mark.parametrize("name", LOSSES)
def test_held_out_as_the_loss_changes(name, weighting, fit_intercept):
    model, loss_at = LOSSES[name]
    penalty = _suited(model, lambda t: L2(3.0 * np.exp(t)))(0.0)
    problem = _problem(model, penalty, weighting=weighting, fit_intercept=fit_intercept)
    problem = _split(replace(problem, loss=loss_at(0.0)))
    share = np.random.default_rng(3).uniform(0.5, 2.0, TESTED.size)
    fit = solve(Fit.at_start(problem)).fit
    by_row = (share * model.response.slopes(problem.y[TESTED], fit.eta[TESTED]).T).T
    ours = _along_loss(gradients.held_out(fit, TESTED, by_row), loss_at, fit)
    risk = lambda there: _held_out_risk(model.response, share, there)  # noqa: E731
    np.testing.assert_allclose(ours, _of_losses(risk, problem, loss_at, fit), rtol=1e-6)


@pytest.mark.parametrize("weighting", ["", "real", "mean, real"])
@pytest.mark.parametrize("name", LOSSES)
def test_leave_one_out_as_the_loss_changes(name, weighting, fit_intercept):
    model, loss_at = LOSSES[name]
    if model in CORNERS.values() and weighting.startswith("mean"):
        pytest.skip("refits of a penalty that shrinks have no gradient on kinks")
    penalty = _suited(model, lambda t: L2(3.0 * np.exp(t)))(0.0)
    problem = _problem(model, penalty, weighting=weighting, fit_intercept=fit_intercept)
    problem = replace(problem, loss=loss_at(0.0))
    fit = solve(Fit.at_start(problem)).fit
    _, cotangent = gradients.leave_one_out(fit, _slopes_of_rows(model.response, problem))
    risk_of = _loo_risk_of_kinks if problem.loss.is_kinked else _loo_risk
    expected = _of_losses(lambda there: risk_of(model.response, there), problem, loss_at, fit)
    np.testing.assert_allclose(_along_loss(cotangent, loss_at, fit), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["huber", "tweedie", "mixture"])
def test_degrees_of_freedom_as_the_loss_changes(name, fit_intercept):
    model, loss_at = LOSSES[name]
    problem = replace(_problem(model, L2(3.0), fit_intercept=fit_intercept), loss=loss_at(0.0))
    fit = solve(Fit.at_start(problem)).fit
    ours = _along_loss(_of_gcv(model, problem, fit), loss_at, fit)
    expected = _of_losses(lambda there: _gcv(model.response, there), problem, loss_at, fit)
    np.testing.assert_allclose(ours, expected, rtol=1e-6)


def test_gradients_of_2017_are_for_penalties():
    problem = _problem(SMOOTH["huber"], L2(1.0))
    fit = solve(Fit.at_start(problem)).fit
    cotangent = gradients.gradient_2017(fit, _slopes_of_rows(SquaredError(), problem))
    with pytest.raises(TypeError, match="changes of the penalty only"):
        _along_loss(cotangent, lambda t: Huber(1.35 + t), fit)
    with pytest.raises(TypeError, match="changes of the penalty only"):
        gradients.in_gram([cotangent])


# --- kernels ---------------------------------------------------------------------------------------

KERNELS = {
    "rbf": lambda X, t: np.exp(-0.2 * np.exp(t) * np.sum((X[:, None] - X) ** 2, axis=2)),
    "polynomial": lambda X, t: (1.0 + 0.1 * np.exp(t) * X @ X.T) ** 2,
}
OF_KERNELS = {name: SMOOTH[name] for name in ("squared", "three outputs", "logistic", "huber")} | CORNERS


def _kernel_problem(name, kernel, *, weighting="", fit_intercept=True):
    """The problem as a function of the width of its kernel."""
    model = OF_KERNELS[name]
    penalty = L2(np.array([[0.5, 1.0, 2.0]]) if model.outputs else 0.3)
    problem = _problem(model, penalty, weighting=weighting, fit_intercept=fit_intercept)
    return model, lambda t: replace(problem, X=_linalg.RowGram(KERNELS[kernel](problem.X, t)))


def _along_gram(cotangent, at):
    points = gradients.stencil()
    change = sum(w * at(t).X.gram for t, w in zip(points.places, points.weights, strict=True))
    return np.sum(gradients.in_gram([cotangent]) * change)


def _of_widths(risk, at, fit):
    """Derivative of a risk of fits along the width, by differences that stay on one piece."""
    for step in (1e-3, 1e-4, 1e-5, 1e-6):
        solved = {place: solve(Fit.at_start(at(place * step))).fit for place, _ in STENCIL}
        if all(_same_pattern(fit, there) for there in solved.values()):
            return sum(weight * risk(solved[place]) for place, weight in STENCIL) / (12.0 * step)
    pytest.fail("the pattern changes at the fit")


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("weighting", ["", "real"])
@pytest.mark.parametrize("name", OF_KERNELS)
def test_held_out_as_the_kernel_changes(name, weighting, kernel, fit_intercept):
    model, whole = _kernel_problem(name, kernel, weighting=weighting, fit_intercept=fit_intercept)
    at = lambda t: _split(whole(t))  # noqa: E731
    share = np.random.default_rng(3).uniform(0.5, 2.0, TESTED.size)
    fit = solve(Fit.at_start(at(0.0))).fit
    by_row = (share * model.response.slopes(fit.problem.y[TESTED], fit.eta[TESTED]).T).T
    ours = _along_gram(gradients.held_out(fit, TESTED, by_row), at)
    expected = _of_widths(lambda there: _held_out_risk(model.response, share, there), at, fit)
    np.testing.assert_allclose(ours, expected, rtol=1e-6)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("weighting", ["", "real"])
@pytest.mark.parametrize("name", OF_KERNELS)
def test_leave_one_out_as_the_kernel_changes(name, weighting, kernel, fit_intercept):
    model, at = _kernel_problem(name, kernel, weighting=weighting, fit_intercept=fit_intercept)
    fit = solve(Fit.at_start(at(0.0))).fit
    _, cotangent = gradients.leave_one_out(fit, _slopes_of_rows(model.response, fit.problem))
    risk_of = _loo_risk_of_kinks if fit.problem.loss.is_kinked else _loo_risk
    expected = _of_widths(lambda there: risk_of(model.response, there), at, fit)
    np.testing.assert_allclose(_along_gram(cotangent, at), expected, rtol=1e-6)


@pytest.mark.parametrize("weighting", ["", "real"])
@pytest.mark.parametrize("name", OF_KERNELS)
def test_leave_one_out_of_kernels_as_the_penalty_changes(name, weighting, fit_intercept):
    model, at = _kernel_problem(name, "rbf", weighting=weighting, fit_intercept=fit_intercept)
    problem = at(0.0)
    penalty_at = lambda t: problem.penalty.scaled(np.exp(t))  # noqa: E731
    fit = _solved(problem, penalty_at(0.0))
    _, cotangent = gradients.leave_one_out(fit, _slopes_of_rows(model.response, problem))
    risk_of = _loo_risk_of_kinks if problem.loss.is_kinked else _loo_risk
    risk = lambda there: risk_of(model.response, there)  # noqa: E731
    expected = _of_widths(risk, lambda t: replace(problem, penalty=penalty_at(t)), fit)
    np.testing.assert_allclose(cotangent.along(_change(penalty_at, fit)), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", ["squared", "logistic", "huber"])
def test_degrees_of_freedom_as_the_kernel_changes(name, kernel, fit_intercept):
    model, at = _kernel_problem(name, kernel, fit_intercept=fit_intercept)
    fit = solve(Fit.at_start(at(0.0))).fit
    cotangent = _of_gcv(model, fit.problem, fit)
    expected = _of_widths(lambda there: _gcv(model.response, there), at, fit)
    np.testing.assert_allclose(_along_gram(cotangent, at), expected, rtol=1e-6)
    penalty_at = lambda t: L2(0.3 * np.exp(t))  # noqa: E731
    expected = _derivative(lambda there: _gcv(model.response, there), fit.problem, penalty_at, fit)
    np.testing.assert_allclose(cotangent.along(_change(penalty_at, fit)), expected, rtol=1e-6)


def test_a_linear_kernel_is_ridge():
    """The derivative in the strength is that of the primal; in a factor on the kernel it is minus that."""
    problem = _split(_problem(SMOOTH["logistic"], L2(2.0)))
    share, answers = np.ones(TESTED.size), []
    for X in (problem.X, _linalg.RowGram(problem.X @ problem.X.T)):
        fit = solve(Fit.at_start(replace(problem, X=X))).fit
        by_row = share * TWO.slopes(problem.y[TESTED], fit.eta[TESTED])
        cotangent = gradients.held_out(fit, TESTED, by_row)
        answers.append(cotangent.along(_change(lambda t: L2(2.0 * np.exp(t)), fit)))
    assert answers[0] == pytest.approx(answers[1], rel=1e-9)
    assert np.sum(gradients.in_gram([cotangent]) * X.gram) == pytest.approx(-answers[0], rel=1e-9)


def test_kernels_whose_refits_rescale_are_refused():
    _, at = _kernel_problem("squared", "rbf", weighting="mean")
    fit = solve(Fit.at_start(at(0.0))).fit
    with pytest.raises(TypeError, match="take differences of the risk"):
        gradients.leave_one_out(fit, _slopes_of_rows(SquaredError(), fit.problem))


# --- degrees of freedom ----------------------------------------------------------------------------


def _df(fit):
    return float(np.sum(fit.hessian * factor(fit).quadratic_forms()))


def _deviance(response, fit):
    return float(fit.problem.weights @ response.losses(fit.problem.y, fit.eta))


def _gcv(response, fit):
    """D / (1 − df / n)²."""
    return _deviance(response, fit) / (1.0 - _df(fit) / fit.problem.n) ** 2


def _of_gcv(model, problem, fit):
    n = problem.n
    kept = 1.0 - _df(fit) / n
    by_eta = problem.weights * model.response.slopes(problem.y, fit.eta) / kept**2
    owed = 2.0 / n * _deviance(model.response, fit) / kept**3
    return gradients.degrees_of_freedom(fit, factor(fit), owed, by_eta)


def _check_degrees_of_freedom(model, problem, penalty_at, rtol=1e-7):
    fit = _solved(problem, penalty_at(0.0))
    ours = _of_gcv(model, problem, fit).along(_change(penalty_at, fit))
    expected = _derivative(lambda there: _gcv(model.response, there), problem, penalty_at, fit)
    np.testing.assert_allclose(ours, expected, rtol=rtol)


@pytest.mark.parametrize("ridge", RIDGES)
@pytest.mark.parametrize("weighting", ["", "integers and zeros", "real"])
@pytest.mark.parametrize("name", ["squared", "logistic", "poisson", "gamma", "tweedie", "huber"])
def test_degrees_of_freedom(name, weighting, ridge, fit_intercept):
    model, penalty_at = SMOOTH[name], RIDGES[ridge]
    problem = _problem(model, penalty_at(0.0), weighting=weighting, fit_intercept=fit_intercept)
    _check_degrees_of_freedom(model, problem, penalty_at)


@pytest.mark.parametrize("name", ["squared", "logistic"])
def test_degrees_of_freedom_in_the_dual(name, fit_intercept):
    model = SMOOTH[name]
    problem = _problem(model, L2(20.0), p=70, fit_intercept=fit_intercept)
    _check_degrees_of_freedom(model, problem, lambda t: L2(20.0 * np.exp(t)))


@pytest.mark.parametrize("penalty", KINKED)
@pytest.mark.parametrize("name", ["squared", "logistic"])
def test_degrees_of_freedom_of_kinked_penalties(name, penalty):
    model, penalty_at = SMOOTH[name], _kinked(name, penalty)
    problem = _problem(model, penalty_at(0.0), n=60, p=12)
    _check_degrees_of_freedom(model, problem, penalty_at)


# --- the gradient of 2017 --------------------------------------------------------------------------


@pytest.mark.parametrize("weighting", ["", "real", "integers and zeros"])
@pytest.mark.parametrize("ridge", RIDGES)
def test_the_gradient_of_2017_is_exact_for_ridge(ridge, weighting, fit_intercept):
    """There the Hessian of a refit is that at the fit: the gradient of leave-one-out by refits."""
    penalty_at = RIDGES[ridge]
    problem = _problem(SMOOTH["squared"], penalty_at(0.0), weighting=weighting, fit_intercept=fit_intercept)
    fit = solve(Fit.at_start(problem)).fit
    cotangent = gradients.gradient_2017(fit, _slopes_of_rows(SquaredError(), problem))
    ours = cotangent.along(_change(penalty_at, fit))
    expected = _five_points(lambda t: _exact_risk_of_ridge(problem, np.broadcast_to(penalty_at(t).alpha, P)))
    np.testing.assert_allclose(ours, expected, rtol=1e-8)


def _gradient_2017(fit, response, penalty_at, rows):
    """Eq. 16, row by row and dense: −∇r(θ̃)ᵀ H₋ᵢ⁻¹ z_i φ′(η̃_i), with θ̃ one Newton step from the fit."""
    problem, free = fit.problem, np.flatnonzero(fit.tangent.support)
    k, b = free.size, int(problem.intercept)
    Z = np.hstack([problem.X[:, free], np.ones((problem.n, b))])
    C = np.diag(np.append(problem.penalty.strengths(fit.coef.shape)[1][free], np.zeros(b)))
    share, total = _share(problem), 0.0
    for i in rows:
        others = np.arange(problem.n) != i
        H = (Z[others].T * fit.hessian[others]) @ Z[others] + C
        reach = np.linalg.solve(H, Z[i])
        moved = reach * fit.gradient[i]
        there = fit.coef[free] + moved[:k]
        slope = response.slopes(problem.y[[i]], fit.eta[[i]] + Z[i] @ moved)[0]
        total -= share[i] * slope * (_change_of_smooth_piece(penalty_at, fit, there) @ reach[:k])
    return total


def _change_of_smooth_piece(penalty_at, fit, free):
    """Derivative of l1 sign(β) + l2 β̃ on the support, with the signs of the fit."""

    def gradient(t):
        l1, l2 = penalty_at(t).strengths(fit.coef.shape)
        support = fit.tangent.support
        return l1[support] * np.sign(fit.coef[support]) + l2[support] * free

    return _five_points(gradient)


@pytest.mark.parametrize("penalty", [*RIDGES, "lasso", "net, strength", "net, share"])
@pytest.mark.parametrize("name", ["squared", "logistic", "poisson"])
def test_the_gradient_of_2017_is_what_its_formula_says(name, penalty, fit_intercept):
    model, penalty_at = SMOOTH[name], RIDGES.get(penalty) or _kinked(name, penalty)
    problem = _problem(model, penalty_at(0.0), weighting="real", fit_intercept=fit_intercept)
    fit = solve(Fit.at_start(problem)).fit
    change = _change(penalty_at, fit)
    by_row = _slopes_of_rows(model.response, problem)
    for rows in (np.arange(N), np.array([7]), np.array([30, 2, 11])):
        ours = gradients.gradient_2017(fit, by_row, rows).along(change)
        expected = _gradient_2017(fit, model.response, penalty_at, rows)
        np.testing.assert_allclose(ours, expected, rtol=1e-8)


@pytest.mark.parametrize("p", [P, 70])
def test_subsets_of_rows_sum_to_the_gradient_of_2017(p, fit_intercept):
    model = SMOOTH["logistic"]
    problem = _problem(model, L2(5.0), p=p, fit_intercept=fit_intercept)
    fit = solve(Fit.at_start(problem)).fit
    by_row = _slopes_of_rows(model.response, problem)
    whole = gradients.gradient_2017(fit, by_row)
    parts = [gradients.gradient_2017(fit, by_row, np.arange(start, N, 7)) for start in range(7)]
    total = sum(parts[1:], parts[0])
    np.testing.assert_allclose(total.gradient, whole.gradient, atol=1e-12)
    np.testing.assert_allclose(total.hessian, whole.hessian, atol=1e-12)


@pytest.mark.parametrize("strength", [0.5, 2.0, 8.0])
@pytest.mark.parametrize("name", ["squared", "logistic"])
def test_a_curvature_at_hand_may_be_in_lasso_coordinates(name, strength):
    model = SMOOTH[name]
    problem = _problem(model, FusedLasso(strength))
    fit, curvature = solve(Fit.at_start(problem))
    by_row = _slopes_of_rows(model.response, problem)
    _, ours = gradients.leave_one_out(fit, by_row, curvature)
    _, theirs = gradients.leave_one_out(fit, by_row, factor(fit))
    np.testing.assert_allclose(ours.gradient, theirs.gradient, atol=1e-9 * np.abs(theirs.gradient).max())
    np.testing.assert_allclose(ours.hessian, theirs.hessian, atol=1e-9)
    assert ours.hessian.shape == fit.tangent.hessian.shape


@pytest.mark.parametrize(("name", "penalty"), [("multinomial", L2(1.0)), ("squared", FusedLasso(2.0))])
def test_the_gradient_of_2017_is_of_one_output_and_single_coefficients(name, penalty):
    model = SMOOTH[name]
    problem = _problem(model, penalty)
    with pytest.raises(TypeError, match="2017"):
        gradients.gradient_2017(solve(Fit.at_start(problem)).fit, _slopes_of_rows(model.response, problem))


# --- pieces ----------------------------------------------------------------------------------------


def test_cotangents_add_up_where_only_one_has_a_curvature():
    gradient, hessian = np.array([1.0, 2.0]), np.array([3.0, -1.0])
    flat, curved = gradients.Cotangent(gradient), gradients.Cotangent(gradient, hessian)
    change = gradients.TangentChange(np.array([1.0, 0.5]), np.array([2.0, 1.0]))
    np.testing.assert_allclose(flat.along(change), 2.0)
    np.testing.assert_allclose((flat + curved).along(change), 2 * 2.0 + 5.0)
    np.testing.assert_allclose((flat + curved).by_coordinate(change), [2.0 + 6.0, 2.0 - 1.0])
    assert (flat + flat).hessian is None


def test_the_change_of_a_tangent_is_exact_for_strengths():
    problem = _problem(SMOOTH["squared"], ElasticNet(2.0, 0.4))
    fit = solve(Fit.at_start(problem)).fit
    change = _change(lambda t: ElasticNet(2.0 + t, 0.4), fit)
    free = fit.tangent.support
    np.testing.assert_allclose(change.gradient[free], 0.4 * np.sign(fit.coef) + 0.6 * fit.coef, atol=1e-12)
    np.testing.assert_allclose(change.hessian[free], 0.6, atol=1e-12)


def test_stencils_stay_where_there_is_room():
    places, weights = gradients.stencil()
    np.testing.assert_allclose(places, STEP * np.array([-2.0, -1.0, 1.0, 2.0]))
    for below, above, width in [(np.inf, np.inf, 1.0), (0.0, 1.0, 1.0), (1.0, 0.0, 1.0), (1e-4, 1.0, 0.1)]:
        places, weights = gradients.stencil(below, above, width)
        assert -below <= places.min()
        assert places.max() <= above
        assert np.ptp(places) == pytest.approx(4 * STEP * width)
        moments = [weights @ places**power for power in range(5)]
        np.testing.assert_allclose(moments, [0.0, 1.0, 0.0, 0.0, 0.0], atol=1e-9)


@pytest.mark.parametrize(
    ("penalty_at", "below", "above"),
    [
        (lambda t: ElasticNet(2.0, 1.0 + t), 1.0, 0.0),
        (lambda t: SparseGroupLasso(GROUPS[::2], 1.0, t), 0.0, 1.0),
        (lambda t: ElasticNet(2.0, 1e-3 + t), 1e-3, 1.0),
    ],
    ids=["lasso end", "group end", "near the ridge"],
)
def test_one_sided_changes_of_a_tangent(penalty_at, below, above):
    """At the border of what a share may be the penalty beyond it does not exist, but the derivative does."""
    fit = solve(Fit.at_start(_problem(SMOOTH["squared"], penalty_at(0.0)))).fit
    ours = _change(penalty_at, fit, gradients.stencil(below, above))
    inside = 0.1 if above > below else -0.1
    there = penalty_at(inside).tangent(fit.coef)  # linear in the share, with the pattern held
    np.testing.assert_allclose(ours.gradient, (there.gradient - fit.tangent.gradient) / inside, atol=1e-10)
    np.testing.assert_allclose(ours.hessian, (there.hessian - fit.tangent.hessian) / inside, atol=1e-10)
