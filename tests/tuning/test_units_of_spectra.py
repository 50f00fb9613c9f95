"""Columns in units as different as numbers can be, at strengths that are the same to all in the end."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold

import onefit
from onefit import _linalg
from onefit.estimators import of_sources
from onefit.sources import ArraySource

UNITS = np.array([1e8, 1e8, 1.0, 1.0])


def _table(n: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, len(UNITS)))
    return Z, Z.sum(axis=1) + rng.normal(size=n)


def _without_each(Z, y, alpha):
    """Left-out predictions of ridge on Z with own strengths of its columns."""
    found = np.empty(len(y))
    for i in range(len(y)):
        keep = np.arange(len(y)) != i
        means, level = Z[keep].mean(axis=0), y[keep].mean()
        rows = np.vstack([Z[keep] - means, np.diag(np.sqrt(alpha))])
        coef = np.linalg.lstsq(rows, np.append(y[keep] - level, np.zeros(Z.shape[1])), rcond=None)[0]
        found[i] = level + (Z[i] - means) @ coef
    return found


@pytest.mark.parametrize("decades", [0, 3, 6, 8])
def test_eigenpairs_are_those_of_any_units(decades):
    rng = np.random.default_rng(1)
    Z, units = rng.normal(size=(40, 6)), 10.0 ** (decades * np.linspace(-0.5, 0.5, 6))
    values, vectors = _linalg.positive_eigenpairs((Z * units).T @ (Z * units))
    singular = np.sort(np.linalg.svd(Z * units, compute_uv=False))
    np.testing.assert_allclose(np.sqrt(values), singular, rtol=1e-6)
    Q, own = (Z * units) @ (vectors / np.sqrt(values)), np.linalg.qr(Z)[0]
    np.testing.assert_allclose(Q @ Q.T, own @ own.T, atol=1e-6)
    assert vectors.shape == (6, 6)


def test_dependent_and_empty_columns_have_none():
    rng = np.random.default_rng(2)
    Z = rng.normal(size=(30, 3))
    X = np.column_stack([1e6 * Z, Z[:, 0] + 1e-3 * Z[:, 1], np.zeros(30)])
    values, vectors = _linalg.positive_eigenpairs(X.T @ X)
    assert vectors.shape == (5, 3)
    np.testing.assert_allclose((vectors * values) @ vectors.T, X.T @ X, atol=1e-12 * values.max())


@pytest.mark.parametrize("alpha", [1e-12, 1.0])
@pytest.mark.parametrize("is_source", [False, True])
def test_ridge(alpha, is_source):
    Z, y = _table()
    X = Z * UNITS
    model = onefit.RidgeLOO(alphas=[alpha])
    model.fit(*((ArraySource(X, y),) if is_source else (X, y)))
    expected = np.mean((y - _without_each(Z, y, alpha / UNITS**2)) ** 2)
    assert model.loo_.value == pytest.approx(expected, rel=1e-6)
    assert model.loo_.guarantee == "exact"
    np.testing.assert_allclose(model.coef_, Ridge(alpha, solver="svd").fit(X, y).coef_, rtol=1e-6)


@pytest.mark.parametrize("is_source", [False, True])
@pytest.mark.parametrize("model", [onefit.RidgeLOO(), onefit.LassoLOO(), onefit.ElasticNetLOO()])
def test_defaults_see_all_columns(model, is_source):
    Z, y = _table(400)
    plain = model.fit(Z, y).loo_.value
    X = Z * UNITS
    found = model.fit(*((ArraySource(X, y),) if is_source else (X, y))).loo_
    assert found.value <= 1.02 * plain


@pytest.mark.parametrize("decades", [4, 8, 10])
def test_elastic_nets(decades):
    Z, y = _table(40)
    units = 10.0 ** (0.5 * decades * np.array([-1.0, -1.0, 1.0, 1.0]))
    model = onefit.ElasticNetLOO(selection="min").fit(Z * units, y)
    on = model.coef_ != 0
    l1, l2 = model.alpha_ * model.l1_ratio_, model.alpha_ * (1.0 - model.l1_ratio_)
    X, left_out = Z * units, np.empty(len(y))
    signs = np.sign(model.coef_)
    for i in range(len(y)):  # nothing joins or leaves at the strength that is chosen here
        keep = np.arange(len(y)) != i
        means, level, m = X[keep].mean(axis=0), y[keep].mean(), len(y) - 1
        R = (X[keep] - means)[:, on] / units[on]
        K = R.T @ R + m * l2 * np.diag(units[on] ** -2.0)
        beta = np.linalg.solve(K, R.T @ (y[keep] - level) - m * l1 * signs[on] / units[on])
        assert np.all(np.sign(beta) == signs[on])
        left_out[i] = level + ((X[i] - means)[on] / units[on]) @ beta
    assert model.loo_.value == pytest.approx(np.mean((y - left_out) ** 2), rel=1e-6)


def test_a_choice_by_steps_that_are_far_off_is_told(recwarn, monkeypatch):
    """Of few rows in blocks, as if they did not fit into memory."""
    monkeypatch.setattr(of_sources, "fits_into_memory", lambda *_: False)
    for seed in range(60):
        rng = np.random.default_rng(seed)
        X = rng.standard_t(1.5, size=(40, 4))
        y = (X[:, 0] + rng.logistic(size=40) > 0).astype(int)
        model = onefit.LogisticLOO(l1_ratio=1.0, selection="min").fit(ArraySource(X, y))
        path = onefit.LogisticLOO(l1_ratio=1.0, Cs=[model.C_]).fit(X, y).loo_.value
        told = any("one step for each row told" in str(one.message) for one in recwarn)
        if told:
            assert path == pytest.approx(model.loo_.value, rel=0.02)
            return
    raise AssertionError("no choice was far off")


@pytest.mark.parametrize("l1_ratio", [0.0, 0.5, 1.0])
def test_logistic_models_in_passes_see_all_columns(l1_ratio, monkeypatch):
    monkeypatch.setattr(of_sources, "fits_into_memory", lambda *_: False)
    Z, eta = _table(400)
    y = (eta + np.random.default_rng(5).logistic(size=400) > 0).astype(int)
    model = onefit.LogisticLOO(l1_ratio=l1_ratio)
    plain = model.fit(ArraySource(Z, y)).loo_.value
    assert model.fit(ArraySource(Z * UNITS, y)).loo_.value <= 1.02 * plain


@pytest.mark.parametrize("shift", [1e4, 1e5, 1e6])
@pytest.mark.parametrize("alpha", [1e-3, 10.0])
def test_rows_share_the_rounding_of_coefficients(shift, alpha):
    """Columns far from zero without an intercept, beside refits corrected in extended precision."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(70, 4))
    X, y, zeros = Z + shift, Z.sum(axis=1) + rng.normal(size=70), np.zeros(4)
    model = onefit.RidgeLOO(alphas=[alpha], fit_intercept=False).fit(X, y)
    for i in range(70):
        keep = np.arange(70) != i
        A, t = np.vstack([X[keep], np.sqrt(alpha) * np.eye(4)]), np.append(y[keep], zeros)
        coef = np.linalg.lstsq(A, t, rcond=None)[0].astype(np.longdouble)
        for _ in range(2):
            left = t - A.astype(np.longdouble) @ coef
            coef += np.linalg.lstsq(A, left.astype(float), rcond=None)[0]
        error = abs(model.loo_.predictions[i] - float(X[i] @ coef))
        assert error <= model.loo_.bounds[i] + 1e-12


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("alpha", [1e-3, 1.0, 1e6])
@pytest.mark.parametrize("decades", [3, 5, 8])
def test_rows_of_more_columns_than_rows_are_told_in_any_units(decades, alpha, fit_intercept):
    """By a fit in columns of spread one, each with a strength of its own, from an augmented QR factor."""
    rng = np.random.default_rng(6)
    Z, units = rng.normal(size=(12, 18)), np.where(np.arange(18) < 5, 10.0**decades, 1.0)
    y, weights = Z[:, 5:].sum(axis=1) + rng.normal(size=12), rng.integers(1, 4, 12) * 0.5
    model = onefit.RidgeLOO(alphas=[alpha], fit_intercept=fit_intercept).fit(
        Z * units, y, sample_weight=weights
    )
    root = np.sqrt(weights)
    for i in range(12):
        keep = np.arange(12) != i
        means, level = (np.average(part[keep], axis=0, weights=weights[keep]) for part in (Z, y))
        means, level = (means, level) if fit_intercept else (0.0 * means, 0.0)
        rows = np.vstack([root[keep, None] * (Z[keep] - means), np.diag(np.sqrt(alpha) / units)])
        coef = np.linalg.lstsq(rows, np.append(root[keep] * (y[keep] - level), np.zeros(18)), rcond=None)[0]
        off = abs(level + (Z[i] - means) @ coef - model.loo_.predictions[i])
        assert off <= model.loo_.bounds[i] + 1e-9 * abs(y).max()
        assert off <= 1e-6 * abs(y).max()


@pytest.mark.parametrize("alpha", [1e-4, 1e-1, 1e4])
@pytest.mark.parametrize("seed", range(4))
def test_sets_of_rows_in_any_units_are_within_their_bounds(seed, alpha):
    rng = np.random.default_rng(seed)
    n, p, cv = 10, 22, KFold(2, shuffle=True, random_state=0)
    Z, units = rng.normal(size=(n, p)), np.where(np.arange(p) < 6, 10.0 ** rng.uniform(3, 6, p), 1.0)
    y = Z[:, 5:].sum(axis=1) + rng.normal(size=n)
    model = onefit.RidgeLOO(alphas=[alpha], cv=cv).fit(Z * units, y)
    for keep, gone in cv.split(Z):
        means, level = Z[keep].mean(axis=0), y[keep].mean()
        rows = np.vstack([Z[keep] - means, np.diag(np.sqrt(alpha) / units)])
        coef = np.linalg.lstsq(rows, np.append(y[keep] - level, np.zeros(p)), rcond=None)[0]
        off = np.abs(level + (Z[gone] - means) @ coef - model.loo_.predictions[gone])
        assert np.all(off <= model.loo_.bounds[gone] + 1e-11 * np.abs(y).max())
        assert model.loo_.bounds.max() <= 1e-3
