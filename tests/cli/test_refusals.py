"""Bad tables and bad arguments: one line that says what to do, exit 2, nothing written."""

import gzip

import numpy as np
import pandas as pd
import pytest

from onefit.cli import run

GOOD = "a,b,y\n" + "".join(f"{k * 0.5},{k % 3},{k * 1.5 + k % 2}\n" for k in range(1, 21))
LABELS = "a,y\n" + "".join(f"{k},{'yes' if k % 3 else 'no'}\n" for k in range(1, 21))


def table(line, at=5, base=GOOD):
    """A good table with one line put in place of another."""
    lines = base.splitlines()
    lines[at] = line
    return "\n".join(lines) + "\n"


def column(values, name="y"):
    frame = pd.DataFrame({"a": np.arange(len(values)) * 1.1, name: values})
    return frame.to_csv(index=False)


FILES = {  # content, further arguments, what the message must say
    "empty": (b"", [], "t.csv is empty"),
    "only blanks": ("\n \n", [], "is empty"),
    "header alone": ("a,y\n", [], "t.csv has a header but no rows"),
    "one row": ("a,y\n1,2\n", [], "has 1 row with a target: it takes at least 3"),
    "ragged": (table("1,2,3,4,5"), [], "not a table: line 6 has 5 cells, where the header has 3: put a cell"),
    "picture": (b"\x89PNG\r\n\x1a\n\xff\xfe", [], "not a table of text"),
    "zeros": (b"a\0b,y\n1,2\n", [], "not a table of text"),
    "broken gzip": (b"\x1f\x8b\x08\x00broken", [], "t.csv cannot be read"),
    "cut gzip": (gzip.compress(GOOD.encode() * 50)[:60], [], "t.csv cannot be read"),
    "wrong encoding": ("a,y\né,1\n".encode("cp1252"), ["--encoding", "utf-8"], "name its --encoding"),
    "no such encoding": (GOOD, ["--encoding", "klingon"], "no encoding 'klingon' of text; try utf-8"),
    "no encoding of text": (GOOD, ["--encoding", "hex"], "no encoding 'hex' of text; try utf-8"),
    "the same in passes": (
        GOOD,
        ["--encoding", "base64", "--memory-limit", "0"],
        "no encoding 'base64' of text; try utf-8",
    ),
    "utf-16 without a mark": (GOOD, ["--encoding", "utf-16"], "t.csv is not a table in utf-16"),
    "same name twice": ("a,a,y\n1,2,3\n2,3,4\n", [], "columns 1 and 2 are both named 'a' and differ: rename"),
    "target twice": ("a,y,y\n1,2,3\n2,3,4\n", [], "columns 2 and 3 are both named 'y' and differ: rename"),
    "no target": (GOOD.replace("y", "z", 1), [], "there is no column 'y'; the columns are a, b, z"),
    "target of another case": (GOOD.replace("y", "Y", 1), [], "no column 'y'; did you mean 'Y'"),
    "only the target": (
        column([1.5, 2.5, 3.0]).replace("a", "y2", 1).replace("y2,y", "q,y"),
        ["--drop", "q"],
        "no column is left to predict 'y' from",
    ),
    "constant target": (column([2.0] * 9), [], "'y' is '2.0' in every row: there is nothing to predict"),
    "missing target": (column([np.nan] * 9), [], "'y' is missing in every row: choose another column"),
    "infinite target": (column([1.5, np.inf, 2.5, 3.5]), [], "'y' is infinite in row 1"),
    "huge target": (column([1.5, 1e200, 2.5, 3.5]), [], "too large to compute with, in row 1"),
    "date target": (column([f"2024-01-{k:02d}" for k in range(1, 20)]), [], "'y' is a date: choose a number"),
    "numbers with a unit": (
        column([f"{k}.5 kg" for k in range(20)]),
        [],
        "such as '0.5 kg': write it as plain numbers if it is a number with a unit",
    ),
    "free text target": (column([f"word {k}" for k in range(20)]), [], "has 20 classes in 20 rows"),
    "two rows of classes": ("a,y\n1.5,no\n2.5,yes\n", [], "has 2 rows with a target: it takes at least 3"),
    "three rows of classes": (column(["no", "yes", "yes"]), [], "has 2 classes in 3 rows, which are too few"),
    "class of one row": (column(["a"] * 9 + ["b"]), [], "class 'b' of target 'y' has a single row"),
    "too many classes": (column([f"c{k % 60}" for k in range(300)]), [], "has 60 classes, such as"),
    "text among numbers": (
        column([1.5, 2.5, "oops", 4.5, 3.5]),
        [],
        "'y' holds numbers, but 'oops' in row 2: correct it, or leave it empty where it means missing (rows",
    ),
    "labels as numbers": (LABELS, ["--task", "regression"], "'y' is not a number (row 0 has 'yes')"),
    "three as binary": (
        column(["a", "b", "c"] * 4),
        ["--task", "binary"],
        "has 3 classes: use --task multiclass",
    ),
    "negative counts": (column([1, 2, -3] * 4), ["--task", "counts"], "'y' is negative in row 2 (-3)"),
    "infinite feature": (table("inf,1,2"), [], "'a' is infinite in row 4: make it empty"),
    "huge feature": (table("1e200,1,2"), [], "'a' is 1e+200, too large to compute with, in row 4"),
    "only identifiers": (
        "id,y\n" + "".join(f"{k},{k * 1.5}\n" for k in range(9)),
        [],
        "id (counts the rows; --keep id keeps it)",
    ),
    "all features constant": ("a,y\n" + "".join(f"1,{k * 1.5}\n" for k in range(9)), [], "a (constant (1))"),
    "all features missing": ("a,y\n" + "".join(f",{k * 1.5}\n" for k in range(9)), [], "a (all missing)"),
    "negative weights": (
        table("1,-1,2"),
        ["--weights", "b"],
        "weights 'b' must be numbers of at least 0, but row 4 has",
    ),
    "missing weights": (table("1,,2"), ["--weights", "b"], "at least 0, but row 4 has nan"),
    "text weights": (table("1,x,2"), ["--weights", "b"], "weights 'b' are not numbers"),
    "zero weights": (
        GOOD.replace(",1,", ",0,").replace(",2,", ",0,"),
        ["--weights", "b"],
        "'b' are zero in every row",
    ),
    "missing group": (
        table("1,,2"),
        ["--groups", "b"],
        "groups 'b' is missing in 1 row, the first of them row 4",
    ),
    "one group": (
        GOOD.replace("b", "a", 0).replace(",1,", ",0,").replace(",2,", ",0,"),
        ["--groups", "b"],
        "groups 'b' has 1 distinct values: it takes at least 3",
    ),
    "missing time": (table("1,,2"), ["--time", "b"], "time 'b' is missing in 1 row, the first"),
    "time of words": (
        GOOD.replace(",1,", ",one,").replace(",2,", ",two,").replace(",0,", ",nil,"),
        ["--time", "b"],
        "time 'b' is neither a date nor a number: row 0 has",
    ),
}
ARGUMENTS = {  # of tune on a good table
    "no target": ([], "name the column to predict with --target; the columns are"),
    "unknown target": (["--target", "z"], "there is no column 'z'"),
    "another separator": (["--target", "y", "--sep", ";"], "the table has a single one, 'a,b,y'"),
    "unknown model": (["--target", "y", "--model", "forest"], "'forest' is not one of"),
    "unknown task": (["--target", "y", "--task", "guess"], "'guess' is not one of"),
    "model and task": (
        ["--target", "y", "--model", "ridge", "--task", "binary"],
        "ridge does not suit binary: use --model logistic",
    ),
    "unknown drop": (["--target", "y", "--drop", "z"], "there is no column 'z'"),
    "unknown keep": (["--target", "y", "--keep", "z"], "there is no column 'z'"),
    "target dropped": (["--target", "y", "--drop", "y"], "'y' is the target: it cannot be dropped"),
    "target as weights": (["--target", "y", "--weights", "y"], "'y' is the target"),
    "target as groups": (["--target", "y", "--groups", "y"], "'y' is the target"),
    "groups and time": (
        ["--target", "y", "--groups", "a", "--time", "b"],
        "--groups and --time exclude each other",
    ),
    "unknown groups": (["--target", "y", "--groups", "z"], "there is no column 'z'"),
    "unknown time": (["--target", "y", "--time", "z"], "there is no column 'z'"),
    "audit of one": (["--target", "y", "--audit", "1"], "an audit needs at least 2 refits"),
    "audit of few": (["--target", "y", "--audit", "-3"], "--audit"),
    "audit of words": (["--target", "y", "--audit", "some"], "'some' is not a valid integer"),
    "long separator": (["--target", "y", "--sep", "::"], "'::' is no single character; names are tab"),
    "other decimal": (["--target", "y", "--decimal", "·"], "'·' is not one of '.', ','"),
    "no such option": (["--target", "y", "--fast"], "No such option"),
    "no config": (["--target", "y", "--config", "none.toml"], "none.toml: no such file of options"),
}
CONFIGS = {
    "value for a table": (
        "tune = 3\n",
        "c.toml: 'tune' must be a table of the options of onefit tune, got 3",
    ),
    "value for another": (
        "loo = 'x'\n[tune]\ntarget = 'y'\n",
        "write a line [loo], and its options below it",
    ),
    "not toml": ("target = ", "is not TOML"),
    "unknown key": ("[tune]\ntraget = 'y'\n", "'traget' is no option of tune; did you mean 'target'"),
    "unknown key of another": ("[loo]\nexakt = true\n", "'exakt' is no option of loo; did you mean 'exact'"),
    "unknown table": ("[tunee]\nforce = true\n", "c.toml: 'tunee' is no command; did you mean 'tune'?"),
    "unknown tables": ("[[tunee]]\nforce = true\n", "c.toml: 'tunee' is no command; did you mean 'tune'?"),
    "unknown common key": ("colour = 'red'\n", "'colour' is no option of any command"),
    "list for a value": ("[tune]\ntarget = ['y']\n", "'target' must be a single value, got ['y']"),
    "number for a switch": ("[tune]\nforce = 1\n", "'force' must be true or false, got 1"),
    "switch for a name": ("[tune]\nmodel = true\n", "'model' must be text or a number, got True"),
    "infinite count": ("[tune]\ntarget = 'y'\naudit = inf\n", "'inf' is not a valid integer"),
    "part of a count": ("[tune]\ntarget = 'y'\naudit = 2.5\n", "'2.5' is not a valid integer"),
    "option in two ways": (
        "[tune]\nmemory-limit = '1G'\nmemory_limit = '2G'\n",
        "'memory-limit' and 'memory_limit' are the same option: leave out one of them",
    ),
    "value for a list": ("[tune]\ntarget = 'y'\ndrop = 'a'\n", "'drop' must be a list, got 'a'"),
}


def refused(capsys, arguments, says, folder):
    before = sorted(path.name for path in folder.iterdir())
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("onefit: error: ")
    assert err.count("\n") == 1
    assert says in err
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.parametrize("name", FILES)
def test_bad_tables(tmp_path, capsys, name):
    content, more, says = FILES[name]
    path = tmp_path / "t.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    refused(
        capsys, ["tune", str(path), "--target", "y", *more, "--out", str(tmp_path / "out")], says, tmp_path
    )


@pytest.mark.parametrize("name", ARGUMENTS)
def test_bad_arguments(tmp_path, capsys, name):
    arguments, says = ARGUMENTS[name]
    path = tmp_path / "t.csv"
    path.write_text(GOOD)
    refused(capsys, ["tune", str(path), *arguments, "--out", str(tmp_path / "out")], says, tmp_path)


def test_an_empty_name_of_a_folder_is_not_where_one_is(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(GOOD)
    refused(capsys, ["tune", "t.csv", "--target", "y", "--out", ""], "--out names no folder", tmp_path)


@pytest.mark.parametrize("name", CONFIGS)
def test_bad_configs(tmp_path, capsys, name):
    content, says = CONFIGS[name]
    (tmp_path / "t.csv").write_text(GOOD)
    (tmp_path / "c.toml").write_text(content)
    refused(capsys, ["tune", str(tmp_path / "t.csv"), "--config", str(tmp_path / "c.toml")], says, tmp_path)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("t.xlsx", "is a spreadsheet: save the sheet as CSV"),
        ("t.parquet", "is not a table"),
        ("u.csv", "no such file"),
    ],
)
def test_other_files(tmp_path, capsys, name, says):
    (tmp_path / "t.xlsx").write_bytes(b"PK")
    (tmp_path / "t.parquet").write_bytes(b"PAR1 no")
    refused(capsys, ["tune", str(tmp_path / name), "--target", "y"], says, tmp_path)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["predict", "none.skops", "t.csv"], "none.skops: no such file; a model is the model.skops"),
        (["predict", "t.csv", "t.csv"], "is not a model saved by skops"),
        (["predict", "t.csv"], "Missing argument 'FILE'"),
        (["predict", "m", "t.csv", "--interval", "1.5"], "--interval"),
        (["loo", "none.skops", "t.csv", "--target", "y"], "no such file"),
        (["compare", "one"], "one holds no summary.json"),
        (["compare", "one", "two"], "one holds no summary.json and no predictions.csv"),
        (["tone"], "No such command 'tone'"),
    ],
)
def test_other_commands(tmp_path, capsys, monkeypatch, arguments, says):
    (tmp_path / "t.csv").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    refused(capsys, arguments, says, tmp_path)


def test_a_word_too_many_may_be_a_column(capsys):
    assert run(["tune", "t.csv", "price"]) == 2
    said = capsys.readouterr().err
    assert "(price): name the column to predict with --target; 'onefit tune --help' tells" in said
    assert run(["demo", "price"]) == 2
    assert "(price): 'onefit demo --help' tells" in capsys.readouterr().err
