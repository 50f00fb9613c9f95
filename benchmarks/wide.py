"""Lassos and elastic nets on few rows with more columns, with the defaults of both sides: time and losses.

    python benchmarks/wide.py                          # eight shapes, four tables each
    python benchmarks/wide.py --shape 60 2000 --tables 10

Columns depend on one another, a tenth of them (ten at most) have a say.  What a path takes depends on where
its risk is smallest, so each shape has several tables; the worst is named.  One thread, in turns.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
from sklearn.linear_model import ElasticNetCV, LassoCV
from threadpoolctl import threadpool_limits

import onefit
from matrix import N_NEW, predictors

SHAPES = ((60, 200), (60, 2000), (100, 500), (100, 5000), (150, 3000), (200, 300), (200, 1000), (230, 2000))
RATIO = 0.5  # share of ℓ1 in the elastic nets
SIDES = {
    "lasso": (onefit.LassoLOO(), LassoCV(cv=5)),
    "elastic net": (onefit.ElasticNetLOO(l1_ratio=RATIO), ElasticNetCV(l1_ratio=RATIO, cv=5)),
}


def measured(model: Any, X: np.ndarray, y: np.ndarray, n: int) -> tuple[float, float]:
    """Seconds of the processor that a fit to the first n rows takes, and its loss on the others."""
    start = time.process_time()
    model.fit(X[:n], y[:n])
    seconds = time.process_time() - start
    return seconds, float(np.mean((model.predict(X[n:]) - y[n:]) ** 2))


def main() -> None:
    """Print a line for each shape and model."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shape", type=int, nargs=2, action="append", help="rows and columns")
    parser.add_argument("--tables", type=int, default=4)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    onefit.LassoLOO().fit(np.eye(9), np.arange(9.0))  # imports
    every = []
    print(f"{'':<28}{'theirs / ours':>14}{'worst':>7}{'its s':>8}{'our loss':>10}{'theirs':>9}")
    for n, p in given.shape or SHAPES:
        tables = [predictors(n + N_NEW, p, np.random.default_rng(seed)) for seed in range(given.tables)]
        noise = [np.random.default_rng([1, seed]).normal(size=n + N_NEW) for seed in range(given.tables)]
        for name, sides in SIDES.items():
            with threadpool_limits(1):
                found = np.array(
                    [
                        [measured(model, X, eta + own, n) for model in sides]
                        for (X, eta), own in zip(tables, noise, strict=True)
                    ]
                )
            ratios, losses = found[:, 1, 0] / found[:, 0, 0], found[:, :, 1].mean(axis=0)
            every.append(found)
            mean, slowest = np.exp(np.log(ratios).mean()), found[ratios.argmin(), 0, 0]
            head = f"{n} x {p}, {name}"
            print(
                f"{head:<28}{mean:14.2f}{ratios.min():7.2f}{slowest:8.2f}{losses[0]:10.4g}{losses[1]:9.4g}",
                flush=True,
            )
    logs = np.log(np.concatenate(every))
    ratio, loss = (
        np.exp((logs[:, 1, 0] - logs[:, 0, 0]).mean()),
        np.exp((logs[:, 0, 1] - logs[:, 1, 1]).mean()),
    )
    print(f"geometric means: {ratio:.2f} times as fast, losses {loss:.3f} of theirs")


if __name__ == "__main__":
    main()
