"""Left-out, fold-wise and held-out losses along paths, for every table, size and draw.

Rules differ in what they do with the same losses, so these are computed once and kept.  Folds are
solved by the same exact solver as the paths: the minimum of the mean over folds is what ``LassoCV`` and its
like choose on these strengths with a small tolerance (and ``scoring="neg_log_loss"`` for classifiers).
"""

from __future__ import annotations

import argparse
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.model_selection import KFold, StratifiedKFold

from choice.tables import CLASSIFICATION, COUNTS, REGRESSION, Source, Table, tables
from onefit.fit import Fit
from onefit.losses import Logistic, Loss, Poisson, Squared
from onefit.penalties import L1, L2, ElasticNet, Penalty
from onefit.problem import Problem
from onefit.risk import one_fit
from onefit.solvers.solve import solve_path

Array = np.ndarray
SIZES = (60, 200, 1000)
MOST_HELD_OUT = 1500
WIDE = 35  # columns from which the largest subsamples are left out, for time
LONGEST = 5.0  # seconds of processor time for a table, after which no further draw is begun
CHEAP = 3e4  # n p up to which, on twice as many rows as columns, rows that no step reaches are solved anew


@dataclass(frozen=True)
class Model:
    """A penalised model and the strengths of its path, relative to the data.

    Attributes
    ----------
    loss : Loss
    penalty : callable
        From a strength to the penalty of the sum over rows.
    decades : (float, float)
        Of strengths, relative to the null strength or, for ridge, the trace of the curvature.
    count : int
    sources : tuple of Source
    """

    loss: Loss
    penalty: Callable[[float], Penalty]
    decades: tuple[float, float]
    count: int
    sources: tuple[Source, ...]
    l1_ratio: float
    sizes: tuple[int, ...] = SIZES

    def problem(self, X: Array, y: Array, strength: float) -> Problem:
        scaled = not isinstance(self.loss, Logistic)
        return Problem(
            self.loss,
            self.penalty(strength * len(y)),
            X,
            y,
            np.ones(len(y)),
            mean_scaled=scaled and self.l1_ratio > 0,
        )

    def strengths(self, X: Array, y: Array) -> Array:
        """Of the mean loss, strongest first."""
        start = Fit.at_start(self.problem(X, y, 1.0))
        if self.l1_ratio:
            scale = np.abs(start.loss_gradient).max() / len(y) / self.l1_ratio
        else:
            scale = float(np.mean(start.hessian[:, None] * (X - X.mean(axis=0)) ** 2) * X.shape[1])
        high, low = self.decades
        return np.geomspace(scale * 10.0**high, scale * 10.0**low, self.count)

    def losses(self, y: Array, eta: Array) -> Array:
        """Loss of each row: (n,) or (n, J)."""
        loss = self.loss.value(np.broadcast_to(y[:, None] if eta.ndim == 2 else y, eta.shape), eta)
        return 2.0 * loss if isinstance(self.loss, Squared) else loss


MODELS = {
    "lasso": Model(Squared(), L1, (0.0, -3.0), 32, REGRESSION, 1.0),
    "elastic net": Model(Squared(), lambda a: ElasticNet(a, 0.5), (0.0, -3.5), 32, REGRESSION, 0.5),
    "ridge": Model(Squared(), L2, (1.0, -7.0), 48, REGRESSION, 0.0),
    "logistic l2": Model(Logistic(), L2, (1.0, -6.0), 24, CLASSIFICATION, 0.0),
    "logistic l1": Model(Logistic(), L1, (0.0, -2.5), 20, CLASSIFICATION, 1.0, (60, 200)),
    "poisson l2": Model(Poisson(), L2, (1.0, -6.0), 24, COUNTS, 0.0),
}


def predictors(model: Model, X: Array, y: Array, strengths: Array, rows: Array) -> Array:
    """Predictors of other rows by the fits at all strengths: (m, J)."""
    found = solve_path(model.problem(X, y, s) for s in strengths)
    return np.stack([rows @ one.fit.coef + float(one.fit.intercept) for one in found], axis=1)


def left_out(model: Model, X: Array, y: Array, strengths: Array, others: Array) -> tuple[Array, Array]:
    """Left-out predictors at all strengths, and those of other rows: (n, J), (m, J)."""
    thorough = X.size <= CHEAP and 2 * X.shape[1] < len(y)
    own, rest = [], []
    for solution in solve_path(model.problem(X, y, s) for s in strengths):
        own.append(one_fit.loo(*solution, thorough=thorough).eta)
        rest.append(others @ solution.fit.coef + float(solution.fit.intercept))
    return np.stack(own, axis=1), np.stack(rest, axis=1)


def folds(model: Model, X: Array, y: Array, strengths: Array, count: int, seed: int) -> Array:
    """Losses of each row by the fit on the other folds: (n, J), and its fold: (n,)."""
    kind = StratifiedKFold if isinstance(model.loss, Logistic) else KFold
    losses, number = np.empty((len(y), len(strengths))), np.empty(len(y), dtype=int)
    for k, (train, test) in enumerate(kind(count, shuffle=True, random_state=seed).split(X, y)):
        losses[test] = model.losses(y[test], predictors(model, X[train], y[train], strengths, X[test]))
        number[test] = k
    return np.column_stack([losses, number])


def draws(model: Model, table: Table, count: int) -> Iterator[tuple[str, Array, Array, Array, Array]]:
    """Subsamples to tune on, standardised, and the other rows."""
    for draw in range(count):
        for size in model.sizes:
            n = min(size, int(0.7 * len(table.y)))
            wide = table.X.shape[1] > WIDE and size > 200
            if wide or (n < 0.8 * size and size != model.sizes[0]):
                continue
            rng = np.random.default_rng(zlib.crc32(f"{table.name}/{size}/{draw}".encode()))
            order = rng.permutation(len(table.y))
            own, other = order[:n], order[n : n + MOST_HELD_OUT]
            y = table.y[own]
            if isinstance(model.loss, Logistic) and min(y.sum(), n - y.sum()) < 10:
                continue
            spread = table.X[own].std(axis=0)
            kept = spread > 1e-10 * (1.0 + np.abs(table.X[own]).max(axis=0))
            mean, spread = table.X[own][:, kept].mean(axis=0), spread[kept]
            X = (table.X[:, kept] - mean) / spread
            X = np.clip(X, -20.0, 20.0)  # columns that hardly vary among the rows that are tuned on
            yield f"{size}/{draw}", X[own], y, X[other], table.y[other]


def study(name: str, table: Table, count: int) -> Iterator[tuple[str, dict[str, Array]]]:
    """All losses of a table under a model."""
    model = MODELS[name]
    begun = time.process_time()
    for what, X, y, others, response in draws(model, table, count):
        start = time.process_time()
        if start - begun > LONGEST:
            break
        strengths = model.strengths(X, y)
        own, eta = left_out(model, X, y, strengths, others)
        middle = time.process_time()
        record = {
            "strengths": strengths,
            "loo": model.losses(y, own),
            "held_out": model.losses(response, eta).mean(axis=0),
            "seconds": np.array([middle - start]),
        }
        for k in (5, 10):
            record[f"folds{k}"] = folds(model, X, y, strengths, k, seed=0)
        if isinstance(model.loss, Squared):
            residual = response[:, None] - eta
            record["residual_gram"] = residual.T @ residual / len(response)
        yield what, record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=sorted(MODELS), required=True)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/choice/losses"))
    parser.add_argument(
        "--minutes", type=float, default=15.0, help="of processor time; go on by a second call"
    )
    parser.add_argument("--most-columns", type=int, default=600)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    options.out.mkdir(parents=True, exist_ok=True)
    order = sorted(tables(MODELS[options.model].sources), key=lambda one: zlib.crc32(one.name.encode()))
    for table in order:  # so that time that runs out leaves out tables at random
        file = options.out / f"{options.model}~{table.name.replace('/', '_')}.npz"
        if file.exists() or table.X.shape[1] > options.most_columns:
            continue
        if time.process_time() > 60.0 * options.minutes:
            print("out of time: call again")
            break
        start, record = time.process_time(), {}
        try:
            for what, one in study(options.model, table, options.draws):
                record |= {f"{what}/{key}": value for key, value in one.items()}
        except Exception as error:
            print(f"failed: {table.name}: {type(error).__name__}: {error}", flush=True)
            continue
        part = file.with_name(f"part-{file.name}")  # an end in the middle leaves no broken file of this name
        np.savez_compressed(part, **record)
        part.rename(file)
        print(f"{table.name:<50}{len(record) // 6:>4} draws {time.process_time() - start:6.1f} s", flush=True)


if __name__ == "__main__":
    main()
