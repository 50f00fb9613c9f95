"""Groups and time: what leaves together, against folds of scikit-learn; and columns that look like either."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

from onefit.cli import cuts, run, structure
from onefit.cli.errors import TableError
from onefit.cli.table import Roles, split
from onefit.estimators import LogisticLOO, PoissonLOO, RidgeLOO


def panel(n_groups=12, each=8, seed=0):
    rng = np.random.default_rng(seed)
    subject = np.repeat(np.arange(n_groups), each)
    x, z = rng.normal(size=(2, len(subject)))
    trait = rng.normal(size=n_groups)[subject]
    return pd.DataFrame(
        {
            "subject": subject,
            "x": x,
            "marker": trait * 2 + 0.1 * z,
            "y": x + 2 * rng.normal(size=n_groups)[subject] + 0.3 * z,
        }
    )


def test_risks_along_the_path_are_those_of_refits():
    frame = panel()
    table = split(frame, Roles("y", groups="subject"))
    found = cuts.cuts_of(table)
    strengths = np.array([10.0, 1.0, 0.1])
    model = RidgeLOO(strengths).fit(StandardScaler().fit_transform(table.features), table.y)
    path = cuts.judge_path(model, table, found, strengths)
    for j, alpha in enumerate(strengths):
        expected = np.empty(len(frame))
        for train, test in found.splits:
            scaler = StandardScaler().fit(table.features.iloc[train])
            one = Ridge(alpha).fit(scaler.transform(table.features.iloc[train]), table.y[train])
            expected[test] = one.predict(scaler.transform(table.features.iloc[test]))
        judged = path.at(j)
        np.testing.assert_allclose(judged.predictions, expected[judged.rows], rtol=1e-6)
        np.testing.assert_allclose(judged.losses, (table.y - expected)[judged.rows] ** 2, rtol=1e-6)
        np.testing.assert_allclose(path.risks()[j], np.mean((table.y - expected) ** 2), rtol=1e-6)


@pytest.mark.parametrize("kind", ["binary", "multiclass", "counts"])
def test_probabilities_and_means(kind):
    frame = panel(12, 20)
    rng = np.random.default_rng(3)
    made = {
        "binary": (LogisticLOO, np.where(frame["y"] > 0, "p", "q")),
        "multiclass": (LogisticLOO, np.digitize(frame["y"], [-1, 1])),
        "counts": (PoissonLOO, rng.poisson(np.exp(frame["x"].to_numpy()))),
    }
    family, y = made[kind]
    table = split(frame.assign(y=y), Roles("y", groups="subject"), kind)
    X = StandardScaler().fit_transform(table.features)
    model = family([1.0]).fit(X, table.y)
    judged = cuts.judge_path(model, table, cuts.cuts_of(table), np.array([1.0])).at(0)
    train, test = cuts.cuts_of(table).splits[0]
    scaler = StandardScaler().fit(table.features.iloc[train])
    one = family([1.0]).fit(scaler.transform(table.features.iloc[train]), table.y[train])
    new = scaler.transform(table.features.iloc[test])
    expected = one.predict(new) if kind == "counts" else one.predict_proba(new)
    np.testing.assert_allclose(judged.predictions[: len(test)], expected, rtol=1e-5, atol=1e-7)


def test_refits_without_each_part_give_the_predictions_that_are_written(tmp_path):
    frame = panel(30)
    frame.to_csv(tmp_path / "t.csv", index=False)
    command = ["tune", str(tmp_path / "t.csv"), "--target", "y", "--model", "ridge", "--groups", "subject"]
    assert run([*command, "--out", str(tmp_path / "o")]) == 0
    rows = pd.read_csv(tmp_path / "o" / "predictions.csv")
    best = json.loads((tmp_path / "o" / "summary.json").read_text(encoding="utf-8"))["models"][0]
    alpha = float(best["chosen"].removeprefix("alpha="))
    assert rows["row"].tolist() == list(range(240))
    assert rows["group"].tolist() == frame["subject"].tolist()
    assert rows["part"].nunique() == cuts.MOST_FOLDS
    X, y = frame[["x", "marker"]], frame["y"]
    for _, out in rows.groupby("part"):
        held = X.drop(index=out["row"])
        scaler = StandardScaler().fit(held)
        one = Ridge(alpha).fit(scaler.transform(held), y[held.index])
        np.testing.assert_allclose(
            one.predict(scaler.transform(X.loc[out["row"]])), out["left_out"], atol=1e-3
        )


def test_no_group_is_on_both_sides():
    table = split(panel(30), Roles("y", groups="subject"))
    for train, test in cuts.cuts_of(table).splits:
        assert not set(table.groups.iloc[train]) & set(table.groups.iloc[test])


def test_time_goes_forward():
    frame = pd.DataFrame(
        {"day": np.repeat(np.arange(40), 2)[::-1], "x": np.arange(80) % 7, "y": np.arange(80) * 0.1}
    )
    table = split(frame, Roles("y", time="day"))
    found = cuts.cuts_of(table)
    assert len(found.splits) == cuts.WINDOWS
    for train, test in found.splits:
        assert table.time.iloc[train].max() < table.time.iloc[test].min()


@pytest.mark.parametrize(
    ("roles", "said"),
    [
        ({"groups": "subject"}, "groups 'subject': class 'rare' is in '11' alone, and no row of it stays"),
        (
            {"time": "subject"},
            "time 'subject': class 'rare' first occurs at 11, and the rows up to 1, which the next window",
        ),
        (
            {"time": "day"},
            "time 'day': class 'rare' first occurs at 2024-03-29, and the rows up to 2024-01-16, which",
        ),
    ],
)
def test_a_class_that_a_part_lacks(roles, said, tmp_path, capsys):
    frame = panel().assign(y=lambda one: np.where(one["subject"] == 11, "rare", "usual"))
    frame["day"] = pd.date_range("2024-01-01", periods=96).astype(str)
    with pytest.raises(TableError, match=said):
        cuts.cuts_of(split(frame, Roles("y", **roles)))
    frame.to_csv(tmp_path / "t.csv", index=False)
    role, column = next(iter(roles.items()))
    assert run(["tune", str(tmp_path / "t.csv"), "--target", "y", f"--{role}", column]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1


class TestSuspicion:
    @pytest.mark.parametrize(
        ("name", "values", "grouped"),
        [
            pytest.param("subject#", np.repeat(np.arange(10), 5), True, id="named, in blocks"),
            pytest.param("patient_id", np.tile(np.arange(10), 5), True, id="named, mixed"),
            pytest.param("place", np.repeat(list("abcdefghij"), 5), True, id="words in blocks"),
            pytest.param("place", np.tile(list("abcdefghij"), 5), False, id="words mixed"),
            pytest.param("x", np.repeat(np.arange(10), 5), False, id="numbers in blocks"),
            pytest.param("subject", np.arange(50), False, id="never repeated"),
            pytest.param("subject", np.linspace(0.1, 1, 50), False, id="fractions"),
            pytest.param("subject", np.tile([0, 1], 25), False, id="two values"),
        ],
    )
    def test_groups(self, name, values, grouped):
        assert structure.looks_grouped(pd.Series(values, name=name)) == grouped

    def test_time(self):
        days = pd.Series(pd.date_range("2020-01-01", periods=50))
        assert structure.looks_timed(days)
        assert not structure.looks_timed(pd.Series(np.arange(50)))
        assert not structure.looks_timed(days.iloc[:5])

    def test_both_numbers_are_told(self, tmp_path, capsys):
        panel(30).to_csv(tmp_path / "t.csv", index=False)
        base = ["tune", str(tmp_path / "t.csv"), "--target", "y", "--model", "ridge", "--audit", "0"]
        assert run(base) == 0
        told = capsys.readouterr().out
        assert "subject looks like groups" in told
        assert "for new subject; if new rows are such, tune with --groups subject" in told
        assert run([*base, "--groups", "subject", "--out", str(tmp_path / "o")]) == 0
        told = capsys.readouterr().out
        assert "looks like groups" not in told
        assert "new subject (30 of them, left out in 10 parts)" in told
        assert "refits without a part of the subject" in told
        assert len(pd.read_csv(tmp_path / "o" / "predictions.csv")) == 240


@pytest.mark.usefixtures("with_pictures")
@pytest.mark.parametrize("role", ["--time", "--groups"])
def test_what_leaves_alone_is_told_from_what_is_judged(tmp_path, role):
    panel(8).to_csv(tmp_path / "t.csv", index=False)
    command = ["tune", str(tmp_path / "t.csv"), "--target", "y", "--model", "ridge", role, "subject"]
    assert run([*command, "--out", str(tmp_path / "o")]) == 0
    page = (tmp_path / "o" / "report.html").read_text(encoding="utf-8")
    deciding = page.split("Rows that decide most")[1].split("</details>")[0]
    assert "without this row alone" in deciding
    assert "left-out prediction" not in deciding
    picture = page.split("What leaving a row out changes")[1].split("</figcaption>")[0]
    new = "later rows by" if role == "--time" else "new"
    for text in (deciding, picture):
        assert f"Each row is left out alone here, all others stay; the risk is that of {new} subject" in text
    assert "left-out prediction" in page.split("Rows that are predicted worst")[1]


class TestAudit:
    """What leaves together in tuning leaves together in the audit."""

    def tuned(self, frame, folder, *more):
        frame.to_csv(folder / "t.csv", index=False)
        command = ["tune", str(folder / "t.csv"), "--target", "y", "--out", str(folder / "o"), *more]
        assert run(command) == 0
        return json.loads((folder / "o" / "summary.json").read_text(encoding="utf-8"))

    @pytest.mark.parametrize(
        "roles", [["--groups", "subject"], ["--time", "subject"], ["--groups", "subject", "--weights", "w"]]
    )
    def test_of_every_part_is_the_tuned_risk(self, roles, tmp_path, capsys):
        frame = panel(8).assign(w=np.linspace(0.5, 2.0, 64))
        found = self.tuned(frame, tmp_path, *roles, "--model", "ridge", "--audit", "20")
        risk = found["models"][0]["risk"][0]
        assert found["audit"]["value"] == pytest.approx(risk, rel=1e-6)
        assert found["audit"]["interval"] == [found["audit"]["value"]] * 2
        told = capsys.readouterr().out
        new = (
            "later rows by subject" if "--time" in roles else "new subject (8 of them, each left out in turn)"
        )
        assert "Audit of ridge: left-out squared error" in told
        assert f" for {new}" in told.split("Audit of ridge")[1]
        assert f"tuning gave {risk:.4g}" in told
        assert "is off by" not in told
        page = (tmp_path / "o" / "report.html").read_text(encoding="utf-8")
        assert re.search(r"<span>left-out squared error by \d+ refits</span>", page)  # all parts: no interval

    @pytest.mark.parametrize("model", ["logistic", "poisson", "auto"])
    def test_of_some_parts(self, model, tmp_path):
        frame = panel(12, 20)
        counts = np.random.default_rng(3).poisson(np.exp(frame["x"].to_numpy()))
        y = np.where(frame["y"] > 0, "p", "q") if model == "logistic" else counts
        found = self.tuned(
            frame.assign(y=y), tmp_path, "--groups", "subject", "--model", model, "--audit", "4"
        )
        assert found["audit"]["value"] == pytest.approx(found["models"][0]["risk"][0], rel=1e-3)
        low, high = found["audit"]["interval"]
        assert low < high
