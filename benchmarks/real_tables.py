"""Seconds of both sides with their defaults on real tables, columns standardised.

    python benchmarks/real_tables.py [--models NAME ...]

The tables are those of the study of choice rules (``benchmarks/choice/tables.py``); what cannot be found is
left out.  Seconds are those of the processor, the lesser of two turns.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
from sklearn.linear_model import ElasticNetCV, LassoCV, LogisticRegressionCV, RidgeCV
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

import onefit
from choice.tables import CLASSIFICATION, REGRESSION, Source
from matrix import in_turns

LARGEST = 3e6  # numbers of a table


def sides(model: str) -> tuple[Any, Any]:
    """Ours, and scikit-learn's."""
    of_classes = {"scoring": "neg_log_loss", "max_iter": 1000, "use_legacy_attributes": False}
    l1 = {"l1_ratios": (1.0,), "solver": "liblinear"}
    return {
        "ridge": (onefit.RidgeLOO, RidgeCV),
        "lasso": (onefit.LassoLOO, LassoCV),
        "elastic net": (onefit.ElasticNetLOO, ElasticNetCV),
        "logistic l2": (onefit.LogisticLOO, lambda: LogisticRegressionCV(**of_classes)),
        "logistic l1": (
            lambda: onefit.LogisticLOO(l1_ratio=1.0),
            lambda: LogisticRegressionCV(**of_classes, **l1),
        ),
    }[model]


def ratio(source: Source, model: str) -> float | None:
    """Their time over ours, printed; None where a table is missing or too large."""
    try:
        X, y = source.load()
    except FileNotFoundError:
        return None
    X = StandardScaler().fit_transform(X[:, X.std(axis=0) > 0])
    if X.size > LARGEST:
        return None
    ours, theirs = (make() for make in sides(model))
    mine, other = in_turns(lambda: ours.fit(X, y), lambda: theirs.fit(X, y), 2)
    shape = f"{X.shape[0]} x {X.shape[1]}"
    print(f"{model:<12}{source.name:<48}{shape:>14}{mine:>9.3f}{other:>9.3f}{other / mine:>7.2f}", flush=True)
    return other / mine


def main() -> None:
    """Print a line a table, and the geometric mean of each model."""
    models = ("ridge", "lasso", "elastic net", "logistic l2", "logistic l1")
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=models, default=list(models))
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        for model in parser.parse_args().models:
            tables = CLASSIFICATION if model.startswith("logistic") else REGRESSION
            found = [one for source in tables if (one := ratio(source, model)) is not None]
            mean = np.exp(np.mean(np.log(found)))
            slower = sum(one < 1 for one in found)
            print(f"{model}: geometric mean of {len(found)} is {mean:.2f}, slower on {slower}")


if __name__ == "__main__":
    main()
