"""Squared-loss paths beside cross-validation, on tables of several shapes.

Both sides get the same strengths; peers take 5 folds.  ``RidgeCV`` also has its own leave-one-out formula.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import ElasticNetCV, LassoCV, RidgeCV
from sklearn.preprocessing import normalize

import onefit
from run import Row, toeplitz

STRENGTHS = 50


def models(X: Any, y: np.ndarray) -> Iterator[tuple[str, Any, Any]]:
    """Each model, and what cross-validates it over the same strengths."""
    n, p = X.shape
    top = (
        float(np.abs(X.T @ (y - y.mean())).max()) / n
    )  # the response is centred, which is as good as columns
    alphas = np.geomspace(top, (1e-3 if n > p else 1e-2) * top, STRENGTHS)
    few = np.geomspace(1e4, 1e-2, 10)
    yield "RidgeLOO / RidgeCV(cv=5)", onefit.RidgeLOO(alphas=few), RidgeCV(alphas=few, cv=5)
    yield "RidgeLOO / RidgeCV()", onefit.RidgeLOO(alphas=few), RidgeCV(alphas=few)
    yield "LassoLOO / LassoCV(cv=5)", onefit.LassoLOO(alphas=alphas), LassoCV(alphas=alphas, cv=5)
    net = ElasticNetCV(alphas=2 * alphas, cv=5)
    yield "ElasticNetLOO / ElasticNetCV(cv=5)", onefit.ElasticNetLOO(alphas=2 * alphas), net


def seconds(run: Callable[[], object]) -> float:
    """Processor time, which others on the machine do not share."""
    start = time.process_time()
    run()
    return time.process_time() - start


def compared(name: str, X: Any, y: np.ndarray, goals: dict[str, str], repeats: int) -> Iterator[Row]:
    """Least time of both sides, taken in turns, and the risk of our choice beside its error."""
    for what, ours, theirs in models(X, y):
        pairs = [
            (seconds(lambda ours=ours: ours.fit(X, y)), seconds(lambda theirs=theirs: theirs.fit(X, y)))
            for _ in range(repeats)
        ]
        own, other = np.min(pairs, axis=0)
        found = ours.loo_
        note = f"{found.guarantee}, ± {found.approx_error / found.value:.0e}"
        yield Row(f"{what} {name}", float(own), float(other), goals.get(what.split()[0], ">= 1"), note)


def text(seed: int = 0) -> tuple[Any, np.ndarray]:
    """As tf-idf makes them: 1300 documents of unit length, 2 % of 3289 words each."""
    rng = np.random.default_rng(seed)
    X = normalize(sp.random_array((1300, 3289), density=0.02, rng=rng, format="csr"))
    coef = np.where(np.arange(3289) < 100, 3.0, 0.0) * rng.normal(size=3289)
    return X, X @ coef + 0.3 * rng.normal(size=1300)


def squared(quick: bool) -> Iterator[Row]:
    """Shapes of tables that people have."""
    for n, p in [(500, 20)] if quick else [(500, 20), (5000, 50), (300, 2000)]:
        yield from compared(f"{n} x {p}", *toeplitz(n, p, 10), {}, 5 if n * p < 3e5 else 2)
    if not quick:
        yield from compared("text 1300 x 3289", *text(), {}, 1)
