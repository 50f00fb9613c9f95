"""Shapes of tables by models: us beside cross-validation, with the accuracy of both sides, as one table.

    python benchmarks/matrix.py [--shapes NAME ...] [--models NAME ...] [--repeats N] [--threads N]

Both sides see the same strengths (given, so that neither extends or shortens its path), and ours chooses by
its default; scikit-learn has five folds.  Seconds are those of the processor, the least of some turns.
Accuracy is the mean squared error, log-loss or Poisson deviance on rows that neither side has seen.  Texts
come from the folder in ONEFIT_DATA.  Two rows beside the table: ten classes, and ten thousand targets with a
strength each, for which the peak of memory is printed, too.  Where ours takes longer, the functions that it
spends most of its time in are named, from one more fit under a profiler.
"""

from __future__ import annotations

import argparse
import cProfile
import importlib.util
import os
import pstats
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import (
    ElasticNetCV,
    LassoCV,
    LogisticRegression,
    LogisticRegressionCV,
    PoissonRegressor,
    RidgeCV,
)
from sklearn.metrics import log_loss, mean_poisson_deviance, mean_squared_error
from sklearn.model_selection import GridSearchCV
from threadpoolctl import threadpool_limits

import onefit
from onefit.fit import Fit
from onefit.losses import Multinomial
from onefit.penalties import L2
from onefit.problem import Problem
from onefit.solvers.solve import solve

DENSE = {
    "100 x 10": (100, 10),
    "500 x 20": (500, 20),
    "2000 x 200": (2000, 200),
    "5000 x 50": (5000, 50),
    "300 x 2000": (300, 2000),
    "1000 x 1000": (1000, 1000),
    "20,000 x 500": (20_000, 500),
    "100,000 x 100": (100_000, 100),
    "200,000 x 5": (200_000, 5),
}
TEXT, CLASSES, TARGETS = "text 1300 x 3289", "ten classes 5000 x 50", "10,000 targets 500 x 200"
SHAPES = (*DENSE, TEXT, CLASSES, TARGETS)
MANY = (500, 200, 10_000)  # rows, columns and targets
LOO_OF_CLASSES = "loo / our fit"
N_NEW = 5000  # rows that both sides are judged on
LONG = 20.0  # seconds of a turn after which there is no other
OURS = str(Path(onefit.__file__).parent)
DEEP = 6  # calls from one function of another library to the next


class Sample(NamedTuple):
    """Rows to fit, and new ones."""

    X: Any
    y: np.ndarray
    X_new: Any
    y_new: np.ndarray


@dataclass(frozen=True)
class Cell:
    """Seconds of both sides, and their losses on new rows."""

    shape: str
    model: str
    ours: float
    theirs: float
    our_loss: float = float("nan")
    their_loss: float = float("nan")
    spent_in: str = ""  # where ours is slower

    @property
    def ratio(self) -> float:
        """Their time over ours."""
        return self.theirs / self.ours

    def __str__(self) -> str:
        losses = f"{self.our_loss:>11.5g}{self.their_loss:>11.5g}"
        times = f"{self.ours:>9.3f}{self.theirs:>9.3f}{self.ratio:>8.2f}"
        return f"{self.shape + ', ' + self.model:<52}{times}{losses}"


def seconds(run: Callable[[], object]) -> float:
    """Processor time, which others on the machine do not share."""
    start = time.process_time()
    run()
    return time.process_time() - start


def in_turns(ours: Callable[[], Any], theirs: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """Least seconds of each, in turns; of a single turn where that takes long."""
    pairs = [(seconds(ours), seconds(theirs))]
    while len(pairs) < repeats and sum(pairs[0]) < LONG:
        pairs.append((seconds(ours), seconds(theirs)))
    own, other = np.min(pairs, axis=0)
    return float(own), float(other)


def spent_in(run: Callable[[], object], most: int = 3) -> str:
    """The functions of ours that a run spends most of its time in, with what they call of other libraries."""
    profiler = cProfile.Profile(time.process_time)
    profiler.runcall(run)
    stats: Any = pstats.Stats(profiler)
    spent: Counter[tuple[str, int, str]] = Counter()

    def charge(name: tuple[str, int, str], seconds: float, depth: int = 0) -> None:
        """To a function of ours, or to those that have called it, as they have."""
        callers = stats.stats[name][4]
        total = sum(called[3] for called in callers.values())
        if name[0].startswith(OURS):
            spent[name] += seconds
        elif depth < DEEP and total > 0:
            for by, called in callers.items():
                charge(by, seconds * called[3] / total, depth + 1)

    for name, (_, _, own, *_) in stats.stats.items():
        charge(name, own)
    return ", ".join(
        f"{'.'.join(Path(file).relative_to(OURS).with_suffix('').parts)}.{function} "
        f"{seconds / stats.total_tt:.0%}"
        for (file, _, function), seconds in spent.most_common(most)
    )


# --- data --------------------------------------------------------------------------------------------


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


def parted(X: Any, y: np.ndarray, n: int) -> Sample:
    """The first n rows, and the others."""
    return Sample(X[:n], y[:n], X[n:], y[n:])


@cache
def rows_of(shape: str) -> tuple[Any, np.ndarray, int]:
    """X, linear predictors, and how many of the rows are to be fitted."""
    rng = np.random.default_rng(0)
    if shape in DENSE:
        n, p = DENSE[shape]
        return *predictors(n + N_NEW, p, rng), n
    X, _ = texts()
    eta = X @ np.where(np.arange(X.shape[1]) < 300, 3.0, 0.0)
    return X, 2.0 * eta / eta.std(), 1300


@cache
def texts() -> tuple[Any, np.ndarray]:
    """Sparse and wide: tf-idf of two newsgroups, and which."""
    held = np.load(Path(os.environ.get("ONEFIT_DATA", "../shared/data")) / "newsgroups_pcmac.npz")
    counts = sp.csr_array((held["data"], held["indices"], held["indptr"]), shape=tuple(held["shape"]))
    order = np.random.default_rng(0).permutation(counts.shape[0])
    X = TfidfTransformer().fit_transform(counts.astype(float)).tocsr()[order]
    return sp.csr_matrix(X), held["y"][order].ravel()


def numbers(shape: str) -> Sample:
    """A response with unit noise."""
    X, eta, n = rows_of(shape)
    return parted(X, eta + np.random.default_rng(1).normal(size=len(eta)), n)


def labels(shape: str) -> Sample:
    """Two classes: drawn, or of real texts."""
    X, eta, n = rows_of(shape)
    if shape == TEXT:
        return parted(X, texts()[1], n)
    return parted(X, (eta + np.random.default_rng(1).logistic(size=len(eta)) > 0).astype(int), n)


def counts(shape: str) -> Sample:
    """Poisson counts."""
    X, eta, n = rows_of(shape)
    return parted(X, np.random.default_rng(1).poisson(np.exp(0.5 * eta)).astype(float), n)


def many_classes(n: int, p: int, c: int) -> Sample:
    """Labels of c classes from a multinomial model."""
    rng = np.random.default_rng(0)
    X, _ = predictors(n + N_NEW, p, rng)
    eta = X @ rng.normal(size=(p, c)) / np.sqrt(p) * 1.5
    return parted(X, (eta + rng.gumbel(size=eta.shape)).argmax(axis=1), n)


def many_targets(n: int, p: int, t: int) -> Sample:
    """Targets of a tenth of the columns, whose noise is from a third to three times the signal."""
    rng = np.random.default_rng(0)
    X, _ = predictors(2 * n, p, rng)
    Y = X @ (rng.normal(size=(p, t)) * (rng.random((p, t)) < 0.1))
    Y /= Y.std(axis=0)
    for k, size in enumerate(3.0 ** rng.uniform(-1, 1, t)):
        Y[:, k] += size * rng.normal(size=2 * n)
    return parted(X, Y, n)


# --- both sides of each model ------------------------------------------------------------------------


def path_of(X: Any, y: np.ndarray) -> np.ndarray:
    """Fifty strengths of a lasso, from the null model down."""
    n, p = X.shape
    top = float(np.abs(X.T @ (y - y.mean())).max()) / n
    return np.geomspace(top, (1e-3 if n > p else 1e-2) * top, 50)


def ridge(_X: Any, _y: np.ndarray) -> tuple[Any, Any]:
    """Ten strengths."""
    few = np.geomspace(1e4, 1e-2, 10)
    return onefit.RidgeLOO(few), RidgeCV(few, cv=5)


def lasso(X: Any, y: np.ndarray) -> tuple[Any, Any]:
    """Fifty."""
    alphas = path_of(X, y)
    return onefit.LassoLOO(alphas), LassoCV(alphas=alphas, cv=5)


def elastic_net(X: Any, y: np.ndarray) -> tuple[Any, Any]:
    """Fifty, of half ℓ1 and half ℓ2."""
    alphas = 2 * path_of(X, y)
    return onefit.ElasticNetLOO(alphas), ElasticNetCV(alphas=alphas, cv=5)


def logistic(ratio: float, _X: Any, y: np.ndarray) -> tuple[Any, Any]:
    """Ten strengths, ℓ2 or ℓ1, by the solvers of theirs that take least of those that can."""
    Cs = np.logspace(-3, 2, 10) if ratio else np.logspace(-4, 4, 10)
    of_kinks = "liblinear" if len(np.unique(y)) == 2 else "saga"
    theirs = LogisticRegressionCV(
        Cs=Cs,
        cv=5,
        l1_ratios=(ratio,),
        solver=of_kinks if ratio else "lbfgs",
        scoring="neg_log_loss",
        max_iter=1000,
        use_legacy_attributes=False,
    )
    return onefit.LogisticLOO(Cs=Cs, l1_ratio=ratio), theirs


def poisson(_X: Any, _y: np.ndarray) -> tuple[Any, Any]:
    """Ten, beside a grid search."""
    alphas = np.logspace(2, -4, 10)
    grid = GridSearchCV(PoissonRegressor(max_iter=1000), {"alpha": alphas}, cv=5)
    return onefit.PoissonLOO(alphas=alphas), grid


class Model(NamedTuple):
    """A column of the table."""

    sample: Callable[[str], Sample]
    sides: Callable[[Any, np.ndarray], tuple[Any, Any]]
    loss: Callable[[Any, Any, np.ndarray], float]


def squared_error(model: Any, X: Any, y: np.ndarray) -> float:
    return float(mean_squared_error(y, model.predict(X)))


def of_labels(model: Any, X: Any, y: np.ndarray) -> float:
    return float(log_loss(y, model.predict_proba(X)))


def of_counts(model: Any, X: Any, y: np.ndarray) -> float:
    return float(mean_poisson_deviance(y, model.predict(X)))


MODELS = {
    "ridge": Model(numbers, ridge, squared_error),
    "lasso": Model(numbers, lasso, squared_error),
    "elastic net": Model(numbers, elastic_net, squared_error),
    "logistic l2": Model(labels, partial(logistic, 0.0), of_labels),
    "logistic l1": Model(labels, partial(logistic, 1.0), of_labels),
    "Poisson": Model(counts, poisson, of_counts),
}


# --- cells -------------------------------------------------------------------------------------------


def measured(
    shape: str, model: str, sample: Sample, sides: tuple[Any, Any], loss: Callable[..., float], repeats: int
) -> Cell:
    """Fit both sides."""
    ours, theirs = sides

    def own() -> None:
        ours.fit(sample.X, sample.y)

    times = in_turns(own, lambda: theirs.fit(sample.X, sample.y), repeats)
    losses = [loss(one, sample.X_new, sample.y_new) for one in sides]
    return Cell(shape, model, *times, *losses, spent_in(own) if times[0] > times[1] else "")


def of_shape(shape: str, models: list[str], repeats: int) -> Iterator[Cell]:
    """A line of the table."""
    for name in models:
        if shape == TEXT and name == "Poisson":  # half of the words were never seen with a count
            continue
        model = MODELS[name]
        sample = model.sample(shape)
        yield measured(shape, name, sample, model.sides(sample.X, sample.y), model.loss, repeats)
    rows_of.cache_clear()


def of_classes(repeats: int) -> Iterator[Cell]:
    """Leave-one-out beside fits by our own solver, and a path beside cross-validation."""
    n, p, c = 5000, 50, 10
    sample = many_classes(n, p, c)
    model = LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000).fit(sample.X, sample.y)
    problem = Problem(
        Multinomial(c), L2(1.0), sample.X, sample.y.astype(float), np.ones(n), np.ones(c, dtype=bool)
    )

    def left_out() -> None:
        onefit.loo(model, sample.X, sample.y)

    own = in_turns(left_out, lambda: solve(Fit.at_start(problem)), repeats)
    yield Cell(CLASSES, LOO_OF_CLASSES, *own, spent_in=spent_in(left_out))
    for name, ratio in (("logistic l2", 0.0), ("logistic l1", 1.0)):
        sides = logistic(ratio, sample.X, sample.y)
        yield measured(CLASSES, name, sample, sides, of_labels, repeats)


def target_sides() -> dict[str, Any]:
    """Ours, scikit-learn's own formula, and himalaya's folds."""
    alphas = np.geomspace(1e4, 1e-2, 20)
    sides: dict[str, Any] = {
        "RidgeLOO": onefit.RidgeLOO(alphas, alpha_per_target=True),
        "RidgeCV()": RidgeCV(alphas, alpha_per_target=True),
    }
    if importlib.util.find_spec("himalaya") is not None:
        from himalaya.ridge import RidgeCV as OfHimalaya

        sides["himalaya, 5 folds"] = OfHimalaya(alphas=alphas, cv=5)
    return sides


def of_targets(repeats: int) -> Iterator[Cell]:
    """A strength for each of ten thousand targets."""
    sides = target_sides()
    with get_context("spawn").Pool(1, maxtasksperchild=1) as apart:
        grown = [f"{name} {mib:.0f} MiB" for name, mib in zip(sides, apart.map(peak, sides, 1), strict=True)]
    print(f"{TARGETS}, growth of the peak of memory: {', '.join(grown)}")
    sample, ours = many_targets(*MANY), sides.pop("RidgeLOO")
    for name, theirs in sides.items():
        yield measured(TARGETS, f"ridge / {name}", sample, (ours, theirs), squared_error, repeats)


def peak(name: str) -> float:
    """By how much a fit in a process of its own raises the peak of memory, in MiB."""
    whole, side = many_targets(*MANY), target_sides()[name]
    X, y = whole.X.copy(), whole.y.copy()
    del whole
    before = in_memory("VmRSS")
    side.fit(X, y)
    return in_memory("VmHWM") - before


def in_memory(which: str) -> float:
    """What the system says of this process, in MiB; NaN where it does not."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    found = [float(line.split()[1]) / 1024 for line in lines if line.startswith(which)]
    return found[0] if found else float("nan")


def cells(shapes: list[str], models: list[str], repeats: int) -> Iterator[Cell]:
    """All that is asked for."""
    for shape in shapes:
        if shape == TARGETS:
            yield from of_targets(repeats)
        elif shape == CLASSES:
            yield from of_classes(repeats)
        elif shape == TEXT and not Path(os.environ.get("ONEFIT_DATA", "../shared/data")).is_dir():
            print("(no texts: ONEFIT_DATA names no folder)")
        else:
            yield from of_shape(shape, models, repeats)


def table(found: list[Cell]) -> str:
    """Ratios, shape by model, with their geometric mean and the worst cell."""
    known = {(cell.shape, cell.model): f"{cell.ratio:.2g}" for cell in found}
    lines = ["| shape | " + " | ".join(MODELS) + " |", "|---" * (1 + len(MODELS)) + "|"]
    in_table = dict.fromkeys(cell.shape for cell in found if cell.shape not in (CLASSES, TARGETS))
    lines += [
        f"| {shape} | " + " | ".join(known.get((shape, model), "–") for model in MODELS) + " |"
        for shape in in_table
    ]
    others = [f"{cell.shape}, {cell.model}: {cell.ratio:.2g}" for cell in found if cell.shape not in in_table]
    worst = min(found, key=lambda cell: cell.ratio)
    mean = np.exp(np.mean([np.log(cell.ratio) for cell in found]))
    return "\n".join(
        [
            *lines,
            *others,
            f"geometric mean of {len(found)}: {mean:.2f}",
            f"worst: {worst.shape}, {worst.model}: {worst.ratio:.2g}",
            *(
                f"{cell.shape}, {cell.model}, {cell.ratio:.2g}: {cell.spent_in}"
                for cell in found
                if cell.spent_in
            ),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="of BLAS; 0 is all")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{'':<52}{'ours s':>9}{'theirs s':>9}{'ratio':>8}{'our loss':>11}{'theirs':>11}")
    found = []
    with threadpool_limits(given.threads or os.cpu_count()):
        for cell in cells(given.shapes, given.models, given.repeats):
            found.append(cell)
            print(cell, flush=True)
    print("\n" + table(found))


if __name__ == "__main__":
    main()
