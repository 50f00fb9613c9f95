"""Strengths chosen on sparse text: loss on fresh rows and time, beside scikit-learn's CV classes.

    OPENBLAS_NUM_THREADS=1 python benchmarks/text_choice.py --sets pcmac --rows 300 900 --models lasso

The sets are those of the folder in ONEFIT_DATA (default ../shared/data).  Two thirds of the rows train, at
most as many as asked for; the others are fresh.  Times are process times.  "by folds" is our own path, judged
by five folds: both sides fit to the optimum there, so that the losses differ by the choice alone.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import ElasticNetCV, LassoCV, LogisticRegressionCV
from sklearn.metrics import log_loss, mean_squared_error

from onefit import ElasticNetLOO, LassoLOO, LogisticLOO

FILES = {
    "pcmac": "newsgroups_pcmac.npz",
    "relathe": "newsgroups_relathe.npz",
    "basehock": "newsgroups_basehock.npz",
    "movie": "movie_polarity.npz",
}
CS = np.logspace(-4, 2, 10)


class Cell(NamedTuple):
    """What both had on a training set."""

    chosen: float
    loss: float
    seconds: float


def texts(name: str, words: str, rows: int | None) -> tuple[csr_matrix, Any, csr_matrix, Any]:
    """Training rows and fresh rows."""
    folder = Path(os.environ.get("ONEFIT_DATA", Path(__file__).parents[2] / "shared" / "data"))
    held = np.load(folder / FILES[name], allow_pickle=False)
    X = csr_matrix((held["data"].astype(float), held["indices"], held["indptr"]), shape=held["shape"])
    y = (held["y"] == held["y"].max()).astype(int)
    order = np.random.default_rng(0).permutation(len(y))
    cut = 2 * len(y) // 3
    train, fresh = order[: min(cut, rows or cut)], order[cut:]
    if words == "tfidf":
        weighing = TfidfTransformer().fit(X[train])
        return weighing.transform(X[train]), y[train], weighing.transform(X[fresh]), y[fresh]
    return X[train], y[train], X[fresh], y[fresh]


def _logistic() -> tuple[Any, Any]:
    other = LogisticRegressionCV(
        Cs=CS, cv=5, l1_ratios=(1.0,), solver="liblinear", scoring="neg_log_loss", use_legacy_attributes=False
    )
    return LogisticLOO(Cs=CS, l1_ratio=1.0), other


MODELS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "logistic": _logistic,
    "by folds": lambda: (
        LogisticLOO(Cs=CS, l1_ratio=1.0),
        LogisticLOO(Cs=CS, l1_ratio=1.0, cv=5, selection="min"),
    ),
    "lasso": lambda: (LassoLOO(), LassoCV(cv=5)),
    "elastic net": lambda: (ElasticNetLOO(), ElasticNetCV(cv=5)),
}


def judged(model: Any, data: tuple[csr_matrix, Any, csr_matrix, Any]) -> Cell:
    """Fit, and judge on fresh rows."""
    X, y, X_fresh, y_fresh = data
    start = time.process_time()
    model.fit(X, y)
    seconds = time.process_time() - start
    chosen = model.C_ if hasattr(model, "C_") else model.alpha_
    if hasattr(model, "predict_proba"):
        return Cell(float(np.ravel(chosen)[0]), log_loss(y_fresh, model.predict_proba(X_fresh)), seconds)
    return Cell(float(chosen), mean_squared_error(y_fresh, model.predict(X_fresh)), seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=list(FILES))
    parser.add_argument("--words", nargs="+", default=["tfidf", "counts"])
    parser.add_argument("--rows", nargs="+", default=["300", "900", "all"])
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    asked = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    print(
        f"{'model':<12}{'set':<10}{'words':<8}{'rows':>5}  {'chosen':>20}  {'loss':>16}"
        f"  {'ratio':>6}  seconds"
    )
    ratios, ours, theirs = [], 0.0, 0.0
    for kind in asked.models:
        for name in asked.sets:
            for words in asked.words:
                for rows in asked.rows:
                    data = texts(name, words, None if rows == "all" else int(rows))
                    one, other = (judged(model, data) for model in MODELS[kind]())
                    ratios.append(one.loss / other.loss)
                    ours, theirs = ours + one.seconds, theirs + other.seconds
                    print(
                        f"{kind:<12}{name:<10}{words:<8}{rows:>5}  {one.chosen:9.3g} {other.chosen:9.3g}  "
                        f"{one.loss:8.4f} {other.loss:8.4f}  {ratios[-1]:6.3f}  {one.seconds:7.2f} "
                        f"{other.seconds:7.2f}",
                        flush=True,
                    )
    print(
        f"mean ratio {np.mean(ratios):.4f}, largest {np.max(ratios):.4f}, cells above 1.02: "
        f"{np.sum(np.array(ratios) > 1.02)} of {len(ratios)}; seconds {ours:.1f} v {theirs:.1f}"
    )


if __name__ == "__main__":
    main()
