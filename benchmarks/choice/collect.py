"""Left-out, fold-wise and held-out losses along paths, for every table, size and draw.

Rules differ in what they do with the same losses, so these are computed once and kept.  All are those of
refits (``refits``), folds included: the minimum of the mean over folds is what ``LassoCV`` and its like take
on these strengths with a small tolerance (and ``scoring="neg_log_loss"`` for classifiers).
"""

from __future__ import annotations

import argparse
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.special import xlogy
from sklearn.model_selection import KFold, StratifiedKFold

from choice.refits import FARTHEST, NOBODY, Elastic, Logistic, Poisson, Refits, Ridge
from choice.tables import CLASSIFICATION, COUNTS, REGRESSION, Source, Table, tables

Array = np.ndarray
DRAWS = {60: 4, 200: 2, 1000: 1}
MOST_HELD_OUT = 1500
WIDE = 35  # columns from which the largest subsamples are left out, for time
LONGEST = 3.0  # seconds of processor time for a table, after which no further draw is begun
TOO_LONG = 15.0  # seconds that leaving every row out may take
REPEATS = {5: 4, 10: 2}  # of folds, each with a seed of its own
WORSE = 1.7  # times the smallest risk of folds, from where on a path is not followed


@dataclass(frozen=True)
class Model:
    """A penalised model and the strengths of its path, relative to the data.

    Attributes
    ----------
    refits : callable
        From rows, response and strengths to what fits them without some of the rows.
    decades : (float, float)
        Of strengths, relative to the null strength or, for ridge, the trace of the curvature.
    count : int
    sources : tuple of Source
    l1_ratio : float
    expected : dict
        Names of further losses, (n, J), and what gives them from refits and strengths.
    """

    refits: Callable[[Array, Array, float], Refits]
    decades: tuple[float, float]
    count: int
    sources: tuple[Source, ...]
    l1_ratio: float
    expected: Mapping[str, Callable[[Refits, Array], Array]] = field(default_factory=dict)

    @property
    def is_logistic(self) -> bool:
        return self.sources is CLASSIFICATION

    def losses(self, y: Array, eta: Array) -> Array:
        """Loss of each row, of counts half the deviance: (n, J)."""
        if self.sources is COUNTS:
            eta, y = np.minimum(eta, FARTHEST), y[:, None]
            return np.exp(eta) - y * eta + xlogy(y, y) - y
        if self.is_logistic:
            return np.logaddexp(0.0, eta) - y[:, None] * eta
        return (y[:, None] - eta) ** 2


EXPECTED = {
    "expected5": lambda fits, strengths: fits.expected_folds(strengths, 0.2),
    "spread5": lambda fits, strengths: fits.spread_errors(strengths, 0.2),
}
MODELS = {
    "lasso": Model(Elastic, (0.0, -3.0), 32, REGRESSION, 1.0),
    "elastic net": Model(Elastic, (0.0, -3.5), 32, REGRESSION, 0.5),
    "ridge": Model(Ridge, (1.0, -7.0), 48, REGRESSION, 0.0, EXPECTED),
    "logistic l1": Model(Logistic, (0.0, -2.5), 20, CLASSIFICATION, 1.0),
    "logistic l2": Model(Logistic, (1.0, -6.0), 24, CLASSIFICATION, 0.0),
    "poisson l1": Model(Poisson, (0.0, -2.5), 20, COUNTS, 1.0),
    "poisson l2": Model(Poisson, (1.0, -6.0), 24, COUNTS, 0.0),
}


def draws(model: Model, table: Table) -> Iterator[tuple[str, Array, Array, Array, Array]]:
    """Subsamples to tune on, standardised, and the other rows: those of small numbers and all sizes first."""
    for size, draw in sorted(((s, d) for s, c in DRAWS.items() for d in range(c)), key=lambda one: one[1]):
        n = min(size, int(0.7 * len(table.y)))
        wide = table.X.shape[1] > WIDE and size > 200
        if wide or (n < 0.8 * size and size != min(DRAWS)):
            continue
        rng = np.random.default_rng(zlib.crc32(f"{table.name}/{size}/{draw}".encode()))
        order = rng.permutation(len(table.y))
        own, other = order[:n], order[n : n + MOST_HELD_OUT]
        y = table.y[own]
        if model.is_logistic and min(y.sum(), n - y.sum()) < 10:
            continue
        if model.sources is COUNTS and np.count_nonzero(y) < 10:
            continue
        spread = table.X[own].std(axis=0)
        kept = spread > 1e-10 * (1.0 + np.abs(table.X[own]).max(axis=0))
        mean, spread = table.X[own][:, kept].mean(axis=0), spread[kept]
        X = (table.X[:, kept] - mean) / spread
        X = np.clip(X, -20.0, 20.0)  # columns that hardly vary among the rows that are tuned on
        yield f"{size}/{draw}", X[own], y, X[other], table.y[other]


def folds(model: Model, fits: Refits, strengths: Array, count: int, seed: int) -> tuple[Array, Array]:
    """Losses of each row by the fit on the other folds, (n, J), and its fold: (n,)."""
    number = fold_numbers(model, fits, count, seed)
    losses = np.empty((len(fits.y), len(strengths)))
    for test in (np.flatnonzero(number == k) for k in range(count)):
        losses[test] = model.losses(fits.y[test], fits.predicted(strengths, test, fits.X[test]))
    return losses, number


def near_folds(model: Model, fits: Refits, strengths: Array, count: int, seed: int) -> Array:
    """The same by one Newton step from the fits to all rows: (n, J)."""
    number = fold_numbers(model, fits, count, seed)
    losses = np.empty((len(fits.y), len(strengths)))
    for test in (np.flatnonzero(number == k) for k in range(count)):
        losses[test] = model.losses(fits.y[test], fits.nearby(strengths, test))
    return losses


def fold_numbers(model: Model, fits: Refits, count: int, seed: int) -> Array:
    """Fold of each row: (n,)."""
    kind, numbers = StratifiedKFold if model.is_logistic else KFold, np.empty(len(fits.y))
    for k, (_, test) in enumerate(kind(count, shuffle=True, random_state=seed).split(fits.X, fits.y)):
        numbers[test] = k
    return numbers


def predictions(
    model: Model, fits: Refits, strengths: Array, others: Array, response: Array
) -> dict[str, Array]:
    """Linear predictors of the rows held out, their responses, and folds by a Newton step."""
    found = {
        f"near{count}": np.stack([near_folds(model, fits, strengths, count, s) for s in range(repeats)])
        for count, repeats in REPEATS.items()
    }
    found |= {name: expected(fits, strengths) for name, expected in model.expected.items()}
    found["others"] = fits.predicted(strengths, NOBODY, others)
    return {key: values.astype(np.float32) for key, values in found.items()} | {"response": response}


def record(model: Model, X: Array, y: Array, others: Array, response: Array) -> dict[str, Array]:
    """All that rules may ask for on one draw; nothing where it takes too long."""
    start = time.process_time()
    fits = model.refits(np.ascontiguousarray(X), y, model.l1_ratio)
    high, low = model.decades
    strengths = fits.scale() * np.geomspace(10.0**high, 10.0**low, model.count)
    strengths = strengths[: len(fits.parameters(strengths))]
    risks = folds(model, fits, strengths, 5, 0)[0].mean(axis=0)
    strengths = strengths[: np.flatnonzero(risks <= WORSE * risks.min())[-1] + 1]
    found: dict[str, Array] = {}
    for count, repeats in REPEATS.items():
        values, numbers = zip(*(folds(model, fits, strengths, count, s) for s in range(repeats)), strict=True)
        found[f"folds{count}"] = np.stack(values).astype(np.float32)
        found[f"fold_numbers{count}"] = np.stack(numbers).astype(np.int8)
    fitted = sum(count * repeats for count, repeats in REPEATS.items())
    if (time.process_time() - start) / fitted * len(y) > TOO_LONG:
        return {}
    own = np.stack([fits.predicted(strengths, np.array([i]), X[[i]])[0] for i in range(len(y))])
    found |= {
        "strengths": strengths,
        "parameters": fits.parameters(strengths),
        "loo": model.losses(y, own),
        "train": model.losses(y, fits.predicted(strengths, NOBODY, X)),
        "held_out": model.losses(response, fits.predicted(strengths, NOBODY, others)).mean(axis=0),
        "seconds": np.array([time.process_time() - start]),
    }
    return found | predictions(model, fits, strengths, others, response)


def study(name: str, table: Table) -> Iterator[tuple[str, dict[str, Array]]]:
    """All losses of a table under a model."""
    begun = time.process_time()
    for what, *data in draws(MODELS[name], table):
        if time.process_time() - begun > LONGEST:
            break
        yield what, record(MODELS[name], *data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=sorted(MODELS), required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--minutes", type=float, default=15.0, help="of processor time; go on by a second call"
    )
    parser.add_argument("--most-columns", type=int, default=200)
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
        start, kept = time.process_time(), {}
        for what, one in study(options.model, table):
            kept |= {f"{what}/{key}": value for key, value in one.items()}
        part = file.with_name(f"part-{file.name}")  # an end in the middle leaves no broken file of this name
        np.savez(part, **kept)
        part.rename(file)
        count = sum(key.endswith("/loo") for key in kept)
        print(f"{table.name:<50}{count:>4} draws {time.process_time() - start:6.1f} s", flush=True)


if __name__ == "__main__":
    main()
