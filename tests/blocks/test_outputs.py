"""Several targets with one strength: paths in blocks, each row judged by the mean of its losses."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import ElasticNet

from onefit import ElasticNetLOO, LassoLOO
from onefit.blocks import ArrayRows, Block, RowSums, tune_net
from onefit.fit import Fit
from onefit.losses import Squared
from onefit.penalties import ElasticNet as NetPenalty
from onefit.problem import Problem
from onefit.solvers.solve import solve, solve_path
from onefit.tuning.grid import Grid

ALPHAS = np.geomspace(1.0, 0.01, 6)


def data(n=40, p=6, t=3):
    rng = np.random.default_rng(7)
    X = rng.normal(size=(n, p)) + 0.5
    B = np.where(rng.random((p, t)) < 0.6, rng.normal(size=(p, t)), 0.0)
    Y = X @ B + rng.normal(size=(n, t)) * [0.3, 1.0, 4.0][:t] + 2.0
    return X, Y, rng.choice([0.0, 0.5, 1.0, 2.5], n)


def losses_of_refits(X, Y, weights, alpha, ratio, fit_intercept):
    """Mean squared error of each row, left out by a fit of its own."""
    found = np.zeros(len(Y))
    for i in range(len(Y)):
        rest = np.arange(len(Y)) != i
        model = ElasticNet(
            alpha=alpha, l1_ratio=ratio, fit_intercept=fit_intercept, tol=1e-14, max_iter=10**6
        )
        for y in Y.T:
            fit = model.fit(X[rest], y[rest], sample_weight=weights[rest])
            found[i] += (y[i] - fit.predict(X[[i]])[0]) ** 2 / Y.shape[1]
    return found


@pytest.mark.costly
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(("ratio", "weighted"), [(1.0, False), (1.0, True), (0.5, False)])
def test_risks_of_several_targets_are_those_of_refits(ratio, weighted, fit_intercept):
    X, Y, weights = data()
    own = weights if weighted else None
    model = ElasticNetLOO(alphas=ALPHAS, l1_ratio=ratio, fit_intercept=fit_intercept, early_stopping=False)
    model.fit(sp.csr_array(X) if fit_intercept else X, Y, sample_weight=own)
    weights = weights if weighted else np.ones(len(Y))
    losses = np.stack([losses_of_refits(X, Y, weights, alpha, ratio, fit_intercept) for alpha in ALPHAS], 1)
    np.testing.assert_allclose(model.risk_path_, weights @ losses / weights.sum(), rtol=1e-6)
    assert set(model.guarantee_path_) == {"exact"}
    best = int(np.flatnonzero(model.alpha_ == ALPHAS)[0])
    assert model.loo_.value == pytest.approx(model.risk_path_[best])
    alone = [
        ElasticNet(alpha=model.alpha_, l1_ratio=ratio, fit_intercept=fit_intercept, tol=1e-14) for _ in Y.T
    ]
    for k, one in enumerate(alone):
        one.fit(X, Y[:, k], sample_weight=own)
        np.testing.assert_allclose(model.coef_[k], one.coef_, atol=1e-7)
        np.testing.assert_allclose(
            model.intercept_ if not fit_intercept else model.intercept_[k], one.intercept_, atol=1e-7
        )
    np.testing.assert_allclose(model.predict(X), np.stack([one.predict(X) for one in alone], 1), atol=1e-6)
    assert model.coef_path_.shape == (len(ALPHAS), X.shape[1], Y.shape[1])


def test_one_target_alone_is_what_a_vector_gives():
    X, Y, _ = data()
    column, vector = (LassoLOO(alphas=ALPHAS).fit(X, y) for y in (Y[:, [1]], Y[:, 1]))
    assert column.alpha_ == vector.alpha_
    np.testing.assert_allclose(column.risk_path_, vector.risk_path_, rtol=1e-9)


def test_copies_of_a_target_change_nothing():
    X, Y, _ = data()
    for ratios in (1.0, [0.3, 0.9]):
        twice, once = (ElasticNetLOO(l1_ratio=ratios).fit(X, y) for y in (Y[:, [1, 1]], Y[:, 1]))
        assert twice.alpha_ == pytest.approx(once.alpha_, rel=1e-12)
        assert twice.l1_ratio_ == once.l1_ratio_
        assert twice.corrected_risk_ == pytest.approx(once.corrected_risk_, rel=1e-9)
        J = min(len(twice.alphas_), len(once.alphas_))
        np.testing.assert_allclose(twice.risk_path_[:J], once.risk_path_[:J], rtol=1e-9)


@pytest.mark.parametrize("ratio", [1.0, 0.5])
def test_tall_tables_of_several_targets_are_judged_in_any_blocks(ratio):
    X, Y, _ = data(4000, 8)
    whole, cut = ArrayRows(X, Y), ArrayRows(np.asfortranarray(X), Y, np.ones(len(Y)))
    grid = Grid(ALPHAS)
    found = [tune_net(rows, rows.total(RowSums.of), [(ratio, grid)])[1] for rows in (whole, cut)]
    one_by_one = [
        tune_net(ArrayRows(X, y), RowSums.of(Block(X, y)), [(ratio, grid)], early_stopping=False)[1]
        for y in Y.T
    ]
    J = len(found[0].risks)
    mean = np.mean([one.risks[:J] for one in one_by_one], axis=0)
    np.testing.assert_allclose(found[0].risks, mean, rtol=1e-5)
    np.testing.assert_allclose(found[1].risks, found[0].risks, rtol=1e-10)


@pytest.mark.parametrize("ratio", [1.0, 0.7])
@pytest.mark.slow
def test_of_more_columns_than_rows_the_choice_is_as_good_as_refits_say(ratio):
    rng = np.random.default_rng(2)
    X, B = rng.normal(size=(40, 70)), np.zeros((70, 2))
    B[:4] = rng.normal(size=(4, 2))
    Y = X @ B + 0.5 * rng.normal(size=(40, 2))
    model = ElasticNetLOO(l1_ratio=ratio).fit(X, Y)
    own = model.l1_ratio_  # in the units of Y
    losses = losses_of_refits(X, Y, np.ones(40), model.alpha_, own, True)
    assert model.loo_.value == pytest.approx(losses.mean(), abs=model.loo_.approx_error + 1e-8)
    assert model.loo_.approx_error <= 0.3 * model.loo_.std_error
    at = np.arange(0, len(model.alphas_), 8)
    risks = [losses_of_refits(X, Y, np.ones(40), a, own, True).mean() for a in model.alphas_[at].tolist()]
    assert losses.mean() <= min(risks) + losses.std() / np.sqrt(40)


@pytest.mark.parametrize("ratio", [1.0, 0.7])
def test_outputs_that_nothing_ties_together_are_solved_apart(ratio):
    X, Y, weights = data()
    starts = [
        Fit.at_start(
            Problem(
                Squared(), NetPenalty(40 * alpha, ratio), X, Y, weights, np.full(3, True), mean_scaled=True
            )
        )
        for alpha in ALPHAS
    ]
    alone = [solve(start).fit for start in starts]
    along = [solution.fit for solution in solve_path(start.problem for start in starts)]
    model = ElasticNet(l1_ratio=ratio, tol=1e-14, max_iter=10**6)
    for alpha, one, other in zip(40 * ALPHAS / weights.sum(), alone, along, strict=True):
        each = [model.set_params(alpha=alpha).fit(X, y, sample_weight=weights).coef_.copy() for y in Y.T]
        np.testing.assert_allclose(one.coef, np.stack(each, axis=1), atol=1e-7)
        np.testing.assert_allclose(other.coef, one.coef, atol=1e-10)
        np.testing.assert_allclose(other.eta, X @ other.coef + other.intercept, atol=1e-10)


def test_targets_that_do_not_vary_leave_nothing_to_fit():
    X, Y, _ = data()
    for y in (np.full((40, 2), 0.1), np.full(40, 0.1)):
        model = LassoLOO().fit(X, y)
        assert model.alpha_ == pytest.approx(1.0)
        assert not np.any(model.coef_)
    mixed = LassoLOO().fit(X, np.column_stack([Y[:, 0], np.full(40, 0.1)]))
    assert mixed.loo_.value == pytest.approx(LassoLOO(alphas=[mixed.alpha_]).fit(X, Y[:, 0]).loo_.value / 2)
