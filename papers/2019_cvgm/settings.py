"""The regression of section 5.1 of the 2019 paper, and its splits.

The test loss is in units of the noise's variance, in which the paper's 1.08 makes sense: the response is
divided by the noise's deviation, 100 (assumed).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.datasets import make_regression

import onefit

Array = np.ndarray

FIGURES = Path(__file__).resolve().parent / "figures"
N, N_NEW, P, INFORMATIVE, NOISE = 30, 1000, 10, 8, 100.0
SPLITS, SHARE = 128, 0.95
FIRST = (1e-2, 1e-4)  # λ₁ and λ₂ that the paper starts from
LEAST_L2 = 1e-7
NARROW = (1e-4, 1e-1)  # of both strengths, as printed
WIDE = (1e-4, 1e1)  # the same with two more decades
STEPS, LENGTH = 100, 2e-4


@dataclass(frozen=True)
class Regression:
    """Rows to learn from, standardised and centred, and new ones on the same scales.

    Attributes
    ----------
    X, y, X_new, y_new : arrays
    training : (SPLITS, N) bool array
        Rows of the training set of each Monte-Carlo split.
    risk : onefit.risk.MonteCarlo
        The same splits.
    """

    X: Array
    y: Array
    X_new: Array
    y_new: Array
    training: Array
    risk: onefit.risk.MonteCarlo


def regression(seed: int) -> Regression:
    """30 rows and 10 features, 8 of them informative, and 1000 new rows."""
    X, y = make_regression(
        N + N_NEW, P, n_informative=INFORMATIVE, noise=NOISE, tail_strength=0.0, random_state=seed
    )
    mean, deviation = X[:N].mean(axis=0), X[:N].std(axis=0)
    X, y = (X - mean) / deviation, (y - y[:N].mean()) / NOISE
    risk = onefit.risk.MonteCarlo(SPLITS, SHARE, random_state=seed)
    training = np.ones((SPLITS, N), bool)
    for one, removed in zip(training, risk.splits(N).removed, strict=True):
        one[removed] = False
    return Regression(X[:N], y[:N], X[N:], y[N:], training, risk)
