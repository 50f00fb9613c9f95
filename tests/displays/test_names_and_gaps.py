"""Names of rows and classes in plots, missing values, and legends in axes of the user."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from sklearn.datasets import load_diabetes, load_iris
from sklearn.linear_model import LassoCV, LogisticRegression
from sklearn.model_selection import ShuffleSplit

import onefit
from onefit.displays import (
    CoefficientPathDisplay,
    LeftOutDisplay,
    PredictionDisplay,
    ResidualDisplay,
    RiskPathDisplay,
)

mpl.use("Agg")
STRENGTHS = np.logspace(-3, 3, 7)


@pytest.fixture
def ax():
    return Figure().subplots()


def _iris():
    X, y = load_iris(return_X_y=True, as_frame=True)
    return X.set_axis([f"p{i}" for i in range(len(X))]), load_iris().target_names[y]


def test_points_have_the_names_of_their_rows_in_any_folds(ax):
    X, y = _iris()
    model = LogisticRegression(C=0.1, max_iter=1000).fit(X, y)
    est = onefit.loo(model, X, y, groups=ShuffleSplit(3, test_size=0.4, random_state=1))
    (_, texts), *_ = est.plot(ax).hover_
    order = np.argsort(np.nan_to_num(est.leverages), kind="stable")
    assert [text.split(":")[0] for text in texts] == [f"row p{est.rows[i]}" for i in order]


def test_classes_have_their_names(ax):
    X, y = _iris()
    est = onefit.loo(LogisticRegression(C=0.1, max_iter=1000).fit(X, y), X, y)
    est.plot(ax)
    assert [text.get_text() for text in ax.get_legend().get_texts()][:3] == list(est.classes)


def test_flagged_points_have_their_names(ax):
    LeftOutDisplay(np.arange(3.0), np.ones(3), np.full(3, 0.2), np.array([1]), rows=list("abc")).plot(ax)
    assert [text.get_text() for text in ax.texts] == ["b"]


@pytest.mark.parametrize("index", [[2, 0, 1], [5, 6, 7]])
@pytest.mark.parametrize("kind", [PredictionDisplay, ResidualDisplay])
def test_responses_and_names_of_pandas(ax, kind, index):
    y, rows = pd.Series([10.0, 20.0, 30.0], index=index), pd.Series(list("abc"), index=index)
    (_, texts), *_ = kind(y, [10.0, 20.0, 30.5], rows=rows).plot(ax).hover_
    wanted = "row c: 30, predicted 30.5" if kind is PredictionDisplay else "row c: residual -0.5 at 30.5"
    assert texts[2] == wanted


def test_predictions_that_are_missing_leave_the_diagonal(ax):
    PredictionDisplay([1.0, np.nan, 3.0], [1.0, 2.0, np.nan]).plot(ax)
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), [1.0, 2.0])


def test_risks_that_are_not_finite_leave_the_rest(ax):
    risk = np.array([np.inf, np.nan, 3.0, 2.0, 1.0, 2.0, np.inf])
    error = np.where(np.isfinite(risk), 0.1, np.nan)
    RiskPathDisplay(STRENGTHS, risk, error, 1.0).plot(ax)
    low, high = ax.get_xlim()
    assert low <= STRENGTHS[0]
    assert high >= STRENGTHS[-1]
    with pytest.raises(ValueError, match="no finite value"):
        RiskPathDisplay(STRENGTHS, np.full(7, np.nan), error, 1.0).plot(ax)


def test_names_that_are_too_few(ax):
    with pytest.raises(ValueError, match="one name a column, 3, got 2"):
        CoefficientPathDisplay(STRENGTHS, np.ones((7, 3)), 1.0, ["a", "b"]).plot(ax)


@pytest.mark.parametrize("kind", [RiskPathDisplay, CoefficientPathDisplay])
def test_models_without_such_a_path(kind):
    X, y = load_diabetes(return_X_y=True)
    model = LassoCV(alphas=2, cv=2).fit(X, y)
    with pytest.raises(TypeError, match="has no path of strengths"):
        kind.from_estimator(model)


@pytest.mark.parametrize("layout", [None, "constrained"])
def test_legends_leave_titles_and_labels_alone(layout):
    figure, ax = plt.subplots(figsize=(4, 3), layout=layout)
    try:
        ax.set_title("mine")
        RiskPathDisplay(STRENGTHS, np.linspace(2, 1, 7), np.full(7, 0.1), 1.0).plot(ax)
        figure.canvas.draw()
        legend = ax.get_legend().get_window_extent()
        assert not legend.overlaps(ax.title.get_window_extent())
        ax.clear()
        CoefficientPathDisplay(STRENGTHS, np.eye(7)[:, :3] + 1.0, 1.0).plot(ax)
        figure.canvas.draw()
        legend = ax.get_legend().get_window_extent()
        assert not legend.overlaps(ax.xaxis.label.get_window_extent())
    finally:
        plt.close(figure)
