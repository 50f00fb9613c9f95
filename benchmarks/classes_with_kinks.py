"""Several classes with ℓ1 and elastic net, with the defaults of both sides: time and losses on new rows.

    python benchmarks/classes_with_kinks.py [--tables NAME ...]

Tables that scikit-learn ships, standardised, of which a third of the rows are new, and drawn ones: dense, a
tenth of whose columns have a say, and words of texts.  Theirs is SAGA, the only solver of scikit-learn's that
has both.  Seconds of the processor, one thread, one fit a side.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.linear_model import LogisticRegressionCV
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

import onefit
from hundreds_of_columns import SHAPES, columns, measured, response
from matrix import Sample, many_classes, parted

WORDS = "300 x 1000 words"


def shipped(load: Callable[..., Any]) -> Sample:
    """A table of scikit-learn's, in an order of its own."""
    X, y = load(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return parted(StandardScaler().fit_transform(X)[order], y[order], 2 * len(y) // 3)


def of_words() -> Sample:
    """Texts of five classes."""
    rng = np.random.default_rng(0)
    X = columns(WORDS, rng)
    return parted(X, response(X, WORDS, "five classes", rng), SHAPES[WORDS][0])


TABLES: dict[str, Callable[[], Sample]] = {
    "iris": partial(shipped, load_iris),
    "wine": partial(shipped, load_wine),
    "digits": partial(shipped, load_digits),
    "500 x 20, 3 classes": partial(many_classes, 500, 20, 3),
    "2000 x 200, 5 classes": partial(many_classes, 2000, 200, 5),
    "5000 x 50, 10 classes": partial(many_classes, 5000, 50, 10),
    f"{WORDS}, 5 classes": of_words,
}


def sides(ratio: float) -> tuple[Any, Any]:
    """Ours and theirs."""
    theirs = LogisticRegressionCV(
        cv=5,
        l1_ratios=(ratio,),
        solver="saga",
        scoring="neg_log_loss",
        max_iter=1000,
        use_legacy_attributes=False,
    )
    return onefit.LogisticLOO(l1_ratio=ratio), theirs


def main() -> None:
    """Print a line for each table and penalty."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{'':<40}{'ours s':>9}{'theirs s':>9}{'ratio':>8}{'our loss':>11}{'theirs':>11}")
    with threadpool_limits(1):
        for name in given.tables:
            sample = TABLES[name]()
            for ratio, penalty in ((1.0, "lasso"), (0.5, "elastic net")):
                (ours, loss), (theirs, other) = (measured(one, sample) for one in sides(ratio))
                row = f"{name + ', ' + penalty:<40}{ours:>9.2f}{theirs:>9.2f}{theirs / ours:>8.2f}"
                print(f"{row}{loss:>11.4g}{other:>11.4g}", flush=True)


if __name__ == "__main__":
    main()
