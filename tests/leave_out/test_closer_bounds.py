"""Bounds of steps by what they do to each other row, and steps of some rows of coupled outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from onefit.balance import Balance
from onefit.curvature import CoupledBlock
from onefit.fit import Fit
from onefit.leave_out.averaged import has_some_steps, step_by_average, step_by_diagonal, step_of_rows
from onefit.leave_out.engine import begin, leave_out
from onefit.leave_out.leads import Leads
from onefit.leave_out.prove import far_rows
from onefit.leave_out.rescaling import curvature_of_refits
from onefit.leave_out.step import Step, one_step
from onefit.leave_out.step_bounds import bound_steps, bound_steps_closely, cost_of_closer_bounds
from onefit.losses import Logistic, Multinomial, Poisson, Squared
from onefit.metrics import Deviance, LogLoss
from onefit.penalties import L2, ElasticNet
from onefit.problem import Problem
from onefit.risk.judging import yardstick
from onefit.solvers.path import newton_path
from onefit.solvers.solve import solve


def _problem(kind: str, n: int, p: int, alpha: float, seed: int = 0) -> Problem:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    eta = 1.5 * X[:, 0] - X[:, 1]
    if kind == "poisson":
        counts = rng.poisson(np.exp(0.4 * eta)).astype(float)
        return Problem(Poisson(), L2(alpha), X, counts, np.ones(n), mean_scaled=True)
    y = (eta + rng.logistic(size=n) > 0.5).astype(int)
    if kind == "balanced":
        weights = n / (2.0 * np.bincount(y)[y])
        return Problem(Logistic(), L2(alpha), X, y.astype(float), weights, balance=Balance(y, np.ones(n)))
    weights = rng.integers(0, 4, n).astype(float) if kind == "weighted" else np.ones(n)
    return Problem(Logistic(), L2(alpha), X, y.astype(float), weights)


@pytest.mark.parametrize("kind", ["logistic", "weighted", "balanced", "poisson"])
@pytest.mark.parametrize(("n", "p"), [(60, 4), (40, 90)])
@pytest.mark.parametrize("alpha", [0.3, 10.0])
def test_no_step_is_farther_off_than_its_closer_bound(kind: str, n: int, p: int, alpha: float) -> None:
    fit, K = solve(Fit.at_start(_problem(kind, n, p, alpha)))
    step = Step.of(fit, curvature_of_refits(fit, K))
    found, exact = step.taken(fit), leave_out(fit, None, 0.0, curvature=K)
    assert np.isfinite(cost_of_closer_bounds(fit, step.curvature, n).seconds)
    close = bound_steps_closely(fit, step, found.eta, found.slack, np.arange(n))
    loose = bound_steps(fit, step, found.eta, found.slack)
    held = fit.problem.weights > 0
    off = np.abs(exact.eta - found.eta)[held]
    assert np.isfinite(close[held]).mean() > 0.5
    assert np.all(off <= (close + exact.bounds)[held] + 1e-9)
    with np.errstate(invalid="ignore"):
        assert np.nanmedian(close[held] / loose[held]) < 0.5  # or there would be no use for them


def test_bounds_hold_without_the_rows_that_reach_far() -> None:
    """Of a dummy that tells a few rows of one class apart, which hardly bend but would move far."""
    rng = np.random.default_rng(0)
    n = 1200
    X = rng.normal(size=(n, 4))
    X[:, 3] = 0.0
    X[:3, 3] = 1.0
    y = (X[:, 0] + rng.logistic(size=n) > 0).astype(float)
    y[:3] = 1.0
    for alpha in (3.0, 4.0):
        fit, K = solve(Fit.at_start(Problem(Logistic(), L2(alpha), X, y, np.ones(n))))
        step = Step.of(fit, curvature_of_refits(fit, K))
        found, exact = step.taken(fit), leave_out(fit, None, 0.0, curvature=K)
        far = far_rows(fit, step.forms)
        assert 0 < far.rows.size < 12
        assert far.form < far.largest
        rows = rng.permutation(n)[:200]
        close = bound_steps_closely(fit, step, found.eta, found.slack, rows)
        loose = bound_steps(fit, step, found.eta, found.slack)
        off = np.abs(exact.eta - found.eta)
        assert np.all(off <= loose + exact.bounds + 1e-9)
        assert np.all(off[rows] <= close + exact.bounds[rows] + 1e-9)
        assert np.isfinite(close).mean() > 0.9


def test_rows_go_on_where_they_were_at_another_strength() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(80, 5))
    y = (X[:, 0] + rng.logistic(size=80) > 0).astype(float)
    yardstick_of = yardstick(LogLoss(np.arange(2)), y, np.ones(80))
    states = []
    for alpha in (0.1, 0.05):
        fit, K = solve(Fit.at_start(Problem(Logistic(), L2(alpha), X, y, np.ones(80))))
        states.append(begin(fit, K, yardstick_of))
    rows = np.arange(0, 80, 3)
    states[0].repeat_steps(rows)
    states[1].leads = Leads.of(states[0].found)
    assert states[1].leads is not None
    states[1].repeat_steps(rows)
    exact = leave_out(states[1].fit, None, 0.0)
    assert set(rows.tolist()) <= set(states[1].found.solved)
    ends = np.abs(states[1].found.eta - exact.eta)[rows]
    assert np.all(ends <= (states[1].found.bounds + exact.bounds)[rows] + 1e-12)


def _classes(
    n: int = 600, p: int = 6, c: int = 4, store: Any = np.asarray, fit_intercept: bool = True
) -> Fit:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, p)) * np.linspace(0.5, 2.0, p)
    y = (X @ rng.normal(size=(p, c)) + rng.gumbel(size=(n, c))).argmax(axis=1).astype(float)
    problem = Problem(Multinomial(c), L2(2.0), store(X), y, np.ones(n), np.full(c, fit_intercept))
    return solve(Fit.at_start(problem)).fit


def test_steps_of_some_rows_are_those_of_all() -> None:
    fit = _classes()
    K = curvature_of_refits(fit)
    assert isinstance(K, CoupledBlock)
    assert has_some_steps(fit, K)
    rows = np.array([5, 0, 77, 599])
    np.testing.assert_allclose(K.forms_of(rows), K.quadratic_forms()[rows], rtol=1e-10)
    np.testing.assert_allclose(step_of_rows(fit, K, rows), one_step(fit, K).eta[rows], rtol=1e-10)


def test_steps_by_average_tell_nearly_all_of_the_steps() -> None:
    fit = _classes()
    moved, about = one_step(fit).eta - fit.eta, step_by_average(fit) - fit.eta
    assert np.corrcoef(moved.ravel(), about.ravel())[0, 1] > 0.97


@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_steps_by_the_diagonal_tell_much_of_the_steps(store, fit_intercept) -> None:
    fit = _classes(c=3, store=store, fit_intercept=fit_intercept)
    moved, about = one_step(fit).eta - fit.eta, step_by_diagonal(fit) - fit.eta
    assert np.corrcoef(moved.ravel(), about.ravel())[0, 1] > 0.9
    d = np.einsum("naa->na", fit.hessian)
    alone = np.stack([(store(fit.problem.X) ** 2).T @ one for one in d.T], axis=1) + 2.0
    forms = (store(fit.problem.X) ** 2) @ (1.0 / alone) + (1.0 / d.sum(axis=0) if fit_intercept else 0.0)
    np.testing.assert_allclose(about, forms / (1.0 + d * forms) * fit.gradient, rtol=1e-9, atol=1e-12)


def test_columns_of_the_hat_matrix_are_its_products_with_unit_rows() -> None:
    for fit in (solve(Fit.at_start(_problem("logistic", 30, 80, 1e-3))).fit, _classes(40)):
        K, rows = curvature_of_refits(fit), np.array([3, 17])
        unit = np.zeros((*fit.eta.shape, 2))
        unit[rows, ..., np.arange(2)] = 1.0
        np.testing.assert_allclose(K.hat_columns(rows), K.hat(unit), rtol=1e-8, atol=1e-10)
        assert np.isfinite(K.hat_columns(rows)).all()


def test_faint_rows_have_hat_values_as_accurate_as_others() -> None:
    fit = solve(Fit.at_start(_problem("logistic", 30, 80, 1e-3))).fit  # separated: curvatures down to nothing
    K = curvature_of_refits(fit)
    assert fit.hessian.min() < 0.2 * fit.hessian.max()
    hat = K.hat_matrix()
    np.testing.assert_allclose(hat, hat.T, rtol=1e-7, atol=1e-9 * np.abs(hat).max())
    np.testing.assert_allclose(hat.diagonal(), K.quadratic_forms(), rtol=1e-8)


def test_fits_along_a_path_are_near_the_optimum() -> None:
    problems = [_problem("logistic", 300, 1500, alpha) for alpha in np.geomspace(1e3, 1.0, 6)]
    for problem, solution in zip(problems, newton_path(problems), strict=True):
        exact = solve(Fit.at_start(problem)).fit
        size = np.abs(exact.coef).max()
        np.testing.assert_allclose(solution.fit.coef, exact.coef, rtol=0, atol=1e-4 * size)


def _small(loss: str) -> Fit:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 6))
    y = X[:, 0] + rng.standard_t(2, size=40)
    problems = {
        "squared": Problem(Squared(), L2(1.0), X, y, np.ones(40)),
        "logistic": Problem(Logistic(), L2(0.2), X, (y > 0).astype(float), np.ones(40)),
        "net": Problem(Logistic(), ElasticNet(0.5, 0.5), X, (y > 0).astype(float), np.ones(40)),
        "poisson": Problem(Poisson(), L2(0.2), X, np.round(np.exp(0.4 * y.clip(-3, 4))), np.ones(40)),
    }
    return solve(Fit.at_start(problems[loss])).fit


@pytest.mark.parametrize("loss", ["squared", "logistic", "net", "poisson"])
def test_bounds_may_take_without_end(loss: str) -> None:
    fit = _small(loss)
    found, exact = leave_out(fit, affordable=np.inf), leave_out(fit, max_error=0.0)
    assert np.all(np.abs(found.eta - exact.eta) <= found.bounds + exact.bounds + 1e-9)


@pytest.mark.parametrize("loss", ["logistic", "poisson"])
def test_small_tables_are_told_to_more_than_was_asked_for(loss: str) -> None:
    fit = _small(loss)
    metric = Deviance(Poisson()) if loss == "poisson" else LogLoss((0, 1))
    found = leave_out(fit, yardstick=yardstick(metric, fit.problem.y, None))
    assert found.bounds.max() < 1e-5
    exact = leave_out(fit, max_error=0.0)
    assert np.all(np.abs(found.eta - exact.eta) <= found.bounds + exact.bounds + 1e-9)
