"""What exact values and bounds cost, in fits of our own solver at full precision.

    python benchmarks/exact_cost.py [part …]   # a minute or two; the text needs ONEFIT_DATA

Processor time, the least of some runs, taken in turns: a fit from nothing, and ``onefit.loo`` of a model that
is fitted already.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression

import onefit
from onefit import penalties
from onefit.fit import Fit
from onefit.readers import read
from onefit.solvers.solve import solve

RUNS = 3
TEXT = {1.0: 0.3298, 10 ** (2 / 3): 0.2236, 10 ** (4 / 3): 0.2403}  # C, and its risk by refits


def least(*actions):
    """Least processor time of each of some actions, taken in turns."""
    times = np.full((RUNS, len(actions)), np.inf)
    for run in range(RUNS):
        for k, action in enumerate(actions):
            start = time.process_time()
            action()
            times[run, k] = time.process_time() - start
    return times.min(axis=0)


def line(name, one, other, unit="fits"):
    """One row of the table."""
    print(f"{name:44s} {one:9.4f} s {other:9.4f} s {other / one:8.2f} {unit}", flush=True)


def exact(name, model, X, y):
    """Exact values in fits."""
    problem = read(model, X, y, None).fit.problem
    line(name, *least(lambda: solve(Fit.at_start(problem)), lambda: onefit.loo(model, X, y, exact=True)))


def lasso_tuned():
    """Lasso, 500 × 1000, at the strength that leave-one-out chooses."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 1000))
    y = X[:, :20] @ rng.normal(size=20) + rng.normal(size=500)
    alpha = onefit.LassoLOO().fit(X, y).alpha_
    model = onefit.GeneralizedLinear("squared", penalties.L1(500 * alpha)).fit(X, y)
    exact(f"exact: lasso 500 x 1000, alpha = {alpha:.3g}", model, X, y)


def logistic_l1():
    """ℓ1 logistic, 400 × 80."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 80))
    y = (X[:, :8].sum(axis=1) + rng.logistic(size=400) > 0).astype(int)
    for strength in (10.0, 3.0, 1.0):
        model = onefit.GeneralizedLinear("logistic", penalties.L1(strength)).fit(X, y)
        exact(f"exact: l1 logistic 400 x 80, strength {strength:g}", model, X, y)


def lasso_weak():
    """Lasso, 73 × 74, with a weak penalty."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(73, 74))
    y = X[:, :5].sum(axis=1) + rng.normal(size=73)
    for share in (1e-2, 1e-3):
        strength = share * np.abs(X.T @ (y - y.mean())).max()
        model = onefit.GeneralizedLinear("squared", penalties.L1(strength)).fit(X, y)
        exact(f"exact: lasso 73 x 74, {share:g} of the largest", model, X, y)


def many_rows():
    """Bounds of ridge logistic, 100,000 × 100, beside one step."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(100_000, 100))
    y = (X[:, 0] + rng.logistic(size=len(X)) > 0).astype(int)
    model = LogisticRegression(C=1.0, tol=1e-8, max_iter=200).fit(X, y)
    one, other = least(
        lambda: onefit.evaluate(model, X, y, onefit.risk.ALO()), lambda: onefit.loo(model, X, y)
    )
    line("bounds: ridge logistic 100,000 x 100", one, other, "one-step values")
    print("   ", str(onefit.loo(model, X, y)).splitlines()[0])


def text():
    """ℓ1 logistic of tf-idf text, 1300 × 3289, beside refits."""
    folder = Path(os.environ.get("ONEFIT_DATA", "../shared/data"))
    if not (folder / "newsgroups_pcmac.npz").exists():
        print("text: no newsgroups_pcmac.npz in ONEFIT_DATA")
        return
    parts = np.load(folder / "newsgroups_pcmac.npz")
    X = sp.csr_array((parts["data"], parts["indices"], parts["indptr"]), shape=tuple(parts["shape"]))
    rows = np.random.default_rng(0).permutation(X.shape[0])[:1300]
    X = sp.csr_array(TfidfTransformer().fit_transform(X.astype(np.float64)))[rows]
    y = np.unique(parts["y"], return_inverse=True)[1][rows]
    for C, risk in TEXT.items():
        beside_refits(X, y, C, risk)


def beside_refits(X, y, C, risk):
    """One strength."""
    model, found = onefit.GeneralizedLinear("logistic", penalties.L1(1.0 / C)).fit(X, y), []
    problem = read(model, X, y, None).fit.problem
    own = least(lambda: solve(Fit.at_start(problem)), lambda: found.append(onefit.loo(model, X, y)))
    line(f"text at C = {C:.3g}", *own)
    off = f"{found[-1].value:.5f} beside {risk}, off {abs(found[-1].value - risk):.1e}"
    print(f"    {off}, stated {found[-1].approx_error:.1e}, {found[-1].guarantee}", flush=True)


PARTS = {part.__name__: part for part in (lasso_tuned, logistic_l1, lasso_weak, many_rows, text)}


def main():
    """Print all rows, or those of the parts that are named."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", onefit.exceptions.OnefitWarning)
        for name in sys.argv[1:] or PARTS:
            PARTS[name]()


if __name__ == "__main__":
    main()
