"""Elastic nets on sparse columns without a factor: the optimum of the active-set method."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from onefit import losses, penalties
from onefit.fit import Fit
from onefit.problem import Problem
from onefit.solvers import by_column, coordinate_descent
from onefit.solvers.path import least_squares_path
from onefit.solvers.solve import solve


def problems(rng, intercept, count=6, n=120, p=300):
    """Rare words, rows of unequal weight and some of none, from a strong penalty to a weak one."""
    X = csr_array((rng.random((n, p)) < 0.05) * rng.uniform(0.2, 2.0, (n, p)))
    y = 3.0 + X @ (rng.normal(size=p) * (rng.random(p) < 0.2)) + rng.normal(size=n)
    weights = rng.integers(0, 4, n).astype(float)
    for alpha in np.geomspace(20.0, 0.02, count):
        yield Problem(losses.Squared(), penalties.ElasticNet(alpha, 0.5), X, y, weights, np.array(intercept))


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("factored", [True, False])
def test_optima_are_those_of_active_sets(intercept, factored, monkeypatch):
    monkeypatch.setattr(by_column, "pays", lambda _: False)
    monkeypatch.setattr(by_column._Search, "_is_factored", lambda *_: factored)
    rng, last = np.random.default_rng(0), None
    for problem in list(problems(rng, intercept)):
        exact = next(least_squares_path([problem])).fit
        start = Fit.at_start(problem) if last is None else Fit(problem, last.coef, last.intercept)
        last = by_column.solve(start)
        np.testing.assert_allclose(last.coef, exact.coef, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(last.intercept, exact.intercept, rtol=1e-10)
        assert np.array_equal(last.coef != 0, exact.coef != 0)


def test_paths_end_where_the_objective_is_known_to_a_millionth(monkeypatch):
    """Of fits of which no more is asked: beside weak penalties, too, where the first steps move nothing."""
    rng = np.random.default_rng(3)
    X = random_array((200, 400), density=0.02, rng=rng, format="csc")
    y, weights, strengths = (
        X @ rng.normal(size=400) + 0.1 * rng.normal(size=200),
        np.ones(200),
        np.geomspace(1, 1e-4, 12),
    )
    own = [Problem(losses.Squared(), penalties.ElasticNet(a, 0.3), X, y, weights) for a in strengths]
    monkeypatch.setattr(by_column, "pays", lambda fit: bool(np.any(fit.coef)))
    exact = [solution.fit for solution in least_squares_path(own)]
    near = [solution.fit for solution in least_squares_path(own, lambda _: True)]
    excess = [one.objective / other.objective - 1.0 for one, other in zip(near, exact, strict=True)]
    assert max(excess) <= 1e-6
    assert any(np.any(one.coef != other.coef) for one, other in zip(near, exact, strict=True))


def test_paths_change_over_where_factors_are_dear(monkeypatch):
    """From some strength on, and back where no optimum is reached."""
    own = list(problems(np.random.default_rng(1), True))
    monkeypatch.setattr(by_column, "pays", lambda _: False)
    exact = [solution.fit.coef for solution in least_squares_path(own)]
    reached, solve = [], by_column.solve

    def counted(start, columns):
        reached.append(start)
        return solve(start, columns)

    monkeypatch.setattr(by_column, "pays", lambda fit: np.count_nonzero(fit.coef) > 20)
    monkeypatch.setattr(by_column, "solve", counted)
    for coef, solution in zip(exact, least_squares_path(own), strict=True):
        np.testing.assert_allclose(solution.fit.coef, coef, rtol=1e-8, atol=1e-9)
    assert 0 < len(reached) < len(own)
    monkeypatch.setattr(by_column, "solve", lambda *_: None)
    for coef, solution in zip(exact, least_squares_path(own), strict=True):
        np.testing.assert_allclose(solution.fit.coef, coef, rtol=1e-8, atol=1e-9)


def test_a_pattern_of_more_columns_than_rows_is_ended_on_by_a_factor_of_the_rows(monkeypatch):
    """Conjugate gradients take more and more products as the penalty fades."""
    *_, problem = problems(np.random.default_rng(0), True, n=60, p=900)
    start = solve(Fit.at_start(problem)).fit
    monkeypatch.setattr(by_column, "conjugate_gradients", None)
    weaker = replace(problem, penalty=problem.penalty.scaled(0.8))
    found = by_column.solve(Fit(weaker, start.coef, start.intercept))
    assert np.count_nonzero(found.coef) > 60
    assert by_column._Search.of(found, None).is_optimal(found)
    assert found.objective == pytest.approx(solve(Fit.at_start(weaker)).fit.objective, rel=1e-10)


def test_products_of_changing_columns_are_those_of_the_columns_that_are_in():
    rng = np.random.default_rng(4)
    X = random_array((40, 200), density=0.1, rng=rng, format="csr")
    columns, inside = by_column.SomeColumns.of(X), rng.random(200) < 0.5
    for _ in range(5):
        known = columns.products(inside)
        own = X.toarray()[:, inside]
        np.testing.assert_allclose(known.gram, own @ own.T, atol=1e-12)
        inside = inside ^ (rng.random(200) < 0.1)


def test_steps_on_patterns_go_near_without_tenths():
    """Near interpolation sweeps alone are slow; the gap says how near it is."""
    rng = np.random.default_rng(5)
    X = random_array((120, 500), density=0.05, rng=rng, format="csc")
    y = X @ rng.normal(size=500)
    weights = np.where(np.arange(120) < 12, 0.0, 1.0)
    weak = Problem(losses.Squared(), penalties.ElasticNet(1e-4, 0.3), X, y, weights)
    start = solve(Fit.at_start(replace(weak, weights=np.ones(120)))).fit
    begun = Fit(weak, start.coef, start.intercept)
    close = 1e-3 * coordinate_descent.gap(begun)
    near = by_column.approach(begun, lambda fit: coordinate_descent.gap(fit) <= close)
    assert near.objective - solve(begun).fit.objective <= close
