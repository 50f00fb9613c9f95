"""Curvatures of which only products are taken."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from onefit.curvature import Direction, Iterated, Products, conjugate_gradients, factor, iterated
from onefit.curvature.iterated import FEW_PROBES
from onefit.fit import Fit
from onefit.losses import Logistic, Tweedie
from onefit.penalties import L2
from onefit.problem import Problem
from onefit.solvers.solve import solve

CASES = {
    "intercept": (Logistic(), True, 1.0, 1.0),
    "none": (Logistic(), False, 0.05, 1.0),
    "strengths that differ": (Tweedie(1.0), True, np.linspace(0.3, 2.0, 300), 0.9),
}


@pytest.fixture(scope="module", params=CASES)
def both(request):
    """A fit, its curvature with a factor, and without."""
    loss, intercept, strength, share = CASES[request.param]
    rng = np.random.default_rng(0)
    X = sp.random(150, 300, density=0.1, format="csr", random_state=0)
    eta = X @ rng.normal(size=300)
    counts = rng.poisson(np.exp(eta / eta.std()))
    y = (eta > 0) if isinstance(loss, Logistic) else counts
    weights = rng.uniform(0.5, 2.0, 150)
    weights[:3] = 0.0
    problem = Problem(loss, L2(strength), X, y.astype(float), weights, np.array(intercept))
    fit = solve(Fit.at_start(problem)).fit
    K = factor(fit, shrink=share)
    return fit, K, Iterated(K, X, Products(fit, fit.hessian, np.array(share)))


def gradients(fit, count):
    rng = np.random.default_rng(1)
    return Direction(rng.normal(size=(300, count)), rng.normal(size=count) * bool(fit.problem.intercept))


def test_what_is_solved_is_what_a_factor_solves(both):
    fit, K, ours = both
    gradient = gradients(fit, 4)
    for found, expected in zip(ours.solve(gradient), K.solve(gradient), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
    rows = np.random.default_rng(2).normal(size=(150, 2))
    np.testing.assert_allclose(ours.hat(rows), K.hat(rows), rtol=1e-6, atol=1e-7)
    new = fit.problem.X[:5]
    np.testing.assert_allclose(ours.carry(new, fit.gradient), K.carry(new, fit.gradient))


def test_forms_are_those_of_a_factor_but_for_what_the_probes_leave(both):
    fit, K, ours = both
    exact, d = K.quadratic_forms(), fit.hessian
    np.testing.assert_allclose(ours.forms_of(np.arange(40)), exact[:40], rtol=1e-4)
    bends = d > 1e-3 * d.max()
    off = (d * (ours.quadratic_forms() - exact))[bends]
    error = (d[:, None] * ours._by_probe).std(axis=1)[bends] / np.sqrt(ours.probes)
    assert np.mean(np.abs(off) <= 3.0 * error + 1e-3) > 0.97
    assert abs(off.mean()) <= 3.0 * np.linalg.norm(error) / len(error) + 1e-3
    assert np.all(ours.products.forms_at_most() >= exact * (1 - 1e-9))


def test_few_probes_are_solved_for_as_well_as_they_tell(both, monkeypatch):
    """In fewer products, and off by less than the probes differ."""
    fit, K, _ = both
    asked, products = [], Products(fit, fit.hessian, np.array(1.0))
    solve_as_asked = Products.solve

    def watched(self, gradient, error):
        asked.append(error)
        return solve_as_asked(self, gradient, error)

    monkeypatch.setattr(Products, "solve", watched)
    few = Iterated(K, fit.problem.X, products, FEW_PROBES)
    forms, spread = few.quadratic_forms(), few._by_probe.std(axis=1) / np.sqrt(FEW_PROBES)
    Iterated(K, fit.problem.X, products, 4 * FEW_PROBES).quadratic_forms()
    assert asked[0] > asked[1]
    monkeypatch.setattr(iterated, "COARSELY", 1e-10)
    exact = Iterated(K, fit.problem.X, products, FEW_PROBES).quadratic_forms()
    d = fit.hessian
    assert abs(d @ (forms - exact)) <= 0.3 * np.linalg.norm(d * spread)


def test_more_probes_begin_with_those_that_were_solved_for(both, monkeypatch):
    for name in ("COARSELY", "ROUGHLY"):
        monkeypatch.setattr(iterated, name, 1e-9)
    fit, K, ours = both
    ours, few = replace(ours), replace(ours, probes=FEW_PROBES)  # of which nothing is known yet
    more, asked = few.with_probes(ours.probes, 1e-4), []
    known = few.quadratic_forms()
    solve_as_asked = Products.solve
    monkeypatch.setattr(
        Products, "solve", lambda own, g, e: (asked.append(g.coef.shape[1]), solve_as_asked(own, g, e))[1]
    )
    np.testing.assert_allclose(more.quadratic_forms(), ours.quadratic_forms(), rtol=1e-5, atol=1e-9)
    assert asked == [ours.probes - FEW_PROBES, ours.probes]
    np.testing.assert_array_equal(
        more.with_probes(ours.probes, 1e-4).quadratic_forms(), more.quadratic_forms()
    )
    exact = K.quadratic_forms()
    assert np.linalg.norm(fit.hessian * (more.quadratic_forms() - exact)) < np.linalg.norm(
        fit.hessian * (known - exact)
    )


def test_answers_are_those_of_a_factor_and_kept(both, monkeypatch):
    fit, K, ours = both
    own, rows = ours.with_probes(ours.probes, 1e-8), np.array([5, 2, 40])
    first = own.answers_of(rows[:2])
    asked = []
    approached = Products.approached
    monkeypatch.setattr(
        Products, "approached", lambda self, g, e: (asked.append(g.coef.shape[1]), approached(self, g, e))[1]
    )
    found = own.answers_of(rows)
    assert asked == [1]
    np.testing.assert_array_equal(found.coef[:, :2], first.coef)
    columns = np.asarray(fit.problem.X[rows].todense()).T
    exact = K.solve(Direction(columns, np.full(3, float(bool(fit.problem.intercept)))))
    np.testing.assert_allclose(found.coef, exact.coef, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.intercept, exact.intercept, rtol=1e-5, atol=1e-6)


def test_squares_are_no_less_than_those_of_a_factor(both):
    fit, K, ours = both
    gradient = gradients(fit, 6)
    step = K.solve(gradient)
    exact = np.sum(gradient.coef * step.coef, axis=0) + gradient.intercept * step.intercept
    found = ours.products.squares(gradient, ours.products.approached(gradient, 1e-3)[0])
    assert np.all(found >= exact * (1 - 1e-9))
    assert np.all(found <= 1.1 * exact)


def test_conjugate_gradients_say_whether_they_are_near():
    A = np.diag(np.geomspace(1e-6, 1.0, 30))
    b = Direction(np.ones((30, 2)), np.zeros(2))

    def solved(most):
        return conjugate_gradients(
            lambda v: Direction(A @ v.coef, v.intercept),
            lambda v: v,
            lambda u, v: np.sum(u.coef * v.coef, axis=0),
            b,
            1e-8,
            most,
        )

    assert not solved(3)[1]
    found, near = solved(300)
    assert near
    np.testing.assert_allclose(A @ found.coef, b.coef, atol=1e-6)


def left(products, gradient, step):
    """Error of a step, relative, in the norm that steps are asked for in: (f,)."""
    made = products.times(step)
    rest = Direction(gradient.coef - made.coef, gradient.intercept - made.intercept)
    size = [np.sum(products.scaled(g).coef * g.coef, axis=0) for g in (rest, gradient)]
    levels = [products.scaled(g).intercept * g.intercept for g in (rest, gradient)]
    return np.sqrt((size[0] + levels[0]) / (size[1] + levels[1]))


@pytest.mark.parametrize("error", [3e-3, 1e-3])
def test_rough_solutions_are_made_in_single_precision_and_as_near_as_asked_for(both, error, monkeypatch):
    fit, _, ours = both
    gradient, products = gradients(fit, 40), ours.products
    times, kinds = Products.times, set()

    def watched(self, along):
        kinds.add(along.coef.dtype)
        return times(self, along)

    monkeypatch.setattr(Products, "times", watched)
    step, is_near = products.approached(gradient, error)
    assert is_near
    assert kinds == {np.dtype(np.float32)}
    assert step.coef.dtype == np.float64
    assert np.all(left(products, gradient, step) <= 1.01 * error)


def test_where_single_precision_does_not_do_double_does():
    rng = np.random.default_rng(0)
    X = sp.csr_array(rng.normal(size=(40, 2)) @ np.array([[1.0, 1.0], [1e-4, 0.0]]))
    y = (rng.random(40) < 0.5).astype(float)
    problem = Problem(Logistic(), L2(1e-9), X, y, np.ones(40), np.array(True))
    fit = solve(Fit.at_start(problem)).fit
    products = Products(fit, fit.hessian, np.array(1.0))
    gradient = Direction(rng.normal(size=(2, 3)), rng.normal(size=3))
    assert not products._roughly(gradient, 1e-3)[1]
    step, is_near = products.approached(gradient, 1e-3)
    assert is_near
    assert np.all(left(products, gradient, step) <= 1.01e-3)
