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

FOLDER = Path(__file__).resolve().parent.name
N, N_NEW, P, INFORMATIVE, NOISE = 30, 1000, 10, 8, 100.0
SPLITS, SHARE = 128, 0.95
FIRST = (1e-2, 1e-4)  # λ₁ and λ₂ that the paper starts from
LEAST_L2 = 1e-7
NARROW = (1e-4, 1e-1)  # of both strengths, as printed
WIDE = (1e-4, 1e1)  # the same with two more decades
STEPS, LENGTH = 100, 2e-4
LITERAL_SEED = 10_000  # what is added to the seed for new rows with coefficients of their own


def drawn(rows: int, seed: int) -> tuple[Array, Array]:
    """The paper's call of scikit-learn."""
    X, y = make_regression(
        rows, P, n_informative=INFORMATIVE, noise=NOISE, tail_strength=0.0, random_state=seed
    )
    return X, y


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


def regression(seed: int, *, literal: bool = False) -> Regression:
    """30 rows and 10 features, 8 of them informative, and 1000 new rows.

    Read literally, "the same command" draws new coefficients for the new rows, so that nothing can be learned
    for them; the response is then standardised by the 30 rows.
    """
    X, y = drawn(N + N_NEW, seed)
    if literal:
        X[N:], y[N:] = drawn(N_NEW, LITERAL_SEED + seed)
    mean, deviation = X[:N].mean(axis=0), X[:N].std(axis=0)
    X, y = (X - mean) / deviation, (y - y[:N].mean()) / (y[:N].std() if literal else NOISE)
    risk = onefit.risk.MonteCarlo(SPLITS, SHARE, random_state=seed)
    training = np.ones((SPLITS, N), bool)
    for one, removed in zip(training, risk.splits(N).removed, strict=True):
        one[removed] = False
    return Regression(X[:N], y[:N], X[N:], y[N:], training, risk)
