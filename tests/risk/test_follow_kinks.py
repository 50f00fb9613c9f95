"""Paths out of a fit whose loss has kinks, against refits without the row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from builders import kinked_problem
from onefit._linalg import RowGram
from onefit.fit import Fit
from onefit.leave_out.follow_kinks import leave_out_along_path
from onefit.leave_out.patterns import pattern_stays
from onefit.leave_out.refit import without
from onefit.leave_out.step import leave_kinks_out
from onefit.losses import EpsilonInsensitive, Hinge, Quantile
from onefit.penalties import L2
from onefit.problem import Problem
from onefit.solvers import kinks

N, P = 50, 6  # of the problems of ``builders``
PLAIN = L2(0.5)
LOSSES = {
    "hinge": Hinge(),
    "quantile": Quantile(0.3),
    "absolute": EpsilonInsensitive(0.0),
    "epsilon": EpsilonInsensitive(0.5),
}
every = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())


def _problem(loss, penalty=PLAIN, *args, **how):
    return kinked_problem(loss, penalty, *args, **how)


def _fit(problem):
    return kinks.solve(Fit.at_start(problem))


def _check(fit, rows=None, most_unsolved=0.05):
    """Every end that is called solved is the refit; at most a share of them is not."""
    rows = np.flatnonzero(fit.problem.weights) if rows is None else rows
    ends = leave_out_along_path(fit, rows)
    assert np.mean(~ends.solved) <= most_unsolved
    size = 1e-7 * (1.0 + np.abs(fit.eta).max())
    for place in np.flatnonzero(ends.solved):
        i = int(rows[place])
        refit = without(fit, i)
        np.testing.assert_allclose(ends.eta[place], refit.eta[i], atol=size)
        eta = fit.problem.linear_predictor(ends.coef[:, place], ends.intercept[place])
        np.testing.assert_allclose(eta, refit.eta, atol=size)
    return ends


@every
@pytest.mark.parametrize("strength", [20.0, 0.5, 0.01])
@pytest.mark.parametrize(
    ("weighted", "fit_intercept"),
    [(False, True), (True, False), (True, True)],
    ids=["intercept", "weighted", "both"],
)
def test_every_row(loss, strength, weighted, fit_intercept):
    """With few rows on kinks, the last that holds the intercept may have to leave: that path ends."""
    fit = _fit(_problem(loss, L2(strength), weighted, fit_intercept))
    rows = np.flatnonzero(fit.problem.weights)[::3]
    ends = _check(fit, rows, most_unsolved=0.1 if strength < 1 else 0.6)
    assert ends.pivots.max() > 0


@every
def test_strengths_of_their_own(loss):
    strengths = np.array([0.1, 0.0, 2.0, np.inf, 0.5, 0.0])
    fit = _fit(_problem(loss, L2(strengths), weighted=True))
    ends = _check(fit, np.flatnonzero(fit.problem.weights)[::3], most_unsolved=0.2)
    assert not ends.coef[3].any()


@every
@pytest.mark.parametrize("p", [4, 80])
def test_kernels(loss, p, fit_intercept):
    problem = _problem(loss, L2(3.0), weighted=True, fit_intercept=fit_intercept, p=p)
    linear = _fit(problem)
    kernel = _fit(replace(problem, X=RowGram(problem.X @ problem.X.T)))
    rows = np.flatnonzero(problem.weights)[::3]
    ours, theirs = _check(kernel, rows, most_unsolved=0.2), _check(linear, rows, most_unsolved=0.2)
    both = ours.solved & theirs.solved
    np.testing.assert_allclose(ours.eta[both], theirs.eta[both], atol=1e-7)
    np.testing.assert_allclose(problem.X.T @ ours.coef[:, both], theirs.coef[:, both], atol=1e-6)
    assert both.sum() > 10


@every
def test_more_columns_than_rows(loss, fit_intercept):
    _check(_fit(_problem(loss, L2(1.0), fit_intercept=fit_intercept, n=25, p=60)), most_unsolved=0.2)


@every
def test_sparse_columns(loss):
    problem = _problem(loss)
    X = np.where(np.abs(problem.X) < 0.6, 0.0, problem.X)
    rows = np.arange(0, N, 5)
    dense = _check(_fit(replace(problem, X=X)), rows, most_unsolved=0.2)
    sparse = _check(_fit(replace(problem, X=sp.csr_array(X))), rows, most_unsolved=0.2)
    both = dense.solved & sparse.solved
    np.testing.assert_allclose(sparse.eta[both], dense.eta[both], atol=1e-7)


@every
def test_a_row_without_a_dual_leaves_nothing(loss):
    fit = _fit(_problem(loss, weighted=True))
    rows = np.flatnonzero(fit.gradient == 0)
    if isinstance(loss, Hinge) or (isinstance(loss, EpsilonInsensitive) and loss.epsilon > 0):
        assert rows.size > 8
    ends = leave_out_along_path(fit, rows)
    np.testing.assert_allclose(ends.eta, fit.eta[rows], atol=1e-9)
    np.testing.assert_allclose(ends.coef, np.tile(fit.coef[:, None], rows.size), atol=1e-9)
    assert not ends.pivots.any()


@every
def test_rows_whose_certificate_holds_need_no_pivot(loss):
    fit = _fit(_problem(loss, L2(20.0)))
    step = leave_kinks_out(fit)
    ends = leave_out_along_path(fit, np.arange(N))
    held = pattern_stays(fit, step.eta) & ends.solved
    assert held.any()
    assert not ends.pivots[held].any()
    np.testing.assert_allclose(step.eta[held], ends.eta[held], atol=1e-8)


@every
def test_ties_on_a_grid(loss):
    """Copies of rows and rounded values: what is called solved still is."""
    problem = _problem(loss)
    X = np.round(np.vstack([problem.X, problem.X[:15]]))
    y = np.append(problem.y, problem.y[:15])
    y = y if isinstance(loss, Hinge) else np.round(y)
    fit = _fit(replace(problem, X=X, y=y, weights=np.ones(N + 15)))
    _check(fit, np.arange(0, N + 15, 2), most_unsolved=0.6)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", [0, 2])
def test_rows_that_reach_their_ends_at_once_do_not_go_round_in_circles(seed, weighted):
    """A table of few values: what one row lets go many take up."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 3, (120, 5)).astype(float)
    y = np.round(X @ [1.0, -1.0, 0.5, 0.0, 0.0] + rng.normal(size=120))
    weights = rng.integers(1, 3, 120).astype(float) if weighted else np.ones(120)
    ends = _check(_fit(Problem(EpsilonInsensitive(0.5), L2(1.0), X, y, weights)), np.arange(120))
    assert ends.pivots.max() <= 30


def test_a_class_of_two_rows():
    problem = _problem(Hinge(), L2(1.0))
    y = np.zeros(N)
    y[[4, 17]] = 1.0
    _check(_fit(replace(problem, y=y)), most_unsolved=0.1)


def test_an_outlier_moves_everything():
    problem = _problem(Quantile(0.5), L2(0.1))
    y = problem.y.copy()
    y[7] += 100.0
    _check(_fit(replace(problem, y=y)), np.array([7, 8]), most_unsolved=0.0)


def test_no_rows():
    ends = leave_out_along_path(_fit(_problem(Hinge())), np.empty(0, dtype=np.intp))
    assert ends.coef.shape == (P, 0)
    assert ends.solved.size == 0
