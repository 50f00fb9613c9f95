"""The data of the 2017 paper's figures and tables (its section 5).

What the paper leaves open is marked "assumed" here, and listed in the README.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

Array = np.ndarray

FOLDER = Path(__file__).resolve().parent.name
DATA = Path(os.environ.get("ONEFIT_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))


@dataclass(frozen=True)
class Linear:
    """A linear model with independent N(0, 1) columns, whose risk on new data is known.

    Attributes
    ----------
    X : (n, p) array
    y : (n,) array
    truth : (p,) array
        The coefficients that made it.
    variance : float
        Of the noise.
    """

    X: Array
    y: Array
    truth: Array
    variance: float

    def risk(self, coef: Array) -> float:
        """Mean squared error on new data: ‖θ − θ*‖² + σ², as Σ = I."""
        return float(np.sum((coef - self.truth) ** 2) + self.variance)


RELEVANT = slice(40, 50)  # columns of the ridge example that have a coefficient
FIRST_STRENGTH = 1.0 / 3.0


def ridge(seed: int, n: int = 150, p: int = 50) -> Linear:
    """Figures 1 and 2: 40 coefficients 0, 10 of N(0, 1), noise N(0, 0.1)."""
    rng = np.random.default_rng(seed)
    X, truth, variance = rng.normal(size=(n, p)), np.zeros(p), 0.1
    truth[RELEVANT] = rng.normal(size=p - RELEVANT.start)
    return Linear(X, X @ truth + np.sqrt(variance) * rng.normal(size=n), truth, variance)


def elastic_net(seed: int, n: int = 70, p: int = 50, noise: float = 40.0) -> Linear:
    """Figure 4: θ_k = k ρ_k ψ_k with ρ_k of Bernoulli(½), ψ_k of N(0, 1); noise of deviation 40 (assumed)."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    truth = np.arange(1, p + 1) * (rng.random(p) < 0.5) * rng.normal(size=p)
    return Linear(X, X @ truth + noise * rng.normal(size=n), truth, noise**2)


@dataclass(frozen=True)
class Images:
    """Two classes of images, pixels from 0 to 1: rows to learn from, and new ones."""

    X: Array
    y: Array
    X_new: Array
    y_new: Array


def _overlaps(many: int, few: int) -> Array:
    """Share of each of many pixels of a side in each of fewer, which cover the same side: (few, many)."""
    old, new = np.arange(many + 1) / many, np.arange(few + 1) / few
    ends = np.minimum(new[1:, None], old[1:]) - np.maximum(new[:-1, None], old[:-1])
    return np.maximum(ends, 0.0) * few


def mnist(seed: int, n: int = 200) -> Images:
    """Digits 2 and 3, shrunk to 20 × 20 pixels by area (assumed): n images, and the others."""
    rng = np.random.default_rng(seed)
    with np.load(DATA / "mnist.npz") as file:
        images, digits = file["X_train"], file["y_train"]
    kept = (digits == 2) | (digits == 3)
    shares = _overlaps(28, 20)
    X, y = (shares @ (images[kept] / 255.0) @ shares.T).reshape(-1, 400), (digits[kept] == 3).astype(int)
    rows = rng.permutation(len(y))
    return Images(X[rows[:n]], y[rows[:n]], X[rows[n:]], y[rows[n:]])


def cifar(n: int = 9600) -> Images:
    """CIFAR-10, birds and cats: the first 9600 of 10000 training images, and the other 400."""
    with np.load(DATA / "cifar10_bird_cat.npz") as file:
        X, y = file["X"] / 255.0, file["y"].astype(int)
    return Images(X[:n], y[:n], X[n:], y[n:])
