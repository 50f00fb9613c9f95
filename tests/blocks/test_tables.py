"""Parquet files and folders, and other tables on disk, as sources of rows."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow", reason="tables on disk need pyarrow")
import pyarrow.csv  # noqa: E402
import pyarrow.dataset as ds  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

from onefit.sources import TableSource, as_source  # noqa: E402


def columns(seed: int = 0, n: int = 300) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=n), rng.integers(0, 9, n)
    return {"a": a, "b": b, "price": a + b + rng.normal(size=n), "weight": rng.uniform(0.5, 2.0, n)}


@pytest.fixture
def folder(tmp_path):
    for k in range(3):
        pq.write_table(pa.table(columns(k)), tmp_path / f"part{k}.parquet", row_group_size=128)
    return tmp_path


def whole(source: TableSource) -> dict[str, np.ndarray]:
    blocks = list(source.each(lambda block: block))
    X = np.concatenate([block.X for block in blocks])
    found = {"a": X[:, 0], "b": X[:, 1], "price": np.concatenate([block.y for block in blocks])}
    if blocks[0].weights is not None:
        found["weight"] = np.concatenate([block.weights for block in blocks])
    return found


@pytest.mark.parametrize("encoding", ["utf8", "latin-1"])
def test_text_is_read_in_its_own_marks_and_encoding(tmp_path, encoding):
    numbers = np.random.default_rng(0).normal(size=(30_000, 8)).round(6)
    numbers[:20_000, 3] = np.arange(20_000)  # whole numbers first
    path = tmp_path / "rows.csv"
    lines = [";".join(f"{own:g}" if own == int(own) else f"{own:.6f}" for own in row) for row in numbers]
    names = ["größe", *(f"x{j}" for j in range(1, 8))]
    text = "\n".join([";".join(names), *lines]).replace(".", ",") + "\n"
    path.write_bytes(text.encode(encoding))
    layout = ds.CsvFileFormat(
        parse_options=pyarrow.csv.ParseOptions(delimiter=";"),
        convert_options=pyarrow.csv.ConvertOptions(decimal_point=","),
        read_options=pyarrow.csv.ReadOptions(encoding=encoding),
    )
    source = TableSource(ds.dataset(path, format=layout), "x7", columns=["x3", "größe"])
    blocks = list(source.each(lambda block: block))
    assert len(blocks) > 1
    assert np.array_equal(np.concatenate([block.X for block in blocks]), numbers[:, [3, 0]])
    assert np.array_equal(np.concatenate([block.y for block in blocks]), numbers[:, 7])


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-16"])
def test_labels_are_read_in_other_encodings_and_from_compressed_text(tmp_path, encoding, ending):
    path = tmp_path / f"rows{ending}"
    content = "a,label\n1,groß\n2,klein\n".encode(encoding)
    path.write_bytes(gzip.compress(content) if ending == ".csv.gz" else content)
    read = pyarrow.csv.ReadOptions(encoding=encoding, column_names=["a", "label"], skip_rows=1)
    dataset = ds.dataset(path, format=ds.CsvFileFormat(read_options=read))
    [block] = TableSource(dataset, "label", encoding=encoding).each(lambda block: block)
    assert block.y.tolist() == ["groß", "klein"]
    assert block.X.tolist() == [[1.0], [2.0]]


def test_a_folder_is_read_file_by_file(folder):
    source = TableSource(folder, "price", "weight")
    assert source.names == ("a", "b")
    assert source.shape == (None, 2)
    found, parts = whole(source), [columns(k) for k in range(3)]
    for name, values in found.items():
        assert np.array_equal(values, np.concatenate([part[name] for part in parts]))


def test_other_files_in_a_folder_are_left_alone(folder):
    (folder / "_SUCCESS").touch()
    (folder / "notes.txt").write_text("three parts")
    assert TableSource(folder, "price").total(lambda block: len(block.y)) == 900


def test_a_file_a_dataset_and_columns_by_name(folder):
    file = folder / "part1.parquet"
    source = as_source(str(file), "price")
    assert source.names == ("a", "b", "weight")
    only = TableSource(ds.dataset(folder, format="parquet"), "price", "weight", columns=["b"])
    assert only.names == ("b",)
    assert only.total(lambda block: block.X.sum()) == sum(columns(k)["b"].sum() for k in range(3))


def test_a_csv_file_is_a_table_too(tmp_path):
    own = columns()
    lines = ["a,b,price", *(f"{a!r},{b},{y!r}" for a, b, y in zip(*list(own.values())[:3], strict=True))]
    text = "\n".join(lines).replace("np.float64(", "").replace("np.int64(", "").replace(")", "")
    (tmp_path / "table.csv").write_text(text)
    found = whole(TableSource(ds.dataset(tmp_path / "table.csv", format="csv"), "price"))
    for name, values in found.items():
        assert np.array_equal(values, own[name])


def test_whole_numbers_of_a_csv_file_may_become_fractions(tmp_path):
    rows = ["a,b,price", *("1,2,3" for _ in range(200_000)), "1,2.5,3"]
    (tmp_path / "table.csv").write_text("\n".join(rows))
    found = whole(TableSource(ds.dataset(tmp_path / "table.csv", format="csv"), "price"))
    assert found["b"][-1] == 2.5


def rewrite(folder, change) -> None:
    own = columns(1)
    change(own)
    pq.write_table(pa.table(own), folder / "part1.parquet")


def test_missing_values_name_file_column_and_row(folder):
    def change(own):
        own["a"][7] = np.nan

    rewrite(folder, change)
    with pytest.raises(ValueError, match=r"part1.parquet \(rows 0 to 299\) has NaN in column 'a', row 7"):
        TableSource(folder, "price").total(lambda block: len(block.y))


def test_nulls_are_missing_values(folder):
    own = {name: pa.array(values) for name, values in columns(1).items()}
    own["b"] = pa.array([None, *columns(1)["b"][1:].tolist()])
    pq.write_table(pa.table(own), folder / "part1.parquet")
    with pytest.raises(ValueError, match=r"part1.parquet .* has NaN in column 'b', row 0"):
        TableSource(folder, "price").total(lambda block: len(block.y))


def test_a_missing_target_names_the_file(folder):
    own = {name: pa.array(values) for name, values in columns(1).items()}
    own["price"] = pa.array([*columns(1)["price"][1:].tolist(), None])
    pq.write_table(pa.table(own), folder / "part1.parquet")
    with pytest.raises(ValueError, match=r"target of .*part1.parquet .* missing or infinite in row 299"):
        TableSource(folder, "price").total(lambda block: len(block.y))


def test_rows_are_called_by_their_numbers_in_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr("onefit.sources.table.block_length", lambda _: 50)
    for name, message in {
        "a": r"t.parquet \(rows 200 to 249\) has NaN in column 'a', row 207:",
        "price": r"the target of .*t.parquet .* is missing or infinite in row 207:",
        "weight": r"sample_weight of .*t.parquet .* is nan in row 207:",
    }.items():
        own = columns()
        own[name][207] = np.nan
        pq.write_table(pa.table(own), tmp_path / "t.parquet")
        with pytest.raises(ValueError, match=message):
            TableSource(tmp_path, "price", "weight").total(lambda block: len(block.y))


@pytest.mark.parametrize("missing", [None, np.nan])
def test_rows_without_a_target_are_passed_over_where_that_is_asked(folder, missing):
    own = columns(1)
    places = [0, 130, 299]
    price = own["price"].tolist()
    for place in places:
        price[place] = missing
    pq.write_table(pa.table(own | {"price": pa.array(price, from_pandas=False)}), folder / "part1.parquet")
    source = TableSource(folder, "price", "weight", skip_missing=True)
    found, parts = whole(source), [columns(k) for k in range(3)]
    assert source.skipped == 3
    for name, values in found.items():
        each = [np.delete(part[name], places if k == 1 else []) for k, part in enumerate(parts)]
        assert np.array_equal(values, np.concatenate(each))
    own["a"][200] = np.inf
    pq.write_table(pa.table(own | {"price": pa.array(price, from_pandas=False)}), folder / "part1.parquet")
    with pytest.raises(ValueError, match="infinity in column 'a', row 200:"):
        whole(source)


@pytest.mark.parametrize("encoding", ["utf8", "latin-1"])
def test_text_below_numbers_is_named(tmp_path, encoding):
    rows = ["größe,b,price", *("1,2,3" for _ in range(300_000)), "1,red,3", "1,2,3"]
    (tmp_path / "table.csv").write_text("\n".join(rows), encoding=encoding)
    text = ds.CsvFileFormat(read_options=pyarrow.csv.ReadOptions(encoding=encoding))
    with pytest.raises(
        ValueError, match=r"table.csv has 'red' in column 'b'.*, where rows before it have numbers"
    ):
        whole(TableSource(ds.dataset(tmp_path / "table.csv", format=text), "price"))


def test_files_that_differ_are_named(folder):
    rewrite(folder, lambda own: own.pop("b"))
    with pytest.raises(ValueError, match=r"part1.parquet has no column 'b'"):
        TableSource(folder, "price")
    rewrite(folder, lambda own: own.update(b=np.array(["x"] * 300)))
    with pytest.raises(ValueError, match=r"column 'b' of .*part1.parquet holds string, in other files int64"):
        TableSource(folder, "price")


def test_a_file_that_ends_early_is_named(folder):
    file = folder / "part2.parquet"
    file.write_bytes(file.read_bytes()[:2000])
    with pytest.raises(ValueError, match=r"part2.parquet is no Parquet file, or ends early"):
        TableSource(folder, "price")


def test_a_csv_file_says_how_to_open_it(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("a,price\n1,2\n2,3\n")
    with pytest.raises(ValueError, match=r"pyarrow.dataset.dataset\('.*rows.csv', format='csv'\)"):
        TableSource(file, "price")
    assert TableSource(ds.dataset(file, format="csv"), "price").names == ("a",)


def test_a_file_that_is_damaged_inside_is_named(folder):
    source = TableSource(folder, "price")
    file = folder / "part2.parquet"
    whole = bytearray(file.read_bytes())
    whole[4:3000] = bytes(2996)
    file.write_bytes(whole)
    with pytest.raises(ValueError, match=r"part2.parquet cannot be read to its end"):
        source.total(lambda block: len(block.y))


def test_a_row_of_a_csv_file_that_ends_early_is_named(tmp_path):
    (tmp_path / "table.csv").write_text("a,b,price\n1,2,3\n1,2\n")
    with pytest.raises(ValueError, match=r"table.csv"):
        TableSource(ds.dataset(tmp_path / "table.csv", format="csv"), "price").total(
            lambda block: len(block.y)
        )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"target": "cost"}, r"target='cost' is no column of the table: it has a, b, price"),
        ({"target": "price", "sample_weight": "w"}, r"sample_weight='w' is no column"),
        ({"target": "price", "columns": ["c"]}, r"columns='c' is no column"),
        ({"target": np.ones(3)}, r"target must be the name of a column of the table, got ndarray"),
        ({"target": "price", "sample_weight": "price"}, r"sample_weight is the target, 'price'"),
        ({"target": "price", "columns": ["a", "price"]}, r"columns names 'price', which is the target"),
        ({"target": "price", "columns": ["a", "a"]}, r"columns names 'a' twice"),
        ({"target": "price", "columns": []}, r"there is no column beside the target"),
        ({"target": "price", "columns": "a"}, r"columns must be a list of names, got 'a'"),
    ],
)
def test_unknown_columns_are_named(folder, given, message):
    with pytest.raises((TypeError, ValueError), match=message):
        TableSource(folder, **given)


def test_text_has_to_be_left_out_by_name(tmp_path):
    pq.write_table(pa.table({**columns(), "city": ["x"] * 300}), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"'city' \(string\) is not: .* columns="):
        TableSource(tmp_path / "t.parquet", "price")
    assert TableSource(tmp_path / "t.parquet", "price", columns=["a"]).names == ("a",)


def test_paths_without_a_table_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file or folder"):
        TableSource(tmp_path / "nowhere", "price")
    with pytest.raises(ValueError, match=r"holds no file that ends in \.parquet"):
        TableSource(tmp_path, "price")


def test_targets_and_weights_of_decimal_types_are_numbers(tmp_path):
    own = columns()
    fixed = {name: pa.array(values.round(3)).cast(pa.decimal128(38, 6)) for name, values in own.items()}
    pq.write_table(pa.table(fixed), tmp_path / "t.parquet")
    for _, block in TableSource(tmp_path, "price", "weight").named_blocks():
        assert block.y.dtype == np.float64
        np.testing.assert_allclose(block.y, own["price"], atol=0.001)
        np.testing.assert_allclose(block.weights, own["weight"], atol=0.001)
