"""Steps towards refits that are told by the coefficients end at them, within their bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from onefit.balance import Balance
from onefit.curvature import Direction, factor
from onefit.fit import Fit
from onefit.leave_out import coef_steps
from onefit.leave_out.blocks import Blocks
from onefit.leave_out.chords import FoldProblems, goes_by_coefficients
from onefit.leave_out.coef_steps import OfFit, steps_in_coefficients
from onefit.leave_out.leads import Leads
from onefit.leave_out.sets import Folds
from onefit.leave_out.stages import LOOSELY, State
from onefit.losses import Logistic, Multinomial, Poisson
from onefit.penalties import L2
from onefit.problem import Problem
from onefit.solvers.solve import solve

N, P = 120, 6


@pytest.fixture(autouse=True)
def of_all_sizes(monkeypatch):
    """Single outputs of few rows go by these, too."""
    monkeypatch.setattr("onefit.leave_out.chords.IN_CACHE", 1)


def test_single_outputs_of_few_rows_go_by_the_rows(monkeypatch):
    monkeypatch.setattr("onefit.leave_out.chords.IN_CACHE", 2**15)
    assert not goes_by_coefficients(fitted(Logistic()))
    assert goes_by_coefficients(fitted(Multinomial(3)))
    wide = Problem(
        Multinomial(3), L2(1.0), np.ones((3, 5)), np.arange(3.0), np.ones(3), np.ones(3, dtype=bool)
    )
    assert not goes_by_coefficients(Fit.at_start(wide))


def fitted(loss, *, store=np.asarray, strength=0.3, fit_intercept=True, weights=None, **refits) -> Fit:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, P)) * (rng.random((N, P)) < 0.6)
    eta = 1.5 * X @ rng.normal(size=(P, 3))
    y = (eta + rng.gumbel(size=(N, 3))).argmax(axis=1).astype(float)
    if isinstance(loss, Logistic):
        y = (y > 0).astype(float)
    intercept = np.full(3 if isinstance(loss, Multinomial) else (), fit_intercept)
    weights = np.ones(N) if weights is None else weights
    return solve(Fit.at_start(Problem(loss, L2(strength), store(X), y, weights, intercept, **refits))).fit


def refits_without(fit: Fit, sets) -> list[Fit]:
    return [solve(Fit(fit.problem.without(rows), fit.coef, fit.intercept)).fit for rows in sets]


def iterated(fit: Fit, sets, tol: float) -> Blocks:
    blocks = Blocks.of(fit, None, Folds(sets, sets, N))
    blocks.step()
    blocks.iterate(np.arange(len(sets)), tol)
    return blocks


@pytest.mark.parametrize("tol", [1.0, LOOSELY])
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("loss", [Logistic(), Poisson(), Multinomial(3)], ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("store", [np.asarray, np.asfortranarray, sp.csr_array])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_they_end_at_refits_within_their_bounds(loss, size, store, fit_intercept, tol, monkeypatch):
    monkeypatch.setattr(coef_steps, "IN_CACHE", 10 * N)  # in several blocks
    monkeypatch.setattr(coef_steps, "FEWEST", 16)
    fit = fitted(loss, store=store, fit_intercept=fit_intercept)
    assert goes_by_coefficients(fit)
    sets = tuple(np.arange(N).reshape(-1, size))[::7]
    blocks = iterated(fit, sets, tol)
    assert len(blocks.ends) == len(sets)
    near = 1e-7 if tol == 1.0 else 1e-3
    for k, refit in enumerate(refits_without(fit, sets)):
        off = np.abs(blocks.eta[blocks.folds.place(k)] - refit.eta[sets[k]]).reshape(size, -1).max(axis=1)
        assert np.all(off <= blocks.bounds[blocks.folds.place(k)] + 1e-9)
        assert np.all(blocks.bounds[blocks.folds.place(k)] <= near)
        centred = [
            coef - coef.mean(axis=-1, keepdims=coef.ndim > 1) for coef in (blocks.ends[k].coef, refit.coef)
        ]
        if isinstance(loss, Multinomial):  # what classes have in common is nowhere told but by the penalty
            np.testing.assert_allclose(*centred, atol=10 * near)
        else:
            np.testing.assert_allclose(blocks.ends[k].coef, refit.coef, atol=10 * near)


@pytest.mark.parametrize("loss", [Poisson(), Multinomial(3)], ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("kind", ["weights", "balanced", "mean-scaled", "mean-scaled with weights"])
def test_refits_may_weigh_the_others_anew(loss, kind):
    rng = np.random.default_rng(1)
    weights = rng.uniform(0.3, 3.0, N) if "weights" in kind else np.ones(N)
    weights[::11] = 0.0
    fit = fitted(loss, weights=weights, mean_scaled="mean" in kind, strength=2.0)
    if kind == "balanced":
        classes = (np.arange(N) % 3).astype(np.intp)
        totals = np.bincount(classes, weights)
        own = weights * (weights.sum() / (3 * totals))[classes]
        problem = replace(fit.problem, weights=own, balance=Balance(classes, weights))
        fit = solve(Fit.at_start(problem)).fit
    state = State.of(fit, None, None, None, 0.1)
    rows = np.flatnonzero(weights > 0)[::5]
    state.repeat_steps(rows)
    assert np.isin(rows, state.found.stepped).all()
    for i, refit in zip(rows.tolist(), refits_without(fit, rows), strict=True):
        off = np.abs(state.found.eta[i] - refit.eta[i]).max()
        assert off <= state.found.bounds[i] + 1e-8
        assert state.found.bounds[i] < 1e-2


def test_a_start_that_is_known_saves_passes(monkeypatch):
    fit, near = fitted(Multinomial(3), strength=0.3), fitted(Multinomial(3), strength=0.31)
    rows, seen, passed = np.arange(0, N, 4), [], coef_steps._Passes.seen

    def watched(self, refits, at):
        seen[-1] += at.coef.shape[-1]
        return passed(self, refits, at)

    monkeypatch.setattr(coef_steps._Passes, "seen", watched)
    state = State.of(near, None, None, None, 0.1)
    seen.append(0)
    state.repeat_steps(rows)
    known, found = Leads.of(state.found), []
    for leads in (None, known):
        own = State.of(fit, None, None, None, 0.1)
        own.leads = leads
        seen.append(0)
        own.repeat_steps(rows)
        found.append(own.found.eta[rows])
    assert seen[2] < seen[1]
    np.testing.assert_allclose(found[0], found[1], atol=1e-3)


def test_where_steps_crawl_they_are_given_up(monkeypatch):
    """Rows that they do not bring there have no end, and no bound is claimed of them."""
    fit, passed, passes = fitted(Multinomial(3), strength=1e-3), coef_steps._Passes.seen, []

    def crawling(self, refits, at):
        passes.append(at.coef.shape[-1])
        return passed(self, refits, at)

    monkeypatch.setattr(coef_steps._Passes, "seen", crawling)
    solved = coef_steps.WithoutFolds.solve
    slowly = lambda self, gradient: type(gradient)(*(0.02 * part for part in solved(self, gradient)))  # noqa: E731
    monkeypatch.setattr(coef_steps.WithoutFolds, "solve", slowly)
    monkeypatch.setattr(coef_steps, "MIXED", 1)
    sets = tuple(np.arange(N).reshape(-1, 1))[::7]
    blocks = iterated(fit, sets, LOOSELY)
    assert len(passes) <= 3 * coef_steps.PATIENCE
    for k in set(range(len(sets))) - set(blocks.ends):
        assert not np.any(blocks.bounds[blocks.folds.place(k)] < 1e-6)


@pytest.mark.parametrize("loss", [Logistic(), Poisson(), Multinomial(3)], ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("store", [np.asarray, np.asfortranarray, sp.csr_array])
@pytest.mark.parametrize("weighted", [False, True])
def test_tenths_may_be_summed_in_single_precision(loss, store, weighted, monkeypatch):
    monkeypatch.setattr(coef_steps, "FEWEST", 16)
    monkeypatch.setattr(coef_steps, "IN_CACHE", 10 * N)
    weights = np.random.default_rng(2).uniform(0.3, 3.0, N) if weighted else np.ones(N)
    fit = fitted(loss, store=store, weights=weights)
    tenths = np.array_split(np.random.default_rng(3).permutation(N), 10)
    refits, begun = FoldProblems.without(fit, factor(fit), tenths), []
    of = coef_steps._Passes.of.__func__
    kept = lambda cls, *given, **how: begun.append(of(cls, *given, **how)) or begun[-1]  # noqa: E731
    monkeypatch.setattr(coef_steps._Passes, "of", classmethod(kept))
    start = Direction(*(np.repeat(part[..., None], 10, axis=-1) for part in (fit.coef, fit.intercept)))
    close = coef_steps.Roughly.of_folds(1e-3, np.zeros(10))
    end = steps_in_coefficients(refits, OfFit(factor(fit)), close, start, 60, mix=12, in_single=True)
    precision = np.float64 if sp.issparse(fit.problem.X) else np.float32
    assert {block.X.dtype for block in begun[0].blocks} == {np.dtype(precision)}
    assert end.settled.all()
    for j, refit in enumerate(refits_without(fit, tenths)):
        way = np.linalg.norm(refit.eta - fit.eta)
        assert np.linalg.norm(end.predictors_of(fit.problem.X, np.arange(N), j) - refit.eta) <= 5e-3 * way
