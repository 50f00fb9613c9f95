"""A risk as a table of rows, as HTML, and as an interval."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t as student
from sklearn.linear_model import LogisticRegression, Ridge

import onefit
from onefit.exceptions import UnreliableWarning
from onefit.risk.presentation import confidence_interval, effective_rows, with_error


@pytest.fixture(scope="module")
def sample():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 3))
    return X, X[:, 0] + rng.normal(size=40)


class TestToFrame:
    def test_rows_carry_the_labels_of_the_table(self, sample):
        pandas = pytest.importorskip("pandas")
        X, y = sample
        table = pandas.DataFrame(X, index=[f"row {i}" for i in range(40)], columns=list("abc"))
        est = onefit.loo(Ridge().fit(table, y), table, y)
        found = est.to_frame()
        assert list(found.index) == list(table.index)
        np.testing.assert_array_equal(found["y"], y)
        np.testing.assert_array_equal(found["prediction"], est.predictions)
        np.testing.assert_allclose(found["loss"], (found["y"] - found["prediction"]) ** 2)
        np.testing.assert_array_equal(found["leverage"], est.leverages)

    def test_labels_of_the_response_where_X_has_none(self, sample):
        pandas = pytest.importorskip("pandas")
        X, y = sample
        series = pandas.Series(y, index=range(100, 140))
        assert list(onefit.loo(Ridge().fit(X, series), X, series).to_frame().index) == list(range(100, 140))

    def test_one_column_a_class(self, sample):
        pytest.importorskip("pandas")
        X, y = sample
        labels = np.where(y > 0, "yes", "no")
        est = onefit.loo(LogisticRegression().fit(X, labels), X, labels)
        found = est.to_frame()
        np.testing.assert_array_equal(found["prediction_yes"], est.predictions[:, 1])
        np.testing.assert_array_equal(found["prediction_no"], est.predictions[:, 0])
        assert not found["flagged"].any()

    def test_the_only_row_of_its_class_is_flagged(self):
        pytest.importorskip("pandas")
        X = np.random.default_rng(0).normal(size=(12, 2))
        labels = np.repeat([0, 1], [11, 1])
        with pytest.warns(UnreliableWarning, match="leave no other of their class.*: 11"):
            est = onefit.loo(LogisticRegression().fit(X, labels), X, labels)
        assert list(est.to_frame()["flagged"]) == [False] * 11 + [True]

    def test_splits_that_judge_a_row_twice_give_it_two_rows(self, sample):
        pytest.importorskip("pandas")
        X, y = sample
        splits = [(np.arange(10, 40), np.arange(10)), (np.arange(5, 40), np.arange(5))]
        est = onefit.loo(Ridge().fit(X, y), X, y, groups=splits)
        assert list(est.to_frame().index) == [*range(10), *range(5)]


class TestConfidenceInterval:
    def test_is_students_on_the_logarithm_of_a_risk_that_is_not_negative(self, sample):
        X, y = sample
        est = onefit.loo(Ridge().fit(X, y), X, y)
        low, high = est.confidence_interval(0.9)
        width = student.ppf(0.95, 39) * est.std_error / est.value
        np.testing.assert_allclose(np.log([low, high]), np.log(est.value) + width * np.array([-1, 1]))

    def test_is_symmetric_where_losses_may_be_negative(self):
        low, high = confidence_interval(1.0, 0.2, 10, 0.95, positive=False)
        assert (low, high) == pytest.approx(
            (1.0 - 0.2 * student.ppf(0.975, 9), 1 + 0.2 * student.ppf(0.975, 9))
        )

    def test_of_one_row_is_everything(self):
        assert confidence_interval(1.0, np.nan, 1, positive=True) == (-np.inf, np.inf)

    def test_wider_for_fewer_rows_and_more_coverage(self):
        widths = [
            np.diff(confidence_interval(1.0, 0.1, n, c, positive=True))[0]
            for n, c in [(100, 0.9), (10, 0.9), (10, 0.99)]
        ]
        assert widths == sorted(widths)

    def test_equal_weights_are_as_many_rows_and_one_heavy_row_is_one(self):
        assert effective_rows(20, np.full(20, 3.0)) == 20
        assert effective_rows(20, np.append(np.full(19, 1e-9), 1.0)) == 1
        assert effective_rows(20, None) == 20

    @pytest.mark.parametrize("coverage", [0.0, 1.0, 95, "a", [0.5, 0.9]])
    def test_coverage_is_a_share(self, sample, coverage):
        X, y = sample
        est = onefit.loo(Ridge().fit(X, y), X, y)
        with pytest.raises(ValueError, match="coverage must be a number between 0 and 1, got"):
            est.confidence_interval(coverage)
        with pytest.raises(ValueError, match="coverage must be a number between 0 and 1, got"):
            est.interval(X[:2], coverage)

    def test_covers_the_mean_of_skewed_losses_better_than_two_errors(self):
        rng = np.random.default_rng(0)
        losses = rng.normal(size=(2000, 10)) ** 2  # of mean 1
        means, errors = losses.mean(axis=1), losses.std(axis=1, ddof=1) / np.sqrt(10)
        ends = [confidence_interval(m, e, 10, positive=True) for m, e in zip(means, errors, strict=True)]
        covered = np.mean([low <= 1.0 <= high for low, high in ends])
        assert 0.89 < covered < 0.96
        assert np.mean(np.abs(means - 1.0) <= 1.96 * errors) < 0.86


class TestShown:
    def test_few_rows_say_their_interval_and_many_do_not(self, sample):
        X, y = sample
        few = onefit.loo(Ridge().fit(X[:12], y[:12]), X[:12], y[:12])
        low, high = few.confidence_interval()
        assert f"{low:.3g} … {high:.3g}" in str(few)
        assert "few rows" not in str(onefit.loo(Ridge().fit(X, y), X, y))

    def test_html_has_the_lines_of_the_text(self, sample):
        X, y = sample
        est = onefit.loo(Ridge().fit(X, y), X, y)
        html = est._repr_html_()
        assert html.startswith("<table>")
        assert html.count("<tr>") == len(str(est).splitlines()) - len(est.notes)
        assert with_error(est.value, est.std_error) in html

    def test_repr_is_one_line(self, sample):
        X, y = sample
        said = repr(onefit.loo(Ridge().fit(X, y), X, y))
        assert "\n" not in said
        assert "40 rows" in said


def test_what_an_interpreter_shows_is_to_be_read(sample):
    X, y = sample
    model = Ridge().fit(X, y)
    est = onefit.loo(model, X, y, audit=5, rng=0)
    influence, in_blocks = est.influence(), onefit.loo(model, onefit.sources.ArraySource(X, y))
    header, first, *rest = repr(influence).splitlines()
    assert header.split() == ["row", "Cook's", "distance", "leverage"]
    assert int(first.split()[0]) == influence.rows[0]
    assert len(rest) == 4
    assert (
        repr(in_blocks)
        == f"<BlocksEstimate: squared error {with_error(est.value, est.std_error)}, 40 rows, exact>"
    )
    assert repr(est.audit) == f"<Audit: {est.audit}>"
    assert repr(est.coef_table()) == str(est.coef_table())
    assert "np." not in repr(onefit.evaluate(model, X, y, onefit.risk.GCV()))
