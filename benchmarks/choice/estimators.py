"""What users get: held-out loss and time of our estimators with their defaults beside scikit-learn's.

    python -m choice.estimators --minutes 60   # PYTHONPATH=src:benchmarks

Both sides tune on the same rows, standardised, each with its own grid and its own rule, and are judged on
rows that neither has seen.  Differences are logarithms of the ratio of losses, so that neither side's bad
choices weigh more; they are averaged within a table, and their errors are taken over tables.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.linear_model import ElasticNetCV, LassoCV, LogisticRegressionCV, PoissonRegressor, RidgeCV
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler

import onefit
from choice.report import halves, provenance
from choice.tables import CLASSIFICATION, COUNTS, REGRESSION, Source, Table, tables
from matrix import of_counts, squared_error

FAR = 20.0  # standard deviations beyond which entries of held-out rows are cut off
MOST_NEW = 1500  # rows to judge on
DRAWS = {60: 3, 200: 2, 600: 1}  # of so many rows to tune on
COLUMNS = ("bagged_se", "minimum", "5 folds", "10 folds")
ALPHAS = np.geomspace(1e-4, 1e6, 100)  # `RidgeCV` has no path of its own


class Model(NamedTuple):
    """Our estimator by its rule, scikit-learn's by the number of its folds, and what both are judged by."""

    sources: tuple[Source, ...]
    ours: Callable[..., Any]
    theirs: Callable[[int], Any]
    loss: Callable[[Any, np.ndarray, np.ndarray], float]


def _logistic(ratio: float) -> Callable[[int], Any]:
    return lambda folds: LogisticRegressionCV(
        cv=folds,
        l1_ratios=(ratio,),
        solver="liblinear" if ratio else "lbfgs",
        scoring="neg_log_loss",
        use_legacy_attributes=False,
    )


def of_labels(model: Any, X: np.ndarray, y: np.ndarray) -> float:
    return float(log_loss(y, model.predict_proba(X), labels=[0.0, 1.0]))


MODELS = {
    "lasso": Model(REGRESSION, onefit.LassoLOO, lambda folds: LassoCV(cv=folds), squared_error),
    "elastic net": Model(
        REGRESSION, onefit.ElasticNetLOO, lambda folds: ElasticNetCV(cv=folds), squared_error
    ),
    "ridge": Model(REGRESSION, onefit.RidgeLOO, lambda folds: RidgeCV(ALPHAS, cv=folds), squared_error),
    "logistic l1": Model(
        CLASSIFICATION, lambda **rule: onefit.LogisticLOO(l1_ratio=1.0, **rule), _logistic(1.0), of_labels
    ),
    "logistic l2": Model(CLASSIFICATION, onefit.LogisticLOO, _logistic(0.0), of_labels),
    "poisson l2": Model(
        COUNTS,
        onefit.PoissonLOO,
        lambda folds: GridSearchCV(
            PoissonRegressor(max_iter=1000), {"alpha": np.logspace(-4, 2, 10)}, cv=folds
        ),
        of_counts,
    ),
}


def draw(table: Table, size: int, number: int) -> tuple[np.ndarray, ...]:
    """Rows to tune on and others, standardised by the former."""
    rng = np.random.default_rng(zlib.crc32(f"{table.name}/{size}/{number}".encode()))
    order = rng.permutation(len(table.y))
    n = min(size, int(0.7 * len(order)))
    own, other = order[:n], order[n : n + MOST_NEW]
    kept = table.X[own].std(axis=0) > 1e-10
    scaler = StandardScaler().fit(table.X[own][:, kept])
    rows = np.clip(scaler.transform(table.X[:, kept]), -FAR, FAR)
    return rows[own], table.y[own], rows[other], table.y[other]


def judge(model: Model, rows: tuple[np.ndarray, ...]) -> list[tuple[float, float]]:
    """Held-out loss and seconds of the processor, of each column."""
    X, y, X_new, y_new = rows
    found = []
    sides = (model.ours(), model.ours(selection="min"), model.theirs(5), model.theirs(10))
    for estimator in sides:
        start = time.process_time()
        estimator.fit(X, y)
        seconds = time.process_time() - start
        found.append((round(model.loss(estimator, X_new, y_new), 8), round(seconds, 4)))
    return found


def is_fit(y: np.ndarray, model: Model) -> bool:
    """Whether ten folds can be had of this response."""
    if model.sources is CLASSIFICATION:
        return min(np.sum(y == 0.0), np.sum(y == 1.0)) >= 10
    return model.sources is not COUNTS or np.count_nonzero(y) >= 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--models", choices=sorted(MODELS), nargs="+", default=list(MODELS))
    parser.add_argument("--most-columns", type=int, default=120)
    parser.add_argument("--minutes", type=float, default=60.0, help="of processor time, all models together")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/choice/estimators.json"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    results: dict[str, Any] = {name: {} for name in options.models}
    for sources in (REGRESSION, CLASSIFICATION, COUNTS):
        models = {name: MODELS[name] for name in options.models if MODELS[name].sources is sources}
        until = time.process_time() + 60.0 * options.minutes * len(models) / len(options.models)
        for table in sorted(tables(sources) if models else (), key=lambda one: zlib.crc32(one.name.encode())):
            if table.X.shape[1] > options.most_columns or time.process_time() > until:
                continue
            for name, model in models.items():
                results[name].update(of_table(table, model))
            options.out.write_text(json.dumps({"versions": provenance(), **results}) + "\n")
    show(results)


def of_table(table: Table, model: Model) -> dict[str, list[tuple[float, float]]]:
    """Losses and seconds for each draw of a table; sizes that leave too few rows to judge on are left out."""
    found = {}
    for size, draws in DRAWS.items():
        for number in range(draws if size == min(DRAWS) or 0.7 * len(table.y) >= size else 0):
            rows = draw(table, size, number)
            if is_fit(rows[1], model):
                found[f"{table.name}/{size}/{number}"] = judge(model, rows)
    return found


def show(results: dict[str, dict[str, list[tuple[float, float]]]]) -> None:
    """Losses relative to those of 5 folds, over all tables and over the half that no rule was chosen on."""
    for name, rows in results.items():
        by_table: dict[str, list[np.ndarray]] = {}
        for problem, row in rows.items():
            by_table.setdefault(_source(problem), []).append(np.array(row))
        _, reporting = halves(name, sorted(by_table))
        for part, chosen in (("all", list(by_table)), ("reporting half", reporting)):
            if len(chosen) < 2:
                continue
            problems = [row for table in chosen for row in by_table[table]]
            print(f"{name}, {part}: {len(chosen)} tables, {len(problems)} problems")
            for j, column in enumerate(COLUMNS):
                print(f"  {column:<10}" + _compared([by_table[table] for table in chosen], j))


def _source(problem: str) -> str:
    """The table of a problem as ``halves.json`` names it."""
    return problem.rsplit("/", 2)[0].split("*")[0].replace("/", "_")


def _compared(of_tables: list[list[np.ndarray]], j: int) -> str:
    """Mean over tables with its error, without the outer twentieths of the problems, median, and seconds."""
    above = [100.0 * np.array([np.log(row[j, 0] / row[2, 0]) for row in rows]) for rows in of_tables]
    means, all_of_them = np.array([one.mean() for one in above]), np.sort(np.concatenate(above))
    cut = len(all_of_them) // 20
    seconds = [np.log(row[2, 1] / row[j, 1]) for rows in of_tables for row in rows]
    return (
        f"{means.mean():8.2f} ±{means.std(ddof=1) / np.sqrt(len(means)):5.2f}"
        f"{all_of_them[cut : len(all_of_them) - cut].mean():8.2f}{np.median(all_of_them):8.2f}"
        f"{np.mean(all_of_them > 5.0):8.0%} above 5 %,{np.mean(all_of_them < -5.0):5.0%} below"
        f"{np.exp(np.mean(seconds)):8.2f} times as fast"
    )


if __name__ == "__main__":
    main()
