"""Scores of searches by the names that people write, beside those of scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

import onefit

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 6))
Y = X[:, 0] + RNG.normal(size=120)


@pytest.mark.parametrize(
    ("short", "name", "model", "y", "grid"),
    [
        ("mae", "neg_mean_absolute_error", Ridge(), Y, {"alpha": [0.1, 1e4, 10.0]}),
        ("auc", "roc_auc", LogisticRegression(), Y > 0, {"C": [1e-6, 1.0, 10.0]}),
    ],
)
def test_short_names_are_those_of_scorers_of_which_larger_is_better(short, name, model, y, grid):
    one, other = (onefit.GradientSearchCV(model, grid, scoring=own).fit(X, y) for own in (short, name))
    assert one.best_params_ == other.best_params_
    assert one.best_score_ == other.best_score_
    assert one.score(X, y) == other.score(X, y)
    by_gradient = onefit.GradientSearchCV(model, {next(iter(grid)): (0.1, 10.0)}, scoring=short).fit(X, y)
    assert by_gradient.best_score_ == by_gradient.best_risk_.score(name)


def test_a_score_of_numbers_that_begins_like_one_of_classes():
    risk = onefit.loo(Ridge().fit(X, Y), X, Y)
    expected = 1.0 - np.abs(Y - risk.predictions).sum() / np.abs(Y - np.median(Y)).sum()
    assert risk.score("d2_absolute_error_score") == pytest.approx(expected)
    classes = onefit.loo(LogisticRegression().fit(X, Y > 0), X, Y > 0)
    with pytest.raises(ValueError, match="scores numbers"):
        classes.score("d2_absolute_error_score")
