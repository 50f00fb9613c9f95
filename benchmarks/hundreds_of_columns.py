"""Hundreds of columns and more, with the defaults of both sides: time and losses on new rows.

    python benchmarks/hundreds_of_columns.py [--shapes NAME ...] [--models NAME ...]

Thirty of the columns have a say; where ``levels`` stands behind the shape they are the levels of factors of
fifty, sparse, and few rows have most of them.  Where ``words`` does they are those of texts of 65 words, by
Zipf's law, as tf-idf, and all have a say.  Seconds of the processor, one thread, one fit a side.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import ElasticNetCV, LassoCV, LogisticRegressionCV, RidgeCV
from threadpoolctl import threadpool_limits

import onefit
from matrix import N_NEW, Sample, of_labels, parted, seconds, squared_error

SHAPES = {
    "1000 x 1000": (1000, 1000),
    "3000 x 300": (3000, 300),
    "20,000 x 500": (20_000, 500),
    "500 x 5000": (500, 5000),
    "50,000 x 2000 levels": (50_000, 2000),
    "300 x 1000 words": (300, 1000),
    "1000 x 3000 words": (1000, 3000),
    "2000 x 8000 words": (2000, 8000),
    "4000 x 1000 words": (4000, 1000),
}
USED, LEVELS, CLASSES, WORDS = 30, 50, 5, 65
MODELS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "ridge": lambda: (onefit.RidgeLOO(), RidgeCV(np.logspace(-3, 3, 10))),
    "lasso": lambda: (onefit.LassoLOO(), LassoCV()),
    "elastic net": lambda: (onefit.ElasticNetLOO(), ElasticNetCV()),
    "logistic": lambda: (onefit.LogisticLOO(), LogisticRegressionCV(cv=5, max_iter=1000)),
    "five classes": lambda: (onefit.LogisticLOO(), LogisticRegressionCV(cv=5, max_iter=1000)),
}


def columns(shape: str, rng: np.random.Generator) -> Any:
    """Normal ones that depend on one another a little, the levels of factors, or words."""
    n, p = SHAPES[shape]
    n += N_NEW
    if "words" in shape:
        share = 1.0 / np.arange(1.0, p + 1.0)
        lengths = rng.poisson(WORDS, n)
        words = rng.choice(p, lengths.sum(), p=share / share.sum())
        texts = sp.csr_array((np.ones(len(words)), (np.repeat(np.arange(n), lengths), words)), shape=(n, p))
        return TfidfTransformer(sublinear_tf=True).fit_transform(texts)
    if "levels" not in shape:
        return rng.normal(size=(n, p)) @ (np.eye(p) + 0.3 * rng.normal(size=(p, p)) / np.sqrt(p))
    level = rng.zipf(1.5, size=(n, p // LEVELS)) % LEVELS + LEVELS * np.arange(p // LEVELS)
    starts = np.arange(0, level.size + 1, level.shape[1], dtype=np.int32)
    return sp.csr_array((np.ones(level.size), level.ravel().astype(np.int32), starts), shape=(n, p))


def response(X: Any, shape: str, model: str, rng: np.random.Generator) -> np.ndarray:
    """Numbers with noise of unit variance, two classes, or five."""
    p, c = X.shape[1], CLASSES if model == "five classes" else 1
    if "words" in shape:  # rows are of length one
        coef = 3.0 * rng.normal(size=(p, c))
    else:
        coef = np.zeros((p, c))
        coef[rng.choice(p, USED, replace=False)] = 2.0 * rng.normal(size=(USED, c)) / np.sqrt(USED)
    eta = X @ coef
    if c > 1:
        return (eta + rng.gumbel(size=eta.shape)).argmax(axis=1)
    eta = eta[:, 0] - eta.mean()
    return eta + rng.logistic(size=len(eta)) > 0 if model == "logistic" else eta + rng.normal(size=len(eta))


def measured(model: Any, sample: Sample) -> tuple[float, float]:
    """Seconds of a fit, and the loss on new rows."""
    taken = seconds(lambda: model.fit(sample.X, sample.y))
    loss = of_labels if hasattr(model, "predict_proba") else squared_error
    return taken, loss(model, sample.X_new, sample.y_new)


def main() -> None:
    """Print a line for each shape and model."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    small = np.arange(30.0).reshape(10, 3) % 7
    for make in MODELS.values():  # imports
        make()[0].fit(small, np.arange(10) % 2)
    print(f"{'':<36}{'ours s':>9}{'theirs s':>9}{'ratio':>8}{'our loss':>11}{'theirs':>11}")
    with threadpool_limits(1):
        for shape in given.shapes:
            for name in given.models:
                if name == "five classes" and "levels" in shape:  # K of ten thousand coefficients
                    continue
                rng = np.random.default_rng(0)
                X = columns(shape, rng)
                sample = parted(X, response(X, shape, name, rng), SHAPES[shape][0])
                (ours, loss), (theirs, other) = (measured(one, sample) for one in MODELS[name]())
                row = f"{shape + ', ' + name:<36}{ours:>9.2f}{theirs:>9.2f}{theirs / ours:>8.2f}"
                print(f"{row}{loss:>11.4g}{other:>11.4g}", flush=True)


if __name__ == "__main__":
    main()
