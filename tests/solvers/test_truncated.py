"""Truncated Newton steps end where factored ones do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from onefit import _linalg, cost
from onefit.curvature import CoupledProducts, Direction, factor
from onefit.curvature.row_products import SharedColumns
from onefit.fit import Fit
from onefit.inner_products import InnerProducts
from onefit.losses import Logistic, Multinomial, Poisson
from onefit.penalties import L1, L2
from onefit.problem import Problem
from onefit.solvers import newton, truncated
from onefit.solvers.path import newton_path
from onefit.solvers.solve import solve

N, P, C = 120, 30, 4
LOSSES = {"logistic": Logistic(), "poisson": Poisson(), "multinomial": Multinomial(C), "several": Logistic()}


def _problem(name, strength, store=np.asarray, fit_intercept=True, n=N, p=P):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p)) * (rng.random((n, p)) < 0.4)
    weights = rng.uniform(0.5, 2.0, n)
    weights[::10] = 0.0
    outputs = (C,) if name in ("multinomial", "several") else ()
    y = rng.integers(0, C if name == "multinomial" else 2, n).astype(float)
    if name == "several":
        y = rng.integers(0, 2, (n, C)).astype(float)
    return Problem(LOSSES[name], L2(strength), store(X), y, weights, np.full(outputs, fit_intercept))


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("name", LOSSES)
def test_it_ends_at_the_optimum(name, store, fit_intercept):
    last = newton.solve(Fit.at_start(_problem(name, 10.0, store, fit_intercept)))
    problem = _problem(name, 1.0, store, fit_intercept)
    found = truncated.approach(Fit(problem, last.fit.coef, last.fit.intercept), last.curvature.solve).fit
    optimum = newton.solve(Fit.at_start(problem)).fit
    np.testing.assert_allclose(found.eta - found.eta.mean(), optimum.eta - optimum.eta.mean(), atol=1e-8)
    assert found.objective == pytest.approx(optimum.objective, rel=1e-13)


@pytest.mark.parametrize("unit", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("far", [0.0, 300.0])
@pytest.mark.parametrize("order", ["C", "F"])
def test_rough_products_in_single_precision_lead_to_the_same_optimum(monkeypatch, unit, far, order):
    problem = _problem("multinomial", 1.0)
    X = np.array(problem.X, order=order)
    X[:, 0] *= unit
    X[:, 1] += far
    whole = replace(problem, X=X, inner=InnerProducts(X))
    took = []
    times = CoupledProducts.times
    monkeypatch.setattr(CoupledProducts, "times", lambda K, v: took.append(K.rows is not None) or times(K, v))
    start = Fit.at_start(whole)
    found = truncated.approach(start, truncated.by_diagonal(start)).fit
    optimum = newton.solve(Fit.at_start(replace(whole, inner=None))).fit
    assert sum(took) > 10
    assert found.objective == pytest.approx(optimum.objective, rel=1e-12)
    np.testing.assert_allclose(
        found.eta - found.eta.mean(axis=1)[:, None],
        optimum.eta - optimum.eta.mean(axis=1)[:, None],
        atol=1e-5,  # as far as double precision leads where columns are far from zero
    )


def test_only_dense_columns_of_usual_size_are_held_in_single_precision():
    X = _problem("multinomial", 1.0).X
    assert InnerProducts(sp.csr_array(X)).rows_in_single is None
    assert InnerProducts(_linalg.RowGram(X @ X.T)).rows_in_single is None
    assert InnerProducts(1e37 * X).rows_in_single is None
    inner = InnerProducts(X)
    assert inner.rows_in_single is inner.rows_in_single
    inner.forget()
    assert "rows_in_single" not in vars(inner)


def test_in_the_coordinates_of_a_gram_matrix():
    of_columns = _problem("logistic", 1.0, p=200)
    gram = _linalg.RowGram(_linalg.as_design(of_columns.X).row_gram(np.ones(200)))
    problems = [Problem(Logistic(), L2(a), gram, of_columns.y, of_columns.weights) for a in (10.0, 1.0)]
    last = newton.solve(Fit.at_start(problems[0]))
    start = Fit(problems[1], last.fit.coef, last.fit.intercept)
    found = truncated.approach(start, last.curvature.solve).fit
    np.testing.assert_allclose(found.eta, newton.solve(Fit.at_start(of_columns)).fit.eta, atol=1e-8)


def _wide():
    columns = sp.random_array((900, 3000), density=0.01, rng=0, format="csr")
    return [_problem("logistic", a, lambda _: columns, n=900) for a in np.geomspace(1.0, 1e-3, 4)]


def test_a_sparse_and_wide_path_is_preconditioned_by_its_columns():
    """It ends with the last short step, whose square is left; from there the optimum is a step away."""
    problems = _wide()
    found = list(newton_path(problems))
    first = found[0]
    start = Fit(problems[1], first.fit.coef, first.fit.intercept)
    solve = truncated.preconditioner(start, first.curvature)
    assert solve is not None
    assert solve != first.curvature.solve
    for problem, one in zip(problems, found, strict=True):
        expected = newton.solve(Fit.at_start(problem)).fit
        assert one.fit.objective == pytest.approx(expected.objective, rel=truncated.SHORT**2)
        np.testing.assert_allclose(newton.solve(one.fit).fit.coef, expected.coef, atol=1e-9)


def test_a_factor_serves_while_that_costs_least_a_fit():
    takes = truncated.Seconds(product=0.8, solve=0.2, singly=np.inf, factored=37.0)
    counts = [8, 11, 14, 20, 27, 35, 44, 60, 80]
    costs = [(37.0 + sum(counts[:k]) - 8.0 * k) / k for k in range(1, len(counts) + 1)]  # a fit, beyond 8
    serving, served = truncated.ServingFactor(factor(Fit.at_start(_problem("logistic", 1.0)))), 0
    assert not serving.pays(takes)  # which nobody has tried
    for count in counts:
        serving.products.append(count)
        if not serving.pays(takes):
            break
        served += 1
    assert served == int(np.argmin(costs)) + 1


def test_along_a_path_a_factor_serves_several_fits(monkeypatch):
    monkeypatch.setattr(truncated, "most_products_by_average", lambda *_: 0)
    rng = np.random.default_rng(0)
    X, c = rng.normal(size=(400, 40)), 5
    y = (X @ rng.normal(size=(40, c)) + rng.gumbel(size=(400, c))).argmax(axis=1).astype(float)
    strengths = np.geomspace(100.0, 1.0, 16)
    problems = [Problem(Multinomial(c), L2(a), X, y, np.ones(400), np.ones(c, bool)) for a in strengths]
    monkeypatch.setattr(truncated.cost, "PER_CALL", 0.0)
    monkeypatch.setattr(cost, "PRODUCTS", 5)  # else factors cost too little to go without
    made, summed = [], SharedColumns.weighted
    monkeypatch.setattr(SharedColumns, "weighted", lambda *given: made.append(1) or summed(*given))
    found = list(newton_path(problems))
    assert 0 < len(made) < len(found) / 2
    for problem, one in zip(problems, found, strict=True):
        expected = newton.solve(Fit.at_start(problem)).fit
        assert one.fit.objective == pytest.approx(expected.objective, rel=truncated.SHORT**2)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
def test_products_of_coupled_outputs_are_those_of_the_curvature(store, fit_intercept):
    start = Fit.at_start(_problem("multinomial", 2.0, store, fit_intercept))
    rng = np.random.default_rng(1)
    fit = start.moved(rng.normal(size=start.coef.shape), start.intercept)
    along = Direction(rng.normal(size=fit.coef.shape), rng.normal(size=C) * fit_intercept)
    made = CoupledProducts(fit).times(along)
    bent = np.einsum("nab,nb->na", fit.hessian, fit.problem.X @ along.coef + along.intercept)
    np.testing.assert_allclose(made.coef, fit.problem.X.T @ bent + 2.0 * along.coef, atol=1e-10)
    np.testing.assert_allclose(made.intercept, bent.sum(axis=0) * fit_intercept, atol=1e-10)


def test_kinks_and_small_problems_are_left_to_factors():
    problem = _problem("logistic", 1.0)
    start = Fit.at_start(problem)
    assert truncated.preconditioner(start, factor(start)) is None
    wide = _wide()[0]
    kinked = Fit.at_start(Problem(wide.loss, L1(1.0), wide.X, wide.y, wide.weights))
    assert truncated.preconditioner(kinked, factor(kinked)) is None


def test_a_curvature_that_overflows_is_not_taken_for_an_optimum(monkeypatch):
    """Conjugate gradients that break off at once bring no direction, and so no decrement."""
    problem = _problem("logistic", 1.0)
    start = Fit.at_start(problem)
    curvature = factor(start)
    monkeypatch.setattr(
        truncated.Products, "times", lambda _, along: type(along)(along.coef * np.nan, along.intercept)
    )
    assert not truncated.approach(start, curvature.solve).is_there


def test_a_neighbour_whose_factor_has_to_be_made_serves_at_the_price_of_its_share():
    problem = _problem("multinomial", 2.0)
    fit = Fit.at_start(problem)
    takes, K = truncated.Seconds.of(fit), factor(fit)
    assert not K.is_factored
    assert takes.by_neighbour(None) == np.inf
    assert takes.by_neighbour(K) == takes.by_factor + takes.factored / truncated.FITS
    assert K.is_definite  # which takes a factor
    assert takes.by_neighbour(K) == takes.by_factor


def test_each_coefficient_of_coupled_outputs_on_its_own():
    fit = Fit.at_start(_problem("multinomial", 2.0))
    X, d = fit.problem.X, np.einsum("naa->na", fit.hessian)
    gradient = Direction(np.ones(fit.coef.shape), np.arange(len(fit.intercept)) + 1.0)
    coef, level = truncated.by_diagonal(fit)(gradient)
    np.testing.assert_allclose(1.0 / coef, (X**2).T @ d + 2.0)
    alone = gradient.intercept / d.sum(axis=0)
    np.testing.assert_allclose(level, alone - alone.mean())  # a shift of all changes nothing


def test_what_nothing_curves_stays_as_it_is():
    """Shifts of a column without a ridge, of all outputs at once, which the loss ignores."""
    penalty = L2(np.array([0.0, 2.0])[:, None] * np.ones(3))
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), rng.integers(0, 3, 60).astype(float)
    problem = Problem(Multinomial(3), penalty, X, y, np.ones(60), np.ones(3, dtype=bool))
    start = Fit.at_start(problem)
    there = truncated.approach(start, truncated.by_diagonal(start)).fit
    optimum = solve(start).fit
    np.testing.assert_allclose(there.eta, optimum.eta, atol=1e-6)
    np.testing.assert_allclose(there.coef[0].sum(), 0.0, atol=1e-12)
    np.testing.assert_allclose(there.intercept.sum(), 0.0, atol=1e-12)
