"""What users get: held-out loss and time of the estimators with their defaults beside scikit-learn's."""

from __future__ import annotations

import argparse
import json
import time
import warnings
import zlib
from pathlib import Path

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.linear_model import ElasticNetCV, LassoCV, RidgeCV
from sklearn.preprocessing import StandardScaler

import onefit
from choice.report import provenance
from choice.tables import REGRESSION, Table, tables

PAIRS = {
    "lasso": (onefit.LassoLOO(), onefit.LassoLOO(selection="bagged"), LassoCV(), LassoCV(cv=10)),
    "elastic net": (
        onefit.ElasticNetLOO(),
        onefit.ElasticNetLOO(selection="bagged"),
        ElasticNetCV(),
        ElasticNetCV(cv=10),
    ),
    "ridge": (
        onefit.RidgeLOO(),
        onefit.RidgeLOO(selection="bagged"),
        RidgeCV(np.geomspace(1e-4, 1e6, 100), cv=5),
        RidgeCV(np.geomspace(1e-4, 1e6, 100), cv=10),
    ),
}
COLUMNS = ("bagged_se", "bagged", "5 folds", "10 folds")


def judge(model: RegressorMixin, own: tuple[np.ndarray, ...]) -> tuple[float, float]:
    """Held-out mean squared error, relative to the mean's, and seconds of processor time."""
    X, y, others, response = own
    start = time.process_time()
    model.fit(X, y)
    seconds = time.process_time() - start
    return float(np.mean((model.predict(others) - response) ** 2) / np.var(response)), seconds


def draw(table: Table, size: int) -> tuple[np.ndarray, ...]:
    """Rows to tune on and others, standardised by the former."""
    rng = np.random.default_rng(zlib.crc32(f"{table.name}/{size}".encode()))
    order = rng.permutation(len(table.y))
    n = min(size, int(0.7 * len(order)))
    own, other = order[:n], order[n : n + 1500]
    kept = table.X[own].std(axis=0) > 1e-10
    scaler = StandardScaler().fit(table.X[own][:, kept])
    rows = np.clip(scaler.transform(table.X[:, kept]), -20.0, 20.0)
    return rows[own], table.y[own], rows[other], table.y[other]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[60, 200])
    parser.add_argument("--models", choices=sorted(PAIRS), nargs="+", default=list(PAIRS))
    parser.add_argument("--most-columns", type=int, default=120)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/choice/estimators.json"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    results: dict[str, dict[str, list[tuple[float, float]]]] = {name: {} for name in options.models}
    for table in sorted(tables(REGRESSION), key=lambda one: zlib.crc32(one.name.encode())):
        if table.X.shape[1] > options.most_columns or time.process_time() > 60.0 * options.minutes:
            continue
        for size in options.sizes:
            rows = draw(table, size)
            for name, own in results.items():
                own[f"{table.name}/{size}"] = [judge(model, rows) for model in PAIRS[name]]
        options.out.write_text(json.dumps({"versions": provenance(), **results}, indent=1) + "\n")
    show(results)


def show(results: dict[str, dict[str, list[tuple[float, float]]]]) -> None:
    """Excess over the better peer's loss, and time, in a table."""
    for name, rows in results.items():
        values = np.array([[one[0] for one in row] for row in rows.values()])
        seconds = np.array([[one[1] for one in row] for row in rows.values()])
        print(f"{name}: {len(values)} problems; loss above that of 5 folds in %: mean, median, worst")
        for j, column in enumerate(COLUMNS):
            above = 100.0 * (values[:, j] / values[:, 2] - 1.0)
            error = above.std(ddof=1) / np.sqrt(len(above))
            print(
                f"  {column:<10}{above.mean():8.2f} ±{error:5.2f}{np.median(above):8.2f}{above.max():8.1f}"
                f"{np.sum(above > 5.0):5d} of them above 5 %,{np.sum(above < -5.0):4d} below -5 %"
                f"{np.median(seconds[:, j]):8.3f} s"
            )


if __name__ == "__main__":
    main()
