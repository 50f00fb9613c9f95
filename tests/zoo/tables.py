"""Tables: a design, and the score from which responses of every kind are made."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from scipy.linalg import toeplitz
from sklearn import datasets

ROWS = (30, 110)  # of random and of sampled real tables
MOST_COLUMNS = 200


@dataclass(frozen=True)
class Table:
    """Rows, columns and a score that depends on them.

    Attributes
    ----------
    name : str
    X : (n, p) array
    score : (n,) array
        Mean 0 and spread 1.
    tags : tuple of str
        What is wrong with it.
    """

    name: str
    X: np.ndarray
    score: np.ndarray
    tags: tuple[str, ...] = ()

    def with_columns(self, X, tag: str) -> Table:
        """Return the table with other columns, and a word for what has changed."""
        return replace(self, X=X, tags=(*self.tags, tag))


# --- random tables -----------------------------------------------------------------------------------


def _gaussian(rng, n, p):
    return rng.normal(size=(n, p))


def _correlated(rng, n, p):
    root = np.linalg.cholesky(toeplitz(0.9 ** np.arange(p)) + 1e-9 * np.eye(p))
    return rng.normal(size=(n, p)) @ root.T


def _heavy_tailed(rng, n, p):
    return rng.standard_t(2.5, size=(n, p))


def _counts(rng, n, p):
    return (rng.poisson(0.3, size=(n, p)) + (rng.uniform(size=(n, p)) < 0.02) * 5).astype(np.float64)


def _dummies(rng, n, p):
    """All levels of one or two factors: with an intercept the columns are dependent."""
    levels = min(max(2, p), 8)
    one_hot = np.eye(levels)[rng.integers(0, levels, n)]
    return np.hstack([one_hot, rng.normal(size=(n, max(p - levels, 1)))])


def _factors(rng, n, p):
    """Few directions hold nearly all of the variance."""
    k = min(3, p)
    return rng.normal(size=(n, k)) @ rng.normal(size=(k, p)) + 0.05 * rng.normal(size=(n, p))


RANDOM: dict[str, Callable] = {
    "gaussian": _gaussian,
    "correlated": _correlated,
    "heavy tails": _heavy_tailed,
    "counts": _counts,
    "dummies": _dummies,
    "factors": _factors,
}


def random_table(rng: np.random.Generator, rows: tuple[int, int], columns: int) -> Table:
    """Draw a table: between one column and twice as many as rows."""
    n = int(np.exp(rng.uniform(*np.log(rows))))
    choices = [1, 2, 3, 5, 8, 12, 20, n // 2, n - 2, n - 1, n, n + 3, 2 * n]
    p = min(int(rng.choice(choices)), columns)
    name = str(rng.choice(list(RANDOM)))
    X = RANDOM[name](rng, n, p)
    coef = np.zeros(X.shape[1])
    few = rng.permutation(X.shape[1])[: max(1, min(X.shape[1], int(rng.choice([1, 3, 8]))))]
    coef[few] = rng.normal(size=few.size)
    signal = _standardised(X @ coef)
    noise = rng.choice([0.05, 0.3, 1.0, 5.0])
    return Table(name, X, _standardised(signal + noise * rng.normal(size=n)))


def _standardised(values):
    values = np.asarray(values, dtype=np.float64) - np.mean(values)
    spread = values.std()
    return values / spread if spread > 0 else values


# --- real tables -------------------------------------------------------------------------------------

SHIPPED = {
    "diabetes": datasets.load_diabetes,
    "breast cancer": datasets.load_breast_cancer,
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
}
IN_FOLDER = (
    "glmnet_gaussian",
    "glmnet_binomial",
    "glmnet_poisson",
    "prostate",
    "yacht",
    "concrete",
    "airfoil",
    "colon_tumour",
    "leukemia",
    "newsgroups_pcmac",
)
RESPONSES = {
    "prostate": "lpsa",
    "yacht": "residuary_resistance",
    "concrete": "strength",
    "airfoil": "sound_pressure",
}
REAL = (*SHIPPED, *IN_FOLDER)


def data_folder() -> Path:
    """Folder of the real data: ONEFIT_DATA, or ``shared/data`` beside the repository."""
    default = Path(__file__).resolve().parents[3] / "shared" / "data"
    return Path(os.environ.get("ONEFIT_DATA", default))


@cache
def _whole(name: str):
    if name in SHIPPED:
        return SHIPPED[name](return_X_y=True)
    return _from_csv(name) if name in RESPONSES else _from_npz(name)


def _from_npz(name: str):
    parts = np.load(data_folder() / f"{name}.npz", allow_pickle=False)
    if "indptr" not in parts:
        return np.asarray(parts["X"], dtype=np.float64), parts["y"]
    import scipy.sparse as sp

    X = sp.csr_array((parts["data"], parts["indices"], parts["indptr"]), shape=tuple(parts["shape"]))
    return X.astype(np.float64), parts["y"]


def _from_csv(name: str):
    import pandas as pd

    frame = pd.read_csv(data_folder() / f"{name}.csv.gz").select_dtypes("number").dropna()
    y = frame.pop(RESPONSES[name]).to_numpy(dtype=np.float64)
    return frame.to_numpy(dtype=np.float64), y


def real_table(rng: np.random.Generator, name: str, rows: tuple[int, int], columns: int) -> Table:
    """Draw some rows and columns of a real table.

    Raises
    ------
    FileNotFoundError
        If it is not here.
    """
    X, y = _whole(name)
    n = min(X.shape[0], int(np.exp(rng.uniform(*np.log(rows)))))
    some = rng.permutation(X.shape[0])[:n]
    X = X[some] if isinstance(X, np.ndarray) else X[some].toarray()
    held = np.flatnonzero(np.ptp(X, axis=0) > 0)
    kept = np.sort(rng.permutation(held)[:columns])
    X = X[:, kept]
    if rng.uniform() < 0.7 and name != "newsgroups_pcmac":
        X = (X - X.mean(axis=0)) / X.std(axis=0)
    score = np.asarray(y, dtype=np.float64)[some]
    return Table(name, X, _standardised(score + 1e-3 * np.std(score) * rng.normal(size=n)))


# --- what is wrong with tables -----------------------------------------------------------------------


def _duplicated_column(rng, table):
    X = table.X
    return table.with_columns(np.hstack([X, X[:, [rng.integers(X.shape[1])]]]), "duplicated column")


def _badly_scaled(rng, table):
    reach = rng.choice([2.0, 4.0, 8.0])
    return table.with_columns(
        table.X * 10.0 ** rng.uniform(-reach, reach, table.X.shape[1]), "badly scaled columns"
    )


def _all_scaled(rng, table):
    power = int(rng.choice([-12, -6, 6, 12]))
    return table.with_columns(table.X * 10.0**power, f"columns times 1e{power}")


def _constant_column(rng, table):
    X = np.hstack([table.X, np.full((len(table.X), 1), rng.choice([0.0, 1.0, 3.0]))])
    return table.with_columns(X, "constant column")


def _rare_column(rng, table):
    column = np.zeros((len(table.X), 1))
    column[rng.permutation(len(column))[: rng.integers(1, 3)]] = 1.0
    return table.with_columns(np.hstack([table.X, column]), "rare column")


def _copies(rng, table):
    n = len(table.X)
    rows = np.concatenate([np.arange(n), rng.integers(0, n, n // 3)])
    return replace(table, X=table.X[rows], score=table.score[rows], tags=(*table.tags, "copies of rows"))


def _outlier(rng, table):
    score = table.score.copy()
    score[rng.integers(len(score))] += rng.choice([-1, 1]) * rng.choice([5.0, 30.0])
    return replace(table, score=score, tags=(*table.tags, "outlier in y"))


def _confident_mistake(rng, table):
    """The row that lies furthest out has the response of the other end."""
    order = np.argsort(table.score)
    score = table.score.copy()
    score[order[-1]], score[order[0]] = table.score[order[0]], table.score[order[-1]]
    return replace(table, score=score, tags=(*table.tags, "confident mistake"))


def _far_row(rng, table):
    X = table.X.copy()
    X[rng.integers(len(X))] *= rng.choice([10.0, 100.0])
    return table.with_columns(X, "far row")


def _empty_row(rng, table):
    X = table.X.copy()
    X[rng.integers(len(X))] = 0.0
    return table.with_columns(X, "empty row")


TROUBLES = (
    _duplicated_column,
    _badly_scaled,
    _all_scaled,
    _constant_column,
    _rare_column,
    _copies,
    _outlier,
    _confident_mistake,
    _far_row,
    _empty_row,
)


def troubled(rng: np.random.Generator, table: Table) -> Table:
    """Add none, one or two of the troubles of real tables."""
    for k in rng.permutation(len(TROUBLES))[: rng.choice([0, 1, 2], p=[0.45, 0.4, 0.15])]:
        table = TROUBLES[k](rng, table)
    return table


# --- responses ---------------------------------------------------------------------------------------


def response(rng: np.random.Generator, kind: str, score: np.ndarray) -> tuple[np.ndarray, str]:
    """Make a response of a kind from a score, and a word for what is special about it."""
    return _MAKERS[kind](rng, score)


def _number(rng, score):
    scale, shift = rng.choice([1.0, 1.0, 1e-3, 1e4]), rng.choice([0.0, 0.0, 100.0])
    return scale * (score + shift), ""


def _several_numbers(rng, score):
    return np.stack([score, np.roll(score, 1) + 0.5 * score], axis=1), ""


def _count(rng, score):
    rate = rng.choice([0.2, 2.0, 30.0])
    y = rng.poisson(rate * np.exp(np.clip(0.6 * score, -4, 4))).astype(np.float64)
    y[rng.integers(len(y))] += 1.0  # not all are zero
    return y, "few counts" if rate < 1 else ""


def _positive(rng, score):
    return np.exp(np.clip(0.5 * score, -6, 6)) * rng.gamma(2.0, 0.5, len(score)) + 1e-6, ""


def _two_classes(rng, score):
    share = float(rng.choice([0.5, 0.5, 0.3, 0.1]))
    y = (score > np.quantile(score, 1 - share)).astype(int)
    for k in (0, 1):  # at least three rows of each
        missing = 3 - int(np.sum(y == k))
        y[rng.permutation(np.flatnonzero(y != k))[: max(missing, 0)]] = k
    return y, "rare class" if share < 0.2 else ""


def _three_classes(rng, score):
    shares = ((0.33, 0.67), (0.6, 0.9), (0.1, 0.2))[rng.integers(3)]
    y = np.digitize(score, np.quantile(score, shares))
    for k in range(3):
        missing = 3 - int(np.sum(y == k))
        common = np.flatnonzero(y == np.bincount(y, minlength=3).argmax())
        y[rng.permutation(common)[: max(missing, 0)]] = k
    return y, "rare class" if shares[0] != 0.33 else ""


_MAKERS = {
    "number": _number,
    "numbers": _several_numbers,
    "count": _count,
    "positive": _positive,
    "two classes": _two_classes,
    "three classes": _three_classes,
}
