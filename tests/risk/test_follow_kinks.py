"""Paths out of a fit whose loss has kinks, against refits without the row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from builders import kinked_problem, without
from onefit._linalg import RowGram
from onefit.balance import Balance
from onefit.fit import Fit
from onefit.leave_out.follow import Paths, has_paths
from onefit.leave_out.follow_kinks import leave_out_along_path
from onefit.leave_out.patterns import bound_of_patterns
from onefit.leave_out.refit import judged_at, solution_without
from onefit.leave_out.step import leave_kinks_out
from onefit.losses import EpsilonInsensitive, Hinge, Quantile
from onefit.penalties import L1, L2, Box, ElasticNet, FusedLasso, Slope
from onefit.problem import Problem
from onefit.solvers import kinks
from onefit.solvers.solve import solve

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
def test_rows_are_followed_beside_columns_far_from_zero(loss):
    """A column of years, say: its products have few digits, but less its mean."""
    problem = _problem(loss)
    problem = replace(problem, X=problem.X * np.r_[5.0, np.ones(P - 1)] + np.r_[2000.0, np.zeros(P - 1)])
    fit, rows = _fit(problem), np.flatnonzero(problem.weights)
    solved = Paths(fit).follow(rows).solved
    assert len(solved) >= 0.95 * len(rows)
    for i, end in solved.items():
        eta = without(fit, i).eta
        np.testing.assert_allclose(problem.linear_predictor(end.coef, end.intercept), eta, atol=1e-6)
        assert end.eta == pytest.approx(eta[i], abs=1e-6)


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
    held = np.isfinite(bound_of_patterns(fit, step.eta)) & ends.solved
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


@pytest.mark.costly
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


def _balanced(fit_intercept=True, *, mean_scaled=False, seed=0, X=None, strength=1.0):
    """Hinge, fewer rows of one class, row weights of their own, and one row without any."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, P)) if X is None else X
    y = (X[:, 0] + rng.normal(size=N) > 0.7).astype(float)
    raw = rng.integers(1, 4, N).astype(float)
    raw[3] = 0.0
    classes = y.astype(int)
    weights = raw * (raw.sum() / (2 * np.bincount(classes, raw)))[classes]
    return Problem(
        Hinge(),
        L2(strength),
        X,
        y,
        weights,
        np.array(fit_intercept),
        mean_scaled=mean_scaled,
        balance=Balance(classes, raw),
    )


@pytest.mark.parametrize("mean_scaled", [False, True])
@pytest.mark.parametrize("strength", [30.0, 1.0, 0.05])
def test_classes_that_are_balanced_anew(fit_intercept, strength, mean_scaled):
    """The weights of all rows change when one leaves, in other ways for other classes."""
    fit = _fit(_balanced(fit_intercept, mean_scaled=mean_scaled, strength=strength))
    assert has_paths(fit)
    rows = np.flatnonzero(fit.problem.weights)
    assert np.ptp(fit.problem.weights_without([[i] for i in rows])[rows[-1], :-1]) > 0
    ends = _check(fit, rows[::2], most_unsolved=0.2)
    assert ends.solved[fit.gradient[rows[::2]] == 0].any()
    assert np.mean(ends.pivots > 0) > 0.2


def test_balanced_classes_of_sparse_columns_and_of_kernels():
    X = np.random.default_rng(1).normal(size=(N, P))
    X = np.where(np.abs(X) < 0.6, 0.0, X)
    problem = _balanced(X=X)
    rows = np.flatnonzero(problem.weights)[::3]
    dense, sparse, kernel = (
        _check(_fit(replace(problem, X=one)), rows, most_unsolved=0.2)
        for one in (X, sp.csr_array(X), RowGram(X @ X.T))
    )
    np.testing.assert_allclose(sparse.eta, dense.eta, atol=1e-7)
    np.testing.assert_allclose(kernel.eta, dense.eta, atol=1e-7)


@every
def test_penalties_that_shrink_with_the_rows(loss):
    fit = _fit(replace(_problem(loss, L2(2.0), weighted=True), mean_scaled=True))
    assert has_paths(fit)
    _check(fit, np.flatnonzero(fit.problem.weights)[::3], most_unsolved=0.2)


PENALTIES = {
    "l1": L1(2.0),
    "elastic net": ElasticNet(1.0, 0.5),
    "strengths": L1(np.array([0.0, 1.0, 2.0, 0.5, 4.0, 1.0])),
    "fused": FusedLasso(1.5),
    "box": Box(-0.5, 1.5),
}


@pytest.mark.costly
@every
@pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES.keys())
@pytest.mark.parametrize("mean_scaled", [False, True])
def test_penalties_with_kinks(loss, penalty, mean_scaled, fit_intercept):
    """Vertices of linear programs among them, which a row leaves along edges."""
    problem = _problem(loss, penalty, weighted=True, fit_intercept=fit_intercept)
    fit = solve(Fit.at_start(replace(problem, mean_scaled=mean_scaled))).fit
    assert has_paths(fit)
    ends = _check(fit, np.flatnonzero(fit.problem.weights)[::2], most_unsolved=0.5)
    np.testing.assert_array_equal(np.abs(ends.coef[:, ends.solved]) < 1e-9, ends.coef[:, ends.solved] == 0)
    assert ends.pivots.max() > 1


def test_balanced_classes_beside_an_l1_penalty(fit_intercept):
    fit = solve(Fit.at_start(replace(_balanced(fit_intercept), penalty=L1(1.0)))).fit
    ends = _check(fit, np.flatnonzero(fit.problem.weights)[::2], most_unsolved=0.3)
    assert ends.pivots.max() > 1


@every
def test_sparse_columns_beside_an_l1_penalty(loss):
    problem = _problem(loss, L1(1.0), weighted=True)
    X = np.where(np.abs(problem.X) < 0.6, 0.0, problem.X)
    rows = np.flatnonzero(problem.weights)[::3]
    dense, sparse = (
        _check(solve(Fit.at_start(replace(problem, X=one))).fit, rows, most_unsolved=0.5)
        for one in (X, sp.csr_array(X))
    )
    both = dense.solved & sparse.solved
    assert both.any()
    np.testing.assert_allclose(sparse.eta[both], dense.eta[both], atol=1e-7)


def test_columns_in_other_units_change_no_path():
    problem = _problem(Quantile(0.3), L1(1.0))
    units = 10.0 ** np.arange(-6, 6, 2)
    fit, scaled = (
        solve(Fit.at_start(replace(problem, X=problem.X / by, penalty=L1(1.0 / by)))).fit
        for by in (np.ones(P), units)
    )
    ours, theirs = _check(fit, most_unsolved=0.3), _check(scaled, most_unsolved=0.3)
    both = ours.solved & theirs.solved
    assert both.mean() > 0.6
    np.testing.assert_allclose(theirs.eta[both], ours.eta[both], atol=1e-7)


def test_a_fit_that_is_not_the_only_optimum_has_no_end():
    """Two copies of a column share its coefficient in any way."""
    problem = _problem(Quantile(0.3), L1(1.0))
    X = np.hstack([problem.X, problem.X[:, :1]])
    fit = solve(Fit.at_start(replace(problem, X=X))).fit
    assert fit.coef[0] or fit.coef[-1]
    _check(fit, most_unsolved=1.0)


def test_several_optima_without_a_row_are_no_end():
    """Without some row the tube holds a range of coefficients: duals are zero but for rounding."""
    several = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n, p = int(rng.integers(8, 16)), int(rng.integers(2, 5))
        X, y = rng.normal(size=(n, p)), rng.uniform(-0.45, 0.45, n)
        y[: seed % 3] = 1.0
        problem = Problem(EpsilonInsensitive(0.5), FusedLasso(3.0), X, y, np.ones(n), np.array(False))
        fit = solve(Fit.at_start(problem)).fit
        ends = leave_out_along_path(fit, np.arange(n))
        for i in range(n):
            anew = judged_at(solution_without(fit, i), np.array([i]))
            several += anew.several
            assert not (ends.solved[i] and anew.several)
    assert several > 10


def test_sorted_penalties_have_no_paths():
    fit = solve(Fit.at_start(_problem(Quantile(0.3), Slope(np.linspace(2.0, 1.0, P))))).fit
    assert not has_paths(fit)


def test_no_rows():
    ends = leave_out_along_path(_fit(_problem(Hinge())), np.empty(0, dtype=np.intp))
    assert ends.coef.shape == (P, 0)
    assert ends.solved.size == 0


@pytest.mark.parametrize("centred", [True, False])
@every
def test_far_columns_are_certified_by_what_rounding_leaves(loss, centred):
    """Rows move off their kinks in a step where columns are far from zero, and nothing else tells."""
    bounded = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(50, 4)) + (0.0 if centred else 2000.0)
        score = X[:, 0] - 0.5 * X[:, 1] - (0.0 if centred else 1000.0) + rng.normal(size=50)
        y = (score > 0).astype(float) if isinstance(loss, Hinge) else score
        fit = _fit(Problem(loss, PLAIN, X, y, np.ones(50), np.array(False)))
        step = leave_kinks_out(fit)
        bounds = bound_of_patterns(fit, np.where(step.slack >= 1e-6, step.eta, np.nan))
        for i in np.flatnonzero(np.isfinite(bounds) & (fit.gradient != 0)):
            off = abs(without(fit, i).eta[i] - step.eta[i])
            assert off <= 3.0 * bounds[i] + 1e-7
            bounded += 1
    assert bounded >= 3
