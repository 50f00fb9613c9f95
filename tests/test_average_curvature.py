"""The average curvature of the rows in place of K: what it is, and what it is good for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfTransformer

from onefit._linalg import Covariance
from onefit.curvature import (
    AverageCurvature,
    CoupledBlock,
    Direction,
    cost_of_average,
    factor,
    has_average,
    share_of_average,
)
from onefit.fit import Fit
from onefit.inner_products import InnerProducts
from onefit.losses import Logistic, Multinomial
from onefit.metrics import LogLoss
from onefit.penalties import L1, L2
from onefit.problem import Problem
from onefit.risk.means import mean_and_error
from onefit.solvers import newton, truncated
from onefit.solvers.path import approached, newton_path
from onefit.solvers.solve import solve
from onefit.tuning.from_below import from_below, is_bounded_from_below
from onefit.tuning.grid import Grid
from onefit.tuning.judgement import Judgement
from onefit.tuning.looks import Looks
from onefit.tuning.walk import Walk

N, P, C = 1500, 100, 8


def problem_at(strength, *, n=N, p=P, c=C, store=np.asarray, fit_intercept=True, size=1.5) -> Problem:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p)) + 0.5 * rng.normal(size=(n, 1)) + 0.3
    eta = X @ rng.normal(size=(p, c)) * size / np.sqrt(p)
    y = (eta + rng.gumbel(size=eta.shape)).argmax(axis=1).astype(float)
    return Problem(Multinomial(c), L2(strength), store(X), y, np.ones(n), np.full(c, fit_intercept))


@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("strength", [2.0, np.geomspace(0.1, 30.0, P)[:, None] * np.ones(C)])
def test_where_all_rows_bend_alike_it_is_the_curvature(store, fit_intercept, strength):
    problem = problem_at(strength, store=store, fit_intercept=fit_intercept)
    fit = Fit.at_start(problem)
    K, average = factor(fit), AverageCurvature.of(fit)
    rng = np.random.default_rng(1)
    gradient = Direction(*(rng.normal(size=part.shape) for part in (fit.coef, fit.intercept)))
    level = gradient.intercept - gradient.intercept.mean()
    gradient = Direction(gradient.coef - gradient.coef.mean(axis=1, keepdims=True), level * fit_intercept)
    for one, other in zip(K.solve(gradient), average.solve(gradient), strict=True):
        np.testing.assert_allclose(one - one.mean(axis=-1, keepdims=True), other, atol=1e-9)


@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("p", [P, 400])  # more columns than rows: in coordinates of their span
def test_several_gradients_are_solved_with_as_one_each(store, fit_intercept, p):
    n = N if p == P else 120
    fit = solve(Fit.at_start(problem_at(2.0, n=n, p=p, store=store, fit_intercept=fit_intercept))).fit
    average, rng = AverageCurvature.by_curved_rows(fit), np.random.default_rng(1)
    several = Direction(rng.normal(size=(p, C, 3)), fit_intercept * rng.normal(size=(C, 3)))
    found = average.solve(several)
    for j in range(3):
        alone = average.solve(Direction(*(part[..., j] for part in several)))
        for one, other in zip(found, alone, strict=True):
            np.testing.assert_allclose(one[..., j], other, atol=1e-12)


def test_rows_that_bend_most_count_most_on_the_way_to_an_optimum():
    """Where rows are of many sizes the largest ones hardly bend, and there are fewer products with K."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, P)) * rng.standard_t(3.0, size=(600, 1))
    y = (6.0 / np.sqrt(P) * X @ rng.normal(size=(P, C)) + rng.gumbel(size=(600, C))).argmax(axis=1)
    problem = replace(problem_at(1.0, n=600), X=X, y=y.astype(float))
    optimum = newton.solve(Fit.at_start(problem)).fit
    start = optimum.moved(0.9 * optimum.coef, optimum.intercept)
    alike, ours = (
        truncated.approach(start, average(start).solve)
        for average in (AverageCurvature.of, AverageCurvature.by_curved_rows)
    )
    assert ours.fit.objective == pytest.approx(alike.fit.objective, rel=1e-12)
    assert ours.products < 0.8 * alike.products


def test_others_have_none():
    of_two = Problem(Logistic(), L2(1.0), np.eye(5), np.array([0.0, 1, 0, 1, 1]), np.ones(5))
    assert not has_average(Fit.at_start(of_two))
    kinked = problem_at(1.0, n=50, p=3)
    kinked = Problem(kinked.loss, L1(1.0), kinked.X, kinked.y, kinked.weights, kinked.intercept)
    assert not has_average(Fit.at_start(kinked))


def test_paths_need_no_factor_until_somebody_asks():
    problems = [problem_at(strength) for strength in np.geomspace(1e4, 1.0, 4)]
    found = list(newton_path(problems))
    for problem, one in zip(problems, found, strict=True):
        assert isinstance(one.curvature, CoupledBlock)
        assert not one.curvature.is_factored
        optimum = newton.solve(Fit.at_start(problem)).fit
        assert one.fit.objective == pytest.approx(optimum.objective, rel=truncated.SHORT**2)
        np.testing.assert_allclose(one.fit.eta, optimum.eta, atol=1e-3)


def test_where_products_run_out_a_factor_takes_over():
    start = Fit.at_start(problem_at(1e-2, size=12.0))
    few = truncated.approach(start, AverageCurvature.of(start).solve, most=2)
    assert few.is_spent
    assert not few.is_there
    assert few.fit.objective < start.objective
    near = approached(start, factor(start))
    assert solve(start).fit.objective <= near.fit.objective + 1e-9
    assert truncated.most_products_by_average(start, factor(start)) > 0
    last = factor(start)
    assert last.is_definite  # which takes a factor
    assert truncated.most_products_by_average(start, last) == 0


def test_products_are_counted():
    start = Fit.at_start(problem_at(1.0))
    whole = truncated.approach(start, AverageCurvature.of(start).solve, truncated.SHORT)
    assert whole.is_there
    assert not whole.is_spent


def _looks(problem: Problem) -> Looks:
    return Looks(Judgement(LogLoss(np.arange(C)), problem.y, problem.weights))


def test_losses_in_the_fit_are_no_larger_than_without_the_row():
    problem = problem_at(3.0, n=300, p=8)
    fit, metric = solve(Fit.at_start(problem)).fit, LogLoss(np.arange(C))
    inside = metric.losses(problem.y, fit.eta)
    for i in range(0, 300, 30):
        refit = solve(Fit(problem.without(i), fit.coef, fit.intercept)).fit
        assert metric.losses(problem.y[[i]], refit.eta[[i]])[0] >= inside[i]
    verdict = from_below(inside, inside - 1.0)
    assert verdict.at_least[1] == 0.0
    np.testing.assert_array_equal(verdict.losses, inside)


def test_only_losses_of_the_fit_itself_bound_it_from_below():
    problem = problem_at(3.0)
    own = next(newton_path([problem]))
    metric = LogLoss(np.arange(C))
    assert is_bounded_from_below(own, metric, problem.y)
    assert not is_bounded_from_below(own, metric, problem.y[::-1])
    assert own.curvature.is_definite
    assert not is_bounded_from_below(own, metric, problem.y)  # somebody has made the factor


def test_strengths_that_are_out_of_reach_are_not_factored():
    """What is left open is judged, and the best of all is among that."""
    strengths = np.geomspace(1e5, 1.0, 5)
    looks = _looks(problem_at(1.0))
    walk = Walk(Grid(strengths), looks, problem_at)
    walk.go_down(early_stopping=False)
    losses = [solve(Fit.at_start(problem_at(s))) for s in strengths]
    risks = [mean_and_error(looks.stepped(one).losses, looks.judgement.weights)[0] for one in losses]
    best = int(np.argmin(risks))
    assert best not in walk.seen.bracketed
    assert 0 in walk.seen.bracketed
    for j in walk.seen.bracketed:
        assert risks[j] > risks[best]
        assert walk.seen.risks[j] == pytest.approx(risks[j], rel=0.05)
        assert not walk.seen.bracketed[j].curvature.is_factored


def test_the_diagonal_goes_first_where_it_takes_less_than_an_average_takes_to_be_made(monkeypatch):
    start = Fit.at_start(problem_at(1e3, n=250, p=300))
    assert truncated.most_products_by_average(start, None) > 0
    made, of = [], AverageCurvature.of
    monkeypatch.setattr(AverageCurvature, "of", lambda fit, *given: made.append(fit) or of(fit, *given))
    near = approached(start, near=truncated.ROUGH)
    assert near.is_there
    assert not made
    hard = Fit.at_start(problem_at(1e-2, n=250, p=300, size=12.0))
    approached(hard)
    assert made[0].objective < hard.objective  # which goes on from where the diagonal led
    optimum = newton.solve(hard).fit
    assert solve(hard).fit.objective == pytest.approx(optimum.objective, rel=1e-9)


def words(n=800, p=400) -> sp.csr_array:
    """Rows of words by Zipf's law: columns of very different lengths, of which common ones go together."""
    rng = np.random.default_rng(0)
    often = 1.0 / np.arange(1.0, p + 1.0)
    of_words = rng.choice(p, 60 * n, p=often / often.sum())
    counts = sp.csr_array((np.ones(60 * n), (np.repeat(np.arange(n), 60), of_words)), shape=(n, p))
    return TfidfTransformer(sublinear_tf=True).fit_transform(counts)


@pytest.mark.parametrize("with_words", [True, False])
def test_what_serves_without_a_factor_is_told_by_a_step_of_each(with_words):
    """Among words the average takes far fewer products, of columns alike no fewer."""
    rng = np.random.default_rng(0)
    X = words() if with_words else rng.normal(size=(800, 40))
    y = (3.0 * X @ rng.normal(size=(X.shape[1], 4)) + rng.gumbel(size=(800, 4))).argmax(axis=1)
    inner = InnerProducts(X)
    problem = Problem(
        Multinomial(4), L2(0.3), X, y.astype(float), np.ones(800), np.ones(4, bool), inner=inner
    )
    start = Fit.at_start(problem)
    by = truncated.WithoutFactor(start)
    found = truncated.approach(start, by, truncated.SHORT)
    assert found.is_there
    assert found.fit.objective == pytest.approx(newton.solve(start).fit.objective, rel=truncated.SHORT**2)
    assert len(by.digits) == 2
    assert by.by_average == (by.digits[True] < by.digits[False])
    alone = truncated.approach(start, truncated.by_diagonal(start), truncated.SHORT)
    assert (found.products < 0.6 * alone.products) == with_words


def test_fits_that_share_a_covariance_make_it_once(monkeypatch):
    X = words()
    made, of = [], Covariance.of
    monkeypatch.setattr(Covariance, "of", lambda *given, **how: made.append(1) or of(*given, **how))
    inner, rng = InnerProducts(X), np.random.default_rng(0)
    y = (3.0 * X @ rng.normal(size=(X.shape[1], 4)) + rng.gumbel(size=(800, 4))).argmax(axis=1)
    problem = Problem(
        Multinomial(4), L2(1.0), X, y.astype(float), np.ones(800), np.ones(4, bool), inner=inner
    )
    for strength in (1.0, 0.3, 0.1):
        start = Fit.at_start(replace(problem, penalty=L2(strength)))
        assert AverageCurvature.nearest(start).shared is not None
    assert len(made) == 1
    assert share_of_average(start).seconds == 0.0
    strengths = np.geomspace(0.1, 1.0, X.shape[1])[:, None] * np.ones(4)
    unlike = Fit.at_start(replace(problem, penalty=L2(strengths)))
    assert AverageCurvature.nearest(unlike).shared is None
    assert share_of_average(unlike).seconds == cost_of_average(unlike).seconds
