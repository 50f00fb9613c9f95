"""Generalised linear models beside cross-validation: shape by shape, with the accuracy of both sides.

    python benchmarks/matrix_glm.py [--part NAME ...] [--repeats N]

Both sides see the same ten strengths (fixed, so that neither extends or shortens its path), scikit-learn
with five folds; seconds are process time on one thread, in turns.  Accuracy is the mean log-loss, or Poisson
deviance, on rows that neither side has seen.  Real sets come from the folder in ONEFIT_DATA.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, PoissonRegressor
from sklearn.metrics import log_loss, mean_poisson_deviance
from sklearn.model_selection import GridSearchCV
from threadpoolctl import threadpool_limits

import onefit
from onefit.fit import Fit
from onefit.losses import Multinomial
from onefit.penalties import L2
from onefit.problem import Problem
from onefit.solvers.solve import solve

SHAPES = {"500 x 20": (500, 20), "5000 x 50": (5000, 50), "300 x 2000": (300, 2000)}
LARGEST = {"100,000 x 100": (100_000, 100)}
N_NEW = 5000  # rows that risks are judged on


@dataclass(frozen=True)
class Row:
    """Seconds of both sides, and their losses on new rows."""

    what: str
    ours: float
    theirs: float
    our_loss: float = float("nan")
    their_loss: float = float("nan")

    def __str__(self) -> str:
        ratio = self.theirs / self.ours
        losses = f"{self.our_loss:>9.4f}{self.their_loss:>9.4f}"
        return f"{self.what:<44}{self.ours:>9.3f}{self.theirs:>9.3f}{ratio:>8.2f}{losses}"


def in_turns(ours: Callable[[], Any], theirs: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """Least process time of each, in turns."""
    times = np.empty((2, repeats))
    for r in range(repeats):
        for i, run in enumerate((ours, theirs)):
            start = time.process_time()
            run()
            times[i, r] = time.process_time() - start
    least = times.min(axis=1)
    return float(least[0]), float(least[1])


def predictors(n: int, p: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Correlated columns, and linear predictors of standard deviation 2 that a tenth of them make."""
    Z = rng.normal(size=(n, p))
    X = Z.copy()
    X[:, 1:] = 0.6 * Z[:, 1:] + 0.8 * Z[:, :-1]
    coef = np.zeros(p)
    k = max(5, min(p, 100) // 10)
    coef[rng.choice(p, k, replace=False)] = rng.normal(size=k)
    eta = X @ coef
    return X, 2.0 * eta / eta.std()


def classes(n: int, p: int, c: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Labels of c classes drawn from a multinomial model."""
    rng = np.random.default_rng(seed)
    X, _ = predictors(n, p, rng)
    eta = X @ rng.normal(size=(p, c)) / np.sqrt(p) * 1.5
    return X, (eta + rng.gumbel(size=eta.shape)).argmax(axis=1)


def logistic_sides(Cs: np.ndarray, ratio: float, solver: str) -> tuple[Any, Any]:
    """Both estimators over the same strengths."""
    ours = onefit.LogisticLOO(Cs=Cs, l1_ratio=ratio)
    theirs = LogisticRegressionCV(
        Cs=Cs,
        cv=5,
        l1_ratios=(ratio,),
        solver=solver,
        scoring="neg_log_loss",
        max_iter=1000,
        use_legacy_attributes=False,
    )
    return ours, theirs


def logistic_row(name: str, data: tuple, ratio: float, repeats: int) -> Row:
    """One cell with an ℓ2 or ℓ1 penalty."""
    X, y, X_new, y_new = data
    Cs = np.logspace(-3, 2, 10) if ratio else np.logspace(-4, 4, 10)
    solver = "liblinear" if ratio else "lbfgs"
    ours, theirs = logistic_sides(Cs, ratio, solver)
    times = in_turns(lambda: ours.fit(X, y), lambda: theirs.fit(X, y), repeats)
    losses = [log_loss(y_new, one.predict_proba(X_new)) for one in (ours, theirs)]
    return Row(f"logistic {'l1' if ratio else 'l2'} {name}", *times, *losses)


def halves(X: Any, y: np.ndarray, n: int) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    """The first n rows, and the others."""
    return X[:n], y[:n], X[n:], y[n:]


def dense(repeats: int, shapes: dict[str, tuple[int, int]] = SHAPES) -> Iterator[Row]:
    """Two classes, ℓ2 and ℓ1, and counts."""
    for name, (n, p) in shapes.items():
        rng = np.random.default_rng(0)
        X, eta = predictors(n + N_NEW, p, rng)
        y = (eta + rng.logistic(size=len(eta)) > 0).astype(int)
        for ratio in (0.0, 1.0):
            yield logistic_row(name, halves(X, y, n), ratio, repeats)
        counts = rng.poisson(np.exp(0.5 * eta)).astype(float)
        yield poisson_row(name, halves(X, counts, n), repeats)


def tall(repeats: int) -> Iterator[Row]:
    """The same for many rows."""
    yield from dense(repeats, LARGEST)


def poisson_row(name: str, data: tuple, repeats: int) -> Row:
    """Beside a grid search."""
    X, y, X_new, y_new = data
    alphas = np.logspace(2, -4, 10)
    ours = onefit.PoissonLOO(alphas=alphas)
    theirs = GridSearchCV(PoissonRegressor(max_iter=1000), {"alpha": alphas}, cv=5)
    times = in_turns(lambda: ours.fit(X, y), lambda: theirs.fit(X, y), repeats)
    losses = [mean_poisson_deviance(y_new, one.predict(X_new)) for one in (ours, theirs)]
    return Row(f"Poisson {name}", *times, *losses)


def text(repeats: int) -> Iterator[Row]:
    """Sparse and wide: tf-idf of newsgroups."""
    held = np.load(Path(os.environ.get("ONEFIT_DATA", "../shared/data")) / "newsgroups_pcmac.npz")
    counts = sp.csr_array((held["data"], held["indices"], held["indptr"]), shape=tuple(held["shape"]))
    order = np.random.default_rng(0).permutation(counts.shape[0])
    X = TfidfTransformer().fit_transform(counts.astype(float)).tocsr()[order]
    data = halves(sp.csr_matrix(X), held["y"][order].ravel(), 1300)
    for ratio in (0.0, 1.0):
        yield logistic_row("text 1300 x 3289", data, ratio, repeats)


def several(repeats: int) -> Iterator[Row]:
    """Ten classes: leave-one-out beside fits by our own solver, and a path beside cross-validation."""
    for n, p in ((5000, 50), (2000, 20)):
        X, y = classes(n + N_NEW, p, 10)
        X, y, X_new, y_new = halves(X, y, n)
        model = LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000).fit(X, y)
        problem = Problem(Multinomial(10), L2(1.0), X, y.astype(float), np.ones(n), np.ones(10, dtype=bool))
        times = in_turns(
            lambda m=model, A=X, b=y: onefit.loo(m, A, b),
            lambda one=problem: solve(Fit.at_start(one)),
            repeats,
        )
        yield Row(f"loo of 10 classes {n} x {p} / our fit", *times)
        yield logistic_row(f"10 classes {n} x {p}", (X, y, X_new, y_new), 0.0, repeats)


PARTS = {"dense": dense, "tall": tall, "text": text, "several": several}


def matrix_glm(parts: list[str], repeats: int) -> Iterator[Row]:
    """All rows of some parts."""
    for part in parts:
        yield from PARTS[part](repeats)


def glm(quick: bool) -> Iterator[Row]:
    """Shapes of tables that people have; text where ONEFIT_DATA says where it is."""
    with threadpool_limits(1):
        if quick:
            yield from dense(1, {"500 x 20": SHAPES["500 x 20"]})
        else:
            yield from matrix_glm(["dense", "several", *(["text"] if "ONEFIT_DATA" in os.environ else [])], 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", nargs="+", choices=sorted(PARTS), default=list(PARTS))
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{'':<44}{'ours s':>9}{'theirs s':>9}{'ratio':>8}{'loss':>9}{'theirs':>9}")
    with threadpool_limits(1):
        for row in matrix_glm(given.part, given.repeats):
            print(row, flush=True)


if __name__ == "__main__":
    main()
