"""Tables as people write them: European and dollar numbers, Latin-1, dates, separators."""

import numpy as np
import pandas as pd
import pytest

from onefit.cli import dates, numerals
from onefit.cli.errors import TableError
from onefit.cli.meaning import Format
from onefit.cli.reading import read_table
from onefit.cli.table import kind_of


@pytest.fixture
def read(tmp_path):
    def reading(content, **asked):
        path = tmp_path / "t.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        target = asked.pop("target", None)
        return read_table(path, Format(**asked), target)

    return reading


class TestNumbers:
    def test_continental(self, read):
        source = read("preis;n;ort\n68.045,57;1.234;Köln\n1.200,00;12;Bonn\n")
        assert source.frame["preis"].tolist() == [68045.57, 1200.0]
        assert source.frame["n"].tolist() == [1234.0, 12.0]
        assert source.format.decimal == ","
        assert "decimal ',' and '.' between thousands: preis" in " ".join(source.notes)

    def test_points_beside_commas_are_not_thousands(self, read):
        frame = read("a;b\n1,5;3.14\n2,5;2.71\n").frame
        assert frame["a"].tolist() == [1.5, 2.5]
        assert frame["b"].tolist() == [3.14, 2.71]

    def test_dollars_brackets_and_percent(self, read):
        source = read('price,share\n"$68,045.57",12%\n"($1,200.00)",5 %\n')
        assert source.frame["price"].tolist() == [68045.57, -1200.0]
        assert source.frame["share"].tolist() == [12.0, 5.0]
        assert "currency and percent signs were taken off price, share" in source.notes

    def test_cells_that_differ_in_their_sign_are_pointed_out(self, read):
        source = read("share,price,tax\n93.5%,$5,5%\n0.935,7 USD,0\n12 %,€7,0.0\n?,US$ 7,\n")
        assert source.frame["share"].dropna().tolist() == [93.5, 0.935, 12.0]
        assert source.notes[-2:] == (
            "cells of share differ in their sign (% in 2, no sign in 1) and were read as they are: "
            "write all alike",
            "cells of price differ in their sign ($ in 3, € in 1) and were read as they are: write all alike",
        )
        assert source.format.units == {"share": "% or no sign", "price": "$ or €", "tax": "%"}

    @pytest.mark.parametrize(
        ("cells", "expected"),
        [
            (["1 234,5", "2 500,25"], [1234.5, 2500.25]),
            (["1'234.50", "22"], [1234.5, 22.0]),
            (["1,234", "5,678"], [1234.0, 5678.0]),
            (["0,123", "1,456"], [0.123, 1.456]),
            (["1.234.567", "12"], [1234567.0, 12.0]),
            (["EUR 5", "7 EUR"], [5.0, 7.0]),
            (["−3", "+4"], [-3.0, 4.0]),
            (["1e3", "2.5E-1"], [1000.0, 0.25]),
        ],
    )
    def test_writings(self, cells, expected):
        column = pd.Series(cells)
        found = numerals.read_numbers(column, numerals.decimal_mark([column]))
        assert found is not None
        np.testing.assert_allclose(found[1], expected)

    def test_a_column_without_any_cell_beside_decimal_commas(self, read):
        frame = read("size;empty;word\n1,5;;a\n2,5;;b\n").frame
        assert frame["size"].tolist() == [1.5, 2.5]
        assert frame["empty"].isna().all()
        assert frame["word"].tolist() == ["a", "b"]

    def test_semicolons_between_columns_speak_for_decimal_commas(self, read):
        assert read("size;price\n3,123;6,250\n2,500;5,125\n").frame["size"].tolist() == [3.123, 2.5]
        assert read("size\tprice\n3,123\t6,250\n2,500\t5,125\n").frame["size"].tolist() == [3123.0, 2500.0]

    def test_points_are_read_as_such_where_commas_are_asked_for_and_told(self, read):
        source = read("size;width;rest;whole\n3,5;1.25;$2.5;1\n2,5;2.5;$1.25;2\n", decimal=",")
        assert source.frame["width"].tolist() == [1.25, 2.5]
        said = "decimal '.' in {}, where ',' was to be expected: read as points"
        assert said.format("width, rest") in source.notes
        assert said.format("width") in read("size;width\n3,5;1.25\n2,5;2.5\n").notes
        assert not any("expected" in note for note in read("size;width\n3,5;1\n2,5;2\n").notes)

    def test_a_few_words_among_numbers_are_pointed_out(self, read):
        years = [*map(str, range(1950, 1990)), "unknown", "1990", "unknown", "before 1900"]
        source = read("year;size;code\n" + "\n".join(f"{one};k.A.;{one[:2]}" for one in years))
        assert source.frame["year"].tolist() == years
        (note,) = source.notes
        assert note.startswith("year holds numbers but for 'unknown', 'before 1900', and was read as text")
        assert "empty where they mean missing" in note
        assert source.frame["size"].isna().all()

    @pytest.mark.parametrize(
        ("numbers", "words"),
        [
            ([str(k) for k in range(25_000)], ["unknown"]),  # in no sample of every second row
            ([str(k) for k in range(25_000)], ["unknown", "none", "unknown"]),
            (["1", "2", "3"] * 300, ["unknown"]),  # a quarter of the distinct cells
            ([str(k) for k in range(40)], ["unknown"] * 60),  # more than half of the rows
        ],
    )
    def test_few_words_are_found_wherever_they_are(self, numbers, words):
        column = pd.Series([*numbers[:101], *words, *numbers[101:]])
        assert numerals.read_numbers(column) is None
        assert numerals.strays(column) == list(dict.fromkeys(words))

    @pytest.mark.parametrize(
        "cells", [["1", "2", "blue", "red"] * 9, ["1"] * 90 + ["blue", "red"], [], ["?"]]
    )
    def test_many_words_are_no_slips(self, cells):
        assert numerals.strays(pd.Series(cells, dtype=object)) == []

    @pytest.mark.parametrize("cells", [["12a", "3"], ["1.2.3", "4"], ["10-20", "30"], ["", ""]])
    def test_words_stay_words(self, cells):
        assert numerals.read_numbers(pd.Series(cells)) is None

    def test_a_late_cell_decides_too(self):
        column = pd.Series(["1,5"] * 9000 + ["1.234,5"])
        written, values = numerals.read_numbers(column, ",")
        assert written == numerals.CONTINENTAL
        assert values.iloc[-1] == 1234.5

    def test_a_late_cell_that_is_no_date_is_pointed_out(self, read):
        days = pd.date_range("1990-01-01", periods=12_000).strftime("%d.%m.%Y").tolist()
        days[9001] = "unknown"  # not among the cells that the format is seen from
        source = read("day;size\n" + "\n".join(f"{one};1" for one in days))
        assert source.frame["day"].tolist() == days
        (note,) = source.notes
        assert note.startswith("day holds dates but for 'unknown', and was read as text")

    def test_asked_for(self, read):
        frame = read("a;b\n1,234;2\n2,345;3\n", decimal=",").frame
        assert frame["a"].tolist() == [1.234, 2.345]
        frame = read("a;b\n1#234;2\n2#345;3\n", thousands="#").frame
        assert frame["a"].tolist() == [1234.0, 2345.0]

    def test_marks_of_missing_values(self, read):
        frame = read("a,b\n1,-\n2,n.a.\n3,4\n").frame
        assert frame["b"].isna().tolist() == [True, True, False]


class TestLabels:
    """Marks of missing values that are labels of the target."""

    @pytest.mark.parametrize("word", ["None", "null", "NULL"])
    def test_a_word_among_labels_is_one(self, read, word):
        source = read(f"y,b\n{word},x\nmild,{word}\n,x\nsevere,z\n{word},z\n", target="y")
        assert source.frame["y"].fillna("").tolist() == [word, "mild", "", "severe", word]
        assert source.frame["b"].isna().tolist() == [False, True, False, False, False]
        assert f"y is {word!r} in 2 rows: taken as a label" in source.notes[-1]

    def test_other_marks_are_missing_and_named(self, read):
        source = read("a;y;y\n1,5;NA;NA\n2,5;mild;mild\n3;None;None\n4;?;?\n5;severe;severe\n", target="y")
        assert source.frame["y"].fillna("").tolist() == ["", "mild", "None", "", "severe"]
        assert source.frame["a"].tolist() == [1.5, 2.5, 3.0, 4.0, 5.0]
        assert "y is 'NA' in 1 row, '?' in 1 row: taken as missing" in source.notes[-1]

    def test_a_mark_beside_a_single_label_is_the_other_one(self, read):
        source = read("a,y\n1,+\n2,-\n3,-\n4,\n", target="y")
        assert source.frame["y"].fillna("").tolist() == ["+", "-", "-", ""]

    @pytest.mark.parametrize("cells", [["1.5", "None", "2"], ["1", "NA", "1"], ["true", "null", "false"]])
    def test_among_numbers_and_truths_they_mean_missing(self, read, cells):
        source = read("a,y\n" + "".join(f"{k},{cell}\n" for k, cell in enumerate(cells)), target="y")
        assert source.frame["y"].isna().tolist() == [False, True, False]
        assert source.notes[-1].startswith(f"y is {cells[1]!r} in 1 row: taken as missing")

    def test_a_slip_among_numbers_makes_no_labels(self, read):
        frame = read("a,y\n1,1\n2,2\n3,oops\n4,None\n5,5\n", target="y").frame
        assert frame["y"].isna().tolist() == [False, False, False, True, False]


class TestText:
    def test_latin_1(self, read):
        source = read("ort;wert\nKöln;1\nMünchen;2\nGrün;3\n".encode("latin-1"))
        assert source.frame["ort"].tolist() == ["Köln", "München", "Grün"]
        assert "read as cp1252" in source.notes[0]

    def test_cyrillic(self, read):
        words = "город;цена\nМосква;1\nСанкт-Петербург;2\nНижний Новгород;3\nЕкатеринбург;4\n"
        source = read(words.encode("cp1251"))
        assert source.frame.columns[0] == "город"

    def test_utf_16(self, read):
        source = read("a,b\nä,1\nö,2\n".encode("utf-16"))
        assert source.frame["a"].tolist() == ["ä", "ö"]

    @pytest.mark.parametrize("name", ["utf-8-sig", "utf_8_sig", "UTF8", "U8"])
    @pytest.mark.parametrize("mark", ["", "\ufeff"])
    def test_names_of_utf_8(self, read, name, mark):
        assert list(read(f"{mark}ä,b\nx,1\n", encoding=name).frame) == ["ä", "b"]

    def test_a_late_byte(self, read):
        source = read(("a,b\n" + "x,1\n" * 400_000).encode() + "é,2\n".encode("latin-1"))
        assert source.frame["a"].iloc[-1] == "é"

    def test_commas_in_quotes(self, read):
        frame = read('a;b\n"x, y, z";1\n"u, v, w";2\n').frame
        assert frame["a"].tolist() == ["x, y, z", "u, v, w"]

    def test_single_column(self, read):
        assert read("a\n1\n2\n").frame["a"].tolist() == [1, 2]

    def test_separator_asked_for(self, read):
        assert list(read("a:b\n1:2\n", separator=":").frame) == ["a", "b"]

    def test_column_that_is_there_twice(self, read):
        source = read("a,b,a\n1,2,1\n2,3,2\n")
        assert list(source.frame) == ["a", "b"]
        assert "column 'a' is there 2 times, all alike, and was read once" in source.notes
        with pytest.raises(TableError, match="columns 1 and 3 are both named 'a' and differ"):
            read("a,b,a\n1,2,1\n2,3,9\n")

    @pytest.mark.parametrize("separator", ["\t", " ", ","])
    @pytest.mark.parametrize("ends", ["4", "NA"])
    def test_a_header_that_is_one_cell_short_has_row_names(self, read, separator, ends):
        lines = ['"zip" "z" "y"', '"Ann" "01067" 1.5 2', f'"Bob" "20095" 2.5 {ends}', "", '"Eve" "04109" 3 4']
        content = "\n".join(lines).replace(" ", separator)
        source = read(content, separator=" " if separator == " " else None, target="y")
        assert list(source.frame) == ["Unnamed: 0", "zip", "z", "y"]
        assert source.frame["Unnamed: 0"].tolist() == ["Ann", "Bob", "Eve"]
        assert source.frame["zip"].tolist() == ["01067", "20095", "04109"]
        assert source.frame["y"].fillna(4.0).tolist() == [2, 4, 4]
        assert "the header is one cell short: rows begin with their names" in " ".join(source.notes)

    def test_row_names_beside_decimal_commas(self, read):
        frame = read("x;y\na;1,5;3\nb;2,5;4\n").frame
        assert frame["x"].tolist() == [1.5, 2.5]
        assert frame["y"].tolist() == [3.0, 4.0]

    @pytest.mark.parametrize("ends", [",", ",,", ", "])
    def test_separators_at_the_end_of_rows_are_no_cells(self, read, ends):
        source = read(f"x,y\n1,2{ends}\n3,4{ends}\n")
        assert source.frame.to_dict("list") == {"x": [1, 3], "y": [2, 4]}
        assert source.notes == ("rows end in empty cells beyond the header, which were left out",)

    @pytest.mark.parametrize(
        "content", ["Sales of 2024\nx,z,y\n1,2,3\n4,5,6\n", "# by me\n\nx,z,y\n1,2,3\n", "x,y\n1,2,3\n4,5\n"]
    )
    def test_a_line_that_is_longer_than_the_header_is_named(self, read, content):
        with pytest.raises(TableError, match=r"line [23] has more cells than the header: the first line"):
            read(content)

    @pytest.mark.parametrize("names", ["abc", "123"])
    def test_names_of_rows_below_the_first_column_are_refused(self, read, names):
        content = "x,y,\n" + "".join(f"{name},{k}.5,{k % 2}\n" for k, name in enumerate(names))
        with pytest.raises(
            TableError, match=r"the header ends in an empty cell, and 'x' holds .*, as names of rows"
        ):
            read(content)

    @pytest.mark.parametrize("first", ["aab", ["1", "2", "4"], ["1,5", "2,5", "3,5"]])
    def test_a_last_column_without_a_name_is_one(self, read, first):
        content = "x;y;\n" + "".join(f"{cell};{k};{k % 2}\n" for k, cell in enumerate(first))
        assert read(content).frame["Unnamed: 2"].tolist() == [0, 1, 0]


class TestDates:
    def test_models_of_earlier_versions_keep_their_clock(self):
        days = pd.DataFrame({"d": pd.date_range("2024-01-01", periods=200, freq="h", tz="America/New_York")})
        made = dates.Calendar().fit(days)
        utc = dates.Calendar().fit(days.assign(d=days["d"].dt.tz_convert("UTC")))
        del made.clock_
        np.testing.assert_array_equal(
            made.transform(days), utc.transform(days.assign(d=days["d"].dt.tz_convert("UTC")))
        )

    @pytest.mark.parametrize(
        ("cells", "format_", "unsure"),
        [
            (["01.02.2024", "28.03.2024"], "%d.%m.%Y", False),
            (["01.02.2024", "03.04.2024"], "%d.%m.%Y", False),
            (["02/28/2024", "03/01/2024"], "%m/%d/%Y", False),
            (["28/02/2024", "01/03/2024"], "%d/%m/%Y", False),
            (["02/03/2024", "03/01/2024"], "%m/%d/%Y", True),
            (["1.2.24", "28.3.24"], "%d.%m.%y", False),
            (["2024-01-05", "2024-01-06 10:00"], "ISO8601", False),
            (["2024/1/5", "2024/01/06"], "%Y/%m/%d", False),
            (["5 Jan 2024", "6 Feb 2024"], "%d %b %Y", False),
            (["01.02.2024 10:30", "28.03.2024 11:45"], "%d.%m.%Y %H:%M", False),
        ],
    )
    def test_formats(self, cells, format_, unsure):
        assert dates.date_format(pd.Series(cells)) == (format_, unsure)
        assert dates.dates(pd.Series([*cells, None]), format_).isna().tolist() == [False, False, True]

    @pytest.mark.parametrize(
        "cells", [["1.2", "3.4"], ["13.13.2024", "01.01.2024"], ["10/20", "5/6"], ["x", "y"]]
    )
    def test_what_is_no_date(self, cells):
        assert dates.date_format(pd.Series(cells)) is None

    def test_doubt_is_told_and_can_be_settled(self, read):
        content = "d,y\n02/03/2024,1\n03/01/2024,2\n"
        source = read(content)
        assert "--day-first" in " ".join(source.notes)
        assert source.frame["d"].dt.month.tolist() == [2, 3]
        assert read(content, day_first=True).frame["d"].dt.month.tolist() == [3, 1]

    def test_calendar(self):
        days = pd.DataFrame({"d": pd.date_range("2022-01-01", "2023-12-31", freq="D")})
        made = dates.Calendar().fit(days)
        names = made.get_feature_names_out().tolist()
        X = made.transform(days)
        assert names[:3] == ["d (days)", "d: season, winter", "d: season, spring"]
        monday = names.index("d: Monday")
        np.testing.assert_array_equal(X[:, monday] == 1, days["d"].dt.day_of_week == 0)
        winter, spring = X[:, 1], X[:, 2]
        assert days["d"].dt.month.iloc[int(winter.argmax())] in (1, 12)
        assert days["d"].dt.month.iloc[int(spring.argmax())] in (3, 4)

    def test_missing_dates_are_missing_once(self):
        days = pd.DataFrame({"d": [*pd.date_range("2022-01-01", "2023-12-31", freq="D"), None]})
        X = dates.Calendar().fit(days).transform(days)
        assert np.isnan(X[-1, 0])
        assert np.all(X[-1, 1:] == 0)

    def test_short_spans_are_days_alone(self):
        days = pd.DataFrame({"d": pd.date_range("2022-01-01", periods=10)})
        assert dates.Calendar().fit(days).get_feature_names_out().tolist() == ["d (days)"]

    def test_one_time_of_day_is_no_hour(self):
        days = pd.DataFrame({"d": pd.date_range("2023-01-01 09:20:00", periods=20, freq="D")})
        noon = pd.DataFrame({"d": days["d"] + pd.Timedelta(hours=3)})
        assert dates.Calendar().fit(days).get_feature_names_out().tolist() == ["d (days)"]
        made = dates.Calendar().fit(pd.concat([days, noon]))
        assert made.get_feature_names_out().tolist() == ["d (days)", "d: hour, night", "d: hour, morning"]
        X = made.transform(days)
        assert np.all(X[:, 1:] == X[0, 1:])
        np.testing.assert_allclose(X[0, 1:], np.cos(2 * np.pi * (np.array([0.0, -0.25]) + 28 / 72)))

    def test_parts_of_zoned_times_are_those_of_the_clock_there(self):
        moments = pd.date_range("2022-12-05", periods=40, freq="D", tz="Europe/Berlin").to_series()
        days = pd.DataFrame({"d": moments[moments.dt.day_of_week != 6]})
        made = dates.Calendar().fit(days)
        names = made.get_feature_names_out().tolist()
        assert "d: Sunday" not in names
        assert "d: hour, night" not in names
        X = made.transform(days)
        np.testing.assert_array_equal(X[:, names.index("d: Monday")] == 1, days["d"].dt.day_of_week == 0)
        np.testing.assert_allclose(X[0, 0] % 1, 23 / 24)

    @pytest.mark.parametrize("mark", ["T", " "])
    def test_offsets_of_text(self, read, mark):
        winter = [f"2022-12-05{mark}00:30:00+01:00", f"2022-12-06{mark}00:30:00+01:00"]
        frame = read("d,y\n" + "".join(f"{one},1\n" for one in winter)).frame
        assert frame["d"].dt.hour.tolist() == [0, 0]
        both = read("d,y\n" + "".join(f"{one},1\n" for one in [*winter, f"2023-07-03{mark}00:30+0200"])).frame
        assert kind_of(both["d"]) == "date"
        for one in (frame, both):
            days = np.floor(dates.local_days(one["d"]))
            assert ((days + 3) % 7).tolist() == [0, 1, 0][: len(one)]  # Monday, Tuesday, Monday
        np.testing.assert_allclose(np.diff(dates.as_days(both["d"])), [1.0, 209 - 1 / 24])
        assert read(f"d,y\n2022-12-05{mark}00:30Z,1\n2022-12-05,2\n").frame["d"].dt.hour.tolist() == [0, 0]


class TestCodes:
    """Digits with leading zeros are names of something."""

    @pytest.mark.parametrize("decimal", [".", ","])
    def test_zeros_stay(self, tmp_path, decimal):
        sep = ";" if decimal == "," else ","
        rows = [["zip", "size", "when", "share"], ["01067", "3", "00:10", f"0{decimal}5"]]
        rows += [["20095", "", "01:00", f"1{decimal}25"], ["", "7", "00:30", f"0{decimal}25"]]
        path = tmp_path / "t.csv"
        path.write_text("\n".join(sep.join(row) for row in rows), encoding="utf-8")
        found = read_table(path)
        assert found.frame["zip"].tolist()[:2] == ["01067", "20095"]
        assert found.frame["zip"].isna().tolist() == [False, False, True]
        np.testing.assert_array_equal(found.frame["share"], [0.5, 1.25, 0.25])
        np.testing.assert_array_equal(found.frame["size"], [3.0, np.nan, 7.0])
        assert found.format.codes == ("zip",)
        assert any(note.startswith("zip with leading zeros: read as codes") for note in found.notes)

    def test_zero_itself_and_signs_are_numbers(self, tmp_path):
        (tmp_path / "t.csv").write_text("a,b,c\n0,-01,01.5\n10,02,2\n", encoding="utf-8")
        found = read_table(tmp_path / "t.csv")
        assert found.frame.dtypes.map(lambda kind: kind.kind in "if").all()
        assert found.format.codes == ()

    def test_known_codes_are_read_alike_where_no_zero_leads(self, tmp_path):
        (tmp_path / "t.csv").write_text("zip,size\n20095,1\n,2\n", encoding="utf-8")
        assert read_table(tmp_path / "t.csv", Format(codes=("zip",))).frame["zip"].iloc[0] == "20095"

    def test_json_is_named(self, tmp_path):
        for text in ('{"a":1}', '[{"a": 1}]', '{\n  "a": [1, 2]\n}', "[[1, 2], [3, 4]]"):
            (tmp_path / "t.json").write_text(text, encoding="utf-8")
            with pytest.raises(TableError, match=r"is JSON: tables are read from CSV, .* and Parquet"):
                read_table(tmp_path / "t.json")

    @pytest.mark.parametrize("cells", [["0042", "17", "311"], ["00", "07", "23"], ["7", "0", "3"]])
    def test_numbers_with_a_zero_before_some_are_numbers(self, tmp_path, cells):
        (tmp_path / "t.csv").write_text("\n".join(["a", *cells]) + "\n", encoding="utf-8")
        found = read_table(tmp_path / "t.csv")
        np.testing.assert_array_equal(found.frame["a"], [float(cell) for cell in cells])
        assert found.format.codes == ()

    def test_a_model_that_knows_its_codes_does_not_say_so_again(self, tmp_path):
        (tmp_path / "t.csv").write_text("zip\n01067\n20095\n", encoding="utf-8")
        assert not read_table(tmp_path / "t.csv", Format(codes=("zip",))).notes
