"""What benchmarks take from the library is there: they are run by hand, and would tell too late."""

from __future__ import annotations

import ast
import importlib
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import r2_score

from onefit.cli.reading import read_table
from onefit.cli.table import kind_of

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: str(path.relative_to(FOLDER)))
def test_imports_from_the_library_exist(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ImportFrom) or not str(node.module).startswith("onefit"):
            continue
        if "torch" in str(node.module):
            pytest.importorskip("torch")
        module = importlib.import_module(str(node.module))
        for alias in node.names:
            known = hasattr(module, alias.name) or find_spec(f"{node.module}.{alias.name}") is not None
            assert known, f"line {node.lineno}: {node.module} has no {alias.name}"


class TestTuneTables:
    """The two sides of ``tune_tables.py`` on a table whose noise is known, in groups of three rows."""

    NOISE = 0.5

    @pytest.fixture
    def script(self, monkeypatch):
        monkeypatch.syspath_prepend(FOLDER)
        return importlib.import_module("tune_tables")

    @pytest.fixture
    def case(self, script):
        rng = np.random.default_rng(0)
        x, z, day = rng.normal(size=180), rng.normal(size=180), pd.date_range("2024-01-01", periods=180)
        place = np.where(z + rng.normal(size=180) > 0, "town", "coast")
        y = 2.0 * x + (place == "town") + self.NOISE * rng.normal(size=180)
        columns = {"house": np.arange(180) // 3, "x": x, "day": day, "place": place, "answer": y, "y": y}
        content = pd.DataFrame(columns).to_csv(index=False).encode()
        return script.Case("small.csv", "y", lambda: content, "house", ("answer",))

    def test_lines_are_parted_by_whole_groups(self, script, case, tmp_path):
        parts = script.divide(case, tmp_path)
        houses = parts.frame["house"].to_numpy()
        assert not set(houses[parts.seen]) & set(houses[parts.last])
        assert (len(set(houses[parts.seen])), len(set(houses[parts.last]))) == (40, 20)
        header, *lines = case.content().splitlines()
        for name, rows in (("seen", parts.seen), ("last", parts.last)):
            written = (tmp_path / f"{name}.csv").read_bytes().splitlines()
            assert written == [header, *(lines[row] for row in rows)]

    def test_both_sides_are_judged_on_the_last_third(self, script, case, tmp_path):
        found, parts = script.compared(case), script.divide(case, tmp_path)
        y = parts.frame["y"].to_numpy()[parts.last]
        for losses, score in zip(found.losses, found.scores, strict=True):
            assert 0.5 * self.NOISE**2 < losses.mean() < 2.0 * self.NOISE**2
            assert score.startswith(f"{r2_score(y, y - np.sqrt(losses)):.3f} ± ")
        assert found.summary["column"] == "house"
        for made, titles in zip(script.lines(case, [found]), (script.SAYS, script.BESIDE), strict=True):
            assert len(made.split("|")) == len(titles) + 2

    def test_errors_are_those_of_groups(self, script):
        rng = np.random.default_rng(0)
        ours, theirs, groups = rng.random(60), rng.random(60), np.repeat(np.arange(12), 5)
        found = script.Found(60, {}, (ours, theirs), ("", ""), groups, [])
        of_groups = (theirs - ours).reshape(12, 5).mean(axis=1)
        assert found.gain[0] == pytest.approx(1.0 - ours.mean() / theirs.mean())
        assert found.gain[1] == pytest.approx(of_groups.std(ddof=1) / np.sqrt(12) / theirs.mean())

    @pytest.mark.parametrize(
        ("name", "kinds"),
        [
            ("mieten.csv", "text number number number text number"),
            ("sales.csv", "date number number text number"),
            ("besucher.tsv", "date number text number"),
            ("patients.csv", "text number number text number number number"),
            ("fraud.csv", "text number number text text text"),
        ],
    )
    def test_made_up_tables_are_read_as_they_are_meant(self, script, tmp_path, name, kinds):
        content = next(case for case in script.CASES if case.file == name).content()
        (tmp_path / name).write_bytes(content)
        frame = read_table(tmp_path / name).frame
        assert [kind_of(frame[column]) for column in frame] == kinds.split()
