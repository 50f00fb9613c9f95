"""Tables that are read in passes: the same columns, marks and notes as of a table in memory."""

import csv
from decimal import Decimal
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from pandas._libs.parsers import STR_NA_VALUES

from onefit.cli import dataset, marks, run, saved, seen, streaming

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


ROWS = 300


def table(n=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n, 2)), columns=["a", "b"])
    frame["y"] = frame["a"] + rng.normal(size=n)
    return frame


def folder(place, *frames):
    for k, frame in enumerate(frames):
        file = place / "parts" / f"part{k}.parquet"
        file.parent.mkdir(exist_ok=True)
        frame.to_parquet(file)
    return place / "parts"


def text(place, frame, **how):
    frame.to_csv(place / "t.csv", index=False, **how)
    return place / "t.csv"


def said(capsys, file, *words, target="y", code=0):
    command = ["tune", str(file), "--target", target, "--memory-limit", "1K", *map(str, words)]
    assert run(command) == code
    found = capsys.readouterr()
    return " ".join((found.err if code else found.out).split())


def model_of(place):
    return list(pd.read_csv(place / "coefficients.csv")["feature"])


def test_an_index_that_numbers_rows_is_no_feature(tmp_path, capsys):
    frame = table()
    frame["y"] += np.arange(ROWS)
    mixed = frame.sample(frac=1.0, random_state=0)
    file = folder(tmp_path, mixed[:150], mixed[150:])
    told = said(capsys, file, "--model", "ridge", "--out", tmp_path / "out")
    assert "2 columns" in told
    assert "note:" not in told
    assert sorted(model_of(tmp_path / "out")) == ["a", "b"]


@pytest.mark.parametrize(
    ("index", "note", "width"),
    [
        (pd.Index(np.arange(ROWS)[::-1] ** 2, name="rank"), "the index was read as 'rank'", 3),
        (pd.RangeIndex(5, 5 + ROWS, name="rank"), "the index 'rank' counts the rows, and was left out", 2),
        (pd.Index([f"r{k}" for k in range(ROWS)]), "the index was left out where it has no name", 2),
    ],
)
def test_what_became_of_an_index_is_said(tmp_path, capsys, index, note, width):
    told = said(capsys, folder(tmp_path, table().set_index(index)), "--model", "ridge")
    assert f"note: {note}" in told
    assert f"{width} columns" in told


def test_columns_that_cannot_be_features_are_left_out_as_in_memory(tmp_path, capsys):
    frame = table().assign(
        const=3.0,
        number=np.arange(1.0, ROWS + 1),
        case_id=np.random.default_rng(1).permutation(ROWS) + 1000,
        shop_id=np.arange(ROWS) // 2 + 7,
    )
    whole = folder(tmp_path, frame[:150], frame[150:])
    frame.to_parquet(tmp_path / "t.parquet")
    told = said(capsys, whole, "--model", "ridge", "--drop", "b", "--out", tmp_path / "out")
    words = ["--target", "y", "--model", "ridge", "--drop", "b", "--audit", "0"]
    assert run(["tune", str(tmp_path / "t.parquet"), *words]) == 0
    memory = capsys.readouterr().out
    lines = [line for line in memory.splitlines() if line.startswith("left out column")]
    assert len(lines) == 4
    assert all(line in told for line in lines)
    assert sorted(model_of(tmp_path / "out")) == ["a", "shop_id"]
    kept = said(capsys, whole, "--model", "ridge", "--keep", "number", "--keep", "case_id")
    assert "5 columns" in kept
    drops = ["--drop", "a", "--drop", "b", "--drop", "shop_id"]
    none = said(capsys, whole, *drops, code=2)
    assert "no column is left to predict 'y' from: a (you asked to drop it)" in none


def test_the_scale_is_that_of_the_columns_that_are_left(tmp_path, capsys):
    frame = table()[["a", "y"]]
    first = pd.concat([pd.Series(2.0, frame.index, name="const"), 100.0 * frame["a"], frame["y"]], axis=1)
    said(capsys, folder(tmp_path, first), "--model", "ridge", "--out", tmp_path / "out")
    coef = pd.read_csv(tmp_path / "out" / "coefficients.csv")["coefficient"][0]
    assert coef == pytest.approx(0.01, rel=0.2)


def test_repeats_are_found_among_more_values_than_are_kept(monkeypatch):
    monkeypatch.setattr(seen, "MOST", 100)
    once, twice = seen.Repeats(), seen.Repeats()
    for k in range(20):
        once.add(np.arange(200.0) + 200 * k)
        twice.add(np.arange(200.0) + 200 * (k % 10))
    assert once.are_none
    assert not twice.are_none
    assert 0 < len(once.hashes) <= 100


def test_marks_of_pandas_are_all_known():
    assert {*marks.OF_PANDAS, ""} == STR_NA_VALUES


def test_marks_in_a_target_mean_what_they_mean_in_memory(tmp_path, capsys):
    frame = table()
    frame["y"] = np.where(frame["y"] > 0, "Yes", "No")
    frame.loc[::9, "y"] = "NA"
    told = said(capsys, text(tmp_path, frame), "--model", "logistic")
    assert "note: y is 'NA' in 34 rows: taken as missing" in told
    assert "note: 34 rows without a target (y) left out" in told
    assert "266 rows" in told
    frame["y"] = frame["y"].replace("No", "NA")
    told = said(capsys, text(tmp_path, frame), "--model", "logistic", "--out", tmp_path / "out")
    assert "binary" in told
    assert "note: y is 'NA' in" in told
    assert "taken as a label" in told
    assert set(pd.read_parquet(tmp_path / "out" / "predictions.parquet")["y"]) == {"Yes", "NA"}


def test_a_target_of_decimal_type_is_a_number(tmp_path, capsys):
    frame = table()
    y = pa.array([Decimal(f"{value:.3f}") for value in frame["y"]])
    pq.write_table(pa.table({"a": frame["a"], "b": frame["b"], "y": y}), tmp_path / "t.parquet")
    told = said(capsys, tmp_path / "t.parquet", "--out", tmp_path / "out")
    assert "regression" in told
    own = pd.read_parquet(tmp_path / "out" / "predictions.parquet")["y"]
    np.testing.assert_allclose(own, frame["y"], atol=0.001)


def test_a_table_without_rows_is_refused(tmp_path, capsys):
    assert "has a header but no rows" in said(capsys, folder(tmp_path, table()[:0]), code=2)


def test_columns_of_some_files_and_names_of_folders_are_named(tmp_path, capsys):
    frame = table()
    place = folder(tmp_path, frame[:150], frame[150:].assign(extra=1.0))
    for k in range(2):
        (place / f"year={k}").mkdir()
        frame.to_parquet(place / f"year={k}" / "part.parquet")
    told = said(capsys, place, "--model", "ridge")
    assert "note: left out, as the first file has no such column: extra" in told
    assert "note: left out, as names of folders are not read: year" in told


def test_one_value_in_the_first_rows(tmp_path, capsys, monkeypatch):
    frame = table()
    frame["y"] = 0
    told = said(capsys, text(tmp_path, frame), code=2)
    assert "target 'y' is '0' in every row: there is nothing to predict" in told
    monkeypatch.setattr(dataset, "HEAD", 200)
    frame.loc[200:, "y"] = 1
    told = said(capsys, text(tmp_path, frame), code=2)
    assert "target 'y' is '0' in the first 200 rows, and no others were looked at: say --task binary" in told
    assert "binary" in said(capsys, text(tmp_path, frame), "--task", "binary", "--model", "logistic")


def test_numbers_written_in_other_ways_are_told_of(tmp_path, capsys):
    frame = table()
    commas = text(tmp_path, frame, sep=";", decimal=",")
    assert "'a', 'b', 'y' are not: say --decimal , if commas are decimal" in said(capsys, commas, code=2)
    said(capsys, commas, "--model", "ridge", "--decimal", ",")
    alone = text(
        tmp_path, frame.round(0).astype({"a": int, "b": int}).assign(y=frame["y"]), sep=";", decimal=","
    )
    assert "'y' is not: say --decimal ," in said(capsys, alone, code=2)
    grouped = frame.assign(a=[f"{5000 * value:,.2f}" for value in frame["a"]])
    told = said(capsys, text(tmp_path, grouped), code=2)
    assert "'a' is not: write numbers without ',' between thousands, which are read in memory alone" in told
    marked = frame.assign(a=[f"{50_000 * value:_.2f}" for value in frame["a"]])
    told = said(capsys, text(tmp_path, marked), "--thousands", "_", code=2)
    assert "'a' is not: write numbers without '_' between thousands, which are read in memory alone" in told


def test_what_a_model_of_passes_cannot_do_is_said(tmp_path, capsys):
    frame = table()
    out = tmp_path / "out"
    said(capsys, folder(tmp_path, frame), "--model", "ridge", "--out", out)

    def refused(*words):
        assert run([*map(str, words)]) == 2
        return " ".join(capsys.readouterr().err.split())

    new = text(tmp_path, frame[:20])
    assert "a model that was tuned in passes does not keep" in refused(
        "predict", out, new, "--interval", "0.9"
    )
    assert "out holds a model that was tuned in passes" in refused("compare", out, tmp_path)
    frame.loc[7, "b"] = np.nan
    told = refused("predict", out, text(tmp_path, frame[:20]))
    assert "t.csv: column 'b' is missing in row 7: the model was tuned in passes" in told
    told = refused("predict", out, text(tmp_path, frame[:20].drop(columns="b")))
    assert "add it, with a number in every row" in told
    told = refused("predict", out, text(tmp_path, frame[:20].assign(a="x")))
    assert "t.csv: column 'a' holds no number, but 'x', in row 0" in told


@pytest.mark.costly
@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("labels", [(1.5, 2.5), (0.0, 1.0), (0, 1), (1.0, 2.5), (False, True), ("No", "yes")])
def test_labels_and_rows_without_one_are_as_in_memory(tmp_path, capsys, kind, labels):
    frame = table()
    frame["y"] = np.where(frame["y"] > 0, *labels).astype(object)
    frame.loc[[3, 207, 299], "y"] = None
    frame = frame.assign(y=frame["y"].infer_objects())
    file = tmp_path / f"t.{kind}"
    frame.to_csv(file, index=False) if kind == "csv" else frame.to_parquet(file)
    words = ["--model", "logistic", "--out"]
    told = said(capsys, file, *words, tmp_path / "passes")
    assert "297 rows" in told
    assert "note: 3 rows without a target (y) left out" in told
    command = ["tune", file, "--target", "y", "--audit", "0", *words, tmp_path / "memory"]
    assert run([*map(str, command)]) == 0
    assert "note: 3 rows without a target (y) left out" in capsys.readouterr().out
    passes, memory = (saved.load(str(tmp_path / name / "model.skops")) for name in ("passes", "memory"))
    assert passes.classes_.astype(str).tolist() == memory.classes_.astype(str).tolist()
    X = frame[["a", "b"]]
    np.testing.assert_allclose(passes.predict_proba(X), memory.predict_proba(X), atol=0.02)
    own = pd.read_parquet(tmp_path / "passes" / "predictions.parquet")
    here = pd.read_csv(tmp_path / "memory" / "predictions.csv", dtype={"y": str})
    assert own["y"].astype(str).tolist() == here["y"].replace({"true": "True", "false": "False"}).tolist()


@pytest.mark.parametrize(
    ("column", "cell", "message"),
    [
        ("b", "red", "t.csv has 'red' in column 'b', row 250, where rows before it have numbers: correct it"),
        ("b", "1,234.5", "t.csv has '1,234.5' in column 'b', row 250"),
        ("b", "?", "t.csv (rows 246 to 299) has NaN in column 'b', row 250: drop such rows"),
        ("label", "maybe", "t.csv (rows 246 to 299): target 'label' has a third class, 'maybe', and tables"),
        ("label", "None", "target 'label' has a third class, 'None'"),
        ("code", "2", "t.csv (rows 246 to 299): target 'code' has a third class, 2, and tables larger than"),
        ("late", "1", "class '1' of target 'late' has a single row"),
        ("late", "0", "target 'late' is '0' in every row: there is nothing to predict"),
    ],
)
def test_what_first_comes_after_the_rows_that_are_looked_at(
    tmp_path, capsys, monkeypatch, column, cell, message
):
    monkeypatch.setattr(dataset, "HEAD", 200)
    monkeypatch.setattr(pyarrow.csv, "ReadOptions", partial(pyarrow.csv.ReadOptions, block_size=4096))
    frame = table().assign(late=0)
    frame["label"], frame["code"] = np.where(frame["y"] > 0, "yes", "no"), (frame["y"] > 0).astype(int)
    frame = frame.astype(object)
    frame.loc[250, column] = cell
    target = "y" if column == "b" else column
    drops = [word for name in ("y", "label", "code", "late") if name != target for word in ("--drop", name)]
    task = ["--task", "regression" if target == "y" else "binary"]
    told = said(capsys, text(tmp_path, frame), *drops, *task, target=target, code=2)
    assert message in told


def test_names_of_rows_and_of_no_column_are_read_as_in_memory(tmp_path, capsys):
    frame = table()
    lines = frame.to_csv(index=False, header=False).splitlines()
    file = tmp_path / "t.csv"

    def written(header, before="", after=""):
        rows = [f"{before.format(k)}{line}{after}" for k, line in enumerate(lines)]
        file.write_text("\n".join([header, *rows]) + "\n")
        return file

    told = said(capsys, written("a, b,y", "{}5,"), "--model", "ridge", "--drop", "Unnamed: 0")
    assert "note: the header is one cell short: rows begin with their names, read as 'Unnamed: 0'" in told
    assert "300 rows, 2 columns" in told
    told = said(capsys, written("a,b,y", "r{},"), "--model", "ridge", code=2)
    assert "of numbers alone, which 'Unnamed: 0' is not: leave out by --drop" in told
    told = said(capsys, written("a,b,y,", "r{},"), code=2)
    assert (
        "t.csv: the header ends in an empty cell, and 'a' holds r0, r1, … (300 in all), as names of rows"
        in told
    )
    told = said(capsys, written("a,b,y", "", ","), code=2)
    assert "t.csv: rows have empty cells beyond the columns of the header: take them off, or raise" in told
    told = said(capsys, written("a,a,y"), code=2)
    assert "t.csv: columns 1 and 2 are both named 'a': rename one of them" in told


@pytest.mark.parametrize("header", ["\n1990,1991,1992", "\n \n\n1990,1991,1992", '"19\n90",1991,1992'])
def test_the_header_may_take_several_lines(tmp_path, capsys, header):
    rows = table().to_csv(index=False, header=False)
    (tmp_path / "t.csv").write_text(f"{header}\n{rows}")
    told = said(capsys, tmp_path / "t.csv", "--model", "ridge", target="1992")
    assert "300 rows, 2 columns" in told


@pytest.mark.parametrize(
    ("column", "value", "words", "message"),
    [
        ("a", 1e160, (), "column 'a' is 1e+160, too large to compute with, in row 70: make it a number of"),
        ("y", -1e120, (), "column 'y' is -1e+120, too large to compute with, in row 70: make it empty"),
        (
            "y",
            1.797e308,
            ("--task", "binary"),
            "column 'y' is 1.8e+308, too large to compute with, in row 70",
        ),
        ("y", "#ERR", (), "target 'y' holds numbers, but '#ERR' in row 70: correct it"),
        (
            "y",
            "#ERR",
            ("--model", "lasso"),
            "target 'y' holds numbers, but '#ERR' in row 70: correct it",
        ),
        (
            "y",
            -1,
            ("--task", "counts"),
            "t.csv (rows 0 to 299): target 'y' is negative in row 70 (-1): counts",
        ),
    ],
)
def test_cells_that_are_refused_are_named(tmp_path, capsys, column, value, words, message):
    frame = table().astype(object)
    if words:
        frame["y"] = (frame["y"] > 0).astype(int).astype(object)
    frame.loc[70, column] = value
    frame.loc[5, "y"] = None
    told = said(capsys, text(tmp_path, frame), *words, "--out", tmp_path / "out", code=2)
    assert message in told
    assert "(rows are counted from 0 below the header)" in told
    assert not (tmp_path / "out").exists()


def test_nothing_is_written_where_the_summary_cannot_be(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(streaming.Tuned, "scores", {"R²": (np.nan, 0.0)})
    words = ["--model", "ridge", "--out", tmp_path / "out"]
    said(capsys, text(tmp_path, table()), *words, code=2)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("words", [("--model", "lasso"), ("--task", "counts"), ("--task", "binary")])
def test_a_constant_target_is_refused_whatever_is_asked_for(tmp_path, capsys, words):
    told = said(capsys, text(tmp_path, table().assign(y=2)), *words, code=2)
    assert "target 'y' is '2' in every row: there is nothing to predict" in told


def test_roles_and_models_are_checked_as_in_memory(tmp_path, capsys):
    file = text(tmp_path, table())
    assert "'y' is the target: it cannot be dropped" in said(capsys, file, "--drop", "y", code=2)
    told = said(capsys, tmp_path / "t.csv", "--model", "lasso", "--task", "binary", code=2)
    assert "lasso does not suit binary: use --model logistic or logistic-l1" in told


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "cp1252"])
def test_text_in_other_encodings_is_read(tmp_path, capsys, encoding):
    frame = table().rename(columns={"a": "größe"})
    frame["y"] = np.where(frame["y"] > 0, "groß", "klein")
    file = text(tmp_path, frame, encoding=encoding)
    out = tmp_path / "out"
    told = said(capsys, file, "--model", "logistic", "--encoding", encoding, "--out", out)
    assert "300 rows, 2 columns, binary" in told
    assert set(pd.read_parquet(out / "predictions.parquet")["y"]) == {"groß", "klein"}
    told = said(capsys, file, "--model", "logistic", code=2)
    assert "t.csv is not a table in utf-8 text (byte " in told
    assert "name its --encoding" in told


def test_bytes_that_are_not_utf8_further_down_are_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(dataset, "HEAD", 200)
    monkeypatch.setattr(pyarrow.csv, "ReadOptions", partial(pyarrow.csv.ReadOptions, block_size=4096))
    frame = table().assign(y=np.where(table()["y"] > 0, "groß", "klein"))
    frame.loc[:249, "y"] = np.where(frame["a"][:250] > 0, "ja", "nein")
    file = text(tmp_path, frame, encoding="latin-1")
    monkeypatch.setattr(pd, "read_csv", partial(pd.read_csv, encoding_errors="ignore"))
    told = said(capsys, file, "--task", "binary", code=2)
    assert "--encoding" in told


def test_compressed_text_is_read(tmp_path, capsys):
    table().to_csv(tmp_path / "t.csv.gz", index=False)
    assert "300 rows, 2 columns" in said(capsys, tmp_path / "t.csv.gz", "--model", "ridge")


def test_text_in_the_block_of_the_first_rows_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(dataset, "HEAD", 200)
    monkeypatch.setattr(pyarrow.csv, "ReadOptions", partial(pyarrow.csv.ReadOptions, block_size=12_000))
    frame = table().astype(object)
    frame.loc[210, "y"] = "red"
    rows = frame.to_csv(index=False)
    (tmp_path / "t.csv").write_text(f"\n\n{rows}")
    told = said(capsys, tmp_path / "t.csv", "--model", "ridge", code=2)
    assert "t.csv has 'red' in column 'y', row 210, where rows before it have numbers" in told


def test_blanks_after_separators_are_no_part_of_cells(tmp_path, capsys):
    frame = table().astype(object)
    numbers = frame.copy()
    numbers.loc[7, "y"], numbers.loc[8, "y"] = "NA", " "
    (tmp_path / "t.csv").write_text(numbers.to_csv(index=False).replace(",", ",  "))
    told = said(capsys, tmp_path / "t.csv", "--model", "ridge")
    assert "note: y is 'NA' in 1 row: taken as missing" in told
    assert "298 rows, 2 columns" in told
    frame["y"] = np.where(frame["y"] > 0, "yes", "no")
    for blanks, out in ((" ", "spaced"), ("", "plain")):
        (tmp_path / "t.csv").write_text(frame.to_csv(index=False).replace(",", f",{blanks}"))
        said(capsys, tmp_path / "t.csv", "--model", "logistic", "--out", tmp_path / out)
        assert list(saved.load(str(tmp_path / out / "model.skops")).classes_) == ["no", "yes"]
    written = [pd.read_parquet(tmp_path / out / "predictions.parquet") for out in ("spaced", "plain")]
    pd.testing.assert_frame_equal(*written)
    (tmp_path / "t.csv").write_text(
        frame.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC).replace(",", ", ")
    )
    told = said(capsys, tmp_path / "t.csv", "--drop", "b", code=2)
    assert "in row 0, where quotes come after blanks: take the blanks after separators out, or raise" in told


def test_cells_that_begin_with_blanks_may_be_missing(tmp_path, capsys):
    frame = table().astype(object)
    frame.loc[7, "b"] = "   "
    told = said(capsys, text(tmp_path, frame), "--model", "ridge", code=2)
    assert "has NaN in column 'b', row 7: drop such rows" in told


def test_the_rarest_class_is_called_the_third(tmp_path, capsys):
    frame = table()
    frame["y"] = np.where(frame["y"] > 0, "yes", "no")
    frame.loc[0, "y"] = "None"
    told = said(capsys, text(tmp_path, frame), "--task", "binary", code=2)
    assert "target 'y' has a third class, 'None', and" in told
    told = said(capsys, text(tmp_path, frame), code=2)
    assert (
        "target 'y' has 3 classes, the rarest 'None', and tables larger than memory are for two: cor" in told
    )


def test_what_a_table_lacks_is_named(tmp_path, capsys):
    frame = table()
    told = said(capsys, text(tmp_path, frame.assign(none=np.nan)), code=2)
    assert "t.csv: 'none' is empty in the first rows: leave out by --drop, or raise --memory-limit" in told
    for words in ((), ("--model", "ridge")):
        told = said(capsys, text(tmp_path, frame[:1]), *words, code=2)
        assert "t.csv: the table has 1 row with a target: it takes at least 3" in told


def test_rows_of_another_width_are_named(tmp_path, capsys, monkeypatch):
    lines = ["", *table().to_csv(index=False).splitlines()]
    lines[102] = "1,2"
    (tmp_path / "t.csv").write_text("\n".join(lines))
    told = said(capsys, tmp_path / "t.csv", code=2)
    assert "t.csv has 2 of 3 cells in row 100 (rows are counted from 0 below the header): write as" in told
    monkeypatch.setattr(dataset, "HEAD", 50)
    monkeypatch.setattr(pyarrow.csv, "ReadOptions", partial(pyarrow.csv.ReadOptions, block_size=4096))
    told = said(capsys, tmp_path / "t.csv", "--model", "ridge", code=2)
    assert "t.csv has 2 of 3 cells in row 100 (rows are counted" in told


def test_cells_of_several_lines_are_one_row(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(pyarrow.csv, "ReadOptions", partial(pyarrow.csv.ReadOptions, block_size=4096))
    file = text(tmp_path, table().assign(note="7,\n8,9,\n" * 20))
    assert "300 rows, 2 columns" in said(capsys, file, "--model", "ridge", "--drop", "note")


def test_weights_and_names_that_cannot_be_handled_are_refused(tmp_path, capsys):
    frame = table().assign(w=1.0)
    frame.loc[7, "w"] = 1e160
    told = said(capsys, text(tmp_path, frame), "--model", "ridge", "--weights", "w", code=2)
    assert "column 'w' is 1e+160, too large to compute with, in row 7: make it a number" in told
    file = text(tmp_path, frame.rename(columns={"a": "a" * 200_000}))
    assert "t.csv: field larger than field limit" in said(capsys, file, code=2)


def test_a_quote_that_is_not_closed_is_told_of(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(dataset, "HEAD", 100)
    monkeypatch.setattr(pyarrow.csv, "ReadOptions", partial(pyarrow.csv.ReadOptions, block_size=4096))
    lines = table().to_csv(index=False).splitlines()
    lines[200] = '"1,2,3'
    (tmp_path / "t.csv").write_text("\n".join(lines))
    told = said(capsys, tmp_path / "t.csv", "--model", "ridge", code=2)
    assert "t.csv has a row longer than a block of text, where a quote may be open: close it" in told
