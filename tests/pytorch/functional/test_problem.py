"""Any loss and penalties: left-out steps against refits and closed forms, gradients against differences."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from dataclasses import replace  # noqa: E402
from functools import cache  # noqa: E402

from scipy.optimize import minimize, minimize_scalar  # noqa: E402
from sklearn.linear_model import Lasso  # noqa: E402

import onefit  # noqa: E402
from onefit.exceptions import SolverError, UnreliableWarning  # noqa: E402
from onefit.penalties import L2, ElasticNet  # noqa: E402
from onefit.risk.folds import k_fold, leave_q_out  # noqa: E402
from onefit.torch.functional.problem import FunctionalProblem  # noqa: E402
from onefit.torch.numerics.conjugate import conjugate_each  # noqa: E402
from onefit.torch.numerics.objective import L1Norm  # noqa: E402

softplus = torch.nn.functional.softplus


@pytest.fixture(autouse=True, scope="module")
def _one_torch_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def half_square(theta, x, y):
    return (y - x @ theta[:-1] - theta[-1]) ** 2 / 2


def logistic(theta, x, y):
    eta = x @ theta[:-1] + theta[-1]
    return softplus(eta) - y * eta


def ridge(theta):
    return (theta[:-1] ** 2).sum() / 2


def quartic(theta):
    return (theta[:2] ** 4).sum() + 0.1 * (theta[1] * theta[2]) ** 2


def l1(p):
    return L1Norm([1.0] * p + [0.0])


@cache
def regression(n=30, p=5):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, p))
    return X, 0.7 + 3.0 * X[:, 0] - 2.0 * X[:, 1] + rng.normal(size=n)


@cache
def classification(n=30, p=4):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(n, p))
    return X, (X[:, 0] - 0.5 + rng.logistic(size=n) > 0).astype(float)


@cache
def smooth_fit(strengths=(0.7, 0.05)):
    X, y = classification()
    return FunctionalProblem(logistic, [ridge, quartic], start=5).fit(X, y, strengths)


def network_problem():
    def predict(theta, x):
        return torch.tanh(x @ theta[:8].reshape(4, 2)) @ theta[8:10] + theta[10]

    start = 0.5 * np.random.default_rng(0).normal(size=11)
    return FunctionalProblem.of_predictor(
        predict, lambda out, y: (out - y) ** 2, [lambda theta: (theta**2).sum()], start=start
    )


@cache
def network_fit():
    X, _ = classification()
    return network_problem().fit(X, np.sin(2 * X[:, 0]) + 0.3 * X[:, 1], [0.3])


def five_points(risk, strengths, m, h=1e-3):
    def at(steps):
        moved = np.array(strengths, dtype=float)
        moved[m] += steps * h
        return risk(moved)

    return (at(-2) - 8 * at(-1) + 8 * at(1) - at(2)) / (12 * h)


# --- agreement with the closed forms -------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_ridge_is_that_of_the_closed_form(weighted):
    X, y = regression()
    weights = np.random.default_rng(0).uniform(0.2, 2.0, len(y)) if weighted else None
    fit = FunctionalProblem(half_square, [ridge], start=6).fit(X, y, [3.0], sample_weight=weights)
    model = onefit.GeneralizedLinear(penalty=L2(3.0)).fit(X, y, sample_weight=weights)
    closed = onefit.loo(model, X, y, sample_weight=weights)
    risk = fit.loo()
    np.testing.assert_allclose(2 * risk.losses, closed.losses, rtol=1e-8)
    np.testing.assert_allclose(risk.leverages, closed.leverages, rtol=1e-8)
    np.testing.assert_allclose(
        [2 * risk.value, 2 * risk.std_error], [closed.value, closed.std_error], rtol=1e-8
    )
    np.testing.assert_allclose(fit.loo(exact=True).losses, risk.losses, rtol=1e-8)
    exact = fit.loo(exact=True)
    assert (exact.guarantee, exact.approx_error, exact.certified.all()) == ("exact", 0.0, True)
    assert (risk.guarantee, risk.approx_error) == ("rough", np.inf)


def test_logistic_is_that_of_the_closed_form():
    X, y = classification()
    fit = FunctionalProblem(logistic, [ridge], start=5).fit(X, y, [0.5])
    model = onefit.GeneralizedLinear(loss="logistic", penalty=L2(0.5)).fit(X, y)
    theta = np.r_[model.coef_.ravel(), np.ravel(model.intercept_)]
    np.testing.assert_allclose(fit.theta.numpy(), theta, atol=1e-8)
    # θ̃ of Theorem 1 in closed form: η + h g / (1 − d h)
    Z = np.column_stack([X, np.ones(len(y))])
    eta = Z @ theta
    p = 1 / (1 + np.exp(-eta))
    K = (Z.T * (p * (1 - p))) @ Z + np.diag([0.5] * 4 + [0.0])
    h = np.einsum("ij,ij->i", Z, np.linalg.solve(K, Z.T).T)
    left_out = eta + h * (p - y) / (1 - p * (1 - p) * h)
    risk = fit.loo()
    np.testing.assert_allclose(risk.losses, np.logaddexp(0, left_out) - y * left_out, rtol=1e-8)
    np.testing.assert_allclose(risk.leverages, p * (1 - p) * h, rtol=1e-8)
    exact = onefit.loo(model, X, y, exact=True)
    np.testing.assert_allclose(fit.loo(exact=True).losses, exact.losses, atol=1e-8)


def test_elastic_net_is_that_of_the_closed_form():
    X, y = regression()
    fit = FunctionalProblem(half_square, [l1(5), ridge], start=6).fit(X, y, [9.0, 3.0])
    model = onefit.GeneralizedLinear(penalty=ElasticNet(12.0, 0.75)).fit(X, y)
    np.testing.assert_allclose(fit.theta.numpy(), np.r_[model.coef_, model.intercept_], atol=1e-10)
    assert 0 < len(fit.support) < 6
    exact = onefit.loo(model, X, y, exact=True)
    np.testing.assert_allclose(2 * fit.loo(exact=True).losses, exact.losses, atol=1e-8)
    steps = fit.loo()
    stays = np.isclose(2 * steps.losses, exact.losses, rtol=1e-8)  # the rows that keep their support
    assert stays.mean() > 0.7
    closed = onefit.loo(model, X, y)
    np.testing.assert_allclose(2 * steps.losses[stays], closed.losses[stays], rtol=1e-8)


def test_support_and_coefficients_are_those_of_the_lasso():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(30, 50))
    y = X[:, :3].sum(1) + 0.1 * rng.normal(size=30)
    problem = FunctionalProblem(lambda t, x, y: (y - x @ t) ** 2 / 2, [L1Norm()], start=50)
    lasso = Lasso(alpha=0.1, fit_intercept=False, tol=1e-14, max_iter=100_000).fit(X, y)
    fit = problem.fit(X, y, [30 * 0.1])
    np.testing.assert_allclose(fit.theta.numpy(), lasso.coef_, atol=1e-7)
    np.testing.assert_array_equal(fit.support, np.flatnonzero(lasso.coef_))
    again = problem.fit(X, y, [30 * 0.1], start=rng.normal(size=50))
    np.testing.assert_allclose(again.theta.numpy(), fit.theta.numpy(), atol=1e-10)
    empty = problem.fit(X, y, [1e4])
    assert empty.support.size == 0
    for solver in ("dense", "matrix_free"):
        np.testing.assert_allclose(empty.loo(solver=solver).losses, y**2 / 2)
    for method in ("exact", "paper"):
        np.testing.assert_array_equal(empty.gradient(method), 0.0)


def test_free_directions_do_no_harm():
    X, _ = classification()
    y = np.arange(30) % 3

    def full(theta, x, y):
        eta = x @ theta[:12].reshape(4, 3) + theta[12:]
        return eta.logsumexp(0) - eta.gather(0, y[None])[0]

    def pinned(theta, x, y):
        return full(torch.cat([theta, theta.new_zeros(1)]), x, y)

    def decay(theta):
        return (theta[:12] ** 2).sum()

    both = [FunctionalProblem(f, [decay], start=k).fit(X, y, [0.4]) for f, k in ((full, 15), (pinned, 14))]
    np.testing.assert_allclose(both[0].loo().losses, both[1].loo().losses, rtol=1e-8)


# --- agreement with refits -----------------------------------------------------------------------------


def _by_scipy(fit, rows, gradient_tol=1e-9):
    """Minimum without some rows, by BFGS on the objective written in NumPy."""
    X, y = classification()
    kept = np.setdiff1d(np.arange(len(y)), rows)

    def value(theta):
        eta = X[kept] @ theta[:-1] + theta[-1]
        penalty = 0.7 * (theta[:-1] @ theta[:-1]) / 2
        penalty += 0.05 * (np.sum(theta[:2] ** 4) + 0.1 * (theta[1] * theta[2]) ** 2)
        return np.sum(np.logaddexp(0, eta) - y[kept] * eta) + penalty

    found = minimize(value, fit.theta.numpy(), method="BFGS", options={"gtol": gradient_tol}).x
    eta = X[rows] @ found[:-1] + found[-1]
    return np.logaddexp(0, eta) - y[rows] * eta


def test_exact_rows_are_refits_and_steps_are_near():
    fit = smooth_fit()
    exact, steps = fit.loo(exact=True), fit.loo()
    for row in (0, 7, 19):
        np.testing.assert_allclose(exact.losses[[row]], _by_scipy(fit, [row]), atol=1e-6)
    assert np.abs(exact.losses - steps.losses).mean() < 0.1 * np.abs(exact.losses - exact.training).mean()


def test_sets_of_rows_leave_together():
    fit = smooth_fit()
    folds = leave_q_out(30, 4, 6, 0)
    exact, steps = fit.loo(groups=folds, exact=True), fit.loo(groups=folds)
    np.testing.assert_allclose(exact.losses[:4], _by_scipy(fit, folds.removed[0]), atol=1e-6)
    assert np.abs(exact.value - steps.value) < 0.25 * (exact.value - exact.training.mean())
    alone = fit.loo(groups=np.arange(30))
    np.testing.assert_allclose(alone.losses, fit.loo().losses, rtol=1e-12)
    np.testing.assert_array_equal(fit.loo(groups=k_fold(30, 7)).rows, np.arange(30))


def test_sets_of_a_quadratic_are_refits_whatever_their_size():
    X, y = regression()
    fit = FunctionalProblem(half_square, [ridge], start=6).fit(X, y, [3.0])
    folds = k_fold(30, 3, 0)
    for solver in ("dense", "matrix_free"):
        steps, exact = fit.loo(groups=folds, solver=solver), fit.loo(groups=folds, exact=True)
        np.testing.assert_allclose(steps.losses, exact.losses, rtol=1e-8)


def test_a_weight_of_zero_is_a_row_removed():
    X, y = classification()
    problem = FunctionalProblem(logistic, [ridge], start=5)
    weights = np.ones(30)
    weights[:3] = 0.0
    without, some = problem.fit(X, y, [1.0], sample_weight=weights), problem.fit(X[3:], y[3:], [1.0])
    np.testing.assert_allclose(without.loo().value, some.loo().value, rtol=1e-10)
    np.testing.assert_allclose(without.gradient(), some.gradient(), rtol=1e-8)


def test_comparisons_are_the_papers_formulas():
    fit = smooth_fit()
    H = fit.objective.curvature(fit.theta).numpy()
    unit = torch.ones(1, dtype=torch.float64)
    for row in (torch.tensor([2]), torch.tensor([11])):
        g = fit.objective.set_gradient(fit.theta, row, unit).numpy()
        alone = replace(fit.objective, X=fit.objective.X[row], y=fit.objective.y[row], weights=unit)
        own = replace(alone, penalties=(), strengths=unit[:0]).curvature(fit.theta).numpy()
        moved = fit.theta + torch.as_tensor(np.linalg.solve(H, g))
        assert fit.loo(method="influence").losses[row] == pytest.approx(float(alone.losses(moved)), rel=1e-10)
        linear = float(alone.losses(fit.theta)) + g @ np.linalg.solve(H - own, g)
        assert fit.loo(method="linear").losses[row] == pytest.approx(linear, rel=1e-10)
    values = [fit.loo(method=method).value for method in ("influence", "linear", "newton")]
    assert fit.loo().training.mean() < values[0] < values[1] < values[2]  # too low, as the paper says


# --- curvatures and solvers ----------------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.parametrize("curvature", ["hessian", "gauss_newton"])
@pytest.mark.parametrize("groups", [None, k_fold(30, 15, 1)], ids=["rows", "folds"])
def test_matrix_free_is_dense(curvature, groups):
    fit = network_fit()
    dense = fit.loo(curvature=curvature, groups=groups)
    free = fit.loo(curvature=curvature, groups=groups, solver="matrix_free")
    np.testing.assert_allclose(free.losses, dense.losses, rtol=1e-8)
    gradients = [fit.gradient(curvature=curvature, groups=groups, solver=s) for s in ("dense", "matrix_free")]
    np.testing.assert_allclose(*gradients, rtol=1e-8)


def test_gauss_newton_is_explicit():
    fit = network_fit()
    predict = fit.objective.loss.predict
    J = torch.func.vmap(torch.func.jacrev(predict), in_dims=(None, 0))(fit.theta, fit.objective.X)
    K = 2 * J.T @ J + 2 * 0.3 * torch.eye(11, dtype=torch.float64)
    residual = torch.func.vmap(predict, in_dims=(None, 0))(fit.theta, fit.objective.X) - fit.objective.y
    risk = fit.loo(curvature="gauss_newton")
    for row in (0, 5):
        step = torch.linalg.solve(K - 2 * torch.outer(J[row], J[row]), 2 * residual[row] * J[row])
        np.testing.assert_allclose(risk.parameters[row], fit.theta + step, rtol=1e-8)


def test_gauss_newton_of_a_linear_predictor_is_the_hessian():
    X, y = classification()
    problem = FunctionalProblem.of_predictor(
        lambda theta, x: x @ theta, lambda eta, y: softplus(eta) - y * eta, [lambda t: (t**2).sum()], start=4
    )
    fit = problem.fit(X, y, [0.3])
    np.testing.assert_allclose(fit.loo().losses, fit.loo(curvature="gauss_newton").losses, rtol=1e-10)


def test_negative_curvature_is_seen():
    matrices = torch.stack([torch.eye(3), torch.diag(torch.tensor([1.0, 2.0, -1.0]))]).double()
    rhs = torch.ones(2, 3, dtype=torch.float64)
    solution, positive = conjugate_each(lambda V: (matrices @ V[..., None])[..., 0], rhs, torch.clone)
    assert positive.tolist() == [True, False]
    np.testing.assert_allclose(solution[0], 1.0)


def test_rows_without_a_step_are_solved_anew():
    X = np.linspace(-1.0, 1.0, 9)[:, None]
    y = np.zeros(9)
    y[8] = 6.0

    def double_well(theta, x, y):  # one row of large positive curvature holds the others at the top
        return torch.where(y > 1, y * theta[0] ** 2, 0.5 * (theta[0] ** 2 - 1) ** 2 + 0 * x[0])

    problem = FunctionalProblem(double_well, [lambda theta: 1e-3 * theta.sum()], start=[0.01])
    fit = problem.fit(X, y, [1.0])
    risk = fit.loo()
    assert risk.refitted == 1
    assert abs(abs(float(risk.parameters[8])) - 1.0) < 0.01
    assert 8 in risk.flagged


# --- gradients -----------------------------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.parametrize("groups", [None, leave_q_out(30, 3, 8, 0)], ids=["rows", "sets"])
@pytest.mark.parametrize("solver", ["dense", "matrix_free"])
def test_exact_gradient_by_differences(groups, solver):
    X, y = classification()
    weights = np.random.default_rng(5).uniform(0.5, 2.0, 30)
    problem, strengths = FunctionalProblem(logistic, [ridge, quartic], start=5), [0.7, 0.05]

    def risk(at):
        return problem.fit(X, y, at, sample_weight=weights).loo(groups=groups).value

    gradient = problem.fit(X, y, strengths, sample_weight=weights).gradient(groups=groups, solver=solver)
    for m in range(2):
        assert gradient[m] == pytest.approx(five_points(risk, strengths, m), rel=1e-6)


@pytest.mark.parametrize("curvature", ["hessian", "gauss_newton"])
def test_exact_gradient_of_a_network_by_differences(curvature):
    X, _ = classification()
    fit = network_fit()

    def risk(at):
        near = network_problem().fit(X, fit.objective.y, at, start=fit.theta)
        return near.loo(curvature=curvature).value

    gradient = fit.gradient(curvature=curvature)
    assert gradient[0] == pytest.approx(five_points(risk, [0.3], 0), rel=1e-6)


@pytest.mark.parametrize(("method", "exact"), [("exact", False), ("refits", True)])
def test_gradient_of_the_elastic_net_by_differences(method, exact):
    X, y = (part[:12] for part in regression())
    problem, strengths = FunctionalProblem(half_square, [l1(5), ridge], start=6), [4.0, 2.0]

    def risk(at):
        return problem.fit(X, y, at).loo(exact=exact).value

    gradient = problem.fit(X, y, strengths).gradient(method)
    for m in range(2):
        assert gradient[m] == pytest.approx(five_points(risk, strengths, m), rel=1e-6)


def test_gradient_of_refits_by_differences():
    X, y = (part[:15] for part in classification())
    problem, strengths = FunctionalProblem(logistic, [ridge, quartic], start=5), [0.7, 0.05]

    def risk(at):
        return problem.fit(X, y, at).loo(exact=True).value

    gradient = problem.fit(X, y, strengths).gradient("refits")
    assert gradient[0] == pytest.approx(five_points(risk, strengths, 0), rel=1e-6)


def test_gradient_of_the_paper_is_its_equation():
    fit = smooth_fit()
    risk = fit.loo()
    total = np.zeros(2)
    for row, point in enumerate(risk.parameters):
        left = fit.objective.without(torch.tensor([row]))
        H = torch.func.jacrev(torch.func.grad(left.value))(point)
        g = fit.objective.set_gradient(point, torch.tensor([row]), torch.ones(1, dtype=torch.float64))
        own = -(fit.objective.penalty_gradients(point) @ torch.linalg.solve(H, g)).numpy()
        if row < 4:
            np.testing.assert_allclose(fit.gradient_of_row(row), own, rtol=1e-8)
        total += own / 30
    np.testing.assert_allclose(fit.gradient("paper"), total, rtol=1e-8)
    np.testing.assert_allclose(fit.gradient("paper", solver="matrix_free"), total, rtol=1e-8)


def test_gradients_agree_where_steps_are_refits():
    X, y = regression()
    fit = FunctionalProblem(half_square, [ridge], start=6).fit(X, y, [3.0])
    for method in ("paper", "refits"):
        np.testing.assert_allclose(fit.gradient(method), fit.gradient(), rtol=1e-8)


# --- Algorithms 1 and 2 --------------------------------------------------------------------------------


def noise_columns():
    rng = np.random.default_rng(8)
    X = rng.normal(size=(40, 10))
    return X, X[:, :2].sum(1) + rng.normal(size=40)


def test_algorithm_1_finds_the_best_ridge():
    X, y = noise_columns()
    problem = FunctionalProblem(lambda t, x, y: (y - x @ t) ** 2, [lambda t: (t**2).sum()], start=10)

    def risk(log_strength):
        return problem.fit(X, y, [np.exp(log_strength)]).loo().value

    best = minimize_scalar(risk, bounds=(-4.0, 6.0), method="bounded", options={"xatol": 1e-4})
    for gradient in ("paper", "exact"):
        found = problem.tune(X, y, [0.1], gradient=gradient, n_steps=60)
        assert found.risks[-1] == pytest.approx(best.fun, rel=1e-6)
        assert np.all(np.diff(found.risks) < 0)
        assert found.fit.loo().value == found.risks[-1]
    constant = problem.tune(X, y, [1.0], scale="linear", step_size=20.0, n_steps=5)
    first = problem.fit(X, y, [1.0]).gradient("paper")
    np.testing.assert_allclose(constant.path[1], 1.0 - 20.0 * first)
    assert len(constant.risks) == 6
    mixed = FunctionalProblem(lambda t, x, y: (y - x @ t) ** 2, [L1Norm(), lambda t: (t**2).sum()], start=10)
    from_zero = mixed.tune(X, y, [0.0, 0.0], scale="linear", n_steps=15)  # as in the paper's figure 4
    assert np.all(np.diff(from_zero.risks) < 0)
    assert np.all(from_zero.strengths >= 0)
    assert from_zero.risks[-1] < 0.98 * from_zero.risks[0]
    cut = problem.tune(X, y, [1e3], scale="linear", step_size=lambda _: 1e9, n_steps=1)
    assert cut.strengths[0] == 0.0


@pytest.mark.parametrize("gradient", ["paper", "exact"])
def test_descent_from_zero_begins_where_fits_are_determined(gradient):
    """More parameters than rows: without a penalty there are many fits, and none of them has a gradient."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 30))
    y = X[:, :2].sum(1) + 0.5 * rng.normal(size=20)
    penalties = [lambda t: (t[:2] ** 2).sum(), lambda t: (t[2:] ** 2).sum()]
    problem = FunctionalProblem(lambda t, x, y: (y - x @ t) ** 2, penalties, start=30)
    found = problem.tune(X, y, [0.0, 0.0], scale="linear", gradient=gradient, n_steps=10)
    np.testing.assert_array_equal(found.path[0], 1e-6)
    assert np.all(np.diff(found.risks) < 0)
    assert found.strengths[1] > 1e-4
    assert found.risks[-1] < 0.9 * found.risks[0]


def test_algorithm_2_lowers_the_risk_and_repeats_itself():
    X, y = noise_columns()
    penalties = [lambda t: (t[:2] ** 2).sum(), lambda t: (t[2:] ** 2).sum()]
    problem = FunctionalProblem(lambda t, x, y: (y - x @ t) ** 2, penalties, start=10)
    best = problem.tune(X, y, [1.0, 1.0], n_steps=30)
    found = problem.tune(X, y, [30.0, 0.1], algorithm=2, n_steps=30, rng=0)
    again = problem.tune(X, y, [30.0, 0.1], algorithm=2, n_steps=30, rng=0)
    np.testing.assert_array_equal(found.path, again.path)
    assert len(found.path) == 31
    assert len(found.risks) == 2
    assert found.risks[1] - best.risks[-1] < 0.5 * (found.risks[0] - best.risks[-1])
    assert "in 30 steps" in str(found)


def test_a_path_that_meets_an_error_is_kept():
    X, y = noise_columns()
    weakest = 5.0

    def loss(theta, x, y):
        return (y - x @ theta) ** 2

    problem = FunctionalProblem(loss, [lambda t: (t**2).sum()], start=10)
    kept = type(problem).fit

    def fit(self, X, y, strengths, **given):
        if strengths[0] > weakest:
            raise SolverError("no minimum there")
        return kept(self, X, y, strengths, **given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FunctionalProblem, "fit", fit)
        halved = problem.tune(X, y, [1.0], n_steps=10)  # steps beyond are too long
        with pytest.warns(UnreliableWarning, match="descent ended after 0 steps: no minimum there"):
            ended = problem.tune(X, y, [1.0], scale="linear", step_size=lambda _: 1e9, n_steps=3)
    assert 1.0 < halved.strengths[0] <= weakest
    assert np.all(np.diff(halved.risks) < 0)
    np.testing.assert_array_equal(ended.path, [[1.0]])
    assert ended.risks[0] == halved.risks[0]


# --- the audit and the printout ------------------------------------------------------------------------


def test_audit_is_of_the_refits():
    fit = smooth_fit()
    exact, risk = fit.loo(exact=True), fit.loo(audit=8, rng=1)
    np.testing.assert_allclose(risk.audit.refitted_losses, exact.losses[risk.audit.rows], atol=1e-9)
    assert len(risk.audit.rows) == 8
    np.testing.assert_array_equal(fit.loo(audit=8, rng=1).audit.rows, risk.audit.rows)
    everything = fit.loo(audit=30, rng=1)
    assert everything.audit.value == pytest.approx(exact.value, rel=1e-9)
    folds = k_fold(30, 6, 0)
    sets = fit.loo(groups=folds, audit=6, rng=0)
    assert sets.audit.value == pytest.approx(fit.loo(groups=folds, exact=True).value, rel=1e-9)
    text = str(risk)
    assert "by 8 refits" in text
    assert "Newton step" in text
    assert "refits" in str(exact)


# --- bad input -----------------------------------------------------------------------------------------


def _fit(loss=logistic, penalties=(ridge,), strengths=(1.0,), start=5, X=None, y=None, **options):
    data = classification()
    problem = FunctionalProblem(loss, penalties, start=start)
    return problem.fit(data[0] if X is None else X, data[1] if y is None else y, strengths, **options)


def _bad(values):
    values = values.copy()
    values[3] = np.nan
    return values


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"loss": lambda t, x, y: (x * t[:-1] - y) ** 2}, "the loss of one row must be one number"),
        ({"loss": lambda *_: 1.0}, "the loss of one row must be one number"),
        ({"penalties": [lambda t: t]}, "penalty 0 must be one number"),
        ({"penalties": [lambda t: torch.log(t).sum()]}, "penalty 0 is not finite"),
        ({"penalties": [L1Norm([1.0, 2.0])]}, "2 weights for 5 parameters"),
        ({"loss": lambda t, x, y: logistic(t, x, y) / y}, "the loss is not finite at the start"),
        ({"X": _bad(classification()[0])}, "X has values that are not finite, the first in row 3"),
        ({"y": _bad(classification()[1])}, "y has values that are not finite"),
        ({"y": np.zeros(7)}, "X has 30 rows, y has 7"),
        ({"X": np.zeros((1, 4)), "y": np.zeros(1)}, "at least 2 rows"),
        ({"strengths": [1.0, 2.0]}, "strengths must be 1 finite numbers"),
        ({"strengths": [-1.0]}, "strengths must be 1 finite numbers"),
        ({"strengths": [np.nan]}, "strengths must be 1 finite numbers"),
        ({"start": 0}, "at least 1 parameter"),
        ({"start": [[1.0]]}, "start must be finite numbers"),
        ({"sample_weight": -np.ones(30)}, "sample_weight must be 30"),
        ({"device": "no such device"}, "cannot be used here"),
    ],
)
def test_bad_input_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        _fit(**given)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_absent_is_refused():
    with pytest.raises(ValueError, match=r"'cuda' cannot be used here.*take device='cpu'"):
        _fit(device="cuda")


def test_bad_options_are_refused():
    fit = smooth_fit()
    for options in ({"method": "x"}, {"curvature": "x"}, {"solver": "x"}, {"audit": 1}):
        with pytest.raises(ValueError, match=next(iter(options))):
            fit.loo(**options)
    with pytest.raises(ValueError, match="needs a predictor"):
        fit.loo(curvature="gauss_newton")
    with pytest.raises(ValueError, match="method must be"):
        fit.gradient("x")
    with pytest.raises(TypeError, match="loss must be a function"):
        FunctionalProblem(3, start=1)
    with pytest.raises(TypeError, match="penalty 0 must be a function"):
        FunctionalProblem(logistic, [3], start=1)
    with pytest.raises(ValueError, match="weights of the l1 norm"):
        L1Norm([-1.0])
    X, y = classification()
    with pytest.raises(ValueError, match=r"of shape \(\d+,\), fails at the start, which has 500 numbers"):
        FunctionalProblem(logistic, start=500).fit(X, y)
    bare = FunctionalProblem(logistic, start=5)
    with pytest.raises(ValueError, match="no penalty"):
        bare.fit(X, y).gradient()
    with pytest.raises(ValueError, match="no penalty"):
        bare.tune(X, y, [])
    problem = FunctionalProblem(logistic, [ridge], start=5)
    with pytest.raises(ValueError, match="scale='linear'"):
        problem.tune(X, y, [0.0])
    with pytest.raises(ValueError, match="algorithm must be"):
        problem.tune(X, y, [1.0], algorithm=3)


def test_no_minimum_is_an_error():
    X, _ = classification()
    with pytest.raises(SolverError, match="no minimum was reached"):
        FunctionalProblem(lambda t, x, y: x @ t * y, start=4).fit(X, np.ones(30))


def test_a_fit_without_error_is_flagged_throughout():
    X, y = regression()
    problem = FunctionalProblem(half_square, start=6)
    assert problem.fit(X[:4], y[:4]).loo().flagged.tolist() == [0, 1, 2, 3]
    assert problem.fit(X, y).loo().flagged.size == 0


def test_tensors_and_whole_numbers_are_taken():
    X, y = classification()
    expected = smooth_fit((1.0, 0.0)).theta
    for rows, labels in (
        (torch.tensor(X), torch.tensor(y)),
        (X, y.astype(int)),
        (X, y.astype(bool).tolist()),
    ):
        found = _fit(penalties=[ridge, quartic], strengths=[1.0, 0.0], X=rows, y=labels).theta
        np.testing.assert_allclose(found, expected, atol=1e-10)


def test_strengths_weights_and_groups_may_be_tensors():
    X, y = regression()
    groups, weights, norm = np.arange(30) % 5, np.linspace(0.5, 2.0, 30), np.array([1.0] * 5 + [0.0])

    def risk(given):
        problem = FunctionalProblem(half_square, [L1Norm(given(norm)), ridge], start=6)
        fit = problem.fit(X, y, given(np.array([0.5, 0.25])), sample_weight=given(weights))
        return fit.loo(groups=given(groups)).losses

    single = risk(lambda part: torch.tensor(part).float() if part is norm else torch.tensor(part))
    np.testing.assert_array_equal(single, risk(lambda part: part))
    np.testing.assert_array_equal(single, risk(list))
