import os
import re
import signal
import subprocess
import sys
import zipfile
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.base import BaseEstimator
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import onefit
from onefit import __main__
from onefit.cli import families, files, leave, run, saved, tune, tuning
from onefit.cli.errors import TableError
from onefit.risk.audit import Audit
from onefit.risk.presentation import with_error


class Foreign(BaseEstimator):
    def predict(self, X):
        return X


@pytest.fixture
def house(tmp_path):
    """A table with text, gaps, a date, an identifier and three kinds of target."""
    rng = np.random.default_rng(0)
    n = 80
    size, place = rng.normal(size=n), rng.choice(["town", "coast", "hill"], n)
    price = 3 * size + (place == "coast") + rng.normal(size=n)
    frame = pd.DataFrame(
        {
            "id": np.arange(n),
            "size": np.where(rng.uniform(size=n) < 0.1, np.nan, size),
            "place": np.where(rng.uniform(size=n) < 0.1, None, place),
            "built": pd.date_range("2001-01-01", periods=n).astype(str),
            "price": price,
            "sold": np.where(price + rng.normal(size=n) > 0, "yes", "no"),
            "visits": rng.poisson(np.exp(0.5 * size)),
            "w": rng.uniform(0.5, 2.0, size=n),
        }
    )
    path = tmp_path / "house.csv"
    frame.to_csv(path, index=False)
    return path


def tuned(house, target, *more):
    others = {"price", "sold", "visits", "w"} - {target, *more}
    dropped = [word for name in sorted(others) for word in ("--drop", name)]
    quick = [] if "--audit" in more else ["--audit", "0"]
    return run(["tune", str(house), "--target", target, *dropped, *quick, *more])


def printed(out: str) -> float:
    """The risk of ``onefit loo``, to the digits that it has."""
    return float(re.search(r"leave-one-out [a-z- ]+ ([0-9.]+) ±", out)[1])


class TestTune:
    @pytest.mark.parametrize(
        ("target", "models"),
        [
            ("price", ["ridge", "lasso", "elasticnet", "mean only"]),
            ("sold", ["logistic", "logistic-l1", "class frequencies"]),
            ("visits", ["poisson", "ridge", "mean only"]),
        ],
    )
    @pytest.mark.usefixtures("with_pictures")
    def test_writes_everything(self, house, tmp_path, capsys, target, models):
        assert tuned(house, target, "--out", str(tmp_path / "out")) == 0
        out, err = capsys.readouterr()
        assert err == ""
        for name in models:
            assert f"  {name} " in out
        assert "left out column id: counts the rows" in out
        assert "better than predicting" in out
        written = sorted(path.name for path in (tmp_path / "out").iterdir())
        assert written == [
            "coefficients.csv",
            "model.skops",
            "predictions.csv",
            "report.html",
            "summary.json",
        ]
        assert len(pd.read_csv(tmp_path / "out" / "predictions.csv")) == 80

    @pytest.mark.costly
    @pytest.mark.parametrize("model", ["ridge", "lasso", "elasticnet", "logistic", "logistic-l1", "poisson"])
    def test_each_model_saves_and_returns(self, house, tmp_path, capsys, model):
        target = {"logistic": "sold", "logistic-l1": "sold", "poisson": "visits"}.get(model, "price")
        assert tuned(house, target, "--model", model, "--out", str(tmp_path)) == 0
        table = pd.read_csv(tmp_path / "predictions.csv")
        model_file, again = str(tmp_path / "model.skops"), tmp_path / "again.csv"
        capsys.readouterr()
        assert run(["loo", model_file, str(house), "--target", target, "--out", str(again)]) == 0
        assert "leave-one-out" in capsys.readouterr().out
        repeated = pd.read_csv(again)
        np.testing.assert_allclose(repeated["loss"], table["loss"], rtol=1e-3, atol=1e-4)
        assert run(["predict", model_file, str(house)]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith("row,prediction")
        assert len(lines) == 81

    def test_weights(self, house, tmp_path, capsys):
        weighted = ["--weights", "w", "--out", str(tmp_path)]
        assert tuned(house, "price", "--model", "ridge", *weighted) == 0
        model_file = str(tmp_path / "model.skops")
        capsys.readouterr()
        assert run(["loo", model_file, str(house), "--target", "price", "--weights", "w"]) == 0
        out = capsys.readouterr().out
        frame = pd.read_csv(tmp_path / "predictions.csv")
        expected = np.average(frame["loss"], weights=pd.read_csv(house)["w"])
        assert printed(out) == pytest.approx(expected, rel=5e-3)

    def test_rows_without_target(self, house, tmp_path, capsys):
        frame = pd.read_csv(house)
        frame.loc[:4, "price"] = np.nan
        frame.to_csv(house, index=False)
        assert tuned(house, "price", "--model", "ridge", "--out", str(tmp_path)) == 0
        assert "5 rows without a target" in capsys.readouterr().out
        assert pd.read_csv(tmp_path / "predictions.csv")["row"].tolist() == list(range(5, 80))

    def test_two_decimal_numbers_are_classes(self, house, tmp_path, capsys):
        frame = pd.read_csv(house)
        frame["sold"] = frame["sold"].map({"no": 0.5, "yes": 1.5})
        frame.to_csv(house, index=False)
        assert tuned(house, "sold", "--out", str(tmp_path)) == 0
        told = capsys.readouterr()
        assert "binary (two distinct numbers)" in told.out
        assert told.err == ""
        rows = pd.read_csv(tmp_path / "predictions.csv", dtype=str)
        assert rows["y"].tolist() == frame["sold"].map(str).tolist()
        assert {*rows["left_out"]} == {"0.5", "1.5"}
        assert run(["predict", str(tmp_path), str(house)]) == 0
        assert capsys.readouterr().out.startswith("row,prediction,prediction_0.5,prediction_1.5\n")

    def test_a_class_that_is_called_none(self, house, tmp_path, capsys):
        frame = pd.read_csv(house)
        frame["sold"] = frame["sold"].replace("no", "None")
        frame.to_csv(house, index=False)
        assert tuned(house, "sold", "--model", "logistic", "--out", str(tmp_path)) == 0
        out = capsys.readouterr().out
        assert "binary (as asked), 80 rows" in out
        assert f"sold is 'None' in {(frame['sold'] == 'None').sum()} rows: taken as a label" in out
        assert run(["loo", str(tmp_path / "model.skops"), str(house), "--target", "sold"]) == 0
        again = capsys.readouterr().out
        loss = pd.read_csv(tmp_path / "predictions.csv")["loss"].mean()
        assert printed(again) == pytest.approx(loss, rel=5e-3)
        assert "note: sold is 'None' in" in again

    def test_large_numbers_have_exponents(self, house, capsys):
        frame = pd.read_csv(house)
        frame.assign(price=1e12 * frame["price"]).to_csv(house, index=False)
        assert tuned(house, "price", "--model", "ridge", "--audit", "10") == 0
        assert not re.search(r"\d{12}", out := capsys.readouterr().out)
        assert re.search(r"Audit of ridge: left-out squared error [\d.]+e\+24 \[", out)

    def test_a_score_of_zero_has_no_sign(self, house, capsys):
        frame, noise = pd.read_csv(house)[["size", "w"]], np.random.default_rng(0)
        frame.assign(sold=noise.permutation(np.repeat(["a", "b"], len(frame) // 2))).to_csv(
            house, index=False
        )
        assert run(["tune", str(house), "--target", "sold", "--model", "logistic-l1", "--audit", "0"]) == 0
        assert "accuracy 0" in (out := capsys.readouterr().out)
        assert not re.search(r"-0(?![.\d])", out)

    def test_what_time_says_of_the_choice(self, house, capsys):
        assert tuned(house, "price", "--model", "ridge", "--time", "built") == 0
        out = capsys.readouterr().out
        assert "ridge tuned by predicting later rows from earlier ones." in out
        assert "better than predicting the mean of the rows before for later rows by built" in out

    def test_a_model_that_fails_is_left_out(self, house, capsys, monkeypatch):
        def fail(*_args, **_kwargs):
            raise ValueError("no\nway")

        monkeypatch.setattr(onefit.LassoLOO, "fit", fail)
        assert tuned(house, "price") == 0
        out, err = capsys.readouterr()
        assert "onefit: warning: lasso was left out: no way" in err
        assert "ridge" in out
        assert tuned(house, "price", "--model", "lasso") == 2
        assert capsys.readouterr().err == "onefit: error: no way\n"

    def test_warnings_are_one_line(self, capsys):
        with tuning.Told().about("ridge"):
            import warnings

            for _ in range(2):
                warnings.warn("rows\n  to look at", onefit.UnreliableWarning, stacklevel=1)
        assert capsys.readouterr().err == "onefit: warning: ridge: rows to look at\n"

    def test_differences_that_are_rounding_are_none(self, tmp_path, capsys):
        """Rows at the mean of the columns or of the target: without any of them coefficients are zero."""
        x = ["45.04,15,115.165", "53.29,61,115.165", "49.165,38,107.45", "49.165,38,122.88"]
        (tmp_path / "four.csv").write_text("\n".join(["size,age,price", *x]), encoding="utf-8")
        assert run(["tune", str(tmp_path / "four.csv"), "--target", "price", "--audit", "0"]) == 0
        told = capsys.readouterr().out
        assert "No model is better than predicting the mean" in told
        assert "e-" not in told.split("model")[1]
        assert "better than any other" not in told


class TestAudit:
    def test_of_the_chosen_pipeline(self, house, tmp_path, capsys):
        assert tuned(house, "price", "--model", "lasso", "--audit", "6", "--out", str(tmp_path)) == 0
        out, err = capsys.readouterr()
        assert err == ""
        assert "Audit of lasso: left-out squared error" in out
        frame = pd.read_csv(house)
        pipeline = saved.load(str(tmp_path / "model.skops"))
        features = frame[list(pipeline.feature_names_in_)]
        low, high = onefit.loo(pipeline, features, frame["price"], audit=6, rng=0).audit.interval
        told = out.split("Audit of lasso")[1].split("[")[1].split("]")[0]
        np.testing.assert_allclose([float(end) for end in told.split(", ")], [low, high], rtol=0.01)
        assert f"[{told}]" in (tmp_path / "report.html").read_text(encoding="utf-8")

    def test_is_made_unless_it_is_switched_off(self, house, capsys):
        assert run(["tune", str(house), "--target", "price", "--model", "ridge"]) == 0
        assert f"by {tuning.AUDITED} refits" in capsys.readouterr().out
        assert tuned(house, "price", "--model", "ridge", "--audit", "0") == 0
        assert "Audit" not in capsys.readouterr().out

    def test_of_more_rows_than_there_are(self, house, capsys):
        pd.read_csv(house).iloc[:25].to_csv(house, index=False)
        assert tuned(house, "price", "--model", "ridge", "--audit", "1000") == 0
        assert "by 25 refits" in capsys.readouterr().out

    @pytest.mark.parametrize("m", ["1", "-3", "some"])
    def test_of_too_few(self, house, capsys, m):
        assert tuned(house, "price", "--audit", m) == 2
        assert "--audit" in capsys.readouterr().err

    def test_that_fails_loses_nothing_else(self, house, capsys, monkeypatch):
        def fail(*_args, **_kwargs):
            raise ValueError("all 6 refits failed")

        monkeypatch.setattr(tuning, "loo", fail)
        assert tuned(house, "price", "--model", "ridge", "--audit", "6") == 0
        out, err = capsys.readouterr()
        assert err == "onefit: warning: there is no audit: all 6 refits failed\n"
        assert "ridge is clearly better" in out

    def test_interrupt_leaves_what_is_finished(self, house, tmp_path, capsys, monkeypatch):
        def interrupt(*_args, **_kwargs):
            raise KeyboardInterrupt

        monkeypatch.setattr("onefit.refits._refit", interrupt)
        out = tmp_path / "o"
        assert tuned(house, "price", "--model", "ridge", "--audit", "6", "--out", str(out)) == 130
        err = capsys.readouterr().err
        assert err.startswith("onefit: interrupted: ")
        assert "o holds model.skops, coefficients.csv, predictions.csv; summary.json, report.html not" in err
        assert sorted(path.name for path in out.iterdir()) == [
            "coefficients.csv",
            "model.skops",
            "predictions.csv",
        ]

    def test_warnings_are_told_once(self, capsys):
        import warnings

        told = tuning.Told()
        for about in ("ridge", "audit"):
            with told.about(about):
                warnings.warn("rows to look at", onefit.UnreliableWarning, stacklevel=1)
        assert capsys.readouterr().err == "onefit: warning: ridge: rows to look at\n"


class TestCategories:
    """Whole numbers that are codes."""

    @pytest.mark.parametrize("ending", ["csv", "parquet"])
    def test_each_is_a_level(self, ending, tmp_path, capsys):
        rng = np.random.default_rng(0)
        frame = pd.DataFrame({"x": rng.normal(size=90), "code": rng.integers(1, 4, 90)})
        frame["y"] = frame["x"] + np.array([0.0, 10.0, -3.0])[frame["code"] - 1] + rng.normal(size=90)
        file = tmp_path / f"t.{ending}"
        frame.to_csv(file, index=False) if ending == "csv" else frame.to_parquet(file)
        model, new = str(tmp_path / "o" / "model.skops"), str(tmp_path / "p.csv")
        assert run(["tune", str(file), "--target", "y", "--audit", "0"]) == 0
        out = capsys.readouterr().out
        assert "code: whole numbers from 0 or 1 on, read as a quantity; --category COLUMN" in out
        asked = ["--category", "code", "--audit", "0", "--out", str(tmp_path / "o")]
        assert run(["tune", str(file), "--target", "y", *asked]) == 0
        out = capsys.readouterr().out
        assert "code=3" in out
        assert "read as a quantity" not in out
        assert run(["predict", model, str(file), "--out", new]) == 0
        assert np.corrcoef(pd.read_csv(new)["prediction"], frame["y"])[0, 1] > 0.95

    @pytest.mark.parametrize(
        ("named", "said"), [("z", "there is no column 'z'"), ("y", "'y' holds fractions or dates")]
    )
    def test_what_is_none(self, named, said, house, capsys):
        table = pd.read_csv(house).assign(y=np.linspace(0.1, 0.9, len(pd.read_csv(house))))
        table.to_csv(house, index=False)
        assert run(["tune", str(house), "--target", "price", "--category", named]) == 2
        assert said in capsys.readouterr().err


class TestLoo:
    @pytest.fixture
    def model(self, house, tmp_path, capsys):
        assert tuned(house, "price", "--model", "lasso", "--out", str(tmp_path)) == 0
        capsys.readouterr()
        return str(tmp_path / "model.skops")

    def result(self, house, model, **how):
        frame = pd.read_csv(house)
        pipeline = saved.load(model)
        return onefit.loo(pipeline, frame[list(pipeline.feature_names_in_)], frame["price"], **how)

    def test_exact(self, house, model, capsys):
        assert run(["loo", model, str(house), "--target", "price", "--exact"]) == 0
        est = self.result(house, model, exact=True)
        out = capsys.readouterr().out
        assert with_error(est.value, est.std_error) in out
        assert str(est.refinement) in out

    def test_audit(self, house, model, capsys):
        assert run(["loo", model, str(house), "--target", "price", "--audit", "5"]) == 0
        assert str(self.result(house, model, audit=5, rng=0).audit) in capsys.readouterr().out

    def test_approximation_that_is_off_is_told(self, house, model, capsys, monkeypatch):
        audit = Audit(3.0, 0.1, (2.8, 3.2), np.arange(5), np.ones(5), np.ones(5), 2.0, 0.4)
        est = replace(self.result(house, model), audit=audit)
        monkeypatch.setattr(leave, "loo", lambda *_args, **_kwargs: est)
        assert run(["loo", model, str(house), "--target", "price", "--audit", "5"]) == 0
        assert "is off by +1: trust the audited value, 3.00 [2.80, 3.20]" in capsys.readouterr().out


def test_warnings_of_unreliable_risks_are_one_line(house, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("onefit.risk.judging.EXACT", -1.0)  # nothing is exact
    monkeypatch.setattr("onefit.risk.judging.UNRELIABLE", -1.0)  # any error is too much
    assert tuned(house, "price", "--model", "lasso", "--out", str(tmp_path)) == 0
    assert run(["loo", str(tmp_path / "model.skops"), str(house), "--target", "price"]) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if "may be off by" in line]
    assert [line.split(": ")[:3] for line in told] == [
        ["onefit", "warning", "lasso"],
        ["onefit", "warning", "loo"],
    ]


class TestRefusals:
    def errs(self, capsys, *arguments):
        assert run(list(arguments)) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("onefit: error: ")
        assert err.count("\n") == 1
        return err

    def test_usage(self, house, capsys):
        assert "--target" in self.errs(capsys, "tune", str(house))
        assert "bogus" in self.errs(capsys, "bogus")
        assert "'foo'" in self.errs(capsys, "tune", str(house), "--target", "price", "--model", "foo")

    @pytest.mark.parametrize(
        ("more", "message"),
        [
            (["--target", "prize"], "did you mean 'price'"),
            (["--target", "price", "--drop", "place, sold"], "it is several, 'place', 'sold'; name each"),
            (["--target", "sold", "--model", "ridge"], "is not a number"),
            (["--target", "price", "--model", "logistic"], "80 classes in 80 rows"),
            (["--target", "price", "--model", "poisson"], "is negative"),
            (["--target", "price", "--model", "ridge", "--task", "binary"], "ridge does not suit binary"),
            (["--target", "price", "--weights", "place"], "are not numbers"),
        ],
    )
    def test_data(self, house, capsys, more, message):
        err = self.errs(capsys, "tune", str(house), *more)
        assert message in err
        assert message.startswith("ridge does") or str(house) in err

    def test_no_file(self, tmp_path, capsys):
        assert "no such file" in self.errs(capsys, "tune", str(tmp_path / "x.csv"), "--target", "y")

    @pytest.mark.skipif(sys.platform == "win32", reason="Windows has no named pipes in folders")
    def test_a_pipe(self, tmp_path, capsys):
        os.mkfifo(tmp_path / "pipe")
        for name in ("-", str(tmp_path / "pipe")):
            assert "cannot be read twice" in self.errs(capsys, "tune", name, "--target", "y")

    def test_folder_is_checked_before_the_work(self, house, tmp_path, capsys, monkeypatch):
        monkeypatch.setattr(tune, "read_table", lambda *_: pytest.fail("worked before it looked"))
        (tmp_path / "file").touch()
        out = str(tmp_path / "file" / "deep")
        assert "cannot write into" in self.errs(capsys, "tune", str(house), "--target", "price", "--out", out)

    def test_file_is_checked_before_the_work(self, house, tmp_path, capsys):
        for out in (tmp_path, tmp_path / "nowhere" / "p.csv"):
            assert "cannot write" in self.errs(capsys, "predict", "m", str(house), "--out", str(out))

    def test_failed_work_leaves_no_folder(self, house, tmp_path, capsys):
        self.errs(capsys, "tune", str(house), "--target", "x", "--out", str(tmp_path / "new"))
        assert not (tmp_path / "new").exists()

    def test_table_of_another_kind(self, house, tmp_path, capsys):
        assert tuned(house, "price", "--model", "ridge", "--out", str(tmp_path)) == 0
        model_file = str(tmp_path / "model.skops")
        capsys.readouterr()
        other = tmp_path / "other.csv"
        pd.read_csv(house).rename(columns={"size": "Size"}).to_csv(other, index=False)
        assert "no column 'size' (1 of the 3 that the model needs); did you mean 'Size'" in self.errs(
            capsys, "predict", model_file, str(other)
        )
        pd.read_csv(house).assign(size="big").to_csv(other, index=False)
        assert "'size' must hold numbers" in self.errs(capsys, "predict", model_file, str(other))
        assert "is a feature" in self.errs(capsys, "loo", model_file, str(house), "--target", "size")
        pd.read_csv(house).iloc[::2].to_csv(other, index=False)
        assert "far from optimal" in self.errs(capsys, "loo", model_file, str(other), "--target", "price")


class TestSavedModels:
    def test_of_scikit_learn(self, house, tmp_path, capsys):
        frame = pd.read_csv(house).dropna()
        clean = tmp_path / "clean.csv"
        frame.to_csv(clean, index=False)
        model = make_pipeline(StandardScaler(), Ridge()).fit(frame[["size", "w"]], frame["price"])
        skops.io.dump(model, tmp_path / "m.skops")
        assert run(["loo", str(tmp_path / "m.skops"), str(clean), "--target", "price"]) == 0
        expected = onefit.loo(model, frame[["size", "w"]], frame["price"])
        assert with_error(expected.value, expected.std_error) in capsys.readouterr().out

    def test_foreign_types_are_refused(self, tmp_path):
        skops.io.dump(Foreign(), tmp_path / "m.skops")
        with pytest.raises(TableError, match=r"Foreign\. They could run any code"):
            saved.load(str(tmp_path / "m.skops"))

    def test_what_is_no_model(self, tmp_path):
        path = tmp_path / "m.skops"
        with pytest.raises(TableError, match="no such file"):
            saved.load(str(path))
        path.write_text("")
        with pytest.raises(TableError, match="is empty: write the model anew"):
            saved.load(str(path))
        path.write_text("hello")
        with pytest.raises(TableError, match=r"not a model saved by skops: .*; a model is the model\.skops"):
            saved.load(str(path))
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("schema.json", "{}")
        with pytest.raises(TableError, match="not a model saved by skops"):
            saved.load(str(path))
        skops.io.dump([1, 2], path)
        with pytest.raises(TableError, match="cannot predict"):
            saved.load(str(path))


class TestFiles:
    def test_half_a_file_never_shows(self, tmp_path, monkeypatch):
        path = tmp_path / "report.html"
        path.write_text("old")

        def interrupt(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(os, "replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            files.write(path, b"new")
        assert path.read_text() == "old"
        assert list(tmp_path.iterdir()) == [path]

    def test_permissions_are_ordinary(self, tmp_path):
        files.write(tmp_path / "a", b"x")
        (tmp_path / "b").write_bytes(b"x")
        assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


class TestProcess:
    @pytest.mark.parametrize("strengths", [15, pytest.param(families.STRENGTHS, marks=pytest.mark.slow)])
    def test_demo(self, tmp_path, capsys, monkeypatch, strengths):
        monkeypatch.setattr(families, "STRENGTHS", strengths)
        assert run(["demo", "--out", str(tmp_path)]) == 0
        assert (tmp_path / "diabetes" / "report.html").is_file()
        assert (tmp_path / "breast_cancer" / "model.skops").is_file()
        assert capsys.readouterr().err == ""

    def test_help_and_version(self, capsys):
        assert run(["--help"]) == 0
        assert run(["--version"]) == 0
        assert onefit.__version__ in capsys.readouterr().out
        assert run([]) == 2

    def test_interrupt(self, house, capsys, monkeypatch):
        def interrupt(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(tune, "read_table", interrupt)
        assert run(["tune", str(house), "--target", "price"]) == 130
        assert capsys.readouterr().err == "onefit: interrupted\n"

    @pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no SIGINT to one process")
    def test_interrupt_from_outside(self, house, tmp_path):
        hang = (
            "import signal, time\nfrom onefit.cli import tuning\nfrom onefit.__main__ import main\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # whatever this process does with it
            "tuning.tuned = lambda *_: (print('fitting', flush=True), time.sleep(300))\nmain()"
        )
        command = [
            sys.executable,
            "-c",
            hang,
            "tune",
            str(house),
            "--target",
            "price",
            "--out",
            str(tmp_path / "o"),
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "fitting\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
        assert (process.returncode, err) == (130, "onefit: interrupted\n")
        assert not (tmp_path / "o").exists()

    @pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no SIGINT to one process")
    def test_interrupt_while_modules_load(self):
        load = (
            "import builtins, signal, time\nfrom onefit.__main__ import main\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)\nload = builtins.__import__\n"
            "def swallowing(name, *own):\n"
            "    if name == 'onefit.cli.app':\n"
            "        try:\n"
            "            print('loading', flush=True)\n"
            "            time.sleep(300)\n"
            "        except KeyboardInterrupt:\n"
            "            raise ImportError('initialization failed')\n"
            "    return load(name, *own)\n"
            "builtins.__import__ = swallowing\nmain()"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", load], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "loading\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
        assert (process.returncode, err) == (130, "onefit: interrupted\n")

    def test_without_the_extra(self, capsys, monkeypatch):
        monkeypatch.delitem(sys.modules, "onefit.cli.app")
        monkeypatch.setitem(sys.modules, "click", None)
        with pytest.raises(SystemExit, match="2"):
            __main__.main()
        assert "pip install '.[cli]'" in capsys.readouterr().err

    def test_reader_that_leaves(self, house):
        command = f"{sys.executable} -m onefit tune {house} --target price --model ridge --audit 0 | true"
        done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
        assert done.stderr == ""
