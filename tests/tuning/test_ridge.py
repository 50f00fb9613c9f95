"""Ridge from one eigendecomposition: identities, and agreement with the general route."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import onefit
from onefit.fit import Fit
from onefit.leave_out import leave_out
from onefit.losses import Squared
from onefit.penalties import L2
from onefit.problem import Problem
from onefit.solvers import newton
from onefit.tuning.ridge_spectrum import RidgeSpectrum

ALPHAS = np.array([1e3, 1.0, 1e-3])


def _problem(shape, *, weighted=False, fit_intercept=True, store=np.asarray, outputs=()):
    rng = np.random.default_rng(0)
    X = rng.normal(size=shape) + 0.5
    y = rng.normal(size=(shape[0], *outputs)) + X[:, :1].reshape(-1, *(1,) * len(outputs))
    weights = rng.integers(0, 3, shape[0]).astype(float) if weighted else np.ones(shape[0])
    return Problem(Squared(), L2(1.0), store(X), y, weights, np.full(outputs, fit_intercept))


def residuals(problem):
    """Left-out residuals of every target at every strength: (t, J, n)."""
    spectrum = RidgeSpectrum(problem)
    return spectrum.left_out_residuals(spectrum.shrinkage(ALPHAS))


@pytest.mark.parametrize("shape", [(30, 6), (12, 40), (20, 20)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("store", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_agrees_with_the_general_route(shape, weighted, fit_intercept, store):
    problem = _problem(shape, weighted=weighted, fit_intercept=fit_intercept, store=store)
    spectrum = RidgeSpectrum(problem)
    residuals_at, slack = residuals(problem), spectrum.shrinkage(ALPHAS).slack
    coefs = spectrum.coefficients(ALPHAS)
    levels = spectrum.levels(coefs)
    for j, alpha in enumerate(ALPHAS):
        ridge = Problem(
            Squared(), L2(alpha), *(getattr(problem, name) for name in ("X", "y", "weights", "intercept"))
        )
        solution = newton.solve(Fit.at_start(ridge))
        general = leave_out(solution.fit, max_error=0.0)
        np.testing.assert_allclose(coefs[:, 0, j], solution.fit.coef, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(levels[0, j], solution.fit.intercept, rtol=1e-6, atol=1e-8)
        ours = spectrum.left_out(float(alpha))
        np.testing.assert_allclose(1.0 - slack[j], ours.leverages * (problem.weights > 0), atol=1e-12)
        held = problem.weights > 0
        np.testing.assert_allclose((problem.y - residuals_at[0, j])[held], ours.eta[held], atol=1e-12)
        np.testing.assert_allclose(ours.eta, general.eta, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(ours.leverages, general.leverages, atol=1e-7)


def test_outputs_are_independent():
    several = _problem((30, 6), outputs=(3,))
    together = residuals(several)
    for t in range(3):
        one = Problem(Squared(), L2(1.0), several.X, several.y[:, t], several.weights, np.array(True))
        alone = residuals(one)
        np.testing.assert_allclose(together[t], alone[0], atol=1e-12)


def test_leverages_sum_to_the_degrees_of_freedom():
    problem = _problem((30, 6))
    slack = RidgeSpectrum(problem).shrinkage(ALPHAS).slack
    centred = problem.X - problem.X.mean(axis=0)
    s = np.linalg.eigvalsh(centred.T @ centred)
    np.testing.assert_allclose((1 - slack).sum(axis=1), 1 + (s[:, None] / (s[:, None] + ALPHAS)).sum(axis=0))


def test_largest_eigenvalue():
    problem = _problem((30, 6))
    centred = problem.X - problem.X.mean(axis=0)
    assert RidgeSpectrum(problem).largest == pytest.approx(np.linalg.norm(centred, 2) ** 2)


@pytest.mark.filterwarnings("ignore::onefit.exceptions.ShortPathWarning")
@pytest.mark.parametrize("sizes", [1.0, 1e4])
def test_columns_that_are_badly_scaled_lose_few_digits(sizes):
    """Beside refits by least squares on rescaled columns, which the scale does not touch."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(35, 6)) * np.geomspace(1.0, 1.0 / sizes, 6) ** 2
    y = X @ (1.0 / np.abs(X).max(axis=0)) + 0.1 * rng.normal(size=35)
    alphas = np.geomspace(1e-2, 1e-14, 7)
    tuned = onefit.RidgeLOO(alphas, fit_intercept=False).fit(X, y)
    for alpha, risk, off in zip(tuned.alphas_, tuned.risk_path_, tuned.approx_error_path_, strict=True):
        A = np.vstack([X, np.sqrt(alpha) * np.eye(6)])
        size = np.linalg.norm(A, axis=0)
        squares = []
        for i in range(35):
            kept = np.arange(len(A)) != i
            coef = np.linalg.lstsq((A / size)[kept], np.append(y, np.zeros(6))[kept], rcond=None)[0] / size
            squares.append((y[i] - X[i] @ coef) ** 2)
        assert abs(risk - np.mean(squares)) <= off + 1e-12 * risk
        assert off <= 1e-6 * risk
