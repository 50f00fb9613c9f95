"""Lasso and elastic net optima on sums over the rows, held against the active-set method on the rows."""

import numpy as np
import pytest

from onefit.blocks import optima as module
from onefit.blocks.optima import PathLeverages, optima
from onefit.blocks.paths import solve_net
from onefit.blocks.rows import ArrayRows
from onefit.blocks.sums import RowSums
from onefit.solvers.active_set import ActiveSet


def table(n=200, p=12, seed=0, correlation=0.6):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, p))
    X = Z.copy()
    X[:, 1:] += correlation * Z[:, :-1]
    return X + 3.0, X[:, :4].sum(axis=1) + rng.normal(size=n)


def strengths(X, y, ratio, count=20):
    top = np.abs((X - X.mean(axis=0)).T @ (y - y.mean())).max() / ratio
    amounts = np.geomspace(top, 1e-4 * top, count)
    return ratio * amounts, (1.0 - ratio) * amounts


@pytest.fixture
def no_active_set(monkeypatch):
    monkeypatch.setattr(module, "ActiveSet", None)  # nothing is left to it


@pytest.mark.parametrize("ratio", [1.0, 0.5, 0.01])
@pytest.mark.parametrize(("p", "correlation"), [(1, 0.0), (12, 0.6), (40, 3.0)])
@pytest.mark.usefixtures("no_active_set")
def test_those_of_the_rows(p, correlation, ratio):
    X, y = table(p=p, correlation=correlation)
    l1, l2 = strengths(X, y, ratio)
    on_rows = ActiveSet(X, y)
    for found, one, two in zip(optima(ArrayRows(X, y).total(RowSums.of), l1, l2), l1, l2, strict=True):
        on_rows.solve(one, two)
        coef = np.zeros(p)
        coef[found.support] = found.beta
        np.testing.assert_allclose(coef, on_rows.coef, atol=1e-11)
        np.testing.assert_array_equal(found.signs, np.sign(on_rows.coef[found.support]))


@pytest.mark.parametrize("n", [3, 200])
@pytest.mark.parametrize("ratio", [1.0, 0.5])
def test_what_a_refit_takes_off_the_coefficients_for_the_penalty_that_leaves_with_a_row(n, ratio):
    X, y = table(n=n)
    l1, l2 = strengths(X, y, ratio)
    sums = ArrayRows(X, y).total(RowSums.of)
    coefs, drifts, _ = solve_net(sums, (l1 + l2) / n, ratio)
    for beta, drift, one, two in zip(coefs.T, drifts.T, l1, l2, strict=True):
        own = np.flatnonzero(beta)
        K = sums.gram[np.ix_(own, own)] + (1.0 - 1.0 / n) * two * np.eye(len(own))
        expected = np.linalg.solve(K, one * np.sign(beta[own]) + two * beta[own]) / n
        np.testing.assert_allclose(drift[own], expected, rtol=1e-7)
        assert not np.delete(drift, own).any()


@pytest.mark.parametrize("ratio", [1.0, 0.5])
def test_columns_that_depend_on_one_another_are_left_to_the_active_set_method(ratio):
    X, y = table()
    X = np.column_stack([X, X[:, 0] + X[:, 1], X[:, 0]])
    l1, l2 = strengths(X, y, ratio)
    on_rows = ActiveSet(X, y)
    for found, one, two in zip(optima(ArrayRows(X, y).total(RowSums.of), l1, l2), l1, l2, strict=True):
        on_rows.solve(one, two)
        fitted = (X - X.mean(axis=0))[:, found.support] @ found.beta
        np.testing.assert_allclose(fitted, on_rows.eta - y.mean(), atol=1e-9)


def test_large_supports_are_left_to_the_active_set_method(monkeypatch):
    X, y = table()
    l1, l2 = strengths(X, y, 1.0)
    sums = ArrayRows(X, y).total(RowSums.of)
    anew = [found.beta for found in optima(sums, l1, l2)]
    monkeypatch.setattr(module, "WORTH_UPDATING", 0.0)
    updated = [found.beta[np.argsort(found.support)] for found in optima(sums, l1, l2)]
    assert [len(beta) for beta in anew] == [len(beta) for beta in updated]
    X = X - X.mean(axis=0)
    for found, beta in zip(optima(sums, l1, l2), updated, strict=True):
        np.testing.assert_allclose(X[:, np.sort(found.support)] @ beta, X[:, found.support] @ found.beta)


def test_leverages_follow_what_joins_and_what_leaves():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 5)) @ rng.normal(size=(5, 40)) + 0.3 * rng.normal(size=(200, 40))
    y = X @ rng.normal(size=40) + rng.normal(size=200)
    l1, l2 = strengths(X, y, 1.0, count=60)
    follow, expected, left = PathLeverages(40), [], 0
    Z = X - X.mean(axis=0)
    before = set()
    for found in optima(ArrayRows(X, y).total(RowSums.of), l1, l2):
        follow.add(found)
        own = Z[:, found.support]
        expected.append(np.einsum("ij,ji->i", own, np.linalg.pinv(own)))
        left += bool(before - set(found.support))
        before = set(found.support)
    assert left  # some strengths lose columns
    for at, directions, shares in follow.leverages():
        np.testing.assert_allclose(((Z @ directions) ** 2 @ shares).T, expected[at], atol=1e-9)
