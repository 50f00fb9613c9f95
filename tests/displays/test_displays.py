import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.datasets import load_diabetes
from sklearn.metrics import make_scorer, r2_score

from onefit import LassoLOO
from onefit.displays import CoefficientPathDisplay, InfluenceDisplay, LeftOutDisplay, RiskPathDisplay

mpl.use("Agg")


@pytest.fixture
def ax():
    return Figure().subplots()


@pytest.fixture
def rng():
    return np.random.default_rng(0)


class Tuned:
    """The fitted attributes that the displays read."""

    def __init__(self, strength="alpha", outputs=()):
        path = np.logspace(1, -2, 7)
        setattr(self, f"{strength}s_", path)
        setattr(self, f"{strength}_", path[3])
        self.risk_path_ = np.linspace(2, 1, 7)
        self.std_error_path_ = np.full(7, 0.1)
        self.confidence_set_ = path[2:5]
        self.coef_path_ = np.ones((7, 3, *outputs))
        self.loo_ = type("Loo", (), {"loss_name": "squared error"})()


def left_out(n=20, outputs=(), flagged=(3,)):
    rng = np.random.default_rng(1)
    fitted = rng.normal(size=(n, *outputs))
    change = 0.1 * rng.normal(size=(n, *outputs))
    return LeftOutDisplay(fitted, fitted + change, rng.uniform(size=n), np.array(flagged, dtype=int))


def texts(axes):
    return [text.get_text() for text in axes.texts]


class TestLeftOutDisplay:
    def test_returns_itself_and_keeps_its_artists(self, ax):
        display = left_out()
        assert display.plot(ax) is display
        assert display.ax_ is ax
        assert display.figure_ is ax.figure

    def test_draws_left_out_minus_fitted_against_fitted(self, ax):
        display = left_out().plot(ax)
        order = np.argsort(display.leverages, kind="stable")
        drawn = ax.collections[0].get_offsets()
        np.testing.assert_allclose(drawn[:, 0], display.fitted[order])
        np.testing.assert_allclose(drawn[:, 1], (display.left_out - display.fitted)[order])

    def test_colour_is_leverage(self, ax):
        display = left_out().plot(ax)
        np.testing.assert_allclose(ax.collections[0].get_array(), np.sort(display.leverages))

    def test_flagged_rows_are_ringed_and_numbered(self, ax):
        left_out(flagged=(3, 11)).plot(ax)
        assert len(ax.collections[-1].get_offsets()) == 2
        assert sorted(texts(ax)) == ["11", "3"]

    def test_numbers_stay_few(self, ax):
        left_out(n=200, flagged=tuple(range(100))).plot(ax)
        assert len(texts(ax)) < 10

    def test_no_flag_no_ring(self, ax):
        left_out(flagged=()).plot(ax)
        assert len(ax.collections) == 1
        assert ax.get_legend() is None

    def test_several_outputs_have_marks_and_names(self, ax):
        left_out(outputs=(3,)).plot(ax)
        labels = [text.get_text() for text in ax.get_legend().get_texts()]
        assert labels[:3] == ["output 0", "output 1", "output 2"]

    def test_zero_leverages(self, ax):
        LeftOutDisplay(np.zeros(3), np.zeros(3), np.zeros(3), np.array([], int)).plot(ax)

    def test_makes_its_own_figure(self):
        display = left_out().plot()
        assert display.figure_.axes[0] is display.ax_
        mpl.pyplot.close(display.figure_)


class TestInfluenceDisplay:
    def test_draws_a_bar_for_each_row_up_to_its_distance(self, ax, rng):
        distance = rng.exponential(size=20)
        display = InfluenceDisplay(distance, rng.uniform(size=20))
        assert display.plot(ax) is display
        bars, points = ax.collections
        drawn = points.get_offsets()
        np.testing.assert_allclose(drawn[np.argsort(drawn[:, 0]), 1], distance)
        tops = np.array([segment[1] for segment in bars.get_segments()])
        np.testing.assert_allclose(tops, drawn)

    def test_colour_is_leverage(self, ax, rng):
        distance, leverages = rng.exponential(size=20), rng.uniform(size=20)
        InfluenceDisplay(distance, leverages).plot(ax)
        np.testing.assert_allclose(ax.collections[1].get_array(), leverages[np.argsort(distance)])
        assert [axes.get_ylabel() for axes in ax.figure.axes] == ["Cook's distance", "leverage"]

    def test_line_at_four_over_n(self, ax):
        InfluenceDisplay(np.zeros(50), np.zeros(50)).plot(ax)
        np.testing.assert_allclose(ax.lines[0].get_ydata(), 4 / 50)
        assert [text.get_text() for text in ax.get_legend().get_texts()] == ["4/n = 0.08"]
        assert texts(ax) == []

    def test_only_the_largest_are_numbered(self, ax):
        distance = np.zeros(100)
        distance[[7, 60]] = 0.5, 0.9
        InfluenceDisplay(distance, np.zeros(100)).plot(ax)
        assert texts(ax) == ["60", "7"]

    def test_numbers_stay_few(self, ax):
        InfluenceDisplay(np.ones(100), np.zeros(100)).plot(ax)
        assert len(texts(ax)) < 10

    def test_missing_values_leave_the_others_drawn(self, ax):
        distance, leverages = np.array([0.1, np.nan, 3.0, 0.2]), np.array([0.1, 0.2, np.nan, 0.9])
        InfluenceDisplay(distance, leverages).plot(ax).figure_.canvas.draw()
        assert texts(ax) == ["2"]
        assert len(ax.figure.axes) == 2

    def test_no_leverage_at_all_has_no_colour_bar(self, ax):
        InfluenceDisplay(np.array([0.1, 0.2]), np.full(2, np.nan)).plot(ax).figure_.canvas.draw()
        assert len(ax.figure.axes) == 1


class TestRiskPathDisplay:
    def test_order_of_strengths_does_not_matter(self, ax):
        risk = np.array([3.0, 1.0, 2.0])
        RiskPathDisplay(np.array([10.0, 1.0, 0.1]), risk, np.full(3, 0.1), chosen=1.0).plot(ax)
        np.testing.assert_allclose(ax.lines[0].get_xdata(), [0.1, 1.0, 10.0])
        np.testing.assert_allclose(ax.lines[0].get_ydata(), [2.0, 1.0, 3.0])
        assert ax.get_xscale() == "log"

    @pytest.mark.parametrize(("chosen", "marked"), [(1.0, False), (10.0, True)])
    def test_minimum_is_marked_if_it_was_not_chosen(self, ax, chosen, marked):
        risk = np.array([1.05, 1.0, 2.0])
        RiskPathDisplay(np.array([10.0, 1.0, 0.1]), risk, np.full(3, 0.1), chosen).plot(ax)
        labels = [text.get_text() for text in ax.get_legend().get_texts()]
        assert ("minimum" in labels) == marked
        assert f"chosen, alpha = {chosen:.3g}" in labels

    def test_zero_strength(self, ax):
        RiskPathDisplay(np.array([0.0, 0.1, 1.0]), np.ones(3), np.ones(3), 0.0).plot(ax)
        assert ax.get_xscale() == "symlog"

    def test_exploding_end_does_not_hide_the_minimum(self, ax):
        risk = np.r_[1e6, np.linspace(1.2, 1.0, 19)]
        RiskPathDisplay(np.logspace(-3, 3, 20), risk, np.full(20, 0.1), 1e3).plot(ax)
        assert ax.get_ylim()[1] < 10

    def test_bar_marks_what_cannot_be_told_from_the_best(self, ax):
        strengths = np.logspace(-2, 2, 5)
        RiskPathDisplay(
            strengths,
            np.array([3.0, 1.2, 1.0, 1.1, 2.0]),
            np.full(5, 0.1),
            1.0,
            confidence_set=strengths[1:4],
        ).plot(ax)
        bar = next(line for line in ax.lines if "told from the best" in line.get_label())
        np.testing.assert_array_equal(bar.get_xdata()[np.isfinite(bar.get_ydata())], strengths[1:4])
        assert ax.get_ylim()[0] > 0  # it lies on the axis, not at a risk of its own

    def test_no_bar_without_a_confidence_set(self, ax):
        RiskPathDisplay(np.array([1.0, 2.0]), np.array([1.0, 2.0]), np.full(2, 0.1), 1.0).plot(ax)
        assert not any("told from the best" in line.get_label() for line in ax.lines)

    @pytest.mark.parametrize(("strength", "direction"), [("alpha", "stronger"), ("C", "weaker")])
    def test_from_estimator(self, ax, strength, direction):
        model = Tuned(strength)
        display = RiskPathDisplay.from_estimator(model).plot(ax)
        assert display.chosen == getattr(model, f"{strength}_")
        assert display.confidence_set is model.confidence_set_
        assert direction in ax.get_xlabel()
        assert ax.get_ylabel() == "left-out squared error"


class TestCoefficientPathDisplay:
    def test_largest_are_named_in_falling_order(self, ax):
        path = np.outer([0.0, 0.5, 1.0], np.arange(-10, 10))
        strengths = np.array([1.0, 0.1, 0.01])
        names = [f"x{j}" for j in range(20)]
        CoefficientPathDisplay(strengths, path, 0.01, names).plot(ax)
        labels = [text.get_text() for text in ax.get_legend().get_texts()]
        assert labels == ["x19", "x18", "x17", "x4", "x3", "x2", "x1", "x0"]

    def test_all_zero_has_no_legend(self, ax):
        CoefficientPathDisplay(np.array([1.0, 2.0]), np.zeros((2, 4)), 1.0).plot(ax)
        assert ax.get_legend() is None

    def test_names_are_never_read_as_formulas(self, ax):
        display = CoefficientPathDisplay(
            np.array([1.0, 2.0]), np.ones((2, 1)), 1.0, feature_names=[r"$\frac{$"]
        )
        display.plot(ax).figure_.canvas.draw()

    def test_from_estimator_with_classes(self, ax):
        model = Tuned("C", outputs=(2,))
        model.classes_ = np.array(["no", "yes"])
        model.feature_names_in_ = np.array(["a", "b", "c"])
        CoefficientPathDisplay.from_estimator(model).plot(ax)
        labels = {text.get_text() for text in ax.get_legend().get_texts()}
        assert labels == {f"{name}, {label}" for name in "abc" for label in ("no", "yes")}


@pytest.mark.costly
@pytest.mark.parametrize(
    ("scoring", "named"),
    [
        ("mae", "mae"),
        ("neg_mean_absolute_error", "mean absolute error"),
        ("r2", "minus r2"),
        (make_scorer(r2_score), "minus score"),
    ],
)
def test_a_risk_path_says_by_what_it_was_judged(scoring, named):
    X, y = load_diabetes(return_X_y=True)
    display = RiskPathDisplay.from_estimator(LassoLOO(scoring=scoring).fit(X, y))
    assert display.loss_name == f"left-out {named}"


def test_a_path_of_one_strength_has_an_error_bar_in_the_middle():
    X, y = load_diabetes(return_X_y=True)
    display = RiskPathDisplay.from_estimator(LassoLOO(alphas=[0.1]).fit(X, y)).plot()
    low, high = display.ax_.get_xlim()
    assert low * high == pytest.approx(0.01)
    assert len(display.ax_.containers) == 1
