import gzip

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from onefit.cli import reading
from onefit.cli.dates import as_days
from onefit.cli.errors import TableError
from onefit.cli.preprocessing import as_levels, as_numbers, feature_names, preprocessing
from onefit.cli.table import Roles, kind_of, rare_below
from onefit.cli.table import split as split_by_roles
from onefit.cli.target import guess_task


def read_table(path):
    return reading.read_table(path).frame


def split(frame, target, task="auto", **roles):
    return split_by_roles(frame, Roles(target, **roles), task)


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    n = 60
    return pd.DataFrame(
        {
            "age": rng.normal(size=n),
            "colour": rng.choice(["red", "green", "blue"], size=n),
            "price": rng.normal(size=n),
        }
    )


class TestReading:
    @pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
    def test_separators(self, tmp_path, frame, separator):
        path = tmp_path / "t.csv"
        frame.to_csv(path, sep=separator, index=False)
        pd.testing.assert_frame_equal(read_table(path), frame)

    @pytest.mark.parametrize("name", ["t.csv.gz", "t.csv"])
    def test_gzip_whatever_the_name(self, tmp_path, frame, name):
        path = tmp_path / name
        path.write_bytes(gzip.compress(frame.to_csv(index=False).encode()))
        pd.testing.assert_frame_equal(read_table(path), frame)

    def test_parquet(self, tmp_path, frame):
        frame.to_parquet(tmp_path / "t.parquet")
        pd.testing.assert_frame_equal(read_table(tmp_path / "t.parquet"), frame)

    @pytest.mark.parametrize(
        ("index", "columns"),
        [
            (pd.date_range("2020-01-01", periods=60, name="day"), ["day"]),
            (pd.RangeIndex(60, name="person"), ["person"]),
            (pd.Index([f"p{k // 4}" for k in range(60)]), ["Unnamed: 0"]),
            (pd.MultiIndex.from_product([range(6), range(10)], names=["site", None]), ["site", "Unnamed: 1"]),
        ],
    )
    def test_an_index_of_parquet_is_columns(self, tmp_path, frame, index, columns):
        frame.set_index(index).to_parquet(tmp_path / "t.parquet")
        source = reading.read_table(tmp_path / "t.parquet")
        assert list(source.frame) == [*columns, *frame]
        for k, name in enumerate(columns):
            assert source.frame[name].tolist() == index.get_level_values(k).tolist()
        assert source.notes == (f"the index was read as {', '.join(map(repr, columns))}",)

    @pytest.mark.parametrize("index", [pd.RangeIndex(7, 67), pd.Index([*range(30), *range(30)])])
    def test_rows_that_are_numbered_have_no_names(self, tmp_path, frame, index):
        frame.set_index(index).to_parquet(tmp_path / "t.parquet")
        pd.testing.assert_frame_equal(read_table(tmp_path / "t.parquet"), frame)

    def test_an_index_beside_a_column_of_its_name(self, tmp_path, frame):
        frame.set_index(frame["age"]).to_parquet(tmp_path / "t.parquet")
        assert list(read_table(tmp_path / "t.parquet")) == list(frame)

    def test_lists_and_structures_are_left_out(self, tmp_path, frame):
        path = tmp_path / "t.parquet"
        frame.assign(tags=[["a", "b"]] * 60, at=[{"x": 1}] * 60).to_parquet(path)
        source = reading.read_table(path)
        pd.testing.assert_frame_equal(source.frame, frame)
        assert source.notes == ("tags, at: lists or structures, which were left out",)
        with pytest.raises(TableError, match="target 'tags' holds lists or structures: choose"):
            reading.read_table(path, target="tags")

    def test_two_columns_of_a_name_in_parquet(self, tmp_path):
        table = pa.table([[1.0, 2.0], [1.5, 2.5], [3.0, 4.0]], names=["y", "a", "a"])
        parquet.write_table(table, tmp_path / "t.parquet")
        with pytest.raises(TableError, match=r"t\.parquet: columns 2 and 3 are both named 'a': rename one"):
            read_table(tmp_path / "t.parquet")

    def test_decimal_commas_between_semicolons(self, tmp_path):
        (tmp_path / "t.csv").write_text("a;b\n1,5;2\n2,5;3\n")
        assert read_table(tmp_path / "t.csv")["a"].tolist() == [1.5, 2.5]

    def test_byte_order_mark_and_question_marks(self, tmp_path):
        (tmp_path / "t.csv").write_bytes("a,b\n1,?\n2,3\n".encode("utf-8-sig"))
        table = read_table(tmp_path / "t.csv")
        assert list(table.columns) == ["a", "b"]
        assert table["b"].isna().tolist() == [True, False]

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("empty.csv", b"", "is empty"),
            ("header.csv", b"a,b\n", "no rows"),
            ("ragged.csv", b"a,b\n1,2\n1,2,3\n", "not a table: line 3 has 3 cells, where the header has 2"),
            ("picture.csv", b"\x89PNG\r\n\x1a\n\xff\xfe", "not a table"),
            ("zeros.csv", b"a\0b\n1,2\n", "not a table"),
            ("broken.csv.gz", b"\x1f\x8b\x08\x00broken", "cannot be read"),
            ("broken.parquet", b"PAR1 no", "not a table"),
            ("sheet.xlsx", b"PK", "spreadsheet"),
        ],
    )
    def test_no_table(self, tmp_path, name, content, message):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(TableError, match=message):
            read_table(tmp_path / name)

    def test_short_lines_are_told(self, tmp_path):
        path = tmp_path / "t.csv"
        path.write_text('a,b,y\n1,2,3\n\n"4\n",5,6\n7,8\n9\n1,,\n')
        (note,) = reading.read_table(path).notes[:1]
        assert note.startswith("line 6, the first of 2 such lines, has 2 cells, where the header has 3: the")
        path.write_text("a,b,y\n1,2,3\n4,5\n6,7,8\n")
        assert reading.read_table(path).notes[0].startswith("line 3 has 2 cells, where the header has 3")
        path.write_text("a,b,y\n1,2,3\n4,5,\n6,7,8\n")
        assert reading.read_table(path).notes == ()

    def test_files_of_other_names_are_not_offered(self, tmp_path):
        for name in ("houses.csv", "prices.csv", "notes"):
            (tmp_path / name).touch()
        with pytest.raises(TableError, match=r"no such file$"):
            read_table(tmp_path / "ships.csv")
        with pytest.raises(TableError, match=r"did you mean 'houses\.csv'\?$"):
            read_table(tmp_path / "houses.txt")

    def test_no_file(self, tmp_path):
        (tmp_path / "houses.csv").touch()
        with pytest.raises(TableError, match=r"did you mean 'houses\.csv'"):
            read_table(tmp_path / "house.csv")
        with pytest.raises(TableError, match="nor a folder"):
            read_table(tmp_path / "nowhere" / "house.csv")
        with pytest.raises(TableError, match="is a folder"):
            read_table(tmp_path)


class TestTask:
    @pytest.mark.parametrize(
        ("values", "task"),
        [
            (["a", "b", "a"], "binary"),
            ([1.5, 2.5], "regression"),
            ([1.5, 2.5, 2.5, 1.5], "binary"),
            (["a", "b", "c"], "multiclass"),
            ([True, False, True], "binary"),
            ([0, 1, 1, 1], "binary"),
            ([-1.0, 1.0, 1.0, 1.0], "binary"),
            ([1.5, 2.0, 3.0], "regression"),
            ([-1, 0, 1], "regression"),
            ([0, 0, 0, 1, 0, 1, 9], "counts"),
            ([0, 1, 2, 0, 1, 2], "multiclass"),
            ([1, 2, 3, 3, 2, 1], "multiclass"),
            ([3, 4, 5, 6], "regression"),
            (list(range(25, 300)), "regression"),
        ],
    )
    def test_guess(self, values, task):
        guessed, reason = guess_task(pd.Series(values))
        assert guessed == task
        assert reason

    def test_date(self):
        with pytest.raises(TableError, match="date"):
            guess_task(pd.Series(pd.date_range("2020-01-01", periods=4)))


class TestSplit:
    def test_columns_without_content_and_identifiers_leave(self, frame):
        n = len(frame)
        rng = np.random.default_rng(1)
        frame = frame.assign(
            nothing=np.nan,
            always="x",
            row=np.arange(n),
            customer_id=rng.permutation(n) + 1000,
            invoice_nr=rng.permutation(n) + 2000,
            name=[f"person {i}" for i in range(n)],
            year=np.arange(n) + 1900,
        )
        table = split(frame, "price")
        assert [name for name, _ in table.dropped] == [
            *("nothing", "always", "row", "customer_id", "invoice_nr", "name")
        ]
        assert list(table.features.columns) == ["age", "colour", "year"]
        kept = split(frame, "price", keep=["customer_id"], drop=["year"])
        assert list(kept.features.columns) == ["age", "colour", "customer_id"]
        assert ("year", "you asked to drop it") in kept.dropped

    def test_times_of_day_and_mixed_dates_say_how_to_write_them(self, frame):
        rows = range(len(frame))
        frame = frame.assign(
            clock=[f"{i % 24}:{i * 7 % 60:02d}" for i in rows],
            day=[f"{2000 + i}-01-31" if i % 2 else f"31.01.{2000 + i}" for i in rows],
        )
        why = dict(split(frame, "price").dropped)
        assert why["clock"].startswith("holds times of day: write them as hours")
        assert why["day"].startswith("holds dates in more than one format")

    def test_cells_that_make_a_column_text_are_named_where_it_leaves(self, frame, tmp_path):
        n = len(frame)
        numbers = [f"{value:.3f}" for value in np.random.default_rng(2).normal(size=n)]
        slipped, units = ["<0.01", *numbers[1:]], [f"{value} kg" for value in numbers]
        found = dict(split(frame.assign(slipped=slipped, weight=units), "price").dropped)
        assert found["slipped"].startswith("holds numbers but for '<0.01': correct them")
        assert found["weight"].startswith("holds numbers with a unit: write them as plain numbers")
        assert not any("--keep" in found[name] for name in ("slipped", "weight"))  # one level, whatever it is
        frame.assign(cell=["#DIV/0!", *numbers[1:]]).to_csv(tmp_path / "t.csv", index=False)
        read = read_table(tmp_path / "t.csv")
        assert read["cell"].isna().sum() == 1
        assert "cell" in split(read, "price").features

    def test_rows_without_target_leave(self, frame):
        frame.loc[[3, 7], "price"] = np.nan
        table = split(frame, "price")
        assert len(table.y) == len(frame) - 2
        assert set(table.rows) == set(range(len(frame))) - {3, 7}
        assert "2 rows without a target" in table.notes[0]

    def test_labels_that_are_written_alike_are_told(self, frame):
        own = frame.assign(price=np.resize(["Yes", "yes ", "no", " yes"], len(frame)))
        assert split(own, "price").notes[0] == (
            "classes ' yes', 'Yes', 'yes ' of price differ in blanks or capitals only: are they one?"
        )
        own = frame.assign(price=np.resize(["yes", "no"], len(frame)))
        assert not any("blanks" in note for note in split(own, "price").notes)

    def test_copies_are_told(self, frame):
        table = split(pd.concat([frame, frame.iloc[:2]], ignore_index=True), "price")
        assert "4 rows have an exact copy" in table.notes[0]

    def test_weights(self, frame):
        table = split(frame.assign(w=2.0), "price", weights="w")
        assert table.weights.tolist() == [2.0] * len(frame)
        assert "w" not in table.features

    @pytest.mark.parametrize(
        ("weight", "message"),
        [(-1.0, "at least 0"), (np.nan, "at least 0"), (0.0, "zero in every"), ("a", "not numbers")],
    )
    def test_bad_weights(self, frame, weight, message):
        with pytest.raises(TableError, match=message):
            split(frame.assign(w=weight), "price", weights="w")

    def test_labels(self, frame):
        table = split(frame, "colour")
        assert table.task == "multiclass"
        assert table.is_classification
        assert table.y.dtype.kind == "U"
        whole = split(frame.assign(y=[0.0, 1.0] * 30), "y")
        assert whole.y.dtype == np.int64

    def test_decimal_numbers_as_labels_are_their_text(self, frame):
        for values in ([0.5, 1.5], [-2.0, 0.1], np.array([0.1, 1e-5], dtype=np.float32)):
            y = split(frame.assign(y=np.tile(values, 30)), "y").y
            assert y.tolist() == [np.format_float_positional(one, trim="-") for one in values] * 30
        several = split(frame.assign(y=[1.5, -2.0, 0.0, -0.0] * 15), "y", "multiclass")
        assert several.y.tolist() == ["1.5", "-2", "0", "0"] * 15
        with pytest.raises(TableError, match="'y' is infinite in row 1"):
            split(frame.assign(y=[1.5, np.inf] * 30), "y")

    def test_categories_of_no_row_are_no_classes(self, frame):
        labels = pd.Categorical(["no", "yes"] * 30, categories=["no", "maybe", "yes"])
        assert split(frame.assign(y=labels), "y", "binary").y.tolist() == ["no", "yes"] * 30
        single = pd.Categorical(["no"] * 59 + ["yes"], categories=["no", "maybe", "yes"])
        with pytest.raises(TableError, match="class 'yes' of target 'y' has a single row"):
            split(frame.assign(y=single), "y")

    @pytest.mark.parametrize(
        ("target", "task", "message"),
        [
            ([1.0] * 60, "auto", "in every row"),
            ([np.nan] * 60, "auto", "missing in every row"),
            ([1.0] + [np.nan] * 59, "auto", "has 1 row with a target"),
            ([1.0, 2.0] + [np.nan] * 58, "auto", "has 2 rows with a target: it takes at least 3"),
            ([f"a{i}" for i in range(60)], "auto", "60 classes in 60 rows"),
            (["a"] * 59 + ["b"], "auto", "'b' .* single row"),
            (["a", "b", "c"] * 20, "binary", "--task multiclass"),
            (["a", "b", "c"] * 20, "regression", "row 0 has 'a'"),
            ([np.inf] + [1.5, 2.5, 3.5] * 19 + [1, 2], "auto", "infinite in row 0"),
            ([1, 2, -3] * 20, "counts", "negative in row 2"),
        ],
    )
    def test_bad_target(self, frame, target, task, message):
        with pytest.raises(TableError, match=message):
            split(frame.assign(y=target), "y", task=task)

    def test_unknown_column(self, frame):
        with pytest.raises(TableError, match="did you mean 'price'"):
            split(frame, "Prise")
        with pytest.raises(TableError, match=r"the columns are age, colour, price$"):
            split(frame, "xyz")
        with pytest.raises(TableError, match=r"the columns are age, 'eye colour', price$"):
            split(frame.rename(columns={"colour": "eye colour"}), "xyz")

    def test_a_first_line_that_is_a_row(self, tmp_path):
        (tmp_path / "t.csv").write_text("5.1,3.5,1.4,setosa\n4.9,3.0,1.3,setosa\n6.2,3.4,5.4,virginica\n")
        with pytest.raises(TableError, match=r"5.1, 3.5, 1.4, setosa. Are these a row\? The first line has"):
            split(read_table(tmp_path / "t.csv"), "species")

    def test_target_in_another_part(self, frame):
        with pytest.raises(TableError, match="'price' is the target"):
            split(frame, "price", drop=["price"])
        with pytest.raises(TableError, match="'price' is the target"):
            split(frame, "price", weights="price")

    def test_nothing_left(self, frame):
        with pytest.raises(TableError, match="no column is left"):
            split(frame[["price"]].assign(constant=1), "price")


class TestPreprocessing:
    def test_kinds(self):
        assert kind_of(pd.Series([1, 2])) == "number"
        assert kind_of(pd.Series([True, False])) == "text"
        assert kind_of(pd.Series(["2020-01-01", None, "2020-02-01 10:00"])) == "date"
        assert kind_of(pd.Series(["2020-01-01", "x"])) == "text"
        assert kind_of(pd.Series(["a", "b"], dtype="category")) == "text"

    def test_columns(self):
        n = 60
        frame = pd.DataFrame(
            {
                "number": [1.0, np.nan, 3.0] * 20,
                "as often": [1.0, np.nan, 5.0] * 20,
                "flag": [True, False] * 30,
                "level": ["a", "b", None] * 20,
                "rare": ["p"] * (n - 12) + ["q"] * 10 + ["r", "s"],
                "day": ["2020-01-01", "2020-01-02"] * 30,
            }
        )
        made = preprocessing(frame)
        X = made.fit_transform(frame)
        names = feature_names(made)
        assert names == [
            "number",
            "number missing",
            "as often",
            "day (days)",
            "flag=True",
            "level=(missing)",
            "level=a",
            "level=b",
            "rare=p",
            "rare=q",
            "rare=other",
        ]
        assert X.shape == (n, len(names))
        assert np.all(np.isfinite(X))
        np.testing.assert_allclose(X[:, :4].mean(axis=0), 0, atol=1e-12)
        np.testing.assert_allclose(X[:, :4].std(axis=0), 1)

    def test_levels_never_seen_are_rare_ones(self):
        frame = pd.DataFrame({"level": ["a"] * 20 + ["b"] * 20 + ["c", "d"]})
        made = preprocessing(frame).fit(frame)
        with pytest.warns(UserWarning, match="unknown categories"):
            new = made.transform(pd.DataFrame({"level": ["never seen", "c", "a"]}))
        assert new.tolist() == [[0, 0, 1], [0, 0, 1], [1, 0, 0]]

    def test_text_in_a_column_of_numbers(self):
        with pytest.raises(TableError, match="'a' must hold numbers, but row 1 has 'x'"):
            as_numbers(pd.DataFrame({"a": ["1", "x"]}))

    def test_infinity(self):
        with pytest.raises(TableError, match="'a' is infinite in row 1"):
            as_numbers(pd.DataFrame({"a": [1.0, -np.inf]}))

    def test_numbers_that_would_overflow(self):
        with pytest.raises(TableError, match="too large to compute with, in row 0"):
            as_numbers(pd.DataFrame({"a": [1e200, 1.0]}))

    def test_days(self):
        frame = pd.DataFrame({"text": ["1970-01-02", None], "date": pd.to_datetime(["1970-01-03", None])})
        days = frame.apply(as_days)
        assert days.iloc[0].tolist() == [1.0, 2.0]
        assert days.iloc[1].isna().all()
        with pytest.raises(TableError, match="must hold dates"):
            as_days(pd.Series(["soon"], name="d"))

    def test_levels(self):
        frame = pd.DataFrame({"flag": pd.Series([True, None], dtype=object), "level": ["a", None]})
        assert as_levels(frame).tolist() == [["True", "a"], ["(missing)", "(missing)"]]

    def test_rare(self):
        assert [rare_below(n) for n in (4, 25, 40, 10_000)] == [2, 3, 4, 5]


@pytest.mark.parametrize(
    ("name", "target", "task"),
    [
        ("auto_mpg", "mpg", "regression"),
        ("heart_disease", "chd", "binary"),
        ("bike_sharing_hour", "cnt", "counts"),
        ("wine_quality", "colour", "binary"),
        ("communities_crime", "ViolentCrimesPerPop", "regression"),
        ("abalone", "rings", "regression"),
    ],
)
def test_real_tables(data_folder, name, target, task):
    table = split(read_table(data_folder / f"{name}.csv.gz"), target)
    X = preprocessing(table.features).fit_transform(table.features)
    assert table.task == task
    assert np.all(np.isfinite(X))
