"""The data of the 2020 PVM paper, section 4, and the sizes at which its experiments are run here."""

from __future__ import annotations

import gzip
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import results

Array = np.ndarray

HERE = Path(__file__).resolve().parent
FOLDER = Path(__file__).resolve().parent.name
JOBS = int(os.environ.get("ONEFIT_JOBS", "2"))  # trainings of a grid at a time
KEPT = HERE / ".runs"  # trainings that are done, so that a run that was cut off goes on
DATA = Path(os.environ.get("ONEFIT_DATA", HERE.parents[2] / "shared" / "data"))

# --- communities and crime, section 4.1 --------------------------------------------------------------

RESPONSE, OTHERS = "ViolentCrimesPerPop", 5  # columns before the features: state, county, name, fold
MOST, STEP = 10.0, 0.1  # λ in [0, 10], and the paper's grid of 100
SPLITS = 20

# --- MNIST, section 4.2 --------------------------------------------------------------------------------

RANGE = (-10.0, 0.0)  # of ξ = log λ
HIDDEN = 100


@dataclass(frozen=True)
class Case:
    """One of the paper's six cases, with one split of the rows.

    Attributes
    ----------
    rows : int
        Of training and validation together, 75 % and 25 %.
    strengths : int
        1, or 2: one for each matrix of weights.
    seed : int
        Of the rows and of the weights that training starts from.
    """

    rows: int
    strengths: int
    seed: int

    def __str__(self) -> str:
        return f"{self.rows} rows, {self.strengths} HP"


@dataclass(frozen=True)
class Size:
    """How much is done for a case.

    Attributes
    ----------
    seeds : int
    side : int
        Points of the grid along each strength.
    samples : int
        Inner solves with which PVM begins.
    epochs, batch : int
    """

    seeds: int
    side: int
    samples: int
    epochs: int
    batch: int


FULL = {
    (1000, 1): Size(5, 100, 10, 60, 125),
    (1000, 2): Size(3, 32, 50, 60, 125),
    (5000, 1): Size(2, 100, 10, 40, 250),
    (5000, 2): Size(2, 32, 50, 40, 250),
    (10000, 1): Size(2, 100, 10, 30, 250),
    (10000, 2): Size(2, 32, 50, 30, 250),
}
REDUCED = {
    (1000, 1): Size(1, 11, 8, 12, 125),
    (1000, 2): Size(1, 4, 8, 12, 125),
    (5000, 1): Size(1, 9, 8, 4, 250),
    (5000, 2): Size(1, 4, 8, 4, 250),
    (10000, 1): Size(1, 9, 8, 3, 250),
    (10000, 2): Size(1, 4, 8, 3, 250),
}
SIZES = FULL if results.SIZE == "full" else REDUCED
results.pick("most seeds, grid, samples and epochs", full="5, 1024, 50, 60", quick="1, 16, 8, 12")
LEARNING_RATE = 1e-2


@dataclass(frozen=True)
class Split:
    """Rows to train on, to validate on and to test on, and their responses."""

    X: Array
    y: Array
    X_val: Array
    y_val: Array
    X_test: Array
    y_test: Array


def communities(seed: int) -> Split:
    """55 % / 20 % / 25 % of the rows; 122 features in [0, 1], centred on the training rows.

    The paper fills what is missing by regression; here it is the mean of the training rows.
    """
    with gzip.open(DATA / "communities_crime.csv.gz", "rt") as lines:
        names = lines.readline().rstrip("\n").split(",")
        table = [line.rstrip("\n").split(",") for line in lines]
    y = np.array([row[names.index(RESPONSE)] for row in table], float)
    X = np.array([[cell or "nan" for cell in row[OTHERS:]] for row in table], float)
    X = np.delete(X, names.index(RESPONSE) - OTHERS, axis=1)
    order = np.random.default_rng(seed).permutation(len(y))
    train, held, test = np.split(order, [int(0.55 * len(y)), int(0.75 * len(y))])
    mean = np.nanmean(X[train], axis=0)
    X = np.where(np.isnan(X), mean, X)
    X -= X[train].mean(axis=0)
    return Split(X[train], y[train], X[held], y[held], X[test], y[test])


def mnist(case: Case) -> Split:
    """Some of the first 15000 training images, and all 10000 of the test; pixels in [0, 1].

    Pixels that are black in all training rows are left out: their weights would only shrink to zero.
    """
    with np.load(DATA / "mnist.npz") as file:
        X, y, X_test, y_test = (file[name] for name in ("X_train", "y_train", "X_test", "y_test"))
    rows = np.random.default_rng(case.seed).permutation(len(y))[: case.rows]
    train, held = np.split(rows, [int(0.75 * case.rows)])
    flat, new = X.reshape(len(X), -1), X_test.reshape(len(X_test), -1)
    seen = flat[train].any(axis=0)
    scaled = [(part[:, seen] / 255.0).astype(np.float32) for part in (flat[train], flat[held], new)]
    labels = [part.astype(np.int64) for part in (y[train], y[held], y_test)]
    return Split(scaled[0], labels[0], scaled[1], labels[1], scaled[2], labels[2])
