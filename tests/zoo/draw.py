"""A numbered problem: the same for everybody who asks for that number."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from zoo.families import FAMILIES, LEVELS, MILDER, Family, Setting
from zoo.tables import MOST_COLUMNS, REAL, ROWS, random_table, real_table, response, troubled

SEED = 20_261_122
MODES = ("rows", "exact", "groups", "folds")


@dataclass(frozen=True, eq=False)
class Case:
    """A fitted model and its data.

    Attributes
    ----------
    number : int
    family : Family
    model : fitted estimator
    X : array or sparse array
    y : array
    sample_weight : (n,) array or None
    mode : str
        One of ``MODES``.
    groups : (n,) array or None
        Of each row, for "groups" and "folds".
    tags : tuple of str
    """

    number: int
    family: Family
    model: Any
    X: Any
    y: np.ndarray
    sample_weight: np.ndarray | None
    mode: str
    groups: np.ndarray | None
    tags: tuple[str, ...]

    @property
    def sets(self) -> list[np.ndarray]:
        """Rows that leave together."""
        if self.groups is None:
            return [np.array([i]) for i in range(len(self.y))]
        return [np.flatnonzero(self.groups == g) for g in np.unique(self.groups)]

    @property
    def fit_weights(self) -> dict[str, Any]:
        return {} if self.sample_weight is None else {_weight_name(self.model): self.sample_weight}


def _weight_name(model: Any) -> str:
    return f"{model.steps[-1][0]}__sample_weight" if hasattr(model, "steps") else "sample_weight"


def draw(
    number: int, rows: tuple[int, int] = ROWS, columns: int = MOST_COLUMNS, real: tuple[str, ...] = REAL
) -> Case:
    """Draw a problem and fit its model; warnings of the fit are those of its library.

    Parameters
    ----------
    number : int
        Families take turns.
    rows, columns
        Smallest and largest number of rows, and the largest number of columns.
    real : tuple of str
        Real tables that may be drawn.

    Raises
    ------
    FileNotFoundError
        If its real table is not here.
    """
    rng = np.random.default_rng([SEED, number])
    family = list(FAMILIES.values())[number % len(FAMILIES)]
    if rng.uniform() < 0.2:
        table = real_table(rng, str(rng.choice(real)), rows, columns)
    else:
        table = random_table(rng, rows, columns)
    table = troubled(rng, table)
    y, special = response(rng, family.response, table.score)
    weights, weighing = unequal_weights(rng, y, weighted=family.weighted)
    level = _level(rng, family, table.X.shape)
    intercept = not family.intercept or bool(rng.uniform() < 0.85)
    total = float(len(y) if weights is None else weights.sum())
    model = family.make(Setting(rng, table.X, y, total, level, intercept))
    X, storage = _stored(rng, family, table.X)
    if rng.uniform() < 0.1:
        model, storage = make_pipeline(StandardScaler(with_mean=not sp.issparse(X)), model), "pipeline"
    mode = str(rng.choice(MODES, p=[0.7, 0.1, 0.1, 0.1]))
    words = (table.name, *table.tags, special, weighing, level, storage, "" if intercept else "no intercept")
    tags = tuple(word for word in words if word)
    case = Case(number, family, model, X, y, weights, mode, _groups(rng, mode, len(y)), tags)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        model.fit(X, y, **case.fit_weights)
    return case


def _level(rng, family: Family, shape: tuple[int, int]) -> str:
    level = str(rng.choice(LEVELS))
    n, p = shape
    roomy = n >= (8 * p if family.response in ("two classes", "three classes", "count") else p + 3)
    if level == "none" and not (family.unpenalised and roomy):
        return MILDER[level]
    return level


def unequal_weights(rng, y, *, weighted: bool = True):
    """Weights of rows for three problems in ten, and a word for them; None for the others."""
    n, kind = len(y), rng.uniform()
    if not weighted or kind < 0.7:
        return None, ""
    if kind < 0.8:
        return rng.uniform(0.2, 3.0, n), "weights"
    if kind < 0.9:
        return rng.integers(1, 4, n).astype(np.float64), "whole weights"
    weights = rng.integers(0, 3, n).astype(np.float64)
    if y.dtype.kind == "i":
        for k in np.unique(y):  # two rows of each class keep their weight
            weights[rng.permutation(np.flatnonzero(y == k))[:2]] = 1.0
    return weights, "zero weights"


def _stored(rng, family: Family, X):
    kind = rng.uniform()
    if family.sparse and kind < 0.12:
        thinned = np.where(np.abs(X) < 0.3 * X.std(axis=0), 0.0, X)
        return (sp.csr_array if kind < 0.06 else sp.csc_array)(thinned), "sparse"
    if kind > 0.92:
        return X.astype(np.float32), "float32"
    return np.asfortranarray(X) if kind > 0.7 else X, ""


def _groups(rng, mode: str, n: int):
    if mode == "groups":
        return rng.integers(0, max(n // 4, 2), n)
    return rng.permutation(np.arange(n) % 5) if mode == "folds" else None
