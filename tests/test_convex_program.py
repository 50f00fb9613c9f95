"""Convex programs written in cvxpy: against native fits, brute-force refits, and what is refused."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest

import onefit
from onefit.convex_program import ConvexProgram
from onefit.leave_out.step import one_step
from onefit.losses import Huber
from onefit.penalties import L1, L2, Box, FusedLasso, GroupLasso
from onefit.readers import read
from onefit.refits import left_out_predictions
from onefit.solvers.solve import polish

cp = pytest.importorskip("cvxpy")

RNG = np.random.default_rng(0)
N, P = 24, 8
X = RNG.normal(size=(N, P))
Y = 0.3 + X @ [0.0, 0.0, 1.0, 1.0, 1.0, 0.0, -1.0, 0.0] + 0.5 * RNG.normal(size=N)
LABELS = np.where(Y > 0, "yes", "no")
SIGNS = np.where(Y > 0, 1.0, -1.0)


def squared(eta):
    return 0.5 * cp.sum_squares(Y - eta)


def logistic(eta):
    return cp.sum(cp.logistic(-cp.multiply(SIGNS, eta)))


def hinge(eta):
    return cp.sum(cp.pos(1 - cp.multiply(SIGNS, eta)))


def group_norms(beta):
    return sum(cp.norm2(beta[2 * k : 2 * k + 2]) for k in range(P // 2))


def free(beta):  # noqa: ARG001
    """No constraints."""
    return []


def program(loss, penalty, constrain=free, *, intercept=True, kind="regressor"):
    beta, b = cp.Variable(P), cp.Variable() if intercept else None
    eta = X @ beta + b if intercept else X @ beta
    problem = cp.Problem(cp.Minimize(loss(eta) + penalty(beta)), constrain(beta))
    return onefit.from_cvxpy(problem, eta, beta, b, kind)


def l1(beta):
    return 3 * cp.norm1(beta)


def brute_force(loss, penalty, constrain=free, tol=1e-11):
    """Left-out linear predictors by solving the program with the other rows' data in it."""
    left_out = np.empty(N)
    for i in range(N):
        kept = np.arange(N) != i
        beta, b = cp.Variable(P), cp.Variable()
        objective = loss(X[kept] @ beta + b, kept) + penalty(beta)
        tight = {f"tol_{what}": tol for what in ("gap_abs", "gap_rel", "feas")}
        cp.Problem(cp.Minimize(objective), constrain(beta)).solve(solver=cp.CLARABEL, **tight)
        left_out[i] = X[i] @ beta.value + b.value
    return left_out


def close(ours, reference, tol=1e-5):
    return np.abs(ours - reference).max() <= tol * np.abs(reference).max()


def formula(model, y):
    """Leave-one-out by the formula alone, without refits of the rows that need them."""
    return one_step(polish(read(model, X, y).fit).solution.fit)


NATIVE = {
    "lasso": (squared, l1, free, {"penalty": L1(3.0)}),
    "ridge": (squared, lambda b: 1.5 * cp.sum_squares(b), free, {"penalty": L2(3.0)}),
    "elastic net": (
        squared,
        lambda b: 1.5 * cp.sum_squares(b) + 2 * cp.norm1(b),
        free,
        {"penalty": L1(2.0) + L2(3.0)},
    ),
    "fused lasso": (squared, lambda b: 2 * cp.tv(b), free, {"penalty": FusedLasso(2.0)}),
    "group lasso": (
        squared,
        lambda b: 2 * np.sqrt(2) * group_norms(b),
        free,
        {"penalty": GroupLasso(np.repeat(np.arange(P // 2), 2), 2.0)},
    ),
    "box": (squared, lambda b: 0.0 * cp.sum(b), lambda b: [b >= 0, b <= 1], {"penalty": Box(0.0, 1.0)}),
    "huber": (
        lambda eta: 0.5 * cp.sum(cp.huber(Y - eta, 0.5)),
        lambda b: 0.5 * cp.sum_squares(b),
        free,
        {"loss": Huber(0.5), "penalty": L2(1.0)},
    ),
    "logistic with l1": (
        logistic,
        lambda b: 0.7 * cp.norm1(b),
        free,
        {"loss": "logistic", "penalty": L1(0.7)},
    ),
}


@pytest.mark.parametrize("name", NATIVE)
def test_the_formula_is_that_of_the_native_fit(name):
    loss, penalty, constrain, native = NATIVE[name]
    classes = "loss" in native and native["loss"] == "logistic"
    y = LABELS if classes else Y
    ours = formula(program(loss, penalty, constrain, kind="classifier" if classes else "regressor"), y)
    theirs = formula(onefit.GeneralizedLinear(**native).fit(X, y), y)
    assert ours.fit.tangent.size == theirs.fit.tangent.size
    assert ours.fit.problem.loss.is_quadratic == theirs.fit.problem.loss.is_quadratic
    assert close(ours.fit.coef, theirs.fit.coef)
    assert close(ours.fit.gradient, theirs.fit.gradient)
    assert close(ours.leverages, theirs.leverages)
    assert close(ours.eta, theirs.eta)
    assert not np.any(ours.certified)


@pytest.mark.parametrize("name", ["lasso", "group lasso", "logistic with l1"])
def test_leave_one_out_agrees_with_exact_refits_where_those_are_proven(name):
    loss, penalty, constrain, native = NATIVE[name]
    classes = "loss" in native
    y = LABELS if classes else Y
    est = onefit.loo(program(loss, penalty, constrain, kind="classifier" if classes else "regressor"), X, y)
    exact = onefit.loo(onefit.GeneralizedLinear(**native).fit(X, y), X, y, exact=True)
    proven = est.certified  # by a refit
    assert proven.any()
    assert close(est.decision[proven], exact.decision[proven])


def test_support_vector_machine():
    model = program(hinge, lambda b: 0.5 * cp.sum_squares(b), kind="classifier")
    native = onefit.GeneralizedLinear("hinge", L2(1.0)).fit(X, LABELS)
    fit, theirs = read(model, X, LABELS).fit, polish(read(native, X, LABELS).fit).solution.fit
    np.testing.assert_array_equal(fit.pinned, theirs.pinned)
    assert fit.pinned.any()
    assert close(fit.gradient, theirs.gradient)
    est = onefit.loo(model, X, LABELS, exact=True)
    exact = onefit.loo(native, X, LABELS, exact=True)
    assert close(est.decision, exact.decision)
    np.testing.assert_allclose(est.losses, exact.losses, atol=1e-6)
    assert est.value == pytest.approx(exact.value, rel=1e-6)
    away = (fit.gradient == 0) & ~fit.pinned
    assert np.all(onefit.loo(model, X, LABELS).certified[away])  # these rows leave nothing behind


@pytest.mark.slow
def test_sums_and_constraints_against_brute_force():
    def penalty(beta):
        return 1.5 * cp.norm1(beta) + 2 * group_norms(beta) + 0.2 * cp.sum_squares(beta)

    def constrain(beta):
        return [beta >= -0.5, cp.sum(beta) <= 2]

    model = program(squared, penalty, constrain)
    est = onefit.loo(model, X, Y, exact=True)
    reference = brute_force(lambda eta, kept: 0.5 * cp.sum_squares(Y[kept] - eta), penalty, constrain)
    assert close(est.decision, reference)
    assert est.value == pytest.approx(np.mean((Y - reference) ** 2), rel=1e-5)
    assert onefit.loo(model, X, Y).value == pytest.approx(est.value, rel=0.02)


def test_quantile_regression_against_brute_force():
    def pinball(residual):
        return cp.sum(cp.maximum(0.3 * residual, -0.7 * residual))

    model = program(lambda eta: pinball(Y - eta), lambda b: cp.norm1(b))
    est = onefit.loo(model, X, Y, exact=True)
    assert read(model, X, Y).fit.pinned.any()
    reference = brute_force(lambda eta, kept: pinball(Y[kept] - eta), lambda b: cp.norm1(b))
    assert close(est.decision, reference)


@pytest.mark.filterwarnings(
    "ignore::onefit.UnreliableWarning"
)  # refits as rough as their solver stay unproven
def test_poisson_regression_against_brute_force():
    counts = np.random.default_rng(1).poisson(np.exp(0.5 * Y))
    model = program(lambda eta: cp.sum(cp.exp(eta) - cp.multiply(counts, eta)), l1)
    est = onefit.loo(model, X, counts, exact=True)
    reference = brute_force(
        lambda eta, kept: cp.sum(cp.exp(eta) - cp.multiply(counts[kept], eta)), l1, tol=1e-9
    )
    assert np.isfinite(est.bounds).mean() >= 0.9
    assert close(est.decision, reference, 5e-5)  # √tol is what the solver's gap leaves of the coefficients


def test_a_mean_loss_keeps_its_factor():
    """Not the share of the penalty but the program stays: 1/n of all rows, also in the refit."""
    model = program(lambda eta: cp.sum_squares(Y - eta) / (2 * N), lambda b: 3 / N * cp.norm1(b))
    summed = onefit.loo(program(squared, l1), X, Y, exact=True)
    assert close(onefit.loo(model, X, Y, exact=True).decision, summed.decision)


def test_multiples_of_sums_and_maximisation():
    reference = program(squared, l1).coef_
    for objective in (
        lambda eta, beta: cp.Minimize((squared(eta) + l1(beta)) / N),
        lambda eta, beta: cp.Minimize(2 * (3 + (l1(beta) + squared(eta)))),
        lambda eta, beta: cp.Maximize(-squared(eta) - l1(beta)),
        lambda eta, beta: cp.Minimize(0.5 * cp.sum_squares(eta - Y) + l1(beta)),
    ):
        beta, b = cp.Variable(P), cp.Variable()
        eta = X @ beta + b
        np.testing.assert_allclose(
            onefit.from_cvxpy(cp.Problem(objective(eta, beta)), eta, beta, b).coef_, reference, atol=1e-6
        )


def test_parameters_and_matrices_of_coefficients():
    """The nuclear norm of a matrix, in C order, with a parameter that is changed afterwards."""
    strength, W, b = cp.Parameter(nonneg=True, value=2.0), cp.Variable((4, 2)), cp.Variable()
    eta = X @ cp.vec(W, order="C") + b
    problem = cp.Problem(cp.Minimize(squared(eta) + strength * cp.normNuc(W)))
    model = onefit.from_cvxpy(problem, eta, W, b)
    strength.value = 50.0
    np.testing.assert_array_equal(model.X_, X)
    assert W.value is None  # the program itself was not touched
    native = onefit.GeneralizedLinear(penalty=onefit.penalties.NuclearNorm((4, 2), 2.0)).fit(X, Y)
    assert close(model.coef_, native.coef_)
    assert close(formula(model, Y).eta, formula(native, Y).eta)


def test_column_vectors():
    beta, b = cp.Variable((P, 1)), cp.Variable()
    eta = X @ beta + b
    problem = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(eta - Y[:, None]) + 3 * cp.norm1(beta)))
    model, plain = onefit.from_cvxpy(problem, eta, beta, b), program(squared, l1)
    assert close(formula(model, Y).eta, formula(plain, Y).eta)


def test_audit_and_groups():
    model = program(squared, l1)
    exact = onefit.loo(model, X, Y, exact=True)
    est = onefit.loo(model, X, Y, audit=10, rng=0)
    low, high = est.audit.interval
    assert low <= exact.value <= high
    rows = [np.array([i]) for i in (0, 3, N - 1)]
    refits = left_out_predictions(model, X, Y, rows, rows).predictions
    np.testing.assert_allclose(np.ravel(refits), exact.predictions[[0, 3, N - 1]], atol=1e-6)
    groups = np.arange(N) % 5
    ours = onefit.loo(model, X, Y, groups=groups, exact=True)
    native = onefit.GeneralizedLinear(penalty=L1(3.0)).fit(X, Y)
    assert close(ours.decision, onefit.loo(native, X, Y, groups=groups, exact=True).decision)


def test_an_audit_needs_rows_that_can_be_told_apart():
    twice = np.vstack([X[:10], X[:10]])
    beta = cp.Variable(P)
    eta = twice @ beta
    problem = cp.Problem(cp.Minimize(cp.sum_squares(Y[:20] - eta) + cp.norm1(beta)))
    model = onefit.from_cvxpy(problem, eta, beta)
    assert np.isfinite(onefit.loo(model, twice, Y[:20], exact=True).value)
    with pytest.raises(ValueError, match="some rows of X are equal"):
        onefit.loo(model, twice, Y[:20], audit=5, rng=0)


def test_the_model_predicts_and_is_refitted_on_its_rows():
    model = program(squared, l1)
    fit = read(model, X, Y).fit
    np.testing.assert_allclose(model.predict(X), fit.eta, atol=1e-10)
    few = program(lambda eta: 0.5 * cp.sum_squares((Y - eta)[:18]), l1)
    part = ConvexProgram(model.written).fit(X[:18])
    np.testing.assert_allclose(part.coef_, few.coef_, atol=1e-6)
    with pytest.raises(onefit.NotFittedToDataError, match="eta was not written with"):
        part.fit(X + 1.0)
    assert not hasattr(program(logistic, l1, kind="classifier"), "predict")


def test_copies_and_pickles():
    model = program(squared, l1)
    est = onefit.loo(model, X, Y)
    np.testing.assert_array_equal(onefit.loo(copy.deepcopy(model), X, Y).decision, est.decision)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(est)).decision, est.decision)
    with pytest.raises(TypeError, match=r"make it again with onefit\.from_cvxpy"):
        pickle.dumps(model)


# --- what is refused ---------------------------------------------------------------------------------


def test_data_that_do_not_fit():
    model = program(squared, l1)
    with pytest.raises(ValueError, match=f"y has {N - 1} values, but eta has {N}"):
        onefit.loo(model, X[1:], Y[1:])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        onefit.loo(model, X[1:], Y)
    with pytest.raises(onefit.NotFittedToDataError, match="not the matrix that eta was written with"):
        onefit.loo(model, X[::-1], Y)
    with pytest.raises(ValueError, match="features"):
        onefit.loo(model, X[:, 1:], Y)
    with pytest.raises(ValueError, match="weights in the loss"):
        onefit.loo(model, X, Y, np.ones(N))
    with pytest.raises(ValueError, match=f"has 2 classes, but y has {N}"):
        onefit.loo(program(logistic, l1, kind="classifier"), X, Y)


def test_programs_without_a_solution():
    with pytest.raises(onefit.SolverError, match="infeasible"):
        program(squared, l1, lambda b: [b >= 1, b <= -1])
    with pytest.raises(onefit.SolverError, match="unbounded"):
        program(lambda eta: cp.sum(eta), lambda b: 0 * cp.norm1(b))


MISFITS = {
    "penalty that is not convex": (r"term .*norm1\(.*not convex", squared, lambda b: -cp.norm1(b), free),
    "constraint that is not convex": ("constraint .* not convex", squared, l1, lambda b: [cp.norm2(b) >= 1]),
    "norm": ("loss .* is not a sum over rows", lambda eta: cp.norm2(Y - eta), l1, free),
    "maximum": ("loss .* is not a sum over rows", lambda eta: cp.max(cp.abs(Y - eta)), l1, free),
    "other variable": (
        "term .* contains extra",
        squared,
        lambda b: cp.norm1(b - cp.Variable(P, name="extra")),
        free,
    ),
    "other variable in a constraint": (
        "constraint .* contains extra",
        squared,
        l1,
        lambda b: [b <= cp.Variable(P, name="extra")],
    ),
    "parameter without a value": (
        "parameter level has no value",
        squared,
        lambda b: cp.Parameter(nonneg=True, name="level") * cp.norm1(b),
        free,
    ),
}


@pytest.mark.parametrize("name", MISFITS)
def test_terms_that_do_not_fit_are_named(name):
    match, loss, penalty, constrain = MISFITS[name]
    with pytest.raises(ValueError, match=match):
        program(loss, penalty, constrain)


@pytest.fixture
def variables():
    beta, b = cp.Variable(P, name="beta"), cp.Variable(name="b")
    return beta, b, X @ beta + b


def refused(objective, variables, match, constraints=(), error=ValueError):
    beta, b, eta = variables
    with pytest.raises(error, match=match):
        onefit.from_cvxpy(cp.Problem(cp.Minimize(objective), list(constraints)), eta, beta, b)


def test_mixtures_of_eta_coefficients_and_intercept(variables):
    beta, b, eta = variables
    refused(squared(X @ beta), variables, "eta does not occur in the objective")
    refused(cp.norm2(cp.hstack([Y - eta, beta])), variables, "mixes eta and the coefficients")
    refused(squared(eta) + cp.abs(b), variables, "the intercept occurs outside eta, in abs")
    refused(squared(X @ beta + b) + squared(eta), variables, "the intercept occurs outside eta")
    refused(squared(eta), variables, "constraint .* contains eta", [eta <= 3])
    refused(squared(eta), variables, "constraint .* contains b", [b >= 0])


OTHER_PREDICTORS = {
    "constant": ("constant part", lambda beta, b: X @ beta + b + 1),
    "twice the intercept": ("once for each row", lambda beta, b: X @ beta + 2 * b),
    "no intercept": ("once for each row", lambda beta, _: X @ beta),
    "not affine": ("not affine", lambda beta, b: cp.abs(X @ beta) + b),
    "no coefficients": ("does not contain coef", lambda _, b: b + cp.Constant(np.zeros(N))),
    "another variable": (
        "contains the variables other",
        lambda beta, b: X @ beta + b + cp.Variable(name="other"),
    ),
    "matrix": (r"of shape \(n,\)", lambda beta, b: cp.reshape(X @ beta + b, (N // 2, 2), order="C")),
}


@pytest.mark.parametrize("name", OTHER_PREDICTORS)
def test_other_linear_predictors(name):
    match, make = OTHER_PREDICTORS[name]
    beta, b = cp.Variable(P), cp.Variable()
    eta = make(beta, b)
    with pytest.raises(ValueError, match=match):
        onefit.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(eta))), eta, beta, b)


def test_wrong_arguments(variables):
    beta, b, eta = variables
    problem = cp.Problem(cp.Minimize(squared(eta)))
    with pytest.raises(ValueError, match="kind must be"):
        onefit.from_cvxpy(problem, eta, beta, b, kind="clusterer")
    with pytest.raises(TypeError, match=r"must be a cvxpy\.Problem"):
        onefit.from_cvxpy(problem.objective, eta, beta, b)
    with pytest.raises(ValueError, match="coef must be"):
        onefit.from_cvxpy(problem, eta, X, b)
    with pytest.raises(ValueError, match="intercept must be a scalar"):
        onefit.from_cvxpy(problem, eta, beta, 0.0)
    with pytest.raises(ValueError, match="must not have attributes"):
        onefit.from_cvxpy(problem, eta, beta, cp.Variable(nonneg=True))
    whole = cp.Variable(P, integer=True)
    with pytest.raises(ValueError, match="integer"):
        onefit.from_cvxpy(cp.Problem(cp.Minimize(squared(X @ whole))), X @ whole, whole)


def test_its_name_does_not_import_cvxpy_which_may_not_be_there():
    code = """
import sys
import onefit
onefit.from_cvxpy
assert "cvxpy" not in sys.modules
sys.modules["cvxpy"] = None
try:
    onefit.from_cvxpy(None, None, None)
except ImportError as error:
    assert "pip install cvxpy clarabel" in str(error)
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True)
