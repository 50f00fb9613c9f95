"""What benchmarks take from the library is there: they are run by hand, and would tell too late."""

from __future__ import annotations

import ast
import importlib
from importlib.util import find_spec
from pathlib import Path

import pytest

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
