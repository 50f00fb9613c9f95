"""``onefit compare``: results of one table, row by row."""

import json
import sys

import numpy as np
import pandas as pd
import pytest

from builders import town_table as table
from onefit.cli import run
from onefit.risk.presentation import with_error


def test_the_better_model_is_found_by_paired_differences(done, capsys):
    assert run(["compare", str(done / "full"), str(done / "poor")]) == 0
    out = capsys.readouterr().out
    a, b = (pd.read_csv(done / name / "predictions.csv")["loss"] for name in ("full", "poor"))
    difference = b - a
    assert "+" + with_error(difference.mean(), difference.std() / np.sqrt(60)) in out
    assert out.splitlines()[-1] == f"{done / 'full'} is clearly better."


@pytest.mark.parametrize("role", ["--weights", "--groups"])
def test_the_risk_is_that_of_the_results(tmp_path, capsys, role):
    rng = np.random.default_rng(0)
    column = rng.integers(1, 20, 60)
    frame = table().assign(extra=column)
    if role == "--groups":
        frame["y"] += 3 * np.random.default_rng(1).normal(size=20)[column]
    frame.to_csv(tmp_path / "t.csv", index=False)
    words = [
        "tune",
        str(tmp_path / "t.csv"),
        "--target",
        "y",
        "--model",
        "ridge",
        "--audit",
        "0",
        role,
        "extra",
    ]
    for name, more in (("full", []), ("poor", ["--drop", "x"])):
        assert run([*words, *more, "--out", str(tmp_path / name)]) == 0
    capsys.readouterr()
    assert run(["compare", str(tmp_path / "full"), str(tmp_path / "poor")]) == 0
    told = capsys.readouterr().out
    for name in ("full", "poor"):
        about = json.loads((tmp_path / name / "summary.json").read_text())
        assert f" {with_error(*about['models'][0]['risk'])}" in told


def test_other_weights_are_refused(done, tmp_path, capsys):
    for name in ("summary.json", "predictions.csv"):
        (tmp_path / name).write_bytes((done / "full" / name).read_bytes())
    rows = pd.read_csv(tmp_path / "predictions.csv")
    rows.assign(weight=np.arange(len(rows))).to_csv(tmp_path / "predictions.csv", index=False)
    assert run(["compare", str(done / "poor"), str(tmp_path)]) == 2
    assert "have different weights: they cannot be compared" in capsys.readouterr().err


def test_the_same_is_a_tie(done, capsys):
    assert run(["compare", str(done / "full"), str(done / "full")]) == 2
    assert "named twice" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps links for administrators")
def test_so_is_the_same_by_another_name(done, capsys, monkeypatch):
    monkeypatch.chdir(done)
    (done / "link").symlink_to("full")
    for name in ("./full", "poor/../full", str(done / "full"), "link"):
        assert run(["compare", "full", "poor", name]) == 2
        assert f"{name} is named twice, as full too" in capsys.readouterr().err


@pytest.mark.parametrize("label", ["None", "null", "NA"])
def test_classes_whose_names_mean_missing_elsewhere(tmp_path, capsys, label):
    table().assign(y=lambda frame: np.where(frame["y"] > frame["y"].median(), label, "mild")).to_parquet(
        tmp_path / "t.parquet"
    )
    words = ["tune", str(tmp_path / "t.parquet"), "--target", "y", "--model", "logistic", "--audit", "0"]
    for name, more in (("full", []), ("poor", ["--drop", "x"])):
        assert run([*words, *more, "--out", str(tmp_path / name)]) == 0
    capsys.readouterr()
    assert run(["compare", str(tmp_path / "full"), str(tmp_path / "poor")]) == 0
    assert "on 60 common rows" in capsys.readouterr().out


def test_a_copy_is_a_tie(done, tmp_path, capsys):
    for name in ("summary.json", "predictions.csv"):
        (tmp_path / name).write_bytes((done / "full" / name).read_bytes())
    assert run(["compare", str(done / "full"), str(tmp_path)]) == 0
    told = capsys.readouterr().out.splitlines()[-1]
    assert told == f"{done / 'full'} and {tmp_path} have the same loss in every row."
    assert run(["compare", str(done / "full"), str(tmp_path), str(done / "poor")]) == 0
    told = capsys.readouterr().out.splitlines()[-1]
    assert told == (
        f"{done / 'full'} has the smallest risk; {tmp_path} cannot be told apart from it by these rows."
    )


@pytest.mark.costly
@pytest.mark.parametrize("more", [[], ["--groups", "who"], ["--time", "who"]])
@pytest.mark.parametrize("counted", [True, False])
def test_predictions_that_were_cut_are_refused(tmp_path, capsys, more, counted):
    table().assign(who=np.arange(60) // 6).to_csv(tmp_path / "t.csv", index=False)
    words = ["tune", str(tmp_path / "t.csv"), "--target", "y", "--model", "ridge", "--audit", "0", *more]
    for name in ("full", "poor"):
        assert run([*words, "--out", str(tmp_path / name)]) == 0
    summary, rows = tmp_path / "poor" / "summary.json", tmp_path / "poor" / "predictions.csv"
    about = json.loads(summary.read_text())
    n = about["judged"] if counted else about.pop("judged")
    summary.write_text(json.dumps(about))
    compared = ["compare", str(tmp_path / "full"), str(tmp_path / "poor")]
    assert run(compared) == 0
    rows.write_text("".join(rows.read_text().splitlines(keepends=True)[:-9]))
    capsys.readouterr()
    known = counted or about["left_out"] != "time"  # of later rows earlier versions did not say how many
    assert run(compared) == (2 if known else 0)
    if known:
        assert f"predictions.csv has {n - 9} rows where {n} were judged" in capsys.readouterr().err


def test_other_targets_are_refused(done, tmp_path, capsys):
    for name in ("summary.json", "predictions.csv"):
        (tmp_path / name).write_bytes((done / "poor" / name).read_bytes())
    rows = pd.read_csv(tmp_path / "predictions.csv")
    rows.loc[3, "y"] += 1
    rows.to_csv(tmp_path / "predictions.csv", index=False)
    assert run(["compare", str(done / "full"), str(tmp_path)]) == 2
    assert "different targets in row 3" in capsys.readouterr().err
    about = json.loads((tmp_path / "summary.json").read_text())
    (tmp_path / "summary.json").write_text(json.dumps(about | {"target": "q"}))
    assert run(["compare", str(done / "full"), str(tmp_path)]) == 2
    assert "differ in their target, 'y' and 'q'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("summary", "rows", "said"),
    [
        ("[1]", None, "summary.json is not a result of onefit tune: it holds no target, no loss"),
        (
            '{"target": "y", "loss": "squared"}',
            None,
            "holds no best, no left_out, no column; name a folder",
        ),
        ("", None, "summary.json is not a result of onefit tune: Expecting value"),
        (
            None,
            "a,b\n1,2\n",
            "predictions.csv is not a result of onefit tune: it holds no row, no y, no loss",
        ),
    ],
)
def test_foreign_files_are_named(done, tmp_path, capsys, summary, rows, said):
    for name, text in (("summary.json", summary), ("predictions.csv", rows)):
        own = (done / "full" / name).read_text() if text is None else text
        (tmp_path / name).write_text(own)
    assert run(["compare", str(done / "full"), str(tmp_path)]) == 2
    assert said in capsys.readouterr().err
