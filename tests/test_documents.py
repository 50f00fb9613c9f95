"""What README and site say: commands that run, and an API page that forgets no name.

Their Python blocks are doctests, which pytest collects by itself.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import onefit

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "guide").glob("*.md")),
]
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
NAMES = ["onefit", "onefit.losses", "onefit.penalties", "onefit.risk"]
INTERNAL = {  # packages, registries, and what those need who write penalties
    *("losses", "sources", "penalties", "risk", "testing", "LOSSES", "PENALTIES"),
    *(
        "AnalysisPenalty",
        "Cone",
        "Conic",
        "ConicForm",
        "Coordinates",
        "Coordinatewise",
        "GroupPenalty",
        "Pieces",
    ),
    *("PiecewiseRows", "Polyhedral", "SeparablePenalty", "Strengths", "Subspace", "Sum", "Tangent"),
}


def _commands(page):
    lines = [line for block in BLOCK.findall(page.read_text()) for line in block.splitlines()]
    return [line for line in lines if line.startswith("onefit ")]


def _tables(folder):
    """The tables that the pages speak of."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    for name, target in [("houses", "price"), ("auto_mpg", "mpg"), ("diabetes", "target")]:
        table = pd.DataFrame(rng.normal(size=(40, 3)), columns=["size", "age", "distance"])
        table["district"] = rng.choice(["north", "south"], 40)
        table.drop(columns=[]).to_csv(folder / "new.csv", index=False)
        table[target] = 3 * table["size"] - table["age"] + rng.normal(size=40)
        table.loc[3, "age"] = np.nan
        table.to_csv(folder / f"{name}.csv", index=False)


@pytest.mark.parametrize("page", [page for page in PAGES if _commands(page)], ids=lambda page: page.name)
def test_commands(page, tmp_path, monkeypatch):
    testing = pytest.importorskip("click.testing")
    from onefit.cli.app import main

    _tables(tmp_path)
    monkeypatch.chdir(tmp_path)
    for command in _commands(page):
        words = shlex.split(command, comments=True)[1:]
        result = testing.CliRunner().invoke(main, words)
        assert result.exit_code == 0, f"{command}\n{result.output}"


@pytest.mark.parametrize("module", NAMES)
def test_the_api_page_has_every_name(module):
    page = (ROOT / "docs" / "api" / "index.md").read_text().split()
    package = onefit if module == "onefit" else getattr(onefit, module.partition(".")[2])
    assert set(package.__all__) - INTERNAL <= set(page)


def _names_of_the_api_page():
    module = ""
    for line in (ROOT / "docs" / "api" / "index.md").read_text().splitlines():
        if line.startswith(".. currentmodule:: "):
            module = line.split()[-1]
        elif re.fullmatch(r"   [A-Za-z]\w*", line):
            yield module, line.strip()


@pytest.mark.parametrize("module", sorted({module for module, _ in _names_of_the_api_page()}))
def test_every_name_of_the_api_has_an_example(module):
    package = pytest.importorskip(module, reason=f"{module} needs an extra", exc_type=ImportError)
    names = [name for found, name in _names_of_the_api_page() if found == module]
    assert names
    assert not [name for name in names if ">>> " not in (getattr(package, name).__doc__ or "")]


def test_no_page_of_the_guide_is_forgotten():
    index = (ROOT / "docs" / "guide" / "index.md").read_text().split()
    assert {page.stem for page in (ROOT / "docs" / "guide").glob("*.md")} - {"index"} <= set(index)


def test_no_block_of_python_is_left_unexecuted():
    """Every Python block has prompts, by which doctest finds it."""
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            assert block.startswith(">>> "), f"{page.name}: {block.splitlines()[0]}"
