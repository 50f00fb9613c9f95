"""Ridge logistic regression on large sparse tables, beside five folds: time, memory and the risk on new rows.

    python benchmarks/large_text.py                        # 1300 x 3289, 5000 x 20,000 and 11,000 x 50,000
    python benchmarks/large_text.py --shape 20000 80000

Words are drawn by Zipf's law and weighted by tf-idf; half as many rows again are new.  One thread, if
OPENBLAS_NUM_THREADS says so; ours and theirs take turns.
"""

from __future__ import annotations

import argparse
import resource
import time
import warnings

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import log_loss

from onefit import LogisticLOO

SHAPES = ((1300, 3289), (5000, 20_000), (11_000, 50_000))
STRENGTHS = np.logspace(-2, 4, 10)
WORDS, TOLD = 80, 0.05  # words a text, and the share of them that tell the class


def texts(n: int, p: int, seed: int = 0) -> tuple[sp.csr_matrix, np.ndarray]:
    """Rows of words, and their classes."""
    rng = np.random.default_rng(seed)
    often = 1.0 / np.arange(1, p + 1) ** 0.8
    lengths = rng.poisson(WORDS, n) + 5
    rows = np.repeat(np.arange(n), lengths)
    words = rng.choice(p, lengths.sum(), p=often / often.sum())
    X = TfidfTransformer().fit_transform(sp.csr_matrix((np.ones(len(rows)), (rows, words)), shape=(n, p)))
    eta = X @ (6.0 * rng.normal(size=p) * (rng.random(p) < TOLD))
    return X.tocsr(), (rng.random(n) < 1.0 / (1.0 + np.exp(eta.mean() - eta))).astype(int)


def main() -> None:
    """Print a line for each shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", type=int, nargs=2, action="append", help="rows and columns")
    warnings.simplefilter("ignore")
    for n, p in parser.parse_args().shape or SHAPES:
        X, y = texts(3 * n // 2, p)
        ours = LogisticLOO(Cs=STRENGTHS)
        theirs = LogisticRegressionCV(Cs=STRENGTHS, cv=5, max_iter=1000, scoring="neg_log_loss")
        seconds = []
        for model in (ours, theirs):
            start = time.perf_counter()
            model.fit(X[:n], y[:n])
            seconds.append(time.perf_counter() - start)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
        new = [log_loss(y[n:], model.predict_proba(X[n:])) for model in (ours, theirs)]
        print(
            f"{n} x {p}: {seconds[0]:.2f} s, five folds {seconds[1]:.2f} s, "
            f"ratio {seconds[1] / seconds[0]:.2f}; risk {ours.loo_.value:.4f} ± {ours.loo_.std_error:.4f} "
            f"(known to {ours.loo_.approx_error:.2g}), "
            f"new rows {new[0]:.4f} and {new[1]:.4f}; C {ours.C_:.3g} and {theirs.C_[0]:.3g}; {peak:.0f} MiB"
        )


if __name__ == "__main__":
    main()
