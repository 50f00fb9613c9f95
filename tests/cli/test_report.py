import base64
import hashlib
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import LeaveOneOut

from onefit._scoring import Pooled, by_row
from onefit.cli.coefficients import coefficients
from onefit.cli.comparison import Ranking, TunedModel
from onefit.cli.judged import constant_losses, one_by_one, with_common_loss
from onefit.cli.pictures import pictures
from onefit.cli.report import render
from onefit.cli.results import predicted, predictions
from onefit.cli.rows import deciding
from onefit.cli.table import Roles, split
from onefit.cli.trust import (
    _about_the_best,
    about_audit,
    audited,
    cautions,
    first_cautions,
    is_raised,
    strengths,
)
from onefit.cli.words import aligned, columns, describe, in_units, lines, verdict
from onefit.estimators import LassoLOO, LogisticLOO, PoissonLOO, RidgeLOO
from onefit.risk.audit import Audit
from onefit.risk.presentation import with_error
from onefit.risk.sampled import SampledPredictions

EVIL = "<script>alert('x')</script>"


def compare(models, frame, target, task="auto", weights=None, source="t.csv"):
    table = split(frame, Roles(target, weights=weights), task)
    X = table.features.to_numpy(np.float64)
    fitted = [model.fit(X, table.y, sample_weight=table.weights) for model in models]
    judged = with_common_loss([one_by_one(model.loo_, table) for model in fitted], table)
    names = [type(model).__name__ for model in fitted]
    candidates = sorted(
        map(TunedModel, names, fitted, judged),
        key=lambda one: np.average(one.judged.losses, weights=table.weights),
    )
    p = X.shape[1]
    found = coefficients(candidates[0].estimate, list(table.features), np.ones(p), np.zeros(p), X.std(axis=0))
    return Ranking(table, source, tuple(candidates), tuple(table.features), 100, found)


def log_loss_of(y, probabilities):
    return -np.log(probabilities[np.arange(len(y)), np.unique(y, return_inverse=True)[1]])


def numbers(n=60, signal=1.0, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    y = signal * X[:, 0] + rng.normal(size=n)
    return pd.DataFrame(X, columns=list("abcd")).assign(y=y)


@pytest.fixture(scope="module")
def regression():
    return compare([RidgeLOO(), LassoLOO()], numbers(), "y")


@pytest.fixture(scope="module")
def classes():
    frame = numbers(n=90).drop(columns="y")
    score = frame["a"] + np.random.default_rng(3).normal(size=90)
    frame["y"] = np.array(["low", "mid", "high"])[np.digitize(score, [-0.5, 0.5])]
    return compare([LogisticLOO(Cs=[0.1, 1.0])], frame, "y")


@pytest.fixture(scope="module")
def counts():
    frame = numbers(n=80).drop(columns="y")
    rng = np.random.default_rng(4)
    frame["y"] = rng.poisson(np.exp(frame["a"]))
    return compare([PoissonLOO(), RidgeLOO()], frame, "y", task="counts")


class TestComparison:
    def test_paired_error(self, regression):
        other = regression.candidates[1]
        above, error = regression.above_best(other.judged)
        difference = other.judged.losses - regression.best.judged.losses
        np.testing.assert_allclose(above, difference.mean())
        np.testing.assert_allclose(error, difference.std(ddof=1) / np.sqrt(len(difference)))
        assert above >= 0

    def test_a_risk_that_a_sample_corrects_is_the_one_that_is_shown(self, classes):
        table, est = classes.table, classes.best.estimate
        rough = softmax(est.fitted, axis=1)
        draw = np.where(np.arange(90) % 3 == 0, np.arange(90) // 3, -1)
        sampled = SampledPredictions(rough, est.fitted, draw, np.full(30, 1 / 3))
        own = est.losses - log_loss_of(table.y, rough)
        value = float(np.mean(log_loss_of(table.y, rough)) + own[::3].sum() / 30)
        judged = one_by_one(replace(est, value=value, sampled=sampled), table)
        np.testing.assert_allclose(judged.own_risk[0], value)
        shown = {one.name: one.value for one in classes.scores_of(judged)}
        np.testing.assert_allclose(shown["log-loss"], value)
        both = (Pooled(table.y, p, p, "", est.classes) for p in (est.predictions, rough))
        exact, fitted = map(by_row.brier, both)
        np.testing.assert_allclose(shown["Brier"], fitted.mean() + (exact - fitted)[::3].sum() / 30)
        np.testing.assert_allclose(judged.above(classes.best.judged)[0], value - est.value)

    def test_lines(self, regression):
        shown = lines(regression)
        assert [len(line) for line in shown] == [len(columns(regression))] * 3
        assert [line[0] for line in shown] == ["*", "", ""]
        assert shown[-1][1] == "mean only"

    def test_different_losses_are_compared_by_squared_error(self, counts):
        assert counts.loss_name == "squared error"
        poisson = next(one for one in counts.candidates if one.name == "PoissonLOO")
        np.testing.assert_allclose(
            poisson.judged.losses, (counts.table.y - poisson.estimate.predictions) ** 2
        )

    def test_weights_count(self):
        frame = numbers().assign(w=np.r_[np.zeros(20), np.ones(40)])
        comparison = compare([RidgeLOO()], frame, "y", weights="w")
        risk, _ = comparison.best.risk
        np.testing.assert_allclose(risk, comparison.best.estimate.value)


class TestConstant:
    def test_mean_of_the_others(self, regression):
        y = regression.table.y
        expected = [(y[out] - y[kept].mean()) ** 2 for kept, out in LeaveOneOut().split(y)]
        np.testing.assert_allclose(regression.best.judged.baseline, np.ravel(expected))

    def test_frequencies_of_the_others(self, classes):
        y = classes.table.y
        expected = [-np.log(np.mean(y[kept] == y[out])) for kept, out in LeaveOneOut().split(y)]
        np.testing.assert_allclose(classes.best.judged.baseline, expected)

    def test_deviance_of_the_mean_of_the_others(self, counts):
        y = counts.table.y
        mean = np.array([y[kept].mean() for kept, _ in LeaveOneOut().split(y)])
        log = np.log(np.where(y > 0, y, 1.0) / mean)
        np.testing.assert_allclose(
            constant_losses(counts.table, "deviance"), 2 * (y * log - y + mean), atol=1e-12
        )

    def test_single_count(self):
        frame = numbers(n=20).assign(y=[7] + [0] * 19)
        table = split(frame, Roles("y"), "counts")
        assert np.all(np.isfinite(constant_losses(table, "deviance")))


class TestWords:
    @pytest.mark.parametrize(
        ("value", "error", "text"),
        [
            (11.46, 1.123, "11.5 ± 1.1"),
            (2988.4, 184.2, "2988 ± 184"),
            (0.018342, 0.00097, "0.01834 ± 0.00097"),
            (3.0, 0.0, "3"),
            (3.0, np.nan, "3"),
            (1.1737, 1.6e-16, "1.174"),
            (1e-9, 1e-10, "1e-09 ± 1e-10"),
            (1.5731e24, 2.6e23, "1.573e+24 ± 2.6e+23"),
            (65077165.0, 2388208.0, "65100000 ± 2400000"),
        ],
    )
    def test_with_error(self, value, error, text):
        assert with_error(value, error) == text

    def test_aligned(self):
        text = aligned(["", "model", "s", "risk"], [["*", "a", "", "1"], ["", "long one", "x", "10"]])
        assert text == "   model     s  risk\n*  a               1\n   long one  x    10"

    def test_what_was_done(self, regression):
        assert "RidgeLOO" in describe(regression)
        assert "60 rows, 4 columns" in describe(regression)

    def test_signal(self, regression):
        assert "is clearly better than predicting the mean" in verdict(regression)

    def test_no_signal(self):
        noise = compare([RidgeLOO()], numbers(signal=0.0), "y")
        assert verdict(noise).startswith("No model is clearly better")

    def test_ties(self, regression):
        assert any("cannot be told apart" in line for line in cautions(regression))

    def test_too_good(self):
        frame = numbers()
        perfect = compare([RidgeLOO()], frame.assign(a=frame["y"] + 1.0), "y")
        assert any(
            "Does a column contain the target" in line and "that of a;" in line for line in cautions(perfect)
        )

    def test_too_good_for_classes(self):
        frame = numbers()
        leak = frame.assign(y=np.where(frame["a"] > 0, "up", "down"), a=np.sign(frame["a"]))
        perfect = compare([LogisticLOO(Cs=[1e4], l1_ratio=1.0)], leak, "y")
        line = next(line for line in cautions(perfect) if "Does a column contain the target" in line)
        assert "% of that of the class frequencies" in line
        assert "The largest coefficient is that of a;" in line

    def test_precision_is_of_the_rarer_class(self):
        frame = numbers(n=100)
        rare = frame["a"] + 0.5 * frame["b"] > 1.3
        for which, usual in (("ill", "well"), ("unwell", "healthy")):
            y = np.where(rare, which, usual)
            found = compare([LogisticLOO(Cs=[1.0])], frame.assign(y=y), "y")
            p = found.best.judged.predictions[:, found.classes.index(which)]
            assert found.score("average precision") == pytest.approx(average_precision_score(y == which, p))
            assert f"average precision of class {which} " in in_units(found)

    def test_accuracy_of_many_rare_classes_says_something(self):
        frame, rng = numbers(n=200), np.random.default_rng(0)
        many = frame.assign(y=np.repeat(list("abcdefghij"), [5, 15, 20, 20, 20, 20, 25, 25, 25, 25]))
        one = frame.assign(y=rng.permutation(np.repeat(list("abc"), [5, 5, 190])))
        told = [
            any("accuracy" in line for line in cautions(compare([LogisticLOO(Cs=[0.1])], table, "y")))
            for table in (many, one)
        ]
        assert told == [False, True]

    def test_of_several_classes_the_most_frequent_is_told(self):
        y = np.repeat(list("abcd"), [20, 60, 10, 10])
        found = compare([LogisticLOO(Cs=[0.1])], numbers(n=100).assign(y=y), "y")
        assert in_units(found).endswith(", b is 60.0% of rows, the most of 4 classes.")
        assert "<span>share of y = b, the most frequent class</span><b>60.0%</b>" in render(found, "0")

    def test_a_class_that_no_judged_row_has(self):
        y = np.repeat(["no", "yes"], [90, 10])
        found = compare([LogisticLOO(Cs=[0.1])], numbers(n=100).assign(y=y), "y")
        judged, early = found.best.judged, slice(0, 80)
        rows = {name: getattr(judged, name)[early] for name in ("rows", "predictions", "losses", "weights")}
        part = TunedModel("x", found.best.model, replace(judged, baseline=judged.baseline[early], **rows))
        some = replace(found, candidates=(part,))
        assert some.prevalence.tolist() == [1.0, 0.0]
        assert "yes is 0.0% of rows (always no is right in 100.0%)" in in_units(some)
        titles = [one.title for one in pictures(some)]
        assert "What leaving a row out changes" in titles
        assert not any(title.startswith("ROC") for title in titles)

    def test_ranks_of_rows_that_are_alike(self):
        rng = np.random.default_rng(0)
        kinds = rng.integers(0, 3, 200)
        y = np.where(rng.uniform(size=200) < 0.2 + 0.3 * kinds, "yes", "no")
        found = compare(
            [LogisticLOO(Cs=[1.0])], pd.DataFrame({"a": kinds, "b": 1.0 * (kinds > 1), "y": y}), "y"
        )
        pairs = [kinds[i] == kinds[j] for i in np.flatnonzero(y == "yes") for j in np.flatnonzero(y == "no")]
        assert found.alike == pytest.approx(np.mean(pairs))
        fitted = roc_auc_score(y, found.best.model.decision_function(np.c_[kinds, kinds > 1]))
        assert fitted - found.score("AUC") == pytest.approx(0.5 * found.alike, rel=0.1)
        assert any(f"takes up to {0.5 * found.alike:.2g} off the AUC" in line for line in cautions(found))
        continuous = compare([LogisticLOO(Cs=[1.0])], numbers().assign(y=y[:60]), "y")
        assert not any("off the AUC" in line for line in cautions(continuous))

    def test_an_area_below_a_half(self):
        y = np.repeat(["no", "yes"], [40, 20])
        noise = compare(
            [LogisticLOO(Cs=[1e-6])], numbers().assign(y=np.random.default_rng(0).permutation(y)), "y"
        )
        assert noise.score("AUC") < 0.1
        assert any(line.startswith("An AUC below 0.5 is what leaving out") for line in cautions(noise))

    def test_the_target_among_the_columns_is_asked_about_before_all_else(self):
        frame = numbers()
        leak = compare([RidgeLOO()], frame.assign(net=frame["y"] / 1.19), "y")
        assert next(first_cautions(leak)).startswith("The squared error is")
        assert re.search(r'<p class="doubt">The squared error is .*Does a column contain', render(leak, "0"))

    def test_rows_of_a_sample_are_not_called_steps(self, regression):
        best = regression.best
        est = replace(best.estimate, guarantee="sampled", approx_error=0.01, flagged=np.arange(9))
        sampled = replace(
            regression, candidates=(TunedModel("x", SimpleNamespace(**vars(best.model)), best.judged),)
        )
        sampled.best.model.loo_ = est
        said = list(_about_the_best(sampled))
        assert any(
            "to within 0.01 at 95 %; of 9 rows the values one by one are approximate" in one for one in said
        )
        assert not any("one step from the fit" in one for one in said)

    def test_a_correction_that_does_not_raise_the_risk(self, regression):
        best = regression.best
        own = vars(best) | {"estimate": best.estimate, "corrected_risk": 0.9 * best.estimate.value}
        lower = SimpleNamespace(**own)
        assert not is_raised(lower)
        assert is_raised(SimpleNamespace(**vars(lower) | {"corrected_risk": 1.5 * best.estimate.value}))

    def test_negative_counts(self, counts):
        ridge = [one for one in counts.candidates if one.name == "RidgeLOO"]
        alone = replace(counts, candidates=tuple(ridge))
        assert any("negative counts" in line for line in first_cautions(alone))


class TestRows:
    def test_regression(self, regression):
        frame = predictions(regression.table, regression.best.judged, regression.best.estimate)
        assert list(frame) == ["row", "y", "left_out", "loss", "leverage", "flagged", "certified"]
        np.testing.assert_allclose((frame["y"] - frame["left_out"]) ** 2, frame["loss"])

    def test_classes(self, classes):
        frame = predictions(classes.table, classes.best.judged, classes.best.estimate)
        probabilities = frame[["left_out_high", "left_out_low", "left_out_mid"]].to_numpy()
        np.testing.assert_allclose(probabilities.sum(axis=1), 1)
        assert np.array_equal(
            frame["left_out"], np.array(["high", "low", "mid"])[probabilities.argmax(axis=1)]
        )

    def test_decision(self):
        columns = predicted(np.array([-1.0, 2.0]), np.array(["no", "yes"]), "left_out")
        assert columns["left_out"].tolist() == ["no", "yes"]

    def test_several_outputs(self):
        assert list(predicted(np.zeros((3, 2)), None, "left_out")) == ["left_out_0", "left_out_1"]


class TestRowsThatDecideMost:
    def test_rows_by_falling_cooks_distance(self, regression):
        est = regression.best.estimate
        distance = est.influence().cooks_distance
        shown = deciding(regression)
        rows = [int(line[0]) for line in shown]
        assert rows == np.argsort(-distance)[:8].tolist()
        expected = [
            [
                f"{est.y[i]:.5g}",
                f"{est.fitted[i]:.5g}",
                f"{est.predictions[i]:.5g}",
                f"{est.leverages[i]:.3f}",
                f"{distance[i]:.3g}",
            ]
            for i in rows
        ]
        assert [line[1:6] for line in shown] == expected
        assert {line[6] for line in shown} <= set(regression.feature_names)

    def test_rows_are_those_of_the_file(self):
        frame = numbers(n=40)
        frame.loc[20, "y"] = 40.0
        frame.loc[:4, "y"] = np.nan
        assert deciding(compare([RidgeLOO()], frame, "y"))[0][:2] == ["20", "40"]

    @pytest.mark.parametrize("kind", ["classes", "counts", "binary"])
    def test_fitted_values_are_predictions_of_the_model(self, kind, request):
        if kind == "binary":
            frame = numbers(n=90)
            comparison = compare(
                [LogisticLOO(Cs=[1.0])], frame.assign(y=np.where(frame["y"] > 0, "p", "q")), "y"
            )
        else:
            comparison = request.getfixturevalue(kind)
        model, X = comparison.best.model, comparison.table.features.to_numpy(np.float64)
        rows = np.searchsorted(comparison.table.rows, [int(line[0]) for line in deciding(comparison)])
        shown = [line[2] for line in deciding(comparison)]
        if kind == "counts":
            assert shown == [f"{value:.5g}" for value in model.predict(X)[rows]]
        else:
            likely = model.predict_proba(X)[rows].max(axis=1)
            assert shown == [f"{y} ({p:.2f})" for y, p in zip(model.predict(X)[rows], likely, strict=True)]

    def test_none_where_the_influence_cannot_be_had(self, regression):
        best = regression.best
        bare = type("Bare", (), {"loo_": replace(best.estimate, _left_out=None), "coef_": best.model.coef_})()
        kept = replace(regression, candidates=(TunedModel("bare", bare, best.judged),))
        assert deciding(kept) == []


def audit_of(est, off, half):
    value = est.value + off
    return Audit(
        value, half / 2, (value - half, value + half), np.arange(3), np.ones(3), np.zeros(3), est.value, 0.5
    )


class TestAudit:
    def test_interval_that_holds_the_approximation(self, regression):
        audit = audit_of(regression.best.estimate, 0.05, 0.1)
        assert list(audited(audit, *regression.audited_loss)) == []
        told = list(about_audit(replace(regression, audit=audit)))
        assert len(told) == 1
        assert f"{audit.value:.2f} [{audit.value - 0.1:.2f}, {audit.value + 0.1:.2f}] at 95 % by 3" in told[0]

    @pytest.mark.parametrize("half", [0.1, 0.0])
    def test_interval_that_excludes_it(self, regression, half):
        checked = replace(regression, audit=audit_of(regression.best.estimate, 0.2, half))
        off = "The approximation of the left-out squared error is off by +0.2: trust the audited value"
        assert next(first_cautions(checked)).startswith(off)
        assert not any("Audit of" in line for line in strengths(checked))

    def test_rounding_is_not_off(self, regression):
        est = regression.best.estimate
        assert list(audited(audit_of(est, 1e-9, 0.0), est.loss_name, est.std_error)) == []

    def test_what_is_small_beside_the_standard_error_is_not_off(self, regression):
        est = regression.best.estimate
        assert list(audited(audit_of(est, 0.05 * est.std_error, 0.0), est.loss_name, est.std_error)) == []
        assert len(list(audited(audit_of(est, 0.15 * est.std_error, 0.0), est.loss_name, est.std_error))) == 1

    def test_none(self, regression):
        assert list(about_audit(regression)) == []

    def test_page(self, regression):
        audit = audit_of(regression.best.estimate, 0.05, 0.1)
        page = render(replace(regression, audit=audit), "0")
        assert "<span>left-out squared error by 3 refits, 95 %</span>" in page
        assert "only the refits of the audit repeat it" in page
        assert not any("only the refits" in line for line in cautions(regression))


def test_risk_corrected_for_the_choice_is_told(regression, counts):
    for comparison in (regression, counts):
        model = comparison.best.model
        line = next(line for line in cautions(comparison) if "optimistic" in line)
        assert line.startswith(f"The strength was chosen among {len(model.risk_path_)} by the same risk")
        words = rf"left-out {model.loo_.loss_name} of .*, corrected for the choice, is (\d+\.\d+)"
        told = re.search(words, line)[1]
        assert float(told) == pytest.approx(model.corrected_risk_, abs=0.1 * model.loo_.std_error)
    page = render(counts, "0")
    assert f"<span>left-out deviance, corrected for the choice</span><b>{told}<" in page


def test_how_sure_the_choice_is(regression, counts):
    for comparison in (regression, counts):
        model, tried = comparison.best.model, len(comparison.best.model.risk_path_)
        held = model.confidence_set_
        line = next(line for line in first_cautions(comparison) if f"of {tried} strengths" in line)
        assert line.startswith(f"{len(held)} of {tried} strengths")
        assert f"from {held.min():.3g} to {held.max():.3g}" in line


class TestPage:
    @pytest.mark.usefixtures("with_pictures")
    @pytest.mark.parametrize("kind", ["regression", "classes", "counts"])
    def test_stands_alone(self, kind, request):
        page = render(request.getfixturevalue(kind), "0")
        assert page.startswith("<!DOCTYPE html>")
        assert page.count("<svg") == page.count("<figure>") >= 5
        # references lead to the page itself
        assert not re.search(r"(?:src|href)\s*=\s*\"(?!data:|#)|url\((?!#)|@import", page)
        scripts = re.findall(r"<script(.*?)>(.*?)</script>", page, re.DOTALL)
        assert [attributes for attributes, _ in scripts] == [""]
        digest = base64.b64encode(hashlib.sha256(scripts[0][1].encode()).digest()).decode()
        assert "default-src 'none'" in page
        assert f"script-src 'sha256-{digest}'" in page

    @pytest.mark.usefixtures("with_pictures")
    def test_is_the_same_every_time(self, regression):
        assert render(regression, "0") == render(regression, "0")

    @pytest.mark.usefixtures("with_pictures")
    def test_escapes_what_the_user_gave(self):
        frame = numbers().rename(columns={"a": EVIL + "$^{", "y": EVIL})
        frame["always"] = EVIL
        page = render(compare([RidgeLOO()], frame, EVIL, source=EVIL), "0")
        assert EVIL not in page
        assert "&lt;script&gt;" in page

    def test_names_in_a_script_that_the_font_does_not_have(self, recwarn):
        y = np.repeat(["日本", "中国", "no"], 20)
        found = pictures(compare([LogisticLOO(Cs=[0.1])], numbers().assign(y=y), "y"))
        assert any("日本" in one.title for one in found)
        assert not [one for one in recwarn if "Glyph" in str(one.message)]
        assert any(re.search("<text[^>]*>[^<]*日本", one.svg) for one in found)  # in the reader's font
        assert "<text" not in found[0].svg  # of the class no: all letters are ours

    def test_flagged_rows_are_listed(self):
        frame = numbers(n=30).assign(rare=np.eye(30)[7])
        comparison = compare([RidgeLOO([0.0])], frame, "y")
        assert comparison.best.estimate.leverages[7] > 0.8
        page = render(comparison, "0")
        assert ("determines most of its own fit" in page) == (7 in comparison.best.estimate.flagged)
