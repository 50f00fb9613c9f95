"""Us beside the peers: ratios measured side by side in one process, one table.

Peers that are not installed are named and left out: adelie (Python below 3.13) and RandALO (which needs
torch-linops below 0.2 and PyTorch).  ``make bench`` installs them into an environment of their own.
"""

from __future__ import annotations

import argparse
import importlib.util
import warnings
from collections.abc import Callable, Iterator

import numpy as np
from scipy.linalg import blas, lapack
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import Lasso, LassoCV, LogisticRegressionCV, Ridge, RidgeCV
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.preprocessing import scale
from threadpoolctl import threadpool_limits

import onefit
from gradient_search import gradient_search
from matrix import DENSE, LOO_OF_CLASSES, MODELS, SHAPES, cells, table
from tall import tall
from timing import Row, paired, toeplitz


def blas_floor(X: np.ndarray) -> Callable[[], object]:
    """The calls that leverages cannot avoid: syrk, potrf, trsm."""

    def run() -> object:
        K = blas.dsyrk(1.0, X.T, lower=1)
        K[np.diag_indices_from(K)] += 1.0
        L, _ = lapack.dpotrf(K, lower=1)
        return blas.dtrsm(1.0, L, X.T, side=0, lower=1)

    return run


def leave_one_out(quick: bool) -> Iterator[Row]:
    """``onefit.loo`` on fitted models, beside the BLAS calls it cannot avoid."""
    n, k = (2000, 400) if quick else (5000, 1000)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, k)) + 1.0
    y = X @ rng.normal(size=k) + 10.0 * rng.normal(size=n)
    lasso = Lasso(1e-3, tol=1e-8, precompute=True, max_iter=100_000).fit(X, y)
    for model in (Ridge(1.0).fit(X, y), lasso):
        ours, theirs = paired(lambda model=model: onefit.loo(model, X, y), blas_floor(X))
        yield Row(f"loo({type(model).__name__}) {n} x {k} / syrk+potrf+trsm", ours, theirs, ">= 0.67")


def lasso_path(quick: bool) -> Iterator[Row]:
    """``LassoLOO`` with its risks, beside adelie's path alone and ``LassoCV``."""
    sizes = [(800, 200)] if quick else [(800, 200), (800, 800), (800, 1600), (1600, 800)]
    has_adelie = importlib.util.find_spec("adelie") is not None
    for n, p in sizes:
        X, y = toeplitz(n, p)
        top = np.abs((X - X.mean(axis=0)).T @ (y - y.mean())).max() / n
        alphas = np.geomspace(top, 0.01 * top, 50)
        ours = onefit.LassoLOO(alphas=alphas, early_stopping=False)
        cv = LassoCV(alphas=alphas, cv=10)
        times = paired(lambda ours=ours, X=X, y=y: ours.fit(X, y), lambda cv=cv, X=X, y=y: cv.fit(X, y), 3)
        yield Row(f"LassoLOO {n} x {p} / LassoCV(cv=10)", *times, ">= 5")
        if has_adelie:
            times = paired(lambda ours=ours, X=X, y=y: ours.fit(X, y), adelie_path(X, y, alphas))
            goal = ">= 1" if p >= 800 else ">= 0.5"
            yield Row(f"LassoLOO {n} x {p} / adelie path alone, tol 1e-12", *times, goal, _gap(X, y, alphas))
    if not has_adelie:
        print("(adelie is not installed: left out)")


def adelie_path(X: np.ndarray, y: np.ndarray, alphas: np.ndarray) -> Callable[[], object]:
    """adelie's path over the same strengths."""
    import adelie as ad

    glm = ad.glm.gaussian(y)
    return lambda: ad.grpnet(
        X, glm, lmda_path=alphas, tol=1e-12, early_exit=False, progress_bar=False, n_threads=2
    )


def _gap(X: np.ndarray, y: np.ndarray, alphas: np.ndarray) -> str:
    from onefit.solvers.active_set import ActiveSet

    active, worst = ActiveSet(X, y), 0.0
    for alpha in alphas:
        active.solve(alpha * len(y))
        worst = max(worst, active.relative_gap())
    return f"largest gap {worst:.0e}"


def classified(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Labels drawn from a logistic model whose linear predictor is y, scaled."""
    eta = 2.0 * (y - y.mean()) / y.std()
    return X, (eta + np.random.default_rng(1).logistic(size=len(y)) > 0).astype(int)


def logistic(quick: bool) -> Iterator[Row]:
    """``LogisticLOO`` beside ``LogisticRegressionCV`` over the same ten strengths."""
    sets = {"breast cancer 569 x 30": (scale(load_breast_cancer().data), load_breast_cancer().target)}
    for n, p in [] if quick else [(5000, 50), (2000, 200), (300, 1000)]:
        sets[f"Toeplitz {n} x {p}"] = classified(*toeplitz(n, p))
    common = {"cv": 10, "max_iter": 2000, "use_legacy_attributes": False, "scoring": "neg_log_loss"}
    for name, (X, y) in sets.items():
        for ratio, Cs in ((0.0, np.logspace(-4, 4, 10)), (1.0, np.logspace(-3, 1, 10))):
            solver = "liblinear" if ratio else "lbfgs"
            cv = LogisticRegressionCV(Cs=Cs, l1_ratios=(ratio,), solver=solver, **common)
            ours = onefit.LogisticLOO(Cs=Cs, l1_ratio=ratio, early_stopping=False)
            times = paired(lambda o=ours, X=X, y=y: o.fit(X, y), lambda o=cv, X=X, y=y: o.fit(X, y), 3)
            yield Row(f"LogisticLOO {'l1' if ratio else 'l2'} {name} / ...CV(cv=10)", *times, ">= 5")


def ridge(quick: bool) -> Iterator[Row]:
    """``RidgeLOO`` beside ``RidgeCV``, tall and wide."""
    n, p = (500, 50) if quick else (2000, 200)
    X, y = toeplitz(n, p)
    alphas, few = np.logspace(-3, 5, 50), np.geomspace(1e4, 1e-2, 10)
    for A, b in ((X, y), (np.ascontiguousarray(X.T), y[:p])):
        ours, theirs = onefit.RidgeLOO(alphas=alphas), RidgeCV(alphas=alphas)
        times = paired(lambda o=ours, A=A, b=b: o.fit(A, b), lambda o=theirs, A=A, b=b: o.fit(A, b))
        yield Row(f"RidgeLOO {A.shape[0]} x {A.shape[1]}, 50 strengths / RidgeCV", *times, ">= 1")
    for n, p in [] if quick else [(500, 20), (5000, 50), (300, 2000)]:
        A, b = toeplitz(n, p, 10)
        ours, theirs = onefit.RidgeLOO(alphas=few), RidgeCV(alphas=few)
        times = paired(lambda o=ours, A=A, b=b: o.fit(A, b), lambda o=theirs, A=A, b=b: o.fit(A, b))
        yield Row(f"RidgeLOO {n} x {p}, 10 strengths / RidgeCV", *times, ">= 1")
    for n, p in [(200, 10)] if quick else [(442, 10), (2000, 200), (200, 1000)]:
        A, b = toeplitz(n, p, 5)
        ours, theirs = onefit.RidgeLOO(alphas=alphas, cv=5), RidgeCV(alphas=alphas, cv=5)
        times = paired(lambda o=ours, A=A, b=b: o.fit(A, b), lambda o=theirs, A=A, b=b: o.fit(A, b))
        yield Row(f"RidgeLOO(cv=5) {n} x {p}, 50 strengths / RidgeCV(cv=5)", *times, ">= 1")


def exact(quick: bool) -> Iterator[Row]:
    """Exact left-out values, folds and intervals, beside the refits they stand for."""
    n, p = (200, 100) if quick else (500, 1000)
    X, y = toeplitz(n, p, k=n // 20)
    alpha = onefit.LassoLOO().fit(X, y).alpha_
    lasso = Lasso(alpha, tol=1e-10, max_iter=100_000).fit(X, y)
    warm = Lasso(alpha, tol=1e-10, max_iter=100_000, warm_start=True).fit(X, y)

    def refits() -> None:
        for i in range(n):
            warm.fit(np.delete(X, i, axis=0), np.delete(y, i))

    times = paired(lambda: onefit.loo(lasso, X, y, exact=True), refits, 1)
    note = str(onefit.loo(lasso, X, y, exact=True).refinement)
    yield Row(f"loo(Lasso, exact=True) {n} x {p} / warm refits", *times, ">= 20", note)

    A, b = toeplitz(*(200, 20) if quick else (2000, 200))
    fitted = Ridge(1.0).fit(A, b)
    folds = KFold(10)
    times = paired(
        lambda: onefit.loo(fitted, A, b, groups=folds), lambda: cross_val_predict(Ridge(1.0), A, b, cv=folds)
    )
    yield Row(f"loo(Ridge, groups=KFold(10)) {A.shape[0]} x {A.shape[1]} / refits", *times, ">= 1")
    new, est = A[:100], onefit.loo(fitted, A, b)

    def jackknife() -> None:
        for i in range(0, len(b), 20):
            Ridge(1.0).fit(np.delete(A, i, axis=0), np.delete(b, i)).predict(new)

    ours, theirs = paired(lambda: est.interval(new), jackknife, 3)
    yield Row(f"interval() of 100 rows {A.shape[0]} x {A.shape[1]} / refits", ours, 20 * theirs, ">= 20")


def randalo(quick: bool) -> Iterator[Row]:
    """RandALO on the same fitted lasso."""
    if any(importlib.util.find_spec(name) is None for name in ("randalo", "torch")):
        print("(RandALO is not installed: left out)")
        return
    from randalo import RandALO
    from torch.nn import MSELoss

    n = 500 if quick else 2000
    X, y = toeplitz(n, n, k=n // 20)
    X = np.ascontiguousarray(X)
    alpha = onefit.LassoLOO().fit(X, y).alpha_
    model = Lasso(alpha, tol=1e-10, max_iter=100_000).fit(X, y)

    def theirs() -> float:
        return float(RandALO.from_sklearn(model, X, y).evaluate(MSELoss()))

    ours = paired(lambda: onefit.loo(model, X, y), theirs, 3)
    active = np.count_nonzero(model.coef_)
    note = f"{active} active; risk {onefit.loo(model, X, y).value:.4g} (RandALO {theirs():.4g})"
    yield Row(f"loo(Lasso) {n} x {n} / RandALO", *ours, ">= 10", note)


def main() -> None:
    """Print the table."""

    def matrix(quick: bool) -> Iterator[Row]:
        found = []
        with threadpool_limits(1):
            for one in cells([next(iter(DENSE))] if quick else list(SHAPES), list(MODELS), 1 if quick else 3):
                found.append(one)
                note = f"loss on new rows {one.our_loss:.5g}, theirs {one.their_loss:.5g}"
                goal = ">= 0.2" if one.model == LOO_OF_CLASSES else ">= 1"
                yield Row(f"{one.shape}, {one.model}", one.ours, one.theirs, goal, note)
        print("\n" + table(found))

    parts = (leave_one_out, exact, lasso_path, logistic, ridge, randalo, gradient_search, tall, matrix)
    names = [part.__name__ for part in parts]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--part", nargs="+", choices=names, default=names, help="parts of the table")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{'':<58}{'ours s':>9}{'theirs s':>9}{'ratio':>8}  goal")
    for part in parts:
        if part.__name__ in asked.part:
            for row in part(asked.quick):
                print(row, flush=True)


if __name__ == "__main__":
    main()
