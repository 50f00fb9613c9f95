"""The data of the 2018 paper's figures, by the names that it gives them (section 7 and appendix F).

The text that we have of the paper lost its formulas and most numbers.  What is assumed in their place is
marked below, and listed in the README.
"""

from __future__ import annotations

import gzip
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import results
from scipy.signal import lfilter
from scipy.special import expit
from sklearn.preprocessing import scale

Array = np.ndarray

FOLDER = Path(__file__).resolve().parent.name
DATA = Path(os.environ.get("ONEFIT_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
NOISE = 0.5  # standard deviation of all Gaussian noise here (assumed)
SHARE = results.pick("rows and columns, one in", full=1, quick=3)  # of figures 1 and 2
N, P, SPARSE = 300 // SHARE, 600 // SHARE, 60 // SHARE  # of the lassos


@dataclass(frozen=True)
class Sample:
    """A data set: X (n, p), y (n,), and the coefficients that made it, where they are known."""

    X: Array
    y: Array
    truth: Array | None = None


# --- figure 2a -------------------------------------------------------------------------------------


def svm(n: int, p: int, seed: int) -> Sample:
    """Gaussian logistic model (F.1.1): X_ij ~ N(0, 1), β_j ~ N(0, 9/p) (assumed), y Bernoulli."""
    rng = np.random.default_rng(seed)
    X, beta = rng.normal(size=(n, p)), 3.0 / np.sqrt(p) * rng.normal(size=p)
    return Sample(X, (rng.random(n) < expit(X @ beta)).astype(int), beta)


def fused_lasso(n: int, p: int, seed: int, pieces: int = 20) -> Sample:
    """Coefficients in 20 pieces of standard deviation 1 (F.1.2), X_ij ~ N(0, 1)."""
    rng = np.random.default_rng(seed)
    X, jumps = rng.normal(size=(n, p)), np.zeros(p)
    jumps[rng.choice(p, pieces, replace=False)] = rng.normal(size=pieces)
    beta = np.cumsum(jumps)
    beta /= beta.std()
    return Sample(X, X @ beta + NOISE * rng.normal(size=n), beta)


def nuclear_norm(n: int, rows: int, columns: int, seed: int, rank: int = 1) -> Sample:
    """Matrices of independent N(0, 1) entries seen through one of low rank (F.1.3; rank 1 assumed)."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, rows * columns))
    B = rng.normal(size=(rows, rank)) @ rng.normal(size=(rank, columns))
    return Sample(X, X @ B.ravel() + NOISE * rng.normal(size=n), B.ravel())


# --- figures 1 and 2b ------------------------------------------------------------------------------


def _sparse(rng: np.random.Generator, p: int, k: int) -> Array:
    """Return k of p coefficients N(0, 1/k)."""
    beta = np.zeros(p)
    beta[rng.choice(p, k, replace=False)] = rng.normal(size=k) / np.sqrt(k)
    return beta


def lasso(seed: int, n: int = N, p: int = P, k: int = SPARSE) -> Sample:
    """Linear model with Gaussian noise and k non-zero coefficients: the base of the others (F.1.4)."""
    rng = np.random.default_rng(seed)
    X, beta = rng.normal(size=(n, p)), _sparse(rng, p, k)
    return Sample(X, X @ beta + NOISE * rng.normal(size=n), beta)


def misspecified(seed: int, n: int = N, p: int = P, k: int = SPARSE) -> Sample:
    """Y = f(Xβ) + ε, where f(t) = sign(t) √|t| (assumed)."""
    rng = np.random.default_rng(seed)
    X, beta = rng.normal(size=(n, p)), _sparse(rng, p, k)
    eta = X @ beta
    return Sample(X, np.sign(eta) * np.sqrt(np.abs(eta)) + NOISE * rng.normal(size=n))


def heavy_tailed(seed: int, n: int = N, p: int = P, k: int = SPARSE) -> Sample:
    """Noise of Student's t with 3 degrees of freedom (variance 3), rescaled to the others' variance."""
    rng = np.random.default_rng(seed)
    X, beta = rng.normal(size=(n, p)), _sparse(rng, p, k)
    return Sample(X, X @ beta + NOISE / np.sqrt(3.0) * rng.standard_t(3, size=n))


def correlated(seed: int, n: int = N, p: int = P, k: int = SPARSE) -> Sample:
    """Rows N(0, Σ), Σ_ij = 0.8^|i−j|."""
    rng = np.random.default_rng(seed)
    X, beta = _toeplitz(rng, n, p), _sparse(rng, p, k)
    return Sample(X, X @ beta + NOISE * rng.normal(size=n))


def _toeplitz(rng: np.random.Generator, n: int, p: int, rho: float = 0.8) -> Array:
    """Rows of an autoregression of order one with unit variance."""
    Z = rng.normal(size=(n, p))
    Z[:, 1:] *= np.sqrt(1.0 - rho**2)
    return np.ascontiguousarray(lfilter([1.0], [1.0, -rho], Z, axis=1))


# --- table 1 ---------------------------------------------------------------------------------------


def timing(n: int, p: int, seed: int) -> Sample:
    """Toeplitz 0.8 columns, min(n, p)/2 coefficients ±1, unit noise (F.1.5)."""
    rng = np.random.default_rng(seed)
    X, beta, k = _toeplitz(rng, n, p), np.zeros(p), min(n, p) // 2
    beta[rng.choice(p, k, replace=False)] = rng.choice([-1.0, 1.0], k)
    return Sample(X, X @ beta + rng.normal(size=n), beta)


# --- figure 5 --------------------------------------------------------------------------------------


def heart_disease() -> Sample:
    """South African heart disease, 462 × 9, standardised; family history as 0 and 1."""
    with gzip.open(DATA / "heart_disease.csv.gz", "rt") as lines:
        names = lines.readline().strip().split(",")
        table = [line.strip().split(",") for line in lines]
    codes = {"Present": "1", "Absent": "0"}
    coded = np.array([[codes.get(cell, cell) for cell in row] for row in table], float)
    response = names.index("chd")
    return Sample(scale(np.delete(coded, response, axis=1)), coded[:, response].astype(int))


def colon_tumour() -> Sample:
    """Alon's tumour and normal colon tissues, 62 × 2000, logarithms, standardised."""
    with np.load(DATA / "colon_tumour.npz") as file:
        return Sample(scale(np.log(file["X"].astype(float))), file["y"].astype(int))


def arcene() -> Sample:
    """NIPS 2003 challenge, 200 × 10000, in gisette's place; scaled so that the mean of ‖x_i‖² is 1."""
    with np.load(DATA / "arcene.npz") as file:
        X, y = file["X"].astype(float), file["y"].astype(int)
    X = X - X.mean(axis=0)
    return Sample(X / np.sqrt(np.mean(np.sum(X**2, axis=1))), y)
