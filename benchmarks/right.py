"""How right: exact values beside refits, and how often the interval of an audit holds the exact risk.

    python benchmarks/right.py            # a few minutes; data that scikit-learn ships

Refits are those of scikit-learn itself.  An audit of m rows takes m of all refits, so that 200 audits take no
further ones.
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, make_classification
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet, Lasso, LinearRegression, LogisticRegression, Ridge
from sklearn.preprocessing import PolynomialFeatures, scale
from sklearn.svm import SVC

import onefit
from onefit.risk.audit import audit, draw

DRAWS, ROWS = 200, 30


def outputs(model, X):
    """What a loss is computed from: (n,)."""
    if isinstance(model, LogisticRegression | SVC):
        return model.decision_function(X)
    return model.predict(X)


def losses_of(model, y, eta):
    """Squared error, log-loss or hinge loss of each row."""
    signs = np.where(y > 0, 1.0, -1.0)
    if isinstance(model, LogisticRegression):
        return np.logaddexp(0.0, -signs * eta)
    return np.maximum(0.0, 1.0 - signs * eta) if isinstance(model, SVC) else (y - eta) ** 2


def refitted(model, X, y):
    """Output for each row of the refit without it: (n,)."""
    rows = np.arange(len(y))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return np.array([outputs(clone(model).fit(X[rows != i], y[rows != i]), X[[i]])[0] for i in rows])


def exactness(name, model, X, y):
    """Largest difference between exact=True and refits, in standard deviations of y or of the predictor."""
    fitted = clone(model).fit(X, y)
    exact, true = onefit.loo(fitted, X, y, exact=True).decision, refitted(model, X, y)
    spread = true.std() if isinstance(model, LogisticRegression) else y.std()
    print(f"{name:44s} {np.abs(exact - true).max() / spread:.0e}")


def coverage(name, model, X, y):
    """Share of draws whose 95 % interval holds the exact risk."""
    fitted = clone(model).fit(X, y)
    exact, before = losses_of(model, y, refitted(model, X, y)), losses_of(model, y, outputs(fitted, X))
    has_formula = not isinstance(model, RandomForestRegressor)
    losses = onefit.loo(fitted, X, y).losses if has_formula else before
    weights, held = np.ones(len(y)), 0
    for seed in range(DRAWS):
        rows = draw(losses - before if has_formula else losses, weights, ROWS, np.random.default_rng(seed))
        low, high = audit(losses, rows, exact[rows.rows], weights).interval
        held += low <= exact.mean() <= high
    print(f"{name:44s} {held / DRAWS:.1%}   formula {losses.mean():.4g}, exact {exact.mean():.4g}")


def main() -> None:
    """Print both tables."""
    X, y = load_diabetes(return_X_y=True)
    products = scale(PolynomialFeatures(2, include_bias=False).fit_transform(scale(X)))
    C, d = load_breast_cancer(return_X_y=True)
    C = scale(C)
    print(f"onefit {onefit.__version__}: exact=True beside all refits, largest difference")
    exactness("least squares, diabetes", LinearRegression(), X, y)
    exactness("ridge, diabetes", Ridge(0.1), X, y)
    exactness("lasso, diabetes", Lasso(0.05, tol=1e-14, max_iter=10**6), X, y)
    exactness("elastic net, diabetes", ElasticNet(0.01, tol=1e-14, max_iter=10**6), X, y)
    logistic = LogisticRegression(C=1.0, solver="newton-cholesky", tol=1e-12, max_iter=1000)
    exactness("logistic, breast cancer", logistic, C, d)
    print(f"audits of {ROWS} rows, {DRAWS} draws: share of 95 % intervals that hold the exact risk")
    coverage("lasso, diabetes with products", Lasso(1.0, tol=1e-6, max_iter=10**5), products, y)
    rare = make_classification(300, 10, weights=[0.96], flip_y=0.01, random_state=0)
    coverage("logistic, 4 % positives", LogisticRegression(C=10.0, tol=1e-8, max_iter=1000), *rare)
    forest = RandomForestRegressor(10, min_samples_leaf=5, random_state=0)
    coverage("forest, diabetes, 200 rows", forest, X[:200], y[:200])
    coverage("support vectors, breast cancer", SVC(C=1.0), C, d)


if __name__ == "__main__":
    main()
