"""Few rows of classes that are all but separated: the choice of a strength, judged on new rows.

    python benchmarks/few_rows_of_classes.py                 # ridge penalty
    python benchmarks/few_rows_of_classes.py --l1-ratio 1    # lasso, tables of at most 1500 columns

Ours by default, ours by the smallest left-out risk (which does not count labels that were not seen), and
``LogisticRegressionCV`` with five folds and log-loss, six draws of each number of rows.  Tables come from
scikit-learn and from the folder in ONEFIT_DATA, where that is there.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler

from onefit import LogisticLOO

SHIPPED = {"cancer": load_breast_cancer, "wine": load_wine, "iris": load_iris, "digits": load_digits}
TABLES = ("leukemia", "colon_tumour", "arcene", "glmnet_binomial", "a9a")
TEXTS = ("newsgroups_basehock", "newsgroups_pcmac", "newsgroups_relathe")
ROWS, ROWS_OF_TEXT, NEW, DRAWS, FEWEST = (30, 60, 120, 300), (100, 300), 3000, 6, 5
MOST_COLUMNS = 1500  # of a lasso


class Table(NamedTuple):
    """Rows and classes, to be standardised unless they are texts."""

    name: str
    X: Any
    y: np.ndarray
    is_text: bool = False


def tables() -> Iterator[Table]:
    """All that are there."""
    for name, load in SHIPPED.items():
        yield Table(name, *load(return_X_y=True))
    folder = Path(os.environ.get("ONEFIT_DATA", Path(__file__).parents[2] / "shared" / "data"))
    for name in (*TABLES, *TEXTS):
        if (file := folder / f"{name}.npz").exists():
            with np.load(file) as held:
                parts = dict(held)
            X = parts.get("X", parts.get("x"))
            if X is None:
                X = sp.csr_matrix((parts["data"], parts["indices"], parts["indptr"]), shape=parts["shape"])
            if name in TEXTS:
                X = TfidfTransformer().fit_transform(X.astype(float))
            elif sp.issparse(X):
                X = X.toarray()
            numbers = np.unique(parts["y"].ravel(), return_inverse=True)[1]
            yield Table(name.removeprefix("newsgroups_"), X, numbers, name in TEXTS)


def draws(table: Table, n: int) -> Iterator[tuple[Any, np.ndarray, Any, np.ndarray]]:
    """Rows to fit, enough of each class, and others."""
    for seed in range(DRAWS):
        order = np.random.default_rng(seed).permutation(table.X.shape[0])
        own, new = order[:n], order[n : n + NEW]
        if np.bincount(table.y[own], minlength=table.y.max() + 1).min() >= FEWEST:
            X, X_new = table.X[own], table.X[new]
            if not table.is_text:
                scaler = StandardScaler().fit(X)
                X, X_new = scaler.transform(X), scaler.transform(X_new)
            yield X, table.y[own], X_new, table.y[new]


def main() -> None:
    """Print a line for each table and number of rows, and the geometric means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--l1-ratio", type=float, default=0.0)
    ratio = parser.parse_args().l1_ratio
    warnings.simplefilter("ignore")
    means, folds = [], {"cv": 5, "max_iter": 3000, "scoring": "neg_log_loss"}
    print(f"{'':<24}{'default':>16}{'smallest':>16}{'five folds':>16}   mean and worst log-loss on new rows")
    for table in tables():
        for n in ROWS_OF_TEXT if table.is_text else ROWS:
            wide = ratio > 0 and table.X.shape[1] > MOST_COLUMNS
            if n > 0.7 * table.X.shape[0] or wide:
                continue
            losses = []
            for X, y, X_new, y_new in draws(table, n):
                ours = [LogisticLOO(l1_ratio=ratio, selection=own) for own in ("bagged_se", "min")]
                models = [*ours, LogisticRegressionCV(**folds)] if ratio == 0 else ours
                found = [model.fit(X, y).predict_proba(X_new) for model in models]
                losses.append([log_loss(y_new, own, labels=np.unique(table.y)) for own in found])
            if losses:
                means.append(np.mean(losses, axis=0))
                shown = zip(means[-1], np.max(losses, axis=0), strict=True)
                cells = "".join(f"{mean:>9.3f}{worst:>7.3f}" for mean, worst in shown)
                print(f"{f'{table.name} {n} x {table.X.shape[1]}':<24}{cells}", flush=True)
    print(f"{'geometric mean':<24}" + "".join(f"{own:>9.3f}{'':7}" for own in np.exp(np.log(means).mean(0))))


if __name__ == "__main__":
    main()
