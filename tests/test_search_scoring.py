"""Scores of searches by the names that people write, beside those of scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, QuantileRegressor, Ridge, TweedieRegressor

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


@pytest.mark.parametrize(
    ("model", "name", "values", "bounds", "losses"),
    [
        (QuantileRegressor(alpha=0.01), "quantile", [0.05, 0.5, 0.95], (0.1, 0.9), "pinball loss at 0.05 to"),
        (
            TweedieRegressor(power=1.5),
            "power",
            [1.1, 1.5, 1.9],
            (1.1, 1.9, "linear"),
            "deviance of power 1.1 to",
        ),
    ],
)
def test_risks_by_several_losses_are_not_compared(model, name, values, bounds, losses):
    y = np.exp(0.5 * Y)
    with pytest.raises(ValueError, match=f"{name} changes the loss by which .* from {losses}.*pass scoring="):
        onefit.GradientSearchCV(model, {name: values}).fit(X, y)
    with pytest.raises(ValueError, match=f"{name} changes the loss .*give a list of values"):
        onefit.GradientSearchCV(model, {name: bounds}).fit(X, y)
    found = onefit.GradientSearchCV(model, {name: values}, scoring="mae").fit(X, y)
    errors = [
        np.abs(y - onefit.loo(clone(model).set_params(**{name: value}).fit(X, y), X, y).predictions).mean()
        for value in values
    ]
    assert found.best_params_[name] == values[int(np.argmin(errors))]
    risks = [onefit.loo(clone(model).set_params(**{name: value}).fit(X, y), X, y) for value in values[:2]]
    with pytest.raises(ValueError, match="is judged by"):
        onefit.compare({"one": risks[0], "other": risks[1]})
