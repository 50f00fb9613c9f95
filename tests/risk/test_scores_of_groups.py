"""Errors of scores where entries count together: of groups, and of rows that several splits leave out."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

import onefit

N, COPIES = 120, 10


def copied():
    """Rows once, and each of them ten times in an order of their own; the copies are groups."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(N, 3))
    y = X @ [1.0, -0.5, 0.2] + rng.normal(size=N)
    order = rng.permutation(N * COPIES)
    return X, y, np.repeat(np.arange(N), COPIES)[order]


@pytest.mark.parametrize(
    "scoring", ["f1", "balanced_accuracy", "average_precision", "matthews_corrcoef", "auc", "accuracy"]
)
def test_copies_of_rows_tell_no_more_of_classes(scoring):
    X, y, rows = copied()
    labels = (y > 0).astype(int)
    model = LogisticRegression(C=np.inf, tol=1e-10, solver="newton-cholesky")
    once = onefit.loo(model.fit(X, labels), X, labels).score(scoring, error=True)
    model.fit(X[rows], labels[rows])
    ten = onefit.loo(model, X[rows], labels[rows], groups=rows).score(scoring, error=True)
    assert ten == pytest.approx(once, rel=0.02)


@pytest.mark.parametrize("scoring", ["explained_variance", "mse", "r2", "neg_median_absolute_error"])
@pytest.mark.parametrize("outputs", [1, 2])
def test_copies_of_rows_tell_no_more_of_numbers(scoring, outputs):
    X, y, rows = copied()
    Y = y if outputs == 1 else np.column_stack([y, X[:, 1] + y**2])
    model = LinearRegression()
    once = onefit.loo(model.fit(X, Y), X, Y).score(scoring, error=True)
    ten = onefit.loo(model.fit(X[rows], Y[rows]), X[rows], Y[rows], groups=rows).score(scoring, error=True)
    assert ten == pytest.approx(once, rel=0.02)


@pytest.mark.costly
@pytest.mark.parametrize("scoring", ["balanced_accuracy", "accuracy"])
@pytest.mark.parametrize("weighted", [False, True])
def test_errors_by_blocks_are_those_over_samples(scoring, weighted):
    """Of rows with uneven weights, as the scores themselves vary from one sample to the next."""
    values, errors = [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(150, 3))
        y = (X[:, 0] + rng.logistic(size=150) > 0.7).astype(int)
        w = rng.lognormal(0.0, 1.0, 150) if weighted else None
        model = LogisticRegression(C=10.0).fit(X, y, sample_weight=w)
        value, error = onefit.loo(model, X, y, sample_weight=w).score(scoring, error=True)
        values.append(value)
        errors.append(error)
    assert 0.7 < np.mean(errors) / np.std(values, ddof=1) < 1.4
