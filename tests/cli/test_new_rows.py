"""Rows for a saved model that are written otherwise than those that it was fitted on."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import skops.io

from onefit.cli import run, saved


def table(n=80, **columns):
    """Numbers x and y, and columns of which y may depend on one."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=n)
    return pd.DataFrame({"x": x, **columns, "y": x + 0.1 * rng.normal(size=n)})


def tuned(path, *more):
    """Tune on a file, and return where the model is."""
    out = path.parent / "model"
    command = ["tune", str(path), "--target", "y", "--model", "ridge", "--audit", "0", *more]
    assert run([*command, "--out", str(out)]) == 0
    return str(out)


@pytest.mark.costly
@pytest.mark.parametrize(
    "levels",
    [["1", "2", "3", "4A"], ["TRUE", "FALSE", "maybe"], ["1.0", "1.10", "2.0", "n/k"], ["007", "12", "x"]],
)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_text_is_read_as_text_where_no_cell_has_letters(tmp_path, capsys, levels, kind):
    """The odd level is missing among new rows, which are then digits or truths to a reader."""
    frame = table(level=np.resize(levels, 80))
    frame["y"] += 3.0 * (frame["level"] == levels[0])
    path = tmp_path / f"t.{kind}"
    frame.to_csv(path, index=False) if kind == "csv" else frame.astype({"level": "category"}).to_parquet(path)
    model = tuned(path)
    capsys.readouterr()
    (tmp_path / "new.csv").write_text(f"x,level\n0,{levels[0]}\n0,{levels[1]}\n0,\n", encoding="utf-8")
    with pytest.warns(UserWarning, match="unknown categories"):
        expected = saved.load(model).predict(pd.DataFrame({"x": np.zeros(3), "level": [*levels[:2], None]}))
    assert run(["predict", model, str(tmp_path / "new.csv")]) == 0
    out, err = capsys.readouterr()
    assert "never seen" not in err
    np.testing.assert_allclose([float(line.split(",")[1]) for line in out.splitlines()[1:]], expected)
    assert expected[0] - expected[1] > 2.5


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_other_signs_than_those_of_the_model_are_told(tmp_path, capsys, kind):
    frame = table(40, share=np.linspace(1, 99, 40), price=np.linspace(99, 1, 40) ** 2)
    signed = frame.assign(
        share=[f"{one}%" for one in frame["share"]], price=[f"${one}" for one in frame["price"]]
    )
    signed.to_csv(tmp_path / "t.csv", index=False)
    model = tuned(tmp_path / "t.csv")
    capsys.readouterr()
    new = tmp_path / f"new.{kind}"
    plain = frame.assign(share=frame["share"] / 100)
    plain.to_csv(new, index=False) if kind == "csv" else plain.to_parquet(new)
    assert run(["predict", model, str(new)]) == 0
    err = capsys.readouterr().err
    assert "share with no sign here, and with % where the model was fitted: the numbers were taken" in err
    assert "price with no sign here, and with $ where the model was fitted" in err
    frame.to_csv(new, index=False) if kind == "csv" else frame.to_parquet(new)
    assert run(["loo", model, str(new), "--target", "y"]) == 0
    assert "share with no sign here, and with % where the model was fitted" in capsys.readouterr().out
    assert run(["predict", model, str(tmp_path / "t.csv")]) == 0
    err = capsys.readouterr().err
    assert "where the model was fitted" not in err
    assert "onefit: note: currency and percent signs were taken off share, price" in err
    assert "warning" not in err


def test_a_model_that_knows_of_no_signs_still_predicts(tmp_path, capsys):
    """One that was saved before they were kept."""
    table(share=[f"{k}%" for k in range(80)]).to_csv(tmp_path / "t.csv", index=False)
    path = Path(tuned(tmp_path / "t.csv")) / "model.skops"
    pipeline = saved.load(str(path))
    card = saved.card_of(pipeline)
    card["format"] = {name: card["format"][name] for name in ("decimal", "columns", "codes")}
    path.write_bytes(skops.io.dumps(pipeline))
    table(share=range(80)).to_csv(tmp_path / "new.csv", index=False)
    capsys.readouterr()
    assert run(["predict", str(path), str(tmp_path / "new.csv")]) == 0
    assert capsys.readouterr().err == ""


DAYS = pd.date_range("2020-01-01", periods=80, freq="9D")


@pytest.mark.costly
@pytest.mark.parametrize("fitted", ["%m/%d/%Y", "%Y-%m-%d", "%d.%m.%Y"])
@pytest.mark.parametrize("new", ["%Y-%m-%d", "%d.%m.%Y", "%b %d, %Y", "%d/%m/%Y"])
def test_dates_in_another_format(tmp_path, capsys, fitted, new):
    frame = table(day=DAYS)
    frame["y"] += np.arange(80) / 8
    frame.assign(day=DAYS.strftime(fitted)).to_csv(tmp_path / "t.csv", index=False)
    model = tuned(tmp_path / "t.csv")
    expected = saved.load(model).predict(frame)
    frame.assign(day=DAYS.strftime(new)).to_csv(tmp_path / "new.csv", index=False)
    capsys.readouterr()
    assert run(["predict", model, str(tmp_path / "new.csv")]) == 0
    out, err = capsys.readouterr()
    assert "read as text" not in err
    np.testing.assert_allclose([float(line.split(",")[1]) for line in out.splitlines()[1:]], expected)


@pytest.mark.costly
@pytest.mark.parametrize(
    ("fitted", "cells", "says"),
    [
        (
            "%Y-%m-%d",
            ["01/02/2020", "03/04/2020"],
            "dates such as 2024-01-31, but row 0 has '01/02/2020'; --day-first",
        ),
        ("%d.%m.%Y", ["01.02.2020", "soon"], "dates written %d.%m.%Y, but row 1 has 'soon' (rows are"),
        ("%Y-%m-%d", ["2020-01-31", "soon"], "dates such as 2024-01-31, but row 1 has 'soon' (rows are"),
        ("%m/%d/%Y", ["20200131", "20200201"], "dates written %m/%d/%Y, but row 0 has '20200131' (rows"),
        ("%Y-%m-%d", ["43861", "43862"], "dates such as 2024-01-31, but row 0 has '43861' (rows are"),
    ],
)
@pytest.mark.parametrize("command", ["predict", "loo"])
def test_what_is_no_date_is_named(tmp_path, capsys, fitted, cells, says, command):
    table(day=DAYS.strftime(fitted)).to_csv(tmp_path / "t.csv", index=False)
    model = tuned(tmp_path / "t.csv")
    table(n=4, day=np.resize(cells, 4)).to_csv(tmp_path / "new.csv", index=False)
    capsys.readouterr()
    more = ["--target", "y"] if command == "loo" else []
    assert run([command, model, str(tmp_path / "new.csv"), *more]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert f"new.csv: column 'day' must hold {says}" in err


def test_which_of_day_and_month_comes_first_can_be_said(tmp_path, capsys):
    table(day=DAYS.strftime("%m/%d/%Y")).to_csv(tmp_path / "t.csv", index=False)
    model = tuned(tmp_path / "t.csv")
    new = pd.DataFrame({"x": [0.0, 0.0], "day": ["01/02/2020", "03/04/2020"]})
    new.to_csv(tmp_path / "new.csv", index=False)
    for option, form in (("--month-first", "%m/%d/%Y"), ("--day-first", "%d/%m/%Y")):
        capsys.readouterr()
        assert run(["predict", model, str(tmp_path / "new.csv"), option]) == 0
        out = capsys.readouterr().out
        expected = saved.load(model).predict(new.assign(day=pd.to_datetime(new["day"], format=form)))
        np.testing.assert_allclose([float(line.split(",")[1]) for line in out.splitlines()[1:]], expected)
