"""What the commands promise beside their numbers: safety, intervals, comparisons, options from a file."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

import onefit
from builders import town_table as table
from onefit.cli import files, intervals, run, saved
from onefit.cli.judged import LeftOutTable
from onefit.cli.progress import Progress
from onefit.risk.presentation import with_error


class TestSafety:
    def test_nothing_is_overwritten_unasked(self, done, capsys):
        command = ["tune", str(done / "t.csv"), "--target", "y", "--model", "ridge", "--audit", "0"]
        command += ["--out", str(done / "full")]
        before = (done / "full" / "model.skops").read_bytes()
        assert run(command) == 2
        assert "holds model.skops, coefficients.csv" in (err := capsys.readouterr().err)
        assert "--force overwrites" in err
        assert (done / "full" / "model.skops").read_bytes() == before
        assert run([*command, "--force"]) == 0

    def test_predictions_neither(self, done, tmp_path, capsys):
        (tmp_path / "p.csv").write_text("old")
        command = ["predict", str(done / "full"), str(done / "t.csv"), "--out", str(tmp_path / "p.csv")]
        assert run(command) == 2
        assert (tmp_path / "p.csv").read_text() == "old"
        assert "exists already: --force overwrites it" in capsys.readouterr().err
        assert run([*command, "--force"]) == 0
        assert len(pd.read_csv(tmp_path / "p.csv")) == 60

    @pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
    @pytest.mark.parametrize("step", ["write", "fsync", "replace"])
    def test_a_killed_writer_leaves_the_old_file_or_the_new_one(self, tmp_path, step):
        path = tmp_path / "model.skops"
        path.write_bytes(b"old" * 1000)
        program = (
            "import os, sys, signal\nfrom pathlib import Path\nfrom onefit.cli import files\n"
            "die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
            "if sys.argv[2] == 'write':\n"
            "    made = os.fdopen\n"
            "    class Half:\n"
            "        def __init__(self, handle, mode): self.file = made(handle, mode)\n"
            "        def __enter__(self): return self\n"
            "        def __exit__(self, *_): pass\n"
            "        def write(self, content): self.file.write(content[:7]); self.file.flush(); die()\n"
            "    os.fdopen = Half\n"
            "else:\n"
            "    setattr(os, sys.argv[2], die)\n"
            "files.write(Path(sys.argv[1]), b'new' * 1000)\n"
        )
        found = subprocess.run([sys.executable, "-c", program, str(path), step], check=False)
        assert found.returncode == -signal.SIGKILL
        assert path.read_bytes() == b"old" * 1000
        for part in tmp_path.glob("*.part"):
            os.utime(part, (0, 0))  # long after
        files.write(path, b"new" * 1000)
        assert path.read_bytes() == b"new" * 1000
        assert list(tmp_path.iterdir()) == [path]  # what the killed one left is gone

    @pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
    def test_a_model_is_whole_whenever_the_run_is_killed(self, done, tmp_path):
        command = [sys.executable, "-m", "onefit", "tune", str(done / "t.csv"), "--target", "y"]
        command += ["--model", "ridge", "--out", str(tmp_path / "o")]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        model, end = tmp_path / "o" / "model.skops", time.monotonic() + 60
        while not model.exists() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.001)
        process.kill()
        process.wait()
        assert np.isfinite(saved.load(str(model)).predict(table()[["x", "z", "place"]])).all()

    def test_few_rows_are_never_clear(self, tmp_path, capsys):
        table(6).to_csv(tmp_path / "t.csv", index=False)
        command = ["tune", str(tmp_path / "t.csv"), "--target", "y", "--model", "ridge", "--audit", "0"]
        assert run([*command, "--drop", "place"]) == 0
        out = capsys.readouterr().out
        assert "clearly" not in out
        assert "There are only 6 rows" in out

    def test_three_rows(self, tmp_path, capsys):
        path, command = tmp_path / "t.csv", ["tune", str(tmp_path / "t.csv"), "--target", "y", "--audit", "0"]
        path.write_text("x,y\n1.5,2.5\n3.5,4.5\n")
        assert run(command) == 2
        assert "the table has 2 rows with a target: it takes at least 3" in capsys.readouterr().err
        path.write_text("x,y\n1.5,2.5\n3.5,4.5\n2.5,3.0\n")
        assert run(command) == 0
        out = capsys.readouterr().out
        assert "clearly" not in out
        assert "There are only 3 rows" in out


class TestPredict:
    def predicted(self, done, tmp_path, capsys, change, *more):
        frame = table(8, seed=5)
        change(frame)
        frame.drop(columns="y").to_csv(tmp_path / "new.csv", index=False)
        assert run(["predict", str(done / "full" / "model.skops"), str(tmp_path / "new.csv"), *more]) == 0
        return capsys.readouterr().err

    def test_silent_where_nothing_is_made_up(self, done, tmp_path, capsys):
        assert self.predicted(done, tmp_path, capsys, lambda _: None) == ""

    def test_missing_values_are_counted_by_name(self, done, tmp_path, capsys):
        def change(frame):
            frame.loc[[1, 2], "z"] = np.nan

        err = self.predicted(done, tmp_path, capsys, change)
        assert err.count("\n") == 1
        assert "missing values were filled in z (2); never missing where the model was fitted: z" in err

    def test_unseen_levels_are_counted_by_name(self, done, tmp_path, capsys):
        def change(frame):
            frame.loc[[1, 2, 5], "place"] = ["moon", "moon", "sea"]

        err = self.predicted(done, tmp_path, capsys, change)
        assert err.count("\n") == 1
        assert (
            "levels that the model has never seen count as rare ones in place (3 rows, such as 'moon')" in err
        )

    def test_missing_columns_are_refused_by_name(self, done, tmp_path, capsys):
        table(8).drop(columns=["x", "z"]).to_csv(tmp_path / "new.csv", index=False)
        assert run(["predict", str(done / "full"), str(tmp_path / "new.csv")]) == 2
        assert "no column 'x', 'z' (2 of the 3 that the model needs)" in capsys.readouterr().err

    def test_decimal_commas_of_the_model_are_remembered(self, tmp_path, capsys):
        frame = table(40)
        frame["x"] = (1000 * frame["x"]).round(3)
        frame.to_csv(tmp_path / "t.csv", index=False, sep=";", decimal=",")
        command = ["tune", str(tmp_path / "t.csv"), "--target", "y", "--model", "ridge", "--audit", "0"]
        assert run([*command, "--out", str(tmp_path / "o")]) == 0
        capsys.readouterr()
        (tmp_path / "new.csv").write_text(
            "x;z;place\n1.234;1;town\n"
        )  # a thousand, as in the table of the model
        assert run(["predict", str(tmp_path / "o"), str(tmp_path / "new.csv")]) == 0
        told = float(capsys.readouterr().out.splitlines()[1].split(",")[1])
        pipeline = saved.load(str(tmp_path / "o"))
        expected = pipeline.predict(pd.DataFrame({"x": [1234.0], "z": [1.0], "place": ["town"]}))
        np.testing.assert_allclose(told, expected[0])


class TestIntervals:
    def test_they_are_those_of_the_estimate(self, done, tmp_path):
        new = table(8, seed=5).drop(columns="y")
        new.to_csv(tmp_path / "new.csv", index=False)
        command = ["predict", str(done / "full"), str(tmp_path / "new.csv"), "--interval", "0.8"]
        assert run([*command, "--out", str(tmp_path / "p.csv")]) == 0
        found = pd.read_csv(tmp_path / "p.csv")
        pipeline, frame = saved.load(str(done / "full")), table()
        est = onefit.loo(pipeline, frame.drop(columns="y"), frame["y"])
        np.testing.assert_allclose(found[["lower", "upper"]], est.interval(new, coverage=0.8), rtol=1e-4)

    def test_residuals_alone_where_rows_left_together(self):
        judged = LeftOutTable(np.arange(99), *np.zeros((3, 99)), "squared error", np.ones(99), together=True)
        est = type("Estimate", (), {"classes": None})()
        kept = intervals.keep(est, judged, np.arange(1.0, 100.0), 3)
        assert "coef" not in kept
        bounds = intervals.bounds(kept, np.zeros((2, 3)), np.array([0.0, 10.0]), 0.9)
        np.testing.assert_allclose(bounds, [[-90, 90], [-80, 100]])

    def test_groups_count_as_one_each(self, tmp_path, capsys):
        frame = table(60).assign(site=np.r_[np.zeros(41, int), np.arange(1, 20)])
        frame.to_csv(tmp_path / "t.csv", index=False)
        command = ["tune", str(tmp_path / "t.csv"), "--target", "y", "--groups", "site", "--model", "ridge"]
        assert run([*command, "--out", str(tmp_path / "o")]) == 0
        kept = saved.card_of(saved.load(str(tmp_path / "o")))["intervals"]
        sizes = np.bincount(kept["groups"])
        assert sorted(sizes.tolist()) == [1] * 19 + [41]
        one = np.zeros(1)
        (_, high), *_ = intervals.bounds(kept, np.zeros((1, 1)), one, 0.5)
        order = np.argsort(np.abs(kept["residuals"]))
        shares = 1.0 / (21 * sizes[kept["groups"]][order])
        wanted = np.abs(kept["residuals"])[order][np.cumsum(shares) >= 0.5][0]
        assert high == pytest.approx(wanted)
        new = [str(tmp_path / "o"), str(tmp_path / "t.csv"), "--interval", "0.99"]
        capsys.readouterr()
        assert run(["predict", *new]) == 0
        assert "20 groups are too few for intervals of 99%" in capsys.readouterr().err

    def test_too_few_rows_are_told(self, done, tmp_path, capsys):
        table(3).to_csv(tmp_path / "new.csv", index=False)
        assert run(["predict", str(done / "full"), str(tmp_path / "new.csv"), "--interval", "0.999"]) == 0
        assert "60 left-out rows are too few for intervals of 99.9%: they are" in capsys.readouterr().err

    def test_classes_have_none(self, tmp_path, capsys):
        table().to_csv(tmp_path / "t.csv", index=False)
        command = [
            "tune",
            str(tmp_path / "t.csv"),
            "--target",
            "place",
            "--model",
            "logistic",
            "--audit",
            "0",
        ]
        assert run([*command, "--out", str(tmp_path / "o")]) == 0
        assert run(["predict", str(tmp_path / "o"), str(tmp_path / "t.csv"), "--interval", "0.9"]) == 2
        assert "--interval is for numbers" in capsys.readouterr().err


class TestConfig:
    def test_options_come_from_the_file_unless_they_are_given(self, done, tmp_path, capsys):
        config = tmp_path / "onefit.toml"
        config.write_text('target = "y"\n[tune]\nmodel = "lasso"\ndrop = ["z"]\naudit = 0\n')
        assert run(["tune", str(done / "t.csv"), "--config", str(config)]) == 0
        out = capsys.readouterr().out
        assert "lasso tuned by" in out
        assert "left out column z: you asked to drop it" in out
        assert run(["tune", str(done / "t.csv"), "--config", str(config), "--model", "ridge"]) == 0
        assert "ridge tuned by" in capsys.readouterr().out

    def test_every_option_has_the_name_of_the_command_line(self, done, tmp_path, capsys):
        config = tmp_path / "onefit.toml"
        options = '[tune]\ntime = "z"\nmemory-limit = "1G"\nmodel = "ridge"\n[loo]\nexact = true\n'
        config.write_text(options, encoding="utf-8-sig")  # as editors on Windows write it
        assert run(["tune", str(done / "t.csv"), "--target", "y", "--config", str(config)]) == 0
        assert "tuned by predicting later rows from earlier ones" in capsys.readouterr().out


class TestGroupsOfASavedModel:
    def test_they_are_those_of_the_library(self, done, tmp_path, capsys):
        frame = table().assign(who=np.arange(60) // 6)
        frame.to_csv(tmp_path / "t.csv", index=False)
        command = ["loo", str(done / "full"), str(tmp_path / "t.csv"), "--target", "y", "--groups", "who"]
        assert run(command) == 0
        out = capsys.readouterr().out
        pipeline = saved.load(str(done / "full"))
        est = onefit.loo(pipeline, frame[["x", "z", "place"]], frame["y"], groups=frame["who"].to_numpy())
        assert "each of the 10 who left out with all its rows" in out
        assert with_error(est.value, est.std_error) in out


class TestProgress:
    def test_remaining_time_goes_by_the_pace_so_far(self):
        progress = Progress({"a": 1.0, "b": 3.0, "c": 2.0})
        assert progress.remaining(1.0) is None
        progress._done.add("a")
        progress._spent = 2.0
        progress._current = "b"
        assert progress.remaining(1.0) == pytest.approx(5.0 + 4.0)
        assert progress.line(progress._started + 1.0) == "[2 of 3] b, 1 s, about 9 s left in all"

    def test_silent_in_a_pipe(self, capsys):
        with Progress({"a": 1.0}).stage("a"):
            pass
        assert capsys.readouterr().err == ""


def test_help_and_version_import_nothing_heavy():
    program = (
        "import sys\nfrom onefit.cli import run\nassert run(['--version']) == 0\n"
        "assert run(['tune', '--help']) == 0\n"
        "heavy = {'numpy', 'pandas', 'sklearn', 'scipy', 'matplotlib', 'skops', 'pyarrow', 'jinja2'}\n"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")


def test_codes_in_tune_and_predict(tmp_path, capsys):
    """Leading zeros make levels, which new rows without any are read like; months may order rows."""
    rng = np.random.default_rng(0)
    place, month = rng.choice(["01067", "04109", "20095"], 60), np.arange(60) // 5
    frame = pd.DataFrame(
        {"zip": place, "month": [f"{one + 1:02d}" for one in month], "x": rng.normal(size=60)}
    )
    frame["y"] = frame["x"] + 3.0 * (place == "20095") + 0.1 * rng.normal(size=60)
    frame.to_csv(tmp_path / "t.csv", index=False)
    command = ["tune", str(tmp_path / "t.csv"), "--target", "y", "--model", "ridge", "--audit", "0"]
    assert run([*command, "--time", "month", "--drop", "zip"]) == 0
    assert "later rows by month" in capsys.readouterr().out
    asked = ["--target", "month", "--task", "regression", "--model", "ridge", "--audit", "0"]
    assert run(["tune", str(tmp_path / "t.csv"), *asked]) == 0
    assert "month of t.csv: regression (as asked)" in capsys.readouterr().out
    assert run([*command, "--drop", "month", "--out", str(tmp_path / "o")]) == 0
    assert "zip=20095" in capsys.readouterr().out
    (tmp_path / "new.csv").write_text("zip,x\n20095,0\n,0\n", encoding="utf-8")
    assert run(["predict", str(tmp_path / "o" / "model.skops"), str(tmp_path / "new.csv")]) == 0
    out, err = capsys.readouterr()
    assert "never seen" not in err
    assert float(out.splitlines()[1].split(",")[1]) > 2.5
