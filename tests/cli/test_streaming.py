"""``onefit tune`` on tables that are never held in memory: what it says, writes and refuses."""

import json
import subprocess
import sys
from functools import cache

import numpy as np
import pandas as pd
import pytest

from onefit import LassoLOO, LogisticLOO
from onefit.cli import app, families, files, run, saved

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


ROWS = 900


def table(n=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n, 4)) * [1.0, 10.0, 0.1, 1.0], columns=["a", "b", "c", "noise"])
    eta = frame["a"] - 0.1 * frame["b"]
    frame["y"] = eta + rng.normal(size=n)
    frame["label"] = np.where(eta + rng.logistic(size=n) > 0, "yes", "no")
    frame["count"] = rng.poisson(np.exp(0.5 * eta))
    frame["weight"] = rng.uniform(0.5, 2.0, n)
    return frame


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder of Parquet files, and the same rows as a CSV."""
    place = tmp_path_factory.mktemp("tables")
    (place / "parts").mkdir()
    frame = table()
    for k in range(3):
        frame[k * ROWS // 3 : (k + 1) * ROWS // 3].to_parquet(place / "parts" / f"part{k}.parquet")
    frame.to_csv(place / "t.csv", index=False)
    return place


@pytest.fixture(scope="module")
def in_memory(place, tmp_path_factory):
    """From a target to the folder of the same model, tuned in memory once."""

    @cache
    def tuned(target):
        out = tmp_path_factory.mktemp("here")
        words = ["--weights", "weight", "--model", MODELS[target], "--audit", "0", "--out", out]
        assert tune(place / "t.csv", target, *words) == 0
        return out

    return tuned


MODELS = {"y": "lasso", "label": "logistic", "count": "poisson"}
DROPS = {"y": ("label", "count"), "label": ("y", "count"), "count": ("y", "label")}


def tune(file, target, *more):
    drops = [word for name in DROPS.get(target, ()) for word in ("--drop", name)]
    return run(["tune", str(file), "--target", target, *drops, *map(str, more)])


@pytest.mark.costly
@pytest.mark.parametrize("name", ["parts", "t.csv"])
@pytest.mark.parametrize("target", ["y", "label", "count"])
def test_what_is_found_is_what_is_found_in_memory(place, tmp_path, capsys, in_memory, name, target):
    out, memory = tmp_path / "out", in_memory(target)
    capsys.readouterr()
    words = ["--weights", "weight", "--model", MODELS[target], "--out", out]
    assert tune(place / name, target, "--memory-limit", "10K", *words) == 0
    said = capsys.readouterr().out
    assert f"{ROWS} rows, 4 columns" in said
    assert "in passes over the rows" in said
    summary = json.loads((out / "summary.json").read_text())
    here = json.loads((memory / "summary.json").read_text())
    assert summary["task"] == here["task"]
    assert summary["rows"] == here["rows"] == ROWS
    assert len(summary["scores"]) == 3
    for score, found in summary["scores"].items():
        assert found == pytest.approx(here["scores"][score], rel=0.01)
        assert f"{score} " in said
    new = table(50, seed=1)
    ours, theirs = saved.load(str(out / "model.skops")), saved.load(str(memory / "model.skops"))
    method = "predict_proba" if target == "label" else "predict"
    names = ["a", "b", "c", "noise"]
    near = getattr(theirs, method)(new[names])
    np.testing.assert_allclose(getattr(ours, method)(new[names]), near, rtol=0.02, atol=0.01)
    coefs = pd.read_csv(out / "coefficients.csv").set_index("feature")["coefficient"]
    for feature, value in {"a": 1.0, "b": -0.1}.items():
        assert coefs[feature] == pytest.approx(0.5 * value if target == "count" else value, rel=0.2)
    rows = pd.read_parquet(out / "predictions.parquet")
    assert len(rows) == ROWS
    assert rows["y"].tolist() == table()[target].tolist()
    weight = table()["weight"]
    assert np.average(rows["loss"], weights=weight) == pytest.approx(summary["models"][0]["risk"][0])


def test_a_streamed_model_predicts_a_file(place, tmp_path):
    assert tune(place / "parts", "label", "--drop", "weight", "--out", tmp_path / "out") == 0
    new = table(20, seed=2)
    new.to_csv(tmp_path / "new.csv", index=False)
    command = ["predict", str(tmp_path / "out"), str(tmp_path / "new.csv"), "--out", str(tmp_path / "p.csv")]
    assert run(command) == 0
    found = pd.read_csv(tmp_path / "p.csv")
    frame = table()
    X = frame[["a", "b", "c", "noise"]]
    X, fresh = (X - X.mean()) / X.std(ddof=0), (new[X.columns] - X.mean()) / X.std(ddof=0)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    ratio = 1.0 if summary["best"] == "logistic-l1" else 0.0
    strength = float(summary["models"][0]["chosen"].removeprefix("C="))
    plain = LogisticLOO([strength], l1_ratio=ratio).fit(X, frame["label"])
    np.testing.assert_allclose(found["prediction_yes"], plain.predict_proba(fresh)[:, 1], atol=1e-3)


def test_auto_takes_the_smallest_risk_first(place, tmp_path):
    assert tune(place / "parts", "y", "--drop", "weight", "--out", tmp_path / "out") == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    risks = [one["risk"][0] for one in summary["models"]]
    assert summary["models"][0]["name"] == summary["best"]
    of_lasso = next(one["risk"][0] for one in summary["models"] if one["name"] == "lasso")
    assert risks == sorted(risks)
    assert len(risks) == 3
    frame = table()
    X = frame[["a", "b", "c", "noise"]]
    plain = LassoLOO(families.STRENGTHS).fit((X - X.mean()) / X.std(ddof=0), frame["y"])
    assert of_lasso == pytest.approx(plain.loo_.value, rel=1e-6)


def test_results_of_an_earlier_run_are_not_left_beside_new_ones(place, tmp_path, capsys):
    assert {*files.IN_MEMORY, *files.IN_PASSES} == {*files.RESULTS}
    words = ["--model", "ridge", "--drop", "weight", "--out", tmp_path]
    here, passes = (files.IN_MEMORY, ["--audit", "0"]), (files.IN_PASSES, ["--memory-limit", "10K"])
    (tmp_path / "own.txt").write_text("kept")
    assert tune(place / "t.csv", "y", *words, *here[1]) == 0
    for names, more in (passes, here, passes):
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        assert tune(place / "t.csv", "y", *words, *more) == 2
        assert "--force overwrites" in capsys.readouterr().err
        assert tune(place / "no.csv", "y", *words, *more, "--force") == 2
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
        assert tune(place / "t.csv", "y", *words, *more, "--force") == 0
        assert {path.name for path in tmp_path.iterdir()} == {*names, "own.txt"}
        gone = [name for name in files.RESULTS if name in before and name not in names]
        assert f"removed {', '.join(gone)} of an earlier run from {tmp_path}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--drop", "count"], "of numbers alone, which 'label' is not: leave out by --drop"),
        (["--drop", "label", "--groups", "count"], "--groups needs the whole table in memory"),
        (["--drop", "label", "--time", "count"], "--time needs the whole table in memory"),
        (["--drop", "label", "--audit", "5"], "--audit needs the whole table in memory"),
        (["--drop", "labl"], "there is no column 'labl'; did you mean 'label'?"),
        (["--drop", "label", "--weights", "wait"], "there is no column 'wait'"),
        (["--drop", "label", "--task", "multiclass"], "are for two classes"),
        (["--drop", "label", "--memory-limit", "much"], "'much' is no size such as 500M or 2G"),
        (["--drop", "label", "--memory-limit", "-5"], "'-5' is no size such as 500M or 2G"),
    ],
)
def test_what_cannot_be_streamed_is_said(place, capsys, words, message):
    assert run(["tune", str(place / "parts"), "--target", "y", *words]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("size", "expected"), [("500M", 500 * 2**20), ("1.5gb", 1.5 * 2**30), ("20", 20), ("7B", 7), ("3k", 3072)]
)
def test_sizes_are_written_as_people_do(size, expected):
    assert app._size(None, None, size) == expected


def test_a_gap_is_named_with_its_file_column_and_row(tmp_path, capsys):
    for k in range(2):
        frame = table(100, seed=k)[["a", "b", "y"]]
        if k == 1:
            frame.loc[7, "b"] = np.nan
        frame.to_parquet(tmp_path / f"part{k}.parquet")
    assert run(["tune", str(tmp_path), "--target", "y"]) == 2
    said = capsys.readouterr().err
    assert "part1.parquet (rows 0 to 99) has NaN in column 'b', row 7" in said


def test_several_classes_and_no_other_column(tmp_path, capsys):
    frame = table(100)
    frame["kind"] = np.arange(100) % 3
    frame[["a", "kind"]].to_parquet(tmp_path / "t.parquet")
    assert run(["tune", str(tmp_path), "--target", "kind"]) == 2
    assert "target 'kind' has 3 classes" in capsys.readouterr().err
    assert run(["tune", str(tmp_path), "--target", "kind", "--task", "regression", "--drop", "a"]) == 2
    assert "no column beside the target" in capsys.readouterr().err


@pytest.mark.slow
def test_memory_stays_below_the_table(tmp_path):
    rng = np.random.default_rng(0)
    n, p, mib = 400_000, 30, 2**20
    for k in range(4):
        X = rng.normal(size=(n // 4, p))
        frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(p)])
        frame["y"] = X[:, 0] + rng.normal(size=len(X))
        frame.to_parquet(tmp_path / f"part{k}.parquet", row_group_size=10_000)
    program = (
        "import resource, sys\nfrom onefit.cli import run\nimport onefit.cli.streaming\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"assert run(['tune', {str(tmp_path)!r}, '--target', 'y', '--model', 'lasso']) == 0\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    if sys.platform != "linux":
        pytest.skip("ru_maxrss is in kilobytes on Linux alone")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    grown = int(done.stdout.splitlines()[-1]) * 1024
    assert n * (p + 1) * 8 > 94 * mib  # what the numbers alone take
    assert grown < 80 * mib


@pytest.mark.parametrize("target", ["y", "zip"])
def test_codes_are_refused_by_name(tmp_path, capsys, target):
    table = pd.DataFrame({"y": np.arange(400.0), "x": np.arange(400.0) ** 2, "zip": ["01067", "20095"] * 200})
    table.to_csv(tmp_path / "t.csv", index=False)
    assert run(["tune", str(tmp_path / "t.csv"), "--target", target, "--memory-limit", "1K"]) == 2
    assert "'zip' with leading zeros would be codes" in " ".join(capsys.readouterr().err.split())
