"""The data of the 2020 paper's figures (section 3), by the names that it gives them.

How its scenarios were drawn stands in an appendix that is not at hand.  What is chosen in its place is
marked below, and listed in the README.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import sparse
from scipy.signal import lfilter
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

Array = np.ndarray

FOLDER = Path(__file__).resolve().parent.name
DATA = Path(os.environ.get("ONEFIT_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))


@dataclass(frozen=True)
class Split:
    """Rows to fit and rows to predict; the columns are scaled by the moments of the former."""

    X: Array | sparse.csr_array
    y: Array
    X_test: Array | sparse.csr_array
    y_test: Array


def scaled(X: Array | sparse.csr_array, y: Array, X_test: Array | sparse.csr_array, y_test: Array) -> Split:
    """Standardise the columns; those of sparse X keep their zeros and are divided only."""
    scaler = StandardScaler(with_mean=not sparse.issparse(X)).fit(X)
    return Split(scaler.transform(X), y, scaler.transform(X_test), y_test)


# --- synthetic data --------------------------------------------------------------------------------

TRAIN, TEST, COLUMNS = 100, 1000, 80
SCENARIOS, NOISES = ("A", "B", "C"), (10.0, 50.0)
CORRELATION = 0.9  # of neighbouring columns in A and C (chosen)
TRUE_COLUMNS, SIZE = 8, 10.0  # in B and C, and each one's coefficient (chosen)


def synthetic(scenario: str, noise: float, seed: int) -> Split:
    """A: dense and correlated; B: sparse and independent; C: B's coefficients, A's columns (all chosen).

    In A the coefficients are N(0, 8 · 10² / 80), so that they have B's sum of squares on average.
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(TRAIN + TEST, COLUMNS))
    if scenario != "B":
        X = _toeplitz(X)
    if scenario == "A":
        beta = rng.normal(size=COLUMNS) * SIZE * np.sqrt(TRUE_COLUMNS / COLUMNS)
    else:
        beta = np.zeros(COLUMNS)
        beta[rng.choice(COLUMNS, TRUE_COLUMNS, replace=False)] = SIZE
    y = X @ beta + noise * rng.normal(size=len(X))
    return scaled(X[:TRAIN], y[:TRAIN], X[TRAIN:], y[TRAIN:])


def _toeplitz(Z: Array) -> Array:
    """Make an autoregression of order one with unit variance of independent columns."""
    Z[:, 1:] *= np.sqrt(1.0 - CORRELATION**2)
    return np.ascontiguousarray(lfilter([1.0], [1.0, -CORRELATION], Z, axis=1))


# --- UCI sets --------------------------------------------------------------------------------------

RESPONSES = {
    "yacht": "residuary_resistance",
    "auto_mpg": "mpg",
    "student_math": "G3",
    "forest_fires": "area",
    "energy": "heating_load",
    "concrete": "strength",
    "airfoil": "sound_pressure",
    "communities_crime": "ViolentCrimesPerPop",
    "abalone": "rings",
    "parkinsons_telemonitoring": "total_UPDRS",
    "wine_quality": "quality",
    "power_plant": "PE",
    "naval_propulsion": "compressor_decay",
    "bike_sharing_hour": "cnt",
    "protein_casp": "RMSD",
}
NOT_FEATURES = {  # identifiers, dates, and other responses
    "auto_mpg": ["car_name"],
    "energy": ["cooling_load"],
    "communities_crime": ["state", "county", "community", "communityname string", "fold"],
    "parkinsons_telemonitoring": ["subject#", "motor_UPDRS"],
    "naval_propulsion": ["turbine_decay"],
    "bike_sharing_hour": ["instant", "dteday", "casual", "registered"],
}
MISSING = 0.5  # columns that lack more than this share of the rows go, then rows that lack anything


def uci(name: str) -> tuple[Array, Array]:
    """Return X and y, with text as indicators and without constant columns."""
    with gzip.open(DATA / f"{name}.csv.gz", "rt") as lines:
        table = pd.read_csv(lines).drop(columns=NOT_FEATURES.get(name, []))
    table = table.loc[:, table.isna().mean() <= MISSING].dropna()
    y = table.pop(RESPONSES[name]).to_numpy(float)
    X = pd.get_dummies(table, drop_first=True).to_numpy(float)
    return X[:, np.ptp(X, axis=0) > 0], y


def split(X: Array, y: Array, seed: int) -> Split:
    """80 % to fit, 20 % to predict, at random."""
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.2, random_state=seed)
    return scaled(X, y, X_test, y_test)


# --- text ------------------------------------------------------------------------------------------

TEXT, TEXT_TEST = "newsgroups_pcmac", 943
TEXT_SIZES = (50, 100, 200, 400, 600)
WORDS = ("tf-idf", "counts")


def text(words: str, size: int, draws: int) -> Iterator[Split]:
    """Samples of some of 1000 texts, and the same other 943 to predict; columns no sample has are dropped."""
    with np.load(DATA / f"{TEXT}.npz") as file:
        X = sparse.csr_array((file["data"].astype(float), file["indices"], file["indptr"]), file["shape"])
        y = 2.0 * file["y"].astype(float) - 1.0
    order = np.random.default_rng(0).permutation(len(y))
    test, pool = order[:TEXT_TEST], order[TEXT_TEST:]
    for seed in range(draws):
        rows = np.random.default_rng(seed).choice(pool, size, replace=False)
        held = np.flatnonzero(X[rows].sum(axis=0))
        parts = X[rows][:, held], y[rows], X[test][:, held], y[test]
        yield scaled(*parts) if words == "counts" else weighted(*parts)


def weighted(X: sparse.csr_array, y: Array, X_test: sparse.csr_array, y_test: Array) -> Split:
    """Weigh words by tf-idf; rows have length √p, so that the mean square of an entry is 1."""
    weights = TfidfTransformer(sublinear_tf=True).fit(X)
    X, X_test = (np.sqrt(X.shape[1]) * weights.transform(each) for each in (X, X_test))
    return Split(sparse.csr_array(X), y, sparse.csr_array(X_test), y_test)
