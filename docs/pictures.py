"""Pictures of the front page, "How fast?" and "How it works": ``python docs/pictures.py [NAME ...]``."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import Lasso, LogisticRegression, Ridge
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.preprocessing import PolynomialFeatures, scale

import onefit

STATIC = Path(__file__).parent / "_static"
LOOK = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.constrained_layout.use": True,
    "font.size": 11,
}


def path() -> None:
    """Risk path with its band and the chosen strength, beside real refits."""
    X, y = load_diabetes(return_X_y=True)
    X = scale(PolynomialFeatures(2, include_bias=False).fit_transform(X))
    onefit.LassoLOO(alphas=5).fit(X, y)  # imports
    start = time.process_time()
    model = onefit.LassoLOO(alphas=60).fit(X, y)
    ours = time.process_time() - start
    some = np.geomspace(model.alphas_[0] * 0.8, model.alphas_[-1], 8)
    start = time.process_time()
    refits = [
        np.mean((y - cross_val_predict(Lasso(alpha, tol=1e-6, max_iter=20_000), X, y, cv=LeaveOneOut())) ** 2)
        for alpha in some
    ]
    theirs = (time.process_time() - start) / len(some) * len(model.alphas_)
    count = len(model.alphas_)
    fig, ax = plt.subplots(figsize=(9, 3.6), dpi=110)
    ax.fill_between(
        model.alphas_,
        model.risk_path_ - model.std_error_path_,
        model.risk_path_ + model.std_error_path_,
        alpha=0.18,
        color="#2a86ad",
        label="± its standard error",
    )
    ax.plot(
        model.alphas_, model.risk_path_, color="#2a86ad", label=f"LassoLOO: {count} strengths, {ours:.2f} s"
    )
    ax.plot(some, refits, "x", color="black", label=f"442 refits each; {theirs:.0f} s for as many strengths")
    ax.axvline(model.alpha_, color="#d06a2a", linestyle="--", label=f"chosen: alpha = {model.alpha_:.2g}")
    ax.set(xscale="log", xlabel="alpha", ylabel="left-out squared error")
    ax.set_xticks([2, 5, 10, 20, 40], ["2", "5", "10", "20", "40"])
    ax.set_xticks([], minor=True)
    ax.legend(frameon=False)
    fig.savefig(STATIC / "risk_path.png")


def scaling() -> None:
    """Seconds of ``loo`` beside those of the fit, over the number of rows."""
    rng = np.random.default_rng(0)
    rows, fits, leaves = [1000, 3000, 10_000, 30_000, 100_000, 300_000], [], []
    for n in rows:
        X = rng.normal(size=(n, 50))
        y = X[:, 0] + rng.normal(size=n)
        best = [np.inf, np.inf]
        for _ in range(3):
            start = time.perf_counter()
            model = Ridge(1.0, solver="cholesky").fit(X, y)
            middle = time.perf_counter()
            onefit.loo(model, X, y)
            best = [min(best[0], middle - start), min(best[1], time.perf_counter() - middle)]
        fits.append(best[0])
        leaves.append(best[1])
    fig, ax = plt.subplots(figsize=(7, 3.6), dpi=100)
    ax.loglog(rows, fits, "o-", color="gray", label="Ridge.fit, 50 columns")
    ax.loglog(rows, leaves, "o-", color="#2a86ad", label="onefit.loo")
    ax.set(xlabel="rows", ylabel="seconds")
    ax.legend(frameon=False)
    fig.savefig(STATIC / "scaling.png")
    print(
        *(f"{n}: fit {f:.4f} s, loo {v:.4f} s" for n, f, v in zip(rows, fits, leaves, strict=True)), sep="\n"
    )


def step() -> None:
    """How far predictors move when their row leaves: by refits, one step, and the influence function."""
    X, y = load_breast_cancer(return_X_y=True)
    X, y = scale(X)[:150], y[:150]
    model = LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000).fit(X, y)
    est = onefit.loo(model, X, y, exact=True)
    probability = model.predict_proba(X)[:, 1]
    gradient, hessian = probability - y, probability * (1 - probability)
    moved = est.leverages / hessian * gradient
    refits = est.decision - est.fitted
    fig, ax = plt.subplots(figsize=(6, 3.6), dpi=100)
    ax.axline((0, 0), slope=1, color="gray", linewidth=1)
    ax.plot(refits, moved, "x", color="#d06a2a", label="influence function")
    ax.plot(refits, moved / (1 - est.leverages), ".", color="#2a86ad", label="one step")
    ax.set(xlabel="move by refits", ylabel="move by formula")
    ax.legend(frameon=False)
    fig.savefig(STATIC / "step.png")


if __name__ == "__main__":
    plt.rcParams.update(LOOK)
    for name in sys.argv[1:] or ["path", "scaling", "step"]:
        {"path": path, "scaling": scaling, "step": step}[name]()
