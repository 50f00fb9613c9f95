"""The stored results of the papers: the pages are drawn from them, and cheap ones come out again."""

from __future__ import annotations

import importlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

PAPERS = Path(__file__).parents[1] / "papers"
CHEAP = {
    "2020_erg/table_2.py": ("2020_erg.table_2", ""),
    "2017_aloocv/figure_1.py": ("2017_aloocv.figure_1", "end"),
}


def run(*arguments):
    paths = [str(PAPERS.parent / "src"), str(PAPERS), os.environ.get("PYTHONPATH", "")]
    told = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "MPLBACKEND": "Agg"}
    return subprocess.run(
        [sys.executable, *map(str, arguments)], env=told, capture_output=True, text=True, check=False
    )


@pytest.fixture
def results(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(PAPERS))
    monkeypatch.setenv("PAPERS_SIZE", "quick")
    monkeypatch.setenv("PAPERS_OUT", str(tmp_path))
    for name in ("tables", "results"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    module = importlib.import_module("results")
    yield module
    for name in ("tables", "results"):
        sys.modules.pop(name, None)


def test_the_pages_are_drawn_from_the_stored_results():
    done = run(PAPERS / "pages.py", "--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_result_is_older_than_the_code_it_rests_on(results):
    stored, ours = results.every(), platform.python_version_tuple()[:2]
    if any(tuple(one["made"]["versions"]["python"].split(".")[:2]) != ours for one in stored):
        pytest.skip("code is written out otherwise in the Python that the results were made by")
    stale = {f"{one['paper']}.{one['name']}": moved for one in stored if (moved := results.changed(one))}
    assert not stale, "python papers/render.py --quick"


def test_every_claim_has_a_verdict_and_a_reason_where_it_is_not_borne_out():
    rows = [line.strip("| ").split(" | ") for line in (PAPERS / "README.md").read_text().splitlines()]
    first = next(k for k, row in enumerate(rows) if row[0] == "paper") + 2
    last = next(k for k in range(first, len(rows)) if len(rows[k]) < 5)
    assert last - first >= 30
    for row in rows[first:last]:
        assert row[4] in {"reproduced", "in part", "contradicted"}, row
        assert row[4] == "reproduced" or (len(row) == 6 and row[5].strip()), row


@pytest.mark.parametrize("script", CHEAP)
@pytest.mark.slow
def test_stored_quick_numbers_come_out_again(script, tmp_path):
    pytest.importorskip("matplotlib")
    name, which = CHEAP[script]
    stored = json.loads((PAPERS / "results" / "quick" / f"{name}.json").read_text())["numbers"]
    done = run(PAPERS / "render.py", "--quick", "--out", tmp_path, script)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "quick" / f"{name}.json").read_text())["numbers"]
    kept = [key for key in stored if key.endswith(which)]
    assert kept
    assert found.keys() == stored.keys()
    assert {key: found[key] for key in kept} == pytest.approx({key: stored[key] for key in kept}, rel=1e-3)


def test_every_result_says_what_it_was_made_by():
    for path in (PAPERS / "results").glob("*/*.json"):
        made = json.loads(path.read_text())
        assert made["made"]["commit"] != "unknown", path
        assert {"python", "numpy", "scikit-learn"} <= made["made"]["versions"].keys()
        assert any(name.startswith(("src/onefit/", "papers/")) for name in made["sources"])


def test_a_change_of_code_is_told_and_one_of_prose_is_not(results, monkeypatch, tmp_path):
    source = tmp_path / "module.py"
    source.write_text('"""Prose."""\n\n\ndef f():\n    """More."""\n    return 1  # one\n')
    monkeypatch.setattr(results, "ROOT", tmp_path)
    stored = {"sources": {"module.py": results.hash_of(source)}}
    source.write_text('"""Other prose."""\n\n\ndef f():\n    """Less."""\n    return 1\n')
    assert results.changed(stored) == []
    source.write_text('"""Prose."""\n\n\ndef f():\n    """More."""\n    return 2\n')
    assert results.changed(stored) == ["module.py"]
    source.unlink()
    assert results.changed(stored) == ["module.py"]


def test_reduced_sizes_are_noted(results, capsys):
    assert results.pick("draws", full=20, quick=2) == 2
    assert results.pick("sizes", full=(1, 2, 3), quick=(1,)) == (1,)
    results.save("2018_alo", "a_table", ("a", "b"), [("1", "2")], numbers={"a": 1.0})
    stored = results.load("2018_alo", "a_table")
    assert stored["reduced"] == {"draws": [2, 20], "sizes": [1, 3]}
    assert stored["rows"] == [["1", "2"]]
    assert results.changed(stored) == []
    assert "| a | b |" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="is missing"):
        results.load("2018_alo", "another")
