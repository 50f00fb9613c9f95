"""Rows that are left out of curved fits with kinks by iteration, beside refits."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from builders import without
from onefit.curvature import Direction
from onefit.fit import Fit
from onefit.leave_out import proximal, stages, tableau
from onefit.leave_out.engine import leave_out
from onefit.leave_out.tableau import Watched
from onefit.losses import Huber, Logistic, Poisson
from onefit.metrics import LogLoss
from onefit.numerics import CERTIFIED
from onefit.penalties import L1, ElasticNet
from onefit.problem import Problem
from onefit.risk.judging import yardstick
from onefit.solvers.solve import solve


def factor(seed: int) -> Fit:
    """All five levels of a factor, one of them twice, beside an intercept: the columns are dependent."""
    rng = np.random.default_rng(seed)
    levels = np.eye(5)[rng.integers(0, 5, 32)]
    X = np.hstack([levels, rng.normal(size=(32, 1)), levels[:, [1]]])
    y = (X[:, 5] - X[:, 1] + rng.logistic(size=32) > 0).astype(float)
    return solve(Fit.at_start(Problem(Logistic(), L1(0.035), X, y, np.ones(32)))).fit


@pytest.mark.parametrize("seed", [22, 38, 47, 58, 80, 81])
def test_a_level_that_enters_makes_the_columns_dependent(seed):
    # the model then has no single minimum: an iteration that stands still there has not settled
    fit = factor(seed)
    assert proximal.applies(fit)
    ends = proximal.iterate(Watched.of(fit), np.arange(32), 1e5)
    found = leave_out(fit)
    for i in range(32):
        refit = without(fit, i).eta[i]
        size = 1.0 + np.abs(fit.eta).max()
        assert abs(ends.eta[i] - refit) <= ends.bounds[i] + CERTIFIED * size
        assert abs(found.eta[i] - refit) <= found.bounds[i] + CERTIFIED * size


def sparse_counts(loss, penalty, X, seed: int = 0) -> Fit:
    """Few rows in each column, unequal weights, one of them zero: the patterns of most rows change."""
    rng = np.random.default_rng(seed)
    Z = X(rng.poisson(0.15, (80, 60)).astype(float))
    eta = Z[:, :6] @ rng.normal(size=6)
    y = rng.poisson(np.exp(eta)) if isinstance(loss, Poisson) else eta + rng.logistic(size=80) > 0
    weights = rng.uniform(0.5, 2.0, 80)
    weights[3] = 0.0
    return solve(Fit.at_start(Problem(loss, penalty, Z, y.astype(float), weights))).fit


FITS = [(Logistic(), L1(0.4)), (Logistic(), ElasticNet(0.4, 0.8)), (Poisson(), L1(0.6))]


@pytest.mark.costly
@pytest.mark.parametrize(("loss", "penalty"), FITS)
@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
def test_bounds_of_the_first_round_hold(loss, penalty, store):
    fit = sparse_counts(loss, penalty, store)
    rows = np.flatnonzero(fit.problem.weights > 0)
    seen = list(proximal.look(Watched.of(fit), rows))
    finite = [bound for _, _, bound in seen if np.isfinite(bound)]
    assert len(finite) > 0.3 * len(rows)
    for i, eta, bound in seen:
        assert abs(eta - without(fit, i).eta[i]) <= bound + CERTIFIED


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_columns_that_are_hardly_filled_are_multiplied_as_they_are_stored(fit_intercept):
    rng = np.random.default_rng(4)
    X = sp.csr_array(rng.poisson(0.04, (120, 150)) * rng.uniform(0.5, 2.0, (120, 150)))
    y = (X[:, :20].sum(axis=1) - 0.5 + rng.logistic(size=120) > 0).astype(float)
    problem = Problem(Logistic(), L1(0.3), X, y, rng.uniform(0.5, 2.0, 120), np.array(fit_intercept))
    fit = solve(Fit.at_start(problem)).fit
    table = Watched.of(fit).table()
    assert not table._stored.is_nearly_full
    x, slopes = rng.normal(size=(table.Z.shape[1], 3)), rng.normal(size=(120, 3))
    np.testing.assert_allclose(table.times(x), table.Z @ x, atol=1e-12)
    np.testing.assert_allclose(table.transposed_times(slopes), table.Z.T @ slopes, atol=1e-12)
    refits, ends = [], proximal.iterate(Watched.of(fit), np.arange(120), 1.0)
    for i, eta, bound in proximal.look(Watched.of(fit), np.arange(120)):
        refits.append(without(fit, i).eta[i])
        assert abs(eta - refits[-1]) <= bound + CERTIFIED
    np.testing.assert_allclose(ends.eta[ends.settled], np.array(refits)[ends.settled], atol=1e-6)
    assert ends.settled.mean() > 0.8


@pytest.mark.parametrize(("loss", "penalty"), FITS)
def test_mixed_steps_settle_where_the_refits_are_in_fewer_rounds(loss, penalty, monkeypatch):
    fit, rounds = sparse_counts(loss, penalty, np.asarray), []
    rows, step = np.flatnonzero(fit.problem.weights > 0), proximal.RowProblems._round

    def counted(self, active):
        rounds[-1] += active.size
        return step(self, active)

    monkeypatch.setattr(proximal.RowProblems, "_round", counted)
    for depth in (1, proximal.MIXED):
        rounds.append(0)
        monkeypatch.setattr(proximal, "MIXED", depth)
        ends = proximal.iterate(Watched.of(fit), rows, 1.0)
    refits = np.array([without(fit, i).eta[i] for i in rows])
    np.testing.assert_allclose(ends.eta[ends.settled], refits[ends.settled], atol=1e-7)
    assert ends.settled.mean() > 0.9
    assert rounds[1] < rounds[0]


@pytest.mark.costly
@pytest.mark.parametrize(("loss", "penalty"), FITS)
@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
def test_columns_that_enter_join_after_a_round(loss, penalty, store, monkeypatch):
    """Without that problems go on up to an end, and from there again with the columns that they lack."""
    fit, again = sparse_counts(loss, penalty, store), []
    rows, go_on = np.flatnonzero(fit.problem.weights > 0), proximal.RowProblems.of.__func__

    def counted(cls, table, which, *others):
        again[-1] += len(which)
        return go_on(cls, table, which, *others)

    monkeypatch.setattr(proximal.RowProblems, "of", classmethod(counted))
    monkeypatch.setattr(tableau, "NEARBY", 0.999)
    ends = []
    for join_first in (proximal._join_first, lambda *_: False):
        again.append(0)
        monkeypatch.setattr(proximal, "_join_first", join_first)
        ends.append(proximal.iterate(Watched.of(fit), rows, 1.0))
    assert again[0] - len(rows) < 0.5 * again[1]
    refits = np.array([without(fit, i).eta[i] for i in rows])
    for one in ends:
        assert one.settled.mean() > 0.8
        assert np.all(np.abs(one.eta - refits) <= one.bounds + CERTIFIED)


def test_few_columns_join_where_rows_move_far():
    """Nearly all columns pull at rows of separated classes that are on their way, and hardly any stay."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 800))
    y = (X[:, :2].sum(axis=1) + 0.5 * rng.logistic(size=40) > 0).astype(float)
    fit = solve(Fit.at_start(Problem(Logistic(), L1(0.001), X, y, np.ones(40)))).fit
    watched, rows = Watched.of(fit), np.arange(40)
    first = len(watched.columns)
    ends = proximal.iterate(watched, rows, 1.0)
    assert first < len(watched.columns) < 2.5 * first
    assert ends.settled.sum() >= 12
    for i in rows[ends.settled][::3]:
        refit = without(fit, int(i)).eta[i]
        assert ends.eta[i] == pytest.approx(refit, abs=1e-6 * np.abs(fit.eta).max())


def test_ends_go_on_from_where_they_are():
    fit = sparse_counts(Logistic(), L1(0.4), np.asarray)
    rows = np.arange(4, 40)
    loose = proximal.iterate(Watched.of(fit), rows, 1e8)
    starts = [Direction(*end) for end in zip(loose.coef, loose.intercept, strict=True)]
    ends = proximal.iterate(Watched.of(fit), rows, 1.0, starts)
    fine = ends.settled & np.isfinite(ends.bounds) & np.isfinite(loose.bounds)
    assert fine.any()
    assert np.all(ends.bounds[fine] <= loose.bounds[fine])
    for k in np.flatnonzero(ends.settled):
        assert abs(ends.eta[k] - without(fit, int(rows[k])).eta[rows[k]]) <= 1e-7


def twins() -> Fit:
    """Pairs of columns that differ in one row: without it they are copies, which no refit can tell apart."""
    rng, n, k = np.random.default_rng(1), 120, 30
    words = np.zeros((n, 2 * k))
    for j in range(k):
        words[[j, *range(j + k, j + k + 3)], 2 * j] = 1.0
        words[j + k : j + k + 3, 2 * j + 1] = 1.0
    X = np.hstack([words, rng.normal(size=(n, 5))])
    y = rng.logistic(size=n) + X[:, -1] + 2.0 * words[:, ::2].sum(axis=1) - 1.0 > 0
    return solve(Fit.at_start(Problem(Logistic(), L1(0.05), X, y.astype(float), np.ones(n)))).fit


@pytest.mark.parametrize("affordable", [None, 0.0], ids=["all", "a sample"])
def test_what_is_solved_anew_or_was_iterated_further_is_done(affordable, monkeypatch):
    fit, anew, starts = twins(), [], []
    refits, iterate = stages.refit_sets, proximal.iterate

    def refit_counted(fit, removed, *others):
        anew.extend(removed)
        return refits(fit, removed, *others)

    def iterate_counted(watched, rows, tol, known=()):
        starts.extend((int(row), bool(known)) for row in rows)
        return iterate(watched, rows, tol, known)

    monkeypatch.setattr(stages, "refit_sets", refit_counted)
    monkeypatch.setattr(proximal, "iterate", iterate_counted)
    judge = yardstick(LogLoss(np.array([0, 1])), fit.problem.y, None)
    found = leave_out(fit, yardstick=judge, affordable=affordable)
    assert found.bounds[found.several].max() > 0.1  # such refits are done, though nothing proves them
    assert any(further for _, further in starts)
    assert len(anew) == len(set(anew))
    assert len(starts) == len(set(starts))


def test_what_settles_where_nothing_curves_is_no_end():
    # row 11 alone holds its fit: without it the model of the steps is flat along it, and they stand still
    rng = np.random.default_rng(3)
    X = rng.standard_t(2.5, size=(24, 10))
    y = 1e3 * (X[:, 0] + rng.standard_t(2, size=24))
    problem = Problem(Huber(), L1(8.0), X, y, np.ones(24))
    solution = solve(Fit.at_start(problem))
    assert solution.fit.hessian[11] * solution.curvature.quadratic_forms()[11] > 1.0 - 1e-8
    ends = proximal.iterate(Watched.of(solution.fit), np.arange(24), 1e5)
    for i in np.flatnonzero(ends.settled):
        refit = solve(Fit.at_start(problem.without(int(i)))).fit
        assert ends.eta[i] == pytest.approx(float(refit.eta[i]), rel=1e-6)
