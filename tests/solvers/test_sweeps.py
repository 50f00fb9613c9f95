"""Sweeps of coordinate descent end where little is left to fall, which the gap of an elastic net tells."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import enet_path

from onefit.solvers import sweeps

ERROR, MOST = 1e-4, 20_000


def _objective(X, y, coef, ridge):
    residuals = y - X @ coef
    return 0.5 * residuals @ residuals + np.abs(coef).sum() + 0.5 * ridge * coef @ coef


def _by_scikit_learn(X, y, ridge, error):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        strength = {"l1_ratio": 1.0 / (1.0 + ridge), "alphas": [(1.0 + ridge) / len(y)]}
        _, coefs, _, taken = enet_path(X, y, **strength, tol=error, max_iter=MOST, return_n_iter=True)
    return coefs[:, 0], taken[0]


def _counted(monkeypatch):
    """How many sweeps each call took."""
    counted, path = [], sweeps.enet_path

    def watched(*given, **named):
        *found, taken = path(*given, **named, return_n_iter=True)
        counted.extend(taken)
        return found

    monkeypatch.setattr(sweeps, "enet_path", watched)
    return counted


@pytest.mark.parametrize("kind", ["sparse", "bordered", "products"])
@pytest.mark.parametrize("strength", [1.0, 0.03, 1e-3])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_what_is_left_to_fall_ends_them(share, strength, kind, monkeypatch):
    """An ℓ1 of ``strength``, and an ℓ2 of a share of that, in columns in which ℓ1 is one."""
    ridge = share / strength
    rng = np.random.default_rng(0)
    X = sp.random_array((100, 300), density=0.05, rng=rng, format="csc") / strength
    y = (X * strength) @ rng.normal(size=300) + rng.normal(size=100)
    if kind == "bordered":  # a last column that is as good as free, for a level that is none
        X = sp.hstack([X, sp.csc_array(np.full((100, 1), 1e6))]).tocsc()
        y = y - y.mean()
    known, border = {}, X[:, [-1]].toarray()[:, 0] if kind == "bordered" else None
    if kind == "products":
        known = {"precompute": np.ascontiguousarray((X.T @ X).toarray()), "Xy": X.T @ y}
    counted = _counted(monkeypatch)
    start = np.zeros(X.shape[1])
    coef = sweeps.swept(X, y, start, ridge, ERROR, MOST, border=border, **known)
    best, _ = _by_scikit_learn(X, y, ridge, 1e-13)
    left = _objective(X, y, coef, ridge) - _objective(X, y, best, ridge)
    assert left <= ERROR * (y @ y)
    theirs = _by_scikit_learn(X, y, ridge, ERROR)[1]
    assert sum(counted) <= (2 * theirs + sweeps.FEW if ridge else theirs)
    if share and strength == 1e-3:
        assert sum(counted) < 0.7 * theirs


def test_no_more_are_taken_than_are_asked_for(monkeypatch):
    rng = np.random.default_rng(1)
    X, counted = sp.random_array((50, 80), density=0.2, rng=rng, format="csc"), _counted(monkeypatch)
    sweeps.swept(X, rng.normal(size=50), np.zeros(80), 1e-6, 1e-14, 12)
    assert counted == [5, 7]


@pytest.mark.parametrize("away", [0.0, 1e-3, 1.0])
def test_the_gap_of_a_net_holds_what_is_left(away):
    rng = np.random.default_rng(2)
    X, ridge = rng.normal(size=(40, 60)), 0.1
    y = X[:, :5].sum(axis=1) + rng.normal(size=40)
    best, _ = _by_scikit_learn(np.asfortranarray(X), y, ridge, 1e-14)
    coef = best + away * rng.normal(size=60)
    gap = sweeps.gap_of_net(coef, X.T @ (y - X @ coef), (y - X @ coef) @ (y - X @ coef), 1.0, ridge)
    left = _objective(X, y, coef, ridge) - _objective(X, y, best, ridge)
    assert max(left, 0.0) - 1e-9 <= gap
    if away == 0.0:
        assert gap <= 1e-6 * (y @ y)


@pytest.mark.parametrize("unit", [1e-8, 1e-3, 1e3, 1e8])
@pytest.mark.parametrize("ridge", [1e-3, 1.0, 1e3])
def test_units_of_the_response_change_nothing(ridge, unit):
    """In columns in which ℓ1 is one an ℓ2 beside it goes as the square of the unit."""
    rng = np.random.default_rng(3)
    X = sp.random_array((60, 90), density=0.2, rng=rng, format="csc")
    y, start = 5.0 * rng.normal(size=60), np.zeros(90)
    found = sweeps.swept(X, y, start, ridge, 1e-12, MOST)
    other = sweeps.swept(X / unit, unit * y, start, ridge / unit**2, 1e-12, MOST)
    assert np.any(found)
    np.testing.assert_allclose(other / unit**2, found, rtol=1e-7, atol=1e-9 * np.abs(found).max())
